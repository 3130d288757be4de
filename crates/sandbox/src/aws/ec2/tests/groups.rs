//! Security groups and their rules.

use super::client::Ec2;

async fn group(ec2: &Ec2, vpc: &str, name: &str) -> String {
    ec2.make("CreateSecurityGroup", &format!("GroupName={name} GroupDescription=test VpcId={vpc}"), "groupId").await
}

const WEB: &str = "IpPermissions.1.IpProtocol=tcp IpPermissions.1.FromPort=443 IpPermissions.1.ToPort=443";

#[tokio::test]
async fn rules_are_authorized_once_and_revoked_by_id_or_content() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    let group = group(&ec2, &vpc, "web").await;
    let rule = format!(
        "GroupId={group} {WEB} IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8 IpPermissions.1.IpRanges.1.Description=web"
    );
    let made = ec2.ok("AuthorizeSecurityGroupIngress", &rule).await;
    let id = made.first("securityGroupRuleId").to_owned();
    assert_eq!(
        (made.first("cidrIpv4"), made.first("fromPort"), made.first("description")),
        ("10.0.0.0/8", "443", "web")
    );
    let same = rule.replace("Description=web", "Description=other").replace("tcp", "6");
    ec2.refused("AuthorizeSecurityGroupIngress", &same, "InvalidPermission.Duplicate").await;
    let shown = ec2.ok("DescribeSecurityGroups", &format!("GroupId.1={group}")).await;
    assert_eq!(shown.all("cidrIp"), ["10.0.0.0/8", "0.0.0.0/0"]);
    ec2.ok("RevokeSecurityGroupIngress", &format!("GroupId={group} SecurityGroupRuleId.1={id}")).await;
    let again = format!("GroupId={group} SecurityGroupRuleId.1={id}");
    ec2.refused("RevokeSecurityGroupIngress", &again, "InvalidSecurityGroupRuleId.NotFound").await;
    ec2.refused("RevokeSecurityGroupIngress", &rule, "InvalidPermission.NotFound").await;
    let all = "IpPermissions.1.IpProtocol=-1 IpPermissions.1.FromPort=0 IpPermissions.1.ToPort=0";
    let all = format!("GroupId={group} {all} IpPermissions.1.IpRanges.1.CidrIp=0.0.0.0/0");
    let gone = ec2.ok("RevokeSecurityGroupEgress", &all).await;
    assert_eq!(gone.first("cidrIpv4"), "0.0.0.0/0");
    let six = all.replace("IpRanges.1.CidrIp=0.0.0.0/0", "Ipv6Ranges.1.CidrIpv6=::/0");
    ec2.refused("RevokeSecurityGroupEgress", &six, "InvalidPermission.NotFound").await;
}

#[tokio::test]
async fn rules_for_everything_have_no_ports_but_in_their_own_list() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    let group = group(&ec2, &vpc, "open").await;
    let shown = ec2.ok("DescribeSecurityGroups", &format!("GroupId.1={group}")).await;
    assert!(shown.all("fromPort").is_empty(), "{}", shown.body);
    let filter = format!("Filter.1.Name=group-id Filter.1.Value.1={group}");
    let rules = ec2.ok("DescribeSecurityGroupRules", &filter).await;
    assert_eq!(
        (rules.all("fromPort"), rules.all("toPort"), rules.all("isEgress")),
        (vec!["-1"], vec!["-1"], vec!["true"])
    );
}

#[tokio::test]
async fn a_rule_is_modified_as_a_whole() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    let group = group(&ec2, &vpc, "web").await;
    let rule = format!("GroupId={group} {WEB} IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8");
    let id = ec2.make("AuthorizeSecurityGroupIngress", &rule, "securityGroupRuleId").await;
    let change = |more: &str| format!("GroupId={group} SecurityGroupRule.1.SecurityGroupRuleId={id} {more}");
    let all = "SecurityGroupRule.1.SecurityGroupRule.IpProtocol=-1 SecurityGroupRule.1.SecurityGroupRule.CidrIpv4=10.1.0.0/16 SecurityGroupRule.1.SecurityGroupRule.Description=new";
    ec2.ok("ModifySecurityGroupRules", &change(all)).await;
    let shown = ec2.ok("DescribeSecurityGroupRules", &format!("SecurityGroupRuleId.1={id}")).await;
    assert_eq!(
        (shown.first("ipProtocol"), shown.first("cidrIpv4"), shown.first("description")),
        ("-1", "10.1.0.0/16", "new")
    );
    let update = format!(
        "GroupId={group} IpPermissions.1.IpProtocol=-1 IpPermissions.1.IpRanges.1.CidrIp=10.1.0.0/16 IpPermissions.1.IpRanges.1.Description=newer"
    );
    ec2.ok("UpdateSecurityGroupRuleDescriptionsIngress", &update).await;
    let shown = ec2.ok("DescribeSecurityGroupRules", &format!("SecurityGroupRuleId.1={id}")).await;
    assert_eq!(shown.first("description"), "newer");
    ec2.refused("ModifySecurityGroupRules", &change(""), "MissingParameter").await;
}

