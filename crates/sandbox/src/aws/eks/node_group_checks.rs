//! What is wrong with a node group that is asked for, in AWS's words.

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::errors::About;
use super::network::{self, LaunchTemplate, Subnet};
use super::{instance_types as types, versions};
use crate::aws::ask::{Ask, Input, Tags};
use crate::aws::errors::Answer;

const MAX_NAME: usize = 63;
const RESERVED: [&str; 3] = ["kubernetes.io/", "k8s.io/", "eks.amazonaws.com/"];
const DEFAULT_TYPE: &str = "t3.medium";
const DEFAULT_IMAGE: &str = "AL2023_x86_64_STANDARD";
#[rustfmt::skip]
const IMAGES: [&str; 22] = [
    "AL2_x86_64", "AL2_x86_64_GPU", "AL2_ARM_64", "BOTTLEROCKET_ARM_64", "BOTTLEROCKET_x86_64", "BOTTLEROCKET_ARM_64_FIPS",
    "BOTTLEROCKET_x86_64_FIPS", "BOTTLEROCKET_ARM_64_NVIDIA", "BOTTLEROCKET_x86_64_NVIDIA", "BOTTLEROCKET_ARM_64_NVIDIA_FIPS",
    "BOTTLEROCKET_x86_64_NVIDIA_FIPS", "WINDOWS_CORE_2019_x86_64", "WINDOWS_FULL_2019_x86_64", "WINDOWS_CORE_2022_x86_64",
    "WINDOWS_FULL_2022_x86_64", "WINDOWS_CORE_2025_x86_64", "WINDOWS_FULL_2025_x86_64", "AL2023_x86_64_STANDARD",
    "AL2023_ARM_64_STANDARD", "AL2023_x86_64_NEURON", "AL2023_x86_64_NVIDIA", "AL2023_ARM_64_NVIDIA",
];

pub fn name(about: About, name: &str) -> Answer<()> {
    let mut chars = name.chars();
    let ok = chars.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    match ok && name.len() <= MAX_NAME {
        true => Ok(()),
        false => Err(about.bad_parameter(
            "The nodegroup name can contain only alphanumeric characters (case-sensitive), hyphens and underscores. It must start \
             with an alphanumeric character and can't be longer than 63 characters.",
        )),
    }
}

pub fn subnets(ask: &Ask, cluster: &Cluster, about: About) -> Answer<Vec<Subnet>> {
    let ids = ask.input.texts("subnets");
    if ids.is_empty() {
        return Err(about.bad_parameter("Subnets cannot be empty"));
    }
    let vpc = cluster.spec.get("resourcesVpcConfig", ask.now())["vpcId"].clone();
    let mut found = Vec::new();
    for id in ids {
        match network::subnet(ask, id) {
            Some(subnet) if vpc == subnet.vpc.as_str() => found.push(subnet),
            Some(_) => {
                let message =
                    format!("Subnet {id} does not belong to VPC {} of the cluster", vpc.as_str().unwrap_or_default());
                return Err(about.bad_parameter(message));
            }
            None => return Err(about.bad_parameter(format!("The subnet ID '{id}' does not exist"))),
        }
    }
    Ok(found)
}

/// The launch template that a call names, by id or by name.
pub fn launch_template(ask: &Ask, about: About, member: &str) -> Answer<Option<LaunchTemplate>> {
    let Some(given) = ask.input.at(member) else { return Ok(None) };
    let given = Input(given.clone());
    let (id, name) = (given.text("id"), given.text("name"));
    if id.is_some() == name.is_some() {
        return Err(
            about.bad_parameter("You must specify either the launch template ID or the launch template name, not both")
        );
    }
    match network::launch_template(ask, id, name, given.text("version")) {
        Some(template) => Ok(Some(template)),
        None => {
            let (what, which) = if id.is_some() { ("id", id) } else { ("name", name) };
            let message = format!(
                "Launch template with {what} {} and version {} could not be found",
                which.unwrap_or_default(),
                given.text("version").unwrap_or("$Default")
            );
            Err(about.bad_parameter(message))
        }
    }
}

