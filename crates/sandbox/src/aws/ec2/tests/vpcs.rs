//! VPCs, subnets and their ranges.

use super::client::Ec2;
use crate::{Config, Speed};

#[tokio::test]
async fn a_vpc_comes_with_a_table_an_acl_and_a_group() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    let of_vpc = |more: &str| format!("Filter.1.Name=vpc-id Filter.1.Value.1={vpc} {more}");
    let main = "Filter.2.Name=association.main Filter.2.Value.1=true";
    let table = ec2.ok("DescribeRouteTables", &of_vpc(main)).await;
    assert_eq!((table.first("destinationCidrBlock"), table.first("gatewayId")), ("10.0.0.0/16", "local"));
    assert_eq!(table.first("origin"), "CreateRouteTable");
    let acl = ec2.ok("DescribeNetworkAcls", &of_vpc("Filter.2.Name=default Filter.2.Value.1=true")).await;
    assert_eq!(acl.all("ruleNumber"), ["100", "32767", "100", "32767"]);
    let group = ec2.ok("DescribeSecurityGroups", &of_vpc("Filter.2.Name=group-name Filter.2.Value.1=default")).await;
    assert_eq!((group.first("groupName"), group.first("cidrIp")), ("default", "0.0.0.0/0"));
    ec2.ok("DeleteVpc", &format!("VpcId={vpc}")).await;
    ec2.refused("DescribeVpcs", &format!("VpcId.1={vpc}"), "InvalidVpcID.NotFound").await;
    for action in ["DescribeRouteTables", "DescribeNetworkAcls", "DescribeSecurityGroups"] {
        assert!(!ec2.ok(action, &of_vpc("")).await.body.contains(&vpc), "{action}");
    }
}

#[tokio::test]
async fn attributes_are_changed_one_at_a_time() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    for (name, element, before) in [
        ("EnableDnsSupport", "enableDnsSupport", "true"),
        ("EnableDnsHostnames", "enableDnsHostnames", "false"),
        ("EnableNetworkAddressUsageMetrics", "enableNetworkAddressUsageMetrics", "false"),
    ] {
        let ask = format!("VpcId={vpc} Attribute={element}");
        assert_eq!(ec2.ok("DescribeVpcAttribute", &ask).await.first("value"), before);
        let after = if before == "true" { "false" } else { "true" };
        ec2.ok("ModifyVpcAttribute", &format!("VpcId={vpc} {name}.Value={after}")).await;
        assert_eq!(ec2.ok("DescribeVpcAttribute", &ask).await.first("value"), after);
    }
    let both = format!("VpcId={vpc} EnableDnsSupport.Value=true EnableDnsHostnames.Value=true");
    ec2.refused("ModifyVpcAttribute", &both, "InvalidParameterCombination").await;
    ec2.refused("DescribeVpcAttribute", &format!("VpcId={vpc} Attribute=colour"), "InvalidParameterValue").await;
}

#[tokio::test]
async fn ranges_must_fit_and_not_overlap() {
    let ec2 = Ec2::instant().await;
    for (cidr, code) in
        [("10.0.0.0/8", "InvalidVpc.Range"), ("10.0.0.0/29", "InvalidVpc.Range"), ("ten", "InvalidParameterValue")]
    {
        ec2.refused("CreateVpc", &format!("CidrBlock={cidr}"), code).await;
    }
    let vpc = ec2.vpc().await;
    ec2.subnet(&vpc, "10.0.1.0/24").await;
    for (cidr, code) in [
        ("10.0.1.0/24", "InvalidSubnet.Conflict"),
        ("10.0.0.0/20", "InvalidSubnet.Conflict"),
        ("10.0.1.128/28", "InvalidSubnet.Conflict"),
        ("10.1.0.0/24", "InvalidSubnet.Range"),
        ("10.0.2.0/29", "InvalidSubnet.Range"),
    ] {
        ec2.refused("CreateSubnet", &format!("VpcId={vpc} CidrBlock={cidr}"), code).await;
    }
    let zone = format!("VpcId={vpc} CidrBlock=10.0.3.0/24 AvailabilityZone=mars-1a");
    ec2.refused("CreateSubnet", &zone, "InvalidParameterValue").await;
    ec2.ok("AssociateVpcCidrBlock", &format!("VpcId={vpc} CidrBlock=10.1.0.0/16")).await;
    ec2.subnet(&vpc, "10.1.0.0/24").await;
    ec2.refused("AssociateVpcCidrBlock", &format!("VpcId={vpc} CidrBlock=10.1.0.0/20"), "InvalidVpc.Conflict").await;
}

