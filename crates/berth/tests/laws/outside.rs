//! What others do to a cloud behind Berth's back, by the cloud's own API.

use crate::support::cloud::Cloud;
use berth_model::{Manifest, ResourceId};
use serde_json::{Value, json};

type Deed = Box<dyn Fn(&Cloud)>;

/// One change made outside.
pub struct Change {
    pub what: String,
    pub resource: ResourceId,
    pub make: Deed,
    /// What an autoscaler does in its bounds is none.
    pub is_drift: bool,
    /// Whether apply puts it back.
    pub repairs: bool,
    /// For what apply does not put back.
    pub undo: Deed,
}

fn change(manifest: &Manifest, what: &str, make: impl Fn(&Cloud) + 'static) -> Change {
    Change {
        what: format!("{} {what}", manifest.id),
        resource: manifest.id.clone(),
        make: Box::new(make),
        is_drift: true,
        repairs: true,
        undo: Box::new(|_| {}),
    }
}

/// Everything that can be done to these resources from outside. What takes a whole cluster away comes last.
pub fn changes(manifests: &[Manifest]) -> Vec<Change> {
    let mut all: Vec<Change> = manifests.iter().flat_map(|manifest| of_one(manifest, manifests)).collect();
    all.sort_by_key(|change| change.what.ends_with("deleted"));
    all
}

fn of_one(manifest: &Manifest, all: &[Manifest]) -> Vec<Change> {
    let spec = manifest.spec_json();
    let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
    match manifest.id.kind.as_str() {
        "CivoVpc" => {
            let name = text("networkName");
            let region = text("region");
            vec![change(manifest, "renamed", move |cloud| {
                let id = cloud.id("civo.network", &name);
                let body = json!({"label": "renamed-outside", "region": region.to_ascii_uppercase()});
                cloud.call(berth_sandbox::civo::NAME, "PUT", &format!("/v2/networks/{id}"), Some(body));
            })]
        }
        "CivoFirewall" => firewall(manifest, all),
        "CivoKubernetesCluster" => civo_cluster(manifest),
        "CivoKubernetesNodePool" => {
            let cluster = spec["cluster"]["valueFrom"]["name"].as_str().unwrap_or_default();
            let cluster = all.iter().find(|m| m.id.kind == "CivoKubernetesCluster" && m.id.name == cluster);
            let cluster = cluster.expect("the pool's cluster").spec_json();
            civo_pool(manifest, &cluster, &text("nodePoolName"), &spec)
        }
        "DigitalOceanVpc" => {
            let name = manifest.id.name.clone();
            vec![change(manifest, "described anew", move |cloud| {
                let path = format!("/v2/vpcs/{}", cloud.id("digitalocean.vpc", &name));
                let body = json!({"name": name, "description": "changed outside"});
                cloud.call(berth_sandbox::digitalocean::NAME, "PUT", &path, Some(body));
            })]
        }
        "DigitalOceanKubernetesCluster" => digitalocean_cluster(manifest),
        "DigitalOceanKubernetesNodePool" => digitalocean_pool(manifest, &text("nodePoolName"), &spec),
        _ => Vec::new(),
    }
}

fn firewall(manifest: &Manifest, all: &[Manifest]) -> Vec<Change> {
    let spec = manifest.spec_json();
    let name = spec["name"].as_str().unwrap_or_default().to_owned();
    let network = spec["networkId"]["valueFrom"]["name"].as_str().unwrap_or_default();
    let network = all.iter().find(|m| m.id.kind == "CivoVpc" && m.id.name == network).expect("its network").spec_json();
    let region = network["region"].as_str().unwrap_or_default().to_ascii_uppercase();
    let path = move |cloud: &Cloud, rest: &str| {
        format!("/v2/firewalls/{}{rest}?region={region}", cloud.id("civo.firewall", &name))
    };
    let (add, remove, delete) = (path.clone(), path.clone(), path);
    let mut changes = vec![
        change(manifest, "got another rule", move |cloud| {
            let rule = json!({"protocol": "tcp", "start_port": "31337", "end_port": "31337", "cidr": ["0.0.0.0/0"],
                              "direction": "ingress", "action": "allow", "label": "outside"});
            cloud.call(berth_sandbox::civo::NAME, "POST", &add(cloud, "/rules"), Some(rule));
        }),
        change(manifest, "lost a rule", move |cloud| {
            let rules = cloud.call(berth_sandbox::civo::NAME, "GET", &remove(cloud, "/rules"), None);
            let id = rules[0]["id"].as_str().expect("a rule");
            cloud.call(berth_sandbox::civo::NAME, "DELETE", &remove(cloud, &format!("/rules/{id}")), None);
        }),
    ];
    // Civo keeps a firewall that a cluster uses.
    if !all.iter().any(|m| m.id.kind == "CivoKubernetesCluster") {
        changes.push(change(manifest, "deleted", move |cloud| {
            cloud.call(berth_sandbox::civo::NAME, "DELETE", &delete(cloud, ""), None);
        }));
    }
    changes
}

