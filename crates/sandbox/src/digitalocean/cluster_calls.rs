//! `/v2/kubernetes/clusters`: list, create, read, update, delete, upgrade.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::State;
use super::cluster::{Cluster, Firewall, KEPT, Maintenance, Upgrade};
use super::errors::{self, Answer};
use super::node_pool::{self, Pool};
use super::node_pool_calls::{self, PoolRequest};
use super::{Store, catalog, paging::Page, shown};
use crate::clock::SimTime;
use crate::http::{Call, Reply};
use crate::kube::{self, KubeServer};
use crate::world::new_id;

const DAYS: [&str; 8] = ["any", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
const MAX_POOLS: usize = 100;
const MAX_ADDRESSES: usize = 200;

#[derive(Deserialize)]
struct Create {
    #[serde(default)]
    name: String,
    #[serde(default)]
    region: String,
    #[serde(default)]
    version: String,
    node_pools: Option<Vec<PoolRequest>>,
    vpc_uuid: Option<String>,
    cluster_subnet: Option<String>,
    service_subnet: Option<String>,
    /// Only at the start.
    isolated_workers: Option<bool>,
    #[serde(flatten)]
    settings: Settings,
}

/// What can be given at the start and changed later.
#[derive(Deserialize)]
struct Settings {
    tags: Option<Vec<String>>,
    ha: Option<bool>,
    auto_upgrade: Option<bool>,
    surge_upgrade: Option<bool>,
    maintenance_policy: Option<Maintenance>,
    control_plane_firewall: Option<Firewall>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize)]
struct Update {
    name: Option<String>,
    #[serde(flatten)]
    settings: Settings,
}

fn check_name(name: &str) -> Answer<()> {
    if node_pool_calls::is_dns_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Ok(());
    }
    Err(errors::invalid_spec(format!(
        "name \"{name}\" is invalid: it must start with a letter and contain only lowercase letters, numbers and dashes"
    )))
}

fn check_subnet(text: Option<String>, usual: &str, field: &str) -> Answer<String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(usual.into()) };
    match text.parse::<ipnet::Ipv4Net>() {
        Ok(_) => Ok(text),
        Err(_) => Err(errors::invalid_spec(format!("{field} \"{text}\" is not a valid CIDR"))),
    }
}

impl Settings {
    /// Checks everything before anything changes.
    fn apply(self, cluster: &mut Cluster) -> Answer<()> {
        if let Some(tags) = &self.tags {
            cluster.tags = node_pool_calls::own_tags(tags)?;
        }
        if self.ha == Some(false) && cluster.ha {
            return Err(errors::invalid_spec("high availability cannot be disabled once it is enabled"));
        }
        cluster.ha |= self.ha == Some(true);
        cluster.auto_upgrade = self.auto_upgrade.unwrap_or(cluster.auto_upgrade);
        cluster.surge_upgrade = self.surge_upgrade.unwrap_or(cluster.surge_upgrade);
        if let Some(policy) = self.maintenance_policy {
            cluster.maintenance = check_maintenance(policy)?;
        }
        if let Some(firewall) = self.control_plane_firewall {
            cluster.firewall = Some(check_firewall(firewall)?);
        }
        for name in KEPT {
            match self.rest.get(name) {
                Some(Value::Null) | None => {}
                // A block of nulls is how DigitalOcean's clients send one that is not configured.
                Some(Value::Object(block)) if block.values().all(Value::is_null) => drop(cluster.kept.remove(name)),
                Some(value @ Value::Object(_)) => drop(cluster.kept.insert(name.into(), value.clone())),
                Some(_) => return Err(errors::invalid_spec(format!("{name} must be an object"))),
            }
        }
        Ok(())
    }
}

fn check_maintenance(policy: Maintenance) -> Answer<Maintenance> {
    let day = if policy.day.is_empty() { "any".to_owned() } else { policy.day.to_ascii_lowercase() };
    let start_time = if policy.start_time.is_empty() { "00:00".to_owned() } else { policy.start_time };
    let clock = start_time.split_once(':').and_then(|(h, m)| Some((h.parse::<u8>().ok()?, m.parse::<u8>().ok()?)));
    match clock {
        Some((hour, minute)) if hour < 24 && minute < 60 && DAYS.contains(&day.as_str()) => {
            Ok(Maintenance { start_time: format!("{hour:02}:{minute:02}"), day })
        }
        _ => Err(errors::invalid_spec(format!("maintenance_policy \"{day} {start_time}\" is not valid"))),
    }
}

