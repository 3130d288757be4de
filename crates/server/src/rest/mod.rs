//! REST is the gRPC API: JSON is turned into the method's message by the descriptors, the same routes are called inside the
//! process, and the answer is turned back. Nothing is written per method.

mod json_reader;
mod json_writer;
mod message_shapes;
pub mod openapi;
pub mod problem;
mod sse;

use crate::access::Authenticator;
use crate::access::layer::admit;
use crate::api::arguments::{invalid_argument, shown};
use crate::api::methods::{Method, Segment, methods};
use crate::fault::{Code, Fault};
use crate::limits::{ANSWER_BYTES_MAX, BODY_BYTES_MAX, PUBLIC_BYTES_MAX};
use axum::Router;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method as Verb, Request, Response, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use json_reader::JsonMismatch;
use message_shapes::{MessageShapes, NoJsonForm};
use percent_encoding::percent_decode_str;
use problem::HttpOnly;
use std::collections::HashSet;
use std::sync::Arc;
use tower::Service;

/// Frames of gRPC begin with a flag and a length.
const FRAME_HEAD: usize = 5;
/// Names and values in one query.
const QUERY_ITEMS_MAX: usize = 256;
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A method with its messages' tables.
struct Route {
    method: &'static Method,
    segments: &'static [Segment],
    verb: Verb,
    has_body: bool,
    input: usize,
    output: usize,
    /// Fields of the request that stand in the path, in its order.
    in_path: Vec<usize>,
    /// For streams: where to go on from, and the number that says so.
    after: Option<usize>,
    id: Option<u32>,
}

pub struct Gateway {
    shapes: Arc<MessageShapes>,
    routes: Vec<Route>,
    detail: usize,
    inside: Router,
    authenticator: Arc<Authenticator>,
}

/// What is in the way of a REST call before the method is reached.
enum Halt {
    Fault(Fault),
    Http(HttpOnly, String),
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        Halt::Fault(fault)
    }
}

impl Gateway {
    /// `inside` are the gRPC routes with everything that guards them.
    pub fn new(inside: Router, authenticator: Arc<Authenticator>) -> Result<Self, NoJsonForm> {
        let mut shapes = MessageShapes::default();
        let mut routes = Vec::new();
        for method in methods().all() {
            let Some(rest) = &method.rest else { continue };
            let input = shapes.add(&method.descriptor.input())?;
            let output = shapes.add(&method.descriptor.output())?;
            let position = |name: &str| shapes.shape(input).field(name).map(|(position, _)| position);
            let in_path = rest
                .segments
                .iter()
                .filter_map(|segment| if let Segment::Field(name) = segment { position(name) } else { None })
                .collect();
            let verb = match rest.verb {
                "GET" => Verb::GET,
                "DELETE" => Verb::DELETE,
                _ => Verb::POST,
            };
            let after = position("after").filter(|_| method.streams);
            let id = shapes.shape(output).field("id").filter(|_| method.streams).map(|(_, field)| field.number);
            routes.push(Route {
                method,
                segments: &rest.segments,
                verb,
                has_body: rest.has_body(),
                input,
                output,
                in_path,
                after,
                id,
            });
        }
        let detail = methods().pool.get_message_by_name("berth.api.v1.ErrorDetail");
        let detail = detail.map(|detail| shapes.add(&detail)).transpose()?.unwrap_or_default();
        Ok(Self { shapes: Arc::new(shapes), routes, detail, inside, authenticator })
    }

