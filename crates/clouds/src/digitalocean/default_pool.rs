//! The default pool of a cluster, and how it gets another size: new pool first, old one drained and deleted. Each step is
//! decided from what the cloud shows, so that a run that was killed anywhere goes on. The new pool's name is made from the old
//! one's id and the new size, and stays: a create that is acted on late meets it, and makes no second one.

use super::normal_form::{DEFAULT_POOL_TAG, TERRAFORM_DEFAULT_POOL_TAG};
use super::wire::NodePool;
use sha2::{Digest, Sha256};

/// Longest name of a pool: nodes are named after it, and a node's name is a DNS label with a few letters more.
pub const MAX_POOL_NAME: usize = 55;
const SUFFIX: &str = "-default";
/// How earlier versions named a new pool until the old one was gone. Also the longest suffix there is.
const ROLLING_SUFFIX: &str = "-default-next";

pub fn default_pool_name(cluster: &str) -> String {
    named(cluster, SUFFIX)
}

/// Name of the pool of that size that takes the place of another.
fn heir_name(cluster: &str, old: &NodePool, size: &str) -> String {
    named(cluster, &heir_suffix(old, size))
}

fn heir_suffix(old: &NodePool, size: &str) -> String {
    let digest = Sha256::digest(format!("{}/{size}", old.id).as_bytes());
    format!("{SUFFIX}-{:02x}{:02x}", digest[0], digest[1])
}

fn named(cluster: &str, suffix: &str) -> String {
    let head: String = cluster.chars().take(MAX_POOL_NAME - ROLLING_SUFFIX.len()).collect();
    // A name that fits is not cut for the sake of the longer suffix.
    let head = if cluster.len() + suffix.len() <= MAX_POOL_NAME { cluster } else { head.trim_end_matches('-') };
    format!("{head}{suffix}")
}

/// Whether it was begun to take the place of another one of these.
fn is_heir(pool: &NodePool, pools: &[&NodePool]) -> bool {
    let follows = |old: &&&NodePool| old.id != pool.id && pool.name.ends_with(&heir_suffix(old, &pool.size));
    has_old_name(pool) || pools.iter().any(|old| follows(&old))
}

fn has_old_name(pool: &NodePool) -> bool {
    pool.name.ends_with(ROLLING_SUFFIX)
}

/// The pools that stand for the default one: usually one, two while its size changes. They carry a mark; without any mark
/// (an imported cluster) it is the one with the usual name, else the first.
pub fn default_pools<'a>(cluster: &str, pools: &'a [NodePool]) -> Vec<&'a NodePool> {
    for mark in [DEFAULT_POOL_TAG, TERRAFORM_DEFAULT_POOL_TAG] {
        let marked: Vec<_> = pools.iter().filter(|pool| pool.tags.iter().any(|tag| tag == mark)).collect();
        if !marked.is_empty() {
            return marked;
        }
    }
    let usual = default_pool_name(cluster);
    let mut rest = pools.iter().filter(|pool| !is_of_another_resource(pool));
    rest.clone().find(|pool| pool.name == usual).or_else(|| rest.next()).into_iter().collect()
}

/// Berth writes on the pools that are resources of their own which kind they are.
fn is_of_another_resource(pool: &NodePool) -> bool {
    pool.labels.iter().any(|(key, kind)| key.ends_with("-resource-kind") && kind == "DigitalOceanKubernetesNodePool")
}

/// The one whose properties are shown: the old one, as long as it is there.
pub fn primary<'a>(pools: &[&'a NodePool]) -> Option<&'a NodePool> {
    pools.iter().find(|pool| !is_heir(pool, pools)).or(pools.first()).copied()
}

/// The name that is shown, and compared: several names mean that a change of size has begun and not ended.
pub fn shown_name(pools: &[&NodePool]) -> String {
    let mut names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
    names.sort_unstable();
    names.join(" + ")
}

/// A default pool may have any name; what counts is that there is one, and that no change of its size is under way.
pub fn is_settled(shown: &str) -> bool {
    !shown.is_empty() && !shown.contains(" + ") && !shown.ends_with(ROLLING_SUFFIX)
}

