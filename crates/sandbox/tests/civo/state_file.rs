use std::io::Write;
use std::path::{Path, PathBuf};

use berth_sandbox::{Config, Sandbox, SandboxError, Speed};
use serde_json::json;

use crate::client::{Cloud, refused, start, text};

fn kept(path: &Path) -> Config {
    Config { speed: Speed::Instant, state: Some(path.to_owned()), ..Config::default() }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("clouds.jsonl");
    (folder, path)
}

async fn restart(cloud: Cloud, path: &Path) -> Cloud {
    cloud.sandbox.stop().await;
    start(kept(path)).await
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let (_folder, path) = folder();
    let cloud = start(kept(&path)).await;
    let network = cloud.network("shop").await;
    let firewall = cloud.firewall("shop", &network).await;
    let body = json!({"name": "shop", "network_id": network, "instance_firewall": firewall, "tags": "a"});
    let cluster = text(&cloud.post("/v2/kubernetes/clusters", body).await.1["id"]);
    let pools = format!("/v2/kubernetes/clusters/{cluster}/pools");
    cloud.post(&pools, json!({"id": "batch", "count": 1, "size": "g4s.kube.small"})).await;
    let doomed = cloud.network("doomed").await;
    cloud.delete(&format!("/v2/networks/{doomed}")).await;
    let mut before = (cloud.show(&cluster).await, cloud.get("/v2/firewalls").await, cloud.admin("ledger").await);

    for _ in 0..2 {
        let cloud = start_again(&path, &mut before, &cluster).await;
        refused(&cloud.get(&format!("/v2/networks/{doomed}")).await, 404, "database_network_not_found");
        let taken = cloud.post("/v2/kubernetes/clusters", json!({"name": "shop"})).await;
        refused(&taken, 409, "database_kubernetes_cluster_duplicate");
        cloud.sandbox.stop().await;
    }
    drop(cloud);
}

/// Only what depends on the port may differ between two runs.
async fn start_again(
    path: &Path,
    before: &mut (serde_json::Value, (u16, serde_json::Value), serde_json::Value),
    cluster: &str,
) -> Cloud {
    // The first sandbox still holds the file: a copy stands in for the machine after a crash.
    let copy = path.with_extension("copy");
    std::fs::copy(path, &copy).expect("copied");
    let cloud = start(kept(&copy)).await;
    let mut after = (cloud.show(cluster).await, cloud.get("/v2/firewalls").await, cloud.admin("ledger").await);
    for shown in [&mut before.0, &mut after.0] {
        shown["kubeconfig"] = json!(null);
        shown["api_endpoint"] = json!(null);
    }
    before.2["now"] = json!(null);
    after.2["now"] = json!(null);
    assert_eq!(*before, after);
    cloud
}

#[tokio::test]
async fn the_file_is_private_and_one_sandbox_at_a_time_uses_it() {
    let (_folder, path) = folder();
    let cloud = start(kept(&path)).await;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let second = Sandbox::start(kept(&path)).await.err().expect("an error");
    assert!(matches!(second, SandboxError::StateInUse { .. }), "{second:?}");
    assert_eq!(second.to_string(), format!("another sandbox is using the state file {}", path.display()));
    let cloud = restart(cloud, &path).await;
    assert_eq!(cloud.get("/v2/networks").await.1.as_array().map(Vec::len), Some(1), "no second default network");
}

#[tokio::test]
async fn a_torn_last_line_is_forgotten_and_any_other_damage_named() {
    let (_folder, path) = folder();
    let cloud = start(kept(&path)).await;
    let network = cloud.network("shop").await;
    cloud.sandbox.stop().await;
    let append = |text: &str| {
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).expect("the file");
        file.write_all(text.as_bytes()).expect("written");
    };
    append(r#"{"type":"civo.network","seq":99,"object":{"id":"half"#);
    let cloud = start(kept(&path)).await;
    assert_eq!(cloud.get(&format!("/v2/networks/{network}")).await.0, 200);
    cloud.sandbox.stop().await;

    append("not json\n");
    let lines = std::fs::read_to_string(&path).expect("text").lines().count();
    let error = Sandbox::start(kept(&path)).await.err().expect("an error");
    assert!(error.to_string().contains(&format!("line {lines}: ")), "{error}");
}

#[tokio::test]
async fn the_log_grows_by_changes_and_is_short_after_a_restart() {
    let (_folder, path) = folder();
    let lines = || std::fs::read_to_string(&path).expect("text").lines().count();
    let cloud = start(kept(&path)).await;
    let fresh = lines();
    assert!(fresh > 6, "a header and the default networks: {fresh}");
    let network = cloud.network("shop").await;
    for n in 0..10 {
        cloud.put(&format!("/v2/networks/{network}"), json!({"label": format!("shop{n}")})).await;
        cloud.get("/v2/networks").await;
    }
    assert_eq!(lines(), fresh + 11, "one line for each change, none for a read");
    let cloud = restart(cloud, &path).await;
    assert_eq!(lines(), fresh + 1);
    assert_eq!(cloud.admin("ledger").await["totals"]["civo.network"], json!({"created": 7, "deleted": 0, "live": 7}));
}

#[tokio::test]
async fn time_goes_on_while_the_sandbox_is_down() {
    let (_folder, path) = folder();
    let slow = Config { speed: Speed::Times(100.0), state: Some(path.clone()), ..Config::default() };
    let cloud = start(slow.clone()).await;
    let id = cloud.cluster("shop").await;
    assert_eq!(cloud.show(&id).await["status"], "BUILDING");
    cloud.sandbox.stop().await;
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    let cloud = start(slow).await;
    assert_eq!(cloud.show(&id).await["status"], "ACTIVE", "150 simulated seconds have passed");
}
