//! CEL rules: compiled once, run on the fields that a rule reads.

use super::rules::CelRule;
use crate::shape::Shape;
use cel::objects::{Key, Map};
use cel::{Context, Env, Program, Value};
use prost_reflect::{DynamicMessage, MapKey, Value as Field};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, RwLock};

/// A program, compiled on first use. Messages that share an expression share its program.
#[derive(Debug, Default)]
pub(crate) struct Compiled(OnceLock<Option<&'static Program>>);

impl Compiled {
    pub fn program(&self, expression: &str) -> Option<&'static Program> {
        *self.0.get_or_init(|| {
            static SHARED: OnceLock<RwLock<HashMap<String, Option<&'static Program>>>> = OnceLock::new();
            let mut shared =
                SHARED.get_or_init(Default::default).write().unwrap_or_else(|poisoned| poisoned.into_inner());
            *shared
                .entry(expression.to_owned())
                .or_insert_with(|| Program::compile(expression).ok().map(|program| &*Box::leak(Box::new(program))))
        })
    }
}

fn env() -> Arc<Env> {
    static ENV: OnceLock<Arc<Env>> = OnceLock::new();
    ENV.get_or_init(|| Arc::new(Env::stdlib())).clone()
}

/// Whether a message keeps a rule. A rule that cannot be run counts as broken: silence would hide it.
pub(crate) fn holds_for_message(rule: &CelRule, shape: &Shape, message: &DynamicMessage) -> bool {
    let fields = rule.reads.iter().map(|index| &shape.fields[*index]);
    // Text and numbers always have a value; messages are only there when they were given, so that `has()` can ask.
    let fields = fields.filter(|field| !field.desc.supports_presence() || message.has_field(&field.desc));
    let map = fields
        .map(|field| (Key::String(Arc::new(field.name.clone())), value(&message.get_field(&field.desc))))
        .collect();
    holds(rule, Value::Map(Map { map: Arc::new(map) }))
}

/// Whether a single value keeps a rule.
pub(crate) fn holds_for_value(rule: &CelRule, of: &Field) -> bool {
    holds(rule, value(of))
}

fn holds(rule: &CelRule, this: Value) -> bool {
    let Some(program) = rule.program.program(&rule.expression) else { return false };
    let mut context = Context::with_env(env());
    context.add_variable_from_value("this", this);
    matches!(program.execute(&context), Ok(Value::Bool(true)))
}

fn value(field: &Field) -> Value {
    match field {
        Field::Bool(b) => Value::Bool(*b),
        Field::I32(n) => Value::Int((*n).into()),
        Field::I64(n) => Value::Int(*n),
        Field::U32(n) => Value::UInt((*n).into()),
        Field::U64(n) => Value::UInt(*n),
        Field::F32(n) => Value::Float((*n).into()),
        Field::F64(n) => Value::Float(*n),
        Field::String(text) => Value::String(Arc::new(text.clone())),
        Field::Bytes(bytes) => Value::Bytes(Arc::new(bytes.to_vec())),
        Field::EnumNumber(n) => Value::Int((*n).into()),
        Field::Message(message) => Value::Map(Map { map: Arc::new(fields_of(message)) }),
        Field::List(items) => Value::List(Arc::new(items.iter().map(value).collect())),
        Field::Map(entries) => {
            let map: HashMap<Key, Value> = entries.iter().map(|(name, item)| (key(name), value(item))).collect();
            Value::Map(Map { map: Arc::new(map) })
        }
    }
}

fn fields_of(message: &DynamicMessage) -> HashMap<Key, Value> {
    let desc = prost_reflect::ReflectMessage::descriptor(message);
    let fields = desc.fields().filter(|field| !field.supports_presence() || message.has_field(field));
    fields.map(|field| (Key::String(Arc::new(field.name().to_owned())), value(&message.get_field(&field)))).collect()
}

fn key(name: &MapKey) -> Key {
    match name {
        MapKey::Bool(b) => Key::Bool(*b),
        MapKey::I32(n) => Key::Int((*n).into()),
        MapKey::I64(n) => Key::Int(*n),
        MapKey::U32(n) => Key::Uint((*n).into()),
        MapKey::U64(n) => Key::Uint(*n),
        MapKey::String(text) => Key::String(Arc::new(text.clone())),
    }
}
