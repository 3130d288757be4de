//! Kubernetes versions as people write them and as DigitalOcean does: `1.33`, `1.33.1`, `v1.33.1`, `1.33.1-do.0`.

use berth_engine::handler::{Outcome, Trouble};
use std::cmp::Ordering;
use std::fmt;

/// With automatic upgrades, and without a patch number, a version is a lower bound: written as `>=1.33.1`, met by later
/// patches of the same minor version.
pub const AT_LEAST: &str = ">=";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    /// Absent means any.
    pub patch: Option<u32>,
    /// DigitalOcean's own count: the `0` of `-do.0`. Absent means any.
    pub build: Option<u32>,
}

impl Version {
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().strip_prefix(AT_LEAST).unwrap_or(text.trim());
        let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
        let (numbers, build) = match text.split_once("-do.") {
            Some((numbers, build)) => (numbers, Some(build.parse().ok()?)),
            None => (text, None),
        };
        let mut parts = numbers.split('.').map(|part| part.parse::<u32>().ok());
        let (major, minor) = (parts.next()??, parts.next()??);
        let patch = match parts.next() {
            Some(patch) => Some(patch?),
            // A build number counts the builds of one patch.
            None if build.is_some() => return None,
            None => None,
        };
        parts.next().is_none().then_some(Self { major, minor, patch, build })
    }

    fn line(&self) -> (u32, u32) {
        (self.major, self.minor)
    }

    /// Whether `other` is what was asked for.
    fn accepts(&self, other: &Self) -> bool {
        let fits = |wanted: Option<u32>, given: Option<u32>| wanted.is_none() || wanted == given;
        self.line() == other.line() && fits(self.patch, other.patch) && fits(self.build, other.build)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(f, ".{patch}"))?;
        self.build.map_or(Ok(()), |build| write!(f, "-do.{build}"))
    }
}

/// The version to ask the cloud for, without the mark of a lower bound.
pub fn slug(desired: &str) -> &str {
    desired.strip_prefix(AT_LEAST).unwrap_or(desired)
}

/// Whether a cluster that runs `observed` is as `desired` says.
pub fn same(desired: &str, observed: &str) -> bool {
    if slug(desired) == observed {
        return true;
    }
    let (Some(wanted), Some(running)) = (Version::parse(desired), Version::parse(observed)) else { return false };
    if wanted.accepts(&running) {
        return true;
    }
    let one_line = wanted.line() == running.line();
    desired.starts_with(AT_LEAST) && one_line && !is_lower(&wanted, &running)
}

/// Why a cluster cannot go from one version to another, or `None`.
pub fn refuse(from: &str, to: &str) -> Option<String> {
    let (running, wanted) = (Version::parse(from)?, Version::parse(to)?);
    if is_lower(&running, &wanted) {
        return Some(format!(
            "the cluster runs Kubernetes {running}, and Kubernetes cannot go back to {wanted}: set kubernetesVersion to {running} or later"
        ));
    }
    (running.major == wanted.major && wanted.minor > running.minor + 1).then(|| {
        format!(
            "the cluster runs Kubernetes {running}: DigitalOcean upgrades one minor version at a time, so go to {}.{} before {wanted}",
            running.major,
            running.minor + 1
        )
    })
}

/// Whether `wanted` lies below `running`; an absent number lies below nothing.
fn is_lower(running: &Version, wanted: &Version) -> bool {
    let below = |wanted: Option<u32>, running: Option<u32>| match (wanted, running) {
        (Some(wanted), Some(running)) => wanted.cmp(&running),
        _ => Ordering::Equal,
    };
    let patches = below(wanted.patch, running.patch);
    wanted.line().cmp(&running.line()).then(patches).then(below(wanted.build, running.build)) == Ordering::Less
}

/// The offered version that was meant, as the cloud writes it. A version that runs already needs no offer.
pub fn resolve(desired: &str, offered: &[&str], running: Option<&str>) -> Outcome<String> {
    let mark = if desired.starts_with(AT_LEAST) { AT_LEAST } else { "" };
    if let Some(running) = running
        && same(desired, running)
    {
        return Ok(desired.to_owned());
    }
    let Some(wanted) = Version::parse(desired) else {
        return Err(Trouble::refused(format!("`{}` is not a Kubernetes version", slug(desired)))
            .help(format!("write it as {}", offered.first().unwrap_or(&"1.33.1-do.0"))));
    };
    let mut known: Vec<(Version, &str)> =
        offered.iter().filter_map(|text| Version::parse(text).map(|version| (version, *text))).collect();
    known.sort();
    if let Some((_, found)) = known.iter().rev().find(|(version, _)| wanted.accepts(version)) {
        return Ok(format!("{mark}{found}"));
    }
    let trouble = Trouble::refused(format!("DigitalOcean does not offer Kubernetes {wanted}"));
    Err(match nearest(&wanted, &known) {
        near if near.is_empty() => trouble,
        near => trouble.help(format!("the nearest that it offers: {}", near.join(", "))),
    }
    .help("see all:   doctl kubernetes options versions"))
}

