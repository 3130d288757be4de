//! `berth kinds`: what can be declared.

use crate::failure::{CommandResult, Exit};
use crate::view::output::{self, OutputArgs, Table};
use berth_model::registry;
use serde::Serialize;

/// List the kinds of manifests
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth kinds\n  berth kinds --provider civo -o json")]
pub struct Args {
    /// Only kinds of this cloud
    #[arg(long, value_name = "CLOUD")]
    provider: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    kind: &'a str,
    api_version: &'a str,
    aliases: &'a [String],
    provider: &'a str,
    service: &'a str,
    description: &'a str,
}

pub fn run(args: Args) -> CommandResult {
    let wanted = args.provider.map(|provider| provider.to_lowercase());
    let rows: Vec<Row<'_>> = registry()
        .kinds()
        .filter(|kind| wanted.as_ref().is_none_or(|provider| kind.provider == *provider))
        .map(|kind| Row {
            kind: &kind.name,
            api_version: &kind.api_version,
            aliases: &kind.aliases,
            provider: &kind.provider,
            service: &kind.service,
            description: kind.doc(),
        })
        .collect();
    if let (Some(provider), true) = (&wanted, rows.is_empty()) {
        let mut known: Vec<&str> =
            registry().kinds().map(|kind| kind.provider.as_str()).filter(|provider| !provider.is_empty()).collect();
        known.dedup();
        return Err(crate::failure::Failure::new(format!("no kind belongs to a cloud named `{provider}`"))
            .help(format!("there are: {}", known.join(", "))));
    }
    output::show(
        args.output.output,
        &rows,
        |wide| {
            let mut header = vec!["KIND", "APIVERSION"];
            header.extend(wide.then_some("ALSO READ AS"));
            header.push("MEANING");
            let mut table = Table::new(header);
            for row in &rows {
                let mut cells = vec![row.kind.to_owned(), row.api_version.to_owned()];
                cells.extend(wide.then(|| row.aliases.join(", ")));
                cells.push(row.description.to_owned());
                table.row(cells);
            }
            table.render()
        },
        || rows.iter().map(|row| row.kind.to_owned()).collect(),
    )?;
    Ok(Exit::Done)
}
