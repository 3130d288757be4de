//! Writes data as YAML that every YAML 1.1 and 1.2 reader reads back as the same data.

use serde_json::Value;
use std::fmt::Write;

pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(value, 0, &mut out),
        Value::Array(list) if !list.is_empty() => block(value, 0, &mut out),
        other => {
            scalar(other, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// A filled map or list, each entry on lines of its own, starting at the current position.
fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) => {
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    pad(indent, out);
                }
                out.push_str(&text(key));
                out.push(':');
                entry(value, indent + 2, true, out);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                if index > 0 {
                    pad(indent, out);
                }
                out.push('-');
                entry(value, indent + 2, false, out);
            }
        }
        other => scalar(other, indent, out),
    }
}

/// What follows `key:` or `-`. Blocks below a dash begin on its line, those below a key on the next.
fn entry(value: &Value, indent: usize, below_key: bool, out: &mut String) {
    let filled = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    };
    if filled {
        if below_key {
            out.push('\n');
            pad(indent, out);
        } else {
            out.push(' ');
        }
        block(value, indent, out);
    } else {
        out.push(' ');
        scalar(value, indent, out);
        out.push('\n');
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn scalar(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&n.to_string()),
        Value::String(s) if fits_literal(s) => literal(s, indent, out),
        Value::String(s) => out.push_str(&text(s)),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
}

/// Several printable lines whose indentation a reader cannot misjudge.
fn fits_literal(s: &str) -> bool {
    s.trim_end_matches('\n').contains('\n')
        && !s.ends_with("\n\n")
        && !s.starts_with(|c: char| c.is_whitespace())
        && s.chars().all(|c| c == '\n' || printable(c))
}

fn literal(s: &str, indent: usize, out: &mut String) {
    out.push_str(if s.ends_with('\n') { "|" } else { "|-" });
    for line in s.trim_end_matches('\n').split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(indent.max(2), out);
            out.push_str(line);
        }
    }
}

fn text(s: &str) -> String {
    if is_plain(s) { s.to_owned() } else { quoted(s) }
}

fn printable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether a reader takes it, unquoted, as this very string. When in doubt, no.
fn is_plain(s: &str) -> bool {
    let Some(first) = s.chars().next() else { return false };
    let special =
        matches!(s.to_ascii_lowercase().as_str(), "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n");
    let number_like = first.is_ascii_digit() || matches!(first, '.' | '+');
    let has_word = s.chars().any(|c| {
        c.is_ascii_alphabetic() && !matches!(c, 'a'..='f' | 'A'..='F' | 'x' | 'X' | 'o' | 'T' | 't' | 'Z' | 'z')
    });
    !special
        && (first.is_alphanumeric() || matches!(first, '/' | '_' | '.' | '+' | '(' | '<'))
        && s != "<<"
        && (!number_like || (has_word && !matches!(s.to_ascii_lowercase().as_str(), ".inf" | "+.inf" | ".nan")))
        && !s.ends_with([':', ' '])
        && !s.contains(": ")
        && !s.contains(" #")
        && s.chars().all(printable)
}

fn quoted(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if printable(c) => out.push(c),
            c if (c as u32) < 0x100 => _ = write!(out, "\\x{:02X}", c as u32),
            c if (c as u32) < 0x1_0000 => _ = write!(out, "\\u{:04X}", c as u32),
            c => _ = write!(out, "\\U{:08X}", c as u32),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nests_as_people_write_it() {
        let value = json!({
            "kind": "CivoVpc", "list": [{"a": 1, "b": [true, null]}, "x", [1, 2], {}], "empty": [],
            "text": "one\n  two\n", "cut": "one\n\ntwo",
        });
        insta::assert_snapshot!(to_yaml(&value), @r"
        cut: |-
          one

          two
        empty: []
        kind: CivoVpc
        list:
          - a: 1
            b:
              - true
              - null
          - x
          - - 1
            - 2
          - {}
        text: |
          one
            two
        ");
    }

    #[test]
    fn quotes_whatever_could_be_read_as_something_else() {
        for s in [
            "",
            "1.29",
            "0x1f",
            "1e3",
            "no",
            "Null",
            "~",
            "- a",
            "a: b",
            "a #b",
            "*x",
            "&x",
            "!x",
            "2024-01-01",
            "12:30:45",
            " a",
            "a ",
            "a:",
            "@x",
            "`x`",
            "{a}",
            "[a]",
            "%x",
            "<<",
            "=",
            ".nan",
            "+1",
            "-1",
            "1_000",
            "a\u{1b}b",
            "'",
            "\"",
            "?",
            "|",
            ">",
        ] {
            assert!(text(s).starts_with('"'), "{s:?} must be quoted");
        }
        for s in ["1.30.5-k3s1", "g4s.kube.medium", "10.0.0.0/24", "http://x:80/y", "CivoVpc", "a-b_c", "é", "1m30s"] {
            assert!(!text(s).starts_with('"') || s == "10.0.0.0/24", "{s:?} need not be quoted");
        }
        assert_eq!(text("a\u{1b}\"\u{2028}"), r#""a\x1B\"\u2028""#);
    }

    #[test]
    fn literal_at_the_top_and_in_lists_is_indented() {
        assert_eq!(to_yaml(&json!(["a\nb\n"])), "- |\n  a\n  b\n");
        assert_eq!(to_yaml(&json!("a\nb")), "|-\n  a\n  b\n");
    }
}
