//! Clusters, their updates, add-ons and tags.

use hyper::Method;
use serde_json::{Value, json};

use super::client::{Eks, encoded};
use crate::{Config, Speed};

#[tokio::test]
async fn a_cluster_shows_what_its_next_plan_needs() {
    let eks = Eks::instant().await;
    let cluster = eks.cluster("shop").await;
    for (pointer, expected) in [
        ("/status", json!("ACTIVE")),
        ("/version", json!("1.32")),
        ("/accessConfig/authenticationMode", json!("API")),
        ("/upgradePolicy/supportType", json!("EXTENDED")),
        ("/kubernetesNetworkConfig/serviceIpv4Cidr", json!("172.20.0.0/16")),
        ("/kubernetesNetworkConfig/elasticLoadBalancing/enabled", json!(false)),
        ("/resourcesVpcConfig/vpcId", json!(eks.vpc)),
        ("/resourcesVpcConfig/subnetIds", json!(eks.subnets)),
        ("/resourcesVpcConfig/endpointPublicAccess", json!(true)),
        ("/resourcesVpcConfig/publicAccessCidrs", json!(["0.0.0.0/0"])),
        ("/logging/clusterLogging/0/enabled", json!(false)),
    ] {
        assert_eq!(cluster.pointer(pointer), Some(&expected), "{pointer}: {cluster}");
    }
    assert!(
        cluster["createdAt"].is_f64() && cluster["computeConfig"].is_null() && cluster["encryptionConfig"].is_null()
    );
    let group = cluster["resourcesVpcConfig"]["clusterSecurityGroupId"].as_str().unwrap();
    let groups = eks.form("ec2", "DescribeSecurityGroups", &format!("&GroupId.1={group}")).await;
    assert!(groups.contains("<groupName>eks-cluster-sg-shop-"), "{groups}");
    let interfaces = eks.form("ec2", "DescribeNetworkInterfaces", "").await;
    assert_eq!(interfaces.matches("<description>Amazon EKS shop</description>").count(), 2, "{interfaces}");
    assert_eq!(eks.get("/clusters").await["clusters"], json!(["shop"]));
    assert_eq!(
        eks.post("/clusters", with(eks.cluster_input("two"), "clientRequestToken", json!("t"))).await,
        eks.post("/clusters", with(eks.cluster_input("two"), "clientRequestToken", json!("t"))).await
    );
    eks.ok(Method::DELETE, "/clusters/shop", Value::Null).await;
    eks.refused(
        Method::GET,
        "/clusters/shop",
        Value::Null,
        ("ResourceNotFoundException", "No cluster found for name: shop."),
    )
    .await;
    let left = eks.form("ec2", "DescribeNetworkInterfaces", "").await;
    assert!(!left.contains("Amazon EKS shop"), "{left}");
}

fn with(mut input: Value, member: &str, value: Value) -> Value {
    input[member] = value;
    input
}

