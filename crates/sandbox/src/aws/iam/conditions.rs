//! Conditions of policies: an operator, a key of the request's context, and values.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::document::{Condition, matches};

/// What is known of a request, by key in lower case.
#[derive(Clone, Debug, Default)]
pub struct Context(BTreeMap<String, Vec<String>>);

impl Context {
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        self.0.insert(key.to_lowercase(), vec![value.into()]);
    }

    pub fn set_all(&mut self, key: &str, values: Vec<String>) {
        self.0.insert(key.to_lowercase(), values);
    }

    pub fn get(&self, key: &str) -> Option<&[String]> {
        self.0.get(&key.to_lowercase()).map(Vec::as_slice)
    }

    /// A text with `${aws:username}` and its like filled in. A variable that has no value matches nothing.
    pub fn filled(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, next)) = after.split_once('}') else { break };
            out.push_str(before);
            match name {
                "*" | "?" | "$" => out.push_str(name),
                name => {
                    let (key, default) = match name.split_once(',') {
                        Some((key, default)) => (key.trim(), Some(default.trim().trim_matches('\''))),
                        None => (name, None),
                    };
                    let value = self.get(key).and_then(|values| values.first()).map(String::as_str).or(default);
                    out.push_str(value.unwrap_or("\u{0}"));
                }
            }
            rest = next;
        }
        out.push_str(rest);
        out
    }
}

/// How one value is compared with one of the policy's.
type Compare = fn(&str, &str) -> bool;

struct Operator {
    compare: Compare,
    /// The condition holds when nothing compares.
    negated: bool,
}

fn operator(name: &str) -> Option<Operator> {
    let (compare, negated): (Compare, bool) = match name {
        "StringEquals" => (|have, want| have == want, false),
        "StringNotEquals" => (|have, want| have == want, true),
        "StringEqualsIgnoreCase" => (str::eq_ignore_ascii_case, false),
        "StringNotEqualsIgnoreCase" => (str::eq_ignore_ascii_case, true),
        "StringLike" => (like, false),
        "StringNotLike" => (like, true),
        "ArnEquals" | "ArnLike" => (arn_like, false),
        "ArnNotEquals" | "ArnNotLike" => (arn_like, true),
        "Bool" => (str::eq_ignore_ascii_case, false),
        "BinaryEquals" => (|have, want| have == want, false),
        "NumericEquals" => (|have, want| number(have, want, |a, b| a == b), false),
        "NumericNotEquals" => (|have, want| number(have, want, |a, b| a == b), true),
        "NumericLessThan" => (|have, want| number(have, want, |a, b| a < b), false),
        "NumericLessThanEquals" => (|have, want| number(have, want, |a, b| a <= b), false),
        "NumericGreaterThan" => (|have, want| number(have, want, |a, b| a > b), false),
        "NumericGreaterThanEquals" => (|have, want| number(have, want, |a, b| a >= b), false),
        "DateEquals" => (|have, want| date(have, want, |a, b| a == b), false),
        "DateNotEquals" => (|have, want| date(have, want, |a, b| a == b), true),
        "DateLessThan" => (|have, want| date(have, want, |a, b| a < b), false),
        "DateLessThanEquals" => (|have, want| date(have, want, |a, b| a <= b), false),
        "DateGreaterThan" => (|have, want| date(have, want, |a, b| a > b), false),
        "DateGreaterThanEquals" => (|have, want| date(have, want, |a, b| a >= b), false),
        "IpAddress" => (in_network, false),
        "NotIpAddress" => (in_network, true),
        _ => return None,
    };
    Some(Operator { compare, negated })
}

/// `ForAnyValue:StringLikeIfExists` without what stands around the operator.
fn split(name: &str) -> (Option<&str>, &str, bool) {
    let (quantifier, rest) = match name.split_once(':') {
        Some((quantifier, rest)) => (Some(quantifier), rest),
        None => (None, name),
    };
    match rest.strip_suffix("IfExists") {
        Some(plain) => (quantifier, plain, true),
        None => (quantifier, rest, false),
    }
}

pub fn known(name: &str) -> bool {
    let (quantifier, plain, _) = split(name);
    let quantifier_known = quantifier.is_none_or(|one| one == "ForAnyValue" || one == "ForAllValues");
    quantifier_known && (plain == "Null" || operator(plain).is_some())
}

pub fn holds(condition: &Condition, context: &Context) -> bool {
    let (quantifier, plain, if_exists) = split(&condition.operator);
    let have = context.get(&condition.key);
    if plain == "Null" {
        let wants_missing = condition.values.iter().any(|value| value.eq_ignore_ascii_case("true"));
        return have.is_none_or(<[String]>::is_empty) == wants_missing;
    }
    let Some(Operator { compare, negated }) = operator(plain) else { return false };
    let Some(have) = have.filter(|values| !values.is_empty()) else {
        // Nothing to compare: what must not be is not, and of no values all are fine.
        return if_exists || negated || quantifier == Some("ForAllValues");
    };
    let wanted: Vec<String> = condition.values.iter().map(|value| context.filled(value)).collect();
    let fits = |value: &String| wanted.iter().any(|want| compare(value, want)) != negated;
    match quantifier {
        Some("ForAllValues") => have.iter().all(fits),
        _ => have.iter().any(fits),
    }
}

