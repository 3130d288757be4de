//! What Berth will not do, and how it says so: taken names, plans that the world overtook, downgrades, protected resources,
//! references in the way, quotas.

use crate::declared::manifests;
use crate::harness::Project;
use crate::kill_cases::{CIVO, Civo, DIGITALOCEAN, civo_pool, net};
use crate::support::cloud::Cloud;
use berth_sandbox::{Config, Quota, Speed};
use serde_json::json;

fn shop() -> String {
    [net("net-a", "fra1", ""), CIVO.text()].join("---\n")
}

fn applied(text: &str) -> (Project, Cloud) {
    let (project, cloud) = (Project::with(&[("shop.yaml", text)]), Cloud::instant());
    project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes"]).ok();
    (project, cloud)
}

/// The words of the command that a message says to type.
fn advised(stderr: &str, start: &str) -> Vec<String> {
    let line = stderr.lines().find_map(|line| line.find(start).map(|at| line[at..].to_owned()));
    let line = line.unwrap_or_else(|| panic!("no `{start}` in\n{stderr}"));
    line.split_whitespace().skip(1).map(str::to_owned).collect()
}

fn made_outside(cloud: &Cloud) -> String {
    let made = cloud.call(
        berth_sandbox::civo::NAME,
        "POST",
        "/v2/networks",
        Some(json!({"label": "net-a", "region": "FRA1"})),
    );
    let network = made["id"].as_str().expect("an id").to_owned();
    let body = json!({"name": "shop-k8s", "region": "FRA1", "kubernetes_version": "1.30.5-k3s1", "network_id": network,
                      "num_target_nodes": 2, "target_nodes_size": "g4s.kube.medium", "cni_plugin": "flannel"});
    cloud.call(berth_sandbox::civo::NAME, "POST", "/v2/kubernetes/clusters", Some(body));
    network
}

#[test]
fn a_taken_name_says_how_to_import_and_that_works() {
    let (project, cloud) = (Project::with(&[("shop.yaml", &shop())]), Cloud::instant());
    made_outside(&cloud);
    let before = cloud.shape();
    // One after the other: what is in the way of a plan is said, and what is said works.
    let refused = project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes"]).exits(1);
    let refused = refused.says_all(&["already has a network named `net-a`", "not managed by Berth", "to make another"]);
    let words = advised(&refused.stderr, "berth import CivoVpc/net");
    project.berth(&cloud, &words.iter().map(String::as_str).collect::<Vec<_>>()).ok().says("the plan is empty");
    let refused = project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes"]).exits(1);
    let refused = refused.says_all(&["already has a cluster named `shop-k8s`", "in fra1"]);
    let words = advised(&refused.stderr, "berth import CivoKubernetesCluster/shop");
    project.berth(&cloud, &words.iter().map(String::as_str).collect::<Vec<_>>()).ok().says("the plan is empty");
    assert_eq!(cloud.shape(), before, "import changed the cloud");
    project.berth(&cloud, &["plan", "-f", "shop.yaml", "--detailed-exitcode"]).ok();
    for file in ["civovpc-net.yaml", "civokubernetescluster-shop.yaml"] {
        project.berth(&cloud, &["plan", "-f", file, "--detailed-exitcode"]).ok();
    }
    cloud.holds(&manifests(&shop()));
}

