//! Code never reads what was written for people: whoever rewords a message changes nothing but the message.

use crate::product_sources;
use crate::structure::{root, scan};
use std::collections::{BTreeMap, BTreeSet};

/// Sentences that are looked for in a text all the same, each with the reason.
const SENTENCES: [(&str, &str, &str); 7] = [
    (
        "server/src/client.rs",
        "lookup address",
        "the system's resolver has no code for it, and only the advice depends on it",
    ),
    ("store/src/control/server_writer.rs", "in progress", "what PostgreSQL's pg_xact_status answers is a code"),
    ("berth/src/remote/follow.rs", "queued again", "the name of an event is a code of the API"),
    ("berth/src/local/drift.rs", "drift ended", "the name of an event is a code of the state"),
    ("model/src/rule.rs", "Syntax error: ", "the parser of rules gives nothing but a text, which is only worded anew"),
    ("engine/src/unknown.rs", "\\u{1}known after apply: ", "part of the format of stored plans"),
    ("engine/src/unknown.rs", "(known after apply)", "part of the format of plans as JSON"),
];

/// Fields with words for people that are looked into all the same, each with the reason.
const FIELDS: [(&str, &str, &str); 1] = [(
    "berth/src/commands/policy.rs",
    "verdict.message",
    "whoever tests a policy says which of its own words to expect",
)];

/// Ways to look into a text.
const LOOKS: [&str; 13] = [
    ".contains(",
    ".starts_with(",
    ".ends_with(",
    ".strip_prefix(",
    ".strip_suffix(",
    ".split_once(",
    ".rsplit_once(",
    ".trim_start_matches(",
    ".trim_end_matches(",
    ".find(",
    ".matches(",
    " == ",
    " != ",
];

/// Fields and methods that hold words for people.
const FOR_PEOPLE: [&str; 6] = [".message", ".help", ".why", ".hint", ".detail", "error.to_string()"];

/// The statements of a source, each in one line, with the number of its first.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in scan::lines(text).into_iter().enumerate() {
        let code = line.code.trim();
        match found.last_mut().filter(|_| goes_on) {
            Some((_, statement)) => {
                if !code.starts_with(['.', '?']) {
                    statement.push(' ');
                }
                statement.push_str(code);
            }
            None => found.push((number + 1, code.to_owned())),
        }
        goes_on = !code.is_empty() && !code.ends_with([';', '{', '}', ',']);
    }
    found
}

/// The text that begins here, if it is a literal or a constant that is one.
fn literal<'a>(rest: &'a str, constants: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let rest = rest.trim_start_matches(['&', '*']);
    if let Some(rest) = rest.strip_prefix('"') {
        return rest.find('"').map(|end| &rest[..end]);
    }
    let name: String = rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
    constants.get(&name).map(String::as_str)
}

/// The texts that a statement compares another with.
fn looked_for<'a>(statement: &'a str, constants: &'a BTreeMap<String, String>) -> Vec<&'a str> {
    let after = LOOKS.iter().flat_map(|look| statement.match_indices(look).map(|(at, look)| at + look.len()));
    let mut found: Vec<&str> = after.filter_map(|at| literal(&statement[at..], constants)).collect();
    // The arms of a match.
    let arms = statement.split(" | ").filter(|_| statement.contains("=>"));
    found.extend(arms.filter_map(|arm| literal(arm.trim_start(), &EMPTY)));
    found
}

static EMPTY: BTreeMap<String, String> = BTreeMap::new();

/// What holds words for people and is looked into. Whether two texts are the same is no look into either.
fn read_fields(statement: &str) -> Vec<&str> {
    let looks = LOOKS.iter().flat_map(|look| statement.match_indices(look));
    let with_fixed = |(at, look): &(usize, &str)| {
        let rest = &statement[at + look.len()..];
        look.starts_with('.') || rest.starts_with(|c: char| c == '"' || c.is_ascii_uppercase())
    };
    looks.filter(with_fixed).filter_map(|(at, _)| receiver(&statement[..at])).collect()
}

/// What the end of this text is looked into as, if that holds words for people.
fn receiver(before: &str) -> Option<&str> {
    let is_part = |c: char| c.is_alphanumeric() || "_.()?".contains(c);
    let start = before.rfind(|c| !is_part(c)).map_or(0, |at| at + 1);
    let own = before[start..].trim_start_matches('(');
    if let Some(field) = FOR_PEOPLE.iter().find(|field| ends_with_field(own, field)) {
        return Some(&own[..own.rfind(field)? + field.len()]);
    }
    // Each of several: `trouble.help.iter().any(|line| line`.
    let outer = before[..start].trim_end().strip_suffix(&format!("|{own}|"))?.strip_suffix('(')?;
    let outer = outer.strip_suffix(".any").or(outer.strip_suffix(".all")).or(outer.strip_suffix(".find"))?;
    receiver(outer.strip_suffix(".iter()").or(outer.strip_suffix(".lines()"))?)
}

