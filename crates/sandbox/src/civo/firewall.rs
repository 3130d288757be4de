//! Firewalls and their rules, under `/v2/firewalls` and `/v2/vpc/firewalls`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::State;
use super::errors::{Answer, fail};
use super::loose_fields::{WordList, loose_bool, valid_cidr};
use super::vpc;
use crate::clock::SimTime;
use crate::http::{Refusal, Reply};
use crate::table::Object;
use crate::world::new_id;

const MAX_NAME_CHARS: usize = 63;
const MAX_RULES: usize = 500;
/// Key of the firewalls that an account starts with.
const DEFAULTS: &str = "default";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Firewall {
    pub id: String,
    pub name: String,
    pub region: String,
    pub network_id: String,
    pub rules: Vec<Rule>,
    pub created_at: SimTime,
    /// Made by Civo for a cluster that named no firewall; it goes with its network.
    pub auto: bool,
    /// Made with the default network of its region.
    #[serde(default)]
    pub default: bool,
}

impl Firewall {
    /// Whether it goes with its network: what Civo made by itself, and what clients make with every network.
    pub fn belongs_to(&self, label: &str) -> bool {
        self.auto || self.name == default_name(label)
    }
}

/// What Civo's console, its CLI and its Terraform provider call the firewall that they make with a network.
fn default_name(label: &str) -> String {
    format!("{label}-default")
}

