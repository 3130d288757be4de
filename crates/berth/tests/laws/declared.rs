//! What manifests ask for, read from the manifests alone: the other half of every comparison with a cloud.

use crate::support::cloud::Cloud;
use berth_model::{Manifest, parse};
use serde_json::Value;
use std::path::Path;

/// Manifests of a file, or of all files in a folder.
pub fn read(path: &Path) -> Vec<Manifest> {
    if path.is_dir() {
        let mut files: Vec<_> =
            std::fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        return files.iter().flat_map(|file| read(file)).collect();
    }
    manifests(&std::fs::read_to_string(path).expect("a manifest"))
}

pub fn manifests(text: &str) -> Vec<Manifest> {
    let (manifests, problems) = parse("declared.yaml", text.as_bytes());
    assert!(problems.iter().all(|problem| !problem.is_error()), "{problems:?}\n{text}");
    manifests
}

/// One line for each object that must be there.
pub fn outline(manifests: &[Manifest]) -> Vec<String> {
    let mut lines: Vec<String> = manifests.iter().flat_map(|manifest| objects(manifest, manifests)).collect();
    lines.sort();
    lines
}

fn objects(manifest: &Manifest, all: &[Manifest]) -> Vec<String> {
    let spec = manifest.spec_json();
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    let parent = |field: &str, named: &str| name_behind(&spec[field], all, named);
    match manifest.id.kind.as_str() {
        "CivoVpc" => vec![format!("civo.network {} in {}", text("networkName"), text("region"))],
        "CivoFirewall" => {
            let network = parent("networkId", "networkName");
            vec![format!("civo.firewall {} of {network}: {} rules", text("name"), rules(&spec))]
        }
        "CivoKubernetesCluster" => {
            let (name, network) = (text("clusterName"), parent("network", "networkName"));
            let mut pools = vec![pool(&spec["defaultNodePool"])];
            pools.extend(spec["additionalNodePools"].as_array().into_iter().flatten().map(pool));
            pools.extend(pools_beside("CivoKubernetesNodePool", manifest, all).iter().map(|m| pool(&m.spec_json())));
            let mut lines = vec![cluster("civo.cluster", name, &spec, &network, pools)];
            if spec["apiAllowedCidrs"].as_array().is_some_and(|cidrs| !cidrs.is_empty()) {
                lines.push(format!("civo.firewall {name}-api of {network}: 6 rules"));
            }
            lines
        }
        // Their pools are a part of the cluster's line.
        "CivoKubernetesNodePool" | "DigitalOceanKubernetesNodePool" | "Account" => Vec::new(),
        "DigitalOceanVpc" => vec![format!("digitalocean.vpc {} in {}", manifest.id.name, text("region"))],
        "DigitalOceanKubernetesCluster" => {
            let mut pools = vec![pool(&spec["defaultNodePool"])];
            let beside = pools_beside("DigitalOceanKubernetesNodePool", manifest, all);
            pools.extend(beside.iter().map(|m| pool(&m.spec_json())));
            let vpc = name_behind(&spec["vpc"], all, "");
            vec![cluster("digitalocean.cluster", text("clusterName"), &spec, &vpc, pools)]
        }
        kind => panic!("the tests do not know what a {kind} is made of"),
    }
}

fn cluster(kind: &str, name: &str, spec: &Value, network: &str, mut pools: Vec<String>) -> String {
    pools.sort();
    let (region, version) = (spec["region"].as_str().unwrap_or_default(), spec["kubernetesVersion"].as_str());
    format!("{kind} {name} in {region} of {network}: {} with {}", bare(version.unwrap_or_default()), pools.join(", "))
}

fn pool(spec: &Value) -> String {
    format!("{} x {}", spec["nodeCount"], spec["size"].as_str().unwrap_or_default())
}

fn rules(spec: &Value) -> usize {
    ["inboundRules", "outboundRules"].iter().map(|field| spec[field].as_array().map_or(0, Vec::len)).sum()
}

/// `v1.31.2`, `1.31.2-k3s1` and `1.31.2+k3s1` are all 1.31.2.
fn bare(version: &str) -> &str {
    version.trim_start_matches('v').split(['-', '+']).next().unwrap_or_default()
}

fn pools_beside<'a>(kind: &str, cluster: &Manifest, all: &'a [Manifest]) -> Vec<&'a Manifest> {
    let of = |m: &Manifest| m.spec_json()["cluster"]["valueFrom"]["name"].as_str() == Some(&cluster.id.name);
    all.iter().filter(|m| m.id.kind == kind && of(m)).collect()
}

/// The cloud's name for what a reference points at; a resource's own name where its kind has no field for it.
fn name_behind(reference: &Value, all: &[Manifest], field: &str) -> String {
    let name = reference["valueFrom"]["name"].as_str().unwrap_or_default();
    let target = all.iter().find(|m| m.id.name == name && m.id.kind.ends_with("Vpc"));
    let spec = target.unwrap_or_else(|| panic!("{reference} points at nothing")).spec_json();
    spec[field].as_str().unwrap_or(name).to_owned()
}

impl Cloud {
    /// The same lines, from what is there.
    pub fn outline(&self) -> Vec<String> {
        let name = |object: &Value| object["name"].as_str().unwrap_or_default().to_owned();
        let region = |object: &Value| object["region"].as_str().unwrap_or_default().to_ascii_lowercase();
        let named = |kind: &str, id: &Value| {
            let found = self.objects(kind).into_iter().find(|object| object["id"] == *id);
            found.map_or_else(|| format!("unknown {id}"), |object| name(&object))
        };
        let pool = |pool: &Value| format!("{} x {}", pool["count"], pool["size"].as_str().unwrap_or_default());
        let mut lines = Vec::new();
        for kind in ["civo.network", "digitalocean.vpc"] {
            lines.extend(self.objects(kind).iter().map(|o| format!("{kind} {} in {}", name(o), region(o))));
        }
        for object in self.objects("civo.firewall") {
            let rules = object["rules"].as_array().map_or(0, Vec::len);
            let network = named("civo.network", &object["network_id"]);
            lines.push(format!("civo.firewall {} of {network}: {rules} rules", name(&object)));
        }
        for (kind, network, network_field) in
            [("civo.cluster", "civo.network", "network_id"), ("digitalocean.cluster", "digitalocean.vpc", "vpc")]
        {
            for object in self.objects(kind) {
                let own: Vec<Value> = match object["pools"].as_array() {
                    Some(pools) => pools.clone(),
                    None => {
                        let all = self.objects("digitalocean.pool");
                        all.into_iter().filter(|pool| pool["cluster"] == object["id"]).collect()
                    }
                };
                let mut pools: Vec<String> = own.iter().map(pool).collect();
                pools.sort();
                let version = bare(object["version"].as_str().unwrap_or_default()).to_owned();
                let (network, pools) = (named(network, &object[network_field]), pools.join(", "));
                lines.push(format!(
                    "{kind} {} in {} of {network}: {version} with {pools}",
                    name(&object),
                    region(&object)
                ));
            }
        }
        lines.sort();
        lines
    }

    /// The cloud holds what the manifests ask for, and nothing else.
    #[track_caller]
    pub fn holds(&self, manifests: &[Manifest]) {
        let (found, wanted) = (self.outline(), outline(manifests));
        assert_eq!(found, wanted, "found (left) is not what is declared (right)\n{}", self.told());
        self.adds_up();
    }

    #[track_caller]
    pub fn is_empty(&self) {
        let left = self.shape();
        assert!(left.is_empty(), "something is left\n{}", self.told());
        self.adds_up();
    }
}