#[test]
fn a_whole_account_is_imported() {
    let (project, cloud) = (Project::new(), Cloud::instant());
    made_outside(&cloud);
    let body = json!({"name": "edge", "network_id": cloud.id("civo.network", "net-a"), "region": "FRA1", "create_rules": false,
                      "rules": [{"protocol": "tcp", "start_port": "443", "end_port": "443", "cidr": ["0.0.0.0/0"], "direction": "ingress", "action": "allow"}]});
    cloud.call(berth_sandbox::civo::NAME, "POST", "/v2/firewalls", Some(body));
    let cluster = cloud.id("civo.cluster", "shop-k8s");
    let body = json!({"id": "extra", "count": 1, "size": "g4s.kube.large", "region": "FRA1"});
    cloud.call(berth_sandbox::civo::NAME, "POST", &format!("/v2/kubernetes/clusters/{cluster}/pools"), Some(body));
    let before = cloud.shape();
    project.berth(&cloud, &["import", "--all", "--provider", "civo"]).ok();
    project.berth(&cloud, &["plan", "-f", "imported", "--detailed-exitcode"]).ok();
    project.berth(&cloud, &["drift"]).ok();
    assert_eq!(cloud.shape(), before, "import changed the cloud");
    project.berth(&cloud, &["import", "--all", "--provider", "civo", "--out", "again"]).ok().says("nothing to import");

    let vpc = cloud.call(
        berth_sandbox::digitalocean::NAME,
        "POST",
        "/v2/vpcs",
        Some(json!({"name": "outside", "region": "fra1"})),
    );
    let body = json!({"name": "blog-k8s", "region": "fra1", "version": "1.32.5-do.0", "vpc_uuid": vpc["vpc"]["id"],
                      "node_pools": [{"name": "blog-k8s-default", "size": "s-2vcpu-4gb", "count": 2},
                                     {"name": "more", "size": "s-4vcpu-8gb", "count": 1}]});
    cloud.call(berth_sandbox::digitalocean::NAME, "POST", "/v2/kubernetes/clusters", Some(body));
    let before = cloud.shape();
    project.berth(&cloud, &["import", "--all", "--provider", "digitalocean", "--out", "do"]).ok();
    project.berth(&cloud, &["plan", "-f", "do", "--detailed-exitcode"]).ok();
    assert_eq!(cloud.shape(), before, "import changed the cloud");
}

#[test]
fn a_saved_plan_is_carried_out_or_refused() {
    let (project, cloud) = applied(&shop());
    project.write("shop.yaml", &[net("net-a", "fra1", ""), Civo { count: 4, ..CIVO }.text()].join("---\n"));
    project.berth(&cloud, &["plan", "-f", "shop.yaml", "--out", "moved.plan"]).ok();
    let id = cloud.id("civo.cluster", "shop-k8s");
    let path = format!("/v2/kubernetes/clusters/{id}?region=FRA1");
    cloud.call(berth_sandbox::civo::NAME, "PUT", &path, Some(json!({"tags": "outside"})));
    let before = cloud.shape();
    project.berth(&cloud, &["apply", "moved.plan"]).exits(1).says_all(&[
        "the world moved since this plan was made",
        "CivoKubernetesCluster/shop differs",
        "nothing was changed",
        "plan again",
    ]);
    assert_eq!(cloud.shape(), before);
    project.berth(&cloud, &["plan", "-f", "shop.yaml", "--out", "good.plan"]).ok();
    project.berth(&cloud, &["apply", "good.plan"]).ok();
    cloud.holds(&manifests(&std::fs::read_to_string(project.work().join("shop.yaml")).expect("a manifest")));
    project.berth(&cloud, &["plan", "-f", "shop.yaml", "--detailed-exitcode"]).ok();
    // Carried out once, it promises nothing more.
    project.berth(&cloud, &["apply", "good.plan"]).exits(1).says("the world moved");
}

#[test]
fn versions_go_up_only_and_only_to_what_is_offered() {
    let (project, cloud) = applied(&shop());
    let before = cloud.shape();
    let with = |version| [net("net-a", "fra1", ""), Civo { version, ..CIVO }.text()].join("---\n");
    for (version, texts) in
        [("1.29.8-k3s1", &["1.30.5", "cannot go back", "1.29.8"][..]), ("1.31.3-k3s1", &["1.31.3", "1.31.2-k3s1"])]
    {
        project.write("shop.yaml", &with(version));
        for command in ["plan", "apply"] {
            project.berth(&cloud, &[command, "-f", "shop.yaml"]).exits(1).says_all(texts);
        }
    }
    let vpc = "apiVersion: digitalocean.berth.dev/v1\nkind: DigitalOceanVpc\nmetadata: {name: do-net}\nspec: {region: fra1}\n";
    let blog = crate::kill_cases::DigitalOcean { version: "1.33.2-do.0", ..DIGITALOCEAN }.text();
    project.write("blog.yaml", &[vpc.to_owned(), blog].join("---\n"));
    project.berth(&cloud, &["apply", "-f", "blog.yaml", "--yes"]).exits(1).says_all(&["1.33.2-do.0", "1.33.1-do."]);
    assert_eq!(cloud.shape(), before, "something was changed");
}

