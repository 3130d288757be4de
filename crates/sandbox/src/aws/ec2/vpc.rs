//! VPCs, their ranges and attributes.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filter::{Filter, one, some};
use super::resource::{Common, Cx, Names, Resource, done, in_use, kept, limit, named, shown};
use super::{Tables, cidr, dhcp_options, network_acl, route_table, security_group};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::ids;
use crate::clock::SimTime;

const MAX_BLOCKS: usize = 5;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Vpc {
    pub common: Common,
    /// The first is the one that it was made with.
    pub blocks: Vec<Block>,
    pub ipv6: Vec<Block>,
    pub tenancy: String,
    pub dns_support: bool,
    pub dns_hostnames: bool,
    pub usage_metrics: bool,
    pub dhcp_options: String,
    /// The account's default VPC in its region.
    pub is_default: bool,
    pub available_at: SimTime,
}

/// A range that belongs to a VPC or a subnet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Block {
    pub association: String,
    pub cidr: String,
}

impl Block {
    pub fn new(prefix: &str, cidr: String) -> Block {
        Block { association: ids::new(prefix), cidr }
    }

    pub fn show_v4(&self) -> Value {
        json!({"associationId": self.association, "cidrBlock": self.cidr, "cidrBlockState": {"state": "associated"}})
    }

    pub fn show_v6(&self) -> Value {
        json!({"associationId": self.association, "ipv6CidrBlock": self.cidr,
               "ipv6CidrBlockState": {"state": "associated"}, "ipv6AddressAttribute": "public", "ipSource": "amazon"})
    }
}

kept!(Vpc, "aws.vpc", vpcs);

impl Vpc {
    pub fn cidr(&self) -> &str {
        self.blocks.first().map(|block| block.cidr.as_str()).unwrap_or_default()
    }

    fn state(&self, now: SimTime) -> &'static str {
        if now >= self.available_at { "available" } else { "pending" }
    }

    fn show_v6(&self, block: &Block) -> Value {
        let mut shown = block.show_v6();
        shown["networkBorderGroup"] = json!(self.common.region);
        shown["ipv6Pool"] = json!("Amazon");
        shown
    }
}

impl Resource for Vpc {
    const NAMES: Names = Names {
        kind: "vpc",
        prefix: "vpc",
        ids: "VpcId",
        set: "vpcSet",
        not_found: "InvalidVpcID.NotFound",
        malformed: "InvalidVpcID.Malformed",
        title: "The vpc ID '{}' does not exist",
        indexed: &[],
    };
    const FILTERS: &'static [Filter<Vpc>] = &[
        ("vpc-id", |vpc, _| one(&vpc.common.id)),
        ("cidr", |vpc, _| one(vpc.cidr())),
        ("cidrBlock", |vpc, _| one(vpc.cidr())),
        ("cidr-block-association.cidr-block", |vpc, _| vpc.blocks.iter().map(|block| block.cidr.clone()).collect()),
        ("cidr-block-association.association-id", |vpc, _| {
            vpc.blocks.iter().map(|block| block.association.clone()).collect()
        }),
        ("cidr-block-association.state", |_, _| one("associated")),
        ("ipv6-cidr-block-association.ipv6-cidr-block", |vpc, _| {
            vpc.ipv6.iter().map(|block| block.cidr.clone()).collect()
        }),
        ("ipv6-cidr-block-association.ipv6-pool", |vpc, _| some(vpc.ipv6.first().map(|_| "Amazon"))),
        ("ipv6-cidr-block-association.association-id", |vpc, _| {
            vpc.ipv6.iter().map(|block| block.association.clone()).collect()
        }),
        ("ipv6-cidr-block-association.state", |vpc, _| some(vpc.ipv6.first().map(|_| "associated"))),
        ("dhcp-options-id", |vpc, _| one(&vpc.dhcp_options)),
        ("is-default", |vpc, _| one(vpc.is_default)),
        ("isDefault", |vpc, _| one(vpc.is_default)),
        ("state", |vpc, cx| one(vpc.state(cx.now))),
    ];

    fn indexes(&self) -> Vec<String> {
        let mut keys = vec![format!("dhcp:{}", self.dhcp_options)];
        if self.is_default {
            keys.push(format!("default:{}", self.common.region));
        }
        keys
    }

    fn show(&self, cx: &Cx) -> Value {
        json!({
            "vpcId": self.common.id,
            "ownerId": cx.account,
            "state": self.state(cx.now),
            "cidrBlock": self.cidr(),
            "cidrBlockAssociationSet": self.blocks.iter().map(Block::show_v4).collect::<Vec<_>>(),
            "ipv6CidrBlockAssociationSet": self.ipv6.iter().map(|block| self.show_v6(block)).collect::<Vec<_>>(),
            "dhcpOptionsId": self.dhcp_options,
            "instanceTenancy": self.tenancy,
            "isDefault": self.is_default,
            "blockPublicAccessStates": {"internetGatewayBlockMode": "off"},
        })
    }

    fn facts(&self, now: SimTime) -> Value {
        json!({"cidr": self.cidr(), "status": self.state(now)})
    }
}

