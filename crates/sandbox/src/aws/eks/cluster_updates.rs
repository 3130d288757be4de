//! Changes to a cluster. Each is an update with an id of its own, and one is in progress at a time.

use serde_json::{Map, Value, json};

use super::cluster::Cluster;
use super::errors::About;
use super::{cluster_checks as checks, find_running, updates, versions};
use crate::aws::ask::{Ask, Input};
use crate::aws::errors::Answer;

/// How long they take, in seconds.
const VERSION: (u32, u32) = (480, 720);
const ENDPOINT: (u32, u32) = (180, 480);
const NETWORK: (u32, u32) = (180, 480);
const SETTING: (u32, u32) = (60, 120);
const ENCRYPTION: (u32, u32) = (600, 2400);

/// What one call changes: type, parameters as an update shows them, duration, members.
struct Change {
    kind: &'static str,
    params: Vec<(&'static str, String)>,
    takes: (u32, u32),
    members: Map<String, Value>,
}

fn change(kind: &'static str, params: Vec<(&'static str, String)>, takes: (u32, u32), member: (&str, Value)) -> Change {
    Change { kind, params, takes, members: Map::from_iter([(member.0.to_owned(), member.1)]) }
}

/// A cluster that can be updated now.
fn updatable(ask: &Ask, member: &str, kind: &str) -> Answer<Cluster> {
    let cluster = find_running(ask, member)?;
    match cluster.spec.updating(ask.now()) {
        None => Ok(cluster),
        Some(id) => {
            let message =
                format!("Cannot {kind} because cluster {} currently has update {id} in progress", cluster.name);
            Err(About::cluster(&cluster.name).in_use(message))
        }
    }
}

pub fn config(ask: &mut Ask) -> Answer<Value> {
    const ASPECTS: [&str; 10] = [
        "resourcesVpcConfig",
        "logging",
        "accessConfig",
        "upgradePolicy",
        "zonalShiftConfig",
        "computeConfig",
        "kubernetesNetworkConfig",
        "storageConfig",
        "remoteNetworkConfig",
        "deletionProtection",
    ];
    let cluster = updatable(ask, "name", "update config")?;
    let about = About::cluster(&cluster.name);
    let given: Vec<&str> = ASPECTS.into_iter().filter(|aspect| ask.input.at(aspect).is_some()).collect();
    // Three of them are one thing: automatic compute.
    let auto = |aspect: &&str| matches!(*aspect, "computeConfig" | "kubernetesNetworkConfig" | "storageConfig");
    let change = match given.as_slice() {
        [] => return Err(about.bad_parameter("No changes needed: at least one configuration must be given")),
        ["resourcesVpcConfig"] => vpc_config(ask, &cluster)?,
        ["logging"] => logging(ask, &cluster)?,
        ["accessConfig"] => access_config(ask, &cluster)?,
        ["upgradePolicy"] => upgrade_policy(ask, &cluster)?,
        ["zonalShiftConfig"] => setting(ask, "ZonalShiftConfigUpdate", "ZonalShiftConfig", "zonalShiftConfig"),
        ["remoteNetworkConfig"] => {
            setting(ask, "RemoteNetworkConfigUpdate", "RemoteNetworkConfig", "remoteNetworkConfig")
        }
        ["deletionProtection"] => setting(ask, "DeletionProtectionUpdate", "DeletionProtection", "deletionProtection"),
        all if all.iter().all(auto) => auto_mode(ask, &cluster, all),
        _ => return Err(about.bad_parameter("Only one type of update can be allowed")),
    };
    let Change { kind, params, takes, members } = change;
    Ok(updates::of_cluster(ask, &cluster, kind, params, (takes, members)))
}

