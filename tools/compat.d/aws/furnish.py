"""An account with one of everything, made by boto3."""

import json

TAGS = {"Team": "compat"}
PAIRS = [{"Key": "Team", "Value": "compat"}]


def trust(service):
    principal = {"Service": service}
    return json.dumps(
        {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}]}
    )


def allow(*actions):
    return json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": list(actions), "Resource": "*"}]})


def tagged(kind):
    return [{"ResourceType": kind, "Tags": PAIRS}]


def network(ec2, w):
    w.vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16", TagSpecifications=tagged("vpc"))["Vpc"]["VpcId"]
    ec2.get_waiter("vpc_available").wait(VpcIds=[w.vpc], WaiterConfig={"Delay": 1})
    zones = [zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]]
    w.subnets = []
    for number, zone in enumerate(zones[:2]):
        made = ec2.create_subnet(
            VpcId=w.vpc, CidrBlock=f"10.9.{number}.0/24", AvailabilityZone=zone, TagSpecifications=tagged("subnet")
        )
        w.subnets.append(made["Subnet"]["SubnetId"])
    w.gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=w.gateway, VpcId=w.vpc)
    w.address = ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip"))["AllocationId"]
    w.nat = ec2.create_nat_gateway(SubnetId=w.subnets[0], AllocationId=w.address)["NatGateway"]["NatGatewayId"]
    w.table = ec2.create_route_table(VpcId=w.vpc)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=w.table, DestinationCidrBlock="0.0.0.0/0", GatewayId=w.gateway)
    ec2.associate_route_table(RouteTableId=w.table, SubnetId=w.subnets[0])
    region = ec2.meta.region_name
    made = ec2.create_vpc_endpoint(VpcId=w.vpc, ServiceName=f"com.amazonaws.{region}.s3", RouteTableIds=[w.table])
    w.endpoint = made["VpcEndpoint"]["VpcEndpointId"]
    w.acl = ec2.create_network_acl(VpcId=w.vpc)["NetworkAcl"]["NetworkAclId"]
    ec2.create_network_acl_entry(
        NetworkAclId=w.acl, RuleNumber=100, Protocol="6", RuleAction="allow", Egress=False,
        CidrBlock="0.0.0.0/0", PortRange={"From": 443, "To": 443},
    )  # fmt: skip
    w.group = ec2.create_security_group(GroupName="compat", Description="compat", VpcId=w.vpc)["GroupId"]
    rule = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "web"}]}
    w.rule = ec2.authorize_security_group_ingress(GroupId=w.group, IpPermissions=[rule])["SecurityGroupRules"][0]["SecurityGroupRuleId"]
    made = ec2.create_launch_template(LaunchTemplateName="compat", LaunchTemplateData={"InstanceType": "m6i.large"})
    w.template = made["LaunchTemplate"]["LaunchTemplateId"]


def roles(client, w):
    iam = client("iam")
    for attribute, name, service in (
        ("cluster_role", "boto-cluster", "eks.amazonaws.com"),
        ("node_role", "boto-node", "ec2.amazonaws.com"),
        ("pod_role", "boto-pod", "pods.eks.amazonaws.com"),
    ):
        made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust(service), Tags=PAIRS)
        setattr(w, attribute, made["Role"]["Arn"])
    for name, policies in (
        ("boto-cluster", ["AmazonEKSClusterPolicy"]),
        ("boto-node", ["AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly"]),
    ):
        for policy in policies:
            iam.attach_role_policy(RoleName=name, PolicyArn=f"arn:aws:iam::aws:policy/{policy}")
    w.policy = iam.create_policy(PolicyName="boto", PolicyDocument=allow("ec2:Describe*"))["Policy"]["Arn"]
    iam.put_role_policy(RoleName="boto-node", PolicyName="inline", PolicyDocument=allow("s3:GetObject"))
    iam.attach_role_policy(RoleName="boto-node", PolicyArn=w.policy)
    iam.create_instance_profile(InstanceProfileName="boto")
    iam.add_role_to_instance_profile(InstanceProfileName="boto", RoleName="boto-node")
    made = iam.create_open_id_connect_provider(
        Url="https://boto.example.com", ClientIDList=["sts.amazonaws.com"], ThumbprintList=["9e99a48a9960b14926bb7f3b02e22da2b0ab7280"]
    )
    w.issuer = made["OpenIDConnectProviderArn"]
    person(iam, w)


def person(iam, w):
    user, group = {"UserName": "boto-user"}, {"GroupName": "boto-group"}
    iam.create_user(**user, Tags=PAIRS)
    iam.create_group(**group)
    iam.add_user_to_group(**user, **group)
    iam.put_user_policy(**user, PolicyName="own", PolicyDocument=allow("s3:*"))
    iam.put_group_policy(**group, PolicyName="own", PolicyDocument=allow("s3:*"))
    iam.attach_user_policy(**user, PolicyArn=w.policy)
    iam.attach_group_policy(**group, PolicyArn=w.policy)
    w.access_key = iam.create_access_key(**user)["AccessKey"]["AccessKeyId"]


