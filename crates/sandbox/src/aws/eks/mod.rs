//! EKS: clusters, node groups, add-ons, and who may use a cluster.

mod access_entry;
mod access_policy;
mod addon;
mod addon_calls;
mod addon_catalog;
mod addon_schema;
mod cluster;
mod cluster_calls;
mod cluster_checks;
mod cluster_updates;
mod errors;
mod identity_provider;
mod insights;
mod instance_types;
mod login;
mod machines;
mod network;
mod node_group;
mod node_group_calls;
mod node_group_checks;
mod node_group_updates;
mod pod_identity;
mod roles;
mod route;
mod spec;
mod tags;
#[cfg(test)]
mod tests;
mod token;
mod updates;
mod versions;
mod view;

use serde_json::{Value, json};

use super::ask::Ask;
use super::errors::Answer;
use super::wire::{Action, Protocol, Service};
use crate::clock::SimTime;
use cluster::Cluster;
use errors::About;
pub use login::{authenticate, cluster_of};
pub use machines::{Machine, machines};
pub use tags::EksTags;
pub use view::cluster_view;

super::tables::tables! {
    clusters: cluster::Cluster,
    node_groups: node_group::NodeGroup,
    addons: addon::Addon,
    access_entries: access_entry::AccessEntry,
    pod_identities: pod_identity::Association,
    identity_providers: identity_provider::Provider,
    updates: updates::Update,
}

pub static SERVICE: Service = Service {
    scope: "eks",
    protocol: Protocol::RestJson { route: route::route },
    actions: &[
        Action::change("CreateCluster", cluster_calls::create),
        Action::read("ListClusters", cluster_calls::list),
        Action::read("DescribeCluster", cluster_calls::describe),
        Action::change("DeleteCluster", cluster_calls::delete),
        Action::change("UpdateClusterConfig", cluster_updates::config),
        Action::change("UpdateClusterVersion", cluster_updates::version),
        Action::change("AssociateEncryptionConfig", cluster_updates::encryption),
        Action::read("ListUpdates", updates::list),
        Action::read("DescribeUpdate", updates::describe),
        Action::change("AssociateIdentityProviderConfig", identity_provider::associate),
        Action::change("DisassociateIdentityProviderConfig", identity_provider::disassociate),
        Action::read("DescribeIdentityProviderConfig", identity_provider::describe),
        Action::read("ListIdentityProviderConfigs", identity_provider::list),
        Action::change("CreateNodegroup", node_group_calls::create),
        Action::read("ListNodegroups", node_group_calls::list),
        Action::read("DescribeNodegroup", node_group_calls::describe),
        Action::change("DeleteNodegroup", node_group_calls::delete),
        Action::change("UpdateNodegroupConfig", node_group_updates::config),
        Action::change("UpdateNodegroupVersion", node_group_updates::version),
        Action::change("CreateAddon", addon_calls::create),
        Action::read("ListAddons", addon_calls::list),
        Action::read("DescribeAddon", addon_calls::describe),
        Action::change("DeleteAddon", addon_calls::delete),
        Action::change("UpdateAddon", addon_calls::update),
        Action::read("DescribeAddonVersions", addon_catalog::describe_versions),
        Action::read("DescribeAddonConfiguration", addon_catalog::describe_configuration),
        Action::change("CreateAccessEntry", access_entry::create),
        Action::read("ListAccessEntries", access_entry::list),
        Action::read("DescribeAccessEntry", access_entry::describe),
        Action::change("UpdateAccessEntry", access_entry::update),
        Action::change("DeleteAccessEntry", access_entry::delete),
        Action::change("AssociateAccessPolicy", access_policy::associate),
        Action::read("ListAssociatedAccessPolicies", access_policy::list_associated),
        Action::change("DisassociateAccessPolicy", access_policy::disassociate),
        Action::read("ListAccessPolicies", access_policy::list),
        Action::change("CreatePodIdentityAssociation", pod_identity::create),
        Action::read("ListPodIdentityAssociations", pod_identity::list),
        Action::read("DescribePodIdentityAssociation", pod_identity::describe),
        Action::change("UpdatePodIdentityAssociation", pod_identity::update),
        Action::change("DeletePodIdentityAssociation", pod_identity::delete),
        Action::change("CreateFargateProfile", create_fargate_profile),
        Action::read("ListFargateProfiles", list_fargate_profiles),
        Action::read("DescribeFargateProfile", no_fargate_profile),
        Action::change("DeleteFargateProfile", no_fargate_profile),
        Action::read("ListCapabilities", list_capabilities),
        Action::read("ListInsights", insights::list),
        Action::read("DescribeInsight", insights::describe),
        Action::change("StartInsightsRefresh", insights::start_refresh),
        Action::read("DescribeInsightsRefresh", insights::describe_refresh),
        Action::read("DescribeClusterVersions", versions::describe),
        Action::read("ListEksAnywhereSubscriptions", list_subscriptions),
        Action::read("ListTagsForResource", tags::list),
        Action::change("TagResource", tags::tag),
        Action::change("UntagResource", tags::untag),
    ],
};

