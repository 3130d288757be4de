//! One port of one cloud: reads calls, lets faults strike, and answers, or does not.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::faults::FaultEffect;
use crate::http::{Call, Cloud, Refusal, Reply, mutating};
use crate::world::World;
use crate::{SandboxError, admin};

const MAX_CONNECTIONS: usize = 4096;
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Also ends idle connections; longer than clients keep theirs, so that none is closed under a client.
const HEADER_TIMEOUT: Duration = Duration::from_secs(300);

/// A cloud being served until `stop`.
pub struct Server {
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

/// How faults, counts and events know a call.
struct Seen {
    method: Method,
    path: String,
}

/// Returned by the service to make hyper close the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("connection dropped by a fault rule")]
pub(crate) struct Dropped;

struct Port {
    cloud: Arc<dyn Cloud>,
    world: Arc<World>,
    token: Option<String>,
    stopped: watch::Receiver<bool>,
}

/// Binds to a loopback address; any other is refused, as the simulated clouds know no real authentication.
pub async fn bind(addr: SocketAddr) -> Result<TcpListener, SandboxError> {
    if !addr.ip().is_loopback() {
        return Err(SandboxError::NotLoopback { addr });
    }
    TcpListener::bind(addr).await.map_err(|source| SandboxError::Bind { addr, source })
}

impl Server {
    pub fn start(
        listener: TcpListener,
        cloud: Arc<dyn Cloud>,
        world: Arc<World>,
        token: Option<String>,
    ) -> Result<Server, SandboxError> {
        let addr =
            listener.local_addr().map_err(|source| SandboxError::Bind { addr: ([127, 0, 0, 1], 0).into(), source })?;
        let (stop, stopped) = watch::channel(false);
        let port = Arc::new(Port { cloud, world, token, stopped: stopped.clone() });
        let accepting = tokio::spawn(accept_each(listener, stopped, move |stream| serve(stream, port.clone())));
        Ok(Server { addr, stop, accepting })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Closes the port and every connection, held ones too.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.accepting.await;
    }
}

/// Serves each connection in a task of its own until it is told to stop; then closes them all.
pub(crate) async fn accept_each<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    mut stopped: watch::Receiver<bool>,
    serve: impl Fn(TcpStream) -> F,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stopped.changed() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "no TCP_NODELAY");
                    }
                    connections.spawn(serve(stream));
                }
                Err(error) => {
                    tracing::warn!(%error, "connection not accepted");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            },
        }
    }
    connections.shutdown().await;
}

async fn serve(stream: TcpStream, port: Arc<Port>) {
    let service = service_fn(move |request| {
        let port = port.clone();
        async move { port.answer(request).await }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "connection ended");
    }
}

impl Port {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Dropped> {
        let (head, body) = request.into_parts();
        let body = match read(body, self.cloud.max_body_bytes()).await {
            Ok(body) => body,
            Err(Some(refusal)) => return Ok(respond(self.cloud.refuse(None, &refusal))),
            Err(None) => return Err(Dropped),
        };
        let call = Call::new(head.method, &head.uri, head.headers, body);
        if call.path.starts_with(admin::PREFIX) {
            return Ok(respond(admin::answer(&self.world, self.cloud.name(), &call).await));
        }
        self.judge(call).await.map(respond)
    }

