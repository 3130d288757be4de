//! The command line. Nothing is built before the arguments are read; only commands that talk to something start a runtime.

mod args;
mod backend;
mod cli;
mod commands;
mod failure;
mod local;
mod remote;
mod signals;
mod view;

use clap::{CommandFactory, FromArgMatches};
use cli::Cli;
use std::process::ExitCode;
use view::terminal;

/// Runs the command line that this process was started with.
pub fn main() -> ExitCode {
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        args::repeated_flags::remember(&matches);
        Cli::from_arg_matches(&matches)
    });
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // Not clap's own exit code: 2 means that changes are pending.
            _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    terminal::choose_color(cli.no_color);
    let outcome = match cli.command {
        // Long-running programs set up their own log.
        cli::Command::Server(args) => commands::server::run(*args, cli.verbose),
        cli::Command::Worker(args) => commands::worker::run(args, cli.verbose),
        command => {
            log(cli.verbose);
            command.run()
        }
    };
    match outcome {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(failure) if failure.is_quiet() => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            ExitCode::FAILURE
        }
    }
}

/// Only Berth's own crates are logged: an HTTP library could log headers that contain tokens.
fn log(verbose: u8) {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    let level = match verbose {
        0 => return,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // A prefix: `berth_clouds`, `berth_engine` and the others begin with it too.
    let targets = Targets::new().with_target("berth", level);
    terminal::keep_lines();
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(terminal::stderr_color());
    tracing_subscriber::registry().with(layer).with(targets).init();
}
