//! Networks, under `/v2/networks` and `/v2/vpc/networks`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::State;
use super::catalog::REGIONS;
use super::errors::{Answer, fail};
use super::loose_fields::valid_cidr;
use super::{Store, firewall};
use crate::clock::SimTime;
use crate::http::{Refusal, Reply};
use crate::table::Object;
use crate::world::new_id;

const MAX_LABEL_CHARS: usize = 63;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Network {
    pub id: String,
    pub name: String,
    pub label: String,
    pub region: String,
    pub default: bool,
    pub cidr: String,
    pub nameservers_v4: Vec<String>,
    pub created_at: SimTime,
    pub active_at: SimTime,
    pub gone_at: Option<SimTime>,
}

impl Object for Network {
    const TYPE: &'static str = "civo.network";

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        let (region, label) = (&self.region, &self.label);
        vec![format!("region:{region}"), format!("name:{region}/{label}"), format!("cidr:{region}/{}", self.cidr)]
    }

    fn gone_at(&self) -> Option<SimTime> {
        self.gone_at
    }

    fn ledger(&self, now: SimTime) -> Value {
        json!({"name": self.label, "region": self.region, "cidr": self.cidr, "default": self.default,
               "status": self.status(now), "created_at": self.created_at.rfc3339()})
    }
}

impl Network {
    fn status(&self, now: SimTime) -> &'static str {
        match (self.gone_at, now >= self.active_at) {
            (Some(_), _) => "Deleting",
            (None, true) => "Active",
            (None, false) => "Pending",
        }
    }

    fn show(&self, now: SimTime) -> Value {
        json!({"id": self.id, "name": self.name, "label": self.label, "default": self.default, "cidr": self.cidr,
               "cidr_v6": "", "ipv4_enabled": true, "ipv6_enabled": false, "nameservers_v4": self.nameservers_v4,
               "nameservers_v6": [], "status": self.status(now), "free_ip_count": 250, "subnets": []})
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct NetworkIn {
    label: Option<String>,
    cidr_v4: Option<String>,
    nameservers_v4: Option<Vec<String>>,
    ipv4_enabled: Option<bool>,
    ipv6_enabled: Option<bool>,
}

/// Every region starts with its default network and that network's firewall, as a new Civo account does.
pub fn seed(store: &mut Store, now: SimTime) {
    for region in &REGIONS {
        let id = new_id();
        store.firewalls.insert(firewall::of_default_network(region.code, &id, now));
        store.networks.insert(Network {
            id,
            name: format!("default-{}", region.code.to_lowercase()),
            label: "default".into(),
            region: region.code.into(),
            default: true,
            cidr: "192.168.1.0/24".into(),
            nameservers_v4: nameservers(),
            created_at: now,
            active_at: now,
            gone_at: None,
        });
    }
}

fn nameservers() -> Vec<String> {
    vec!["8.8.8.8".into(), "1.1.1.1".into()]
}

pub fn list(state: &State, region: &str, lag: Duration) -> Reply {
    let all = state.store.networks.behind(&format!("region:{region}"), lag);
    Reply::json(200, &all.into_iter().map(|network| network.show(state.now)).collect::<Vec<_>>())
}

pub fn get(state: &State, region: &str, id: &str) -> Answer<Reply> {
    Ok(Reply::json(200, &find(state, region, id)?.show(state.now)))
}

/// By id, or by label or name: Civo's own client puts what its user typed into the path.
pub fn find<'a>(state: &'a State, region: &str, id: &str) -> Answer<&'a Network> {
    let networks = &state.store.networks;
    let by_id = networks.get(id).filter(|network| network.region == region);
    let by_label = || networks.first(&format!("name:{region}/{id}"));
    let by_name = || networks.find(&format!("region:{region}")).find(|network| network.name == id);
    match by_id.or_else(by_label).or_else(by_name) {
        Some(network) => Ok(network),
        None => fail(404, "database_network_not_found", "Failed to find the network within the internal database"),
    }
}