fn check_firewall(firewall: Firewall) -> Answer<Firewall> {
    let valid = |text: &String| text.parse::<ipnet::IpNet>().is_ok() || text.parse::<std::net::IpAddr>().is_ok();
    if let Some(bad) = firewall.allowed_addresses.iter().find(|text| !valid(text)) {
        return Err(errors::invalid_spec(format!(
            "control_plane_firewall.allowed_addresses: \"{bad}\" is not an address or CIDR"
        )));
    }
    if firewall.allowed_addresses.len() > MAX_ADDRESSES {
        return Err(errors::invalid_spec(format!("control_plane_firewall takes at most {MAX_ADDRESSES} addresses")));
    }
    Ok(firewall)
}

pub fn list(state: &State, kube: &KubeServer, call: &Call) -> Answer<Reply> {
    let (page, store, lag) = (Page::of(call), &state.store, call.effects.lag);
    let clusters = store.clusters.behind("", lag);
    let here = clusters.iter().skip(page.offset()).take(page.len());
    let items = here.map(|cluster| shown::cluster(store, kube, cluster, state.now, lag)).collect();
    Ok(Reply::json(200, &page.wrap(call, "kubernetes_clusters", items, clusters.len())))
}

pub fn get(state: &State, kube: &KubeServer, id: &str) -> Answer<Reply> {
    let cluster = state.store.clusters.get(id).ok_or_else(errors::not_found)?;
    Ok(answer(state, kube, 200, cluster))
}

fn answer(state: &State, kube: &KubeServer, status: u16, cluster: &Cluster) -> Reply {
    Reply::json(
        status,
        &json!({"kubernetes_cluster": shown::cluster(state.store, kube, cluster, state.now, Duration::ZERO)}),
    )
}

pub fn create(state: &mut State, kube: &KubeServer, call: &Call) -> Answer<Reply> {
    let body: Create = call.json().map_err(|bad| errors::of(&bad))?;
    check_name(&body.name)?;
    if !catalog::has_region(&body.region) {
        return Err(errors::invalid_spec(format!("invalid region \"{}\"", body.region)));
    }
    let version = catalog::resolve_version(&body.version)
        .ok_or_else(|| errors::invalid_spec(format!("invalid version slug \"{}\"", body.version)))?;
    let vpc = vpc_for(state.store, &body)?;
    let id = new_id();
    let mut pools = plan_pools(state.store, &id, body.node_pools.as_deref().unwrap_or_default())?;
    if call.effects.out_of_capacity(&body.region) {
        return Err(errors::no_capacity(&body.region));
    }
    if state.store.clusters.len() as u64 >= state.quota.clusters {
        return Err(errors::limit_reached("Kubernetes cluster"));
    }
    node_pool_calls::check_quota(state, pools.iter().map(|pool| u64::from(pool.count)).sum())?;

    // Together six to seven minutes: the control plane, then nodes, then a last look.
    let (now, dice) = (state.now, &mut *state.dice);
    let (up, nodes, last) = (dice.seconds(260, 300), dice.seconds(90, 105), dice.seconds(10, 15));
    let at = |ms: i64| if call.effects.stuck { SimTime::NEVER } else { now.plus_ms(ms) };
    for pool in &mut pools {
        (pool.created, pool.updated) = (now, now);
        node_pool::resize(pool, now, dice, call.effects.stuck);
        pool.nodes.iter_mut().for_each(|node| node.ready = at(up + nodes));
    }
    let mut cluster = Cluster {
        id,
        name: body.name,
        region: body.region,
        version: version.into(),
        upgrade: None,
        cluster_subnet: check_subnet(body.cluster_subnet, "10.244.0.0/16", "cluster_subnet")?,
        service_subnet: check_subnet(body.service_subnet, "10.245.0.0/16", "service_subnet")?,
        vpc,
        tags: vec![],
        ha: false,
        auto_upgrade: false,
        surge_upgrade: false,
        registry_enabled: false,
        maintenance: Maintenance { start_time: "00:00".into(), day: "any".into() },
        firewall: None,
        kept: Map::new(),
        isolated_workers: body.isolated_workers.unwrap_or_default(),
        created: now,
        updated: now,
        api_up: at(up),
        ready: at(up + nodes + last),
        gone: None,
    };
    body.settings.apply(&mut cluster)?;
    pools.into_iter().for_each(|pool| state.store.pools.insert(pool));
    let reply = answer(state, kube, 201, &cluster);
    state.store.clusters.insert(cluster);
    Ok(reply)
}

