//! EC2: networks and what is in them. One file for each type of object.

mod address;
mod cidr;
mod default_vpc;
mod dhcp_options;
mod endpoint;
mod endpoint_service;
mod filter;
mod image;
mod instance;
mod instance_type;
mod internet_gateway;
mod key_pair;
pub mod launch_template;
mod nat_gateway;
mod network_acl;
pub mod network_interface;
mod paging;
mod permission;
mod places;
mod prefix_list;
pub mod resource;
mod route;
mod route_table;
pub mod security_group;
mod security_group_rule;
pub mod subnet;
mod tags;
#[cfg(test)]
mod tests;
pub mod vpc;

use super::Store;
use super::ask::{Ask, Tags};
use super::errors::{Answer, fail, fail_with};
use super::tagging::TaggedService;
use super::wire::{Action, Protocol, Service};
use crate::clock::SimTime;
use resource::{Cx, describe};

super::tables::tables! {
    regions: default_vpc::SeededRegion,
    vpcs: vpc::Vpc,
    subnets: subnet::Subnet,
    dhcp_options: dhcp_options::DhcpOptions,
    internet_gateways: internet_gateway::InternetGateway,
    egress_gateways: internet_gateway::EgressGateway,
    nat_gateways: nat_gateway::NatGateway,
    addresses: address::Address,
    route_tables: route_table::RouteTable,
    network_acls: network_acl::NetworkAcl,
    security_groups: security_group::SecurityGroup,
    security_group_rules: security_group_rule::SecurityGroupRule,
    endpoints: endpoint::Endpoint,
    network_interfaces: network_interface::NetworkInterface,
    launch_templates: launch_template::LaunchTemplate,
    key_pairs: key_pair::KeyPair,
}

impl Tables {
    fn tagged(&self) -> [&dyn tags::Tagged; 15] {
        [
            &self.vpcs,
            &self.subnets,
            &self.dhcp_options,
            &self.internet_gateways,
            &self.egress_gateways,
            &self.nat_gateways,
            &self.addresses,
            &self.route_tables,
            &self.network_acls,
            &self.security_groups,
            &self.security_group_rules,
            &self.endpoints,
            &self.network_interfaces,
            &self.launch_templates,
            &self.key_pairs,
        ]
    }

    /// In the same order.
    fn tagged_mut(&mut self) -> [&mut dyn tags::Tagged; 15] {
        [
            &mut self.vpcs,
            &mut self.subnets,
            &mut self.dhcp_options,
            &mut self.internet_gateways,
            &mut self.egress_gateways,
            &mut self.nat_gateways,
            &mut self.addresses,
            &mut self.route_tables,
            &mut self.network_acls,
            &mut self.security_groups,
            &mut self.security_group_rules,
            &mut self.endpoints,
            &mut self.network_interfaces,
            &mut self.launch_templates,
            &mut self.key_pairs,
        ]
    }
}

/// EC2's part of the tagging API.
pub struct Ec2Tags;

impl TaggedService for Ec2Tags {
    fn list(&self, store: &Store, region: &str, account: &str) -> Vec<(String, Tags)> {
        let cx = Cx { now: SimTime(0), region, account, store: &store.ec2 };
        let mut found = Vec::new();
        for table in store.ec2.tagged() {
            table.each(&cx, &mut |object| {
                if !object.tags.is_empty() {
                    found.push((object.arn, object.tags.clone()));
                }
            });
        }
        found
    }

    fn change(&self, store: &mut Store, arn: &str, change: &dyn Fn(&mut Tags)) -> bool {
        let parts: Vec<&str> = arn.splitn(6, ':').collect();
        let [_, _, "ec2", region, account, resource] = parts.as_slice() else { return false };
        let Some((_, id)) = resource.split_once('/') else { return false };
        let cx = Cx { now: SimTime(0), region, account, store: &store.ec2 };
        let at = store.ec2.tagged().iter().position(|table| table.tags(&cx, id).is_some());
        let table = at.and_then(|at| store.ec2.tagged_mut().into_iter().nth(at));
        table.map(|table| table.change(id, &mut |tags| change(tags))).is_some()
    }
}

