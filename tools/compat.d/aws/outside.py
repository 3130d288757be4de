"""Changes that somebody makes beside Terraform: what is changed, and at which addresses a refresh must show it."""

import json


def network(client, at):
    ec2 = client("ec2")
    vpc = at["aws_vpc.main"]["id"]
    ec2.create_tags(Resources=[vpc], Tags=[{"Key": "Step", "Value": "by hand"}])
    ec2.delete_tags(Resources=[at["aws_nat_gateway.main"]["id"]], Tags=[{"Key": "Step"}])
    ec2.delete_route(RouteTableId=at["aws_route_table.private"]["id"], DestinationIpv6CidrBlock="::/0")
    opened = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    ec2.authorize_security_group_ingress(GroupId=at["aws_security_group.inline"]["id"], IpPermissions=[opened])
    rule = at["aws_vpc_security_group_ingress_rule.https"]
    ec2.revoke_security_group_ingress(GroupId=rule["security_group_id"], SecurityGroupRuleIds=[rule["id"]])
    ec2.modify_subnet_attribute(SubnetId=at["aws_subnet.public[0]"]["id"], MapPublicIpOnLaunch={"Value": False})
    acl = at["aws_network_acl.private"]["id"]
    ec2.delete_network_acl_entry(NetworkAclId=acl, RuleNumber=100, Egress=False)
    ec2.delete_launch_template(LaunchTemplateId=at["aws_launch_template.nodes"]["id"])
    changed = ["aws_vpc.main", "aws_nat_gateway.main", "aws_security_group.inline", "aws_subnet.public[0]", "aws_network_acl.private"]
    gone = ["aws_route.six", "aws_vpc_security_group_ingress_rule.https", "aws_launch_template.nodes"]
    return changed, gone


def iam(client, at):
    role = at["aws_iam_role.node"]["name"]
    client("iam").tag_role(RoleName=role, Tags=[{"Key": "Step", "Value": "by hand"}])
    client("iam").detach_role_policy(RoleName=role, PolicyArn=at["aws_iam_role_policy_attachment.managed"]["policy_arn"])
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    client("iam").create_policy_version(
        PolicyArn=at["aws_iam_policy.own"]["arn"], PolicyDocument=json.dumps(document), SetAsDefault=True
    )
    client("kms").delete_alias(AliasName=at["aws_kms_alias.main"]["name"])
    client("logs").put_retention_policy(logGroupName=at["aws_cloudwatch_log_group.cluster"]["name"], retentionInDays=1)
    queue = at["aws_sqs_queue.events"]["id"]
    client("sqs").set_queue_attributes(QueueUrl=queue, Attributes={"VisibilityTimeout": "99"})
    rule = at["aws_cloudwatch_event_rule.spot"]["name"]
    client("events").remove_targets(Rule=rule, Ids=[at["aws_cloudwatch_event_target.queue"]["target_id"]])
    changed = ["aws_iam_role.node", "aws_iam_policy.own", "aws_cloudwatch_log_group.cluster", "aws_sqs_queue.events"]
    gone = ["aws_iam_role_policy_attachment.managed", "aws_kms_alias.main", "aws_cloudwatch_event_target.queue"]
    return changed, gone


def storage(client, at):
    s3 = client("s3")
    bucket = {"Bucket": at["aws_s3_bucket.state"]["id"]}
    s3.put_bucket_versioning(**bucket, VersioningConfiguration={"Status": "Enabled"})
    s3.put_bucket_tagging(**bucket, Tagging={"TagSet": [{"Key": "Step", "Value": "by hand"}]})
    s3.delete_bucket_policy(**bucket)
    s3.delete_public_access_block(**bucket)
    s3.put_object(**bucket, Key="state/left.json", Body=b"{}")
    s3.delete_bucket(Bucket=at["aws_s3_bucket.other"]["id"])
    changed = ["aws_s3_bucket.state", "aws_s3_bucket_versioning.state"]
    gone = ["aws_s3_bucket_policy.state", "aws_s3_bucket_public_access_block.state", "aws_s3_bucket.other"]
    return changed, gone


def kubernetes(client, at):
    eks = client("eks")
    cluster = {"clusterName": at["aws_eks_cluster.main"]["name"]}
    wait = {"WaiterConfig": {"Delay": 1, "MaxAttempts": 120}}
    eks.tag_resource(resourceArn=at["aws_eks_cluster.main"]["arn"], tags={"Step": "by hand"})
    eks.update_nodegroup_config(
        **cluster,
        nodegroupName="main",
        labels={"addOrUpdateLabels": {"by": "hand"}, "removeLabels": ["tier"]},
        scalingConfig={"minSize": 1, "maxSize": 4, "desiredSize": 4},
    )
    eks.get_waiter("nodegroup_active").wait(**cluster, nodegroupName="main", **wait)
    eks.delete_addon(**cluster, addonName="coredns")
    eks.get_waiter("addon_deleted").wait(**cluster, addonName="coredns", **wait)
    association = at["aws_eks_pod_identity_association.app"]["association_id"]
    eks.delete_pod_identity_association(**cluster, associationId=association)
    entry = at["aws_eks_access_entry.team"]["principal_arn"]
    eks.update_access_entry(**cluster, principalArn=entry, kubernetesGroups=["hand"])
    eks.disassociate_access_policy(
        **cluster, principalArn=entry, policyArn=at["aws_eks_access_policy_association.team"]["policy_arn"]
    )
    changed = ["aws_eks_cluster.main", "aws_eks_node_group.main", "aws_eks_access_entry.team"]
    gone = ["aws_eks_addon.dns", "aws_eks_pod_identity_association.app", "aws_eks_access_policy_association.team"]
    return changed, gone


CHANGES = {function.__name__: function for function in (network, iam, storage, kubernetes)}
