"""Terraform and boto3 while the sandbox fails: what ends well, and what is left double as AWS itself would leave it."""

import tempfile
from types import SimpleNamespace

import furnish
import lifecycle
from play import refused, same, until, want
from programs import program
from sandbox import Sandbox
from stack import Stack

#: Seldom enough that 25 attempts get through, often enough that every run meets each of them.
RULES = {
    "5xx": ["500 rate=0.08", "503 rate=0.08", "502 rate=0.03"],
    "throttling": ["429 rate=0.08"],
    "drop-before": ["drop-before rate=0.12"],
}


def terraform(play, names=("network", "iam", "kubernetes", "storage")):
    for kind, rules in RULES.items():
        lifecycle.side_by_side(play, f"terraform, {kind}", names, lifecycle.short_life, rules=[f"aws {rule}" for rule in rules])


def doubles_of_terraform(play):
    """An answer that is lost after the change: the SDK sends the call again."""
    play.suite("terraform, drop-after: doubles where AWS would have them, and only there", chained=True)
    lost = {
        "vpc": "/ec2/CreateVpc",
        "address": "/ec2/AllocateAddress",
        "internet_gateway": "/ec2/CreateInternetGateway",
    }
    protected = {
        "nat_gateway": "/ec2/CreateNatGateway",
        "route_table": "/ec2/CreateRouteTable",
        "vpc_endpoint": "/ec2/CreateVpcEndpoint",
        "network_acl": "/ec2/CreateNetworkAcl",
        "launch_template": "/ec2/CreateLaunchTemplate",
    }
    with Sandbox() as sandbox, tempfile.TemporaryDirectory() as folder:
        one = Stack("network", program("terraform"), sandbox.environment(), folder)

        @play.step("apply and destroy without a fault leave nothing")
        def _():
            one.init()
            one.apply(1)
            one.destroy(1)
            same("what is left", lifecycle.settled(sandbox), [])

        @play.step("apply with the first answer of each create lost")
        def _():
            sandbox.faults(*(f"POST {path} aws drop-after nth=1" for path in [*lost.values(), *protected.values()]))
            one.apply(1)
            same("how many answers were lost", sandbox.struck(), len(lost) + len(protected))
            sandbox.faults()
            one.plan_is_empty(1)

        @play.step("destroy leaves just the doubles that no client token prevents")
        def _():
            one.destroy(1)
            left = lifecycle.settled(sandbox, 5)
            kinds = sorted(kind.rsplit(".", 1)[-1] for kind, _ in left)
            for kind in lost:
                same(f"the number of {kind}s left", sum(1 for one in kinds if kind in one), 1)
            for kind in protected:
                # A VPC brings its own route table and ACL.
                own = [key for key in left if kind in key[0] and not sandbox.objects()[key].get("main")]
                want(not own or kind in ("route_table", "network_acl"), f"{kind}: {own}")
            want(len(left) >= len(lost), f"{left}")


#: Creates without a client token: boto3 sends them again, and there are two.
def unprotected(client):
    return {
        "vpc": lambda: client("ec2").create_vpc(CidrBlock="10.0.0.0/16"),
        "internet_gateway": lambda: client("ec2").create_internet_gateway(),
        "address": lambda: client("ec2").allocate_address(Domain="vpc"),
        "key": lambda: client("kms").create_key(),
    }


