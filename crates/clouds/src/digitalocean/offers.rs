//! What DigitalOcean offers: versions, regions and sizes are checked before anything is made.

use super::client::Client;
use super::normal_form::is_id;
use super::versions;
use super::wire::Options;
use crate::one_form;
use berth_engine::handler::{Outcome, Trouble};
use std::time::Duration;

/// How many near matches are shown.
const SHOWN: usize = 5;
/// How long looked-up names are reused, so that a plan of many resources lists them once. A name that is not found is looked up again.
const NAMES_KEPT: Duration = Duration::from_secs(5);

pub fn version(options: &Options, desired: &str, running: Option<&str>) -> Outcome<String> {
    let offered: Vec<&str> = options.versions.iter().map(|v| v.slug.as_str()).collect();
    versions::resolve(desired, &offered, running)
}

pub fn region(options: &Options, region: &str) -> Outcome<()> {
    let offered: Vec<&str> = options.regions.iter().map(|r| r.slug.as_str()).collect();
    one_of(&offered, region, "Kubernetes in region", "doctl kubernetes options regions")
}

pub fn size(options: &Options, size: &str) -> Outcome<()> {
    let offered: Vec<&str> = options.sizes.iter().map(|s| s.slug.as_str()).collect();
    one_of(&offered, size, "nodes of size", "doctl kubernetes options sizes")
}

fn one_of(offered: &[&str], wanted: &str, what: &str, command: &str) -> Outcome<()> {
    if offered.is_empty() || offered.contains(&wanted) {
        return Ok(());
    }
    Err(Trouble::refused(format!("DigitalOcean has no {what} `{wanted}`"))
        .help(format!("the nearest that it offers: {}", nearest(wanted, offered).join(", ")))
        .help(format!("see all:   {command}")))
}

/// Checks the name of a cluster or pool against DigitalOcean's rules, before anything is made.
pub fn name(what: &str, field: &str, name: &str) -> Outcome<()> {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if name.chars().all(|c| edge(c) || c == '-') && name.starts_with(edge) && name.ends_with(edge) {
        return Ok(());
    }
    Err(Trouble::refused(format!("DigitalOcean does not take `{name}` as the name of a {what}")).help(format!(
        "in spec.{field} use lower-case letters, digits and hyphens, starting and ending with a letter or digit"
    )))
}

/// The id of a network given by name or id.
pub async fn vpc_id(client: &Client, given: &str, region: &str) -> Outcome<String> {
    let id = one_form(given);
    if is_id(&id) {
        return Ok(id);
    }
    let mut vpcs = client.recent_vpcs(NAMES_KEPT).await?;
    if !vpcs.iter().any(|vpc| vpc.name == given) {
        vpcs = client.recent_vpcs(Duration::ZERO).await?;
    }
    match vpcs.iter().find(|vpc| vpc.name == given) {
        Some(vpc) if region.is_empty() || vpc.region == region => Ok(vpc.id.clone()),
        Some(vpc) => Err(Trouble::refused(format!(
            "the network `{given}` is in {}, and the cluster would be in {region}: both must be in one region",
            vpc.region
        ))),
        None => {
            let names: Vec<&str> = vpcs.iter().map(|vpc| vpc.name.as_str()).collect();
            Err(not_there("network", given, &names, "doctl vpcs list"))
        }
    }
}

/// The id of a cluster given by name or id.
pub async fn cluster_id(client: &Client, given: &str) -> Outcome<String> {
    let id = one_form(given);
    if is_id(&id) {
        return Ok(id);
    }
    let mut clusters = client.recent_cluster_names(NAMES_KEPT).await?;
    if !clusters.iter().any(|(_, name)| name == given) {
        clusters = client.recent_cluster_names(Duration::ZERO).await?;
    }
    let found: Vec<&String> = clusters.iter().filter(|(_, name)| name == given).map(|(id, _)| id).collect();
    match found.as_slice() {
        [id] => Ok((*id).clone()),
        [] => {
            let names: Vec<&str> = clusters.iter().map(|(_, name)| name.as_str()).collect();
            Err(not_there("cluster", given, &names, "doctl kubernetes cluster list"))
        }
        several => {
            Err(Trouble::refused(format!("DigitalOcean has {} clusters named `{given}`", several.len())).help(format!(
                "give the id of the one that is meant: {}",
                several.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", ")
            )))
        }
    }
}

fn not_there(what: &str, name: &str, names: &[&str], command: &str) -> Trouble {
    let trouble = Trouble::refused(format!("DigitalOcean has no {what} named `{name}`"));
    let near = nearest(name, names);
    let trouble = if near.is_empty() { trouble } else { trouble.help(format!("there are: {}", near.join(", "))) };
    trouble.help(format!("see all:   {command}"))
}

/// Those that share the longest beginning come first.
fn nearest<'a>(wanted: &str, offered: &[&'a str]) -> Vec<&'a str> {
    let shared = |text: &str| text.bytes().zip(wanted.bytes()).take_while(|(a, b)| a == b).count();
    let mut sorted = offered.to_vec();
    sorted.sort_by_key(|text| (std::cmp::Reverse(shared(text)), text.len().abs_diff(wanted.len())));
    sorted.truncate(SHOWN);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        serde_json::from_value(serde_json::json!({
            "versions": [{"slug": "1.33.1-do.0", "kubernetes_version": "1.33.1"}],
            "regions": [{"slug": "fra1", "name": "Frankfurt 1"}, {"slug": "nyc3", "name": "New York 3"}],
            "sizes": [{"slug": "s-2vcpu-4gb", "name": "a"}, {"slug": "s-4vcpu-8gb", "name": "b"}, {"slug": "c-2", "name": "c"}]
        }))
        .unwrap()
    }

    #[test]
    fn what_is_not_offered_is_refused_with_the_nearest() {
        assert!(size(&options(), "c-2").is_ok());
        let trouble = size(&options(), "s-2vcpu-5gb").unwrap_err();
        assert_eq!(trouble.to_string(), "DigitalOcean has no nodes of size `s-2vcpu-5gb`");
        assert_eq!(trouble.help_lines()[0], "the nearest that it offers: s-2vcpu-4gb, s-4vcpu-8gb, c-2");
        assert!(region(&options(), "fra1").is_ok());
        assert_eq!(region(&options(), "fra2").unwrap_err().help_lines()[0], "the nearest that it offers: fra1, nyc3");
        assert_eq!(version(&options(), "v1.33.1", None).unwrap(), "1.33.1-do.0");
    }
}
