//! Desired state: applying and deleting. Many applies that wait at once share their statements.

use super::columns::{IDS, IdRow, NUMBERED, Numbered};
use super::delete::delete_all;
use super::facts::{self, FACT_COLUMNS, Found, PATCH_COLUMNS, PatchRow, fact_columns, patch_assignments};
use super::server_writer::{BatchFailure, Operation};
use super::tx::Tx;
use super::types::{Actor, Applied, AppliedResult, Apply, AuditNote, ControlError};
use super::{Control, REVISIONS_KEPT, tasks};
use crate::db::{Multi, Query};
use crate::encode::{check_count, cut};
use crate::error::StoreError;
use crate::row_writes::{ResourceRow, RowWrite};
use async_trait::async_trait;
use berth_engine::lifecycle::{self, Event, Facts, Party, Permissions};
use berth_model::ResourceId;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Resources in one apply or delete.
pub const APPLY_MAX: usize = 10_000;
/// References of one resource.
const PARENTS_MAX: usize = 1_000;
/// Labels of one resource, as JSON.
const LABELS_BYTES_MAX: usize = 64 << 10;

static LOOK: Multi = Multi::new(
    concat!(
        "SELECT ",
        fact_columns!(),
        ", v.n, r.digest, r.account, r.service, r.applied_id FROM {rows} \
         JOIN resources r ON r.kind = v.kind AND r.name = v.name AND r.org = v.org AND r.env = v.env"
    ),
    NUMBERED,
);

static CREATE: Multi = Multi::joined(
    "INSERT INTO resources (kind, name, org, env, api_version, manifest, sealed_paths, digest, source_file, \
     source_document, created_at, updated_at, generation, deleting, state, message, outputs, facts, \
     observed_generation, status_at, secret_names, secrets, labels, account, service, applied_by, applied_id, trace, \
     allow_replace, allow_data_loss, allow_recreate, due_at, due_mark, drift_every, manifest_seal) \
     SELECT v.kind, v.name, v.org, v.env, v.api_version, v.manifest, v.sealed_paths, v.digest, v.source_file, \
     v.source_document, v.now, v.now, 1, FALSE, v.state, '', '{}', '{}', v.observed_generation, v.status_at, '', '', \
     v.labels, v.account, v.service, v.applied_by, v.applied_id, v.trace, \
     v.allow_replace, v.allow_data_loss, v.allow_recreate, v.due_at, 1, v.drift_every, v.manifest_seal FROM {rows}",
    COLUMNS,
    &[
        ("state", "text"),
        ("observed_generation", "bigint"),
        ("status_at", "bigint"),
        ("due_at", "bigint"),
        ("applied_by", "text"),
        ("applied_id", "text"),
        ("trace", "text"),
        ("allow_replace", "boolean"),
        ("allow_data_loss", "boolean"),
        ("allow_recreate", "boolean"),
        ("drift_every", "bigint"),
    ],
);

/// What was stored becomes a revision when something else takes its place.
static KEEP_REVISIONS: Multi = Multi::new(
    "INSERT INTO revisions (resource_id, generation, at, applied_by, sealed_paths, manifest, manifest_seal) \
     SELECT r.id, r.generation, r.updated_at, r.applied_by, r.sealed_paths, r.manifest, r.manifest_seal FROM {rows} \
     JOIN resources r ON r.kind = v.kind AND r.name = v.name AND r.org = v.org AND r.env = v.env",
    IDS,
);

static DROP_REVISIONS: Multi = Multi::new(
    "DELETE FROM revisions WHERE EXISTS (SELECT 1 FROM {rows} JOIN resources r \
     ON r.kind = v.kind AND r.name = v.name AND r.org = v.org AND r.env = v.env \
     WHERE r.id = revisions.resource_id AND revisions.generation < r.generation - v.n)",
    NUMBERED,
);

