//! How DigitalOcean words its errors, and what Berth says about them: what was seen, what to check, what to type.

use crate::http::{Dialect, Refusal};
use berth_engine::handler::{Class, Trouble};
use berth_engine::unit::WaitFor;
use serde::Deserialize;

pub struct DigitalOceanErrors;

#[derive(Deserialize, Default)]
#[serde(default)]
struct ErrorBody {
    id: String,
    message: String,
}

/// What an error is about. DigitalOcean's codes only repeat the HTTP status, so this is the one place where its sentences
/// are read.
enum Subject {
    /// Something is still in a network.
    InUse,
    /// A network that is its region's default.
    Default,
    Taken,
    Limit,
    Capacity,
    /// Something else goes on with the object.
    Busy,
    /// A range of addresses that another network has.
    Overlap,
}

impl Subject {
    fn phrases(&self) -> &'static [&'static str] {
        match self {
            Self::InUse => &["member", "in use", "not empty", "has resources"],
            Self::Default => &["default"],
            Self::Taken => &["already exist", "already in use", "already taken", "must be unique", "duplicate"],
            Self::Limit => &["limit", "quota"],
            Self::Capacity => &["capacity", "sold out", "out of stock"],
            Self::Busy => &["not running", "in progress", "is provisioning", "is upgrading", "being "],
            Self::Overlap => &["overlap"],
        }
    }

    fn is_of(&self, refusal: &Refusal) -> bool {
        let words = refusal.words.to_ascii_lowercase();
        self.phrases().iter().any(|phrase| words.contains(phrase))
    }
}

impl Dialect for DigitalOceanErrors {
    fn cloud(&self) -> &'static str {
        "DigitalOcean"
    }

    fn read(&self, body: &[u8]) -> (String, String) {
        let error: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
        (error.id, error.message)
    }

    fn class(&self, refusal: &Refusal) -> Option<Class> {
        let about = |subject: Subject| subject.is_of(refusal);
        match refusal.status {
            // A network is refused with 403 while something is in it, and as long as it is its region's default.
            403 if about(Subject::InUse) => Some(Class::Retry { after: None }),
            403 if about(Subject::Default) => Some(Class::Refused),
            403 if about(Subject::Limit) => Some(Class::Quota),
            409 | 422 if about(Subject::Taken) => Some(Class::Taken { id: None }),
            400 | 409 | 422 if about(Subject::Limit) || about(Subject::Capacity) => Some(Class::Quota),
            // Something else goes on with the object: what was asked can be asked again.
            409 | 412 | 423 => Some(Class::Retry { after: None }),
            422 if about(Subject::Busy) => Some(Class::Retry { after: None }),
            _ => None,
        }
    }

    fn help(&self, refusal: &Refusal, class: &Class) -> Vec<String> {
        match class {
            Class::Unauthorized => vec![
                "check the token: DIGITALOCEAN_ACCESS_TOKEN, or the account that `spec.account` names; it needs write access to Kubernetes and VPCs".into(),
                "make one at https://cloud.digitalocean.com/account/api/tokens; to check it:   berth doctor".into(),
            ],
            Class::Quota => vec![
                "see what the account may have:   doctl account get; doctl kubernetes cluster list; doctl compute droplet list".into(),
                "delete what is not needed, choose another region or size, or ask DigitalOcean to raise the limit".into(),
            ],
            Class::Taken { .. } => Vec::new(),
            _ if Subject::Overlap.is_of(refusal) => vec![
                "choose another range in spec.ipRangeCidr, or leave it out: DigitalOcean then takes a free one".into(),
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
pub fn cluster_overdue(id: &str, on: WaitFor) -> Vec<String> {
    let page = format!("https://cloud.digitalocean.com/kubernetes/clusters/{id}");
    let mut lines = Vec::new();
    if on == WaitFor::Access {
        lines.push(
            "its API server refused or dropped the connection: a control plane firewall may keep this machine out"
                .into(),
        );
        lines.push("add this machine's address to spec.controlPlaneFirewallAllowedIps, or set the annotation `berth.dev/ready-gate: cloud`".into());
        lines.push(format!(
            "look by hand:   doctl kubernetes cluster kubeconfig save {id} && kubectl get --raw /readyz"
        ));
    } else if on == WaitFor::Parts {
        lines.push(format!("see which nodes are missing:   doctl kubernetes cluster node-pool list {id}"));
        lines.push("see why a node is not ready:   kubectl get nodes; kubectl describe node NAME".into());
        lines.push(
            "check the account's Droplet limit and that the region has the size: https://status.digitalocean.com"
                .into(),
        );
    } else {
        lines.push(format!("look at it in the console: {page}, and at https://status.digitalocean.com for its region"));
        if on != WaitFor::Deletion {
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