#[tokio::test]
async fn ipv6_is_given_by_amazon_and_split_into_subnets() {
    let ec2 = Ec2::instant().await;
    let made = ec2.ok("CreateVpc", "CidrBlock=10.0.0.0/16 AmazonProvidedIpv6CidrBlock=true").await;
    let (vpc, block) = (made.first("vpcId"), made.first("ipv6CidrBlock"));
    assert!(block.ends_with("::/56"), "{block}");
    let own = block.replace("::/56", "::/64");
    let subnet = ec2.subnet(vpc, "10.0.1.0/24").await;
    let ask = format!("SubnetId={subnet} Ipv6CidrBlock={own}");
    let association = ec2.make("AssociateSubnetCidrBlock", &ask, "associationId").await;
    ec2.ok("ModifySubnetAttribute", &format!("SubnetId={subnet} AssignIpv6AddressOnCreation.Value=true")).await;
    let shown = ec2.ok("DescribeSubnets", &format!("SubnetId.1={subnet}")).await;
    assert_eq!((shown.first("ipv6CidrBlock"), shown.first("assignIpv6AddressOnCreation")), (own.as_str(), "true"));
    let again = format!("VpcId={vpc} CidrBlock=10.0.2.0/24 Ipv6CidrBlock={own}");
    ec2.refused("CreateSubnet", &again, "InvalidSubnet.Conflict").await;
    ec2.ok("DisassociateSubnetCidrBlock", &format!("AssociationId={association}")).await;
    let gateway =
        ec2.make("CreateEgressOnlyInternetGateway", &format!("VpcId={vpc}"), "egressOnlyInternetGatewayId").await;
    ec2.ok("DeleteEgressOnlyInternetGateway", &format!("EgressOnlyInternetGatewayId={gateway}")).await;
}

#[tokio::test]
async fn what_is_in_a_vpc_keeps_it() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    let delete = format!("VpcId={vpc}");
    let subnet = ec2.subnet(&vpc, "10.0.1.0/24").await;
    ec2.refused("DeleteVpc", &delete, "DependencyViolation").await;
    let interface = ec2.make("CreateNetworkInterface", &format!("SubnetId={subnet}"), "networkInterfaceId").await;
    ec2.refused("DeleteSubnet", &format!("SubnetId={subnet}"), "DependencyViolation").await;
    ec2.ok("DeleteNetworkInterface", &format!("NetworkInterfaceId={interface}")).await;
    ec2.ok("DeleteSubnet", &format!("SubnetId={subnet}")).await;
    for (create, more, element, delete_it) in [
        ("CreateInternetGateway", "", "internetGatewayId", "DeleteInternetGateway"),
        ("CreateRouteTable", "VpcId=", "routeTableId", "DeleteRouteTable"),
        ("CreateNetworkAcl", "VpcId=", "networkAclId", "DeleteNetworkAcl"),
        ("CreateSecurityGroup", "GroupName=g GroupDescription=g VpcId=", "groupId", "DeleteSecurityGroup"),
    ] {
        let parameters = if more.is_empty() { String::new() } else { format!("{more}{vpc}") };
        let id = ec2.make(create, &parameters, element).await;
        let parameter = format!("{}{}", element[..1].to_uppercase(), &element[1..]);
        if more.is_empty() {
            ec2.ok("AttachInternetGateway", &format!("InternetGatewayId={id} VpcId={vpc}")).await;
        }
        ec2.refused("DeleteVpc", &delete, "DependencyViolation").await;
        if more.is_empty() {
            ec2.refused(delete_it, &format!("{parameter}={id}"), "DependencyViolation").await;
            ec2.ok("DetachInternetGateway", &format!("InternetGatewayId={id} VpcId={vpc}")).await;
            let again = format!("InternetGatewayId={id} VpcId={vpc}");
            ec2.refused("DetachInternetGateway", &again, "Gateway.NotAttached").await;
        }
        ec2.ok(delete_it, &format!("{parameter}={id}")).await;
    }
    ec2.ok("DeleteVpc", &delete).await;
    assert!(ec2.ledger().await.is_empty());
}

#[tokio::test]
async fn a_new_vpc_is_pending_for_a_second_of_its_own_time() {
    let ec2 = Ec2::start(Config { speed: Speed::Times(1.0), ..Config::default() }).await;
    let made = ec2.ok("CreateVpc", "CidrBlock=10.0.0.0/16").await;
    assert_eq!(made.all("state").last(), Some(&"pending"));
    let seen = ec2.ok("DescribeVpcs", &format!("VpcId.1={}", made.first("vpcId"))).await;
    assert_eq!(seen.all("state").last(), Some(&"pending"));
    let ec2 = Ec2::start(Config { speed: Speed::Times(100_000.0), ..Config::default() }).await;
    let vpc = ec2.vpc().await;
    let seen = ec2.ok("DescribeVpcs", &format!("VpcId.1={vpc}")).await;
    assert_eq!(seen.all("state").last(), Some(&"available"));
}
