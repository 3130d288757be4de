//! Reads a kubeconfig: only what is needed to talk to the cluster of its current context.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_engine::handler::{Outcome, Trouble};
use granit_parser::{Event, Parser};
use secrecy::SecretString;
use serde_json::{Map, Value};

const MAX_BYTES: usize = 1024 * 1024;
const MAX_DEPTH: usize = 32;

/// Where a cluster is and how to be let in.
pub struct Config {
    pub server: String,
    /// PEM; `None` means the machine's own roots.
    pub ca: Option<Vec<u8>>,
    /// PEM of certificate and key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
    pub token: Option<SecretString>,
}

impl Config {
    pub fn parse(text: &str) -> Outcome<Self> {
        if text.len() > MAX_BYTES {
            return Err(unusable("it is larger than 1 MiB"));
        }
        let root = yaml(text)?;
        let named = |list: &str, name: &str, inner: &str| -> Option<Value> {
            let entry =
                root.get(list)?.as_array()?.iter().find(|e| e.get("name").and_then(Value::as_str) == Some(name))?;
            entry.get(inner).cloned()
        };
        let current = root.get("current-context").and_then(Value::as_str).unwrap_or_default();
        let context = match named("contexts", current, "context") {
            Some(context) => context,
            // Some clouds leave the current context out when there is only one.
            None => only(&root, "contexts", "context").ok_or_else(|| unusable("it has no current context"))?,
        };
        let cluster = text_at(&context, "cluster")
            .and_then(|name| named("clusters", name, "cluster"))
            .ok_or_else(|| unusable("its context names no cluster"))?;
        let user = text_at(&context, "user").and_then(|name| named("users", name, "user")).unwrap_or_default();

        let server =
            text_at(&cluster, "server").ok_or_else(|| unusable("it has no server"))?.trim_end_matches('/').to_owned();
        if text_at(&cluster, "insecure-skip-tls-verify") == Some("true") {
            return Err(unusable("it asks not to verify the server, which Berth does not do"));
        }
        for (part, key) in [
            (&cluster, "certificate-authority"),
            (&user, "client-certificate"),
            (&user, "client-key"),
            (&user, "tokenFile"),
        ] {
            if part.get(key).is_some() {
                return Err(unusable(&format!("`{key}` names a file; only data inside the kubeconfig is read")));
            }
        }
        if user.get("exec").is_some() || user.get("auth-provider").is_some() {
            return Err(unusable("it needs a program to log in"));
        }
        let client = match (data(&user, "client-certificate-data")?, data(&user, "client-key-data")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => None,
        };
        Ok(Self {
            server,
            ca: data(&cluster, "certificate-authority-data")?,
            client,
            token: text_at(&user, "token").map(|token| SecretString::from(token.to_owned())),
        })
    }
}

fn unusable(why: &str) -> Trouble {
    Trouble::refused(format!("the cluster's kubeconfig cannot be used: {why}"))
}

fn text_at<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn only(root: &Value, list: &str, inner: &str) -> Option<Value> {
    match root.get(list)?.as_array()?.as_slice() {
        [entry] => entry.get(inner).cloned(),
        _ => None,
    }
}

fn data(value: &Value, key: &str) -> Outcome<Option<Vec<u8>>> {
    let Some(text) = text_at(value, key) else { return Ok(None) };
    // What is inside is a secret: the error does not repeat it.
    STANDARD.decode(text.trim()).map(Some).map_err(|_| unusable(&format!("`{key}` is not base64")))
}

/// A collection that is being read, with the key that waits for its value.
enum Open {
    List(Vec<Value>),
    Map(Map<String, Value>, Option<String>),
}

/// The first document as plain data; every scalar is a string.
fn yaml(text: &str) -> Outcome<Value> {
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|_| unusable("it is not YAML"))?;
        let done = match event {
            Event::Scalar(text, ..) => Value::String(text.into_owned()),
            Event::SequenceStart(..) => {
                open.push(Open::List(Vec::new()));
                Value::Null
            }
            Event::MappingStart(..) => {
                open.push(Open::Map(Map::new(), None));
                Value::Null
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(items)) => Value::Array(items),
                Some(Open::Map(map, _)) => Value::Object(map),
                None => return Err(unusable("it is not YAML")),
            },
            Event::Alias(..) => return Err(unusable("it has aliases")),
            _ => Value::Null,
        };
        if open.len() > MAX_DEPTH {
            return Err(unusable("it is nested too deeply"));
        }
        if done.is_null() {
            continue;
        }
        match open.last_mut() {
            None if done.is_object() => return Ok(done),
            None => return Err(unusable("it is not a mapping")),
            Some(Open::List(items)) => items.push(done),
            Some(Open::Map(map, waiting)) => match waiting.take() {
                Some(key) => {
                    map.insert(key, done);
                }
                None => *waiting = done.as_str().map(str::to_owned),
            },
        }
    }
    Err(unusable("it is empty"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: shop\nclusters:\n- name: shop\n  cluster:\n    \
             certificate-authority-data: Q0E=\n    server: https://192.0.2.1:6443/clusters/1/\ncontexts:\n- name: other\n  \
             context: {{cluster: none, user: none}}\n- name: shop\n  context:\n    cluster: shop\n    user: admin\nusers:\n- name: admin\n  user:\n{user}"
        )
    }

    #[test]
    fn certificates_and_tokens_are_read() {
        let config =
            Config::parse(&kubeconfig("    client-certificate-data: Q0VSVA==\n    client-key-data: S0VZ\n")).unwrap();
        assert_eq!(config.server, "https://192.0.2.1:6443/clusters/1");
        assert_eq!(config.ca.as_deref(), Some(&b"CA"[..]));
        assert_eq!(config.client, Some((b"CERT".to_vec(), b"KEY".to_vec())));
        let config = Config::parse(&kubeconfig("    token: abc\n")).unwrap();
        assert!(config.token.is_some() && config.client.is_none());
    }

    #[test]
    fn what_cannot_be_used_says_why_and_keeps_the_secret() {
        let error = |user: &str| Config::parse(&kubeconfig(user)).err().map(|t| t.to_string()).unwrap_or_default();
        assert!(error("    client-key-data: '%%secret%%'\n").ends_with("`client-key-data` is not base64"));
        assert!(error("    exec: {command: login}\n").ends_with("it needs a program to log in"));
        assert!(error("    tokenFile: /x\n").contains("`tokenFile` names a file"));
        assert!(Config::parse("").is_err());
        assert!(Config::parse("- a\n- b\n").is_err());
        assert!(Config::parse(&"[".repeat(100)).is_err());
    }
}
