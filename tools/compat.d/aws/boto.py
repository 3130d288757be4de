"""boto3: every reading action, its answer held against the service's model; paginators and waiters."""

import pathlib
import re
from types import SimpleNamespace

import furnish
import reads
from play import refused, same, want
from sandbox import Sandbox

SOURCES = pathlib.Path(__file__).parents[3] / "crates/sandbox/src/aws"
LISTS = {
    "eks": {
        "ListFargateProfiles": {"clusterName": "boto"},
        "ListIdentityProviderConfigs": {"clusterName": "boto"},
        "ListInsights": {"clusterName": "boto"},
    }
}
#: What a furnished account does not have: inputs, and the code that the action is refused with.
MISSING = {
    "eks": {
        "DescribeFargateProfile": ({"clusterName": "boto", "fargateProfileName": "none"}, "ResourceNotFoundException"),
        "DescribeIdentityProviderConfig": (
            {"clusterName": "boto", "identityProviderConfig": {"type": "oidc", "name": "none"}},
            "ResourceNotFoundException",
        ),
        "DescribeInsight": ({"clusterName": "boto", "id": "00000000-0000-4000-8000-000000000000"}, "ResourceNotFoundException"),
    },
    "iam": {
        "GetLoginProfile": ({"UserName": "boto-user"}, "NoSuchEntity"),
        "GetAccountPasswordPolicy": ({}, "NoSuchEntity"),
        "GetServiceLinkedRoleDeletionStatus": ({"DeletionTaskId": "task/aws-service-role/none"}, "NoSuchEntity"),
    },
    "sts": {"DecodeAuthorizationMessage": ({"EncodedMessage": "nonsense"}, "InvalidAuthorizationMessageException")},
    "s3": {
        "GetBucketCors": ({}, "NoSuchCORSConfiguration"),
        "GetBucketWebsite": ({}, "NoSuchWebsiteConfiguration"),
        "GetBucketReplication": ({}, "ReplicationConfigurationNotFoundError"),
        "GetObjectLockConfiguration": ({}, "ObjectLockConfigurationNotFoundError"),
        **{
            f"GetBucket{name}Configuration": ({"Id": "none"}, "NoSuchConfiguration")
            for name in ("Analytics", "IntelligentTiering", "Inventory", "Metrics")
        },
    },
}
#: Parts of EKS of which there are none, not even a way to make one.
NOTHING_THERE = {"DescribeInsightsRefresh", "ListCapabilities", "ListEksAnywhereSubscriptions"}


def method(client, action):
    names = {value: key for key, value in client.meta.method_to_api_mapping.items()}
    return getattr(client, names[action])


class Unknown:
    """Stands for a furnished account where only the names of actions matter."""

    def __getattr__(self, name):
        return [name]


def run(play):
    with Sandbox() as sandbox:
        account(play, sandbox)


def account(play, sandbox):
    made = SimpleNamespace()
    play.suite("boto3: an account is furnished; each answer is held against its service's model")
    for what, make in furnish.EVERYTHING.items():

        @play.step(what)
        def _(make=make):
            make(sandbox.client, made)

    @play.step("what a cluster says of itself")
    def _():
        eks = sandbox.client("eks")
        made.cluster_arn = eks.describe_cluster(name="boto")["cluster"]["arn"]
        made.addon_version = eks.describe_addon(clusterName="boto", addonName="vpc-cni")["addon"]["addonVersion"]

    play.suite("boto3: every reading action is read by botocore's parsers, and holds what its model says")
    for service, table in reads.SERVICES.items():
        client = sandbox.client(service)
        for action in [*table(Unknown()), *LISTS.get(service, {})]:

            @play.step(f"{service} {action}")
            def _(client=client, service=service, table=table, action=action):
                for inputs in [LISTS[service][action]] if action in LISTS.get(service, {}) else table(made)[action]:
                    method(client, action)(**inputs)

    for service, table in MISSING.items():
        client = sandbox.client(service)
        for action, (inputs, code) in table.items():

            @play.step(f"{service} {action}: {code}")
            def _(client=client, action=action, inputs=inputs, code=code, bucket={"Bucket": "berth-compat-boto"}):
                more = bucket if client.meta.service_model.service_name == "s3" else {}
                refused(code, method(client, action), **inputs, **more)

    @play.step("no reading action of the sandbox is left out")
    def _():
        named = set()
        for source in SOURCES.rglob("*.rs"):
            named |= set(re.findall(r'Action::read\(\s*"(\w+)"', source.read_text()))
        played = {action for table in reads.SERVICES.values() for action in table(Unknown())}
        played |= {action for table in (*LISTS.values(), *MISSING.values()) for action in table} | NOTHING_THERE
        same("what is not played", sorted(named - played), [])

    paginators(play, sandbox, made)
    waiters(play, sandbox, made)
    slow_states(play)


