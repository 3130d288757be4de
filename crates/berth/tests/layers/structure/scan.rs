//! Rust source as lines of code: comments left out, strings told apart from code.

/// A line of a source file.
#[derive(Default)]
pub struct Line {
    /// Without comments, with the texts of strings.
    pub code: String,
    /// Without comments, with the quotes of strings alone: braces in it are braces of code.
    pub shape: String,
    /// It begins inside of a string.
    pub is_text: bool,
}

/// What a character belongs to.
enum At {
    Code,
    LineComment,
    /// How deep it is nested.
    BlockComment(usize),
    Text,
    /// How many `#` end it.
    RawText(usize),
}

pub fn lines(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let mut lines = vec![Line::default()];
    let mut state = At::Code;
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        if rest[0] == '\n' {
            if matches!(state, At::LineComment) {
                state = At::Code;
            }
            let is_text = matches!(state, At::Text | At::RawText(_));
            lines.push(Line { is_text, ..Line::default() });
            at += 1;
            continue;
        }
        let line = lines.last_mut().expect("a line");
        let (next, length) = step(state, rest, at.checked_sub(1).map(|before| chars[before]), line);
        state = next;
        at += length;
    }
    lines
}

/// One step from the start of `rest`: what comes next, and how many characters were read.
fn step(state: At, rest: &[char], before: Option<char>, line: &mut Line) -> (At, usize) {
    let starts = |text: &str| rest.len() >= text.len() && text.chars().zip(rest).all(|(a, b)| a == *b);
    match state {
        At::Code if starts("//") => (At::LineComment, 2),
        At::Code if starts("/*") => (At::BlockComment(1), 2),
        At::Code => code_step(rest, before, line),
        At::LineComment => (At::LineComment, 1),
        At::BlockComment(depth) if starts("/*") => (At::BlockComment(depth + 1), 2),
        At::BlockComment(1) if starts("*/") => (At::Code, 2),
        At::BlockComment(depth) if starts("*/") => (At::BlockComment(depth - 1), 2),
        At::BlockComment(depth) => (At::BlockComment(depth), 1),
        At::Text if rest[0] == '"' => {
            line.code.push('"');
            line.shape.push('"');
            (At::Code, 1)
        }
        At::Text => {
            // An escaped character, unless the line goes on in the next.
            let length = if rest[0] == '\\' && rest.get(1).is_some_and(|next| *next != '\n') { 2 } else { 1 };
            line.code.extend(&rest[..length]);
            (At::Text, length)
        }
        At::RawText(hashes) if rest[0] == '"' && rest[1..].iter().take_while(|c| **c == '#').count() >= hashes => {
            line.code.push('"');
            line.shape.push('"');
            (At::Code, 1 + hashes)
        }
        At::RawText(hashes) => {
            line.code.push(rest[0]);
            (At::RawText(hashes), 1)
        }
    }
}

fn code_step(rest: &[char], before: Option<char>, line: &mut Line) -> (At, usize) {
    let begins_word = !before.is_some_and(is_word);
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    let (next, length) = match rest[0] {
        '"' => (At::Text, 1),
        'r' if begins_word && rest.get(1 + hashes) == Some(&'"') => (At::RawText(hashes), 2 + hashes),
        // A character, which a lifetime is not.
        '\'' if rest.get(1) == Some(&'\\') => {
            (At::Code, 3 + rest[3..].iter().position(|c| *c == '\'').unwrap_or_default() + 1)
        }
        '\'' if rest.get(2) == Some(&'\'') => (At::Code, 3),
        other => {
            line.code.push(other);
            line.shape.push(other);
            return (At::Code, 1);
        }
    };
    line.code.extend(&rest[..length]);
    line.shape.push('"');
    (next, length)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A function with its first and last line, counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub first: usize,
    pub last: usize,
}

/// All functions with a body, those inside others too.
pub fn functions(lines: &[Line]) -> Vec<Function> {
    let chars: Vec<(usize, char)> = lines
        .iter()
        .enumerate()
        .flat_map(|(number, line)| line.shape.chars().chain(['\n']).map(move |c| (number + 1, c)))
        .collect();
    let mut found = Vec::new();
    for at in 0..chars.len() {
        let starts = |offset: usize, c: char| chars.get(at + offset).is_some_and(|(_, other)| *other == c);
        let begins_word = at == 0 || !is_word(chars[at - 1].1);
        if !(begins_word && starts(0, 'f') && starts(1, 'n') && starts(2, ' ')) {
            continue;
        }
        let name: String = chars[at + 3..].iter().map(|(_, c)| *c).take_while(|c| is_word(*c)).collect();
        if !name.is_empty()
            && let Some(last) = end_of_body(&chars[at..])
        {
            found.push(Function { name, first: chars[at].0, last });
        }
    }
    found
}

/// The line of the brace that ends the body of what begins here; none for a declaration without one.
fn end_of_body(chars: &[(usize, char)]) -> Option<usize> {
    let (mut round, mut braces) = (0_usize, 0_usize);
    for (line, c) in chars {
        match c {
            '(' | '[' => round += 1,
            ')' | ']' => round = round.saturating_sub(1),
            ';' if round == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' if braces == 1 => return Some(*line),
            '}' => braces = braces.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// The lines that do something, with their numbers from 1: no imports, attributes, fields of types, comments, blank lines or
/// lone punctuation.
pub fn telling(lines: &[Line]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // What ends the import or attribute that a line is in.
    let mut until: Option<char> = None;
    for (number, line) in lines.iter().enumerate() {
        let code = line.code.split_whitespace().collect::<Vec<_>>().join(" ");
        until = until.or_else(|| ending(&code));
        if until.is_none() && !is_field(&code) && code.chars().any(|c| c.is_alphanumeric()) {
            found.push((number + 1, code));
        } else if until.is_some_and(|end| code.ends_with(end)) {
            until = None;
        }
    }
    found
}

/// What ends the import, module declaration or attribute that begins with this line.
fn ending(code: &str) -> Option<char> {
    if code.starts_with("#[") || code.starts_with("#![") {
        return Some(']');
    }
    let unqualified = public(code).unwrap_or(code);
    let is_module = unqualified.starts_with("mod ") && code.ends_with(';');
    (is_module || unqualified.starts_with("use ")).then_some(';')
}

/// What stands behind `pub` or `pub(crate)`.
fn public(code: &str) -> Option<&str> {
    match code.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map(|(_, rest)| rest),
        None => code.strip_prefix("pub "),
    }
}

/// Whether it declares a field of a type.
fn is_field(code: &str) -> bool {
    let name = public(code).and_then(|rest| rest.split_once(": "));
    code.ends_with(',') && name.is_some_and(|(name, _)| name.chars().all(is_word))
}
