//! `digitalocean.pool`: a pool of nodes beside a cluster's default one.

use super::client::Client;
use super::errors::{pool_overdue, taken};
use super::normal_form::*;
use super::wire::{Cluster, NodePool, PoolChange};
use super::{POOL, default_pool, kube_api, offers};
use crate::props::{flag, number, text, texts};
use crate::ready_gate;
use crate::usual_times::UsualTimes;
use async_trait::async_trait;
use berth_engine::handler::{Class, Handler, Outcome, Trouble};
use berth_engine::unit::{Change, Field, Observed, Op, Phase, Props, Stray, Typical, Waiting};
use berth_engine::{FieldChange, is_unknown};
use serde_json::{Value, json};
use std::sync::Arc;

const fn field(name: &'static str, change: Change) -> Field {
    Field { name, change }
}

const TIMES: UsualTimes = UsualTimes { create: 150, replace: 240, delete: 60, adopt: Some(5), field: 10 };

const FIELDS: &[Field] = &[
    field("node_pool_name", Change::InPlace),
    field("cluster", Change::Replace),
    field("size", Change::Replace),
    field("node_count", Change::InPlace),
    field("initial_node_count", Change::CreateOnly),
    field("auto_scale", Change::InPlace),
    field("min_nodes", Change::InPlace),
    field("max_nodes", Change::InPlace),
    field("labels", Change::InPlace),
    field("taints", Change::InPlace),
    field("tags", Change::InPlace),
];

/// So much of a token makes a temporary name: the end, because the beginning is the time.
const TOKEN_CHARS: usize = 8;

pub struct PoolHandler {
    pub client: Arc<Client>,
}

pub fn observed(cluster: &Cluster, pool: &NodePool) -> Observed {
    let mut props = Props::new();
    let mut put = |name: &str, value: Value| props.insert(name.to_owned(), value);
    put("node_pool_name", json!(pool.name));
    put("cluster", json!(cluster.id));
    put("size", json!(pool.size));
    put("node_count", json!(pool.count));
    put("auto_scale", json!(pool.auto_scale));
    if pool.auto_scale {
        put("min_nodes", json!(pool.min_nodes));
        put("max_nodes", json!(pool.max_nodes));
    }
    put("labels", observed_labels(&pool.labels));
    put("taints", taints(pool.taints.iter().map(|t| (t.key.as_str(), t.value.as_str(), t.effect.as_str()))));
    put("tags", observed_tags(&without_inherited(&pool.tags, &cluster.tags)));
    let mut ids: Vec<&str> = pool.nodes.iter().map(|node| node.id.as_str()).collect();
    ids.sort_unstable();
    let mut outputs = Props::new();
    outputs.insert("node_ids".into(), json!(ids));
    Observed { id: pool.id.clone(), props, outputs, phase: phase(cluster, pool) }
}

fn phase(cluster: &Cluster, pool: &NodePool) -> Phase {
    let (running, ready) = default_pool::nodes_ready(pool);
    if cluster.status.state == "deleted" || default_pool::is_leaving(pool) {
        Phase::Deleting
    } else if ready {
        Phase::Ready
    } else {
        Phase::Pending(format!("building: {running} of {} nodes ready", pool.count).into())
    }
}

fn temporary_name(name: &str, token: &str) -> String {
    let short = &token[token.len().saturating_sub(TOKEN_CHARS)..];
    let head: String = name.chars().take(default_pool::MAX_POOL_NAME - 1 - short.len()).collect();
    format!("{}-{short}", head.trim_end_matches('-'))
}

