//! Subnets.

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filter::{Filter, one, some};
use super::places::{self, Zone};
use super::resource::{Common, Cx, Names, Resource, done, in_use, kept, limit, named, shown};
use super::vpc::{Block, Vpc};
use super::{Tables, cidr};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::ids;
use crate::clock::SimTime;

const MAX_PER_VPC: usize = 200;
/// AWS keeps the first four addresses and the last.
const RESERVED: i64 = 5;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Subnet {
    pub common: Common,
    pub vpc: String,
    pub cidr: String,
    pub zone: String,
    pub zone_id: String,
    pub ipv6: Vec<Block>,
    pub ipv6_native: bool,
    pub map_public_ip: bool,
    pub assign_ipv6: bool,
    pub dns64: bool,
    pub hostname_type: String,
    pub dns_a_record: bool,
    pub dns_aaaa_record: bool,
    pub lni_index: Option<i64>,
    /// The default subnet of its zone.
    pub is_default: bool,
    pub available_at: SimTime,
}

kept!(Subnet, "aws.subnet", subnets);

impl Subnet {
    pub fn new(common: Common, vpc: String, cidr: String, zone: &Zone, available_at: SimTime) -> Subnet {
        Subnet {
            common,
            vpc,
            cidr,
            zone: zone.name.clone(),
            zone_id: zone.id.clone(),
            ipv6: vec![],
            ipv6_native: false,
            map_public_ip: false,
            assign_ipv6: false,
            dns64: false,
            hostname_type: "ip-name".into(),
            dns_a_record: false,
            dns_aaaa_record: false,
            lni_index: None,
            is_default: false,
            available_at,
        }
    }

    fn state(&self, now: SimTime) -> &'static str {
        if now >= self.available_at { "available" } else { "pending" }
    }

    pub fn overlaps(&self, range: &str) -> bool {
        let nets = (self.cidr.parse::<Ipv4Net>(), range.parse::<Ipv4Net>());
        matches!(nets, (Ok(own), Ok(other)) if cidr::overlap(&own, &other))
    }

    /// Whether any of its ranges is part of this one.
    pub fn is_within(&self, range: &str) -> bool {
        match (range.parse::<Ipv4Net>(), range.parse::<Ipv6Net>()) {
            (Ok(range), _) => self.cidr.parse::<Ipv4Net>().is_ok_and(|own| range.contains(&own)),
            (_, Ok(range)) => {
                let within = |block: &Block| block.cidr.parse::<Ipv6Net>().is_ok_and(|own| range.contains(&own));
                self.ipv6.iter().any(within)
            }
            _ => false,
        }
    }

    fn free_addresses(&self, cx: &Cx) -> i64 {
        let used = cx.store.network_interfaces.count(&format!("subnet:{}", self.common.id)) as i64;
        let all = self.cidr.parse::<Ipv4Net>().map_or(0, |net| 1i64 << (32 - net.prefix_len()));
        (all - RESERVED - used).max(0)
    }
}

