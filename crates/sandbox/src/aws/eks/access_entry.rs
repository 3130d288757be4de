//! Access entries: which users and roles of IAM may use a cluster, and as whom.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::access_policy::Associated;
use super::cluster::Cluster;
use super::errors::About;
use super::node_group::NodeGroup;
use super::{cluster_checks, find, find_staying, page, roles, time};
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::Answer;
use crate::clock::SimTime;
use crate::table::Object;
use crate::world::new_id;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccessEntry {
    pub id: String,
    pub cluster_id: String,
    pub cluster: String,
    pub region: String,
    pub account: String,
    pub principal: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub username: String,
    pub groups: Vec<String>,
    pub policies: Vec<Associated>,
    pub tags: Tags,
    pub created_at: SimTime,
    pub modified_at: SimTime,
    pub gone_at: Option<SimTime>,
}

impl Object for AccessEntry {
    const TYPE: &'static str = "aws.eks_access_entry";

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        vec![format!("cluster:{}", self.cluster_id), format!("principal:{}/{}", self.cluster_id, self.principal)]
    }

    fn gone_at(&self) -> Option<SimTime> {
        self.gone_at
    }

    fn ledger(&self, _: SimTime) -> Value {
        let policies: Vec<&str> = self.policies.iter().map(|policy| policy.arn.as_str()).collect();
        json!({"principal": self.principal, "cluster": self.cluster, "region": self.region, "policies": policies,
               "tags": self.tags, "created_at": self.created_at.rfc3339()})
    }
}

impl AccessEntry {
    /// `…:access-entry/CLUSTER/role/ACCOUNT/NAME/ID`
    pub fn arn(&self) -> String {
        let AccessEntry { region, account, cluster, principal, id, .. } = self;
        let mut parts = principal.splitn(6, ':').skip(4);
        let (owner, resource) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (kind, name) = resource.split_once('/').unwrap_or((resource, ""));
        let name = name.rsplit('/').next().unwrap_or(name);
        format!("arn:aws:eks:{region}:{account}:access-entry/{cluster}/{kind}/{owner}/{name}/{id}")
    }

    fn shown(&self) -> Value {
        json!({
            "clusterName": self.cluster, "principalArn": self.principal, "kubernetesGroups": self.groups,
            "accessEntryArn": self.arn(), "createdAt": time(self.created_at), "modifiedAt": time(self.modified_at),
            "tags": self.tags, "username": self.username, "type": self.kind,
        })
    }
}

/// Entries need a mode in which they count.
pub fn check_mode(ask: &Ask, cluster: &Cluster) -> Answer<()> {
    match cluster.has_access_entries(ask.now()) {
        true => Ok(()),
        false => Err(About::cluster(&cluster.name).bad_request(
            "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation.",
        )),
    }
}

pub fn find_in<'a>(ask: &'a Ask, cluster: &Cluster) -> Answer<&'a AccessEntry> {
    let principal = ask.input.text("principalArn").unwrap_or_default();
    let key = format!("principal:{}/{principal}", cluster.id);
    ask.state.store.eks.access_entries.first(&key).ok_or_else(|| {
        let message = format!(
            "The specified principalArn could not be found. You can view your available access entries with 'list-access-entries' \
             command. Cluster: {}",
            cluster.name
        );
        About::cluster(&cluster.name).not_found(message)
    })
}

/// The name that a principal has inside the cluster where none is given.
fn default_username(kind: &str, principal: &str) -> String {
    if kind != "STANDARD" {
        return match kind {
            "FARGATE_LINUX" => "system:node:{{SessionName}}".into(),
            _ => "system:node:{{EC2PrivateDNSName}}".into(),
        };
    }
    match principal.split_once(":role/") {
        Some((head, _)) => {
            format!(
                "{}:assumed-role/{}/{{{{SessionName}}}}",
                head.replacen(":iam:", ":sts:", 1),
                roles::name(principal)
            )
        }
        None => principal.to_owned(),
    }
}

fn default_groups(kind: &str) -> Vec<String> {
    let groups: &[&str] = match kind {
        "STANDARD" => &[],
        "FARGATE_LINUX" => &["system:bootstrappers", "system:nodes", "system:node-proxier"],
        "EC2_WINDOWS" => &["eks:kube-proxy-windows", "system:bootstrappers", "system:nodes"],
        _ => &["system:bootstrappers", "system:nodes"],
    };
    groups.iter().map(|group| (*group).to_owned()).collect()
}