pub fn create(state: &mut State, region: &str, input: NetworkIn) -> Answer<Reply> {
    let label = check_label(input.label)?;
    if state.store.networks.count(&format!("name:{region}/{label}")) > 0 {
        return fail(
            409,
            "database_network_duplicate_name",
            format!("A network with the label {label} already exists"),
        );
    }
    if state.store.networks.len() as u64 >= state.quota.networks {
        return Err(Refusal::Quota.into());
    }
    if input.ipv4_enabled == Some(false) && input.ipv6_enabled != Some(true) {
        return fail(400, "database_network_create", "Either IPv4 or IPv6 has to be enabled");
    }
    let cidr = match input.cidr_v4.filter(|cidr| !cidr.is_empty()) {
        Some(cidr) if valid_cidr(&cidr) && cidr.contains('/') && !cidr.contains(':') => cidr,
        Some(cidr) => return fail(400, "database_network_create", format!("{cidr} is not a valid IPv4 CIDR")),
        None => free_cidr(state, region),
    };
    let (id, now) = (new_id(), state.now);
    let network = Network {
        name: format!("cust-default-{}-{}", label.to_lowercase(), state.dice.suffix(5)),
        id: id.clone(),
        label: label.clone(),
        region: region.to_owned(),
        default: false,
        cidr,
        nameservers_v4: input.nameservers_v4.filter(|list| !list.is_empty()).unwrap_or_else(nameservers),
        created_at: now,
        active_at: now.plus_ms(state.dice.seconds(5, 10)),
        gone_at: None,
    };
    state.store.networks.insert(network);
    Ok(Reply::json(200, &json!({"id": id, "label": label, "result": "success"})))
}

/// The first free /24 of 10.0.0.0/8, looked for from where the next is likely to be.
fn free_cidr(state: &State, region: &str) -> String {
    let start = state.store.networks.count(&format!("region:{region}"));
    let candidates = (start..start + 65_536).map(|n| format!("10.{}.{}.0/24", (n / 256) % 256, n % 256));
    let mut free = candidates.filter(|cidr| state.store.networks.count(&format!("cidr:{region}/{cidr}")) == 0);
    // Networks are islands: with every range taken, one used twice is better than none.
    free.next().unwrap_or_else(|| "10.0.0.0/24".into())
}

pub fn update(state: &mut State, region: &str, id: &str, input: NetworkIn) -> Answer<Reply> {
    let network = find(state, region, id)?;
    let (id, old) = (network.id.clone(), network.label.clone());
    // An empty label leaves it as it is: so clients change the nameservers alone.
    let label = match input.label.filter(|label| !label.is_empty()) {
        Some(label) => check_label(Some(label))?,
        None => old.clone(),
    };
    if old != label && state.store.networks.count(&format!("name:{region}/{label}")) > 0 {
        return fail(
            409,
            "database_network_duplicate_name",
            format!("A network with the label {label} already exists"),
        );
    }
    state.store.networks.update(&id, |network| {
        network.label = label.clone();
        if let Some(list) = input.nameservers_v4.filter(|list| !list.is_empty()) {
            network.nameservers_v4 = list;
        }
    });
    Ok(Reply::json(200, &json!({"id": id, "label": label, "result": "success"})))
}

pub fn delete(state: &mut State, region: &str, id: &str) -> Answer<Reply> {
    // Civo's Terraform provider sends DELETE again at each look, also once the network is gone.
    if state.store.networks.departed(id) {
        return Ok(Reply::json(200, &json!({"id": id, "result": "success"})));
    }
    let network = find(state, region, id)?;
    let (id, label) = (network.id.clone(), network.label.clone());
    let id = id.as_str();
    if network.default {
        return fail(403, "network_delete_default", "The default network cannot be deleted");
    }
    if network.gone_at.is_some() {
        return Ok(Reply::json(200, &json!({"id": id, "result": "success"})));
    }
    let key = format!("network:{id}");
    let (clusters, leaving) = state.store.cluster_users(&key);
    if clusters > 0 {
        let reason = format!("The network is in use by {clusters} Kubernetes cluster(s)");
        return fail(409, "database_network_delete_with_instance", reason);
    }
    let firewalls = state.store.firewalls.find(&key).filter(|firewall| !firewall.belongs_to(&label)).count();
    if firewalls > 0 {
        return fail(
            409,
            "database_network_inuse_by_firewall",
            format!("The network is in use by {firewalls} firewall(s)"),
        );
    }
    if leaving > 0 {
        // Civo's own clients ask again until the clusters are gone.
        return Ok(Reply::json(200, &json!({"id": id, "result": "failed"})));
    }
    let own: Vec<String> = state.store.firewalls.find(&key).map(|firewall| firewall.id.clone()).collect();
    own.iter().for_each(|firewall| drop(state.store.firewalls.remove(firewall)));
    let gone_at = state.now.plus_ms(state.dice.seconds(5, 10));
    state.store.networks.update(id, |network| network.gone_at = Some(gone_at));
    Ok(Reply::json(200, &json!({"id": id, "result": "success"})))
}

fn check_label(label: Option<String>) -> Answer<String> {
    match label.map(|label| label.trim().to_owned()) {
        Some(label) if !label.is_empty() && label.chars().count() <= MAX_LABEL_CHARS => Ok(label),
        _ => fail(
            400,
            "parameter_label_invalid",
            format!("The label is missing or longer than {MAX_LABEL_CHARS} characters"),
        ),
    }
}