static UPDATE: Multi = Multi::joined(
    concat!(
        "UPDATE resources SET ",
        patch_assignments!(),
        ", api_version = v.api_version, manifest = v.manifest, manifest_seal = v.manifest_seal, \
         sealed_paths = v.sealed_paths, digest = v.digest, updated_at = v.now, labels = v.labels, \
         account = v.account, service = v.service, plan = '', \
         source_file = CASE WHEN v.source_file = '' THEN resources.source_file ELSE v.source_file END, \
         source_document = CASE WHEN v.source_file = '' THEN resources.source_document ELSE v.source_document END \
         FROM {rows} WHERE resources.id = v.id"
    ),
    PATCH_COLUMNS,
    COLUMNS,
);

/// The manifest is the one that is stored; what goes with it may differ.
static TOUCH: Multi = Multi::joined(
    concat!(
        "UPDATE resources SET ",
        patch_assignments!(),
        ", account = v.account, service = v.service FROM {rows} WHERE resources.id = v.id"
    ),
    PATCH_COLUMNS,
    &[("account", "text"), ("service", "text")],
);

/// Columns of [`Row`].
const COLUMNS: &[(&str, &str)] = &[
    ("kind", "text"),
    ("name", "text"),
    ("org", "text"),
    ("env", "text"),
    ("api_version", "text"),
    ("manifest", "text"),
    ("manifest_seal", "bigint"),
    ("sealed_paths", "text"),
    ("digest", "text"),
    ("source_file", "text"),
    ("source_document", "bigint"),
    ("now", "bigint"),
    ("labels", "text"),
    ("account", "text"),
    ("service", "text"),
];

static UNLINK: Multi = Multi::new(
    "DELETE FROM links WHERE child IN (SELECT r.id FROM {rows} JOIN resources r \
     ON r.kind = v.kind AND r.name = v.name AND r.org = v.org AND r.env = v.env)",
    IDS,
);

static LINK: Multi = Multi::new(
    "INSERT INTO links (child, kind, name, org, env) SELECT r.id, v.to_kind, v.to_name, v.to_org, v.to_env FROM {rows} \
     JOIN resources r ON r.kind = v.kind AND r.name = v.name AND r.org = v.org AND r.env = v.env \
     WHERE TRUE ON CONFLICT DO NOTHING",
    &[
        ("kind", "text"),
        ("name", "text"),
        ("org", "text"),
        ("env", "text"),
        ("to_kind", "text"),
        ("to_name", "text"),
        ("to_org", "text"),
        ("to_env", "text"),
    ],
);

/// What is referred to and on its way out.
static GOING: Multi = Multi::new(
    "SELECT v.n FROM {rows} JOIN resources r ON r.kind = v.kind AND r.name = v.name AND r.org = v.org AND r.env = v.env \
     WHERE r.deleting ORDER BY v.n",
    NUMBERED,
);

/// Whose object it is already. One object has one resource, or two would undo each other's changes.
pub(super) const OWNER: &str = "SELECT r.kind, r.name, r.org, r.env FROM units u JOIN resources r ON r.id = u.resource_id \
     WHERE u.object_id = $5 AND u.unit_type = $6 AND u.account = $7 \
     AND NOT (r.kind = $1 AND r.name = $2 AND r.org = $3 AND r.env = $4) LIMIT 1";

/// What was declared.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    id: IdRow<'a>,
    api_version: &'a str,
    manifest: &'a str,
    manifest_seal: i64,
    sealed_paths: &'a str,
    digest: &'a str,
    source_file: &'a str,
    source_document: u32,
    now: i64,
    labels: &'a str,
    account: &'a str,
    service: &'a str,
    /// It is Ready at once.
    #[serde(skip)]
    ready: bool,
}

#[derive(Serialize)]
struct Create<'a> {
    #[serde(flatten)]
    row: Row<'a>,
    state: &'static str,
    observed_generation: i64,
    status_at: Option<i64>,
    due_at: Option<i64>,
    applied_by: &'a str,
    applied_id: &'a str,
    trace: &'a str,
    allow_replace: bool,
    allow_data_loss: bool,
    allow_recreate: bool,
    drift_every: Option<i64>,
}