/// The highest offered below and the lowest offered above.
fn nearest<'a>(wanted: &Version, sorted: &[(Version, &'a str)]) -> Vec<&'a str> {
    let at = sorted.partition_point(|(version, _)| version < wanted);
    let below = at.checked_sub(1).and_then(|i| sorted.get(i));
    below.into_iter().chain(sorted.get(at)).map(|(_, text)| *text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFERED: [&str; 4] = ["1.33.1-do.3", "1.33.1-do.2", "1.32.5-do.0", "1.31.9-do.1"];

    #[test]
    fn forms_that_people_write_are_matched() {
        for text in ["1.33.1", "v1.33.1", "1.33.1-do.3", "v1.33.1-do.3"] {
            assert_eq!(resolve(text, &OFFERED, None).unwrap(), "1.33.1-do.3", "{text}");
        }
        assert_eq!(resolve("1.33.1-do.2", &OFFERED, None).unwrap(), "1.33.1-do.2");
        assert_eq!(resolve(">=1.32.5", &OFFERED, None).unwrap(), ">=1.32.5-do.0");
        assert_eq!(resolve(">=1.33", &OFFERED, None).unwrap(), ">=1.33.1-do.3", "the newest patch on offer");
        assert_eq!(resolve(">=1.28", &OFFERED, Some("1.28.2-do.0")).unwrap(), ">=1.28", "as it runs");
    }

    #[test]
    fn what_is_not_offered_is_refused_with_the_nearest() {
        let trouble = resolve("1.32.9", &OFFERED, None).unwrap_err();
        assert_eq!(trouble.to_string(), "DigitalOcean does not offer Kubernetes 1.32.9");
        assert_eq!(trouble.help_lines()[0], "the nearest that it offers: 1.32.5-do.0, 1.33.1-do.2");
        let trouble = resolve("1.99.0", &OFFERED, None).unwrap_err();
        assert_eq!(trouble.help_lines()[0], "the nearest that it offers: 1.33.1-do.3");
        assert!(resolve("latest", &OFFERED, None).unwrap_err().to_string().contains("not a Kubernetes version"));
        assert!(resolve(">=1.30", &OFFERED, None).unwrap_err().to_string().ends_with("does not offer Kubernetes 1.30"));
        assert!(resolve("1.33-do.1", &OFFERED, None).is_err());
        assert!(resolve("1.33.1-do.9", &OFFERED, None).is_err());
    }

    #[test]
    fn a_running_version_needs_no_offer() {
        assert_eq!(resolve("1.28.2", &OFFERED, Some("1.28.2-do.0")).unwrap(), "1.28.2");
        assert!(resolve("1.28.3", &OFFERED, Some("1.28.2-do.0")).is_err());
    }

    #[test]
    fn same_ignores_how_it_is_written() {
        assert!(same("1.33.1", "1.33.1-do.0"));
        assert!(same("v1.33.1", "1.33.1-do.4"));
        assert!(same("1.33.1-do.0", "1.33.1-do.0"));
        assert!(!same("1.33.1-do.0", "1.33.1-do.1"));
        assert!(!same("1.33.1", "1.33.2-do.0"));
        assert!(same(">=1.33.1", "1.33.4-do.0"));
        assert!(same(">=1.33.1-do.0", "1.33.1-do.2"));
        assert!(!same(">=1.33.1-do.2", "1.33.1-do.0"));
        assert!(!same(">=1.33.1", "1.34.0-do.0"));
        assert!(!same(">=1.33.1", "1.33.0-do.0"));
        assert!(same(">=1.33", "1.33.0-do.0") && same(">=1.33", "1.33.9-do.1"));
        assert!(!same(">=1.33", "1.34.0-do.0"));
    }

    #[test]
    fn only_upwards_and_one_minor_at_a_time() {
        assert!(refuse("1.33.1-do.0", "1.33.0").unwrap().contains("cannot go back"));
        assert!(refuse("1.33.1-do.2", "1.33.1-do.1").unwrap().contains("cannot go back"));
        assert!(refuse("1.31.9-do.0", "1.33.1").unwrap().contains("go to 1.32 before"));
        assert_eq!(refuse("1.32.5-do.0", "1.33.1-do.3"), None);
        assert_eq!(refuse("1.33.1-do.0", "1.33.1-do.3"), None);
        assert_eq!(refuse("1.33.1-do.0", ">=1.33"), None);
        assert!(refuse("1.33.1-do.0", ">=1.32").unwrap().contains("cannot go back"));
    }
}
