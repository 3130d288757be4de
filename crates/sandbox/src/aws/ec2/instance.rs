//! Instances: the machines behind the nodes of clusters. They belong to their node groups; here they are only shown.

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::filter::{Filter, Filters, one, some};
use super::network_interface::{NetworkInterface, private_dns};
use super::resource::{Cx, Resource, time};
use super::{image, instance_type, paging, security_group, tags};
use crate::aws::ask::Ask;
use crate::aws::eks::{Machine, machines};
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::ids;
use crate::clock::SimTime;

struct Instance {
    machine: Machine,
    subnet: String,
    vpc: String,
    groups: Vec<String>,
}

impl Instance {
    /// In the one of its node group's subnets that has its address.
    fn of(machine: Machine, cx: &Cx) -> Instance {
        let subnets = machine.subnets.iter().filter_map(|id| cx.store.subnets.get(id));
        let has = |cidr: &str| cidr.parse::<Ipv4Net>().is_ok_and(|net| net.contains(&machine.address));
        let found = subnets.into_iter().find(|subnet| has(&subnet.cidr));
        let (subnet, vpc) = found.map(|one| (one.common.id.clone(), one.vpc.clone())).unwrap_or_default();
        Instance { subnet, vpc, groups: machine.group.iter().cloned().collect(), machine }
    }

    fn state(&self, now: SimTime) -> (i64, &'static str) {
        // A node is ready a while after its machine runs.
        let running_at = self.machine.created_at.0 + (self.machine.ready_at.0 - self.machine.created_at.0) / 2;
        if now.0 >= running_at { (16, "running") } else { (0, "pending") }
    }

    fn private_dns(&self, cx: &Cx) -> String {
        private_dns(&self.machine.address.to_string(), cx.region)
    }

    fn arch(&self) -> &'static str {
        instance_type::find(&self.machine.instance_type).map_or("x86_64", |found| found.arch)
    }

    fn image(&self, cx: &Cx) -> String {
        image::of_node(cx.region, &self.machine.version, self.arch())
    }

    fn reservation(&self) -> String {
        format!("r-0{}", ids::stable(&self.machine.id, 16))
    }

    /// Inside an instance an interface does not say again whose it is.
    fn show_interfaces(&self, cx: &Cx) -> Vec<Value> {
        let show = |interface: &NetworkInterface| {
            let mut shown = interface.show(cx);
            if let Some(members) = shown.as_object_mut() {
                members.retain(|name, _| !name.starts_with("availabilityZone") && !name.starts_with("requester"));
                if let Some(attachment) = members.get_mut("attachment").and_then(Value::as_object_mut) {
                    attachment.retain(|name, _| !name.starts_with("instance"));
                }
            }
            shown
        };
        cx.store.network_interfaces.find(&format!("instance:{}", self.machine.id)).map(show).collect()
    }

    fn show(&self, cx: &Cx) -> Value {
        let (code, state) = self.state(cx.now);
        json!({
            "instanceId": self.machine.id,
            "imageId": self.image(cx),
            "instanceState": {"code": code, "name": state},
            "instanceType": self.machine.instance_type,
            "architecture": self.arch(),
            "launchTime": time(self.machine.created_at),
            "placement": {"availabilityZone": self.machine.zone, "tenancy": "default", "groupName": ""},
            "subnetId": self.subnet,
            "vpcId": self.vpc,
            "privateIpAddress": self.machine.address.to_string(),
            "privateDnsName": self.private_dns(cx),
            "dnsName": "",
            "groupSet": security_group::show_names(cx, &self.groups),
            "networkInterfaceSet": self.show_interfaces(cx),
            "instanceLifecycle": self.machine.spot.then_some("spot"),
            "amiLaunchIndex": 0,
            "monitoring": {"state": "disabled"},
            "rootDeviceName": "/dev/xvda",
            "rootDeviceType": "ebs",
            "virtualizationType": "hvm",
            "hypervisor": "xen",
            "ebsOptimized": false,
            "enaSupport": true,
            "sourceDestCheck": true,
            "blockDeviceMapping": [],
            "productCodes": [],
            "metadataOptions": {"state": "applied", "httpTokens": "required", "httpPutResponseHopLimit": 2,
                                "httpEndpoint": "enabled", "httpProtocolIpv6": "disabled"},
            "platformDetails": "Linux/UNIX",
            "tagSet": tags::set(&self.machine.tags),
        })
    }
}