#[tokio::test]
async fn a_group_that_is_used_or_referred_to_stays() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    let subnet = ec2.subnet(&vpc, "10.0.1.0/24").await;
    let (one, two) = (group(&ec2, &vpc, "one").await, group(&ec2, &vpc, "two").await);
    let refer = |own: &str, other: &str| format!("GroupId={own} {WEB} IpPermissions.1.Groups.1.GroupId={other}");
    ec2.ok("AuthorizeSecurityGroupIngress", &refer(&one, &two)).await;
    ec2.ok("AuthorizeSecurityGroupIngress", &refer(&one, &one)).await;
    ec2.refused("DeleteSecurityGroup", &format!("GroupId={two}"), "DependencyViolation").await;
    let interface = format!("SubnetId={subnet} SecurityGroupId.1={one}");
    let interface = ec2.make("CreateNetworkInterface", &interface, "networkInterfaceId").await;
    ec2.refused("DeleteSecurityGroup", &format!("GroupId={one}"), "DependencyViolation").await;
    ec2.ok("DeleteNetworkInterface", &format!("NetworkInterfaceId={interface}")).await;
    ec2.ok("DeleteSecurityGroup", &format!("GroupId={one}")).await;
    ec2.ok("DeleteSecurityGroup", &format!("GroupId={two}")).await;
    ec2.refused("DescribeSecurityGroups", &format!("GroupId.1={one}"), "InvalidGroup.NotFound").await;
}

#[tokio::test]
async fn names_and_rules_are_checked() {
    let ec2 = Ec2::instant().await;
    let vpc = ec2.vpc().await;
    let own = group(&ec2, &vpc, "web").await;
    let default = ec2
        .ok(
            "DescribeSecurityGroups",
            &format!("Filter.1.Name=vpc-id Filter.1.Value.1={vpc} Filter.2.Name=group-name Filter.2.Value.1=default"),
        )
        .await;
    let default = default.all("groupId").last().unwrap().to_string();
    let create = |name: &str| format!("GroupName={name} GroupDescription=x VpcId={vpc}");
    let range = "IpPermissions.1.IpRanges.1.CidrIp=";
    for (action, parameters, code) in [
        ("CreateSecurityGroup", create("web"), "InvalidGroup.Duplicate"),
        ("CreateSecurityGroup", create("sg-mine"), "InvalidParameterValue"),
        ("CreateSecurityGroup", create("default"), "InvalidParameterValue"),
        ("CreateSecurityGroup", "GroupName=x".into(), "MissingParameter"),
        ("DeleteSecurityGroup", format!("GroupId={default}"), "CannotDelete"),
        ("AuthorizeSecurityGroupIngress", format!("GroupId={own} {WEB} {range}10.0.0"), "InvalidParameterValue"),
        (
            "AuthorizeSecurityGroupIngress",
            format!("GroupId={own} IpPermissions.1.IpProtocol=tcp {range}10.0.0.0/8"),
            "InvalidParameterValue",
        ),
        (
            "AuthorizeSecurityGroupIngress",
            format!("GroupId={own} {WEB} IpPermissions.1.Groups.1.GroupId=sg-0123"),
            "InvalidGroup.NotFound",
        ),
        (
            "AuthorizeSecurityGroupIngress",
            format!("GroupId={own} {WEB} IpPermissions.1.PrefixListIds.1.PrefixListId=pl-0"),
            "InvalidPrefixListID.NotFound",
        ),
        ("AuthorizeSecurityGroupIngress", format!("GroupId={own}"), "MissingParameter"),
    ] {
        ec2.refused(action, &parameters, code).await;
    }
    for port in 0..60 {
        let rule =
            format!("IpPermissions.1.IpProtocol=tcp IpPermissions.1.FromPort={port} IpPermissions.1.ToPort={port}");
        ec2.ok("AuthorizeSecurityGroupIngress", &format!("GroupId={own} {rule} {range}10.0.0.0/8")).await;
    }
    let more = format!("GroupId={own} {WEB} {range}10.0.0.0/8");
    ec2.refused("AuthorizeSecurityGroupIngress", &more, "RulesPerSecurityGroupLimitExceeded").await;
}
