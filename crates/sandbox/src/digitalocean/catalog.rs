//! What the simulated DigitalOcean offers: regions, sizes and Kubernetes versions.

use serde_json::{Value, json};

use crate::world::NodeCapacity;

/// Slug, name, and the default network's range.
pub const REGIONS: &[(&str, &str, &str)] = &[
    ("nyc1", "New York 1", "10.116.0.0/20"),
    ("nyc2", "New York 2", "10.112.0.0/20"),
    ("nyc3", "New York 3", "10.108.0.0/20"),
    ("ams3", "Amsterdam 3", "10.110.0.0/20"),
    ("sfo2", "San Francisco 2", "10.120.0.0/20"),
    ("sfo3", "San Francisco 3", "10.124.0.0/20"),
    ("sgp1", "Singapore 1", "10.104.0.0/20"),
    ("lon1", "London 1", "10.106.0.0/20"),
    ("fra1", "Frankfurt 1", "10.114.0.0/20"),
    ("tor1", "Toronto 1", "10.118.0.0/20"),
    ("blr1", "Bangalore 1", "10.122.0.0/20"),
    ("syd1", "Sydney 1", "10.126.0.0/20"),
    ("atl1", "Atlanta 1", "10.128.0.0/20"),
];

/// Slug, virtual CPUs, MiB of memory, GiB of disk, TB of transfer, dollars a month, description.
type Size = (&'static str, u32, u32, u32, f64, f64, &'static str);

pub const SIZES: &[Size] = &[
    ("s-1vcpu-512mb-10gb", 1, 512, 10, 0.5, 4.0, "Basic"),
    ("s-1vcpu-1gb", 1, 1024, 25, 1.0, 6.0, "Basic"),
    ("s-1vcpu-1gb-amd", 1, 1024, 25, 1.0, 7.0, "Basic AMD"),
    ("s-1vcpu-1gb-intel", 1, 1024, 25, 1.0, 7.0, "Basic Intel"),
    ("s-1vcpu-2gb", 1, 2048, 50, 2.0, 12.0, "Basic"),
    ("s-2vcpu-2gb", 2, 2048, 60, 3.0, 18.0, "Basic"),
    ("s-1vcpu-3gb", 1, 3072, 60, 3.0, 18.0, "Basic"),
    ("s-2vcpu-4gb", 2, 4096, 80, 4.0, 24.0, "Basic"),
    ("s-2vcpu-4gb-amd", 2, 4096, 80, 4.0, 28.0, "Basic AMD"),
    ("s-2vcpu-4gb-intel", 2, 4096, 80, 4.0, 28.0, "Basic Intel"),
    ("s-4vcpu-8gb", 4, 8192, 160, 5.0, 48.0, "Basic"),
    ("s-4vcpu-8gb-amd", 4, 8192, 160, 5.0, 56.0, "Basic AMD"),
    ("s-4vcpu-8gb-intel", 4, 8192, 160, 5.0, 56.0, "Basic Intel"),
    ("s-8vcpu-16gb", 8, 16_384, 320, 6.0, 96.0, "Basic"),
    ("s-8vcpu-16gb-amd", 8, 16_384, 320, 6.0, 112.0, "Basic AMD"),
    ("c-2", 2, 4096, 25, 4.0, 42.0, "CPU-Optimized"),
    ("c-4", 4, 8192, 50, 5.0, 84.0, "CPU-Optimized"),
    ("c-8", 8, 16_384, 100, 6.0, 168.0, "CPU-Optimized"),
    ("g-2vcpu-8gb", 2, 8192, 25, 4.0, 63.0, "General Purpose"),
    ("g-4vcpu-16gb", 4, 16_384, 50, 5.0, 126.0, "General Purpose"),
    ("g-8vcpu-32gb", 8, 32_768, 100, 6.0, 252.0, "General Purpose"),
    ("gd-2vcpu-8gb", 2, 8192, 50, 4.0, 68.0, "General Purpose 2x SSD"),
    ("gd-4vcpu-16gb", 4, 16_384, 100, 5.0, 136.0, "General Purpose 2x SSD"),
    ("m-2vcpu-16gb", 2, 16_384, 50, 4.0, 84.0, "Memory-Optimized"),
    ("m-4vcpu-32gb", 4, 32_768, 100, 6.0, 168.0, "Memory-Optimized"),
    ("so-2vcpu-16gb", 2, 16_384, 300, 4.0, 131.0, "Storage-Optimized"),
];

/// Newest first, as the API lists them.
pub const VERSIONS: &[&str] = &[
    "1.33.4-do.0",
    "1.33.1-do.3",
    "1.33.1-do.0",
    "1.32.7-do.0",
    "1.32.5-do.0",
    "1.32.2-do.1",
    "1.31.9-do.3",
    "1.31.9-do.0",
    "1.30.10-do.0",
    "1.29.14-do.0",
    "1.29.9-do.4",
];

pub fn has_region(slug: &str) -> bool {
    REGIONS.iter().any(|(known, _, _)| *known == slug)
}

/// Memory of the smallest Droplets that can be nodes.
const MIN_NODE_MIB: u32 = 2048;

/// Sizes that can be nodes; smaller ones are for Droplets alone.
fn node_sizes() -> impl Iterator<Item = &'static Size> {
    SIZES.iter().filter(|size| size.2 >= MIN_NODE_MIB)
}

