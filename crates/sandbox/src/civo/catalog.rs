//! What Civo offers: regions, sizes, versions, marketplace applications. The same in every sandbox.

use serde_json::{Value, json};

use crate::world::NodeCapacity;

pub struct Region {
    pub code: &'static str,
    name: &'static str,
    country: &'static str,
    country_name: &'static str,
}

const fn region(code: &'static str, name: &'static str, country: &'static str, country_name: &'static str) -> Region {
    Region { code, name, country, country_name }
}

pub const REGIONS: [Region; 6] = [
    region("LON1", "London 1", "uk", "United Kingdom"),
    region("LON2", "London 2", "uk", "United Kingdom"),
    region("NYC1", "New York 1", "us", "United States"),
    region("FRA1", "Frankfurt 1", "de", "Germany"),
    region("PHX1", "Phoenix 1", "us", "United States"),
    region("MUM1", "Mumbai 1", "in", "India"),
];

/// Codes are taken in any case, as people write both `LON1` and `lon1`.
pub fn find_region(code: &str) -> Option<&'static Region> {
    REGIONS.iter().find(|r| r.code.eq_ignore_ascii_case(code))
}

pub fn regions() -> Value {
    let features = json!({"iaas": true, "kubernetes": true, "object_store": true, "loadbalancer": true, "dbaas": true,
                          "volume": true, "paas": false, "kfaas": false, "gpu": true, "public_ip_node_pools": true});
    let rows = REGIONS.iter().enumerate().map(|(at, r)| {
        json!({"code": r.code, "name": r.name, "type": "civostack", "out_of_capacity": false, "country": r.country,
               "country_name": r.country_name, "features": features, "default": at == 0})
    });
    rows.collect()
}

pub struct Size {
    pub name: &'static str,
    nice_name: &'static str,
    pub cpu_cores: u32,
    pub ram_mb: u32,
    pub disk_gb: u32,
    gpu_count: u32,
    gpu_type: &'static str,
}

const fn size(name: &'static str, nice_name: &'static str, cpu_cores: u32, ram_mb: u32, disk_gb: u32) -> Size {
    Size { name, nice_name, cpu_cores, ram_mb, disk_gb, gpu_count: 0, gpu_type: "" }
}

const fn gpu(name: &'static str, nice_name: &'static str, shape: [u32; 4], gpu_type: &'static str) -> Size {
    Size { name, nice_name, cpu_cores: shape[0], ram_mb: shape[1], disk_gb: shape[2], gpu_count: shape[3], gpu_type }
}

pub const SIZES: [Size; 34] = [
    size("g3.xsmall", "xSmall", 1, 1024, 25),
    size("g3.small", "Small", 1, 2048, 25),
    size("g3.medium", "Medium", 2, 4096, 50),
    size("g3.large", "Large", 4, 8192, 100),
    size("g3.xlarge", "xLarge", 6, 16384, 150),
    size("g3.2xlarge", "2xLarge", 8, 32768, 200),
    size("g4s.xsmall", "xSmall - Standard", 1, 1024, 25),
    size("g4s.small", "Small - Standard", 1, 2048, 25),
    size("g4s.medium", "Medium - Standard", 2, 4096, 50),
    size("g4s.large", "Large - Standard", 4, 8192, 100),
    size("g4s.xlarge", "xLarge - Standard", 6, 16384, 150),
    size("g4s.2xlarge", "2xLarge - Standard", 8, 32768, 200),
    size("g4s.kube.xsmall", "xSmall - Standard", 1, 1024, 30),
    size("g4s.kube.small", "Small - Standard", 1, 2048, 40),
    size("g4s.kube.medium", "Medium - Standard", 2, 4096, 50),
    size("g4s.kube.large", "Large - Standard", 4, 8192, 60),
    size("g4s.kube.xlarge", "xLarge - Standard", 6, 16384, 70),
    size("g4p.kube.small", "Small - Performance", 4, 16384, 60),
    size("g4p.kube.medium", "Medium - Performance", 8, 32768, 80),
    size("g4p.kube.large", "Large - Performance", 16, 65536, 120),
    size("g4p.kube.xlarge", "xLarge - Performance", 32, 131_072, 180),
    size("g4c.kube.small", "Small - CPU optimized", 8, 16384, 60),
    size("g4c.kube.medium", "Medium - CPU optimized", 16, 32768, 80),
    size("g4c.kube.large", "Large - CPU optimized", 32, 65536, 120),
    size("g4c.kube.xlarge", "xLarge - CPU optimized", 64, 131_072, 180),
    size("g4m.kube.small", "Small - RAM optimized", 2, 16384, 60),
    size("g4m.kube.medium", "Medium - RAM optimized", 4, 32768, 80),
    size("g4m.kube.large", "Large - RAM optimized", 8, 65536, 120),
    size("g4m.kube.xlarge", "xLarge - RAM optimized", 16, 131_072, 180),
    gpu("an.g1.l40s.kube.x1", "Small - Nvidia L40S 40GB", [8, 131_072, 200, 1], "NVIDIA L40S"),
    gpu("an.g1.l40s.kube.x2", "Medium - Nvidia L40S 40GB", [16, 262_144, 200, 2], "NVIDIA L40S"),
    gpu("g4g.40.kube.small", "Small - Nvidia A100 40GB", [8, 65_536, 200, 1], "NVIDIA A100"),
    gpu("g4g.40.kube.medium", "Medium - Nvidia A100 40GB", [16, 131_072, 400, 2], "NVIDIA A100"),
    gpu("g4g.kube.small", "Small - Nvidia A100 80GB", [12, 131_072, 100, 1], "NVIDIA A100"),
];

