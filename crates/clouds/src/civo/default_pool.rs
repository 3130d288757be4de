//! The default pool of a cluster, and how it gets another size. Pure.
//!
//! A default pool's size cannot change in Civo, so a new pool takes its place. Its id is made from the old pool's id and the
//! new size: it cannot be made twice, and any later run sees which pool replaces which.

use super::pool_view::{View, short};

/// Ids of default pools that Berth made start with this.
pub const OWN_DEFAULT: &str = "berth-default-";

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

#[cfg(test)]
mod tests {
    use super::super::pool_view::views;
    use super::super::wire::{Cluster, Pool, RequiredPool};
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
}
