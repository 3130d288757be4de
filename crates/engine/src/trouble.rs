//! Why a call to a cloud did not do what was asked.

use berth_model::{Prose, ResourceId};
use std::fmt;
use std::time::Duration;

/// Why a call to a cloud did not do what was asked. Decisions are made from `class`; the rest is for people.
#[derive(Debug, Clone)]
pub struct Trouble {
    pub class: Class,
    /// The call that failed, such as `GET /v2/networks`.
    pub call: Option<String>,
    /// Lower case, names the object, does not repeat itself in `help`.
    pub message: Prose,
    /// What to check and what to type.
    pub help: Vec<Help>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// The object is not there (any more).
    NotFound,
    /// Another object has the name. The id, where the cloud or a look-up tells.
    Taken { id: Option<String> },
    /// The cloud understood and said no; saying it again will not help.
    Refused,
    /// The cloud is not as the plan saw it: a new plan may succeed.
    Moved,
    /// Time ran out, or the state could not be written. What was begun is recorded, and the next run goes on with it.
    Unfinished,
    /// Quota or capacity: others must act first.
    Quota,
    /// The token is missing, wrong or not allowed to.
    Unauthorized,
    /// The token is good, and belongs to another account than the one that the object was made in.
    OtherAccount,
    /// Busy or unreachable, or something that can be repeated was lost. Look, then try again.
    Retry { after: Option<Duration> },
    /// Asked to make something, and no answer that tells whether it did: it may have, or may do so later. Look, and give it
    /// time before it is asked again.
    Unanswered,
}

/// A line of advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Help {
    Text(Prose),
    /// Another object has the name: how to take it over as this resource. For readers who may see the object.
    Adopt {
        resource: ResourceId,
        object: String,
    },
}

pub type Outcome<T> = Result<T, Trouble>;

impl Trouble {
    pub fn new(class: Class, message: impl Into<Prose>) -> Self {
        Self { class, call: None, message: message.into(), help: Vec::new() }
    }
    pub fn help(mut self, line: impl Into<Help>) -> Self {
        self.help.push(line.into());
        self
    }
    /// Says which call failed.
    pub fn call(mut self, call: impl Into<String>) -> Self {
        self.call = Some(call.into());
        self
    }
    /// The same trouble, told in other words.
    pub fn reworded(self, message: impl Into<Prose>) -> Self {
        Self { call: None, message: message.into(), ..self }
    }
    pub fn refused(message: impl Into<Prose>) -> Self {
        Self::new(Class::Refused, message)
    }
    pub fn is_retry(&self) -> bool {
        matches!(self.class, Class::Retry { .. } | Class::Unanswered)
    }
    pub fn is_not_found(&self) -> bool {
        self.class == Class::NotFound
    }
    /// The advice as lines of text.
    pub fn help_lines(&self) -> Vec<String> {
        self.help.iter().map(Help::to_string).collect()
    }
    /// The advice without the lines that name an object which not every reader may see.
    pub fn open_help_lines(&self) -> Vec<String> {
        self.help.iter().filter(|line| !matches!(line, Help::Adopt { .. })).map(Help::to_string).collect()
    }
    /// Whether both have one cause and one cure, whichever call met it.
    pub fn is_like(&self, other: &Trouble) -> bool {
        (&self.message, &self.help) == (&other.message, &other.help)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.call {
            Some(call) => write!(f, "{call}: {}", self.message),
            None => self.message.fmt(f),
        }
    }
}

impl std::error::Error for Trouble {}

impl fmt::Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => text.fmt(f),
            Self::Adopt { resource, object } => {
                write!(f, "to adopt it:   berth import {resource} {object}{}", resource.flags())
            }
        }
    }
}

impl From<String> for Help {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<&str> for Help {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}