/// Before every action: the region has what an account finds in it, and a dry run ends here.
pub fn before(ask: &mut Ask) -> Answer<()> {
    let (region, now) = (ask.region, ask.now());
    default_vpc::ensure(&mut ask.store().ec2, region, now);
    if ask.input.at("Filter").is_some_and(|filters| !filters.is_array()) {
        return fail("InvalidParameterValue", "Filters are numbered from 1, and each has a name and values");
    }
    match ask.input.flag("DryRun") {
        Some(true) => fail_with(412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set."),
        _ => Ok(()),
    }
}

/// What exceeds a quota is told by a code of its own for each type of object.
pub fn limit_code(action: &str) -> &'static str {
    match action {
        "CreateVpc" | "CreateDefaultVpc" => "VpcLimitExceeded",
        "CreateSubnet" | "CreateDefaultSubnet" => "SubnetLimitExceeded",
        "CreateInternetGateway" => "InternetGatewayLimitExceeded",
        "CreateNatGateway" => "NatGatewayLimitExceeded",
        "AllocateAddress" => "AddressLimitExceeded",
        "CreateRouteTable" => "RouteTableLimitExceeded",
        "CreateRoute" => "RouteLimitExceeded",
        "CreateNetworkAcl" => "NetworkAclLimitExceeded",
        "CreateNetworkAclEntry" => "NetworkAclEntryLimitExceeded",
        "CreateSecurityGroup" => "SecurityGroupLimitExceeded",
        "AuthorizeSecurityGroupIngress" | "AuthorizeSecurityGroupEgress" => "RulesPerSecurityGroupLimitExceeded",
        "CreateVpcEndpoint" => "VpcEndpointLimitExceeded",
        _ => "ResourceLimitExceeded",
    }
}

pub static SERVICE: Service = Service { scope: "ec2", protocol: Protocol::Ec2, actions: ACTIONS };

const fn read(name: &'static str, run: super::wire::Handler) -> Action {
    Action::read(name, run)
}

const fn change(name: &'static str, run: super::wire::Handler) -> Action {
    Action::change(name, run)
}

