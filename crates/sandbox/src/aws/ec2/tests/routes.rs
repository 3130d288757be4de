//! Route tables, routes and network ACLs.

use super::client::Ec2;

#[tokio::test]
async fn routes_are_made_replaced_and_deleted() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    let table = ec2.make("CreateRouteTable", &format!("VpcId={vpc}"), "routeTableId").await;
    let gateway = ec2.make("CreateInternetGateway", "", "internetGatewayId").await;
    let route = format!("RouteTableId={table} DestinationCidrBlock=0.0.0.0/0 GatewayId={gateway}");
    ec2.refused("CreateRoute", &route, "InvalidParameterValue").await;
    ec2.ok("AttachInternetGateway", &format!("InternetGatewayId={gateway} VpcId={vpc}")).await;
    ec2.ok("CreateRoute", &route).await;
    let shown = ec2.ok("DescribeRouteTables", &format!("RouteTableId.1={table}")).await;
    assert_eq!(shown.all("destinationCidrBlock"), ["10.0.0.0/16", "0.0.0.0/0"]);
    assert_eq!(
        (shown.all("origin"), shown.all("state")),
        (vec!["CreateRouteTable", "CreateRoute"], vec!["active", "active"])
    );
    for (action, parameters, code) in [
        ("CreateRoute", route.clone(), "RouteAlreadyExists"),
        (
            "CreateRoute",
            format!("RouteTableId={table} DestinationCidrBlock=10.0.1.0/24 GatewayId={gateway}"),
            "InvalidParameterValue",
        ),
        (
            "CreateRoute",
            format!("RouteTableId={table} DestinationCidrBlock=10.9.0.0/24 GatewayId=igw-0123"),
            "InvalidGatewayID.NotFound",
        ),
        (
            "CreateRoute",
            format!("RouteTableId={table} DestinationCidrBlock=10.9.0.0/24 NatGatewayId=nat-0123"),
            "InvalidNatGatewayID.NotFound",
        ),
        ("CreateRoute", format!("RouteTableId={table} DestinationCidrBlock=10.9.0.0/24"), "MissingParameter"),
        (
            "CreateRoute",
            "RouteTableId=rtb-0123 DestinationCidrBlock=10.9.0.0/24".into(),
            "InvalidRouteTableID.NotFound",
        ),
        (
            "ReplaceRoute",
            format!("RouteTableId={table} DestinationCidrBlock=10.9.0.0/24 GatewayId={gateway}"),
            "InvalidParameterValue",
        ),
        ("DeleteRoute", format!("RouteTableId={table} DestinationCidrBlock=10.9.0.0/24"), "InvalidRoute.NotFound"),
        ("DeleteRoute", format!("RouteTableId={table} DestinationCidrBlock=10.0.0.0/16"), "InvalidParameterValue"),
    ] {
        ec2.refused(action, &parameters, code).await;
    }
    ec2.ok("DetachInternetGateway", &format!("InternetGatewayId={gateway} VpcId={vpc}")).await;
    let shown = ec2.ok("DescribeRouteTables", &format!("RouteTableId.1={table}")).await;
    assert_eq!(shown.all("state"), ["active", "blackhole"]);
    ec2.ok("DeleteRoute", &format!("RouteTableId={table} DestinationCidrBlock=0.0.0.0/0")).await;
    ec2.ok("DeleteRouteTable", &format!("RouteTableId={table}")).await;
}

#[tokio::test]
async fn associations_move_and_keep_their_table() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    let subnet = ec2.subnet(&vpc, "10.0.1.0/24").await;
    let one = ec2.make("CreateRouteTable", &format!("VpcId={vpc}"), "routeTableId").await;
    let two = ec2.make("CreateRouteTable", &format!("VpcId={vpc}"), "routeTableId").await;
    let first =
        ec2.make("AssociateRouteTable", &format!("RouteTableId={one} SubnetId={subnet}"), "associationId").await;
    ec2.refused("AssociateRouteTable", &format!("RouteTableId={two} SubnetId={subnet}"), "Resource.AlreadyAssociated")
        .await;
    ec2.refused("DeleteRouteTable", &format!("RouteTableId={one}"), "DependencyViolation").await;
    let replace = format!("AssociationId={first} RouteTableId={two}");
    let second = ec2.make("ReplaceRouteTableAssociation", &replace, "newAssociationId").await;
    assert_ne!(first, second);
    let filter = |id: &str| format!("Filter.1.Name=association.route-table-association-id Filter.1.Value.1={id}");
    assert!(ec2.ok("DescribeRouteTables", &filter(&first)).await.all("routeTableId").is_empty());
    assert_eq!(ec2.ok("DescribeRouteTables", &filter(&second)).await.all("routeTableId").last(), Some(&two.as_str()));
    ec2.ok("DisassociateRouteTable", &format!("AssociationId={second}")).await;
    ec2.refused("DisassociateRouteTable", &format!("AssociationId={second}"), "InvalidAssociationID.NotFound").await;
    let main =
        format!("Filter.1.Name=vpc-id Filter.1.Value.1={vpc} Filter.2.Name=association.main Filter.2.Value.1=true");
    let main = ec2.make("DescribeRouteTables", &main, "routeTableAssociationId").await;
    ec2.refused("DisassociateRouteTable", &format!("AssociationId={main}"), "InvalidParameterValue").await;
    ec2.ok("ReplaceRouteTableAssociation", &format!("AssociationId={main} RouteTableId={two}")).await;
    ec2.refused("DeleteRouteTable", &format!("RouteTableId={two}"), "DependencyViolation").await;
}

