//! What all objects of EC2 have in common: ids, tags, filters, pages, and errors for those that are not there.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filter::{Filter, Filters};
use super::{Tables, paging, tags};
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::ids;
use crate::clock::SimTime;
use crate::table::{Object, Table};

/// The part that every object has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Common {
    pub id: String,
    pub region: String,
    pub created: SimTime,
    pub tags: Tags,
    /// Made by AWS itself: with the account, or along with another object.
    pub default: bool,
    pub gone_at: Option<SimTime>,
}

impl Common {
    /// For an object that a caller asked for, with the tags that came along.
    pub fn asked(ask: &Ask, prefix: &str, kind: &str) -> Answer<Common> {
        let tags = tags::given(&ask.input, kind)?;
        Ok(Common { tags, default: false, ..Common::made(prefix, ask.region, ask.now()) })
    }

    /// For an object that AWS makes itself.
    pub fn made(prefix: &str, region: &str, now: SimTime) -> Common {
        let (id, region) = (ids::new(prefix), region.to_owned());
        Common { id, region, created: now, tags: Tags::new(), default: true, gone_at: None }
    }
}

/// How a type of object is called in requests, answers and errors.
pub struct Names {
    /// In tag specifications and ARNs.
    pub kind: &'static str,
    pub prefix: &'static str,
    /// The parameter of Describe that takes ids.
    pub ids: &'static str,
    pub set: &'static str,
    pub not_found: &'static str,
    pub malformed: &'static str,
    /// In "The vpc ID 'vpc-1' does not exist".
    pub title: &'static str,
    /// Filters that an index answers: name, and the prefix of the key.
    pub indexed: &'static [(&'static str, &'static str)],
}

/// Implemented by `kept!`.
pub trait Kept: Object {
    fn common(&self) -> &Common;
    fn common_mut(&mut self) -> &mut Common;
    fn table(store: &Tables) -> &Table<Self>;
}

pub trait Resource: Kept {
    const NAMES: Names;
    /// Beside `tag:KEY`, `tag-key` and `owner-id`.
    const FILTERS: &'static [Filter<Self>];

    /// Keys beside the region's.
    fn indexes(&self) -> Vec<String> {
        vec![]
    }

    /// As Describe shows it, without tags.
    fn show(&self, cx: &Cx) -> Value;

    /// What the ledger says beside id, name and region, as a JSON object.
    fn facts(&self, _now: SimTime) -> Value {
        json!({})
    }

    /// Whether it is only shown because it was there until lately.
    fn is_gone(&self, _now: SimTime) -> bool {
        false
    }

    fn arn(&self, cx: &Cx) -> String {
        let Common { id, region, .. } = self.common();
        format!("arn:aws:ec2:{region}:{}:{}/{id}", cx.account, Self::NAMES.kind)
    }
}

/// Declares the table of a type: `kept!(Vpc, "aws.vpc", vpcs)`.
macro_rules! kept {
    ($type:ty, $name:literal, $field:ident) => {
        impl crate::table::Object for $type {
            const TYPE: &'static str = $name;

            fn id(&self) -> &str {
                &self.common.id
            }

            fn keys(&self) -> Vec<String> {
                let mut keys = crate::aws::ec2::resource::Resource::indexes(self);
                keys.push(format!("region:{}", self.common.region));
                keys
            }

            fn gone_at(&self) -> Option<crate::clock::SimTime> {
                self.common.gone_at
            }

            fn ledger(&self, now: crate::clock::SimTime) -> serde_json::Value {
                crate::aws::ec2::resource::ledger(self, now)
            }
        }

        impl crate::aws::ec2::resource::Kept for $type {
            fn common(&self) -> &crate::aws::ec2::resource::Common {
                &self.common
            }

            fn common_mut(&mut self) -> &mut crate::aws::ec2::resource::Common {
                &mut self.common
            }

            fn table(store: &crate::aws::ec2::Tables) -> &crate::table::Table<$type> {
                &store.$field
            }
        }
    };
}
pub(super) use kept;

pub fn ledger<T: Resource>(object: &T, now: SimTime) -> Value {
    if object.is_gone(now) {
        return Value::Null;
    }
    let Common { region, created, tags, default, .. } = object.common();
    let name = tags.get("Name").map(String::as_str).unwrap_or_default();
    let mut row = json!({"name": name, "region": region, "default": default, "tags": tags,
                         "created_at": created.rfc3339()});
    if let (Value::Object(row), Value::Object(facts)) = (&mut row, object.facts(now)) {
        row.extend(facts);
    }
    row
}

/// What objects are shown by: the moment, whose they are, and all others.
#[derive(Clone, Copy)]
pub struct Cx<'a> {
    pub now: SimTime,
    pub region: &'a str,
    pub account: &'a str,
    pub store: &'a Tables,
}

impl<'a> Cx<'a> {
    pub fn of(ask: &'a Ask<'_, '_>) -> Cx<'a> {
        Cx { now: ask.state.now, region: ask.region, account: ask.account, store: &ask.state.store.ec2 }
    }

    /// An object of this region.
    pub fn get<T: Resource>(&self, id: &str) -> Option<&'a T> {
        T::table(self.store).get(id).filter(|object| object.common().region == self.region)
    }

