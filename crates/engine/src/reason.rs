//! Why a plan does something to a unit, where its changes do not say it.

use crate::diff::FieldChange;
use crate::plan::UnitPlan;
use crate::unit::Op;
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanReason {
    /// Its resource does not declare it any more.
    NoLongerDeclared,
    /// A new object has taken its place.
    AlreadyReplaced,
    /// It is to be deleted, and is not there.
    AlreadyGone,
    /// Somebody deletes it just now.
    BeingDeleted,
    /// It was ready, and is not there any more.
    DeletedOutside,
    /// An earlier run began it, and it is not found.
    BegunNotFound,
    /// An earlier run began it, and it is found.
    BegunFound,
    /// An earlier run was about to replace it, which is no longer needed.
    Kept,
}

/// Each reason, its code in stored and sent plans, and how versions before the codes wrote it. They read these texts, so they
/// stay as they are; what people read is [`PlanReason`]'s own text.
const WRITTEN: [(PlanReason, &str, &str); 8] = [
    (PlanReason::NoLongerDeclared, "no_longer_declared", "no longer declared"),
    (PlanReason::AlreadyReplaced, "already_replaced", "already replaced by a new one"),
    (PlanReason::AlreadyGone, "already_gone", "already gone"),
    (PlanReason::BeingDeleted, "being_deleted", "is being deleted; made again once it is gone"),
    (PlanReason::DeletedOutside, "deleted_outside", "gone: deleted outside"),
    (PlanReason::BegunNotFound, "begun_not_found", "begun by an earlier run, and not found in the cloud"),
    (PlanReason::BegunFound, "begun_found", "begun by an earlier run, found in the cloud"),
    (PlanReason::Kept, "kept", "to be replaced by an earlier run; kept"),
];

impl PlanReason {
    /// The text in stored and sent plans, for versions that know no codes.
    pub fn written(self) -> &'static str {
        WRITTEN.iter().find(|row| row.0 == self).map_or("", |row| row.2)
    }

    fn code(self) -> &'static str {
        WRITTEN.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// A reason that this version does not know is none: nothing is allowed by it.
    fn read(code: &str, text: &str) -> Option<Self> {
        let row = match code.is_empty() {
            true => WRITTEN.iter().find(|row| row.2 == text),
            false => WRITTEN.iter().find(|row| row.1 == code),
        };
        row.map(|row| row.0)
    }

    /// Whether the object is gone, or its place taken, so that deleting it takes nothing away.
    pub fn is_already(self) -> bool {
        matches!(self, Self::AlreadyReplaced | Self::AlreadyGone)
    }
}

impl fmt::Display for PlanReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLongerDeclared => "no longer declared",
            Self::AlreadyReplaced => "already replaced by a new one",
            Self::AlreadyGone => "already gone",
            Self::BeingDeleted => "is being deleted; made again once it is gone",
            Self::DeletedOutside => "gone: deleted outside",
            Self::BegunNotFound => "begun by an earlier run, and not found in the cloud",
            Self::BegunFound => "begun by an earlier run, found in the cloud",
            Self::Kept => "to be replaced by an earlier run; kept",
        })
    }
}

/// A unit's plan as it is stored and sent.
#[derive(Serialize, Deserialize)]
pub(crate) struct WrittenUnitPlan {
    key: String,
    unit_type: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    at: String,
    op: Option<Op>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    changes: Vec<FieldChange>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    why: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    delete_first: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gone: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    loses_data: bool,
}

impl From<WrittenUnitPlan> for UnitPlan {
    fn from(written: WrittenUnitPlan) -> Self {
        let WrittenUnitPlan { key, unit_type, at, op, changes, why, reason, delete_first, gone, loses_data } = written;
        let reason = PlanReason::read(&reason, &why);
        Self { key, unit_type, at, op, changes, reason, delete_first, gone, loses_data }
    }
}

impl From<UnitPlan> for WrittenUnitPlan {
    fn from(plan: UnitPlan) -> Self {
        let UnitPlan { key, unit_type, at, op, changes, reason, delete_first, gone, loses_data } = plan;
        let why = reason.map_or("", PlanReason::written).to_owned();
        let reason = reason.map_or("", PlanReason::code).to_owned();
        Self { key, unit_type, at, op, changes, why, reason, delete_first, gone, loses_data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(why: &str, reason: &str) -> Option<PlanReason> {
        let unit = json!({"key": "pool", "unit_type": "civo.pool", "op": "delete", "why": why, "reason": reason});
        serde_json::from_value::<UnitPlan>(unit).unwrap().reason
    }

    #[test]
    fn plans_of_earlier_versions_are_read_and_read_by_them() {
        for (reason, code, text) in WRITTEN {
            assert_eq!(read(text, ""), Some(reason), "{text}");
            assert_eq!(read("in other words", code), Some(reason), "{code}");
            let unit = UnitPlan { reason: Some(reason), ..UnitPlan::untouched("pool", "civo.pool", "") };
            let written = serde_json::to_value(&unit).unwrap();
            assert_eq!((&written["why"], &written["reason"]), (&json!(text), &json!(code)));
            assert_eq!(serde_json::from_value::<UnitPlan>(written).unwrap(), unit);
        }
        // Neither words that no version wrote nor a code of a later one stand for anything.
        assert_eq!((read("already done", ""), read("already gone", "already_sold")), (None, None));
    }
}
