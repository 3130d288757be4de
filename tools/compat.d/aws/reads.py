"""The reading actions of every service, each with inputs that find something in a furnished account."""


def by_filter(name, *values):
    return {"Filters": [{"Name": name, "Values": list(values)}]}


EVENT = (
    '{"id": "1", "detail-type": "x", "source": "aws.ec2", "account": "123456789012", "time": "2026-01-01T00:00:00Z", '
    '"region": "eu-central-1", "resources": [], "detail": {}}'
)


def ec2(w):
    return {
        "DescribeVpcs": [{}, {"VpcIds": [w.vpc]}, by_filter("tag:Team", "compat")],
        "DescribeVpcAttribute": [
            {"VpcId": w.vpc, "Attribute": name}
            for name in ("enableDnsSupport", "enableDnsHostnames", "enableNetworkAddressUsageMetrics")
        ],
        "DescribeSubnets": [{}, {"SubnetIds": w.subnets}, by_filter("vpc-id", w.vpc)],
        "DescribeInternetGateways": [{"InternetGatewayIds": [w.gateway]}, by_filter("attachment.vpc-id", w.vpc)],
        "DescribeAddresses": [{}, {"AllocationIds": [w.address]}],
        "DescribeAddressesAttribute": [{"AllocationIds": [w.address], "Attribute": "domain-name"}],
        "DescribeNatGateways": [{"NatGatewayIds": [w.nat]}, {"Filter": [{"Name": "vpc-id", "Values": [w.vpc]}]}],
        "DescribeRouteTables": [{"RouteTableIds": [w.table]}, by_filter("association.main", "true")],
        "DescribeVpcEndpoints": [{"VpcEndpointIds": [w.endpoint]}],
        "DescribeVpcEndpointServices": [{}],
        "DescribePrefixLists": [{}],
        "DescribeManagedPrefixLists": [{}],
        "DescribeNetworkAcls": [{"NetworkAclIds": [w.acl]}, by_filter("default", "true")],
        "DescribeSecurityGroups": [{"GroupIds": [w.group]}, by_filter("vpc-id", w.vpc)],
        "DescribeSecurityGroupRules": [{"SecurityGroupRuleIds": [w.rule]}, by_filter("group-id", w.group)],
        "DescribeNetworkInterfaces": [{}, by_filter("subnet-id", *w.subnets)],
        "DescribeLaunchTemplates": [{"LaunchTemplateIds": [w.template]}, {"LaunchTemplateNames": ["compat"]}],
        "DescribeLaunchTemplateVersions": [{"LaunchTemplateId": w.template}, {"LaunchTemplateId": w.template, "Versions": ["$Latest"]}],
        "DescribeTags": [{}, by_filter("resource-id", w.vpc)],
        "DescribeAvailabilityZones": [{}, by_filter("state", "available")],
        "DescribeRegions": [{}],
        "DescribeAccountAttributes": [{}],
        "DescribeInstanceTypes": [{"InstanceTypes": ["m6i.large"]}],
        "DescribeInstanceTypeOfferings": [{}],
        "DescribeInstances": [{}],
    }


def iam(w):
    role, profile = {"RoleName": "boto-node"}, {"InstanceProfileName": "boto"}
    return {
        "GetRole": [role],
        "ListRoles": [{}, {"PathPrefix": "/"}],
        "ListRoleTags": [{"RoleName": "boto-node"}],
        "ListRolePolicies": [role],
        "GetRolePolicy": [{**role, "PolicyName": "inline"}],
        "ListAttachedRolePolicies": [role],
        "ListInstanceProfilesForRole": [role],
        "GetPolicy": [{"PolicyArn": w.policy}, {"PolicyArn": "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"}],
        "GetPolicyVersion": [{"PolicyArn": w.policy, "VersionId": "v1"}],
        "ListPolicies": [{"Scope": "Local"}, {"Scope": "AWS"}],
        "ListPolicyVersions": [{"PolicyArn": w.policy}],
        "ListPolicyTags": [{"PolicyArn": w.policy}],
        "ListEntitiesForPolicy": [{"PolicyArn": w.policy}],
        "GetInstanceProfile": [profile],
        "ListInstanceProfiles": [{}],
        "ListInstanceProfileTags": [profile],
        "GetOpenIDConnectProvider": [{"OpenIDConnectProviderArn": w.issuer}],
        "ListOpenIDConnectProviders": [{}],
        "ListOpenIDConnectProviderTags": [{"OpenIDConnectProviderArn": w.issuer}],
        **people(w),
    }


