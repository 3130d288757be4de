//! Label and field selectors of list and watch requests.

use serde_json::Value;

use super::status::{Answer, bad_request};

#[derive(Debug, Clone, PartialEq)]
enum Test {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
}

/// Which objects a list or watch shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selector {
    labels: Vec<Test>,
    /// Field path, value, and whether they must be equal.
    fields: Vec<(String, String, bool)>,
}

impl Selector {
    pub fn parse(labels: &str, fields: &str) -> Answer<Selector> {
        Ok(Selector { labels: parse_labels(labels)?, fields: parse_fields(fields)? })
    }

    pub fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"].get(key).and_then(Value::as_str);
        let by_labels = self.labels.iter().all(|test| match test {
            Test::In(key, values) => label(key).is_some_and(|value| values.iter().any(|v| v == value)),
            Test::NotIn(key, values) => !label(key).is_some_and(|value| values.iter().any(|v| v == value)),
            Test::Exists(key) => label(key).is_some(),
            Test::Missing(key) => label(key).is_none(),
        });
        by_labels && self.fields.iter().all(|(path, value, equal)| (field(object, path) == *value) == *equal)
    }
}

/// The selector of an object's spec (`matchLabels` and `matchExpressions`) against labels. An empty or missing one fits all.
pub fn label_selector(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let by_labels =
        selector["matchLabels"].as_object().into_iter().flatten().all(|(key, value)| label(key) == value.as_str());
    by_labels
        && selector["matchExpressions"].as_array().into_iter().flatten().all(|one| {
            let value = label(one["key"].as_str().unwrap_or_default());
            let listed = || one["values"].as_array().into_iter().flatten().any(|wanted| wanted.as_str() == value);
            match one["operator"].as_str().unwrap_or_default() {
                "In" => value.is_some() && listed(),
                "NotIn" => value.is_none() || !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

fn field(object: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(object, |value, key| value.get(key));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        // Absent booleans read as false, as a typed server would show them.
        _ if matches!(path, "spec.unschedulable" | "spec.hostNetwork") => "false".into(),
        _ => String::new(),
    }
}

fn parse_fields(text: &str) -> Answer<Vec<(String, String, bool)>> {
    let mut fields = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
            (path, value, false)
        } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (path, value, true)
        } else {
            return Err(bad_request(format!("invalid field selector: '{part}'")));
        };
        fields.push((path.trim().to_owned(), value.trim().to_owned(), equal));
    }
    Ok(fields)
}

fn parse_labels(text: &str) -> Answer<Vec<Test>> {
    let mut tests = Vec::new();
    for part in split_outside_parentheses(text) {
        let part = part.trim();
        if part.is_empty() {
            continue;
        }
        tests.push(parse_label(part).ok_or_else(|| bad_request(format!("unable to parse label selector: '{part}'")))?);
    }
    Ok(tests)
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match character {
            '(' => inside = true,
            ')' => inside = false,
            ',' if !inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_label(part: &str) -> Option<Test> {
    if let Some((before, list)) = part.split_once('(') {
        let values = list.strip_suffix(')')?.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = before.split_whitespace();
        let (key, operator) = (words.next()?.to_owned(), words.next()?);
        return match operator {
            "in" => Some(Test::In(key, values)),
            "notin" => Some(Test::NotIn(key, values)),
            _ => None,
        };
    }
    let pair = |key: &str, value: &str| (key.trim().to_owned(), vec![value.trim().to_owned()]);
    if let Some((key, value)) = part.split_once("!=") {
        let (key, values) = pair(key, value);
        return Some(Test::NotIn(key, values));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        let (key, values) = pair(key, value);
        return Some(Test::In(key, values));
    }
    if part.contains(char::is_whitespace) {
        return None;
    }
    Some(match part.strip_prefix('!') {
        Some(key) => Test::Missing(key.to_owned()),
        None => Test::Exists(part.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_match_labels_and_fields() {
        let object =
            json!({"metadata": {"name": "n1", "labels": {"app": "web", "tier": "front"}}, "spec": {"nodeName": "x"}});
        let matches = |labels: &str, fields: &str| Selector::parse(labels, fields).unwrap().matches(&object);
        for yes in ["", "app=web", "app==web,tier", "app in (db, web)", "tier!=back", "!gone", "gone notin (a,b),app"] {
            assert!(matches(yes, ""), "{yes}");
        }
        for no in ["app=db", "gone", "!app", "app notin (web)", "app in (db)", "app!=web"] {
            assert!(!matches(no, ""), "{no}");
        }
        assert!(matches("", "metadata.name=n1,spec.nodeName=x,spec.unschedulable=false"));
        assert!(!matches("", "metadata.name!=n1"));
        assert!(Selector::parse("a b c", "").is_err());
        assert!(Selector::parse("a like (b)", "").is_err());
        assert!(Selector::parse("", "metadata.name").is_err());
    }
}
