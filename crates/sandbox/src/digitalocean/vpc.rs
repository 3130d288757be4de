//! Virtual private networks: `/v2/vpcs`.

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::State;
use super::errors::{self, Answer};
use super::{Store, catalog, paging::Page, shown};
use crate::clock::SimTime;
use crate::http::{Call, Reply};
use crate::table::Object;
use crate::world::new_id;

const MAX_DESCRIPTION: usize = 255;
const MAX_NAME: usize = 255;
const PRIVATE: [&str; 3] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"];

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Vpc {
    pub id: String,
    pub name: String,
    pub description: String,
    pub ip_range: String,
    pub region: String,
    pub default: bool,
    pub created: SimTime,
}

impl Object for Vpc {
    const TYPE: &'static str = "digitalocean.vpc";

    fn id(&self) -> &str {
        &self.id
    }

    fn keys(&self) -> Vec<String> {
        let mut keys = vec![format!("name:{}", self.name), format!("region:{}", self.region)];
        if self.default {
            keys.push(format!("default:{}", self.region));
        }
        keys
    }

    fn gone_at(&self) -> Option<SimTime> {
        None
    }

    fn ledger(&self, _now: SimTime) -> Value {
        json!({"name": self.name, "region": self.region, "ip_range": self.ip_range, "default": self.default})
    }
}

#[derive(Deserialize)]
struct Create {
    #[serde(default)]
    name: String,
    #[serde(default)]
    region: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    ip_range: Option<String>,
}

#[derive(Deserialize)]
struct Update {
    name: Option<String>,
    description: Option<String>,
    default: Option<bool>,
}

pub fn seed(store: &mut Store, now: SimTime) {
    for (region, _, ip_range) in catalog::REGIONS {
        store.vpcs.insert(Vpc {
            id: new_id(),
            name: format!("default-{region}"),
            description: String::new(),
            ip_range: (*ip_range).into(),
            region: (*region).into(),
            default: true,
            created: now,
        });
    }
}

pub fn list(state: &State, call: &Call) -> Answer<Reply> {
    let (page, vpcs) = (Page::of(call), state.store.vpcs.behind("", call.effects.lag));
    let items = vpcs.iter().skip(page.offset()).take(page.len()).map(|vpc| shown::vpc(vpc)).collect();
    Ok(Reply::json(200, &page.wrap(call, "vpcs", items, vpcs.len())))
}

pub fn get(state: &State, id: &str) -> Answer<Reply> {
    let vpc = state.store.vpcs.get(id).ok_or_else(errors::not_found)?;
    Ok(Reply::json(200, &json!({"vpc": shown::vpc(vpc)})))
}

pub fn create(state: &mut State, call: &Call) -> Answer<Reply> {
    let body: Create = call.json().map_err(|bad| errors::of(&bad))?;
    check_name(state.store, &body.name, None)?;
    if !catalog::has_region(&body.region) {
        return Err(errors::invalid(format!("region \"{}\" is not available for VPCs", body.region)));
    }
    let description = body.description.unwrap_or_default();
    check_description(&description)?;
    let ip_range = match body.ip_range.filter(|range| !range.is_empty()) {
        Some(given) => check_range(state.store, &given)?,
        None => free_range(state.store)?,
    };
    if state.store.vpcs.len() as u64 >= state.quota.networks.saturating_add(catalog::REGIONS.len() as u64) {
        return Err(errors::limit_reached("VPC"));
    }
    let (id, now) = (new_id(), state.now);
    let vpc = Vpc { id, name: body.name, description, ip_range, region: body.region, default: false, created: now };
    let reply = Reply::json(201, &json!({"vpc": shown::vpc(&vpc)}));
    state.store.vpcs.insert(vpc);
    Ok(reply)
}

/// PUT takes what is not given as empty, PATCH leaves it as it is.
pub fn update(state: &mut State, call: &Call, id: &str, whole: bool) -> Answer<Reply> {
    let body: Update = call.json().map_err(|bad| errors::of(&bad))?;
    let store = &mut *state.store;
    let old = store.vpcs.get(id).ok_or_else(errors::not_found)?.clone();
    let name = body.name.unwrap_or_else(|| old.name.clone());
    check_name(store, &name, Some(id))?;
    let description = match body.description {
        Some(given) => given,
        None if whole => String::new(),
        None => old.description.clone(),
    };
    check_description(&description)?;
    // A network stops being the default only when another becomes it.
    if body.default == Some(true) && !old.default {
        let former = store.vpcs.first(&format!("default:{}", old.region)).map(|vpc| vpc.id.clone());
        if let Some(former) = former {
            store.vpcs.update(&former, |vpc| vpc.default = false);
        }
    }
    store.vpcs.update(id, |vpc| {
        (vpc.name, vpc.description) = (name, description);
        vpc.default |= body.default == Some(true);
    });
    get(state, id)
}

