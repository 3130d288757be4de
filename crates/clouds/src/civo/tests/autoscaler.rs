//! The autoscaler that Berth installs into a cluster.

use super::kube::open;
use super::lower::{lowered, manifest};
use super::world::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_engine::diff;
use serde_json::{Value, json};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/kube-system/deployments/cluster-autoscaler";

fn autoscaler(kind: &str, name: &str, spec: &str, cluster: &str, pool: Option<&str>) -> berth_engine::unit::Unit {
    let units = lowered(&manifest(kind, name, spec), &[("cluster_id", cluster)]).unwrap().units;
    let mut unit = units.into_iter().find(|unit| unit.unit_type == "civo.autoscaler").unwrap();
    unit.props = fill(&unit.props, &|_, output| match output {
        "node_pool_id" => pool.map(|pool| json!(pool)),
        _ => Some(json!(cluster)),
    });
    unit
}

fn arguments(deployment: &Value) -> Vec<String> {
    let command = deployment.pointer("/spec/template/spec/containers/0/command").and_then(Value::as_array).unwrap();
    command.iter().filter_map(Value::as_str).filter(|a| a.starts_with("--nodes=")).map(str::to_owned).collect()
}

/// A server keeps `data`; the sandbox may show what was written.
fn api_key(secret: &Value) -> Vec<u8> {
    match secret.pointer("/data/api-key").and_then(Value::as_str) {
        Some(encoded) => STANDARD.decode(encoded).unwrap(),
        None => secret.pointer("/stringData/api-key").and_then(Value::as_str).unwrap().as_bytes().to_vec(),
    }
}