pub const DEFAULT_SIZE: &str = "g4s.kube.medium";

/// Only sizes made for Kubernetes can carry nodes.
pub fn kube_size(name: &str) -> Option<&'static Size> {
    SIZES.iter().find(|s| s.name == name && s.name.contains(".kube."))
}

/// k3s keeps nothing of a node for itself.
pub fn node_capacity(name: &str) -> NodeCapacity {
    SIZES.iter().find(|s| s.name == name).map_or_else(NodeCapacity::default, |size| NodeCapacity {
        cpus: size.cpu_cores,
        memory_mib: u64::from(size.ram_mb),
        disk_gib: u64::from(size.disk_gb),
        gpus: size.gpu_count,
        ..NodeCapacity::default()
    })
}

pub fn sizes() -> Value {
    let rows = SIZES.iter().map(|s| {
        let kind = if s.name.contains(".kube.") { "Kubernetes" } else { "Instance" };
        json!({"type": kind, "name": s.name, "nice_name": s.nice_name, "cpu_cores": s.cpu_cores,
               "gpu_count": s.gpu_count, "gpu_type": s.gpu_type, "ram_mb": s.ram_mb, "disk_gb": s.disk_gb,
               "transfer_tb": 1, "description": s.nice_name, "selectable": true})
    });
    rows.collect()
}

pub struct Version {
    pub version: &'static str,
    kind: &'static str,
    pub cluster_type: &'static str,
}

const fn k3s(version: &'static str, kind: &'static str) -> Version {
    Version { version, kind, cluster_type: "k3s" }
}

const fn talos(version: &'static str, kind: &'static str) -> Version {
    Version { version, kind, cluster_type: "talos" }
}

pub const VERSIONS: [Version; 14] = [
    k3s("1.33.1-k3s1", "development"),
    k3s("1.32.5-k3s1", "stable"),
    k3s("1.31.6-k3s1", "stable"),
    k3s("1.31.2-k3s1", "stable"),
    k3s("1.30.5-k3s1", "stable"),
    k3s("1.30.2-k3s1", "stable"),
    k3s("1.29.8-k3s1", "stable"),
    k3s("1.29.0-k3s1", "stable"),
    k3s("1.28.7-k3s1", "stable"),
    k3s("1.28.2-k3s1", "deprecated"),
    k3s("1.27.16-k3s1", "deprecated"),
    talos("1.31.1", "development"),
    talos("1.30.0", "stable"),
    talos("talos-v1.5.0", "stable"),
];

const DEFAULT_K3S: &str = "1.30.5-k3s1";
const DEFAULT_TALOS: &str = "talos-v1.5.0";

pub fn default_version(cluster_type: &str) -> &'static str {
    if cluster_type == "talos" { DEFAULT_TALOS } else { DEFAULT_K3S }
}

pub fn find_version(version: &str, cluster_type: &str) -> Option<&'static Version> {
    VERSIONS.iter().find(|v| v.version == version && v.cluster_type == cluster_type)
}

pub fn versions() -> Value {
    let rows = VERSIONS.iter().map(|v| {
        let bare = v.version.trim_start_matches("talos-");
        json!({"label": format!("v{}", bare.trim_start_matches('v')), "version": v.version, "type": v.kind,
               "default": v.version == DEFAULT_K3S, "clusterType": v.cluster_type, "cluster_type": v.cluster_type})
    });
    rows.collect()
}