/// Adds a VPC with what each has from the start: a main route table, a default ACL and a default group.
pub fn add(store: &mut Tables, vpc: Vpc) {
    let common = &vpc.common;
    store.route_tables.insert(route_table::main(common));
    store.network_acls.insert(network_acl::default(common));
    security_group::add_default(store, common);
    store.vpcs.insert(vpc);
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let block = cidr::sized(ask.input.required("CidrBlock")?, "InvalidVpc.Range")?;
    let tenancy = ask.input.text("InstanceTenancy").unwrap_or("default").to_owned();
    if !matches!(tenancy.as_str(), "default" | "dedicated" | "host") {
        return fail("InvalidParameterValue", format!("Invalid value '{tenancy}' for InstanceTenancy"));
    }
    let common = Common::asked(ask, "vpc", "vpc")?;
    let count = ask.store().ec2.vpcs.count(&format!("region:{}", common.region));
    limit(count, ask.state.quota.networks as usize, "VpcLimitExceeded", "VPCs")?;
    let wants_v6 = ask.input.flag("AmazonProvidedIpv6CidrBlock") == Some(true);
    let v6 = wants_v6.then(|| Block::new("vpc-cidr-assoc", cidr::amazon_v6(ask.state.dice)));
    let available_at = if ask.effects().stuck { SimTime::NEVER } else { ask.in_seconds(1, 2) };
    let vpc = Vpc {
        blocks: vec![Block::new("vpc-cidr-assoc", block.to_string())],
        ipv6: v6.into_iter().collect(),
        tenancy,
        dns_support: true,
        dns_hostnames: false,
        usage_metrics: false,
        dhcp_options: dhcp_options::of_region(ask),
        is_default: false,
        available_at,
        common,
    };
    // The first answer is always of a VPC that is not there yet.
    let mut answer = shown(&vpc, &Cx::of(ask));
    answer["state"] = json!("pending");
    add(&mut ask.store().ec2, vpc);
    Ok(json!({"vpc": answer}))
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let cx = Cx::of(ask);
    let vpc = named::<Vpc>(ask, "VpcId")?;
    let (id, key) = (vpc.common.id.clone(), format!("vpc:{}", vpc.common.id));
    let store = cx.store;
    let used = store.subnets.count(&key) > 0
        || store.internet_gateways.count(&key) > 0
        || store.egress_gateways.count(&key) > 0
        || store.endpoints.count(&key) > 0
        || store.network_interfaces.count(&key) > 0
        || store.security_groups.find(&key).any(|group| group.name != security_group::DEFAULT)
        || store.network_acls.find(&key).any(|acl| !acl.is_default)
        || store.route_tables.find(&key).any(|table| !table.is_main());
    if used {
        return Err(in_use::<Vpc>(&id, "vpc"));
    }
    let store = &mut ask.store().ec2;
    let tables: Vec<_> = store.route_tables.find(&key).map(|table| table.common.id.clone()).collect();
    tables.iter().for_each(|id| _ = store.route_tables.remove(id));
    let acls: Vec<_> = store.network_acls.find(&key).map(|acl| acl.common.id.clone()).collect();
    acls.iter().for_each(|id| _ = store.network_acls.remove(id));
    let groups: Vec<_> = store.security_groups.find(&key).map(|group| group.common.id.clone()).collect();
    groups.iter().for_each(|id| security_group::remove(store, id));
    store.vpcs.remove(&id);
    done()
}

pub fn describe_attribute(ask: &mut Ask) -> Answer<Value> {
    let vpc = named::<Vpc>(ask, "VpcId")?;
    let attribute = ask.input.required("Attribute")?;
    let value = match attribute {
        "enableDnsSupport" => vpc.dns_support,
        "enableDnsHostnames" => vpc.dns_hostnames,
        "enableNetworkAddressUsageMetrics" => vpc.usage_metrics,
        other => return fail("InvalidParameterValue", format!("Value ({other}) for parameter attribute is invalid.")),
    };
    let mut answer = json!({"vpcId": vpc.common.id});
    answer[attribute] = json!({"value": value});
    Ok(answer)
}

