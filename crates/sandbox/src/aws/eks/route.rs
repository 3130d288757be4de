//! From method and path to an action: EKS names its objects in the path.

use hyper::Method;
use serde_json::{Map, Value};

use crate::aws::ask::Input;
use crate::aws::errors::{Answer, AwsError};
use crate::http::Call;

/// Members that are lists even where the query holds one value.
const LISTS: [&str; 6] = ["tagKeys", "include", "types", "publishers", "owners", "clusterVersions"];

/// Method, path and action. A part in braces goes into the input under that name.
#[rustfmt::skip]
static ROUTES: &[(Method, &str, &str)] = &[
    (Method::POST, "clusters", "CreateCluster"),
    (Method::GET, "clusters", "ListClusters"),
    (Method::GET, "clusters/{name}", "DescribeCluster"),
    (Method::DELETE, "clusters/{name}", "DeleteCluster"),
    (Method::POST, "clusters/{name}/update-config", "UpdateClusterConfig"),
    (Method::POST, "clusters/{name}/updates", "UpdateClusterVersion"),
    (Method::GET, "clusters/{name}/updates", "ListUpdates"),
    (Method::GET, "clusters/{name}/updates/{updateId}", "DescribeUpdate"),
    (Method::POST, "clusters/{clusterName}/encryption-config/associate", "AssociateEncryptionConfig"),
    (Method::POST, "clusters/{clusterName}/identity-provider-configs/associate", "AssociateIdentityProviderConfig"),
    (Method::POST, "clusters/{clusterName}/identity-provider-configs/disassociate", "DisassociateIdentityProviderConfig"),
    (Method::POST, "clusters/{clusterName}/identity-provider-configs/describe", "DescribeIdentityProviderConfig"),
    (Method::GET, "clusters/{clusterName}/identity-provider-configs", "ListIdentityProviderConfigs"),
    (Method::POST, "clusters/{clusterName}/node-groups", "CreateNodegroup"),
    (Method::GET, "clusters/{clusterName}/node-groups", "ListNodegroups"),
    (Method::GET, "clusters/{clusterName}/node-groups/{nodegroupName}", "DescribeNodegroup"),
    (Method::DELETE, "clusters/{clusterName}/node-groups/{nodegroupName}", "DeleteNodegroup"),
    (Method::POST, "clusters/{clusterName}/node-groups/{nodegroupName}/update-config", "UpdateNodegroupConfig"),
    (Method::POST, "clusters/{clusterName}/node-groups/{nodegroupName}/update-version", "UpdateNodegroupVersion"),
    (Method::POST, "clusters/{clusterName}/addons", "CreateAddon"),
    (Method::GET, "clusters/{clusterName}/addons", "ListAddons"),
    (Method::GET, "clusters/{clusterName}/addons/{addonName}", "DescribeAddon"),
    (Method::DELETE, "clusters/{clusterName}/addons/{addonName}", "DeleteAddon"),
    (Method::POST, "clusters/{clusterName}/addons/{addonName}/update", "UpdateAddon"),
    (Method::GET, "addons/supported-versions", "DescribeAddonVersions"),
    (Method::GET, "addons/configuration-schemas", "DescribeAddonConfiguration"),
    (Method::POST, "clusters/{clusterName}/access-entries", "CreateAccessEntry"),
    (Method::GET, "clusters/{clusterName}/access-entries", "ListAccessEntries"),
    (Method::GET, "clusters/{clusterName}/access-entries/{principalArn}", "DescribeAccessEntry"),
    (Method::POST, "clusters/{clusterName}/access-entries/{principalArn}", "UpdateAccessEntry"),
    (Method::DELETE, "clusters/{clusterName}/access-entries/{principalArn}", "DeleteAccessEntry"),
    (Method::POST, "clusters/{clusterName}/access-entries/{principalArn}/access-policies", "AssociateAccessPolicy"),
    (Method::GET, "clusters/{clusterName}/access-entries/{principalArn}/access-policies", "ListAssociatedAccessPolicies"),
    (Method::DELETE, "clusters/{clusterName}/access-entries/{principalArn}/access-policies/{policyArn}", "DisassociateAccessPolicy"),
    (Method::GET, "access-policies", "ListAccessPolicies"),
    (Method::POST, "clusters/{clusterName}/pod-identity-associations", "CreatePodIdentityAssociation"),
    (Method::GET, "clusters/{clusterName}/pod-identity-associations", "ListPodIdentityAssociations"),
    (Method::GET, "clusters/{clusterName}/pod-identity-associations/{associationId}", "DescribePodIdentityAssociation"),
    (Method::POST, "clusters/{clusterName}/pod-identity-associations/{associationId}", "UpdatePodIdentityAssociation"),
    (Method::DELETE, "clusters/{clusterName}/pod-identity-associations/{associationId}", "DeletePodIdentityAssociation"),
    (Method::POST, "clusters/{clusterName}/fargate-profiles", "CreateFargateProfile"),
    (Method::GET, "clusters/{clusterName}/fargate-profiles", "ListFargateProfiles"),
    (Method::GET, "clusters/{clusterName}/fargate-profiles/{fargateProfileName}", "DescribeFargateProfile"),
    (Method::DELETE, "clusters/{clusterName}/fargate-profiles/{fargateProfileName}", "DeleteFargateProfile"),
    (Method::GET, "clusters/{clusterName}/capabilities", "ListCapabilities"),
    (Method::POST, "clusters/{clusterName}/insights", "ListInsights"),
    (Method::GET, "clusters/{clusterName}/insights/{id}", "DescribeInsight"),
    (Method::POST, "clusters/{clusterName}/insights-refresh", "StartInsightsRefresh"),
    (Method::GET, "clusters/{clusterName}/insights-refresh", "DescribeInsightsRefresh"),
    (Method::GET, "cluster-versions", "DescribeClusterVersions"),
    (Method::GET, "eks-anywhere-subscriptions", "ListEksAnywhereSubscriptions"),
    (Method::GET, "tags/{resourceArn}", "ListTagsForResource"),
    (Method::POST, "tags/{resourceArn}", "TagResource"),
    (Method::DELETE, "tags/{resourceArn}", "UntagResource"),
];

