//! The OpenAPI document, made from the descriptors: comments become descriptions, options become paths and security.

use super::problem::{self, HttpOnly};
use crate::api::methods::{Access, Method, Rest, Segment, methods};
use crate::api::page::PAGE_MAX;
use crate::fault::Code;
use crate::limits::BODY_BYTES_MAX;
use prost_reflect::{Cardinality, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Texts that take one of a few values, by message and field.
const CHOICES: [(&str, &[&str]); 7] = [
    ("ListTasksRequest.state", &["", "queued", "running", "done", "failed", "cancelled", "open"]),
    ("ListTasksRequest.op", &["", "apply", "delete", "drift", "plan", "import"]),
    ("Task.state", &["queued", "running", "done", "failed", "cancelled"]),
    ("Task.op", &["apply", "delete", "drift", "plan", "import"]),
    ("Applied.result", &["created", "updated", "unchanged", "deleting"]),
    ("CreateTokenRequest.role", &["viewer", "operator", "admin", "worker"]),
    ("Problem.severity", &["error", "warning"]),
];
/// A request that a reader can send as it is.
const MANIFEST: &str =
    "apiVersion: civo.berth.dev/v1\nkind: CivoVpc\nmetadata: {name: net}\nspec: {networkName: net, region: fra1}\n";
/// Parts of an identity have at most so many bytes.
const NAME_MAX: usize = 256;

pub fn document() -> Value {
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    let mut schemas = Schemas::default();
    for method in methods().all() {
        let Some(rest) = &method.rest else { continue };
        let operation = operation(method, &mut schemas);
        let path = rest
            .segments
            .iter()
            .map(|segment| match segment {
                Segment::Literal(text) => format!("/{text}"),
                Segment::Field(name) => format!("/{{{name}}}"),
            })
            .collect();
        paths.entry(path).or_default().insert(rest.verb.to_ascii_lowercase(), operation);
    }
    for (path, operation) in pages() {
        paths.entry(path.into()).or_default().insert("get".into(), operation);
    }
    // What only errors hold.
    for name in ["berth.api.v1.Problem", "berth.api.v1.Conflict"] {
        if let Some(message) = methods().pool.get_message_by_name(name) {
            schemas.reference(&message);
        }
    }
    let mut all: BTreeMap<String, Value> = schemas.done;
    all.insert("ProblemDocument".into(), problem_schema());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Berth",
            "summary": "Kubernetes clusters in clouds that you control",
            "description": "The control plane's API as JSON. The same API is served as gRPC on the same port, with \
                reflection. Every error is a problem document (RFC 9457).",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "tags": tags(),
        "paths": paths,
        "components": {
            "schemas": all,
            "responses": responses(),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A token of Berth's: `berth token create`."},
            },
        },
    })
}

fn tags() -> Vec<Value> {
    let services = methods().pool.services().filter(|service| service.package_name() == "berth.api.v1");
    let rest = services.filter(|service| service.name() != "WorkerService");
    let mut tags: Vec<Value> = rest
        .map(|service| match comment(&service.parent_file(), service.path()) {
            text if text.is_empty() => json!({"name": service.name()}),
            text => json!({"name": service.name(), "description": text}),
        })
        .collect();
    tags.push(json!({"name": "Server", "description": "The server itself."}));
    tags
}

fn operation(method: &Method, schemas: &mut Schemas) -> Value {
    let Some(rest) = &method.rest else { return Value::Null };
    let descriptor = &method.descriptor;
    let input = descriptor.input();
    let in_path: BTreeSet<&str> = rest
        .segments
        .iter()
        .filter_map(|segment| if let Segment::Field(name) = segment { Some(name.as_str()) } else { None })
        .collect();
    let parameters = parameters(method, rest, &input, &in_path, schemas);
    let mut operation = json!({
        "operationId": method.label.replace('.', "_"),
        "tags": [descriptor.parent_service().name()],
        "summary": method.summary,
        "responses": answers(method, &input, !in_path.is_empty(), schemas),
    });
    describe(&mut operation, &description(method));
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if method.is_public() {
        operation["security"] = json!([]);
    }
    if rest.has_body() {
        operation["requestBody"] = request_body(&input, &in_path, schemas);
    }
    operation
}

