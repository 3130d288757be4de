//! Graph, plan, converge, journal, drift. Knows units, knows no cloud.

mod converge;
mod deletions;
mod diff;
mod drift;
mod findings;
mod graph;
pub mod handler;
pub mod identity;
mod lower;
mod much_gone;
mod names;
mod observe;
mod patience;
mod plan;
mod plan_json;
pub mod progress;
mod reason;
pub mod record;
pub mod refresh;
mod run;
mod summary;
pub mod unit;
mod unit_calls;
mod unit_loop;

pub use converge::{FAILED, READY, converge};
pub use diff::{FieldChange, Takes, diff, is_unknown};
pub use drift::{ChangedUnit, Drift, Drifted, GoneUnit, drift};
pub use findings::{Finding, findings, is_main, place_in_spec};
pub use graph::Graph;
pub use lower::{lower_now, managed_already, parents};
pub use much_gone::{FEW_GONE, GoneCount, SHARE_GONE, is_much};
pub use observe::{Looked, observe};
pub use patience::{span, when};
pub use plan::{Action, Known, KnownResource, Plan, Planned, Request, ResourcePlan, UnitPlan, Wanted, plan};
pub use run::{Interrupt, Options, Report};
pub use reason::PlanReason;
