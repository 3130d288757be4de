//! Streams as server-sent events. The id of an event is its position, so that a browser that lost the stream can continue.

use super::message_shapes::MessageShapes;
use super::{FRAME_HEAD, fault_in, json_writer, problem};
use crate::fault::{Code, Fault};
use crate::limits::{ANSWER_BYTES_MAX, KEEP_ALIVE_EVERY};
use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::{Buf, Bytes, BytesMut};
use futures::stream::unfold;
use http_body_util::BodyExt;
use std::convert::Infallible;
use std::sync::Arc;

pub const MEDIA_TYPE: &str = "text/event-stream";

/// What turns messages into events.
pub struct EventWriter {
    pub shapes: Arc<MessageShapes>,
    /// The message of the stream, and the number of the field that is its position.
    pub output: usize,
    pub id: Option<u32>,
    pub detail: usize,
    pub instance: String,
}

struct State {
    body: Body,
    buffer: BytesMut,
    writer: EventWriter,
    ended: bool,
}

pub fn response(body: Body, writer: EventWriter) -> Response<Body> {
    let state = State { body, buffer: BytesMut::new(), writer, ended: false };
    // The first comment makes the head of the answer travel before there is any event.
    let begun = futures::stream::once(async { Ok::<_, Infallible>(Bytes::from_static(b": begun\n\n")) });
    let events = unfold(state, |mut state| async move { state.next().await.map(|bytes| (Ok(bytes), state)) });
    let mut response = Response::new(Body::from_stream(futures::StreamExt::chain(begun, events)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that gather answers would hold events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl State {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.event() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            match tokio::time::timeout(KEEP_ALIVE_EVERY, self.body.frame()).await {
                Err(_) => return Some(Bytes::from_static(b": alive\n\n")),
                Ok(None) => return self.end(None),
                Ok(Some(Err(_))) => return self.end(Some(Fault::new(Code::Unavailable, "the stream was cut short"))),
                Ok(Some(Ok(frame))) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    } else if let Some(trailers) = frame.trailers_ref() {
                        let fault = fault_in(trailers);
                        return self.end(fault);
                    }
                }
            }
        }
    }

    /// Says why a stream ends, where that is not by itself.
    fn end(&mut self, fault: Option<Fault>) -> Option<Bytes> {
        self.ended = true;
        let writer = &self.writer;
        let fault = fault?;
        let document = problem::document(&writer.shapes, writer.detail, &fault, &writer.instance);
        Some(format!("event: problem\ndata: {}\n\n", serde_json::Value::Object(document)).into())
    }

    /// The next whole message in the buffer.
    fn event(&mut self) -> Option<Bytes> {
        let head = self.buffer.get(1..FRAME_HEAD)?;
        let length = u32::from_be_bytes(head.try_into().ok()?) as usize;
        if length > ANSWER_BYTES_MAX {
            self.buffer.clear();
            return self.end(Some(Fault::new(Code::Internal, "an event is too large")));
        }
        if self.buffer.len() < FRAME_HEAD + length {
            return None;
        }
        self.buffer.advance(FRAME_HEAD);
        let wire = self.buffer.split_to(length);
        let mut text = Vec::with_capacity(wire.len() * 2 + 64);
        if let Some(id) = self.writer.id.and_then(|field| json_writer::number(field, &wire)) {
            text.extend_from_slice(format!("id: {id}\n").as_bytes());
        }
        text.extend_from_slice(b"data: ");
        if json_writer::message(&self.writer.shapes, self.writer.output, &wire, &mut text).is_err() {
            return self.end(Some(Fault::new(Code::Internal, "an event could not be read")));
        }
        text.extend_from_slice(b"\n\n");
        Some(text.into())
    }
}
