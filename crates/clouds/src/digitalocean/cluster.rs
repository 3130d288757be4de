//! `digitalocean.cluster`: a cluster with its default pool.

use super::client::Client;
use super::default_pool::{self, Step};
use super::errors::{cluster_overdue, taken};
use super::normal_form::*;
use super::wire::{Cluster, ClusterCreate, ClusterUpdate, Firewall, NodePool, PoolChange};
use super::{CLUSTER, kube_api, offers, versions};
use crate::http::gone_is_none;
use crate::props::{flag, number, text, texts};
use crate::ready_gate;
use crate::usual_times::UsualTimes;
use async_trait::async_trait;
use berth_engine::handler::{Class, Handler, Outcome, Trouble};
use berth_engine::unit::{Change, Field, Observed, Op, Phase, Props, Readiness, Stray, Typical, WaitFor, Waiting};
use berth_engine::{FieldChange, is_unknown};
use secrecy::SecretString;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const fn field(name: &'static str, change: Change) -> Field {
    Field { name, change }
}

const TIMES: UsualTimes = UsualTimes { create: 390, replace: 450, delete: 60, adopt: Some(5), field: 10 };

const FIELDS: &[Field] = &[
    field("cluster_name", Change::InPlace),
    field("region", Change::Replace),
    field("vpc", Change::Replace),
    field("kubernetes_version", Change::InPlace),
    field("highly_available", Change::InPlace),
    field("auto_upgrade", Change::InPlace),
    field("disable_surge_upgrade", Change::InPlace),
    field("maintenance_window", Change::InPlace),
    field("registry_integration", Change::InPlace),
    field("control_plane_firewall_allowed_ips", Change::InPlace),
    field("tags", Change::InPlace),
    field("default_node_pool.size", Change::Roll),
    field("default_node_pool.name", Change::InPlace),
    field("default_node_pool.node_count", Change::InPlace),
    field("default_node_pool.initial_node_count", Change::CreateOnly),
    field("default_node_pool.auto_scale", Change::InPlace),
    field("default_node_pool.min_nodes", Change::InPlace),
    field("default_node_pool.max_nodes", Change::InPlace),
];

/// The secret output with the kubeconfig.
const KUBECONFIG: &str = "kubeconfig";

/// Fields that one request changes together.
const ONE_REQUEST: &[&str] = &[
    "cluster_name",
    "highly_available",
    "auto_upgrade",
    "disable_surge_upgrade",
    "maintenance_window",
    "control_plane_firewall_allowed_ips",
    "tags",
];

pub struct ClusterHandler {
    pub client: Arc<Client>,
}

pub fn observed(cluster: &Cluster) -> Observed {
    let mut props = Props::new();
    let mut put = |name: &str, value: Value| props.insert(name.to_owned(), value);
    put("cluster_name", json!(cluster.name));
    put("region", json!(cluster.region));
    put("vpc", json!(cluster.vpc_uuid));
    put("kubernetes_version", json!(cluster.version));
    put("highly_available", json!(cluster.ha));
    put("auto_upgrade", json!(cluster.auto_upgrade));
    put("disable_surge_upgrade", json!(!cluster.surge_upgrade));
    put("registry_integration", json!(cluster.registry_enabled));
    put("control_plane_firewall_allowed_ips", observed_addresses(cluster.control_plane_firewall.as_ref()));
    put("tags", observed_tags(&cluster.tags));
    if let Some(policy) = &cluster.maintenance_policy {
        put("maintenance_window", json!(window(&policy.day, &policy.start_time)));
    }
    let pools = default_pool::default_pools(&cluster.name, &cluster.node_pools);
    put("default_node_pool.name", json!(default_pool::shown_name(&pools)));
    if let Some(pool) = default_pool::primary(&pools) {
        put("default_node_pool.size", json!(pool.size));
        put("default_node_pool.auto_scale", json!(pool.auto_scale));
        put("default_node_pool.node_count", json!(pool.count));
        if pool.auto_scale {
            put("default_node_pool.min_nodes", json!(pool.min_nodes));
            put("default_node_pool.max_nodes", json!(pool.max_nodes));
        }
    }
    let mut outputs = Props::new();
    outputs.insert("api_server_endpoint".into(), json!(cluster.endpoint));
    if !cluster.created_at.is_empty() {
        outputs.insert("created_at".into(), json!(cluster.created_at));
    }
    Observed { id: cluster.id.clone(), props, outputs, phase: phase(cluster, &pools) }
}

