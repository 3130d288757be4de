//! `civo.pool`: a pool of nodes besides a cluster's default one. Its id holds the cluster's, since Civo's pool ids are unique
//! only within a cluster: `CLUSTER/POOL`.

use super::api::region_code;
use super::client::Client;
use super::kube_api;
use super::normal_form::{self, own_beginnings, same_words};
use super::pool_view::{self, View};
use super::wire::{Cluster, PoolBody};
use crate::http::gone_is_none;
use crate::props::{number, optional_text, put, required_text};
use crate::ready_gate;
use crate::usual_times::UsualTimes;
use async_trait::async_trait;
use berth_engine::FieldChange;
use berth_engine::handler::{Handler, Outcome, Trouble};
use berth_engine::unit::{Change, Field, Observed, Op, Phase, Props, Typical, Waiting};
use serde_json::{Value, json};
use std::sync::Arc;

pub struct PoolHandler {
    pub client: Arc<Client>,
}

const TIMES: UsualTimes = UsualTimes { create: 75, replace: 120, delete: 30, adopt: None, field: 5 };

const FIELDS: &[Field] = &[
    Field { name: "node_pool_name", change: Change::Replace },
    Field { name: "region", change: Change::Replace },
    Field { name: "cluster_id", change: Change::Replace },
    Field { name: "size", change: Change::Replace },
    Field { name: "node_count", change: Change::InPlace },
    Field { name: "initial_node_count", change: Change::CreateOnly },
    Field { name: "labels", change: Change::InPlace },
    Field { name: "taints", change: Change::InPlace },
];

/// Longest name of a pool that is made: its id is the name with nine characters more, and the value of a label on its nodes.
const LONGEST_NEW_NAME: usize = 54;

pub fn unit_id(cluster: &str, pool: &str) -> String {
    format!("{cluster}/{pool}")
}

/// Cluster and pool of a unit's id.
pub fn split_id(id: &str) -> Outcome<(&str, &str)> {
    id.split_once('/').filter(|(cluster, pool)| !cluster.is_empty() && !pool.is_empty()).ok_or_else(|| {
        Trouble::refused(format!("`{id}` is not the id of a pool")).help("give it as CLUSTER-ID/POOL-ID")
    })
}

pub fn observed(cluster: &Cluster, view: &View<'_>, region: &str) -> Observed {
    let mut props = Props::new();
    put(&mut props, "node_pool_name", pool_view::name_of(view.id));
    put(&mut props, "region", region);
    put(&mut props, "cluster_id", cluster.id.as_str());
    put(&mut props, "size", view.size);
    put(&mut props, "node_count", view.wanted);
    put(&mut props, "labels", json!(view.labels));
    put(&mut props, "taints", normal_form::taints_value(&view.taints));
    let mut outputs = Props::new();
    put(&mut outputs, "node_pool_id", view.id);
    let ids: Vec<&str> = view.instances.iter().map(|i| if i.id.is_empty() { &*i.hostname } else { &*i.id }).collect();
    put(&mut outputs, "node_ids", json!(ids));
    let phase = match view.wanted {
        None => Phase::Deleting,
        Some(_) if cluster.status.eq_ignore_ascii_case("deleting") => Phase::Deleting,
        Some(_) if view.is_ready() => Phase::Ready,
        Some(wanted) if view.present > wanted => {
            Phase::Pending(format!("scaling: {} of {wanted} nodes", view.present).into())
        }
        Some(wanted) => Phase::Pending(format!("scaling: {} of {wanted} nodes", view.active()).into()),
    };
    Observed { id: unit_id(&cluster.id, view.id), props, outputs, phase }
}

impl PoolHandler {
    async fn look(&self, region: &str, cluster: &str, pool: &str) -> Outcome<Option<Observed>> {
        let Some(cluster) = gone_is_none(self.client.api.cluster(region, cluster).await)? else { return Ok(None) };
        let views = pool_view::views(&cluster);
        Ok(views.iter().find(|view| view.id == pool).map(|view| observed(&cluster, view, region)))
    }
}

/// The pool's id in Civo: chosen by us, so that a create whose answer was lost is found exactly.
fn chosen_id(props: &Props, token: &str) -> Outcome<String> {
    let name = optional_text(props, "node_pool_name").or(optional_text(props, "name"));
    let name = name.ok_or_else(|| Trouble::refused("the pool has no name"))?;
    Ok(format!("{name}-{}", pool_view::short(token)))
}

