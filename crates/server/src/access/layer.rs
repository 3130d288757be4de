//! The layer in front of every method, for gRPC and REST alike: authentication, the check of the role, and the audit log.

use super::audit::{Call, is_one_message};
use super::authenticate::Authenticator;
use super::principal::{Principal, Role};
use crate::api::methods::{Access, Method, methods};
use crate::fault::{Code, Fault};
use crate::limits::{BODY_BYTES_MAX, PUBLIC_BYTES_MAX};
use crate::rest::too_large;
use crate::serve::Peer;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Request, Response};
use berth_store::Actor;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower::{Layer, Service};

/// A frame's head beside the message.
const REQUEST_BYTES_MAX: usize = BODY_BYTES_MAX + 5;
/// Services beside our own that anyone may call: what they tell is public.
const OPEN_SERVICES: [&str; 3] =
    ["/grpc.health.v1.Health/", "/grpc.reflection.v1.ServerReflection/", "/grpc.reflection.v1alpha.ServerReflection/"];

#[derive(Clone)]
pub struct AccessLayer {
    authenticator: Arc<Authenticator>,
}

impl AccessLayer {
    pub fn new(authenticator: Arc<Authenticator>) -> Self {
        Self { authenticator }
    }
}

impl<S> Layer<S> for AccessLayer {
    type Service = AccessService<S>;

    fn layer(&self, inner: S) -> AccessService<S> {
        AccessService { authenticator: self.authenticator.clone(), inner }
    }
}

#[derive(Clone)]
pub struct AccessService<S> {
    authenticator: Arc<Authenticator>,
    inner: S,
}

impl<S> Service<Request<Body>> for AccessService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The one that was asked whether it is ready must be the one that is called.
        let fresh = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, fresh);
        let authenticator = self.authenticator.clone();
        Box::pin(async move { Ok(pass(authenticator, inner, request).await.unwrap_or_else(refuse)) })
    }
}

fn refuse(fault: Fault) -> Response<Body> {
    tonic::Status::from(fault).into_http()
}

async fn pass<S>(
    authenticator: Arc<Authenticator>,
    mut inner: S,
    request: Request<Body>,
) -> Result<Response<Body>, Fault>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let path = request.uri().path();
    let Some(method) = methods().at(path) else {
        if OPEN_SERVICES.iter().any(|service| path.starts_with(service)) {
            let Ok(response) = inner.call(request).await;
            return Ok(response);
        }
        return Ok(tonic::Status::unimplemented("there is no such method").into_http());
    };
    let (mut parts, body) = request.into_parts();
    let peer = peer(&parts);
    let principal = admit(&authenticator, method, &parts).await?;
    let actor = match &principal {
        Some(principal) => Call::by(principal),
        None => Actor::new(anonymous(peer)),
    };
    let allowed = principal.as_deref().map_or(Ok(()), |principal| suffices(method, principal));
    if let Some(principal) = principal {
        parts.extensions.insert(principal);
    }
    if method.audit.is_empty() {
        allowed?;
        let Ok(response) = inner.call(Request::from_parts(parts, body)).await;
        return Ok(response);
    }

    // What is written about a call is read from its message: the whole of it is here before the method begins.
    let most = if method.is_public() { PUBLIC_BYTES_MAX } else { REQUEST_BYTES_MAX };
    let body = whole(body, most).await?;
    if !is_one_message(&body) {
        return Err(Fault::new(Code::InvalidArgument, format!("{} takes one message, not compressed", method.label)));
    }
    let call = Call { method, body: &body, actor };
    if let Err(fault) = allowed {
        call.write(authenticator.control(), Some(&fault)).await?;
        return Err(fault);
    }
    let Ok(response) = inner.call(Request::from_parts(parts, Body::from(body.clone()))).await;
    let failure = crate::rest::fault_in(response.headers());
    // Strangers write few lines, in the log and in the audit log.
    if method.is_public()
        && failure.is_some()
        && let Some(fault) = authenticator.too_many(peer)
    {
        return Err(fault);
    }
    // A secret is not on its way before this is on disk.
    call.write(authenticator.control(), failure.as_ref()).await?;
    if method.is_public() && failure.is_some() {
        authenticator.failed(peer, None, "login");
    }
    Ok(response)
}

/// Who calls; `None` for methods without a token. The gateway may have asked already, before it read a body.
pub(crate) async fn admit(
    authenticator: &Authenticator,
    method: &Method,
    parts: &Parts,
) -> Result<Option<Arc<Principal>>, Fault> {
    match method.access {
        Access::Public => return Ok(None),
        Access::Unspecified => {
            return Err(Fault::new(Code::Denied, format!("nobody may call {}: it does not say who may", method.label)));
        }
        _ => {}
    }
    if let Some(known) = parts.extensions.get::<Arc<Principal>>() {
        return Ok(Some(known.clone()));
    }
    let principal = authenticator.authenticate(&parts.headers, peer(parts)).await?;
    if let Some(peer) = parts.extensions.get::<Peer>() {
        peer.slot.mark_known();
    }
    Ok(Some(principal))
}

fn peer(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get::<Peer>().map(|peer| peer.address)
}

/// Whether the caller's role suffices for a method.
fn suffices(method: &Method, principal: &Principal) -> Result<(), Fault> {
    let (needed, reaches) = match method.access {
        Access::Public | Access::Anyone => return Ok(()),
        Access::Viewer => ("viewer", principal.role.reaches(Role::Viewer)),
        Access::Operator => ("operator", principal.role.reaches(Role::Operator)),
        Access::Admin => ("admin", principal.role.reaches(Role::Admin)),
        Access::Worker => ("worker", principal.role.reaches(Role::Worker)),
        Access::Unspecified => ("no", false),
    };
    if reaches {
        return Ok(());
    }
    let what = if method.summary.is_empty() { &method.label } else { &method.summary };
    Err(Fault::new(Code::Denied, format!("{} needs the role {needed}: {}", method.label, what.to_lowercase()))
        .help(format!("this token has the role {}", principal.role.as_str())))
}

fn anonymous(peer: Option<IpAddr>) -> String {
    peer.map_or_else(|| "anonymous".to_owned(), |peer| format!("anonymous:{peer}"))
}

async fn whole(body: Body, most: usize) -> Result<Bytes, Fault> {
    match Limited::new(body, most).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(most)),
        Err(_) => Err(Fault::new(Code::InvalidArgument, "the request could not be read to its end")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_refused_to_some_role_or_is_meant_for_all() {
        for method in methods().all() {
            let may: Vec<Role> =
                Role::ALL.into_iter().filter(|role| suffices(method, &Principal::inside("t", *role)).is_ok()).collect();
            match method.access {
                Access::Public | Access::Anyone => assert_eq!(may.len(), 4, "{}", method.label),
                Access::Worker => assert_eq!(may, [Role::Worker], "{}", method.label),
                Access::Unspecified => panic!("{} does not say who may call it", method.label),
                _ => assert!(!may.contains(&Role::Worker) && may.contains(&Role::Admin), "{}", method.label),
            }
        }
    }
}