/// The fields of the request that stand in the path or in the query, and the header of streams.
fn parameters(
    method: &Method,
    rest: &Rest,
    input: &MessageDescriptor,
    in_path: &BTreeSet<&str>,
    schemas: &mut Schemas,
) -> Vec<Value> {
    let mut parameters = Vec::new();
    for field in input.fields() {
        let path = in_path.contains(field.name());
        if !path && rest.has_body() {
            continue;
        }
        let mut schema = field_schema(&field, schemas);
        if path {
            schema["minLength"] = json!(1);
        }
        let mut parameter =
            json!({"name": field.json_name(), "in": if path { "path" } else { "query" }, "schema": schema});
        if path {
            parameter["required"] = json!(true);
            match field.name() {
                "kind" => parameter["example"] = json!("CivoVpc"),
                "name" => parameter["example"] = json!("net"),
                _ => {}
            }
        }
        describe(&mut parameter, &comment(&field.parent_message().parent_file(), field.path()));
        parameters.push(parameter);
    }
    if method.streams {
        parameters.push(json!({
            "name": "Last-Event-ID", "in": "header", "schema": {"type": "integer", "format": "int64"},
            "description": "Position of the last event that was seen, as browsers send it; overrides `after`.",
        }));
    }
    parameters
}

/// The method's comment, who may call it, and whether it is audited.
fn description(method: &Method) -> String {
    let descriptor = &method.descriptor;
    let text = comment(&descriptor.parent_service().parent_file(), descriptor.path());
    let needs = match method.access {
        Access::Public => "Needs no token.",
        Access::Anyone => "Needs a valid token of any role.",
        Access::Viewer => "Needs the role viewer.",
        Access::Operator => "Needs the role operator.",
        Access::Admin => "Needs the role admin.",
        Access::Worker | Access::Unspecified => "",
    };
    let mut text = [text.as_str(), needs].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n");
    if !method.audit.is_empty() {
        text.push_str(" Written to the audit log.");
    }
    text
}

/// The request without the fields that stand in the path.
fn request_body(input: &MessageDescriptor, in_path: &BTreeSet<&str>, schemas: &mut Schemas) -> Value {
    let schema = match in_path.is_empty() {
        true => schemas.reference(input),
        false => {
            let given: Vec<FieldDescriptor> = input.fields().filter(|field| !in_path.contains(field.name())).collect();
            object(given.into_iter(), schemas)
        }
    };
    let mut content = json!({"schema": schema});
    if input.get_field_by_name("files").is_some() {
        content["example"] = json!({"files": [{"name": "net.yaml", "text": MANIFEST}]});
    }
    json!({"content": {"application/json": content}})
}