fn vpc_for(store: &Store, body: &Create) -> Answer<String> {
    let given = body.vpc_uuid.as_deref().filter(|id| !id.is_empty());
    let vpc = match given {
        Some(id) => {
            store.vpcs.get(id).ok_or_else(|| errors::invalid_spec(format!("vpc_uuid \"{id}\" was not found")))?
        }
        None => store
            .vpcs
            .first(&format!("default:{}", body.region))
            .ok_or_else(|| errors::invalid_spec("the region has no default VPC"))?,
    };
    if vpc.region != body.region {
        return Err(errors::invalid_spec(format!(
            "vpc_uuid \"{}\" is in region {}, and the cluster would be in {}",
            vpc.id, vpc.region, body.region
        )));
    }
    Ok(vpc.id.clone())
}

fn plan_pools(store: &Store, cluster: &str, wanted: &[PoolRequest]) -> Answer<Vec<Pool>> {
    if wanted.is_empty() {
        return Err(errors::invalid_spec("worker_node_pool_specs: at least one node pool is required"));
    }
    if wanted.len() > MAX_POOLS {
        return Err(errors::invalid_spec(format!("a cluster can have at most {MAX_POOLS} node pools")));
    }
    let mut pools: Vec<Pool> = Vec::new();
    for (at, spec) in wanted.iter().enumerate() {
        let pool = node_pool_calls::plan(store, cluster, spec, at)?;
        if pools.iter().any(|other| other.name == pool.name) {
            return Err(errors::invalid_spec(format!(
                "worker_node_pool_specs[{at}].name \"{}\" must be unique",
                pool.name
            )));
        }
        pools.push(pool);
    }
    Ok(pools)
}

pub fn update(state: &mut State, kube: &KubeServer, call: &Call, id: &str) -> Answer<Reply> {
    let body: Update = call.json().map_err(|bad| errors::of(&bad))?;
    let mut cluster = state.store.live_cluster(id)?.clone();
    if let Some(name) = body.name.filter(|name| !name.is_empty()) {
        check_name(&name)?;
        cluster.name = name;
    }
    body.settings.apply(&mut cluster)?;
    cluster.updated = state.now;
    let reply = answer(state, kube, 202, &cluster);
    state.store.clusters.update(id, |old| *old = cluster);
    Ok(reply)
}

/// Deleting again what is being deleted is fine.
pub fn delete(state: &mut State, id: &str) -> Answer<Reply> {
    let gone = state.now.plus_ms(state.dice.seconds(60, 120));
    let store = &mut *state.store;
    let cluster = store.clusters.get(id).ok_or_else(errors::not_found)?;
    if cluster.gone.is_none() {
        store.clusters.update(id, |cluster| cluster.gone = Some(gone));
        let pools: Vec<String> = store.pools.find(&format!("cluster:{id}")).map(|pool| pool.id.clone()).collect();
        for pool in pools {
            store.pools.update(&pool, |pool| node_pool::leave(pool, gone));
        }
    }
    Ok(Reply::empty(204))
}

