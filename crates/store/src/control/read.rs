//! Lists with selectors, what servers know of resources, revisions, links, events.

use super::types::*;
use super::{Control, LIST_MAX};
use crate::db::{Query, Row};
use crate::error::StoreError;
use crate::rows::{self, Event, StoredResource, number, parse, time};
use crate::sealed_place::SealNumber;
use berth_model::ResourceId;
use serde_json::Value;
use std::time::Duration;

/// Conditions in one selector.
const TERMS_MAX: usize = 50;
/// Identities that one call of `meta` asks for in one query.
const META_STEP: usize = 100;

macro_rules! meta_columns {
    () => {
        "labels, applied_by, allow_replace, allow_data_loss, account, service, attempts, drift, drift_checked_at, \
         drift_at, drift_every, plan_digest, approved_by, due_at, due_mark, fence, trace, allow_recreate, \
         applied_id, approved_id"
    };
}
pub(super) use meta_columns;

/// Where they stand after a resource's own columns, and how many there are.
pub(super) const META_AT: usize = 21;
pub(super) const META_COLUMNS: usize = 20;
/// Which of them is the mark.
pub(super) const DUE_MARK: usize = 14;

const REVISION: &str = "SELECT v.generation, v.at, v.applied_by, v.manifest, v.sealed_paths, v.manifest_seal FROM revisions v \
     JOIN resources r ON r.id = v.resource_id \
     WHERE r.kind = $1 AND r.name = $2 AND r.org = $3 AND r.env = $4 AND v.generation = $5 \
     UNION ALL SELECT generation, updated_at, applied_by, manifest, sealed_paths, manifest_seal FROM resources \
     WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4 AND generation = $5";
const META: &str = concat!(
    "SELECT ",
    meta_columns!(),
    ", plan FROM resources WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4"
);
const CHILDREN: &str = "SELECT c.kind, c.name, c.org, c.env FROM links l JOIN resources c ON c.id = l.child \
     WHERE l.kind = $1 AND l.name = $2 AND l.org = $3 AND l.env = $4 ORDER BY c.kind, c.name, c.org, c.env";
const HAS_CHILDREN: &str =
    "SELECT EXISTS (SELECT 1 FROM links WHERE kind = $1 AND name = $2 AND org = $3 AND env = $4)";
const PARENTS: &str = "SELECT l.kind, l.name, l.org, l.env FROM links l JOIN resources c ON c.id = l.child \
     WHERE c.kind = $1 AND c.name = $2 AND c.org = $3 AND c.env = $4 ORDER BY l.kind, l.name, l.org, l.env";
const EVENTS_AFTER: &str = concat!(
    events_from!(),
    "WHERE id > $1 AND ($2 IS NULL OR kind = $2) AND ($3 IS NULL OR name = $3) AND ($4 IS NULL OR org = $4) \
     AND ($5 IS NULL OR env = $5) ORDER BY id LIMIT $6"
);
const EVENTS_NEWEST: &str = concat!(
    events_from!(),
    "WHERE id > $1 AND ($2 IS NULL OR kind = $2) AND ($3 IS NULL OR name = $3) AND ($4 IS NULL OR org = $4) \
     AND ($5 IS NULL OR env = $5) ORDER BY id DESC LIMIT $6"
);
const LAST_EVENT: &str = "SELECT COALESCE(MAX(id), 0) FROM events";

