//! Kubernetes versions as Civo names them (`1.30.5-k3s1`) and as people write them.

use std::cmp::Ordering;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parsed {
    numbers: [u32; 3],
    /// The part after the hyphen, such as `k3s1`.
    build: Option<String>,
}

/// `v1.29.0+k3s1` → `1.29.0-k3s1`.
pub fn normal(version: &str) -> String {
    let version = version.trim();
    version.strip_prefix(['v', 'V']).unwrap_or(version).replace('+', "-")
}

fn parse(version: &str) -> Option<Parsed> {
    let version = normal(version);
    let (numbers, build) = match version.split_once('-') {
        Some((numbers, build)) => (numbers.to_owned(), Some(build.to_owned())),
        None => (version, None),
    };
    let parts: Vec<u32> = numbers.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(Parsed { numbers: parts.try_into().ok()?, build })
}

/// Whether two spellings mean the same version; one without a build is any build.
pub fn same(one: &str, other: &str) -> bool {
    match (parse(one), parse(other)) {
        (Some(one), Some(other)) => {
            one.numbers == other.numbers && (one.build.is_none() || other.build.is_none() || one.build == other.build)
        }
        _ => normal(one) == normal(other),
    }
}

/// Whether `to` is older than `from`.
pub fn is_downgrade(from: &str, to: &str) -> bool {
    match (parse(from), parse(to)) {
        (Some(from), Some(to)) => match to.numbers.cmp(&from.numbers) {
            Ordering::Less => true,
            Ordering::Greater => false,
            // `k3s10` is newer than `k3s2`.
            Ordering::Equal => {
                match (to.build.as_deref().and_then(build_number), from.build.as_deref().and_then(build_number)) {
                    (Some(to), Some(from)) => to < from,
                    _ => false,
                }
            }
        },
        _ => false,
    }
}

fn build_number(build: &str) -> Option<u32> {
    let digits = build.len() - build.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    build[build.len() - digits..].parse().ok()
}

/// The offered version that is meant, newest build first.
pub fn resolve<'a>(wanted: &str, offered: &'a [String]) -> Option<&'a str> {
    let mut fitting: Vec<&String> = offered.iter().filter(|version| same(wanted, version)).collect();
    fitting.sort_by_key(|version| parse(version).and_then(|p| p.build).as_deref().and_then(build_number));
    fitting.last().map(|version| version.as_str())
}

/// The offered versions that are nearest to a wanted one, nearest first.
pub fn nearest(wanted: &str, offered: &[String], count: usize) -> Vec<String> {
    let Some(wanted) = parse(wanted) else { return newest(offered, count) };
    let distance = |version: &Parsed| {
        let [a, b] = [wanted.numbers, version.numbers]
            .map(|n| i64::from(n[0]) * 1_000_000 + i64::from(n[1]) * 1_000 + i64::from(n[2]));
        (a - b).abs()
    };
    let mut known: Vec<(i64, &String)> = offered.iter().filter_map(|v| Some((distance(&parse(v)?), v))).collect();
    known.sort();
    known.into_iter().take(count).map(|(_, version)| version.clone()).collect()
}

fn newest(offered: &[String], count: usize) -> Vec<String> {
    let mut known: Vec<([u32; 3], &String)> = offered.iter().filter_map(|v| Some((parse(v)?.numbers, v))).collect();
    known.sort();
    known.into_iter().rev().take(count).map(|(_, version)| version.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_version_are_the_same() {
        for spelling in ["1.29.0", "v1.29.0", "1.29.0-k3s1", "1.29.0+k3s1", " v1.29.0+k3s1 "] {
            assert!(same(spelling, "1.29.0-k3s1"), "{spelling}");
        }
        assert!(!same("1.29.0-k3s2", "1.29.0-k3s1"));
        assert!(!same("1.29.1", "1.29.0-k3s1"));
        assert!(!same("talos-v1.5.0", "1.5.0"));
    }

    #[test]
    fn downgrades_are_seen_in_numbers_not_letters() {
        assert!(is_downgrade("1.30.5-k3s1", "1.29.0"));
        assert!(is_downgrade("1.30.10-k3s1", "1.30.9-k3s1"));
        assert!(is_downgrade("1.30.5-k3s10", "1.30.5-k3s2"));
        assert!(!is_downgrade("1.30.5-k3s1", "1.30.5"));
        assert!(!is_downgrade("1.29.0-k3s1", "1.30.5-k3s1"));
    }

    #[test]
    fn what_is_meant_is_found_among_what_is_offered() {
        let offered: Vec<String> =
            ["1.28.7-k3s1", "1.29.8-k3s1", "1.30.5-k3s1", "1.30.5-k3s2", "talos-v1.5.0"].map(Into::into).into();
        assert_eq!(resolve("v1.29.8", &offered), Some("1.29.8-k3s1"));
        assert_eq!(resolve("1.30.5", &offered), Some("1.30.5-k3s2"));
        assert_eq!(resolve("1.30.5+k3s1", &offered), Some("1.30.5-k3s1"));
        assert_eq!(resolve("1.29.0", &offered), None);
        assert_eq!(nearest("1.29.0", &offered, 2), ["1.29.8-k3s1", "1.28.7-k3s1"]);
        assert_eq!(nearest("latest", &offered, 1), ["1.30.5-k3s2"]);
    }
}
