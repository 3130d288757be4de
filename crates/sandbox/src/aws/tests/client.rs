//! A sandbox of its own for each test, and short words to talk to any of its services.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::aws::NAME;
use crate::{Config, Sandbox, Speed};

pub struct Aws {
    pub sandbox: Sandbox,
    http: reqwest::Client,
    /// Access key and session token.
    pub key: (String, Option<String>),
}

pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// What a step must give: an error's code and a part of its message, or parts of the body.
pub enum Expected {
    Refused(u16, &'static str),
    Holds(&'static [&'static str]),
}

pub use Expected::{Holds, Refused};

impl Aws {
    pub async fn instant() -> Aws {
        Aws::start(Config { speed: Speed::Instant, ..Config::default() }).await
    }

    /// IAM policies decide.
    pub async fn enforcing() -> Aws {
        let mut config = Config { speed: Speed::Instant, ..Config::default() };
        config.options.entry(NAME).or_default().insert("enforce", String::new());
        Aws::start(config).await
    }

    pub async fn start(config: Config) -> Aws {
        let sandbox = Sandbox::start(config).await.unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Aws { sandbox, http, key: ("AKIATEST".into(), None) }
    }

    /// Calls as somebody else until the end of the borrow.
    pub fn with_key(&mut self, key: &str, token: Option<&str>) {
        self.key = (key.to_owned(), token.map(str::to_owned));
    }

    pub async fn send(
        &self,
        service: &str,
        request: (&str, &str),
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> Answer {
        let (method, path) = request;
        let url = format!("{}{path}", self.sandbox.url(NAME));
        let credential = format!("{}/20260101/eu-central-1/{service}/aws4_request", self.key.0);
        let mut request = self.http.request(method.parse().unwrap(), url).body(body.into()).header(
            "authorization",
            format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0"),
        );
        if let Some(token) = &self.key.1 {
            request = request.header("x-amz-security-token", token);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let text = |value: &reqwest::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        Answer { status, headers, body: response.text().await.unwrap() }
    }

    /// `query("iam", "CreateRole", &[("RoleName", "a")])`
    pub async fn query(&self, service: &str, action: &str, parameters: &[(&str, &str)]) -> Answer {
        let mut form = format!("Action={action}");
        for (name, value) in parameters {
            let value = percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC);
            form.push_str(&format!("&{name}={value}"));
        }
        self.send(service, ("POST", "/"), &[("content-type", "application/x-www-form-urlencoded")], form).await
    }

    pub async fn json(&self, service: &str, target: &str, input: &Value) -> Answer {
        self.send(service, ("POST", "/"), &[("x-amz-target", target)], input.to_string()).await
    }
}

impl Answer {
    /// The text of the first element with that name.
    pub fn text(&self, element: &str) -> String {
        let after =
            self.body.split(&format!("<{element}>")).nth(1).unwrap_or_else(|| panic!("no {element} in {}", self.body));
        after.split('<').next().unwrap().to_owned()
    }

    pub fn value(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn check(&self, what: &str, expected: &Expected) {
        match expected {
            Refused(status, code) => {
                assert_eq!(self.status, *status, "{what}: {}", self.body);
                assert!(self.body.contains(code), "{what}: {code} expected, not {}", self.body);
            }
            Holds(parts) => {
                assert!(self.status < 300, "{what}: {} {}", self.status, self.body);
                for part in *parts {
                    assert!(self.body.contains(part), "{what}: `{part}` expected in {}", self.body);
                }
            }
        }
    }
}