fn civo_path(cloud: &Cloud, cluster: &Value, rest: &str) -> String {
    let id = cloud.id("civo.cluster", cluster["clusterName"].as_str().unwrap_or_default());
    let region = cluster["region"].as_str().unwrap_or_default().to_ascii_uppercase();
    format!("/v2/kubernetes/clusters/{id}{rest}?region={region}")
}

fn civo_cluster(manifest: &Manifest) -> Vec<Change> {
    let spec = manifest.spec_json();
    let name = spec["clusterName"].as_str().unwrap_or_default().to_owned();
    let count = spec["defaultNodePool"]["nodeCount"].as_u64().unwrap_or_default();
    let (scaled, tagged, upgraded, deleted, taken) =
        (spec.clone(), spec.clone(), spec.clone(), spec.clone(), spec.clone());
    let mut changes = vec![
        change(manifest, "scaled", move |cloud| {
            let object = cloud.objects("civo.cluster").into_iter().find(|o| o["name"] == name).expect("the cluster");
            let pools = object["pools"].as_array().cloned().unwrap_or_default();
            let default = pools.iter().filter_map(|p| p["id"].as_str()).find(|id| id.starts_with("berth-default-"));
            let path = civo_path(cloud, &scaled, &format!("/pools/{}", default.expect("the default pool")));
            cloud.call(berth_sandbox::civo::NAME, "PUT", &path, Some(json!({"count": count + 2})));
        }),
        change(manifest, "tagged", move |cloud| {
            let body = json!({"tags": "outside"});
            cloud.call(berth_sandbox::civo::NAME, "PUT", &civo_path(cloud, &tagged, ""), Some(body));
        }),
        Change {
            repairs: false,
            undo: Box::new(move |cloud| {
                cloud.call(berth_sandbox::civo::NAME, "DELETE", &civo_path(cloud, &taken, ""), None);
            }),
            ..change(manifest, "upgraded", move |cloud| {
                let body = json!({"kubernetes_version": "1.32.5-k3s1"});
                cloud.call(berth_sandbox::civo::NAME, "PUT", &civo_path(cloud, &upgraded, ""), Some(body));
            })
        },
        change(manifest, "deleted", move |cloud| {
            cloud.call(berth_sandbox::civo::NAME, "DELETE", &civo_path(cloud, &deleted, ""), None);
        }),
    ];
    for pool in spec["additionalNodePools"].as_array().into_iter().flatten() {
        changes.extend(civo_pool(manifest, &spec, pool["name"].as_str().unwrap_or_default(), pool));
    }
    changes
}

fn civo_pool(manifest: &Manifest, cluster: &Value, name: &str, pool: &Value) -> Vec<Change> {
    let (cluster, prefix) = (cluster.clone(), format!("{name}-"));
    let (count, scales) = (pool["nodeCount"].as_u64().unwrap_or_default(), pool["autoScale"] == true);
    let path = move |cloud: &Cloud| {
        let found = cloud.objects("civo.cluster").into_iter().find(|o| o["name"] == cluster["clusterName"]);
        let pools = found.expect("the cluster")["pools"].as_array().cloned().unwrap_or_default();
        let id = pools.iter().filter_map(|p| p["id"].as_str()).find(|id| id.starts_with(&prefix));
        civo_path(cloud, &cluster, &format!("/pools/{}", id.expect("the pool")))
    };
    let (scale, back, deleted) = (path.clone(), path.clone(), path);
    vec![
        Change {
            is_drift: !scales,
            undo: Box::new(move |cloud| {
                cloud.call(berth_sandbox::civo::NAME, "PUT", &back(cloud), Some(json!({"count": count})));
            }),
            ..change(manifest, &format!("pool {name} scaled"), move |cloud| {
                cloud.call(berth_sandbox::civo::NAME, "PUT", &scale(cloud), Some(json!({"count": count + 1})));
            })
        },
        change(manifest, &format!("pool {name} deleted"), move |cloud| {
            cloud.call(berth_sandbox::civo::NAME, "DELETE", &deleted(cloud), None);
        }),
    ]
}

