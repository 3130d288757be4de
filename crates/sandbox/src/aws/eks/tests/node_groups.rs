//! Node groups: what they need, how they change, what they leave behind.

use hyper::Method;
use serde_json::{Value, json};

use super::client::Eks;

const GROUPS: &str = "/clusters/shop/node-groups";
const POOL: &str = "/clusters/shop/node-groups/pool";

async fn nodes(eks: &Eks, cluster: &Value) -> Vec<Value> {
    let token = eks.token("shop", ("AKIA", "AKIA"), None);
    let (status, list) = eks.kube(cluster, &token, Method::GET, "/api/v1/nodes", Value::Null).await;
    assert_eq!(status, 200, "{list}");
    list["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn nodes_follow_their_group() {
    let eks = Eks::instant().await;
    let cluster = eks.cluster("shop").await;
    let taint = json!({"key": "only", "value": "web", "effect": "NO_SCHEDULE"});
    let mut input = eks.group_input("pool");
    input["taints"] = json!([taint]);
    eks.post(GROUPS, input).await;
    let group = eks.get(POOL).await["nodegroup"].clone();
    for (pointer, expected) in [
        ("/status", json!("ACTIVE")),
        ("/version", json!("1.32")),
        ("/capacityType", json!("ON_DEMAND")),
        ("/amiType", json!("AL2023_x86_64_STANDARD")),
        ("/instanceTypes", json!(["t3.medium"])),
        ("/diskSize", json!(20)),
        ("/updateConfig/maxUnavailable", json!(1)),
        ("/taints/0", taint.clone()),
        ("/health/issues", json!([])),
    ] {
        assert_eq!(group.pointer(pointer), Some(&expected), "{pointer}: {group}");
    }
    assert!(group["remoteAccess"].is_null());
    let found = nodes(&eks, &cluster).await;
    assert_eq!(found.len(), 2);
    for node in &found {
        let (name, labels) = (node["metadata"]["name"].as_str().unwrap(), &node["metadata"]["labels"]);
        assert!(name.starts_with("ip-10-0-") && name.ends_with(".eu-central-1.compute.internal"), "{name}");
        assert_eq!((&labels["tier"], &labels["eks.amazonaws.com/nodegroup"]), (&json!("web"), &json!("pool")));
        assert_eq!(node["spec"]["taints"][0], json!({"key": "only", "value": "web", "effect": "NoSchedule"}));
    }
    let instances = eks.form("ec2", "DescribeInstances", "").await;
    assert_eq!(instances.matches("<value>pool</value>").count(), 2, "tagged with their group: {instances}");

    eks.post(
        &format!("{POOL}/update-config"),
        json!({"scalingConfig": {"desiredSize": 4}, "labels": {"removeLabels": ["tier"]},
        "taints": {"removeTaints": [taint]}}),
    )
    .await;
    let found = nodes(&eks, &cluster).await;
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|node| node["metadata"]["labels"]["tier"].is_null()), "{found:?}");
    eks.post(&format!("{POOL}/update-config"), json!({"scalingConfig": {"desiredSize": 1}})).await;
    assert_eq!(nodes(&eks, &cluster).await.len(), 1);
    eks.post("/clusters/shop/updates", json!({"version": "1.33"})).await;
    eks.post(&format!("{POOL}/update-version"), json!({"version": "1.33"})).await;
    assert_eq!(eks.get(POOL).await["nodegroup"]["version"], "1.33");
    assert_eq!(nodes(&eks, &cluster).await.len(), 1);

    eks.refused(
        Method::DELETE,
        "/clusters/shop",
        Value::Null,
        ("ResourceInUseException", "Cluster has nodegroups attached"),
    )
    .await;
    eks.ok(Method::DELETE, POOL, Value::Null).await;
    eks.refused(Method::GET, POOL, Value::Null, ("ResourceNotFoundException", "No node group found for name: pool."))
        .await;
    assert!(nodes(&eks, &cluster).await.is_empty());
    eks.ok(Method::DELETE, "/clusters/shop", Value::Null).await;
}

