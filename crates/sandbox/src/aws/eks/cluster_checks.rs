//! What is wrong with a cluster that is asked for, in AWS's words; and the defaults of what was left out.

use serde_json::{Value, json};

use super::errors::{About, unsupported_zone};
use super::network::{self, Subnet};
use super::versions;
use crate::aws::ask::{Ask, Input};
use crate::aws::errors::Answer;
use crate::aws::kms;

pub const LOG_TYPES: [&str; 5] = ["api", "audit", "authenticator", "controllerManager", "scheduler"];
const PRIVATE: [&str; 3] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"];
const MAX_NAME: usize = 100;
const MAX_TAGS: usize = 50;

pub fn name(name: &str) -> Answer<()> {
    let mut chars = name.chars();
    let ok = chars.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        && name.len() <= MAX_NAME;
    match ok {
        true => Ok(()),
        false => Err(About::cluster(name).bad_parameter(
            "The name can contain only alphanumeric characters (case-sensitive), hyphens and underscores. It must start with an \
             alphanumeric character and can't be longer than 100 characters.",
        )),
    }
}

pub fn tags(about: About, tags: &crate::aws::ask::Tags) -> Answer<()> {
    if tags.len() > MAX_TAGS {
        return Err(about.bad_parameter(format!("Too many tags: {}, the limit is {MAX_TAGS}", tags.len())));
    }
    match tags.iter().find(|(key, value)| key.is_empty() || key.len() > 128 || value.len() > 256) {
        Some((key, _)) => Err(about.bad_parameter(format!("The tag key or value is too long or empty: {key}"))),
        None => match tags.keys().find(|key| key.to_lowercase().starts_with("aws:")) {
            Some(_) => Err(about.bad_parameter("aws: prefixed tag key names are not allowed for external use.")),
            None => Ok(()),
        },
    }
}

pub fn version(cluster: &str, wanted: Option<&str>) -> Answer<String> {
    let wanted = wanted.unwrap_or(versions::DEFAULT);
    match versions::find(wanted) {
        Some(version) => Ok(version.name.to_owned()),
        None => Err(About::cluster(cluster).bad_parameter(format!("unsupported Kubernetes version: {wanted}"))),
    }
}

/// The subnets of a cluster: at least two, in two zones, of one VPC.
pub fn subnets(ask: &Ask, cluster: &str, ids: &[&str]) -> Answer<Vec<Subnet>> {
    let about = About::cluster(cluster);
    if ids.is_empty() {
        return Err(about.bad_parameter("subnetIds cannot be empty"));
    }
    let mut found = Vec::new();
    for id in ids {
        let Some(subnet) = network::subnet(ask, id) else {
            return Err(about.bad_parameter(format!("The subnet ID '{id}' does not exist")));
        };
        found.push(subnet);
    }
    let first = found.first().cloned();
    if let Some(first) = first
        && let Some(other) = found.iter().find(|subnet| subnet.vpc != first.vpc)
    {
        return Err(about.bad_parameter(format!("Subnets {} and {} are not in the same VPC", first.id, other.id)));
    }
    let mut zones: Vec<&str> = found.iter().map(|subnet| subnet.zone.as_str()).collect();
    zones.sort_unstable();
    zones.dedup();
    if zones.len() < 2 {
        return Err(about.bad_parameter("Subnets specified must be in at least two different AZs"));
    }
    let full = |zone: &&str| ask.effects().out_of_capacity(zone) || ask.effects().out_of_capacity(ask.region);
    if let Some(zone) = zones.iter().copied().find(full) {
        let valid: Vec<String> = zones.iter().filter(|zone| !full(zone)).map(|zone| (*zone).to_owned()).collect();
        return Err(unsupported_zone(cluster, zone, &valid));
    }
    Ok(found)
}

pub fn security_groups(ask: &Ask, cluster: &str, ids: &[&str]) -> Answer<()> {
    match ids.iter().find(|id| !network::security_group_exists(ask, id)) {
        Some(id) => Err(About::cluster(cluster).bad_parameter(format!("The security group '{id}' does not exist"))),
        None => Ok(()),
    }
}

/// The endpoint's flags and the networks that may reach it, over what they were.
pub fn endpoint_access(cluster: &str, given: &Input, before: &Value) -> Answer<Value> {
    let about = About::cluster(cluster);
    let flag = |name: &str| given.flag(name).unwrap_or_else(|| before[name].as_bool().unwrap_or(false));
    let (public, private) = (flag("endpointPublicAccess"), flag("endpointPrivateAccess"));
    if !public && !private {
        return Err(about.bad_parameter("Private and public endpoint access cannot be false"));
    }
    let cidrs = match given.at("publicAccessCidrs") {
        None => before["publicAccessCidrs"].clone(),
        Some(_) => {
            let cidrs = given.texts("publicAccessCidrs");
            if let Some(bad) = cidrs.iter().find(|cidr| cidr.parse::<ipnet::IpNet>().is_err()) {
                return Err(
                    about.bad_parameter(format!("The following CIDRs are invalid in publicAccessCidrs: [{bad}]"))
                );
            }
            match cidrs.is_empty() {
                true => json!(["0.0.0.0/0"]),
                false => json!(cidrs),
            }
        }
    };
    if !public && given.at("publicAccessCidrs").is_some() && cidrs != json!(["0.0.0.0/0"]) {
        return Err(about.bad_parameter("publicAccessCidrs can only be set when endpointPublicAccess is true"));
    }
    Ok(json!({"endpointPublicAccess": public, "endpointPrivateAccess": private, "publicAccessCidrs": cidrs}))
}

