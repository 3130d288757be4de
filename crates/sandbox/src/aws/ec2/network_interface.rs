//! Network interfaces: those that callers make, and those of NAT gateways, endpoints, instances and clusters.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Tables;
use super::address::Address;
use super::filter::{Filter, one, some};
use super::resource::{Common, Cx, Names, Resource, done, kept, named, shown, time};
use super::security_group::{self, SecurityGroup};
use super::subnet::Subnet;
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::ids;
use crate::clock::SimTime;

const MAX_GROUPS: usize = 5;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NetworkInterface {
    pub common: Common,
    pub vpc: String,
    pub subnet: String,
    pub zone: String,
    pub zone_id: String,
    pub private_ip: String,
    pub mac: String,
    pub groups: Vec<String>,
    pub description: String,
    /// `interface`, `nat_gateway` or `vpc_endpoint`.
    pub interface_type: String,
    /// The service that made it and alone may delete it.
    pub requester: Option<String>,
    pub attachment: Option<Attachment>,
    pub source_dest_check: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attachment {
    pub id: String,
    pub instance: Option<String>,
    /// Who owns the instance: the account, or the service for those that callers do not see.
    pub owner: String,
    pub device_index: i64,
}

/// What an interface is made of; the rest follows from its subnet.
#[derive(Clone, Default)]
pub struct NewInterface {
    pub groups: Vec<String>,
    pub description: String,
    /// An ordinary one where it is empty.
    pub interface_type: String,
    pub requester: Option<String>,
    pub attachment: Option<Attachment>,
    pub private_ip: Option<Ipv4Addr>,
    pub tags: Tags,
}

impl Attachment {
    pub fn new(instance: Option<String>, owner: &str, device_index: i64) -> Attachment {
        Attachment { id: ids::new("eni-attach"), instance, owner: owner.to_owned(), device_index }
    }
}

kept!(NetworkInterface, "aws.network_interface", network_interfaces);

impl NetworkInterface {
    /// The public address that is associated with it.
    pub fn public_address<'a>(&self, store: &'a Tables) -> Option<&'a Address> {
        store.addresses.first(&format!("eni:{}", self.common.id))
    }

    fn status(&self) -> &'static str {
        if self.attachment.is_some() { "in-use" } else { "available" }
    }

    pub fn private_dns(&self) -> String {
        private_dns(&self.private_ip, &self.common.region)
    }

    fn show_association(&self, cx: &Cx) -> Value {
        let Some(address) = self.public_address(cx.store) else { return Value::Null };
        json!({"allocationId": address.common.id, "associationId": address.association_id(),
               "publicIp": address.public_ip, "publicDnsName": address.public_dns(), "ipOwnerId": cx.account})
    }
}

/// `ip-10-0-0-4.eu-central-1.compute.internal`
pub fn private_dns(ip: &str, region: &str) -> String {
    let dashed = ip.replace('.', "-");
    match region {
        "us-east-1" => format!("ip-{dashed}.ec2.internal"),
        region => format!("ip-{dashed}.{region}.compute.internal"),
    }
}

