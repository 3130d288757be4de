//! Instances: the machines behind node groups. Callers see and terminate them, services launch them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filter::{Filter, one, some};
use super::network_interface::{self, Attachment, NewInterface};
use super::resource::{Common, Cx, Names, Resource, kept, select, shown, time};
use super::{Tables, instance_type, paging, security_group};
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, fail};
use crate::aws::ids;
use crate::clock::SimTime;

/// How long a terminated instance is still shown.
const SHOWN_MS: i64 = 3_600_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Instance {
    pub common: Common,
    pub instance_type: String,
    pub image: String,
    pub subnet: String,
    pub vpc: String,
    pub zone: String,
    pub private_ip: String,
    pub groups: Vec<String>,
    pub interface: String,
    pub reservation: String,
    pub key_name: Option<String>,
    pub profile_arn: Option<String>,
    pub spot: bool,
    pub running_at: SimTime,
    /// When it began to shut down, and when it is terminated.
    pub termination: Option<(SimTime, SimTime)>,
}

/// What a service launches.
#[derive(Clone, Default)]
pub struct Launch {
    pub instance_type: String,
    pub image: String,
    pub subnet: String,
    pub groups: Vec<String>,
    pub tags: Tags,
    pub key_name: Option<String>,
    pub profile_arn: Option<String>,
    pub spot: bool,
}

kept!(Instance, "aws.instance", instances);

impl Instance {
    pub fn state(&self, now: SimTime) -> (i64, &'static str) {
        match self.termination {
            Some((_, done)) if now >= done => (48, "terminated"),
            Some(_) => (32, "shutting-down"),
            None if now < self.running_at => (0, "pending"),
            None => (16, "running"),
        }
    }

    pub fn private_dns(&self) -> String {
        network_interface::private_dns(&self.private_ip, &self.common.region)
    }

    fn public_ip<'a>(&self, cx: &Cx<'a>) -> Option<&'a String> {
        cx.store.addresses.first(&format!("eni:{}", self.interface)).map(|address| &address.public_ip)
    }

    fn show_interfaces(&self, cx: &Cx) -> Value {
        let Some(interface) = cx.store.network_interfaces.get(&self.interface) else { return json!([]) };
        let mut shown = interface.show(cx);
        // Inside an instance an interface does not say again whose it is.
        if let Some(members) = shown.as_object_mut() {
            members.retain(|name, _| {
                !matches!(name.as_str(), "availabilityZone" | "availabilityZoneId" | "requesterId" | "requesterManaged")
            });
            if let Some(attachment) = members.get_mut("attachment").and_then(Value::as_object_mut) {
                attachment.retain(|name, _| !name.starts_with("instance"));
            }
        }
        json!([shown])
    }
}

impl Resource for Instance {
    const NAMES: Names = Names {
        kind: "instance",
        prefix: "i",
        ids: "InstanceId",
        set: "instancesSet",
        not_found: "InvalidInstanceID.NotFound",
        malformed: "InvalidInstanceID.Malformed",
        title: "The instance ID '{}' does not exist",
        indexed: &[("subnet-id", "subnet"), ("vpc-id", "vpc"), ("private-dns-name", "dns")],
    };
    const FILTERS: &'static [Filter<Instance>] = &[
        ("instance-id", |instance, _| one(&instance.common.id)),
        ("instance-type", |instance, _| one(&instance.instance_type)),
        ("instance-state-name", |instance, cx| one(instance.state(cx.now).1)),
        ("instance-state-code", |instance, cx| one(instance.state(cx.now).0)),
        ("instance-lifecycle", |instance, _| some(instance.spot.then_some("spot"))),
        ("image-id", |instance, _| one(&instance.image)),
        ("subnet-id", |instance, _| one(&instance.subnet)),
        ("vpc-id", |instance, _| one(&instance.vpc)),
        ("availability-zone", |instance, _| one(&instance.zone)),
        ("private-ip-address", |instance, _| one(&instance.private_ip)),
        ("private-dns-name", |instance, _| one(instance.private_dns())),
        ("ip-address", |instance, cx| some(instance.public_ip(cx))),
        ("instance.group-id", |instance, _| instance.groups.clone()),
        ("instance.group-name", |instance, cx| security_group::names(cx, &instance.groups)),
        ("group-id", |instance, _| instance.groups.clone()),
        ("network-interface.network-interface-id", |instance, _| one(&instance.interface)),
        ("network-interface.subnet-id", |instance, _| one(&instance.subnet)),
        ("network-interface.vpc-id", |instance, _| one(&instance.vpc)),
        ("reservation-id", |instance, _| one(&instance.reservation)),
        ("key-name", |instance, _| some(instance.key_name.as_ref())),
        ("iam-instance-profile.arn", |instance, _| some(instance.profile_arn.as_ref())),
        ("architecture", |instance, _| one(arch(&instance.instance_type))),
        ("launch-time", |instance, _| one(time(instance.common.created))),
        ("tenancy", |_, _| one("default")),
    ];

    fn indexes(&self) -> Vec<String> {
        vec![format!("subnet:{}", self.subnet), format!("vpc:{}", self.vpc), format!("dns:{}", self.private_dns())]
    }

    fn show(&self, cx: &Cx) -> Value {
        let (code, state) = self.state(cx.now);
        let gone = state == "terminated";
        let profile = self
            .profile_arn
            .as_ref()
            .map(|arn| json!({"arn": arn, "id": format!("AIPA{}", ids::stable(arn, 16).to_uppercase())}));
        json!({
            "instanceId": self.common.id,
            "imageId": self.image,
            "instanceState": {"code": code, "name": state},
            "instanceType": self.instance_type,
            "architecture": arch(&self.instance_type),
            "launchTime": time(self.common.created),
            "placement": {"availabilityZone": self.zone, "tenancy": "default", "groupName": ""},
            "subnetId": (!gone).then_some(&self.subnet),
            "vpcId": (!gone).then_some(&self.vpc),
            "privateIpAddress": (!gone).then_some(&self.private_ip),
            "privateDnsName": if gone { String::new() } else { self.private_dns() },
            "ipAddress": self.public_ip(cx),
            "dnsName": "",
            "groupSet": security_group::show_names(cx, &self.groups),
            "networkInterfaceSet": self.show_interfaces(cx),
            "keyName": self.key_name,
            "iamInstanceProfile": profile,
            "instanceLifecycle": self.spot.then_some("spot"),
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
        })
    }

    fn facts(&self, now: SimTime) -> Value {
        json!({"subnet": self.subnet, "size": self.instance_type, "status": self.state(now).1})
    }

    fn is_gone(&self, now: SimTime) -> bool {
        self.state(now).1 == "terminated"
    }
}