pub fn modify_attribute(ask: &mut Ask) -> Answer<Value> {
    let id = named::<Vpc>(ask, "VpcId")?.common.id.clone();
    let support = ask.input.flag("EnableDnsSupport.Value");
    let hostnames = ask.input.flag("EnableDnsHostnames.Value");
    let metrics = ask.input.flag("EnableNetworkAddressUsageMetrics.Value");
    match [support, hostnames, metrics].iter().flatten().count() {
        0 => return fail("MissingParameter", "The request must contain exactly one attribute"),
        1 => {}
        _ => return fail("InvalidParameterCombination", "Fields for multiple attribute types specified"),
    }
    ask.store().ec2.vpcs.update(&id, |vpc| {
        vpc.dns_support = support.unwrap_or(vpc.dns_support);
        vpc.dns_hostnames = hostnames.unwrap_or(vpc.dns_hostnames);
        vpc.usage_metrics = metrics.unwrap_or(vpc.usage_metrics);
    });
    done()
}

pub fn associate_block(ask: &mut Ask) -> Answer<Value> {
    let vpc = named::<Vpc>(ask, "VpcId")?;
    let id = vpc.common.id.clone();
    if ask.input.flag("AmazonProvidedIpv6CidrBlock") == Some(true) {
        if !vpc.ipv6.is_empty() {
            return fail(
                "CidrLimitExceeded",
                format!("This network '{id}' has met its maximum number of allowed CIDRs: 1"),
            );
        }
        let block = Block::new("vpc-cidr-assoc", cidr::amazon_v6(ask.state.dice));
        let mut answer = vpc_v6(ask, &id, &block);
        answer["ipv6CidrBlockState"] = json!({"state": "associating"});
        ask.store().ec2.vpcs.update(&id, |vpc| vpc.ipv6.push(block));
        return Ok(json!({"vpcId": id, "ipv6CidrBlockAssociation": answer}));
    }
    let given = cidr::sized(ask.input.required("CidrBlock")?, "InvalidVpc.Range")?;
    let own = vpc.blocks.iter().filter_map(|block| block.cidr.parse().ok());
    if own.into_iter().any(|block| cidr::overlap(&block, &given)) {
        return fail("InvalidVpc.Conflict", format!("The CIDR '{given}' conflicts with a CIDR of the vpc '{id}'"));
    }
    limit(vpc.blocks.len(), MAX_BLOCKS, "CidrLimitExceeded", "CIDR blocks of the VPC")?;
    let block = Block::new("vpc-cidr-assoc", given.to_string());
    let mut answer = block.show_v4();
    answer["cidrBlockState"] = json!({"state": "associating"});
    ask.store().ec2.vpcs.update(&id, |vpc| vpc.blocks.push(block));
    Ok(json!({"vpcId": id, "cidrBlockAssociation": answer}))
}

fn vpc_v6(ask: &Ask, id: &str, block: &Block) -> Value {
    Cx::of(ask).get::<Vpc>(id).map_or(Value::Null, |vpc| vpc.show_v6(block))
}

pub fn disassociate_block(ask: &mut Ask) -> Answer<Value> {
    let association = ask.input.required("AssociationId")?.to_owned();
    let (cx, region) = (Cx::of(ask), format!("region:{}", ask.region));
    let absent = || {
        let message = format!("The vpc CIDR block association ID '{association}' does not exist");
        AwsError::new(400, "InvalidVpcCidrBlockAssociationID.NotFound", message)
    };
    let has = |block: &Block| block.association == association;
    let vpc = cx.store.vpcs.find(&region).find(|vpc| vpc.blocks.iter().chain(&vpc.ipv6).any(has));
    let vpc = vpc.ok_or_else(absent)?;
    let block = vpc.blocks.iter().chain(&vpc.ipv6).find(|block| has(block)).cloned().ok_or_else(absent)?;
    if vpc.blocks.first().is_some_and(has) {
        let message = format!(
            "The vpc CIDR block with association ID {association} may not be disassociated. It is the primary IPv4 CIDR block of the VPC"
        );
        return fail("OperationNotPermitted", message);
    }
    let used = cx.store.subnets.find(&format!("vpc:{}", vpc.common.id)).any(|subnet| subnet.is_within(&block.cidr));
    if used {
        let message =
            format!("The vpc CIDR block with association ID {association} has dependencies and cannot be deleted.");
        return fail("DependencyViolation", message);
    }
    let (id, is_v6) = (vpc.common.id.clone(), block.cidr.contains(':'));
    ask.store().ec2.vpcs.update(&id, |vpc| {
        vpc.blocks.retain(|block| !has(block));
        vpc.ipv6.retain(|block| !has(block));
    });
    if is_v6 {
        let mut shown = block.show_v6();
        shown["ipv6CidrBlockState"] = json!({"state": "disassociating"});
        return Ok(json!({"vpcId": id, "ipv6CidrBlockAssociation": shown}));
    }
    let mut shown = block.show_v4();
    shown["cidrBlockState"] = json!({"state": "disassociating"});
    Ok(json!({"vpcId": id, "cidrBlockAssociation": shown}))
}
