//! What clients see when the programs of a control plane do not start. That they do, and serve, is tested by tools/kube-real with the
//! real ones.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{MAX_REAL_CLUSTERS, settled, target};
use crate::{Config, Sandbox, SandboxError, Speed};

fn fake_programs(folder: &Path, names: &[&str]) {
    for name in names {
        let file = folder.join(name);
        std::fs::write(&file, "#!/bin/sh\necho no space left >&2\nexit 3\n").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    }
}

async fn cluster(sandbox: &Sandbox, name: &str) -> String {
    let url = format!("{}/v2/kubernetes/clusters", sandbox.url(crate::digitalocean::NAME));
    let body = json!({"name": name, "region": "fra1", "version": "1.33.1-do.0",
                      "node_pools": [{"name": "main", "size": "s-2vcpu-4gb", "count": 1}]});
    let made: Value = reqwest::Client::new().post(url).json(&body).send().await.unwrap().json().await.unwrap();
    made["kubernetes_cluster"]["id"].as_str().unwrap().to_owned()
}

async fn get(sandbox: &Sandbox, id: &str, token: &str) -> (u16, Value) {
    let ca = reqwest::Certificate::from_pem(sandbox.kube.ca_pem().as_bytes()).unwrap();
    let client = reqwest::Client::builder().add_root_certificate(ca).build().unwrap();
    let url = format!("{}/api/v1/nodes", crate::kube::endpoint(&sandbox.kube, id));
    let answer = client.get(url).bearer_auth(token).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn a_folder_without_the_programs_keeps_the_sandbox_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    fake_programs(folder.path(), &["etcd", "kwok"]);
    let config = Config { kube_bin: Some(folder.path().to_owned()), ..Config::default() };
    match Sandbox::start(config).await {
        Err(SandboxError::KubePrograms { missing, .. }) => {
            assert_eq!(missing, "kube-apiserver, kube-controller-manager, kube-scheduler");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_do_not_start_are_told_to_the_caller_and_one_cluster_too_many_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    fake_programs(&programs, &["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]);
    let config = Config {
        speed: Speed::Instant,
        kube_bin: Some(programs),
        state: Some(folder.path().join("clouds.jsonl")),
        ..Config::default()
    };
    let sandbox = Sandbox::start(config).await.unwrap();
    let mut last = String::new();
    for n in 0..=MAX_REAL_CLUSTERS {
        last = cluster(&sandbox, &format!("c{n}")).await;
        let (status, body) = get(&sandbox, &last, &sandbox.kube.token(&last)).await;
        let message = body["message"].as_str().unwrap();
        if n < MAX_REAL_CLUSTERS {
            assert_eq!(status, 503, "{message}");
            assert!(message.contains("ended (exit status: 3): no space left"), "{message}");
        } else {
            assert_eq!((status, body["reason"].as_str()), (403, Some("Forbidden")), "{message}");
            assert!(message.starts_with("4 clusters of this sandbox have a real control plane"), "{message}");
        }
    }
    assert_eq!(get(&sandbox, &last, "").await.0, 401, "nobody is passed on to an API server");
    sandbox.stop().await;
}

#[test]
fn the_prefix_of_the_cluster_is_taken_off_as_it_was_sent() {
    let target = |uri: &str| target(&hyper::Request::get(uri).body(()).unwrap().into_parts().0);
    assert_eq!(
        target("/clusters/c1/api/v1/pods?watch=1&labelSelector=a%3Db"),
        "/api/v1/pods?watch=1&labelSelector=a%3Db"
    );
    assert_eq!(target("/clusters/c1/api/v1/namespaces/a%2Fb"), "/api/v1/namespaces/a%2Fb");
    assert_eq!(target("/clusters/c1"), "/");
    assert_eq!(target("/readyz"), "/readyz");
}

#[test]
fn an_object_settles_after_its_moment() {
    let made = |seconds: i64| {
        let at = jiff::Timestamp::now().as_second() - seconds;
        json!({"metadata": {"creationTimestamp": jiff::Timestamp::from_second(at).unwrap().to_string()}})
    };
    assert!(!settled(&made(0), Duration::from_secs(30)));
    assert!(settled(&made(31), Duration::from_secs(30)));
    assert!(settled(&made(0), Duration::ZERO));
}
