//! A request's or response's body with something that lives as long as the body and is told when it has ended.

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

pub trait Tracker: Send + Unpin + 'static {
    /// All of the body has been read, or it failed. Called at least once, unless the body is dropped before.
    fn ended(&mut self) {}
}

pub struct TrackedBody<T> {
    body: Body,
    tracker: T,
}

impl<T: Tracker> TrackedBody<T> {
    pub fn wrap(body: Body, mut tracker: T) -> Body {
        if body.is_end_stream() {
            tracker.ended();
        }
        Body::new(Self { body, tracker })
    }
}

impl<T: Tracker> hyper::body::Body for TrackedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) || self.body.is_end_stream() {
            self.tracker.ended();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
