//! `explain`: what a kind and its fields are, from descriptors alone.

use crate::phrasing;
use crate::registry::{Kind, message_doc, pool, registry};
use crate::shape::{Field, Holds, Many, Shape};
use crate::template::templates;
use crate::validate::rules::{Check, NumberRules, TextRules, count_of};
use serde::Serialize;

/// What there is to say about a kind, or about a field of one.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    pub kind: String,
    /// Path of the field, empty for the kind itself.
    pub path: String,
    pub meaning: String,
    /// Its own API version first, then the aliases.
    pub api_versions: Vec<String>,
    /// The field itself, or what is in it, nested fields after their parent.
    pub fields: Vec<Row>,
    /// Rules that are about more than one field.
    pub rules: Vec<String>,
    /// Only for a kind.
    pub outputs: Vec<Row>,
    /// What each template fills.
    pub templates: Vec<TemplateRow>,
}

/// One line of the table: FIELD, TYPE, RULES, MEANING.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    pub field: String,
    #[serde(rename = "type")]
    pub holds: String,
    pub rules: String,
    pub meaning: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TemplateRow {
    pub template: String,
    pub path: String,
    pub value: String,
}

/// The kind has no such field.
#[derive(Debug, thiserror::Error)]
#[error("{kind} has no field `{path}`")]
pub struct NoSuchField {
    pub kind: String,
    pub path: String,
    /// ``did you mean `x`?``, or which fields there are.
    pub help: String,
}

/// Explains a kind, or a field of it: `defaultNodePool`, `spec.defaultNodePool.size`, `metadata`, `status.outputs`.
pub fn explain(kind: &Kind, path: &str) -> Result<Explanation, NoSuchField> {
    let mut out = Explanation {
        kind: kind.name.clone(),
        path: path.to_owned(),
        meaning: kind.doc().to_owned(),
        api_versions: kind.api_versions().map(str::to_owned).collect(),
        fields: Vec::new(),
        rules: Vec::new(),
        outputs: Vec::new(),
        templates: Vec::new(),
    };
    let (mut shape, rest) = match path.split_once('.').unwrap_or((path, "")) {
        ("" | "spec", rest) => (kind.spec_shape(), rest),
        ("metadata", rest) => {
            (pool().get_message_by_name("berth.core.v1.Metadata").map_or(kind.spec_shape(), |d| Shape::of(&d)), rest)
        }
        ("status", rest) => {
            (kind.outputs_shape(), rest.strip_prefix("outputs").map_or("", |rest| rest.trim_start_matches('.')))
        }
        _ => (kind.spec_shape(), path),
    };
    let whole = path.is_empty() || path == "spec";
    let mut field: Option<&Field> = None;
    for name in rest.split('.').filter(|name| !name.is_empty()) {
        // `additionalNodePools[]` and `additionalNodePools[gpu]` mean the same here.
        let name = name.split('[').next().unwrap_or(name);
        let next = shape.field(name).filter(|_| field.is_none_or(|field| field.shape().is_some()));
        let Some(next) = next else {
            let names = || shape.fields.iter().map(|field| field.json.as_str());
            let near = phrasing::did_you_mean(name, names());
            let help = near.unwrap_or_else(|| format!("fields are {}", names().collect::<Vec<_>>().join(", ")));
            return Err(NoSuchField { kind: kind.name.clone(), path: path.to_owned(), help });
        };
        field = Some(next);
        if let Some(inner) = next.shape() {
            shape = inner;
        }
    }
    match field {
        Some(field) => {
            out.meaning = field.doc();
            match (field.holds, field.shape()) {
                (Holds::Message, Some(shape)) => describe(shape, "", &mut out.fields, &mut out.rules),
                _ => {
                    let mut alone = row(field, "");
                    if !field.hint.is_empty() {
                        alone.rules = format!("{}; {}", alone.rules, field.hint);
                    }
                    out.fields.push(alone);
                }
            }
        }
        None => {
            if path == "metadata" || path.starts_with("status") {
                out.meaning = message_doc(&shape.desc);
            }
            describe(shape, "", &mut out.fields, &mut out.rules);
        }
    }
    if whole {
        describe(kind.outputs_shape(), "", &mut out.outputs, &mut out.rules);
    }
    if whole || rest == "template" {
        out.templates = templates(kind)
            .into_iter()
            .map(|(template, filled)| TemplateRow {
                template: template.to_owned(),
                path: filled.path,
                value: filled.value,
            })
            .collect();
    }
    Ok(out)
}

