//! The `buf.validate` rules that kinds use, read once from the descriptors, and what breaking one says.

use super::cel;
use crate::pb::buf::validate::{
    self as pb, FieldRules, Ignore, MapRules, RepeatedRules, StringRules, field_rules::Type,
};
use crate::phrasing;
use crate::shape::Field;
use regex::Regex;
use std::collections::HashMap;
use std::sync::{OnceLock, RwLock};

/// What breaking a rule says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub message: String,
    pub label: Option<String>,
    /// Line and column in the value, from 1, where a part of it is meant.
    pub within: Option<(usize, usize)>,
    /// Other tools' validators refuse it too.
    pub firm: bool,
}

impl Violation {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), label: None, within: None, firm: false }
    }

    pub fn firm(message: impl Into<String>) -> Self {
        Self { firm: true, ..Self::new(message) }
    }
}

/// What a message calls the value, and how much of it may be shown.
pub(crate) struct Subject<'a> {
    pub human: &'a str,
    /// What it belongs to, in backticks, or empty: ``of label `team` ``.
    pub of: &'a str,
    pub hint: &'a str,
    pub secret: bool,
}

impl Subject<'_> {
    /// `cluster name`.
    pub fn bare(&self) -> String {
        self.join(String::new())
    }

    /// ``cluster name `x` ``, or only the name where the value is secret.
    pub fn with(&self, value: &str) -> String {
        self.join(if self.secret { String::new() } else { format!(" {}", phrasing::shown(value)) })
    }

    fn join(&self, value: String) -> String {
        let gap = if self.of.is_empty() { "" } else { " " };
        format!("{}{value}{gap}{}", self.human, self.of)
    }
}

/// The rules of one field.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub ignore_zero: bool,
    pub check: Check,
    /// Rules that stand where this interpreter does not look. A test keeps this empty for every kind.
    pub unhandled: Vec<&'static str>,
}

#[derive(Debug, Default)]
pub(crate) enum Check {
    #[default]
    Nothing,
    Text(TextRules),
    Number(NumberRules),
    List(Box<ListRules>),
    Map(Box<PairRules>),
}