#[tokio::test]
async fn what_is_wrong_with_a_group_is_said_as_aws_says_it() {
    let eks = Eks::instant().await;
    eks.cluster("shop").await;
    eks.post(GROUPS, eks.group_input("pool")).await;
    let invalid = "InvalidParameterException";
    for (member, value, expected) in [
        ("nodegroupName", json!("pool"), ("ResourceInUseException", "NodeGroup already exists with name pool")),
        ("nodegroupName", json!(""), (invalid, "name")),
        ("nodeRole", json!(eks.role_arn("none")), (invalid, "cannot be found")),
        ("nodeRole", json!(eks.role_arn("cluster")), (invalid, "[ec2.amazonaws.com] were not found in the trust")),
        ("subnets", json!(["subnet-0none"]), (invalid, "does not exist")),
        ("instanceTypes", json!(["m5.huge"]), (invalid, "do not exist: [m5.huge]")),
        ("instanceTypes", json!(["t4g.medium"]), (invalid, "is not a valid instance type for requested amiType")),
        (
            "scalingConfig",
            json!({"minSize": 3, "maxSize": 5, "desiredSize": 2}),
            (invalid, "Minimum capacity 3 can't be greater than desired size 2"),
        ),
        (
            "scalingConfig",
            json!({"minSize": 0, "maxSize": 1, "desiredSize": 2}),
            (invalid, "can't be greater than max size 1"),
        ),
        ("version", json!("1.34"), (invalid, "Nodegroup Kubernetes version should be equal")),
        ("releaseVersion", json!("1.31.0-20250101"), (invalid, "release version")),
        ("labels", json!({"kubernetes.io/x": "y"}), (invalid, "reserved prefixes")),
        ("taints", json!([{"key": "x", "effect": "NoSchedule"}]), (invalid, "taint")),
        ("launchTemplate", json!({"id": "lt-00000000000000000"}), (invalid, "could not be found")),
        ("launchTemplate", json!({"id": "lt-1", "name": "x"}), (invalid, "not both")),
    ] {
        let mut input = eks.group_input("new");
        input[member] = value;
        eks.refused(Method::POST, GROUPS, input, expected).await;
    }
}

#[tokio::test]
async fn launch_templates_stuck_groups_and_missing_capacity() {
    let eks = Eks::failing(&[
        "POST /eks/CreateNodegroup no-capacity=eu-central-1 nth=2",
        "POST /eks/CreateNodegroup stuck nth=3",
    ])
    .await;
    eks.cluster("shop").await;
    let made = eks
        .form("ec2", "CreateLaunchTemplate", "&LaunchTemplateName=pool&LaunchTemplateData.InstanceType=m5.large")
        .await;
    let id = super::client::element(&made, "launchTemplateId");
    let mut input = eks.group_input("pool");
    input["launchTemplate"] = json!({"name": "pool", "version": "1"});
    eks.post(GROUPS, input).await;
    let group = eks.get(POOL).await["nodegroup"].clone();
    assert_eq!(group["launchTemplate"], json!({"id": id, "name": "pool", "version": "1"}));
    assert!(group["diskSize"].is_null() && group["instanceTypes"].is_null(), "{group}");
    eks.post(GROUPS, eks.group_input("full")).await;
    let full = eks.get(&format!("{GROUPS}/full")).await["nodegroup"].clone();
    assert_eq!(
        (&full["status"], &full["health"]["issues"][0]["code"]),
        (&json!("CREATE_FAILED"), &json!("AsgInstanceLaunchFailures"))
    );
    eks.post(GROUPS, eks.group_input("stuck")).await;
    assert_eq!(eks.get(&format!("{GROUPS}/stuck")).await["nodegroup"]["status"], "CREATING");
    for name in ["pool", "full", "stuck"] {
        eks.ok(Method::DELETE, &format!("{GROUPS}/{name}"), Value::Null).await;
    }
    eks.ok(Method::DELETE, "/clusters/shop", Value::Null).await;
}