#[tokio::test]
async fn every_subnet_has_one_acl() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    let subnet = ec2.subnet(&vpc, "10.0.1.0/24").await;
    let filter = format!("Filter.1.Name=association.subnet-id Filter.1.Value.1={subnet}");
    let before = ec2.ok("DescribeNetworkAcls", &filter).await;
    assert_eq!(before.first("default"), "true");
    let default = before.first("networkAclId").to_owned();
    let acl = ec2.make("CreateNetworkAcl", &format!("VpcId={vpc}"), "networkAclId").await;
    let move_to = |association: &str, acl: &str| format!("AssociationId={association} NetworkAclId={acl}");
    let moved = move_to(before.first("networkAclAssociationId"), &acl);
    let association = ec2.make("ReplaceNetworkAclAssociation", &moved, "newAssociationId").await;
    ec2.refused("ReplaceNetworkAclAssociation", &moved, "InvalidAssociationID.NotFound").await;
    ec2.refused("DeleteNetworkAcl", &format!("NetworkAclId={acl}"), "DependencyViolation").await;
    ec2.refused("DeleteNetworkAcl", &format!("NetworkAclId={default}"), "InvalidParameterValue").await;
    ec2.ok("ReplaceNetworkAclAssociation", &move_to(&association, &default)).await;
    ec2.ok("DeleteNetworkAcl", &format!("NetworkAclId={acl}")).await;
}

#[tokio::test]
async fn entries_have_a_number_and_a_direction() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    let acl = ec2.make("CreateNetworkAcl", &format!("VpcId={vpc}"), "networkAclId").await;
    let entry = |more: &str| {
        format!("NetworkAclId={acl} RuleNumber=100 Egress=false RuleAction=allow CidrBlock=10.0.0.0/8 {more}")
    };
    let web = "Protocol=6 PortRange.From=443 PortRange.To=443";
    ec2.ok("CreateNetworkAclEntry", &entry(web)).await;
    let out = entry(web).replace("Egress=false", "Egress=true");
    ec2.ok("CreateNetworkAclEntry", &out).await;
    for (action, parameters, code) in [
        ("CreateNetworkAclEntry", entry(web), "NetworkAclEntryAlreadyExists"),
        ("CreateNetworkAclEntry", entry("Protocol=6").replace("100", "101"), "MissingParameter"),
        ("CreateNetworkAclEntry", entry("Protocol=nine").replace("100", "101"), "InvalidParameterValue"),
        ("CreateNetworkAclEntry", entry(web).replace("100", "32767"), "InvalidParameterValue"),
        ("DeleteNetworkAclEntry", entry("").replace("100", "7"), "InvalidNetworkAclEntry.NotFound"),
        ("ReplaceNetworkAclEntry", entry(web).replace("100", "7"), "InvalidNetworkAclEntry.NotFound"),
    ] {
        ec2.refused(action, &parameters, code).await;
    }
    ec2.ok("ReplaceNetworkAclEntry", &entry("Protocol=-1 PortRange.From=0 PortRange.To=0")).await;
    let shown = ec2.ok("DescribeNetworkAcls", &format!("NetworkAclId.1={acl}")).await;
    assert_eq!(shown.all("protocol"), ["6", "-1", "-1", "-1"]);
    assert_eq!(shown.all("portRange").len(), 1, "all protocols have no ports");
    ec2.ok("DeleteNetworkAclEntry", &entry("")).await;
}