impl<'a> Create<'a> {
    fn new(row: Row<'a>, facts: &Facts, op: &'a ApplyOp) -> Self {
        Self {
            row,
            state: facts.state.as_str(),
            observed_generation: facts.observed_generation,
            status_at: facts.status_at,
            due_at: facts.due_at,
            applied_by: &op.by.name,
            applied_id: &op.by.id,
            trace: &op.trace,
            allow_replace: facts.permissions.replace,
            allow_data_loss: facts.permissions.data_loss,
            allow_recreate: facts.permissions.recreate,
            drift_every: facts.drift_every,
        }
    }
}

#[derive(Serialize)]
struct Update<'a> {
    #[serde(flatten)]
    patch: PatchRow,
    #[serde(flatten)]
    row: Row<'a>,
}

#[derive(Serialize)]
struct Touch<'a> {
    #[serde(flatten)]
    patch: PatchRow,
    account: &'a str,
    service: &'a str,
}

#[derive(Serialize)]
struct Link<'a> {
    #[serde(flatten)]
    id: IdRow<'a>,
    to_kind: &'a str,
    to_name: &'a str,
    to_org: &'a str,
    to_env: &'a str,
}

/// A resource of an apply, encoded and sealed: done before the writer's turn.
struct PreparedResource {
    row: ResourceRow,
    labels: String,
    parents: Vec<ResourceId>,
    account: String,
    service: String,
    expect: Option<i64>,
    permissions: Permissions,
    ready: bool,
    drift_every: Option<i64>,
    units: Vec<RowWrite>,
}

struct ApplyOp {
    wanted: Vec<PreparedResource>,
    delete: Vec<ResourceId>,
    actor: Actor,
    by: Party,
    audit: AuditNote,
    retry: bool,
    trace: String,
    now: Timestamp,
}

/// What is stored of a resource that is applied.
struct Stored {
    found: Found,
    digest: String,
    account: String,
    service: String,
    /// Empty where the author is known by name alone, as an earlier version left it: the next caller who applies it becomes the author.
    applied_id: String,
}

#[async_trait]
impl Operation for ApplyOp {
    type Answer = Vec<Applied>;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<Self::Answer, ControlError> {
        let mut answers = Self::run_many(&[self], tx).await.map_err(|broken| match broken {
            BatchFailure::Store(error) => ControlError::Store(error),
            BatchFailure::Half(error) => error,
        })?;
        answers.pop().unwrap_or(Err(ControlError::Store(StoreError::Ended)))
    }

    /// In rounds: no resource is twice in one.
    async fn run_many(ops: &[&Self], tx: &mut Tx<'_>) -> Result<Vec<Result<Self::Answer, ControlError>>, BatchFailure> {
        let mut answers: Vec<Option<Result<Vec<Applied>, ControlError>>> = ops.iter().map(|_| None).collect();
        let mut left: Vec<usize> = (0..ops.len()).collect();
        while !left.is_empty() {
            let mut taken: HashSet<&ResourceId> = HashSet::new();
            let (mut round, mut later) = (Vec::new(), Vec::new());
            for at in left {
                // What deletes looks at others' rows too, so it has a round of its own.
                let alone =
                    !ops[at].delete.is_empty() || round.first().is_some_and(|&one: &usize| !ops[one].delete.is_empty());
                let clash = ops[at].wanted.iter().any(|one| taken.contains(&one.row.id));
                if clash || (alone && !round.is_empty()) {
                    later.push(at);
                } else {
                    taken.extend(ops[at].wanted.iter().map(|one| &one.row.id));
                    round.push(at);
                }
            }
            apply_round(ops, &round, &mut answers, tx).await?;
            left = later;
        }
        Ok(answers.into_iter().map(|one| one.unwrap_or(Err(ControlError::Store(StoreError::Ended)))).collect())
    }
}

type Answers = [Option<Result<Vec<Applied>, ControlError>>];

