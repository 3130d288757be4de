//! An add-on of a cluster: what it is at a moment follows from the times in it and from the cluster's nodes.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::spec::Spec;
use super::{addon_catalog, time};
use crate::aws::ask::Tags;
use crate::clock::SimTime;
use crate::table::Object;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Addon {
    pub id: String,
    pub cluster_id: String,
    pub cluster: String,
    pub region: String,
    pub account: String,
    pub name: String,
    /// `addonVersion`, `configurationValues`, `serviceAccountRoleArn`.
    pub spec: Spec,
    pub tags: Tags,
    pub created_at: SimTime,
    pub modified_at: SimTime,
    pub active_at: SimTime,
    pub gone_at: Option<SimTime>,
}

impl Object for Addon {
    const TYPE: &'static str = "aws.eks_addon";

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        vec![format!("cluster:{}", self.cluster_id), format!("name:{}/{}", self.cluster_id, self.name)]
    }

    fn gone_at(&self) -> Option<SimTime> {
        self.gone_at
    }

    fn ledger(&self, now: SimTime) -> Value {
        json!({"name": self.name, "cluster": self.cluster, "region": self.region, "version": self.spec.text("addonVersion", now),
               "tags": self.tags, "created_at": self.created_at.rfc3339()})
    }
}

impl Addon {
    pub fn arn(&self) -> String {
        let Addon { region, account, cluster, name, id, .. } = self;
        format!("arn:aws:eks:{region}:{account}:addon/{cluster}/{name}/{id}")
    }

    pub fn needs_node(&self) -> bool {
        addon_catalog::find(&self.name).is_some_and(addon_catalog::Offer::needs_node)
    }

    pub fn status(&self, now: SimTime, has_node: bool) -> &'static str {
        match () {
            () if self.gone_at.is_some() => "DELETING",
            () if now < self.active_at => "CREATING",
            () if self.spec.updating(now).is_some() => "UPDATING",
            () if self.needs_node() && !has_node => "DEGRADED",
            () => "ACTIVE",
        }
    }

    /// `identities` are the ARNs of its pod identity associations.
    pub fn shown(&self, now: SimTime, has_node: bool, identities: &[String]) -> Value {
        let mut shown = self.spec.all(now);
        let status = self.status(now, has_node);
        let issues = match status {
            "DEGRADED" => json!([{
                "code": "InsufficientNumberOfReplicas",
                "message": "The add-on is unhealthy because it doesn't have the desired number of replicas.",
                "resourceIds": [],
            }]),
            _ => json!([]),
        };
        let offer = addon_catalog::find(&self.name);
        let mut put = |name: &str, value: Value| _ = shown.insert(name.to_owned(), value);
        put("addonName", json!(self.name));
        put("clusterName", json!(self.cluster));
        put("addonArn", json!(self.arn()));
        put("status", json!(status));
        put("health", json!({"issues": issues}));
        put("createdAt", time(self.created_at));
        put("modifiedAt", time(self.modified_at));
        put("tags", json!(self.tags));
        put("publisher", json!(offer.map_or("eks", |offer| offer.publisher)));
        put("owner", json!(offer.map_or("aws", |offer| offer.owner)));
        if let Some(offer) = offer {
            put("namespaceConfig", json!({"namespace": offer.namespace}));
        }
        if !identities.is_empty() {
            put("podIdentityAssociations", json!(identities));
        }
        Value::Object(shown)
    }
}
