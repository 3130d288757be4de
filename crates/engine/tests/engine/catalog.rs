//! What the fake cloud gives the engine: lowering of four kinds, and a handler for each unit type.

use crate::cloud::Cloud;
use async_trait::async_trait;
use berth_engine::handler::*;
use berth_engine::reference_property;
use berth_engine::unit::*;
use berth_model::pb::berth::civo::v1::*;
use berth_model::pb::berth::core::v1::StringValueOrRef;
use prost::Message;
use secrecy::SecretString;
use serde_json::{Value, json};
use std::sync::Arc;

pub struct Fake {
    cloud: Cloud,
    provider: Arc<FakeProvider>,
}

impl Fake {
    pub fn new(cloud: Cloud) -> Self {
        let of = |unit_type, fields, create_first, holds_data| FakeHandler {
            cloud: cloud.clone(),
            unit_type,
            fields,
            create_first,
            holds_data,
        };
        let handlers = vec![
            of("fake.network", NETWORK, false, false),
            of("fake.firewall", FIREWALL, false, false),
            of("fake.cluster", CLUSTER, false, true),
            of("fake.pool", POOL, true, false),
        ];
        Self { provider: Arc::new(FakeProvider { cloud: cloud.clone(), handlers }), cloud }
    }
}

const fn field(name: &'static str, change: Change) -> Field {
    Field { name, change }
}

const NETWORK: &[Field] =
    &[field("network_name", Change::Replace), field("cidr", Change::Replace), field("description", Change::InPlace)];
const FIREWALL: &[Field] =
    &[field("name", Change::Replace), field("network_id", Change::Replace), field("rules", Change::InPlace)];
const CLUSTER: &[Field] = &[
    field("cluster_name", Change::Replace),
    field("network_id", Change::Replace),
    field("version", Change::InPlace),
    field("size", Change::Roll),
    field("node_count", Change::InPlace),
];
const POOL: &[Field] = &[
    field("node_pool_name", Change::InPlace),
    field("cluster_id", Change::Replace),
    field("size", Change::Replace),
    field("node_count", Change::InPlace),
];

fn text(value: &Option<StringValueOrRef>) -> Value {
    value.as_ref().map(|value| reference_property(Some(value))).unwrap_or_default()
}

fn props(value: Value) -> Props {
    let mut props = value.as_object().cloned().unwrap_or_default();
    props.retain(|_, value| !value.is_null());
    props
}

fn pool(key: &str, name: &str, size: &str, count: u32, cluster: Value) -> Unit {
    let wanted = json!({"node_pool_name": name, "cluster_id": cluster, "size": size, "node_count": count});
    Unit::new(key, "fake.pool", "", props(wanted))
}

#[async_trait]
impl Catalog for Fake {
    fn cloud_title(&self, _: &str) -> &'static str {
        "the cloud"
    }
    fn name_properties(&self, _: &str) -> &'static [&'static str] {
        &["cluster_name", "network_name", "name", "node_pool_name"]
    }
    fn names_are_inner(&self, unit_type: &str) -> bool {
        unit_type == "fake.pool"
    }
    fn main_unit(&self, kind: &str) -> Option<&'static str> {
        let keys = [("CivoVpc", "network"), ("CivoFirewall", "firewall"), ("CivoKubernetesCluster", "cluster")];
        keys.iter().find(|(name, _)| *name == kind).map_or(Some("pool"), |(_, key)| Some(key))
    }
    fn summary_facts(&self, _: &str, observed: &Observed) -> SummaryFacts {
        let nodes = observed.props.get("node_count").and_then(Value::as_u64);
        SummaryFacts { nodes, ..SummaryFacts::default() }
    }
    fn lower(&self, input: &LowerInput<'_>) -> Result<Lowered, Trouble> {
        let mut lowered = Lowered::default();
        self.cloud.lock().asked.push(format!("lower {}", input.id.name));
        match input.id.kind.as_str() {
            "CivoVpc" => {
                let spec = CivoVpcSpec::decode(input.spec).unwrap();
                let wanted = json!({"network_name": spec.network_name, "cidr": spec.ip_range_cidr, "description": spec.description});
                lowered.units.push(Unit::new("network", "fake.network", "", props(wanted)));
                lowered.output("network_id", "network", "id");
            }
            "CivoFirewall" => {
                let spec = CivoFirewallSpec::decode(input.spec).unwrap();
                let wanted =
                    json!({"name": spec.name, "network_id": text(&spec.network_id), "rules": spec.inbound_rules.len()});
                lowered.units.push(Unit::new("firewall", "fake.firewall", "", props(wanted)));
                lowered.output("firewall_id", "firewall", "id");
            }
            "CivoKubernetesCluster" => {
                let spec = CivoKubernetesClusterSpec::decode(input.spec).unwrap();
                let default = spec.default_node_pool.unwrap();
                let wanted = json!({
                    "cluster_name": spec.cluster_name, "network_id": text(&spec.network), "version": spec.kubernetes_version,
                    "size": default.size, "node_count": default.node_count,
                });
                lowered.units.push(Unit::new("cluster", "fake.cluster", "", props(wanted)));
                for one in spec.additional_node_pools {
                    let key = format!("pool/{}", one.name);
                    let unit = pool(&key, &one.name, &one.size, one.node_count, output_of("cluster", "id"));
                    lowered.units.push(unit.after(["cluster"]));
                }
                lowered.output("cluster_id", "cluster", "id");
                lowered.output("kubeconfig", "cluster", "kubeconfig");
            }
            "CivoKubernetesNodePool" => {
                let spec = CivoKubernetesNodePoolSpec::decode(input.spec).unwrap();
                let cluster = input.targets["cluster"].output("cluster_id");
                lowered.units.push(pool("pool", &spec.node_pool_name, &spec.size, spec.node_count, cluster));
                lowered.output("node_pool_id", "pool", "id");
            }
            _ => lowered.output("identity", "", "identity"),
        }
        Ok(lowered)
    }

    async fn provider(&self, _: &str) -> Outcome<Arc<dyn Provider>> {
        if self.cloud.lock().dead {
            return Err(Trouble::refused("the process is dead"));
        }
        Ok(self.provider.clone())
    }
}

