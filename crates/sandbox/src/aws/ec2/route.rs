//! Single routes.

use ipnet::Ipv4Net;
use serde_json::Value;

use super::endpoint::Endpoint;
use super::internet_gateway::{EgressGateway, InternetGateway};
use super::nat_gateway::NatGateway;
use super::network_interface::NetworkInterface;
use super::resource::{Cx, done, limit, named};
use super::route_table::{Destination, Route, RouteTable, Target};
use super::{cidr, instance, prefix_list};
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError, fail};

const MAX_PER_TABLE: usize = 500;

fn destination(ask: &Ask) -> Answer<Destination> {
    if let Some(text) = ask.input.text("DestinationCidrBlock") {
        return Ok(Destination::V4(cidr::v4(text, "destinationCidrBlock")?.to_string()));
    }
    if let Some(text) = ask.input.text("DestinationIpv6CidrBlock") {
        return Ok(Destination::V6(cidr::v6(text, "destinationIpv6CidrBlock")?.to_string()));
    }
    match ask.input.text("DestinationPrefixListId") {
        Some(id) if prefix_list::by_id(ask.region, id).is_some() => Ok(Destination::PrefixList(id.to_owned())),
        Some(id) => Err(prefix_list::absent(id)),
        None => fail("MissingParameter", "The request must contain the parameter destinationCidrBlock"),
    }
}

fn target(ask: &Ask, table: &RouteTable) -> Answer<Target> {
    let cx = Cx::of(ask);
    let own = |vpc: Option<&String>, id: &str, what: &str| match vpc == Some(&table.vpc) {
        true => Ok(()),
        false => {
            let message = format!("route table {} and {what} {id} belong to different networks", table.common.id);
            fail("InvalidParameterValue", message)
        }
    };
    let unknown =
        |id: &str| AwsError::new(400, "InvalidGatewayID.NotFound", format!("The gateway ID '{id}' does not exist"));
    if let Some(id) = ask.input.text("GatewayId").or_else(|| ask.input.text("VpcEndpointId")) {
        if id.starts_with("vpce-") {
            own(Some(&cx.require::<Endpoint>(id)?.vpc), id, "endpoint")?;
        } else {
            let gateway = cx.get::<InternetGateway>(id).ok_or_else(|| unknown(id))?;
            own(gateway.vpc.as_ref(), id, "network gateway")?;
        }
        return Ok(Target::Gateway(id.to_owned()));
    }
    if let Some(id) = ask.input.text("NatGatewayId") {
        let Some(nat) = cx.get::<NatGateway>(id) else {
            return fail("InvalidNatGatewayID.NotFound", format!("The natGateway ID '{id}' does not exist"));
        };
        own(Some(&nat.vpc), id, "NAT gateway")?;
        return Ok(Target::NatGateway(id.to_owned()));
    }
    if let Some(id) = ask.input.text("EgressOnlyInternetGatewayId") {
        own(Some(&cx.require::<EgressGateway>(id)?.vpc), id, "egress-only internet gateway")?;
        return Ok(Target::EgressGateway(id.to_owned()));
    }
    if let Some(id) = ask.input.text("NetworkInterfaceId") {
        own(Some(&cx.require::<NetworkInterface>(id)?.vpc), id, "interface")?;
        return Ok(Target::Interface(id.to_owned()));
    }
    if let Some(id) = ask.input.text("InstanceId") {
        let interface = cx.store.network_interfaces.first(&format!("instance:{id}"));
        let interface = interface.ok_or_else(|| instance::absent(id))?;
        own(Some(&interface.vpc), id, "instance")?;
        return Ok(Target::Interface(interface.common.id.clone()));
    }
    fail(
        "MissingParameter",
        "The request must contain exactly one of the parameters gatewayId, natGatewayId, networkInterfaceId, vpcPeeringConnectionId, egressOnlyInternetGatewayId, instanceId",
    )
}

/// Refuses destinations inside the VPC, which only interfaces can take.
fn check_local(ask: &Ask, table: &RouteTable, route: &Route) -> Answer<()> {
    let Destination::V4(text) = &route.destination else { return Ok(()) };
    let (Ok(wanted), Some(vpc)) = (text.parse::<Ipv4Net>(), Cx::of(ask).store.vpcs.get(&table.vpc)) else {
        return Ok(());
    };
    let inside = vpc.blocks.iter().any(|block| block.cidr.parse::<Ipv4Net>().is_ok_and(|own| own.contains(&wanted)));
    match inside && !matches!(route.target, Target::Interface(_)) {
        true => fail(
            "InvalidParameterValue",
            format!(
                "The destination CIDR block {text} is equal to or more specific than one of this VPC's CIDR blocks. This route can target only an interface or an instance."
            ),
        ),
        false => Ok(()),
    }
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let table = named::<RouteTable>(ask, "RouteTableId")?;
    let route = Route { destination: destination(ask)?, target: target(ask, table)? };
    check_local(ask, table, &route)?;
    let id = table.common.id.clone();
    if table.routes.iter().any(|one| one.destination == route.destination) {
        let text = route.destination.text();
        return fail("RouteAlreadyExists", format!("The route identified by {text} already exists."));
    }
    limit(table.routes.len(), MAX_PER_TABLE, "RouteLimitExceeded", "routes of the route table")?;
    ask.store().ec2.route_tables.update(&id, |table| table.routes.push(route));
    done()
}

pub fn replace(ask: &mut Ask) -> Answer<Value> {
    let table = named::<RouteTable>(ask, "RouteTableId")?;
    let route = Route { destination: destination(ask)?, target: target(ask, table)? };
    let id = table.common.id.clone();
    if !table.routes.iter().any(|one| one.destination == route.destination) {
        let text = route.destination.text();
        let message = format!("There is no route defined for '{text}' in the route table. Use CreateRoute instead.");
        return fail("InvalidParameterValue", message);
    }
    ask.store().ec2.route_tables.update(&id, |table| {
        let same = table.routes.iter_mut().find(|one| one.destination == route.destination);
        if let Some(old) = same {
            *old = route;
        }
    });
    done()
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let table = named::<RouteTable>(ask, "RouteTableId")?;
    let (id, destination) = (table.common.id.clone(), destination(ask)?);
    if !table.routes.iter().any(|one| one.destination == destination) {
        let text = destination.text();
        let vpc = Cx::of(ask).store.vpcs.get(&table.vpc);
        if vpc.is_some_and(|vpc| vpc.blocks.iter().chain(&vpc.ipv6).any(|block| block.cidr == text)) {
            return fail("InvalidParameterValue", format!("cannot remove local route {text} in route table {id}"));
        }
        return fail(
            "InvalidRoute.NotFound",
            format!("no route with destination-cidr-block {text} in route table {id}"),
        );
    }
    ask.store().ec2.route_tables.update(&id, |table| table.routes.retain(|one| one.destination != destination));
    done()
}
