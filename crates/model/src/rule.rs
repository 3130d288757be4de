//! A policy's rule: CEL over a plan. Read and checked here, so that mistakes are reported before it is stored;
//! run where plans are decided.

use crate::phrasing;
use cel::Env;
use cel::common::ast::{EntryExpr, Expr, IdedExpr, SourceInfo};
use std::sync::{Arc, OnceLock};

/// Most bytes of a rule.
pub const MAX_RULE_BYTES: usize = 4096;
/// Most levels of nesting in a rule.
const MAX_RULE_DEPTH: u16 = 32;

/// What a rule may read.
pub const RULE_VARIABLES: [&str; 7] = ["resource", "spec", "old", "action", "units", "now", "actor"];

/// Functions that a rule may call. A test holds the list against the interpreter.
const FUNCTIONS: [&str; 28] = [
    "bool",
    "bytes",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "hasValue",
    "int",
    "matches",
    "orValue",
    "size",
    "startsWith",
    "string",
    "timestamp",
    "type",
    "uint",
    "value",
];
/// Names of types, as in `type(x) == string`.
const TYPES: [&str; 11] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint", "timestamp"];

/// Why a text is no rule, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuleError {
    pub message: String,
    /// Line and column in the rule, from 1.
    pub at: Option<(usize, usize)>,
    /// What to say at the place itself.
    pub label: Option<String>,
}

/// The language of rules: the standard one.
pub fn rule_env() -> Arc<Env> {
    static ENV: OnceLock<Arc<Env>> = OnceLock::new();
    ENV.get_or_init(|| Arc::new(Env::stdlib())).clone()
}

/// Reads a rule and checks every name in it.
pub fn parse_rule(text: &str) -> Result<IdedExpr, RuleError> {
    let plain = |message: String| RuleError { message, at: None, label: None };
    if text.trim().is_empty() {
        return Err(plain("the rule is empty".into()));
    }
    if text.len() > MAX_RULE_BYTES {
        return Err(plain(format!("the rule has {} bytes; {MAX_RULE_BYTES} are the most", text.len())));
    }
    let parser = rule_env().parser().max_recursion_depth(MAX_RULE_DEPTH);
    let (expression, places) = parser.parse_with_source_info(text).map_err(|errors| {
        // What follows the first mistake is mostly its echo.
        let Some(first) = errors.errors.into_iter().next() else { return plain("it cannot be read".into()) };
        let number = |n: isize| usize::try_from(n).ok().filter(|n| *n > 0);
        let (message, label) = spoken(&first.msg);
        RuleError { message, at: number(first.pos.0).zip(number(first.pos.1)), label }
    })?;
    let mut names = Names { places: &places, scope: Vec::new() };
    names.check(&expression)?;
    Ok(expression)
}

/// What the parser says, in words that fit a reader who knows no grammar, and what would be right where it is sure.
fn spoken(message: &str) -> (String, Option<String>) {
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    let quoted = |text: &str| {
        let inner = text.trim().strip_prefix('\'').unwrap_or(text.trim());
        inner.strip_suffix('\'').unwrap_or(inner).trim().to_owned()
    };
    let stray =
        ["mismatched input ", "extraneous input ", "token recognition error at: ", "no viable alternative at input "]
            .iter()
            .find_map(|start| message.strip_prefix(start));
    if let Some(rest) = stray {
        let token = quoted(rest.split(" expecting ").next().unwrap_or(rest));
        let right = match token.as_str() {
            "=" => Some("write `==`"),
            "and" | "&" => Some("write `&&`"),
            "or" | "|" => Some("write `||`"),
            "not" => Some("write `!`"),
            _ => None,
        };
        let message = match token.as_str() {
            "<EOF>" => "it ends too early".to_owned(),
            text if text.starts_with(['\'', '"']) => "a text is not closed".to_owned(),
            text => format!("{} is not understood here", phrasing::shown(text)),
        };
        return (message, right.map(str::to_owned));
    }
    if let Some((what, _)) = message.strip_prefix("missing ").and_then(|rest| rest.split_once(" at ")) {
        return (format!("{} is missing", phrasing::shown(&quoted(what))), None);
    }
    let mut letters = message.chars();
    let lower = letters.next().map(|first| first.to_lowercase().chain(letters).collect());
    (lower.unwrap_or_else(|| "it cannot be read".into()), None)
}

struct Names<'a> {
    places: &'a SourceInfo,
    /// Variables of the loops around the place that is looked at.
    scope: Vec<&'a str>,
}

