//! Which state a command is about, so that the commands that Berth prints are about the same one.
//!
//! A line of help that ends with a command has it after `:   `, or is the command itself. It is written without the flags that
//! choose a state, a context or the simulated clouds; they are added here, as far as that command takes them.

use crate::cli::Cli;
use berth_model::ResourceId;
use berth_model::phrasing::shell_word;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory};
use std::ffi::{OsStr, OsString};
use std::sync::OnceLock;

const BEGINS: &str = "berth ";
const AFTER: &str = ":   berth ";
/// Ids of the arguments in clap; the name of the flag may differ between commands.
const SANDBOX: &str = "sandbox";
const STATE: &str = "state";
const CONTEXT: &str = "server_context";
const LOCAL: &str = "local";
const REPEATED: [&str; 8] = [SANDBOX, STATE, CONTEXT, "context", LOCAL, "db", "key_file", "key_command"];
/// The command whose `--context` names a context of the kubeconfig.
const KUBECONFIG: &str = "kubeconfig";

/// The flags of the command that was typed.
static TYPED: OnceLock<RepeatedFlags> = OnceLock::new();

/// The arguments that choose where a command looks, as they were given, with their values.
#[derive(Clone, Debug, Default)]
pub struct RepeatedFlags(Vec<(&'static str, Option<OsString>)>);

impl RepeatedFlags {
    fn read(matches: &ArgMatches) -> Self {
        let (mut matches, mut name) = (matches, "");
        while let Some((inner_name, inner)) = matches.subcommand() {
            (matches, name) = (inner, inner_name);
        }
        let typed = |id: &&str| {
            !(*id == "context" && name == KUBECONFIG)
                && matches.try_contains_id(id).is_ok_and(|known| known)
                && matches.value_source(id) == Some(ValueSource::CommandLine)
        };
        let value = |id: &'static str| match matches.try_get_one::<bool>(id) {
            Ok(_) => (id, None),
            Err(_) => (id, matches.get_raw(id).and_then(|mut values| values.next()).map(OsStr::to_owned)),
        };
        Self(REPEATED.into_iter().filter(typed).map(value).collect())
    }

    /// The line, with those of the flags that its command accepts.
    pub fn complete(&self, line: &str) -> String {
        let at = match line.starts_with(BEGINS) {
            true => 0,
            false => match line.find(AFTER) {
                Some(at) => at + AFTER.len() - BEGINS.len(),
                None => return line.to_owned(),
            },
        };
        let words: Vec<&str> = line[at..].split_whitespace().collect();
        let program = Cli::command();
        let mut command: &Command = &program;
        for word in &words[1..] {
            match command.find_subcommand(word) {
                Some(inner) => command = inner,
                None => break,
            }
        }
        let mut line = line.trim_end().to_owned();
        for (id, value) in &self.0 {
            let long = command.get_arguments().find(|arg| arg.get_id() == *id).and_then(|arg| arg.get_long());
            let Some(flag) = long.map(|long| format!("--{long}")) else { continue };
            if words.contains(&flag.as_str()) {
                continue;
            }
            line.push_str(&format!(" {flag}"));
            if let Some(value) = value {
                line.push_str(&format!(" {}", shell_word(&value.to_string_lossy())));
            }
        }
        line
    }
}

/// Keeps what was typed, for the lines that are printed later.
pub fn remember(matches: &ArgMatches) {
    _ = TYPED.set(RepeatedFlags::read(matches));
}

/// The line, with the flags of the command that was typed.
pub fn complete(line: &str) -> String {
    TYPED.get().map_or_else(|| line.to_owned(), |flags| flags.complete(line))
}

/// A command about a resource, with the flags that select the same state and scope.
pub fn command(verb: &str, id: &ResourceId) -> String {
    complete(&format!("berth {verb} {id}{}", id.flags()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(typed: &str) -> RepeatedFlags {
        RepeatedFlags::read(&Cli::command().try_get_matches_from(typed.split(' ')).unwrap())
    }

    #[test]
    fn a_printed_command_is_about_the_same_place() {
        let cases = [
            ("berth get --sandbox", "to see what is:   berth get", "to see what is:   berth get --sandbox"),
            ("berth get --sandbox", "berth get --sandbox", "berth get --sandbox"),
            ("berth get --sandbox", "to see all of them:   berth kinds", "to see all of them:   berth kinds"),
            ("berth get --sandbox", "start it with `berth worker`", "start it with `berth worker`"),
            ("berth plan -f x --state a/b.db", "berth wait --all", "berth wait --all --state a/b.db"),
            (
                "berth tasks list --context prod",
                "x:   berth tasks list CivoVpc/a",
                "x:   berth tasks list CivoVpc/a --context prod",
            ),
            // There `--context` names the kubeconfig's.
            (
                "berth get --context prod",
                "berth kubeconfig a/b --merge",
                "berth kubeconfig a/b --merge --berth-context prod",
            ),
            ("berth key new --key-file ring", "next:   berth key rotate", "next:   berth key rotate --key-file ring"),
            ("berth token list --context prod", "berth token list", "berth token list --context prod"),
            ("berth kubeconfig a/b --merge --context x", "berth get", "berth get"),
            ("berth get", "berth get", "berth get"),
        ];
        for (typed, line, wanted) in cases {
            assert_eq!(flags(typed).complete(line), wanted, "after `{typed}`");
        }
    }

    #[test]
    fn commands_name_the_place() {
        let mut id = ResourceId::new("CivoVpc", "net");
        assert_eq!(command("get", &id), "berth get CivoVpc/net");
        id.env = "prod".into();
        assert_eq!(command("get", &id), "berth get CivoVpc/net --env prod");
        id.env = "it's prod".into();
        assert_eq!(command("get", &id), r"berth get CivoVpc/net --env 'it'\''s prod'");
    }
}