#[async_trait]
impl Handler for PoolHandler {
    fn fields(&self) -> &'static [Field] {
        FIELDS
    }

    fn create_first(&self) -> bool {
        true
    }

    /// DigitalOcean's documents do not say that the names of a cluster's pools are unique.
    fn refuses_doubles(&self) -> bool {
        false
    }

    async fn strays(&self, token: &str, id: &str) -> Outcome<Vec<Stray>> {
        let (tag, clusters) = (token_tag(token), self.client.clusters().await?);
        let mut strays = Vec::new();
        for cluster in clusters.iter().filter(|cluster| cluster.status.state != "deleted") {
            let is_stray =
                |pool: &&NodePool| pool.id != id && has_tag(&pool.tags, &tag) && !default_pool::is_leaving(pool);
            strays.extend(cluster.node_pools.iter().filter(is_stray).map(|pool| Stray {
                unit_type: POOL.into(),
                id: pool.id.clone(),
                remove: format!("doctl kubernetes cluster node-pool delete {} {}", cluster.id, pool.id),
            }));
        }
        Ok(strays)
    }

    fn same(&self, field: &str, desired: &Value, observed: &Value) -> bool {
        match field {
            "tags" => same_tags(desired, observed),
            _ => desired == observed,
        }
    }

    fn typical(&self, op: Op, _props: &Props, changes: &[FieldChange]) -> Typical {
        TIMES.of(op, changes, 0)
    }

    async fn check(&self, mut desired: Props, observed: Option<&Observed>) -> Outcome<Props> {
        let wanted = text(&desired, "node_pool_name");
        if observed.is_none_or(|observed| text(&observed.props, "node_pool_name") != wanted) {
            offers::name("node pool", "nodePoolName", wanted)?;
        }
        if !desired.get("cluster").is_some_and(is_unknown) {
            let cluster = offers::cluster_id(&self.client, text(&desired, "cluster")).await?;
            let tags = texts(&desired, "tags");
            if is_id(&cluster)
                && !tags.is_empty()
                && let Some(found) = self.client.api.cluster(&cluster).await?
            {
                let own = without_inherited(&tags, &found.tags);
                desired.insert(INHERITED_TAGS.into(), tags.iter().filter(|tag| !own.contains(tag)).cloned().collect());
                desired.insert("tags".into(), json!(own));
            }
            desired.insert("cluster".into(), json!(cluster));
        }
        let size = text(&desired, "size");
        if observed.is_none_or(|observed| text(&observed.props, "size") != size) {
            offers::size(&*self.client.options().await?, size)?;
        }
        Ok(desired)
    }

    async fn read(&self, id: &str, props: &Props) -> Outcome<Option<Observed>> {
        let given = text(props, "cluster");
        let cluster =
            if is_id(given) { self.client.api.cluster(given).await? } else { holding(&self.client, id).await? };
        let Some(cluster) = cluster else { return Ok(None) };
        Ok(cluster.node_pools.iter().find(|pool| pool.id == id).map(|pool| observed(&cluster, pool)))
    }

    /// What a create made carries the token; what a version made that did not send any has the name, or, while an old pool
    /// still had that, a temporary one with the token in it. A pool of the right name but another size is the old one.
    async fn find(&self, desired: &Props, token: Option<&str>) -> Outcome<Option<Observed>> {
        if desired.get("cluster").is_some_and(is_unknown) {
            return Ok(None);
        }
        let id = match offers::cluster_id(&self.client, text(desired, "cluster")).await {
            Ok(id) => id,
            // No cluster, no pool.
            Err(trouble) if trouble.class == Class::Refused => return Ok(None),
            Err(trouble) => return Err(trouble),
        };
        let Some(cluster) = self.client.api.cluster(&id).await? else { return Ok(None) };
        let name = text(desired, "node_pool_name");
        let temporary = token.map(|token| temporary_name(name, token));
        if cluster.status.state == "deleted" {
            return Ok(None);
        }
        let pools: Vec<&NodePool> = cluster.node_pools.iter().filter(|pool| !default_pool::is_leaving(pool)).collect();
        let carries = |pool: &&&NodePool| token.is_some_and(|token| has_tag(&pool.tags, &token_tag(token)));
        let tagged = pools.iter().filter(carries).min_by(|a, b| a.id.cmp(&b.id));
        let begun = tagged.or(pools.iter().find(|pool| Some(&pool.name) == temporary.as_ref())).copied();
        let named = || {
            let is_ours =
                |pool: &&NodePool| token.is_none() || pool.size == text(desired, "size") && !has_token(&pool.tags);
            pools.iter().find(|pool| pool.name == name).copied().filter(is_ours)
        };
        Ok(begun.or_else(named).map(|pool| observed(&cluster, pool)))
    }

    async fn create(&self, desired: &Props, token: &str, replacing: bool) -> Outcome<String> {
        let (cluster, name) = (text(desired, "cluster"), text(desired, "node_pool_name"));
        let taints = taints_to_send(desired);
        let auto_scale = flag(desired, "auto_scale");
        let first = number(desired, if auto_scale { "initial_node_count" } else { "node_count" });
        let body = PoolChange {
            name: if replacing { temporary_name(name, token) } else { name.to_owned() },
            size: Some(text(desired, "size").to_owned()),
            count: first,
            taints: Some(taints).filter(|taints| !taints.is_empty()),
            tags: Some(tags_to_create(desired, token)),
            ..pool_change(desired, &[])
        };
        match self.client.api.create_pool(cluster, &body).await {
            Ok(pool) => Ok(pool.id),
            Err(trouble) if matches!(trouble.class, Class::Taken { .. }) => {
                let other = self.find(desired, None).await?.map(|other| other.id);
                Err(taken("pool", &body.name, other))
            }
            Err(trouble) if trouble.is_not_found() => {
                Err(Trouble::refused(format!("DigitalOcean has no cluster {cluster} to make the pool `{name}` in"))
                    .help("see all:   doctl kubernetes cluster list"))
            }
            Err(trouble) => Err(trouble),
        }
    }

    async fn update(&self, observed: &Observed, desired: &Props, _fields: &[&str]) -> Outcome<()> {
        let cluster = text(&observed.props, "cluster");
        let Some(pool) = self.client.api.pool(cluster, &observed.id).await? else {
            return Err(Trouble::new(Class::NotFound, format!("pool {} is gone", observed.id)));
        };
        let had_taints = !pool.taints.is_empty();
        let taints = taints_to_send(desired);
        let body = PoolChange {
            // An empty list is sent only to take taints away.
            taints: Some(taints).filter(|taints| had_taints || !taints.is_empty()),
            ..pool_change(desired, &pool.tags)
        };
        self.client.api.update_pool(cluster, &observed.id, &body).await
    }

    async fn delete(&self, observed: &Observed, props: &Props, drain: bool) -> Outcome<()> {
        let cluster = text(&observed.props, "cluster");
        if drain && !ready_gate::trusts_cloud(props) {
            kube_api::drain(&self.client, cluster, &observed.id).await?;
        }
        self.client.api.delete_pool(cluster, &observed.id).await
    }

    fn overdue(&self, id: &str, _: &Waiting) -> Vec<String> {
        pool_overdue(id)
    }
}