impl<'a> Names<'a> {
    fn check(&mut self, node: &'a IdedExpr) -> Result<(), RuleError> {
        match &node.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.variable(node, name),
            Expr::Call(call) => {
                let is_name = call.func_name.starts_with(|c: char| c.is_ascii_alphabetic());
                if is_name && !FUNCTIONS.contains(&call.func_name.as_str()) {
                    let message = format!("there is no function {}", phrasing::shown(&call.func_name));
                    return Err(self.error(node, message, phrasing::did_you_mean(&call.func_name, FUNCTIONS)));
                }
                call.target.iter().map(AsRef::as_ref).chain(&call.args).try_for_each(|inner| self.check(inner))
            }
            Expr::Comprehension(each) => {
                self.check(&each.iter_range)?;
                self.check(&each.accu_init)?;
                let outside = self.scope.len();
                self.scope.extend([each.iter_var.as_str(), each.accu_var.as_str()]);
                self.scope.extend(each.iter_var2.as_deref());
                let inside = [&each.loop_cond, &each.loop_step, &each.result];
                let checked = inside.into_iter().try_for_each(|inner| self.check(inner));
                self.scope.truncate(outside);
                checked
            }
            Expr::List(list) => list.elements.iter().try_for_each(|inner| self.check(inner)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => self.check(&entry.key).and_then(|()| self.check(&entry.value)),
                EntryExpr::StructField(field) => self.check(&field.value),
            }),
            Expr::Select(select) => self.check(&select.operand),
            Expr::Struct(literal) => {
                Err(self.error(node, format!("there is no type {}", phrasing::shown(&literal.type_name)), None))
            }
        }
    }

    fn variable(&self, node: &IdedExpr, name: &str) -> Result<(), RuleError> {
        if self.scope.contains(&name) || RULE_VARIABLES.contains(&name) || TYPES.contains(&name) {
            return Ok(());
        }
        let message = format!("there is no {}: a rule reads {}", phrasing::shown(name), RULE_VARIABLES.join(", "));
        Err(self.error(node, message, phrasing::did_you_mean(name, RULE_VARIABLES)))
    }

    fn error(&self, node: &IdedExpr, message: String, label: Option<String>) -> RuleError {
        let at = self.places.offset_for(node.id).map(|(start, _)| {
            let before: String = self.places.source.chars().take(start as usize).collect();
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            (line, column)
        });
        RuleError { message, at, label }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cel::{Context, ExecutionError, Value};

    fn wrong(text: &str) -> RuleError {
        parse_rule(text).expect_err(text)
    }

    #[test]
    fn mistakes_are_told_with_their_places() {
        assert_eq!(wrong("resource.env == 'prod' &&").at, Some((1, 26)));
        assert_eq!(wrong("resource.env == 'prod' &&\n  resorce.kind == ''").at, Some((2, 3)));
        assert_eq!(wrong("resorce.kind == ''").label.as_deref(), Some("did you mean `resource`?"));
        assert_eq!(wrong("spec.x.startWith('a')").message, "there is no function `startWith`");
        assert!(wrong("Foo{a: 1} == null").message.contains("no type"));
        assert!(wrong("").message.contains("empty"));
        assert!(wrong(&format!("'{}' == ''", "x".repeat(MAX_RULE_BYTES))).message.contains("4096"));
        assert!(parse_rule(&format!("{}true{}", "(".repeat(200), ")".repeat(200))).is_err());
    }

    #[test]
    fn variables_of_loops_are_known_inside_them_only() {
        parse_rule("units.exists(u, u.losesData && u.changes.all(c, c.field != 'size'))").unwrap();
        parse_rule("has(spec.nodeCount) && type(spec.nodeCount) == int && size(resource.labels) > 0").unwrap();
        assert!(wrong("units.exists(u, true) && u.losesData").message.contains("no `u`"));
    }

    #[test]
    fn the_interpreter_has_every_function_that_is_promised() {
        for name in FUNCTIONS {
            let found = [format!("{name}(1, 2, 3, 4)"), format!("'x'.{name}(1, 2, 3, 4)")].iter().any(|text| {
                let run = rule_env().compile(text).unwrap().execute(&Context::with_env(rule_env()));
                !matches!(run, Err(ExecutionError::UndeclaredReference(_)))
            });
            assert!(found, "{name}");
        }
        let unknown = rule_env().compile("nothing(1)").unwrap().execute(&Context::with_env(rule_env()));
        assert!(matches!(unknown, Err(ExecutionError::UndeclaredReference(_))), "{unknown:?}");
        let friday = rule_env().compile("timestamp('2026-11-13T12:00:00Z').getDayOfWeek() == 5").unwrap();
        assert_eq!(friday.execute(&Context::with_env(rule_env())), Ok(Value::Bool(true)));
    }
}