/// What stands in a launch template cannot be given beside it.
pub fn beside_template(input: &Input, about: About) -> Answer<()> {
    if input.at("diskSize").is_some() {
        return Err(about.bad_parameter("Disk size must be specified within the launch template."));
    }
    if input.at("remoteAccess").is_some() {
        return Err(about.bad_parameter("Remote access configuration cannot be specified with a launch template."));
    }
    Ok(())
}

/// The types that a group's machines may have: its own, its launch template's, or the default.
pub fn instance_types(input: &Input, about: About, template: &Input) -> Answer<Vec<String>> {
    let own: Vec<String> = input.texts("instanceTypes").into_iter().map(str::to_owned).collect();
    let chosen = match (own.is_empty(), template.text("InstanceType")) {
        (false, Some(_)) => {
            return Err(about.bad_parameter("Cannot specify instance types in launch template and API request"));
        }
        (true, Some(one)) => vec![one.to_owned()],
        (true, None) => vec![DEFAULT_TYPE.to_owned()],
        (false, None) => own,
    };
    let unknown: Vec<&str> = chosen.iter().map(String::as_str).filter(|name| types::find(name).is_none()).collect();
    match unknown.is_empty() {
        true => Ok(chosen),
        false => Err(about
            .bad_parameter(format!("The following supplied instance types do not exist: [{}]", unknown.join(", ")))),
    }
}

pub fn ami_type(about: About, given: Option<&str>, chosen: &[String]) -> Answer<String> {
    let image = given.unwrap_or(DEFAULT_IMAGE);
    if !IMAGES.contains(&image) && image != "CUSTOM" {
        return Err(about.bad_parameter(format!("Invalid amiType: {image}")));
    }
    let arm = image.contains("_ARM_64");
    let wrong: Vec<&str> = chosen
        .iter()
        .map(String::as_str)
        .filter(|name| types::find(name).is_some_and(|found| found.arm != arm))
        .collect();
    match wrong.is_empty() || image == "CUSTOM" {
        true => Ok(image.to_owned()),
        false => {
            let message = format!("[{}] is not a valid instance type for requested amiType {image}", wrong.join(", "));
            Err(about.bad_parameter(message))
        }
    }
}

pub fn capacity_type<'a>(about: About, given: Option<&'a str>) -> Answer<&'a str> {
    match given.unwrap_or("ON_DEMAND") {
        known @ ("ON_DEMAND" | "SPOT" | "CAPACITY_BLOCK") => Ok(known),
        other => Err(about.bad_parameter(format!("Invalid capacityType: {other}"))),
    }
}

/// A node group runs its own version or its cluster's.
pub fn version(about: About, wanted: &str, cluster: &str, own: &str) -> Answer<String> {
    let (minor, limit) = (versions::minor(wanted), versions::minor(cluster));
    if versions::find(wanted).is_none() {
        return Err(about.bad_parameter(format!("unsupported Kubernetes version: {wanted}")));
    }
    if minor > limit || minor + 3 < limit || minor < versions::minor(own).min(limit.saturating_sub(3)) {
        return Err(about.bad_parameter(format!(
            "Nodegroup Kubernetes version should be equal to Cluster kubernetes version {cluster} or NodeGroup kubernetes version {own}"
        )));
    }
    Ok(wanted.to_owned())
}

pub fn release(about: About, wanted: &str, version: &str) -> Answer<String> {
    match versions::is_release_of(wanted, version) {
        true => Ok(wanted.to_owned()),
        false => Err(about.bad_parameter(format!(
            "Requested Nodegroup release version {wanted} is invalid. Allowed release version is {}",
            versions::release(version)
        ))),
    }
}

/// Sizes over what they were: least, most, wanted.
pub fn scaling(about: About, input: &Input, before: &Value) -> Answer<Value> {
    let size =
        |name: &str| input.int(&format!("scalingConfig.{name}")).unwrap_or_else(|| before[name].as_i64().unwrap_or(0));
    let (min, max) = (size("minSize"), size("maxSize"));
    let wanted = match input.int("scalingConfig.desiredSize") {
        Some(wanted) => wanted,
        None if input.at("scalingConfig").is_some() => size("desiredSize").clamp(min, max.max(min)),
        None => size("desiredSize"),
    };
    let refused = match () {
        () if min < 0 || wanted < 0 => Some("minSize and desiredSize must be greater than or equal to 0".to_owned()),
        () if max < 1 => Some("maxSize must be greater than or equal to 1".to_owned()),
        () if min > wanted => Some(format!("Minimum capacity {min} can't be greater than desired size {wanted}")),
        () if wanted > max => Some(format!("desired capacity {wanted} can't be greater than max size {max}")),
        () => None,
    };
    match refused {
        Some(message) => Err(about.bad_parameter(message)),
        None => Ok(json!({"minSize": min, "maxSize": max, "desiredSize": wanted})),
    }
}