/// Columns in the order of `meta_columns`, from that one on. The plan stays behind.
pub(super) fn meta(row: &Row, at: usize, id: &ResourceId) -> Result<ControlMeta, StoreError> {
    let maybe = |column: usize| row.get::<Option<i64>>(at + column)?.map(time).transpose();
    let labels: String = row.get(at)?;
    Ok(ControlMeta {
        labels: if labels == "{}" { Default::default() } else { parse(&labels, || format!("the labels of {id}"))? },
        applied_by: row.get(at + 1)?,
        allow_replace: row.get(at + 2)?,
        allow_data_loss: row.get(at + 3)?,
        account: row.get(at + 4)?,
        service: row.get(at + 5)?,
        attempts: number(row.get(at + 6)?),
        drift: row.get(at + 7)?,
        drift_checked_at: maybe(8)?,
        drift_at: maybe(9)?,
        drift_every: row.get::<Option<i64>>(at + 10)?.map(|micros| Duration::from_micros(micros.unsigned_abs())),
        plan: String::new(),
        plan_digest: row.get(at + 11)?,
        approved_by: row.get(at + 12)?,
        due_at: maybe(13)?,
        due_mark: row.get(at + 14)?,
        fence: row.get(at + 15)?,
        trace: row.get(at + 16)?,
        allow_recreate: row.get(at + 17)?,
        applied_id: row.get(at + 18)?,
        approved_id: row.get(at + 19)?,
        id: id.clone(),
    })
}

impl LabelTerm {
    /// `team=shop,tier!=test,gpu,!spot`, as in Kubernetes.
    pub fn parse(text: &str) -> Result<Vec<Self>, String> {
        terms(text, |term| {
            let key = |key: &str| {
                let good = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
                match !key.is_empty() && key.len() <= 317 && key.chars().all(good) {
                    true => Ok(key.to_owned()),
                    false => Err(format!("`{key}` cannot be a label's name")),
                }
            };
            if let Some((name, value)) = term.split_once("!=") {
                return Ok(Self::IsNot(key(name.trim())?, value.trim().to_owned()));
            }
            if let Some((name, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
                return Ok(Self::Is(key(name.trim())?, value.trim().to_owned()));
            }
            match term.strip_prefix('!') {
                Some(name) => Ok(Self::HasNot(key(name.trim())?)),
                None => Ok(Self::Has(key(term)?)),
            }
        })
    }
}

impl FieldTerm {
    /// `state=Ready,spec.region=fra1,deleting=true,drifted!=true`.
    pub fn parse(text: &str) -> Result<Vec<Self>, String> {
        terms(text, |term| {
            let (path, value, equal) = match term.split_once("!=") {
                Some((path, value)) => (path, value, false),
                None => match term.split_once("==").or_else(|| term.split_once('=')) {
                    Some((path, value)) => (path, value, true),
                    None => {
                        return Err(format!("`{term}` is no condition: write `state=Ready` or `spec.region!=fra1`"));
                    }
                },
            };
            let path = path.trim();
            let known = ["state", "deleting", "drifted", "account", "service", "message"].contains(&path);
            let good = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            let part = |part: &str| !part.is_empty() && part.chars().all(good);
            let inside = path.starts_with("spec.") || path.starts_with("metadata.");
            if !(known || inside && path.len() <= 500 && path.split('.').all(part)) {
                return Err(format!(
                    "`{path}` cannot be selected by: there are state, message, deleting, drifted, account, service, and \
                     paths such as spec.region"
                ));
            }
            Ok(Self { path: path.to_owned(), value: value.trim().to_owned(), equal })
        })
    }
}

fn terms<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if parts.len() > TERMS_MAX {
        return Err(format!("a selector has at most {TERMS_MAX} conditions"));
    }
    parts.into_iter().map(parse).collect()
}

/// A statement under construction: what callers gave is bound.
struct Building {
    text: String,
    args: Vec<String>,
}

impl Building {
    /// The parameter that stands for it.
    fn arg(&mut self, value: impl Into<String>) -> String {
        self.args.push(value.into());
        format!("${}", self.args.len())
    }

    fn and(&mut self, condition: &str) {
        self.text.push_str(" AND ");
        self.text.push_str(condition);
    }

    fn equal(&mut self, column: &str, value: Option<&String>) {
        if let Some(value) = value {
            let arg = self.arg(value);
            self.and(&format!("{column} = {arg}"));
        }
    }

