//! Connections: accepted while there is room, encrypted, bounded in every direction, and ended in order.

use crate::limits::{
    DRAIN_WITHIN, HANDSHAKE_WITHIN, HEADER_BYTES_MAX, HEADERS_MAX, HEADERS_WITHIN, PING_EVERY, STALLED_AFTER,
    STREAMS_MAX,
};
use crate::metrics::Metrics;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// After an accept that failed, such as for want of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Who is at the other end; in the extensions of every request.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// It showed a certificate that the authority for clients signed.
    pub certified: bool,
}

/// What answers requests.
pub trait Answer: Send + Sync + 'static {
    fn answer(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> impl Future<Output = Response<Body>> + Send;
}

/// Serves until told to stop, then lets open requests end.
pub async fn serve<A: Answer>(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    app: Arc<A>,
    most: usize,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(tls);
    let room = Arc::new(Semaphore::new(most));
    let mut open = JoinSet::new();
    loop {
        while open.try_join_next().is_some() {}
        // Without room, new connections wait in the kernel's queue.
        let place = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Ok(place) = room.clone().acquire_owned() => place,
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
        let (acceptor, app, metrics, stop) = (acceptor.clone(), app.clone(), metrics.clone(), stop.clone());
        open.spawn(async move {
            metrics.connections.inc();
            connection(stream, address, acceptor, app, &metrics, stop).await;
            metrics.connections.dec();
            drop(place);
        });
    }
    drop(listener);
    let ended = timeout(DRAIN_WITHIN, async { while open.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        tracing::warn!(left = open.len(), "connections were still open and are cut");
    }
    open.shutdown().await;
}

async fn connection<A: Answer>(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    app: Arc<A>,
    metrics: &Metrics,
    stop: CancellationToken,
) {
    // Answers are written whole: waiting to fill a packet would only delay them.
    _ = stream.set_nodelay(true);
    let stream = match timeout(HANDSHAKE_WITHIN, acceptor.accept(Stalling::new(stream))).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            metrics.handshakes_failed.inc();
            return tracing::debug!(%address, %error, "a TLS handshake failed");
        }
        Err(_) => {
            metrics.handshakes_failed.inc();
            return tracing::debug!(%address, "a TLS handshake took too long");
        }
    };
    let certified = stream.get_ref().1.peer_certificates().is_some_and(|shown| !shown.is_empty());
    let peer = Peer { address, certified };
    let service = service_fn(move |request| {
        let app = app.clone();
        async move { Ok::<_, Infallible>(app.answer(request, peer).await) }
    });
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
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%address, %error, "a connection ended early");
    }
}

/// A connection whose other end must go on taking what it is sent: a reader that stands still would hold its place forever.
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
