//! Tests of policies: `kind: PolicyTest` with cases. It is no kind of resource, and is read here with positions as
//! manifests are.

use crate::decode::{self, Origin};
use crate::diagnostic::{Diagnostic, Span};
use crate::json;
use crate::manifest::Manifest;
use crate::phrasing;
use crate::yaml::{Documents, Entry, Node, Plain, Value, resolve};
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// The `kind` of such a document.
pub const POLICY_TEST: &str = "PolicyTest";
/// Most cases in one file.
pub const MAX_CASES: usize = 10_000;

const ACTIONS: [&str; 5] = ["create", "update", "replace", "delete", "resume"];
const OPS: [&str; 5] = ["create", "update", "replace", "delete", "adopt"];
const EXPECTED: [&str; 3] = ["allow", "deny", "warn"];
const TOP: [&str; 3] = ["apiVersion", "kind", "cases"];
const FIELDS: [&str; 10] =
    ["name", "resource", "old", "action", "units", "now", "actor", "expect", "message", "policy"];
const UNIT_FIELDS: [&str; 5] = ["key", "type", "op", "changes", "losesData"];

/// One plan, and what the policies are to say of it.
#[derive(Clone)]
pub struct PolicyCase {
    pub name: String,
    pub file: String,
    pub span: Span,
    pub resource: Manifest,
    /// The spec before, as rules see it.
    pub old: Option<Json>,
    pub action: String,
    /// As rules see them: key, type, op, changes, losesData.
    pub units: Json,
    /// RFC 3339, checked by who reads times; empty when not given.
    pub now: String,
    pub now_span: Span,
    pub actor: String,
    /// `allow`, `deny` or `warn`.
    pub expect: String,
    /// What a verdict is to contain; empty for anything.
    pub message: String,
    /// Which policy is to say it; empty for any.
    pub policy: String,
}

/// Reads every test document of a file and reports all that is wrong.
pub fn policy_tests(file: &str, bytes: &[u8]) -> (Vec<PolicyCase>, Vec<Diagnostic>) {
    let documents = match Documents::new(file, bytes) {
        Ok(documents) => documents,
        Err(problem) => return (Vec::new(), vec![*problem]),
    };
    let name: Arc<str> = file.into();
    let text: Arc<str> = String::from_utf8_lossy(bytes).into();
    let mut reader = Reader { file, cases: Vec::new(), out: Vec::new() };
    let mut empty = true;
    for document in documents {
        reader.out.extend(document.problems);
        let Some(root) = document.root.filter(|root| !root.is_null()) else { continue };
        empty = false;
        let origin = Origin { file: &name, text: &text, index: document.index };
        reader.document(&origin, &root);
    }
    if empty && reader.out.is_empty() {
        reader.out.push(Diagnostic::error("the file holds no tests").file(file));
    }
    reader.out.sort_by_key(|problem| problem.span.map(|span| span.start));
    // A resource that several cases name by an alias is wrong once.
    reader.out.dedup();
    (reader.cases, reader.out)
}

