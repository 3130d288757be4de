//! NAT gateways: pending for a minute and a half, and shown as deleted for an hour after they are.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::address::{Address, Association};
use super::filter::{Filter, one};
use super::network_interface::{self, Attachment, NetworkInterface, NewInterface};
use super::resource::{Common, Cx, Names, Resource, kept, named, shown, time};
use super::subnet::Subnet;
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::ids;
use crate::clock::SimTime;

/// How long a gateway that failed or was deleted is still shown.
const SHOWN_MS: i64 = 3_600_000;
/// Whose its interfaces are.
const OWNER: &str = "amazon-aws";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NatGateway {
    pub common: Common,
    pub vpc: String,
    pub subnet: String,
    /// `public` or `private`.
    pub connectivity: String,
    pub addresses: Vec<NatAddress>,
    /// Also when it fails, if it does.
    pub available_at: SimTime,
    pub failure: Option<(String, String)>,
    /// When the deletion was asked for, and when it is done.
    pub deletion: Option<(SimTime, SimTime)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NatAddress {
    pub allocation: Option<String>,
    pub association: Option<String>,
    pub public_ip: Option<String>,
    pub interface: String,
    pub private_ip: String,
    pub primary: bool,
}

kept!(NatGateway, "aws.nat_gateway", nat_gateways);

impl NatGateway {
    pub fn state(&self, now: SimTime) -> &'static str {
        match (self.deletion, &self.failure) {
            (Some((_, done)), _) if now >= done => "deleted",
            (Some(_), _) => "deleting",
            (None, _) if now < self.available_at => "pending",
            (None, Some(_)) => "failed",
            (None, None) => "available",
        }
    }

    pub fn is_alive(&self, now: SimTime) -> bool {
        matches!(self.state(now), "pending" | "available")
    }
}

impl NatAddress {
    fn show(&self, now: SimTime, gateway: &NatGateway) -> Value {
        let status = if now >= gateway.available_at { "succeeded" } else { "associating" };
        json!({"allocationId": self.allocation, "associationId": self.association, "publicIp": self.public_ip,
               "networkInterfaceId": self.interface, "privateIp": self.private_ip, "isPrimary": self.primary,
               "status": status})
    }
}

impl Resource for NatGateway {
    const NAMES: Names = Names {
        kind: "natgateway",
        prefix: "nat",
        ids: "NatGatewayId",
        set: "natGatewaySet",
        not_found: "NatGatewayNotFound",
        malformed: "NatGatewayMalformed",
        title: "NAT gateway {} was not found",
        indexed: &[("vpc-id", "vpc"), ("subnet-id", "subnet")],
    };
    const FILTERS: &'static [Filter<NatGateway>] = &[
        ("nat-gateway-id", |nat, _| one(&nat.common.id)),
        ("state", |nat, cx| one(nat.state(cx.now))),
        ("subnet-id", |nat, _| one(&nat.subnet)),
        ("vpc-id", |nat, _| one(&nat.vpc)),
        ("connectivity-type", |nat, _| one(&nat.connectivity)),
    ];

    fn indexes(&self) -> Vec<String> {
        vec![format!("vpc:{}", self.vpc), format!("subnet:{}", self.subnet)]
    }

    fn show(&self, cx: &Cx) -> Value {
        let failed = self.failure.as_ref().filter(|_| self.state(cx.now) == "failed");
        json!({
            "natGatewayId": self.common.id,
            "vpcId": self.vpc,
            "subnetId": self.subnet,
            "state": self.state(cx.now),
            "connectivityType": self.connectivity,
            "createTime": time(self.common.created),
            "deleteTime": self.deletion.map(|(asked, _)| time(asked)),
            "failureCode": failed.map(|(code, _)| code),
            "failureMessage": failed.map(|(_, message)| message),
            "natGatewayAddressSet": self.addresses.iter().map(|one| one.show(cx.now, self)).collect::<Vec<_>>(),
        })
    }

    fn facts(&self, now: SimTime) -> Value {
        json!({"vpc": self.vpc, "subnet": self.subnet, "status": self.state(now)})
    }

    fn is_gone(&self, now: SimTime) -> bool {
        self.state(now) == "deleted"
    }
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let subnet = named::<Subnet>(ask, "SubnetId")?;
    let (subnet, vpc, zone) = (subnet.common.id.clone(), subnet.vpc.clone(), subnet.zone.clone());
    let connectivity = ask.input.text("ConnectivityType").unwrap_or("public").to_owned();
    let mut common = Common::asked(ask, "nat", "natgateway")?;
    let allocations = allocations(ask, &connectivity)?;
    let failure = failure(ask, &vpc, &zone, &allocations);
    let available_at = if ask.effects().stuck { SimTime::NEVER } else { ask.in_seconds(90, 110) };
    let mut addresses = Vec::new();
    if failure.is_none() {
        let wanted: Vec<Option<String>> = if allocations.is_empty() {
            let more = ask.input.texts("SecondaryPrivateIpAddress").len();
            let more =
                ask.input.int("SecondaryPrivateIpAddressCount").map_or(more, |count| count.clamp(0, 31) as usize);
            vec![None; 1 + more]
        } else {
            allocations.into_iter().map(Some).collect()
        };
        let ips = private_ips(ask)?;
        for (at, allocation) in wanted.into_iter().enumerate() {
            let ip = ips.get(at).copied().flatten();
            addresses.push(attach(ask, &common.id, &subnet, allocation, ip, at == 0)?);
        }
    } else {
        common.gone_at = Some(available_at.plus_ms(SHOWN_MS));
    }
    let nat = NatGateway { common, vpc, subnet, connectivity, addresses, available_at, failure, deletion: None };
    let mut answer = shown(&nat, &Cx::of(ask));
    answer["state"] = json!("pending");
    ask.store().ec2.nat_gateways.insert(nat);
    Ok(json!({"natGateway": answer, "clientToken": ask.input.text("ClientToken")}))
}