async fn apply_round(
    ops: &[&ApplyOp],
    round: &[usize],
    answers: &mut Answers,
    tx: &mut Tx<'_>,
) -> Result<(), BatchFailure> {
    let all: Vec<(usize, &PreparedResource)> =
        round.iter().flat_map(|&at| ops[at].wanted.iter().map(move |one| (at, one))).collect();
    let mut stored = look(&all, tx).await?;
    let mut refused: HashSet<usize> = HashSet::new();
    for (n, (at, wanted)) in all.iter().enumerate() {
        let found = stored.get(&n).map_or(0, |stored| stored.found.facts.generation);
        if let Some(expected) = wanted.expect.filter(|expected| *expected != found)
            && refused.insert(*at)
        {
            answers[*at] = Some(Err(ControlError::Conflict { id: wanted.row.id.clone(), expected, found }));
        }
    }
    for (at, id, parent) in going(&all, tx).await? {
        if refused.insert(at) {
            answers[at] = Some(Err(ControlError::Going { id: Box::new(id.clone()), parent: Box::new(parent.clone()) }));
        }
    }
    let mut writes = Writes::default();
    let mut results: HashMap<usize, Vec<Applied>> = HashMap::new();
    for (n, (at, wanted)) in all.iter().enumerate().filter(|(_, (at, _))| !refused.contains(at)) {
        let applied = writes.add(ops[*at], wanted, stored.remove(&n), tx);
        results.entry(*at).or_default().push(applied);
    }
    let Writes { creates, updates, touches, revived } = writes;
    tx.execute_many(&CREATE, &creates).await?;
    if !updates.is_empty() {
        let ids: Vec<IdRow> = updates.iter().map(|one| one.row.id).collect();
        let kept: Vec<Numbered> = ids.iter().map(|id| Numbered { n: REVISIONS_KEPT, id: *id }).collect();
        tx.execute_many(&KEEP_REVISIONS, &ids).await?;
        tx.execute_many(&UPDATE, &updates).await?;
        tx.execute_many(&DROP_REVISIONS, &kept).await?;
        let now = updates.iter().map(|one| one.row.now).max().unwrap_or_default();
        facts::wake_references(tx, &ids, now).await?;
        tx.execute_many(&UNLINK, &ids).await?;
    }
    tx.execute_many(&TOUCH, &touches).await?;
    let written = creates.iter().map(|one| one.row.id).chain(updates.iter().map(|one| one.row.id)).collect();
    link(&all, &written, tx).await?;
    for (at, wanted) in all.iter().filter(|(at, wanted)| !wanted.units.is_empty() && !refused.contains(at)) {
        for unit in &wanted.units {
            unowned(unit, tx).await?;
            tx.write(unit, 0, "", ops[*at].now.as_microsecond()).await?;
        }
    }
    if let Some((_, now)) = revived.first().copied() {
        let ids: Vec<&ResourceId> = revived.iter().map(|(id, _)| *id).collect();
        tasks::supersede(tx, &ids, "apply", now).await?;
    }
    let written = || creates.iter().map(|one| &one.row).chain(updates.iter().map(|one| &one.row));
    let ready = || written().filter(|row| row.ready);
    let now = ready().map(|row| row.now).max().unwrap_or_default();
    facts::wake_referrers(tx, &ready().map(|row| row.id).collect::<Vec<_>>(), now).await?;
    for &at in round {
        if answers[at].is_some() {
            continue;
        }
        let op = ops[at];
        let mut applied = results.remove(&at).unwrap_or_default();
        match delete_all(tx, &op.delete, &op.actor, &op.trace, op.now).await {
            Ok(deleted) => applied.extend(deleted),
            Err(ControlError::Store(error)) => return Err(error.into()),
            // What was applied goes with it: such an operation has a round of its own.
            Err(error) => return Err(BatchFailure::Half(error)),
        }
        tx.audit(&op.audit, &op.actor, op.now);
        answers[at] = Some(Ok(applied));
    }
    Ok(())
}

/// What a round writes.
#[derive(Default)]
struct Writes<'a> {
    creates: Vec<Create<'a>>,
    updates: Vec<Update<'a>>,
    touches: Vec<Touch<'a>>,
    /// They were being deleted, and are wanted again.
    revived: Vec<(&'a ResourceId, Timestamp)>,
}

