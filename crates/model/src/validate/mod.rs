//! Rules, checked on a decoded message beside the tree that it was read from, so that every message has its place.
//! Driven by descriptors only: no kind has code here.

mod cel;
pub mod format;
pub(crate) mod rules;
mod text_span;

use crate::diagnostic::{Diagnostic, Span};
use crate::phrasing;
use crate::shape::{Field, Holds, Many, Shape};
use crate::yaml::{Entry, Node};
use prost_reflect::{DynamicMessage, MapKey, Value};
use rules::{CelRule, Check, Subject, Violation, count_of};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write;

/// A path that grows and shrinks with the walk.
#[derive(Default)]
pub(crate) struct Path(pub String);

impl Path {
    pub fn push(&mut self, name: &str) -> usize {
        let before = self.0.len();
        if before > 0 {
            self.0.push('.');
        }
        self.0.push_str(name);
        before
    }

    pub fn push_index(&mut self, index: usize) -> usize {
        let before = self.0.len();
        // Writing to a String cannot fail.
        let _ = write!(self.0, "[{index}]");
        before
    }

    /// A key of a map: `.key`, or `["a.b/c"]` where it would not read as a name.
    pub fn push_key(&mut self, key: &str) -> usize {
        if key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') && !key.is_empty() {
            return self.push(key);
        }
        let before = self.0.len();
        let _ = write!(self.0, "[\"{}\"]", key.escape_default());
        before
    }

    pub fn pop(&mut self, before: usize) {
        self.0.truncate(before);
    }
}

/// What decoding complained about already: rules would only repeat it.
#[derive(Default)]
pub(crate) struct Known {
    /// Starts of fields and entries that could not be decoded.
    pub bad: HashSet<usize>,
    /// Fields that are missing because their names are mistyped: start of the mapping, and camelCase name.
    pub mistyped: HashSet<(usize, String)>,
}

impl Known {
    fn excuses(&self, node: Option<&Node<'_>>, field: &Field) -> bool {
        // Looked up only when something is wrong, so that the common case costs nothing.
        !self.mistyped.is_empty()
            && node.is_some_and(|node| self.mistyped.contains(&(node.span.start, field.json.clone())))
    }

    fn is_bad(&self, at: usize) -> bool {
        !self.bad.is_empty() && self.bad.contains(&at)
    }
}

/// Checks messages and collects what is wrong.
pub(crate) struct Checker<'c> {
    pub file: &'c str,
    /// The whole file.
    pub text: &'c str,
    pub path: Path,
    pub known: &'c Known,
    /// Of a manifest that was written for another tool: what only that tool's validator takes is marked so.
    pub lenient: bool,
    pub out: &'c mut Vec<Diagnostic>,
}

/// Where a scalar stands, and the node it was read from.
type SpanAndNode<'a, 'n> = (Span, Option<&'a Node<'n>>);

/// One thing to check: its value, where it stands, and how messages call it.
struct Item<'a, 'n> {
    field: &'a Field,
    entry: Option<&'a Entry<'n>>,
    /// Where to point when the field itself is not written.
    parent: Span,
}

impl Item<'_, '_> {
    fn at(&self) -> Span {
        self.entry.map_or(self.parent, Entry::pointer)
    }
}

