//! Elastic addresses.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filter::{Filter, one, some};
use super::network_interface::NetworkInterface;
use super::resource::{Common, Cx, Names, Resource, done, kept, limit, select_ids, shown};
use super::{Tables, cidr};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::ids;
use crate::clock::SimTime;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Address {
    pub common: Common,
    pub public_ip: String,
    /// Holds as long as the interface is there.
    pub association: Option<Association>,
    /// The name that a reverse lookup gives.
    #[serde(default)]
    pub domain_name: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Association {
    pub id: String,
    pub interface: String,
}

kept!(Address, "aws.address", addresses);

impl Address {
    /// The interface that it is associated with.
    fn interface<'a>(&self, store: &'a Tables) -> Option<&'a NetworkInterface> {
        store.network_interfaces.get(&self.association.as_ref()?.interface)
    }

    pub fn association_id(&self) -> Option<&str> {
        self.association.as_ref().map(|association| association.id.as_str())
    }

    pub fn live_association<'a>(&'a self, store: &Tables) -> Option<&'a Association> {
        self.association.as_ref().filter(|_| self.interface(store).is_some())
    }

    pub fn public_dns(&self) -> String {
        let dashed = self.public_ip.replace('.', "-");
        match self.common.region.as_str() {
            "us-east-1" => format!("ec2-{dashed}.compute-1.amazonaws.com"),
            region => format!("ec2-{dashed}.{region}.compute.amazonaws.com"),
        }
    }

    fn instance<'a>(&self, store: &'a Tables) -> Option<&'a String> {
        self.interface(store)?.attachment.as_ref()?.instance.as_ref()
    }
}

impl Resource for Address {
    const NAMES: Names = Names {
        kind: "elastic-ip",
        prefix: "eipalloc",
        ids: "AllocationId",
        set: "addressesSet",
        not_found: "InvalidAllocationID.NotFound",
        malformed: "InvalidParameterValue",
        title: "The allocation ID '{}' does not exist",
        indexed: &[("allocation-id", "allocation"), ("association-id", "association"), ("public-ip", "ip")],
    };
    const FILTERS: &'static [Filter<Address>] = &[
        ("allocation-id", |address, _| one(&address.common.id)),
        ("association-id", |address, cx| some(address.live_association(cx.store).map(|one| &one.id))),
        ("domain", |_, _| one("vpc")),
        ("instance-id", |address, cx| some(address.instance(cx.store))),
        ("network-border-group", |address, _| one(&address.common.region)),
        ("network-interface-id", |address, cx| some(address.interface(cx.store).map(|eni| &eni.common.id))),
        ("network-interface-owner-id", |address, cx| some(address.interface(cx.store).map(|_| cx.account))),
        ("private-ip-address", |address, cx| some(address.interface(cx.store).map(|eni| &eni.private_ip))),
        ("public-ip", |address, _| one(&address.public_ip)),
    ];

    fn indexes(&self) -> Vec<String> {
        let mut keys = vec![format!("allocation:{}", self.common.id), format!("ip:{}", self.public_ip)];
        if let Some(association) = &self.association {
            keys.push(format!("association:{}", association.id));
            keys.push(format!("eni:{}", association.interface));
        }
        keys
    }

    fn show(&self, cx: &Cx) -> Value {
        let interface = self.interface(cx.store);
        json!({
            "allocationId": self.common.id,
            "publicIp": self.public_ip,
            "domain": "vpc",
            "publicIpv4Pool": "amazon",
            "networkBorderGroup": self.common.region,
            "associationId": self.live_association(cx.store).map(|one| &one.id),
            "networkInterfaceId": interface.map(|eni| &eni.common.id),
            "networkInterfaceOwnerId": interface.map(|_| cx.account),
            "privateIpAddress": interface.map(|eni| &eni.private_ip),
            "instanceId": self.instance(cx.store),
        })
    }

    fn facts(&self, _: SimTime) -> Value {
        json!({"public_ip": self.public_ip})
    }
}

pub fn allocate(ask: &mut Ask) -> Answer<Value> {
    if let Some(domain) = ask.input.text("Domain").filter(|domain| *domain != "vpc") {
        return fail("InvalidParameterValue", format!("Invalid value '{domain}' for domain. Valid value is 'vpc'."));
    }
    let common = Common::asked(ask, "eipalloc", "elastic-ip")?;
    let count = Cx::of(ask).store.addresses.count(&format!("region:{}", ask.region));
    limit(count, ask.state.quota.networks as usize, "AddressLimitExceeded", "addresses")?;
    let mut public_ip = cidr::public_v4(ask.state.dice);
    while ask.store().ec2.addresses.count(&format!("ip:{public_ip}")) > 0 {
        public_ip = cidr::public_v4(ask.state.dice);
    }
    let answer = json!({"allocationId": common.id, "publicIp": public_ip, "domain": "vpc", "publicIpv4Pool": "amazon",
                        "networkBorderGroup": common.region});
    ask.store().ec2.addresses.insert(Address { common, public_ip, association: None, domain_name: None });
    Ok(answer)
}