pub fn has_node_size(slug: &str) -> bool {
    node_sizes().any(|size| size.0 == slug)
}

/// Memory that is kept from pods on nodes up to a size, in MiB.
const RESERVED_MIB: &[(u32, u64)] = &[(2048, 1024), (4096, 1536), (8192, 2048), (16_384, 3072), (32_768, 4096)];

pub fn node_capacity(slug: &str) -> NodeCapacity {
    let Some((_, cpus, memory, disk, ..)) = SIZES.iter().find(|size| size.0 == slug) else {
        return NodeCapacity::default();
    };
    let reserved = RESERVED_MIB.iter().find(|(up_to, _)| memory <= up_to).map_or(6144, |(_, reserved)| *reserved);
    NodeCapacity {
        cpus: *cpus,
        memory_mib: u64::from(*memory),
        disk_gib: u64::from(*disk),
        reserved_cpu_milli: 100,
        reserved_memory_mib: reserved,
        ..NodeCapacity::default()
    }
}

/// A slug as it is offered; `latest` and a minor version mean the newest that fits.
pub fn resolve_version(asked: &str) -> Option<&'static str> {
    let minor = format!("{asked}.");
    let is_minor = asked.split('.').count() == 2 && asked.split('.').all(|part| part.parse::<u32>().is_ok());
    VERSIONS.iter().copied().find(|slug| *slug == asked || asked == "latest" || (is_minor && slug.starts_with(&minor)))
}

/// `1.33.1-do.3` as numbers that compare.
pub fn version_key(slug: &str) -> (u32, u32, u32, u32) {
    let mut numbers = slug.split(['.', '-']).filter_map(|part| part.parse::<u32>().ok());
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next(), next())
}

/// `1.33.1-do.3` runs Kubernetes `1.33.1`.
pub fn kubernetes_version(slug: &str) -> &str {
    slug.split('-').next().unwrap_or(slug)
}

/// To what a cluster may go: a newer release of its minor version, or of the next one.
pub fn upgrades_from(slug: &str) -> Vec<&'static str> {
    let from = version_key(slug);
    let fits = |to: (u32, u32, u32, u32)| to > from && to.0 == from.0 && to.1 <= from.1 + 1;
    VERSIONS.iter().copied().filter(|to| fits(version_key(to))).collect()
}

fn version(slug: &str) -> Value {
    json!({
        "slug": slug, "kubernetes_version": kubernetes_version(slug),
        "supported_features": ["cluster-autoscaler", "docr-integration", "ha-control-plane", "token-authentication"],
    })
}

pub fn version_list(slugs: &[&str]) -> Value {
    if slugs.is_empty() { Value::Null } else { slugs.iter().map(|slug| version(slug)).collect() }
}

pub fn options() -> Value {
    let regions: Vec<Value> = REGIONS.iter().map(|(slug, name, _)| json!({"name": name, "slug": slug})).collect();
    let sizes: Vec<Value> = node_sizes().map(|size| json!({"name": size.0, "slug": size.0})).collect();
    json!({"options": {"regions": regions, "versions": version_list(VERSIONS), "sizes": sizes}})
}

const FEATURES: [&str; 9] = [
    "backups",
    "ipv6",
    "metadata",
    "install_agent",
    "storage",
    "image_transfer",
    "private_networking",
    "server_id",
    "management_networking",
];

pub fn regions() -> Vec<Value> {
    let sizes: Vec<&str> = SIZES.iter().map(|size| size.0).collect();
    REGIONS
        .iter()
        .map(|(slug, name, _)| {
            json!({"name": name, "slug": slug, "features": FEATURES, "available": true, "sizes": sizes})
        })
        .collect()
}

pub fn sizes() -> Vec<Value> {
    let regions: Vec<&str> = REGIONS.iter().map(|(slug, _, _)| *slug).collect();
    SIZES
        .iter()
        .map(|(slug, vcpus, memory, disk, transfer, price, description)| {
            json!({
                "slug": slug, "memory": memory, "vcpus": vcpus, "disk": disk, "transfer": transfer,
                "price_monthly": price, "price_hourly": (price / 672.0 * 100_000.0).round() / 100_000.0,
                "regions": regions, "available": true, "description": description,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_resolve_and_upgrade_upwards_by_at_most_one_minor() {
        assert_eq!(resolve_version("latest"), Some(VERSIONS[0]));
        assert_eq!(resolve_version("1.32"), Some("1.32.7-do.0"));
        assert_eq!(resolve_version("1.33.1-do.0"), Some("1.33.1-do.0"));
        for unknown in ["1.99", "1.3", "", "1.33.1", "1"] {
            assert_eq!(resolve_version(unknown), None, "{unknown}");
        }
        assert_eq!(upgrades_from("1.33.4-do.0"), [""; 0]);
        let up = upgrades_from("1.31.9-do.3");
        assert!(up.contains(&"1.32.7-do.0") && !up.iter().any(|slug| slug.starts_with("1.33")), "{up:?}");
        let mut sorted = VERSIONS.to_vec();
        sorted.sort_by_key(|slug| std::cmp::Reverse(version_key(slug)));
        assert_eq!(sorted, VERSIONS);
    }
}
