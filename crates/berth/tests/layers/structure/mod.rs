//! Nothing that is too long to be read at once, and nothing twice: files, functions, and runs of the same lines.
//!
//! It needs the standard library alone, so that `tools/structure` compiles and runs it in seconds.

pub mod scan;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};

/// Lines of a file.
const LONGEST_FILE: usize = 600;
/// Lines of a function, from its name to its last brace.
const LONGEST_FUNCTION: usize = 80;
/// Lines of code in a row that may stand twice.
const LONGEST_COPY: usize = 6;

/// Functions that are longer all the same, each with the reason.
const FUNCTIONS: [(&str, &str, &str); 3] = [
    ("crates/berth/tests/laws/kill_cases.rs", "civo", "a table of cases"),
    ("crates/berth/tests/laws/kill_cases.rs", "digitalocean", "a table of cases"),
    ("crates/server/tests/access/table.rs", "rows", "a table of methods"),
];

struct Source {
    /// From the root of the repository.
    name: String,
    lines: Vec<scan::Line>,
}

/// Something that breaks a limit.
#[derive(Debug, PartialEq, Eq)]
enum Offence {
    File { name: String, lines: usize },
    Function { file: String, name: String, first: usize, lines: usize },
    Copy { first: (String, usize), second: (String, usize), lines: usize, begins: String },
}

impl Offence {
    /// The number of the exception that it falls under.
    fn excuse(&self) -> Option<usize> {
        match self {
            Self::Function { file, name, .. } => FUNCTIONS.iter().position(|(at, it, _)| at == file && it == name),
            _ => None,
        }
    }
}

impl std::fmt::Display for Offence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { name, lines } => write!(f, "{name}: {lines} lines, more than {LONGEST_FILE}"),
            Self::Function { file, name, first, lines } => {
                write!(f, "{file}:{first}: `{name}` has {lines} lines, more than {LONGEST_FUNCTION}")
            }
            Self::Copy { first: (one, at), second: (other, there), lines, begins } => {
                write!(f, "{one}:{at} and {other}:{there}: the same {lines} lines of code, from `{begins}`")
            }
        }
    }
}

/// All that is wrong with these sources.
fn offences(sources: &[Source]) -> Vec<Offence> {
    let mut found = Vec::new();
    for Source { name, lines } in sources {
        // A last line that is empty is the end of the one before.
        let count = lines.len() - usize::from(lines.last().is_some_and(|line| line.code.is_empty()));
        if count > LONGEST_FILE {
            found.push(Offence::File { name: name.clone(), lines: count });
        }
        for function in scan::functions(lines) {
            let count = function.last + 1 - function.first;
            if count > LONGEST_FUNCTION {
                let (file, first) = (name.clone(), function.first);
                found.push(Offence::Function { file, name: function.name, first, lines: count });
            }
        }
    }
    found.extend(copies(sources));
    found
}

/// Runs of more lines than are allowed that stood before, in the order of the sources.
fn copies(sources: &[Source]) -> Vec<Offence> {
    const RUN: usize = LONGEST_COPY + 1;
    // Strings over several lines are data in tests, such as manifests; elsewhere they are statements of SQL.
    let code: Vec<Vec<(usize, String)>> = sources
        .iter()
        .map(|source| {
            let mut told = scan::telling(&source.lines);
            told.retain(|(line, _)| !(source.name.contains("/tests/") && source.lines[line - 1].is_text));
            told
        })
        .collect();
    let text = |(file, at): (usize, usize)| code[file].get(at).map(|(_, text)| text.as_str());
    // The first place of each run of lines.
    let mut places: HashMap<Vec<&str>, (usize, usize)> = HashMap::new();
    let mut found = Vec::new();
    for (file, lines) in code.iter().enumerate() {
        // Up to here it is told of already.
        let mut told = 0;
        for at in 0..lines.len().saturating_sub(RUN - 1) {
            let run: Vec<&str> = lines[at..at + RUN].iter().map(|(_, text)| text.as_str()).collect();
            // One line over and over is data.
            if run.iter().all(|line| line == &run[0]) {
                continue;
            }
            let (before, start) = match places.entry(run) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    entry.insert((file, at));
                    continue;
                }
            };
            // Lines that come in turns overlap themselves.
            if at < told || (before == file && start + RUN > at) {
                continue;
            }
            let same = |offset: &usize| {
                let here = text((file, at + offset));
                here.is_some() && here == text((before, start + offset))
            };
            let length = (0..).take_while(same).count();
            told = at + length;
            found.push(Offence::Copy {
                first: (sources[before].name.clone(), code[before][start].0),
                second: (sources[file].name.clone(), lines[at].0),
                lines: length,
                begins: lines[at].1.clone(),
            });
        }
    }
    found
}

