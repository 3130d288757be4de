//! What a rule of a security group allows, and how requests and answers write it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::prefix_list;
use super::resource::Cx;
use super::security_group::SecurityGroup;
use crate::aws::ask::{Ask, Input};
use crate::aws::errors::{Answer, AwsError, fail};

/// One rule: protocol, ports, and one source or destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// `tcp`, `udp`, `icmp`, `icmpv6`, a number, or `-1` for all.
    pub protocol: String,
    pub from: Option<i64>,
    pub to: Option<i64>,
    pub source: Source,
    pub description: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    V4(String),
    V6(String),
    PrefixList(String),
    Group(String),
}

impl Spec {
    /// Everything, from or to one source.
    pub fn all_to(source: Source) -> Spec {
        Spec { protocol: "-1".into(), from: None, to: None, source, description: None }
    }

    /// Whether both allow the same, whatever they are described as.
    pub fn is_same(&self, other: &Spec) -> bool {
        let traffic = |spec: &Spec| (spec.protocol.clone(), spec.from, spec.to);
        traffic(self) == traffic(other) && self.source == other.source
    }

    /// As error messages write a rule.
    pub fn told(&self) -> String {
        let peer = match &self.source {
            Source::V4(text) | Source::V6(text) | Source::PrefixList(text) | Source::Group(text) => text,
        };
        let protocol = if self.protocol == "-1" { "ALL".to_owned() } else { self.protocol.to_uppercase() };
        match (self.from, self.to) {
            (Some(from), Some(to)) => format!("peer: {peer}, {protocol}, from port: {from}, to port: {to}, ALLOW"),
            _ => format!("peer: {peer}, {protocol}, ALLOW"),
        }
    }
}

/// The rules of `IpPermissions`, or of the older flat parameters.
pub fn read(ask: &Ask) -> Answer<Vec<Spec>> {
    let mut specs = Vec::new();
    for permission in ask.input.list("IpPermissions") {
        read_one(ask, &permission, &mut specs)?;
    }
    if ask.input.text("IpProtocol").is_some() {
        let traffic = traffic(&ask.input)?;
        if let Some(text) = ask.input.text("CidrIp") {
            specs.push(traffic.with(v4(text)?, None));
        }
    }
    match specs.is_empty() {
        true => fail("MissingParameter", "The request must contain the parameter ipPermissions"),
        false => Ok(specs),
    }
}

fn read_one(ask: &Ask, permission: &Input, specs: &mut Vec<Spec>) -> Answer<()> {
    let traffic = traffic(permission)?;
    let before = specs.len();
    for range in permission.list("IpRanges") {
        specs.push(traffic.with(v4(range.required("CidrIp")?)?, range.text("Description")));
    }
    for range in permission.list("Ipv6Ranges") {
        specs.push(traffic.with(v6(range.required("CidrIpv6")?)?, range.text("Description")));
    }
    for list in permission.list("PrefixListIds") {
        specs.push(traffic.with(prefix_list(ask, list.required("PrefixListId")?)?, list.text("Description")));
    }
    for peer in permission.list("Groups") {
        let id = match (peer.text("GroupId"), peer.text("GroupName")) {
            (Some(id), _) => group(ask, id)?,
            (None, Some(name)) => group_named(ask, name)?,
            (None, None) => return fail("MissingParameter", "Source group ID missing."),
        };
        specs.push(traffic.with(Source::Group(id), peer.text("Description")));
    }
    match specs.len() > before {
        true => Ok(()),
        false => fail("InvalidParameterValue", "IP permission without a range, a prefix list or a group"),
    }
}

/// A rule as ModifySecurityGroupRules has it.
pub fn read_flat(ask: &Ask, rule: &Input) -> Answer<Spec> {
    let traffic = traffic(rule)?;
    let source = if let Some(text) = rule.text("CidrIpv4") {
        v4(text)?
    } else if let Some(text) = rule.text("CidrIpv6") {
        v6(text)?
    } else if let Some(id) = rule.text("PrefixListId") {
        prefix_list(ask, id)?
    } else if let Some(id) = rule.text("ReferencedGroupId") {
        Source::Group(group(ask, id)?)
    } else {
        return fail(
            "MissingParameter",
            "The request must contain exactly one of cidrIpv4, cidrIpv6, prefixListId, referencedGroupId",
        );
    };
    Ok(traffic.with(source, rule.text("Description")))
}

struct Traffic {
    protocol: String,
    from: Option<i64>,
    to: Option<i64>,
}

impl Traffic {
    fn with(&self, source: Source, description: Option<&str>) -> Spec {
        let description = description.filter(|text| !text.is_empty()).map(str::to_owned);
        Spec { protocol: self.protocol.clone(), from: self.from, to: self.to, source, description }
    }
}