/// One list of what is logged and one of what is not, whatever pieces it was given in.
pub fn logging(cluster: &str, given: &Input, before: &Value) -> Answer<Value> {
    let mut enabled: Vec<&str> = LOG_TYPES.into_iter().filter(|name| is_logged(before, name)).collect();
    for setup in given.list("clusterLogging") {
        for name in setup.texts("types") {
            let Some(name) = LOG_TYPES.into_iter().find(|known| *known == name) else {
                return Err(About::cluster(cluster).bad_parameter(format!("Invalid log type: {name}")));
            };
            enabled.retain(|known| *known != name);
            if setup.flag("enabled") == Some(true) {
                enabled.push(name);
            }
        }
    }
    let (on, off): (Vec<_>, Vec<_>) = LOG_TYPES.into_iter().partition(|name| enabled.contains(name));
    let part =
        |types: Vec<&str>, enabled: bool| (!types.is_empty()).then(|| json!({"types": types, "enabled": enabled}));
    let parts: Vec<Value> = [part(on, true), part(off, false)].into_iter().flatten().collect();
    Ok(json!({"clusterLogging": parts}))
}

fn is_logged(logging: &Value, name: &str) -> bool {
    let parts = logging["clusterLogging"].as_array();
    let holds = |part: &&Value| part["types"].as_array().is_some_and(|types| types.iter().any(|one| one == name));
    parts.into_iter().flatten().any(|part| part["enabled"] == true && holds(&part))
}

/// Service addresses: those given, or a range that does not meet the VPC's.
pub fn kubernetes_network(ask: &Ask, cluster: &str, vpc: &str) -> Answer<Value> {
    let about = About::cluster(cluster);
    let given = Input(ask.input.at("kubernetesNetworkConfig").cloned().unwrap_or_default());
    let family = given.text("ipFamily").unwrap_or("ipv4");
    let balancing = json!({"enabled": given.flag("elasticLoadBalancing.enabled").unwrap_or(false)});
    if family == "ipv6" {
        return Ok(
            json!({"serviceIpv6Cidr": "fd2a:5c71:9d3e::/108", "ipFamily": "ipv6", "elasticLoadBalancing": balancing}),
        );
    }
    if family != "ipv4" {
        return Err(about.bad_parameter(format!("Invalid ipFamily: {family}")));
    }
    let own = network::vpc_cidrs(ask, vpc);
    let cidr = match given.text("serviceIpv4Cidr") {
        Some(cidr) => service_cidr(about, cidr, &own)?,
        // EKS picks the range that the VPC's addresses are not near.
        None if own.iter().any(|cidr| cidr.starts_with("10.")) => "172.20.0.0/16".into(),
        None => "10.100.0.0/16".into(),
    };
    Ok(json!({"serviceIpv4Cidr": cidr, "ipFamily": "ipv4", "elasticLoadBalancing": balancing}))
}

fn service_cidr(about: About, text: &str, own: &[String]) -> Answer<String> {
    let refused = || {
        about.bad_parameter(format!(
            "Invalid serviceIpv4Cidr {text}: it must be a private range of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16, between \
             /24 and /12, that does not overlap with the CIDR blocks of the VPC"
        ))
    };
    let net: ipnet::Ipv4Net = text.parse().map_err(|_| refused())?;
    let overlaps = |cidr: &String| {
        cidr.parse::<ipnet::Ipv4Net>().is_ok_and(|own| own.contains(&net.network()) || net.contains(&own.network()))
    };
    let ok = (12..=24).contains(&net.prefix_len())
        && net.addr() == net.network()
        && PRIVATE.iter().filter_map(|range| range.parse::<ipnet::Ipv4Net>().ok()).any(|range| range.contains(&net))
        && !own.iter().any(overlaps);
    if ok { Ok(text.to_owned()) } else { Err(refused()) }
}

/// Secrets alone can be encrypted, with one key that is there.
pub fn encryption(ask: &Ask, cluster: &str) -> Answer<Value> {
    let about = About::cluster(cluster);
    let given = ask.input.list("encryptionConfig");
    let [config] = given.as_slice() else {
        return Err(about.bad_parameter("encryptionConfig must have exactly one element"));
    };
    if config.texts("resources") != ["secrets"] {
        return Err(about.bad_parameter("Only [secrets] are supported as encryptionConfig resources"));
    }
    let key = config.text("provider.keyArn").unwrap_or_default();
    if !(key.starts_with("arn:aws:kms:") && (key.contains(":key/") || key.contains(":alias/"))) {
        return Err(about.bad_parameter(format!("Invalid keyArn in encryptionConfig: {key}")));
    }
    if kms::arn_of(ask, key).is_none() {
        return Err(about.bad_parameter(format!("The key {key} of encryptionConfig does not exist")));
    }
    Ok(json!([{"resources": ["secrets"], "provider": {"keyArn": key}}]))
}
