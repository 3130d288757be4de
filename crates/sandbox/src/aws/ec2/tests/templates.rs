//! Launch templates, key pairs and what the catalogues show.

use super::client::Ec2;

const DATA: &str = "LaunchTemplateData.InstanceType=m6i.large LaunchTemplateData.BlockDeviceMapping.1.DeviceName=/dev/xvda \
                    LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize=50 LaunchTemplateData.SecurityGroupId.1=sg-1 \
                    LaunchTemplateData.TagSpecification.1.ResourceType=instance LaunchTemplateData.TagSpecification.1.Tag.1.Key=a";

#[tokio::test]
async fn versions_hold_what_was_given_in_the_names_of_answers() {
    let ec2 = Ec2::instant().await;
    let data = DATA.split_whitespace().collect::<Vec<_>>().join(" ");
    let tags = "TagSpecification.1.ResourceType=launch-template TagSpecification.1.Tag.1.Key=own TagSpecification.1.Tag.1.Value=x";
    let id =
        ec2.make("CreateLaunchTemplate", &format!("LaunchTemplateName=nodes {data} {tags}"), "launchTemplateId").await;
    let versions = format!("LaunchTemplateId={id}");
    let shown = ec2.ok("DescribeLaunchTemplateVersions", &versions).await;
    for part in [
        "<blockDeviceMappingSet><item>",
        "<ebs><volumeSize>50",
        "<securityGroupIdSet><item>sg-1",
        "<tagSpecificationSet><item>",
    ] {
        assert!(shown.body.contains(part), "{part}: {}", shown.body);
    }
    assert!(!shown.body.contains("own"), "the template's own tags are not its version's");
    ec2.refused(
        "CreateLaunchTemplate",
        &format!("LaunchTemplateName=nodes {data}"),
        "InvalidLaunchTemplateName.AlreadyExistsException",
    )
    .await;
    ec2.refused(
        "CreateLaunchTemplate",
        &format!("LaunchTemplateName=n {data}"),
        "InvalidLaunchTemplateName.MalformedException",
    )
    .await;
    let second = format!("{versions} LaunchTemplateData.InstanceType=m6i.xlarge");
    assert_eq!(ec2.make("CreateLaunchTemplateVersion", &second, "versionNumber").await, "2");
    let third = format!("{versions} SourceVersion=1 LaunchTemplateData.ImageId=ami-1");
    assert!(ec2.ok("CreateLaunchTemplateVersion", &third).await.body.contains("volumeSize"));
    ec2.ok("ModifyLaunchTemplate", &format!("{versions} SetDefaultVersion=2")).await;
    let template = ec2.ok("DescribeLaunchTemplates", "LaunchTemplateName.1=nodes").await;
    assert_eq!((template.first("defaultVersionNumber"), template.first("latestVersionNumber")), ("2", "3"));
    for (wanted, number) in [("$Latest", "3"), ("$Default", "2"), ("1", "1")] {
        let ask = format!("{versions} LaunchTemplateVersion.1={wanted}");
        assert_eq!(ec2.ok("DescribeLaunchTemplateVersions", &ask).await.all("versionNumber"), [number], "{wanted}");
    }
    let missing = format!("{versions} LaunchTemplateVersion.1=9");
    ec2.refused("DescribeLaunchTemplateVersions", &missing, "InvalidLaunchTemplateId.VersionNotFound").await;
    let delete = format!("{versions} LaunchTemplateVersion.1=1 LaunchTemplateVersion.2=2");
    let gone = ec2.ok("DeleteLaunchTemplateVersions", &delete).await;
    assert_eq!(gone.all("responseError").len(), 1, "the default version stays");
    ec2.ok("DeleteLaunchTemplate", &versions).await;
    assert!(ec2.ledger().await.is_empty());
}

#[tokio::test]
async fn key_pairs_are_imported() {
    let ec2 = Ec2::instant().await;
    let key = "KeyName=mine PublicKeyMaterial=c3NoLWVkMjU1MTkgQUFBQSBtZQ==";
    ec2.ok("ImportKeyPair", key).await;
    ec2.refused("ImportKeyPair", key, "InvalidKeyPair.Duplicate").await;
    ec2.refused("ImportKeyPair", "KeyName=x PublicKeyMaterial=aGVsbG8=", "InvalidKey.Format").await;
    assert_eq!(ec2.ok("DescribeKeyPairs", "KeyName.1=mine").await.first("keyType"), "ed25519");
    ec2.ok("DeleteKeyPair", "KeyName=mine").await;
    assert!(ec2.ledger().await.is_empty());
}

#[tokio::test]
async fn catalogues_answer_filters() {
    let ec2 = Ec2::instant().await;
    for (action, parameters, element, count) in [
        ("DescribeRegions", "", "regionName", 17),
        ("DescribeRegions", "RegionName.1=eu-west-1", "regionName", 1),
        ("DescribeAvailabilityZones", "Filter.1.Name=state Filter.1.Value.1=available", "zoneName", 3),
        ("DescribeAvailabilityZones", "ZoneId.1=euc1-az2", "zoneName", 1),
        ("DescribeInstanceTypes", "InstanceType.1=m5.large InstanceType.2=t3.medium", "instanceType", 2),
        ("DescribeInstanceTypes", "Filter.1.Name=instance-type Filter.1.Value.1=m7g.*", "instanceType", 3),
        (
            "DescribeInstanceTypeOfferings",
            "LocationType=availability-zone Filter.1.Name=instance-type Filter.1.Value.1=m5.large",
            "location",
            3,
        ),
        (
            "DescribeImages",
            "Owner.1=amazon Filter.1.Name=name Filter.1.Value.1=amazon-eks-node-al2023-x86_64-standard-1.33-*",
            "imageId",
            1,
        ),
        ("DescribeImages", "Owner.1=self", "imageId", 0),
        ("DescribeAccountAttributes", "AttributeName.1=default-vpc", "attributeValue", 1),
        ("DescribeInstances", "", "instanceId", 0),
        ("DescribeDhcpOptions", "", "dhcpOptionsId", 1),
    ] {
        assert_eq!(ec2.ok(action, parameters).await.all(element).len(), count, "{action} {parameters}");
    }
}
