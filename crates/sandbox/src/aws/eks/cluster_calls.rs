//! Creating, showing and deleting clusters.

use serde_json::{Map, Value, json};

use super::cluster::Cluster;
use super::errors::About;
use super::spec::Spec;
use super::{access_entry, cluster_checks as checks, find, network, page, roles};
use crate::aws::ask::{Ask, Input};
use crate::aws::errors::{Answer, AwsError};
use crate::aws::ids;
use crate::clock::SimTime;

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let name = ask.input.text("name").unwrap_or_default().to_owned();
    checks::name(&name)?;
    let about = About::cluster(&name);
    if ask.state.store.eks.clusters.count(&format!("name:{}/{name}", ask.region)) > 0 {
        return Err(about.in_use(format!("Cluster already exists with name: {name}")));
    }
    let tags = ask.input.map("tags");
    checks::tags(about, &tags)?;
    let members = members(ask, &name)?;
    if ask.state.store.eks.clusters.len() as u64 >= ask.state.quota.clusters {
        let limit = ask.state.quota.clusters;
        return Err(about.limit(format!("The maximum number of clusters has been reached: {limit}")));
    }
    roles::service_linked(ask, roles::FOR_CLUSTERS);
    let (now, stuck) = (ask.now(), ask.effects().stuck);
    let active_at = if stuck { SimTime::NEVER } else { ask.in_seconds(480, 600) };
    let mut cluster = Cluster {
        id: ids::hex(32).to_uppercase(),
        name,
        region: ask.region.to_owned(),
        account: ask.account.to_owned(),
        creator: roles::of_session(&ask.principal.arn),
        spec: Spec::new(members),
        tags,
        self_managed_addons: ask.input.flag("bootstrapSelfManagedAddons").unwrap_or(true),
        preserved: Vec::new(),
        creator_is_admin: ask.input.flag("accessConfig.bootstrapClusterCreatorAdminPermissions").unwrap_or(true),
        created_at: now,
        active_at,
        gone_at: None,
    };
    attach_network(ask, &mut cluster);
    access_entry::bootstrap(ask, &cluster);
    let shown = cluster.shown(now, ask.kube);
    ask.store().eks.clusters.insert(cluster);
    Ok(json!({"cluster": shown}))
}

/// Checks what was asked for and fills in defaults.
fn members(ask: &Ask, name: &str) -> Answer<Map<String, Value>> {
    let about = About::cluster(name);
    let version = checks::version(name, ask.input.text("version"))?;
    let Some(role) = ask.input.text("roleArn") else { return Err(about.bad_parameter("roleArn is required")) };
    roles::check_cluster_role(ask, name, role)?;
    let vpc = Input(ask.input.at("resourcesVpcConfig").cloned().unwrap_or_default());
    let subnets = checks::subnets(ask, name, &vpc.texts("subnetIds"))?;
    checks::security_groups(ask, name, &vpc.texts("securityGroupIds"))?;
    let before =
        json!({"endpointPublicAccess": true, "endpointPrivateAccess": false, "publicAccessCidrs": ["0.0.0.0/0"]});
    let mut vpc_config = checks::endpoint_access(name, &vpc, &before)?;
    let vpc_id = subnets.first().map(|subnet| subnet.vpc.clone()).unwrap_or_default();
    vpc_config["subnetIds"] = json!(vpc.texts("subnetIds"));
    vpc_config["securityGroupIds"] = json!(vpc.texts("securityGroupIds"));
    vpc_config["vpcId"] = json!(vpc_id);
    let logging = Input(ask.input.at("logging").cloned().unwrap_or_default());
    let mode = ask.input.text("accessConfig.authenticationMode").unwrap_or("CONFIG_MAP");
    if !matches!(mode, "API" | "API_AND_CONFIG_MAP" | "CONFIG_MAP") {
        return Err(about.bad_parameter(format!("Invalid authenticationMode: {mode}")));
    }
    let admin = ask.input.flag("accessConfig.bootstrapClusterCreatorAdminPermissions").unwrap_or(true);
    let support = ask.input.text("upgradePolicy.supportType").unwrap_or("EXTENDED");
    if !matches!(support, "STANDARD" | "EXTENDED") {
        return Err(about.bad_parameter(format!("Invalid supportType: {support}")));
    }
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| _ = members.insert(name.to_owned(), value);
    put("version", json!(version));
    put("roleArn", json!(role));
    put("kubernetesNetworkConfig", checks::kubernetes_network(ask, name, &vpc_id)?);
    put("resourcesVpcConfig", vpc_config);
    put("logging", checks::logging(name, &logging, &Value::Null)?);
    put("accessConfig", json!({"bootstrapClusterCreatorAdminPermissions": admin, "authenticationMode": mode}));
    put("upgradePolicy", json!({"supportType": support}));
    put("deletionProtection", json!(ask.input.flag("deletionProtection").unwrap_or(false)));
    if !ask.input.list("encryptionConfig").is_empty() {
        put("encryptionConfig", checks::encryption(ask, name)?);
    }
    for given in ["zonalShiftConfig", "remoteNetworkConfig", "computeConfig", "storageConfig"] {
        if let Some(value) = ask.input.at(given) {
            put(given, value.clone());
        }
    }
    if ask.input.at("outpostConfig").is_some() {
        return Err(about.bad_request("The sandbox does not simulate Outposts"));
    }
    Ok(members)
}

