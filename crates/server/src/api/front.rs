//! The entry point of every request: gRPC and REST on one port, with limits, metrics and traces.

use crate::api::ServerState;
use crate::api::methods::{Access, Method, methods};
use crate::api::public_slots::{PublicSlot, PublicSlots};
use crate::fault::{Code, Fault};
use crate::limits::{ANSWER_WITHIN, PUBLIC_WITHIN, TARGET_BYTES_MAX, WORK_WITHIN};
use crate::metrics::Metrics;
use crate::rest::problem::HttpOnly;
use crate::rest::{Gateway, openapi, problem};
use crate::serve::{Answer, Peer};
use crate::telemetry;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method as Verb, Request, Response, StatusCode, header};
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tower::Service;
use tracing::Instrument;

/// How long the database has to answer before the server says that it is not ready.
const READY_WITHIN: Duration = Duration::from_secs(2);

pub struct Front {
    server: Arc<ServerState>,
    inside: Router,
    gateway: Gateway,
    slots: Semaphore,
    /// For what needs no token.
    public: PublicSlots,
    openapi: OnceLock<Bytes>,
}

impl Front {
    pub fn new(server: Arc<ServerState>, inside: Router, gateway: Gateway) -> Self {
        let slots = Semaphore::new(server.config.limits.requests);
        Self { server, inside, gateway, slots, public: PublicSlots::default(), openapi: OnceLock::new() }
    }

    /// A slot for a call; `None` when all are taken.
    fn slot(&self, method: Option<&Method>, request: &Request<Body>) -> Option<Slot<'_>> {
        if method.is_none_or(Method::is_public) {
            let peer = request.extensions().get::<Peer>();
            return self.public.take(peer.map(|peer| peer.address)).map(Slot::Public);
        }
        self.slots.try_acquire().ok().map(Slot::Any)
    }

    async fn grpc(&self, request: Request<Body>, method: Option<&'static Method>) -> Response<Body> {
        let within = allowed(method, request.headers());
        let streams = method.is_some_and(waits);
        let slot = match self.slot(method, &request) {
            Some(slot) => Some(slot).filter(|_| !streams),
            None if streams => None,
            None => return self.refuse_grpc(full()),
        };
        if let Some(fault) = self.uncertified(method, &request) {
            return self.refuse_grpc(fault);
        }
        let mut inside = self.inside.clone();
        let Some(slot) = slot else {
            return match timeout(within, inside.call(request)).await {
                Ok(Ok(response)) => response,
                Err(_) => self.refuse_grpc(late()),
            };
        };
        tokio::select! {
            biased;
            answered = timeout(within, inside.call(slot.watch(request))) => match answered {
                Ok(Ok(response)) => response,
                Err(_) => self.refuse_grpc(late()),
            },
            () = slot.evicted() => self.refuse_grpc(full()),
        }
    }

    fn refuse_grpc(&self, fault: Fault) -> Response<Body> {
        if fault.code == Code::Unavailable {
            self.server.metrics.turned_away.inc();
        }
        tonic::Status::from(fault).into_http()
    }

    /// Where an authority for clients is set, workers have to show a certificate of it.
    fn uncertified(&self, method: Option<&Method>, request: &Request<Body>) -> Option<Fault> {
        let needs =
            self.server.config.client_ca.is_some() && method.is_some_and(|method| method.access == Access::Worker);
        let certified = request.extensions().get::<Peer>().is_some_and(|peer| peer.certified);
        (needs && !certified).then(|| {
            Fault::new(Code::Unauthenticated, "workers have to show a certificate here")
                .help("start the worker with --cert and --key")
        })
    }

    async fn rest(&self, request: Request<Body>, method: Option<&'static Method>) -> (Response<Body>, &'static str) {
        let path = request.uri().path();
        let page = match path {
            "/healthz" | "/readyz" | "/metrics" | "/openapi.json" => Some(path.to_owned()),
            _ => None,
        };
        if let Some(page) = page {
            return self.page(&page, request.method()).await;
        }
        let label = method.map_or("other", |method| method.label.as_str());
        let instance = path.to_owned();
        let refuse = || {
            self.server.metrics.turned_away.inc();
            (self.gateway.problem(&full(), &instance), label)
        };
        let Some(slot) = self.slot(method, &request) else { return refuse() };
        let within = allowed(method, request.headers());
        tokio::select! {
            biased;
            answered = timeout(within, self.gateway.answer(slot.watch(request))) => match answered {
                Ok(response) => (response, label),
                Err(_) => (self.gateway.problem(&late(), &instance), label),
            },
            () = slot.evicted() => refuse(),
        }
    }

    async fn page(&self, page: &str, verb: &Verb) -> (Response<Body>, &'static str) {
        if verb != Verb::GET && verb != Verb::HEAD {
            let detail = format!("{page} takes GET, HEAD, not {verb}");
            let mut response = problem::http_only(HttpOnly::MethodNotAllowed, &detail, page);
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return (response, "other");
        }
        match page {
            "/healthz" => (text("text/plain; charset=utf-8", "ok\n"), "healthz"),
            "/readyz" => (self.ready().await, "readyz"),
            "/metrics" => {
                self.server.refresh_metrics().await;
                let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                (text(media_type, self.server.metrics.text()), "metrics")
            }
            _ => {
                let document = self.openapi.get_or_init(|| format!("{:#}\n", openapi::document()).into());
                (text("application/json", document.clone()), "openapi")
            }
        }
    }

    async fn ready(&self) -> Response<Body> {
        if self.server.stop.is_cancelled() {
            return self.gateway.problem(&Fault::new(Code::Unavailable, "the server is stopping"), "/readyz");
        }
        match timeout(READY_WITHIN, self.server.control.last_event()).await {
            Ok(Ok(_)) => match self.server.controller.failing() {
                None => text("text/plain; charset=utf-8", "ready\n"),
                Some(why) => {
                    let fault = Fault::new(Code::Unavailable, format!("the controller cannot do its rounds: {why}"));
                    self.gateway.problem(&fault, "/readyz")
                }
            },
            Ok(Err(error)) => {
                tracing::warn!(%error, "not ready: the database does not answer as it should");
                self.gateway.problem(&Fault::new(Code::Unavailable, "the database does not answer"), "/readyz")
            }
            Err(_) => self.gateway.problem(&Fault::new(Code::Unavailable, "the database does not answer"), "/readyz"),
        }
    }
}

