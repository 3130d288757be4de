//! The bounds of autoscaled pools.

use berth_engine::handler::Trouble;

/// Most nodes that a pool may be let grow to.
const MOST_NODES: u32 = 1000;

/// The first size of an autoscaled pool, and its limits.
#[derive(Debug, PartialEq, Eq)]
pub struct Bounds {
    pub first: u32,
    pub min: u32,
    pub max: u32,
}

/// Manifests of other tools may leave out the minimum, which then is 0, and may have a first size outside the bounds, which is
/// clamped, as the clouds do. Bounds that no autoscaler can keep are refused.
pub fn bounds(count: u32, min: Option<u32>, max: u32) -> Result<Bounds, Trouble> {
    let min = min.unwrap_or_default();
    let refused = |why: String| {
        let given = format!("minNodes is {min}, maxNodes is {max}");
        Err(Trouble::refused(why).help(given))
    };
    match max {
        0 => refused("a pool with `autoScale: true` needs `maxNodes` of at least 1".into()),
        _ if min > max => refused("a pool's `minNodes` must not be more than its `maxNodes`".into()),
        _ if max > MOST_NODES => refused(format!("a pool's `maxNodes` must be at most {MOST_NODES}")),
        _ => Ok(Bounds { first: count.clamp(min.max(1), max), min, max }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_size_is_brought_between_the_bounds() {
        let first = |count, min, max| bounds(count, min, max).map(|bounds| (bounds.first, bounds.min)).unwrap();
        assert_eq!(first(3, Some(1), 5), (3, 1));
        assert_eq!(first(9, Some(1), 5), (5, 1));
        assert_eq!(first(1, Some(3), 5), (3, 3));
        assert_eq!(first(1, None, 5), (1, 0));
        for (min, max) in [(None, 0), (Some(2), 0), (Some(6), 5), (Some(1), 1001)] {
            assert!(bounds(3, min, max).is_err(), "{min:?} {max}");
        }
    }
}