const ACTIONS: &[Action] = &[
    change("CreateVpc", vpc::create),
    read("DescribeVpcs", describe::<vpc::Vpc>),
    change("DeleteVpc", vpc::delete),
    read("DescribeVpcAttribute", vpc::describe_attribute),
    change("ModifyVpcAttribute", vpc::modify_attribute),
    change("AssociateVpcCidrBlock", vpc::associate_block),
    change("DisassociateVpcCidrBlock", vpc::disassociate_block),
    change("CreateDefaultVpc", default_vpc::create_default_vpc),
    change("CreateDefaultSubnet", default_vpc::create_default_subnet),
    change("CreateSubnet", subnet::create),
    read("DescribeSubnets", describe::<subnet::Subnet>),
    change("DeleteSubnet", subnet::delete),
    change("ModifySubnetAttribute", subnet::modify_attribute),
    change("AssociateSubnetCidrBlock", subnet::associate_block),
    change("DisassociateSubnetCidrBlock", subnet::disassociate_block),
    change("CreateDhcpOptions", dhcp_options::create),
    read("DescribeDhcpOptions", describe::<dhcp_options::DhcpOptions>),
    change("AssociateDhcpOptions", dhcp_options::associate),
    change("DeleteDhcpOptions", dhcp_options::delete),
    change("CreateInternetGateway", internet_gateway::create),
    read("DescribeInternetGateways", describe::<internet_gateway::InternetGateway>),
    change("AttachInternetGateway", internet_gateway::attach),
    change("DetachInternetGateway", internet_gateway::detach),
    change("DeleteInternetGateway", internet_gateway::delete),
    change("CreateEgressOnlyInternetGateway", internet_gateway::create_egress_only),
    read("DescribeEgressOnlyInternetGateways", describe::<internet_gateway::EgressGateway>),
    change("DeleteEgressOnlyInternetGateway", internet_gateway::delete_egress_only),
    change("CreateNatGateway", nat_gateway::create),
    read("DescribeNatGateways", describe::<nat_gateway::NatGateway>),
    change("DeleteNatGateway", nat_gateway::delete),
    change("AssociateNatGatewayAddress", nat_gateway::associate_addresses),
    change("DisassociateNatGatewayAddress", nat_gateway::disassociate_addresses),
    change("AssignPrivateNatGatewayAddress", nat_gateway::assign_private),
    change("UnassignPrivateNatGatewayAddress", nat_gateway::unassign_private),
    change("AllocateAddress", address::allocate),
    read("DescribeAddresses", address::describe),
    read("DescribeAddressesAttribute", address::describe_attribute),
    change("ModifyAddressAttribute", address::modify_attribute),
    change("ResetAddressAttribute", address::modify_attribute),
    change("AssociateAddress", address::associate),
    change("DisassociateAddress", address::disassociate),
    change("ReleaseAddress", address::release),
    change("CreateRouteTable", route_table::create),
    read("DescribeRouteTables", describe::<route_table::RouteTable>),
    change("DeleteRouteTable", route_table::delete),
    change("AssociateRouteTable", route_table::associate),
    change("DisassociateRouteTable", route_table::disassociate),
    change("ReplaceRouteTableAssociation", route_table::replace_association),
    change("CreateRoute", route::create),
    change("ReplaceRoute", route::replace),
    change("DeleteRoute", route::delete),
    change("CreateNetworkAcl", network_acl::create),
    read("DescribeNetworkAcls", describe::<network_acl::NetworkAcl>),
    change("DeleteNetworkAcl", network_acl::delete),
    change("CreateNetworkAclEntry", network_acl::create_entry),
    change("ReplaceNetworkAclEntry", network_acl::replace_entry),
    change("DeleteNetworkAclEntry", network_acl::delete_entry),
    change("ReplaceNetworkAclAssociation", network_acl::replace_association),
    change("CreateSecurityGroup", security_group::create),
    read("DescribeSecurityGroups", security_group::describe),
    change("DeleteSecurityGroup", security_group::delete),
    change("AuthorizeSecurityGroupIngress", security_group_rule::authorize_ingress),
    change("AuthorizeSecurityGroupEgress", security_group_rule::authorize_egress),
    change("RevokeSecurityGroupIngress", security_group_rule::revoke_ingress),
    change("RevokeSecurityGroupEgress", security_group_rule::revoke_egress),
    change("UpdateSecurityGroupRuleDescriptionsIngress", security_group_rule::update_descriptions_ingress),
    change("UpdateSecurityGroupRuleDescriptionsEgress", security_group_rule::update_descriptions_egress),
    change("ModifySecurityGroupRules", security_group_rule::modify),
    read("DescribeSecurityGroupRules", describe::<security_group_rule::SecurityGroupRule>),
    read("DescribeSecurityGroupReferences", security_group_rule::describe_references),
    change("CreateVpcEndpoint", endpoint::create),
    read("DescribeVpcEndpoints", endpoint::describe_all),
    change("ModifyVpcEndpoint", endpoint::modify),
    change("DeleteVpcEndpoints", endpoint::delete),
    read("DescribeVpcEndpointServices", endpoint_service::describe),
    read("DescribePrefixLists", prefix_list::describe),
    read("DescribeManagedPrefixLists", prefix_list::describe_managed),
    read("GetManagedPrefixListEntries", prefix_list::managed_entries),
    change("CreateNetworkInterface", network_interface::create),
    read("DescribeNetworkInterfaces", describe::<network_interface::NetworkInterface>),
    change("DeleteNetworkInterface", network_interface::delete),
    change("ModifyNetworkInterfaceAttribute", network_interface::modify_attribute),
    change("CreateLaunchTemplate", launch_template::create),
    read("DescribeLaunchTemplates", launch_template::describe),
    read("DescribeLaunchTemplateVersions", launch_template::describe_versions),
    change("CreateLaunchTemplateVersion", launch_template::create_version),
    change("ModifyLaunchTemplate", launch_template::modify),
    change("DeleteLaunchTemplate", launch_template::delete),
    change("DeleteLaunchTemplateVersions", launch_template::delete_versions),
    read("DescribeInstances", instance::describe),
    read("DescribeInstanceStatus", instance::describe_status),
    read("DescribeInstanceTypes", instance_type::describe),
    read("DescribeInstanceTypeOfferings", instance_type::describe_offerings),
    read("DescribeImages", image::describe),
    read("DescribeKeyPairs", key_pair::describe),
    change("ImportKeyPair", key_pair::import),
    change("DeleteKeyPair", key_pair::delete),
    change("CreateTags", tags::create_tags),
    change("DeleteTags", tags::delete_tags),
    read("DescribeTags", tags::describe_tags),
    read("DescribeRegions", places::describe_regions),
    read("DescribeAvailabilityZones", places::describe_availability_zones),
    read("DescribeAccountAttributes", places::describe_account_attributes),
];
