//! A cluster and its schedule: what it is at a moment follows from the times in it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::spec::Spec;
use super::{time, versions};
use crate::aws::ask::Tags;
use crate::clock::SimTime;
use crate::kube::{self, KubeServer};
use crate::table::Object;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cluster {
    /// Stands in its endpoint and in its issuer.
    pub id: String,
    pub name: String,
    pub region: String,
    pub account: String,
    /// Who made it, as IAM names a user or role.
    pub creator: String,
    /// `version`, `roleArn`, `resourcesVpcConfig` and all else that updates can change.
    pub spec: Spec,
    pub tags: Tags,
    /// Whether it began with networking and DNS that are not add-ons.
    pub self_managed_addons: bool,
    /// Add-ons that were deleted and whose pods run on.
    #[serde(default)]
    pub preserved: Vec<String>,
    /// Whether its creator is its administrator without an access entry, as before those existed.
    pub creator_is_admin: bool,
    pub created_at: SimTime,
    pub active_at: SimTime,
    pub gone_at: Option<SimTime>,
}

impl Object for Cluster {
    const TYPE: &'static str = "aws.eks_cluster";

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        vec![format!("region:{}", self.region), format!("name:{}/{}", self.region, self.name)]
    }

    fn gone_at(&self) -> Option<SimTime> {
        self.gone_at
    }

    fn ledger(&self, now: SimTime) -> Value {
        json!({"name": self.name, "region": self.region, "status": self.status(now), "version": self.version(now),
               "tags": self.tags, "created_at": self.created_at.rfc3339()})
    }
}

impl Cluster {
    pub fn arn(&self) -> String {
        format!("arn:aws:eks:{}:{}:cluster/{}", self.region, self.account, self.name)
    }

    pub fn status(&self, now: SimTime) -> &'static str {
        match () {
            () if self.gone_at.is_some() => "DELETING",
            () if now < self.active_at => "CREATING",
            () if self.spec.updating(now).is_some() => "UPDATING",
            () => "ACTIVE",
        }
    }

    pub fn version(&self, now: SimTime) -> &str {
        self.spec.text("version", now)
    }

    pub fn subnets(&self, now: SimTime) -> Vec<String> {
        let ids = self.spec.get("resourcesVpcConfig", now)["subnetIds"].as_array();
        ids.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    pub fn authentication_mode(&self, now: SimTime) -> &str {
        self.spec.get("accessConfig", now)["authenticationMode"].as_str().unwrap_or("CONFIG_MAP")
    }

    pub fn has_access_entries(&self, now: SimTime) -> bool {
        self.authentication_mode(now) != "CONFIG_MAP"
    }

    pub fn shown(&self, now: SimTime, kube: &KubeServer) -> Value {
        let mut shown = self.spec.all(now);
        let version = self.version(now).to_owned();
        let mut put = |name: &str, value: Value| _ = shown.insert(name.to_owned(), value);
        put("name", json!(self.name));
        put("arn", json!(self.arn()));
        put("createdAt", time(self.created_at));
        put("status", json!(self.status(now)));
        put("tags", json!(self.tags));
        put("platformVersion", json!(versions::platform(&version)));
        put("health", json!({"issues": []}));
        put("certificateAuthority", json!({}));
        // The control plane's own address is known once it is there.
        if now >= self.active_at {
            put("endpoint", json!(kube::endpoint(kube, &self.id)));
            put("certificateAuthority", json!({"data": STANDARD.encode(kube.ca_pem())}));
            put("identity", json!({"oidc": {"issuer": kube.issuer(&self.id)}}));
        }
        Value::Object(shown)
    }
}
