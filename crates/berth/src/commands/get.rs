//! `berth get`: what is applied, from the state alone.

use crate::args::ResourceArgs;
use crate::backend::{Access, lookup, with_backend};
use crate::failure::{CommandResult, Exit, Failure};
use crate::local::workspace::elsewhere;
use crate::view::output::{self, Format, OutputArgs, Table};
use crate::view::resource_view::{self, DRIFT, age, fact, or_dash, short_message};
use crate::view::terminal::harmless_line;
use berth_store::StoredResource;
use jiff::Timestamp;
use serde_json::{Value, json};

/// List what is applied
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth get\n  berth get civokubernetesclusters --env prod -o wide")]
pub struct Args {
    /// Kinds, or resources as Kind/name; everything when none is given
    #[arg(value_name = "KIND[/NAME]")]
    what: Vec<String>,
    /// Only resources with this label; may be given more than once
    #[arg(short = 'l', long = "selector", value_name = "LABEL=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not LABEL=VALUE")),
    }
}

pub fn run(args: Args) -> CommandResult {
    let scope = args.resources.scope()?;
    let addresses = lookup::addresses(&args.what, &scope)?;
    let format = args.output.output;
    let (mut found, place, sandbox) = with_backend(&args.resources.workspace, Access::Read, async |backend| {
        let found = lookup::find(backend, &addresses, &scope).await?;
        Ok((found, backend.place(), backend.is_sandbox()))
    })?;
    if !args.labels.is_empty() {
        let mut kept = Vec::new();
        for one in found {
            if has_labels(&one, &args.labels)? {
                kept.push(one);
            }
        }
        found = kept;
    }
    if found.is_empty() && format.is_for_people() {
        let narrowed = !args.labels.is_empty() || scope.is_given();
        anstream::eprintln!(
            "nothing is applied here{}{}",
            if addresses.is_empty() { "" } else { " of that kind" },
            if narrowed { " with that label, env or org" } else { "" }
        );
        if let Some(place) = elsewhere(&args.resources.workspace) {
            anstream::eprintln!("  {place}");
        }
        return Ok(Exit::Done);
    }
    // One resource asked for by its name is one object, not a list of one.
    let single = matches!(addresses.as_slice(), [only] if only.name.is_some()) && found.len() == 1;
    let value = match format {
        Format::Json | Format::Yaml if single => as_json(&found[0], sandbox)?,
        Format::Json | Format::Yaml => {
            Value::Array(found.iter().map(|one| as_json(one, sandbox)).collect::<Result<_, _>>()?)
        }
        _ => Value::Null,
    };
    let names = || found.iter().map(|one| one.id.to_string()).collect();
    output::show(format, &value, |wide| table(&found, wide, sandbox), names)?;
    if let (Some(place), Format::Table | Format::Wide) = (place, format) {
        anstream::eprintln!("\nfrom {}", harmless_line(&place));
    }
    Ok(Exit::Done)
}

fn has_labels(stored: &StoredResource, wanted: &[(String, String)]) -> Result<bool, Failure> {
    let manifest = stored.sealed_manifest()?;
    let labels = manifest.pointer("/metadata/labels");
    let is = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    Ok(wanted.iter().all(|(key, value)| is(key) == Some(value)))
}

fn table(found: &[StoredResource], wide: bool, sandbox: bool) -> String {
    let mut columns = vec!["KIND", "NAME", "ENV", "READY", "VERSION", "NODES", "AGE", "DRIFT"];
    // With several orgs, the name alone is ambiguous.
    let orgs = !wide && found.iter().any(|one| one.id.org != found[0].id.org);
    if orgs {
        columns.insert(2, "ORG");
    }
    if wide {
        columns.extend(["ORG", "REGION", "ENDPOINT", "GATE", "FILE", "MESSAGE"]);
    }
    let mut table = Table::new(columns).sandbox(sandbox);
    let now = Timestamp::now();
    for one in found {
        let id = &one.id;
        let phase = resource_view::phase(one);
        let mut row = vec![
            id.kind.clone(),
            id.name.clone(),
            or_dash(&id.env),
            resource_view::readiness(one).to_owned(),
            fact(one, "version"),
            fact(one, "nodes"),
            age(one.created_at, now),
            match phase.as_str() {
                "" => fact(one, DRIFT),
                // The whole message has a column of its own.
                message if wide && message == one.status.message => resource_view::state(one).as_str().to_lowercase(),
                phase => short_message(phase),
            },
        ];
        if orgs {
            row.insert(2, or_dash(&id.org));
        }
        if wide {
            let endpoint =
                one.status.outputs.get("api_server_endpoint").map(resource_view::value_text).unwrap_or_default();
            row.extend([or_dash(&id.org), fact(one, "region"), or_dash(&endpoint), fact(one, "gate")]);
            row.extend([or_dash(&one.source.file), or_dash(&one.status.message)]);
        }
        table.row(row);
    }
    table.render()
}

/// The manifest as applied, and what is known of it. Output names are those of the kind's Outputs, as references use them.
pub fn as_json(stored: &StoredResource, sandbox: bool) -> Result<Value, Failure> {
    let mut value = resource_view::shown_manifest(stored)?;
    let status = &stored.status;
    value["status"] = json!({
        "state": resource_view::state(stored),
        "ready": resource_view::readiness(stored) == "yes",
        "message": status.message,
        "outputs": status.outputs,
        "secretOutputs": stored.secret_names,
        "facts": status.facts,
        "generation": stored.generation,
        "observedGeneration": status.observed_generation,
        "createdAt": resource_view::time(stored.created_at),
        "updatedAt": resource_view::time(stored.updated_at),
        "source": stored.source,
    });
    if sandbox {
        value["status"]["sandbox"] = Value::Bool(true);
    }
    Ok(value)
}