/// By allocation ids or public addresses; there are no pages.
pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let (cx, ips) = (Cx::of(ask), ask.input.texts("PublicIp"));
    let mut ids = ask.input.texts("AllocationId");
    for ip in ips {
        let found = cx.store.addresses.find(&format!("ip:{ip}")).find(|one| one.common.region == cx.region);
        match found {
            Some(address) => ids.push(&address.common.id),
            None => return fail("InvalidAddress.NotFound", format!("Address '{ip}' not found.")),
        }
    }
    let rows = select_ids::<Address>(ask, &ids)?;
    Ok(json!({"addressesSet": rows.into_iter().map(|address| shown(address, &cx)).collect::<Vec<_>>()}))
}

pub fn describe_attribute(ask: &mut Ask) -> Answer<Value> {
    let rows = select_ids::<Address>(ask, &ask.input.texts("AllocationId"))?;
    let show = |address: &Address| {
        let name = address.domain_name.as_ref()?;
        Some(json!({"allocationId": address.common.id, "publicIp": address.public_ip, "ptrRecord": name}))
    };
    Ok(json!({"addressSet": rows.into_iter().filter_map(show).collect::<Vec<_>>()}))
}

pub fn modify_attribute(ask: &mut Ask) -> Answer<Value> {
    let id = find(ask)?.common.id.clone();
    let name = ask.input.text("DomainName").map(|name| format!("{}.", name.trim_end_matches('.')));
    ask.store().ec2.addresses.update(&id, |address| address.domain_name = name.clone());
    let ip = Cx::of(ask).require::<Address>(&id)?.public_ip.clone();
    let status = json!({"value": name, "status": "successful"});
    Ok(json!({"address": {"allocationId": id, "publicIp": ip, "ptrRecord": name, "ptrRecordUpdate": status}}))
}

/// The address that a call names by its allocation or itself.
fn find<'a>(ask: &'a Ask<'_, '_>) -> Answer<&'a Address> {
    let cx = Cx::of(ask);
    match (ask.input.text("AllocationId"), ask.input.text("PublicIp")) {
        (Some(id), _) => cx.require::<Address>(id),
        (None, Some(ip)) => {
            let found = cx.store.addresses.find(&format!("ip:{ip}")).find(|one| one.common.region == cx.region);
            found.ok_or_else(|| AwsError::new(400, "InvalidAddress.NotFound", format!("Address '{ip}' not found.")))
        }
        (None, None) => fail("MissingParameter", "Either public IP or allocation id must be specified"),
    }
}

pub fn associate(ask: &mut Ask) -> Answer<Value> {
    let (cx, address) = (Cx::of(ask), find(ask)?);
    let id = address.common.id.clone();
    let interface = match (ask.input.text("NetworkInterfaceId"), ask.input.text("InstanceId")) {
        (Some(interface), _) => cx.require::<NetworkInterface>(interface)?,
        (None, Some(instance)) => match cx.store.network_interfaces.first(&format!("instance:{instance}")) {
            Some(interface) => interface,
            None => return Err(super::instance::absent(instance)),
        },
        (None, None) => {
            return fail("MissingParameter", "Either instance ID or network interface id must be specified");
        }
    };
    let vpc = &interface.vpc;
    if cx.store.internet_gateways.count(&format!("vpc:{vpc}")) == 0 {
        return fail("Gateway.NotAttached", format!("Network {vpc} is not attached to any internet gateway"));
    }
    if let Some(old) = address.live_association(cx.store)
        && ask.input.flag("AllowReassociation") == Some(false)
    {
        let message = format!("resource {id} is already associated with associate-id {}", old.id);
        return fail("Resource.AlreadyAssociated", message);
    }
    let association = Association { id: ids::new("eipassoc"), interface: interface.common.id.clone() };
    let answer = json!({"return": true, "associationId": association.id});
    ask.store().ec2.addresses.update(&id, |address| address.association = Some(association));
    Ok(answer)
}

pub fn disassociate(ask: &mut Ask) -> Answer<Value> {
    let cx = Cx::of(ask);
    let address = match ask.input.text("AssociationId") {
        Some(association) => {
            let found = cx.store.addresses.first(&format!("association:{association}"));
            let found = found.filter(|one| one.common.region == cx.region && one.live_association(cx.store).is_some());
            found.ok_or_else(|| {
                let message = format!("The association ID '{association}' does not exist");
                AwsError::new(400, "InvalidAssociationID.NotFound", message)
            })?
        }
        None => find(ask)?,
    };
    let managed = address.interface(cx.store).is_some_and(|interface| interface.requester.is_some());
    if managed {
        return fail("AuthFailure", "You do not have permission to access the specified resource.");
    }
    let id = address.common.id.clone();
    ask.store().ec2.addresses.update(&id, |address| address.association = None);
    done()
}

pub fn release(ask: &mut Ask) -> Answer<Value> {
    let address = find(ask)?;
    if address.live_association(Cx::of(ask).store).is_some() {
        return fail("InvalidIPAddress.InUse", format!("Address {} is in use.", address.public_ip));
    }
    let id = address.common.id.clone();
    ask.store().ec2.addresses.remove(&id);
    done()
}