fn check_names(about: About, username: Option<&str>, groups: &[&str]) -> Answer<()> {
    const RESERVED: [&str; 5] = ["system:", "eks:", "aws:", "amazon:", "iam:"];
    let reserved = |name: &str| RESERVED.into_iter().find(|prefix| name.starts_with(prefix));
    if let Some((name, prefix)) = groups.iter().find_map(|group| Some((group, reserved(group)?))) {
        let prefix = prefix.trim_end_matches(':');
        return Err(
            about.bad_parameter(format!("The kubernetes group name {name} is invalid, it cannot start with {prefix}:"))
        );
    }
    match username.and_then(|name| Some((name, reserved(name)?))) {
        // The default name of a principal begins with its ARN.
        Some((name, prefix)) => {
            Err(about.bad_parameter(format!("The username {name} is invalid, it cannot start with {prefix}")))
        }
        None => Ok(()),
    }
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let cluster = find_staying(ask, "clusterName")?;
    check_mode(ask, &cluster)?;
    let about = About::cluster(&cluster.name);
    let principal = ask.input.text("principalArn").unwrap_or_default().to_owned();
    let kind = ask.input.text("type").unwrap_or("STANDARD").to_owned();
    if !matches!(
        kind.as_str(),
        "STANDARD" | "EC2_LINUX" | "EC2_WINDOWS" | "FARGATE_LINUX" | "EC2" | "HYBRID_LINUX" | "HYPERPOD_LINUX"
    ) {
        return Err(about.bad_parameter(format!("The access entry type is invalid: {kind}")));
    }
    if !roles::principal_exists(ask, &principal) {
        return Err(about.bad_parameter("The specified principalArn is invalid: invalid principal"));
    }
    if kind != "STANDARD" && !roles::is_role(&principal) {
        return Err(about.bad_parameter(format!("Only an IAM role can be used with access entry type {kind}")));
    }
    if ask.state.store.eks.access_entries.count(&format!("principal:{}/{principal}", cluster.id)) > 0 {
        return Err(about.in_use("The specified access entry resource is already in use on this cluster."));
    }
    let (groups, username) = (ask.input.texts("kubernetesGroups"), ask.input.text("username"));
    if kind != "STANDARD" && (!groups.is_empty() || username.is_some()) {
        let message = format!("The access entry type {kind} does not accept kubernetesGroups or username");
        return Err(about.bad_parameter(message));
    }
    check_names(about, username, &groups)?;
    let groups = match kind.as_str() {
        "STANDARD" => groups.into_iter().map(str::to_owned).collect(),
        _ => default_groups(&kind),
    };
    let username = username.map_or_else(|| default_username(&kind, &principal), str::to_owned);
    let tags = ask.input.map("tags");
    cluster_checks::tags(about, &tags)?;
    let entry = AccessEntry { groups, username, tags, ..blank(ask, &cluster, &principal, &kind) };
    let shown = entry.shown();
    ask.store().eks.access_entries.insert(entry);
    Ok(json!({"accessEntry": shown}))
}

fn blank(ask: &Ask, cluster: &Cluster, principal: &str, kind: &str) -> AccessEntry {
    AccessEntry {
        id: new_id(),
        cluster_id: cluster.id.clone(),
        cluster: cluster.name.clone(),
        region: cluster.region.clone(),
        account: cluster.account.clone(),
        principal: principal.to_owned(),
        kind: kind.to_owned(),
        username: default_username(kind, principal),
        groups: default_groups(kind),
        policies: Vec::new(),
        tags: Tags::new(),
        created_at: ask.now(),
        modified_at: ask.now(),
        gone_at: None,
    }
}

/// The entries that a new cluster has: its creator's, where that is wanted, and EKS's own.
pub fn bootstrap(ask: &mut Ask, cluster: &Cluster) {
    let now = ask.now();
    if !cluster.has_access_entries(now) {
        return;
    }
    let (service, name) = roles::FOR_CLUSTERS;
    let own = format!("arn:aws:iam::{}:role/aws-service-role/{service}/{name}", cluster.account);
    let mut entry = blank(ask, cluster, &own, "STANDARD");
    entry.policies = ["AmazonEKSClusterInsightsPolicy", "AmazonEKSEventPolicy"]
        .map(|name| Associated::cluster_wide(name, now))
        .to_vec();
    ask.store().eks.access_entries.insert(entry);
    if cluster.creator_is_admin {
        let mut entry = blank(ask, cluster, &cluster.creator, "STANDARD");
        entry.policies = vec![Associated::cluster_wide("AmazonEKSClusterAdminPolicy", now)];
        ask.store().eks.access_entries.insert(entry);
    }
}