def people(w):
    """IAM's users and groups, and lists that are empty in a new account."""
    user, group = {"UserName": "boto-user"}, {"GroupName": "boto-group"}
    empty = ("AccountAliases", "SAMLProviders", "ServerCertificates", "VirtualMFADevices")
    of_user = ("MFADevices", "SSHPublicKeys", "ServiceSpecificCredentials", "SigningCertificates")
    simulated = {"ActionNames": ["s3:GetObject", "ec2:CreateVpc"]}
    policy = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
    return {
        "GetUser": [user, {}],
        "ListUsers": [{}],
        "ListUserTags": [user],
        "ListAccessKeys": [user],
        "GetAccessKeyLastUsed": [{"AccessKeyId": w.access_key}],
        "GetUserPolicy": [{**user, "PolicyName": "own"}],
        "ListUserPolicies": [user],
        "ListAttachedUserPolicies": [user],
        "ListGroupsForUser": [user],
        "GetGroup": [group],
        "ListGroups": [{}],
        "GetGroupPolicy": [{**group, "PolicyName": "own"}],
        "ListGroupPolicies": [group],
        "ListAttachedGroupPolicies": [group],
        "GetAccountSummary": [{}],
        "GetAccountAuthorizationDetails": [{}],
        "SimulatePrincipalPolicy": [{**simulated, "PolicySourceArn": w.node_role}],
        "SimulateCustomPolicy": [{**simulated, "PolicyInputList": [policy]}],
        **{f"List{name}": [{}] for name in empty},
        **{f"List{name}": [user] for name in of_user},
    }


def eks(w):
    named, pool = {"clusterName": "boto"}, {"clusterName": "boto", "nodegroupName": "pool"}
    principal = {**named, "principalArn": w.pod_role}
    return {
        "DescribeCluster": [{"name": "boto"}],
        "ListClusters": [{}],
        "DescribeNodegroup": [pool],
        "ListNodegroups": [named],
        "DescribeAddon": [{**named, "addonName": "vpc-cni"}],
        "ListAddons": [named],
        "DescribeAddonVersions": [{}, {"addonName": "vpc-cni", "kubernetesVersion": "1.32"}],
        "DescribeAddonConfiguration": [{"addonName": "vpc-cni", "addonVersion": w.addon_version}],
        "DescribeClusterVersions": [{}],
        "DescribeAccessEntry": [principal],
        "ListAccessEntries": [named],
        "ListAccessPolicies": [{}],
        "ListAssociatedAccessPolicies": [principal],
        "DescribePodIdentityAssociation": [{**named, "associationId": w.association}],
        "ListPodIdentityAssociations": [named, {**named, "namespace": "app", "serviceAccount": "app"}],
        "DescribeUpdate": [{"name": "boto", "updateId": w.update}, {"name": "boto", "updateId": w.node_update, "nodegroupName": "pool"}],
        "ListUpdates": [{"name": "boto"}, {"name": "boto", "nodegroupName": "pool"}],
        "ListTagsForResource": [{"resourceArn": w.cluster_arn}],
    }


