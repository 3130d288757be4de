//! Import: objects of a Civo account, written as manifests.

use super::client::{Client, MAX_PAGES};
use super::default_pool::default_chain;
use super::firewall_rules::Rule;
use super::node_pool::{split_id, unit_id};
use super::normal_form::{shown_tags, taints_value};
use super::pool_view::{self, View};
use super::wire::{Cluster, Firewall, Network};
use crate::http::gone_is_none;
use berth_engine::handler::{Class, Outcome, Raised, Trouble};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashSet};

const LONGEST_NAME: usize = 63;
const LONGEST_POOL_NAME: usize = 40;
/// The default prefix of Berth's labels. Berth writes them itself, so that a manifest need not repeat them.
const OWN_PREFIX: &str = "planton-";

/// Describes one object. Without a region, the regions are searched.
pub async fn one(client: &Client, kind: &str, id: &str, region: &str) -> Outcome<Raised> {
    let given = Some(region).filter(|r| !r.is_empty()).or(client.region.as_deref());
    let regions = match given {
        Some(region) => vec![region.to_ascii_lowercase()],
        None => regions(client).await?,
    };
    for region in &regions {
        let found = match kind {
            "CivoVpc" => {
                let all = client.networks(region).await?;
                all.iter().find(|n| n.id == id).map(|n| network(n, region))
            }
            "CivoFirewall" => match client.firewalls(region).await?.iter().find(|f| f.id == id) {
                Some(found) => Some(firewall(&client.with_rules(region, found.clone()).await?, region)),
                None => None,
            },
            "CivoKubernetesCluster" => {
                gone_is_none(client.api.cluster(region, id).await)?.map(|found| cluster(&found, region))
            }
            "CivoKubernetesNodePool" => {
                let (cluster, pool) = split_id(id)?;
                gone_is_none(client.api.cluster(region, cluster).await)?.and_then(|found| {
                    pool_view::views(&found).iter().find(|v| v.id == pool).map(|v| node_pool(&found, v, region))
                })
            }
            other => return Err(Trouble::refused(format!("Civo does not know the kind {other}"))),
        };
        if let Some(raised) = found {
            return Ok(raised);
        }
    }
    Err(Trouble::new(Class::NotFound, format!("Civo has nothing with the id `{id}` in {}", regions.join(", ")))
        .help("check the id and the region: CIVO_REGION or the Account's region says where to look"))
}

/// Everything of the account's own. What Civo itself makes in every region, a default network and its firewalls, is left
/// out where nothing uses it.
pub async fn all(client: &Client) -> Outcome<Vec<Raised>> {
    let mut raised = Vec::new();
    for region in regions(client).await? {
        let mut clusters = Vec::new();
        for number in 1..=MAX_PAGES {
            let page = client.api.clusters(&region, number).await?;
            let there = page.items.into_iter();
            clusters.extend(there.filter(|c| !c.status.eq_ignore_ascii_case("deleting")));
            if number >= page.pages {
                break;
            }
        }
        let networks = client.networks(&region).await?;
        let guards: HashSet<&str> = clusters.iter().map(|c| c.firewall_id.as_str()).collect();
        let all_firewalls = client.firewalls(&region).await?;
        let firewalls: Vec<&Firewall> =
            all_firewalls.iter().filter(|f| guards.contains(f.id.as_str()) || !is_automatic(f, &networks)).collect();
        let used: HashSet<&str> = clusters
            .iter()
            .map(|c| c.network_id.as_str())
            .chain(firewalls.iter().map(|f| f.network_id.as_str()))
            .collect();
        let kept = networks.iter().filter(|n| !n.default || used.contains(n.id.as_str()));
        raised.extend(kept.map(|n| network(n, &region)));
        for found in firewalls {
            let found = client.with_rules(&region, found.clone()).await?;
            raised.push(firewall(&found, &region));
        }
        raised.extend(clusters.iter().map(|c| cluster(c, &region)));
    }
    Ok(raised)
}

/// Whether Civo made a firewall together with a default network: it names it after the network.
fn is_automatic(firewall: &Firewall, networks: &[Network]) -> bool {
    let network = networks.iter().find(|n| n.default && n.id == firewall.network_id);
    network.is_some_and(|network| {
        let own = format!("default-{}", network.label.to_ascii_lowercase());
        firewall.name == "default"
            || firewall.name == format!("{}-default", network.label)
            || firewall.name == own
            || firewall.name.starts_with(&format!("{own}-"))
    })
}

async fn regions(client: &Client) -> Outcome<Vec<String>> {
    let regions = client.offers.regions(&client.api).await?;
    Ok(regions.iter().map(|(code, _)| code.clone()).collect())
}

fn network(network: &Network, region: &str) -> Raised {
    let mut spec = json!({"networkName": network.label, "region": region});
    if !network.cidr.is_empty() {
        spec["ipRangeCidr"] = json!(network.cidr);
    }
    if network.default {
        spec["isDefaultForRegion"] = json!(true);
    }
    Raised {
        kind: "CivoVpc".into(),
        name: label(&network.label, LONGEST_NAME),
        object_name: network.label.clone(),
        spec,
        units: BTreeMap::from([("network".into(), network.id.clone())]),
        links: Vec::new(),
    }
}

