//! Errors of commands, and how they are printed: the chain of causes once, the advice on lines of its own.

use crate::args::repeated_flags::complete;
use crate::view::terminal::{harmless, harmless_line};
use anstyle::{AnsiColor, Style};
use berth_engine::handler::Trouble;
use std::fmt;

const ERROR: Style = AnsiColor::BrightRed.on_default().bold();
const HELP: Style = AnsiColor::BrightCyan.on_default().bold();

/// How a command ended, when it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done,
    /// The command ran, and its answer is "no"; the reason was printed.
    Failed,
    /// Changes are pending, or drift was found.
    Pending,
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Pending => 2,
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    message: String,
    /// Facts that belong to the message.
    notes: Vec<String>,
    /// What to check and what to type.
    help: Vec<String>,
    /// The reader of standard output closed it, which is not reported as an error.
    quiet: bool,
}

pub type CommandResult = Result<Exit, Failure>;

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), notes: Vec::new(), help: Vec::new(), quiet: false }
    }

    /// With the causes of an error, each text once.
    pub fn caused(message: impl Into<String>, cause: &(dyn std::error::Error + 'static)) -> Self {
        let mut chain = vec![message.into()];
        let mut next = Some(cause);
        while let Some(error) = next {
            let text = error.to_string();
            if !text.is_empty() && chain.iter().all(|said| !said.contains(&text)) {
                chain.push(text);
            }
            next = error.source();
        }
        Self::new(chain.join(": "))
    }

    pub fn note(mut self, line: impl Into<String>) -> Self {
        self.notes.push(line.into());
        self
    }

    pub fn help(mut self, line: impl Into<String>) -> Self {
        self.help.push(line.into());
        self
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Writes it to standard error.
    pub fn print(&self) {
        anstream::eprint!("{}", self.styled());
    }

    fn styled(&self) -> String {
        let mut text = format!("{ERROR}error{ERROR:#}: {}\n", harmless(&self.message));
        for note in &self.notes {
            text.push_str(&format!("  = {}\n", harmless_line(note)));
        }
        for help in &self.help {
            text.push_str(&format!("  = {HELP}help{HELP:#}: {}\n", harmless_line(&complete(help))));
        }
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        Self { help: trouble.help_lines(), ..Self::new(trouble.to_string()) }
    }
}

impl From<berth_store::StoreError> for Failure {
    fn from(error: berth_store::StoreError) -> Self {
        Self { help: error.help(), ..Self::caused(error.to_string(), &error) }
    }
}

/// For writes to standard output and to the terminal.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let quiet = error.kind() == std::io::ErrorKind::BrokenPipe;
        Self { quiet, ..Self::caused("cannot write the output", &error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer: inner")]
    struct Outer(#[source] Inner);
    #[derive(Debug, thiserror::Error)]
    #[error("inner")]
    struct Inner;

    #[test]
    fn a_cause_that_was_said_is_not_said_again() {
        assert_eq!(Failure::caused("cannot do it", &Outer(Inner)).to_string(), "cannot do it: outer: inner");
    }

    #[test]
    fn help_stands_apart() {
        let failure: Failure = Trouble::refused("no such size `big`").help("berth sizes").into();
        let plain = anstream::adapter::strip_str(&failure.styled()).to_string();
        assert_eq!(plain, "error: no such size `big`\n  = help: berth sizes\n");
    }
}
