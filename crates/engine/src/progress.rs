//! What converge tells whoever watches. Plain data: a terminal, a log and a server show it each in their own way.

use crate::handler::Trouble;
use berth_model::ResourceId;
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
    /// Not tried, because one that it needs failed or the run was interrupted.
    Skipped {
        resource: ResourceId,
        because: String,
    },
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
