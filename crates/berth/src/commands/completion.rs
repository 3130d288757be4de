//! `berth completion`: completions for a shell.

use crate::cli::Cli;
use crate::failure::{CommandResult, Exit};
use crate::view::output;
use clap::CommandFactory;

/// Print completions for a shell
#[derive(clap::Args, Debug)]
#[command(
    before_help = "Examples:\n  berth completion bash > ~/.local/share/bash-completion/completions/berth\n  berth completion zsh > \"${fpath[1]}/_berth\""
)]
pub struct Args {
    /// Which shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

pub fn run(args: Args) -> CommandResult {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "berth", &mut text);
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Done)
}