#[tokio::test]
async fn what_is_wrong_with_a_cluster_is_said_as_aws_says_it() {
    let eks = Eks::instant().await;
    eks.cluster("shop").await;
    let (invalid, one) = ("InvalidParameterException", json!([eks.subnets[0]]));
    let role = |name: &str| json!(eks.role_arn(name));
    for (member, value, expected) in [
        ("name", json!("-x"), (invalid, "can contain only alphanumeric")),
        ("name", json!("shop"), ("ResourceInUseException", "Cluster already exists with name: shop")),
        ("version", json!("1.12"), (invalid, "unsupported Kubernetes version")),
        ("roleArn", role("none"), (invalid, "does not exist")),
        ("roleArn", role("node"), (invalid, "could not be assumed because the trusted entity is not correct")),
        ("resourcesVpcConfig", json!({"subnetIds": one}), (invalid, "at least two different AZs")),
        ("resourcesVpcConfig", json!({"subnetIds": ["subnet-0none", "subnet-0none2"]}), (invalid, "does not exist")),
        (
            "resourcesVpcConfig",
            json!({"subnetIds": eks.subnets, "endpointPublicAccess": false}),
            (invalid, "cannot be false"),
        ),
        (
            "resourcesVpcConfig",
            json!({"subnetIds": eks.subnets, "securityGroupIds": ["sg-0none"]}),
            (invalid, "does not exist"),
        ),
        ("kubernetesNetworkConfig", json!({"serviceIpv4Cidr": "10.0.0.0/16"}), (invalid, "does not overlap")),
        ("encryptionConfig", json!([{"resources": ["pods"]}]), (invalid, "secrets")),
        ("accessConfig", json!({"authenticationMode": "NONE"}), (invalid, "authenticationMode")),
        ("tags", json!({"aws:x": "y"}), (invalid, "aws: prefixed")),
    ] {
        eks.refused(Method::POST, "/clusters", with(eks.cluster_input("new"), member, value), expected).await;
    }
    let (update, gone) = ("/clusters/shop/updates", ("ResourceNotFoundException", "No cluster found"));
    eks.refused(Method::POST, update, json!({"version": "1.34"}), (invalid, "minor version update from 1.32 to 1.34"))
        .await;
    eks.refused(Method::POST, "/clusters/none/updates", json!({"version": "1.33"}), gone).await;
    eks.refused(Method::GET, "/clusters?maxResults=101", Value::Null, (invalid, "maxResults")).await;
    eks.refused(Method::GET, "/clusters?nextToken=x", Value::Null, (invalid, "token")).await;
    assert_eq!(eks.call(Method::PUT, "/clusters", Value::Null).await.status, 404);
}

#[tokio::test]
async fn states_take_their_time_and_updates_follow_each_other() {
    let eks = Eks::start(Config { speed: Speed::Times(5_000.0), ..Config::default() }).await;
    let made = eks.post("/clusters", eks.cluster_input("shop")).await["cluster"].clone();
    assert_eq!((&made["status"], &made["endpoint"]), (&json!("CREATING"), &Value::Null));
    until(&eks, "/clusters/shop", "/cluster/status", "ACTIVE").await;
    let logging = json!({"logging": {"clusterLogging": [{"types": ["api"], "enabled": true}]}});
    let update = eks.post("/clusters/shop/update-config", logging.clone()).await["update"].clone();
    assert_eq!((&update["status"], &update["type"]), (&json!("InProgress"), &json!("LoggingUpdate")));
    let busy = ("ResourceInUseException", "in progress");
    eks.refused(Method::POST, "/clusters/shop/updates", json!({"version": "1.33"}), busy).await;
    eks.refused(Method::DELETE, "/clusters/shop", Value::Null, busy).await;
    until(&eks, &format!("/clusters/shop/updates/{}", update["id"].as_str().unwrap()), "/update/status", "Successful")
        .await;
    let same = ("InvalidParameterException", "No changes needed for the logging config provided");
    eks.refused(Method::POST, "/clusters/shop/update-config", logging, same).await;
    let update = eks.post("/clusters/shop/updates", json!({"version": "1.33"})).await["update"]["id"].clone();
    assert_eq!(eks.get("/clusters/shop").await["cluster"]["version"], "1.32", "until it is done");
    until(&eks, &format!("/clusters/shop/updates/{}", update.as_str().unwrap()), "/update/status", "Successful").await;
    assert_eq!(eks.get("/clusters/shop").await["cluster"]["version"], "1.33");
    assert_eq!(eks.get("/clusters/shop/updates").await["updateIds"].as_array().unwrap().len(), 2);
}

