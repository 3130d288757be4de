//! Messages as decoding, validation, references and explanations need them: options read once, names looked up fast.

use crate::pb::berth::RefOptions;
use crate::pb::buf::validate::{FieldRules, MessageRules, OneofRules};
use crate::phrasing;
use crate::registry::pool;
use crate::validate::format::Format;
use crate::validate::rules::{CelRule, Check, Rules};
use prost_reflect::{DynamicMessage, ExtensionDescriptor, FieldDescriptor, Kind as Type, MessageDescriptor};
use std::collections::HashMap;
use std::sync::{OnceLock, RwLock};

/// A message and its fields.
#[derive(Debug)]
pub struct Shape {
    pub desc: MessageDescriptor,
    pub fields: Vec<Field>,
    pub(crate) cel: Vec<CelRule>,
    /// Oneofs of which exactly one field must be given, by the fields' positions.
    pub(crate) required_oneofs: Vec<Vec<usize>>,
    /// Every other oneof: at most one field may be given.
    pub(crate) oneofs: Vec<Vec<usize>>,
    by_name: HashMap<String, usize>,
}

/// How many values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Many {
    One,
    List,
    /// By string keys.
    Map,
}

/// What a value of a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    Text,
    Bool,
    Unsigned,
    Signed,
    Message,
    /// A `StringValueOrRef`: text, or a reference.
    Reference,
}

#[derive(Debug)]
pub struct Field {
    pub desc: FieldDescriptor,
    /// snake_case.
    pub name: String,
    /// camelCase.
    pub json: String,
    /// As messages call it.
    pub human: String,
    pub many: Many,
    pub holds: Holds,
    pub required: bool,
    pub(crate) rules: Rules,
    pub(crate) cel: Vec<CelRule>,
    pub format: Option<Format>,
    /// What a reference points at when kind and path are omitted: (kind, path).
    pub points_at: Option<(String, String)>,
    pub secret: bool,
    /// Taken in any case and kept as the rule spells it.
    pub any_case: bool,
    /// The field that took this one's place, where one did.
    pub older_name_of: Option<String>,
    /// Other tools' validators hold to the rule too.
    pub(crate) firm: bool,
    pub hint: String,
    pub example: String,
    inner: OnceLock<Option<&'static Shape>>,
}

impl Field {
    /// The message that the field holds, if it holds one.
    pub fn shape(&self) -> Option<&'static Shape> {
        *self.inner.get_or_init(|| value_type(&self.desc).as_message().map(Shape::of))
    }

    /// A text as it is kept: where case does not matter, as the rule spells it.
    pub(crate) fn kept<'t>(&'t self, text: &'t str) -> &'t str {
        match &self.rules.check {
            Check::Text(rules) if self.any_case => {
                rules.one_of.iter().find(|allowed| allowed.eq_ignore_ascii_case(text)).map_or(text, String::as_str)
            }
            _ => text,
        }
    }

    /// A text that is given by its number, counted from 1, as protobuf's enums may be.
    pub(crate) fn numbered(&self, number: i64) -> Option<&str> {
        let Check::Text(rules) = &self.rules.check else { return None };
        let index = usize::try_from(number).ok().filter(|_| self.any_case)?.checked_sub(1)?;
        rules.one_of.get(index).map(String::as_str)
    }

    /// The comment above the field.
    pub fn doc(&self) -> String {
        crate::registry::field_doc(&self.desc)
    }
}

/// The type of a field's value, or of a map's values.
fn value_type(desc: &FieldDescriptor) -> Type {
    match desc.kind() {
        Type::Message(entry) if desc.is_map() => entry.map_entry_value_field().kind(),
        kind => kind,
    }
}

/// Full name of the message that stands for "text or reference".
pub(crate) const REFERENCE: &str = "berth.core.v1.StringValueOrRef";
/// Full name of the message that stands for a credential.
pub(crate) const SECRET_VALUE: &str = "berth.core.v1.SecretValue";