def around(client, w):
    """What stands beside a cluster: a key, a log group, a queue and a rule that fills it."""
    kms = client("kms")
    metadata = kms.create_key(Description="boto", Tags=[{"TagKey": "Team", "TagValue": "compat"}])["KeyMetadata"]
    w.key, w.key_arn = metadata["KeyId"], metadata["Arn"]
    kms.create_alias(AliasName="alias/boto", TargetKeyId=w.key)
    w.cipher = kms.encrypt(KeyId=w.key, Plaintext=b"secret")["CiphertextBlob"]
    logs = client("logs")
    logs.create_log_group(logGroupName="/boto/one", tags=TAGS)
    logs.create_log_stream(logGroupName="/boto/one", logStreamName="stream")
    w.log_group = logs.describe_log_groups(logGroupNamePrefix="/boto/one")["logGroups"][0]["arn"].removesuffix(":*")
    sqs = client("sqs")
    w.queue = sqs.create_queue(QueueName="boto", tags=TAGS)["QueueUrl"]
    w.queue_arn = sqs.get_queue_attributes(QueueUrl=w.queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events = client("events")
    pattern = json.dumps({"source": ["aws.ec2"]})
    w.event_rule = events.put_rule(Name="boto", EventPattern=pattern, Tags=PAIRS)["RuleArn"]
    events.put_targets(Rule="boto", Targets=[{"Id": "queue", "Arn": w.queue_arn}])


def bucket(s3, w):
    w.bucket = "berth-compat-boto"
    s3.create_bucket(Bucket=w.bucket, CreateBucketConfiguration={"LocationConstraint": s3.meta.region_name})
    named = {"Bucket": w.bucket}
    s3.put_bucket_versioning(**named, VersioningConfiguration={"Status": "Enabled"})
    s3.put_bucket_tagging(**named, Tagging={"TagSet": PAIRS})
    s3.put_public_access_block(**named, PublicAccessBlockConfiguration={"BlockPublicAcls": True})
    s3.put_bucket_ownership_controls(**named, OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]})
    by_default = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    s3.put_bucket_encryption(**named, ServerSideEncryptionConfiguration={"Rules": [by_default]})
    rule = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "old/"}, "Expiration": {"Days": 30}}
    s3.put_bucket_lifecycle_configuration(**named, LifecycleConfiguration={"Rules": [rule]})
    statement = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteBucket", "Resource": f"arn:aws:s3:::{w.bucket}"}
    s3.put_bucket_policy(**named, Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    for number in range(5):
        s3.put_object(**named, Key=f"folder/{number}.txt", Body=b"content %d" % number, ContentType="text/plain")
    w.upload = s3.create_multipart_upload(**named, Key="large")["UploadId"]
    s3.upload_part(**named, Key="large", UploadId=w.upload, PartNumber=1, Body=b"part")


def cluster(eks, w):
    eks.create_cluster(
        name="boto", roleArn=w.cluster_role, tags=TAGS, resourcesVpcConfig={"subnetIds": w.subnets},
        accessConfig={"authenticationMode": "API_AND_CONFIG_MAP", "bootstrapClusterCreatorAdminPermissions": True},
    )  # fmt: skip
    named = {"clusterName": "boto"}
    eks.get_waiter("cluster_active").wait(name="boto", WaiterConfig={"Delay": 1})
    eks.create_nodegroup(
        **named, nodegroupName="pool", nodeRole=w.node_role, subnets=w.subnets,
        scalingConfig={"minSize": 1, "maxSize": 3, "desiredSize": 2},
    )  # fmt: skip
    eks.get_waiter("nodegroup_active").wait(**named, nodegroupName="pool", WaiterConfig={"Delay": 1})
    eks.create_addon(**named, addonName="vpc-cni")
    eks.get_waiter("addon_active").wait(**named, addonName="vpc-cni", WaiterConfig={"Delay": 1})
    eks.create_access_entry(**named, principalArn=w.pod_role, kubernetesGroups=["viewers"])
    w.view = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"
    eks.associate_access_policy(**named, principalArn=w.pod_role, policyArn=w.view, accessScope={"type": "cluster"})
    made = eks.create_pod_identity_association(**named, namespace="app", serviceAccount="app", roleArn=w.pod_role)
    w.association = made["association"]["associationId"]
    changed = eks.update_nodegroup_config(**named, nodegroupName="pool", labels={"addOrUpdateLabels": {"tier": "web"}})
    w.node_update = changed["update"]["id"]
    changed = eks.update_cluster_config(name="boto", logging={"clusterLogging": [{"types": ["api"], "enabled": True}]})
    w.update = changed["update"]["id"]


#: In this order; `client` makes a client by the name of its service.
EVERYTHING = {
    "a network": lambda client, w: network(client("ec2"), w),
    "roles and policies": roles,
    "a key, logs, a queue, a rule": around,
    "a bucket": lambda client, w: bucket(client("s3"), w),
    "a cluster": lambda client, w: cluster(client("eks"), w),
}
