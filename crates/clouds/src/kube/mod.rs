//! A small Kubernetes client: is the API there, nodes, a few objects, draining. Made from a kubeconfig.

mod config;
mod drain;

use crate::call_permit::may_send;
use crate::http::{causes, client_builder, read_limited, tls_builder};
use berth_engine::handler::{Class, Outcome, Trouble};
use config::Config;
use reqwest::{Method, Url};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use drain::Drained;

const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Clients kept for clusters that have the same certificates, so that many readiness checks share few TLS set-ups.
const MAX_CLIENTS: usize = 64;
/// Objects asked for in one page of a list.
const PAGE: usize = 500;
const MAX_PAGES: usize = 100;
const FIELD_MANAGER: &str = "berth";

type Fingerprint = [u8; 32];

/// Opens clusters; clusters with the same certificates share connections.
#[derive(Default)]
pub struct Kubes {
    clients: Mutex<VecDeque<(Fingerprint, reqwest::Client)>>,
}

/// One cluster's API.
pub struct Kube {
    client: reqwest::Client,
    server: String,
    token: Option<SecretString>,
}

/// A node, as far as readiness and draining need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub ready: bool,
    pub unschedulable: bool,
    pub labels: BTreeMap<String, String>,
}

impl Kubes {
    /// From a kubeconfig's text; nothing is sent yet.
    pub fn open(&self, kubeconfig: &str) -> Outcome<Kube> {
        let config = Config::parse(kubeconfig)?;
        let url = Url::parse(&config.server).ok().filter(|url| url.scheme() == "https" && url.host_str().is_some());
        let Some(url) = url else {
            return Err(Trouble::refused(format!("the cluster's kubeconfig has `{}` as its server", config.server)));
        };
        let fingerprint = fingerprint(&config, &url);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let client = match clients.iter().position(|(other, _)| *other == fingerprint) {
            Some(index) => clients[index].1.clone(),
            None => {
                let client = build(&config, &url)?;
                if clients.len() >= MAX_CLIENTS {
                    clients.pop_front();
                }
                clients.push_back((fingerprint, client.clone()));
                client
            }
        };
        Ok(Kube { client, server: config.server, token: config.token })
    }
}

fn fingerprint(config: &Config, url: &Url) -> Fingerprint {
    let mut hash = Sha256::new();
    let parts =
        [config.ca.as_deref(), config.client.as_ref().map(|c| &c.0[..]), config.client.as_ref().map(|c| &c.1[..])];
    for part in parts.into_iter().chain([url.host_str().map(str::as_bytes)]) {
        hash.update((part.map_or(0, <[u8]>::len) as u64).to_le_bytes());
        hash.update(part.unwrap_or_default());
    }
    hash.finalize().into()
}

fn build(config: &Config, url: &Url) -> Outcome<reqwest::Client> {
    let mut builder = client_builder(url);
    let unusable = |what: &str| Trouble::refused(format!("the cluster's kubeconfig cannot be used: {what}"));
    match &config.ca {
        Some(ca) => {
            let mut roots = rustls::RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(ca) {
                let certificate = certificate.map_err(|_| unusable("its authority is not a certificate"))?;
                roots.add(certificate).map_err(|_| unusable("its authority is not a certificate"))?;
            }
            if roots.is_empty() {
                return Err(unusable("its authority is not a certificate"));
            }
            let tls = tls_builder()?.with_root_certificates(Arc::new(roots));
            let tls = match &config.client {
                None => tls.with_no_client_auth(),
                Some((certificate, key)) => {
                    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
                    let chain = chain.map_err(|_| unusable("its client certificate cannot be read"))?;
                    let key =
                        PrivateKeyDer::from_pem_slice(key).map_err(|_| unusable("its client key cannot be read"))?;
                    tls.with_client_auth_cert(chain, key)
                        .map_err(|_| unusable("its client certificate and key do not fit"))?
                }
            };
            builder = builder.tls_backend_preconfigured(tls);
        }
        None if config.client.is_some() => {
            return Err(unusable("it has a client certificate and no authority"));
        }
        None => {}
    }
    builder.build().map_err(|e| Trouble::refused(format!("cannot set up HTTP: {}", causes(&e))))
}

impl Kube {
    /// The address of the API.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Whether the API server answers: being asked who we are is an answer too. Else why not, in a few words.
    pub async fn answers(&self) -> Result<(), String> {
        let mut seen = String::new();
        for path in ["/readyz", "/version"] {
            let request = self.request(Method::GET, path, &[]).timeout(ANSWER_TIMEOUT);
            let ask = ask(&Method::GET, path, request).await;
            match ask {
                Ok(response) if response.status().is_success() || matches!(response.status().as_u16(), 401 | 403) => {
                    return Ok(());
                }
                Ok(response) if path == "/readyz" && response.status().as_u16() != 404 => {
                    return Err(format!("it answers {}", response.status()));
                }
                Ok(response) => seen = format!("it answers {}", response.status()),
                Err(error) => return Err(causes(&error)),
            }
        }
        Err(seen)
    }

    /// Nodes that a label selector chooses, or all.
    pub async fn nodes(&self, selector: Option<&str>) -> Outcome<Vec<Node>> {
        let query: Vec<(&str, &str)> = selector.map(|s| ("labelSelector", s)).into_iter().collect();
        let items = self.list("/api/v1/nodes", &query).await?;
        Ok(items.iter().map(node).collect())
    }

