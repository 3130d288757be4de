//! The services that a VPC can reach by an endpoint.

use serde_json::{Value, json};

use super::filter::{Filter, Filters, one};
use super::resource::Cx;
use super::{paging, places};
use crate::aws::ask::{Ask, Tags};
use crate::aws::errors::{Answer, fail};
use crate::aws::ids;

pub struct EndpointService {
    pub name: String,
    short: &'static str,
    /// `Gateway` or `Interface`.
    pub kind: &'static str,
}

const GATEWAYS: &[&str] = &["s3", "dynamodb"];
const INTERFACES: &[&str] = &[
    "autoscaling",
    "dynamodb",
    "ec2",
    "ec2messages",
    "ecr.api",
    "ecr.dkr",
    "eks",
    "eks-auth",
    "elasticfilesystem",
    "elasticloadbalancing",
    "events",
    "guardduty-data",
    "kms",
    "lambda",
    "logs",
    "monitoring",
    "rds",
    "s3",
    "secretsmanager",
    "sns",
    "sqs",
    "ssm",
    "ssmmessages",
    "sts",
    "xray",
];

fn all(region: &str) -> Vec<EndpointService> {
    let service = |short: &'static str, kind: &'static str| EndpointService {
        name: format!("com.amazonaws.{region}.{short}"),
        short,
        kind,
    };
    let gateways = GATEWAYS.iter().map(|short| service(short, "Gateway"));
    gateways.chain(INTERFACES.iter().map(|short| service(short, "Interface"))).collect()
}

/// Whether a service can be reached by this kind of endpoint.
pub fn exists(region: &str, name: &str, kind: &str) -> bool {
    all(region).iter().any(|service| service.name == name && service.kind == kind)
}

impl EndpointService {
    /// The name by which programs call the service, which private DNS takes over.
    pub fn private_dns(&self, region: &str) -> String {
        match self.short {
            "ecr.api" => format!("api.ecr.{region}.amazonaws.com"),
            "ecr.dkr" => format!("*.dkr.ecr.{region}.amazonaws.com"),
            short => format!("{short}.{region}.amazonaws.com"),
        }
    }

    fn show(&self, region: &str) -> Value {
        let zones = places::zones(region);
        let private = (self.kind == "Interface").then(|| self.private_dns(region));
        json!({
            "serviceName": self.name,
            "serviceId": format!("vpce-svc-{}", ids::stable(&format!("{}/{}", self.kind, self.name), 17)),
            "serviceRegion": region,
            "serviceType": [{"serviceType": self.kind}],
            "owner": "amazon",
            "availabilityZoneSet": zones.iter().map(|zone| zone.name.as_str()).collect::<Vec<_>>(),
            "availabilityZoneIdSet": zones.iter().map(|zone| zone.id.as_str()).collect::<Vec<_>>(),
            "baseEndpointDnsNameSet": [format!("{}.{region}.vpce.amazonaws.com", self.short)],
            "privateDnsName": private,
            "privateDnsNameSet": private.iter().map(|name| json!({"privateDnsName": name})).collect::<Vec<_>>(),
            "privateDnsNameVerificationState": private.as_ref().map(|_| "verified"),
            "supportedIpAddressTypeSet": ["ipv4"],
            "vpcEndpointPolicySupported": true,
            "acceptanceRequired": false,
            "managesVpcEndpoints": false,
            "tagSet": [],
        })
    }
}

/// Names by which an interface endpoint of this service takes over calls.
pub fn private_dns(region: &str, name: &str) -> Option<String> {
    let service = all(region).into_iter().find(|service| service.name == name && service.kind == "Interface")?;
    Some(service.private_dns(region))
}

const FILTERS: &[Filter<EndpointService>] = &[
    ("service-name", |service, _| one(&service.name)),
    ("service-type", |service, _| one(service.kind)),
    ("owner", |_, _| one("amazon")),
    ("service-region", |_, cx| one(cx.region)),
    ("supported-ip-address-types", |_, _| one("ipv4")),
];

pub fn describe(ask: &mut Ask) -> Answer<Value> {
    let (cx, filters, names) = (Cx::of(ask), Filters::read(&ask.input), ask.input.texts("ServiceName"));
    filters.check(FILTERS)?;
    let known = all(ask.region);
    if let Some(unknown) = names.iter().find(|name| !known.iter().any(|service| service.name == **name)) {
        return fail("InvalidServiceName", format!("The Vpc Endpoint Service '{unknown}' does not exist"));
    }
    let fits = |service: &EndpointService| {
        (names.is_empty() || names.contains(&service.name.as_str())) && filters.fit(service, &cx, FILTERS, &Tags::new())
    };
    let services: Vec<_> = known.into_iter().filter(fits).collect();
    let (services, next) = paging::page(&ask.input, services, (1, 1000))?;
    let mut names: Vec<&str> = services.iter().map(|service| service.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let details: Vec<_> = services.iter().map(|service| service.show(ask.region)).collect();
    Ok(json!({"serviceNameSet": names, "serviceDetailSet": details, "nextToken": next}))
}
