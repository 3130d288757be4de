//! `drift --accept`: what was found becomes what is declared, in the manifest's file and in the state.

use crate::args::WorkspaceArgs;
use crate::failure::Failure;
use crate::local::stored::{self, DRIFT};
use crate::local::workspace::Workspace;
use crate::remote::follow::{Goal, Watch, follow};
use crate::remote::{self, Remote, messages};
use crate::view::drift_view::{Finding, Findings, count};
use crate::view::output::Format;
use crate::view::terminal::harmless;
use berth_clouds::units::summary_facts_of;
use berth_engine::handler::SummaryFacts;
use berth_engine::record::Recorder;
use berth_engine::{Known, Plan};
use berth_model::shape::{Holds, Many, Shape};
use berth_model::{MAX_FILE_BYTES, Manifest, ResourceId, case, parse, set_list, set_scalar};
use berth_server::pb;
use berth_store::{NewResource, Run, StoredResource};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a server may take to see that nothing is to be changed.
const DECLARED_WITHIN: Duration = Duration::from_secs(300);

/// A file's text before and after.
struct Edited {
    before: String,
    after: String,
}

/// A resource whose findings were taken over, and what the state is to hold of it.
struct Accepted<'f> {
    stored: StoredResource,
    /// The same as JSON and as a manifest.
    json: Value,
    manifest: Manifest,
    findings: Vec<&'f Finding>,
}

/// Where the manifest is kept that is to say what was found.
pub enum Place<'a> {
    State(&'a Workspace, &'a Known),
    Server(&'a Remote),
}

impl Place<'_> {
    async fn manifest(&self, id: &ResourceId) -> Result<Option<(StoredResource, Value)>, Failure> {
        let stored = match self {
            Place::State(workspace, _) => workspace.store.resource(id).await?,
            Place::Server(remote) => remote.resource(id).await?,
        };
        let Some(stored) = stored else { return Ok(None) };
        let manifest = match self {
            Place::State(workspace, _) => workspace.store.unseal(&stored)?,
            Place::Server(_) => stored.sealed_manifest()?,
        };
        Ok(Some((stored, manifest)))
    }
}

/// Declares on a server what was found. Its worker then finds nothing to change, and writes that down.
async fn declare(remote: &Remote, accepted: Vec<Accepted<'_>>) -> Result<(), Failure> {
    let since = remote.last_event().await?;
    let mut goals = Vec::new();
    for one in accepted {
        let mut stored = StoredResource::shown(one.stored.id.clone(), one.stored.api_version.clone(), &one.json);
        stored.source = one.stored.source.clone();
        let base = pb::Base { id: Some(messages::to_id(&stored.id)), generation: one.stored.generation };
        let request =
            pb::ApplyRequest { files: vec![remote::kept_file(&stored)?], bases: vec![base], ..Default::default() };
        let answer = remote.client.resources().apply(request).await.map_err(|s| remote.fail(&s))?.into_inner();
        for applied in answer.resources {
            let id = messages::id_of(applied.id.as_ref());
            goals.push(Goal { id, gone: false, generation: applied.generation, before: None });
        }
    }
    let watch = Watch { since, timeout: DECLARED_WITHIN, approvals: false };
    let followed = follow(remote, goals, &Plan::default(), watch).await?;
    match followed.report.failed.into_iter().next() {
        Some((id, trouble)) => Err(Failure::new(format!("{id}: {trouble}"))),
        None => Ok(()),
    }
}

/// Writes what can be accepted and says why the rest cannot. Answers whether anything is left.
pub async fn accept(
    place: Place<'_>,
    args: &WorkspaceArgs,
    findings: &Findings,
    format: Format,
) -> Result<bool, Failure> {
    let run = match &place {
        Place::State(workspace, _) => Some(workspace.store.begin_run("drift --accept").await?),
        Place::Server(_) => None,
    };
    let mut files: BTreeMap<PathBuf, Edited> = BTreeMap::new();
    let mut accepted = Vec::new();
    let mut refused: Vec<(&ResourceId, &Finding, String)> = Vec::new();
    for (id, found) in findings {
        let Some((stored, mut manifest)) = place.manifest(id).await? else { continue };
        let mut taken = Vec::new();
        for finding in found {
            match take(&stored, finding, &mut files, args) {
                Ok(values) => {
                    values.iter().for_each(|(path, value)| set(&mut manifest, path, value));
                    taken.push(finding);
                }
                Err(why) => refused.push((id, finding, why)),
            }
        }
        if !taken.is_empty() {
            let json = manifest;
            let manifest = stored.manifest(&json)?;
            accepted.push(Accepted { stored, json, manifest, findings: taken });
        }
    }

    let people = matches!(format, Format::Table | Format::Wide);
    files.retain(|_, edited| edited.before != edited.after);
    for (path, edited) in &files {
        if people {
            let name = path.display().to_string();
            let diff = similar::TextDiff::from_lines(&edited.before, &edited.after);
            anstream::print!("{}", harmless(&diff.unified_diff().header(&name, &name).to_string()));
        }
        // The file goes first: should the rest be cut short, the next drift check finds the same and can be accepted again.
        write(path, &edited.after)?;
    }
    let values: usize = accepted.iter().map(|one| one.findings.len()).sum();
    let resources = accepted.len();
    match (&place, run) {
        (Place::State(_, known), Some(run)) => {
            for one in accepted {
                record(&run, known, one).await?;
            }
            run.finish().await;
        }
        (Place::Server(remote), _) => declare(remote, accepted).await?,
        (Place::State(..), None) => {}
    }
    if values > 0 {
        anstream::eprintln!("accepted {} of {}", count(values, "value"), count(resources, "resource"));
    }
    for (id, finding, why) in &refused {
        let mut failure = match finding.gone {
            true => Failure::new(format!("{id} is gone, which a manifest cannot say")),
            false => Failure::new(format!("{id}: {} cannot be accepted", finding.field)),
        };
        failure = failure.help(why);
        if finding.gone {
            let delete = stored::command("delete", id, args);
            failure = failure.help(format!("or take it out of the manifests, and:   {delete}"));
        }
        failure.print();
    }
    Ok(!refused.is_empty())
}

