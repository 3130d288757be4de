//! What a cluster does by itself. Each controller looks at the objects of one moment and tells what it changes; nothing here
//! runs in the background: objects say when they change next, and are brought up to the clock when somebody looks.

mod cronjob;
mod daemonset;
mod deployment;
mod disruption;
mod events;
mod extensions;
mod garbage;
mod job;
mod kubelet;
mod kubelet_status;
mod lifecycle;
mod namespaces;
pub mod nodes;
mod placement;
mod replicaset;
mod revisions;
mod scheduler;
mod services;
mod statefulset;
mod template;
#[cfg(test)]
mod tests;
mod volumes;

use std::collections::HashMap;

use serde_json::{Value, json};

use super::change::Write;
use super::delete::Deletion;
use super::objects::{At, Objects, Stored, meta};
use super::seed;
use super::types::{self, ResourceType};
use crate::clock::SimTime;
use crate::world::ClusterView;

pub use cronjob::Schedule;
pub use disruption::forbids;
pub use nodes::{kubelet_version, register};

/// Moments that are gone through one by one when nobody looked for long; what is later than that is made up at once.
const MAX_STEPS: usize = 2_000;
/// Rounds of all controllers for one moment. A rollout in a world where nothing takes time needs several for each pod.
const MAX_ROUNDS: usize = 400;

/// How long things take.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Nothing takes any time.
    pub instant: bool,
}

impl Pace {
    pub fn after(self, now: SimTime, ms: i64) -> SimTime {
        if self.instant { now } else { now.plus_ms(ms) }
    }
}

/// The objects of one moment, as controllers see them.
pub struct Scene<'a> {
    pub objects: &'a Objects,
    pub view: &'a ClusterView,
    pub now: SimTime,
    pub pace: Pace,
}

/// What a controller wants changed.
#[derive(Debug, Clone)]
pub enum Change {
    Create {
        resource: &'static ResourceType,
        namespace: String,
        body: Value,
    },
    /// The whole object as it becomes, and when it changes next if nothing else happens.
    Set {
        resource: &'static ResourceType,
        object: Value,
        due: Option<SimTime>,
    },
    /// Only when it changes next.
    Due {
        resource: &'static ResourceType,
        namespace: String,
        name: String,
        due: Option<SimTime>,
    },
    Delete {
        resource: &'static ResourceType,
        namespace: String,
        name: String,
        grace: Option<i64>,
        /// Whether it waits for what it owns.
        foreground: bool,
    },
    /// Takes an object away without any further rule.
    Forget {
        resource: &'static ResourceType,
        namespace: String,
        name: String,
    },
    Tell(Told),
}

/// One event, as `kubectl describe` shows it.
#[derive(Debug, Clone)]
pub struct Told {
    pub about: Value,
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
    pub component: &'static str,
}

type Controller = fn(&Scene) -> Vec<Change>;

/// In the order in which they act on each other, so that few rounds are needed.
const CONTROLLERS: &[Controller] = &[
    extensions::run,
    namespaces::run,
    garbage::run,
    cronjob::run,
    job::run,
    deployment::run,
    replicaset::run,
    statefulset::run,
    daemonset::run,
    volumes::run,
    lifecycle::run,
    scheduler::run,
    kubelet::run,
    services::run,
    disruption::run,
];

/// Brings the objects up to what cloud and clock say. Costs next to nothing when nothing changed.
pub fn settle(objects: &mut Objects, view: &ClusterView, now: SimTime, pace: Pace) {
    if !objects.seeded {
        objects.seeded = true;
        seed::first_objects(objects, view);
    }
    let due = |objects: &Objects| objects.progress.due.is_some_and(|due| due <= now);
    let is_new = objects.progress.at.is_none();
    if objects.progress.nodes == view.nodes && objects.version() == objects.progress.version && !due(objects) {
        return;
    }
    let mut at = objects.progress.at.unwrap_or(view.created).min(now);
    let coming = |objects: &Objects, at: SimTime| {
        objects.all_rows().filter_map(|(_, row)| row.due).filter(|due| *due > at).min()
    };
    if is_new {
        // What happened before anybody looked happened at its own time, so that looking again shows the same.
        step(objects, view, at, pace);
        objects.progress.due = coming(objects, at);
    }
    for _ in 0..MAX_STEPS {
        let next = objects.progress.due.into_iter().chain(nodes::next_arrival(objects, view)).min();
        let Some(next) = next.filter(|next| *next <= now) else { break };
        at = at.max(next);
        step(objects, view, at, pace);
        objects.progress.due = coming(objects, at);
    }
    let behind = objects.progress.nodes != view.nodes || objects.version() != objects.progress.version || due(objects);
    if behind {
        step(objects, view, now, pace);
    }
    events::expire(objects, now);
    objects.progress.due = coming(objects, now);
    objects.progress.nodes.clone_from(&view.nodes);
    objects.progress.version = objects.version();
    objects.progress.at = Some(now);
}

/// Everything that follows at one moment.
fn step(objects: &mut Objects, view: &ClusterView, now: SimTime, pace: Pace) {
    register(objects, view, now);
    for _ in 0..MAX_ROUNDS {
        let before = objects.version();
        for controller in CONTROLLERS {
            let changes = controller(&Scene { objects, view, now, pace });
            changes.into_iter().for_each(|change| carry_out(objects, change, now));
        }
        if objects.version() == before {
            break;
        }
    }
    objects.progress.version = objects.version();
}

