//! `berth init`: commented manifests to start from.

use crate::args::address::find_kind;
use crate::failure::{CommandResult, Exit, Failure};
use crate::view::output;
use berth_clouds::registry::names;
use clap::builder::PossibleValuesParser;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Write commented manifests to start from
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth init --out shop.yaml\n  berth init CivoKubernetesCluster --template prod --out cluster.yaml"
)]
pub struct Args {
    /// Kind of manifest; without it, a set that makes a whole cluster
    kind: Option<String>,
    /// How large: dev, staging or prod
    #[arg(long, value_enum, value_name = "TEMPLATE", hide_possible_values = true)]
    template: Option<Template>,
    /// Whose set; the first cloud's when omitted
    #[arg(long, value_name = "CLOUD", value_parser = PossibleValuesParser::new(names()), conflicts_with = "kind")]
    cloud: Option<String>,
    /// File to write; standard output without it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long, requires = "out")]
    force: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Template {
    Dev,
    Staging,
    Prod,
}

impl Template {
    fn name(self) -> &'static str {
        match self {
            Template::Dev => "dev",
            Template::Staging => "staging",
            Template::Prod => "prod",
        }
    }
}

pub fn run(args: Args) -> CommandResult {
    let text = match &args.kind {
        Some(kind) => {
            let template = args.template.map(Template::name);
            berth_model::starter(find_kind(kind)?, template).map_err(|error| {
                Failure::caused("there is no such starter", &error)
                    .help(format!("without a template:   berth init {kind}"))
            })?
        }
        None => set(args.cloud.as_deref().unwrap_or(names()[0]), args.template.unwrap_or(Template::Dev))?,
    };
    match &args.out {
        None => output::print(&text)?,
        Some(path) => {
            write(path, &text, args.force)?;
            anstream::eprintln!("wrote {}; to check it:   berth validate -f {}", path.display(), path.display());
        }
    }
    Ok(Exit::Done)
}

fn set(cloud: &str, template: Template) -> Result<String, Failure> {
    berth_model::starter_set(cloud, template.name())
        .ok_or_else(|| Failure::new(format!("there is no set for {cloud}")).help("name a kind in place of --cloud"))
}

fn write(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::new(format!("{} exists", path.display())).help("to overwrite it, add --force")
        }
        _ => Failure::caused(format!("cannot write {}", path.display()), &error),
    };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut options = File::options();
    options.write(true);
    // Creating the file is the check: another process could write between a check and a write.
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    options.open(path).and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)
}