impl Checker<'_> {
    /// Checks a message. `parent` is where to point for fields that are missing from it.
    pub fn message(&mut self, shape: &Shape, message: &DynamicMessage, node: Option<&Node<'_>>, parent: Span) {
        let mut broken: Vec<bool> = vec![false; shape.fields.len()];
        for (index, field) in shape.fields.iter().enumerate() {
            let entry = node.and_then(|node| node.entry(&field.json, &field.name));
            let complained = entry.is_some_and(|entry| self.known.is_bad(entry.key_span.start));
            if complained || self.known.excuses(node, field) {
                broken[index] = true;
                continue;
            }
            let before = self.path.push(&field.json);
            let count = self.out.len();
            self.field(message, &Item { field, entry, parent });
            broken[index] = self.out.len() > count;
            self.path.pop(before);
        }
        for members in &shape.required_oneofs {
            let given = members.iter().any(|index| message.has_field(&shape.fields[*index].desc) || broken[*index]);
            if !given {
                let names: Vec<String> =
                    members.iter().map(|index| format!("`{}`", shape.fields[*index].json)).collect();
                let what = phrasing::humanise(last_name(&self.path.0));
                let text = format!("{what} needs {}", phrasing::either(&names));
                self.report(Violation::firm(text), parent, true);
            }
        }
        for rule in &shape.cel {
            // A rule about a field that is wrong already would only add noise.
            let left_out = rule.own && self.lenient || rule.reads.iter().any(|index| broken[*index]);
            if left_out || cel::holds_for_message(rule, shape, message) {
                continue;
            }
            self.message_rule(rule, shape, message, node, parent);
        }
    }

    fn message_rule(
        &mut self,
        rule: &CelRule,
        shape: &Shape,
        message: &DynamicMessage,
        node: Option<&Node<'_>>,
        parent: Span,
    ) {
        let written = |index: &&usize| {
            let field = &shape.fields[**index];
            node.is_some_and(|node| node.entry(&field.json, &field.name).is_some())
        };
        let about = rule.mentions.iter().find(written).or_else(|| rule.reads.iter().find(written));
        let field = about.map(|index| &shape.fields[*index]);
        let entry = field.and_then(|field| node.and_then(|node| node.entry(&field.json, &field.name)));
        let before = self.path.0.len();
        let mut at = entry.map_or(parent, Entry::pointer);
        if let Some(field) = field {
            self.path.push(&field.json);
            if let Some((index, place)) = entry.and_then(second_of_a_name) {
                self.path.push_index(index);
                self.path.push("name");
                at = place;
            }
        }
        let mut problem = self.diagnostic(Violation::firm(rule.message.clone()), at, false);
        let values: Vec<String> =
            rule.mentions.iter().filter_map(|index| stated(&shape.fields[*index], message)).collect();
        if values.len() > 1 {
            problem.help.push(values.join(", "));
        }
        self.out.push(problem);
        self.path.pop(before);
    }

    fn field(&mut self, message: &DynamicMessage, item: &Item<'_, '_>) {
        let field = item.field;
        let value = message.get_field(&field.desc);
        let given = message.has_field(&field.desc);
        let written = item.entry.is_some_and(|entry| !entry.node.is_null());
        if !given && field.required && !(written && field.holds == Holds::Unsigned && field.many == Many::One) {
            let text = match (written, field.holds) {
                (true, _) if field.many != Many::One => format!("{} must not be empty", field.human),
                (true, Holds::Text) => match field.format {
                    Some(format::Format::Version) => {
                        format!("{} must not be empty: say which version, such as {}", field.human, field.example)
                    }
                    _ => format!("{} must not be empty", field.human),
                },
                _ => format!("{} is required", field.human),
            };
            // What is missing is missing from its parent; an empty `name:` is pointed at itself.
            self.report(Violation::firm(text), item.entry.map_or(item.parent, Entry::pointer), field.secret);
            return;
        }
        match (field.many, value.as_ref()) {
            (Many::One, value) => self.single(field, value, given, written, item),
            (Many::List, Value::List(values)) => self.list(field, values, item),
            (Many::Map, value) => self.map(field, value, item),
            _ => {}
        }
    }

    fn single(&mut self, field: &Field, value: &Value, given: bool, written: bool, item: &Item<'_, '_>) {
        match value {
            Value::Message(inner) if given => {
                let node = item.entry.map(|entry| &entry.node);
                let parent = item.entry.map_or(item.parent, |entry| entry.key_span);
                match field.holds {
                    Holds::Reference => self.reference(field, inner, node, item),
                    _ => self.inner(field, inner, node, parent),
                }
            }
            Value::Message(_) => {}
            // A field of a oneof that is not the chosen one has no value to check.
            _ if field.desc.supports_presence() && !given => {}
            _ => {
                let zero = !given && !written;
                let empty = !field.desc.supports_presence() && !message_value(value);
                if zero || (empty && field.rules.ignore_zero) {
                    return;
                }
                let node = item.entry.map(|entry| &entry.node);
                self.scalar(field, (&field.human, ""), &field.rules.check, value, (item.at(), node));
                if field.cel.iter().any(|rule| !cel::holds_for_value(rule, value)) {
                    let broken: Vec<String> = field
                        .cel
                        .iter()
                        .filter(|rule| !cel::holds_for_value(rule, value))
                        .map(|rule| rule.message.clone())
                        .collect();
                    for text in broken {
                        self.report(Violation::new(text), item.at(), field.secret);
                    }
                }
            }
        }
    }

    fn inner(&mut self, field: &Field, message: &DynamicMessage, node: Option<&Node<'_>>, parent: Span) {
        if let Some(shape) = field.shape() {
            self.message(shape, message, node, parent);
        }
    }

    /// Text or reference: exactly one of the two, and not an empty one.
    fn reference(&mut self, field: &Field, message: &DynamicMessage, node: Option<&Node<'_>>, item: &Item<'_, '_>) {
        if let Some(Value::Message(_)) = message.get_field_by_name("value_from").as_deref()
            && message.has_field_by_name("value_from")
        {
            let parent = item.entry.map_or(item.parent, |entry| entry.key_span);
            self.inner(field, message, node, parent);
            return;
        }
        let parts: Vec<&Field> = field.shape().map(|shape| shape.fields.iter().collect()).unwrap_or_default();
        let complained = parts.iter().any(|part| {
            let entry = node.and_then(|node| node.entry(&part.json, &part.name));
            entry.is_some_and(|entry| self.known.is_bad(entry.key_span.start)) || self.known.excuses(node, part)
        });
        if complained {
            return;
        }
        let value = message.get_field_by_name("value");
        if message.has_field_by_name("value")
            && value.as_deref().and_then(Value::as_str).is_some_and(|text| !text.is_empty())
        {
            return;
        }
        let inner = node.and_then(|node| node.entry("value", "value")).filter(|entry| !entry.node.is_null());
        let text = match (inner.is_some() || node.is_some_and(|node| node.text().is_some()), field.required) {
            (true, true) => format!("{} must not be empty", field.human),
            (true, false) => format!("{} must not be empty: leave it out instead", field.human),
            (false, _) => format!("{} needs `value` or `valueFrom`", field.human),
        };
        self.report(Violation::new(text), inner.map_or(item.at(), Entry::pointer), field.secret);
    }

    /// Rules and format of one scalar.
    fn scalar(
        &mut self,
        field: &Field,
        (human, of): (&str, &str),
        check: &Check,
        value: &Value,
        place: SpanAndNode<'_, '_>,
    ) {
        let (at, node) = place;
        let subject = Subject { human, of, hint: &field.hint, secret: field.secret };
        let violation = match value {
            Value::String(text) => check.text(&subject, text).or_else(|| match field.format {
                Some(format) if !text.is_empty() => format.broken(&subject, text),
                _ => None,
            }),
            Value::U32(number) => check.number(&subject, i64::from(*number)),
            Value::I32(number) => check.number(&subject, i64::from(*number)),
            _ => None,
        };
        if let Some(mut violation) = violation {
            violation.firm |= field.firm;
            let within = violation.within.take();
            let exact = within.zip(node).and_then(|(within, node)| text_span::within(self.text, node, within));
            if let (Some((line, column)), None) = (within, exact) {
                violation.message.push_str(&format!(" (line {line}, column {column} of it)"));
            }
            self.report(violation, exact.unwrap_or(at), field.secret);
        }
    }

    fn list(&mut self, field: &Field, values: &[Value], item: &Item<'_, '_>) {
        let nothing = Check::Nothing;
        let mut items = &nothing;
        let mut unique = false;
        if let Check::List(rules) = &field.rules.check {
            items = &rules.items;
            unique = rules.unique;
            self.size(field, "entry", "entries", values.len(), (rules.min, rules.max), item);
        }
        let one = singular(&field.human);
        let nodes = item.entry.map_or(&[][..], |entry| entry.node.items());
        let mut seen: HashSet<&str> = HashSet::new();
        for (index, value) in values.iter().enumerate() {
            let node = nodes.get(index);
            if node.is_some_and(|node| self.known.is_bad(node.span.start)) {
                continue;
            }
            let before = self.path.push_index(index);
            let at = node.map_or(item.at(), Node::pointer);
            match value {
                Value::Message(message) => self.inner(field, message, node, at),
                Value::String(text) => {
                    if text.is_empty() {
                        self.report(Violation::new(format!("{one} must not be empty")), at, field.secret);
                    } else if unique && !seen.insert(text) {
                        let text = format!("{one} {} is listed twice", phrasing::shown(text));
                        self.report(Violation::new(text), at, field.secret);
                    } else {
                        self.scalar(field, (&one, ""), items, value, (at, node));
                    }
                }
                value => self.scalar(field, (&one, ""), items, value, (at, node)),
            }
            self.path.pop(before);
        }
    }

    fn map(&mut self, field: &Field, value: &Value, item: &Item<'_, '_>) {
        let Some(values) = value.as_map() else { return };
        let nothing = Check::Nothing;
        let (mut keys, mut inner) = (&nothing, &nothing);
        if let Check::Map(rules) = &field.rules.check {
            (keys, inner) = (&rules.keys, &rules.values);
            self.size(field, "entry", "entries", values.len(), (rules.min, rules.max), item);
        }
        let one = singular(&field.human);
        let name = format!("{one} name");
        for entry in item.entry.map_or(&[][..], |entry| entry.node.entries()) {
            let Some(value) = values.get(&MapKey::String(entry.key.to_string())) else { continue };
            let before = self.path.push_key(&entry.key);
            let count = self.out.len();
            self.scalar(field, (&name, ""), keys, &Value::String(entry.key.to_string()), (entry.key_span, None));
            if self.out.len() == count {
                match value {
                    Value::Message(message) => self.inner(field, message, Some(&entry.node), entry.key_span),
                    value => {
                        let of = format!("of {one} {}", phrasing::shown(&entry.key));
                        self.scalar(field, ("value", &of), inner, value, (entry.pointer(), Some(&entry.node)));
                    }
                }
            }
            self.path.pop(before);
        }
    }

    fn size(
        &mut self,
        field: &Field,
        one: &str,
        many: &str,
        n: usize,
        bounds: (Option<u64>, Option<u64>),
        item: &Item<'_, '_>,
    ) {
        let n = n as u64;
        let at = item.entry.map_or(item.parent, |entry| entry.key_span);
        let text = match bounds {
            (Some(min), _) if n < min => format!("{} must have at least {}", field.human, count_of(min, one, many)),
            (_, Some(max)) if n > max => {
                format!("{} must have at most {}, and has {n}", field.human, count_of(max, one, many))
            }
            _ => return,
        };
        self.report(Violation::new(text), at, false);
    }

    fn diagnostic(&self, violation: Violation, at: Span, secret: bool) -> Diagnostic {
        Diagnostic::error(violation.message)
            .elsewhere(self.lenient && !violation.firm)
            .file(self.file)
            .at(at)
            .path(self.path.0.clone())
            .label(violation.label)
            .secret(secret)
    }

    fn report(&mut self, violation: Violation, at: Span, secret: bool) {
        let problem = self.diagnostic(violation, at, secret);
        self.out.push(problem);
    }
}

