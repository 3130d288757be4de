//! The progress of a run. Plain data: a terminal, a log and a server each show it in their own way.

use crate::handler::Trouble;
use berth_model::{Prose, ResourceId};
use std::fmt;
use std::time::Duration;

#[derive(Clone, Debug)]
pub enum Progress {
    /// Not begun: another resource must be done first.
    Waits {
        resource: ResourceId,
        on: ResourceId,
    },
    Started {
        resource: ResourceId,
        verb: &'static str,
        typical: Option<Duration>,
    },
    /// What is happening now, such as `building: 2 of 3 nodes ready`.
    Doing {
        resource: ResourceId,
        what: String,
    },
    Done {
        resource: ResourceId,
        summary: String,
        took: Duration,
    },
    Failed {
        resource: ResourceId,
        trouble: Trouble,
    },
    /// Not tried, or not brought to its end.
    Skipped {
        resource: ResourceId,
        because: Skip,
    },
}

/// Why the work on a resource was not brought to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skip {
    /// Another resource that it needs was not made, or not deleted.
    Needs(ResourceId),
    /// The run was asked to stop, or could not write its state, before it was begun.
    Stopped,
    /// The run was asked to stop while it was worked on.
    Interrupted,
    AwaitsApproval,
    /// The state could not be written.
    Unrecorded(Prose),
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Needs(other) => write!(f, "it needs {other}"),
            Self::Stopped => f.write_str("the run was stopped"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::AwaitsApproval => f.write_str("it waits for approval"),
            Self::Unrecorded(error) => error.fmt(f),
        }
    }
}

/// Receives progress; must not block.
pub trait Watcher: Send + Sync {
    fn see(&self, progress: Progress);
}

/// For those who do not look.
pub struct Unwatched;

impl Watcher for Unwatched {
    fn see(&self, _: Progress) {}
}