#[test]
fn what_is_protected_stays() {
    let protected = shop().replace("{name: shop}", "{name: shop, annotations: {berth.dev/protect: \"true\"}}");
    let (project, cloud) = applied(&protected);
    let before = cloud.shape();
    let delete = ["delete", "CivoKubernetesCluster/shop", "--yes", "--allow-delete"];
    project.berth(&cloud, &delete).exits(1).says_all(&["CivoKubernetesCluster/shop is protected", "berth.dev/protect"]);
    project.write("shop.yaml", &format!("{protected}  cni: cilium\n"));
    let replace = ["apply", "-f", "shop.yaml", "--yes", "--allow-replace"];
    project.berth(&cloud, &replace).exits(1).says("is protected");
    // Taking the protection off and replacing in one go is no way around it.
    project.write("shop.yaml", &format!("{}  cni: cilium\n", shop()));
    project.berth(&cloud, &replace).exits(1).says("is protected");
    assert_eq!(cloud.shape(), before);
    project.write("shop.yaml", &shop());
    project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes"]).ok();
    project.berth(&cloud, &delete).ok();
    assert!(cloud.objects("civo.cluster").is_empty());
}

#[test]
fn nothing_is_replaced_or_lost_by_yes_alone() {
    let (project, cloud) = applied(&shop());
    let before = cloud.shape();
    project.write("shop.yaml", &format!("{}  cni: cilium\n", shop()));
    project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes"]).exits(1).says_all(&["cni", "--allow-replace"]);
    project.berth(&cloud, &["apply", "-f", "shop.yaml"]).exits(1);
    project.berth(&cloud, &["delete", "CivoKubernetesCluster/shop", "--yes"]).exits(1).says("would be deleted");
    assert_eq!(cloud.shape(), before);
}

#[test]
fn what_others_refer_to_is_not_deleted_under_them() {
    let all = [shop(), civo_pool("g4s.kube.large", 1, "")].join("---\n");
    let (project, cloud) = applied(&all);
    let before = cloud.shape();
    let delete = ["delete", "CivoVpc/net", "--yes", "--allow-delete"];
    project.berth(&cloud, &delete).exits(1).says_all(&["CivoKubernetesCluster/shop refers to it", "--cascade"]);
    assert_eq!(cloud.shape(), before);
    let cascade = ["delete", "CivoVpc/net", "--yes", "--allow-delete", "--cascade"];
    project.berth(&cloud, &cascade).ok();
    cloud.is_empty();
    project.berth(&cloud, &["delete", "CivoVpc/never-was", "--yes"]).exits(1).says("is not applied");
}

#[test]
fn quotas_and_full_regions_are_said_in_words() {
    let quota = Quota { clusters: 0, ..Quota::default() };
    let cloud = Cloud::start(Config { speed: Speed::Instant, quota, ..Config::default() });
    let project = Project::with(&[("shop.yaml", &shop())]);
    let refused = project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes"]).exits(1);
    refused.says_all(&["CivoKubernetesCluster/shop", "quota", "= help:"]);
    cloud.faults(&["no-capacity=fra1"]);
    let cloud = Cloud::instant();
    cloud.faults(&["no-capacity=fra1"]);
    let project = Project::with(&[("shop.yaml", &shop())]);
    let refused = project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes"]).exits(1);
    refused.says_all(&["CivoKubernetesCluster/shop", "capacity", "= help:"]);
    cloud.faults(&[]);
    project.berth(&cloud, &["apply", "-f", "shop.yaml", "--yes"]).ok();
    cloud.holds(&manifests(&shop()));
}
