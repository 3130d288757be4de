//! Every command that Berth prints: it is run in the situation in which it is printed, or it is a form that the user fills in, which is
//! checked for its words and flags, or it says why neither. A message that is in no list fails the first test here.

use crate::support::folder::Folder;
use crate::support::root;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How a message with a command is looked at.
enum How {
    /// Printed and run by the test of that name.
    Run(&'static str),
    /// The user puts something in place of a word in capitals, a login or an address: its verb and its flags are known.
    Form,
    /// Not a command to type here.
    Not(&'static str),
}
use How::{Form, Not, Run};

const LAPTOP: How = Run("commands_printed_on_a_laptop_work_there");
const GONE: How = Run("commands_printed_about_what_changed_outside_work");
const SIMULATED: How = Run("commands_printed_about_simulated_clouds_work");
const KEYS: How = Run("commands_printed_about_keys_work");
const SERVER: How = Run("commands_printed_by_a_server_work");
const GUARDED: How = Run("commands_printed_by_guards_work_for_those_they_are_for");
const ACCOUNT: How = Run("another_token_is_refused_and_moving_is_a_command_of_its_own");
const SCREEN: How = Run("commands_printed_for_programs_work");

/// File, part of the message, and how it is looked at. `command(VERB` stands for a message that is made from a resource.
const MESSAGES: &[(&str, &str, How)] = &[
    ("berth/src/backend/accept.rs", "command(\"delete\"", GONE),
    ("berth/src/local/manifest_edit.rs", "command(\"apply\"", GONE),
    ("berth/src/local/manifest_edit.rs", "command(\"wait --for deleted\"", SIMULATED),
    ("berth/src/args/address.rs", "to see all of them:   berth kinds", LAPTOP),
    ("berth/src/commands/apply.rs", "to apply manifests:   berth apply -f {text}", LAPTOP),
    ("berth/src/commands/apply.rs", "berth plan -f FILE --out PLAN", Form),
    ("berth/src/commands/apply.rs", "berth wait --all", SIMULATED),
    ("berth/src/commands/apply.rs", "command(\"kubeconfig --merge\"", SIMULATED),
    ("berth/src/commands/approve.rs", "command(\"wait\"", GUARDED),
    ("berth/src/commands/context.rs", "to make a context:   berth login URL", Form),
    ("berth/src/commands/doctor.rs", "to end it:   berth sandbox --stop", SIMULATED),
    ("berth/src/commands/doctor_server.rs", "log in again:   berth login {}", Form),
    ("berth/src/commands/doctor_server.rs", "berth worker --server URL --token-file FILE", Form),
    ("berth/src/commands/graph.rs", "to see all:   berth graph", LAPTOP),
    ("berth/src/commands/init.rs", "without a template:   berth init {kind}", LAPTOP),
    ("berth/src/commands/init.rs", "to check it:   berth validate -f {}", LAPTOP),
    ("berth/src/commands/key.rs", "berth key retire ID", Form),
    ("berth/src/commands/key.rs", "berth key use {id}", KEYS),
    ("berth/src/commands/key.rs", "berth key rotate", KEYS),
    (
        "berth/src/commands/key.rs",
        "(`berth key new --standby` avoids that)",
        Not("it tells of another way, for the next time"),
    ),
    ("berth/src/commands/key.rs", "to add another one:   berth key new", KEYS),
    ("berth/src/commands/key.rs", "to make another one the first:   berth key use ID", Form),
    ("berth/src/commands/kubeconfig.rs", "only clusters have; to see them:   berth get", LAPTOP),
    ("berth/src/commands/kubeconfig.rs", "berth sandbox --background", SIMULATED),
    (
        "berth/src/commands/kubeconfig.rs",
        "to look at it:   berth kubeconfig {id}{}",
        Not("only a cloud that gives half a kubeconfig makes it say so; the command is that of the other lines"),
    ),
    ("berth/src/commands/kubeconfig.rs", "command(\"wait\"", SIMULATED),
    ("berth/src/commands/kubeconfig.rs", "command(\"kubeconfig\"", LAPTOP),
    ("berth/src/commands/login.rs", "berth context use --local", SERVER),
    ("berth/src/commands/login.rs", "berth login https://HOST:7443", Form),
    ("berth/src/commands/login.rs", "a server of your own:   berth server", Form),
    ("berth/src/commands/login.rs", "berth login {} --token-file FILE", Form),
    ("berth/src/commands/login.rs", "berth token create NAME --role operator", Form),
    ("berth/src/commands/login.rs", "berth login {} --fingerprint sha256:…", Form),
    ("berth/src/commands/login.rs", "berth token create prints one", Not("it tells where tokens come from")),
    ("berth/src/commands/logout.rs", "berth logout --forget", SERVER),
    ("berth/src/commands/logout.rs", "an admin ends it with:   berth token revoke {}", SERVER),
    ("berth/src/commands/outputs.rs", "command(\"kubeconfig\"", LAPTOP),
    ("berth/src/commands/outputs.rs", "command(\"wait\"", SIMULATED),
    ("berth/src/commands/plan.rs", "berth apply {path}", SIMULATED),
    (
        "berth/src/commands/policy.rs",
        "the plan that `berth plan -o json` printed says",
        Not("the help text of the command itself"),
    ),
    (
        "berth/src/commands/policy.rs",
        "as it was given to `berth plan`",
        Not("it tells of a command that was typed before"),
    ),
    ("berth/src/commands/policy.rs", "berth plan -f FILE -o json > plan.json", Form),
    ("berth/src/commands/refresh.rs", "command(\"apply\"", GONE),
    ("berth/src/commands/restore.rs", "berth token revoke NAME", Form),
    ("berth/src/commands/sandbox.rs", "to end it:   berth sandbox --stop", SIMULATED),
    ("berth/src/commands/server.rs", "berth server {} answers at {url}", Not("the server's name and version")),
    ("berth/src/commands/server.rs", "berth worker --server URL --token-file FILE", Form),
    ("berth/src/commands/server.rs", "berth login {url}{ca}{token}", Run("one_server_in_an_empty_folder")),
    ("berth/src/commands/tasks.rs", "berth tasks list {address}{}", SERVER),
    ("berth/src/commands/token.rs", "berth token list", SERVER),
    ("berth/src/local/wait.rs", "command(\"drift\"", GONE),
    ("berth/src/local/wait.rs", "command(\"apply\"", GONE),
    ("berth/src/commands/wait.rs", "command(\"wait --for deleted\"", SIMULATED),
    ("berth/src/commands/wait.rs", "command(\"delete\"", LAPTOP),
    ("berth/src/commands/worker.rs", "berth token create NAME --role worker", Form),
    ("berth/src/commands/workers.rs", "berth worker --server URL --token-file FILE", Form),
    ("berth/src/remote/contexts.rs", "berth login URL", Form),
    ("berth/src/remote/contexts.rs", "berth context use NAME", Form),
    ("berth/src/view/drift_view.rs", "command(\"apply\"", GONE),
    ("berth/src/view/drift_view.rs", "command(\"drift --accept\"", GONE),
    ("berth/src/view/drift_view.rs", "command(\"delete\"", GONE),
    ("berth/src/local/files.rs", "to write a first one:   berth init --out {}", LAPTOP),
    ("berth/src/remote/kept_heads.rs", "as `berth audit head` prints it", Not("it tells where such a line comes from")),
    ("berth/src/remote/kept_heads.rs", "berth audit head >> FILE", Form),
    ("berth/src/args/server_args.rs", "berth login https://HOST:7443", Form),
    ("berth/src/args/server_args.rs", "berth context use NAME", Form),
    (
        "berth/src/remote/carry_out.rs",
        "server and command may be of different versions:   berth doctor",
        Run("every_command_works_the_same"),
    ),
    ("berth/src/remote/carry_out.rs", "to see the policies:   berth get policies", GUARDED),
    ("berth/src/remote/carry_out.rs", "to follow it:   berth wait --all", GUARDED),
    ("berth/src/remote/carry_out.rs", "command(\"tasks cancel\"", GUARDED),
    ("berth/src/remote/carry_out.rs", "command(\"describe\"", GUARDED),
    ("berth/src/remote/carry_out.rs", "command(\"approve\"", GUARDED),
    (
        "berth/src/remote/mod.rs",
        "Start it with `berth worker`",
        Not("it tells which program is missing; how it is started is for whoever runs the server"),
    ),
    ("berth/src/remote/mod.rs", "berth apply -f FILE", Form),
    ("berth/src/remote/saved_plan.rs", "berth apply -f FILE", Form),
    ("berth/src/remote/saved_plan.rs", "berth apply {shown} --local", SERVER),
    ("berth/src/remote/saved_plan.rs", "as `berth context` lists them", Not("it tells where the names are listed")),
    ("berth/src/local/sandbox.rs", "to end the one of this project:   berth sandbox --stop", SIMULATED),
    (
        "berth/src/local/sandbox.rs",
        "to share one between commands:   berth sandbox --background",
        Not("the other command has to end first; the command itself is run for other messages"),
    ),
    ("berth/src/local/saved_plan.rs", "berth plan -f FILE --out {shown}", Form),
    ("berth/src/local/saved_plan.rs", "or run berth plan again", Not("one of two ways, told in a sentence")),
    ("berth/src/local/saved_plan.rs", "a plan is made with `berth plan --out FILE`", Form),
    ("berth/src/local/saved_plan.rs", "as `berth context` lists them", Not("it tells where the names are listed")),
    ("berth/src/remote/sign_in/callback.rs", "berth login --device", Run("people_log_in_by_keycloak")),
    ("berth/src/remote/sign_in/device.rs", "with a browser on this machine:   berth login", Form),
    ("berth/src/backend/lookup.rs", "to see which there are:   berth get {}", LAPTOP),
    ("berth/src/backend/lookup.rs", "to see what is:   berth get", SIMULATED),
    ("berth/src/commands/watch.rs", "berth events -f -o json", SCREEN),
    ("berth/src/commands/watch.rs", "berth tasks -w", SCREEN),
    ("berth/src/view/watch/view.rs", "berth tasks logs {}", SERVER),
    ("berth/src/view/watch/view.rs", "command(\"describe\"", GUARDED),
    ("clouds/src/digitalocean/errors.rs", "to check it:   berth doctor", Run("every_command_works_the_same")),
    ("engine/src/identity.rs", "berth account move", ACCOUNT),
    ("engine/src/trouble.rs", "to adopt it:   berth import {resource} {object}{}", GONE),
    ("engine/src/lower.rs", "to look at it:   berth describe {owner}{}", GONE),
    ("engine/src/unit_loop.rs", "delete it there or with `berth delete`", Not("one of two ways, told in a sentence")),
    (
        "engine/src/unit_loop.rs",
        "(`berth drift --accept` writes the present one into the manifest)",
        Not("one of two ways, told in a sentence"),
    ),
    ("model/src/graph.rs", "to begin one:   berth init {}", LAPTOP),
    ("sandbox/src/kube/identity.rs", "berth sandbox", Not("the subject of a certificate")),
    ("server/src/access/authenticate.rs", "berth login", Form),
    ("server/src/access/oidc.rs", "log in again:   berth login", Form),
    ("server/src/access/service.rs", "berth token list", SERVER),
    ("server/src/access/service.rs", "berth login URL --token-file FILE", Form),
    ("server/src/access/service.rs", "to see what is wrong with the log:   berth audit verify", Form),
    ("server/src/access/revalidate.rs", "log in again:   berth login", Form),
    ("server/src/access/trust.rs", "`berth server`", Not("the program that answers, told in a sentence")),
    (
        "server/src/api/resources/work.rs",
        "berth delete {id}{} --cascade",
        Run("a_plan_says_no_where_a_server_cannot_do_it"),
    ),
    ("server/src/api/resources/moves.rs", "to see the accounts in use:   berth accounts", SERVER),
    ("server/src/api/tasks.rs", "those that there are:   berth tasks", SERVER),
    ("server/src/client.rs", "`berth server`", Not("the program that answers, told in a sentence")),
    ("server/src/client.rs", "log in:   berth login {}", Form),
    ("server/src/client.rs", "berth login {} --ca FILE", Form),
    ("server/src/fault.rs", "log in again:   berth login", Form),
    ("server/src/rest/openapi.rs", "`berth token create`", Not("a description in the OpenAPI document")),
    ("server/src/saved_plan.rs", "berth plan -f FILE --out PLAN", Form),
    ("server/src/tasks/wait.rs", "see `berth tasks`", Not("it tells where more is to be seen")),
    ("server/src/tasks/wait.rs", "start one with `berth worker`", Not("it tells which program is missing")),
    ("server/src/worker/credentials.rs", "berth server --sandbox", Form),
    ("store/src/backup/restore.rs", "berth restore", Not("the name of the command that holds the lock")),
    ("store/src/control/server_writer.rs", "berth server", Not("the name of the command that holds the lock")),
    ("store/src/error.rs", "log in to its server with `berth login URL`", Form),
    ("store/src/keyring.rs", "berth backup v2", Not("what a code is derived from")),
    ("store/src/keyring.rs", "berth key id v1", Not("what an id is derived from")),
];

/// The verbs that there are, as the help lists them.
fn verbs() -> BTreeSet<String> {
    let text = Folder::new().berth(&["--help"]).ok().stdout;
    let list = text.split("Commands:").nth(1).expect("commands").split("\n\n").next().unwrap_or_default();
    list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// The literals of a source file, without those of its tests and comments. Escapes are left as they are.
fn literals(source: &str) -> Vec<String> {
    let bytes = source.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &source[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if let Some(hashes) = raw(rest, at == 0 || !is_word(bytes[at - 1])) {
            let end = format!("\"{}", "#".repeat(hashes));
            let inner = &rest[hashes + 2..];
            let close = inner.find(&end).expect("a raw literal ends");
            found.push(inner[..close].to_owned());
            at += hashes + 2 + close + end.len();
        } else if bytes[at] == b'"' {
            let mut close = at + 1;
            while bytes[close] != b'"' {
                close += if bytes[close] == b'\\' { 2 } else { 1 };
            }
            found.push(source[at + 1..close].to_owned());
            at = close + 1;
        } else if bytes[at] == b'\'' {
            // A character, or else a lifetime.
            let quoted = if rest[1..].starts_with('\\') { rest[2..].find('\'').map(|n| n + 3) } else { None };
            let plain = rest[1..].char_indices().nth(1).filter(|(_, c)| *c == '\'').map(|(n, _)| n + 2);
            at += quoted.or(plain).unwrap_or(1);
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    found
}

fn raw(rest: &str, begins: bool) -> Option<usize> {
    let after = rest.strip_prefix('r').filter(|_| begins)?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some(hashes)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("_tests.rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// Every message with a command in it, and every call that makes one, by file.
fn messages() -> Vec<(String, String)> {
    let verbs = verbs();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let source = entry.unwrap().path().join("src");
        if source.is_dir() {
            sources(&source, &mut files);
        }
    }
    let mut found = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let file = path.strip_prefix(root().join("crates")).unwrap().display().to_string();
        let names = |message: &str| {
            message.match_indices("berth ").any(|(at, _)| {
                let before = message[..at].chars().next_back();
                let verb: String = message[at + 6..].chars().take_while(char::is_ascii_lowercase).collect();
                before.is_none_or(|c| !c.is_alphanumeric() && !"._-/".contains(c)) && verbs.contains(&verb)
            })
        };
        let help = |message: &str| message.starts_with("Examples:");
        let said = literals(text).into_iter().filter(|message| names(message) && !help(message));
        found.extend(said.map(|message| (file.clone(), message)));
        for (at, _) in text.match_indices("command(") {
            let argument = text[at + 8..].trim_start();
            if let Some(verb) = argument.strip_prefix('"').and_then(|rest| rest.split('"').next())
                && verbs.contains(verb.split(' ').next().unwrap_or_default())
            {
                found.push((file.clone(), format!("command(\"{verb}\"")));
            }
        }
    }
    found
}

#[test]
fn every_message_with_a_command_is_in_the_list() {
    let found = messages();
    assert!(found.len() > 100, "the sources were read: {}", found.len());
    let listed = |file: &str, message: &str| MESSAGES.iter().any(|(of, part, _)| *of == file && message.contains(part));
    let missing: Vec<&(String, String)> = found.iter().filter(|(file, message)| !listed(file, message)).collect();
    assert!(missing.is_empty(), "these say a command that nothing runs; add them to MESSAGES: {missing:#?}");
    let tests = crate::claims::tests();
    for (file, part, how) in MESSAGES {
        assert!(
            found.iter().any(|(of, message)| of == file && message.contains(part)),
            "{file} no longer says `{part}`"
        );
        match how {
            Run(name) => assert!(tests.iter().any(|test| test == name), "{file}: there is no test {name}"),
            Form => form(file, part),
            Not(why) => assert!(why.len() > 15, "{file}: say why: {part}"),
        }
    }
}

/// The command's words and flags are known: with `--help` behind them the rest is not asked for.
fn form(file: &str, part: &str) {
    let at = part.find("berth ").unwrap_or_else(|| panic!("{file}: `{part}` shows its command"));
    let command = part[at + 6..].split(['`', '>']).next().unwrap_or_default();
    let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
    let ran = Folder::new().berth(&words);
    assert_eq!(ran.code, Some(0), "{file}: {ran}");
}