/// Writes one finding into the text of the manifest's file. Answers what was written where, or why not and what to do instead.
fn take(
    stored: &StoredResource,
    finding: &Finding,
    files: &mut BTreeMap<PathBuf, Edited>,
    args: &WorkspaceArgs,
) -> Result<Vec<(String, Value)>, String> {
    let id = &stored.id;
    if !finding.stray.is_empty() {
        return Err(finding.apply.clone());
    }
    if finding.gone {
        return Err(format!("make it again:   {}", stored::command("apply", id, args)));
    }
    if stored.deleting {
        return Err(format!("it is being deleted:   {}", stored::command("wait --for deleted", id, args)));
    }
    let put_back = format!("put it back:   {}", stored::command("apply", id, args));
    let kind = berth_model::registry().kind(&id.kind).ok_or_else(|| put_back.clone())?;
    let lists = !finding.declares.is_empty();
    if !lists && !matches!(finding.found, Value::String(_) | Value::Number(_) | Value::Bool(_)) {
        return Err(format!("it is not a single value: write it into the manifest by hand, or {put_back}"));
    }
    let is_list = |field: &String| kind.spec_shape().field(field).is_some_and(|field| field.many == Many::List);
    let known = match lists {
        true => finding.declares.keys().all(is_list),
        false => is_field(kind.spec_shape(), &finding.field),
    };
    if !known {
        return Err(format!("it is not a field of the manifest; {put_back}"));
    }
    let values: Vec<(String, Value)> = match lists {
        true => finding.declares.iter().map(|(field, value)| (format!("spec.{field}"), value.clone())).collect(),
        false => vec![(format!("spec.{}", finding.field), finding.found.clone())],
    };
    if stored.source.file.is_empty() || stored.source.file == "-" {
        return Err(format!("the manifest was not applied from a file: change it where it is kept, or {put_back}"));
    }
    let file = PathBuf::from(&stored.source.file);
    let edited = match files.entry(file.clone()) {
        std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
        std::collections::btree_map::Entry::Vacant(entry) => {
            let text = read(&file).map_err(|why| {
                format!("{} cannot be read ({why}): run it where the manifests are, or {put_back}", file.display())
            })?;
            entry.insert(Edited { before: text.clone(), after: text })
        }
    };
    let (manifests, _) = parse(&stored.source.file, edited.after.as_bytes());
    let document = manifests
        .iter()
        .find(|manifest| manifest.id == *id && !manifest.faulty)
        .and_then(|manifest| manifest.source.as_ref())
        .map(|source| source.document)
        .ok_or_else(|| {
            format!("{} does not hold it any more: change it where it is kept, or {put_back}", file.display())
        })?;
    let mut text = edited.after.clone();
    for (path, value) in &values {
        let written = match value.as_array() {
            Some(items) => set_list(&text, document, path, items),
            None => set_scalar(&text, document, path, value),
        };
        text = written.map_err(|error| format!("{}: {error}; write it by hand, or {put_back}", file.display()))?;
    }
    // What is written must be a good manifest still: bounds of an autoscaler, for one, may forbid the value.
    let (manifests, problems) = parse(&stored.source.file, text.as_bytes());
    let good = manifests.iter().any(|manifest| manifest.id == *id && !manifest.faulty);
    if !good {
        let why = problems.into_iter().find(berth_model::Diagnostic::is_error).map(|problem| problem.message);
        return Err(format!("the manifest would not be valid: {}; {put_back}", why.unwrap_or_default()));
    }
    edited.after = text;
    Ok(values)
}

/// Whether a path leads to a single value of the spec.
fn is_field(shape: &Shape, path: &str) -> bool {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let (name, picked) = match name.split_once('[') {
        Some((name, _)) => (name, true),
        None => (name, false),
    };
    let Some(field) = shape.field(name) else { return false };
    if (field.many == Many::One) == picked {
        return false;
    }
    match (field.holds, rest) {
        (Holds::Message, "") => false,
        (Holds::Message, rest) => field.shape().is_some_and(|inner| is_field(inner, rest)),
        (_, rest) => rest.is_empty(),
    }
}

