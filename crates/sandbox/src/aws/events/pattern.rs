//! Patterns of events: for each field, the values that it may have.

use serde_json::Value;

use crate::aws::errors::{Answer, fail};

pub fn parse(text: &str) -> Answer<Value> {
    let wrong =
        |reason: &str| fail("InvalidEventPatternException", format!("Event pattern is not valid. Reason: {reason}"));
    match serde_json::from_str::<Value>(text) {
        Ok(pattern @ Value::Object(_)) => match check(&pattern) {
            None => Ok(pattern),
            Some(reason) => wrong(reason),
        },
        Ok(_) => wrong("Filter is not an object"),
        Err(error) => wrong(&error.to_string()),
    }
}

/// What is wrong with a pattern.
fn check(pattern: &Value) -> Option<&'static str> {
    let map = pattern.as_object()?;
    if map.is_empty() {
        return Some("Empty objects are not allowed");
    }
    map.iter().find_map(|(name, value)| match value {
        Value::Object(_) => check(value),
        Value::Array(items) if items.is_empty() => Some("Empty arrays are not allowed"),
        Value::Array(items) if name == "$or" => items.iter().find_map(check),
        Value::Array(_) => None,
        _ => Some("\"field\" must be an object or an array"),
    })
}

pub fn matches(pattern: &Value, event: &Value) -> bool {
    let Some(map) = pattern.as_object() else { return false };
    map.iter().all(|(name, wanted)| match (name.as_str(), wanted) {
        ("$or", Value::Array(some)) => some.iter().any(|one| matches(one, event)),
        (name, Value::Object(_)) => event.get(name).is_some_and(|inner| matches(wanted, inner)),
        (name, Value::Array(wanted)) => field(wanted, event.get(name)),
        _ => false,
    })
}

/// A list in an event matches where one of its items does.
fn field(wanted: &[Value], have: Option<&Value>) -> bool {
    match have {
        Some(Value::Array(items)) => items.iter().any(|item| wanted.iter().any(|want| value(want, Some(item)))),
        have => wanted.iter().any(|want| value(want, have)),
    }
}

fn value(wanted: &Value, have: Option<&Value>) -> bool {
    let Some((operator, argument)) = wanted.as_object().and_then(|map| map.iter().next()) else {
        return have == Some(wanted);
    };
    let text = have.and_then(Value::as_str);
    let with = |test: fn(&str, &str) -> bool| text.zip(argument.as_str()).is_some_and(|(have, want)| test(have, want));
    match operator.as_str() {
        "exists" => argument.as_bool() == Some(have.is_some()),
        "prefix" => with(|have, want| have.starts_with(want)),
        "suffix" => with(|have, want| have.ends_with(want)),
        "equals-ignore-case" => with(str::eq_ignore_ascii_case),
        "wildcard" => with(|have, want| crate::aws::iam::matches_wildcard(want, have)),
        "numeric" => have.and_then(Value::as_f64).is_some_and(|have| numeric(argument, have)),
        "anything-but" => have.is_some() && !any_of(argument, have),
        _ => false,
    }
}

fn any_of(argument: &Value, have: Option<&Value>) -> bool {
    match argument {
        Value::Array(items) => items.iter().any(|item| have == Some(item)),
        one => value(one, have),
    }
}

/// `[">", 0, "<=", 5]`
fn numeric(argument: &Value, have: f64) -> bool {
    let Some(items) = argument.as_array() else { return false };
    items.chunks(2).all(|pair| match (pair.first().and_then(Value::as_str), pair.get(1).and_then(Value::as_f64)) {
        (Some("="), Some(want)) => have == want,
        (Some(">"), Some(want)) => have > want,
        (Some(">="), Some(want)) => have >= want,
        (Some("<"), Some(want)) => have < want,
        (Some("<="), Some(want)) => have <= want,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patterns_match_as_in_eventbridge() {
        let event = json!({"source": "aws.ec2", "detail": {"state": "terminated", "count": 3, "tags": ["a", "b"]}});
        for (pattern, expected) in [
            (json!({"source": ["aws.ec2"]}), true),
            (json!({"source": ["aws.s3", "aws.ec2"]}), true),
            (json!({"source": ["aws.s3"]}), false),
            (json!({"source": [{"prefix": "aws."}]}), true),
            (json!({"detail": {"state": [{"anything-but": "running"}]}}), true),
            (json!({"detail": {"state": [{"anything-but": ["terminated"]}]}}), false),
            (json!({"detail": {"count": [{"numeric": [">", 1, "<=", 3]}]}}), true),
            (json!({"detail": {"tags": ["b"]}}), true),
            (json!({"detail": {"none": [{"exists": false}]}}), true),
            (json!({"$or": [{"source": ["x"]}, {"detail": {"count": [3]}}]}), true),
        ] {
            assert_eq!(matches(&parse(&pattern.to_string()).unwrap(), &event), expected, "{pattern}");
        }
        for bad in ["{}", "[]", "{", r#"{"source": "aws.ec2"}"#, r#"{"source": []}"#] {
            assert_eq!(parse(bad).err().unwrap().code, "InvalidEventPatternException", "{bad}");
        }
    }
}
