//! Objects that were not found in their cloud. A task is about one resource, so that only the store can see that much of an account
//! is gone at once.

use super::Control;
use super::columns::{IDS, IdRow};
use super::server_writer::Operation;
use super::tx::Tx;
use super::types::{ControlError, GoneObject};
use crate::db::{Multi, Query};
use crate::encode::check_count;
use async_trait::async_trait;
use berth_engine::GoneCount;
use berth_model::ResourceId;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeSet;

/// What is not found within this time went together, in microseconds: an hour.
pub(super) const TOGETHER_MICROS: i64 = 3600 * 1_000_000;
/// Objects in one call.
const OBJECTS_MAX: usize = 10_000;

static REMEMBER: Multi = Multi::new(
    "INSERT INTO gone (account, object_id, kind, name, org, env, at) \
     SELECT v.account, v.object_id, v.kind, v.name, v.org, v.env, v.now FROM {rows} \
     WHERE TRUE ON CONFLICT (account, object_id) DO UPDATE SET at = excluded.at",
    &[
        ("account", "text"),
        ("object_id", "text"),
        ("kind", "text"),
        ("name", "text"),
        ("org", "text"),
        ("env", "text"),
        ("now", "bigint"),
    ],
);
static FORGET: Multi = Multi::new(
    "DELETE FROM gone WHERE EXISTS (SELECT 1 FROM {rows} WHERE v.kind = gone.kind AND v.name = gone.name \
     AND v.org = gone.org AND v.env = gone.env)",
    IDS,
);
const ANY: &str = "SELECT EXISTS (SELECT 1 FROM gone)";
/// Objects that were made again since count among those that are gone, not twice among all.
const COUNT: &str = "SELECT (SELECT COUNT(*) FROM gone WHERE account = $1 AND at > $2), \
     (SELECT COUNT(*) FROM units WHERE account = $1 AND object_id IS NOT NULL AND NOT deposed)";

#[derive(Serialize)]
struct GoneRow<'a> {
    account: &'a str,
    object_id: &'a str,
    #[serde(flatten)]
    id: IdRow<'a>,
    now: i64,
}

struct Remember {
    objects: Vec<GoneObject>,
    now: Timestamp,
}

#[async_trait]
impl Operation for Remember {
    type Answer = Vec<GoneCount>;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<Self::Answer, ControlError> {
        let now = self.now.as_microsecond();
        let rows: Vec<GoneRow> = self
            .objects
            .iter()
            .map(|one| GoneRow { account: &one.account, object_id: &one.object_id, id: (&one.resource).into(), now })
            .collect();
        tx.execute_many(&REMEMBER, &rows).await?;
        let mut counts = Vec::new();
        for account in self.objects.iter().map(|one| one.account.as_str()).collect::<BTreeSet<_>>() {
            let row = tx.row(Query::new(COUNT).bind(account).bind(now - TOGETHER_MICROS)).await?;
            let row = row.ok_or(crate::error::StoreError::Ended)?;
            let number =
                |column| -> Result<usize, ControlError> { Ok(usize::try_from(row.get::<i64>(column)?).unwrap_or(0)) };
            counts.push(GoneCount { account: account.to_owned(), gone: number(0)?, of: number(1)? });
        }
        Ok(counts)
    }
}

struct Forget(Vec<ResourceId>);

#[async_trait]
impl Operation for Forget {
    type Answer = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), ControlError> {
        let rows: Vec<IdRow> = self.0.iter().map(IdRow::from).collect();
        tx.execute_many(&FORGET, &rows).await?;
        Ok(())
    }
}

impl Control {
    /// Remembers objects that were not found. How much of their accounts is gone by now, and went within an hour.
    pub async fn remember_gone(
        &self,
        mut objects: Vec<GoneObject>,
        now: Timestamp,
    ) -> Result<Vec<GoneCount>, ControlError> {
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        check_count("the list of objects that are gone", objects.len(), OBJECTS_MAX)?;
        objects.sort();
        objects.dedup_by(|a, b| (&a.account, &a.object_id) == (&b.account, &b.object_id));
        self.write(Remember { objects, now }).await
    }

    /// All objects of these resources are there, or may be made again.
    pub async fn forget_gone(&self, resources: Vec<ResourceId>) -> Result<(), ControlError> {
        let any = self.store().pool().row(Query::new(ANY), |row| row.get::<bool>(0)).await?;
        if any != Some(true) || resources.is_empty() {
            return Ok(());
        }
        self.write(Forget(resources)).await
    }
}
