"""boto3: every reading action, its answer held against the service's model; paginators and waiters."""

import pathlib
import re

import furnish
import reads
from play import refused, same, want
from sandbox import Sandbox

SOURCES = pathlib.Path(__file__).parents[3] / "crates/sandbox/src/aws"
#: Reading actions that need what the furnished account does not have; played elsewhere, or refused here.
NOTHING_TO_READ = {
    "DescribeFargateProfile": "ResourceNotFoundException",
    "DescribeIdentityProviderConfig": "ResourceNotFoundException",
    "DescribeInsight": "ResourceNotFoundException",
    "DescribeInsightsRefresh": "ResourceNotFoundException",
}
LISTS = {
    "eks": {
        "ListFargateProfiles": {"clusterName": "boto"},
        "ListIdentityProviderConfigs": {"clusterName": "boto"},
        "ListInsights": {"clusterName": "boto"},
    }
}
#: Settings that a bucket does not have until they are made.
UNSET = {
    "get_bucket_cors": "NoSuchCORSConfiguration",
    "get_bucket_website": "NoSuchWebsiteConfiguration",
    "get_bucket_replication": "ReplicationConfigurationNotFoundError",
    "get_object_lock_configuration": "ObjectLockConfigurationNotFoundError",
}


def method(client, action):
    names = {value: key for key, value in client.meta.method_to_api_mapping.items()}
    return getattr(client, names[action])


def run(play):
    with Sandbox() as sandbox:
        account(play, sandbox)


def account(play, sandbox):
    world = {}
    play.suite("boto3: an account is furnished", chained=True)

    @play.step("one of everything, each answer as the model has it")
    def _():
        made = furnish.everything(sandbox.client)
        eks = sandbox.client("eks")
        made.cluster_arn = eks.describe_cluster(name="boto")["cluster"]["arn"]
        made.addon_version = eks.describe_addon(clusterName="boto", addonName="vpc-cni")["addon"]["addonVersion"]
        world["made"] = made

    if play.broken:
        return
    made = world["made"]
    play.suite("boto3: every reading action is read by botocore's parsers, and holds what its model says")
    for service, table in reads.SERVICES.items():
        client = sandbox.client(service)
        for action, inputs in {**table(made), **{name: [one] for name, one in LISTS.get(service, {}).items()}}.items():

            @play.step(f"{service} {action}")
            def _(client=client, action=action, inputs=inputs):
                for one in inputs:
                    answer = method(client, action)(**one)
                    answer.pop("ResponseMetadata")

    @play.step("what is not set is not found")
    def _():
        s3 = sandbox.client("s3")
        for name, code in UNSET.items():
            refused(code, getattr(s3, name), Bucket=made.bucket)

    @play.step("no reading action of the sandbox is left out")
    def _():
        named = set()
        for source in SOURCES.rglob("*.rs"):
            named |= set(re.findall(r'Action::read\(\s*"(\w+)"', source.read_text()))
        played = {action for table in reads.SERVICES.values() for action in table(made)}
        played |= {action for table in LISTS.values() for action in table} | set(NOTHING_TO_READ)
        played |= {name.title().replace("_", "") for name in UNSET}
        same("what is not played", sorted(named - played), [])

    paginators(play, sandbox, made)
    waiters(play, sandbox, made)


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
        sandbox.client("eks").create_access_entry(clusterName="boto", principalArn=made.node_role, type="STANDARD")

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

    @play.step("at speed 600, where states take time")
    def _():
        with Sandbox(speed=600) as slow:
            eks, ec2 = slow.client("eks"), slow.client("ec2")
            w = type("World", (), {})()
            furnish.network(ec2, w)
            same("the NAT gateway", ec2.describe_nat_gateways(NatGatewayIds=[w.nat])["NatGateways"][0]["State"], "pending")
            furnish.identity(slow.client, w)
            made = eks.create_cluster(name="slow", roleArn=w.cluster_role, resourcesVpcConfig={"subnetIds": w.subnets})
            same("the cluster", made["cluster"]["status"], "CREATING")
            eks.get_waiter("cluster_active").wait(name="slow", **fast)
            ec2.get_waiter("nat_gateway_available").wait(NatGatewayIds=[w.nat], **fast)
            eks.delete_cluster(name="slow")
            same("the cluster", eks.describe_cluster(name="slow")["cluster"]["status"], "DELETING")
            eks.get_waiter("cluster_deleted").wait(name="slow", **fast)