fn arch(instance_type: &str) -> &'static str {
    instance_type::find(instance_type).map_or("x86_64", |found| found.arch)
}

/// Starts an instance, with an interface in its subnet.
pub fn launch(store: &mut Tables, launch: Launch, account: &str, now: SimTime, running_at: SimTime) -> Answer<String> {
    let id = ids::new("i");
    let new = NewInterface {
        groups: launch.groups,
        attachment: Some(Attachment::new(Some(id.clone()), account, 0)),
        ..NewInterface::default()
    };
    let interface = network_interface::add(store, &launch.subnet, new, now)?;
    let Some(eni) = store.network_interfaces.get(&interface) else { return fail("InternalError", "no interface") };
    let instance = Instance {
        common: Common {
            id: id.clone(),
            tags: launch.tags,
            default: true,
            ..Common::made("i", &eni.common.region, now)
        },
        instance_type: launch.instance_type,
        image: launch.image,
        subnet: eni.subnet.clone(),
        vpc: eni.vpc.clone(),
        zone: eni.zone.clone(),
        private_ip: eni.private_ip.clone(),
        groups: eni.groups.clone(),
        reservation: ids::new("r"),
        key_name: launch.key_name,
        profile_arn: launch.profile_arn,
        spot: launch.spot,
        running_at,
        termination: None,
        interface,
    };
    store.instances.insert(instance);
    Ok(id)
}

/// Ends an instance: its interface goes with it.
pub fn end(store: &mut Tables, id: &str, now: SimTime, done: SimTime) {
    let interface = store.instances.update(id, |instance| {
        instance.termination.get_or_insert((now, done));
        instance.common.gone_at.get_or_insert(done.plus_ms(SHOWN_MS));
        instance.interface.clone()
    });
    if let Some(interface) = interface {
        store.network_interfaces.update(&interface, |eni| eni.common.gone_at = Some(done));
    }
}

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    if !ask.input.texts("InstanceId").is_empty() && ask.input.int("MaxResults").is_some() {
        let message = "The parameter instancesSet cannot be used with the parameter maxResults";
        return fail("InvalidParameterCombination", message);
    }
    let (cx, rows) = (Cx::of(ask), select::<Instance>(ask)?);
    let (rows, next) = paging::page(&ask.input, rows, paging::USUAL)?;
    let reservation = |instance: &Instance| {
        json!({"reservationId": instance.reservation, "ownerId": cx.account, "groupSet": [],
               "instancesSet": [shown(instance, &cx)]})
    };
    Ok(json!({"reservationSet": rows.into_iter().map(reservation).collect::<Vec<_>>(), "nextToken": next}))
}

pub fn describe_status(ask: &mut Ask) -> Answer<Value> {
    let (cx, all) = (Cx::of(ask), ask.input.flag("IncludeAllInstances") == Some(true));
    let mut rows = select::<Instance>(ask)?;
    rows.retain(|instance| all || instance.state(cx.now).1 == "running");
    let (rows, next) = paging::page(&ask.input, rows, paging::USUAL)?;
    let show = |instance: &Instance| {
        let (code, state) = instance.state(cx.now);
        let status = if state == "running" { "ok" } else { "not-applicable" };
        let details = json!({"status": status, "details": [{"name": "reachability", "status": "passed"}]});
        json!({"instanceId": instance.common.id, "availabilityZone": instance.zone,
               "instanceState": {"code": code, "name": state}, "instanceStatus": details, "systemStatus": details})
    };
    Ok(json!({"instanceStatusSet": rows.into_iter().map(show).collect::<Vec<_>>(), "nextToken": next}))
}

pub fn terminate(ask: &mut Ask) -> Answer<Value> {
    let rows = select::<Instance>(ask)?;
    if ask.input.texts("InstanceId").is_empty() {
        return fail("MissingParameter", "The request must contain the parameter InstanceId");
    }
    let now = ask.now();
    let before: Vec<_> = rows.iter().map(|one| (one.common.id.clone(), one.state(now))).collect();
    let mut shown = Vec::new();
    for (id, (code, state)) in before {
        let done = ask.in_seconds(20, 40);
        end(&mut ask.store().ec2, &id, now, done);
        let after = if state == "terminated" {
            json!({"code": 48, "name": state})
        } else {
            json!({"code": 32, "name": "shutting-down"})
        };
        shown.push(json!({"instanceId": id, "currentState": after, "previousState": {"code": code, "name": state}}));
    }
    Ok(json!({"instancesSet": shown}))
}
