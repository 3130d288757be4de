//! A server that is up, as its clients see it.

use anyhow::{Context, Result, bail};
use reqwest::{Client, Method, Response};
use serde_json::Value;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(120);
/// How often a starting server is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(2);

#[derive(Clone)]
pub struct Site {
    pub url: String,
    pub token: String,
    /// What `create.lua` calls it: `kube` or `berth`.
    pub dialect: &'static str,
    pub client: Client,
}

/// Certificates are not checked: each server made its own a moment ago, and everything stays on this machine.
pub fn client() -> Result<Client> {
    Ok(Client::builder().tls_danger_accept_invalid_certs(true).http1_only().timeout(TIMEOUT).build()?)
}

impl Site {
    pub async fn send(&self, method: Method, path: &str, body: Option<(&str, String)>) -> Result<Response> {
        let mut request = self.client.request(method.clone(), format!("{}{path}", self.url)).bearer_auth(&self.token);
        if let Some((kind, text)) = body {
            request = request.header("content-type", kind).body(text);
        }
        let response = request.send().await.with_context(|| format!("{method} {path} got no answer"))?;
        if !response.status().is_success() {
            let status = response.status();
            let text = response.text().await.unwrap_or_default();
            bail!("{method} {path} was refused with {status}: {}", text.chars().take(1000).collect::<String>());
        }
        Ok(response)
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        let text = self.send(Method::GET, path, None).await?.text().await?;
        serde_json::from_str(&text).with_context(|| format!("{path} is no JSON"))
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let response = self.send(Method::POST, path, Some(("application/json", body.to_string()))).await?;
        Ok(serde_json::from_str(&response.text().await?)?)
    }
}

/// Asks until the answer is a success; `check` fails where waiting is in vain.
pub async fn ready(client: &Client, url: &str, wait: Duration, mut check: impl FnMut() -> Result<()>) -> Result<()> {
    let until = Instant::now() + wait;
    loop {
        if let Ok(response) = client.get(url).send().await
            && response.status().is_success()
        {
            return Ok(());
        }
        check()?;
        if Instant::now() > until {
            bail!("{url} does not answer with success after {} s", wait.as_secs());
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}
