//! Policy documents: read, and checked as IAM checks them before it takes them.

use serde_json::{Map, Value};

use crate::aws::errors::{Answer, fail};

/// What a policy is attached to decides what it may say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Attached {
    /// A role, user or group: no principal.
    Identity,
    /// A role, saying who may assume it: no resource.
    Trust,
    /// A bucket, key or queue: principal and resource.
    Resource,
}

#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub statements: Vec<Statement>,
}

#[derive(Clone, Debug)]
pub struct Statement {
    pub sid: Option<String>,
    pub allow: bool,
    pub actions: Patterns,
    /// Missing in trust policies.
    pub resources: Option<Patterns>,
    pub principals: Option<Principals>,
    pub conditions: Vec<Condition>,
}

/// `Action` or `NotAction`, `Resource` or `NotResource`.
#[derive(Clone, Debug)]
pub struct Patterns {
    pub not: bool,
    pub patterns: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Principals {
    pub not: bool,
    /// Kind and value, such as `AWS` and an ARN. `*` alone is kind `*`.
    pub named: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub struct Condition {
    /// Such as `StringEquals`, with `ForAnyValue:` and `IfExists` as written.
    pub operator: String,
    pub key: String,
    pub values: Vec<String>,
}

type Read<T> = Result<T, String>;

const SYNTAX: &str = "Syntax errors in policy.";

/// Reads a document and says what is wrong with it.
pub fn parse(text: &str, attached: Attached) -> Read<Policy> {
    let invalid = if attached == Attached::Trust { "This policy contains invalid Json" } else { SYNTAX };
    let root: Value = serde_json::from_str(text).map_err(|_| invalid.to_owned())?;
    let root = root.as_object().ok_or(invalid)?;
    if let Some(unknown) = root.keys().find(|key| !["Version", "Id", "Statement"].contains(&key.as_str())) {
        return Err(format!("{SYNTAX} Unknown field {unknown}"));
    }
    match root.get("Version").map(Value::as_str) {
        None | Some(Some("2012-10-17" | "2008-10-17")) => {}
        Some(_) => return Err("Policy document must be version 2012-10-17 or greater.".into()),
    }
    let statements: Vec<&Value> = match root.get("Statement") {
        Some(Value::Array(all)) => all.iter().collect(),
        Some(one @ Value::Object(_)) => vec![one],
        _ => return Err(SYNTAX.into()),
    };
    if statements.is_empty() && attached != Attached::Identity {
        return Err(SYNTAX.into());
    }
    let statements: Vec<Statement> =
        statements.into_iter().map(|value| statement(value, attached)).collect::<Read<_>>()?;
    let mut sids: Vec<&str> = statements.iter().filter_map(|statement| statement.sid.as_deref()).collect();
    sids.sort_unstable();
    match sids.windows(2).any(|pair| pair[0] == pair[1] && !pair[0].is_empty()) {
        true => Err("Statement IDs (SID) in a single policy must be unique.".into()),
        false => Ok(Policy { statements }),
    }
}

/// For documents that were taken already: one that cannot be read allows nothing.
pub fn stored(text: &str, attached: Attached) -> Policy {
    parse(text, attached).unwrap_or_default()
}

pub fn check(text: &str, attached: Attached) -> Answer<Policy> {
    parse(text, attached).or_else(|reason| fail("MalformedPolicyDocument", reason))
}

const FIELDS: [&str; 9] =
    ["Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Principal", "NotPrincipal", "Condition"];

fn statement(value: &Value, attached: Attached) -> Read<Statement> {
    let map = value.as_object().ok_or(SYNTAX)?;
    if map.keys().any(|key| !FIELDS.contains(&key.as_str())) {
        return Err(SYNTAX.into());
    }
    let allow = match map.get("Effect").and_then(Value::as_str) {
        Some("Allow") => true,
        Some("Deny") => false,
        _ => return Err(SYNTAX.into()),
    };
    let sid = match map.get("Sid") {
        None => None,
        Some(Value::String(sid)) => Some(sid.clone()),
        Some(_) => return Err(SYNTAX.into()),
    };
    if let (Attached::Identity, Some(sid)) = (attached, &sid)
        && !sid.chars().all(|c| c.is_ascii_alphanumeric())
    {
        return Err(format!("Statement IDs (SID) in a single policy must be alphanumeric: {sid}"));
    }
    let actions = patterns(map, "Action", "NotAction")?.ok_or("Policy statement must contain actions.")?;
    check_actions(&actions, attached)?;
    let resources = patterns(map, "Resource", "NotResource")?;
    check_resources(resources.as_ref(), attached)?;
    let principals = principals(map)?;
    match (attached, &principals) {
        (Attached::Identity, Some(_)) => return Err("Policy document should not specify a principal.".into()),
        (Attached::Trust | Attached::Resource, None) => return Err("Missing required field Principal".into()),
        _ => {}
    }
    Ok(Statement { sid, allow, actions, resources, principals, conditions: conditions(map.get("Condition"))? })
}

fn check_actions(actions: &Patterns, attached: Attached) -> Read<()> {
    if actions.patterns.is_empty() {
        return Err("Policy statement must contain actions.".into());
    }
    for action in &actions.patterns {
        let Some((vendor, name)) = action.split_once(':') else {
            if action == "*" {
                continue;
            }
            return Err("Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.".into());
        };
        if vendor.is_empty() || !vendor.chars().all(|c| c.is_ascii_alphanumeric() || "-*?".contains(c)) {
            return Err(format!("Vendor {vendor} is not valid"));
        }
        if name.is_empty() || name.contains([' ', ':']) {
            return Err("The policy failed legacy parsing".into());
        }
        if attached == Attached::Trust && !vendor.eq_ignore_ascii_case("sts") {
            return Err("AssumeRole policy may only specify STS AssumeRole actions.".into());
        }
    }
    Ok(())
}

fn check_resources(resources: Option<&Patterns>, attached: Attached) -> Read<()> {
    match (attached, resources) {
        (Attached::Trust, Some(_)) => Err("Has prohibited field Resource".into()),
        (Attached::Trust, None) => Ok(()),
        (_, None) => Err("Policy statement must contain resources.".into()),
        (_, Some(resources)) => {
            if resources.patterns.is_empty() {
                return Err("Policy statement must contain resources.".into());
            }
            for resource in resources.patterns.iter().filter(|resource| !is_wild(resource)) {
                let parts: Vec<&str> = resource.splitn(6, ':').collect();
                if parts[0] != "arn" {
                    return Err(format!("Resource {resource} must be in ARN format or \"*\"."));
                }
                if parts.len() < 6 {
                    return Err("The policy failed legacy parsing".into());
                }
                let partition = parts[1];
                if !["aws", "aws-cn", "aws-us-gov"].contains(&partition) && !partition.contains(['*', '?', '$']) {
                    return Err(format!("Partition \"{partition}\" is not valid for resource \"{resource}\"."));
                }
            }
            Ok(())
        }
    }
}

/// `*` or `arn:*`, which stand for every part of an ARN.
fn is_wild(resource: &str) -> bool {
    resource == "*" || resource.starts_with("arn:*") || resource.starts_with("*")
}

fn texts(value: &Value) -> Read<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        _ => Err(SYNTAX.to_owned()),
    };
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        one => Ok(vec![text(one)?]),
    }
}

