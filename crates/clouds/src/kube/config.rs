//! Reads a kubeconfig: only what is needed to talk to the cluster of its current context.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_engine::handler::{Outcome, Trouble};
use berth_model::yaml::{Documents, Node, Value};
use secrecy::SecretString;

const MAX_BYTES: usize = 1024 * 1024;

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
        let root = document(text)?;
        let current = text_at(&root, "current-context").unwrap_or_default();
        let context = match named(&root, "contexts", current, "context") {
            Some(context) => context,
            // Some clouds leave the current context out when there is only one.
            None => only(&root, "contexts", "context").ok_or_else(|| unusable("it has no current context"))?,
        };
        let cluster = text_at(context, "cluster")
            .and_then(|name| named(&root, "clusters", name, "cluster"))
            .ok_or_else(|| unusable("its context names no cluster"))?;
        let user = text_at(context, "user").and_then(|name| named(&root, "users", name, "user"));

        let server =
            text_at(cluster, "server").ok_or_else(|| unusable("it has no server"))?.trim_end_matches('/').to_owned();
        if text_at(cluster, "insecure-skip-tls-verify") == Some("true") {
            return Err(unusable("it asks not to verify the server, which Berth does not do"));
        }
        for (part, key) in [
            (Some(cluster), "certificate-authority"),
            (user, "client-certificate"),
            (user, "client-key"),
            (user, "tokenFile"),
        ] {
            if part.is_some_and(|part| at(part, key).is_some()) {
                return Err(unusable(&format!("`{key}` names a file; only data inside the kubeconfig is read")));
            }
        }
        if user.is_some_and(|user| at(user, "exec").is_some() || at(user, "auth-provider").is_some()) {
            return Err(unusable("it needs a program to log in"));
        }
        let of_user = |key| user.map_or(Ok(None), |user| data(user, key));
        let client = match (of_user("client-certificate-data")?, of_user("client-key-data")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => None,
        };
        let token = user.and_then(|user| text_at(user, "token"));
        Ok(Self {
            server,
            ca: data(cluster, "certificate-authority-data")?,
            client,
            token: token.map(|token| SecretString::from(token.to_owned())),
        })
    }
}

fn unusable(why: &str) -> Trouble {
    Trouble::refused(format!("the cluster's kubeconfig cannot be used: {why}"))
}

/// The first document, which is a mapping.
fn document(text: &str) -> Outcome<Node<'_>> {
    let mut documents = Documents::new("kubeconfig", text.as_bytes()).map_err(|_| unusable("it is not YAML"))?;
    let loaded = documents.next().ok_or_else(|| unusable("it is empty"))?;
    // What the reader says of a problem may repeat a secret.
    let root = loaded.root.filter(|_| loaded.problems.is_empty()).ok_or_else(|| unusable("it is not YAML"))?;
    if root.is_null() {
        return Err(unusable("it is empty"));
    }
    matches!(root.value, Value::Map { .. }).then_some(root).ok_or_else(|| unusable("it is not a mapping"))
}

fn at<'n, 't>(node: &'n Node<'t>, key: &str) -> Option<&'n Node<'t>> {
    node.entry(key, key).map(|entry| &entry.node)
}

fn text_at<'n>(node: &'n Node<'_>, key: &str) -> Option<&'n str> {
    at(node, key).and_then(Node::text).filter(|text| !text.is_empty())
}

/// What an entry of a list holds, by the entry's name.
fn named<'n, 't>(root: &'n Node<'t>, list: &str, name: &str, inner: &str) -> Option<&'n Node<'t>> {
    let entry = at(root, list)?.items().iter().find(|entry| at(entry, "name").and_then(Node::text) == Some(name))?;
    at(entry, inner)
}

fn only<'n, 't>(root: &'n Node<'t>, list: &str, inner: &str) -> Option<&'n Node<'t>> {
    match at(root, list)?.items() {
        [entry] => at(entry, inner),
        _ => None,
    }
}

fn data(node: &Node<'_>, key: &str) -> Outcome<Option<Vec<u8>>> {
    let Some(text) = text_at(node, key) else { return Ok(None) };
    // What is inside is a secret: the error does not repeat it.
    STANDARD.decode(text.trim()).map(Some).map_err(|_| unusable(&format!("`{key}` is not base64")))
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
