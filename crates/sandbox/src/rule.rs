//! The text form of a fault: `[METHOD|mutating] [PATH-GLOB] [CLOUD] ACTION [WHEN]`, in any order.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hyper::Method;

use crate::registry::{self, CloudName};

pub const MAX_DELAY: Duration = Duration::from_secs(600);
const MAX_RULE_BYTES: usize = 1024;
/// Stars multiply the ways to match a path; nobody needs more.
const MAX_STARS: usize = 6;

#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub methods: Methods,
    pub path: Option<String>,
    pub cloud: Option<CloudName>,
    pub action: Action,
    pub when: When,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Methods {
    Any,
    Mutating,
    One(Method),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Status {
        status: u16,
        retry_after: Option<f64>,
    },
    Delay(Duration),
    /// Refused with 504, and acted on so long after.
    Late(Duration),
    /// Lists show what was so long ago.
    Lag(Duration),
    DropBefore,
    DropAfter,
    HoldBefore,
    HoldAfter,
    Quota,
    NoCapacity(String),
    Stuck,
    Random(f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    Always,
    Nth(u64),
    Times(u64),
    Rate(f64),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fault rule `{rule}`: {reason}")]
pub struct RuleError {
    pub rule: String,
    pub reason: String,
}

const ACTIONS: &str = "a status code such as 503, delay=2s, late=2s, lag=2s, drop-before, drop-after, hold-before, \
                       hold-after, quota, no-capacity=REGION, stuck or random=0.3";

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rule, RuleError> {
        let mut shown: String = text.trim().chars().take(80).collect();
        if shown.len() < text.trim().len() {
            shown.push('…');
        }
        parse(text).map_err(|reason| RuleError { rule: shown, reason })
    }
}

/// Reads rules, one a line; empty lines and `#` comments are skipped.
pub fn parse_lines(text: &str) -> Result<Vec<Rule>, RuleError> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::parse).collect()
}

fn parse(text: &str) -> Result<Rule, String> {
    if text.len() > MAX_RULE_BYTES {
        return Err(format!("longer than {MAX_RULE_BYTES} bytes"));
    }
    let (mut methods, mut path, mut cloud, mut action, mut when, mut retry_after) =
        (None, None, None, None, None, None);
    for word in text.split_whitespace() {
        if let Some(found) = method(word) {
            set(&mut methods, found, "method")?;
        } else if word.starts_with('/') {
            if word.matches('*').count() > MAX_STARS {
                return Err(format!("more than {MAX_STARS} stars in `{word}`"));
            }
            let trimmed = word.trim_end_matches('/');
            set(&mut path, if trimmed.is_empty() { "/**" } else { trimmed }.to_owned(), "path")?;
        } else if let Some(found) = cloud_name(word) {
            set(&mut cloud, found, "cloud")?;
        } else if let Some(value) = word.strip_prefix("retry-after=") {
            set(&mut retry_after, seconds(value)?, "retry-after")?;
        } else if let Some(found) = parse_when(word)? {
            set(&mut when, found, "condition")?;
        } else {
            set(&mut action, parse_action(word)?, "action")?;
        }
    }
    let Some(mut action) = action else { return Err(format!("no action; give {ACTIONS}")) };
    if let Some(wait) = retry_after {
        match &mut action {
            Action::Status { retry_after, .. } => *retry_after = Some(wait),
            _ => return Err("retry-after goes with a status code only".into()),
        }
    }
    let for_clusters = path.as_deref().is_some_and(|path: &str| path.starts_with(crate::faults::CLUSTERS));
    if for_clusters && matches!(action, Action::Late(_) | Action::Lag(_)) {
        return Err("late and lag are for the clouds' own APIs, not for their clusters'".into());
    }
    // What is refused or broken by these is the making of something, unless the rule says otherwise.
    let makes = matches!(action, Action::Quota | Action::NoCapacity(_) | Action::Stuck);
    let methods = methods.unwrap_or(match action {
        _ if makes => Methods::One(Method::POST),
        // Nobody can tell a read that was acted on from one that was not; and only reads are of lists.
        Action::Late(_) => Methods::Mutating,
        Action::Lag(_) => Methods::One(Method::GET),
        _ => Methods::Any,
    });
    Ok(Rule { methods, path, cloud, action, when: when.unwrap_or(When::Always) })
}

fn set<T>(slot: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("more than one {what}")),
    }
}

fn method(word: &str) -> Option<Methods> {
    Some(match word.to_ascii_uppercase().as_str() {
        "ANY" => Methods::Any,
        "MUTATING" => Methods::Mutating,
        "GET" => Methods::One(Method::GET),
        "POST" => Methods::One(Method::POST),
        "PUT" => Methods::One(Method::PUT),
        "PATCH" => Methods::One(Method::PATCH),
        "DELETE" => Methods::One(Method::DELETE),
        _ => return None,
    })
}

fn cloud_name(word: &str) -> Option<CloudName> {
    registry::find(word).map(|cloud| cloud.name)
}

fn parse_when(word: &str) -> Result<Option<When>, String> {
    let Some((name, value)) = word.split_once('=') else { return Ok(None) };
    let count = || match value.parse::<u64>() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(format!("`{word}`: give a whole number above 0")),
    };
    Ok(Some(match name {
        "nth" => When::Nth(count()?),
        "times" => When::Times(count()?),
        "rate" => When::Rate(share(word, value)?),
        _ => return Ok(None),
    }))
}

