//! What is done inside a cluster: draining.

use super::world::*;
use crate::Credentials;
use crate::digitalocean::client::Client;
use crate::digitalocean::kube_api;
use secrecy::ExposeSecret;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn draining_moves_pods_off_a_pool_and_only_off_this_one() {
    let world = World::new().await;
    world.make(NETWORK, &network()).await;
    let (version, _) = versions(&world).await;
    let (id, _) = world.make(CLUSTER, &cluster(json!({"kubernetesVersion": version}))).await;
    let (batch, _) = world.make(POOL, &pool(json!({}))).await;
    let mut credentials = Credentials::new("digitalocean", "any-token");
    credentials.api_url = Some(world.sandbox.url(berth_sandbox::digitalocean::NAME));
    let client = Client::new(&credentials).unwrap();
    let kubeconfig = client.api.kubeconfig(&id).await.unwrap();
    let kube = client.kubes.open(kubeconfig.expose_secret()).unwrap();

    let nodes = kube.nodes(None).await.unwrap();
    assert_eq!(nodes.len(), 3);
    for (number, node) in nodes.iter().enumerate() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("web-{number}"), "namespace": "default"},
            "spec": {"nodeName": node.name, "containers": [{"name": "web", "image": "web"}]}
        });
        kube.create("/api/v1/namespaces/default/pods", &pod).await.unwrap();
    }
    kube_api::drain(&client, &id, &batch).await.unwrap();
    let after = kube.nodes(None).await.unwrap();
    let cordoned: Vec<&str> = after.iter().filter(|n| n.unschedulable).map(|n| n.name.as_str()).collect();
    assert_eq!(cordoned.len(), 1);
    assert!(cordoned[0].starts_with("batch-"));
    let pods = kube.list("/api/v1/namespaces/default/pods", &[]).await.unwrap();
    assert_eq!(pods.len(), 2, "only the pod on the drained pool is gone");
    world.sandbox.stop().await;
}