impl Answer for Front {
    async fn answer(self: Arc<Self>, mut request: Request<Body>, peer: Peer) -> Response<Body> {
        let started = Instant::now();
        request.extensions_mut().insert(peer);
        let metrics = &self.server.metrics;
        let grpc = request
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
        let method = match grpc {
            true => methods().at(request.uri().path()),
            false => self.gateway.method(request.method(), request.uri().path()),
        };
        let span = telemetry::request_span(&request, method);
        if request.uri().path_and_query().is_some_and(|target| target.as_str().len() > TARGET_BYTES_MAX) {
            let fault = Fault::new(Code::TooLarge, "the address is too long");
            return self.gateway.problem(&fault, "/");
        }
        let _counted = InFlight::new(metrics);
        let (response, label, protocol, code) = async {
            if grpc {
                let response = self.grpc(request, method).await;
                let code = grpc_code(response.headers());
                (response, method.map_or("other", |method| method.label.as_str()), "grpc", code)
            } else {
                let (response, label) = self.rest(request, method).await;
                let code = http_code(response.status());
                (response, label, "rest", code)
            }
        }
        .instrument(span.clone())
        .await;
        metrics.answered(label, protocol, code, started.elapsed());
        telemetry::answered(&span, label, code, started.elapsed());
        response
    }
}

/// Only whether the server is alive and ready, on an address of its own.
pub struct Health(pub Arc<Front>);

impl Answer for Health {
    async fn answer(self: Arc<Self>, request: Request<Body>, _: Peer) -> Response<Body> {
        let path = request.uri().path().to_owned();
        match path.as_str() {
            "/healthz" | "/readyz" => self.0.page(&path, request.method()).await.0,
            _ => {
                let fault = Fault::new(Code::NotFound, "there is nothing here but /healthz and /readyz");
                self.0.gateway.problem(&fault, &path)
            }
        }
    }
}

/// Held while a call is worked on.
enum Slot<'s> {
    Public(Arc<PublicSlot>),
    Any(#[expect(dead_code, reason = "what counts is that it is held")] SemaphorePermit<'s>),
}

