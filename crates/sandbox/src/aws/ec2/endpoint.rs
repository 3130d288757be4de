//! VPC endpoints: gateways, which are routes to a service, and interfaces in subnets.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filter::{Filter, one};
use super::network_interface::{self, Attachment, NewInterface};
use super::resource::{Common, Cx, Names, Resource, describe_by, done, kept, named, shown, time};
use super::route_table::RouteTable;
use super::security_group::{self, SecurityGroup};
use super::subnet::Subnet;
use super::vpc::Vpc;
use super::{endpoint_service, prefix_list};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError, fail};
use crate::clock::SimTime;

const OPEN: &str =
    r#"{"Version":"2008-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}]}"#;
const OWNER: &str = "amazon-aws";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Endpoint {
    pub common: Common,
    pub vpc: String,
    /// `com.amazonaws.REGION.s3`
    pub service: String,
    /// `Gateway` or `Interface`.
    pub kind: String,
    pub policy: String,
    pub route_tables: Vec<String>,
    /// Subnets, each with the interface that stands in it.
    pub subnets: Vec<(String, String)>,
    pub groups: Vec<String>,
    pub private_dns: bool,
    pub ip_address_type: String,
    pub dns_record_ip_type: String,
    pub available_at: SimTime,
}

kept!(Endpoint, "aws.vpc_endpoint", endpoints);

impl Endpoint {
    fn is_gateway(&self) -> bool {
        self.kind == "Gateway"
    }

    fn state(&self, now: SimTime) -> &'static str {
        match self.common.gone_at {
            Some(_) => "deleting",
            None if now < self.available_at => "pending",
            None => "available",
        }
    }

    /// What its routes lead to, while it has any.
    pub fn prefix_list(&self) -> Option<String> {
        let alive = self.is_gateway() && self.common.gone_at.is_none();
        prefix_list::by_service(&self.common.region, &self.service).filter(|_| alive).map(|list| list.id)
    }

    fn dns_entries(&self, cx: &Cx) -> Vec<Value> {
        if self.is_gateway() {
            return vec![];
        }
        let region = &self.common.region;
        let short = self.service.rsplit('.').next().unwrap_or_default();
        let random = self.common.id.trim_start_matches("vpce-").get(9..).unwrap_or_default();
        let entry = |name: String| json!({"dnsName": name, "hostedZoneId": "Z1HUB23UULQXV"});
        let mut entries = vec![entry(format!("{}-{random}.{short}.{region}.vpce.amazonaws.com", self.common.id))];
        for (subnet, _) in &self.subnets {
            if let Some(subnet) = cx.store.subnets.get(subnet) {
                let (id, zone) = (&self.common.id, &subnet.zone);
                entries.push(entry(format!("{id}-{random}-{zone}.{short}.{region}.vpce.amazonaws.com")));
            }
        }
        let private = endpoint_service::private_dns(region, &self.service).filter(|_| self.private_dns);
        entries.extend(private.map(entry));
        entries
    }
}