/// Running nodes, and whether they are enough.
pub fn nodes_ready(pool: &NodePool) -> (usize, bool) {
    let running = pool.nodes.iter().filter(|node| node.status.state.eq_ignore_ascii_case("running")).count();
    // An autoscaler adds and removes nodes at any time: that is not Berth's to wait for.
    let settled =
        if pool.auto_scale { running >= pool.count.min(pool.min_nodes) as usize } else { running == pool.nodes.len() };
    (running, settled && (pool.auto_scale || pool.nodes.len() == pool.count as usize))
}

/// On its way out: DigitalOcean still shows the pool, with nodes that are all being deleted.
pub fn is_leaving(pool: &NodePool) -> bool {
    let going = |state: &str| state.eq_ignore_ascii_case("deleting") || state.eq_ignore_ascii_case("deleted");
    pool.count > 0 && !pool.nodes.is_empty() && pool.nodes.iter().all(|node| going(&node.status.state))
}

#[derive(Debug)]
pub enum Step<'a> {
    /// Put the mark on the pool, before there is another one to take for it.
    Mark(&'a NodePool),
    /// Make a pool of the new size under this name.
    Make(String),
    /// The new pool's nodes are not there yet.
    Wait,
    /// Drain and delete what is not wanted any more.
    Remove(&'a NodePool),
    /// Give the pool that an earlier version made its name.
    Rename(&'a NodePool, String),
    Done,
}

/// The next step to one default pool of the wanted size and name.
pub fn next_step<'a>(cluster: &str, pools: &[&'a NodePool], size: &str) -> Step<'a> {
    let Some(current) = primary(pools) else { return Step::Make(default_pool_name(cluster)) };
    let keeper = pools.iter().find(|pool| pool.size == size && !is_heir(pool, pools));
    let Some(keeper) = keeper.or(pools.iter().find(|pool| pool.size == size)) else {
        // A pool of a third size is removed first; the current pool stays until its replacement is ready.
        if let Some(stray) = pools.iter().find(|pool| is_heir(pool, pools) && pool.id != current.id) {
            return Step::Remove(stray);
        }
        if !current.tags.iter().any(|tag| tag == DEFAULT_POOL_TAG) {
            return Step::Mark(current);
        }
        return Step::Make(heir_name(cluster, current, size));
    };
    if let Some(other) = pools.iter().find(|pool| pool.id != keeper.id) {
        return if nodes_ready(keeper).1 { Step::Remove(other) } else { Step::Wait };
    }
    if has_old_name(keeper) { Step::Rename(keeper, default_pool_name(cluster)) } else { Step::Done }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Node, State};
    use super::*;

    fn pool(id: &str, name: &str, size: &str, running: usize) -> NodePool {
        let node = |state: &str| Node { id: "n".into(), status: State { state: state.into(), message: String::new() } };
        NodePool {
            id: id.into(),
            name: name.into(),
            size: size.into(),
            count: 2,
            tags: vec![DEFAULT_POOL_TAG.into()],
            nodes: (0..2).map(|i| node(if i < running { "running" } else { "provisioning" })).collect(),
            ..NodePool::default()
        }
    }

    /// Plays the steps against a list of pools, as the cloud would carry them out.
    fn play(mut pools: Vec<NodePool>, size: &str) -> (Vec<NodePool>, Vec<String>) {
        let mut log = Vec::new();
        for made in 0..20 {
            let defaults = default_pools("c", &pools);
            assert!(defaults.iter().any(|p| nodes_ready(p).1), "something always runs");
            match next_step("c", &defaults, size) {
                Step::Mark(at) => {
                    log.push(format!("mark {}", at.name));
                    let id = at.id.clone();
                    pools.iter_mut().filter(|p| p.id == id).for_each(|p| p.tags.push(DEFAULT_POOL_TAG.into()));
                }
                Step::Make(name) => {
                    assert!(pools.iter().all(|p| p.name != name), "{name} is free");
                    log.push(format!("make {name}"));
                    pools.push(pool(&format!("new{made}"), &name, size, 0));
                }
                Step::Wait => {
                    log.push("wait".into());
                    pools.iter_mut().for_each(|p| p.nodes.iter_mut().for_each(|n| n.status.state = "running".into()));
                }
                Step::Remove(at) => {
                    log.push(format!("remove {}", at.name));
                    let id = at.id.clone();
                    pools.retain(|p| p.id != id);
                }
                Step::Rename(at, name) => {
                    log.push(format!("rename {} to {name}", at.name));
                    let id = at.id.clone();
                    pools.iter_mut().filter(|p| p.id == id).for_each(|p| p.name = name.clone());
                }
                Step::Done => return (pools, log),
            }
        }
        panic!("no end: {log:?}");
    }

    #[test]
    fn a_new_size_ends_with_one_pool_of_the_usual_name() {
        let (pools, log) = play(vec![pool("old", "c-default", "small", 2)], "large");
        let heir = heir_name("c", &pool("old", "c-default", "small", 2), "large");
        assert_eq!(log, [format!("make {heir}"), "wait".into(), "remove c-default".into()]);
        assert_eq!((pools.len(), pools[0].name.as_str(), pools[0].size.as_str()), (1, heir.as_str(), "large"));
        assert!(is_settled(&heir));
        // And once more: the name that was taken over is free again.
        let pools = pools.into_iter().map(|pool| NodePool { id: "second".into(), ..pool }).collect();
        let (pools, log) = play(pools, "small");
        assert_eq!((pools.len(), pools[0].size.as_str(), log.len()), (1, "small", 3));
        assert_ne!(pools[0].name, heir);
    }

    #[test]
    fn what_an_earlier_version_began_is_ended() {
        let begun = vec![pool("old", "c-default", "small", 2), pool("new", "c-default-next", "large", 1)];
        let (pools, log) = play(begun, "large");
        assert_eq!(log, ["wait", "remove c-default", "rename c-default-next to c-default"]);
        assert_eq!((pools.len(), pools[0].name.as_str()), (1, "c-default"));
    }

    #[test]
    fn an_unmarked_pool_is_marked_before_it_gets_an_heir() {
        let mut old = pool("old", "pool-x", "small", 2);
        old.tags.clear();
        let mut other = pool("other", "batch", "small", 2);
        other.tags.clear();
        let (pools, log) = play(vec![old, other], "large");
        assert_eq!(log[0], "mark pool-x");
        assert_eq!((pools[0].name.as_str(), pools.len()), ("batch", 2));
        assert!(pools[1].name.starts_with("c-default-"), "{}", pools[1].name);
    }

    #[test]
    fn a_changed_mind_leaves_no_second_pool() {
        let begun = || vec![pool("old", "c-default", "small", 2), pool("new", "c-default-next", "large", 1)];
        let (pools, log) = play(begun(), "small");
        assert_eq!((pools.len(), log), (1, vec!["remove c-default-next".to_owned()]));
        let (pools, log) = play(begun(), "huge");
        assert_eq!(log[0], "remove c-default-next");
        assert!(log[1].starts_with("make c-default-"), "{log:?}");
        assert_eq!((pools.len(), pools[0].size.as_str()), (1, "huge"));
    }

    #[test]
    fn a_size_changed_before_the_last_rename_still_ends() {
        let (pools, log) = play(vec![pool("new", "c-default-next", "large", 2)], "small");
        assert_eq!(log[1..], ["wait", "remove c-default-next"]);
        assert!(pools.len() == 1 && is_settled(&pools[0].name), "{log:?}");
    }

    #[test]
    fn a_pool_that_is_a_resource_of_its_own_is_never_taken_for_the_default_one() {
        let mut other = pool("other", "c-default", "small", 2);
        other.tags.clear();
        other.labels.insert("planton-resource-kind".into(), "DigitalOceanKubernetesNodePool".into());
        assert!(default_pools("c", std::slice::from_ref(&other)).is_empty());
        let mut first = pool("first", "pool-x", "small", 2);
        first.tags.clear();
        assert_eq!(default_pools("c", &[other, first])[0].id, "first");
    }

    #[test]
    fn names_fit() {
        assert_eq!(default_pool_name("shop"), "shop-default");
        let long = "a".repeat(63);
        let heir = heir_name(&long, &pool("old", "x", "small", 1), "large");
        assert!(default_pool_name(&long).len() <= MAX_POOL_NAME && heir.len() <= MAX_POOL_NAME, "{heir}");
        assert_ne!(default_pool_name(&long), heir);
        assert!(is_settled("pool-x") && !is_settled("a + b") && !is_settled("c-default-next") && !is_settled(""));
    }
}