/// How many nodes an update may take away at once, if it was given.
pub fn update_config(about: About, input: &Input) -> Answer<Option<Value>> {
    let (count, share) = (input.int("updateConfig.maxUnavailable"), input.int("updateConfig.maxUnavailablePercentage"));
    let mut config = match (count, share) {
        (Some(_), Some(_)) => {
            return Err(about.bad_parameter("You cannot specify both maxUnavailable and maxUnavailablePercentage"));
        }
        (Some(count), None) if (1..=100).contains(&count) => json!({"maxUnavailable": count}),
        (None, Some(share)) if (1..=100).contains(&share) => json!({"maxUnavailablePercentage": share}),
        (None, None) => match input.at("updateConfig.updateStrategy") {
            Some(_) => json!({"maxUnavailable": 1}),
            None => return Ok(None),
        },
        _ => return Err(about.bad_parameter("maxUnavailable must be between 1 and 100")),
    };
    if let Some(strategy) = input.text("updateConfig.updateStrategy") {
        config["updateStrategy"] = json!(strategy);
    }
    Ok(Some(config))
}

pub fn labels(about: About, labels: &Tags) -> Answer<Value> {
    let reserved = |key: &&String| RESERVED.iter().any(|prefix| key.starts_with(prefix));
    if labels.keys().any(|key| reserved(&key)) {
        return Err(about.bad_parameter(format!("Label cannot contain reserved prefixes [{}]", RESERVED.join(", "))));
    }
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte));
    let bad = labels.iter().find(|(key, value)| key.is_empty() || !plain(key) || value.len() > 63 || !plain(value));
    match bad {
        Some((key, value)) => Err(about.bad_parameter(format!("Invalid label: {key}={value}"))),
        None => Ok(json!(labels)),
    }
}

pub fn taints(about: About, given: &[Input]) -> Answer<Vec<Value>> {
    let mut taints = Vec::new();
    for taint in given {
        let (key, effect) = (taint.text("key").unwrap_or_default(), taint.text("effect").unwrap_or_default());
        if key.is_empty() || !matches!(effect, "NO_SCHEDULE" | "NO_EXECUTE" | "PREFER_NO_SCHEDULE") {
            return Err(about.bad_parameter(format!("Invalid taint: {key}:{effect}")));
        }
        let mut shown = json!({"key": key, "effect": effect});
        if let Some(value) = taint.text("value") {
            shown["value"] = json!(value);
        }
        taints.push(shown);
    }
    Ok(taints)
}

pub fn quota(ask: &Ask, about: About, more: u64) -> Answer<()> {
    let limit = ask.state.quota.nodes;
    match ask.state.store.eks.node_groups.weight() + more > limit {
        true => Err(about.limit(format!("The maximum number of nodes has been reached: {limit}"))),
        false => Ok(()),
    }
}

/// Why no machine starts, where a fault rule says so of the region or of all zones.
pub fn no_capacity(ask: &Ask, subnets: &[Subnet], instance_type: &str) -> Option<(String, String)> {
    let full = |zone: &str| ask.effects().out_of_capacity(zone) || ask.effects().out_of_capacity(ask.region);
    let zone =
        subnets.iter().all(|subnet| full(&subnet.zone)).then(|| subnets.first()).flatten().map(|one| &one.zone)?;
    let message = format!(
        "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have sufficient {instance_type} \
         capacity in the Availability Zone you requested ({zone}). Our system will be working on provisioning additional \
         capacity. Launching EC2 instance failed."
    );
    Some(("AsgInstanceLaunchFailures".into(), message))
}
