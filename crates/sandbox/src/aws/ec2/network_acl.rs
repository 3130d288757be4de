//! Network ACLs, their entries, and the subnets that they guard: every subnet has exactly one.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cidr;
use super::filter::{Filter, one};
use super::resource::{Common, Cx, Names, Resource, done, in_use, kept, limit, named, shown};
use super::vpc::Vpc;
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::ids;
use crate::clock::SimTime;

const MAX_PER_VPC: usize = 200;
/// AWS allows 20, and up to this on request.
const MAX_ENTRIES: usize = 40;
/// The entry that denies what no other lets in.
const LAST: i64 = 32_767;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NetworkAcl {
    pub common: Common,
    pub vpc: String,
    pub is_default: bool,
    pub entries: Vec<Entry>,
    /// Association and subnet.
    pub associations: Vec<(String, String)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    number: i64,
    egress: bool,
    /// A number, -1 for all.
    protocol: String,
    action: String,
    cidr: Option<String>,
    ipv6_cidr: Option<String>,
    ports: Option<(i64, i64)>,
    /// Type and code.
    icmp: Option<(i64, i64)>,
}

impl Entry {
    fn any(number: i64, egress: bool, action: &str) -> Entry {
        Entry {
            number,
            egress,
            protocol: "-1".into(),
            action: action.into(),
            cidr: Some("0.0.0.0/0".into()),
            ipv6_cidr: None,
            ports: None,
            icmp: None,
        }
    }

    fn show(&self) -> Value {
        json!({"ruleNumber": self.number, "egress": self.egress, "protocol": self.protocol, "ruleAction": self.action,
               "cidrBlock": self.cidr, "ipv6CidrBlock": self.ipv6_cidr,
               "portRange": self.ports.map(|(from, to)| json!({"from": from, "to": to})),
               "icmpTypeCode": self.icmp.map(|(kind, code)| json!({"type": kind, "code": code}))})
    }
}

kept!(NetworkAcl, "aws.network_acl", network_acls);

impl NetworkAcl {
    fn of_entries<T: ToString>(&self, value: impl Fn(&Entry) -> Option<T>) -> Vec<String> {
        self.entries.iter().filter_map(|entry| value(entry).map(|value| value.to_string())).collect()
    }
}

impl Resource for NetworkAcl {
    const NAMES: Names = Names {
        kind: "network-acl",
        prefix: "acl",
        ids: "NetworkAclId",
        set: "networkAclSet",
        not_found: "InvalidNetworkAclID.NotFound",
        malformed: "InvalidNetworkAclId.Malformed",
        title: "The networkAcl ID '{}' does not exist",
        indexed: &[
            ("association.subnet-id", "subnet"),
            ("association.association-id", "association"),
            ("vpc-id", "vpc"),
        ],
    };
    const FILTERS: &'static [Filter<NetworkAcl>] = &[
        ("network-acl-id", |acl, _| one(&acl.common.id)),
        ("vpc-id", |acl, _| one(&acl.vpc)),
        ("default", |acl, _| one(acl.is_default)),
        ("association.association-id", |acl, _| acl.associations.iter().map(|(id, _)| id.clone()).collect()),
        ("association.network-acl-id", |acl, _| one(&acl.common.id)),
        ("association.subnet-id", |acl, _| acl.associations.iter().map(|(_, subnet)| subnet.clone()).collect()),
        ("entry.cidr", |acl, _| acl.of_entries(|entry| entry.cidr.clone())),
        ("entry.ipv6-cidr", |acl, _| acl.of_entries(|entry| entry.ipv6_cidr.clone())),
        ("entry.egress", |acl, _| acl.of_entries(|entry| Some(entry.egress))),
        ("entry.icmp.code", |acl, _| acl.of_entries(|entry| entry.icmp.map(|(_, code)| code))),
        ("entry.icmp.type", |acl, _| acl.of_entries(|entry| entry.icmp.map(|(kind, _)| kind))),
        ("entry.port-range.from", |acl, _| acl.of_entries(|entry| entry.ports.map(|(from, _)| from))),
        ("entry.port-range.to", |acl, _| acl.of_entries(|entry| entry.ports.map(|(_, to)| to))),
        ("entry.protocol", |acl, _| acl.of_entries(|entry| Some(entry.protocol.clone()))),
        ("entry.rule-action", |acl, _| acl.of_entries(|entry| Some(entry.action.clone()))),
        ("entry.rule-number", |acl, _| acl.of_entries(|entry| Some(entry.number))),
    ];

    fn indexes(&self) -> Vec<String> {
        let mut keys = vec![format!("vpc:{}", self.vpc)];
        for (association, subnet) in &self.associations {
            keys.extend([format!("association:{association}"), format!("subnet:{subnet}")]);
        }
        keys
    }

    fn show(&self, cx: &Cx) -> Value {
        let id = &self.common.id;
        let association = |(association, subnet): &(String, String)| json!({"networkAclAssociationId": association, "networkAclId": id, "subnetId": subnet});
        json!({"networkAclId": id, "vpcId": self.vpc, "ownerId": cx.account, "default": self.is_default,
               "entrySet": self.entries.iter().map(Entry::show).collect::<Vec<_>>(),
               "associationSet": self.associations.iter().map(association).collect::<Vec<_>>()})
    }

    fn facts(&self, _: SimTime) -> Value {
        json!({"vpc": self.vpc, "entries": self.entries.len()})
    }
}

