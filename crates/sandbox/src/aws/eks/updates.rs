//! Updates of clusters, node groups and add-ons: what was asked for, and how far it is.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::cluster::Cluster;
use super::errors::About;
use super::{find, page, time};
use crate::aws::ask::Ask;
use crate::aws::errors::Answer;
use crate::clock::SimTime;
use crate::table::Object;

/// What an update is of; the cluster itself where neither is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Of {
    pub node_group: Option<String>,
    pub addon: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Update {
    pub id: String,
    cluster: String,
    of: Of,
    #[serde(rename = "type")]
    kind: String,
    params: Vec<(String, String)>,
    created_at: SimTime,
    done_at: SimTime,
    /// Why it fails when its time has come.
    error: Option<(String, String)>,
    pub gone_at: Option<SimTime>,
}

impl Object for Update {
    const TYPE: &'static str = "aws.eks_update";

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        vec![format!("cluster:{}", self.cluster)]
    }

    fn gone_at(&self) -> Option<SimTime> {
        self.gone_at
    }

    fn ledger(&self, now: SimTime) -> Value {
        json!({"status": self.status(now), "update": self.kind, "default": true})
    }
}

impl Update {
    fn status(&self, now: SimTime) -> &'static str {
        match &self.error {
            _ if now < self.done_at => "InProgress",
            Some(_) => "Failed",
            None => "Successful",
        }
    }

    pub fn shown(&self, now: SimTime) -> Value {
        let params: Vec<Value> =
            self.params.iter().map(|(kind, value)| json!({"type": kind, "value": value})).collect();
        let failed = self.error.as_ref().filter(|_| now >= self.done_at);
        let errors: Vec<Value> =
            failed.iter().map(|(code, message)| json!({"errorCode": code, "errorMessage": message})).collect();
        json!({
            "id": self.id, "status": self.status(now), "type": self.kind, "params": params,
            "createdAt": time(self.created_at), "errors": errors,
        })
    }
}

/// An update to begin.
pub struct Begin<'a> {
    pub of: Of,
    pub kind: &'a str,
    pub params: Vec<(&'a str, String)>,
    /// How long it takes, in seconds.
    pub takes: (u32, u32),
}

/// Records an update and says under which id it is known and when it will be done.
pub fn begin(ask: &mut Ask, cluster: &Cluster, begin: Begin) -> (String, SimTime, Value) {
    let done_at = match ask.effects().stuck {
        true => SimTime::NEVER,
        false => ask.in_seconds(begin.takes.0, begin.takes.1),
    };
    let now = ask.now();
    let update = Update {
        id: crate::world::new_id(),
        cluster: cluster.id.clone(),
        of: begin.of,
        kind: begin.kind.to_owned(),
        params: begin.params.into_iter().map(|(kind, value)| (kind.to_owned(), value)).collect(),
        created_at: now,
        done_at,
        error: None,
        gone_at: None,
    };
    let (id, mut shown) = (update.id.clone(), update.shown(now));
    // The answer to the call that asks for it always is that it has begun.
    shown["status"] = json!("InProgress");
    ask.store().eks.updates.insert(update);
    (id, done_at, shown)
}

/// Begins an update of the cluster itself.
pub fn of_cluster(
    ask: &mut Ask,
    cluster: &Cluster,
    kind: &str,
    params: Vec<(&str, String)>,
    (takes, members): ((u32, u32), Map<String, Value>),
) -> Value {
    let now = ask.now();
    let (id, at, shown) = begin(ask, cluster, Begin { of: Of::default(), kind, params, takes });
    ask.store().eks.clusters.update(&cluster.id, |cluster| cluster.spec.update(now, &id, at, members));
    json!({"update": shown})
}

fn asked_of(ask: &Ask) -> Of {
    let named = |member: &str| ask.input.text(member).filter(|name| !name.is_empty()).map(str::to_owned);
    Of { node_group: named("nodegroupName"), addon: named("addonName") }
}

/// The object whose updates are asked for must be there.
fn check(ask: &Ask, cluster: &Cluster, of: &Of) -> Answer<()> {
    if let Some(name) = &of.node_group {
        super::node_group_calls::find_in(ask, cluster, name)?;
    }
    if let Some(name) = &of.addon {
        super::addon_calls::find_in(ask, cluster, name)?;
    }
    Ok(())
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let (cluster, of) = (find(ask, "name")?, asked_of(ask));
    check(ask, cluster, &of)?;
    let id = ask.input.text("updateId").unwrap_or_default();
    let update = ask.state.store.eks.updates.get(id).filter(|update| update.cluster == cluster.id && update.of == of);
    match update {
        Some(update) => Ok(json!({"update": update.shown(ask.now())})),
        None => Err(About::cluster(&cluster.name).not_found(format!("No update found for ID: {id}"))),
    }
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let (cluster, of) = (find(ask, "name")?, asked_of(ask));
    check(ask, cluster, &of)?;
    let rows = ask.rows(|store| &store.eks.updates, &format!("cluster:{}", cluster.id));
    let ids = rows.iter().filter(|update| update.of == of).map(|update| json!(update.id)).collect();
    page(ask, "updateIds", ids)
}