pub fn delete(state: &mut State, id: &str) -> Answer<Reply> {
    let store = &mut *state.store;
    let vpc = store.vpcs.get(id).ok_or_else(errors::not_found)?;
    if vpc.default {
        return Err(errors::forbidden("Can not delete default VPCs"));
    }
    if store.clusters.count(&format!("vpc:{id}")) > 0 {
        // Not 409: DigitalOcean's Terraform provider tries again after 403 alone.
        return Err(errors::forbidden("Can not delete VPC with members"));
    }
    store.vpcs.remove(id);
    Ok(Reply::empty(204))
}

pub fn members(state: &State, call: &Call, id: &str) -> Answer<Reply> {
    let store = &state.store;
    store.vpcs.get(id).ok_or_else(errors::not_found)?;
    let wanted = call.query("resource_type").is_none_or(|kind| kind == "kubernetes");
    let members: Vec<Value> = store
        .clusters
        .find(&format!("vpc:{id}"))
        .filter(|_| wanted)
        .map(|c| json!({"urn": format!("do:kubernetes:{}", c.id), "name": c.name, "created_at": c.created.rfc3339()}))
        .collect();
    Ok(Reply::json(200, &Page::of(call).cut(call, "members", members)))
}

fn check_name(store: &Store, name: &str, own: Option<&str>) -> Answer<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(allowed) {
        return Err(errors::invalid(
            "Name is invalid: it must contain alphanumeric characters, dashes, and periods only",
        ));
    }
    if store.vpcs.find(&format!("name:{name}")).any(|vpc| Some(vpc.id.as_str()) != own) {
        return Err(errors::invalid(format!("Name must be unique: a VPC named \"{name}\" already exists")));
    }
    Ok(())
}

fn check_description(description: &str) -> Answer<()> {
    if description.chars().count() > MAX_DESCRIPTION {
        return Err(errors::invalid(format!("Description is too long (maximum is {MAX_DESCRIPTION} characters)")));
    }
    Ok(())
}

fn check_range(store: &Store, text: &str) -> Answer<String> {
    let range: Ipv4Net =
        text.parse().map_err(|_| errors::invalid(format!("IP range \"{text}\" is not a valid CIDR")))?;
    if range.trunc() != range {
        return Err(errors::invalid(format!(
            "IP range \"{text}\" is not a network address; did you mean {}?",
            range.trunc()
        )));
    }
    if !(16..=28).contains(&range.prefix_len()) {
        return Err(errors::invalid("IP range must be between /16 and /28"));
    }
    let private = PRIVATE.iter().filter_map(|net| net.parse::<Ipv4Net>().ok()).any(|net| net.contains(&range));
    if !private {
        return Err(errors::invalid("IP range must be within a private range as defined in RFC 1918"));
    }
    if overlaps(store, &range) {
        return Err(errors::invalid("This range/size overlaps with another VPC network in your account"));
    }
    Ok(range.to_string())
}

fn overlaps(store: &Store, range: &Ipv4Net) -> bool {
    let taken = store.vpcs.iter().filter_map(|vpc| vpc.ip_range.parse::<Ipv4Net>().ok());
    taken.into_iter().any(|other| other.contains(range) || range.contains(&other))
}

/// The first free /20 of 10.0.0.0/8, counted from where DigitalOcean's own begin.
fn free_range(store: &Store) -> Answer<String> {
    let blocks: std::collections::BTreeSet<u32> = store
        .vpcs
        .iter()
        .filter_map(|vpc| vpc.ip_range.parse::<Ipv4Net>().ok())
        .flat_map(|net| (u32::from(net.network()) >> 12)..=(u32::from(net.broadcast()) >> 12))
        .collect();
    let (first, count) = (u32::from_be_bytes([10, 116, 0, 0]) >> 12, 1u32 << 12);
    let base = u32::from_be_bytes([10, 0, 0, 0]) >> 12;
    let free = (0..count).map(|n| base + (first - base + n) % count).find(|block| !blocks.contains(block));
    let block = free.ok_or_else(|| errors::invalid("no free IP range is left in your account"))?;
    Ipv4Net::new((block << 12).into(), 20)
        .map(|net| net.to_string())
        .map_err(|_| errors::invalid("no free IP range is left"))
}