impl<'a> Writes<'a> {
    fn add(
        &mut self,
        op: &'a ApplyOp,
        wanted: &'a PreparedResource,
        stored: Option<Stored>,
        tx: &mut Tx<'_>,
    ) -> Applied {
        let (id, now) = (&wanted.row.id, op.now.as_microsecond());
        let applied = |generation, result| Applied { id: id.clone(), generation, result };
        let Some(stored) = stored else {
            tx.event(id, "created", by(&op.actor).trim_start(), "", op.now);
            let event = op.applied(wanted, true, false);
            let facts = Facts::created(&event, !wanted.service.is_empty(), now);
            self.creates.push(Create::new(row_of(op, wanted), &facts, op));
            return applied(1, AppliedResult::Created);
        };
        let old = &stored.found.facts;
        if old.deleting {
            self.revived.push((id, op.now));
        }
        let is_new = stored.digest != wanted.row.digest;
        let differs = stored.account != wanted.account
            || stored.service != wanted.service
            || stored.applied_id.is_empty() && !op.by.id.is_empty();
        let patch = stored.found.patched(&Event::Applied(op.applied(wanted, is_new, differs)), now);
        if !is_new {
            tx.news |= patch.is_some();
            let (account, service) = (&wanted.account, &wanted.service);
            self.touches.extend(patch.map(|patch| Touch { patch, account, service }));
            return applied(old.generation, AppliedResult::Unchanged);
        }
        let generation = old.generation + 1;
        tx.event(id, "updated", &format!("generation {generation}{}", by(&op.actor)), "", op.now);
        self.updates.extend(patch.map(|patch| Update { patch, row: row_of(op, wanted) }));
        applied(generation, AppliedResult::Updated)
    }
}

impl ApplyOp {
    fn applied<'a>(&'a self, wanted: &PreparedResource, is_new: bool, differs: bool) -> lifecycle::Applied<'a> {
        lifecycle::Applied {
            is_new,
            is_ready: wanted.ready,
            retry: self.retry,
            differs,
            permissions: wanted.permissions,
            drift_every: wanted.drift_every,
            by: &self.by,
            trace: &self.trace,
        }
    }
}

pub(super) fn by(actor: &Actor) -> String {
    if actor.name.is_empty() { String::new() } else { format!(" by {}", actor.name) }
}

async fn look(all: &[(usize, &PreparedResource)], tx: &mut Tx<'_>) -> Result<HashMap<usize, Stored>, StoreError> {
    let ids: Vec<Numbered> = all
        .iter()
        .enumerate()
        .map(|(n, (_, one))| Numbered { n: i64::try_from(n).unwrap_or(0), id: (&one.row.id).into() })
        .collect();
    let mut stored = HashMap::new();
    for row in tx.rows_many(&LOOK, &ids).await? {
        let found = Stored {
            found: facts::found(&row, 0)?,
            digest: row.get(FACT_COLUMNS + 1)?,
            account: row.get(FACT_COLUMNS + 2)?,
            service: row.get(FACT_COLUMNS + 3)?,
            applied_id: row.get(FACT_COLUMNS + 4)?,
        };
        stored.insert(usize::try_from(row.get::<i64>(FACT_COLUMNS)?).unwrap_or(0), found);
    }
    Ok(stored)
}