fn vpc_config(ask: &Ask, cluster: &Cluster) -> Answer<Change> {
    let (about, now) = (About::cluster(&cluster.name), ask.now());
    let given = Input(ask.input.at("resourcesVpcConfig").cloned().unwrap_or_default());
    let mut config = cluster.spec.get("resourcesVpcConfig", now).clone();
    let has = |names: &[&str]| names.iter().any(|name| given.at(name).is_some());
    if has(&["subnetIds", "securityGroupIds"]) {
        if has(&["endpointPublicAccess", "endpointPrivateAccess", "publicAccessCidrs"]) {
            return Err(about.bad_parameter("Only one type of update can be allowed"));
        }
        let mut params = Vec::new();
        if has(&["subnetIds"]) {
            let ids = given.texts("subnetIds");
            let subnets = checks::subnets(ask, &cluster.name, &ids)?;
            if subnets.iter().any(|subnet| config["vpcId"] != subnet.vpc.as_str()) {
                return Err(about.bad_parameter("Provided subnets belong to a different VPC than the cluster's"));
            }
            config["subnetIds"] = json!(ids);
            params.push(("Subnets", json!(ids).to_string()));
        }
        if has(&["securityGroupIds"]) {
            let ids = given.texts("securityGroupIds");
            checks::security_groups(ask, &cluster.name, &ids)?;
            config["securityGroupIds"] = json!(ids);
            params.push(("SecurityGroups", json!(ids).to_string()));
        }
        return Ok(change("VpcConfigUpdate", params, NETWORK, ("resourcesVpcConfig", config)));
    }
    let access = checks::endpoint_access(&cluster.name, &given, &config)?;
    let names = ["endpointPublicAccess", "endpointPrivateAccess", "publicAccessCidrs"];
    if names.iter().all(|name| access[name] == config[name]) {
        let cidrs: Vec<&str> =
            access["publicAccessCidrs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        return Err(about.bad_parameter(format!(
            "Cluster is already at the desired configuration with endpointPrivateAccess: {} , endpointPublicAccess: {}, and Public \
             Endpoint Restrictions: [{}]",
            access["endpointPrivateAccess"],
            access["endpointPublicAccess"],
            cidrs.join(", ")
        )));
    }
    let params = vec![
        ("EndpointPublicAccess", access["endpointPublicAccess"].to_string()),
        ("EndpointPrivateAccess", access["endpointPrivateAccess"].to_string()),
        ("PublicAccessCidrs", access["publicAccessCidrs"].to_string()),
    ];
    for name in names {
        config[name] = access[name].clone();
    }
    Ok(change("EndpointAccessUpdate", params, ENDPOINT, ("resourcesVpcConfig", config)))
}

fn logging(ask: &Ask, cluster: &Cluster) -> Answer<Change> {
    let before = cluster.spec.get("logging", ask.now());
    let given = Input(ask.input.at("logging").cloned().unwrap_or_default());
    let after = checks::logging(&cluster.name, &given, before)?;
    if after == *before {
        return Err(About::cluster(&cluster.name).bad_parameter("No changes needed for the logging config provided"));
    }
    let params = vec![("ClusterLogging", after.to_string())];
    Ok(change("LoggingUpdate", params, SETTING, ("logging", after)))
}

fn access_config(ask: &Ask, cluster: &Cluster) -> Answer<Change> {
    let (about, now) = (About::cluster(&cluster.name), ask.now());
    let (from, to) =
        (cluster.authentication_mode(now), ask.input.text("accessConfig.authenticationMode").unwrap_or_default());
    match (from, to) {
        ("CONFIG_MAP", "API_AND_CONFIG_MAP") | ("API_AND_CONFIG_MAP", "API") => {}
        (from, to) if from == to => {
            return Err(about.bad_parameter(format!("Cluster is already at the desired authentication mode: {to}")));
        }
        (from, to) => {
            return Err(about.bad_parameter(format!("Unsupported authentication mode update from {from} to {to}")));
        }
    }
    let mut config = cluster.spec.get("accessConfig", now).clone();
    config["authenticationMode"] = json!(to);
    let params = vec![("AuthenticationMode", format!("\"{to}\""))];
    Ok(change("AccessConfigUpdate", params, SETTING, ("accessConfig", config)))
}