impl Resource for NetworkInterface {
    const NAMES: Names = Names {
        kind: "network-interface",
        prefix: "eni",
        ids: "NetworkInterfaceId",
        set: "networkInterfaceSet",
        not_found: "InvalidNetworkInterfaceID.NotFound",
        malformed: "InvalidNetworkInterfaceId.Malformed",
        title: "The networkInterface ID '{}' does not exist",
        indexed: &[
            ("subnet-id", "subnet"),
            ("group-id", "group"),
            ("vpc-id", "vpc"),
            ("attachment.instance-id", "instance"),
        ],
    };
    const FILTERS: &'static [Filter<NetworkInterface>] = &[
        ("network-interface-id", |eni, _| one(&eni.common.id)),
        ("vpc-id", |eni, _| one(&eni.vpc)),
        ("subnet-id", |eni, _| one(&eni.subnet)),
        ("availability-zone", |eni, _| one(&eni.zone)),
        ("availability-zone-id", |eni, _| one(&eni.zone_id)),
        ("group-id", |eni, _| eni.groups.clone()),
        ("group-name", |eni, cx| security_group::names(cx, &eni.groups)),
        ("description", |eni, _| one(&eni.description)),
        ("interface-type", |eni, _| one(&eni.interface_type)),
        ("mac-address", |eni, _| one(&eni.mac)),
        ("private-ip-address", |eni, _| one(&eni.private_ip)),
        ("addresses.private-ip-address", |eni, _| one(&eni.private_ip)),
        ("addresses.primary", |_, _| one(true)),
        ("addresses.association.public-ip", |eni, cx| some(eni.public_address(cx.store).map(|a| &a.public_ip))),
        ("addresses.association.owner-id", |eni, cx| some(eni.public_address(cx.store).map(|_| cx.account))),
        ("association.public-ip", |eni, cx| some(eni.public_address(cx.store).map(|a| &a.public_ip))),
        ("association.allocation-id", |eni, cx| some(eni.public_address(cx.store).map(|a| &a.common.id))),
        ("association.association-id", |eni, cx| some(eni.public_address(cx.store).and_then(|a| a.association_id()))),
        ("association.ip-owner-id", |eni, cx| some(eni.public_address(cx.store).map(|_| cx.account))),
        ("association.public-dns-name", |eni, cx| some(eni.public_address(cx.store).map(Address::public_dns))),
        ("attachment.attachment-id", |eni, _| some(eni.attachment.as_ref().map(|a| &a.id))),
        ("attachment.instance-id", |eni, _| some(eni.attachment.as_ref().and_then(|a| a.instance.as_ref()))),
        ("attachment.instance-owner-id", |eni, _| some(eni.attachment.as_ref().map(|a| &a.owner))),
        ("attachment.device-index", |eni, _| some(eni.attachment.as_ref().map(|a| a.device_index))),
        ("attachment.status", |eni, _| some(eni.attachment.as_ref().map(|_| "attached"))),
        ("attachment.delete-on-termination", |eni, _| some(eni.attachment.as_ref().map(|a| a.instance.is_some()))),
        ("private-dns-name", |eni, _| one(eni.private_dns())),
        ("requester-id", |eni, _| some(eni.requester.as_ref())),
        ("requester-managed", |eni, _| one(eni.requester.is_some())),
        ("source-dest-check", |eni, _| one(eni.source_dest_check)),
        ("status", |eni, _| one(eni.status())),
        ("ipv6-addresses.ipv6-address", |_, _| vec![]),
    ];

    fn indexes(&self) -> Vec<String> {
        let instance = self.attachment.as_ref().and_then(|attachment| attachment.instance.as_ref());
        let mut keys = vec![
            format!("vpc:{}", self.vpc),
            format!("subnet:{}", self.subnet),
            format!("ip:{}/{}", self.subnet, self.private_ip),
        ];
        keys.extend(self.groups.iter().map(|group| format!("group:{group}")));
        keys.extend(instance.map(|instance| format!("instance:{instance}")));
        keys
    }

    fn show(&self, cx: &Cx) -> Value {
        let association = self.show_association(cx);
        let attachment = self.attachment.as_ref().map(|attachment| {
            json!({"attachmentId": attachment.id, "instanceId": attachment.instance,
                   "instanceOwnerId": attachment.owner, "deviceIndex": attachment.device_index,
                   "networkCardIndex": 0, "status": "attached", "attachTime": time(self.common.created),
                   "deleteOnTermination": attachment.instance.is_some()})
        });
        json!({
            "networkInterfaceId": self.common.id,
            "ownerId": cx.account,
            "vpcId": self.vpc,
            "subnetId": self.subnet,
            "availabilityZone": self.zone,
            "availabilityZoneId": self.zone_id,
            "description": self.description,
            "interfaceType": self.interface_type,
            "macAddress": self.mac,
            "privateIpAddress": self.private_ip,
            "privateDnsName": self.private_dns(),
            "privateIpAddressesSet": [{"primary": true, "privateIpAddress": self.private_ip,
                                       "privateDnsName": self.private_dns(), "association": association}],
            "ipv6AddressesSet": [],
            "groupSet": security_group::show_names(cx, &self.groups),
            "requesterId": self.requester,
            "requesterManaged": self.requester.is_some(),
            "sourceDestCheck": self.source_dest_check,
            "status": self.status(),
            "association": association,
            "attachment": attachment,
        })
    }

    fn facts(&self, _: SimTime) -> Value {
        json!({"name": self.description, "vpc": self.vpc, "subnet": self.subnet})
    }
}

/// Makes an interface in a subnet. Anything but a NAT gateway's has at least the VPC's default group.
pub fn add(store: &mut Tables, subnet: &str, new: NewInterface, now: SimTime) -> Answer<String> {
    let Some(subnet) = store.subnets.get(subnet) else { return Err(super::resource::absent::<Subnet>(subnet)) };
    let private_ip = match new.private_ip {
        Some(ip) => wanted_ip(store, subnet, ip)?,
        None => free_ip(store, subnet)?,
    };
    let interface_type = if new.interface_type.is_empty() { "interface".to_owned() } else { new.interface_type };
    let mut groups = new.groups;
    if groups.is_empty() && interface_type != "nat_gateway" {
        groups.extend(security_group::default_of(store, &subnet.vpc));
    }
    let default = new.requester.is_some();
    let interface = NetworkInterface {
        common: Common { tags: new.tags, default, ..Common::made("eni", &subnet.common.region, now) },
        vpc: subnet.vpc.clone(),
        subnet: subnet.common.id.clone(),
        zone: subnet.zone.clone(),
        zone_id: subnet.zone_id.clone(),
        mac: mac(&private_ip),
        private_ip,
        groups,
        description: new.description,
        source_dest_check: interface_type != "nat_gateway",
        interface_type,
        requester: new.requester,
        attachment: new.attachment,
    };
    let id = interface.common.id.clone();
    store.network_interfaces.insert(interface);
    Ok(id)
}