#[async_trait]
impl Handler for PoolHandler {
    fn fields(&self) -> &'static [Field] {
        FIELDS
    }

    fn create_first(&self) -> bool {
        true
    }

    fn same(&self, field: &str, desired: &Value, observed: &Value) -> bool {
        if field != "labels" {
            return desired == observed;
        }
        let pairs = |value: &Value| -> Vec<String> {
            let map = value.as_object().into_iter().flatten();
            map.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect()
        };
        let desired = pairs(desired);
        let own = own_beginnings(desired.iter().map(String::as_str), "=");
        same_words(desired, pairs(observed), &own)
    }

    fn typical(&self, op: Op, _: &Props, changes: &[FieldChange]) -> Typical {
        TIMES.of(op, changes, 0)
    }

    async fn check(&self, mut desired: Props, observed: Option<&Observed>) -> Outcome<Props> {
        let region = required_text(&desired, "region")?.to_owned();
        if let Some(cluster) = optional_text(&desired, "cluster_id") {
            let current = observed.and_then(|o| optional_text(&o.props, "cluster_id"));
            let id = self.client.cluster_id(&region, cluster, current).await?;
            put(&mut desired, "cluster_id", id);
        }
        if observed.is_none()
            && let Some(name) = optional_text(&desired, "node_pool_name").filter(|name| name.len() > LONGEST_NEW_NAME)
        {
            return Err(Trouble::refused(format!("`{name}` is too long for the name of a new pool")).help(format!(
                "Civo's ids of pools have room for {LONGEST_NEW_NAME} characters of spec.nodePoolName"
            )));
        }
        if observed.and_then(|o| optional_text(&o.props, "size")) != optional_text(&desired, "size") {
            self.client.offers.check_size(&self.client.api, &region, required_text(&desired, "size")?).await?;
        }
        Ok(desired)
    }

    async fn read(&self, id: &str, props: &Props) -> Outcome<Option<Observed>> {
        let (cluster, pool) = split_id(id)?;
        self.look(required_text(props, "region")?, cluster, pool).await
    }

    /// Ids have a part that only this create has, so that nothing is ever in the way of another.
    async fn find(&self, desired: &Props, token: Option<&str>) -> Outcome<Option<Observed>> {
        let (Some(token), Some(cluster)) = (token, optional_text(desired, "cluster_id")) else { return Ok(None) };
        let region = required_text(desired, "region")?;
        let Some(cluster) = gone_is_none(self.client.cluster_id(region, cluster, None).await)? else { return Ok(None) };
        self.look(region, &cluster, &chosen_id(desired, token)?).await
    }

    async fn create(&self, desired: &Props, token: &str, _: bool) -> Outcome<String> {
        let region = required_text(desired, "region")?;
        let cluster = self.client.cluster_id(region, required_text(desired, "cluster_id")?, None).await?;
        let id = chosen_id(desired, token)?;
        let taints = normal_form::taints_of(desired);
        let body = PoolBody {
            id: Some(&id),
            count: number(desired, "node_count").or(number(desired, "initial_node_count")),
            size: Some(required_text(desired, "size")?),
            labels: Some(normal_form::labels_of(desired, "labels")),
            taints: (!taints.is_empty()).then_some(taints),
            region: Some(&region_code(region)),
        };
        self.client.api.create_pool(region, &cluster, &body).await?;
        Ok(unit_id(&cluster, &id))
    }

    async fn update(&self, observed: &Observed, desired: &Props, _: &[&str]) -> Outcome<()> {
        let region = required_text(&observed.props, "region")?;
        let (cluster, pool) = split_id(&observed.id)?;
        let body = PoolBody {
            // An autoscaled pool has no desired count: the autoscaler's number stays.
            count: number(desired, "node_count").or(number(&observed.props, "node_count")),
            labels: desired.contains_key("labels").then(|| normal_form::labels_of(desired, "labels")),
            taints: desired.contains_key("taints").then(|| normal_form::taints_of(desired)),
            region: Some(&region_code(region)),
            ..PoolBody::default()
        };
        self.client.api.update_pool(region, cluster, pool, &body).await
    }

    async fn delete(&self, observed: &Observed, props: &Props, drain: bool) -> Outcome<()> {
        let region = required_text(props, "region").or_else(|_| required_text(&observed.props, "region"))?;
        let (cluster, pool) = split_id(&observed.id)?;
        if drain && !ready_gate::trusts_cloud(props) {
            let shown = self.client.api.cluster(region, cluster).await?;
            let views = pool_view::views(&shown);
            kube_api::drain(&self.client, region, cluster, views.iter().find(|view| view.id == pool), None).await?;
        }
        self.client.api.delete_pool(region, cluster, pool).await
    }

    fn overdue(&self, id: &str, _: &Waiting) -> Vec<String> {
        let (cluster, _) = split_id(id).unwrap_or((id, id));
        vec![
            format!("look at it:   civo kubernetes show {cluster}, and its nodes:   kubectl get nodes"),
            format!("replace a node that does not come up:   civo kubernetes recycle {cluster} --node NAME"),
            "check the account's quota (civo quota show) and the region's capacity".into(),
        ]
    }
}
