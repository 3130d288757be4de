//! Services of type LoadBalancer get an address, and lose it when they are of that type no longer.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Api, Change};
use super::error::RealError;
use super::settled;

/// The networks that are set aside for documentation: no real host is ever meant.
const NETWORKS: [[u8; 3]; 3] = [[203, 0, 113], [198, 51, 100], [192, 0, 2]];

pub async fn sync(api: &Api, moment: Duration) -> Result<(), RealError> {
    let services = api.list("/api/v1/services").await?;
    let mut taken: BTreeSet<Ipv4Addr> = services.iter().filter_map(address).collect();
    for service in &services {
        let meta = |field: &str| service["metadata"][field].as_str().unwrap_or_default();
        let path = format!("/api/v1/namespaces/{}/services/{}/status", meta("namespace"), meta("name"));
        // A class names another controller than the cloud's.
        let ours = service["spec"]["type"] == "LoadBalancer" && service["spec"]["loadBalancerClass"].is_null();
        let balancer = match (ours, address(service)) {
            (true, None) if settled(service, moment) => {
                let Some(free) = free(&taken) else { continue };
                taken.insert(free);
                json!({"ingress": [{"ip": free}]})
            }
            (false, Some(_)) if service["spec"]["type"] != "LoadBalancer" => json!({"ingress": null}),
            _ => continue,
        };
        api.change(Change::Merge, &path, &json!({"status": {"loadBalancer": balancer}})).await?;
    }
    Ok(())
}

fn address(service: &Value) -> Option<Ipv4Addr> {
    service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str()?.parse().ok()
}

fn free(taken: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
    let mut all = NETWORKS.into_iter().flat_map(|[a, b, c]| (1..=254).map(move |last| Ipv4Addr::new(a, b, c, last)));
    all.find(|address| !taken.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_differ_until_there_are_none() {
        let mut taken = BTreeSet::new();
        while let Some(address) = free(&taken) {
            taken.insert(address);
        }
        assert_eq!(taken.len(), 3 * 254);
        taken.remove(&Ipv4Addr::new(198, 51, 100, 7));
        assert_eq!(free(&taken), Some(Ipv4Addr::new(198, 51, 100, 7)));
    }
}
