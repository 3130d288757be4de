//! Settings for Berth itself, in `metadata.annotations`.

use crate::diagnostic::Diagnostic;
use crate::manifest::Manifest;
use crate::phrasing;
use crate::schedule::Schedule;
use crate::validate::{Path, format};
use crate::yaml::Entry;
use std::time::Duration;

/// Forbids replacing and deleting: `true` or `false`.
pub const PROTECT: &str = "berth.dev/protect";
/// How long an operation on the resource may take: `90s`, `20m`, `1h`.
pub const TIMEOUT: &str = "berth.dev/timeout";
/// What must answer before the resource is Ready: `api` or `cloud`.
pub const READY_GATE: &str = "berth.dev/ready-gate";

/// When to look for drift, on a server: `10m`, a cron pattern in UTC, or `off`.
pub const DRIFT_SCHEDULE: &str = "berth.dev/drift-schedule";
/// What a server does about drift: `observe` or `repair`.
pub const DRIFT_POLICY: &str = "berth.dev/drift-policy";

const PREFIX: &str = "berth.dev/";
const ALL: [&str; 5] = [PROTECT, TIMEOUT, READY_GATE, DRIFT_SCHEDULE, DRIFT_POLICY];

impl Manifest {
    /// Whether replacing and deleting are forbidden.
    pub fn protected(&self) -> bool {
        self.metadata.annotations.get(PROTECT).is_some_and(|value| value == "true")
    }

    /// How long an operation may take, if the manifest says so.
    pub fn timeout(&self) -> Option<Duration> {
        format::duration(self.metadata.annotations.get(TIMEOUT)?)
    }

    /// Whether the cloud's word is enough for Ready.
    pub fn trusts_cloud(&self) -> bool {
        self.metadata.annotations.get(READY_GATE).is_some_and(|value| value == "cloud")
    }
}

/// Checks the annotations that are Berth's own; those of others are theirs.
pub(crate) fn check(file: &str, annotations: &Entry<'_>, out: &mut Vec<Diagnostic>) {
    for entry in annotations.node.entries().iter().filter(|entry| entry.key.starts_with(PREFIX)) {
        let mut path = Path("metadata.annotations".to_owned());
        path.push_key(&entry.key);
        let mut report = |message: String, at, label| {
            out.push(Diagnostic::error(message).file(file).at(at).path(path.0.clone()).label(label));
        };
        if !ALL.contains(&entry.key.as_ref()) {
            let near = phrasing::did_you_mean(&entry.key, ALL);
            let message = format!("unknown annotation {}: Berth knows {}", phrasing::shown(&entry.key), ALL.join(", "));
            report(message, entry.key_span, near);
            continue;
        }
        // Anything but text was refused when it was decoded.
        let Some(value) = entry.node.text() else { continue };
        if entry.key == DRIFT_SCHEDULE
            && let Err(error) = Schedule::parse(value)
        {
            report(format!("annotation {}: {} {error}", entry.key, phrasing::shown(value)), entry.pointer(), None);
            continue;
        }
        let wanted = match entry.key.as_ref() {
            PROTECT if !["true", "false"].contains(&value) => "\"true\" or \"false\", in quotes",
            READY_GATE if !["api", "cloud"].contains(&value) => "api or cloud",
            DRIFT_POLICY if !["observe", "repair"].contains(&value) => "observe or repair",
            TIMEOUT if format::duration(value).is_none() => "a duration such as 90s, 20m or 1h, of a week at most",
            _ => continue,
        };
        let message = format!("annotation {} must be {wanted}, not {}", entry.key, phrasing::shown(value));
        report(message, entry.pointer(), None);
    }
}
