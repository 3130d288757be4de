//! `berth explain`: what a kind and its fields are.

use crate::args::address::find_kind;
use crate::failure::{CommandResult, Exit, Failure};
use crate::view::output::{self, OutputArgs, Table};
use crate::view::terminal::stdout_width;
use berth_model::{Explanation, Row, explain};

/// Lines of running text are folded at this width where there is no terminal.
const TEXT_WIDTH: usize = 100;

/// Explain a kind or a field
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth explain CivoKubernetesCluster\n  berth explain CivoKubernetesCluster.defaultNodePool"
)]
pub struct Args {
    /// Kind, with the path of a field after it
    #[arg(value_name = "KIND[.FIELD…]")]
    what: String,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: Args) -> CommandResult {
    let (kind, path) = args.what.split_once('.').unwrap_or((&args.what, ""));
    let kind = find_kind(kind)?;
    let explanation =
        explain(kind, path).map_err(|error| Failure::caused(error.to_string(), &error).help(error.help.clone()))?;
    let names = || explanation.fields.iter().map(|row| row.field.clone()).collect();
    output::show(args.output.output, &explanation, |_| page(&explanation), names)?;
    Ok(Exit::Done)
}

fn page(explanation: &Explanation) -> String {
    let Explanation { kind, path, meaning, api_versions, fields, rules, outputs, templates } = explanation;
    let mut text = if path.is_empty() { kind.clone() } else { format!("{kind}.{path}") };
    text.push('\n');
    text.push_str(&folded(meaning, "  "));
    if path.is_empty() {
        let (own, others) = api_versions.split_first().map_or(("", &[][..]), |(own, others)| (own.as_str(), others));
        let also = if others.is_empty() { String::new() } else { format!("; read as the same: {}", others.join(", ")) };
        text.push_str(&folded(&format!("apiVersion: {own}{also}"), "  "));
    }
    if !fields.is_empty() {
        text.push('\n');
        text.push_str(&table(fields));
    }
    if !rules.is_empty() {
        text.push_str("\nRULES\n");
        for rule in rules {
            text.push_str(&folded(rule, "  "));
        }
    }
    if !templates.is_empty() {
        text.push_str("\nTEMPLATES, filling what is not written\n");
        let mut table = Table::new(["TEMPLATE", "FIELD", "VALUE"]);
        for row in templates {
            table.row([&row.template, &row.path, &row.value]);
        }
        text.push_str(&table.render());
    }
    if !outputs.is_empty() {
        text.push_str("\nOUTPUTS, once applied\n");
        text.push_str(&table(outputs));
    }
    text
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new(["FIELD", "TYPE", "RULES", "MEANING"]).text_columns(2);
    for Row { field, holds, rules, meaning } in rows {
        table.row([field, holds, rules, meaning]);
    }
    table.render()
}

fn folded(text: &str, indent: &str) -> String {
    let width = stdout_width().unwrap_or(TEXT_WIDTH).min(TEXT_WIDTH);
    let mut out = String::new();
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        if line.len() > indent.len() && line.chars().count() + 1 + word.chars().count() > width {
            out.push_str(&line);
            out.push('\n');
            line = indent.to_owned();
        }
        if line.len() > indent.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if line.len() > indent.len() {
        out.push_str(&line);
        out.push('\n');
    }
    out
}
