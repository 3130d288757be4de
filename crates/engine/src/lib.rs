//! Graph, plan, converge, journal, drift. Knows units, knows no cloud.

mod converge;
mod deletions;
mod diff;
mod drift;
mod findings;
mod graph;
pub mod handler;
pub mod identity;
pub mod lifecycle;
mod lower;
mod much_gone;
mod names;
mod observe;
mod patience;
mod plan;
mod plan_json;
mod prepared;
pub mod progress;
mod reason;
pub mod record;
pub mod refresh;
mod resource_run;
mod run;
mod state;
mod steps;
mod summary;
mod trouble;
pub mod unit;
mod unit_calls;
mod unit_loop;
mod unknown;

pub use converge::converge;
pub use diff::{ChangeEffect, FieldChange, diff};
pub use drift::{ChangedUnit, Drift, Drifted, GoneUnit, drift};
pub use findings::{Finding, findings};
pub use graph::Graph;
pub use lower::{lower_now, managed_already, parents};
pub use much_gone::{FEW_GONE, GoneCount, SHARE_GONE, is_much};
pub use observe::{Looked, observe};
pub use patience::{span, when};
pub use plan::{Action, Known, KnownResource, Plan, Planned, Request, ResourcePlan, UnitPlan, Wanted, plan};
pub use reason::PlanReason;
pub use run::{Interrupt, Options, Report};
pub use state::ResourceState;
pub use unknown::{
    KNOWN_AFTER_APPLY, UNKNOWN_IN_JSON, is_unknown, is_wholly_unknown, reference_property, unknown, written,
};