/// A resource that refers to one that is being deleted would wait for ever, or keep it: such an apply is refused. What
/// is declared along with it is wanted again.
async fn going<'a>(
    all: &[(usize, &'a PreparedResource)],
    tx: &mut Tx<'_>,
) -> Result<Vec<(usize, &'a ResourceId, &'a ResourceId)>, StoreError> {
    let together: HashSet<(usize, &ResourceId)> = all.iter().map(|(at, one)| (*at, &one.row.id)).collect();
    let links: Vec<(usize, &ResourceId, &ResourceId)> = all
        .iter()
        .flat_map(|(at, one)| one.parents.iter().map(move |parent| (*at, &one.row.id, parent)))
        .filter(|(at, _, parent)| !together.contains(&(*at, parent)))
        .collect();
    let rows: Vec<Numbered> = links
        .iter()
        .enumerate()
        .map(|(n, (_, _, parent))| Numbered { n: i64::try_from(n).unwrap_or(0), id: (*parent).into() })
        .collect();
    let mut found = Vec::new();
    for row in tx.rows_many(&GOING, &rows).await? {
        found.extend(usize::try_from(row.get::<i64>(0)?).ok().and_then(|n| links.get(n)));
    }
    Ok(found)
}

/// Refuses a unit whose object another resource has: two imports may have looked at the same time.
async fn unowned(unit: &RowWrite, tx: &mut Tx<'_>) -> Result<(), BatchFailure> {
    let RowWrite::SaveUnit(unit) = unit else { return Ok(()) };
    let Some(object) = &unit.object_id else { return Ok(()) };
    let query = Query::about(OWNER, &unit.resource).bind(object).bind(&unit.unit_type).bind(&unit.account);
    let Some(owner) = tx.row(query).await? else { return Ok(()) };
    let owner = crate::rows::id_at(&owner, 0)?;
    let why = format!("{} cannot have the object {object}: it is managed already, as {owner}", unit.resource);
    Err(BatchFailure::Half(ControlError::Refused(why)))
}

fn row_of<'a>(op: &ApplyOp, wanted: &'a PreparedResource) -> Row<'a> {
    Row {
        id: (&wanted.row.id).into(),
        api_version: &wanted.row.api_version,
        manifest: &wanted.row.manifest,
        manifest_seal: wanted.row.manifest_seal,
        sealed_paths: &wanted.row.sealed_paths,
        digest: &wanted.row.digest,
        source_file: &wanted.row.source_file,
        source_document: wanted.row.source_document,
        now: op.now.as_microsecond(),
        labels: &wanted.labels,
        account: &wanted.account,
        service: &wanted.service,
        ready: wanted.ready,
    }
}

/// Links of what was created or updated.
async fn link(
    all: &[(usize, &PreparedResource)],
    written: &HashSet<IdRow<'_>>,
    tx: &mut Tx<'_>,
) -> Result<(), StoreError> {
    let links: Vec<Link> = all
        .iter()
        .filter(|(_, one)| !one.parents.is_empty() && written.contains(&IdRow::from(&one.row.id)))
        .flat_map(|(_, one)| {
            one.parents.iter().map(|parent| Link {
                id: (&one.row.id).into(),
                to_kind: &parent.kind,
                to_name: &parent.name,
                to_org: &parent.org,
                to_env: &parent.env,
            })
        })
        .collect();
    tx.execute_many(&LINK, &links).await.map(|_| ())
}

pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 4)
}

impl Control {
    /// Resources, their links and labels, events and audit: all or nothing.
    pub async fn apply(&self, apply: Apply, now: Timestamp) -> Result<Vec<Applied>, ControlError> {
        let Apply { resources, delete, actor, audit, retry, trace } = apply;
        check_count("the list of resources", resources.len() + delete.len(), APPLY_MAX)?;
        let mut seen = HashSet::with_capacity(resources.len());
        let encoder = self.encoder();
        let mut wanted = Vec::with_capacity(resources.len());
        for one in resources {
            let labels = serde_json::to_string(&one.labels).map_err(|error| StoreError::Database(error.to_string()))?;
            check_count("the labels", labels.len(), LABELS_BYTES_MAX)?;
            check_count("the list of references", one.parents.len(), PARENTS_MAX)?;
            if !seen.insert(one.resource.id.clone()) {
                return Err(ControlError::Refused(format!("{} is declared twice", one.resource.id)));
            }
            let units = one.units.iter().map(|unit| Ok(RowWrite::SaveUnit(encoder.unit(unit)?)));
            let units = units.collect::<Result<_, StoreError>>()?;
            wanted.push(PreparedResource {
                units,
                row: encoder.resource(one.resource)?,
                labels,
                parents: one.parents,
                account: cut(one.account),
                service: cut(one.service),
                expect: one.expect,
                permissions: Permissions {
                    replace: one.allow_replace,
                    data_loss: one.allow_data_loss,
                    recreate: one.allow_recreate,
                },
                ready: one.ready,
                drift_every: one.drift_every.map(micros),
            });
        }
        let by = Party { name: actor.name.clone(), id: actor.owner.clone() };
        self.write(ApplyOp { wanted, delete, actor, by, audit, retry, trace: cut(trace), now }).await
    }
}