#: Which paginators turn pages in a furnished account, and how many entries each page may hold.
PAGED = [
    ("ec2", "describe_subnets", {}, "Subnets", 5),
    ("ec2", "describe_security_groups", {}, "SecurityGroups", 5),
    ("ec2", "describe_route_tables", {}, "RouteTables", 5),
    ("ec2", "describe_tags", {}, "Tags", 5),
    ("iam", "list_roles", {}, "Roles", 1),
    ("iam", "list_policies", {"Scope": "All"}, "Policies", 2),
    ("iam", "list_attached_role_policies", {"RoleName": "boto-node"}, "AttachedPolicies", 1),
    ("eks", "describe_addon_versions", {}, "addons", 1),
    ("eks", "list_access_entries", {"clusterName": "boto"}, "accessEntries", 1),
    ("eks", "list_updates", {"name": "boto"}, "updateIds", 1),
    ("kms", "list_aliases", {}, "Aliases", 1),
    ("s3", "list_objects_v2", {"Bucket": "berth-compat-boto"}, "Contents", 2),
    ("s3", "list_object_versions", {"Bucket": "berth-compat-boto"}, "Versions", 2),
    ("logs", "describe_log_groups", {}, "logGroups", 1),
    ("resourcegroupstaggingapi", "get_resources", {}, "ResourceTagMappingList", 2),
]


def paginators(play, sandbox, made):
    play.suite("boto3: paginators end, with all entries and none twice")

    @play.step("more of what is listed is made")
    def _():
        ec2, logs = sandbox.client("ec2"), sandbox.client("logs")
        for number in range(12):
            vpc = {"VpcId": made.vpc}
            ec2.create_subnet(**vpc, CidrBlock=f"10.9.{100 + number}.0/24")
            ec2.create_security_group(**vpc, GroupName=f"page-{number}", Description="page")
            ec2.create_route_table(**vpc)
            logs.create_log_group(logGroupName=f"/boto/page-{number}")
        sandbox.client("eks").create_access_entry(clusterName="boto", principalArn=made.cluster_role)
        logging = {"clusterLogging": [{"types": ["audit"], "enabled": True}]}
        sandbox.client("eks").update_cluster_config(name="boto", logging=logging)

    for service, name, inputs, member, size in PAGED:

        @play.step(f"{service} {name}, {size} at a time")
        def _(service=service, name=name, inputs=inputs, member=member, size=size):
            client = sandbox.client(service)
            whole = getattr(client, name)(**inputs)[member]
            pages = list(client.get_paginator(name).paginate(**inputs, PaginationConfig={"PageSize": size}))
            entries = [repr(entry) for page in pages for entry in page.get(member, [])]
            want(len(pages) > 1, f"{len(entries)} entries were one page")
            want(all(len(page.get(member, [])) <= size for page in pages), "a page holds more than was asked for")
            same("the number of entries", len(entries), len(whole))
            same("the number of different ones", len(set(entries)), len(entries))

    @play.step("a token that was never given is refused")
    def _():
        ec2 = sandbox.client("ec2")
        refused(["InvalidNextToken", "InvalidParameterValue"], ec2.describe_subnets, MaxResults=5, NextToken="nonsense")


