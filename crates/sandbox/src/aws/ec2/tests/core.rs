//! What all calls have in common: filters, pages, tags, dry runs, lag, quotas, unknown actions.

use super::client::Ec2;
use crate::{Config, Speed};

#[tokio::test]
async fn unknown_actions_filters_and_ids_are_refused_by_name() {
    let ec2 = Ec2::instant().await;
    for (action, parameters, code) in [
        ("CreateSpaceship", "", "InvalidAction"),
        ("DescribeVpcs", "VpcId.1=vpc-00000000", "InvalidVpcID.NotFound"),
        ("DescribeVpcs", "VpcId.1=network-1", "InvalidVpcID.Malformed"),
        ("DescribeSubnets", "SubnetId.1=subnet-0123", "InvalidSubnetID.NotFound"),
        ("DescribeSubnets", "SubnetId.1=vpc-0123", "InvalidSubnetID.Malformed"),
        ("DescribeInternetGateways", "InternetGatewayId.1=igw-0123", "InvalidInternetGatewayID.NotFound"),
        ("DescribeNatGateways", "NatGatewayId.1=nat-0123", "NatGatewayNotFound"),
        ("DescribeNatGateways", "NatGatewayId.1=gateway", "NatGatewayMalformed"),
        ("DescribeAddresses", "AllocationId.1=eipalloc-0123", "InvalidAllocationID.NotFound"),
        ("DescribeAddresses", "PublicIp.1=192.0.2.1", "InvalidAddress.NotFound"),
        ("DescribeRouteTables", "RouteTableId.1=rtb-0123", "InvalidRouteTableID.NotFound"),
        ("DescribeNetworkAcls", "NetworkAclId.1=acl-0123", "InvalidNetworkAclID.NotFound"),
        ("DescribeSecurityGroups", "GroupId.1=sg-0123", "InvalidGroup.NotFound"),
        ("DescribeSecurityGroups", "GroupId.1=group", "InvalidGroupId.Malformed"),
        ("DescribeSecurityGroupRules", "SecurityGroupRuleId.1=sgr-0123", "InvalidSecurityGroupRuleId.NotFound"),
        ("DescribeVpcEndpoints", "VpcEndpointId.1=vpce-0123", "InvalidVpcEndpointId.NotFound"),
        ("DescribeLaunchTemplates", "LaunchTemplateId.1=lt-0123", "InvalidLaunchTemplateId.NotFound"),
        ("DescribeLaunchTemplates", "LaunchTemplateName.1=none", "InvalidLaunchTemplateName.NotFoundException"),
        ("DescribeNetworkInterfaces", "NetworkInterfaceId.1=eni-0123", "InvalidNetworkInterfaceID.NotFound"),
        ("DescribeInstances", "InstanceId.1=i-0123", "InvalidInstanceID.NotFound"),
        ("DescribeImages", "ImageId.1=ami-0123", "InvalidAMIID.NotFound"),
        ("DescribeKeyPairs", "KeyName.1=none", "InvalidKeyPair.NotFound"),
        ("DescribeDhcpOptions", "DhcpOptionsId.1=dopt-0123", "InvalidDhcpOptionID.NotFound"),
        ("DescribeInstanceTypes", "InstanceType.1=z9.large", "InvalidInstanceType"),
        ("DescribeVpcEndpointServices", "ServiceName.1=com.amazonaws.mars.s3", "InvalidServiceName"),
        ("DescribeVpcs", "Filter.1.Name=colour Filter.1.Value.1=red", "InvalidParameterValue"),
        ("DescribeVpcs", "Filter.x.Name=vpc-id", "InvalidParameterValue"),
        ("DescribeVpcs", "MaxResults=2", "InvalidParameterValue"),
        ("DescribeVpcs", "NextToken=xyz", "InvalidNextToken"),
        ("CreateTags", "ResourceId.1=vpc-0123 Tag.1.Key=a", "InvalidVpcID.NotFound"),
        ("CreateTags", "ResourceId.1=thing-0123 Tag.1.Key=a", "InvalidID"),
        ("CreateVpc", "", "MissingParameter"),
    ] {
        ec2.refused(action, parameters, code).await;
    }
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let ec2 = Ec2::instant().await;
    let answer = ec2.call("CreateVpc", "CidrBlock=10.0.0.0/16 DryRun=true").await;
    assert_eq!((answer.status, answer.first("Code")), (412, "DryRunOperation"));
    assert!(ec2.ledger().await.is_empty());
}

#[tokio::test]
async fn a_region_starts_with_its_default_vpc_which_can_be_made_again() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.ok("DescribeVpcs", "Filter.1.Name=is-default Filter.1.Value.1=true").await;
    assert_eq!((vpc.all("vpcId").len(), vpc.first("cidrBlock")), (1, "172.31.0.0/16"));
    let subnets = ec2.ok("DescribeSubnets", "Filter.1.Name=default-for-az Filter.1.Value.1=true").await;
    assert_eq!(subnets.all("subnetId").len(), 3);
    assert_eq!(subnets.all("mapPublicIpOnLaunch"), ["true"; 3]);
    assert!(ec2.ledger().await.is_empty(), "what an account has from the start is not of its user");
    ec2.refused("CreateDefaultVpc", "", "DefaultVpcAlreadyExists").await;
    let mut elsewhere = ec2;
    elsewhere.region = "us-east-1";
    let subnets = elsewhere.ok("DescribeSubnets", "").await;
    assert_eq!(subnets.all("subnetId").len(), 6, "each region has its own zones");
}