/// The addresses that a public gateway is given, the primary one first.
fn allocations(ask: &Ask, connectivity: &str) -> Answer<Vec<String>> {
    let given = ask.input.text("AllocationId").into_iter().chain(ask.input.texts("SecondaryAllocationId"));
    let given: Vec<String> = given.map(str::to_owned).collect();
    match (connectivity, given.is_empty()) {
        ("public", true) => fail("MissingParameter", "The request must contain the parameter AllocationId"),
        ("private", false) => {
            fail("InvalidParameterCombination", "AllocationId cannot be used with a private NAT gateway")
        }
        ("public" | "private", _) => {
            given.iter().try_for_each(|id| Cx::of(ask).require::<Address>(id).map(drop))?;
            Ok(given)
        }
        (other, _) => {
            fail("InvalidParameterValue", format!("Value ({other}) for parameter connectivityType is invalid."))
        }
    }
}

/// Private addresses that were asked for, in the order of the gateway's addresses.
fn private_ips(ask: &Ask) -> Answer<Vec<Option<Ipv4Addr>>> {
    let primary = ask.input.text("PrivateIpAddress");
    let parse = |text: &str| text.parse().map_err(|_| bad_address(text));
    let mut all = vec![primary.map(parse).transpose()?];
    for text in ask.input.texts("SecondaryPrivateIpAddress") {
        all.push(Some(parse(text)?));
    }
    Ok(all)
}

fn bad_address(text: &str) -> Box<AwsError> {
    AwsError::new(400, "InvalidParameterValue", format!("Value ({text}) for parameter privateIpAddress is invalid."))
}

/// Why a gateway will not come up: AWS tells it later, by its state.
fn failure(ask: &Ask, vpc: &str, zone: &str, allocations: &[String]) -> Option<(String, String)> {
    let store = Cx::of(ask).store;
    let used = |id: &&String| store.addresses.get(id).is_some_and(|address| address.live_association(store).is_some());
    if ask.effects().out_of_capacity(ask.region) || ask.effects().out_of_capacity(zone) {
        return Some(("InternalError".into(), "Network interface creation failed: no capacity".into()));
    }
    if !allocations.is_empty() && store.internet_gateways.count(&format!("vpc:{vpc}")) == 0 {
        return Some(("Gateway.NotAttached".into(), format!("Network {vpc} has no Internet gateway attached")));
    }
    let taken = allocations.iter().find(used)?;
    Some(("Resource.AlreadyAssociated".into(), format!("Elastic IP address [{taken}] is already associated")))
}

/// Gives the gateway an interface of its own, with the public address if there is one.
fn attach(
    ask: &mut Ask,
    nat: &str,
    subnet: &str,
    allocation: Option<String>,
    private_ip: Option<Ipv4Addr>,
    primary: bool,
) -> Answer<NatAddress> {
    let now = ask.now();
    let new = NewInterface {
        description: format!("Interface for NAT Gateway {nat}"),
        interface_type: "nat_gateway".into(),
        requester: Some(OWNER.into()),
        attachment: Some(Attachment::new(None, OWNER, 1)),
        private_ip,
        ..NewInterface::default()
    };
    let store = &mut ask.store().ec2;
    let interface = network_interface::add(store, subnet, new, now)?;
    let private_ip = store.network_interfaces.get(&interface).map(|eni| eni.private_ip.clone()).unwrap_or_default();
    let association = allocation.as_ref().map(|_| ids::new("eipassoc"));
    let mut public_ip = None;
    if let (Some(allocation), Some(association)) = (&allocation, &association) {
        store.addresses.update(allocation, |address| {
            address.association = Some(Association { id: association.clone(), interface: interface.clone() });
            public_ip = Some(address.public_ip.clone());
        });
    }
    Ok(NatAddress { allocation, association, public_ip, interface, private_ip, primary })
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let nat = named::<NatGateway>(ask, "NatGatewayId")?;
    let (id, state) = (nat.common.id.clone(), nat.state(ask.now()));
    let interfaces: Vec<String> = nat.addresses.iter().map(|address| address.interface.clone()).collect();
    if matches!(state, "deleting" | "deleted") {
        return Ok(json!({"natGatewayId": id}));
    }
    let now = ask.now();
    let stuck = ask.effects().stuck;
    let gone = match (state, stuck) {
        (_, true) => SimTime::NEVER,
        ("failed", _) => now,
        _ => ask.in_seconds(40, 90),
    };
    let store = &mut ask.store().ec2;
    for interface in interfaces {
        if gone <= now {
            store.network_interfaces.remove(&interface);
        } else {
            store.network_interfaces.update(&interface, |eni: &mut NetworkInterface| eni.common.gone_at = Some(gone));
        }
    }
    store.nat_gateways.update(&id, |nat| {
        nat.deletion = Some((now, gone));
        nat.common.gone_at = Some(gone.plus_ms(SHOWN_MS));
    });
    Ok(json!({"natGatewayId": id}))
}

