//! The TLS port: connections, who is calling, and answers on the wire.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderValue, USER_AGENT, WARNING};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch as signal;
use tokio_rustls::TlsAcceptor;

use super::api::{self, Ask, Given};
use super::status::{self, Answer, Refused};
use super::{Clusters, access, identity, logs, real, watch};
use crate::faults::FaultEffect;
use crate::http::{Refusal, parse_query};
use crate::server::{Dropped, accept_each};

/// The API server's own limit.
const MAX_BODY_BYTES: usize = 3 << 20;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);

/// What a connection says of who is at its other end.
struct Caller {
    certified: bool,
    /// The cluster in the TLS server name.
    named: Option<String>,
}

pub(super) type Wire = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

pub(super) async fn accept(
    listener: TcpListener,
    tls: TlsAcceptor,
    clusters: Arc<Clusters>,
    stopped: signal::Receiver<bool>,
) {
    accept_each(listener, stopped, |stream| serve(stream, tls.clone(), clusters.clone())).await;
}

async fn serve(stream: TcpStream, tls: TlsAcceptor, clusters: Arc<Clusters>) {
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake took too long"),
    };
    // The verifier takes only certificates of our own authority, so having shown one is enough.
    let certified = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
    let named = stream.get_ref().1.server_name().and_then(identity::cluster_of).map(str::to_owned);
    let caller = Arc::new(Caller { certified, named });
    let service = service_fn(move |request| {
        let (clusters, caller) = (clusters.clone(), caller.clone());
        async move { answer(clusters, &caller, request).await }
    });
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(256);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "connection ended");
    }
}

/// Why a call gets no ordinary answer.
enum Ending {
    Refused(Refused),
    /// A fault: the connection is closed without an answer.
    Dropped,
}

impl From<Refused> for Ending {
    fn from(refused: Refused) -> Ending {
        Ending::Refused(refused)
    }
}

async fn answer(clusters: Arc<Clusters>, caller: &Caller, request: Request<Incoming>) -> Result<Wire, Dropped> {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let wire = match respond(&clusters, caller, request).await {
        Ok(given) => wire(clusters, given),
        Err(Ending::Refused(refused)) => refuse(&refused),
        Err(Ending::Dropped) => return Err(Dropped),
    };
    tracing::debug!(%method, path, status = wire.status().as_u16(), "cluster call");
    Ok(wire)
}

fn wire(clusters: Arc<Clusters>, given: Given) -> Wire {
    match given {
        Given::Json(code, value) => json(code, &value),
        Given::Text(code, text) => plain(code, text),
        Given::Raw(content_type, bytes) => build(200, content_type, Full::new(Bytes::from(bytes)).boxed_unsync()),
        Given::Watch(watched) => stream(clusters, watched),
        Given::Forwarded(wire) => wire,
        Given::Log(asked) => {
            let frames = logs::follow(clusters, asked).map(|text| Ok(Frame::data(text)));
            build(200, "text/plain; charset=utf-8", StreamBody::new(frames).boxed_unsync())
        }
        Given::Warned(warnings, given) => {
            let mut wire = wire(clusters, *given);
            for warning in warnings {
                let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
                if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                    wire.headers_mut().append(WARNING, value);
                }
            }
            wire
        }
    }
}