fn is_there(cluster: &Cluster) -> bool {
    cluster.status.state != "deleted"
}

fn phase(cluster: &Cluster, pools: &[&NodePool]) -> Phase {
    let total: u32 = pools.iter().map(|pool| pool.count).sum();
    let running: usize = pools.iter().map(|pool| default_pool::nodes_ready(pool).0).sum();
    let said = cluster.status.message.trim();
    let nodes = format!("{running} of {total} nodes ready");
    match cluster.status.state.to_ascii_lowercase().as_str() {
        "running" if pools.iter().all(|pool| default_pool::nodes_ready(pool).1) => Phase::Ready,
        "running" => Phase::Pending(Waiting::on(WaitFor::Parts, format!("waiting for nodes: {nodes}"))),
        "error" => Phase::Failed { reason: if said.is_empty() { "its state is `error`".into() } else { said.into() } },
        "deleted" | "deleting" => Phase::Deleting,
        "provisioning" => Phase::Pending(format!("building: {nodes}").into()),
        // Degraded, upgrading, and whatever else DigitalOcean may call a state that passes.
        state => Phase::Pending(format!("{state}: {}", if said.is_empty() { &nodes } else { said }).into()),
    }
}

#[async_trait]
impl Handler for ClusterHandler {
    fn fields(&self) -> &'static [Field] {
        FIELDS
    }

    fn refuses_doubles(&self) -> bool {
        false
    }

    async fn strays(&self, token: &str, id: &str) -> Outcome<Vec<Stray>> {
        let tag = token_tag(token);
        let clusters = self.client.clusters().await?;
        let carriers = clusters.iter().filter(|cluster| is_there(cluster) && has_tag(&cluster.tags, &tag));
        let others = carriers.filter(|cluster| cluster.id != id).map(|cluster| Stray {
            unit_type: CLUSTER.into(),
            id: cluster.id.clone(),
            remove: format!("doctl kubernetes cluster delete {}", cluster.id),
        });
        Ok(others.collect())
    }

    fn holds_data(&self) -> bool {
        true
    }

    fn same(&self, field: &str, desired: &Value, observed: &Value) -> bool {
        let texts = (desired.as_str().unwrap_or_default(), observed.as_str().unwrap_or_default());
        match field {
            "kubernetes_version" => versions::same(texts.0, texts.1),
            "default_node_pool.name" => default_pool::is_settled(texts.1),
            "tags" => same_tags(desired, observed),
            _ => desired == observed,
        }
    }

    fn refuse_change(&self, field: &str, from: &Value, to: &Value) -> Option<String> {
        match field {
            "kubernetes_version" => versions::refuse(from.as_str()?, to.as_str()?),
            "highly_available" if from == &json!(true) => Some(
                "DigitalOcean cannot take a highly available control plane back: set highlyAvailable to true, or make another cluster".into(),
            ),
            _ => None,
        }
    }

    fn typical(&self, op: Op, props: &Props, changes: &[FieldChange]) -> Typical {
        TIMES.of(op, changes, u64::from(number(props, "default_node_pool.node_count").unwrap_or(1)))
    }

    async fn check(&self, mut desired: Props, observed: Option<&Observed>) -> Outcome<Props> {
        if !desired.get("vpc").is_some_and(is_unknown) {
            let vpc = offers::vpc_id(&self.client, text(&desired, "vpc"), text(&desired, "region")).await?;
            desired.insert("vpc".into(), json!(vpc));
        }
        let seen = |name: &str| observed.map(|observed| text(&observed.props, name));
        let (region, size) = (text(&desired, "region"), text(&desired, "default_node_pool.size"));
        if seen("cluster_name") != Some(text(&desired, "cluster_name")) {
            offers::name("cluster", "clusterName", text(&desired, "cluster_name"))?;
        }
        let wanted = text(&desired, "kubernetes_version");
        let settled = observed.is_some()
            && seen("region") == Some(region)
            && seen("default_node_pool.size") == Some(size)
            && seen("kubernetes_version").is_some_and(|running| versions::same(wanted, running));
        if settled {
            return Ok(desired);
        }
        let options = self.client.options().await?;
        if seen("region") != Some(region) {
            offers::region(&options, region)?;
        }
        if seen("default_node_pool.size") != Some(size) {
            offers::size(&options, size)?;
        }
        let resolved = offers::version(&options, wanted, seen("kubernetes_version"))?;
        desired.insert("kubernetes_version".into(), json!(resolved));
        Ok(desired)
    }

    async fn read(&self, id: &str, _props: &Props) -> Outcome<Option<Observed>> {
        Ok(self.client.api.cluster(id).await?.as_ref().map(observed))
    }

    /// DigitalOcean may have two clusters of one name: ours carries the token, or, when a version made it that did not send
    /// any, the tags that say whose it is.
    async fn find(&self, desired: &Props, token: Option<&str>) -> Outcome<Option<Observed>> {
        let name = text(desired, "cluster_name");
        let own: Vec<String> = texts(desired, OWN_TAGS).iter().map(|tag| tag.to_ascii_lowercase()).collect();
        let is_ours = |cluster: &Cluster| {
            let tags: BTreeSet<String> = cluster.tags.iter().map(|tag| tag.to_ascii_lowercase()).collect();
            own.iter().all(|tag| tags.contains(tag)) && cluster.region == text(desired, "region")
        };
        let clusters = self.client.clusters().await?;
        if let Some(token) = token {
            let tag = token_tag(token);
            let carriers = clusters.iter().filter(|cluster| is_there(cluster) && has_tag(&cluster.tags, &tag));
            // Whoever looks takes the same one of two.
            let first = carriers.min_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
            if first.is_some() {
                return Ok(first.map(observed));
            }
        }
        let found = clusters
            .iter()
            .filter(|cluster| cluster.name == name && is_there(cluster))
            .filter(|cluster| token.is_none() || is_ours(cluster) && !has_token(&cluster.tags));
        // The interrupted create made the youngest.
        Ok(found.max_by(|a, b| a.created_at.cmp(&b.created_at)).map(observed))
    }

    async fn create(&self, desired: &Props, token: &str, _replacing: bool) -> Outcome<String> {
        let name = text(desired, "cluster_name");
        let body = ClusterCreate {
            name,
            region: text(desired, "region"),
            version: versions::slug(text(desired, "kubernetes_version")),
            vpc_uuid: text(desired, "vpc"),
            tags: tags_to_create(desired, token),
            ha: flag(desired, "highly_available"),
            auto_upgrade: flag(desired, "auto_upgrade"),
            surge_upgrade: !flag(desired, "disable_surge_upgrade"),
            maintenance_policy: policy(text(desired, "maintenance_window")),
            control_plane_firewall: firewall(desired).filter(|firewall| firewall.enabled),
            node_pools: vec![new_default_pool(desired, default_pool::default_pool_name(name), None)],
        };
        match self.client.api.create_cluster(&body).await {
            Ok(cluster) => Ok(cluster.id),
            Err(trouble) if matches!(trouble.class, Class::Taken { .. }) => {
                let other = self.find(desired, None).await?.map(|other| other.id);
                Err(taken("cluster", name, other))
            }
            Err(trouble) => Err(trouble),
        }
    }

    async fn update(&self, observed: &Observed, desired: &Props, fields: &[&str]) -> Outcome<()> {
        let id = observed.id.as_str();
        let Some(cluster) = self.client.api.cluster(id).await? else {
            return Err(Trouble::new(Class::NotFound, format!("cluster {id} is gone")));
        };
        if fields.iter().any(|field| ONE_REQUEST.contains(field)) {
            return self.client.api.update_cluster(id, &cluster_update(&cluster, desired, fields)).await;
        }
        if fields.contains(&"registry_integration") {
            // The cluster was there a moment ago: what DigitalOcean does not find is the registry.
            return self.client.api.set_registry(id, flag(desired, "registry_integration")).await.map_err(|trouble| {
                if !trouble.is_not_found() {
                    return trouble;
                }
                Trouble { class: Class::Refused, ..trouble }
                    .help("registryIntegration needs a container registry in the account:   doctl registry create NAME")
            });
        }
        if fields.contains(&"default_node_pool.size") || fields.contains(&"default_node_pool.name") {
            return self.roll(&cluster, desired).await;
        }
        if fields.iter().any(|field| field.starts_with("default_node_pool.")) {
            let pools = default_pool::default_pools(&cluster.name, &cluster.node_pools);
            let Some(pool) = default_pool::primary(&pools) else { return self.roll(&cluster, desired).await };
            return self.client.api.update_pool(id, &pool.id, &default_pool_change(desired, &cluster, pool)).await;
        }
        if fields.contains(&"kubernetes_version") {
            let wanted = text(desired, "kubernetes_version");
            let Err(trouble) = self.client.api.upgrade_cluster(id, versions::slug(wanted)).await else { return Ok(()) };
            // Refused, because an earlier attempt was acted on meanwhile.
            let now = self.client.api.cluster(id).await?;
            let upgraded = now.is_some_and(|cluster| versions::same(wanted, &cluster.version));
            return if upgraded { Ok(()) } else { Err(trouble) };
        }
        Ok(())
    }

    async fn delete(&self, observed: &Observed, _props: &Props, _drain: bool) -> Outcome<()> {
        self.client.api.delete_cluster(&observed.id).await
    }

    async fn ready(&self, observed: &Observed, props: &Props) -> Outcome<Readiness> {
        // What is not there yet is empty.
        let kubeconfig =
            gone_is_none(self.client.api.kubeconfig(&observed.id).await)?.unwrap_or_else(|| SecretString::from(""));
        let count = number(&observed.props, "default_node_pool.node_count").unwrap_or(1);
        let scaled = flag(&observed.props, "default_node_pool.auto_scale");
        let nodes = if scaled { count.min(1) } else { count };
        ready_gate::readiness(&self.client.kubes, &kubeconfig, KUBECONFIG, props, nodes).await
    }

    /// A kubeconfig's token lasts for about a week.
    fn has_fresh_secrets(&self) -> bool {
        true
    }

    async fn fresh_secrets(&self, id: &str) -> Outcome<Option<BTreeMap<String, SecretString>>> {
        let kubeconfig = self.client.api.kubeconfig(id).await?;
        Ok(Some(BTreeMap::from([(KUBECONFIG.to_owned(), ready_gate::encoded(&kubeconfig))])))
    }

    fn overdue(&self, id: &str, waiting: &Waiting) -> Vec<String> {
        cluster_overdue(id, waiting.on)
    }
}