pub fn upgrade(state: &mut State, call: &Call, id: &str) -> Answer<Reply> {
    #[derive(Deserialize)]
    struct Body {
        #[serde(default)]
        version: String,
    }
    let body: Body = call.json().map_err(|bad| errors::of(&bad))?;
    let now = state.now;
    let cluster = state.store.live_cluster(id)?;
    let to = catalog::resolve_version(&body.version)
        .ok_or_else(|| errors::invalid_spec(format!("invalid version slug \"{}\"", body.version)))?;
    if cluster.state(now) != "running" {
        return Err(errors::not_yet(format!("cluster is {}; it cannot be upgraded now", cluster.state(now))));
    }
    if to == cluster.version {
        return Err(errors::invalid_spec(format!("cluster is already at version {to}")));
    }
    if !catalog::upgrades_from(&cluster.version).contains(&to) {
        return Err(errors::invalid_spec(format!("cannot upgrade from version {} to {to}", cluster.version)));
    }
    let until = now.plus_ms(state.dice.seconds(300, 600));
    state.store.clusters.update(id, |cluster| {
        cluster.upgrade = Some(Upgrade { from: cluster.version.clone(), until });
        (cluster.version, cluster.updated) = (to.to_owned(), now);
    });
    Ok(Reply::empty(202))
}

pub fn upgrades(state: &State, id: &str) -> Answer<Reply> {
    let cluster = state.store.live_cluster(id)?;
    let list = catalog::version_list(&catalog::upgrades_from(&cluster.version));
    Ok(Reply::json(200, &json!({"available_upgrade_versions": list})))
}

/// Turns the registry on or off for several clusters, all or none.
pub fn registry(state: &mut State, call: &Call, on: bool) -> Answer<Reply> {
    #[derive(Deserialize)]
    struct Body {
        #[serde(default)]
        cluster_uuids: Vec<String>,
    }
    let body: Body = call.json().map_err(|bad| errors::of(&bad))?;
    if body.cluster_uuids.is_empty() {
        return Err(errors::invalid_spec("cluster_uuids: at least one cluster is required"));
    }
    for id in &body.cluster_uuids {
        state.store.live_cluster(id)?;
    }
    for id in &body.cluster_uuids {
        state.store.clusters.update(id, |cluster| cluster.registry_enabled = on);
    }
    Ok(Reply::empty(204))
}

/// Load balancers and volumes that workloads would have made: the sandbox's clusters make none.
pub fn associated(state: &State, id: &str) -> Answer<Reply> {
    state.store.live_cluster(id)?;
    Ok(Reply::json(200, &json!({"load_balancers": [], "volumes": [], "volume_snapshots": []})))
}

pub fn messages(state: &State, id: &str) -> Answer<Reply> {
    state.store.live_cluster(id)?;
    Ok(Reply::json(200, &json!({"messages": []})))
}

/// Credentials exist as soon as there is a control plane to use them on.
fn with_control_plane<'a>(state: &'a State, id: &str) -> Answer<&'a Cluster> {
    let cluster = state.store.live_cluster(id)?;
    if state.now < cluster.api_up {
        return Err(errors::not_yet("cluster is provisioning; its control plane is not available yet"));
    }
    Ok(cluster)
}

fn context(cluster: &Cluster) -> String {
    format!("do-{}-{}", cluster.region, cluster.name)
}

pub fn kubeconfig(state: &State, kube: &KubeServer, id: &str) -> Answer<Reply> {
    let cluster = with_control_plane(state, id)?;
    let text = kube::kubeconfig_with_token(kube, id, &context(cluster));
    Ok(Reply { content_type: "application/yaml".into(), ..Reply::text(200, text) })
}

pub fn credentials(state: &State, kube: &KubeServer, call: &Call, id: &str) -> Answer<Reply> {
    use base64::Engine;
    with_control_plane(state, id)?;
    const WEEK_SECONDS: usize = 7 * 24 * 3600;
    let seconds = call.number("expiry_seconds", WEEK_SECONDS).min(WEEK_SECONDS) as i64;
    let ca = base64::engine::general_purpose::STANDARD.encode(kube.ca_pem());
    Ok(Reply::json(
        200,
        &json!({
            "server": kube::endpoint(kube, id), "certificate_authority_data": ca, "client_certificate_data": null,
            "client_key_data": null, "token": kube.token(id), "expires_at": state.now.plus_ms(seconds * 1000).rfc3339(),
        }),
    ))
}

pub fn user(state: &State, id: &str) -> Answer<Reply> {
    state.store.live_cluster(id)?;
    let user = json!({"username": "sandbox@berth.dev", "groups": ["k8saas:authenticated"]});
    Ok(Reply::json(200, &json!({"kubernetes_cluster_user": user})))
}