/// The Rust files below a folder, in order.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    let mut found = Vec::new();
    for path in entries {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

#[test]
fn nothing_is_too_long_and_nothing_stands_twice() {
    let root = root();
    let files = ["crates", "bench", "fuzz"].iter().flat_map(|folder| rust_files(&root.join(folder)));
    let sources: Vec<Source> = files
        .map(|path| Source {
            name: path.strip_prefix(&root).expect("below the root").display().to_string(),
            lines: scan::lines(&std::fs::read_to_string(&path).expect("a source")),
        })
        .collect();
    assert!(sources.len() > 400, "the sources were not found");
    let found = offences(&sources);
    let left: Vec<String> = found.iter().filter(|offence| offence.excuse().is_none()).map(Offence::to_string).collect();
    assert!(left.is_empty(), "{} offences:\n{}", left.len(), left.join("\n"));
    let used: Vec<usize> = found.iter().filter_map(Offence::excuse).collect();
    let unneeded: Vec<_> = FUNCTIONS.iter().enumerate().filter(|(number, _)| !used.contains(number)).collect();
    assert!(unneeded.is_empty(), "exceptions that are not needed any more: {unneeded:?}");
}

fn source(name: &str, text: &str) -> Source {
    Source { name: name.into(), lines: scan::lines(text) }
}

/// A function with so many lines between its braces, none like another.
fn function(name: &str, lines: usize) -> String {
    let body: String = (0..lines).map(|number| format!("    {name}.step({number});\n")).collect();
    format!("fn {name}() {{\n{body}}}\n")
}

#[test]
fn what_is_too_long_is_told() {
    let fits = source("fits.rs", &function("fits", 78));
    let long = source("long.rs", &format!("// Of the other sort.\n{}", function("long", 79)));
    let many: String = (0..301).map(|number| format!("const A{number}: u32 = {number};\n\n")).collect();
    let told: Vec<String> = offences(&[fits, long, source("many.rs", &many)]).iter().map(Offence::to_string).collect();
    assert_eq!(told, ["long.rs:2: `long` has 81 lines, more than 80", "many.rs: 602 lines, more than 600"]);
}

#[test]
fn what_stands_twice_is_told() {
    let steps = |count: usize| function("thing", count);
    let both = |count: usize, other: &str| {
        let one = source("one.rs", &format!("{}{}", function("first", 3), steps(count)));
        copies(&[one, source("other.rs", other)])
    };
    // Other indentation, comments, blank lines and braces make no difference.
    let other: String =
        (0..7).map(|number| format!("        // {number}\n        thing.step({number});\n}}\n\n")).collect();
    assert!(both(6, &other).is_empty());
    let told: Vec<String> = both(7, &other).iter().map(Offence::to_string).collect();
    assert_eq!(told, ["one.rs:7 and other.rs:2: the same 7 lines of code, from `thing.step(0);`"]);
    // In one file too, but not where one line is repeated.
    let twice = format!("{}{}", steps(9), steps(9));
    assert_eq!(copies(&[source("one.rs", &twice)]).len(), 1);
    assert!(copies(&[source("one.rs", &"    None,\n".repeat(20))]).is_empty());
    let declared = |number: u32| format!("use a::b{number};\n#[derive(A{number})]\npub b{number}: u32,\n");
    let declared: String = (0..20).map(declared).collect();
    assert!(copies(&[source("one.rs", &declared), source("other.rs", &declared)]).is_empty());
}

#[test]
fn braces_in_strings_and_comments_are_no_braces() {
    let text = r####"
trait Shape { fn area(&self) -> [u8; 4]; }
fn first<'a>(text: &'a str) -> fn(u8) -> char {
    let open = ('{', '\'', '\u{7b}', b'{', "\"{{", r#"{"{"#, br"{"); // {
    /* { /* { */ { */
    "a string over {
     two lines"
}
fn second() { fn inner() {} }
"####;
    let found = scan::functions(&scan::lines(text));
    let found: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.first, f.last)).collect();
    assert_eq!(found, [("first", 3, 8), ("second", 9, 9), ("inner", 9, 9)]);
}
