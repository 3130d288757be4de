//! `civo.network`: a private network.

use super::Shared;
use super::api::{Network, NewNetwork, region_code};
use super::props::{maybe, put, text};
use async_trait::async_trait;
use berth_engine::FieldChange;
use berth_engine::handler::{Handler, Outcome};
use berth_engine::unit::{Change, Field, Observed, Op, Phase, Props, Typical, Waiting};
use std::sync::Arc;
use std::time::Duration;

pub struct NetworkHandler(pub Arc<Shared>);

const FIELDS: &[Field] = &[
    Field { name: "network_name", change: Change::InPlace },
    Field { name: "region", change: Change::Replace },
    Field { name: "ip_range_cidr", change: Change::Replace },
];

pub fn observed(network: &Network, region: &str) -> Observed {
    let mut props = Props::new();
    put(&mut props, "network_name", network.label.as_str());
    put(&mut props, "region", region);
    put(&mut props, "ip_range_cidr", network.cidr.as_str());
    put(&mut props, "is_default_for_region", network.default);
    let mut outputs = Props::new();
    put(&mut outputs, "cidr_block", network.cidr.as_str());
    let phase = match network.status.to_ascii_lowercase().as_str() {
        "active" | "available" | "" => Phase::Ready,
        "deleting" => Phase::Deleting,
        "failed" | "error" => Phase::Failed { reason: format!("Civo says that the network is {}", network.status) },
        other => Phase::Pending(format!("making the network: {other}").into()),
    };
    Observed { id: network.id.clone(), props, outputs, phase }
}

#[async_trait]
impl Handler for NetworkHandler {
    fn fields(&self) -> &'static [Field] {
        FIELDS
    }

    fn typical(&self, op: Op, _: &Props, _: &[FieldChange]) -> Typical {
        match op {
            Op::Create | Op::Replace | Op::Delete => Some(Duration::from_secs(8)),
            _ => None,
        }
    }

    async fn check(&self, desired: Props, observed: Option<&Observed>) -> Outcome<Props> {
        if observed.is_none() {
            self.0.offers.check_region(&self.0.api, text(&desired, "region")?, false).await?;
        }
        Ok(desired)
    }

    async fn read(&self, id: &str, props: &Props) -> Outcome<Option<Observed>> {
        let region = text(props, "region")?;
        match self.0.api.network(region, id).await {
            Ok(network) => Ok(Some(observed(&network, region))),
            Err(trouble) if trouble.is_not_found() => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    /// Civo's networks have nothing that a token could be written on: the name, unique in its region, finds them.
    async fn find(&self, desired: &Props, _: Option<&str>) -> Outcome<Option<Observed>> {
        let region = text(desired, "region")?;
        let name = text(desired, "network_name")?;
        let networks = self.0.networks(region).await?;
        Ok(networks.iter().find(|network| network.label == name).map(|network| observed(network, region)))
    }

    async fn create(&self, desired: &Props, _: &str, _: bool) -> Outcome<String> {
        let region = text(desired, "region")?;
        let body = NewNetwork {
            label: text(desired, "network_name")?,
            region: &region_code(region),
            cidr_v4: maybe(desired, "ip_range_cidr"),
        };
        self.0.api.create_network(region, &body).await
    }

    async fn update(&self, observed: &Observed, desired: &Props, _: &[&str]) -> Outcome<()> {
        let region = text(&observed.props, "region")?;
        let body = NewNetwork { label: text(desired, "network_name")?, region: &region_code(region), cidr_v4: None };
        self.0.api.update_network(region, &observed.id, &body).await
    }

    async fn delete(&self, observed: &Observed, props: &Props, _: bool) -> Outcome<()> {
        let region = text(props, "region").or_else(|_| text(&observed.props, "region"))?;
        match self.0.api.delete_network(region, &observed.id).await {
            Ok(()) => Ok(()),
            Err(trouble) if trouble.is_not_found() => Err(trouble),
            Err(trouble) => {
                let id = &observed.id;
                let in_use = self.0.clusters_that(region, |cluster| cluster.network_id == *id).await;
                Err(super::in_use(trouble, in_use)
                    .help("a network goes once nothing is left in it: clusters, firewalls, instances, load balancers"))
            }
        }
    }

    fn overdue(&self, id: &str, _: &Waiting) -> Vec<String> {
        vec![format!("look at it:   civo network show {id}")]
    }
}