    pub fn require<T: Resource>(&self, id: &str) -> Answer<&'a T> {
        match self.get::<T>(id) {
            Some(object) => Ok(object),
            None => Err(absent::<T>(id)),
        }
    }
}

/// The error for an id that names nothing: another one where it does not look like an id of that type.
pub fn absent<T: Resource>(id: &str) -> Box<AwsError> {
    let Names { prefix, malformed, not_found, title, .. } = T::NAMES;
    let digits = id.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-'));
    let well_formed = digits.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_hexdigit()));
    if !well_formed {
        return AwsError::new(400, malformed, format!("Invalid id: \"{id}\" (expecting \"{prefix}-...\")"));
    }
    AwsError::new(400, not_found, title.replace("{}", id))
}

/// The object that a parameter names.
pub fn named<'a, T: Resource>(ask: &'a Ask<'_, '_>, parameter: &str) -> Answer<&'a T> {
    let id = ask.input.required(parameter)?;
    Cx::of(ask).require::<T>(id)
}

/// The answer of Describe: by ids or all, filtered, a page of them.
pub fn describe<T: Resource>(ask: &mut Ask) -> Answer<Value> {
    describe_by::<T>(ask, paging::USUAL)
}

pub fn describe_by<T: Resource>(ask: &Ask, limits: (usize, usize)) -> Answer<Value> {
    let (cx, rows) = (Cx::of(ask), select::<T>(ask)?);
    page_of(ask, &cx, rows, limits)
}

pub fn page_of<T: Resource>(ask: &Ask, cx: &Cx, rows: Vec<&T>, limits: (usize, usize)) -> Answer<Value> {
    let (rows, next) = paging::page(&ask.input, rows, limits)?;
    let shown: Vec<Value> = rows.into_iter().map(|row| shown(row, cx)).collect();
    let mut answer = json!({"nextToken": next});
    answer[T::NAMES.set] = Value::Array(shown);
    Ok(answer)
}

/// Types that say nothing of tags where there are none; the others show an empty list.
const SILENT: [&str; 5] = ["vpc", "subnet", "security-group", "elastic-ip", "launch-template"];

/// With its tags.
pub fn shown<T: Resource>(object: &T, cx: &Cx) -> Value {
    let mut shown = object.show(cx);
    let tags = &object.common().tags;
    if !tags.is_empty() || !SILENT.contains(&T::NAMES.kind) {
        shown["tagSet"] = tags::set(tags);
    }
    shown
}

/// What a call asks for by ids and filters, as old as a fault rule lets reads be.
pub fn select<'a, T: Resource>(ask: &'a Ask<'_, '_>) -> Answer<Vec<&'a T>> {
    let ids = ask.input.texts(T::NAMES.ids);
    select_ids(ask, &ids)
}

pub fn select_ids<'a, T: Resource>(ask: &'a Ask<'_, '_>, ids: &[&str]) -> Answer<Vec<&'a T>> {
    let cx = Cx::of(ask);
    let filters = Filters::read(&ask.input);
    filters.check::<T>(T::FILTERS)?;
    let candidates = match ids.is_empty() {
        true => listed::<T>(ask, &filters),
        false => by_id::<T>(ask, &cx, ids)?,
    };
    let fits = |row: &&T| {
        let Common { region, tags, .. } = row.common();
        region == cx.region && filters.fit(*row, &cx, T::FILTERS, tags)
    };
    Ok(candidates.into_iter().filter(fits).collect())
}

fn listed<'a, T: Resource>(ask: &'a Ask<'_, '_>, filters: &Filters) -> Vec<&'a T> {
    let indexed = |(filter, key): &(&str, &str)| filters.exact(filter).map(|value| format!("{key}:{value}"));
    let key = T::NAMES.indexed.iter().find_map(indexed).unwrap_or_else(|| format!("region:{}", ask.region));
    ask.rows(|store| T::table(&store.ec2), &key)
}

fn by_id<'a, T: Resource>(ask: &'a Ask<'_, '_>, cx: &Cx<'a>, ids: &[&str]) -> Answer<Vec<&'a T>> {
    if ask.effects().lag.is_zero() {
        return ids.iter().map(|id| cx.require::<T>(id)).collect();
    }
    let old = listed::<T>(ask, &Filters::default());
    let find = |id: &&str| old.iter().copied().find(|row| row.id() == *id).ok_or_else(|| absent::<T>(id));
    ids.iter().map(find).collect()
}

/// Refuses what would exceed a limit.
pub fn limit(count: usize, max: usize, code: &'static str, what: &str) -> Answer<()> {
    match count < max {
        true => Ok(()),
        false => fail(code, format!("The maximum number of {what} has been reached.")),
    }
}

pub fn in_use<T: Resource>(id: &str, what: &str) -> Box<AwsError> {
    AwsError::new(400, "DependencyViolation", format!("The {what} '{id}' has dependencies and cannot be deleted."))
}

/// As EC2 writes times.
pub fn time(at: SimTime) -> String {
    let seconds = at.rfc3339();
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), at.0.rem_euclid(1000))
}

/// The usual answer of a change.
pub fn done() -> Answer<Value> {
    Ok(json!({"return": true}))
}
