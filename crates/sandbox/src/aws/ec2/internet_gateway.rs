//! Internet gateways, and those that let IPv6 out only.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filter::{Filter, one, some};
use super::resource::{Common, Cx, Names, Resource, done, in_use, kept, limit, named, shown};
use super::vpc::Vpc;
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, fail};
use crate::clock::SimTime;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InternetGateway {
    pub common: Common,
    /// The VPC that it is attached to.
    pub vpc: Option<String>,
}

kept!(InternetGateway, "aws.internet_gateway", internet_gateways);

impl Resource for InternetGateway {
    const NAMES: Names = Names {
        kind: "internet-gateway",
        prefix: "igw",
        ids: "InternetGatewayId",
        set: "internetGatewaySet",
        not_found: "InvalidInternetGatewayID.NotFound",
        malformed: "InvalidInternetGatewayId.Malformed",
        title: "The internetGateway ID '{}' does not exist",
        indexed: &[("attachment.vpc-id", "vpc")],
    };
    const FILTERS: &'static [Filter<InternetGateway>] = &[
        ("internet-gateway-id", |gateway, _| one(&gateway.common.id)),
        ("attachment.vpc-id", |gateway, _| some(gateway.vpc.as_ref())),
        ("attachment.state", |gateway, _| some(gateway.vpc.as_ref().map(|_| "available"))),
    ];

    fn indexes(&self) -> Vec<String> {
        self.vpc.iter().map(|vpc| format!("vpc:{vpc}")).collect()
    }

    fn show(&self, cx: &Cx) -> Value {
        let attached: Vec<_> = self.vpc.iter().map(|vpc| json!({"vpcId": vpc, "state": "available"})).collect();
        json!({"internetGatewayId": self.common.id, "ownerId": cx.account, "attachmentSet": attached})
    }

    fn facts(&self, _: SimTime) -> Value {
        json!({"vpc": self.vpc})
    }
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let gateway = InternetGateway { common: Common::asked(ask, "igw", "internet-gateway")?, vpc: None };
    let count = Cx::of(ask).store.internet_gateways.count(&format!("region:{}", ask.region));
    limit(count, ask.state.quota.networks as usize, "InternetGatewayLimitExceeded", "internet gateways")?;
    let answer = json!({"internetGateway": shown(&gateway, &Cx::of(ask))});
    ask.store().ec2.internet_gateways.insert(gateway);
    Ok(answer)
}

pub fn attach(ask: &mut Ask) -> Answer<Value> {
    let gateway = named::<InternetGateway>(ask, "InternetGatewayId")?;
    let vpc = named::<Vpc>(ask, "VpcId")?.common.id.clone();
    let id = gateway.common.id.clone();
    if let Some(other) = &gateway.vpc {
        return fail("Resource.AlreadyAssociated", format!("resource {id} is already attached to network {other}"));
    }
    if ask.store().ec2.internet_gateways.count(&format!("vpc:{vpc}")) > 0 {
        return fail("InvalidParameterValue", format!("Network {vpc} already has an internet gateway attached"));
    }
    ask.store().ec2.internet_gateways.update(&id, |gateway| gateway.vpc = Some(vpc));
    done()
}

pub fn detach(ask: &mut Ask) -> Answer<Value> {
    let gateway = named::<InternetGateway>(ask, "InternetGatewayId")?;
    let vpc = named::<Vpc>(ask, "VpcId")?.common.id.clone();
    let id = gateway.common.id.clone();
    if gateway.vpc.as_ref() != Some(&vpc) {
        return fail("Gateway.NotAttached", format!("resource {id} is not attached to network {vpc}"));
    }
    let store = Cx::of(ask).store;
    let mapped = store.network_interfaces.find(&format!("vpc:{vpc}")).any(|one| one.public_address(store).is_some());
    if mapped {
        let message = format!(
            "Network {vpc} has some mapped public address(es). Please unmap those public address(es) before detaching the gateway."
        );
        return fail("DependencyViolation", message);
    }
    ask.store().ec2.internet_gateways.update(&id, |gateway| gateway.vpc = None);
    done()
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let gateway = named::<InternetGateway>(ask, "InternetGatewayId")?;
    let id = gateway.common.id.clone();
    if gateway.vpc.is_some() {
        return Err(in_use::<InternetGateway>(&id, "internetGateway"));
    }
    ask.store().ec2.internet_gateways.remove(&id);
    done()
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EgressGateway {
    pub common: Common,
    pub vpc: String,
}

kept!(EgressGateway, "aws.egress_only_internet_gateway", egress_gateways);

impl Resource for EgressGateway {
    const NAMES: Names = Names {
        kind: "egress-only-internet-gateway",
        prefix: "eigw",
        ids: "EgressOnlyInternetGatewayId",
        set: "egressOnlyInternetGatewaySet",
        not_found: "InvalidGatewayID.NotFound",
        malformed: "InvalidEgressOnlyInternetGatewayId.Malformed",
        title: "The eigw ID '{}' does not exist",
        indexed: &[],
    };
    const FILTERS: &'static [Filter<EgressGateway>] = &[];

    fn indexes(&self) -> Vec<String> {
        vec![format!("vpc:{}", self.vpc)]
    }

    fn show(&self, _: &Cx) -> Value {
        json!({"egressOnlyInternetGatewayId": self.common.id,
               "attachmentSet": [{"vpcId": self.vpc, "state": "attached"}]})
    }
}

pub fn create_egress_only(ask: &mut Ask) -> Answer<Value> {
    let vpc = named::<Vpc>(ask, "VpcId")?.common.id.clone();
    let common = Common::asked(ask, "eigw", "egress-only-internet-gateway")?;
    let gateway = EgressGateway { common, vpc };
    let shown = shown(&gateway, &Cx::of(ask));
    let answer = json!({"egressOnlyInternetGateway": shown, "clientToken": ask.input.text("ClientToken")});
    ask.store().ec2.egress_gateways.insert(gateway);
    Ok(answer)
}

pub fn delete_egress_only(ask: &mut Ask) -> Answer<Value> {
    let id = named::<EgressGateway>(ask, "EgressOnlyInternetGatewayId")?.common.id.clone();
    ask.store().ec2.egress_gateways.remove(&id);
    Ok(json!({"returnCode": true}))
}
