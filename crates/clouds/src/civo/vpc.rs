//! `civo.network`: a private network.

use super::api::region_code;
use super::client::Client;
use super::wire::{Network, NewNetwork};
use crate::http::gone_is_none;
use crate::props::{optional_text, put, required_text};
use async_trait::async_trait;
use berth_engine::FieldChange;
use berth_engine::handler::{Handler, Outcome};
use berth_engine::unit::{Change, Field, Observed, Op, Phase, Props, Typical, Waiting};
use std::sync::Arc;
use std::time::Duration;

pub struct VpcHandler {
    pub client: Arc<Client>,
}

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
impl Handler for VpcHandler {
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
            self.client.offers.check_region(&self.client.api, required_text(&desired, "region")?, false).await?;
        }
        Ok(desired)
    }

    async fn read(&self, id: &str, props: &Props) -> Outcome<Option<Observed>> {
        let region = required_text(props, "region")?;
        Ok(gone_is_none(self.client.api.network(region, id).await)?.map(|network| observed(&network, region)))
    }

    /// Civo's networks have nothing that a token could be written on: the name, unique in its region, finds them.
    async fn find(&self, desired: &Props, _: Option<&str>) -> Outcome<Option<Observed>> {
        let region = required_text(desired, "region")?;
        let name = required_text(desired, "network_name")?;
        let networks = self.client.networks(region).await?;
        Ok(networks.iter().find(|network| network.label == name).map(|network| observed(network, region)))
    }

    async fn create(&self, desired: &Props, _: &str, _: bool) -> Outcome<String> {
        let region = required_text(desired, "region")?;
        let body = NewNetwork {
            label: required_text(desired, "network_name")?,
            region: &region_code(region),
            cidr_v4: optional_text(desired, "ip_range_cidr"),
        };
        self.client.api.create_network(region, &body).await
    }

    async fn update(&self, observed: &Observed, desired: &Props, _: &[&str]) -> Outcome<()> {
        let region = required_text(&observed.props, "region")?;
        let body =
            NewNetwork { label: required_text(desired, "network_name")?, region: &region_code(region), cidr_v4: None };
        self.client.api.update_network(region, &observed.id, &body).await
    }

    async fn delete(&self, observed: &Observed, props: &Props, _: bool) -> Outcome<()> {
        let region = required_text(props, "region").or_else(|_| required_text(&observed.props, "region"))?;
        let deleted = self.client.api.delete_network(region, &observed.id).await;
        let help = ["a network goes once nothing is left in it: clusters, firewalls, instances, load balancers"];
        self.client.or_in_use(deleted, region, |cluster| cluster.network_id == observed.id, &help).await
    }

    fn overdue(&self, id: &str, _: &Waiting) -> Vec<String> {
        vec![format!("look at it:   civo network show {id}")]
    }
}
