//! Calls to a real API server on loopback, each on a connection of its own: a call that its caller gives up ends at once, and a
//! watch is in nobody's way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::certificates::Certificates;
use super::error::RealError;

pub const REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
pub const REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");

/// Who the sandbox itself is in its clusters: what a cloud runs there on its own account.
const CLOUD_USER: HeaderValue = HeaderValue::from_static("system:cloud-controller-manager");
const CLOUD_GROUP: HeaderValue = HeaderValue::from_static("system:masters");

const CALL_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_ANSWER_BYTES: usize = 256 << 20;

#[derive(Clone)]
pub struct Api {
    addr: SocketAddr,
    front_proxy: Arc<ClientConfig>,
    anonymous: Arc<ClientConfig>,
}

/// How the sandbox shows itself to the API server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Connect {
    /// As the front proxy, whose headers say who is calling.
    FrontProxy,
    /// As nobody; the request has credentials of its own.
    Anonymous,
}

/// How a change is written.
#[derive(Clone, Copy)]
pub enum Change {
    Create,
    Merge,
}

impl Api {
    pub fn new(addr: SocketAddr, certificates: &Certificates) -> Api {
        let (front_proxy, anonymous) = (certificates.front_proxy.clone(), certificates.anonymous.clone());
        Api { addr, front_proxy, anonymous }
    }

    /// Sends a request and gives the answer as soon as its head is there.
    pub async fn send(
        &self,
        connect: Connect,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, RealError> {
        let broken = |error: &dyn std::fmt::Display| RealError::NoAnswer(error.to_string());
        let stream = TcpStream::connect(self.addr).await.map_err(|error| broken(&error))?;
        let _ = stream.set_nodelay(true);
        let config = match connect {
            Connect::FrontProxy => self.front_proxy.clone(),
            Connect::Anonymous => self.anonymous.clone(),
        };
        let name = ServerName::IpAddress(self.addr.ip().into());
        let stream = TlsConnector::from(config).connect(name, stream).await.map_err(|error| broken(&error))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        // Ends with the answer's body, read to its end or dropped.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a real API server ended");
            }
        });
        if let Ok(host) = HeaderValue::from_str(&self.addr.to_string()) {
            request.headers_mut().insert(HOST, host);
        }
        sender.send_request(request).await.map_err(|error| broken(&error))
    }

    /// A call of the sandbox's own. Gives the status and the answer's JSON, or null where it is none.
    async fn call(
        &self,
        method: Method,
        path: &str,
        kind: &'static str,
        body: Bytes,
    ) -> Result<(u16, Value), RealError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(REMOTE_USER, CLOUD_USER)
            .header(REMOTE_GROUP, CLOUD_GROUP)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, kind)
            .body(Full::new(body))
            .map_err(|error| RealError::NoAnswer(error.to_string()))?;
        let answer = async {
            let answer = self.send(Connect::FrontProxy, request).await?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| RealError::NoAnswer(error.to_string()))?.to_bytes();
            Ok((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
        };
        match tokio::time::timeout(CALL_TIMEOUT, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(RealError::NoAnswer(format!("nothing within {} s", CALL_TIMEOUT.as_secs()))),
        }
    }

    /// Whether the API server says that it is ready to serve.
    pub async fn ready(&self) -> bool {
        matches!(self.call(Method::GET, "/readyz", "application/json", Bytes::new()).await, Ok((200, _)))
    }

    /// What is there under this path, if anything.
    pub async fn get(&self, path: &str) -> Result<Option<Value>, RealError> {
        match self.call(Method::GET, path, "application/json", Bytes::new()).await? {
            (404, _) => Ok(None),
            answer => accepted(&Method::GET, path, answer).map(Some),
        }
    }

    /// The items of a list, from the API server's own cache.
    pub async fn list(&self, path: &str) -> Result<Vec<Value>, RealError> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let found = self.get(&format!("{path}{separator}resourceVersion=0")).await?;
        Ok(match found.map(|mut list| list["items"].take()) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        })
    }

    pub async fn change(&self, change: Change, path: &str, body: &Value) -> Result<Value, RealError> {
        let (method, kind) = match change {
            Change::Create => (Method::POST, "application/json"),
            Change::Merge => (Method::PATCH, "application/merge-patch+json"),
        };
        let path = format!("{path}?fieldManager=cloud-controller-manager");
        let answer = self.call(method.clone(), &path, kind, body.to_string().into()).await?;
        accepted(&method, &path, answer)
    }

    /// Deletes at once, without a grace period. What is not there is fine.
    pub async fn delete(&self, path: &str) -> Result<(), RealError> {
        let path = format!("{path}?gracePeriodSeconds=0");
        match self.call(Method::DELETE, &path, "application/json", Bytes::new()).await? {
            (404, _) => Ok(()),
            answer => accepted(&Method::DELETE, &path, answer).map(drop),
        }
    }
}

fn accepted(method: &Method, path: &str, (status, body): (u16, Value)) -> Result<Value, RealError> {
    if (200..300).contains(&status) {
        return Ok(body);
    }
    let message = body["message"].as_str().unwrap_or_default().to_owned();
    Err(RealError::Refused { method: method.to_string(), path: path.to_owned(), status, message })
}