/// The ACL of a new VPC: it lets everything through.
pub fn default(vpc: &Common) -> NetworkAcl {
    let entries = vec![
        Entry::any(100, true, "allow"),
        Entry::any(LAST, true, "deny"),
        Entry::any(100, false, "allow"),
        Entry::any(LAST, false, "deny"),
    ];
    let common = Common::made("acl", &vpc.region, vpc.created);
    NetworkAcl { common, vpc: vpc.id.clone(), is_default: true, entries, associations: vec![] }
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let vpc = named::<Vpc>(ask, "VpcId")?.common.id.clone();
    let common = Common::asked(ask, "acl", "network-acl")?;
    let count = ask.store().ec2.network_acls.count(&format!("vpc:{vpc}"));
    limit(count, MAX_PER_VPC, "NetworkAclLimitExceeded", "network ACLs of the VPC")?;
    let entries = vec![Entry::any(LAST, true, "deny"), Entry::any(LAST, false, "deny")];
    let acl = NetworkAcl { common, vpc, is_default: false, entries, associations: vec![] };
    let answer = json!({"networkAcl": shown(&acl, &Cx::of(ask)), "clientToken": ask.input.text("ClientToken")});
    ask.store().ec2.network_acls.insert(acl);
    Ok(answer)
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let acl = named::<NetworkAcl>(ask, "NetworkAclId")?;
    let id = acl.common.id.clone();
    if acl.is_default {
        return fail("InvalidParameterValue", format!("cannot delete default network ACL {id}"));
    }
    if !acl.associations.is_empty() {
        return Err(in_use::<NetworkAcl>(&id, "networkAcl"));
    }
    ask.store().ec2.network_acls.remove(&id);
    done()
}

/// Number and direction of the entry that a call is about.
fn place(ask: &Ask) -> Answer<(i64, bool)> {
    let number = ask.input.required("RuleNumber")?;
    let egress = ask.input.flag("Egress").ok_or_else(|| AwsError::missing("egress"))?;
    match number.parse::<i64>() {
        Ok(number @ 1..LAST) => Ok((number, egress)),
        _ => fail(
            "InvalidParameterValue",
            format!("Value ({number}) for parameter ruleNumber is invalid. Rule numbers are between 1 and 32766."),
        ),
    }
}

fn entry(ask: &Ask) -> Answer<Entry> {
    let (number, egress) = place(ask)?;
    let input = &ask.input;
    let protocol = match input.required("Protocol")? {
        "all" => "-1",
        "tcp" => "6",
        "udp" => "17",
        "icmp" => "1",
        "icmpv6" | "ipv6-icmp" => "58",
        other => other,
    };
    if !protocol.parse::<i64>().is_ok_and(|number| (-1..=255).contains(&number)) {
        return fail("InvalidParameterValue", format!("Invalid value '{protocol}' for IP protocol. Unknown protocol."));
    }
    let action = input.required("RuleAction")?;
    if !matches!(action, "allow" | "deny") {
        return fail("InvalidParameterValue", format!("Value ({action}) for parameter ruleAction is invalid."));
    }
    let v4 = input.text("CidrBlock").map(|text| cidr::v4(text, "cidrBlock")).transpose()?;
    let v6 = input.text("Ipv6CidrBlock").map(|text| cidr::v6(text, "ipv6CidrBlock")).transpose()?;
    if v4.is_none() == v6.is_none() {
        return fail(
            "MissingParameter",
            "The request must contain exactly one of the parameters cidrBlock and ipv6CidrBlock",
        );
    }
    let ports = match (protocol, input.int("PortRange.From"), input.int("PortRange.To")) {
        ("6" | "17", Some(from), Some(to)) if (0..=65_535).contains(&from) && (from..=65_535).contains(&to) => {
            Some((from, to))
        }
        ("6" | "17", Some(_), Some(_)) => return fail("InvalidParameterValue", "Invalid TCP/UDP port range"),
        ("6" | "17", ..) => return fail("MissingParameter", "The request must contain the parameter portRange"),
        _ => None,
    };
    let icmp = match protocol {
        "1" | "58" => Some((input.int("Icmp.Type").unwrap_or(-1), input.int("Icmp.Code").unwrap_or(-1))),
        _ => None,
    };
    let (protocol, action) = (protocol.to_owned(), action.to_owned());
    let (cidr, ipv6_cidr) = (v4.map(|net| net.to_string()), v6.map(|net| net.to_string()));
    Ok(Entry { number, egress, protocol, action, cidr, ipv6_cidr, ports, icmp })
}