impl Slot<'_> {
    /// Returns when its slot is given to another call.
    async fn evicted(&self) {
        match self {
            Self::Public(slot) => slot.evicted().await,
            Self::Any(_) => std::future::pending().await,
        }
    }

    fn watch(&self, request: Request<Body>) -> Request<Body> {
        match self {
            Self::Public(slot) => slot.watch(request),
            Self::Any(_) => request,
        }
    }
}

/// Counts a request for as long as it lasts, also when its caller goes away.
struct InFlight<'m>(&'m Metrics);

impl<'m> InFlight<'m> {
    fn new(metrics: &'m Metrics) -> Self {
        metrics.in_flight.inc();
        Self(metrics)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.dec();
    }
}

/// Methods whose answer may be long in coming without anything being worked on.
fn waits(method: &Method) -> bool {
    method.streams || method.label == "WorkerService.Lease"
}

/// How long a method may take: what waits for a worker takes longer; a caller may ask for less.
fn allowed(method: Option<&Method>, headers: &HeaderMap) -> Duration {
    let works = method.is_some_and(|method| {
        matches!(method.label.as_str(), "Resources.Plan" | "Resources.Import" | "Resources.Drift")
    });
    let most = match method {
        _ if works => WORK_WITHIN,
        Some(method) if method.is_public() => PUBLIC_WITHIN,
        _ => ANSWER_WITHIN,
    };
    let asked = headers.get("grpc-timeout").and_then(|value| grpc_timeout(value.to_str().ok()?));
    asked.map_or(most, |asked| asked.min(most))
}

/// `8S`, `100m` and the like: at most eight digits and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

fn full() -> Fault {
    Fault::new(Code::Unavailable, "the server is busy").help("try again in a moment")
}

fn late() -> Fault {
    Fault::new(Code::TimedOut, "the request took too long")
        .help("what it began may still go on; look before trying again")
}

fn text(media_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn grpc_code(headers: &HeaderMap) -> &'static str {
    let code = headers.get("grpc-status").map(|value| tonic::Code::from_bytes(value.as_bytes()));
    match code.unwrap_or(tonic::Code::Ok) {
        tonic::Code::Ok => "ok",
        tonic::Code::Cancelled => "cancelled",
        tonic::Code::InvalidArgument => "invalid_argument",
        tonic::Code::DeadlineExceeded => "deadline_exceeded",
        tonic::Code::NotFound => "not_found",
        tonic::Code::AlreadyExists => "already_exists",
        tonic::Code::PermissionDenied => "permission_denied",
        tonic::Code::ResourceExhausted => "resource_exhausted",
        tonic::Code::FailedPrecondition => "failed_precondition",
        tonic::Code::Aborted => "aborted",
        tonic::Code::OutOfRange => "out_of_range",
        tonic::Code::Unimplemented => "unimplemented",
        tonic::Code::Internal => "internal",
        tonic::Code::Unavailable => "unavailable",
        tonic::Code::DataLoss => "data_loss",
        tonic::Code::Unauthenticated => "unauthenticated",
        tonic::Code::Unknown => "unknown",
    }
}

fn http_code(status: StatusCode) -> &'static str {
    const KNOWN: [(u16, &str); 16] = [
        (200, "200"),
        (400, "400"),
        (401, "401"),
        (403, "403"),
        (404, "404"),
        (405, "405"),
        (406, "406"),
        (409, "409"),
        (413, "413"),
        (415, "415"),
        (422, "422"),
        (429, "429"),
        (500, "500"),
        (503, "503"),
        (504, "504"),
        (204, "204"),
    ];
    KNOWN.iter().find(|(known, _)| *known == status.as_u16()).map_or("other", |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_may_ask_for_less_time_and_never_for_more() {
        let mut headers = HeaderMap::new();
        assert_eq!(allowed(None, &headers), ANSWER_WITHIN);
        for (text, expected) in [("5S", 5_000), ("250m", 250), ("99999999H", 60_000), ("soon", 60_000), ("", 60_000)] {
            headers.insert("grpc-timeout", HeaderValue::from_static(text));
            assert_eq!(allowed(None, &headers), Duration::from_millis(expected), "{text}");
        }
        headers.clear();
        assert_eq!(allowed(methods().at("/berth.api.v1.Resources/Plan"), &headers), WORK_WITHIN);
        assert_eq!(allowed(methods().at("/berth.api.v1.Access/Login"), &headers), PUBLIC_WITHIN);
    }
}