    /// Which method a request is for; `None` where there is none.
    pub fn method(&self, verb: &Verb, path: &str) -> Option<&'static Method> {
        self.route(verb, path).map(|(route, _)| route.method)
    }

    fn route<'p>(&self, verb: &Verb, path: &'p str) -> Option<(&Route, Vec<&'p str>)> {
        let verb = if verb == Verb::HEAD { &Verb::GET } else { verb };
        self.routes.iter().filter(|route| route.verb == *verb).find_map(|route| {
            let mut values = Vec::new();
            matches(route.segments, path, &mut values).then_some((route, values))
        })
    }

    /// Answers a request to the API.
    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let instance = parts.uri.path().to_owned();
        let Some((route, values)) = self.route(&parts.method, &instance) else {
            let at_path = self.routes.iter().filter(|route| matches(route.segments, &instance, &mut Vec::new()));
            return self.no_route(&at_path.collect::<Vec<_>>(), &parts, &instance);
        };
        let answered = self.call(route, &values, parts, body, &instance).await;
        answered.unwrap_or_else(|halt| self.halted(halt, &instance))
    }

    pub fn problem(&self, fault: &Fault, instance: &str) -> Response<Body> {
        problem::response(&self.shapes, self.detail, fault, instance)
    }

    fn halted(&self, halt: Halt, instance: &str) -> Response<Body> {
        match halt {
            Halt::Fault(fault) => self.problem(&fault, instance),
            Halt::Http(what, detail) => problem::http_only(what, &detail, instance),
        }
    }

    fn no_route(&self, found: &[&Route], parts: &Parts, instance: &str) -> Response<Body> {
        if found.is_empty() {
            let fault = Fault::new(Code::NotFound, format!("there is nothing at {}", shown(instance)))
                .help("what there is:   GET /openapi.json");
            return self.problem(&fault, instance);
        }
        let mut allowed: Vec<&str> = found.iter().map(|route| route.verb.as_str()).collect();
        if allowed.contains(&"GET") {
            allowed.push("HEAD");
        }
        let allowed = allowed.join(", ");
        let detail = format!("{} takes {allowed}, not {}", shown(instance), parts.method);
        let mut response = problem::http_only(HttpOnly::MethodNotAllowed, &detail, instance);
        if let Ok(allowed) = HeaderValue::from_str(&allowed) {
            response.headers_mut().insert(header::ALLOW, allowed);
        }
        response
    }

    async fn call(
        &self,
        route: &Route,
        values: &[&str],
        mut parts: Parts,
        body: Body,
        instance: &str,
    ) -> Result<Response<Body>, Halt> {
        let media_type = if route.method.streams { sse::MEDIA_TYPE } else { "application/json" };
        if !accepts(&parts.headers, media_type) {
            let detail = format!("this answers with {media_type}, or with {} in case of an error", problem::MEDIA_TYPE);
            return Err(Halt::Http(HttpOnly::NotAcceptable, detail));
        }
        // Nothing of a body is read for someone who may not call.
        if let Some(caller) = admit(&self.authenticator, route.method, &parts).await? {
            parts.extensions.insert(caller);
        }
        let message = self.message(route, values, &parts, body).await?;
        let mut request = Request::new(Body::from(message));
        *request.method_mut() = Verb::POST;
        *request.uri_mut() =
            route.method.path.parse().map_err(|_| Fault::new(Code::Internal, "the method has no address"))?;
        *request.extensions_mut() = parts.extensions;
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        for name in [header::AUTHORIZATION, HeaderName::from_static("traceparent")] {
            for value in parts.headers.get_all(&name) {
                headers.append(name.clone(), value.clone());
            }
        }
        let mut inside = self.inside.clone();
        let Ok(response) = inside.call(request).await;
        if let Some(fault) = fault_in(response.headers()) {
            return Err(fault.into());
        }
        if route.method.streams {
            let writer = sse::EventWriter {
                shapes: self.shapes.clone(),
                output: route.output,
                id: route.id,
                detail: self.detail,
                instance: instance.to_owned(),
            };
            return Ok(sse::response(response.into_body(), writer));
        }
        let collected = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let collected = collected.map_err(|_| Fault::new(Code::Internal, "an answer was cut short"))?;
        if let Some(fault) = collected.trailers().and_then(fault_in) {
            return Err(fault.into());
        }
        let wire = collected.to_bytes();
        let wire = wire.get(FRAME_HEAD..).unwrap_or_default();
        let mut json = Vec::with_capacity(wire.len() + wire.len() / 2 + 64);
        json_writer::message(&self.shapes, route.output, wire, &mut json)
            .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
        Ok(json_response(json))
    }

    /// The request as one gRPC frame.
    async fn message(&self, route: &Route, values: &[&str], parts: &Parts, body: Body) -> Result<Bytes, Halt> {
        let shape = self.shapes.shape(route.input);
        let mut out = vec![0; FRAME_HEAD];
        for (position, value) in route.in_path.iter().zip(values) {
            let field = &shape.fields[*position];
            let text = percent_decode_str(value)
                .decode_utf8()
                .map_err(|_| invalid_argument(&field.json, "it is not UTF-8"))?;
            if text.is_empty() || text.contains('\0') {
                return Err(invalid_argument(&field.json, "it cannot be empty or hold a NUL").into());
            }
            json_reader::text(field, &text, &mut out).map_err(|why| invalid_argument(&field.json, &why))?;
        }
        if route.has_body {
            if parts.uri.query().is_some_and(|query| !query.is_empty()) {
                return Err(invalid_argument("", "this takes its fields in the body, not in the query").into());
            }
            let bytes = self.body(route.method, parts, body).await?;
            if !bytes.is_empty() {
                json_reader::message(&self.shapes, route.input, &bytes, &route.in_path, &mut out).map_err(misfit)?;
            }
        } else {
            self.query(route, parts, &mut out)?;
        }
        let length = u32::try_from(out.len() - FRAME_HEAD)
            .map_err(|_| Fault::new(Code::TooLarge, "the request is too large"))?;
        out[1..FRAME_HEAD].copy_from_slice(&length.to_be_bytes());
        Ok(out.into())
    }

    async fn body(&self, method: &Method, parts: &Parts, body: Body) -> Result<Bytes, Halt> {
        let most = if method.is_public() { PUBLIC_BYTES_MAX } else { BODY_BYTES_MAX };
        // Known before anything is read: a sender that waits for word need not send it.
        if hyper::body::Body::size_hint(&body).lower() > most as u64 {
            return Err(too_large(most).into());
        }
        let limited = Limited::new(body, most).collect().await;
        let bytes = match limited {
            Ok(collected) => collected.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return Err(too_large(most).into()),
            Err(_) => return Err(Fault::new(Code::InvalidArgument, "the body could not be read to its end").into()),
        };
        let given = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        let json = given.is_some_and(|given| {
            let text = String::from_utf8_lossy(given);
            let essence = text.split(';').next().unwrap_or_default().trim();
            essence.eq_ignore_ascii_case("application/json")
        });
        if !json && (given.is_some() || !bytes.is_empty()) {
            let detail = "send the body with `content-type: application/json`".to_owned();
            return Err(Halt::Http(HttpOnly::UnsupportedMediaType, detail));
        }
        Ok(bytes)
    }

    fn query(&self, route: &Route, parts: &Parts, out: &mut Vec<u8>) -> Result<(), Halt> {
        let shape = self.shapes.shape(route.input);
        let mut seen = HashSet::new();
        let items = parts.uri.query().unwrap_or_default().split('&').filter(|item| !item.is_empty());
        for (count, item) in items.enumerate() {
            if count >= QUERY_ITEMS_MAX {
                return Err(invalid_argument("", &format!("a query has at most {QUERY_ITEMS_MAX} values")).into());
            }
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            let (name, value) = (query_text(name)?, query_text(value)?);
            let Some((position, field)) = shape.field(&name) else {
                let near = berth_model::phrasing::nearest(&name, shape.fields.iter().map(|field| field.json.as_str()));
                let why = match near {
                    Some(near) => format!("unknown name in the query; did you mean `{near}`?"),
                    None => "unknown name in the query".to_owned(),
                };
                return Err(invalid_argument(&shown(&name), &why).into());
            };
            if route.in_path.contains(&position) {
                return Err(invalid_argument(&name, "it is given in the path, and cannot be given again").into());
            }
            if !seen.insert(position) && field.arity != message_shapes::Arity::List {
                return Err(invalid_argument(&name, "it is given twice").into());
            }
            if value.contains('\0') {
                return Err(invalid_argument(&name, "it cannot hold a NUL").into());
            }
            json_reader::text(field, &value, out).map_err(|why| invalid_argument(&name, &why))?;
        }
        // A client that lost its stream continues after the last event that it saw.
        if let (Some(after), Some(last)) = (route.after, parts.headers.get(&LAST_EVENT_ID)) {
            let last = String::from_utf8_lossy(last.as_bytes());
            json_reader::text(&shape.fields[after], last.trim(), out)
                .map_err(|why| invalid_argument("Last-Event-ID", &why))?;
        }
        Ok(())
    }
}

