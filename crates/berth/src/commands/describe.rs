//! `berth describe`: everything about one resource, for people. From the state alone.

use crate::args::ResourceArgs;
use crate::args::repeated_flags;
use crate::backend::{Access, Backend, lookup, with_backend};
use crate::commands::history;
use crate::failure::{CommandResult, Exit, Failure};
use crate::view::output::{self, Table};
use crate::view::resource_view::{self, DRIFT, age, value_text};
use crate::view::terminal::harmless_line;
use berth_engine::parents;
use berth_engine::unit::UnitState;
use berth_model::{Manifest, REDACTED, ResourceId};
use berth_store::{Filter, StoredResource};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

const HISTORY_LINES: u32 = 10;
/// Referrers that are shown; the rest is counted.
const REFERRERS_SHOWN: usize = 20;

/// Show everything about one resource
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth describe CivoKubernetesCluster/shop\n  berth describe civovpc/shop-net --env prod"
)]
pub struct Args {
    /// The resource, as Kind/name
    #[arg(value_name = "KIND/NAME")]
    what: String,
    #[command(flatten)]
    resources: ResourceArgs,
}

pub fn run(args: Args) -> CommandResult {
    let scope = args.resources.scope()?;
    let text = with_backend(&args.resources.workspace, Access::Read, async |backend| {
        let stored = lookup::one(backend, &args.what, &scope).await?;
        describe(backend, &stored).await
    })?;
    output::print(&text)?;
    Ok(Exit::Done)
}

async fn describe(backend: &dyn Backend, stored: &StoredResource) -> Result<String, Failure> {
    let id = &stored.id;
    let manifest = stored.manifest(&stored.sealed_manifest()?)?;
    let referrers = referrers(backend, id).await?;
    let units = backend.units_of(id).await?;
    let lines = backend.history(id, HISTORY_LINES).await?;

    let mut text = String::new();
    heading(&mut text, stored, &manifest, backend.is_sandbox());
    section(&mut text, "Status");
    status(&mut text, stored);
    section(&mut text, "Declared");
    declared(&mut text, stored, &manifest)?;
    references(&mut text, &manifest, &referrers);
    if !units.is_empty() {
        section(&mut text, "Units");
        indented(&mut text, &unit_table(&units));
    }
    if !stored.status.outputs.is_empty() || !stored.secret_names.is_empty() {
        section(&mut text, "Outputs");
        let mut outputs: BTreeMap<&str, String> =
            stored.status.outputs.iter().map(|(name, value)| (name.as_str(), value_text(value))).collect();
        outputs.extend(stored.secret_names.iter().map(|name| (name.as_str(), REDACTED.to_owned())));
        pairs(&mut text, outputs.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    if !lines.is_empty() {
        section(&mut text, "History");
        indented(&mut text, &history::brief(id, lines));
    }
    section(&mut text, "Next");
    for (what, line) in next(stored) {
        _ = writeln!(text, "  {what:<24}{line}");
    }
    Ok(text)
}

fn section(text: &mut String, title: &str) {
    _ = writeln!(text, "\n{title}");
}

fn indented(text: &mut String, table: &str) {
    for line in table.lines() {
        _ = writeln!(text, "  {line}");
    }
}

/// Names and values in two columns.
fn pairs(text: &mut String, pairs: impl IntoIterator<Item = (String, String)>) {
    let pairs: Vec<(String, String)> = pairs.into_iter().collect();
    let width = pairs.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in pairs {
        _ = writeln!(text, "  {:<width$}  {}", harmless_line(&name), harmless_line(&value));
    }
}

fn heading(text: &mut String, stored: &StoredResource, manifest: &Manifest, sandbox: bool) {
    let id = &stored.id;
    _ = writeln!(text, "{}", harmless_line(&id.to_string()));
    let mut rows = vec![("API version".to_owned(), stored.api_version.clone())];
    if sandbox {
        rows.push(("Clouds".into(), "simulated (sandbox)".into()));
    }
    for (name, value) in [("Org", &id.org), ("Env", &id.env)] {
        if !value.is_empty() {
            rows.push((name.into(), value.clone()));
        }
    }
    for (name, map) in [("Labels", &manifest.metadata.labels), ("Annotations", &manifest.metadata.annotations)] {
        if !map.is_empty() {
            let all: Vec<String> = map.iter().map(|(key, value)| format!("{key}={value}")).collect();
            rows.push((name.into(), all.join(", ")));
        }
    }
    if !stored.source.file.is_empty() {
        rows.push(("File".into(), stored.source.file.clone()));
    }
    let now = Timestamp::now();
    let (created, updated) = (stored.created_at, stored.updated_at);
    rows.push(("Created".into(), format!("{} ({} ago)", resource_view::time(created), age(created, now))));
    rows.push(("Changed".into(), format!("{}, generation {}", resource_view::time(updated), stored.generation)));
    pairs(text, rows);
}

fn status(text: &mut String, stored: &StoredResource) {
    let status = &stored.status;
    let state = resource_view::state(stored);
    let mut rows = vec![("state".to_owned(), state.to_string())];
    let phase = resource_view::phase(stored);
    if !phase.is_empty() && !phase.eq_ignore_ascii_case(state.as_str()) {
        rows.push(("message".into(), phase));
    }
    for (name, value) in &status.facts {
        let value = match (name.as_str(), value.as_str()) {
            ("gate", Some("api")) => "api: its API server answered".to_owned(),
            ("gate", Some("cloud")) => "cloud: the cloud says so; its API server was not asked".to_owned(),
            _ => value_text(value),
        };
        rows.push((if name == DRIFT { "drift, last seen".into() } else { name.clone() }, value));
    }
    pairs(text, rows);
}

/// Each value on a line, with what a template filled in marked as such.
fn declared(text: &mut String, stored: &StoredResource, manifest: &Manifest) -> Result<(), Failure> {
    let shown = resource_view::shown_manifest(stored)?;
    let mut rows = Vec::new();
    flatten(shown.get("spec").unwrap_or(&Value::Null), String::new(), &mut rows);
    let template = manifest.field_value("spec.template").unwrap_or_default();
    for (path, value) in &mut rows {
        if manifest.filled.iter().any(|filled| filled.path.strip_prefix("spec.") == Some(path)) {
            value.push_str(&format!("   (from template {template})"));
        }
    }
    pairs(text, rows);
    Ok(())
}

fn flatten(value: &Value, path: String, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            // A reference is shown as `from KIND NAME FIELD`.
            if let Some(from) = map.get("valueFrom") {
                let part = |name: &str| from.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
                let parts: Vec<&str> = [part("kind"), part("name"), part("fieldPath")].into_iter().flatten().collect();
                let env = part("env").map(|env| format!(" in {env}")).unwrap_or_default();
                rows.push((path, format!("from {}{env}", parts.join(" "))));
            } else if let (Some(value), 1) = (map.get("value"), map.len()) {
                rows.push((path, value_text(value)));
            } else {
                for (name, inner) in map {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    flatten(inner, path, rows);
                }
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                let name = item.get("name").and_then(Value::as_str);
                let pick = name.map_or_else(|| index.to_string(), str::to_owned);
                flatten(item, format!("{path}[{pick}]"), rows);
            }
        }
        Value::Array(items) => {
            rows.push((path, items.iter().map(value_text).collect::<Vec<_>>().join(", ")));
        }
        other => rows.push((path, value_text(other))),
    }
}