pub struct FakeProvider {
    cloud: Cloud,
    handlers: Vec<FakeHandler>,
}

#[async_trait]
impl Provider for FakeProvider {
    fn handler(&self, unit_type: &str) -> Option<&dyn Handler> {
        self.handlers.iter().find(|h| h.unit_type == unit_type).map(|h| h as &dyn Handler)
    }
    fn list_for(&self, _: &str) -> Option<&'static str> {
        Some("all")
    }
    async fn list(&self, _: &str, _: &str, page: u32) -> Outcome<Page> {
        let (items, more) = self.cloud.page(page, 50).await?;
        let listed = items.into_iter().filter_map(|(unit_type, observed)| {
            let unit_type = self.handlers.iter().find(|h| h.unit_type == unit_type)?.unit_type;
            Some(Listed { unit_type, observed })
        });
        Ok(Page { items: listed.collect(), next: more.then_some(page + 1), pages: None })
    }
    fn unanswered_limit(&self) -> std::time::Duration {
        std::time::Duration::from_secs(20)
    }

    fn calls(&self) -> u64 {
        self.cloud.lock().calls as u64
    }
    async fn identity(&self) -> Outcome<Identity> {
        Ok(Identity::new("fake", "1", "tester"))
    }
    async fn raise(&self, _: &str, _: &str, _: &str) -> Outcome<Raised> {
        Err(Trouble::refused("nothing is imported here"))
    }
    async fn raise_all(&self) -> Outcome<Vec<Raised>> {
        Ok(Vec::new())
    }
}

struct FakeHandler {
    cloud: Cloud,
    unit_type: &'static str,
    fields: &'static [Field],
    create_first: bool,
    holds_data: bool,
}

#[async_trait]
impl Handler for FakeHandler {
    fn fields(&self) -> &'static [Field] {
        self.fields
    }
    fn create_first(&self) -> bool {
        self.create_first
    }
    fn holds_data(&self) -> bool {
        self.holds_data
    }
    async fn check(&self, desired: Props, _: Option<&Observed>) -> Outcome<Props> {
        self.cloud.lock().asked.push(format!("check {}", self.unit_type));
        self.cloud.other("check").await.map(|()| desired)
    }
    async fn read(&self, id: &str, _: &Props) -> Outcome<Option<Observed>> {
        self.cloud.read(id).await
    }
    async fn find(&self, desired: &Props, token: Option<&str>) -> Outcome<Option<Observed>> {
        self.cloud.find(self.unit_type, desired, token).await
    }
    /// While the old object has the name, the new one has another.
    async fn create(&self, desired: &Props, token: &str, replacing: bool) -> Outcome<String> {
        let mut props = desired.clone();
        if replacing {
            let name = desired["node_pool_name"].as_str().unwrap_or_default();
            props.insert("node_pool_name".into(), json!(format!("{name}-{}", &token[token.len() - 8..])));
        }
        self.cloud.create(self.unit_type, props, token).await
    }
    async fn update(&self, observed: &Observed, desired: &Props, fields: &[&str]) -> Outcome<()> {
        self.cloud.update(&observed.id, desired, fields).await
    }
    async fn delete(&self, observed: &Observed, _: &Props, _: bool) -> Outcome<()> {
        self.cloud.delete(&observed.id).await
    }
    async fn ready(&self, observed: &Observed, _: &Props) -> Outcome<Readiness> {
        if self.unit_type != "fake.cluster" {
            return Ok(Readiness::default());
        }
        let waiting_for = self.cloud.gate(&observed.id).await?.map(Waiting::from);
        let secret = SecretString::from(format!("kubeconfig of {}", observed.id));
        let secrets = [("kubeconfig".to_owned(), secret)].into_iter().collect();
        Ok(Readiness { waiting_for, secrets, gate: Some("api".into()) })
    }
}
