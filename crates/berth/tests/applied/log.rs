//! What `-v` and `-vv` say on standard error, and what they never say.

use crate::project::{BLOG, Project, SHOP};
use crate::support::ran::{Ran, run};

const TOKEN: &str = "hush-hush-token";

fn apply(project: &Project, flags: &[&str]) -> Ran {
    let args = [&["apply", "-f", ".", "--yes"], flags].concat();
    run(project.command(&args).env("CIVO_TOKEN", TOKEN).env("DIGITALOCEAN_ACCESS_TOKEN", TOKEN)).ok()
}

/// Neither tokens nor what a kubeconfig keeps.
#[track_caller]
fn has_no_secret(run: &Ran) {
    for secret in [TOKEN, "hush", "certificate-authority-data", "client-key", "PRIVATE KEY", "uthorization", "earer "] {
        assert!(!run.stderr.contains(secret), "{secret}: {run}");
    }
}

#[test]
fn once_shows_steps_and_twice_every_request() {
    let quiet = apply(&Project::new(&[("shop.yaml", SHOP)]), &[]);
    assert!(!quiet.stderr.contains("INFO") && !quiet.stderr.contains("DEBUG"), "{quiet}");

    let project = Project::new(&[("shop.yaml", SHOP), ("blog.yaml", BLOG)]);
    let steps = apply(&project, &["-v"]);
    for step in
        ["CivoVpc/shop-net: creating", "CivoKubernetesCluster/shop: pool/gpu: creating", "CivoVpc/shop-net: ready"]
    {
        let told = |line: &str| line.contains("INFO berth_engine") && line.contains(step);
        assert!(steps.stderr.lines().any(told), "{step}: {steps}");
    }
    assert!(!steps.stderr.contains("DEBUG"), "{steps}");
    has_no_secret(&steps);

    let project = Project::new(&[("shop.yaml", SHOP), ("blog.yaml", BLOG)]);
    let requests = apply(&project, &["-vv"]);
    for request in [
        "DEBUG berth_clouds::http: POST /v2/networks: 200 in ",
        "DEBUG berth_clouds::http: POST /v2/vpcs: 201 in ",
        "DEBUG berth_clouds::kube: cluster: GET /readyz: 200 in ",
        "INFO berth_engine",
    ] {
        assert!(requests.stderr.contains(request), "{request}: {requests}");
    }
    has_no_secret(&requests);
}