fn references(text: &mut String, manifest: &Manifest, referrers: &[(ResourceId, String)]) {
    let refs = manifest.refs();
    if !refs.is_empty() {
        section(text, "Refers to");
        pairs(
            text,
            refs.into_iter().map(|to| (to.to.to_string(), format!("spec.{} reads {}", to.field, to.field_path))),
        );
    }
    if !referrers.is_empty() {
        section(text, "Referred to by");
        let shown = referrers.iter().take(REFERRERS_SHOWN);
        pairs(text, shown.map(|(id, field)| (id.to_string(), format!("spec.{field}"))));
        if referrers.len() > REFERRERS_SHOWN {
            _ = writeln!(text, "  … and {} more", referrers.len() - REFERRERS_SHOWN);
        }
    }
}

/// Who refers to it, and by which field.
async fn referrers(backend: &dyn Backend, id: &ResourceId) -> Result<Vec<(ResourceId, String)>, Failure> {
    let mut found = Vec::new();
    for other in backend.resources(&Filter { org: Some(id.org.clone()), ..Filter::default() }).await? {
        let json = other.sealed_manifest()?;
        // Most of a large fleet does not even mention the name; only the others are worth reading as manifests.
        if other.id == *id || !mentions(&json["spec"], &id.name) {
            continue;
        }
        let manifest = other.manifest(&json)?;
        if !parents(&manifest).contains(id) {
            continue;
        }
        let by = manifest.refs().into_iter().chain(manifest.named()).find(|to| to.to == *id);
        found.push((other.id, by.map(|to| to.field).unwrap_or_default()));
    }
    Ok(found)
}

fn mentions(value: &Value, name: &str) -> bool {
    match value {
        Value::String(text) => text == name,
        Value::Array(items) => items.iter().any(|item| mentions(item, name)),
        Value::Object(map) => map.values().any(|item| mentions(item, name)),
        _ => false,
    }
}

fn unit_table(units: &[UnitState]) -> String {
    let mut table = Table::new(["KEY", "TYPE", "ID", "READY", "ACCOUNT", "BELONGS TO"]);
    for unit in units {
        let ready = match (unit.deposed, unit.ready) {
            (true, _) => "replaced, to be deleted",
            (false, true) => "yes",
            (false, false) => "no",
        };
        let id = unit.id.as_deref().unwrap_or("- (begun, its answer was not recorded)");
        let owner = unit.identity.as_ref().map_or("not known", |identity| identity.id());
        table.row([unit.key.as_str(), &unit.unit_type, id, ready, &unit.account, owner]);
    }
    table.render()
}

/// What people usually do from here.
fn next(stored: &StoredResource) -> Vec<(&'static str, String)> {
    let id = &stored.id;
    let line = |verb: &str| repeated_flags::command(verb, id);
    if stored.deleting {
        return vec![("go on deleting it:", line("wait --for deleted"))];
    }
    let mut next = Vec::new();
    match resource_view::readiness(stored) {
        "yes" => {
            if id.kind.ends_with("KubernetesCluster") {
                next.push(("use it:", format!("{} --merge", line("kubeconfig"))));
            }
            next.push(("look for drift:", line("drift")));
        }
        "failed" => next.push(("try again:", line("apply"))),
        _ => next.push(("wait for it:", line("wait"))),
    }
    next.push(("delete it:", line("delete")));
    next
}
