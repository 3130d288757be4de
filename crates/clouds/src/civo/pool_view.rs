//! Node pools as a cluster shows them. Civo has two lists of pools in a cluster, what is asked for and what is there: a `View`
//! is a pool of both. Pure.

use super::wire::{Cluster, Instance, Taint};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// One pool: what is there and what is asked for.
#[derive(Debug, Clone)]
pub struct View<'a> {
    pub id: &'a str,
    pub size: &'a str,
    /// How many nodes are asked for; `None` when the pool is on its way out.
    pub wanted: Option<u32>,
    /// How many nodes there are.
    pub present: u32,
    pub instances: &'a [Instance],
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
}

impl View<'_> {
    /// How many nodes run.
    pub fn active(&self) -> u32 {
        if self.instances.is_empty() {
            return self.present;
        }
        self.instances.iter().filter(|i| i.status.eq_ignore_ascii_case("active")).count() as u32
    }

    pub fn is_ready(&self) -> bool {
        self.wanted == Some(self.present) && self.active() >= self.present
    }

    pub fn leaving(&self) -> bool {
        self.wanted.is_none()
    }
}

/// Every pool of a cluster, in Civo's order.
pub fn views(cluster: &Cluster) -> Vec<View<'_>> {
    let mut views: Vec<View<'_>> = Vec::new();
    for required in &cluster.required_pools {
        let present = cluster.pools.iter().find(|pool| pool.id == required.id);
        let mut taints = present.and_then(|p| p.taints.clone()).or(required.taints.clone()).unwrap_or_default();
        taints.sort();
        views.push(View {
            id: &required.id,
            size: if required.size.is_empty() { present.map_or("", |p| &p.size) } else { &required.size },
            wanted: Some(required.count),
            present: present.map_or(0, |pool| pool.count),
            instances: present.map(|pool| pool.instances.as_slice()).unwrap_or_default(),
            labels: present.and_then(|p| p.labels.clone()).or(required.labels.clone()).unwrap_or_default(),
            taints,
        });
    }
    for pool in cluster.pools.iter().filter(|pool| !cluster.required_pools.iter().any(|r| r.id == pool.id)) {
        let mut taints = pool.taints.clone().unwrap_or_default();
        taints.sort();
        views.push(View {
            id: &pool.id,
            size: &pool.size,
            // Without any list of what is asked for, what is there is what was asked for.
            wanted: cluster.required_pools.is_empty().then_some(pool.count),
            present: pool.count,
            instances: &pool.instances,
            labels: pool.labels.clone().unwrap_or_default(),
            taints,
        });
    }
    views
}

/// Eight hexadecimal digits that stand for a text.
pub fn short(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    format!("{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3])
}

/// The name in an id of the form `<name>-<8 digits>`, which Berth gives; any other id is its own name.
pub fn name_of(id: &str) -> &str {
    match id.rsplit_once('-') {
        Some((name, digits))
            if !name.is_empty() && digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()) =>
        {
            name
        }
        _ => id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_from_ids() {
        assert_eq!(name_of("batch-0000abcd"), "batch");
        assert_eq!(name_of("11111111-2222-3333-4444-555555555555"), "11111111-2222-3333-4444-555555555555");
        assert_eq!(name_of("workers"), "workers");
    }
}