fn like(have: &str, want: &str) -> bool {
    matches(want, have)
}

/// Part by part, so that a star does not reach over a colon, but for the last part.
fn arn_like(have: &str, want: &str) -> bool {
    let (have, want): (Vec<&str>, Vec<&str>) = (have.splitn(6, ':').collect(), want.splitn(6, ':').collect());
    have.len() == want.len() && have.iter().zip(&want).all(|(have, want)| matches(want, have))
}

fn number(have: &str, want: &str, fits: fn(f64, f64) -> bool) -> bool {
    match (have.parse(), want.parse()) {
        (Ok(have), Ok(want)) => fits(have, want),
        _ => false,
    }
}

/// Times are written as RFC 3339, as a day, or as seconds since 1970.
fn date(have: &str, want: &str, fits: fn(i64, i64) -> bool) -> bool {
    let seconds = |text: &str| {
        let day = || format!("{text}T00:00:00Z").parse::<jiff::Timestamp>().ok();
        let time = text.parse::<jiff::Timestamp>().ok().or_else(day).map(jiff::Timestamp::as_second);
        time.or_else(|| text.parse().ok())
    };
    match (seconds(have), seconds(want)) {
        (Some(have), Some(want)) => fits(have, want),
        _ => false,
    }
}

fn in_network(have: &str, want: &str) -> bool {
    let Ok(have) = have.parse::<IpAddr>() else { return false };
    match want.parse::<IpNet>() {
        Ok(net) => net.contains(&have),
        Err(_) => want.parse::<IpAddr>().is_ok_and(|want| want == have),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        let mut context = Context::default();
        context.set("aws:username", "ann");
        context.set("aws:PrincipalArn", "arn:aws:iam::111122223333:role/path/deploy");
        context.set("aws:SourceIp", "127.0.0.1");
        context.set("aws:SecureTransport", "false");
        context.set("aws:RequestTag/team", "shop");
        context.set("s3:max-keys", "20");
        context.set("aws:CurrentTime", "2026-05-01T10:00:00Z");
        context.set_all("aws:TagKeys", vec!["team".into(), "owner".into()]);
        context
    }

    #[test]
    fn operators_compare_as_in_iam() {
        for (operator, key, values, expected) in [
            ("StringEquals", "aws:requesttag/team", vec!["shop"], true),
            ("StringEquals", "aws:RequestTag/team", vec!["Shop"], false),
            ("StringEqualsIgnoreCase", "aws:RequestTag/team", vec!["SHOP"], true),
            ("StringNotEquals", "aws:RequestTag/team", vec!["x", "shop"], false),
            ("StringNotEquals", "aws:RequestTag/none", vec!["x"], true),
            ("StringLike", "aws:username", vec!["a*"], true),
            ("StringEquals", "aws:username", vec!["${aws:username}"], true),
            ("StringEquals", "aws:username", vec!["${aws:nothing}"], false),
            ("StringEquals", "aws:none", vec!["x"], false),
            ("StringEqualsIfExists", "aws:none", vec!["x"], true),
            ("ArnLike", "aws:PrincipalArn", vec!["arn:aws:iam::*:role/*"], true),
            ("ArnLike", "aws:PrincipalArn", vec!["arn:aws:*:role/*"], false),
            ("ArnEquals", "aws:PrincipalArn", vec!["arn:aws:iam::111122223333:role/path/deploy"], true),
            ("Bool", "aws:SecureTransport", vec!["true"], false),
            ("Bool", "aws:SecureTransport", vec!["False"], true),
            ("IpAddress", "aws:SourceIp", vec!["10.0.0.0/8", "127.0.0.0/8"], true),
            ("NotIpAddress", "aws:SourceIp", vec!["10.0.0.0/8"], true),
            ("NumericLessThanEquals", "s3:max-keys", vec!["20"], true),
            ("NumericGreaterThan", "s3:max-keys", vec!["20"], false),
            ("DateGreaterThan", "aws:CurrentTime", vec!["2026-04-30"], true),
            ("DateLessThan", "aws:CurrentTime", vec!["2026-05-01T09:00:00Z"], false),
            ("Null", "aws:TokenIssueTime", vec!["true"], true),
            ("Null", "aws:username", vec!["true"], false),
            ("ForAllValues:StringEquals", "aws:TagKeys", vec!["team", "owner", "cost"], true),
            ("ForAllValues:StringEquals", "aws:TagKeys", vec!["team"], false),
            ("ForAnyValue:StringEquals", "aws:TagKeys", vec!["team"], true),
        ] {
            assert!(known(operator), "{operator}");
            let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
            let condition = Condition { operator: operator.into(), key: key.into(), values };
            assert_eq!(holds(&condition, &context()), expected, "{condition:?}");
        }
        assert!(!known("StringSounds") && !known("ForSome:StringEquals"));
    }
}