#[tokio::test]
async fn filters_take_wildcards_tags_and_several_values() {
    let ec2 = Ec2::instant().await;
    for (cidr, name) in [("10.1.0.0/16", "shop-one"), ("10.2.0.0/16", "shop-two"), ("10.3.0.0/16", "other")] {
        let tags = format!(
            "TagSpecification.1.ResourceType=vpc TagSpecification.1.Tag.1.Key=Name TagSpecification.1.Tag.1.Value={name}"
        );
        ec2.ok("CreateVpc", &format!("CidrBlock={cidr} {tags}")).await;
    }
    for (filter, count) in [
        ("Filter.1.Name=tag:Name Filter.1.Value.1=shop-*", 2),
        ("Filter.1.Name=tag:Name Filter.1.Value.1=shop-one Filter.1.Value.2=other", 2),
        ("Filter.1.Name=tag:Name Filter.1.Value.1=shop-??? Filter.2.Name=cidr Filter.2.Value.1=10.1.*", 1),
        ("Filter.1.Name=tag-key Filter.1.Value.1=Name", 3),
        ("Filter.1.Name=tag-key Filter.1.Value.1=name", 0),
        ("Filter.1.Name=owner-id Filter.1.Value.1=1", 0),
        ("Filter.1.Name=state Filter.1.Value.1=available", 4),
    ] {
        assert_eq!(ec2.ok("DescribeVpcs", filter).await.all("vpcId").len(), count, "{filter}");
    }
}

#[tokio::test]
async fn pages_follow_each_other_to_the_end() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    for at in 0..12 {
        ec2.subnet(&vpc, &format!("10.0.{at}.0/24")).await;
    }
    let (mut token, mut seen) = (String::new(), Vec::new());
    loop {
        let more = if token.is_empty() { String::new() } else { format!("NextToken={token}") };
        let filter = format!("MaxResults=5 Filter.1.Name=vpc-id Filter.1.Value.1={vpc} {more}");
        let page = ec2.ok("DescribeSubnets", &filter).await;
        seen.push(page.all("subnetId").len());
        match page.all("nextToken").first() {
            Some(next) => token = (*next).to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, [5, 5, 2]);
}

#[tokio::test]
async fn tags_come_with_creation_and_change_later() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    ec2.ok("CreateTags", &format!("ResourceId.1={vpc} Tag.1.Key=a Tag.1.Value=1 Tag.2.Key=b Tag.2.Value=2")).await;
    let filter = format!("Filter.1.Name=resource-id Filter.1.Value.1={vpc}");
    let tags = ec2.ok("DescribeTags", &filter).await;
    assert_eq!((tags.all("key"), tags.all("value")), (vec!["a", "b"], vec!["1", "2"]));
    assert_eq!(tags.first("resourceType"), "vpc");
    ec2.ok("DeleteTags", &format!("ResourceId.1={vpc} Tag.1.Key=a Tag.1.Value=other Tag.2.Key=b")).await;
    assert_eq!(ec2.ok("DescribeTags", &filter).await.all("key"), ["a"], "a tag with another value stays");
    ec2.refused("CreateTags", &format!("ResourceId.1={vpc} Tag.1.Key=aws:x Tag.1.Value=1"), "InvalidParameterValue")
        .await;
    let wrong = "CidrBlock=10.9.0.0/16 TagSpecification.1.ResourceType=subnet TagSpecification.1.Tag.1.Key=a";
    ec2.refused("CreateVpc", wrong, "InvalidParameterValue").await;
}

#[tokio::test]
async fn lag_shows_what_was() {
    let ec2 = Ec2::failing(&["/ec2/DescribeSubnets lag=60s"]).await;
    let vpc = ec2.vpc().await;
    let subnet = ec2.subnet(&vpc, "10.0.1.0/24").await;
    let listed = ec2.ok("DescribeSubnets", &format!("Filter.1.Name=vpc-id Filter.1.Value.1={vpc}")).await;
    assert_eq!(listed.all("subnetId").len(), 0);
    ec2.refused("DescribeSubnets", &format!("SubnetId.1={subnet}"), "InvalidSubnetID.NotFound").await;
}

#[tokio::test]
async fn quotas_are_refused_with_the_code_of_the_type() {
    let ec2 = Ec2::failing(&["/ec2/AllocateAddress quota"]).await;
    ec2.refused("AllocateAddress", "Domain=vpc", "AddressLimitExceeded").await;
    let mut config = Config { speed: Speed::Instant, ..Config::default() };
    config.quota.networks = 2;
    let ec2 = Ec2::start(config).await;
    ec2.vpc().await;
    ec2.refused("CreateVpc", "CidrBlock=10.1.0.0/16", "VpcLimitExceeded").await;
}

#[tokio::test]
async fn the_same_client_token_makes_one_object_and_none_makes_two() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    let one = ec2.make("CreateRouteTable", &format!("VpcId={vpc} ClientToken=t1"), "routeTableId").await;
    let again = ec2.make("CreateRouteTable", &format!("VpcId={vpc} ClientToken=t1"), "routeTableId").await;
    let other = ec2.make("CreateRouteTable", &format!("VpcId={vpc}"), "routeTableId").await;
    assert!(one == again && one != other);
    let second = ec2.vpc().await;
    assert_ne!(vpc, second);
}