/// The security group and the network interfaces that EKS makes in the cluster's network.
fn attach_network(ask: &mut Ask, cluster: &mut Cluster) {
    let now = cluster.created_at;
    let mut config = cluster.spec.get("resourcesVpcConfig", now).clone();
    let vpc = config["vpcId"].as_str().unwrap_or_default().to_owned();
    let group = network::make_security_group(ask, &cluster.name, &vpc);
    let mut groups = vec![group.clone()];
    let given = config["securityGroupIds"].as_array().cloned().unwrap_or_default();
    groups.extend(given.iter().filter_map(Value::as_str).map(str::to_owned));
    network::make_interfaces(ask, &cluster.name, &cluster.subnets(now), &groups);
    config["clusterSecurityGroupId"] = json!(group);
    let mut members = cluster.spec.all(now);
    members.insert("resourcesVpcConfig".into(), config);
    cluster.spec = Spec::new(members);
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    Ok(json!({"cluster": find(ask, "name")?.shown(ask.now(), ask.kube)}))
}

pub fn list(ask: &mut Ask) -> Answer<Value> {
    let rows = ask.rows(|store| &store.eks.clusters, &format!("region:{}", ask.region));
    let mut names: Vec<&str> = rows.iter().map(|cluster| cluster.name.as_str()).collect();
    names.sort_unstable();
    let names = names.into_iter().map(Value::from).collect();
    page(ask, "clusters", names)
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let (cluster, now) = (find(ask, "name")?.clone(), ask.now());
    if cluster.gone_at.is_none() {
        check_deletable(ask, &cluster)?;
        let gone_at = ask.in_seconds(60, 240);
        leave(ask, &cluster, gone_at);
    }
    let left = ask.state.store.eks.clusters.get(&cluster.id);
    let mut shown = left.unwrap_or(&cluster).shown(now, ask.kube);
    shown["status"] = json!("DELETING");
    Ok(json!({"cluster": shown}))
}

fn check_deletable(ask: &Ask, cluster: &Cluster) -> Answer<()> {
    let (about, now, eks) = (About::cluster(&cluster.name), ask.now(), &ask.state.store.eks);
    let refused: Option<Box<AwsError>> = match () {
        () if cluster.spec.get("deletionProtection", now) == true => {
            Some(about.bad_request("Cannot delete cluster because deletion protection is enabled for this cluster"))
        }
        () if eks.node_groups.count(&format!("cluster:{}", cluster.id)) > 0 => {
            Some(about.in_use("Cluster has nodegroups attached"))
        }
        () if cluster.spec.updating(now).is_some() => Some(
            about.in_use(format!("Cannot delete because cluster {} currently has an update in progress", cluster.name)),
        ),
        () => None,
    };
    refused.map_or(Ok(()), Err)
}

/// The cluster and all that belongs to it are gone at the same moment.
fn leave(ask: &mut Ask, cluster: &Cluster, gone_at: SimTime) {
    let group =
        cluster.spec.get("resourcesVpcConfig", ask.now())["clusterSecurityGroupId"].as_str().unwrap_or_default();
    network::release(ask, &cluster.name, group, gone_at);
    let key = format!("cluster:{}", cluster.id);
    let eks = &mut ask.store().eks;
    eks.clusters.update(&cluster.id, |cluster| cluster.gone_at = Some(gone_at));
    macro_rules! with_it {
        ($($table:ident),+) => {$(
            let ids: Vec<String> = eks.$table.find(&key).map(|row| row.id.clone()).collect();
            for id in ids {
                eks.$table.update(&id, |row| row.gone_at = Some(gone_at));
            }
        )+};
    }
    with_it!(addons, access_entries, pod_identities, identity_providers, updates);
}