impl ClusterHandler {
    /// One step of giving the default pool another size.
    async fn roll(&self, cluster: &Cluster, desired: &Props) -> Outcome<()> {
        let pools = default_pool::default_pools(&cluster.name, &cluster.node_pools);
        let name = text(desired, "cluster_name");
        match default_pool::next_step(name, &pools, text(desired, "default_node_pool.size")) {
            Step::Mark(pool) => {
                let change = PoolChange { tags: Some(marked_tags(cluster, pool)), ..unchanged(pool) };
                self.client.api.update_pool(&cluster.id, &pool.id, &change).await
            }
            Step::Make(name) => {
                let heir_of = default_pool::primary(&pools).map(|old| (cluster, old));
                let body = new_default_pool(desired, name, heir_of);
                match self.client.api.create_pool(&cluster.id, &body).await {
                    // Made by an attempt whose answer was lost: the next look shows it.
                    Err(trouble) if matches!(trouble.class, Class::Taken { .. }) => {
                        Err(Trouble { class: Class::Retry { after: None }, ..trouble })
                    }
                    other => other.map(|_| ()),
                }
            }
            Step::Remove(pool) => {
                if !ready_gate::trusts_cloud(desired) {
                    kube_api::drain(&self.client, &cluster.id, &pool.id).await?;
                }
                self.client.api.delete_pool(&cluster.id, &pool.id).await
            }
            Step::Rename(pool, name) => {
                let change = PoolChange { name, ..unchanged(pool) };
                self.client.api.update_pool(&cluster.id, &pool.id, &change).await
            }
            Step::Wait | Step::Done => Ok(()),
        }
    }
}

