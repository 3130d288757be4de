//! YAML bodies of server-side apply. kubectl and Helm send JSON under that media type, people with curl send YAML.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

const MAX_DEPTH: usize = 100;
/// Aliases copy what they point at; this bounds what a small body can grow to.
const MAX_NODES: usize = 200_000;

enum Open {
    List(Vec<Value>),
    Map(Map<String, Value>, Option<String>),
}

/// The first document of a YAML text, as JSON.
pub fn parse(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the body is not UTF-8".to_owned())?;
    let mut open: Vec<(Open, usize)> = Vec::new();
    let mut anchors: HashMap<usize, Value> = HashMap::new();
    let mut nodes = 0;
    for next in Parser::new_from_str(text) {
        let (event, _) = next.map_err(|error| format!("the body is not YAML: {error}"))?;
        let (value, anchor) = match event {
            Event::SequenceStart(_, anchor, _) => {
                push(&mut open, Open::List(Vec::new()), anchor)?;
                continue;
            }
            Event::MappingStart(_, anchor, _) => {
                push(&mut open, Open::Map(Map::new(), None), anchor)?;
                continue;
            }
            Event::Scalar(text, style, anchor, _) => (scalar(&text, style), anchor),
            Event::Alias(anchor) => (anchors.get(&anchor).cloned().ok_or("an alias without an anchor")?, 0),
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some((Open::List(items), anchor)) => (Value::Array(items), anchor),
                Some((Open::Map(map, _), anchor)) => (Value::Object(map), anchor),
                None => return Err("the body is not YAML".into()),
            },
            _ => continue,
        };
        nodes += size(&value);
        if nodes > MAX_NODES {
            return Err("the body is too large once its aliases are followed".into());
        }
        if anchor != 0 {
            anchors.insert(anchor, value.clone());
        }
        match open.last_mut() {
            None => return Ok(value),
            Some((Open::List(items), _)) => items.push(value),
            Some((Open::Map(map, key), _)) => match key.take() {
                Some(name) => drop(map.insert(name, value)),
                None => *key = Some(key_text(value)?),
            },
        }
    }
    Err("the body holds no YAML document".into())
}

fn push(open: &mut Vec<(Open, usize)>, what: Open, anchor: usize) -> Result<(), String> {
    if open.len() >= MAX_DEPTH {
        return Err("the body is nested too deeply".into());
    }
    open.push((what, anchor));
    Ok(())
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

fn key_text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        _ => Err("a key in the body is not a text".into()),
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::from(text);
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let numeric = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    if let (true, Ok(number)) = (numeric, text.parse::<i64>()) {
        return Value::from(number);
    }
    match text.parse::<f64>() {
        Ok(number) if numeric && number.is_finite() => Value::from(number),
        _ => Value::from(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn yaml_reads_as_json() {
        let text = b"# a comment\na: 1\nb: [true, ~, \"1\", x]\nc:\n- &n {d: 1.5}\n- *n\n1: one\n";
        assert_eq!(
            parse(text).unwrap(),
            json!({"a": 1, "b": [true, null, "1", "x"], "c": [{"d": 1.5}, {"d": 1.5}], "1": "one"})
        );
        assert!(parse(b"a: [1").is_err());
        assert!(parse(b"").is_err());
        assert!(parse(b"\xff").is_err());
    }

    #[test]
    fn aliases_cannot_explode() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for n in 1..9 {
            let before = format!("*a{}", n - 1);
            text.push_str(&format!("a{n}: &a{n} [{}]\n", vec![before; 10].join(", ")));
        }
        assert!(parse(text.as_bytes()).unwrap_err().contains("too large"));
    }
}
