//! Node pools as a cluster shows them, and which of them is the default one. Pure.
//!
//! A default pool's size cannot change in Civo, so a new pool takes its place. Its id is made from the old pool's id and the
//! new size: making it twice is impossible, and whoever looks, at whatever moment, sees which pool follows which.

use super::api::{Cluster, Instance, Taint};
use berth_engine::unit::Props;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Ids of default pools that Berth made start with this.
pub const OWN_DEFAULT: &str = "berth-default-";

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

/// Id of the first default pool of a cluster that is made with a token.
pub fn first_default(token: &str) -> String {
    format!("{OWN_DEFAULT}{}", short(token))
}

/// Id of the pool that takes the place of a default pool.
pub fn successor(old: &str, size: &str) -> String {
    format!("{OWN_DEFAULT}{}", short(&format!("{old}/{size}")))
}

/// Indices of the pools that are, or were and still have to go, the default pool: oldest first. The last takes the
/// place of those before it.
pub fn default_chain(views: &[View<'_>]) -> Vec<usize> {
    let own: Vec<usize> = (0..views.len()).filter(|i| views[*i].id.starts_with(OWN_DEFAULT)).collect();
    if own.is_empty() {
        // Made by other means: Civo shows the default pool first.
        return (0..views.len().min(1)).collect();
    }
    // Computed once for each: lists show thousands of clusters.
    let before: Vec<Option<usize>> = own
        .iter()
        .map(|new| {
            (0..views.len()).find(|old| old != new && successor(views[*old].id, views[*new].size) == views[*new].id)
        })
        .collect();
    let previous = |index: usize| own.iter().position(|o| *o == index).and_then(|at| before[at]);
    let mut chain = Vec::new();
    for newest in own.iter().filter(|index| !before.contains(&Some(**index))) {
        let mut part = vec![*newest];
        while let Some(old) = part.last().and_then(|i| previous(*i)).filter(|old| !part.contains(old)) {
            part.push(old);
        }
        chain.extend(part.into_iter().rev());
    }
    chain
}

/// What to do next so that the default pool has a size.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Create {
        id: String,
    },
    /// The new pool is not ready yet.
    Wait,
    Remove {
        old: String,
        new: String,
    },
    Done,
}

pub fn next_step(views: &[View<'_>], size: &str) -> Step {
    let chain: Vec<&View<'_>> =
        default_chain(views).into_iter().map(|i| &views[i]).filter(|view| !view.leaving()).collect();
    let Some(newest) = chain.last() else { return Step::Wait };
    let Some(keep) = chain.iter().rposition(|view| view.size == size) else {
        return Step::Create { id: successor(newest.id, size) };
    };
    // From the ends inwards: a pool in the middle of the chain is what shows that those around it belong together.
    let old = if keep + 1 < chain.len() { newest } else { chain[0] };
    match chain.len() {
        1 => Step::Done,
        _ if !chain[keep].is_ready() => Step::Wait,
        _ => Step::Remove { old: old.id.to_owned(), new: chain[keep].id.to_owned() },
    }
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

/// Taints in the form that is compared.
pub fn taints_value(taints: &[Taint]) -> Value {
    let mut taints = taints.to_vec();
    taints.sort();
    taints.dedup();
    json!(taints)
}

pub fn taints_of(props: &Props) -> Vec<Taint> {
    props.get("taints").and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default()
}

pub fn labels_of(props: &Props, name: &str) -> BTreeMap<String, String> {
    props.get(name).and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::api::{Pool, RequiredPool};
    use super::*;

    fn cluster(pools: &[(&str, &str, u32, Option<u32>)]) -> Cluster {
        Cluster {
            pools: pools
                .iter()
                .map(|(id, size, count, _)| Pool {
                    id: id.to_string(),
                    size: size.to_string(),
                    count: *count,
                    ..Pool::default()
                })
                .collect(),
            required_pools: pools
                .iter()
                .filter_map(|(id, size, _, wanted)| {
                    Some(RequiredPool {
                        id: id.to_string(),
                        size: size.to_string(),
                        count: (*wanted)?,
                        ..RequiredPool::default()
                    })
                })
                .collect(),
            ..Cluster::default()
        }
    }

    fn chain(cluster: &Cluster) -> Vec<String> {
        let views = views(cluster);
        default_chain(&views).into_iter().map(|i| views[i].id.to_owned()).collect()
    }

    #[test]
    fn a_roll_goes_step_by_step_and_ends_with_one_pool() {
        for first in ["11111111-2222-3333-4444-555555555555", "berth-default-00000001"] {
            let step = |pools: &[(&str, &str, u32, Option<u32>)]| next_step(&views(&cluster(pools)), "large");
            let new = successor(first, "large");
            let other = ("batch-0000abcd", "large", 2, Some(2));
            assert_eq!(step(&[(first, "small", 3, Some(3)), other]), Step::Create { id: new.clone() });
            assert_eq!(step(&[(first, "small", 3, Some(3)), other, (&new, "large", 1, Some(3))]), Step::Wait);
            let both = [(first, "small", 3, Some(3)), other, (&*new, "large", 3, Some(3))];
            assert_eq!(step(&both), Step::Remove { old: first.into(), new: new.clone() });
            assert_eq!(step(&[(first, "small", 3, None), other, (&new, "large", 3, Some(3))]), Step::Done);
            assert_eq!(step(&[other, (&new, "large", 3, Some(3))]), Step::Done);
            assert_eq!(chain(&cluster(&[other, (&new, "large", 3, Some(3))])), [new]);
        }
    }

    #[test]
    fn a_roll_that_is_taken_back_or_redirected_ends_with_one_pool_too() {
        let a = "aaaa";
        let b = successor(a, "large");
        let c = successor(&b, "huge");
        let three = [(a, "small", 1, Some(1)), (&*b, "large", 1, Some(1)), (&*c, "huge", 1, Some(1))];
        assert_eq!(chain(&cluster(&three)), [a, &b, &c]);
        let step = |pools: &[(&str, &str, u32, Option<u32>)], size| next_step(&views(&cluster(pools)), size);
        assert_eq!(step(&three, "small"), Step::Remove { old: c.clone(), new: a.into() });
        assert_eq!(step(&three[..2], "small"), Step::Remove { old: b.clone(), new: a.into() });
        assert_eq!(step(&three[..1], "small"), Step::Done);
        assert_eq!(step(&three, "large"), Step::Remove { old: c.clone(), new: b.clone() });
        assert_eq!(step(&three, "huge"), Step::Remove { old: a.into(), new: c.clone() });
        assert_eq!(step(&three[1..], "huge"), Step::Remove { old: b.clone(), new: c.clone() });
        assert_eq!(step(&three[..2], "huge"), Step::Create { id: c });
    }

    #[test]
    fn names_are_read_back_from_ids() {
        assert_eq!(name_of("batch-0000abcd"), "batch");
        assert_eq!(name_of("11111111-2222-3333-4444-555555555555"), "11111111-2222-3333-4444-555555555555");
        assert_eq!(name_of("workers"), "workers");
    }
}