fn upgrade_policy(ask: &Ask, cluster: &Cluster) -> Answer<Change> {
    let to = ask.input.text("upgradePolicy.supportType").unwrap_or_default();
    if !matches!(to, "STANDARD" | "EXTENDED") {
        return Err(About::cluster(&cluster.name).bad_parameter(format!("Invalid supportType: {to}")));
    }
    let policy = json!({"supportType": to});
    Ok(change("UpgradePolicyUpdate", vec![("UpgradePolicy", policy.to_string())], SETTING, ("upgradePolicy", policy)))
}

/// A member that is taken as it is given.
fn setting(ask: &Ask, kind: &'static str, param: &'static str, member: &str) -> Change {
    let value = ask.input.at(member).cloned().unwrap_or_default();
    change(kind, vec![(param, value.to_string())], SETTING, (member, value))
}

fn auto_mode(ask: &Ask, cluster: &Cluster, given: &[&str]) -> Change {
    let (mut members, mut params) = (Map::new(), Vec::new());
    for (member, param) in [
        ("computeConfig", "ComputeConfig"),
        ("kubernetesNetworkConfig", "KubernetesNetworkConfig"),
        ("storageConfig", "StorageConfig"),
    ] {
        let Some(value) = ask.input.at(member).filter(|_| given.contains(&member)) else { continue };
        let mut whole = cluster.spec.get(member, ask.now()).clone();
        match (whole.as_object_mut(), value.as_object()) {
            (Some(whole), Some(value)) => whole.extend(value.clone()),
            _ => whole = value.clone(),
        }
        params.push((param, value.to_string()));
        members.insert(member.to_owned(), whole);
    }
    Change { kind: "AutoModeUpdate", params, takes: SETTING, members }
}

pub fn version(ask: &mut Ask) -> Answer<Value> {
    let cluster = updatable(ask, "name", "update version")?;
    let (about, now) = (About::cluster(&cluster.name), ask.now());
    let (from, to) = (cluster.version(now).to_owned(), ask.input.text("version").unwrap_or_default().to_owned());
    if versions::find(&to).is_none() {
        return Err(about.bad_parameter(format!("unsupported Kubernetes version: {to}")));
    }
    if versions::minor(&to) != versions::minor(&from) + 1 {
        return Err(about.bad_parameter(format!("Unsupported Kubernetes minor version update from {from} to {to}")));
    }
    // Nodes may be three versions behind their control plane.
    let groups = ask.state.store.eks.node_groups.find(&format!("cluster:{}", cluster.id));
    let old = |version: &str| versions::minor(version) + 3 < versions::minor(&to);
    let behind: Vec<String> =
        groups.filter(|group| old(group.spec.text("version", now))).map(|group| group.name.clone()).collect();
    if !behind.is_empty() {
        let message = format!(
            "Nodegroups {} must be updated to match cluster version {from} before updating cluster version; reference \
             https://docs.aws.amazon.com/eks/latest/userguide/update-managed-node-group.html for details on updating a managed \
             node group",
            behind.join(", ")
        );
        return Err(about.bad_request(message));
    }
    let params = vec![("Version", to.clone()), ("PlatformVersion", versions::platform(&to).to_owned())];
    let members = Map::from_iter([("version".to_owned(), json!(to))]);
    Ok(updates::of_cluster(ask, &cluster, "VersionUpdate", params, (VERSION, members)))
}

pub fn encryption(ask: &mut Ask) -> Answer<Value> {
    let cluster = updatable(ask, "clusterName", "associate encryption config")?;
    let now = ask.now();
    if !cluster.spec.get("encryptionConfig", now).is_null() {
        let message = "Encryption is already enabled for this cluster";
        return Err(About::cluster(&cluster.name).bad_parameter(message));
    }
    let config = checks::encryption(ask, &cluster.name)?;
    let params = vec![("EncryptionConfig", config.to_string())];
    let members = Map::from_iter([("encryptionConfig".to_owned(), config)]);
    Ok(updates::of_cluster(ask, &cluster, "AssociateEncryptionConfig", params, (ENCRYPTION, members)))
}