/// Every status that the operation can answer with.
fn answers(method: &Method, input: &MessageDescriptor, named: bool, schemas: &mut Schemas) -> Value {
    let mut answers = Map::new();
    let ok = match method.streams {
        true => json!({
            "description": "A stream of server-sent events. Each has its position as its id and a message as JSON as its \
                data; an event `problem` holds a problem document and ends the stream.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }),
        false => json!({
            "description": "Done.",
            "content": {"application/json": {"schema": schemas.reference(&method.descriptor.output())}},
        }),
    };
    answers.insert("200".into(), ok);
    let has_body = method.rest.as_ref().is_some_and(|rest| rest.has_body());
    let changes = method.rest.as_ref().is_some_and(|rest| rest.verb != "GET");
    let mut codes =
        vec![Code::InvalidArgument, Code::TooLarge, Code::TooMany, Code::Internal, Code::Unavailable, Code::TimedOut];
    let mut http = vec![HttpOnly::NotAcceptable];
    // Logging in needs no token, and can fail for the same reasons as one.
    if !method.is_public() || changes {
        codes.extend([Code::Unauthenticated, Code::Denied]);
    }
    if named || changes {
        codes.extend([Code::NotFound, Code::Conflict]);
    }
    if has_body {
        http.push(HttpOnly::UnsupportedMediaType);
    }
    if input.get_field_by_name("files").is_some() {
        codes.push(Code::InvalidManifest);
    }
    let statuses: BTreeSet<u16> =
        codes.into_iter().map(Code::http).chain(http.into_iter().map(|what| what.row().1)).collect();
    for status in statuses {
        answers.insert(status.to_string(), json!({"$ref": format!("#/components/responses/{status}")}));
    }
    Value::Object(answers)
}

/// What each error status means.
fn responses() -> Value {
    let mut said: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in Code::ALL {
        said.entry(code.http()).or_default().push(problem::title(code));
    }
    for what in [HttpOnly::MethodNotAllowed, HttpOnly::NotAcceptable, HttpOnly::UnsupportedMediaType] {
        let (_, status, title) = what.row();
        said.entry(status).or_default().push(title);
    }
    let responses = said.into_iter().map(|(status, titles)| {
        let response = json!({
            "description": format!("{}.", titles.join(", or ").to_string()),
            "content": {problem::MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
        });
        (status.to_string(), response)
    });
    Value::Object(responses.collect())
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "description": "An RFC 9457 problem document.",
        "required": ["type", "title", "status", "detail", "instance"],
        "properties": {
            "type": {"type": "string", "format": "uri", "description": format!("{} and the error's code.", problem::TYPES)},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string", "description": "What is wrong, for people."},
            "instance": {"type": "string", "description": "The path that was asked."},
            "help": {"type": "array", "items": {"type": "string"}, "description": "What to check and what to do."},
            "problems": {"type": "array", "items": {"$ref": "#/components/schemas/Problem"},
                "description": "What is wrong at which place, as the command line shows it."},
            "conflicts": {"type": "array", "items": {"$ref": "#/components/schemas/Conflict"},
                "description": "Fields that two people changed at once."},
        },
    })
}

/// What is not of the API: the server's own pages.
fn pages() -> [(&'static str, Value); 4] {
    let page = |name: &str, summary: &str, media_type: &str, schema: Value, more: Value| {
        let mut responses = json!({"200": {"description": "Done.", "content": {media_type: {"schema": schema}}}});
        if let (Some(all), Some(more)) = (responses.as_object_mut(), more.as_object()) {
            all.extend(more.clone());
        }
        json!({"operationId": name, "tags": ["Server"], "summary": summary, "security": [], "responses": responses})
    };
    let text = || json!({"type": "string"});
    let unavailable = json!({"503": {"$ref": "#/components/responses/503"}});
    [
        ("/healthz", page("healthz", "Whether the process is alive", "text/plain", text(), json!({}))),
        (
            "/readyz",
            page("readyz", "Whether the server can answer: its database does", "text/plain", text(), unavailable),
        ),
        ("/metrics", page("metrics", "Figures for Prometheus", "application/openmetrics-text", text(), json!({}))),
        ("/openapi.json", page("openapi", "This document", "application/json", json!({"type": "object"}), json!({}))),
    ]
}

#[derive(Default)]
struct Schemas {
    done: BTreeMap<String, Value>,
    begun: BTreeSet<String>,
}

impl Schemas {
    fn reference(&mut self, message: &MessageDescriptor) -> Value {
        match message.full_name() {
            "google.protobuf.Struct" => return json!({"type": "object"}),
            "google.protobuf.Value" => return json!({}),
            _ => {}
        }
        let name = message.name().to_owned();
        if self.begun.insert(name.clone()) {
            let mut schema = object(message.fields(), self);
            describe(&mut schema, &comment(&message.parent_file(), message.path()));
            self.done.insert(name.clone(), schema);
        }
        json!({"$ref": format!("#/components/schemas/{name}")})
    }
}

fn object(fields: impl Iterator<Item = FieldDescriptor>, schemas: &mut Schemas) -> Value {
    let mut properties = Map::new();
    for field in fields {
        let mut schema = field_schema(&field, schemas);
        let text = comment(&field.parent_message().parent_file(), field.path());
        describe(&mut schema, &text);
        properties.insert(field.json_name().to_owned(), schema);
    }
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

fn field_schema(field: &FieldDescriptor, schemas: &mut Schemas) -> Value {
    let name = format!("{}.{}", field.parent_message().name(), field.name());
    let mut schema = match field.kind() {
        Kind::String => json!({"type": "string"}),
        Kind::Bool => json!({"type": "boolean"}),
        Kind::Uint32 => json!({"type": "integer", "minimum": 0, "maximum": u32::MAX}),
        Kind::Uint64 => json!({"type": "integer", "format": "int64", "minimum": 0}),
        Kind::Int32 => json!({"type": "integer", "format": "int32", "minimum": i32::MIN, "maximum": i32::MAX}),
        Kind::Int64 => json!({"type": "integer", "format": "int64", "minimum": i64::MIN, "maximum": i64::MAX}),
        Kind::Message(message) => schemas.reference(&message),
        _ => json!({}),
    };
    if let Some((_, choices)) = CHOICES.iter().find(|(field, _)| *field == name) {
        schema["enum"] = json!(choices);
    }
    let request = field.parent_message().name().ends_with("Request");
    match field.name() {
        "page_size" => schema["maximum"] = json!(PAGE_MAX),
        "kind" | "name" | "org" | "env" if request => schema["maxLength"] = json!(NAME_MAX),
        "text" if field.parent_message().name() == "ManifestFile" => schema["maxLength"] = json!(BODY_BYTES_MAX),
        _ => {}
    }
    match field.cardinality() {
        Cardinality::Repeated => json!({"type": "array", "items": schema}),
        _ => schema,
    }
}

/// Beside a reference, too: OpenAPI 3.1 allows it.
fn describe(schema: &mut Value, text: &str) {
    if !text.is_empty() {
        schema["description"] = json!(text);
    }
}

/// The comment above a thing in its file.
fn comment(file: &FileDescriptor, path: &[i32]) -> String {
    let source = file.file_descriptor_proto().source_code_info.as_ref();
    let found = source.and_then(|source| source.location.iter().find(|location| location.path == path));
    let text = found.and_then(|location| location.leading_comments.as_deref()).unwrap_or_default();
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document in the repository is what the server shows.
    #[test]
    fn the_kept_document_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/openapi.json");
        let now = format!("{:#}\n", document());
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(path, &now).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(kept == now, "run it again with UPDATE_OPENAPI=1, and look at what changed in {path}");
    }

    #[test]
    fn every_operation_says_what_it_does_and_what_it_answers() {
        let document = document();
        let mut operations = 0;
        for (path, verbs) in document["paths"].as_object().unwrap() {
            for (verb, operation) in verbs.as_object().unwrap() {
                operations += 1;
                let place = format!("{verb} {path}");
                assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{place}");
                assert!(operation["responses"]["200"].is_object(), "{place}");
            }
        }
        let rest = methods().all().iter().filter(|method| method.rest.is_some()).count();
        assert_eq!(operations, rest + pages().len());
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn look(value: &Value, document: &Value) {
            match value {
                Value::Object(map) => {
                    if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
                        let pointer = reference.trim_start_matches('#');
                        assert!(document.pointer(pointer).is_some(), "{reference}");
                    }
                    map.values().for_each(|value| look(value, document));
                }
                Value::Array(items) => items.iter().for_each(|value| look(value, document)),
                _ => {}
            }
        }
        let document = document();
        look(&document, &document);
    }
}