fn parse_action(word: &str) -> Result<Action, String> {
    if word.bytes().all(|b| b.is_ascii_digit()) {
        return match word.parse::<u16>() {
            Ok(status @ 400..=599) => Ok(Action::Status { status, retry_after: None }),
            _ => Err(format!("`{word}`: a status code to fail with is between 400 and 599")),
        };
    }
    Ok(match word.split_once('=').unwrap_or((word, "")) {
        ("delay", value) => Action::Delay(time(word, value)?),
        ("late", value) => Action::Late(time(word, value)?),
        ("lag", value) => Action::Lag(time(word, value)?),
        ("drop-before", "") => Action::DropBefore,
        ("drop-after", "") => Action::DropAfter,
        ("hold-before", "") => Action::HoldBefore,
        ("hold-after", "") => Action::HoldAfter,
        ("quota", "") => Action::Quota,
        ("no-capacity", region) if !region.is_empty() => Action::NoCapacity(region.to_owned()),
        ("no-capacity", _) => return Err("`no-capacity` needs a region: no-capacity=fra1".into()),
        ("stuck", "") => Action::Stuck,
        ("random", value) => Action::Random(share(word, value)?),
        _ => return Err(format!("`{word}` is not known; give {ACTIONS}")),
    })
}

fn share(word: &str, value: &str) -> Result<f64, String> {
    match value.parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err(format!("`{word}`: give a share between 0 and 1, such as 0.3")),
    }
}

fn seconds(value: &str) -> Result<f64, String> {
    match value.strip_suffix('s').unwrap_or(value).parse::<f64>() {
        Ok(n) if (0.0..=MAX_DELAY.as_secs_f64()).contains(&n) => Ok(n),
        _ => Err(format!("`retry-after={value}`: give seconds between 0 and {}", MAX_DELAY.as_secs())),
    }
}

fn time(word: &str, value: &str) -> Result<Duration, String> {
    let (number, unit) = match value.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => value.split_at(at),
        None => (value, "s"),
    };
    let factor = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        _ => 0.0,
    };
    match number.parse::<f64>().map(|n| n * factor) {
        Ok(s) if s > 0.0 && s <= MAX_DELAY.as_secs_f64() => Ok(Duration::from_secs_f64(s)),
        _ => Err(format!("`{word}`: give a time such as 500ms, 2s or 1m, up to {}s", MAX_DELAY.as_secs())),
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        match &self.methods {
            Methods::Any => {}
            Methods::Mutating => words.push("mutating".to_owned()),
            Methods::One(method) => words.push(method.to_string()),
        }
        words.extend(self.path.clone());
        words.extend(self.cloud.map(|c| c.to_string()));
        words.push(match &self.action {
            Action::Status { status, retry_after: None } => status.to_string(),
            Action::Status { status, retry_after: Some(wait) } => format!("{status} retry-after={wait}"),
            Action::Delay(time) => format!("delay={}ms", time.as_millis()),
            Action::Late(time) => format!("late={}ms", time.as_millis()),
            Action::Lag(time) => format!("lag={}ms", time.as_millis()),
            Action::DropBefore => "drop-before".into(),
            Action::DropAfter => "drop-after".into(),
            Action::HoldBefore => "hold-before".into(),
            Action::HoldAfter => "hold-after".into(),
            Action::Quota => "quota".into(),
            Action::NoCapacity(region) => format!("no-capacity={region}"),
            Action::Stuck => "stuck".into(),
            Action::Random(p) => format!("random={p}"),
        });
        match self.when {
            When::Always => {}
            When::Nth(n) => words.push(format!("nth={n}")),
            When::Times(n) => words.push(format!("times={n}")),
            When::Rate(p) => words.push(format!("rate={p}")),
        }
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_print_as_they_are_read() {
        for text in [
            "503",
            "POST /v2/networks 500",
            "POST /v2/kubernetes/clusters civo 503 times=2",
            "mutating digitalocean drop-after nth=3",
            "GET /v2/** delay=2000ms rate=0.5",
            "429 retry-after=1",
            "429 retry-after=0.5",
            "POST no-capacity=fra1",
            "POST stuck nth=1",
            "POST quota",
            "hold-before",
            "random=0.3",
            "POST /v2/kubernetes/clusters digitalocean late=300ms nth=1",
            "mutating late=2000ms rate=0.1",
            "GET lag=2000ms",
        ] {
            assert_eq!(text.parse::<Rule>().map(|r| r.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn words_come_in_any_order_and_case() {
        let one: Rule = "times=2 civo 503 /v2/networks/ post".parse().unwrap();
        let two: Rule = "POST /v2/networks civo 503 times=2".parse().unwrap();
        assert_eq!(one, two);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("", "no action"),
            ("POST /v2/networks", "no action"),
            ("200", "between 400 and 599"),
            ("99999999", "between 400 and 599"),
            ("500 503", "more than one action"),
            ("GET POST 500", "more than one method"),
            ("500 nth=0", "above 0"),
            ("500 rate=2", "between 0 and 1"),
            ("delay=2h", "500ms, 2s or 1m"),
            ("delay=0", "500ms, 2s or 1m"),
            ("delay=9999s", "up to 600s"),
            ("late", "`late`: give a time such as 500ms"),
            ("lag=1h", "500ms, 2s or 1m"),
            ("/clusters/** late=1s", "not for their clusters'"),
            ("no-capacity", "no-capacity=fra1"),
            ("explode", "`explode` is not known"),
            ("drop-after retry-after=1", "status code only"),
            ("/*/*/*/*/*/*/* 500", "stars"),
        ] {
            let error = text.parse::<Rule>().unwrap_err().to_string();
            assert!(error.contains(part), "`{text}` gave: {error}");
        }
    }

    #[test]
    fn lines_may_hold_comments() {
        let rules = parse_lines("# two faults\n\n503 times=1\n  stuck  \n").unwrap();
        assert_eq!(rules.len(), 2);
        assert!(parse_lines("503\nnonsense").is_err());
    }
}