impl Shape {
    /// The shape of a message; made once, on first use.
    pub fn of(desc: &MessageDescriptor) -> &'static Shape {
        static SHAPES: OnceLock<RwLock<HashMap<String, &'static Shape>>> = OnceLock::new();
        let shapes = SHAPES.get_or_init(Default::default);
        let known = shapes.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(desc.full_name()).copied();
        if let Some(shape) = known {
            return shape;
        }
        let made = Shape::read(desc);
        let mut shapes = shapes.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Another thread may have been faster: all must see the same one. Leaking is bounded by the number of messages.
        shapes.entry(desc.full_name().to_owned()).or_insert_with(|| Box::leak(Box::new(made)))
    }

    /// A field by its camelCase or snake_case name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.by_name.get(name).map(|index| &self.fields[*index])
    }

    pub fn is_secret_value(&self) -> bool {
        self.desc.full_name() == SECRET_VALUE
    }

    fn read(desc: &MessageDescriptor) -> Self {
        let extensions = Extensions::get();
        let fields: Vec<Field> = desc.fields().map(|field| Field::read(field, extensions)).collect();
        let mut by_name = HashMap::new();
        for (index, field) in fields.iter().enumerate() {
            by_name.insert(field.name.clone(), index);
            by_name.insert(field.json.clone(), index);
        }
        let position = |name: &str| fields.iter().position(|field| field.name == name);
        let (mut required_oneofs, mut oneofs) = (Vec::new(), Vec::new());
        for oneof in desc.oneofs().filter(|oneof| !oneof.is_synthetic()) {
            let members = oneof.fields().filter_map(|field| position(field.name())).collect();
            let rules: Option<OneofRules> = extensions.oneof.as_ref().and_then(|ext| typed(&oneof.options(), ext));
            match rules.and_then(|rules| rules.required) {
                Some(true) => required_oneofs.push(members),
                _ => oneofs.push(members),
            }
        }
        let rules: Option<MessageRules> = extensions.message.as_ref().and_then(|ext| typed(&desc.options(), ext));
        let cel = rules.map(|rules| rules.cel.into_iter().map(|rule| CelRule::read(rule, &fields)).collect());
        Shape { desc: desc.clone(), cel: cel.unwrap_or_default(), fields, required_oneofs, oneofs, by_name }
    }
}

impl Field {
    fn read(desc: FieldDescriptor, extensions: &Extensions) -> Self {
        let options = desc.options();
        let text = |ext: &Option<ExtensionDescriptor>| match ext {
            Some(ext) => options.get_extension(ext).as_str().unwrap_or_default().to_owned(),
            None => String::new(),
        };
        let rules: FieldRules = extensions.field.as_ref().and_then(|ext| typed(&options, ext)).unwrap_or_default();
        let checks = Rules::read(rules.clone());
        debug_assert!(checks.unhandled.is_empty(), "{}: {:?}", desc.full_name(), checks.unhandled);
        let points_at: Option<RefOptions> = extensions.reference.as_ref().and_then(|ext| typed(&options, ext));
        let flag = |ext: &Option<ExtensionDescriptor>| {
            ext.as_ref().is_some_and(|ext| options.get_extension(ext).as_bool().unwrap_or_default())
        };
        let many = match (desc.is_map(), desc.is_list()) {
            (true, _) => Many::Map,
            (_, true) => Many::List,
            _ => Many::One,
        };
        let holds = match value_type(&desc) {
            Type::Message(message) if message.full_name() == REFERENCE => Holds::Reference,
            Type::Message(_) => Holds::Message,
            Type::Bool => Holds::Bool,
            Type::Uint32 => Holds::Unsigned,
            Type::Int32 => Holds::Signed,
            _ => Holds::Text,
        };
        Field {
            name: desc.name().to_owned(),
            json: desc.json_name().to_owned(),
            human: phrasing::humanise(desc.name()),
            many,
            holds,
            required: rules.required.unwrap_or_default(),
            cel: rules.cel.iter().map(|rule| CelRule::read(rule.clone(), &[])).collect(),
            rules: checks,
            format: Format::named(&text(&extensions.format)),
            points_at: points_at.map(|to| (to.kind, to.path)),
            secret: flag(&extensions.secret),
            any_case: flag(&extensions.any_case),
            older_name_of: Some(text(&extensions.older_name_of)).filter(|name| !name.is_empty()),
            firm: flag(&extensions.firm),
            hint: text(&extensions.hint),
            example: text(&extensions.example),
            inner: OnceLock::new(),
            desc,
        }
    }
}

/// An option as its generated type.
fn typed<T: prost::Message + Default>(options: &DynamicMessage, ext: &ExtensionDescriptor) -> Option<T> {
    if !options.has_extension(ext) {
        return None;
    }
    options.get_extension(ext).as_message()?.transcode_to().ok()
}

struct Extensions {
    field: Option<ExtensionDescriptor>,
    message: Option<ExtensionDescriptor>,
    oneof: Option<ExtensionDescriptor>,
    reference: Option<ExtensionDescriptor>,
    secret: Option<ExtensionDescriptor>,
    format: Option<ExtensionDescriptor>,
    hint: Option<ExtensionDescriptor>,
    example: Option<ExtensionDescriptor>,
    any_case: Option<ExtensionDescriptor>,
    older_name_of: Option<ExtensionDescriptor>,
    firm: Option<ExtensionDescriptor>,
}

impl Extensions {
    fn get() -> &'static Self {
        static EXTENSIONS: OnceLock<Extensions> = OnceLock::new();
        EXTENSIONS.get_or_init(|| {
            let named = |name: &str| pool().get_extension_by_name(name);
            Extensions {
                field: named("buf.validate.field"),
                message: named("buf.validate.message"),
                oneof: named("buf.validate.oneof"),
                reference: named("berth.ref"),
                secret: named("berth.secret"),
                format: named("berth.format"),
                hint: named("berth.hint"),
                example: named("berth.example"),
                any_case: named("berth.any_case"),
                older_name_of: named("berth.older_name_of"),
                firm: named("berth.firm"),
            }
        })
    }
}