async fn respond(clusters: &Arc<Clusters>, caller: &Caller, request: Request<Incoming>) -> Result<Given, Ending> {
    let (head, body) = request.into_parts();
    let segments: Vec<String> = head
        .uri
        .path()
        .split('/')
        .filter(|part| !part.is_empty())
        .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
        .collect();
    let text = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let bearer = text(AUTHORIZATION).split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let token = bearer.map_or("", |(_, token)| token.trim());
    if let Some(given) = clusters.issuer_document(&head.method, &segments) {
        return Ok(given);
    }
    // The path says which cluster; without its prefix the TLS server name or the token does.
    let of_token;
    let (id, rest) = match segments.as_slice() {
        [root, id, rest @ ..] if root == "clusters" => (id.as_str(), rest),
        rest => {
            of_token = clusters.cluster_of(token);
            (caller.named.as_deref().or(of_token.as_deref()).ok_or_else(status::no_such_path)?, rest)
        }
    };
    let (user, view) = clusters.log_in(id, caller.certified, token)?;
    if !view.api_up {
        return Err(status::unavailable().into());
    }
    let body = read(body).await?;
    let ask = Ask {
        method: &head.method,
        path: rest.iter().map(String::as_str).collect(),
        query: head.uri.query().map(parse_query).unwrap_or_default(),
        accept: text(ACCEPT),
        content_type: text(CONTENT_TYPE),
        user_agent: text(USER_AGENT),
        body: &body,
        view: &view,
        address: &clusters.address,
        issuer: &clusters.issuer,
        user: &user,
        may: &|wish| access::allowed(&user, wish, || clusters.rbac(&view)),
    };
    let handle = async || match &clusters.real {
        Some(real) => real.answer(&view, &head, &real::Caller::new(&ask, token), body.clone()).await,
        None => simulated(clusters, &ask),
    };
    let path = format!("/clusters/{id}/{}", ask.path.join("/"));
    let verdict = clusters.world.faults().judge_cluster(view.cloud, ask.method, &path);
    tokio::time::sleep(verdict.delay).await;
    // Held calls end when their client goes away or the sandbox stops: both drop this future.
    let hold = async || {
        let _held = clusters.world.traffic(view.cloud).hold();
        std::future::pending::<()>().await;
    };
    match verdict.outcome {
        FaultEffect::Pass => Ok(handle().await?),
        FaultEffect::Refuse(refusal) => Err(status::fault(&refusal).into()),
        // Rules for clusters cannot ask for it.
        FaultEffect::Late(_) => Err(status::fault(&Refusal::Injected { status: 504, retry_after: None }).into()),
        FaultEffect::DropBefore => Err(Ending::Dropped),
        FaultEffect::DropAfter => {
            handle().await?;
            Err(Ending::Dropped)
        }
        FaultEffect::HoldBefore => {
            hold().await;
            Err(Ending::Dropped)
        }
        FaultEffect::HoldAfter => {
            handle().await?;
            hold().await;
            Err(Ending::Dropped)
        }
    }
}

fn simulated(clusters: &Clusters, ask: &Ask<'_>) -> Answer<Given> {
    match api::fixed(ask) {
        _ if !ask.allowed() => Err(status::forbidden(&ask.wish(), &ask.user.name)),
        Some(answer) => answer,
        None if ask.only_looks() => clusters.look(ask.view, ask.needs(), |objects, now| api::answer(ask, objects, now)),
        None => clusters.with(ask.view, |objects, now| api::answer(ask, objects, now)),
    }
}

async fn read(body: Incoming) -> Result<Bytes, Refused> {
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(status::too_large()),
        Ok(Err(_)) | Err(_) => Err(status::bad_request("the body of the request did not arrive")),
    }
}

fn build(code: u16, content_type: &'static str, body: UnsyncBoxBody<Bytes, Infallible>) -> Wire {
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn json(code: u16, value: &Value) -> Wire {
    build(code, "application/json", Full::new(Bytes::from(value.to_string())).boxed_unsync())
}

fn plain(code: u16, text: String) -> Wire {
    build(code, "text/plain; charset=utf-8", Full::new(Bytes::from(text)).boxed_unsync())
}

fn refuse(refused: &Refused) -> Wire {
    let mut wire = json(refused.code, &refused.body);
    if refused.code == 503 {
        wire.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
        wire.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    wire
}

fn stream(clusters: Arc<Clusters>, watched: watch::Watched) -> Wire {
    let frames = watch::lines(clusters, watched).map(|line| Ok(Frame::data(line)));
    build(200, "application/json", StreamBody::new(frames).boxed_unsync())
}
