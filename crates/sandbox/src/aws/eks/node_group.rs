//! A node group, its nodes and their schedule: what they are at a moment follows from the times in them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::spec::Spec;
use super::time;
use crate::aws::ask::Tags;
use crate::clock::SimTime;
use crate::table::Object;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeGroup {
    pub id: String,
    /// The cluster's id and name.
    pub cluster_id: String,
    pub cluster: String,
    pub region: String,
    pub account: String,
    pub name: String,
    /// `version`, `scalingConfig`, `labels` and all else that is shown as it was given.
    pub spec: Spec,
    pub tags: Tags,
    pub nodes: Vec<Node>,
    /// The type that its nodes have, wherever it was given.
    pub instance_type: String,
    /// What became of it where it cannot run: code and message.
    pub issue: Option<(String, String)>,
    pub created_at: SimTime,
    pub modified_at: SimTime,
    pub active_at: SimTime,
    pub gone_at: Option<SimTime>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// The instance's.
    pub id: String,
    pub address: std::net::Ipv4Addr,
    pub zone: String,
    pub version: String,
    pub created_at: SimTime,
    pub ready_at: SimTime,
    pub gone_at: Option<SimTime>,
}

impl Node {
    pub fn there(&self, now: SimTime) -> bool {
        now >= self.created_at && self.gone_at.is_none_or(|at| now < at)
    }

    pub fn ready(&self, now: SimTime) -> bool {
        now >= self.ready_at && self.there(now)
    }

    /// `ip-10-0-1-23.eu-central-1.compute.internal`
    pub fn name(&self, region: &str) -> String {
        let [a, b, c, d] = self.address.octets();
        // The oldest region's machines have a domain of their own.
        let domain =
            if region == "us-east-1" { "ec2.internal".to_owned() } else { format!("{region}.compute.internal") };
        format!("ip-{a}-{b}-{c}-{d}.{domain}")
    }
}

impl Object for NodeGroup {
    const TYPE: &'static str = "aws.eks_node_group";

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        vec![format!("cluster:{}", self.cluster_id), format!("name:{}/{}", self.cluster_id, self.name)]
    }

    fn gone_at(&self) -> Option<SimTime> {
        self.gone_at
    }

    fn weight(&self) -> u64 {
        self.nodes.iter().filter(|node| node.gone_at.is_none()).count() as u64
    }

    fn ledger(&self, now: SimTime) -> Value {
        json!({"name": self.name, "cluster": self.cluster, "region": self.region, "status": self.status(now),
               "nodes": self.nodes.iter().filter(|node| node.there(now)).count(), "tags": self.tags,
               "created_at": self.created_at.rfc3339()})
    }
}

impl NodeGroup {
    pub fn arn(&self) -> String {
        let NodeGroup { region, account, cluster, name, id, .. } = self;
        format!("arn:aws:eks:{region}:{account}:nodegroup/{cluster}/{name}/{id}")
    }

    pub fn autoscaling_group(&self) -> String {
        format!("eks-{}-{}", self.name, self.id)
    }

    pub fn status(&self, now: SimTime) -> &'static str {
        match () {
            () if self.gone_at.is_some() => "DELETING",
            () if now < self.active_at => "CREATING",
            () if self.issue.is_some() => "CREATE_FAILED",
            () if self.spec.updating(now).is_some() => "UPDATING",
            () => "ACTIVE",
        }
    }

    pub fn shown(&self, now: SimTime) -> Value {
        let mut shown = self.spec.all(now);
        let issues: Vec<Value> = self
            .issue
            .iter()
            .filter(|_| now >= self.active_at)
            .map(|(code, message)| json!({"code": code, "message": message, "resourceIds": [self.autoscaling_group()]}))
            .collect();
        let mut put = |name: &str, value: Value| _ = shown.insert(name.to_owned(), value);
        put("nodegroupName", json!(self.name));
        put("nodegroupArn", json!(self.arn()));
        put("clusterName", json!(self.cluster));
        put("createdAt", time(self.created_at));
        put("modifiedAt", time(self.modified_at));
        put("status", json!(self.status(now)));
        put("health", json!({"issues": issues}));
        put("tags", json!(self.tags));
        let mut resources = json!({"autoScalingGroups": [{"name": self.autoscaling_group()}]});
        if !self.spec.get("remoteAccess", now).is_null() {
            resources["remoteAccessSecurityGroup"] = json!(format!("sg-0{}", &self.id.replace('-', "")[..16]));
        }
        put("resources", resources);
        Value::Object(shown)
    }
}