pub async fn until(eks: &Eks, path: &str, pointer: &str, wanted: &str) {
    for _ in 0..600 {
        if eks.get(path).await.pointer(pointer) == Some(&json!(wanted)) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{path}: {pointer} is not {wanted}: {}", eks.get(path).await);
}

#[tokio::test]
async fn add_ons_have_versions_schemas_and_wait_for_nodes() {
    let eks = Eks::instant().await;
    eks.cluster("shop").await;
    let offers = eks.get("/addons/supported-versions?addonName=coredns&kubernetesVersion=1.32").await;
    let versions = offers["addons"][0]["addonVersions"].as_array().unwrap();
    let (newest, default) = (versions[0]["addonVersion"].clone(), versions[1]["addonVersion"].clone());
    assert_eq!(versions[1]["compatibilities"][0]["defaultVersion"], true);
    let invalid = "InvalidParameterException";
    for (input, expected) in [
        (json!({"addonName": "none"}), (invalid, "Addon specified is not supported")),
        (json!({"addonName": "coredns", "addonVersion": "v9"}), (invalid, "Addon version specified is not supported")),
        (
            json!({"addonName": "coredns", "configurationValues": "{\"replicas\": 2}"}),
            (invalid, "$.replicas: is not defined"),
        ),
        (json!({"addonName": "coredns", "configurationValues": "a: [b"}), (invalid, "not in valid JSON or YAML")),
    ] {
        eks.refused(Method::POST, "/clusters/shop/addons", input, expected).await;
    }
    eks.post("/clusters/shop/addons", json!({"addonName": "coredns", "configurationValues": "replicaCount: 3"})).await;
    let addon = eks.get("/clusters/shop/addons/coredns").await["addon"].clone();
    assert_eq!((&addon["status"], &addon["addonVersion"]), (&json!("DEGRADED"), &default), "no node yet");
    assert_eq!(addon["health"]["issues"][0]["code"], "InsufficientNumberOfReplicas");
    eks.refused(
        Method::POST,
        "/clusters/shop/addons",
        json!({"addonName": "coredns"}),
        ("ResourceInUseException", "already exists"),
    )
    .await;
    eks.post("/clusters/shop/node-groups", eks.group_input("pool")).await;
    assert_eq!(eks.get("/clusters/shop/addons/coredns").await["addon"]["status"], "ACTIVE");
    let update =
        eks.post("/clusters/shop/addons/coredns/update", json!({"addonVersion": newest})).await["update"]["id"].clone();
    let path = format!("/clusters/shop/updates/{}", update.as_str().unwrap());
    assert_eq!(eks.get(&format!("{path}?addonName=coredns")).await["update"]["status"], "Successful");
    eks.refused(Method::GET, &path, Value::Null, ("ResourceNotFoundException", "No update found")).await;
    assert_eq!(eks.get("/clusters/shop/addons/coredns").await["addon"]["addonVersion"], newest);
    eks.ok(Method::DELETE, "/clusters/shop/addons/coredns", Value::Null).await;
    assert_eq!(eks.get("/clusters/shop/addons").await["addons"], json!([]));
}

#[tokio::test]
async fn every_arn_takes_tags() {
    let eks = Eks::instant().await;
    let cluster = eks.cluster("shop").await;
    let group =
        eks.post("/clusters/shop/node-groups", eks.group_input("pool")).await["nodegroup"]["nodegroupArn"].clone();
    let addon = eks.post("/clusters/shop/addons", json!({"addonName": "vpc-cni"})).await["addon"]["addonArn"].clone();
    let entry = json!({"principalArn": eks.role_arn("cluster")});
    let entry = eks.post("/clusters/shop/access-entries", entry).await["accessEntry"]["accessEntryArn"].clone();
    let pod = json!({"namespace": "a", "serviceAccount": "b", "roleArn": eks.role_arn("cluster")});
    let pod = eks.post("/clusters/shop/pod-identity-associations", pod).await["association"]["associationArn"].clone();
    for arn in [&cluster["arn"], &group, &addon, &entry, &pod] {
        let path = format!("/tags/{}", encoded(arn.as_str().unwrap()));
        eks.post(&path, json!({"tags": {"team": "shop", "tier": "web"}})).await;
        eks.ok(Method::DELETE, &format!("{path}?tagKeys=tier&tagKeys=none"), Value::Null).await;
        assert_eq!(eks.get(&path).await["tags"], json!({"team": "shop"}), "{arn}");
    }
    let none = format!("/tags/{}", encoded("arn:aws:eks:eu-central-1:1:cluster/none"));
    eks.refused(Method::GET, &none, Value::Null, ("NotFoundException", "not found")).await;
}
