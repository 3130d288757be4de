//! Converts the messages of the server's API to the types that views use.

use crate::failure::Failure;
use crate::view::drift_view::{self, Finding};
use crate::view::resource_view::DRIFT;
use berth_engine::GoneCount;
use berth_engine::ResourceState;
use berth_engine::handler::Trouble;
use berth_engine::record::Status;
use berth_engine::unit::{Identity, UnitState};
use berth_model::{Diagnostic, ResourceId, Severity, Span};
use berth_server::values::{from_struct, from_value};
use berth_server::{Fault, pb};
use berth_store::{HistoryChange, HistoryLine, ManifestSource, StoredResource};
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub fn id_of(id: Option<&pb::ResourceId>) -> ResourceId {
    let id = id.cloned().unwrap_or_default();
    ResourceId { kind: id.kind, name: id.name, org: id.org, env: id.env }
}

pub fn to_id(id: &ResourceId) -> pb::ResourceId {
    pb::ResourceId { kind: id.kind.clone(), name: id.name.clone(), org: id.org.clone(), env: id.env.clone() }
}

pub fn get_request(id: &ResourceId) -> pb::GetRequest {
    pb::GetRequest { kind: id.kind.clone(), name: id.name.clone(), org: id.org.clone(), env: id.env.clone() }
}

/// A time that cannot be read, from another version, is shown as the Unix epoch.
pub fn time(text: &str) -> Timestamp {
    text.parse().unwrap_or(Timestamp::UNIX_EPOCH)
}

pub fn maybe_time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

pub fn map(fields: Option<&prost_types::Struct>) -> Map<String, Value> {
    fields.map(from_struct).unwrap_or_default()
}

pub fn stored(resource: &pb::Resource) -> StoredResource {
    let manifest = Value::Object(map(resource.manifest.as_ref()));
    let mut stored = StoredResource::shown(id_of(resource.id.as_ref()), resource.api_version.clone(), &manifest);
    stored.generation = resource.generation;
    stored.created_at = time(&resource.created_at);
    stored.updated_at = time(&resource.updated_at);
    stored.source = ManifestSource { file: resource.source_file.clone(), document: resource.source_document };
    stored.deleting = resource.deleting;
    stored.status_at = maybe_time(&resource.status_at);
    stored.secret_names = resource.secret_outputs.clone();
    stored.status = Status {
        state: ResourceState::parse(&resource.state).unwrap_or_default(),
        message: resource.message.clone(),
        outputs: map(resource.outputs.as_ref()),
        secrets: BTreeMap::new(),
        facts: map(resource.facts.as_ref()),
        observed_generation: resource.observed_generation,
    };
    if !resource.drift.is_empty() {
        let found: Vec<Finding> = resource.drift.iter().map(finding).collect();
        stored.status.facts.entry(DRIFT).or_insert_with(|| Value::String(drift_view::short(&found)));
    }
    stored
}

pub fn finding(difference: &pb::Difference) -> Finding {
    let value = |value: &Option<prost_types::Value>| value.as_ref().map(from_value).unwrap_or_default();
    // A server of an earlier version leaves the property out: it is what follows an entry of a list.
    let property = match difference.property.is_empty() {
        true => difference.field.rsplit_once("].").map_or(difference.field.as_str(), |(_, property)| property),
        false => &difference.property,
    };
    Finding {
        unit: difference.unit.clone(),
        unit_type: difference.unit_type.clone(),
        property: property.to_owned(),
        field: difference.field.clone(),
        gone: difference.field.is_empty() && difference.stray.is_empty(),
        besides: difference.besides,
        stray: difference.stray.clone(),
        declared: value(&difference.declared),
        found: value(&difference.found),
        apply: difference.apply.clone(),
        refused: difference.refused,
        declares: map(difference.declares.as_ref()).into_iter().collect(),
    }
}

pub fn much_gone(much: &pb::MuchGone) -> GoneCount {
    GoneCount { account: much.account.clone(), gone: much.gone as usize, of: much.of as usize }
}