pub fn route(call: &Call) -> Answer<Option<(&'static str, Input)>> {
    let segments = call.segments();
    let parts: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
    let found = ROUTES.iter().filter(|(method, _, _)| *method == call.method).find_map(|(_, pattern, action)| {
        let named = matched(pattern, &parts)?;
        Some((*action, named))
    });
    let Some((action, named)) = found else { return Ok(None) };
    let mut input = body(call)?;
    for (name, value) in &call.query {
        if LISTS.contains(&name.as_str()) {
            match input.entry(name.clone()).or_insert_with(|| Value::Array(Vec::new())) {
                Value::Array(items) => items.push(value.clone().into()),
                other => *other = Value::Array(vec![value.clone().into()]),
            }
        } else if !name.starts_with("X-Amz-") {
            input.insert(name.clone(), value.clone().into());
        }
    }
    input.extend(named);
    Ok(Some((action, Input(Value::Object(input)))))
}

fn body(call: &Call) -> Answer<Map<String, Value>> {
    if call.body.is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_slice(&call.body).map_err(|error| AwsError::new(400, "SerializationException", error.to_string()))
}

/// The parts in braces, where all others are equal.
fn matched(pattern: &str, parts: &[&str]) -> Option<Map<String, Value>> {
    let mut named = Map::new();
    let mut rest = parts.iter();
    for wanted in pattern.split('/') {
        let part = rest.next()?;
        match wanted.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) => _ = named.insert(name.to_owned(), (*part).into()),
            None if wanted == *part => {}
            None => return None,
        }
    }
    rest.next().is_none().then_some(named)
}