impl Resource for Endpoint {
    const NAMES: Names = Names {
        kind: "vpc-endpoint",
        prefix: "vpce",
        ids: "VpcEndpointId",
        set: "vpcEndpointSet",
        not_found: "InvalidVpcEndpointId.NotFound",
        malformed: "InvalidVpcEndpointId.Malformed",
        title: "The Vpc Endpoint Id '{}' does not exist",
        indexed: &[("vpc-id", "vpc")],
    };
    const FILTERS: &'static [Filter<Endpoint>] = &[
        ("vpc-endpoint-id", |endpoint, _| one(&endpoint.common.id)),
        ("vpc-endpoint-state", |endpoint, cx| one(endpoint.state(cx.now))),
        ("vpc-endpoint-type", |endpoint, _| one(&endpoint.kind)),
        ("vpc-id", |endpoint, _| one(&endpoint.vpc)),
        ("service-name", |endpoint, _| one(&endpoint.service)),
        ("service-region", |endpoint, _| one(&endpoint.common.region)),
        ("ip-address-type", |endpoint, _| one(&endpoint.ip_address_type)),
    ];

    fn indexes(&self) -> Vec<String> {
        let mut keys = vec![format!("vpc:{}", self.vpc)];
        keys.extend(self.route_tables.iter().map(|id| format!("rtb:{id}")));
        keys.extend(self.groups.iter().map(|id| format!("group:{id}")));
        keys
    }

    fn show(&self, cx: &Cx) -> Value {
        let gateway = self.is_gateway();
        let dns =
            json!({"dnsRecordIpType": self.dns_record_ip_type, "privateDnsOnlyForInboundResolverEndpoint": false});
        json!({
            "vpcEndpointId": self.common.id,
            "vpcEndpointType": self.kind,
            "vpcId": self.vpc,
            "serviceName": self.service,
            "serviceRegion": self.common.region,
            "state": self.state(cx.now),
            "policyDocument": self.policy,
            "routeTableIdSet": self.route_tables,
            "subnetIdSet": self.subnets.iter().map(|(subnet, _)| subnet).collect::<Vec<_>>(),
            "networkInterfaceIdSet": self.subnets.iter().map(|(_, interface)| interface).collect::<Vec<_>>(),
            "groupSet": security_group::show_names(cx, &self.groups),
            "ipAddressType": (!gateway).then_some(&self.ip_address_type),
            "dnsOptions": (!gateway).then_some(dns),
            "privateDnsEnabled": self.private_dns,
            "requesterManaged": false,
            "dnsEntrySet": self.dns_entries(cx),
            "creationTimestamp": time(self.common.created),
            "ownerId": cx.account,
        })
    }

    fn facts(&self, now: SimTime) -> Value {
        json!({"vpc": self.vpc, "service": self.service, "status": self.state(now)})
    }
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let vpc = named::<Vpc>(ask, "VpcId")?.common.id.clone();
    let service = ask.input.required("ServiceName")?.to_owned();
    let kind = ask.input.text("VpcEndpointType").unwrap_or("Gateway").to_owned();
    if !matches!(kind.as_str(), "Gateway" | "Interface") {
        return fail("InvalidParameter", format!("The sandbox has no endpoints of type {kind}"));
    }
    if !endpoint_service::exists(ask.region, &service, &kind) {
        return fail("InvalidServiceName", format!("The Vpc Endpoint Service '{service}' does not exist"));
    }
    let policy = match ask.input.text("PolicyDocument").filter(|text| !text.is_empty()) {
        Some(text) => check_policy(text)?,
        None => OPEN.to_owned(),
    };
    let common = Common::asked(ask, "vpce", "vpc-endpoint")?;
    let available_at = if ask.effects().stuck { SimTime::NEVER } else { ask.in_seconds(4, 8) };
    let text = |name: &str, default: &str| ask.input.text(name).unwrap_or(default).to_owned();
    let (wanted, gateway) = (Wanted::read(ask, ""), kind == "Gateway");
    let endpoint = Endpoint {
        vpc,
        service,
        policy,
        route_tables: vec![],
        subnets: vec![],
        groups: vec![],
        private_dns: ask.input.flag("PrivateDnsEnabled").unwrap_or(!gateway) && !gateway,
        ip_address_type: text("IpAddressType", "ipv4"),
        dns_record_ip_type: text("DnsOptions.DnsRecordIpType", "ipv4"),
        available_at,
        kind,
        common,
    };
    let endpoint = wanted.add_to(ask, endpoint)?;
    let mut answer = shown(&endpoint, &Cx::of(ask));
    if !gateway {
        answer["state"] = json!("pending");
    }
    ask.store().ec2.endpoints.insert(endpoint);
    Ok(json!({"vpcEndpoint": answer, "clientToken": ask.input.text("ClientToken")}))
}

fn check_policy(text: &str) -> Answer<String> {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(_)) => Ok(text.to_owned()),
        _ => fail("InvalidPolicyDocument", "The policy document is not valid JSON"),
    }
}

/// What a call names for an endpoint: tables, subnets and groups.
struct Wanted {
    tables: Vec<String>,
    subnets: Vec<String>,
    groups: Vec<String>,
}

impl Wanted {
    fn read(ask: &Ask, prefix: &str) -> Wanted {
        let texts = |name: &str| ask.input.texts(&format!("{prefix}{name}")).into_iter().map(str::to_owned).collect();
        Wanted { tables: texts("RouteTableId"), subnets: texts("SubnetId"), groups: texts("SecurityGroupId") }
    }

    /// Gives an endpoint the tables, subnets and groups; all must be of its VPC.
    fn add_to(self, ask: &mut Ask, mut endpoint: Endpoint) -> Answer<Endpoint> {
        let cx = Cx::of(ask);
        let other =
            |id: &str| AwsError::new(400, "InvalidParameter", format!("{id} does not belong to VPC {}", endpoint.vpc));
        for id in &self.tables {
            let table = cx.require::<RouteTable>(id)?;
            if table.vpc != endpoint.vpc {
                return Err(AwsError::new(400, "InvalidRouteTableId.NotFound", other(id).message));
            }
            let same = |one: &Endpoint| one.service == endpoint.service && one.common.gone_at.is_none();
            if let Some(list) = endpoint.prefix_list()
                && cx.store.endpoints.find(&format!("rtb:{id}")).any(same)
            {
                let message = format!("route table {id} already has a route with destination-prefix-list-id {list}");
                return fail("RouteAlreadyExists", message);
            }
        }
        for id in &self.groups {
            if cx.require::<SecurityGroup>(id)?.vpc != endpoint.vpc {
                return Err(other(id));
            }
        }
        for id in &self.subnets {
            let subnet = cx.require::<Subnet>(id)?;
            let taken =
                |(own, _): &(String, String)| cx.store.subnets.get(own).is_some_and(|own| own.zone == subnet.zone);
            if subnet.vpc != endpoint.vpc {
                return Err(other(id));
            }
            if endpoint.subnets.iter().any(taken) {
                let message = format!("Found another VPC endpoint subnet in the availability zone of {id}");
                return fail("DuplicateSubnetsInSameZone", message);
            }
        }
        endpoint.groups.extend(self.groups);
        if endpoint.groups.is_empty() && !endpoint.is_gateway() {
            endpoint.groups.extend(security_group::default_of(cx.store, &endpoint.vpc));
        }
        endpoint.route_tables.extend(self.tables);
        let now = ask.now();
        for subnet in self.subnets {
            let new = NewInterface {
                groups: endpoint.groups.clone(),
                description: format!("VPC Endpoint Interface {}", endpoint.common.id),
                interface_type: "vpc_endpoint".into(),
                requester: Some(OWNER.into()),
                attachment: Some(Attachment::new(None, OWNER, 1)),
                ..NewInterface::default()
            };
            let interface = network_interface::add(&mut ask.store().ec2, &subnet, new, now)?;
            endpoint.subnets.push((subnet, interface));
        }
        Ok(endpoint)
    }
}

