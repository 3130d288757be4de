//! What EKS looks up and makes in EC2: subnets, the cluster's security group, its network interfaces, launch templates.

use std::net::Ipv4Addr;

use serde_json::Value;

use super::node_group_calls::Machines;
use crate::aws::ask::Ask;
use crate::aws::ec2::network_interface::{self, Attachment, NewInterface};
use crate::aws::ec2::resource::{Common, Cx};
use crate::aws::ec2::security_group::{self, SecurityGroup};
use crate::aws::ec2::vpc::Vpc;
use crate::aws::ec2::{launch_template, subnet};
use crate::aws::ids;
use crate::clock::SimTime;

/// What EKS needs to know of a subnet.
#[derive(Clone, Debug)]
pub struct Subnet {
    pub id: String,
    pub vpc: String,
    pub zone: String,
}

pub fn subnet(ask: &Ask, id: &str) -> Option<Subnet> {
    let found = Cx::of(ask).get::<subnet::Subnet>(id)?;
    Some(Subnet { id: id.to_owned(), vpc: found.vpc.clone(), zone: found.zone.clone() })
}

/// The addresses of a VPC, such as `10.0.0.0/16`.
pub fn vpc_cidrs(ask: &Ask, vpc: &str) -> Vec<String> {
    let found = Cx::of(ask).get::<Vpc>(vpc);
    found.map(|vpc| vpc.blocks.iter().map(|block| block.cidr.clone()).collect()).unwrap_or_default()
}

pub fn security_group_exists(ask: &Ask, id: &str) -> bool {
    Cx::of(ask).get::<SecurityGroup>(id).is_some()
}

/// Makes `eks-cluster-sg-NAME-…`, whose members reach each other.
pub fn make_security_group(ask: &mut Ask, cluster: &str, vpc: &str) -> String {
    let mut common = Common::made("sg", ask.region, ask.now());
    let name = format!("eks-cluster-sg-{cluster}-{}", ask.state.dice.suffix(10));
    common.tags.insert("Name".into(), name.clone());
    common.tags.insert("aws:eks:cluster-name".into(), cluster.to_owned());
    common.tags.insert(format!("kubernetes.io/cluster/{cluster}"), "owned".into());
    let id = common.id.clone();
    let description = "EKS created security group applied to ENI that is attached to EKS Control Plane master nodes, as well as any managed workloads.";
    let group = SecurityGroup { common, name, description: description.into(), vpc: vpc.to_owned() };
    security_group::add_open_inside(&mut ask.store().ec2, group);
    id
}

fn description(cluster: &str) -> String {
    format!("Amazon EKS {cluster}")
}

/// Makes the control plane's network interfaces, one in each subnet. Where a subnet has no address left, the others do.
pub fn make_interfaces(ask: &mut Ask, cluster: &str, subnets: &[String], groups: &[String]) {
    let now = ask.now();
    for subnet in subnets {
        let new = NewInterface {
            groups: groups.to_vec(),
            description: description(cluster),
            requester: Some("amazon-eks".into()),
            attachment: Some(Attachment::new(None, "amazon-eks", 1)),
            ..NewInterface::default()
        };
        if let Err(error) = network_interface::add(&mut ask.store().ec2, subnet, new, now) {
            tracing::debug!(subnet, error = error.message, "no network interface for a control plane");
        }
    }
}

/// Lets go of what `make_interfaces` and `make_security_group` made, at the moment the cluster is gone.
pub fn release(ask: &mut Ask, cluster: &str, group: &str, at: SimTime) {
    let own = description(cluster);
    let ec2 = &mut ask.store().ec2;
    let ids: Vec<String> = ec2
        .network_interfaces
        .find(&format!("group:{group}"))
        .filter(|interface| interface.description == own)
        .map(|interface| interface.common.id.clone())
        .collect();
    for id in ids {
        ec2.network_interfaces.update(&id, |interface| interface.common.gone_at = Some(at));
    }
    let rules: Vec<String> =
        ec2.security_group_rules.find(&format!("group:{group}")).map(|rule| rule.common.id.clone()).collect();
    for id in rules {
        ec2.security_group_rules.update(&id, |rule| rule.common.gone_at = Some(at));
    }
    ec2.security_groups.update(group, |group| group.common.gone_at = Some(at));
}

/// A launch template as it was found.
pub struct LaunchTemplate {
    pub id: String,
    pub name: String,
    /// The version asked for, as a number.
    pub version: i64,
    pub data: Value,
}

/// By id or name; the version may be `$Latest` or `$Default`.
pub fn launch_template(
    ask: &Ask,
    id: Option<&str>,
    name: Option<&str>,
    version: Option<&str>,
) -> Option<LaunchTemplate> {
    let cx = Cx::of(ask);
    let found = match (id, name) {
        (Some(id), _) => cx.get::<launch_template::LaunchTemplate>(id)?,
        (None, Some(name)) => launch_template::by_name(&cx, name).ok()?,
        (None, None) => return None,
    };
    let version = found.version(version.filter(|version| !version.is_empty()).unwrap_or("$Default")).ok()?;
    Some(LaunchTemplate {
        id: found.common.id.clone(),
        name: found.name.clone(),
        version: version.number,
        data: version.data.clone(),
    })
}

/// Starts a machine of a node group, with an interface in its subnet: its id and address.
pub fn launch_instance(ask: &mut Ask, wanted: &Machines, subnet: &Subnet) -> Option<(String, Ipv4Addr)> {
    let (id, now, account) = (ids::new("i"), ask.now(), ask.account.to_owned());
    let own = &wanted.cluster.spec.get("resourcesVpcConfig", now)["clusterSecurityGroupId"];
    let new = NewInterface {
        groups: own.as_str().map(str::to_owned).into_iter().collect(),
        attachment: Some(Attachment::new(Some(id.clone()), &account, 0)),
        ..NewInterface::default()
    };
    let ec2 = &mut ask.store().ec2;
    let interface = network_interface::add(ec2, &subnet.id, new, now).ok()?;
    ec2.network_interfaces.update(&interface, |interface| interface.common.default = true);
    let address = ec2.network_interfaces.get(&interface)?.private_ip.parse().ok()?;
    Some((id, address))
}

/// Ends a machine: its interface is there until `at`.
pub fn end_instance(ask: &mut Ask, id: &str, at: SimTime) {
    let ec2 = &mut ask.store().ec2;
    let interfaces = ec2.network_interfaces.find(&format!("instance:{id}"));
    let ids: Vec<String> = interfaces.map(|interface| interface.common.id.clone()).collect();
    for id in ids {
        ec2.network_interfaces.update(&id, |interface| interface.common.gone_at = Some(at));
    }
}