/// The same change in the manifest that the state holds. It is made there by itself: other edits in the file are not applied
/// yet, and accepting a value must not pretend that they were.
fn set(manifest: &mut Value, path: &str, value: &Value) {
    let mut at = manifest;
    for step in path.split('.') {
        let (name, pick) = match step.split_once('[') {
            Some((name, pick)) => (name, Some(pick.trim_end_matches(']'))),
            None => (step, None),
        };
        if !at.is_object() {
            return;
        }
        at = &mut at[case::camel_case(name)];
        if let Some(pick) = pick {
            let items = at.as_array_mut().into_iter().flatten();
            let Some(item) = items.into_iter().find(|item| item.get("name").and_then(Value::as_str) == Some(pick))
            else {
                return;
            };
            at = item;
        } else if at.is_null() && !path.ends_with(step) {
            *at = Value::Object(serde_json::Map::new());
        }
    }
    // A field that takes references is stored as `{value: …}`.
    if at.get("value").is_some() {
        at["value"] = value.clone();
    } else {
        *at = value.clone();
    }
}

async fn record(run: &Run, known: &Known, one: Accepted<'_>) -> Result<(), Failure> {
    let Accepted { stored, manifest, findings, .. } = one;
    let failed = |error: berth_engine::record::RecordError| Failure::new(error.to_string());
    let was_settled = stored.settled();
    let mut new = NewResource::of(&manifest)?;
    new.source = stored.source.clone();
    run.save_resource(new).await?;
    for unit in known.units.get(&stored.id).map(Vec::as_slice).unwrap_or_default() {
        let mut unit = unit.clone();
        let mine: Vec<&&Finding> =
            findings.iter().filter(|finding| finding.unit == unit.key && !unit.deposed).collect();
        if mine.is_empty() {
            continue;
        }
        for finding in mine {
            unit.props.insert(finding.property.clone(), finding.found.clone());
        }
        run.save_unit(unit).await.map_err(failed)?;
    }
    let mut status = stored.status.clone();
    status.facts.remove(DRIFT);
    for finding in &findings {
        let facts_with = |value: &Value| summary_facts_of(&finding.unit_type, &finding.property, value);
        SummaryFacts::replace_in(&mut status.facts, facts_with(&finding.declared), facts_with(&finding.found));
    }
    // What was carried out to its end still is: the world already looks as the new manifest says.
    if was_settled {
        status.observed_generation = 0;
    }
    run.status(&stored.id, status).await.map_err(failed)?;
    let fields: Vec<String> =
        findings.iter().map(|finding| format!("{} = {}", finding.field, stored::value_text(&finding.found))).collect();
    run.event(&stored.id, "drift accepted", &fields.join(", ")).await.map_err(failed)
}

fn read(path: &Path) -> Result<String, std::io::Error> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
    if text.len() > MAX_FILE_BYTES {
        return Err(std::io::Error::other("it is too large"));
    }
    Ok(text)
}

/// Whole or not at all, with the permissions that the file had; a link stays a link.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| Failure::caused(format!("cannot write {}", path.display()), &error);
    let target = std::fs::canonicalize(path).map_err(cannot)?;
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let half = target.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&half)?;
        file.set_permissions(std::fs::metadata(&target)?.permissions())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&half, &target)
    };
    write().inspect_err(|_| _ = std::fs::remove_file(&half)).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_set_where_the_state_keeps_them() {
        let mut manifest = json!({"spec": {
            "kubernetesVersion": "1.29.0", "network": {"value": "n-1"},
            "additionalNodePools": [{"name": "a", "nodeCount": 1}, {"name": "gpu", "nodeCount": 2}],
        }});
        set(&mut manifest, "spec.kubernetes_version", &json!("1.30.5-k3s1"));
        set(&mut manifest, "spec.network", &json!("n-2"));
        set(&mut manifest, "spec.additional_node_pools[gpu].node_count", &json!(4));
        set(&mut manifest, "spec.default_node_pool.node_count", &json!(5));
        assert_eq!(
            manifest,
            json!({"spec": {
                "kubernetesVersion": "1.30.5-k3s1", "network": {"value": "n-2"}, "defaultNodePool": {"nodeCount": 5},
                "additionalNodePools": [{"name": "a", "nodeCount": 1}, {"name": "gpu", "nodeCount": 4}],
            }})
        );
    }

    #[test]
    fn only_single_values_of_the_spec_are_fields() {
        let shape = berth_model::registry().kind("CivoKubernetesCluster").unwrap().spec_shape();
        for path in ["kubernetes_version", "default_node_pool.node_count", "additional_node_pools[gpu].size", "network"]
        {
            assert!(is_field(shape, path), "{path}");
        }
        for path in ["tags", "default_node_pool", "cluster_id", "default_node_pool.name", "additional_node_pools.size"]
        {
            assert!(!is_field(shape, path), "{path}");
        }
    }
}