fn has(acl: &NetworkAcl, (number, egress): (i64, bool)) -> bool {
    acl.entries.iter().any(|entry| (entry.number, entry.egress) == (number, egress))
}

/// Entries are shown outgoing first, each direction by its numbers.
fn put(acl: &mut NetworkAcl, entry: Entry) {
    acl.entries.retain(|old| (old.number, old.egress) != (entry.number, entry.egress));
    acl.entries.push(entry);
    acl.entries.sort_by_key(|entry| (!entry.egress, entry.number));
}

pub fn create_entry(ask: &mut Ask) -> Answer<Value> {
    let (acl, entry) = (named::<NetworkAcl>(ask, "NetworkAclId")?, entry(ask)?);
    let id = acl.common.id.clone();
    let (number, egress) = (entry.number, entry.egress);
    if has(acl, (number, egress)) {
        let message = format!("The network acl entry identified by {number} already exists.");
        return fail("NetworkAclEntryAlreadyExists", message);
    }
    let count = acl.entries.iter().filter(|entry| entry.egress == egress).count();
    limit(count, MAX_ENTRIES, "NetworkAclEntryLimitExceeded", "network acl entries")?;
    ask.store().ec2.network_acls.update(&id, |acl| put(acl, entry));
    done()
}

pub fn replace_entry(ask: &mut Ask) -> Answer<Value> {
    let (acl, entry) = (named::<NetworkAcl>(ask, "NetworkAclId")?, entry(ask)?);
    let id = acl.common.id.clone();
    if !has(acl, (entry.number, entry.egress)) {
        return Err(no_entry(entry.number));
    }
    ask.store().ec2.network_acls.update(&id, |acl| put(acl, entry));
    done()
}

fn no_entry(number: i64) -> Box<AwsError> {
    let message = format!("The network acl entry identified by {number} does not exist");
    AwsError::new(400, "InvalidNetworkAclEntry.NotFound", message)
}

pub fn delete_entry(ask: &mut Ask) -> Answer<Value> {
    let (acl, place) = (named::<NetworkAcl>(ask, "NetworkAclId")?, place(ask)?);
    let id = acl.common.id.clone();
    if !has(acl, place) {
        return Err(no_entry(place.0));
    }
    ask.store().ec2.network_acls.update(&id, |acl| acl.entries.retain(|entry| (entry.number, entry.egress) != place));
    done()
}

/// Moves a subnet to another ACL, by which the association gets a new id.
pub fn replace_association(ask: &mut Ask) -> Answer<Value> {
    let association = ask.input.required("AssociationId")?.to_owned();
    let (cx, acl) = (Cx::of(ask), named::<NetworkAcl>(ask, "NetworkAclId")?);
    let old = cx.store.network_acls.first(&format!("association:{association}"));
    let old = old.filter(|acl| acl.common.region == cx.region);
    let found = old.and_then(|old| {
        let (_, subnet) = old.associations.iter().find(|(id, _)| *id == association)?;
        Some((old.common.id.clone(), old.vpc.clone(), subnet.clone()))
    });
    let Some((old, vpc, subnet)) = found else {
        return fail("InvalidAssociationID.NotFound", format!("The association ID '{association}' does not exist"));
    };
    let id = acl.common.id.clone();
    if acl.vpc != vpc {
        return fail(
            "InvalidParameterValue",
            format!("network ACL {id} and subnet {subnet} belong to different networks"),
        );
    }
    let new = ids::new("aclassoc");
    let store = &mut ask.store().ec2;
    store.network_acls.update(&old, |acl| acl.associations.retain(|(id, _)| *id != association));
    store.network_acls.update(&id, |acl| acl.associations.push((new.clone(), subnet)));
    Ok(json!({"newAssociationId": new}))
}