/// Whether a scalar is anything but the type's zero.
fn message_value(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::U32(n) => *n != 0,
        Value::I32(n) => *n != 0,
        Value::Bool(b) => *b,
        _ => true,
    }
}

/// `spec.civo.token` → `token`.
fn last_name(path: &str) -> &str {
    path.rsplit(['.', ']']).next().unwrap_or(path)
}

/// `tags` → `tag`, for messages about one entry.
pub(crate) fn singular(human: &str) -> String {
    human.strip_suffix('s').unwrap_or(human).to_owned()
}

/// Position and place of the first entry in a list whose name an earlier entry has too.
fn second_of_a_name(entry: &Entry<'_>) -> Option<(usize, Span)> {
    let mut seen = HashSet::new();
    entry.node.items().iter().enumerate().find_map(|(index, item)| {
        let name = item.entry("name", "name")?;
        let text: Cow<'_, str> = name.node.text()?.into();
        (!seen.insert(text)).then_some((index, name.node.span))
    })
}

/// `minNodes is 5`, for a number that a rule's message names.
fn stated(field: &Field, message: &DynamicMessage) -> Option<String> {
    match message.get_field(&field.desc).as_ref() {
        Value::U32(n) if *n > 0 => Some(format!("{} is {n}", field.json)),
        Value::I32(n) if *n != 0 => Some(format!("{} is {n}", field.json)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::pool;

    /// No rule in any proto is one that this interpreter would silently skip.
    #[test]
    fn every_rule_is_handled() {
        let has = regex::Regex::new(r"has\(this\.(\w+)\)").unwrap();
        let mut rules = 0;
        for desc in pool().all_messages().filter(|desc| desc.full_name().starts_with("berth.") && !desc.is_map_entry())
        {
            let shape = Shape::of(&desc);
            for field in &shape.fields {
                let name = field.desc.full_name();
                assert!(field.rules.unhandled.is_empty(), "{name}: {:?}", field.rules.unhandled);
                assert_ne!(field.format, Some(format::Format::Unknown), "{name}: unknown format");
                let (check, inner) = match &field.rules.check {
                    Check::List(rules) => (true, vec![(&rules.items, field.holds)]),
                    Check::Map(rules) => (true, vec![(&rules.keys, Holds::Text), (&rules.values, field.holds)]),
                    check => (false, vec![(check, field.holds)]),
                };
                assert_eq!(check, check && field.many != Many::One, "{name}: rules of a list on a single value");
                for (check, holds) in inner {
                    rules += 1;
                    match check {
                        Check::Nothing => rules -= 1,
                        Check::Text(text) => {
                            assert_eq!(holds, Holds::Text, "{name}: rules of another type");
                            assert!(text.pattern.as_ref().is_none_or(|pattern| pattern.regex().is_some()), "{name}");
                        }
                        Check::Number(_) => assert!(matches!(holds, Holds::Unsigned | Holds::Signed), "{name}"),
                        Check::List(_) | Check::Map(_) => unreachable!("nested rules are unhandled"),
                    }
                }
                if field.format.is_some() {
                    assert_eq!(field.holds, Holds::Text, "{name}: a format needs text");
                    assert_ne!(field.many, Many::Map, "{name}: formats of maps are not checked");
                }
                for rule in &field.cel {
                    assert_eq!(field.many, Many::One, "{name}: CEL on lists is not checked");
                    assert!(rule.program.program(&rule.expression).is_some(), "{name}: {}", rule.expression);
                }
                // The walk knows no other types.
                if field.holds == Holds::Text {
                    let text = matches!(field.desc.kind(), prost_reflect::Kind::String) || field.many == Many::Map;
                    assert!(text || desc.full_name().contains("Options"), "{name}: a type that is not handled");
                }
            }
            for rule in &shape.cel {
                rules += 1;
                assert!(!rule.message.is_empty(), "{}: a rule without words", shape.desc.full_name());
                assert!(rule.program.program(&rule.expression).is_some(), "{}", rule.expression);
                for field in has.captures_iter(&rule.expression) {
                    let presence = desc.get_field_by_name(&field[1]).is_some_and(|field| field.supports_presence());
                    assert!(presence, "{}: has() of a field without presence", rule.expression);
                }
                // A message in which nothing is set must be something that the expression can be run on.
                let program = rule.program.program(&rule.expression).unwrap();
                assert!(program.references().has_variable("this"));
            }
        }
        assert!(rules > 60, "only {rules} rules found: are the descriptors complete?");
    }
}