impl Resource for Subnet {
    const NAMES: Names = Names {
        kind: "subnet",
        prefix: "subnet",
        ids: "SubnetId",
        set: "subnetSet",
        not_found: "InvalidSubnetID.NotFound",
        malformed: "InvalidSubnetID.Malformed",
        title: "The subnet ID '{}' does not exist",
        indexed: &[("vpc-id", "vpc")],
    };
    const FILTERS: &'static [Filter<Subnet>] = &[
        ("subnet-id", |subnet, _| one(&subnet.common.id)),
        ("subnet-arn", |subnet, cx| one(subnet.arn(cx))),
        ("vpc-id", |subnet, _| one(&subnet.vpc)),
        ("cidr", |subnet, _| one(&subnet.cidr)),
        ("cidrBlock", |subnet, _| one(&subnet.cidr)),
        ("cidr-block", |subnet, _| one(&subnet.cidr)),
        ("availability-zone", |subnet, _| one(&subnet.zone)),
        ("availabilityZone", |subnet, _| one(&subnet.zone)),
        ("availability-zone-id", |subnet, _| one(&subnet.zone_id)),
        ("availabilityZoneId", |subnet, _| one(&subnet.zone_id)),
        ("available-ip-address-count", |subnet, cx| one(subnet.free_addresses(cx))),
        ("default-for-az", |subnet, _| one(subnet.is_default)),
        ("defaultForAz", |subnet, _| one(subnet.is_default)),
        ("enable-dns64", |subnet, _| one(subnet.dns64)),
        ("enable-lni-at-device-index", |subnet, _| some(subnet.lni_index)),
        ("ipv6-native", |subnet, _| one(subnet.ipv6_native)),
        ("ipv6-cidr-block-association.ipv6-cidr-block", |subnet, _| {
            subnet.ipv6.iter().map(|block| block.cidr.clone()).collect()
        }),
        ("ipv6-cidr-block-association.association-id", |subnet, _| {
            subnet.ipv6.iter().map(|block| block.association.clone()).collect()
        }),
        ("ipv6-cidr-block-association.state", |subnet, _| some(subnet.ipv6.first().map(|_| "associated"))),
        ("map-customer-owned-ip-on-launch", |_, _| one(false)),
        ("map-public-ip-on-launch", |subnet, _| one(subnet.map_public_ip)),
        ("outpost-arn", |_, _| vec![]),
        ("customer-owned-ipv4-pool", |_, _| vec![]),
        ("private-dns-name-options-on-launch.hostname-type", |subnet, _| one(&subnet.hostname_type)),
        ("private-dns-name-options-on-launch.enable-resource-name-dns-a-record", |subnet, _| one(subnet.dns_a_record)),
        ("private-dns-name-options-on-launch.enable-resource-name-dns-aaaa-record", |subnet, _| {
            one(subnet.dns_aaaa_record)
        }),
        ("state", |subnet, cx| one(subnet.state(cx.now))),
    ];

    fn indexes(&self) -> Vec<String> {
        vec![format!("vpc:{}", self.vpc)]
    }

    fn show(&self, cx: &Cx) -> Value {
        json!({
            "subnetId": self.common.id,
            "subnetArn": self.arn(cx),
            "ownerId": cx.account,
            "vpcId": self.vpc,
            "state": self.state(cx.now),
            "cidrBlock": if self.ipv6_native { None } else { Some(&self.cidr) },
            "ipv6CidrBlockAssociationSet": self.ipv6.iter().map(Block::show_v6).collect::<Vec<_>>(),
            "ipv6Native": self.ipv6_native,
            "availabilityZone": self.zone,
            "availabilityZoneId": self.zone_id,
            "availableIpAddressCount": self.free_addresses(cx),
            "defaultForAz": self.is_default,
            "mapPublicIpOnLaunch": self.map_public_ip,
            "mapCustomerOwnedIpOnLaunch": false,
            "assignIpv6AddressOnCreation": self.assign_ipv6,
            "enableDns64": self.dns64,
            "enableLniAtDeviceIndex": self.lni_index,
            "privateDnsNameOptionsOnLaunch": {
                "hostnameType": self.hostname_type,
                "enableResourceNameDnsARecord": self.dns_a_record,
                "enableResourceNameDnsAAAARecord": self.dns_aaaa_record,
            },
            "blockPublicAccessStates": {"internetGatewayBlockMode": "off"},
        })
    }

    fn facts(&self, now: SimTime) -> Value {
        json!({"cidr": self.cidr, "vpc": self.vpc, "zone": self.zone, "status": self.state(now)})
    }
}

/// Adds a subnet, which belongs to its VPC's default ACL at first.
pub fn add(store: &mut Tables, subnet: Subnet) {
    let acl = store.network_acls.find(&format!("vpc:{}", subnet.vpc)).find(|acl| acl.is_default);
    if let Some(acl) = acl.map(|acl| acl.common.id.clone()) {
        store.network_acls.update(&acl, |acl| acl.associations.push((ids::new("aclassoc"), subnet.common.id.clone())));
    }
    store.subnets.insert(subnet);
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let common = Common::asked(ask, "subnet", "subnet")?;
    let vpc = named::<Vpc>(ask, "VpcId")?;
    let (id, key) = (vpc.common.id.clone(), format!("vpc:{}", vpc.common.id));
    let native = ask.input.flag("Ipv6Native") == Some(true);
    let range = if native { None } else { Some(free_range(ask, vpc)?) };
    let v6 = ask.input.text("Ipv6CidrBlock").map(|given| free_v6(ask, vpc, given)).transpose()?;
    if native && v6.is_none() {
        return fail("MissingParameter", "Either 'ipv6CidrBlock' or 'ipv6IpamPoolId' should be provided.");
    }
    let zone = wanted_zone(ask)?;
    if ask.effects().out_of_capacity(&zone.name) {
        return fail("InsufficientFreeAddressesInSubnet", format!("The sandbox has no capacity in {}", zone.name));
    }
    limit(ask.store().ec2.subnets.count(&key), MAX_PER_VPC, "SubnetLimitExceeded", "subnets of the VPC")?;
    let available_at = if ask.effects().stuck { SimTime::NEVER } else { ask.in_seconds(1, 2) };
    let range = range.map(|range| range.to_string()).unwrap_or_default();
    let mut subnet = Subnet::new(common, id, range, &zone, available_at);
    subnet.ipv6 = v6.into_iter().map(|cidr| Block::new("subnet-cidr-assoc", cidr)).collect();
    (subnet.ipv6_native, subnet.assign_ipv6) = (native, native);
    let answer = json!({"subnet": shown(&subnet, &Cx::of(ask))});
    add(&mut ask.store().ec2, subnet);
    Ok(answer)
}