    /// One object, or `None` when it is not there.
    pub async fn get(&self, path: &str) -> Outcome<Option<Value>> {
        absent_is_none(self.send(Method::GET, path, &[], None, "").await)
    }

    /// Every item of a list, page by page.
    pub async fn list(&self, path: &str, query: &[(&str, &str)]) -> Outcome<Vec<Value>> {
        let limit = PAGE.to_string();
        let mut items = Vec::new();
        let mut more = String::new();
        for _ in 0..MAX_PAGES {
            let mut query = query.to_vec();
            query.push(("limit", &limit));
            if !more.is_empty() {
                query.push(("continue", &more));
            }
            let mut page = self.send(Method::GET, path, &query, None, "").await?;
            if let Some(Value::Array(found)) = page.get_mut("items").map(Value::take) {
                items.extend(found);
            }
            match page.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(token) if !token.is_empty() => more = token.to_owned(),
                _ => return Ok(items),
            }
        }
        Err(Trouble::refused(format!("{path} has more than {} objects", PAGE * MAX_PAGES)))
    }

    /// Server-side apply: what the object says is set, and what others set beside it stays.
    pub async fn apply(&self, path: &str, object: &Value) -> Outcome<Value> {
        let query = [("fieldManager", FIELD_MANAGER), ("force", "true")];
        self.send(Method::PATCH, path, &query, Some(object), "application/apply-patch+yaml").await
    }

    /// Makes an object in a collection; `Class::Taken` when one of that name is there.
    pub async fn create(&self, collection: &str, object: &Value) -> Outcome<Value> {
        self.send(Method::POST, collection, &[("fieldManager", FIELD_MANAGER)], Some(object), "application/json").await
    }

    /// Writes an object as a whole. With a `resourceVersion` in it, a change by another in between is refused.
    pub async fn replace(&self, path: &str, object: &Value) -> Outcome<Value> {
        self.send(Method::PUT, path, &[("fieldManager", FIELD_MANAGER)], Some(object), "application/json").await
    }

    pub async fn merge(&self, path: &str, patch: &Value) -> Outcome<Value> {
        self.send(Method::PATCH, path, &[("fieldManager", FIELD_MANAGER)], Some(patch), "application/merge-patch+json")
            .await
    }

    /// Deletes an object; one that is not there is as good as deleted.
    pub async fn delete(&self, path: &str) -> Outcome<()> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        absent_is_none(self.send(Method::DELETE, path, &[], Some(&options), "application/json").await).map(|_| ())
    }

    fn request(&self, method: Method, path: &str, query: &[(&str, &str)]) -> reqwest::RequestBuilder {
        let mut request = self.client.request(method, format!("{}{path}", self.server)).timeout(CALL_TIMEOUT);
        if !query.is_empty() {
            request = request.query(query);
        }
        match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
        kind: &str,
    ) -> Outcome<Value> {
        let mut request = self.request(method.clone(), path, query).header("accept", "application/json");
        if let Some(body) = body {
            request = request.header("content-type", kind).body(body.to_string());
        }
        let lost = |why: String| {
            let message = format!("no answer from the cluster's API at {}: {why}", self.server);
            Trouble::new(Class::Retry { after: None }, message).call(format!("{method} {path}"))
        };
        may_send(|| format!("{method} {path}"))?;
        let response = ask(&method, path, request).await.map_err(|e| lost(causes(&e)))?;
        let status = response.status();
        let body = read_limited(response, MAX_BODY_BYTES).await.map_err(|_| lost("the connection broke".into()))?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status.is_success() {
            return Ok(answer);
        }
        let reason = answer.get("reason").and_then(Value::as_str).unwrap_or_default();
        let class = match (status.as_u16(), reason) {
            (404, _) => Class::NotFound,
            (401 | 403, _) => Class::Unauthorized,
            (409, "AlreadyExists") => Class::Taken { id: None },
            // Another wrote in between: look again.
            (409, _) | (429, _) | (500..=599, _) => Class::Retry { after: None },
            _ => Class::Refused,
        };
        let words = answer.get("message").and_then(Value::as_str).unwrap_or_default();
        let message = format!("the cluster's API answered {} {words}", status.as_u16());
        Err(Trouble::new(class, message).call(format!("{method} {path}")))
    }
}

/// Sends one request and logs it.
async fn ask(method: &Method, path: &str, request: reqwest::RequestBuilder) -> reqwest::Result<reqwest::Response> {
    let started = Instant::now();
    let answer = request.send().await;
    let took = started.elapsed().as_millis();
    match &answer {
        Ok(response) => tracing::debug!("cluster: {method} {path}: {} in {took} ms", response.status().as_u16()),
        Err(error) => tracing::debug!("cluster: {method} {path}: {} after {took} ms", causes(error)),
    }
    answer
}

fn absent_is_none(result: Outcome<Value>) -> Outcome<Option<Value>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(trouble) if trouble.is_not_found() => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

fn node(object: &Value) -> Node {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let conditions =
        object.pointer("/status/conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    Node {
        name: text("/metadata/name"),
        ready: conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"),
        unschedulable: object.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or(false),
        labels: object
            .pointer("/metadata/labels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
    }
}
