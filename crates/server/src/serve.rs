//! Connections: accepted while there is room, encrypted, bounded in every direction, and ended in order.

use crate::address::{TrustedProxies, proxied};
use crate::connection_slots::{ConnectionSlot, ConnectionSlots, OpenRequest};
use crate::limits::{
    ACCEPT_SLACK, DISCARD_BYTES_MAX, DISCARD_WITHIN, DISCARDS_MAX, DRAIN_WITHIN, FAREWELL_WITHIN, GIVE_BACK_EVERY,
    GIVE_BACK_FOR, HANDSHAKE_WITHIN, HEADER_BYTES_MAX, HEADERS_MAX, HEADERS_WITHIN, Limits, PING_EVERY, PROXY_WITHIN,
    STALLED_AFTER, STREAMS_MAX,
};
use crate::metrics::Metrics;
use crate::tracked_body::{TrackedBody, Tracker};
use axum::body::{Body, HttpBody};
use axum::http::{Request, Response, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// After an accept that failed, such as for want of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Who is at the other end; in the extensions of every request.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The caller's, where a trusted proxy says it; otherwise the connection's.
    pub address: IpAddr,
    /// It showed a certificate that the authority for clients signed.
    pub certified: bool,
    /// The connection's slot.
    pub slot: Arc<ConnectionSlot>,
}

/// What answers requests.
pub trait Answer: Send + Sync + 'static {
    fn answer(self: Arc<Self>, request: Request<Body>, peer: Peer) -> impl Future<Output = Response<Body>> + Send;
}

/// What every connection needs.
struct Port<A> {
    /// `None`: what is said here is no secret.
    tls: Option<TlsAcceptor>,
    app: Arc<A>,
    slots: Arc<ConnectionSlots>,
    proxies: TrustedProxies,
    metrics: Metrics,
    stop: CancellationToken,
}

/// Serves until told to stop, then lets open requests end.
pub async fn serve<A: Answer>(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    app: Arc<A>,
    limits: &Limits,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(limits.connections + ACCEPT_SLACK));
    let port = Arc::new(Port {
        tls: tls.map(TlsAcceptor::from),
        app,
        slots: ConnectionSlots::new(limits),
        proxies: limits.proxies.clone(),
        metrics,
        stop: stop.clone(),
    });
    // What a connection held is given back as it ends, not when the next one comes.
    let open = TaskTracker::new();
    let ended = Arc::new(AtomicUsize::new(0));
    let giving_back = tokio::spawn(give_back(ended.clone()));
    let cut = CancellationToken::new();
    loop {
        // Connections that were told to close are about to end: new ones wait in the kernel's queue until then.
        let permit = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Ok(permit) = slots.clone().acquire_owned() => permit,
        };
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let (port, cut, ended) = (port.clone(), cut.clone(), ended.clone());
        open.spawn(async move {
            port.metrics.connections.inc();
            // A large future: boxed, so that its memory is one piece that goes back whole.
            let connection = Box::pin(port.connection(stream, address));
            tokio::select! {
                () = connection => {}
                () = cut.cancelled() => {}
            }
            port.metrics.connections.dec();
            ended.fetch_add(1, Ordering::Relaxed);
            drop(permit);
        });
    }
    drop(listener);
    open.close();
    if timeout(DRAIN_WITHIN, open.wait()).await.is_err() {
        tracing::warn!(left = open.len(), "connections were still open and are cut");
    }
    cut.cancel();
    open.wait().await;
    giving_back.abort();
}

/// What many connections had in memory goes back to the system after they have ended.
async fn give_back(ended: Arc<AtomicUsize>) {
    loop {
        tokio::time::sleep(GIVE_BACK_EVERY).await;
        if ended.load(Ordering::Relaxed) >= GIVE_BACK_FOR {
            ended.store(0, Ordering::Relaxed);
            _ = tokio::task::spawn_blocking(berth_memory::give_back).await;
        }
    }
}