pub fn unit(resource: &ResourceId, unit: pb::Unit) -> UnitState {
    UnitState {
        resource: resource.clone(),
        key: unit.key,
        token: String::new(),
        unit_type: unit.unit_type,
        scope: unit.scope,
        account: unit.account,
        identity: Identity::from_text(unit.identity),
        id: Some(unit.object_id).filter(|id| !id.is_empty()),
        props: map(unit.props.as_ref()),
        outputs: map(unit.outputs.as_ref()),
        secrets: BTreeMap::new(),
        deposed: unit.deposed,
        ready: unit.ready,
        updated_at: time(&unit.updated_at),
    }
}

pub fn history_line(line: pb::HistoryLine) -> HistoryLine {
    let change = (!line.op.is_empty()).then(|| HistoryChange {
        op: line.op,
        unit: line.unit,
        outcome: line.outcome,
        ended_at: maybe_time(&line.ended_at),
    });
    HistoryLine { at: time(&line.at), what: line.what, detail: line.detail, change }
}

/// A problem of a manifest, to be shown with its line.
pub fn diagnostic(problem: &pb::Problem) -> Diagnostic {
    let at = |number: u32| usize::try_from(number).unwrap_or_default();
    let mut diagnostic = Diagnostic::error(problem.message.clone()).file(problem.file.as_str());
    if problem.severity != "error" {
        diagnostic.severity = Severity::Warning;
    }
    if problem.line > 0 {
        diagnostic = diagnostic.at(Span {
            start: at(problem.start),
            end: at(problem.end),
            line: problem.line,
            column: problem.column,
        });
    }
    diagnostic.path = problem.path.clone();
    diagnostic.label = Some(problem.label.clone()).filter(|label| !label.is_empty());
    diagnostic.help = problem.help.clone();
    diagnostic.secret = problem.secret;
    diagnostic
}

/// A problem of one resource as an error.
pub fn trouble(problem: &pb::Problem) -> Failure {
    let failure = Failure::new(problem.message.clone());
    let failure = match (problem.file.as_str(), problem.line) {
        ("", _) => failure,
        (file, 0) => failure.note(format!("declared in {file}")),
        (file, line) => failure.note(format!("declared in {file}:{line}:{}", problem.column)),
    };
    problem.help.iter().fold(failure, |failure, line| failure.help(line))
}

/// The same with its resource. An earlier version names the resource only in the message.
pub fn resource_trouble(problem: &pb::Problem) -> (ResourceId, Trouble) {
    let trouble = Trouble::refused(problem.message.as_str());
    (id_of(problem.resource.as_ref()), problem.help.iter().fold(trouble, |trouble, line| trouble.help(line.as_str())))
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let mut failure = Failure::new(fault.message);
        for conflict in &fault.conflicts {
            failure = failure.note(conflict_line(conflict));
        }
        for problem in fault.problems.iter().take(PROBLEMS_SHOWN) {
            let place = if problem.path.is_empty() { String::new() } else { format!("{}: ", problem.path) };
            failure = failure.note(format!("{place}{}", problem.message));
        }
        if !fault.conflicts.is_empty() && fault.help.is_empty() {
            failure = failure.help("look at what is stored, take it over into your manifest, then apply again");
        }
        fault.help.iter().fold(failure, |failure, line| failure.help(line))
    }
}

const PROBLEMS_SHOWN: usize = 10;

fn conflict_line(conflict: &pb::Conflict) -> String {
    let value = |value: &Option<prost_types::Value>| match value.as_ref().map(from_value) {
        None | Some(Value::Null) => "nothing".to_owned(),
        Some(value) => crate::view::resource_view::value_text(&value),
    };
    let who = if conflict.by.is_empty() { String::new() } else { format!(" by {}", conflict.by) };
    format!(
        "{}: {} is {} in yours, and {} in generation {}{who}; yours starts from generation {}",
        id_of(conflict.id.as_ref()),
        conflict.field,
        value(&conflict.yours),
        value(&conflict.stored),
        conflict.generation,
        conflict.base_generation
    )
}