fn traffic(input: &Input) -> Answer<Traffic> {
    let protocol = match input.required("IpProtocol")?.to_lowercase().as_str() {
        "6" | "tcp" => "tcp".to_owned(),
        "17" | "udp" => "udp".to_owned(),
        "1" | "icmp" => "icmp".to_owned(),
        "58" | "icmpv6" => "icmpv6".to_owned(),
        "-1" | "all" => "-1".to_owned(),
        other if other.parse::<u8>().is_ok() => other.to_owned(),
        other => {
            return fail(
                "InvalidParameterValue",
                format!("Invalid value '{other}' for IP protocol. Unknown protocol."),
            );
        }
    };
    let (from, to) = (input.int("FromPort"), input.int("ToPort"));
    let (from, to) = match (protocol.as_str(), from, to) {
        ("-1", ..) => (None, None),
        ("tcp" | "udp", Some(from), Some(to)) => {
            if !(0..=65_535).contains(&from) || !(0..=65_535).contains(&to) || from > to {
                return fail(
                    "InvalidParameterValue",
                    format!(
                        "Invalid value '{from}-{to}' for port range. From port is greater than to port, or one is outside 0-65535."
                    ),
                );
            }
            (Some(from), Some(to))
        }
        ("tcp" | "udp", ..) => {
            let message = "Invalid value 'Must specify both from and to ports with TCP/UDP.' for portRange.";
            return fail("InvalidParameterValue", message);
        }
        ("icmp" | "icmpv6", from, to) => (Some(from.unwrap_or(-1)), Some(to.unwrap_or(-1))),
        _ => (None, None),
    };
    Ok(Traffic { protocol, from, to })
}

fn malformed(text: &str) -> Box<AwsError> {
    AwsError::new(400, "InvalidParameterValue", format!("CIDR block {text} is malformed"))
}

fn v4(text: &str) -> Answer<Source> {
    text.parse::<ipnet::Ipv4Net>().map(|net| Source::V4(net.trunc().to_string())).map_err(|_| malformed(text))
}

fn v6(text: &str) -> Answer<Source> {
    text.parse::<ipnet::Ipv6Net>().map(|net| Source::V6(net.trunc().to_string())).map_err(|_| malformed(text))
}

fn prefix_list(ask: &Ask, id: &str) -> Answer<Source> {
    match prefix_list::by_id(ask.region, id) {
        Some(_) => Ok(Source::PrefixList(id.to_owned())),
        None => Err(prefix_list::absent(id)),
    }
}

fn group(ask: &Ask, id: &str) -> Answer<String> {
    Ok(Cx::of(ask).require::<SecurityGroup>(id)?.common.id.clone())
}

/// A group by its name, in the VPC of the group whose rules are changed.
fn group_named(ask: &Ask, name: &str) -> Answer<String> {
    let vpc = &super::security_group::find(ask)?.vpc;
    let mut groups = Cx::of(ask).store.security_groups.find(&format!("name:{name}"));
    match groups.find(|group| group.vpc == *vpc) {
        Some(group) => Ok(group.common.id.clone()),
        None => fail("InvalidGroup.NotFound", format!("The security group '{name}' does not exist")),
    }
}

/// Protocol and ports.
type Ports<'a> = (&'a str, Option<i64>, Option<i64>);

/// `ipPermissions`: rules with the same traffic are one item.
pub fn show<'a>(cx: &Cx, specs: impl Iterator<Item = &'a Spec>) -> Vec<Value> {
    let mut items: Vec<(Ports, Vec<&Spec>)> = Vec::new();
    for spec in specs {
        let traffic = (spec.protocol.as_str(), spec.from, spec.to);
        match items.iter_mut().find(|(own, _)| *own == traffic) {
            Some((_, same)) => same.push(spec),
            None => items.push((traffic, vec![spec])),
        }
    }
    items.into_iter().map(|((protocol, from, to), specs)| show_item(cx, protocol, (from, to), &specs)).collect()
}

fn show_item(cx: &Cx, protocol: &str, (from, to): (Option<i64>, Option<i64>), specs: &[&Spec]) -> Value {
    let (mut v4, mut v6, mut lists, mut groups) = (vec![], vec![], vec![], vec![]);
    for Spec { source, description, .. } in specs {
        match source {
            Source::V4(cidr) => v4.push(json!({"cidrIp": cidr, "description": description})),
            Source::V6(cidr) => v6.push(json!({"cidrIpv6": cidr, "description": description})),
            Source::PrefixList(id) => lists.push(json!({"prefixListId": id, "description": description})),
            Source::Group(id) => {
                groups.push(json!({"groupId": id, "userId": cx.account, "description": description}));
            }
        }
    }
    json!({"ipProtocol": protocol, "fromPort": from, "toPort": to, "ipRanges": v4, "ipv6Ranges": v6,
           "prefixListIds": lists, "groups": groups})
}