fn mac(ip: &str) -> String {
    let bytes = ip.parse::<Ipv4Addr>().map(|ip| ip.octets()).unwrap_or_default();
    let end: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("02:42:{}", end.join(":"))
}

fn taken(store: &Tables, subnet: &Subnet, ip: Ipv4Addr) -> bool {
    store.network_interfaces.count(&format!("ip:{}/{ip}", subnet.common.id)) > 0
}

fn wanted_ip(store: &Tables, subnet: &Subnet, ip: Ipv4Addr) -> Answer<String> {
    if !subnet.cidr.parse::<Ipv4Net>().is_ok_and(|net| net.contains(&ip)) {
        return fail("InvalidParameterValue", format!("Address {ip} does not fall within the subnet's address range"));
    }
    match taken(store, subnet, ip) {
        true => fail("InvalidIPAddress.InUse", format!("Address {ip} is in use.")),
        false => Ok(ip.to_string()),
    }
}

fn free_ip(store: &Tables, subnet: &Subnet) -> Answer<String> {
    let used = store.network_interfaces.count(&format!("subnet:{}", subnet.common.id));
    let full = || {
        let message = format!(
            "There are not enough free addresses in subnet '{}' to satisfy the requested number of instances.",
            subnet.common.id
        );
        AwsError::new(400, "InsufficientFreeAddressesInSubnet", message)
    };
    let net = subnet.cidr.parse::<Ipv4Net>().map_err(|_| full())?;
    let (first, last) = (u32::from(net.network()) + 4, u32::from(net.broadcast()));
    let (start, count) = (used as u32 % (last - first), last - first);
    let candidates = (0..count).map(|at| Ipv4Addr::from(first + (start + at) % count));
    candidates.into_iter().find(|ip| !taken(store, subnet, *ip)).map(|ip| ip.to_string()).ok_or_else(full)
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let subnet = named::<Subnet>(ask, "SubnetId")?;
    let (id, vpc) = (subnet.common.id.clone(), subnet.vpc.clone());
    let tags = super::tags::given(&ask.input, "network-interface")?;
    let private_ip = match ask.input.text("PrivateIpAddress") {
        Some(text) => Some(text.parse().map_err(|_| bad_address(text))?),
        None => None,
    };
    let new = NewInterface {
        groups: groups_of(ask, &vpc)?,
        description: ask.input.text("Description").unwrap_or_default().to_owned(),
        private_ip,
        tags,
        ..NewInterface::default()
    };
    let now = ask.now();
    let id = add(&mut ask.store().ec2, &id, new, now)?;
    let cx = Cx::of(ask);
    Ok(json!({"networkInterface": shown(cx.require::<NetworkInterface>(&id)?, &cx)}))
}

fn bad_address(text: &str) -> Box<AwsError> {
    AwsError::new(400, "InvalidParameterValue", format!("Value ({text}) for parameter PrivateIpAddress is invalid."))
}

fn groups_of(ask: &Ask, vpc: &str) -> Answer<Vec<String>> {
    let (cx, ids) = (Cx::of(ask), ask.input.texts("SecurityGroupId"));
    if ids.len() > MAX_GROUPS {
        return fail(
            "SecurityGroupsPerInterfaceLimitExceeded",
            "The maximum number of security groups per interface has been reached.",
        );
    }
    let own = |id: &str| {
        let group = cx.require::<SecurityGroup>(id)?;
        match group.vpc == vpc {
            true => Ok(id.to_owned()),
            false => fail("InvalidGroup.NotFound", format!("The security group '{id}' does not exist in VPC '{vpc}'")),
        }
    };
    ids.into_iter().map(own).collect()
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let interface = named::<NetworkInterface>(ask, "NetworkInterfaceId")?;
    let id = interface.common.id.clone();
    if interface.requester.is_some() {
        return fail("OperationNotPermitted", "You do not have permission to access the specified resource.");
    }
    if interface.attachment.is_some() {
        return fail("InvalidNetworkInterface.InUse", format!("Network interface '{id}' is currently in use."));
    }
    ask.store().ec2.network_interfaces.remove(&id);
    done()
}

pub fn modify_attribute(ask: &mut Ask) -> Answer<Value> {
    let interface = named::<NetworkInterface>(ask, "NetworkInterfaceId")?;
    let (id, vpc) = (interface.common.id.clone(), interface.vpc.clone());
    let groups = groups_of(ask, &vpc)?;
    let description = ask.input.text("Description.Value").map(str::to_owned);
    let check = ask.input.flag("SourceDestCheck.Value");
    ask.store().ec2.network_interfaces.update(&id, |interface| {
        if !groups.is_empty() {
            interface.groups = groups;
        }
        interface.source_dest_check = check.unwrap_or(interface.source_dest_check);
        interface.description = description.unwrap_or_else(|| interface.description.clone());
    });
    done()
}