fn cluster_update<'a>(cluster: &'a Cluster, desired: &'a Props, fields: &[&str]) -> ClusterUpdate<'a> {
    let has = |name: &str| fields.contains(&name);
    ClusterUpdate {
        name: if has("cluster_name") { text(desired, "cluster_name") } else { &cluster.name },
        tags: has("tags").then(|| tags_to_send(desired, &cluster.tags)),
        ha: has("highly_available").then(|| flag(desired, "highly_available")),
        auto_upgrade: has("auto_upgrade").then(|| flag(desired, "auto_upgrade")),
        surge_upgrade: has("disable_surge_upgrade").then(|| !flag(desired, "disable_surge_upgrade")),
        maintenance_policy: has("maintenance_window").then(|| policy(text(desired, "maintenance_window"))).flatten(),
        control_plane_firewall: has("control_plane_firewall_allowed_ips").then(|| firewall(desired)).flatten(),
    }
}

fn firewall(desired: &Props) -> Option<Firewall> {
    let allowed_addresses = texts(desired, "control_plane_firewall_allowed_ips");
    Some(Firewall { enabled: !allowed_addresses.is_empty(), allowed_addresses })
}

/// A pool's change that changes nothing: the API wants the name every time.
fn unchanged(pool: &NodePool) -> PoolChange {
    PoolChange { name: pool.name.clone(), count: (!pool.auto_scale).then_some(pool.count), ..PoolChange::default() }
}