fn patterns(map: &Map<String, Value>, plain: &str, not: &str) -> Read<Option<Patterns>> {
    match (map.get(plain), map.get(not)) {
        (Some(value), None) => Ok(Some(Patterns { not: false, patterns: texts(value)? })),
        (None, Some(value)) => Ok(Some(Patterns { not: true, patterns: texts(value)? })),
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(SYNTAX.into()),
    }
}

fn principals(map: &Map<String, Value>) -> Read<Option<Principals>> {
    let (not, value) = match (map.get("Principal"), map.get("NotPrincipal")) {
        (Some(value), None) => (false, value),
        (None, Some(value)) => (true, value),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(SYNTAX.into()),
    };
    let mut named = Vec::new();
    match value {
        Value::String(all) if all == "*" => named.push(("*".to_owned(), "*".to_owned())),
        Value::Object(kinds) => {
            for (kind, values) in kinds {
                if !["AWS", "Service", "Federated", "CanonicalUser"].contains(&kind.as_str()) {
                    return Err(format!("Invalid principal in policy: \"{}\"", kind.to_uppercase()));
                }
                named.extend(texts(values)?.into_iter().map(|value| (kind.clone(), value)));
            }
        }
        _ => return Err("Invalid principal in policy.".into()),
    }
    match named.is_empty() {
        true => Err("Missing required field Principal cannot be empty!".into()),
        false => Ok(Some(Principals { not, named })),
    }
}

