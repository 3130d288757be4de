//! VPC endpoints, their services and prefix lists.

use super::client::Ec2;

#[tokio::test]
async fn a_gateway_endpoint_is_a_route_in_its_tables() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    let table = ec2.make("CreateRouteTable", &format!("VpcId={vpc}"), "routeTableId").await;
    let service = "ServiceName=com.amazonaws.eu-central-1.s3";
    let make = format!("VpcId={vpc} {service} VpcEndpointType=Gateway");
    let endpoint = ec2.make("CreateVpcEndpoint", &make, "vpcEndpointId").await;
    ec2.ok("ModifyVpcEndpoint", &format!("VpcEndpointId={endpoint} AddRouteTableId.1={table}")).await;
    let list = ec2
        .ok("DescribePrefixLists", "Filter.1.Name=prefix-list-name Filter.1.Value.1=com.amazonaws.eu-central-1.s3")
        .await;
    let shown = ec2.ok("DescribeRouteTables", &format!("RouteTableId.1={table}")).await;
    assert_eq!(shown.first("destinationPrefixListId"), list.first("prefixListId"));
    assert_eq!(shown.all("gatewayId"), ["local", &endpoint]);
    ec2.refused("CreateVpcEndpoint", &format!("{make} RouteTableId.1={table}"), "RouteAlreadyExists").await;
    ec2.refused("CreateVpcEndpoint", &make.replace("s3", "s4"), "InvalidServiceName").await;
    ec2.refused("DeleteVpc", &format!("VpcId={vpc}"), "DependencyViolation").await;
    ec2.ok("ModifyVpcEndpoint", &format!("VpcEndpointId={endpoint} RemoveRouteTableId.1={table}")).await;
    let shown = ec2.ok("DescribeRouteTables", &format!("RouteTableId.1={table}")).await;
    assert_eq!(shown.all("gatewayId"), ["local"]);
    let gone = ec2.ok("DeleteVpcEndpoints", &format!("VpcEndpointId.1={endpoint} VpcEndpointId.2=vpce-0123")).await;
    assert_eq!((gone.all("resourceId"), gone.first("code")), (vec!["vpce-0123"], "InvalidVpcEndpoint.NotFound"));
    ec2.refused("DescribeVpcEndpoints", &format!("VpcEndpointId.1={endpoint}"), "InvalidVpcEndpointId.NotFound").await;
}

#[tokio::test]
async fn an_interface_endpoint_stands_in_subnets() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    let subnet = ec2.subnet(&vpc, "10.0.1.0/24").await;
    let make = format!(
        "VpcId={vpc} ServiceName=com.amazonaws.eu-central-1.ecr.api VpcEndpointType=Interface SubnetId.1={subnet} PrivateDnsEnabled=true"
    );
    let made = ec2.ok("CreateVpcEndpoint", &make).await;
    let endpoint = made.first("vpcEndpointId");
    assert_eq!(made.first("state"), "pending");
    assert!(made.all("dnsName").contains(&"api.ecr.eu-central-1.amazonaws.com"), "{}", made.body);
    ec2.refused("DeleteSubnet", &format!("SubnetId={subnet}"), "DependencyViolation").await;
    ec2.ok("DeleteVpcEndpoints", &format!("VpcEndpointId.1={endpoint}")).await;
    ec2.ok("DeleteSubnet", &format!("SubnetId={subnet}")).await;
    ec2.ok("DeleteVpc", &format!("VpcId={vpc}")).await;
    assert!(ec2.ledger().await.is_empty());
}

#[tokio::test]
async fn services_and_lists_are_those_of_the_region() {
    let ec2 = Ec2::instant().await;
    let services = ec2.ok("DescribeVpcEndpointServices", "Filter.1.Name=service-type Filter.1.Value.1=Gateway").await;
    assert_eq!(services.all("serviceName").len(), 2);
    let managed = ec2.ok("DescribeManagedPrefixLists", "").await;
    assert_eq!(managed.all("ownerId"), ["AWS"; 3]);
    let entries =
        ec2.ok("GetManagedPrefixListEntries", &format!("PrefixListId={}", managed.first("prefixListId"))).await;
    assert!(!entries.all("cidr").is_empty());
}