struct Reader<'r> {
    file: &'r str,
    cases: Vec<PolicyCase>,
    out: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn report(&mut self, message: impl Into<String>, at: Span, path: &str) -> &mut Diagnostic {
        let index = self.out.len();
        self.out.push(Diagnostic::error(message).file(self.file).at(at).path(path));
        &mut self.out[index]
    }

    fn known(&mut self, node: &Node<'_>, names: &[&'static str], path: &str) {
        for entry in node.entries().iter().filter(|entry| !names.contains(&entry.key.as_ref())) {
            let near = phrasing::did_you_mean(&entry.key, names.iter().copied());
            let message = format!("unknown field {}", phrasing::shown(&entry.key));
            let help = near.is_none().then(|| format!("fields here are {}", names.join(", ")));
            let problem = self.report(message, entry.key_span, path);
            problem.label = near;
            problem.help.extend(help);
        }
    }

    fn document(&mut self, origin: &Origin<'_>, root: &Node<'_>) {
        let kind = root.entry("kind", "kind");
        if kind.and_then(|entry| entry.node.text()) != Some(POLICY_TEST) {
            let message = format!("a file of policy tests begins with `kind: {POLICY_TEST}`");
            let at = kind.map_or(root.pointer(), Entry::pointer);
            self.report(message, at, "kind").help.push("policies themselves are given with -f".into());
            return;
        }
        self.known(root, &TOP, "");
        let Some(cases) = root.entry("cases", "cases").filter(|entry| !entry.node.items().is_empty()) else {
            let at = root.entry("cases", "cases").map_or(root.pointer(), |entry| entry.key_span);
            self.report("cases is required: a list of plans and what is expected of them", at, "cases");
            return;
        };
        for (index, node) in cases.node.items().iter().enumerate() {
            if self.cases.len() >= MAX_CASES {
                self.report(format!("a file has at most {MAX_CASES} cases"), node.pointer(), "cases");
                return;
            }
            self.case(origin, node, &format!("cases[{index}]"), index);
        }
    }

    fn case(&mut self, origin: &Origin<'_>, node: &Node<'_>, path: &str, index: usize) {
        if !matches!(node.value, Value::Map { .. }) {
            self.report("a case must be a mapping with `resource` and `expect`", node.pointer(), path);
            return;
        }
        let found = self.out.len();
        self.known(node, &FIELDS, path);
        let given = |name| node.entry(name, name).filter(|entry| !entry.node.is_null());
        let resource = match given("resource") {
            Some(entry) => decode::document(origin, &entry.node, &mut self.out),
            None => {
                self.report("resource is required: the manifest that is planned", node.pointer(), path);
                None
            }
        };
        let old = given("old").and_then(|entry| {
            let value = plain(&entry.node);
            let shape = resource.as_ref()?.kind.spec_shape();
            match json::message_from(shape, &value, "old") {
                Ok(message) => Some(json::message_json(shape, &message)),
                Err(message) => {
                    self.report(message, entry.key_span, &format!("{path}.old"))
                        .help
                        .push("old is the spec before, with its fields' camelCase names".into());
                    None
                }
            }
        });
        let usual = if given("old").is_some() { "update" } else { "create" };
        let action = self.word(node, "action", &ACTIONS, path).unwrap_or_else(|| usual.to_owned());
        let units = self.units(node, &action, path);
        let expect = self.word(node, "expect", &EXPECTED, path);
        if given("expect").is_none() {
            self.report("expect is required: allow, deny or warn", node.pointer(), &format!("{path}.expect"));
        }
        let mut text = |name: &str, usual: &str| match node.entry(name, name).filter(|entry| !entry.node.is_null()) {
            None => usual.to_owned(),
            Some(entry) => entry.node.text().map(str::to_owned).unwrap_or_else(|| {
                self.report(format!("{name} must be text"), entry.pointer(), &format!("{path}.{name}"));
                String::new()
            }),
        };
        let case = PolicyCase {
            name: text("name", &format!("case {}", index + 1)),
            file: origin.file.to_string(),
            span: node.pointer(),
            now: text("now", ""),
            now_span: given("now").map_or(node.pointer(), Entry::pointer),
            actor: text("actor", "token:test"),
            message: text("message", ""),
            policy: text("policy", ""),
            resource: match resource {
                Some(resource) => resource,
                None => return,
            },
            old,
            action,
            units,
            expect: expect.unwrap_or_default(),
        };
        if self.out.len() == found {
            self.cases.push(case);
        }
    }

    fn word(&mut self, node: &Node<'_>, name: &str, allowed: &[&'static str], path: &str) -> Option<String> {
        let entry = node.entry(name, name).filter(|entry| !entry.node.is_null())?;
        let text = entry.node.text().unwrap_or_default();
        if allowed.contains(&text) {
            return Some(text.to_owned());
        }
        let message = format!("{name} must be {}, not {}", phrasing::either(allowed), phrasing::shown(text));
        let near = phrasing::did_you_mean(text, allowed.iter().copied());
        self.report(message, entry.pointer(), &format!("{path}.{name}")).label = near;
        None
    }

    fn units(&mut self, node: &Node<'_>, action: &str, path: &str) -> Json {
        let Some(entry) = node.entry("units", "units").filter(|entry| !entry.node.is_null()) else { return json!([]) };
        let mut units = Vec::new();
        if !matches!(entry.node.value, Value::Seq { .. }) {
            self.report("units must be a list", entry.key_span, &format!("{path}.units"));
        }
        for (index, unit) in entry.node.items().iter().enumerate() {
            let path = format!("{path}.units[{index}]");
            self.known(unit, &UNIT_FIELDS, &path);
            let op = self.word(unit, "op", &OPS, &path);
            let usual = if OPS.contains(&action) { action } else { "update" };
            let mut value = json!({"key": "", "type": "", "changes": [], "losesData": false});
            if let (Json::Object(all), Json::Object(given)) = (&mut value, plain(unit)) {
                all.extend(given);
                all.insert("op".into(), op.unwrap_or_else(|| usual.to_owned()).into());
            }
            units.push(value);
        }
        Json::from(units)
    }
}

/// A tree as plain JSON.
fn plain(node: &Node<'_>) -> Json {
    let scalar = |text: &str| match resolve(text) {
        Plain::Null => Json::Null,
        Plain::Bool(b) => Json::Bool(b),
        Plain::Int(_) | Plain::Number => text
            .parse::<i64>()
            .map(Json::from)
            .or_else(|_| text.parse::<f64>().map(Json::from))
            .unwrap_or_else(|_| Json::from(text)),
        Plain::Text => Json::from(text),
    };
    node.to_json(&scalar, &str::to_owned)
}
