//! Code never reads what was written for people.

use crate::product_sources;
use crate::structure::root;
use std::collections::BTreeSet;

/// Sentences that are looked for in a text all the same, each with the reason.
const SENTENCES: [(&str, &str, &str); 4] = [
    (
        "server/src/client.rs",
        "lookup address",
        "the system's resolver has no code for it, and only the advice depends on it",
    ),
    ("store/src/control/server_writer.rs", "in progress", "what PostgreSQL's pg_xact_status answers is a code"),
    ("berth/src/remote/follow.rs", "queued again", "the name of an event is a code of the API"),
    ("model/src/rule.rs", "Syntax error: ", "the parser of rules gives nothing but a text, which is only worded anew"),
];

/// Ways to look into a text.
const LOOKS: [&str; 10] = [
    ".contains(\"",
    ".starts_with(\"",
    ".ends_with(\"",
    ".strip_prefix(\"",
    ".strip_suffix(\"",
    ".split_once(\"",
    ".rsplit_once(\"",
    ".find(\"",
    "== \"",
    "!= \"",
];

/// The literals of a line that a text is compared with.
fn looked_for(line: &str) -> Vec<&str> {
    let literal = |rest: &str| rest.find('"');
    let mut found: Vec<&str> = Vec::new();
    for look in LOOKS {
        for (at, _) in line.match_indices(look) {
            let rest = &line[at + look.len()..];
            found.extend(literal(rest).map(|end| &rest[..end]));
        }
    }
    // An arm of a match.
    if let Some(rest) = line.trim_start().strip_prefix('"')
        && let Some(end) = literal(rest)
        && rest[end..].contains("=>")
    {
        found.push(&rest[..end]);
    }
    found
}

/// Whether words for people are in it, rather than a name or a code.
fn is_sentence(literal: &str) -> bool {
    let letters: Vec<char> = literal.chars().collect();
    letters.windows(3).any(|three| three[1] == ' ' && three[0].is_lowercase() && three[2].is_lowercase())
}

#[test]
fn no_decision_is_made_from_words_for_people() {
    let crates = root().join("crates");
    let mut used = BTreeSet::new();
    for layer in ["berth", "server", "clouds", "store", "engine", "model"] {
        let files = product_sources(layer);
        assert!(files.len() > 10, "{layer} was not read");
        for file in files {
            let name = file.strip_prefix(&crates).expect("below").display().to_string();
            let text = std::fs::read_to_string(&file).expect("a source");
            let code = text.split("\nmod tests").next().unwrap_or_default();
            for (number, line) in code.lines().enumerate() {
                for literal in looked_for(line).into_iter().filter(|literal| is_sentence(literal)) {
                    let excused = SENTENCES.iter().position(|(file, said, _)| *file == name && *said == literal);
                    assert!(
                        excused.is_some(),
                        "{name}:{}: a decision is made from the words `{literal}`: give it a type, a field or a code",
                        number + 1
                    );
                    used.extend(excused);
                }
            }
        }
    }
    assert_eq!(used.len(), SENTENCES.len(), "an excuse that is not needed any more");
}

#[test]
fn words_for_people_are_told_from_codes() {
    assert_eq!(looked_for(r#"if help.contains("run the same command again") {"#), ["run the same command again"]);
    assert_eq!(looked_for(r#"    "being deleted" => Phase::Deleting,"#), ["being deleted"]);
    assert!(
        is_sentence("nothing named") && !is_sentence("already") && !is_sentence(" from ") && !is_sentence("BEGIN KEY")
    );
}