def s3(w):
    bucket = {"Bucket": w.bucket}
    one = {**bucket, "Key": "folder/1.txt"}
    settings = ("Acl", "Versioning", "AccelerateConfiguration", "RequestPayment", "Logging", "LifecycleConfiguration", "Encryption")
    settings += ("Tagging", "Policy", "Location", "OwnershipControls", "PolicyStatus")
    return {
        "ListBuckets": [{}],
        "HeadBucket": [bucket],
        **{f"GetBucket{setting}": [bucket] for setting in settings},
        "GetPublicAccessBlock": [bucket],
        "ListObjects": [bucket],
        "ListObjectsV2": [bucket, {**bucket, "Prefix": "folder/", "Delimiter": "/"}],
        "ListObjectVersions": [bucket],
        "ListMultipartUploads": [bucket],
        "ListParts": [{**bucket, "Key": "large", "UploadId": w.upload}],
        "HeadObject": [one],
        "GetObject": [one],
        "GetObjectTagging": [one],
        "GetObjectAcl": [one],
        "GetBucketNotificationConfiguration": [bucket],
        **{f"ListBucket{name}Configurations": [bucket] for name in ("Analytics", "IntelligentTiering", "Inventory", "Metrics")},
        "GetObjectAttributes": [{**one, "ObjectAttributes": ["ETag", "ObjectSize"]}],
    }


def kms(w):
    key = {"KeyId": w.key}
    return {
        "DescribeKey": [key, {"KeyId": "alias/boto"}],
        "GetKeyPolicy": [{**key, "PolicyName": "default"}],
        "GetKeyRotationStatus": [key],
        "ListResourceTags": [key],
        "ListKeys": [{}],
        "ListAliases": [{}, key],
        "ListKeyPolicies": [key],
        "Encrypt": [{**key, "Plaintext": b"secret"}],
        "Decrypt": [{"CiphertextBlob": w.cipher}],
        "ReEncrypt": [{"CiphertextBlob": w.cipher, "DestinationKeyId": w.key}],
        "GenerateDataKey": [{**key, "KeySpec": "AES_256"}],
        "GenerateDataKeyWithoutPlaintext": [{**key, "KeySpec": "AES_256"}],
        "GenerateRandom": [{"NumberOfBytes": 16}],
    }


def logs(w):
    return {
        "DescribeLogGroups": [{}, {"logGroupNamePrefix": "/boto"}],
        "ListTagsForResource": [{"resourceArn": w.log_group}],
        "ListTagsLogGroup": [{"logGroupName": "/boto/one"}],
        "DescribeLogStreams": [{"logGroupName": "/boto/one"}],
        "GetLogEvents": [{"logGroupName": "/boto/one", "logStreamName": "stream"}],
        "FilterLogEvents": [{"logGroupName": "/boto/one"}],
    }


def events(w):
    return {
        "DescribeRule": [{"Name": "boto"}],
        "ListRules": [{}, {"NamePrefix": "bo"}],
        "ListTargetsByRule": [{"Rule": "boto"}],
        "ListRuleNamesByTarget": [{"TargetArn": w.queue_arn}],
        "ListTagsForResource": [{"ResourceARN": w.event_rule}],
        "DescribeEventBus": [{}],
        "TestEventPattern": [{"EventPattern": '{"source": ["aws.ec2"]}', "Event": EVENT}],
        "ListEventBuses": [{}],
    }


def sqs(w):
    queue = {"QueueUrl": w.queue}
    return {
        "GetQueueAttributes": [{**queue, "AttributeNames": ["All"]}],
        "GetQueueUrl": [{"QueueName": "boto"}],
        "ListQueues": [{}, {"QueueNamePrefix": "bo"}],
        "ListQueueTags": [queue],
        "ListDeadLetterSourceQueues": [queue],
    }


def sts(w):
    return {
        "GetCallerIdentity": [{}],
        "GetAccessKeyInfo": [{"AccessKeyId": "AKIAIOSFODNN7EXAMPLE"}],
    }


def resourcegroupstaggingapi(w):
    return {
        "GetResources": [{}, {"TagFilters": [{"Key": "Team", "Values": ["compat"]}]}, {"ResourceTypeFilters": ["ec2:subnet"]}],
        "GetTagKeys": [{}],
        "GetTagValues": [{"Key": "Team"}],
    }


SERVICES = {
    function.__name__: function
    for function in (ec2, iam, eks, s3, kms, logs, events, sqs, sts, resourcegroupstaggingapi)
}
#: Its name in the scope of a signature, where that is another one.
SCOPES = {"resourcegroupstaggingapi": "tagging"}
