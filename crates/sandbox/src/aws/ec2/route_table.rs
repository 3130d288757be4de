//! Route tables and what they are associated with.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filter::{Filter, one};
use super::internet_gateway::InternetGateway;
use super::resource::{Common, Cx, Names, Resource, done, in_use, kept, limit, named, shown};
use super::subnet::Subnet;
use super::vpc::Vpc;
use crate::aws::ask::Ask;
use crate::aws::errors::{Answer, AwsError, fail};
use crate::aws::ids;
use crate::clock::SimTime;

const MAX_PER_VPC: usize = 200;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteTable {
    pub common: Common,
    pub vpc: String,
    /// Those that were made; local ones follow from the VPC's ranges, those of endpoints from the endpoints.
    pub routes: Vec<Route>,
    pub associations: Vec<Association>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Route {
    pub destination: Destination,
    pub target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Destination {
    V4(String),
    V6(String),
    PrefixList(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// An internet gateway or an endpoint.
    Gateway(String),
    NatGateway(String),
    EgressGateway(String),
    Interface(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Association {
    pub id: String,
    /// The subnet or gateway; the main association has none.
    pub to: Option<String>,
}

impl Association {
    fn new(to: Option<String>) -> Association {
        Association { id: ids::new("rtbassoc"), to }
    }

    pub fn is_of(&self, subnet: &str) -> bool {
        self.to.as_deref() == Some(subnet)
    }

    fn is_main(&self) -> bool {
        self.to.is_none()
    }

    fn show(&self, table: &str) -> Value {
        let gateway = self.to.as_ref().filter(|to| !to.starts_with("subnet-"));
        let subnet = self.to.as_ref().filter(|to| to.starts_with("subnet-"));
        json!({"routeTableAssociationId": self.id, "routeTableId": table, "subnetId": subnet, "gatewayId": gateway,
               "main": self.is_main(), "associationState": {"state": "associated"}})
    }
}

impl Destination {
    pub fn text(&self) -> &str {
        match self {
            Destination::V4(text) | Destination::V6(text) | Destination::PrefixList(text) => text,
        }
    }

    fn member(&self) -> &'static str {
        match self {
            Destination::V4(_) => "destinationCidrBlock",
            Destination::V6(_) => "destinationIpv6CidrBlock",
            Destination::PrefixList(_) => "destinationPrefixListId",
        }
    }
}

impl Route {
    fn show(&self, table: &RouteTable, cx: &Cx) -> Value {
        let (member, id) = match &self.target {
            Target::Gateway(id) => ("gatewayId", id),
            Target::NatGateway(id) => ("natGatewayId", id),
            Target::EgressGateway(id) => ("egressOnlyInternetGatewayId", id),
            Target::Interface(id) => ("networkInterfaceId", id),
        };
        let state = if self.reaches(table, cx) { "active" } else { "blackhole" };
        let mut shown = json!({"origin": "CreateRoute", "state": state});
        shown[self.destination.member()] = json!(self.destination.text());
        shown[member] = json!(id);
        if let Target::Interface(id) = &self.target
            && let Some(attachment) = cx.store.network_interfaces.get(id).and_then(|eni| eni.attachment.as_ref())
        {
            shown["instanceId"] = json!(attachment.instance);
            shown["instanceOwnerId"] = json!(attachment.instance.as_ref().map(|_| &attachment.owner));
        }
        shown
    }

    /// Whether its target is there.
    fn reaches(&self, table: &RouteTable, cx: &Cx) -> bool {
        let store = cx.store;
        match &self.target {
            Target::Gateway(id) if id.starts_with("vpce-") => store.endpoints.get(id).is_some(),
            Target::Gateway(id) => {
                store.internet_gateways.get(id).is_some_and(|one| one.vpc.as_ref() == Some(&table.vpc))
            }
            Target::NatGateway(id) => store.nat_gateways.get(id).is_some_and(|nat| nat.is_alive(cx.now)),
            Target::EgressGateway(id) => store.egress_gateways.get(id).is_some(),
            Target::Interface(id) => store.network_interfaces.get(id).is_some(),
        }
    }
}

kept!(RouteTable, "aws.route_table", route_tables);

impl RouteTable {
    pub fn is_main(&self) -> bool {
        self.associations.iter().any(Association::is_main)
    }

    /// All routes, the VPC's own first.
    fn show_routes(&self, cx: &Cx) -> Vec<Value> {
        let vpc = cx.store.vpcs.get(&self.vpc);
        let local = |member: &str, cidr: &str| {
            let mut shown = json!({"gatewayId": "local", "origin": "CreateRouteTable", "state": "active"});
            shown[member] = json!(cidr);
            shown
        };
        let (v4, v6) = vpc.map(|vpc| (vpc.blocks.as_slice(), vpc.ipv6.as_slice())).unwrap_or_default();
        let mut all: Vec<Value> = v4.iter().map(|block| local("destinationCidrBlock", &block.cidr)).collect();
        all.extend(v6.iter().map(|block| local("destinationIpv6CidrBlock", &block.cidr)));
        all.extend(self.routes.iter().map(|route| route.show(self, cx)));
        let endpoints = cx.store.endpoints.find(&format!("rtb:{}", self.common.id));
        all.extend(endpoints.filter_map(|endpoint| {
            let prefix_list = endpoint.prefix_list()?;
            Some(json!({"destinationPrefixListId": prefix_list, "gatewayId": endpoint.common.id,
                        "origin": "CreateRoute", "state": "active"}))
        }));
        all
    }

    fn of_routes(&self, cx: &Cx, member: &str) -> Vec<String> {
        let routes = self.show_routes(cx);
        routes.iter().filter_map(|route| route.get(member)?.as_str().map(str::to_owned)).collect()
    }
}

impl Resource for RouteTable {
    const NAMES: Names = Names {
        kind: "route-table",
        prefix: "rtb",
        ids: "RouteTableId",
        set: "routeTableSet",
        not_found: "InvalidRouteTableID.NotFound",
        malformed: "InvalidRouteTableId.Malformed",
        title: "The routeTable ID '{}' does not exist",
        indexed: &[
            ("association.route-table-association-id", "association"),
            ("association.subnet-id", "subnet"),
            ("vpc-id", "vpc"),
        ],
    };
    const FILTERS: &'static [Filter<RouteTable>] = &[
        ("route-table-id", |table, _| one(&table.common.id)),
        ("vpc-id", |table, _| one(&table.vpc)),
        ("association.route-table-association-id", |table, _| {
            table.associations.iter().map(|a| a.id.clone()).collect()
        }),
        ("association.route-table-id", |table, _| table.associations.iter().map(|_| table.common.id.clone()).collect()),
        ("association.subnet-id", |table, _| table.associations.iter().filter_map(|a| a.to.clone()).collect()),
        ("association.gateway-id", |table, _| table.associations.iter().filter_map(|a| a.to.clone()).collect()),
        ("association.main", |table, _| one(table.is_main())),
        ("route.destination-cidr-block", |table, cx| table.of_routes(cx, "destinationCidrBlock")),
        ("route.destination-ipv6-cidr-block", |table, cx| table.of_routes(cx, "destinationIpv6CidrBlock")),
        ("route.destination-prefix-list-id", |table, cx| table.of_routes(cx, "destinationPrefixListId")),
        ("route.egress-only-internet-gateway-id", |table, cx| table.of_routes(cx, "egressOnlyInternetGatewayId")),
        ("route.gateway-id", |table, cx| table.of_routes(cx, "gatewayId")),
        ("route.instance-id", |table, cx| table.of_routes(cx, "instanceId")),
        ("route.nat-gateway-id", |table, cx| table.of_routes(cx, "natGatewayId")),
        ("route.network-interface-id", |table, cx| table.of_routes(cx, "networkInterfaceId")),
        ("route.transit-gateway-id", |_, _| vec![]),
        ("route.vpc-peering-connection-id", |_, _| vec![]),
        ("route.origin", |table, cx| table.of_routes(cx, "origin")),
        ("route.state", |table, cx| table.of_routes(cx, "state")),
    ];

    fn indexes(&self) -> Vec<String> {
        let mut keys = vec![format!("vpc:{}", self.vpc)];
        for association in &self.associations {
            keys.push(format!("association:{}", association.id));
            keys.extend(association.to.iter().map(|to| format!("subnet:{to}")));
        }
        keys
    }

    fn show(&self, cx: &Cx) -> Value {
        let id = &self.common.id;
        json!({"routeTableId": id, "vpcId": self.vpc, "ownerId": cx.account, "routeSet": self.show_routes(cx),
               "associationSet": self.associations.iter().map(|one| one.show(id)).collect::<Vec<_>>(),
               "propagatingVgwSet": []})
    }

    fn facts(&self, _: SimTime) -> Value {
        json!({"vpc": self.vpc, "routes": self.routes.len()})
    }
}

/// The main table of a new VPC.
pub fn main(vpc: &Common) -> RouteTable {
    let common = Common::made("rtb", &vpc.region, vpc.created);
    RouteTable { common, vpc: vpc.id.clone(), routes: vec![], associations: vec![Association::new(None)] }
}

pub fn create(ask: &mut Ask) -> Answer<Value> {
    let vpc = named::<Vpc>(ask, "VpcId")?.common.id.clone();
    let common = Common::asked(ask, "rtb", "route-table")?;
    let count = ask.store().ec2.route_tables.count(&format!("vpc:{vpc}"));
    limit(count, MAX_PER_VPC, "RouteTableLimitExceeded", "route tables of the VPC")?;
    let table = RouteTable { common, vpc, routes: vec![], associations: vec![] };
    let answer = json!({"routeTable": shown(&table, &Cx::of(ask)), "clientToken": ask.input.text("ClientToken")});
    ask.store().ec2.route_tables.insert(table);
    Ok(answer)
}

pub fn delete(ask: &mut Ask) -> Answer<Value> {
    let table = named::<RouteTable>(ask, "RouteTableId")?;
    let id = table.common.id.clone();
    if !table.associations.is_empty() {
        return Err(in_use::<RouteTable>(&id, "routeTable"));
    }
    let store = &mut ask.store().ec2;
    let endpoints: Vec<_> = store.endpoints.find(&format!("rtb:{id}")).map(|one| one.common.id.clone()).collect();
    for endpoint in endpoints {
        store.endpoints.update(&endpoint, |endpoint| endpoint.route_tables.retain(|table| *table != id));
    }
    store.route_tables.remove(&id);
    done()
}

pub fn associate(ask: &mut Ask) -> Answer<Value> {
    let (cx, table) = (Cx::of(ask), named::<RouteTable>(ask, "RouteTableId")?);
    let id = table.common.id.clone();
    let (to, vpc) = match (ask.input.text("SubnetId"), ask.input.text("GatewayId")) {
        (Some(subnet), _) => (subnet, cx.require::<Subnet>(subnet)?.vpc.clone()),
        (None, Some(gateway)) => (gateway, cx.require::<InternetGateway>(gateway)?.vpc.clone().unwrap_or_default()),
        (None, None) => return Err(AwsError::missing("subnetId")),
    };
    if vpc != table.vpc {
        return fail(
            "InvalidParameterValue",
            format!("route table {id} and network {to} belong to different networks"),
        );
    }
    if let Some(other) = cx.store.route_tables.first(&format!("subnet:{to}")) {
        let same = other.common.id == id;
        let existing = other.associations.iter().find(|one| one.is_of(to)).filter(|_| same);
        return match existing {
            Some(association) => {
                Ok(json!({"associationId": association.id, "associationState": {"state": "associated"}}))
            }
            None => fail(
                "Resource.AlreadyAssociated",
                format!("the specified association for route table {id} conflicts with an existing association"),
            ),
        };
    }
    let association = Association::new(Some(to.to_owned()));
    let answer = json!({"associationId": association.id, "associationState": {"state": "associated"}});
    ask.store().ec2.route_tables.update(&id, |table| table.associations.push(association));
    Ok(answer)
}

/// The association that a call names, and the table that has it.
fn association(ask: &Ask) -> Answer<(String, Association)> {
    let id = ask.input.required("AssociationId")?;
    let table = Cx::of(ask).store.route_tables.first(&format!("association:{id}"));
    let table = table.filter(|table| table.common.region == ask.region);
    let found = table.and_then(|table| {
        let association = table.associations.iter().find(|one| one.id == id)?;
        Some((table.common.id.clone(), association.clone()))
    });
    found.ok_or_else(|| {
        AwsError::new(400, "InvalidAssociationID.NotFound", format!("The association ID '{id}' does not exist"))
    })
}

pub fn disassociate(ask: &mut Ask) -> Answer<Value> {
    let (table, association) = association(ask)?;
    if association.is_main() {
        let message = format!("cannot disassociate the main route table association {}", association.id);
        return fail("InvalidParameterValue", message);
    }
    ask.store().ec2.route_tables.update(&table, |table| table.associations.retain(|one| one.id != association.id));
    done()
}

/// Moves an association to another table, by which it gets a new id.
pub fn replace_association(ask: &mut Ask) -> Answer<Value> {
    let (old, association) = association(ask)?;
    let new = named::<RouteTable>(ask, "RouteTableId")?;
    let id = new.common.id.clone();
    let vpc = Cx::of(ask).require::<RouteTable>(&old)?.vpc.clone();
    if new.vpc != vpc {
        return fail(
            "InvalidParameterValue",
            format!("route table {id} and network {vpc} belong to different networks"),
        );
    }
    let moved = Association::new(association.to.clone());
    let answer = json!({"newAssociationId": moved.id, "associationState": {"state": "associated"}});
    let store = &mut ask.store().ec2;
    store.route_tables.update(&old, |table| table.associations.retain(|one| one.id != association.id));
    store.route_tables.update(&id, |table| table.associations.push(moved));
    Ok(answer)
}