fn firewall(firewall: &Firewall, region: &str) -> Raised {
    let rules: Vec<Rule> = firewall.rules.iter().flatten().map(Rule::from_civo).collect();
    let written =
        |inbound: bool| -> Vec<Value> { rules.iter().filter(|r| r.inbound == inbound).map(Rule::to_spec).collect() };
    let mut spec = json!({"name": firewall.name, "networkId": {"value": firewall.network_id}, "region": region});
    for (name, rules) in [("inboundRules", written(true)), ("outboundRules", written(false))] {
        if !rules.is_empty() {
            spec[name] = json!(rules);
        }
    }
    Raised {
        kind: "CivoFirewall".into(),
        name: label(&firewall.name, LONGEST_NAME),
        object_name: firewall.name.clone(),
        spec,
        units: BTreeMap::from([("firewall".into(), firewall.id.clone())]),
        links: vec![("networkId".into(), "CivoVpc".into(), firewall.network_id.clone())],
    }
}

fn cluster(cluster: &Cluster, region: &str) -> Raised {
    let views = pool_view::views(cluster);
    let chain = default_chain(&views);
    let default = chain.last().map(|i| &views[*i]);
    let mut spec = json!({
        "clusterName": cluster.name,
        "region": region,
        "kubernetesVersion": cluster.kubernetes_version,
        "network": {"value": cluster.network_id},
        "defaultNodePool": {
            "size": default.map_or("", |view| view.size),
            "nodeCount": default.and_then(|view| view.wanted).unwrap_or(1),
        },
    });
    if let Some(labels) = default.map(|view| &view.labels).filter(|labels| !labels.is_empty()) {
        spec["defaultNodePool"]["labels"] = json!(labels);
    }
    let mut links = vec![("network".into(), "CivoVpc".into(), cluster.network_id.clone())];
    if !cluster.cni_plugin.is_empty() && cluster.cni_plugin != "flannel" {
        spec["cni"] = json!(cluster.cni_plugin);
    }
    if !cluster.firewall_id.is_empty() {
        spec["firewall"] = json!({"value": cluster.firewall_id});
        links.push(("firewall".into(), "CivoFirewall".into(), cluster.firewall_id.clone()));
    }
    let tags: Vec<String> = shown_tags(cluster).into_iter().filter(|tag| !tag.starts_with(OWN_PREFIX)).collect();
    if !tags.is_empty() {
        spec["tags"] = json!(tags);
    }
    let mut units = BTreeMap::from([("cluster".to_owned(), cluster.id.clone())]);
    let mut more = Vec::new();
    for (_, view) in views.iter().enumerate().filter(|(i, view)| !chain.contains(i) && !view.leaving()) {
        let mut name = label(pool_view::name_of(view.id), LONGEST_POOL_NAME);
        // Two pools may have had the same name at different times.
        while units.contains_key(&format!("pool/{name}")) {
            name = label(&format!("{name}-{}", pool_view::short(view.id)), LONGEST_POOL_NAME);
        }
        units.insert(format!("pool/{name}"), unit_id(&cluster.id, view.id));
        let mut pool = pool_fields(view);
        pool.insert("name".into(), json!(name));
        more.push(Value::Object(pool));
    }
    if !more.is_empty() {
        spec["additionalNodePools"] = json!(more);
    }
    let (name, object_name) = (label(&cluster.name, LONGEST_NAME), cluster.name.clone());
    Raised { kind: "CivoKubernetesCluster".into(), name, object_name, spec, units, links }
}

fn node_pool(cluster: &Cluster, view: &View<'_>, region: &str) -> Raised {
    let name = pool_view::name_of(view.id);
    let mut spec = pool_fields(view);
    spec.insert("nodePoolName".into(), json!(name));
    spec.insert("cluster".into(), json!({"value": cluster.id}));
    spec.insert("region".into(), json!(region));
    Raised {
        kind: "CivoKubernetesNodePool".into(),
        name: label(name, LONGEST_NAME),
        object_name: name.to_owned(),
        spec: Value::Object(spec),
        units: BTreeMap::from([("pool".into(), unit_id(&cluster.id, view.id))]),
        links: vec![("cluster".into(), "CivoKubernetesCluster".into(), cluster.id.clone())],
    }
}

fn pool_fields(view: &View<'_>) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("size".into(), json!(view.size));
    fields.insert("nodeCount".into(), json!(view.wanted.unwrap_or(view.present).max(1)));
    let labels: BTreeMap<&String, &String> =
        view.labels.iter().filter(|(key, _)| !key.starts_with(OWN_PREFIX)).collect();
    if !labels.is_empty() {
        fields.insert("labels".into(), json!(labels));
    }
    if !view.taints.is_empty() {
        fields.insert("taints".into(), taints_value(&view.taints));
    }
    fields
}

/// A DNS label made from a name.
fn label(name: &str, longest: usize) -> String {
    let plain: String = name
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .collect();
    let start = plain.trim_start_matches('-');
    let cut = if start.len() > longest {
        format!("{}-{}", &start[..longest - 9], pool_view::short(name))
    } else {
        start.to_owned()
    };
    let cut = cut.trim_end_matches('-');
    if cut.is_empty() { format!("x{}", pool_view::short(name)) } else { cut.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_dns_labels() {
        assert_eq!(label("shop-net", 63), "shop-net");
        assert_eq!(label("Default (all open)", 63), "default--all-open");
        assert_eq!(label("Ünïcode", 63), "n-code");
        assert!(label(&"a".repeat(200), 63).len() <= 63);
        assert!(!label("---", 63).is_empty());
    }
}
