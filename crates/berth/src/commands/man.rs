//! `berth man`: manual pages, one for each command.

use crate::cli::Cli;
use crate::failure::{CommandResult, Exit, Failure};
use crate::view::diagnostics::count;
use crate::view::output;
use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io::Write;
use std::path::PathBuf;

/// Write manual pages
#[derive(clap::Args, Debug)]
#[command(before_help = "Examples:\n  berth man --dir ~/.local/share/man/man1\n  berth man | man -l -")]
pub struct Args {
    /// Folder for the pages of all commands; without it, berth's own page goes to standard output
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub fn run(args: Args) -> CommandResult {
    let mut root = Cli::command();
    root.build();
    let Some(dir) = args.dir else {
        let mut page = Vec::new();
        render(&root, &mut page)?;
        output::print(&String::from_utf8_lossy(&page))?;
        return Ok(Exit::Done);
    };
    let failed = |error: std::io::Error| Failure::caused(format!("cannot write to {}", dir.display()), &error);
    std::fs::create_dir_all(&dir).map_err(failed)?;
    let mut pages = vec![root.clone()];
    pages.extend(
        root.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help").cloned(),
    );
    for command in &pages {
        let mut page = Vec::new();
        render(command, &mut page)?;
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        std::fs::write(dir.join(format!("{name}.1")), page).map_err(failed)?;
    }
    anstream::eprintln!("{} in {}", count(pages.len(), "page"), dir.display());
    Ok(Exit::Done)
}

fn render(command: &clap::Command, out: &mut dyn Write) -> std::io::Result<()> {
    let man = Man::new(command.clone()).source(format!("berth {}", env!("CARGO_PKG_VERSION"))).manual("Berth");
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    examples(command, out)?;
    man.render_options_section(out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(out)?;
    }
    Ok(())
}

/// The examples that `--help` begins with.
fn examples(command: &clap::Command, out: &mut dyn Write) -> std::io::Result<()> {
    let Some(help) = command.get_before_help() else { return Ok(()) };
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in help.to_string().lines().skip(1) {
        roff.text([roman(line.trim_start())]);
    }
    roff.control("fi", []);
    roff.to_writer(out)
}