/// Whether it ends with the field, but for what only makes a text of it.
fn ends_with_field(own: &str, field: &str) -> bool {
    let plain = own.trim_end_matches(".as_str()").trim_end_matches(".as_deref()").trim_end_matches(".trim()");
    plain.ends_with(field)
}

/// Whether words for people are in it, rather than a name or a code.
fn is_sentence(literal: &str) -> bool {
    let letters: Vec<char> = literal.chars().collect();
    letters.windows(3).any(|three| three[1] == ' ' && three[0].is_lowercase() && three[2].is_lowercase())
}

/// The sources of a layer without tests, by their names from `crates`.
fn sources(layer: &str) -> Vec<(String, String)> {
    let crates = root().join("crates");
    let files = product_sources(layer).into_iter().map(|file| {
        let name = file.strip_prefix(&crates).expect("below").display().to_string();
        let text = std::fs::read_to_string(&file).expect("a source");
        (name, text.split("\nmod tests").next().unwrap_or_default().to_owned())
    });
    files.collect()
}

/// The constants that are texts.
fn constants(sources: &[(String, String)]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (_, statement) in sources.iter().flat_map(|(_, text)| statements(text)) {
        let declared = statement.split_once("const ").and_then(|(_, rest)| rest.split_once(": &str = "));
        if let Some((name, value)) = declared
            && let Some(text) = literal(value, &EMPTY)
        {
            found.insert(name.to_owned(), text.to_owned());
        }
    }
    found
}

#[test]
fn no_decision_is_made_from_words_for_people() {
    let layers = ["berth", "server", "clouds", "store", "engine", "model"];
    let sources: Vec<(String, String)> = layers.iter().flat_map(|layer| sources(layer)).collect();
    let constants = constants(&sources);
    assert!(sources.len() > 250 && constants.len() > 50, "the sources were not read");
    let (mut found, mut sentences, mut fields) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for (name, text) in &sources {
        for (number, statement) in statements(text) {
            for literal in looked_for(&statement, &constants).into_iter().filter(|literal| is_sentence(literal)) {
                match SENTENCES.iter().position(|(file, said, _)| file == name && *said == literal) {
                    Some(excuse) => _ = sentences.insert(excuse),
                    None => found.push(format!("{name}:{number}: from the words `{literal}`")),
                }
            }
            for field in read_fields(&statement) {
                match FIELDS.iter().position(|(file, read, _)| file == name && *read == field) {
                    Some(excuse) => _ = fields.insert(excuse),
                    None => found.push(format!("{name}:{number}: from what is in `{field}`")),
                }
            }
        }
    }
    let told = found.join("\n");
    assert!(found.is_empty(), "decisions are made from words for people, not a type, a field or a code:\n{told}");
    assert_eq!(
        (sentences.len(), fields.len()),
        (SENTENCES.len(), FIELDS.len()),
        "an excuse that is not needed any more"
    );
}

#[test]
fn words_for_people_are_told_from_codes() {
    let constants = BTreeMap::from([("AGAIN".to_owned(), "run the same command again".to_owned())]);
    let looked_for = |statement| looked_for(statement, &constants).concat();
    assert_eq!(looked_for(r#"if help.contains("run the same command again") {"#), "run the same command again");
    assert_eq!(looked_for("if help.contains(AGAIN) {"), "run the same command again");
    assert_eq!(looked_for(r#""being deleted" | "gone" => Phase::Deleting,"#), "being deletedgone");
    assert!(
        is_sentence("nothing named") && !is_sentence("already") && !is_sentence(" from ") && !is_sentence("BEGIN KEY")
    );
}

#[test]
fn fields_with_words_for_people_are_seen() {
    assert_eq!(read_fields(r#"if step.why.starts_with("already") {"#), ["step.why"]);
    assert_eq!(read_fields(r#"if trouble.message == "gone" {"#), ["trouble.message"]);
    assert_eq!(read_fields("let lost = error.to_string().contains(WORD);"), ["error.to_string()"]);
    let each = "trouble\n    .help\n    .iter()\n    .any(|line| line.contains(\"again\"))\n";
    assert_eq!(statements(each).iter().flat_map(|(_, statement)| read_fields(statement)).count(), 1);
    assert!(read_fields(r#"if line.outcome == "done" && names.contains(&name) {"#).is_empty());
    assert!(read_fields("if before.message != now.message {").is_empty());
}
