//! `berth validate`: checks manifests, touches nothing.

use crate::args::LookArgs;
use crate::failure::{CommandResult, Exit};
use crate::local::files::FileArgs;
use crate::local::manifests::{self, Loaded};
use crate::view::diagnostics::count;
use crate::view::output::{self, Format, OutputArgs, Table};
use std::collections::BTreeSet;

/// Check manifests, without touching anything
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth validate -f shop/\n  cat cluster.yaml | berth validate -f - -o json")]
pub struct Args {
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    look: LookArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let mut loaded = manifests::load(&args.files.file, &args.look.which()?)?;
    loaded.accept_others();
    let format = args.output.output;
    if loaded.has_errors() {
        return loaded.refuse(format);
    }
    if matches!(format, Format::Table | Format::Wide | Format::Name) {
        loaded.print();
    }
    let names = || loaded.manifests.iter().map(|manifest| manifest.id.to_string()).collect();
    output::show(format, &loaded.report(), |wide| if wide { table(&loaded) } else { line(&loaded) }, names)?;
    Ok(Exit::Done)
}

fn line(loaded: &Loaded) -> String {
    let sources = loaded.manifests.iter().filter_map(|manifest| manifest.source.as_ref());
    let files: BTreeSet<&str> = sources.map(|source| source.file.as_ref()).collect();
    let verb = if loaded.manifests.len() == 1 { "is" } else { "are" };
    format!("{} in {} {verb} valid\n", count(loaded.manifests.len(), "manifest"), count(files.len(), "file"))
}

fn table(loaded: &Loaded) -> String {
    let mut table = Table::new(["KIND", "NAME", "ENV", "FILE", "FILLED BY TEMPLATE"]);
    for manifest in &loaded.manifests {
        let filled: Vec<String> =
            manifest.filled.iter().map(|filled| format!("{}={}", filled.path, filled.value)).collect();
        let env = if manifest.id.env.is_empty() { "-" } else { &manifest.id.env };
        let place = manifest.place().unwrap_or_default();
        let filled = if filled.is_empty() { "-".to_owned() } else { filled.join(", ") };
        table.row([manifest.kind.name.as_str(), &manifest.id.name, env, &place, &filled]);
    }
    table.render()
}