def doubles_of_boto(play):
    play.suite("boto3, drop-after: the SDK's second attempt")
    with Sandbox() as sandbox:

        def client(service):
            return sandbox.client(service, retries={"max_attempts": 3, "mode": "standard"})

        def number(kind):
            return sum(1 for name, _ in sandbox.left_over() if name.rsplit(".", 1)[-1].endswith(kind))

        paths = {"vpc": "ec2/CreateVpc", "internet_gateway": "ec2/CreateInternetGateway", "address": "ec2/AllocateAddress", "key": "kms/CreateKey"}
        for kind, call in unprotected(client).items():

            @play.step(f"{paths[kind]} without a token: two")
            def _(kind=kind, call=call):
                sandbox.faults(f"POST /{paths[kind]} aws drop-after nth=1")
                before = number(kind)
                call()
                same("made", number(kind) - before, 2)
                same("struck", sandbox.struck(), 1)

        made = SimpleNamespace()

        @play.step("the network for the rest is made")
        def _():
            sandbox.faults()
            furnish.network(sandbox.client("ec2"), made)
            furnish.roles(sandbox.client, made)
            furnish.around(sandbox.client, made)

        named = {"clusterName": "double"}
        wait = {"WaiterConfig": {"Delay": 1}}
        scaling = {"minSize": 1, "maxSize": 1, "desiredSize": 1}
        tokens = {
            "ec2/CreateNatGateway": ("ec2", "create_nat_gateway", {"SubnetId": "subnet", "ConnectivityType": "private"}, "nat_gateway"),
            "ec2/CreateRouteTable": ("ec2", "create_route_table", {"VpcId": "vpc"}, "route_table"),
            "ec2/CreateNetworkAcl": ("ec2", "create_network_acl", {"VpcId": "vpc"}, "network_acl"),
            "ec2/CreateLaunchTemplate": (
                "ec2", "create_launch_template",
                {"LaunchTemplateName": "double", "LaunchTemplateData": {"InstanceType": "m6i.large"}, "ClientToken": "token-1"}, "launch_template",
            ),
            "eks/CreateCluster": (
                "eks", "create_cluster", {"name": "double", "roleArn": "cluster_role", "resourcesVpcConfig": {"subnetIds": "subnets"}, "accessConfig": {"authenticationMode": "API"}}, "cluster",
            ),
            "eks/CreateNodegroup": (
                "eks", "create_nodegroup",
                {**named, "nodegroupName": "pool", "nodeRole": "node_role", "subnets": "subnets", "scalingConfig": scaling}, "nodegroup",
            ),
            "eks/CreateAccessEntry": ("eks", "create_access_entry", {**named, "principalArn": "pod_role"}, "access_entry"),
            "eks/CreatePodIdentityAssociation": (
                "eks", "create_pod_identity_association",
                {**named, "namespace": "a", "serviceAccount": "b", "roleArn": "pod_role"}, "pod_identity_association",
            ),
        }  # fmt: skip

        def filled(value):
            if isinstance(value, dict):
                return {key: filled(inner) for key, inner in value.items()}
            known = {"subnet": made.subnets[0]} if hasattr(made, "subnets") else {}
            return known.get(value, getattr(made, value, value)) if isinstance(value, str) else value

        for path, (service, call, inputs, kind) in tokens.items():

            @play.step(f"{path} with a client token: one")
            def _(path=path, service=service, call=call, inputs=inputs, kind=kind):
                kinds = {kind, kind.replace("nodegroup", "node_group"), kind.replace("_", "")}
                before = sum(1 for name, _ in sandbox.left_over() if name.rsplit(".", 1)[-1].removeprefix("eks_") in kinds)
                sandbox.faults(f"POST /{path} aws drop-after nth=1")
                getattr(client(service), call)(**filled(inputs))
                same("struck", sandbox.struck(), 1)
                sandbox.faults()
                after = sum(1 for name, _ in sandbox.left_over() if name.rsplit(".", 1)[-1].removeprefix("eks_") in kinds)
                same("made", after - before, 1)
                if path == "eks/CreateCluster":
                    sandbox.client("eks").get_waiter("cluster_active").wait(name="double", **wait)

        vpc = filled("vpc")
        rule = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 1, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}
        names = [
            ("ec2/CreateSubnet", "ec2", "create_subnet", {"VpcId": vpc, "CidrBlock": "10.9.77.0/24"}, "InvalidSubnet.Conflict"),
            ("ec2/CreateSecurityGroup", "ec2", "create_security_group", {"VpcId": vpc, "GroupName": "double", "Description": "d"}, "InvalidGroup.Duplicate"),
            ("ec2/AuthorizeSecurityGroupIngress", "ec2", "authorize_security_group_ingress", {"GroupId": filled("group"), "IpPermissions": [rule]}, "InvalidPermission.Duplicate"),
            ("ec2/CreateRoute", "ec2", "create_route", {"RouteTableId": filled("table"), "DestinationCidrBlock": "192.0.2.0/24", "GatewayId": filled("gateway")}, "RouteAlreadyExists"),
            ("iam/CreateRole", "iam", "create_role", {"RoleName": "double", "AssumeRolePolicyDocument": furnish.trust("ec2.amazonaws.com")}, "EntityAlreadyExists"),
            ("iam/CreatePolicy", "iam", "create_policy", {"PolicyName": "double", "PolicyDocument": furnish.allow("s3:*")}, "EntityAlreadyExists"),
            ("logs/CreateLogGroup", "logs", "create_log_group", {"logGroupName": "/double"}, "ResourceAlreadyExistsException"),
            ("kms/CreateAlias", "kms", "create_alias", {"AliasName": "alias/double", "TargetKeyId": filled("key")}, "AlreadyExistsException"),
            ("s3/CreateBucket", "s3", "create_bucket", {"Bucket": "berth-compat-double", "CreateBucketConfiguration": {"LocationConstraint": "eu-central-1"}}, "BucketAlreadyOwnedByYou"),
        ]  # fmt: skip
        for path, service, call, inputs, code in names:

            @play.step(f"{path} is protected by its name: {code}")
            def _(path=path, service=service, call=call, inputs=inputs, code=code):
                sandbox.faults(f"/{path} aws drop-after nth=1")
                before = len(sandbox.left_over())
                refused(code, getattr(client(service), call), **inputs)
                made_now = len(sandbox.left_over()) - before
                want(made_now <= 1, f"{made_now} were made")
                same("struck", sandbox.struck(), 1)
                sandbox.faults()

        @play.step("a token with another input is refused")
        def _():
            ec2 = sandbox.client("ec2")
            ec2.create_route_table(VpcId=vpc, ClientToken="one")
            first = ec2.create_route_table(VpcId=vpc, ClientToken="one")["RouteTable"]["RouteTableId"]
            again = ec2.create_route_table(VpcId=vpc, ClientToken="one")["RouteTable"]["RouteTableId"]
            same("the second answer", again, first)
            other = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
            refused("IdempotentParameterMismatch", ec2.create_route_table, VpcId=other, ClientToken="one")


def lists_behind(play):
    play.suite("lag: what was just made is not in lists yet")
    with Sandbox() as sandbox:

        @play.step("DescribeVpcs is behind, and catches up")
        def _():
            ec2 = sandbox.client("ec2")
            sandbox.faults("GET /ec2/DescribeVpcs aws lag=2s")
            vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
            listed = [one["VpcId"] for one in ec2.describe_vpcs()["Vpcs"]]
            want(vpc not in listed, "it is in the list at once")
            until("the VPC in the list", lambda: vpc in [one["VpcId"] for one in ec2.describe_vpcs()["Vpcs"]], within=10)


def run_terraform(play):
    doubles_of_terraform(play)
    terraform(play)