fn cluster_path(cloud: &Cloud, cluster: &str, rest: &str) -> String {
    format!("/v2/kubernetes/clusters/{}{rest}", cloud.id("digitalocean.cluster", cluster))
}

/// Path and body of a pool, as its update wants them.
fn pool_now(cloud: &Cloud, name: &str) -> (String, Value) {
    let pool = cloud.objects("digitalocean.pool").into_iter().find(|o| o["name"] == name);
    let pool = pool.unwrap_or_else(|| panic!("no pool {name}\n{}", cloud.told()));
    let text = |field: &str| pool[field].as_str().unwrap_or_default().to_owned();
    let path = format!("/v2/kubernetes/clusters/{}/node_pools/{}", text("cluster"), text("id"));
    let shown = cloud.call(berth_sandbox::digitalocean::NAME, "GET", &path, None);
    (path, shown["node_pool"].clone())
}

fn set_count(cloud: &Cloud, name: &str, count: impl Fn(u64) -> u64) {
    let (path, mut pool) = pool_now(cloud, name);
    pool["count"] = json!(count(pool["count"].as_u64().unwrap_or_default()));
    cloud.call(berth_sandbox::digitalocean::NAME, "PUT", &path, Some(pool));
}

fn digitalocean_cluster(manifest: &Manifest) -> Vec<Change> {
    let spec = manifest.spec_json();
    let name = spec["clusterName"].as_str().unwrap_or_default().to_owned();
    let scales = spec["defaultNodePool"]["autoScale"] == true;
    let default = format!("{name}-default");
    let (again, tagged, upgraded, deleted, taken) =
        (default.clone(), name.clone(), name.clone(), name.clone(), name.clone());
    let mut changes = vec![
        Change {
            is_drift: !scales,
            undo: Box::new(move |cloud| set_count(cloud, &again, |count| count - 1)),
            ..change(manifest, "scaled", move |cloud| set_count(cloud, &default, |count| count + 1))
        },
        change(manifest, "tagged", move |cloud| {
            let path = cluster_path(cloud, &tagged, "");
            let mut shown =
                cloud.call(berth_sandbox::digitalocean::NAME, "GET", &path, None)["kubernetes_cluster"].clone();
            shown["tags"].as_array_mut().expect("tags").push(json!("outside"));
            let body = json!({"name": shown["name"], "tags": shown["tags"]});
            cloud.call(berth_sandbox::digitalocean::NAME, "PUT", &path, Some(body));
        }),
        change(manifest, "deleted", move |cloud| {
            cloud.call(berth_sandbox::digitalocean::NAME, "DELETE", &cluster_path(cloud, &deleted, ""), None);
        }),
    ];
    if spec["autoUpgrade"] != true {
        changes.push(Change {
            repairs: false,
            undo: Box::new(move |cloud| {
                cloud.call(berth_sandbox::digitalocean::NAME, "DELETE", &cluster_path(cloud, &taken, ""), None);
            }),
            ..change(manifest, "upgraded", move |cloud| {
                let path = cluster_path(cloud, &upgraded, "/upgrades");
                let offers = cloud.call(berth_sandbox::digitalocean::NAME, "GET", &path, None);
                let version = offers["available_upgrade_versions"][0]["slug"].clone();
                let path = cluster_path(cloud, &upgraded, "/upgrade");
                cloud.call(berth_sandbox::digitalocean::NAME, "POST", &path, Some(json!({"version": version})));
            })
        });
    }
    changes
}

fn digitalocean_pool(manifest: &Manifest, name: &str, spec: &Value) -> Vec<Change> {
    let scales = spec["autoScale"] == true;
    let (scaled, back, labelled, deleted) = (name.to_owned(), name.to_owned(), name.to_owned(), name.to_owned());
    vec![
        Change {
            is_drift: !scales,
            undo: Box::new(move |cloud| set_count(cloud, &back, |count| count - 1)),
            ..change(manifest, "scaled", move |cloud| set_count(cloud, &scaled, |count| count + 1))
        },
        change(manifest, "labelled", move |cloud| {
            let (path, mut pool) = pool_now(cloud, &labelled);
            pool["labels"]["outside"] = json!("yes");
            cloud.call(berth_sandbox::digitalocean::NAME, "PUT", &path, Some(pool));
        }),
        change(manifest, "deleted", move |cloud| {
            let (path, _) = pool_now(cloud, &deleted);
            cloud.call(berth_sandbox::digitalocean::NAME, "DELETE", &path, None);
        }),
    ]
}
