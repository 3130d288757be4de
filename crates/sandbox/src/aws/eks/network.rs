//! What EKS looks up and makes in EC2: subnets, the cluster's security group, its network interfaces, launch templates.

use std::net::Ipv4Addr;

use serde_json::Value;

use super::instance_types;
use super::node_group_calls::Machines;
use crate::aws::ask::{Ask, Tags};
use crate::aws::ec2::instance::{self, Launch};
use crate::aws::ec2::network_interface::{self, Attachment, NewInterface};
use crate::aws::ec2::resource::{Common, Cx};
use crate::aws::ec2::security_group::{self, SecurityGroup};
use crate::aws::ec2::vpc::Vpc;
use crate::aws::ec2::{image, launch_template, subnet};
use crate::clock::SimTime;

/// What EKS needs to know of a subnet.
#[derive(Clone, Debug)]
pub struct Subnet {
    pub id: String,
    pub vpc: String,
    pub zone: String,
    /// Its addresses, such as `10.0.1.0/24`.
    pub cidr: String,
}

pub fn subnet(ask: &Ask, id: &str) -> Option<Subnet> {
    let found = Cx::of(ask).get::<subnet::Subnet>(id)?;
    let (vpc, zone, cidr) = (found.vpc.clone(), found.zone.clone(), found.cidr.clone());
    Some(Subnet { id: id.to_owned(), vpc, zone, cidr })
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

/// Starts a machine of a node group: its id and address.
pub fn launch_instance(
    ask: &mut Ask,
    wanted: &Machines,
    subnet: &Subnet,
    running_at: SimTime,
) -> Option<(String, Ipv4Addr)> {
    let (cluster, group, now) = (wanted.cluster, wanted.group, ask.now());
    let tags = Tags::from([
        ("Name".into(), group.autoscaling_group()),
        ("aws:autoscaling:groupName".into(), group.autoscaling_group()),
        ("eks:cluster-name".into(), cluster.name.clone()),
        ("eks:nodegroup-name".into(), group.name.clone()),
        (format!("kubernetes.io/cluster/{}", cluster.name), "owned".into()),
        (format!("k8s.io/cluster-autoscaler/{}", cluster.name), "owned".into()),
        ("k8s.io/cluster-autoscaler/enabled".into(), "true".into()),
    ]);
    let own = &cluster.spec.get("resourcesVpcConfig", now)["clusterSecurityGroupId"];
    let arm = instance_types::find(&group.instance_type).is_some_and(|found| found.arm);
    let launch = Launch {
        instance_type: group.instance_type.clone(),
        image: image::of_node(ask.region, wanted.version, if arm { "arm64" } else { "x86_64" }),
        subnet: subnet.id.clone(),
        groups: own.as_str().map(str::to_owned).into_iter().collect(),
        tags,
        spot: group.spec.text("capacityType", now) == "SPOT",
        ..Launch::default()
    };
    let account = ask.account.to_owned();
    let ec2 = &mut ask.store().ec2;
    let id = instance::launch(ec2, launch, &account, now, running_at).ok()?;
    let address = ec2.instances.get(&id)?.private_ip.parse().ok()?;
    Some((id, address))
}

/// Ends a machine, all done at `at`.
pub fn end_instance(ask: &mut Ask, id: &str, at: SimTime) {
    let now = ask.now();
    instance::end(&mut ask.store().ec2, id, now, at);
}