    async fn judge(self: Arc<Self>, mut call: Call) -> Result<Reply, Dropped> {
        let traffic = self.world.traffic(self.cloud.name());
        let (method, path) = self.cloud.seen_as(&call);
        let seen = Seen { method, path };
        traffic.count(&seen.method);
        if self.token.as_ref().is_some_and(|token| !self.cloud.authorised(&call, token)) {
            return Ok(self.cloud.refuse(Some(&call), &Refusal::BadToken));
        }
        let verdict = self.world.faults().judge(self.cloud.name(), &seen.method, &seen.path);
        if !verdict.delay.is_zero() {
            tokio::time::sleep(verdict.delay).await;
        }
        call.effects = verdict.effects;
        match verdict.outcome {
            FaultEffect::Pass => {
                let reply = self.handle(&call, &seen);
                self.record(&seen, None, Some(&reply), reply.ok());
                Ok(reply)
            }
            FaultEffect::Refuse(refusal) => {
                let mut reply = self.cloud.refuse(Some(&call), &refusal);
                if let Some(wait) = refusal.retry_after() {
                    reply = reply.header("retry-after", wait.to_string());
                }
                self.record(&seen, Some("refused"), Some(&reply), false);
                Ok(reply)
            }
            FaultEffect::DropBefore => {
                self.record(&seen, Some("drop-before"), None, false);
                Err(Dropped)
            }
            FaultEffect::DropAfter => {
                let reply = self.handle(&call, &seen);
                self.record(&seen, Some("drop-after"), None, reply.ok());
                Err(Dropped)
            }
            FaultEffect::HoldBefore => {
                self.record(&seen, Some("hold-before"), None, false);
                let _held = traffic.hold();
                never().await;
                Err(Dropped)
            }
            FaultEffect::HoldAfter => {
                let reply = self.handle(&call, &seen);
                self.record(&seen, Some("hold-after"), None, reply.ok());
                let _held = traffic.hold();
                never().await;
                Err(Dropped)
            }
            FaultEffect::Late(after) => {
                let reply = self.cloud.refuse(Some(&call), &Refusal::Injected { status: 504, retry_after: None });
                self.record(&seen, Some("late"), Some(&reply), false);
                traffic.late_begins();
                let port = self.clone();
                tokio::spawn(async move { port.act_late(&call, &seen, after).await });
                Ok(reply)
            }
        }
    }

    /// Acts on a call whose caller was told that it failed, and may be gone. A sandbox that stops meanwhile never does.
    async fn act_late(&self, call: &Call, seen: &Seen, after: Duration) {
        let mut stopped = self.stopped.clone();
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = tokio::time::sleep(after) => {
                let reply = self.handle(call, seen);
                self.record(seen, Some("acted on late"), None, reply.ok());
            }
        }
        self.world.traffic(self.cloud.name()).late_ends();
    }

    fn handle(&self, call: &Call, seen: &Seen) -> Reply {
        let mut reply = match self.world.broken() {
            None => self.cloud.handle(call),
            Some(reason) => self.cloud.refuse(Some(call), &Refusal::StateFile(reason.to_owned())),
        };
        // A change that is not in the state file must not be answered as if it were.
        if let (true, Some(reason)) = (reply.ok(), self.world.broken()) {
            reply = self.cloud.refuse(Some(call), &Refusal::StateFile(reason.to_owned()));
        }
        let (cloud, method, path, status) = (self.cloud.name(), &seen.method, &seen.path, reply.status);
        tracing::debug!(%cloud, %method, path, status, "call");
        reply
    }

    fn record(&self, seen: &Seen, fault: Option<&'static str>, reply: Option<&Reply>, took_effect: bool) {
        if mutating(&seen.method) {
            let traffic = self.world.traffic(self.cloud.name());
            let answered = (reply.map(|r| r.status), took_effect);
            traffic.record(self.world.now(), &seen.method, &seen.path, fault, answered);
        }
    }
}

/// Held calls end when their client goes away or the sandbox stops: both drop this future.
async fn never() -> Infallible {
    std::future::pending().await
}

/// `Err(None)`: the client went away or never finished, so nobody is there to answer.
async fn read(body: Incoming, max_bytes: usize) -> Result<Bytes, Option<Refusal>> {
    let collected = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, max_bytes).collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Some(Refusal::BodyTooLarge)),
        Ok(Err(_)) | Err(_) => Err(None),
    }
}

fn respond(reply: Reply) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(reply.body));
    *response.status_mut() =
        hyper::StatusCode::from_u16(reply.status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&reply.content_type) {
        headers.insert(CONTENT_TYPE, value);
    }
    for (name, value) in reply.headers {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()))
        {
            headers.insert(name, value);
        }
    }
    response
}
