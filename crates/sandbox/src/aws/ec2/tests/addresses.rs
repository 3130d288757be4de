//! Elastic addresses, NAT gateways, and the interfaces between them.

use super::client::Ec2;
use crate::{Config, Speed};

struct Net {
    vpc: String,
    subnet: String,
    gateway: String,
    allocation: String,
}

async fn net(ec2: &Ec2) -> Net {
    let vpc = ec2.vpc().await;
    let subnet = ec2.subnet(&vpc, "10.0.1.0/24").await;
    let gateway = ec2.make("CreateInternetGateway", "", "internetGatewayId").await;
    ec2.ok("AttachInternetGateway", &format!("InternetGatewayId={gateway} VpcId={vpc}")).await;
    let allocation = ec2.make("AllocateAddress", "Domain=vpc", "allocationId").await;
    Net { vpc, subnet, gateway, allocation }
}

#[tokio::test]
async fn a_nat_gateway_holds_its_address_and_its_subnet_until_it_is_gone() {
    let ec2 = Ec2::instant().await;
    let Net { vpc, subnet, gateway, allocation } = net(&ec2).await;
    let nat =
        ec2.make("CreateNatGateway", &format!("SubnetId={subnet} AllocationId={allocation}"), "natGatewayId").await;
    let shown = ec2.ok("DescribeNatGateways", &format!("NatGatewayId.1={nat}")).await;
    assert_eq!(
        (shown.first("state"), shown.first("isPrimary"), shown.first("privateIp")),
        ("available", "true", "10.0.1.4")
    );
    let address = ec2.ok("DescribeAddresses", &format!("AllocationId.1={allocation}")).await;
    assert_eq!(address.first("associationId"), shown.first("associationId"));
    let association = address.first("associationId");
    ec2.refused("ReleaseAddress", &format!("AllocationId={allocation}"), "InvalidIPAddress.InUse").await;
    ec2.refused("DisassociateAddress", &format!("AssociationId={association}"), "AuthFailure").await;
    ec2.refused("DeleteSubnet", &format!("SubnetId={subnet}"), "DependencyViolation").await;
    let detach = format!("InternetGatewayId={gateway} VpcId={vpc}");
    ec2.refused("DetachInternetGateway", &detach, "DependencyViolation").await;
    let filter = format!("Filter.1.Name=subnet-id Filter.1.Value.1={subnet}");
    let interface = ec2.ok("DescribeNetworkInterfaces", &filter).await;
    assert_eq!((interface.first("interfaceType"), interface.first("requesterManaged")), ("nat_gateway", "true"));
    ec2.ok("DeleteNatGateway", &format!("NatGatewayId={nat}")).await;
    assert_eq!(ec2.ok("DescribeNatGateways", &format!("NatGatewayId.1={nat}")).await.first("state"), "deleted");
    ec2.refused("DisassociateAddress", &format!("AssociationId={association}"), "InvalidAssociationID.NotFound").await;
    ec2.ok("ReleaseAddress", &format!("AllocationId={allocation}")).await;
    ec2.ok("DetachInternetGateway", &detach).await;
    ec2.ok("DeleteInternetGateway", &format!("InternetGatewayId={gateway}")).await;
    ec2.ok("DeleteSubnet", &format!("SubnetId={subnet}")).await;
    ec2.ok("DeleteVpc", &format!("VpcId={vpc}")).await;
    assert!(ec2.ledger().await.is_empty(), "a deleted gateway is still shown, but not there");
}

#[tokio::test]
async fn a_nat_gateway_fails_by_its_state() {
    let ec2 = Ec2::instant().await;
    let Net { subnet, gateway, vpc, allocation } = net(&ec2).await;
    let make = format!("SubnetId={subnet} AllocationId={allocation}");
    ec2.ok("CreateNatGateway", &make).await;
    let second = ec2.make("CreateNatGateway", &make, "natGatewayId").await;
    let shown = ec2.ok("DescribeNatGateways", &format!("NatGatewayId.1={second}")).await;
    assert_eq!((shown.first("state"), shown.first("failureCode")), ("failed", "Resource.AlreadyAssociated"));
    let other = ec2.vpc().await;
    let lonely = ec2.subnet(&other, "10.0.1.0/24").await;
    let address = ec2.make("AllocateAddress", "", "allocationId").await;
    let third =
        ec2.make("CreateNatGateway", &format!("SubnetId={lonely} AllocationId={address}"), "natGatewayId").await;
    let shown = ec2.ok("DescribeNatGateways", &format!("NatGatewayId.1={third}")).await;
    assert_eq!((shown.first("state"), shown.first("failureCode")), ("failed", "Gateway.NotAttached"));
    for (parameters, code) in [
        ("SubnetId=subnet-0123 AllocationId=eipalloc-0123".to_owned(), "InvalidSubnetID.NotFound"),
        (format!("SubnetId={subnet} AllocationId=eipalloc-0123"), "InvalidAllocationID.NotFound"),
        (format!("SubnetId={subnet}"), "MissingParameter"),
    ] {
        ec2.refused("CreateNatGateway", &parameters, code).await;
    }
    let private =
        ec2.make("CreateNatGateway", &format!("SubnetId={subnet} ConnectivityType=private"), "natGatewayId").await;
    let shown = ec2.ok("DescribeNatGateways", &format!("NatGatewayId.1={private}")).await;
    assert!(shown.all("publicIp").is_empty() && shown.first("state") == "available", "{} {gateway} {vpc}", shown.body);
}

#[tokio::test]
async fn a_nat_gateway_takes_a_minute_and_a_half() {
    let ec2 = Ec2::start(Config { speed: Speed::Times(60.0), ..Config::default() }).await;
    let Net { subnet, allocation, .. } = net(&ec2).await;
    let nat =
        ec2.make("CreateNatGateway", &format!("SubnetId={subnet} AllocationId={allocation}"), "natGatewayId").await;
    let state =
        async || ec2.ok("DescribeNatGateways", &format!("NatGatewayId.1={nat}")).await.first("state").to_owned();
    assert_eq!(state().await, "pending");
    tokio::time::sleep(std::time::Duration::from_millis(1900)).await;
    assert_eq!(state().await, "available");
    ec2.ok("DeleteNatGateway", &format!("NatGatewayId={nat}")).await;
    assert_eq!(state().await, "deleting");
    ec2.refused("ReleaseAddress", &format!("AllocationId={allocation}"), "InvalidIPAddress.InUse").await;
}

#[tokio::test]
async fn addresses_are_associated_with_interfaces() {
    let ec2 = Ec2::instant().await;
    let Net { subnet, allocation, .. } = net(&ec2).await;
    let interface = ec2.make("CreateNetworkInterface", &format!("SubnetId={subnet}"), "networkInterfaceId").await;
    let ask = format!("AllocationId={allocation} NetworkInterfaceId={interface}");
    let association = ec2.make("AssociateAddress", &ask, "associationId").await;
    let again = format!("{ask} AllowReassociation=false");
    ec2.refused("AssociateAddress", &again, "Resource.AlreadyAssociated").await;
    let shown = ec2.ok("DescribeNetworkInterfaces", &format!("NetworkInterfaceId.1={interface}")).await;
    assert_eq!(shown.first("associationId"), association);
    ec2.ok("DisassociateAddress", &format!("AssociationId={association}")).await;
    ec2.ok("ReleaseAddress", &format!("AllocationId={allocation}")).await;
    ec2.refused("ReleaseAddress", &format!("AllocationId={allocation}"), "InvalidAllocationID.NotFound").await;
}