/// EKS lets the nodes of a managed group in by itself.
pub fn for_nodes(ask: &mut Ask, cluster: &Cluster, role: &str) {
    let known = ask.state.store.eks.access_entries.count(&format!("principal:{}/{role}", cluster.id)) > 0;
    if cluster.has_access_entries(ask.now()) && !known {
        let entry = blank(ask, cluster, role, "EC2_LINUX");
        ask.store().eks.access_entries.insert(entry);
    }
}

/// With the last group of a role goes the entry that was made for it.
pub fn nodes_left(ask: &mut Ask, cluster: &Cluster, group: &NodeGroup) {
    let now = ask.now();
    let role = group.spec.text("nodeRole", now).to_owned();
    let groups = ask.state.store.eks.node_groups.find(&format!("cluster:{}", cluster.id));
    let used = groups.filter(|other| other.gone_at.is_none()).any(|other| other.spec.text("nodeRole", now) == role);
    let key = format!("principal:{}/{role}", cluster.id);
    let entry = ask.state.store.eks.access_entries.first(&key).filter(|entry| entry.kind == "EC2_LINUX");
    if let (false, Some(id)) = (used, entry.map(|entry| entry.id.clone())) {
        ask.store().eks.access_entries.remove(&id);
    }
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let cluster = find(ask, "clusterName")?;
    check_mode(ask, cluster)?;
    Ok(json!({"accessEntry": find_in(ask, cluster)?.shown()}))
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let cluster = find(ask, "clusterName")?;
    check_mode(ask, cluster)?;
    let policy = ask.input.text("associatedPolicyArn");
    let rows = ask.rows(|store| &store.eks.access_entries, &format!("cluster:{}", cluster.id));
    let holds =
        |entry: &&&AccessEntry| policy.is_none_or(|arn| entry.policies.iter().any(|associated| associated.arn == arn));
    let arns = rows.iter().filter(holds).map(|entry| json!(entry.principal)).collect();
    page(ask, "accessEntries", arns)
}

pub fn update(ask: &mut Ask) -> Answer<Value> {
    let cluster = find_staying(ask, "clusterName")?;
    check_mode(ask, &cluster)?;
    let (about, now) = (About::cluster(&cluster.name), ask.now());
    let entry = find_in(ask, &cluster)?.clone();
    let (groups, username) =
        (ask.input.texts("kubernetesGroups"), ask.input.text("username").filter(|name| !name.is_empty()));
    if entry.kind != "STANDARD" {
        return Err(about.bad_request(format!("Access entries of type {} cannot be updated", entry.kind)));
    }
    check_names(about, username, &groups)?;
    let groups: Option<Vec<String>> =
        ask.input.at("kubernetesGroups").map(|_| groups.into_iter().map(str::to_owned).collect());
    let username = username.map(str::to_owned);
    let shown = ask.store().eks.access_entries.update(&entry.id, |entry| {
        entry.groups = groups.unwrap_or_else(|| entry.groups.clone());
        entry.username = username.unwrap_or_else(|| entry.username.clone());
        entry.modified_at = now;
        entry.shown()
    });
    Ok(json!({"accessEntry": shown}))
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let cluster = find_staying(ask, "clusterName")?;
    check_mode(ask, &cluster)?;
    let id = find_in(ask, &cluster)?.id.clone();
    ask.store().eks.access_entries.remove(&id);
    Ok(json!({}))
}

/// The entry of a principal, whose session's ARN lacks the role's path.
pub fn of_principal<'a>(
    table: &'a crate::table::Table<AccessEntry>,
    cluster: &str,
    principal: &str,
) -> Option<&'a AccessEntry> {
    table.first(&format!("principal:{cluster}/{principal}")).or_else(|| {
        table.find(&format!("cluster:{cluster}")).find(|entry| roles::without_path(&entry.principal) == principal)
    })
}