impl<A: Answer> Port<A> {
    async fn connection(&self, mut stream: TcpStream, peer: SocketAddr) {
        // Answers are written whole: waiting to fill a packet would only delay them.
        _ = stream.set_nodelay(true);
        let from_proxy = self.proxies.hold(peer.ip());
        let mut address = peer.ip();
        if from_proxy && self.proxies.proxy_protocol {
            match timeout(PROXY_WITHIN, proxied(&mut stream)).await {
                Ok(Ok(caller)) => address = caller.unwrap_or(address),
                Ok(Err(error)) => return tracing::warn!(%peer, %error, "a trusted proxy says nothing of its caller"),
                Err(_) => return tracing::debug!(%peer, "a trusted proxy took too long to say who its caller is"),
            }
        }
        // A proxy that says whose each request is has many callers on one connection.
        let slot = match from_proxy && !self.proxies.proxy_protocol {
            true => self.slots.enter_trusted(address),
            false => self.slots.enter(address),
        };
        tokio::select! {
            () = self.serve(Stalling::new(stream), address, &slot) => {}
            () = slot.evicted() => tracing::debug!(%address, "a connection without a token made way for another"),
        }
    }

    async fn serve(&self, stream: Stalling<TcpStream>, address: IpAddr, slot: &Arc<ConnectionSlot>) {
        let Some(tls) = &self.tls else { return self.http(stream, address, false, slot).await };
        match timeout(HANDSHAKE_WITHIN, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let certified = stream.get_ref().1.peer_certificates().is_some_and(|shown| !shown.is_empty());
                self.http(stream, address, certified, slot).await;
            }
            Ok(Err(error)) => {
                self.metrics.handshakes_failed.inc();
                tracing::debug!(%address, %error, "a TLS handshake failed");
            }
            Err(_) => {
                self.metrics.handshakes_failed.inc();
                tracing::debug!(%address, "a TLS handshake took too long");
            }
        }
    }

    async fn http<S>(&self, stream: S, address: IpAddr, certified: bool, slot: &Arc<ConnectionSlot>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|request: Request<Incoming>| {
            let app = self.app.clone();
            let caller = self.proxies.forwarded(address, request.headers());
            let peer = Peer { address: caller, certified, slot: slot.clone() };
            async move { Ok::<_, Infallible>(answered(app, request, peer).await) }
        });
        let builder = builder();
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = slot.idle() => {
                connection.as_mut().graceful_shutdown();
                match timeout(FAREWELL_WITHIN, connection).await {
                    Ok(ended) => ended,
                    Err(_) => return tracing::debug!(%address, "a connection was idle for too long"),
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%address, %error, "a connection ended early");
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX.max(64 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX as u32)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .max_send_buf_size(1 << 20);
    builder
}

/// Lets the connection's slot know for how long it is used. A response to a stranger does not keep its connection
/// open: such responses are short, and a slow reader of one gets no extra time.
async fn answered<A: Answer>(app: Arc<A>, request: Request<Incoming>, peer: Peer) -> Response<Body> {
    let slot = peer.slot.clone();
    let open = slot.open();
    let expects = request.headers().contains_key(header::EXPECT);
    let request = request.map(|body| Body::new(Received { body: Some(body), begun: false, expects }));
    let response = app.answer(request, peer).await;
    if !slot.is_known() {
        return response;
    }
    response.map(|body| TrackedBody::wrap(body, open))
}

/// A request's body. What is left of it when nobody wants it any more is read and thrown away, within limits: a sender
/// that is cut off while it sends never sees the answer that says why.
struct Received {
    body: Option<Incoming>,
    begun: bool,
    /// The sender waits for word before it sends the body, and has none to send after a refusal.
    expects: bool,
}

static DISCARDS: Semaphore = Semaphore::const_new(DISCARDS_MAX);

impl hyper::body::Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.begun = true;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(context);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), |body| body.size_hint())
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.begun || !self.expects {
            runtime.spawn(discard(body));
        }
    }
}

async fn discard(mut body: Incoming) {
    let Ok(_permit) = DISCARDS.try_acquire() else { return };
    let mut left = DISCARD_BYTES_MAX;
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Some(less) = left.checked_sub(length) else { return };
            left = less;
        }
    };
    _ = timeout(DISCARD_WITHIN, read).await;
}

/// The request counts as open until its response's body is dropped.
impl Tracker for OpenRequest {}

/// A connection whose other end must go on taking what it is sent: a reader that stands still would hold its slot forever.
struct Stalling<S> {
    inner: S,
    /// Set while a write waits.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    fn new(inner: S) -> Self {
        Self { inner, waits: None }
    }

    fn watch<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let waits = self.waits.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALLED_AFTER)));
        match waits.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.watch(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.watch(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.watch(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.inner).poll_shutdown(context);
        self.watch(ended, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stands_still_is_let_go() {
        let (near, _far) = tokio::io::duplex(8);
        let mut near = Stalling::new(near);
        let error = near.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