const FILTERS: &[Filter<Instance>] = &[
    ("instance-id", |instance, _| one(&instance.machine.id)),
    ("instance-type", |instance, _| one(&instance.machine.instance_type)),
    ("instance-state-name", |instance, cx| one(instance.state(cx.now).1)),
    ("instance-state-code", |instance, cx| one(instance.state(cx.now).0)),
    ("instance-lifecycle", |instance, _| some(instance.machine.spot.then_some("spot"))),
    ("image-id", |instance, cx| one(instance.image(cx))),
    ("subnet-id", |instance, _| one(&instance.subnet)),
    ("vpc-id", |instance, _| one(&instance.vpc)),
    ("network-interface.subnet-id", |instance, _| one(&instance.subnet)),
    ("network-interface.vpc-id", |instance, _| one(&instance.vpc)),
    ("availability-zone", |instance, _| one(&instance.machine.zone)),
    ("private-ip-address", |instance, _| one(instance.machine.address)),
    ("private-dns-name", |instance, cx| one(instance.private_dns(cx))),
    ("ip-address", |_, _| vec![]),
    ("instance.group-id", |instance, _| instance.groups.clone()),
    ("instance.group-name", |instance, cx| security_group::names(cx, &instance.groups)),
    ("group-id", |instance, _| instance.groups.clone()),
    ("reservation-id", |instance, _| one(instance.reservation())),
    ("key-name", |_, _| vec![]),
    ("architecture", |instance, _| one(instance.arch())),
    ("launch-time", |instance, _| one(time(instance.machine.created_at))),
    ("tenancy", |_, _| one("default")),
];

pub fn absent(id: &str) -> Box<AwsError> {
    let digits = id.strip_prefix("i-").unwrap_or_default();
    match !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => AwsError::new(400, "InvalidInstanceID.NotFound", format!("The instance ID '{id}' does not exist")),
        false => {
            AwsError::new(400, "InvalidInstanceID.Malformed", format!("Invalid id: \"{id}\" (expecting \"i-...\")"))
        }
    }
}

fn select(ask: &Ask) -> Answer<Vec<Instance>> {
    let (cx, filters, ids) = (Cx::of(ask), Filters::read(&ask.input), ask.input.texts("InstanceId"));
    filters.check(FILTERS)?;
    if !ids.is_empty() && ask.input.int("MaxResults").is_some() {
        let message = "The parameter instancesSet cannot be used with the parameter maxResults";
        return fail("InvalidParameterCombination", message);
    }
    let machines = machines(&ask.state.store.eks, ask.region, ask.now());
    let all: Vec<Instance> = machines.into_iter().map(|machine| Instance::of(machine, &cx)).collect();
    if let Some(unknown) = ids.iter().find(|id| !all.iter().any(|instance| instance.machine.id == **id)) {
        return Err(absent(unknown));
    }
    let fits = |instance: &Instance| {
        let asked = ids.is_empty() || ids.contains(&instance.machine.id.as_str());
        asked && filters.fit(instance, &cx, FILTERS, &instance.machine.tags)
    };
    Ok(all.into_iter().filter(fits).collect())
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let (cx, rows) = (Cx::of(ask), select(ask)?);
    let (rows, next) = paging::page(&ask.input, rows, paging::USUAL)?;
    let reservation = |instance: &Instance| {
        json!({"reservationId": instance.reservation(), "ownerId": cx.account, "groupSet": [],
               "instancesSet": [instance.show(&cx)]})
    };
    Ok(json!({"reservationSet": rows.iter().map(reservation).collect::<Vec<_>>(), "nextToken": next}))
}

pub fn describe_status(ask: &mut Ask) -> Answer<Value> {
    let (cx, all) = (Cx::of(ask), ask.input.flag("IncludeAllInstances") == Some(true));
    let mut rows = select(ask)?;
    rows.retain(|instance| all || instance.state(cx.now).1 == "running");
    let (rows, next) = paging::page(&ask.input, rows, paging::USUAL)?;
    let show = |instance: &Instance| {
        let (code, state) = instance.state(cx.now);
        let status = if state == "running" { "ok" } else { "not-applicable" };
        let details = json!({"status": status, "details": [{"name": "reachability", "status": "passed"}]});
        json!({"instanceId": instance.machine.id, "availabilityZone": instance.machine.zone,
               "instanceState": {"code": code, "name": state}, "instanceStatus": details, "systemStatus": details})
    };
    Ok(json!({"instanceStatusSet": rows.iter().map(show).collect::<Vec<_>>(), "nextToken": next}))
}