/// Adds secondary addresses: public ones by their allocations.
pub fn associate_addresses(ask: &mut Ask) -> Answer<Value> {
    let nat = named::<NatGateway>(ask, "NatGatewayId")?;
    let (id, subnet, vpc) = (nat.common.id.clone(), nat.subnet.clone(), nat.vpc.clone());
    if nat.connectivity != "public" {
        return fail("InvalidParameterValue", "Elastic IP addresses belong to public NAT gateways only");
    }
    let allocations: Vec<String> = ask.input.texts("AllocationId").into_iter().map(str::to_owned).collect();
    allocations.iter().try_for_each(|id| Cx::of(ask).require::<Address>(id).map(drop))?;
    if let Some((code, message)) = failure(ask, &vpc, "", &allocations) {
        return Err(AwsError::new(400, code, message));
    }
    let mut added = Vec::new();
    for allocation in allocations {
        added.push(attach(ask, &id, &subnet, Some(allocation), None, false)?);
    }
    with_more(ask, &id, added)
}

/// Adds secondary addresses to a private gateway.
pub fn assign_private(ask: &mut Ask) -> Answer<Value> {
    let nat = named::<NatGateway>(ask, "NatGatewayId")?;
    let (id, subnet) = (nat.common.id.clone(), nat.subnet.clone());
    let mut wanted = Vec::new();
    for text in ask.input.texts("PrivateIpAddress") {
        wanted.push(Some(text.parse().map_err(|_| bad_address(text))?));
    }
    let count = ask.input.int("PrivateIpAddressCount").unwrap_or_default().clamp(0, 31);
    wanted.extend((0..count).map(|_| None));
    let mut added = Vec::new();
    for ip in wanted {
        added.push(attach(ask, &id, &subnet, None, ip, false)?);
    }
    with_more(ask, &id, added)
}

fn with_more(ask: &mut Ask, id: &str, added: Vec<NatAddress>) -> Answer<Value> {
    ask.store().ec2.nat_gateways.update(id, |nat| nat.addresses.extend(added.clone()));
    let (cx, now) = (Cx::of(ask), ask.now());
    let nat = cx.require::<NatGateway>(id)?;
    let shown: Vec<_> = added.iter().map(|address| address.show(now, nat)).collect();
    Ok(json!({"natGatewayId": id, "natGatewayAddressSet": shown}))
}

/// Takes secondary addresses away, by their associations.
pub fn disassociate_addresses(ask: &mut Ask) -> Answer<Value> {
    let associations: Vec<String> = ask.input.texts("AssociationId").into_iter().map(str::to_owned).collect();
    take(ask, |address| address.association.as_ref().is_some_and(|own| associations.contains(own)))
}

pub fn unassign_private(ask: &mut Ask) -> Answer<Value> {
    let ips: Vec<String> = ask.input.texts("PrivateIpAddress").into_iter().map(str::to_owned).collect();
    take(ask, |address| ips.contains(&address.private_ip))
}

fn take(ask: &mut Ask, which: impl Fn(&NatAddress) -> bool) -> Answer<Value> {
    let nat = named::<NatGateway>(ask, "NatGatewayId")?;
    let id = nat.common.id.clone();
    let (gone, now): (Vec<NatAddress>, _) =
        (nat.addresses.iter().filter(|one| which(one)).cloned().collect(), ask.now());
    if gone.iter().any(|address| address.primary) {
        return fail("InvalidParameterValue", "The primary address of a NAT gateway cannot be taken away");
    }
    let shown: Vec<_> = gone.iter().map(|address| address.show(now, nat)).collect();
    let store = &mut ask.store().ec2;
    for address in &gone {
        store.network_interfaces.remove(&address.interface);
        if let Some(allocation) = &address.allocation {
            store.addresses.update(allocation, |address| address.association = None);
        }
    }
    store.nat_gateways.update(&id, |nat| nat.addresses.retain(|address| !which(address)));
    Ok(json!({"natGatewayId": id, "natGatewayAddressSet": shown}))
}