pub fn modify(ask: &mut Ask) -> Answer<Value> {
    let endpoint = named::<Endpoint>(ask, "VpcEndpointId")?;
    let (id, mut changed) = (endpoint.common.id.clone(), endpoint.clone());
    let gone = Wanted::read(ask, "Remove");
    changed.route_tables.retain(|table| !gone.tables.contains(table));
    changed.groups.retain(|group| !gone.groups.contains(group));
    let dropped: Vec<String> = changed
        .subnets
        .iter()
        .filter(|(subnet, _)| gone.subnets.contains(subnet))
        .map(|(_, eni)| eni.clone())
        .collect();
    changed.subnets.retain(|(subnet, _)| !gone.subnets.contains(subnet));
    if let Some(policy) = ask.input.text("PolicyDocument").filter(|text| !text.is_empty()) {
        changed.policy = check_policy(policy)?;
    }
    if ask.input.flag("ResetPolicy") == Some(true) {
        changed.policy = OPEN.to_owned();
    }
    changed.private_dns = ask.input.flag("PrivateDnsEnabled").unwrap_or(changed.private_dns);
    let set = |name: &str, to: &mut String| *to = ask.input.text(name).map_or_else(|| to.clone(), str::to_owned);
    set("IpAddressType", &mut changed.ip_address_type);
    set("DnsOptions.DnsRecordIpType", &mut changed.dns_record_ip_type);
    let mut wanted = Wanted::read(ask, "Add");
    wanted.tables.retain(|table| !changed.route_tables.contains(table));
    wanted.groups.retain(|group| !changed.groups.contains(group));
    wanted.subnets.retain(|subnet| !changed.subnets.iter().any(|(own, _)| own == subnet));
    let changed = wanted.add_to(ask, changed)?;
    let store = &mut ask.store().ec2;
    dropped.iter().for_each(|interface| _ = store.network_interfaces.remove(interface));
    for (_, interface) in &changed.subnets {
        store.network_interfaces.update(interface, |eni| eni.groups = changed.groups.clone());
    }
    store.endpoints.update(&id, |endpoint| *endpoint = changed);
    done()
}

/// What cannot be deleted is told in the answer, not as an error.
pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let ids: Vec<String> = ask.input.texts("VpcEndpointId").into_iter().map(str::to_owned).collect();
    if ids.is_empty() {
        return Err(AwsError::missing("VpcEndpointId"));
    }
    let mut unsuccessful = Vec::new();
    for id in ids {
        let Some(endpoint) = Cx::of(ask).get::<Endpoint>(&id) else {
            let message = format!("The VPC endpoint ID '{id}' does not exist");
            let error = json!({"code": "InvalidVpcEndpoint.NotFound", "message": message});
            unsuccessful.push(json!({"resourceId": id, "error": error}));
            continue;
        };
        let (gateway, interfaces) = (endpoint.is_gateway(), endpoint.subnets.clone());
        let gone = match (gateway, ask.effects().stuck) {
            (_, true) => SimTime::NEVER,
            (true, _) => ask.in_seconds(2, 5),
            (false, _) => ask.in_seconds(30, 60),
        };
        let store = &mut ask.store().ec2;
        for (_, interface) in interfaces {
            store.network_interfaces.update(&interface, |eni| eni.common.gone_at = Some(gone));
        }
        store.endpoints.update(&id, |endpoint| {
            endpoint.common.gone_at.get_or_insert(gone);
        });
    }
    Ok(json!({"unsuccessful": unsuccessful}))
}

/// Pages may be as small as one wants.
pub fn describe_all(ask: &mut Ask) -> Answer<Value> {
    describe_by::<Endpoint>(ask, (1, 1000))
}