/// Everything that can change in place.
fn pool_change(desired: &Props, present_tags: &[String]) -> PoolChange {
    let auto_scale = flag(desired, "auto_scale");
    PoolChange {
        name: text(desired, "node_pool_name").to_owned(),
        size: None,
        count: number(desired, "node_count").filter(|_| !auto_scale),
        tags: Some(tags_to_send(desired, present_tags)),
        labels: Some(labels_to_send(desired)),
        taints: None,
        auto_scale: Some(auto_scale),
        min_nodes: number(desired, "min_nodes").filter(|_| auto_scale),
        max_nodes: number(desired, "max_nodes").filter(|_| auto_scale),
    }
}

/// The cluster that a pool is in: an id alone does not say whose it is.
pub async fn holding(client: &Client, id: &str) -> Outcome<Option<Cluster>> {
    let clusters = client.clusters().await?;
    Ok(clusters.iter().find(|cluster| cluster.node_pools.iter().any(|pool| pool.id == id)).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_hold_the_end_of_the_token_and_fit() {
        assert_eq!(temporary_name("batch", "0190aaaabbbbccccddddeeee12345678"), "batch-12345678");
        let long = temporary_name(&"p".repeat(63), "0190aaaabbbbccccddddeeee12345678");
        assert_eq!(long.len(), default_pool::MAX_POOL_NAME);
        assert!(long.ends_with("-12345678"));
        assert_eq!(temporary_name("batch", "ab"), "batch-ab");
    }
}