#[tokio::test]
async fn owners_share_one_autoscaler() {
    let world = World::new().await;
    let (_, network) = world.network().await;
    let (cluster_unit, cluster) = world.cluster(&network).await;
    let kube = open(&world, &cluster_unit, &cluster).await;
    let spec = format!(
        "clusterName: shop-k8s\nregion: fra1\nkubernetesVersion: 1.29.0\nnetwork: {{value: {network}}}\n\
         defaultNodePool: {{size: g4s.kube.small, nodeCount: 2}}\nautoscaler: {{enabled: true}}\n"
    );
    let pool = "nodePoolName: batch\ncluster: {valueFrom: {name: shop}}\nsize: g4s.kube.medium\nnodeCount: 2\nautoScale: true\nminNodes: 1\nmaxNodes: 5\n";
    let mut idle = autoscaler("CivoKubernetesCluster", "shop", &spec, &cluster, None);
    let mut first = autoscaler("CivoKubernetesNodePool", "one", pool, &cluster, Some("one-1"));
    let mut second = autoscaler("CivoKubernetesNodePool", "two", pool, &cluster, Some("two-2"));
    for unit in [&mut first, &mut second, &mut idle] {
        unit.props.insert("region".into(), json!("fra1"));
    }

    let idle_id = world.make(&mut idle, "a").await;
    let deployment = kube.get(DEPLOYMENT).await.unwrap().unwrap();
    assert_eq!(deployment["spec"]["replicas"], 0, "without bounds the autoscaler would not start");

    // Both write at the same moment: neither's bounds may be lost.
    let (one, two) = tokio::join!(world.create(&mut first, "b"), world.create(&mut second, "c"));
    let (one, two) = (one.unwrap(), two.unwrap());
    let deployment = kube.get(DEPLOYMENT).await.unwrap().unwrap();
    assert_eq!(arguments(&deployment), ["--nodes=1:5:one-1", "--nodes=1:5:two-2"]);
    assert_eq!(deployment["spec"]["replicas"], 1);
    for (unit, id) in [(&first, &one), (&second, &two), (&idle, &idle_id)] {
        let seen = world.look(unit, id).await.unwrap();
        assert_eq!(diff(world.handler("civo.autoscaler"), &unit.props, &seen), vec![]);
    }
    let secret = kube.get("/api/v1/namespaces/kube-system/secrets/berth-cluster-autoscaler").await.unwrap().unwrap();
    assert_eq!(api_key(&secret), b"any-token");
    assert!(!json!(first.props).to_string().contains("any-token"));

    // A token that was replaced comes along with the next write, and with another pod that reads it.
    let digest = |deployment: &Value| deployment["spec"]["template"]["metadata"]["annotations"].clone();
    let before = digest(&deployment);
    let mut credentials = crate::Credentials::new("civo", "newer-token");
    credentials.api_url = Some(world.sandbox.url(berth_sandbox::civo::NAME));
    let rotated = crate::connect(&credentials).unwrap();
    let handler = rotated.handler("civo.autoscaler").unwrap();
    let seen = world.look(&first, &one).await.unwrap();
    first.props.insert("pools".into(), json!([{"pool": "one-1", "min": 2, "max": 6}]));
    handler.update(&seen, &first.props, &["pools"]).await.unwrap();
    let secret = kube.get("/api/v1/namespaces/kube-system/secrets/berth-cluster-autoscaler").await.unwrap().unwrap();
    assert_eq!(api_key(&secret), b"newer-token");
    assert_ne!(digest(&kube.get(DEPLOYMENT).await.unwrap().unwrap()), before);

    first.props.insert("pools".into(), json!([{"pool": "one-1", "min": 2, "max": 7}]));
    world.settle(&first, &one).await;
    assert_eq!(arguments(&kube.get(DEPLOYMENT).await.unwrap().unwrap()), ["--nodes=1:5:two-2", "--nodes=2:7:one-1"]);

    // Changed by hand: seen as drift, and put back.
    let mut by_hand = kube.get(DEPLOYMENT).await.unwrap().unwrap();
    by_hand["spec"]["template"]["spec"]["containers"][0]["command"] =
        json!(["./cluster-autoscaler", "--nodes=1:99:two-2"]);
    kube.replace(DEPLOYMENT, &by_hand).await.unwrap();
    world.settle(&second, &two).await;
    assert_eq!(arguments(&kube.get(DEPLOYMENT).await.unwrap().unwrap()), ["--nodes=1:5:two-2", "--nodes=2:7:one-1"]);

    world.remove(&second, &two, false).await;
    assert_eq!(arguments(&kube.get(DEPLOYMENT).await.unwrap().unwrap()), ["--nodes=2:7:one-1"]);
    world.remove(&first, &one, false).await;
    world.remove(&idle, &idle_id, false).await;
    assert!(kube.get(DEPLOYMENT).await.unwrap().is_none());
    assert!(kube.get("/api/v1/namespaces/kube-system/secrets/berth-cluster-autoscaler").await.unwrap().is_none());
}

#[tokio::test]
async fn an_autoscaler_of_others_is_left_alone() {
    let world = World::new().await;
    let (_, network) = world.network().await;
    let (cluster_unit, cluster) = world.cluster(&network).await;
    let kube = open(&world, &cluster_unit, &cluster).await;
    let labels = json!({"app": "cluster-autoscaler"});
    let foreign = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "cluster-autoscaler", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [
            {"name": "cluster-autoscaler", "image": "other", "command": ["./cluster-autoscaler", "--nodes=1:10:workers"]}]}}},
    });
    kube.create("/apis/apps/v1/namespaces/kube-system/deployments", &foreign).await.unwrap();
    let pool = "nodePoolName: batch\ncluster: {valueFrom: {name: shop}}\nregion: fra1\nsize: g4s.kube.medium\nnodeCount: 2\nautoScale: true\nminNodes: 1\nmaxNodes: 5\n";
    let mut unit = autoscaler("CivoKubernetesNodePool", "one", pool, &cluster, Some("one-1"));
    let trouble = world.create(&mut unit, "b").await.unwrap_err();
    assert_eq!(trouble.to_string(), "the cluster already has a cluster autoscaler that Berth does not manage");
    assert_eq!(arguments(&kube.get(DEPLOYMENT).await.unwrap().unwrap()), ["--nodes=1:10:workers"]);
}