/// The range that was asked for, inside the VPC and beside its other subnets.
fn free_range(ask: &Ask, vpc: &Vpc) -> Answer<Ipv4Net> {
    let text = ask.input.required("CidrBlock")?;
    let range = cidr::sized(text, "InvalidSubnet.Range")?;
    let inside = |block: &Block| block.cidr.parse::<Ipv4Net>().is_ok_and(|own| own.contains(&range));
    if !vpc.blocks.iter().any(inside) {
        return fail("InvalidSubnet.Range", format!("The CIDR '{text}' is invalid."));
    }
    let mut others = Cx::of(ask).store.subnets.find(&format!("vpc:{}", vpc.common.id));
    match others.any(|subnet| subnet.overlaps(&range.to_string())) {
        true => fail("InvalidSubnet.Conflict", format!("The CIDR '{text}' conflicts with another subnet")),
        false => Ok(range),
    }
}

fn free_v6(ask: &Ask, vpc: &Vpc, text: &str) -> Answer<String> {
    let range = cidr::v6(text, "ipv6CidrBlock")?;
    let inside = |block: &Block| block.cidr.parse::<Ipv6Net>().is_ok_and(|own| own.contains(&range));
    if !(44..=64).contains(&range.prefix_len()) || range.prefix_len() % 4 != 0 || !vpc.ipv6.iter().any(inside) {
        return fail("InvalidSubnet.Range", format!("The CIDR '{text}' is invalid."));
    }
    let mut others = Cx::of(ask).store.subnets.find(&format!("vpc:{}", vpc.common.id)).flat_map(|subnet| &subnet.ipv6);
    let overlaps = |own: Ipv6Net| own.contains(&range) || range.contains(&own);
    match others.any(|block| block.cidr.parse().is_ok_and(overlaps)) {
        true => fail("InvalidSubnet.Conflict", format!("The CIDR '{text}' conflicts with another subnet")),
        false => Ok(range.to_string()),
    }
}

fn wanted_zone(ask: &mut Ask) -> Answer<Zone> {
    let given = ask.input.text("AvailabilityZone").or_else(|| ask.input.text("AvailabilityZoneId"));
    let all = places::zones(ask.region);
    match given.filter(|zone| !zone.is_empty()) {
        Some(given) => places::zone(ask.region, given).ok_or_else(|| {
            let names: Vec<_> = all.iter().map(|zone| zone.name.as_str()).collect();
            let message = format!(
                "Value ({given}) for parameter availabilityZone is invalid. Subnets can currently only be created in the following availability zones: {}.",
                names.join(", ")
            );
            AwsError::new(400, "InvalidParameterValue", message)
        }),
        None => {
            let at = ask.store().ec2.subnets.len() % all.len();
            all.into_iter().nth(at).ok_or_else(|| AwsError::missing("AvailabilityZone"))
        }
    }
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let id = named::<Subnet>(ask, "SubnetId")?.common.id.clone();
    let key = format!("subnet:{id}");
    let store = &mut ask.store().ec2;
    if store.network_interfaces.count(&key) > 0 {
        return Err(in_use::<Subnet>(&id, "subnet"));
    }
    let tables: Vec<_> = store.route_tables.find(&key).map(|table| table.common.id.clone()).collect();
    for table in tables {
        store.route_tables.update(&table, |table| table.associations.retain(|one| !one.is_of(&id)));
    }
    let acls: Vec<_> = store.network_acls.find(&key).map(|acl| acl.common.id.clone()).collect();
    for acl in acls {
        store.network_acls.update(&acl, |acl| acl.associations.retain(|(_, subnet)| *subnet != id));
    }
    store.subnets.remove(&id);
    done()
}