pub fn of_default_network(region: &str, network_id: &str, now: SimTime) -> Firewall {
    let id = new_id();
    Firewall {
        name: default_name("default"),
        region: region.to_owned(),
        network_id: network_id.to_owned(),
        rules: open_rules(&id),
        id,
        created_at: now,
        auto: false,
        default: true,
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rule {
    pub id: String,
    pub firewall_id: String,
    pub protocol: String,
    pub start_port: String,
    pub end_port: String,
    pub ports: String,
    pub cidr: Vec<String>,
    pub direction: String,
    pub action: String,
    pub label: String,
}

impl Object for Firewall {
    const TYPE: &'static str = "civo.firewall";

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        let region = &self.region;
        let mut keys = vec![
            format!("region:{region}"),
            format!("name:{region}/{}", self.name),
            format!("network:{}", self.network_id),
        ];
        if self.default {
            keys.push(DEFAULTS.into());
        }
        keys
    }

    fn gone_at(&self) -> Option<SimTime> {
        None
    }

    fn ledger(&self, _now: SimTime) -> Value {
        let rules: Vec<_> = self.rules.iter().map(Rule::brief).collect();
        json!({"name": self.name, "region": self.region, "network_id": self.network_id, "rules": rules,
               "auto": self.auto, "default": self.default, "created_at": self.created_at.rfc3339()})
    }
}

impl Rule {
    fn brief(&self) -> String {
        let Rule { direction, action, protocol, ports, label, .. } = self;
        format!("{direction} {action} {protocol} {ports} {} {label}", self.cidr.join(",")).trim_end().to_owned()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct FirewallIn {
    name: Option<String>,
    network_id: Option<String>,
    #[serde(deserialize_with = "loose_bool")]
    create_rules: Option<bool>,
    rules: Option<Vec<RuleIn>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct RuleIn {
    protocol: Option<String>,
    ports: Option<String>,
    start_port: Option<String>,
    end_port: Option<String>,
    cidr: Option<WordList>,
    direction: Option<String>,
    action: Option<String>,
    label: Option<String>,
}

fn show(state: &State, firewall: &Firewall) -> Value {
    let clusters = state.store.clusters.count(&format!("firewall:{}", firewall.id));
    json!({"id": firewall.id, "name": firewall.name, "rules_count": firewall.rules.len(), "instance_count": 0,
           "cluster_count": clusters, "loadbalancer_count": 0, "database_count": 0, "network_id": firewall.network_id,
           "rules": firewall.rules})
}

pub fn list(state: &State, region: &str, lag: Duration) -> Reply {
    let all = state.store.firewalls.behind(&format!("region:{region}"), lag);
    Reply::json(200, &all.into_iter().map(|firewall| show(state, firewall)).collect::<Vec<_>>())
}

pub fn get(state: &State, region: &str, id: &str) -> Answer<Reply> {
    Ok(Reply::json(200, &show(state, find(state, region, id)?)))
}

/// By id or by name: Civo's own client sends what its user typed.
pub fn find<'a>(state: &'a State, region: &str, id: &str) -> Answer<&'a Firewall> {
    let by_id = state.store.firewalls.get(id).filter(|firewall| firewall.region == region);
    match by_id.or_else(|| state.store.firewalls.first(&format!("name:{region}/{id}"))) {
        Some(firewall) => Ok(firewall),
        None => fail(404, "database_firewall_not_found", "Failed to find the firewall within the internal database"),
    }
}

pub fn create(state: &mut State, region: &str, input: FirewallIn) -> Answer<Reply> {
    let name = check_name(input.name)?;
    let network_id = match input.network_id.filter(|id| !id.is_empty()) {
        Some(id) => vpc::find(state, region, &id)?.id.clone(),
        None => state.store.default_network(region)?.id.clone(),
    };
    refuse_taken(state, region, &name)?;
    let id = new_id();
    let given = input.rules.unwrap_or_default();
    if given.len() > MAX_RULES {
        return fail(400, "database_firewall_rules_invalid_params", format!("more than {MAX_RULES} rules"));
    }
    let mut rules = given.into_iter().map(|rule| rule.check(&id)).collect::<Result<Vec<_>, _>>()?;
    // Not saying anything means yes, even beside rules of one's own.
    if input.create_rules.unwrap_or(true) {
        rules.extend(open_rules(&id));
    }
    insert(
        state,
        Firewall {
            id: id.clone(),
            name: name.clone(),
            region: region.to_owned(),
            network_id,
            rules,
            created_at: state.now,
            auto: false,
            default: false,
        },
    )?;
    Ok(Reply::json(200, &json!({"id": id, "name": name, "result": "success"})))
}

fn insert(state: &mut State, firewall: Firewall) -> Answer<()> {
    let own = state.store.firewalls.len() - state.store.firewalls.count(DEFAULTS);
    if own as u64 >= state.quota.firewalls {
        return Err(Refusal::Quota.into());
    }
    state.store.firewalls.insert(firewall);
    Ok(())
}

fn refuse_taken(state: &State, region: &str, name: &str) -> Answer<()> {
    if state.store.firewalls.count(&format!("name:{region}/{name}")) > 0 {
        return fail(
            409,
            "database_firewall_duplicate_name",
            format!("A firewall with the name {name} already exists"),
        );
    }
    Ok(())
}

/// The firewall of a cluster that was made without one: shared by all such clusters of a network.
pub fn auto(state: &mut State, region: &str, network_id: &str) -> Answer<String> {
    let key = format!("network:{network_id}");
    if let Some(firewall) = state.store.firewalls.find(&key).find(|firewall| firewall.auto) {
        return Ok(firewall.id.clone());
    }
    let label = vpc::find(state, region, network_id)?.label.clone();
    let id = new_id();
    let (name, rules) = (format!("default-{label}-{}", state.dice.suffix(5)), open_rules(&id));
    let (region_name, network_id, created_at) = (region.to_owned(), network_id.to_owned(), state.now);
    let (auto, default) = (true, false);
    let firewall = Firewall { id: id.clone(), name, region: region_name, network_id, rules, created_at, auto, default };
    insert(state, firewall)?;
    Ok(id)
}

/// `firewall_rule` of a cluster create, as Civo's CLI sends it: `80,443:0.0.0.0/0;8080:1.2.3.4` or `all`.
pub fn for_cluster(state: &mut State, region: &str, network_id: &str, cluster: &str, spec: &str) -> Answer<String> {
    let id = new_id();
    let mut rules = Vec::new();
    for group in spec.split(';').map(str::trim).filter(|group| !group.is_empty()) {
        let (ports, cidr) = group.split_once(':').unwrap_or((group, "0.0.0.0/0"));
        for port in ports.split(',').map(str::trim) {
            let rule = RuleIn {
                ports: Some(port.to_owned()),
                cidr: Some(WordList::One(cidr.to_owned())),
                ..RuleIn::default()
            };
            rules.push(rule.check(&id)?);
        }
    }
    if rules.len() > MAX_RULES {
        return fail(400, "database_firewall_rules_invalid_params", format!("more than {MAX_RULES} rules"));
    }
    let name = format!("{cluster}-firewall-{}", state.dice.suffix(5));
    let (region_name, network_id, created_at) = (region.to_owned(), network_id.to_owned(), state.now);
    let (auto, default) = (false, false);
    let firewall = Firewall { id: id.clone(), name, region: region_name, network_id, rules, created_at, auto, default };
    insert(state, firewall)?;
    Ok(id)
}

pub fn update(state: &mut State, region: &str, id: &str, input: FirewallIn) -> Answer<Reply> {
    let name = check_name(input.name)?;
    let old = find(state, region, id)?;
    let id = old.id.clone();
    if old.name != name {
        refuse_taken(state, region, &name)?;
    }
    state.store.firewalls.update(&id, |firewall| firewall.name = name.clone());
    Ok(Reply::json(200, &json!({"id": id, "name": name, "result": "success"})))
}

pub fn delete(state: &mut State, region: &str, id: &str) -> Answer<Reply> {
    let id = find(state, region, id)?.id.clone();
    let (clusters, leaving) = state.store.cluster_users(&format!("firewall:{id}"));
    if clusters > 0 {
        let reason = format!("The firewall is in use by {clusters} Kubernetes cluster(s)");
        return fail(409, "database_firewall_inuse_by_cluster", reason);
    }
    if leaving > 0 {
        // Civo's own clients ask again until the clusters are gone.
        return Ok(Reply::json(200, &json!({"id": id, "result": "failed"})));
    }
    state.store.firewalls.remove(&id);
    Ok(Reply::json(200, &json!({"id": id, "result": "success"})))
}

pub fn list_rules(state: &State, region: &str, id: &str) -> Answer<Reply> {
    Ok(Reply::json(200, &find(state, region, id)?.rules))
}

pub fn get_rule(state: &State, region: &str, id: &str, rule: &str) -> Answer<Reply> {
    match find(state, region, id)?.rules.iter().find(|r| r.id == rule) {
        Some(rule) => Ok(Reply::json(200, rule)),
        None => no_rule(),
    }
}

pub fn create_rule(state: &mut State, region: &str, id: &str, input: RuleIn) -> Answer<Reply> {
    let firewall = find(state, region, id)?;
    if firewall.rules.len() >= MAX_RULES {
        return fail(400, "database_firewall_rules_invalid_params", format!("more than {MAX_RULES} rules"));
    }
    let id = firewall.id.clone();
    let rule = input.check(&id)?;
    // Civo refuses a rule that the firewall has already, and does not say that this is why.
    if firewall.rules.iter().any(|other| other.brief() == rule.brief()) {
        return fail(409, "database_firewall_rule_create", "Unknown error creating a firewall rule");
    }
    let reply = Reply::json(200, &rule);
    state.store.firewalls.update(&id, |firewall| firewall.rules.push(rule));
    Ok(reply)
}

pub fn delete_rule(state: &mut State, region: &str, id: &str, rule: &str) -> Answer<Reply> {
    let firewall = find(state, region, id)?;
    if !firewall.rules.iter().any(|r| r.id == rule) {
        return no_rule();
    }
    let id = firewall.id.clone();
    state.store.firewalls.update(&id, |firewall| firewall.rules.retain(|r| r.id != rule));
    Ok(Reply::json(200, &json!({"id": rule, "result": "success"})))
}

fn no_rule<T>() -> Answer<T> {
    fail(404, "database_firewall_rules_find", "Failed to find the firewall rule within the internal database")
}

fn check_name(name: Option<String>) -> Answer<String> {
    match name.map(|name| name.trim().to_owned()) {
        Some(name) if !name.is_empty() && name.chars().count() <= MAX_NAME_CHARS => Ok(name),
        _ => fail(
            400,
            "parameter_name_invalid",
            format!("The name is missing or longer than {MAX_NAME_CHARS} characters"),
        ),
    }
}

/// What Civo puts into a firewall that nobody gave rules: everything open, both ways.
fn open_rules(firewall: &str) -> Vec<Rule> {
    let mut rules = Vec::new();
    for direction in ["ingress", "egress"] {
        for (protocol, ports, label) in [
            ("tcp", "1-65535", "All TCP ports open"),
            ("udp", "1-65535", "All UDP ports open"),
            ("icmp", "", "Ping/traceroute"),
        ] {
            let (start, end) = ports.split_once('-').unwrap_or_default();
            rules.push(Rule {
                id: new_id(),
                firewall_id: firewall.to_owned(),
                protocol: protocol.into(),
                start_port: start.into(),
                end_port: end.into(),
                ports: ports.into(),
                cidr: vec!["0.0.0.0/0".into()],
                direction: direction.into(),
                action: "allow".into(),
                label: label.into(),
            });
        }
    }
    rules
}

impl RuleIn {
    fn check(self, firewall: &str) -> Answer<Rule> {
        let wrong = |reason: String| fail(400, "database_firewall_rules_invalid_params", reason);
        let one_of = |value: Option<String>, allowed: &[&str]| -> Answer<String> {
            let value =
                value.filter(|v| !v.is_empty()).map_or_else(|| allowed[0].to_owned(), |v| v.to_ascii_lowercase());
            if allowed.contains(&value.as_str()) {
                Ok(value)
            } else {
                fail(
                    400,
                    "database_firewall_rules_invalid_params",
                    format!("{value} is not one of {}", allowed.join(", ")),
                )
            }
        };
        let protocol = one_of(self.protocol, &["tcp", "udp", "icmp"])?;
        let direction = one_of(self.direction, &["ingress", "egress"])?;
        let action = one_of(self.action, &["allow", "deny"])?;
        let given = match (self.ports.unwrap_or_default(), self.start_port.unwrap_or_default()) {
            (ports, start) if ports.is_empty() => match self.end_port.filter(|end| !end.is_empty() && *end != start) {
                Some(end) => format!("{start}-{end}"),
                None => start,
            },
            (ports, _) if ports.eq_ignore_ascii_case("all") => "1-65535".into(),
            (ports, _) => ports,
        };
        let (start, end) = given.split_once('-').unwrap_or((&given, &given));
        match (start.trim().parse::<u16>(), end.trim().parse::<u16>()) {
            _ if protocol == "icmp" => {}
            (Ok(from), Ok(to)) if 0 < from && from <= to => {}
            _ if given.is_empty() => return fail(400, "parameter_start_port_missing", "The start port is missing"),
            _ => return wrong(format!("{given} is not a port or a range of ports")),
        }
        let mut cidr = self.cidr.map(WordList::list).unwrap_or_default();
        if cidr.is_empty() {
            cidr.push("0.0.0.0/0".into());
        }
        for one in &mut cidr {
            if !valid_cidr(one) {
                return wrong(format!("{one} is not a CIDR"));
            }
            if !one.contains('/') {
                one.push_str(if one.contains(':') { "/128" } else { "/32" });
            }
        }
        let (start_port, end_port, ports) = if protocol == "icmp" {
            (String::new(), String::new(), String::new())
        } else {
            (start.trim().to_owned(), end.trim().to_owned(), given.clone())
        };
        let (id, firewall_id, label) = (new_id(), firewall.to_owned(), self.label.unwrap_or_default());
        Ok(Rule { id, firewall_id, protocol, start_port, end_port, ports, cidr, direction, action, label })
    }
}
