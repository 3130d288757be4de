//! Runs a rule, with a limit on its steps and its time.

use super::Facts;
use berth_model::{RuleError, parse_rule, rule_env};
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr};
use cel::objects::Value;
use cel::{Context, ExecutionError, IdedExpr};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Most rounds of all loops in one evaluation together.
pub const MAX_STEPS: usize = 100_000;
/// Longest time of one evaluation.
pub const MAX_TIME: Duration = Duration::from_millis(500);
/// Most rules that are kept after they were read.
const MAX_KEPT: usize = 1000;
/// Most characters of what a failed evaluation says.
const MAX_ERROR_CHARS: usize = 300;

/// Counts the rounds of a loop before it begins. The name cannot be written in a rule.
const CHARGE: &str = "@charge";

#[derive(Clone)]
pub struct Rule(Arc<IdedExpr>);

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rule")
    }
}

/// Why a rule has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoAnswer {
    #[error("it takes more than {MAX_STEPS} steps or {} ms", MAX_TIME.as_millis())]
    TooMuch,
    #[error("it gives {0}, where true or false is needed")]
    NotBool(&'static str),
    #[error("{0}")]
    Failed(String),
}

impl Rule {
    /// Reading a rule takes far longer than running it, so that those that were read are kept.
    pub fn new(text: &str) -> Result<Self, RuleError> {
        static READ: OnceLock<Mutex<HashMap<String, Rule>>> = OnceLock::new();
        let read = READ.get_or_init(Default::default);
        if let Some(rule) = read.lock().unwrap_or_else(PoisonError::into_inner).get(text) {
            return Ok(rule.clone());
        }
        let mut expression = parse_rule(text)?;
        charge(&mut expression);
        let rule = Self(Arc::new(expression));
        let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.len() >= MAX_KEPT {
            read.clear();
        }
        read.insert(text.to_owned(), rule.clone());
        Ok(rule)
    }

    pub fn holds(&self, facts: &Facts) -> Result<bool, NoAnswer> {
        let left = Arc::new(Limits { steps: AtomicUsize::new(MAX_STEPS), until: Instant::now() + MAX_TIME });
        let mut context = Context::with_env(rule_env());
        for (name, value) in facts.variables() {
            context.add_variable_from_value(*name, value.clone());
        }
        let limits = left.clone();
        let counted = context.add_function(CHARGE, move |over: Value| limits.charge(over));
        counted.map_err(|error| NoAnswer::Failed(error.to_string()))?;
        let answer = Value::resolve(&self.0, &context);
        // Logic may have swallowed the error: what was cut short is no answer.
        if left.spent() {
            return Err(NoAnswer::TooMuch);
        }
        match answer {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(other) => Err(NoAnswer::NotBool(type_name(&other))),
            Err(error) => Err(NoAnswer::Failed(told(&error))),
        }
    }
}

struct Limits {
    steps: AtomicUsize,
    until: Instant,
}

impl Limits {
    fn charge(&self, over: Value) -> Result<Value, ExecutionError> {
        let rounds = match &over {
            Value::List(items) => items.len(),
            Value::Map(map) => map.map.len(),
            _ => 0,
        };
        let took = self.steps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            // Beginning a loop is a step of its own, so that loops over nothing end too.
            Some(left.saturating_sub(rounds + 1))
        });
        if took.is_ok_and(|left| left <= rounds + 1) || Instant::now() > self.until {
            self.steps.store(0, Ordering::Relaxed);
            return Err(ExecutionError::function_error("loop", "too many steps"));
        }
        Ok(over)
    }

    fn spent(&self) -> bool {
        self.steps.load(Ordering::Relaxed) == 0 || Instant::now() > self.until
    }
}

/// Wraps what each loop goes over, so that its rounds are counted.
fn charge(node: &mut IdedExpr) {
    match &mut node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| charge(target));
            call.args.iter_mut().for_each(charge);
        }
        Expr::Comprehension(each) => {
            let ComprehensionExpr { iter_range, accu_init, loop_cond, loop_step, result, .. } = each.as_mut();
            for inner in [&mut *iter_range, accu_init, loop_cond, loop_step, result] {
                charge(inner);
            }
            let id = iter_range.id;
            let over = std::mem::take(iter_range);
            let call = CallExpr { func_name: CHARGE.into(), target: None, args: vec![over] };
            *iter_range = IdedExpr { id, expr: Expr::Call(call) };
        }
        Expr::List(list) => list.elements.iter_mut().for_each(charge),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| match &mut entry.expr {
            EntryExpr::MapEntry(entry) => {
                charge(&mut entry.key);
                charge(&mut entry.value);
            }
            EntryExpr::StructField(field) => charge(&mut field.value),
        }),
        Expr::Select(select) => charge(&mut select.operand),
        Expr::Struct(_) => {}
    }
}

/// What went wrong, without the values that a generic message would print.
fn told(error: &ExecutionError) -> String {
    let text = match error {
        ExecutionError::NoSuchKey(key) => {
            format!("there is no field `{key}`; ask with has() where it may be absent")
        }
        ExecutionError::UndeclaredReference(name) => format!("there is no `{name}`"),
        ExecutionError::NoSuchOverload(overload) => {
            format!("`{}` does not go with {}", overload.function(), overload.argument_types().join(" and "))
        }
        ExecutionError::UnsupportedBinaryOperator(op, a, b) => {
            format!("`{op}` does not go with {} and {}", type_name(a), type_name(b))
        }
        ExecutionError::Overflow(op, ..) => format!("`{op}` gives a number that is too large"),
        ExecutionError::FunctionError { function, message } => format!("{function}: {message}"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "division by zero".into(),
        ExecutionError::IndexOutOfBounds(_) => "a list has no such entry".into(),
        ExecutionError::ValuesNotComparable(..) => "values of different types cannot be compared".into(),
        ExecutionError::UnexpectedType { got, want } => format!("{want} is needed, and {got} was given"),
        ExecutionError::InvalidArgumentCount { .. } => "a function has a wrong number of arguments".into(),
        _ => "a value has the wrong type".into(),
    };
    text.chars().take(MAX_ERROR_CHARS).collect()
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::List(_) => "a list",
        Value::Map(_) => "a map",
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => "a number",
        Value::String(_) => "a text",
        Value::Null => "null",
        _ => "something else",
    }
}
