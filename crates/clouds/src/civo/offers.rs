//! What Civo offers: regions, versions, sizes, applications. Asked once for a while, since many units are checked against it.

use super::api::Api;
use super::versions;
use super::wire::Application;
use crate::recent::Recent;
use berth_engine::handler::{Class, Outcome, Trouble};
use std::sync::Arc;
use std::time::Duration;

/// How long an answer is good for: capacity changes within minutes.
const KEPT_FOR: Duration = Duration::from_secs(300);

#[derive(Default)]
pub struct Offers {
    regions: Recent<Vec<(String, bool)>>,
    versions: Recent<Vec<String>>,
    sizes: Recent<Vec<String>>,
    applications: Recent<Vec<Application>>,
}

impl Offers {
    /// Region codes in lower case, and whether each is out of capacity.
    pub async fn regions(&self, api: &Api) -> Outcome<Arc<Vec<(String, bool)>>> {
        let fetch = || async {
            let regions = api.regions().await?;
            Ok(regions.into_iter().map(|r| (r.code.to_ascii_lowercase(), r.out_of_capacity)).collect())
        };
        self.regions.get("", KEPT_FOR, fetch).await
    }

    /// Whether a region is there, and has room where room is needed.
    pub async fn check_region(&self, api: &Api, region: &str, needs_room: bool) -> Outcome<()> {
        let regions = self.regions(api).await?;
        match regions.iter().find(|(code, _)| code.eq_ignore_ascii_case(region)) {
            None => {
                let codes: Vec<&str> = regions.iter().map(|(code, _)| code.as_str()).collect();
                Err(Trouble::refused(format!("Civo has no region `{region}` for this account"))
                    .help(format!("it has: {}", codes.join(", "))))
            }
            Some((_, true)) if needs_room => {
                let free: Vec<&str> = regions.iter().filter(|(_, full)| !full).map(|(code, _)| code.as_str()).collect();
                Err(Trouble::new(Class::Quota, format!("Civo's region {region} is out of capacity"))
                    .help(format!("choose another in spec.region ({}), or try again later", free.join(", "))))
            }
            Some(_) => Ok(()),
        }
    }

    /// The offered version that is meant.
    pub async fn version(&self, api: &Api, region: &str, wanted: &str) -> Outcome<String> {
        let fetch = || async {
            let offered = api.versions(region).await?.into_iter();
            let k3s = offered.filter(|v| v.cluster_type.is_empty() || v.cluster_type == "k3s");
            Ok(k3s.map(|v| v.version).collect())
        };
        let offered = self.versions.get(region, KEPT_FOR, fetch).await?;
        match versions::resolve(wanted, &offered) {
            Some(version) => Ok(version),
            None => {
                let nearest = versions::nearest(wanted, &offered, 3);
                let wanted = versions::exact(wanted);
                Err(Trouble::refused(format!("Civo does not offer Kubernetes {wanted} in {region}"))
                    .help(format!("the nearest it offers: {}", nearest.join(", ")))
                    .help("see all of them:   civo kubernetes versions"))
            }
        }
    }

    pub async fn check_size(&self, api: &Api, region: &str, size: &str) -> Outcome<()> {
        let fetch = || async {
            let sizes = api.sizes(region).await?.into_iter();
            let for_nodes = sizes.filter(|s| {
                s.kind.is_empty() || s.kind.eq_ignore_ascii_case("kubernetes") || s.name.contains(".kube.")
            });
            Ok(for_nodes.map(|s| s.name).collect())
        };
        let sizes = self.sizes.get(region, KEPT_FOR, fetch).await?;
        if sizes.iter().any(|name| name == size) {
            return Ok(());
        }
        let names: Vec<&str> = sizes.iter().map(String::as_str).take(12).collect();
        Err(Trouble::refused(format!("Civo has no size `{size}` for nodes in {region}"))
            .help(format!("it has: {}", names.join(", ")))
            .help("see all of them:   civo kubernetes size"))
    }

    /// Checks `name` or `name:plan`, and returns it as the marketplace spells it.
    pub async fn application(&self, api: &Api, region: &str, wanted: &str) -> Outcome<String> {
        let offered = self.applications.get(region, KEPT_FOR, || api.applications(region)).await?;
        let (name, plan) = wanted.split_once(':').map_or((wanted, None), |(name, plan)| (name, Some(plan)));
        let Some(application) = offered.iter().find(|a| a.name.eq_ignore_ascii_case(name)) else {
            let start = name.chars().next().unwrap_or_default().to_ascii_lowercase();
            let alike: Vec<&str> = offered
                .iter()
                .map(|a| a.name.as_str())
                .filter(|n| n.to_ascii_lowercase().starts_with(start))
                .take(5)
                .collect();
            let trouble = Trouble::refused(format!("Civo's marketplace has no application `{name}`"))
                .help("see all of them:   civo kubernetes applications list");
            return Err(if alike.is_empty() { trouble } else { trouble.help(format!("it has: {}", alike.join(", "))) });
        };
        let Some(plan) = plan else { return Ok(application.name.clone()) };
        match application.plans.iter().find(|p| p.label.eq_ignore_ascii_case(plan)) {
            Some(plan) => Ok(format!("{}:{}", application.name, plan.label)),
            None => {
                let plans: Vec<&str> = application.plans.iter().map(|p| p.label.as_str()).collect();
                let has = if plans.is_empty() { "it has none".into() } else { format!("it has: {}", plans.join(", ")) };
                Err(Trouble::refused(format!("the application `{}` has no plan `{plan}`", application.name)).help(has))
            }
        }
    }
}
