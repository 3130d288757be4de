//! What an account has in a region from the start: a default VPC that reaches the internet, with a subnet in each zone.
//! Made when the region is first asked for anything, so that a sandbox does not hold thirty regions' worth of them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::internet_gateway::InternetGateway;
use super::resource::{Common, Cx, shown};
use super::route_table::{Destination, Route, Target};
use super::subnet::{self, Subnet};
use super::vpc::{self, Block, Vpc};
use super::{Tables, dhcp_options, places};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, fail};
use crate::clock::SimTime;
use crate::table::Object;

/// A region that has got its default VPC.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeededRegion {
    name: String,
}

impl Object for SeededRegion {
    const TYPE: &'static str = "aws.region";

    fn id(&self) -> &str {
        &self.name
    }

    fn keys(&self) -> Vec<String> {
        vec![]
    }

    fn gone_at(&self) -> Option<SimTime> {
        None
    }

    /// Not an object of the account.
    fn ledger(&self, _: SimTime) -> Value {
        Value::Null
    }
}

pub fn ensure(store: &mut Tables, region: &str, now: SimTime) {
    if store.regions.get(region).is_some() {
        return;
    }
    store.regions.insert(SeededRegion { name: region.to_owned() });
    store.dhcp_options.insert(dhcp_options::default(region, now));
    add(store, Common::made("vpc", region, now));
}

fn add(store: &mut Tables, common: Common) {
    let (now, region) = (common.created, common.region.clone());
    let options = store.dhcp_options.first(&format!("default:{region}"));
    let vpc = Vpc {
        blocks: vec![Block::new("vpc-cidr-assoc", "172.31.0.0/16".into())],
        ipv6: vec![],
        tenancy: "default".into(),
        dns_support: true,
        dns_hostnames: true,
        usage_metrics: false,
        dhcp_options: options.map(|options| options.common.id.clone()).unwrap_or_default(),
        is_default: true,
        available_at: now,
        common,
    };
    let (id, default) = (vpc.common.id.clone(), vpc.common.default);
    vpc::add(store, vpc);
    let gateway = Common { default, ..Common::made("igw", &region, now) };
    let route = Route { destination: Destination::V4("0.0.0.0/0".into()), target: Target::Gateway(gateway.id.clone()) };
    store.internet_gateways.insert(InternetGateway { common: gateway, vpc: Some(id.clone()) });
    let main = store.route_tables.find(&format!("vpc:{id}")).next().map(|table| table.common.id.clone());
    if let Some(main) = main {
        store.route_tables.update(&main, |table| table.routes.push(route));
    }
    for (at, zone) in places::zones(&region).into_iter().enumerate() {
        let cidr = format!("172.31.{}.0/20", at * 16);
        let common = Common { default, ..Common::made("subnet", &region, now) };
        let subnet =
            Subnet { map_public_ip: true, is_default: true, ..Subnet::new(common, id.clone(), cidr, &zone, now) };
        subnet::add(store, subnet);
    }
}

pub fn create_default_vpc(ask: &mut Ask) -> Answer<Value> {
    let key = format!("default:{}", ask.region);
    if let Some(vpc) = ask.store().ec2.vpcs.first(&key) {
        let id = &vpc.common.id;
        return fail(
            "DefaultVpcAlreadyExists",
            format!("A Default VPC already exists for this account in this region: {id}."),
        );
    }
    let now = ask.now();
    let common = Common { default: false, ..Common::made("vpc", ask.region, now) };
    let id = common.id.clone();
    add(&mut ask.store().ec2, common);
    let cx = Cx::of(ask);
    Ok(json!({"vpc": shown(cx.require::<Vpc>(&id)?, &cx)}))
}

pub fn create_default_subnet(ask: &mut Ask) -> Answer<Value> {
    let given = ask.input.text("AvailabilityZone").or_else(|| ask.input.text("AvailabilityZoneId")).unwrap_or_default();
    let Some(zone) = places::zone(ask.region, given) else {
        return fail("InvalidParameterValue", format!("Value ({given}) for parameter availabilityZone is invalid."));
    };
    let cx = Cx::of(ask);
    let Some(vpc) = cx.store.vpcs.first(&format!("default:{}", ask.region)) else {
        return fail("DefaultVpcDoesNotExist", "No default VPC exists for this account in this region.");
    };
    let id = vpc.common.id.clone();
    let own: Vec<&Subnet> = cx.store.subnets.find(&format!("vpc:{id}")).collect();
    if own.iter().any(|subnet| subnet.is_default && subnet.zone == zone.name) {
        return fail(
            "DefaultSubnetAlreadyExistsInAvailabilityZone",
            format!("'{}' already has a default subnet", zone.name),
        );
    }
    let ranges = (0..16).map(|at| format!("172.31.{}.0/20", at * 16));
    let free = ranges.into_iter().find(|range| !own.iter().any(|subnet| subnet.overlaps(range)));
    let Some(range) = free else {
        return fail("InvalidSubnet.Conflict", "No free range is left for a default subnet");
    };
    let now = ask.now();
    let common = Common { default: false, ..Common::made("subnet", ask.region, now) };
    let subnet = Subnet { map_public_ip: true, is_default: true, ..Subnet::new(common, id, range, &zone, now) };
    let answer = json!({"subnet": shown(&subnet, &Cx::of(ask))});
    subnet::add(&mut ask.store().ec2, subnet);
    Ok(answer)
}