fn describe(shape: &Shape, prefix: &str, rows: &mut Vec<Row>, rules: &mut Vec<String>) {
    for field in &shape.fields {
        rows.push(row(field, prefix));
        if let (Holds::Message, Some(inner)) = (field.holds, field.shape()) {
            let many = if field.many == Many::List { "[]" } else { "" };
            describe(inner, &format!("{prefix}{}{many}.", field.json), rows, rules);
        }
    }
    for rule in &shape.cel {
        let said = if prefix.is_empty() {
            rule.message.clone()
        } else {
            format!("{}: {}", prefix.trim_end_matches('.'), rule.message)
        };
        rules.push(said);
    }
    for members in &shape.required_oneofs {
        let names: Vec<String> = members.iter().map(|index| format!("`{}`", shape.fields[*index].json)).collect();
        let said = format!("exactly one of {}", phrasing::either(&names));
        let of = prefix.trim_end_matches('.');
        rules.push(if of.is_empty() { said } else { format!("{of}: {said}") });
    }
}

fn row(field: &Field, prefix: &str) -> Row {
    Row {
        field: format!("{prefix}{}", field.json),
        holds: type_name(field),
        rules: rules_of(field).join(", "),
        meaning: sentence(&field.doc()),
    }
}

/// A comment as it stands in a table: no full stop, and lower case unless it starts with a name.
fn sentence(doc: &str) -> String {
    const NAMES: [&str; 3] = ["Kubernetes", "Berth", "Kubeconfig"];
    let doc = doc.trim_end_matches('.');
    let first = doc.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let mut chars = doc.chars();
    match chars.next() {
        Some(c) if !NAMES.contains(&first) && !is_cloud(first) && !is_acronym(first) => {
            c.to_lowercase().chain(chars).collect()
        }
        _ => doc.to_owned(),
    }
}

/// Whether kinds are called after this word: `CivoVpc` is one of Civo's.
fn is_cloud(word: &str) -> bool {
    registry()
        .kinds()
        .any(|kind| !word.is_empty() && kind.name.starts_with(word) && word.to_lowercase() == kind.provider)
}

fn is_acronym(word: &str) -> bool {
    word.chars().filter(|c| c.is_uppercase()).count() > 1
}

fn type_name(field: &Field) -> String {
    let one = match field.holds {
        Holds::Text if field.secret => "secret",
        Holds::Text => "string",
        Holds::Bool => "boolean",
        Holds::Unsigned | Holds::Signed => "integer",
        Holds::Message if field.shape().is_some_and(Shape::is_secret_value) => "secret",
        Holds::Message => "object",
        Holds::Reference => "reference",
    };
    match field.many {
        Many::One => one.to_owned(),
        Many::List => format!("list of {one}s"),
        Many::Map => format!("map of {one}s"),
    }
}

/// The rules of a field in words.
pub(crate) fn rules_of(field: &Field) -> Vec<String> {
    let mut out = Vec::new();
    if field.required {
        out.push("required".to_owned());
    }
    match &field.rules.check {
        Check::Nothing => {}
        Check::Text(rules) => text_rules(rules, &mut out),
        Check::Number(rules) => number_rules(rules, &mut out),
        Check::List(rules) => {
            out.extend(rules.min.map(|n| format!("at least {n}")));
            out.extend(rules.max.map(|n| format!("at most {}", count_of(n, "entry", "entries"))));
            if rules.unique {
                out.push("no duplicates".to_owned());
            }
            if let Check::Text(items) = &rules.items {
                text_rules(items, &mut out);
            }
        }
        Check::Map(rules) => {
            out.extend(rules.min.map(|n| format!("at least {n}")));
            out.extend(rules.max.map(|n| format!("at most {}", count_of(n, "entry", "entries"))));
        }
    }
    out.extend(field.format.map(|format| format.describe().to_owned()));
    if let Some((kind, path)) = &field.points_at {
        out.push(format!("{kind} {path}"));
    }
    out
}

fn text_rules(rules: &TextRules, out: &mut Vec<String>) {
    out.extend(rules.exactly.as_ref().map(|text| format!("`{text}`")));
    if !rules.one_of.is_empty() {
        out.push(phrasing::either(&rules.one_of));
    }
    if !rules.none_of.is_empty() {
        out.push(format!("not {}", phrasing::either(&rules.none_of)));
    }
    match rules.min_len {
        Some(1) => out.push("not empty".to_owned()),
        Some(n) => out.push(format!("at least {n} characters")),
        None => {}
    }
    out.extend(rules.max_len.map(|n| format!("at most {}", count_of(n, "character", "characters"))));
    out.extend(rules.prefix.as_ref().map(|text| format!("starts with `{text}`")));
}

fn number_rules(rules: &NumberRules, out: &mut Vec<String>) {
    for (sign, bound) in [("=", rules.exactly), (">", rules.gt), ("≥", rules.gte), ("<", rules.lt), ("≤", rules.lte)]
    {
        out.extend(bound.map(|n| format!("{sign} {n}")));
    }
}
