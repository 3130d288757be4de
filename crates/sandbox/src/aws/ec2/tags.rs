//! Tags of EC2's objects: with their creation, later, and listed for all at once.

use serde_json::{Value, json};

use super::filter::{Filter, Filters, one};
use super::resource::{Cx, Kept, Resource, absent};
use super::{Tables, paging};
use crate::aws::ask::{Ask, Input, Tags};
use crate::aws::errors::{Answer, AwsError, fail};
use crate::table::Table;

const MAX_TAGS: usize = 50;
const MAX_KEY_CHARS: usize = 127;
const MAX_VALUE_CHARS: usize = 255;

/// As every answer shows them.
pub fn set(tags: &Tags) -> Value {
    tags.iter().map(|(key, value)| json!({"key": key, "value": value})).collect()
}

/// What `TagSpecification` says for the type of object that a call makes.
pub fn given(input: &Input, kind: &str) -> Answer<Tags> {
    let mut tags = Tags::new();
    for specification in input.list("TagSpecification") {
        let named = specification.text("ResourceType").unwrap_or_default();
        if named != kind {
            return fail(
                "InvalidParameterValue",
                format!("'{named}' is not a valid taggable resource type for this operation."),
            );
        }
        tags.extend(specification.pairs("Tag", "Key", "Value"));
    }
    check(&tags)?;
    Ok(tags)
}

fn check(tags: &Tags) -> Answer<()> {
    if tags.len() > MAX_TAGS {
        return fail("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.");
    }
    for (key, value) in tags {
        if key.is_empty() || key.chars().count() > MAX_KEY_CHARS {
            return fail(
                "InvalidParameterValue",
                format!("Tag key exceeds the maximum length of {MAX_KEY_CHARS} characters"),
            );
        }
        if value.chars().count() > MAX_VALUE_CHARS {
            return fail(
                "InvalidParameterValue",
                format!("Tag value exceeds the maximum length of {MAX_VALUE_CHARS} characters"),
            );
        }
        if key.to_lowercase().starts_with("aws:") {
            return fail("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use");
        }
    }
    Ok(())
}

/// A table whose objects have tags.
pub trait Tagged {
    fn prefix(&self) -> &'static str;
    fn absent(&self, id: &str) -> Box<AwsError>;
    fn tags(&self, cx: &Cx, id: &str) -> Option<&Tags>;
    fn change(&mut self, id: &str, change: &mut dyn FnMut(&mut Tags));
    fn each(&self, cx: &Cx, seen: &mut dyn FnMut(TaggedObject));
}

/// One object with its tags, whatever its type.
pub struct TaggedObject<'a> {
    pub kind: &'static str,
    pub id: &'a str,
    pub arn: String,
    pub tags: &'a Tags,
}

impl<T: Resource> Tagged for Table<T> {
    fn prefix(&self) -> &'static str {
        T::NAMES.prefix
    }

    fn absent(&self, id: &str) -> Box<AwsError> {
        absent::<T>(id)
    }

    fn tags(&self, cx: &Cx, id: &str) -> Option<&Tags> {
        self.get(id).map(Kept::common).filter(|common| common.region == cx.region).map(|common| &common.tags)
    }

    fn change(&mut self, id: &str, change: &mut dyn FnMut(&mut Tags)) {
        self.update(id, |object| change(&mut object.common_mut().tags));
    }

    fn each(&self, cx: &Cx, seen: &mut dyn FnMut(TaggedObject)) {
        for object in self.find(&format!("region:{}", cx.region)) {
            let common = object.common();
            seen(TaggedObject { kind: T::NAMES.kind, id: &common.id, arn: object.arn(cx), tags: &common.tags });
        }
    }
}

impl Tables {
    fn of_prefix(&self, id: &str) -> Option<usize> {
        let prefix = id.rsplit_once('-').map(|(prefix, _)| prefix)?;
        self.tagged().iter().position(|table| table.prefix() == prefix)
    }
}

pub fn create_tags(ask: &mut Ask) -> Answer<Value> {
    let new = ask.input.pairs("Tag", "Key", "Value");
    if new.is_empty() {
        return fail("MissingParameter", "The request must contain the parameter TagSet");
    }
    check(&new)?;
    for (table, id) in &targets(ask)? {
        let old = ask.state.store.ec2.tagged().into_iter().nth(*table).and_then(|table| table.tags(&Cx::of(ask), id));
        let own = |tag: &&String| !tag.starts_with("aws:");
        let count =
            old.map_or(0, |old| old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))).filter(own).count());
        if count > MAX_TAGS {
            return fail("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.");
        }
        if let Some(table) = ask.store().ec2.tagged_mut().into_iter().nth(*table) {
            table.change(id, &mut |tags| tags.extend(new.clone()));
        }
    }
    super::resource::done()
}

/// A tag with a value goes only if it has that value; without tags all of them go, but for AWS's own.
pub fn delete_tags(ask: &mut Ask) -> Answer<Value> {
    let given = ask.input.list("Tag");
    for (table, id) in &targets(ask)? {
        let Some(table) = ask.store().ec2.tagged_mut().into_iter().nth(*table) else { continue };
        table.change(id, &mut |tags| {
            if given.is_empty() {
                tags.retain(|key, _| key.starts_with("aws:"));
            }
            for tag in &given {
                let key = tag.text("Key").unwrap_or_default();
                let same = tag.text("Value").is_none_or(|value| tags.get(key).is_some_and(|old| old == value));
                if same {
                    tags.remove(key);
                }
            }
        });
    }
    super::resource::done()
}

/// Each resource id with the place of its table. All must be there before any is changed.
fn targets(ask: &Ask) -> Answer<Vec<(usize, String)>> {
    let (cx, ids) = (Cx::of(ask), ask.input.texts("ResourceId"));
    if ids.is_empty() {
        return fail("MissingParameter", "The request must contain the parameter resourceIdSet");
    }
    let tagged = cx.store.tagged();
    let find = |id: &str| match cx.store.of_prefix(id) {
        None => fail("InvalidID", format!("The ID '{id}' is not valid")),
        Some(at) if tagged[at].tags(&cx, id).is_some() => Ok((at, id.to_owned())),
        Some(at) => Err(tagged[at].absent(id)),
    };
    ids.into_iter().map(find).collect()
}

struct Row {
    key: String,
    value: String,
    kind: &'static str,
    id: String,
}

const FILTERS: &[Filter<Row>] = &[
    ("key", |row, _| one(&row.key)),
    ("value", |row, _| one(&row.value)),
    ("resource-id", |row, _| one(&row.id)),
    ("resource-type", |row, _| one(row.kind)),
];

pub fn describe_tags(ask: &mut Ask) -> Answer<Value> {
    let (cx, filters) = (Cx::of(ask), Filters::read(&ask.input));
    filters.check(FILTERS)?;
    let mut rows = Vec::new();
    for table in cx.store.tagged() {
        table.each(&cx, &mut |object| {
            for (key, value) in object.tags {
                let row = Row { key: key.clone(), value: value.clone(), kind: object.kind, id: object.id.to_owned() };
                if filters.fit(&row, &cx, FILTERS, &Tags::from([(key.clone(), value.clone())])) {
                    rows.push(row);
                }
            }
        });
    }
    let (rows, next) = paging::page(&ask.input, rows, paging::USUAL)?;
    let show = |row: Row| json!({"key": row.key, "value": row.value, "resourceId": row.id, "resourceType": row.kind});
    Ok(json!({"tagSet": rows.into_iter().map(show).collect::<Vec<_>>(), "nextToken": next}))
}
