//! What an object is set to now, and what it becomes once the update in progress is done.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::SimTime;

/// Members of an object in the form in which they are shown. At most one update is in progress.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Spec {
    members: Map<String, Value>,
    next: Option<Next>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Next {
    update: String,
    at: SimTime,
    members: Map<String, Value>,
}

impl Spec {
    pub fn new(members: Map<String, Value>) -> Spec {
        Spec { members, next: None }
    }

    /// A member as it is at a moment; null where there is none.
    pub fn get(&self, name: &str, now: SimTime) -> &Value {
        let next = self.next.as_ref().filter(|next| now >= next.at);
        next.and_then(|next| next.members.get(name)).or_else(|| self.members.get(name)).unwrap_or(&Value::Null)
    }

    pub fn text(&self, name: &str, now: SimTime) -> &str {
        self.get(name, now).as_str().unwrap_or_default()
    }

    /// All members as they are at a moment; a null means none.
    pub fn all(&self, now: SimTime) -> Map<String, Value> {
        let mut members = self.members.clone();
        if let Some(next) = self.next.as_ref().filter(|next| now >= next.at) {
            members.extend(next.members.clone());
        }
        members.retain(|_, value| !value.is_null());
        members
    }

    /// The id of the update in progress.
    pub fn updating(&self, now: SimTime) -> Option<&str> {
        self.next.as_ref().filter(|next| now < next.at).map(|next| next.update.as_str())
    }

    /// Begins an update that ends at `at`; the one before has ended.
    pub fn update(&mut self, now: SimTime, update: &str, at: SimTime, members: Map<String, Value>) {
        self.members = self.all(now);
        self.next = Some(Next { update: update.to_owned(), at, members });
    }
}
