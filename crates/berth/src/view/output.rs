//! Results on standard output: tables for people, JSON and YAML for programs, names for shells.

use crate::failure::Failure;
use crate::view::terminal::{harmless_line, stdout_width};
use crate::view::yaml::to_yaml;
use serde::Serialize;
use std::io::Write;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Columns for people
    Table,
    /// More columns
    Wide,
    /// Stable names, pretty-printed
    Json,
    /// The same as JSON, in YAML
    Yaml,
    /// One `Kind/name` on a line
    Name,
}

impl Format {
    /// Text for people, beside which more is said on standard error.
    pub fn is_for_people(self) -> bool {
        matches!(self, Format::Table | Format::Wide)
    }
}

#[derive(clap::Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT", hide_possible_values = true, help = "How to print the result: table, wide, json, yaml or name")]
    pub output: Format,
}

/// Writes to standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::AutoStream::auto(std::io::stdout().lock());
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Prints a value in the form asked for.
pub fn show<T: Serialize>(
    format: Format,
    value: &T,
    table: impl FnOnce(bool) -> String,
    names: impl FnOnce() -> Vec<String>,
) -> Result<(), Failure> {
    match format {
        Format::Table | Format::Wide => print(&table(format == Format::Wide)),
        Format::Json => print(&json(value)?),
        Format::Yaml => print(&to_yaml(&plain(value)?)),
        Format::Name => {
            let mut text = names().join("\n");
            if !text.is_empty() {
                text.push('\n');
            }
            print(&text)
        }
    }
}

pub fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::caused("cannot write the result as JSON", &error))?;
    text.push('\n');
    Ok(text)
}

fn plain<T: Serialize>(value: &T) -> Result<serde_json::Value, Failure> {
    serde_json::to_value(value).map_err(|error| Failure::caused("cannot write the result as YAML", &error))
}

/// Columns without borders. Where a terminal is too narrow, running text is folded; nothing is ever cut.
pub struct Table {
    table: comfy_table::Table,
    columns: usize,
    /// How many columns at the end hold running text.
    text_columns: usize,
    is_sandbox: bool,
}

/// Narrower than this, folded text is harder to read than a wrapped line.
const NARROWEST_TEXT: usize = 24;

impl Table {
    pub fn new<'a>(header: impl IntoIterator<Item = &'a str>) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_header(header);
        let columns = table.column_count();
        Self { table, columns, text_columns: 1, is_sandbox: false }
    }

    /// The last so many columns hold running text.
    pub fn text_columns(mut self, columns: usize) -> Self {
        self.text_columns = columns.min(self.columns);
        self
    }

    /// Says in a column of its own that everything here is simulated.
    pub fn sandbox(mut self, is: bool) -> Self {
        if is {
            let mut header: Vec<String> =
                self.table.header().map(|row| row.cell_iter().map(|cell| cell.content()).collect()).unwrap_or_default();
            // Running text stays last.
            header.insert(self.columns - self.text_columns, "CLOUDS".into());
            self.table.set_header(header);
            self.columns += 1;
            self.is_sandbox = true;
        }
        self
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = impl AsRef<str>>) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| harmless_line(cell.as_ref()).into_owned()).collect();
        if self.is_sandbox {
            row.resize(self.columns - 1, String::new());
            row.insert(self.columns - 1 - self.text_columns, "sandbox".into());
        }
        row.resize(self.columns, String::new());
        self.table.add_row(row);
    }

    pub fn render(mut self) -> String {
        for column in self.table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        if let Some(width) = stdout_width() {
            self.fold(width);
        }
        let mut text = self.table.trim_fmt();
        text.push('\n');
        text
    }

    /// Names stay whole: folding them would break what people copy.
    fn fold(&mut self, width: usize) {
        let names = self.columns - self.text_columns;
        let widths = self.table.column_max_content_widths();
        let fixed: usize = widths.iter().take(names).map(|width| usize::from(*width) + 2).sum();
        if width < fixed + self.text_columns * NARROWEST_TEXT {
            return;
        }
        for index in 0..names {
            if let Some(column) = self.table.column_mut(index) {
                column.set_constraint(comfy_table::ColumnConstraint::ContentWidth);
            }
        }
        self.table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
        self.table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_text_is_folded_and_names_are_not() {
        let mut table = Table::new(["FIELD", "RULES", "MEANING"]).text_columns(2);
        table.row(["additionalNodePools[].size", &"rule ".repeat(20), &"meaning ".repeat(20)]);
        table.fold(90);
        let text = table.render();
        assert!(text.contains("additionalNodePools[].size  rule"), "{text}");
        assert!(text.lines().count() > 3 && text.lines().all(|line| line.chars().count() <= 90), "{text}");
    }

    #[test]
    fn a_simulated_row_says_so() {
        let mut table = Table::new(["KIND", "NAME", "WHAT"]).sandbox(true);
        table.row(["CivoVpc", "shop", "made"]);
        assert_eq!(table.render(), "KIND     NAME  CLOUDS   WHAT\nCivoVpc  shop  sandbox  made\n");
    }

    #[test]
    fn tables_have_no_borders_and_no_trailing_blanks() {
        let mut table = Table::new(["KIND", "NAME"]);
        table.row(["CivoVpc", "shop"]);
        table.row(["CivoKubernetesCluster", "a\u{1b}[31m"]);
        assert_eq!(
            table.render(),
            "KIND                   NAME\nCivoVpc                shop\nCivoKubernetesCluster  a␛[31m\n"
        );
    }
}