    fn label(&mut self, term: &LabelTerm, sqlite: bool) {
        let (LabelTerm::Is(name, _) | LabelTerm::IsNot(name, _) | LabelTerm::Has(name) | LabelTerm::HasNot(name)) =
            term;
        let stored = match sqlite {
            true => format!("json_extract(labels, {})", self.arg(format!("$.\"{name}\""))),
            false => format!("(labels::json ->> {})", self.arg(name)),
        };
        let condition = match term {
            LabelTerm::Is(_, value) => format!("{stored} = {}", self.arg(value)),
            LabelTerm::IsNot(_, value) => format!("COALESCE({stored} <> {}, TRUE)", self.arg(value)),
            LabelTerm::Has(_) => format!("{stored} IS NOT NULL"),
            LabelTerm::HasNot(_) => format!("{stored} IS NULL"),
        };
        self.and(&condition);
    }

    fn field(&mut self, term: &FieldTerm, sqlite: bool) {
        let truth = |condition: &str| match (term.value == "true") == term.equal {
            true => condition.to_owned(),
            false => format!("NOT ({condition})"),
        };
        let how = if term.equal { "=" } else { "<>" };
        let condition = match term.path.as_str() {
            "deleting" => truth("deleting"),
            "drifted" => truth("drift <> ''"),
            "state" | "message" | "account" | "service" => format!("{} {how} {}", term.path, self.arg(&term.value)),
            path => {
                let stored = match sqlite {
                    true => {
                        let parts: Vec<String> = path.split('.').map(|part| format!(".\"{part}\"")).collect();
                        format!("CAST(json_extract(manifest, {}) AS TEXT)", self.arg(format!("${}", parts.concat())))
                    }
                    false => format!("(manifest::json #>> string_to_array({}, '.'))", self.arg(path)),
                };
                let value = self.arg(&term.value);
                // SQLite has no word for truth.
                let stored = match (sqlite, term.value.as_str()) {
                    (true, "true") => format!("(CASE {stored} WHEN '1' THEN 'true' ELSE {stored} END)"),
                    (true, "false") => format!("(CASE {stored} WHEN '0' THEN 'false' ELSE {stored} END)"),
                    _ => stored,
                };
                match term.equal {
                    true => format!("{stored} = {value}"),
                    false => format!("COALESCE({stored} <> {value}, TRUE)"),
                }
            }
        };
        self.and(&condition);
    }
}

impl Revision {
    /// The manifest with secrets as sealed text.
    pub fn sealed_manifest(&self) -> Result<Value, StoreError> {
        parse(&self.manifest, || format!("the manifest of {}", self.id))
    }

    /// JSON pointers of the secrets in the manifest.
    pub fn sealed_paths(&self) -> Result<Vec<String>, StoreError> {
        match self.sealed_paths.is_empty() {
            true => Ok(Vec::new()),
            false => parse(&self.sealed_paths, || format!("the secrets' places of {}", self.id)),
        }
    }
}

impl Control {
    /// The stored generation, or one of the last [`REVISIONS_KEPT`](super::REVISIONS_KEPT) before it.
    pub async fn revision(&self, id: &ResourceId, generation: i64) -> Result<Option<Revision>, StoreError> {
        let decode = |row: &Row| {
            Ok(Revision {
                id: ResourceId::new("", ""),
                generation: row.get(0)?,
                at: time(row.get(1)?)?,
                applied_by: row.get(2)?,
                manifest: row.get(3)?,
                sealed_paths: row.get(4)?,
                manifest_seal: SealNumber(row.get(5)?),
            })
        };
        let found = self.store().pool().row(Query::about(REVISION, id).bind(generation), decode).await?;
        Ok(found.map(|revision| Revision { id: id.clone(), ..revision }))
    }