fn marked_tags(cluster: &Cluster, pool: &NodePool) -> Vec<String> {
    let kept = without_inherited(&pool.tags, &cluster.tags).into_iter().filter(|tag| !is_cloud_tag(tag));
    let all: BTreeSet<String> = kept.chain([DEFAULT_POOL_TAG.to_owned()]).collect();
    all.into_iter().collect()
}

/// `heir_of`: a pool that it takes the place of; an autoscaled one hands its number of nodes on.
fn new_default_pool(desired: &Props, name: String, heir_of: Option<(&Cluster, &NodePool)>) -> PoolChange {
    let auto_scale = flag(desired, "default_node_pool.auto_scale");
    let (min, max) = (number(desired, "default_node_pool.min_nodes"), number(desired, "default_node_pool.max_nodes"));
    let count = match (auto_scale, heir_of) {
        (false, _) => number(desired, "default_node_pool.node_count"),
        (true, None) => number(desired, "default_node_pool.initial_node_count"),
        (true, Some((_, old))) => Some(old.count.min(max.unwrap_or(u32::MAX)).max(min.unwrap_or(1))),
    };
    PoolChange {
        name,
        size: Some(text(desired, "default_node_pool.size").to_owned()),
        count,
        tags: Some(match heir_of {
            Some((cluster, old)) => marked_tags(cluster, old),
            None => vec![DEFAULT_POOL_TAG.to_owned()],
        }),
        // Nobody declares these for a default pool; what was put on by hand moves along.
        labels: heir_of.map(|(_, old)| old.labels.clone()).filter(|labels| !labels.is_empty()),
        taints: heir_of.map(|(_, old)| old.taints.clone()).filter(|taints| !taints.is_empty()),
        auto_scale: auto_scale.then_some(true),
        min_nodes: min.filter(|_| auto_scale),
        max_nodes: max.filter(|_| auto_scale),
    }
}

fn default_pool_change(desired: &Props, cluster: &Cluster, pool: &NodePool) -> PoolChange {
    let auto_scale = flag(desired, "default_node_pool.auto_scale");
    PoolChange {
        name: pool.name.clone(),
        count: number(desired, "default_node_pool.node_count").filter(|_| !auto_scale),
        tags: Some(marked_tags(cluster, pool)),
        auto_scale: Some(auto_scale),
        min_nodes: number(desired, "default_node_pool.min_nodes").filter(|_| auto_scale),
        max_nodes: number(desired, "default_node_pool.max_nodes").filter(|_| auto_scale),
        ..PoolChange::default()
    }
}