/// Major, minor, patch and the k3s build: enough to say which of two versions is newer.
pub fn order(version: &str) -> Vec<u64> {
    let numbers = version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok());
    // `k3s1` splits into 3 and 1; the 3 is the same in every k3s version and does no harm.
    numbers.collect()
}

/// The newest stable version above this one, for `upgrade_available_to`.
pub fn newest_above(version: &str, cluster_type: &str) -> Option<&'static str> {
    let offered = VERSIONS.iter().filter(|v| v.cluster_type == cluster_type && v.kind == "stable");
    let newest = offered.max_by_key(|v| order(v.version))?;
    (order(newest.version) > order(version)).then_some(newest.version)
}

pub struct Application {
    pub name: &'static str,
    pub title: &'static str,
    pub version: &'static str,
    pub category: &'static str,
    pub description: &'static str,
    pub default: bool,
    pub plans: &'static [&'static str],
    pub dependencies: &'static [&'static str],
}

const fn app(name: &'static str, title: &'static str, version: &'static str, category: &'static str) -> Application {
    Application { name, title, version, category, description: title, default: false, plans: &[], dependencies: &[] }
}

const SIZED: &[&str] = &["5GB", "10GB", "20GB"];
const LARGE: &[&str] = &["10GB", "20GB", "50GB"];
const USERS: &[&str] = &["Up to 25 users", "Up to 100 users", "Up to 500 users"];

pub const APPLICATIONS: [Application; 30] = [
    Application { default: true, ..app("Traefik-v2-nodeport", "Traefik v2 (NodePort)", "2.9.4", "architecture") },
    Application { default: true, ..app("metrics-server", "Metrics Server", "(default)", "architecture") },
    app("Traefik-v2-loadbalancer", "Traefik v2 (LoadBalancer)", "2.9.4", "architecture"),
    app("Nginx", "Nginx ingress", "latest", "architecture"),
    app("civo-cluster-autoscaler", "Civo Cluster Autoscaler", "v1.30.0", "management"),
    app("cert-manager", "cert-manager", "v1.15.3", "architecture"),
    app("Helm", "Helm", "3.15.4", "management"),
    app("ArgoCD", "Argo CD", "v2.11.4", "ci_cd"),
    app("Flux", "Flux", "v2.3.0", "ci_cd"),
    app("prometheus-operator", "Prometheus Operator", "0.75.0", "monitoring"),
    app("Loki", "Loki", "2.9.8", "monitoring"),
    app("Linkerd", "Linkerd", "2.14.10", "architecture"),
    app("Longhorn", "Longhorn", "1.6.2", "storage"),
    Application { plans: SIZED, ..app("Jenkins", "Jenkins", "2.452.2", "ci_cd") },
    app("KubeVirt", "KubeVirt", "v1.2.1", "architecture"),
    app("Vault", "HashiCorp Vault", "1.17.2", "security"),
    app("sealed-secrets", "Sealed Secrets", "v0.27.0", "security"),
    app("external-dns", "ExternalDNS", "v0.14.2", "architecture"),
    Application { plans: SIZED, ..app("MariaDB", "MariaDB", "11.3.2", "database") },
    Application { plans: SIZED, ..app("PostgreSQL", "PostgreSQL", "16", "database") },
    Application { plans: SIZED, ..app("Redis", "Redis", "7.2", "database") },
    Application { plans: SIZED, ..app("MongoDB", "MongoDB", "7.0", "database") },
    Application { plans: SIZED, ..app("MinIO", "MinIO", "2024-07-04", "storage") },
    Application { plans: LARGE, ..app("Elasticsearch", "Elasticsearch", "8.14.1", "database") },
    Application { plans: LARGE, ..app("InfluxDB", "InfluxDB", "2.7.6", "database") },
    Application { plans: SIZED, ..app("RabbitMQ", "RabbitMQ", "3.13.3", "architecture") },
    Application { plans: LARGE, ..app("GitLab", "GitLab", "17.1.1", "ci_cd") },
    Application { plans: USERS, ..app("Keycloak", "Keycloak", "25.0.1", "security") },
    Application { dependencies: &["Helm"], ..app("Keptn", "Keptn", "0.19.0", "ci_cd") },
    app("nvidia-device-plugin", "NVIDIA device plugin", "v0.16.1", "ai"),
];

/// Spaces and case do not count: Civo's Terraform provider strips all spaces from the list it sends.
pub fn find_application(name: &str) -> Option<&'static Application> {
    APPLICATIONS.iter().find(|a| bare(a.name) == bare(name))
}

pub fn find_plan(application: &Application, plan: &str) -> Option<&'static str> {
    application.plans.iter().copied().find(|p| bare(p) == bare(plan))
}