/// Whether a path fits; the texts of its fields are added to `values`.
fn matches<'p>(segments: &[Segment], path: &'p str, values: &mut Vec<&'p str>) -> bool {
    let Some(path) = path.strip_prefix('/') else { return false };
    let mut parts = path.split('/');
    for segment in segments {
        match (segment, parts.next()) {
            (Segment::Literal(text), Some(part)) if text == part => {}
            (Segment::Field(_), Some(part)) if !part.is_empty() => values.push(part),
            _ => return false,
        }
    }
    parts.next().is_none()
}

/// Whether one of the forms that the caller takes is this one. No header takes all.
fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let mut any = false;
    for value in headers.get_all(header::ACCEPT) {
        for range in String::from_utf8_lossy(value.as_bytes()).split(',') {
            let mut parts = range.split(';').map(str::trim);
            let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
            if essence.is_empty() {
                continue;
            }
            any = true;
            let refused =
                parts.any(|part| matches!(part.replace(' ', "").as_str(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
            let main = media_type.split('/').next().unwrap_or_default();
            if !refused && (essence == "*/*" || essence == media_type || essence == format!("{main}/*")) {
                return true;
            }
        }
    }
    !any
}

fn query_text(text: &str) -> Result<String, Fault> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| invalid_argument("", "the query is not UTF-8"))
}

fn misfit(misfit: JsonMismatch) -> Fault {
    let mut fault = invalid_argument(&misfit.path, &misfit.message);
    for problem in &mut fault.problems {
        (problem.line, problem.column) = (misfit.line, misfit.column);
    }
    fault
}

pub(crate) fn too_large(most: usize) -> Fault {
    match most >> 20 {
        0 => Fault::new(Code::TooLarge, format!("this takes at most {} KiB", most >> 10)),
        most => Fault::new(Code::TooLarge, format!("a request has at most {most} MiB"))
            .help("apply fewer manifests at a time"),
    }
}

/// The error of a gRPC answer, which stands in its headers or its trailers.
pub(crate) fn fault_in(headers: &HeaderMap) -> Option<Fault> {
    let status = headers.get(&GRPC_STATUS)?;
    if status.as_bytes() == b"0" {
        return None;
    }
    let status = tonic::Status::from_header_map(headers)?;
    Some(Fault::from_status(&status))
}

fn json_response(json: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(json));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