fn carry_out(objects: &mut Objects, change: Change, now: SimTime) {
    match change {
        Change::Create { resource, namespace, body } => {
            if let Err(refused) = objects.create(resource, &namespace, &body, &Write::own(now)) {
                events::refused(objects, resource, &body, &refused, now);
            }
        }
        Change::Set { resource, object, due } => {
            let (namespace, name) = (meta(&object, "namespace").to_owned(), meta(&object, "name").to_owned());
            let at = At { resource, namespace: &namespace, name: &name };
            objects.set(at, |old| *old = object);
            objects.set_due(at, due);
        }
        Change::Due { resource, namespace, name, due } => {
            objects.set_due(At { resource, namespace: &namespace, name: &name }, due);
        }
        Change::Delete { resource, namespace, name, grace, foreground } => {
            let deletion = Deletion {
                grace_seconds: grace,
                propagation: Some(if foreground { "Foreground" } else { "Background" }.into()),
                ..Deletion::default()
            };
            let at = At { resource, namespace: &namespace, name: &name };
            if let Err(refused) = objects.delete(at, &deletion, now) {
                tracing::debug!(name, body = %refused.body, "the cluster cannot delete an object");
            }
        }
        Change::Forget { resource, namespace, name } => {
            objects.forget(At { resource, namespace: &namespace, name: &name });
        }
        Change::Tell(told) => events::tell(objects, &told, now),
    }
}

/// A built-in type, which is always there.
fn kind(group: &str, plural: &str) -> &'static ResourceType {
    types::built_in(group, plural).unwrap_or(&types::TYPES[0])
}

/// A change of an object's status alone; nothing if it is as it was, but for when it changes next.
fn set_status(resource: &'static ResourceType, row: &Stored, status: Value, due: Option<SimTime>) -> Option<Change> {
    if same_but_times(&row.object["status"], &status) {
        return (row.due != due).then(|| due_change(resource, &row.object, due));
    }
    let mut object = row.object.clone();
    object["status"] = status;
    Some(Change::Set { resource, object, due })
}

fn due_change(resource: &'static ResourceType, object: &Value, due: Option<SimTime>) -> Change {
    let (namespace, name) = (meta(object, "namespace").to_owned(), meta(object, "name").to_owned());
    Change::Due { resource, namespace, name, due }
}

fn delete(resource: &'static ResourceType, object: &Value) -> Change {
    let (namespace, name) = (meta(object, "namespace").to_owned(), meta(object, "name").to_owned());
    Change::Delete { resource, namespace, name, grace: None, foreground: false }
}

fn tell(about: &Value, component: &'static str, reason: &'static str, message: String) -> Change {
    Change::Tell(Told { about: about.clone(), warning: false, reason, message, component })
}

fn warn(about: &Value, component: &'static str, reason: &'static str, message: String) -> Change {
    Change::Tell(Told { about: about.clone(), warning: true, reason, message, component })
}

/// Times of conditions do not count, else every look would be a change.
fn same_but_times(old: &Value, new: &Value) -> bool {
    let strip = |status: &Value| {
        let mut status = status.clone();
        if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
            for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
                condition.retain(|field, _| !field.ends_with("Time"));
            }
        }
        status
    };
    old == new || strip(old) == strip(new)
}

/// A condition, whose transition time stays while its status does.
fn condition(old: &Value, kind: &str, status: &str, reason: &str, message: &str, now: SimTime) -> Value {
    let known = find_condition(old, kind);
    let same = known.is_some_and(|known| known["status"] == status);
    let since =
        known.filter(|_| same).map_or_else(|| json!(now.rfc3339()), |known| known["lastTransitionTime"].clone());
    let mut made = json!({"type": kind, "status": status, "lastTransitionTime": since});
    if !reason.is_empty() {
        made["reason"] = json!(reason);
    }
    if !message.is_empty() {
        made["message"] = json!(message);
    }
    made
}

fn find_condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

fn is_true(object: &Value, kind: &str) -> bool {
    find_condition(&object["status"], kind).is_some_and(|condition| condition["status"] == "True")
}

/// Whether a pod is ready to serve.
pub fn is_ready(pod: &Value) -> bool {
    is_true(pod, "Ready")
}

fn is_leaving(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

/// The owner that manages an object.
fn controller_of(object: &Value) -> Option<&Value> {
    super::delete::owners(object).find(|owner| owner["controller"] == true)
}

fn owner_reference(resource: &ResourceType, owner: &Value) -> Value {
    json!([{
        "apiVersion": resource.api_version(), "kind": resource.kind, "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }])
}

/// The objects of a type by the uid of what manages them.
fn by_controller<'a>(
    objects: &'a Objects,
    group: &'static str,
    plural: &'static str,
) -> HashMap<&'a str, Vec<&'a Stored>> {
    let mut found: HashMap<&str, Vec<&Stored>> = HashMap::new();
    for row in objects.rows_of(group, plural) {
        if let Some(uid) = controller_of(&row.object).and_then(|owner| owner["uid"].as_str()) {
            found.entry(uid).or_default().push(row);
        }
    }
    found
}

/// A count or a share such as `25%`, of so many.
fn share(value: &Value, of: i64, round_up: bool) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or(0),
        Value::String(text) => match text.strip_suffix('%').and_then(|percent| percent.parse::<i64>().ok()) {
            Some(percent) if round_up => (of * percent + 99) / 100,
            Some(percent) => of * percent / 100,
            None => text.parse().unwrap_or(0),
        },
        _ => 0,
    }
}

fn time_of(text: &Value) -> Option<SimTime> {
    text.as_str()?.parse::<jiff::Timestamp>().ok().map(|at| SimTime(at.as_millisecond()))
}

/// A number between the two that follows from the text: the same in every run.
fn spread(text: &str, from: i64, to: i64) -> i64 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    from + (hash % (to - from + 1).max(1) as u64) as i64
}