#[derive(Debug)]
pub(crate) struct TextRules {
    pub exactly: Option<String>,
    pub min_len: Option<u64>,
    pub max_len: Option<u64>,
    pub pattern: Option<Pattern>,
    pub prefix: Option<String>,
    pub one_of: Vec<String>,
    pub none_of: Vec<String>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct NumberRules {
    pub exactly: Option<i64>,
    pub lt: Option<i64>,
    pub lte: Option<i64>,
    pub gt: Option<i64>,
    pub gte: Option<i64>,
}

#[derive(Debug)]
pub(crate) struct ListRules {
    pub min: Option<u64>,
    pub max: Option<u64>,
    pub unique: bool,
    pub items: Check,
}

#[derive(Debug)]
pub(crate) struct PairRules {
    pub min: Option<u64>,
    pub max: Option<u64>,
    pub keys: Check,
    pub values: Check,
}

impl Rules {
    // Every rule is taken apart by name here, so that a rule added to validate.proto does not compile until it is handled.
    pub fn read(rules: FieldRules) -> Self {
        let FieldRules { cel: _, required: _, ignore, r#type } = rules;
        let mut unhandled = Vec::new();
        let check = Check::read(r#type, &mut unhandled);
        Self { ignore_zero: ignore == Some(Ignore::IfZeroValue as i32), check, unhandled }
    }
}

/// The generated messages for signed and unsigned numbers are two types with the same fields.
macro_rules! number_rules {
    ($rules:ident, $message:ident, $module:ident) => {{
        let pb::$message { r#const, less_than, greater_than } = $rules;
        use pb::$module::{GreaterThan, LessThan};
        let mut out = NumberRules { exactly: r#const.map(i64::from), ..NumberRules::default() };
        match less_than {
            Some(LessThan::Lt(n)) => out.lt = Some(n.into()),
            Some(LessThan::Lte(n)) => out.lte = Some(n.into()),
            None => {}
        }
        match greater_than {
            Some(GreaterThan::Gt(n)) => out.gt = Some(n.into()),
            Some(GreaterThan::Gte(n)) => out.gte = Some(n.into()),
            None => {}
        }
        Check::Number(out)
    }};
}

impl Check {
    fn read(rules: Option<Type>, unhandled: &mut Vec<&'static str>) -> Self {
        match rules {
            None => Check::Nothing,
            Some(Type::Int32(rules)) => number_rules!(rules, Int32Rules, int32_rules),
            Some(Type::Uint32(rules)) => number_rules!(rules, UInt32Rules, u_int32_rules),
            Some(Type::String(rules)) => {
                let StringRules { r#const, min_len, max_len, pattern, prefix, r#in, not_in } = rules;
                Check::Text(TextRules {
                    exactly: r#const,
                    min_len,
                    max_len,
                    pattern: pattern.map(|source| Pattern { source, compiled: OnceLock::new() }),
                    prefix,
                    one_of: r#in,
                    none_of: not_in,
                })
            }
            Some(Type::Repeated(rules)) => {
                let RepeatedRules { min_items, max_items, unique, items } = *rules;
                Check::List(Box::new(ListRules {
                    min: min_items,
                    max: max_items,
                    unique: unique.unwrap_or_default(),
                    items: Check::inner(items, unhandled),
                }))
            }
            Some(Type::Map(rules)) => {
                let MapRules { min_pairs, max_pairs, keys, values } = *rules;
                Check::Map(Box::new(PairRules {
                    min: min_pairs,
                    max: max_pairs,
                    keys: Check::inner(keys, unhandled),
                    values: Check::inner(values, unhandled),
                }))
            }
        }
    }

    fn inner(rules: Option<Box<FieldRules>>, unhandled: &mut Vec<&'static str>) -> Self {
        let Some(rules) = rules else { return Check::Nothing };
        let FieldRules { cel, required, ignore, r#type } = *rules;
        if !cel.is_empty() {
            unhandled.push("cel of items, keys or values");
        }
        if required.is_some() || ignore.is_some() {
            unhandled.push("required or ignore of items, keys or values");
        }
        let check = Check::read(r#type, unhandled);
        if matches!(check, Check::List(_) | Check::Map(_)) {
            unhandled.push("rules of lists in lists");
        }
        check
    }

    /// Checks a text; rules of other types do not apply.
    pub fn text(&self, subject: &Subject<'_>, value: &str) -> Option<Violation> {
        match self {
            Check::Text(rules) => rules.broken(subject, value),
            _ => None,
        }
    }

    pub fn number(&self, subject: &Subject<'_>, value: i64) -> Option<Violation> {
        match self {
            Check::Number(rules) => rules.broken(subject, value),
            _ => None,
        }
    }
}

/// `1 character`, `3 characters`.
pub(crate) fn count_of(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

impl TextRules {
    fn broken(&self, subject: &Subject<'_>, value: &str) -> Option<Violation> {
        let human = || subject.bare();
        if let Some(exactly) = self.exactly.as_ref().filter(|exactly| *exactly != value) {
            return Some(Violation::new(format!("{} must be `{exactly}`", human())));
        }
        if !self.one_of.is_empty() && !self.one_of.iter().any(|allowed| allowed == value) {
            return Some(self.not_one_of(subject, value));
        }
        if self.none_of.iter().any(|refused| refused == value) {
            return Some(Violation::new(format!("{} is not allowed", subject.with(value))));
        }
        let length = value.chars().count() as u64;
        if let Some(min) = self.min_len.filter(|min| length < *min) {
            return Some(Violation::new(match length {
                0 => format!("{} must not be empty", human()),
                _ => format!("{} must have at least {}", human(), count_of(min, "character", "characters")),
            }));
        }
        if let Some(max) = self.max_len.filter(|max| length > *max) {
            let max = count_of(max, "character", "characters");
            return Some(Violation::new(format!("{} must have at most {max}, and has {length}", human())));
        }
        if let Some(prefix) = self.prefix.as_ref().filter(|prefix| !value.starts_with(prefix.as_str())) {
            return Some(Violation::new(format!("{} must start with `{prefix}`", human())));
        }
        if let Some(pattern) = self.pattern.as_ref().filter(|pattern| !pattern.matches(value)) {
            let rule = match subject.hint {
                "" => format!("it must match {}", pattern.source),
                hint => hint.to_owned(),
            };
            return Some(Violation::new(format!("{} is not valid: {rule}", subject.with(value))));
        }
        None
    }

    fn not_one_of(&self, subject: &Subject<'_>, value: &str) -> Violation {
        let human = subject.bare();
        if let Some(right) = self.one_of.iter().find(|allowed| allowed.eq_ignore_ascii_case(value)) {
            let message = format!("{human} must be `{right}`, not {}: case matters", phrasing::shown(value));
            return Violation { label: Some(format!("write `{right}`")), ..Violation::new(message) };
        }
        let allowed = phrasing::either(&self.one_of);
        let message = match value {
            "" => format!("{human} must be {allowed}"),
            _ => format!("{human} must be {allowed}, not {}", phrasing::shown(value)),
        };
        let near = phrasing::nearest_value(value, self.one_of.iter().map(String::as_str));
        Violation { label: near.map(|near| format!("did you mean `{near}`?")), ..Violation::new(message) }
    }
}

impl NumberRules {
    pub fn broken(&self, subject: &Subject<'_>, value: i64) -> Option<Violation> {
        let must = |rule: String| Some(Violation::new(format!("{} must be {rule}", subject.bare())));
        let least = |rule: String| must(rule).map(|violation| Violation { firm: true, ..violation });
        if let Some(n) = self.exactly.filter(|n| value != *n) {
            return must(format!("{n}"));
        }
        if let Some(n) = self.gt.filter(|n| value <= *n) {
            return least(format!("greater than {n}"));
        }
        if let Some(n) = self.gte.filter(|n| value < *n) {
            return least(format!("at least {n}"));
        }
        if let Some(n) = self.lt.filter(|n| value >= *n) {
            return must(format!("less than {n}"));
        }
        if let Some(n) = self.lte.filter(|n| value > *n) {
            return must(format!("at most {n}"));
        }
        None
    }
}

/// A regular expression, compiled on first use and then shared by all fields that have the same one.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub source: String,
    compiled: OnceLock<Option<&'static Regex>>,
}

impl Pattern {
    fn matches(&self, value: &str) -> bool {
        // A pattern that does not compile would refuse everything; a test compiles them all.
        self.regex().is_some_and(|regex| regex.is_match(value))
    }

    pub fn regex(&self) -> Option<&'static Regex> {
        *self.compiled.get_or_init(|| {
            static SHARED: OnceLock<RwLock<HashMap<String, Option<&'static Regex>>>> = OnceLock::new();
            let mut shared =
                SHARED.get_or_init(Default::default).write().unwrap_or_else(|poisoned| poisoned.into_inner());
            *shared
                .entry(self.source.clone())
                .or_insert_with(|| Regex::new(&self.source).ok().map(|regex| &*Box::leak(Box::new(regex))))
        })
    }
}

/// A rule in CEL, of a message or of a field.
#[derive(Debug)]
pub(crate) struct CelRule {
    pub message: String,
    pub expression: String,
    /// Fields of the message that the expression reads.
    pub reads: Vec<usize>,
    /// Fields that the message names, in its order: the first one that was written is where it points.
    pub mentions: Vec<usize>,
    pub program: cel::Compiled,
    /// Of Berth's own groups only: its id begins with `own.`.
    pub own: bool,
}

impl CelRule {
    pub fn read(rule: pb::Rule, fields: &[Field]) -> Self {
        let pb::Rule { id, message, expression } = rule;
        let own = id.is_some_and(|id| id.starts_with("own."));
        let (message, expression) = (message.unwrap_or_default(), expression.unwrap_or_default());
        let reads = fields.iter().enumerate().filter(|(_, field)| reads(&expression, &field.name));
        let reads = reads.map(|(index, _)| index).collect();
        let mut mentions: Vec<usize> = Vec::new();
        for word in message.split(|c: char| !c.is_alphanumeric()) {
            if let Some(index) =
                fields.iter().position(|field| field.json == word && !mentions_has(&mentions, fields, word))
            {
                mentions.push(index);
            }
        }
        Self { message, expression, reads, mentions, program: cel::Compiled::default(), own }
    }
}

fn mentions_has(mentions: &[usize], fields: &[Field], word: &str) -> bool {
    mentions.iter().any(|index| fields[*index].json == word)
}

/// Whether an expression reads `this.name`.
fn reads(expression: &str, name: &str) -> bool {
    expression.match_indices("this.").any(|(at, _)| {
        let rest = &expression[at + "this.".len()..];
        rest.strip_prefix(name).is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}