pub fn modify_attribute(ask: &mut Ask) -> Answer<Value> {
    let id = named::<Subnet>(ask, "SubnetId")?.common.id.clone();
    let input = ask.input.clone();
    let hostname_type = input.text("PrivateDnsHostnameTypeOnLaunch");
    if let Some(other) = hostname_type.filter(|text| !matches!(*text, "ip-name" | "resource-name")) {
        return fail("InvalidParameterValue", format!("Value ({other}) for parameter hostnameType is invalid."));
    }
    let has_v6 = Cx::of(ask).get::<Subnet>(&id).is_some_and(|subnet| !subnet.ipv6.is_empty());
    if input.flag("AssignIpv6AddressOnCreation.Value") == Some(true) && !has_v6 {
        let message = format!(
            "Invalid value 'true' for assignIpv6AddressOnCreation. The subnet {id} does not have an IPv6 CIDR block."
        );
        return fail("InvalidParameterValue", message);
    }
    ask.store().ec2.subnets.update(&id, |subnet| {
        let set = |name: &str, flag: &mut bool| *flag = input.flag(&format!("{name}.Value")).unwrap_or(*flag);
        set("MapPublicIpOnLaunch", &mut subnet.map_public_ip);
        set("AssignIpv6AddressOnCreation", &mut subnet.assign_ipv6);
        set("EnableDns64", &mut subnet.dns64);
        set("EnableResourceNameDnsARecordOnLaunch", &mut subnet.dns_a_record);
        set("EnableResourceNameDnsAAAARecordOnLaunch", &mut subnet.dns_aaaa_record);
        if let Some(kind) = hostname_type {
            subnet.hostname_type = kind.to_owned();
        }
        subnet.lni_index = input.int("EnableLniAtDeviceIndex").or(subnet.lni_index);
        if input.flag("DisableLniAtDeviceIndex.Value") == Some(true) {
            subnet.lni_index = None;
        }
    });
    done()
}

pub fn associate_block(ask: &mut Ask) -> Answer<Value> {
    let subnet = named::<Subnet>(ask, "SubnetId")?;
    let id = subnet.common.id.clone();
    if !subnet.ipv6.is_empty() {
        let message = format!("The subnet '{id}' already has the maximum number of IPv6 CIDR blocks: 1");
        return fail("InvalidSubnet.Conflict", message);
    }
    let vpc = Cx::of(ask).require::<Vpc>(&subnet.vpc)?;
    let cidr = free_v6(ask, vpc, ask.input.required("Ipv6CidrBlock")?)?;
    let block = Block::new("subnet-cidr-assoc", cidr);
    let mut answer = block.show_v6();
    answer["ipv6CidrBlockState"] = json!({"state": "associating"});
    ask.store().ec2.subnets.update(&id, |subnet| subnet.ipv6.push(block));
    Ok(json!({"subnetId": id, "ipv6CidrBlockAssociation": answer}))
}

pub fn disassociate_block(ask: &mut Ask) -> Answer<Value> {
    let association = ask.input.required("AssociationId")?.to_owned();
    let has = |block: &Block| block.association == association;
    let block_of = |subnet: &Subnet| Some((subnet.common.id.clone(), subnet.ipv6.iter().find(|one| has(one))?.clone()));
    let found = Cx::of(ask).store.subnets.find(&format!("region:{}", ask.region)).find_map(block_of);
    let Some((id, block)) = found else {
        let message = format!("The subnet CIDR block association ID '{association}' does not exist");
        return fail("InvalidSubnetCidrBlockAssociationID.NotFound", message);
    };
    ask.store().ec2.subnets.update(&id, |subnet| subnet.ipv6.retain(|block| !has(block)));
    let mut answer = block.show_v6();
    answer["ipv6CidrBlockState"] = json!({"state": "disassociating"});
    Ok(json!({"subnetId": id, "ipv6CidrBlockAssociation": answer}))
}