def waiters(play, sandbox, made):
    fast = {"WaiterConfig": {"Delay": 1, "MaxAttempts": 60}}
    named = {"clusterName": "boto"}
    present = [
        ("ec2", "vpc_exists", {"VpcIds": [made.vpc]}),
        ("ec2", "vpc_available", {"VpcIds": [made.vpc]}),
        ("ec2", "subnet_available", {"SubnetIds": made.subnets}),
        ("ec2", "internet_gateway_exists", {"InternetGatewayIds": [made.gateway]}),
        ("ec2", "nat_gateway_available", {"NatGatewayIds": [made.nat]}),
        ("ec2", "security_group_exists", {"GroupIds": [made.group]}),
        ("iam", "role_exists", {"RoleName": "boto-node"}),
        ("iam", "policy_exists", {"PolicyArn": made.policy}),
        ("iam", "instance_profile_exists", {"InstanceProfileName": "boto"}),
        ("s3", "bucket_exists", {"Bucket": made.bucket}),
        ("s3", "object_exists", {"Bucket": made.bucket, "Key": "folder/1.txt"}),
        ("s3", "object_not_exists", {"Bucket": made.bucket, "Key": "folder/none"}),
        ("s3", "bucket_not_exists", {"Bucket": "berth-compat-none"}),
        ("eks", "cluster_active", {"name": "boto"}),
        ("eks", "nodegroup_active", {**named, "nodegroupName": "pool"}),
        ("eks", "addon_active", {**named, "addonName": "vpc-cni"}),
    ]
    play.suite("boto3: waiters end")
    for service, name, inputs in present:

        @play.step(f"{service} {name}")
        def _(service=service, name=name, inputs=inputs):
            sandbox.client(service).get_waiter(name).wait(**inputs, **fast)

    @play.step("the deleted ones")
    def _():
        eks, ec2 = sandbox.client("eks"), sandbox.client("ec2")
        refused("ResourceInUseException", eks.delete_cluster, name="boto")
        eks.delete_addon(**named, addonName="vpc-cni")
        eks.get_waiter("addon_deleted").wait(**named, addonName="vpc-cni", **fast)
        eks.delete_nodegroup(**named, nodegroupName="pool")
        eks.get_waiter("nodegroup_deleted").wait(**named, nodegroupName="pool", **fast)
        eks.delete_cluster(name="boto")
        eks.get_waiter("cluster_deleted").wait(name="boto", **fast)
        refused("ResourceNotFoundException", eks.describe_cluster, name="boto")
        ec2.delete_nat_gateway(NatGatewayId=made.nat)
        ec2.get_waiter("nat_gateway_deleted").wait(NatGatewayIds=[made.nat], **fast)


def slow_states(play):
    play.suite("boto3: waiters at speed 600, where states take time")
    fast = {"WaiterConfig": {"Delay": 1, "MaxAttempts": 60}}

    @play.step("a NAT gateway and a cluster")
    def _():
        with Sandbox(speed=600) as slow:
            eks, ec2 = slow.client("eks"), slow.client("ec2")
            w = SimpleNamespace()
            furnish.roles(slow.client, w)
            furnish.network(ec2, w)
            gateway = ec2.create_nat_gateway(SubnetId=w.subnets[0], ConnectivityType="private")["NatGateway"]
            same("the NAT gateway", gateway["State"], "pending")
            made = eks.create_cluster(name="slow", roleArn=w.cluster_role, resourcesVpcConfig={"subnetIds": w.subnets})
            same("the cluster", made["cluster"]["status"], "CREATING")
            eks.get_waiter("cluster_active").wait(name="slow", **fast)
            ec2.get_waiter("nat_gateway_available").wait(NatGatewayIds=[w.nat], **fast)
            eks.delete_cluster(name="slow")
            same("the cluster", eks.describe_cluster(name="slow")["cluster"]["status"], "DELETING")
            eks.get_waiter("cluster_deleted").wait(name="slow", **fast)

