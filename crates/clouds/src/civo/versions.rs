//! Kubernetes versions as Civo names them (`1.30.5-k3s1`) and as people write them.

use std::cmp::Ordering;

/// A version without a patch number is a lower bound once it is known which patch is meant: written as `>=1.29.8-k3s1`,
/// met by later patches of the same minor version.
const AT_LEAST: &str = ">=";

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parsed {
    /// Major and minor.
    line: [u32; 2],
    /// Absent means any.
    patch: Option<u32>,
    /// The part after the hyphen, such as `k3s1`.
    build: Option<String>,
}

/// `v1.29.0+k3s1` → `1.29.0-k3s1`.
pub fn normal(version: &str) -> String {
    let version = version.trim();
    version.strip_prefix(['v', 'V']).unwrap_or(version).replace('+', "-")
}

/// A version as a unit keeps it: the normal form, marked where any patch will do.
pub fn desired(version: &str) -> String {
    let version = normal(version);
    match parse(&version) {
        Some(Parsed { patch: None, .. }) => format!("{AT_LEAST}{version}"),
        _ => version,
    }
}

/// What runs, as a unit keeps it that wants `desired`.
pub fn kept(desired: &str, running: &str) -> String {
    let mark = if desired.starts_with(AT_LEAST) { AT_LEAST } else { "" };
    format!("{mark}{running}")
}

/// The version to ask the cloud for, without the mark of a lower bound.
pub fn exact(desired: &str) -> &str {
    desired.strip_prefix(AT_LEAST).unwrap_or(desired)
}

fn parse(version: &str) -> Option<Parsed> {
    let version = normal(exact(version));
    let (numbers, build) = match version.split_once('-') {
        Some((numbers, build)) => (numbers.to_owned(), Some(build.to_owned())),
        None => (version, None),
    };
    let parts: Vec<u32> = numbers.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    let patch = match parts.as_slice() {
        [_, _] if build.is_none() => None,
        [_, _, patch] => Some(*patch),
        _ => return None,
    };
    Some(Parsed { line: [parts[0], parts[1]], patch, build })
}

/// Whether a cluster that runs `observed` is as `wanted` says; one without a build is any build.
pub fn same(wanted: &str, observed: &str) -> bool {
    let (Some(one), Some(other)) = (parse(wanted), parse(observed)) else {
        return normal(wanted) == normal(observed);
    };
    if wanted.starts_with(AT_LEAST) {
        return one.line == other.line && !is_downgrade(wanted, observed);
    }
    one.line == other.line
        && one.patch == other.patch
        && (one.build.is_none() || other.build.is_none() || one.build == other.build)
}

/// Whether `to` is older than `from`.
pub fn is_downgrade(from: &str, to: &str) -> bool {
    match (parse(from), parse(to)) {
        (Some(from), Some(to)) => match to.line.cmp(&from.line).then(patch_order(&to, &from)) {
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

/// An absent patch number is as high as any.
fn patch_order(one: &Parsed, other: &Parsed) -> Ordering {
    match (one.patch, other.patch) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => Ordering::Equal,
    }
}

fn build_number(build: &str) -> Option<u32> {
    let digits = build.len() - build.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    build[build.len() - digits..].parse().ok()
}

/// The offered version that is meant, the newest patch and build where any will do; marked as `wanted` is.
pub fn resolve(wanted: &str, offered: &[String]) -> Option<String> {
    let key = |version: &String| parse(version).map(|p| (p.patch, p.build.as_deref().and_then(build_number)));
    let fitting = offered.iter().filter(|version| same(wanted, version)).max_by_key(|version| key(version))?;
    Some(kept(wanted, fitting))
}

/// The offered versions that are nearest to a wanted one, nearest first.
pub fn nearest(wanted: &str, offered: &[String], count: usize) -> Vec<String> {
    let Some(wanted) = parse(wanted) else { return newest(offered, count) };
    let place = |version: &Parsed| {
        let [major, minor] = version.line.map(i64::from);
        major * 1_000_000 + minor * 1_000 + i64::from(version.patch.unwrap_or(0))
    };
    let distance = |version: &Parsed| (place(&wanted) - place(version)).abs();
    let mut known: Vec<(i64, &String)> = offered.iter().filter_map(|v| Some((distance(&parse(v)?), v))).collect();
    known.sort();
    known.into_iter().take(count).map(|(_, version)| version.clone()).collect()
}

fn newest(offered: &[String], count: usize) -> Vec<String> {
    let numbers = |version: &str| parse(version).map(|p| (p.line, p.patch));
    let mut known: Vec<_> = offered.iter().filter_map(|v| Some((numbers(v)?, v))).collect();
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
        assert!(!is_downgrade("1.29.8-k3s1", ">=1.29"));
        assert!(is_downgrade("1.30.5-k3s1", ">=1.29"));
    }

    #[test]
    fn a_version_without_a_patch_is_met_by_any_of_its_line() {
        assert_eq!((desired("1.29").as_str(), desired("v1.29.0+k3s1").as_str()), (">=1.29", "1.29.0-k3s1"));
        assert!(same(">=1.29", "1.29.0-k3s1") && same(">=1.29", "1.29.8-k3s1"));
        assert!(same(">=1.29.0-k3s1", "1.29.8-k3s1"), "a newer patch is no drift");
        assert!(!same(">=1.29.8-k3s1", "1.29.0-k3s1"));
        assert!(!same(">=1.29", "1.30.0-k3s1") && !same(">=1.29.8-k3s1", "1.28.9-k3s1"));
        assert_eq!(exact(">=1.29.8-k3s1"), "1.29.8-k3s1");
    }

    #[test]
    fn what_is_meant_is_found_among_what_is_offered() {
        let offered: Vec<String> =
            ["1.28.7-k3s1", "1.29.8-k3s1", "1.30.5-k3s1", "1.30.5-k3s2", "talos-v1.5.0"].map(Into::into).into();
        let resolve = |wanted: &str| resolve(wanted, &offered);
        assert_eq!(resolve("v1.29.8").as_deref(), Some("1.29.8-k3s1"));
        assert_eq!(resolve("1.30.5").as_deref(), Some("1.30.5-k3s2"));
        assert_eq!(resolve("1.30.5+k3s1").as_deref(), Some("1.30.5-k3s1"));
        assert_eq!(resolve(&desired("v1.30")).as_deref(), Some(">=1.30.5-k3s2"));
        assert_eq!(resolve(&desired("1.31")), None);
        assert_eq!(resolve("1.29.0"), None);
        assert_eq!(nearest("1.29.0", &offered, 2), ["1.29.8-k3s1", "1.28.7-k3s1"]);
        assert_eq!(nearest("latest", &offered, 1), ["1.30.5-k3s2"]);
    }
}
