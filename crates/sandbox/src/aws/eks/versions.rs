//! The Kubernetes versions that EKS offers.

use serde_json::{Value, json};

use super::errors::About;
use super::page;
use crate::aws::ask::Ask;
use crate::aws::errors::Answer;

pub struct Version {
    pub name: &'static str,
    pub patch: &'static str,
    platform: &'static str,
    standard: bool,
    /// Days since 1970: release, end of standard and of extended support.
    days: (i64, i64, i64),
}

#[rustfmt::skip]
static VERSIONS: &[Version] = &[
    Version { name: "1.34", patch: "1.34.1", platform: "eks.9", standard: true, days: (20363, 20789, 21154) },
    Version { name: "1.33", patch: "1.33.5", platform: "eks.23", standard: true, days: (20237, 20663, 21028) },
    Version { name: "1.32", patch: "1.32.9", platform: "eks.30", standard: true, days: (20111, 20535, 20900) },
    Version { name: "1.31", patch: "1.31.13", platform: "eks.46", standard: false, days: (19992, 20418, 20783) },
    Version { name: "1.30", patch: "1.30.14", platform: "eks.54", standard: false, days: (19866, 20292, 20657) },
    Version { name: "1.29", patch: "1.29.15", platform: "eks.57", standard: false, days: (19745, 20170, 20535) },
];

/// The version of a cluster that names none.
pub const DEFAULT: &str = "1.34";

/// The date of the machine images of node groups.
const IMAGE_DATE: &str = "20251112";

pub fn find(name: &str) -> Option<&'static Version> {
    VERSIONS.iter().find(|version| version.name == name)
}

pub fn names() -> impl DoubleEndedIterator<Item = &'static str> {
    VERSIONS.iter().map(|version| version.name)
}

/// `1.33` is 33.
pub fn minor(name: &str) -> u32 {
    name.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0)
}

pub fn platform(name: &str) -> &'static str {
    find(name).map_or("eks.1", |version| version.platform)
}

/// As a cluster's API and its nodes say it: `v1.33.5-eks-113cf36`.
pub fn kubernetes(name: &str) -> String {
    let patch = find(name).map_or(name, |version| version.patch);
    format!("v{patch}-eks-113cf36")
}

/// The newest image of a version.
pub fn release(name: &str) -> String {
    format!("{}-{IMAGE_DATE}", find(name).map_or(name, |version| version.patch))
}

/// Whether a release of images, such as `1.33.5-20251112`, is one of this version.
pub fn is_release_of(release: &str, version: &str) -> bool {
    let Some((patch, date)) = release.split_once('-') else { return false };
    let dated = date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit());
    dated && patch.strip_prefix(version).is_some_and(|rest| rest.starts_with('.'))
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let wanted = ask.input.texts("clusterVersions");
    for name in &wanted {
        if find(name).is_none() {
            return Err(About::default().bad_parameter(format!("Invalid cluster version: {name}")));
        }
    }
    let status = ask.input.text("versionStatus").map(str::to_owned).or_else(|| {
        let old_form = ask.input.text("status")?;
        Some(old_form.replace('-', "_").to_uppercase())
    });
    let only_default = ask.input.flag("defaultOnly") == Some(true);
    let day = |day: i64| json!((day * 86_400) as f64);
    let shown = VERSIONS
        .iter()
        .filter(|version| wanted.is_empty() || wanted.contains(&version.name))
        .filter(|version| !only_default || version.name == DEFAULT)
        .map(|version| {
            let support = if version.standard { "STANDARD_SUPPORT" } else { "EXTENDED_SUPPORT" };
            let (released, standard_ends, extended_ends) = version.days;
            json!({
                "clusterVersion": version.name, "clusterType": "eks", "defaultPlatformVersion": version.platform,
                "defaultVersion": version.name == DEFAULT, "releaseDate": day(released),
                "endOfStandardSupportDate": day(standard_ends), "endOfExtendedSupportDate": day(extended_ends),
                "status": support.to_lowercase().replace('_', "-"), "versionStatus": support,
                "kubernetesPatchVersion": version.patch,
            })
        })
        .filter(|shown| status.as_ref().is_none_or(|status| shown["versionStatus"] == **status))
        .collect();
    page(ask, "clusterVersions", shown)
}
