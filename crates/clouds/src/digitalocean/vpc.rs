//! `digitalocean.vpc`: a private network in a region.

use super::client::Client;
use super::errors::taken;
use super::wire::{Vpc, VpcCreate, VpcUpdate};
use crate::props::{flag, text};
use async_trait::async_trait;
use berth_engine::FieldChange;
use berth_engine::handler::{Class, Handler, Outcome, Trouble};
use berth_engine::unit::{Change, Field, Observed, Op, Phase, Props, Typical, Waiting};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const FIELDS: &[Field] = &[
    Field { name: "vpc_name", change: Change::InPlace },
    Field { name: "description", change: Change::InPlace },
    Field { name: "region", change: Change::Replace },
    Field { name: "ip_range_cidr", change: Change::Replace },
    Field { name: "is_default_for_region", change: Change::InPlace },
];

pub struct VpcHandler {
    pub client: Arc<Client>,
}

pub fn observed(vpc: Vpc) -> Observed {
    let mut props = Props::new();
    props.insert("name".into(), json!(vpc.name));
    props.insert("vpc_name".into(), json!(vpc.name));
    props.insert("description".into(), json!(vpc.description));
    props.insert("region".into(), json!(vpc.region));
    props.insert("ip_range_cidr".into(), json!(vpc.ip_range));
    props.insert("is_default_for_region".into(), json!(vpc.default));
    let mut outputs = Props::new();
    outputs.insert("ip_range".into(), json!(vpc.ip_range));
    Observed { id: vpc.id, props, outputs, phase: Phase::Ready }
}

#[async_trait]
impl Handler for VpcHandler {
    fn fields(&self) -> &'static [Field] {
        FIELDS
    }

    fn typical(&self, _op: Op, _props: &Props, _changes: &[FieldChange]) -> Typical {
        Some(Duration::from_secs(3))
    }

    /// The name may be that of the resource, which may have more characters than DigitalOcean takes.
    async fn check(&self, desired: Props, observed: Option<&Observed>) -> Outcome<Props> {
        let name = text(&desired, "name");
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        if observed.is_some() || name.chars().all(fits) {
            return Ok(desired);
        }
        Err(Trouble::refused(format!("DigitalOcean does not take `{name}` as the name of a network"))
            .help("give it another in spec.vpcName: letters, digits, `-` and `.`"))
    }

    async fn read(&self, id: &str, _props: &Props) -> Outcome<Option<Observed>> {
        Ok(self.client.api.vpc(id).await?.map(observed))
    }

    /// Names of networks are unique in an account, so that the name finds both what was made and what is in the way.
    async fn find(&self, desired: &Props, token: Option<&str>) -> Outcome<Option<Observed>> {
        let (name, region) = (text(desired, "name"), text(desired, "region"));
        let is_it = |vpc: &Vpc| vpc.name.eq_ignore_ascii_case(name) && (token.is_none() || vpc.region == region);
        Ok(self.client.vpcs().await?.iter().find(|vpc| is_it(vpc)).cloned().map(observed))
    }

    async fn create(&self, desired: &Props, _token: &str, _replacing: bool) -> Outcome<String> {
        let name = text(desired, "name");
        let body = VpcCreate {
            name,
            region: text(desired, "region"),
            description: text(desired, "description"),
            ip_range: text(desired, "ip_range_cidr"),
        };
        match self.client.api.create_vpc(&body).await {
            Ok(vpc) => Ok(vpc.id),
            Err(trouble) if matches!(trouble.class, Class::Taken { .. }) => {
                let other = self.find(desired, None).await?.map(|other| other.id);
                Err(taken("network", name, other))
            }
            Err(trouble) => Err(trouble),
        }
    }

    async fn update(&self, observed: &Observed, desired: &Props, _fields: &[&str]) -> Outcome<()> {
        // Without a name of its own in the manifest, an object that was taken over keeps the one it has.
        let renamed = text(desired, "vpc_name");
        let body = VpcUpdate {
            name: if renamed.is_empty() { text(&observed.props, "name") } else { renamed },
            description: text(desired, "description"),
            default: flag(desired, "is_default_for_region").then_some(true),
        };
        self.client.api.update_vpc(&observed.id, &body).await
    }

    async fn delete(&self, observed: &Observed, _props: &Props, _drain: bool) -> Outcome<()> {
        let name = text(&observed.props, "name");
        if flag(&observed.props, "is_default_for_region") {
            let region = text(&observed.props, "region");
            return Err(Trouble::refused(format!(
                "`{name}` is the default network of {region}, which cannot be deleted"
            ))
            .help("make another network the region's default first: spec.isDefaultForRegion: true there"));
        }
        self.client.api.delete_vpc(&observed.id).await.map_err(|trouble| match trouble.class {
            Class::Retry { .. } => trouble
                .help(format!("see what is still in it:   doctl vpcs get {}; doctl compute droplet list", observed.id)),
            _ => trouble,
        })
    }

    fn overdue(&self, id: &str, _: &Waiting) -> Vec<String> {
        vec![format!("see what is still in it:   doctl vpcs get {id}; doctl compute droplet list")]
    }
}