fn bare(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect()
}

/// What a plan sets: the size of the volume, or the number of users that it is made for.
fn settings(plan: &str) -> Value {
    let number: String = plan.chars().filter(char::is_ascii_digit).collect();
    match plan.strip_suffix("GB") {
        Some(_) => json!({"VOLUME_SIZE": {"value": format!("{number}Gi")}}),
        None => json!({"MAX_USERS": {"value": number}}),
    }
}

/// Name, version, distribution, and the user that an instance starts with.
const IMAGES: [(&str, &str, &str, &str, &str); 8] = [
    ("a4204155-a876-43fa-b4d6-ea2af8774560", "debian-12", "12", "debian", "admin"),
    ("d1e10a3e-6f7b-4a38-9d4c-2a7f9c1b5e11", "debian-11", "11", "debian", "admin"),
    ("b82168fe-66f6-4b38-a3b8-5283542d5475", "debian-10", "10", "debian", "admin"),
    ("d927ad2f-5073-4ed6-b2eb-b8e61aef29a8", "ubuntu-noble", "24.04", "ubuntu", "civo"),
    ("25fbbd96-d5ec-4d08-9c75-a5e154dabf5b", "ubuntu-jammy", "22.04", "ubuntu", "civo"),
    ("9b661c46-ac4f-46e1-9f3d-aaacde9b4fec", "ubuntu-focal", "20.04", "ubuntu", "civo"),
    ("eda67ea0-4282-4945-9b7a-d3c6cdde7e1e", "rocky-9", "9", "rocky", "civo"),
    ("170db96d-0458-44b9-8cf6-e5f1b2ee2be4", "almalinux-9", "9", "almalinux", "civo"),
];

pub fn disk_images() -> Value {
    let rows = IMAGES.iter().map(|(id, name, version, distribution, user)| {
        json!({"id": id, "name": name, "version": version, "state": "available", "distribution": distribution,
               "os": "linux", "description": format!("{distribution} {version}"), "label": name, "initial_user": user,
               "disk_image_size_bytes": 2_361_393_152u64, "created_at": "2024-01-01T00:00:00Z",
               "distribution_default": matches!(*name, "debian-12" | "ubuntu-noble" | "rocky-9" | "almalinux-9")})
    });
    rows.collect()
}

pub fn volume_types() -> Value {
    json!([
        {"name": "standard", "description": "Standard volumes", "enabled": true, "labels": ["standard"], "default": true},
        {"name": "ms-xfs-2-replicas", "description": "Encrypted volumes with two replicas", "enabled": true,
         "labels": ["encrypted", "replicated"], "default": false},
    ])
}

pub fn applications() -> Value {
    let rows = APPLICATIONS.iter().map(|a| {
        let plans: Vec<_> = a.plans.iter().map(|p| json!({"label": p, "configuration": settings(p)})).collect();
        json!({"name": a.name, "title": a.title, "version": a.version, "default": a.default,
               "dependencies": a.dependencies, "maintainer": "@civocloud", "description": a.description,
               "post_install": "", "url": "https://www.civo.com/marketplace", "category": a.category, "plans": plans})
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        assert!(order("1.30.5-k3s1") > order("1.29.8-k3s1"));
        assert!(order("1.27.16-k3s1") > order("1.27.9-k3s1"));
        assert!(order("1.30.5-k3s2") > order("1.30.5-k3s1"));
        assert_eq!(newest_above("1.28.7-k3s1", "k3s"), Some("1.32.5-k3s1"));
        assert_eq!(newest_above("1.33.1-k3s1", "k3s"), None);
    }

    #[test]
    fn there_is_exactly_one_default_of_each() {
        let count = |list: Value| list.as_array().map(|l| l.iter().filter(|v| v["default"] == true).count());
        assert_eq!(count(regions()), Some(1));
        assert_eq!(count(versions()), Some(1));
        assert!(find_version(DEFAULT_K3S, "k3s").is_some() && find_version(DEFAULT_TALOS, "talos").is_some());
        assert!(kube_size(DEFAULT_SIZE).is_some());
    }

    #[test]
    fn applications_are_found_as_clients_send_them() {
        assert_eq!(find_application("metrics-server").map(|a| a.name), Some("metrics-server"));
        assert_eq!(find_application("argocd").map(|a| a.name), Some("ArgoCD"));
        assert!(find_application("nope").is_none());
        let maria = find_application("MariaDB").map(|a| (find_plan(a, "5 GB"), find_plan(a, "7GB")));
        assert_eq!(maria, Some((Some("5GB"), None)));
    }
}
