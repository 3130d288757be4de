//! How DigitalOcean words its errors, and what Berth says about them: what was seen, what to check, what to type.

use crate::http::{Dialect, Refusal};
use berth_engine::handler::{Class, Trouble};
use serde::Deserialize;

pub struct DigitalOceanWords;

#[derive(Deserialize, Default)]
#[serde(default)]
struct ErrorBody {
    id: String,
    message: String,
}

impl Dialect for DigitalOceanWords {
    fn cloud(&self) -> &'static str {
        "DigitalOcean"
    }

    fn read(&self, body: &[u8]) -> (String, String) {
        let error: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
        (error.id, error.message)
    }

    fn class(&self, refusal: &Refusal) -> Option<Class> {
        let words = refusal.words.to_ascii_lowercase();
        let says = |texts: &[&str]| texts.iter().any(|text| words.contains(text));
        match refusal.status {
            // A network is refused with 403 while something is in it, and as long as it is its region's default.
            403 if says(&["member", "in use", "not empty", "has resources"]) => Some(Class::Retry { after: None }),
            403 if says(&["default"]) => Some(Class::Refused),
            403 if says(&["limit", "quota"]) => Some(Class::Quota),
            409 | 422 if says(&["already exist", "already in use", "already taken", "must be unique", "duplicate"]) => {
                Some(Class::Taken { id: None })
            }
            400 | 409 | 422 if says(&["limit", "quota", "capacity", "sold out", "out of stock"]) => Some(Class::Quota),
            // Something else goes on with the object: what was asked can be asked again.
            409 | 412 | 423 => Some(Class::Retry { after: None }),
            422 if says(&["not running", "in progress", "is provisioning", "is upgrading", "being "]) => {
                Some(Class::Retry { after: None })
            }
            _ => None,
        }
    }

    fn help(&self, _refusal: &Refusal, class: &Class) -> Vec<String> {
        match class {
            Class::Unauthorized => vec![
                "check the token: DIGITALOCEAN_ACCESS_TOKEN, or the account that `spec.account` names; it needs write access to Kubernetes and VPCs".into(),
                "make one at https://cloud.digitalocean.com/account/api/tokens; to check it:   berth doctor".into(),
            ],
            Class::Quota => vec![
                "see what the account may have:   doctl account get; doctl kubernetes cluster list; doctl compute droplet list".into(),
                "delete what is not needed, choose another region or size, or ask DigitalOcean to raise the limit".into(),
            ],
            _ => Vec::new(),
        }
    }
}

/// Another object has the name.
pub fn taken(what: &str, name: &str, id: Option<String>) -> Trouble {
    let message = format!("DigitalOcean already has a {what} named `{name}`, not managed by Berth");
    Trouble::new(Class::Taken { id }, message).help("to make another, change its name in the manifest")
}

/// A cluster that is not done in time, by what was last waited for.
pub fn cluster_overdue(id: &str, waiting_for: &str) -> Vec<String> {
    let page = format!("https://cloud.digitalocean.com/kubernetes/clusters/{id}");
    let mut lines = Vec::new();
    if waiting_for.contains("API server") {
        lines.push(
            "its API server refused or dropped the connection: a control plane firewall may keep this machine out"
                .into(),
        );
        lines.push("add this machine's address to spec.controlPlaneFirewallAllowedIps, or set the annotation `berth.dev/ready-gate: cloud`".into());
        lines.push(format!(
            "look by hand:   doctl kubernetes cluster kubeconfig save {id} && kubectl get --raw /readyz"
        ));
    } else if waiting_for.starts_with("waiting for nodes") {
        lines.push(format!("see which nodes are missing:   doctl kubernetes cluster node-pool list {id}"));
        lines.push("see why a node is not ready:   kubectl get nodes; kubectl describe node NAME".into());
        lines.push(
            "check the account's Droplet limit and that the region has the size: https://status.digitalocean.com"
                .into(),
        );
    } else {
        lines.push(format!("look at it in the console: {page}, and at https://status.digitalocean.com for its region"));
        if waiting_for != "being deleted" {
            lines.push("check the account's Droplet limit, and that the network has addresses left".into());
        }
    }
    lines
}

pub fn pool_overdue(id: &str) -> Vec<String> {
    vec![
        format!(
            "see its nodes:   kubectl get nodes -l doks.digitalocean.com/node-pool-id={id}; kubectl describe node NAME"
        ),
        "check the account's Droplet limit and that the region has the size: https://status.digitalocean.com".into(),
    ]
}