fn conditions(value: Option<&Value>) -> Read<Vec<Condition>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (operator, keys) in value.as_object().ok_or(SYNTAX)? {
        if !super::conditions::known(operator) {
            return Err(format!("Invalid Condition type : {operator}."));
        }
        for (key, values) in keys.as_object().ok_or(SYNTAX)? {
            if !key.contains(':') {
                return Err("Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.".into());
            }
            found.push(Condition { operator: operator.clone(), key: key.clone(), values: texts(values)? });
        }
    }
    Ok(found)
}

/// Whether a text matches a pattern in which `*` is any run of letters and `?` any single one.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut seen) = (0, 0);
    // Where to go on when what follows the latest star does not fit.
    let mut star: Option<(usize, usize)> = None;
    while seen < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, seen));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[seen] => {
                at += 1;
                seen += 1;
            }
            _ => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    at = after;
                    seen = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_match_as_in_iam() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("ec2:*", "ec2:createvpc", true),
            ("ec2:describe*", "ec2:createvpc", false),
            ("*:describe*s", "ec2:describevpcs", true),
            ("arn:aws:s3:::b/*", "arn:aws:s3:::b/a/b/c", true),
            ("arn:aws:s3:::b/?", "arn:aws:s3:::b/ab", false),
            ("a*b*c", "axxbyybzc", true),
            ("a*b*c", "axxbyybz", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn documents_are_refused_as_iam_refuses_them() {
        let identity = |statement: &str| format!(r#"{{"Version":"2012-10-17","Statement":{statement}}}"#);
        for (text, attached, expected) in [
            ("{", Attached::Identity, "Syntax errors in policy."),
            ("{", Attached::Trust, "This policy contains invalid Json"),
            (&identity(r#"{"Effect":"Allow","Action":"*","Resource":"*"}"#), Attached::Identity, ""),
            (
                &identity(r#"[{"Effect":"Allow","Action":"x","Resource":"*"}]"#),
                Attached::Identity,
                "Actions/Conditions must be",
            ),
            (&identity(r#"[{"Effect":"Allow","Action":"s3:*"}]"#), Attached::Identity, "must contain resources"),
            (
                &identity(r#"[{"Effect":"Allow","Action":"s3:*","Resource":"b"}]"#),
                Attached::Identity,
                "must be in ARN format",
            ),
            (&identity(r#"[{"Effect":"Maybe","Action":"s3:*","Resource":"*"}]"#), Attached::Identity, "Syntax errors"),
            (
                &identity(r#"[{"Effect":"Allow","Action":"s3:*","Resource":"*","Principal":"*"}]"#),
                Attached::Identity,
                "should not specify a principal",
            ),
            (
                &identity(r#"[{"Effect":"Allow","Action":"sts:AssumeRole"}]"#),
                Attached::Trust,
                "Missing required field Principal",
            ),
            (
                &identity(r#"[{"Effect":"Allow","Action":"s3:Get","Principal":"*"}]"#),
                Attached::Trust,
                "may only specify STS AssumeRole",
            ),
            (
                &identity(r#"[{"Effect":"Allow","Action":"sts:AssumeRole","Principal":"*","Resource":"*"}]"#),
                Attached::Trust,
                "Has prohibited field Resource",
            ),
            (
                &identity(r#"[{"Effect":"Allow","Action":"s3:*","Resource":"*","Condition":{"Sounds":{"a:b":"c"}}}]"#),
                Attached::Identity,
                "Invalid Condition type",
            ),
        ] {
            match parse(text, attached) {
                Ok(_) => assert_eq!(expected, "", "{text} was taken"),
                Err(reason) => assert!(!expected.is_empty() && reason.contains(expected), "{text}: {reason}"),
            }
        }
    }
}
