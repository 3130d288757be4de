//! What commands ask of a backend, and what it answers.

use crate::args::{Address, ConfirmArgs, RecreateArgs, RunArgs, ScopeArgs, Which};
use crate::backend::lookup;
use crate::failure::{Exit, Failure};
use crate::local::import_files::ImportFiles;
use crate::local::manifests::Loaded;
use crate::local::saved_plan::SavedPlan;
use crate::remote::saved_plan::SavedServerPlan;
use crate::view::drift_view::Findings;
use crate::view::output::Format;
use berth_clouds::Credentials;
use berth_clouds::import::LeftOut;
use berth_engine::unit::Identity;
use berth_engine::{Drifted, Plan};
use berth_model::{Manifest, ResourceId};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Resources that a command is about: these, or all of the scope where none is named.
pub struct Selection {
    pub addresses: Vec<Address>,
    pub scope: ScopeArgs,
}

impl Selection {
    pub fn new(what: &[String], scope: ScopeArgs) -> Result<Self, Failure> {
        Ok(Self { addresses: lookup::addresses(what, &scope)?, scope })
    }
}

/// What a drift check found.
pub struct DriftCheck {
    pub findings: Findings,
    pub seen: Drifted,
    /// Resources that were to be checked.
    pub asked: usize,
    pub calls: u64,
}

/// How a plan is made.
pub struct PlanOptions<'a> {
    pub recreate: RecreateArgs,
    /// The file that the plan is saved to.
    pub out: Option<&'a Path>,
    pub format: Format,
}

/// A plan, and what apply would refuse of it.
pub struct Proposal {
    pub plan: Plan,
    pub judgement: Judgement,
    pub protected: Option<Failure>,
}

/// What policies say of a plan.
#[derive(Default)]
pub struct Judgement {
    /// A line for each verdict.
    pub lines: Vec<String>,
    pub denied: bool,
}

impl Judgement {
    pub fn print(&self) {
        for line in &self.lines {
            anstream::eprintln!("{line}");
        }
    }
}

/// How a change is confirmed and run.
pub struct ChangeOptions<'a> {
    pub confirm: ConfirmArgs,
    pub recreate: RecreateArgs,
    pub run: &'a RunArgs,
    pub format: Format,
}

impl ChangeOptions<'_> {
    pub fn for_people(&self) -> bool {
        self.format.is_for_people()
    }
}

/// What is to be applied.
pub enum ApplySource {
    Files(Loaded),
    /// Project Planton's stack input, which only the embedded engine takes.
    StackInput(Arc<Manifest>, Option<Credentials>),
    /// The manifests that the backend holds of these.
    Stored(Vec<Address>),
    Saved(SavedFile),
}

/// A saved plan that was read and not checked yet.
pub enum SavedFile {
    Local(SavedPlan),
    Server(SavedServerPlan),
}

impl SavedFile {
    /// For a command about `which`: a plan of another backend is refused.
    pub fn read(path: &Path, which: &Which) -> Result<Self, Failure> {
        Ok(match which {
            Which::Local(_) => Self::Local(SavedPlan::read(path)?),
            Which::Server(target) => Self::Server(SavedServerPlan::read(path, &target.context.server)?),
        })
    }
}

/// How a change ended.
pub struct Ended {
    pub exit: Exit,
    /// Resources that it was about.
    pub count: usize,
    /// A cluster among them.
    pub cluster: Option<ResourceId>,
    /// Nothing had to be done, and nothing was stored.
    pub idle: bool,
    /// When it was confirmed: the time that someone thinks about a plan is not counted.
    pub began: Instant,
    pub calls: u64,
}

/// What is to be imported.
pub struct ImportJob<'a> {
    pub provider: String,
    /// One object: what to call it, and its id in the cloud. Everything that is not managed where it is left out.
    pub one: Option<(ResourceId, String)>,
    pub account: Option<&'a str>,
    pub region: Option<&'a str>,
    pub org: String,
    pub env: String,
    pub files: ImportFiles,
    pub run: &'a RunArgs,
    pub format: Format,
}

pub struct Imported {
    pub exit: Exit,
    pub left_out: Vec<LeftOut>,
}

/// What becomes of one object whose account is moved.
#[derive(Debug, Serialize)]
pub struct MovedUnit {
    pub resource: ResourceId,
    pub unit: String,
    pub id: String,
    /// The account that it belonged to; empty where that is not known.
    pub from: String,
    /// `moved`, `forgotten`, or `missing`: then nothing is done at all.
    pub becomes: String,
}

/// An account whose objects are to belong to the account of the credentials in use.
pub struct MoveJob<'a> {
    pub account: &'a str,
    /// Forget the objects that are not found.
    pub forget_missing: bool,
    /// Is shown what would be done, and answers whether to do it.
    pub ask: &'a AskMove<'a>,
}

pub type AskMove<'a> = dyn Fn(&Identity, &[MovedUnit]) -> Result<bool, Failure> + 'a;

/// The account that objects were moved to, and these; `None` where that was not allowed.
pub type Moved = Option<(Identity, Vec<MovedUnit>)>;
