//! `berth schema`: JSON Schema, for editors.

use crate::args::address::find_kind;
use crate::failure::{CommandResult, Exit, Failure};
use crate::view::diagnostics::count;
use crate::view::output;
use berth_model::{registry, schema, schema_all};
use std::path::PathBuf;

/// Print the JSON Schema of a kind, for editors
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth schema CivoKubernetesCluster\n  berth schema --all > berth.schema.json")]
pub struct Args {
    /// Kind of manifest
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    kind: Option<String>,
    /// One schema for all kinds
    #[arg(long)]
    all: bool,
    /// With --all: a folder to write one file for each kind and one for all into
    #[arg(long, value_name = "DIR", requires = "all")]
    dir: Option<PathBuf>,
}

pub fn run(args: Args) -> CommandResult {
    if let Some(kind) = &args.kind {
        output::print(&output::json(&schema(find_kind(kind)?))?)?;
        return Ok(Exit::Done);
    }
    let Some(dir) = args.dir else {
        output::print(&output::json(&schema_all())?)?;
        return Ok(Exit::Done);
    };
    let failed = |error: std::io::Error| Failure::caused(format!("cannot write to {}", dir.display()), &error);
    std::fs::create_dir_all(&dir).map_err(failed)?;
    let mut files = vec![("berth".to_owned(), schema_all())];
    files.extend(registry().kinds().map(|kind| (kind.name.clone(), schema(kind))));
    for (name, schema) in &files {
        std::fs::write(dir.join(format!("{name}.schema.json")), output::json(schema)?).map_err(failed)?;
    }
    anstream::eprintln!("{} in {}", count(files.len(), "schema"), dir.display());
    Ok(Exit::Done)
}