    /// A page, by kind, name, org and env.
    pub async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        let sqlite = self.store().location().is_sqlite();
        let limit = query.limit.clamp(1, LIST_MAX);
        let text = concat!("SELECT ", resource_columns!(), ", ", meta_columns!(), " FROM resources WHERE TRUE");
        let mut building = Building { text: text.to_owned(), args: Vec::new() };
        building.equal("kind", query.kind.as_ref());
        building.equal("name", query.name.as_ref());
        building.equal("org", query.org.as_ref());
        building.equal("env", query.env.as_ref());
        building.equal("org", query.scope_org.as_ref());
        building.equal("env", query.scope_env.as_ref());
        if let Some(after) = &query.after {
            let places =
                [&after.kind, &after.name, &after.org, &after.env].map(|part| building.arg(part.as_str())).join(", ");
            building.and(&format!("(kind, name, org, env) > ({places})"));
        }
        for term in query.labels.iter().take(TERMS_MAX) {
            building.label(term, sqlite);
        }
        for term in query.fields.iter().take(TERMS_MAX) {
            building.field(term, sqlite);
        }
        building.text.push_str(&format!(" ORDER BY kind, name, org, env LIMIT {}", limit + 1));
        let Building { text, args } = building;
        let query = args.iter().fold(Query::built(text), Query::bind);
        let decode = |row: &Row| {
            let resource: StoredResource = rows::resource(row)?;
            let meta = meta(row, META_AT, &resource.id)?;
            Ok(Listed { resource, meta })
        };
        let mut resources = self.store().pool().rows(query, decode).await?;
        let more = resources.len() > limit as usize;
        resources.truncate(limit as usize);
        let next = resources.last().filter(|_| more).map(|last| last.resource.id.clone());
        Ok(Listing { resources, next })
    }

    /// In the order asked for; those that are not there are left out.
    pub async fn meta(&self, ids: &[ResourceId]) -> Result<Vec<ControlMeta>, StoreError> {
        let nobody = |row: &Row| {
            let nobody = ResourceId::new("", "");
            let found = meta(row, 0, &nobody)?;
            Ok(ControlMeta { plan: row.get(META_COLUMNS)?, ..found })
        };
        let mut all = Vec::with_capacity(ids.len().min(META_STEP));
        for id in ids {
            if let Some(found) = self.store().pool().row(Query::about(META, id), nobody).await? {
                all.push(ControlMeta { id: id.clone(), ..found });
            }
        }
        Ok(all)
    }

    /// Who refers to it.
    pub async fn children(&self, id: &ResourceId) -> Result<Vec<ResourceId>, StoreError> {
        self.store().pool().rows(Query::about(CHILDREN, id), |row| rows::id_at(row, 0)).await
    }

    /// Whether anyone refers to it.
    pub async fn has_children(&self, id: &ResourceId) -> Result<bool, StoreError> {
        let query = Query::about(HAS_CHILDREN, id);
        Ok(self.store().pool().row(query, |row| row.get::<bool>(0)).await?.unwrap_or(false))
    }

    /// What it refers to, whether or not that is there.
    pub async fn parents(&self, id: &ResourceId) -> Result<Vec<ResourceId>, StoreError> {
        self.store().pool().rows(Query::about(PARENTS, id), |row| rows::id_at(row, 0)).await
    }

    /// In the order of their commits: a reader that has seen one has missed none before it.
    pub async fn events_after(&self, after: i64, filter: &EventFilter, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.some_events(EVENTS_AFTER, after, filter, limit).await
    }

    /// The last ones, newest first.
    pub async fn events_newest(&self, filter: &EventFilter, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.some_events(EVENTS_NEWEST, 0, filter, limit).await
    }

    async fn some_events(
        &self,
        text: &'static str,
        after: i64,
        filter: &EventFilter,
        limit: u32,
    ) -> Result<Vec<Event>, StoreError> {
        let query = Query::new(text)
            .bind(after)
            .bind(filter.kind.as_deref())
            .bind(filter.name.as_deref())
            .bind(filter.org.as_deref())
            .bind(filter.env.as_deref())
            .bind(i64::from(limit.clamp(1, LIST_MAX)));
        self.store().pool().rows(query, rows::event).await
    }

    /// Number of the last event; 0 when there was none.
    pub async fn last_event(&self) -> Result<i64, StoreError> {
        Ok(self.store().pool().row(Query::new(LAST_EVENT), |row| row.get(0)).await?.unwrap_or(0))
    }
}