const MAX_PAGE: i64 = 100;

/// Times are seconds since 1970 with a fraction.
fn time(at: SimTime) -> Value {
    json!(at.0 as f64 / 1000.0)
}

fn no_cluster(name: &str) -> Box<super::errors::AwsError> {
    About::cluster(name).not_found(format!("No cluster found for name: {name}."))
}

/// The cluster that a call names, as `name` or `clusterName`.
fn find<'a>(ask: &'a Ask, member: &str) -> Answer<&'a Cluster> {
    let name = ask.input.text(member).unwrap_or_default();
    let key = format!("name:{}/{name}", ask.region);
    ask.state.store.eks.clusters.first(&key).ok_or_else(|| no_cluster(name))
}

/// The cluster of an object that is to be made or changed: it must not be leaving.
fn find_staying(ask: &Ask, member: &str) -> Answer<Cluster> {
    let cluster = find(ask, member)?.clone();
    match cluster.gone_at {
        None => Ok(cluster),
        Some(_) => {
            let message = format!("Cluster {} is not in ACTIVE status, its status is DELETING", cluster.name);
            Err(About::cluster(&cluster.name).bad_request(message))
        }
    }
}

/// As `find_staying`, for what needs a control plane.
fn find_running(ask: &Ask, member: &str) -> Answer<Cluster> {
    let cluster = find_staying(ask, member)?;
    if ask.now() < cluster.active_at {
        let message = format!("Cluster {} is not in ACTIVE status, its status is CREATING", cluster.name);
        return Err(About::cluster(&cluster.name).bad_request(message));
    }
    Ok(cluster)
}

/// One page of a list, with the place of the next one.
fn page(ask: &Ask, member: &str, items: Vec<Value>) -> Answer<Value> {
    let limit = match ask.input.int("maxResults") {
        Some(number) if !(1..=MAX_PAGE).contains(&number) => {
            let message = format!(
                "1 validation error detected: Value '{number}' at 'maxResults' failed to satisfy constraint: Member must have \
                 value between 1 and {MAX_PAGE}"
            );
            return Err(About::default().bad_parameter(message));
        }
        Some(number) => number as usize,
        None => MAX_PAGE as usize,
    };
    let from = match ask.input.text("nextToken").filter(|token| !token.is_empty()) {
        None => 0,
        Some(token) => offset(token).ok_or_else(|| About::default().bad_parameter("Invalid token"))?,
    };
    let more = items.len() > from.saturating_add(limit);
    let items: Vec<Value> = items.into_iter().skip(from).take(limit).collect();
    let next = if more { json!(next_token(from + limit)) } else { Value::Null };
    Ok(json!({member: items, "nextToken": next}))
}

fn next_token(offset: usize) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(format!("offset:{offset}"))
}

fn offset(token: &str) -> Option<usize> {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token).ok()?;
    String::from_utf8(bytes).ok()?.strip_prefix("offset:")?.parse().ok()
}

fn create_fargate_profile(ask: &mut Ask) -> Answer<Value> {
    let cluster = find_running(ask, "clusterName")?;
    Err(About::cluster(&cluster.name).bad_request("The sandbox does not simulate Fargate: use a node group"))
}

fn list_fargate_profiles(ask: &mut Ask) -> Answer<Value> {
    find(ask, "clusterName")?;
    page(ask, "fargateProfileNames", vec![])
}

fn no_fargate_profile(ask: &mut Ask) -> Answer<Value> {
    let cluster = &find(ask, "clusterName")?.name;
    let name = ask.input.text("fargateProfileName").unwrap_or_default();
    Err(About::cluster(cluster).not_found(format!("No Fargate Profile found with name: {name}.")))
}

fn list_capabilities(ask: &mut Ask) -> Answer<Value> {
    find(ask, "clusterName")?;
    page(ask, "capabilities", vec![])
}

fn list_subscriptions(ask: &mut Ask) -> Answer<Value> {
    page(ask, "subscriptions", vec![])
}
