"""The aws command line, unmodified: each step runs it and looks at what it prints."""

import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import tempfile

import cli_eks
import furnish
from play import same, until, want
from sandbox import Sandbox


class Cli:
    """Runs `aws` and `kubectl` in a folder of their own."""

    def __init__(self, sandbox, folder, **credentials):
        self.folder = pathlib.Path(folder)
        self.environment = sandbox.environment(HOME=str(folder), KUBECONFIG=str(self.folder / "kubeconfig"), **credentials)

    def as_role(self, credentials):
        """The same folder, with temporary credentials as `sts assume-role` gives them."""
        other = object.__new__(Cli)
        other.folder = self.folder
        other.environment = {
            **self.environment,
            "AWS_ACCESS_KEY_ID": credentials["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": credentials["SecretAccessKey"],
            "AWS_SESSION_TOKEN": credentials["SessionToken"],
        }
        return other

    def run(self, *command, timeout=180):
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )

    def text(self, line, timeout=180):
        result = self.run(*self.split(line), timeout=timeout)
        want(result.returncode == 0, f"`{line}` ended with {result.returncode}: {result.stderr.strip()[-800:]}")
        return result.stdout.strip()

    def aws(self, line, timeout=180):
        """What it prints, read as JSON where it is."""
        text = self.text(f"aws {line}", timeout)
        if "--output text" in line:
            return text
        try:
            return json.loads(text) if text else None
        except ValueError:
            return text

    def split(self, line):
        """The words of a command. Version 1 of the aws command line reads no variable for the endpoint of SQS, only the flag."""
        words = shlex.split(line)
        if words[:2] == ["aws", "sqs"]:
            words += ["--endpoint-url", self.environment["AWS_ENDPOINT_URL"]]
        return words

    def fails(self, line, *expected):
        result = self.run(*self.split(line))
        said = result.stderr + result.stdout
        want(result.returncode != 0, f"`{line}` succeeded: {said[-300:]}")
        for text in expected:
            want(text in said, f"`{line}` does not say {text!r}: {said.strip()[-500:]}")
        return said


def run(play):
    with Sandbox() as sandbox, tempfile.TemporaryDirectory(prefix="berth-cli-") as folder:
        cli = Cli(sandbox, folder)
        sts(play, cli)
        ec2(play, cli)
        iam(play, cli)
        s3(play, cli)
        others(play, cli)
        cli_eks.run(play, cli)


def sts(play, cli):
    play.suite("aws sts")

    @play.step("get-caller-identity")
    def _():
        me = cli.aws("sts get-caller-identity")
        want(me["Arn"].startswith(f"arn:aws:iam::{me['Account']}:") and len(me["Account"]) == 12, str(me))

    @play.step("assume-role, and get-caller-identity with what it gives")
    def _():
        account = cli.aws("sts get-caller-identity --query Account --output text")
        principal = {"AWS": f"arn:aws:iam::{account}:root"}
        trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}]}
        arn = cli.aws(f"iam create-role --role-name cli-sts --assume-role-policy-document {shlex.quote(json.dumps(trust))} --query Role.Arn")
        given = cli.aws(f"sts assume-role --role-arn {arn} --role-session-name s1")
        me = cli.as_role(given["Credentials"]).aws("sts get-caller-identity")
        same("the caller", me["Arn"], f"arn:aws:sts::{account}:assumed-role/cli-sts/s1")
        cli.aws("iam delete-role --role-name cli-sts")

    @play.step("get-session-token")
    def _():
        want(cli.aws("sts get-session-token")["Credentials"]["SessionToken"], "no token")


def ec2(play, cli):
    w = {}
    play.suite("aws ec2", chained=True)

    @play.step("create-vpc, wait vpc-available, describe-vpcs with filters and --query")
    def _():
        tags = "ResourceType=vpc,Tags=[{Key=Name,Value=cli}]"
        w["vpc"] = cli.aws(f"ec2 create-vpc --cidr-block 10.8.0.0/16 --tag-specifications '{tags}' --query Vpc.VpcId --output text")
        cli.aws(f"ec2 wait vpc-available --vpc-ids {w['vpc']}")
        for condition in ("Name=tag:Name,Values=cli", "Name=cidr,Values=10.8.*", f"Name=vpc-id,Values={w['vpc']}", "Name=tag-key,Values=Name"):
            found = cli.aws(f"ec2 describe-vpcs --filters {condition} --query 'Vpcs[].VpcId'")
            want(w["vpc"] in found, f"{condition} finds {found}")
        none = cli.aws("ec2 describe-vpcs --filters Name=tag:Name,Values=other --query 'Vpcs[].VpcId'")
        same("what another name finds", none, [])
        both = cli.aws("ec2 describe-vpcs --filters Name=tag:Name,Values=cli Name=cidr,Values=10.9.0.0/16 --query 'Vpcs[]'")
        same("what two filters find together", both, [])

    @play.step("describe-availability-zones, describe-regions, describe-account-attributes")
    def _():
        zones = cli.aws("ec2 describe-availability-zones --filters Name=state,Values=available --query 'AvailabilityZones[].[ZoneName,ZoneId]'")
        want(len(zones) >= 3 and all(zone.startswith("eu-central-1") for zone, _ in zones), str(zones))
        regions = cli.aws("ec2 describe-regions --query 'Regions[].RegionName'")
        want("us-east-1" in regions and "eu-central-1" in regions, str(regions))

    @play.step("create-subnet many times, describe-subnets in pages: --page-size, --max-items, --starting-token")
    def _():
        w["subnets"] = [
            cli.aws(f"ec2 create-subnet --vpc-id {w['vpc']} --cidr-block 10.8.{n}.0/24 --availability-zone eu-central-1{'ab'[n % 2]} --query Subnet.SubnetId --output text")
            for n in range(8)
        ]  # fmt: skip
        only = f"--filters Name=vpc-id,Values={w['vpc']}"
        whole = cli.aws(f"ec2 describe-subnets {only} --page-size 5 --query 'Subnets[].SubnetId'")
        same("what pages of 5 show", sorted(whole), sorted(w["subnets"]))
        first = cli.aws(f"ec2 describe-subnets {only} --page-size 5 --max-items 3")
        same("how many --max-items 3 shows", len(first["Subnets"]), 3)
        rest = cli.aws(f"ec2 describe-subnets {only} --page-size 5 --starting-token {first['NextToken']}")
        shown = [subnet["SubnetId"] for subnet in first["Subnets"] + rest["Subnets"]]
        same("what both calls show", sorted(shown), sorted(w["subnets"]))
        zone = cli.aws(f"ec2 describe-subnets {only} Name=availability-zone,Values=eu-central-1a --query 'length(Subnets)'")
        same("how many are in one zone", zone, 4)
        taken = cli.fails(f"aws ec2 create-subnet --vpc-id {w['vpc']} --cidr-block 10.8.0.0/24", "InvalidSubnet.Conflict")
        want("10.8.0.0/24" in taken, taken)

    @play.step("internet gateway, addresses, NAT gateway, wait nat-gateway-available")
    def _():
        w["gateway"] = cli.aws("ec2 create-internet-gateway --query InternetGateway.InternetGatewayId --output text")
        cli.aws(f"ec2 attach-internet-gateway --internet-gateway-id {w['gateway']} --vpc-id {w['vpc']}")
        attached = cli.aws(f"ec2 describe-internet-gateways --filters Name=attachment.vpc-id,Values={w['vpc']} --query 'InternetGateways[].Attachments[].State'")
        same("the attachment", attached, ["available"])
        w["address"] = cli.aws("ec2 allocate-address --domain vpc --query AllocationId --output text")
        w["nat"] = cli.aws(f"ec2 create-nat-gateway --subnet-id {w['subnets'][0]} --allocation-id {w['address']} --query NatGateway.NatGatewayId --output text")
        cli.aws(f"ec2 wait nat-gateway-available --nat-gateway-ids {w['nat']}")
        shown = cli.aws(f"ec2 describe-nat-gateways --filter Name=state,Values=available Name=vpc-id,Values={w['vpc']} --query 'NatGateways[].NatGatewayAddresses[].AllocationId'")
        same("its address", shown, [w["address"]])
        used = cli.aws(f"ec2 describe-addresses --allocation-ids {w['address']} --query 'Addresses[0].[AssociationId,PrivateIpAddress]'")
        want(all(used), f"the address does not show its association: {used}")
        cli.fails(f"aws ec2 release-address --allocation-id {w['address']}", "InvalidIPAddress.InUse")

    @play.step("route tables and routes")
    def _():
        w["table"] = cli.aws(f"ec2 create-route-table --vpc-id {w['vpc']} --query RouteTable.RouteTableId --output text")
        cli.aws(f"ec2 create-route --route-table-id {w['table']} --destination-cidr-block 0.0.0.0/0 --gateway-id {w['gateway']}")
        w["associated"] = cli.aws(f"ec2 associate-route-table --route-table-id {w['table']} --subnet-id {w['subnets'][0]} --query AssociationId --output text")
        routes = cli.aws(f"ec2 describe-route-tables --filters Name=association.subnet-id,Values={w['subnets'][0]} --query 'RouteTables[0].Routes[].[DestinationCidrBlock,GatewayId,State]'")
        same("the routes", sorted(routes), sorted([["10.8.0.0/16", "local", "active"], ["0.0.0.0/0", w["gateway"], "active"]]))
        main = cli.aws(f"ec2 describe-route-tables --filters Name=association.main,Values=true Name=vpc-id,Values={w['vpc']} --query 'length(RouteTables)'")
        same("the number of main tables", main, 1)
        cli.fails(f"aws ec2 delete-route-table --route-table-id {w['table']}", "DependencyViolation")

    @play.step("security groups and their rules")
    def _():
        w["group"] = cli.aws(f"ec2 create-security-group --group-name cli --description cli --vpc-id {w['vpc']} --query GroupId --output text")
        cli.aws(f"ec2 authorize-security-group-ingress --group-id {w['group']} --protocol tcp --port 443 --cidr 10.0.0.0/8")
        cli.fails(f"aws ec2 authorize-security-group-ingress --group-id {w['group']} --protocol tcp --port 443 --cidr 10.0.0.0/8", "InvalidPermission.Duplicate")
        rules = cli.aws(f"ec2 describe-security-group-rules --filters Name=group-id,Values={w['group']} --query 'SecurityGroupRules[].[IsEgress,IpProtocol,FromPort,CidrIpv4]'")
        same("the rules", sorted(rules), sorted([[True, "-1", -1, "0.0.0.0/0"], [False, "tcp", 443, "10.0.0.0/8"]]))
        found = cli.aws("ec2 describe-security-groups --filters Name=ip-permission.from-port,Values=443 Name=group-name,Values=cli --query 'SecurityGroups[].GroupId'")
        same("what filters of rules find", found, [w["group"]])
        cli.aws(f"ec2 revoke-security-group-ingress --group-id {w['group']} --protocol tcp --port 443 --cidr 10.0.0.0/8")
        left = cli.aws(f"ec2 describe-security-groups --group-ids {w['group']} --query 'SecurityGroups[0].IpPermissions'")
        same("what is left", left, [])

    @play.step("network ACLs, endpoints, prefix lists, network interfaces")
    def _():
        acl = cli.aws(f"ec2 describe-network-acls --filters Name=default,Values=true Name=vpc-id,Values={w['vpc']} --query 'NetworkAcls[0].Entries[].[RuleNumber,RuleAction,Egress]'")
        same("the default ACL", sorted(acl), sorted([[100, "allow", True], [32767, "deny", True], [100, "allow", False], [32767, "deny", False]]))
        w["endpoint"] = cli.aws(f"ec2 create-vpc-endpoint --vpc-id {w['vpc']} --service-name com.amazonaws.eu-central-1.s3 --route-table-ids {w['table']} --query VpcEndpoint.VpcEndpointId --output text")
        state = cli.aws(f"ec2 describe-vpc-endpoints --vpc-endpoint-ids {w['endpoint']} --query 'VpcEndpoints[0].State' --output text")
        same("its state", state, "available")
        prefix = cli.aws("ec2 describe-prefix-lists --filters Name=prefix-list-name,Values=com.amazonaws.eu-central-1.s3 --query 'PrefixLists[0].PrefixListId' --output text")
        routes = cli.aws(f"ec2 describe-route-tables --route-table-ids {w['table']} --query 'RouteTables[0].Routes[].DestinationPrefixListId'")
        same("the endpoint's route", routes, [prefix])
        interfaces = cli.aws(f"ec2 describe-network-interfaces --filters Name=subnet-id,Values={w['subnets'][0]} --query 'NetworkInterfaces[].InterfaceType'")
        want("nat_gateway" in interfaces, f"the NAT gateway has no interface: {interfaces}")

    @play.step("launch templates and their versions")
    def _():
        data = '{"InstanceType":"m6i.large"}'
        w["template"] = cli.aws(f"ec2 create-launch-template --launch-template-name cli --launch-template-data '{data}' --query LaunchTemplate.LaunchTemplateId --output text")
        data = '{"InstanceType":"m6i.xlarge"}'
        cli.aws(f"ec2 create-launch-template-version --launch-template-name cli --launch-template-data '{data}' --source-version 1")
        shown = cli.aws("ec2 describe-launch-template-versions --launch-template-name cli --versions '$Latest' --query 'LaunchTemplateVersions[0].[VersionNumber,LaunchTemplateData.InstanceType,DefaultVersion]'")
        same("the latest version", shown, [2, "m6i.xlarge", False])

    @play.step("create-tags, describe-tags, delete-tags")
    def _():
        cli.aws(f"ec2 create-tags --resources {w['vpc']} {w['table']} --tags Key=Team,Value=shop")
        shown = cli.aws("ec2 describe-tags --filters Name=key,Values=Team Name=value,Values=shop --query 'Tags[].[ResourceId,ResourceType]'")
        same("the tags", sorted(shown), sorted([[w["vpc"], "vpc"], [w["table"], "route-table"]]))
        cli.aws(f"ec2 delete-tags --resources {w['table']} --tags Key=Team")
        same("what is left", cli.aws("ec2 describe-tags --filters Name=key,Values=Team --query 'length(Tags)'"), 1)

    @play.step("what is not there, and what is in use, is refused in EC2's words")
    def _():
        cli.fails("aws ec2 describe-vpcs --vpc-ids vpc-0123456789abcdef0", "InvalidVpcID.NotFound", "The vpc ID 'vpc-0123456789abcdef0' does not exist")
        cli.fails("aws ec2 describe-subnets --subnet-ids subnet-0123456789abcdef0", "InvalidSubnetID.NotFound")
        cli.fails("aws ec2 describe-security-groups --group-ids sg-0123456789abcdef0", "InvalidGroup.NotFound")
        cli.fails(f"aws ec2 delete-vpc --vpc-id {w['vpc']}", "DependencyViolation", "has dependencies and cannot be deleted")
        cli.fails(f"aws ec2 delete-subnet --subnet-id {w['subnets'][0]}", "DependencyViolation")
        cli.fails(f"aws ec2 detach-internet-gateway --internet-gateway-id {w['gateway']} --vpc-id {w['vpc']}", "DependencyViolation")

    @play.step("everything is deleted again")
    def _():
        cli.aws(f"ec2 delete-nat-gateway --nat-gateway-id {w['nat']}")
        cli.aws(f"ec2 wait nat-gateway-deleted --nat-gateway-ids {w['nat']}")
        cli.aws(f"ec2 release-address --allocation-id {w['address']}")
        cli.aws(f"ec2 delete-vpc-endpoints --vpc-endpoint-ids {w['endpoint']}")
        cli.aws(f"ec2 disassociate-route-table --association-id {w['associated']}")
        cli.aws(f"ec2 delete-route-table --route-table-id {w['table']}")
        cli.aws(f"ec2 detach-internet-gateway --internet-gateway-id {w['gateway']} --vpc-id {w['vpc']}")
        cli.aws(f"ec2 delete-internet-gateway --internet-gateway-id {w['gateway']}")
        cli.aws(f"ec2 delete-security-group --group-id {w['group']}")
        cli.aws(f"ec2 delete-launch-template --launch-template-id {w['template']}")
        for subnet in w["subnets"]:
            cli.aws(f"ec2 delete-subnet --subnet-id {subnet}")
        cli.aws(f"ec2 delete-vpc --vpc-id {w['vpc']}")
        cli.fails(f"aws ec2 describe-vpcs --vpc-ids {w['vpc']}", "InvalidVpcID.NotFound")


def iam(play, cli):
    play.suite("aws iam", chained=True)
    trust = shlex.quote(furnish.trust("ec2.amazonaws.com"))

    @play.step("create-role, wait role-exists, get-role, list-roles in pages")
    def _():
        for number in range(4):
            cli.aws(f"iam create-role --path /cli/ --role-name cli-{number} --assume-role-policy-document {trust} --tags Key=n,Value={number}")
        cli.aws("iam wait role-exists --role-name cli-0")
        role = cli.aws("iam get-role --role-name cli-0")["Role"]
        want(role["RoleId"].startswith("AROA") and role["Arn"].endswith(":role/cli/cli-0"), str(role))
        same("its trust", role["AssumeRolePolicyDocument"], json.loads(furnish.trust("ec2.amazonaws.com")))
        same("its tags", role["Tags"], [{"Key": "n", "Value": "0"}])
        names = cli.aws("iam list-roles --path-prefix /cli/ --page-size 2 --query 'Roles[].RoleName'")
        same("all pages", names, [f"cli-{number}" for number in range(4)])
        first = cli.aws("iam list-roles --path-prefix /cli/ --max-items 3")
        rest = cli.aws(f"iam list-roles --path-prefix /cli/ --starting-token {first['NextToken']} --query 'Roles[].RoleName'")
        same("the rest", rest, ["cli-3"])
        cli.fails(f"aws iam create-role --role-name cli-0 --assume-role-policy-document {trust}", "EntityAlreadyExists", "Role with name cli-0 already exists.")

    @play.step("policies: create, attach, versions, inline")
    def _():
        policy = cli.aws(f"iam create-policy --policy-name cli --policy-document {shlex.quote(furnish.allow('s3:GetObject'))} --query Policy.Arn --output text")
        cli.aws(f"iam attach-role-policy --role-name cli-0 --policy-arn {policy}")
        cli.aws("iam attach-role-policy --role-name cli-0 --policy-arn arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy")
        attached = cli.aws("iam list-attached-role-policies --role-name cli-0 --query 'AttachedPolicies[].PolicyName'")
        same("what is attached", sorted(attached), ["AmazonEKSWorkerNodePolicy", "cli"])
        cli.aws(f"iam create-policy-version --policy-arn {policy} --set-as-default --policy-document {shlex.quote(furnish.allow('s3:*'))}")
        shown = cli.aws(f"iam get-policy-version --policy-arn {policy} --version-id v2 --query PolicyVersion.Document")
        same("its second version", shown["Statement"][0]["Action"], ["s3:*"])
        cli.aws(f"iam put-role-policy --role-name cli-0 --policy-name in --policy-document {shlex.quote(furnish.allow('ec2:*'))}")
        same("the inline ones", cli.aws("iam list-role-policies --role-name cli-0")["PolicyNames"], ["in"])
        cli.fails("aws iam delete-role --role-name cli-0", "DeleteConflict")
        cli.fails(f"aws iam delete-policy --policy-arn {policy}", "DeleteConflict")
        cli.aws("iam delete-role-policy --role-name cli-0 --policy-name in")
        cli.aws(f"iam detach-role-policy --role-name cli-0 --policy-arn {policy}")
        cli.aws("iam detach-role-policy --role-name cli-0 --policy-arn arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy")
        cli.aws(f"iam delete-policy-version --policy-arn {policy} --version-id v1")
        cli.aws(f"iam delete-policy --policy-arn {policy}")
        bad = shlex.quote('{"Version": "2012-10-17", "Statement": [{"Effect": "Maybe"}]}')
        cli.fails(f"aws iam create-policy --policy-name bad --policy-document {bad}", "MalformedPolicyDocument")

    @play.step("instance profiles and OIDC providers")
    def _():
        cli.aws("iam create-instance-profile --instance-profile-name cli")
        cli.aws("iam wait instance-profile-exists --instance-profile-name cli")
        cli.aws("iam add-role-to-instance-profile --instance-profile-name cli --role-name cli-1")
        shown = cli.aws("iam get-instance-profile --instance-profile-name cli --query 'InstanceProfile.Roles[].RoleName'")
        same("its role", shown, ["cli-1"])
        arn = cli.aws("iam create-open-id-connect-provider --url https://cli.example.com/id --client-id-list sts.amazonaws.com --thumbprint-list 9e99a48a9960b14926bb7f3b02e22da2b0ab7280 --query OpenIDConnectProviderArn --output text")
        want(arn.endswith(":oidc-provider/cli.example.com/id"), arn)
        same("its URL", cli.aws(f"iam get-open-id-connect-provider --open-id-connect-provider-arn {arn}")["Url"], "cli.example.com/id")
        cli.aws(f"iam delete-open-id-connect-provider --open-id-connect-provider-arn {arn}")
        cli.aws("iam remove-role-from-instance-profile --instance-profile-name cli --role-name cli-1")
        cli.aws("iam delete-instance-profile --instance-profile-name cli")
        for number in range(4):
            cli.aws(f"iam delete-role --role-name cli-{number}")
        cli.fails("aws iam get-role --role-name cli-0", "NoSuchEntity", "The role with name cli-0 cannot be found.")


def s3(play, cli):
    play.suite("aws s3, aws s3api", chained=True)
    bucket = "berth-compat-cli"
    large = os.urandom(1 << 20) * 20

    @play.step("mb, ls, wait bucket-exists")
    def _():
        same("mb", cli.text(f"aws s3 mb s3://{bucket}"), f"make_bucket: {bucket}")
        want(bucket in cli.text("aws s3 ls"), "it is not listed")
        cli.aws(f"s3api wait bucket-exists --bucket {bucket}")
        cli.fails(f"aws s3 mb s3://{bucket}", "BucketAlreadyOwnedByYou")
        same("its region", cli.aws(f"s3api get-bucket-location --bucket {bucket}")["LocationConstraint"], "eu-central-1")

    @play.step("cp there and back, a large file in parts")
    def _():
        (cli.folder / "small.txt").write_text("small\n")
        (cli.folder / "large.bin").write_bytes(large)
        cli.text(f"aws s3 cp small.txt s3://{bucket}/a/small.txt --content-type text/plain")
        cli.text(f"aws s3 cp large.bin s3://{bucket}/a/large.bin")
        cli.text(f"aws s3 cp s3://{bucket}/a/large.bin back.bin")
        digest = hashlib.sha256((cli.folder / "back.bin").read_bytes()).hexdigest()
        same("what came back", digest, hashlib.sha256(large).hexdigest())
        head = cli.aws(f"s3api head-object --bucket {bucket} --key a/large.bin")
        want(head["ContentLength"] == len(large) and head["ETag"].strip('"').partition("-")[2].isdigit(), str(head))
        same("from the other side", cli.text(f"aws s3 cp s3://{bucket}/a/small.txt -"), "small")
        cli.text(f"aws s3 cp s3://{bucket}/a/small.txt s3://{bucket}/b/copy.txt")
        same("the copy's type", cli.aws(f"s3api head-object --bucket {bucket} --key b/copy.txt")["ContentType"], "text/plain")

    @play.step("ls in folders, list-objects-v2 in pages")
    def _():
        listed = cli.text(f"aws s3 ls s3://{bucket}/")
        want("PRE a/" in listed and "PRE b/" in listed, listed)
        want("small.txt" in cli.text(f"aws s3 ls s3://{bucket}/a/"), "not in its folder")
        whole = cli.text(f"aws s3 ls s3://{bucket} --recursive --summarize --page-size 1")
        want("Total Objects: 3" in whole, whole)
        first = cli.aws(f"s3api list-objects-v2 --bucket {bucket} --max-items 2 --page-size 1")
        rest = cli.aws(f"s3api list-objects-v2 --bucket {bucket} --starting-token {first['NextToken']} --query 'Contents[].Key'")
        same("the last page", rest, ["b/copy.txt"])

    @play.step("sync: only what differs, and --delete")
    def _():
        folder = cli.folder / "tree"
        (folder / "sub").mkdir(parents=True)
        for name in ("one.txt", "two.txt", "sub/three.txt", "sub/with space & ümlaut.txt"):
            (folder / name).write_text(name)
        said = cli.text(f"aws s3 sync tree s3://{bucket}/tree")
        same("uploads", said.count("upload:"), 4)
        same("a second sync", cli.text(f"aws s3 sync tree s3://{bucket}/tree"), "")
        (folder / "two.txt").unlink()
        said = cli.text(f"aws s3 sync tree s3://{bucket}/tree --delete")
        want("delete:" in said and said.count("delete:") == 1, said)
        cli.text(f"aws s3 sync s3://{bucket}/tree again")
        names = sorted(str(path.relative_to(cli.folder / "again")) for path in (cli.folder / "again").rglob("*.txt"))
        same("what came back", names, sorted(["one.txt", "sub/three.txt", "sub/with space & ümlaut.txt"]))

    @play.step("s3api: settings, versions, conditions, ranges")
    def _():
        cli.aws(f"s3api put-bucket-versioning --bucket {bucket} --versioning-configuration Status=Enabled")
        same("versioning", cli.aws(f"s3api get-bucket-versioning --bucket {bucket}")["Status"], "Enabled")
        first = cli.aws(f"s3api put-object --bucket {bucket} --key v --body small.txt")
        second = cli.aws(f"s3api put-object --bucket {bucket} --key v --body small.txt")
        want(first["VersionId"] != second["VersionId"], "the versions are the same")
        cli.aws(f"s3api delete-object --bucket {bucket} --key v")
        marks = cli.aws(f"s3api list-object-versions --bucket {bucket} --prefix v --query '[length(Versions), length(DeleteMarkers)]'")
        same("versions and markers", marks, [2, 1])
        cli.fails(f"aws s3api get-object --bucket {bucket} --key v out", "NoSuchKey")
        cli.aws(f"s3api get-object --bucket {bucket} --key v --version-id {first['VersionId']} out")
        cli.aws(f"s3api get-object --bucket {bucket} --key a/small.txt --range bytes=1-3 out")
        same("the range", (cli.folder / "out").read_text(), "mal")
        cli.fails(f"aws s3api put-object --bucket {bucket} --key a/small.txt --body small.txt --if-none-match '*'", "PreconditionFailed")
        cli.fails(f"aws s3api get-bucket-policy --bucket {bucket}", "NoSuchBucketPolicy")
        cli.fails("aws s3api head-bucket --bucket berth-compat-none", "404")

    @play.step("presign, and a GET of what it prints")
    def _():
        url = cli.text(f"aws s3 presign s3://{bucket}/a/small.txt --expires-in 60")
        same("the body", cli.text(f"curl --silent --fail {shlex.quote(url)}"), "small")

    @play.step("rm, rb --force")
    def _():
        cli.text(f"aws s3 rm s3://{bucket}/tree --recursive")
        cli.fails(f"aws s3 rb s3://{bucket}", "BucketNotEmpty")
        versions = cli.aws(f"s3api list-object-versions --bucket {bucket} --query '[Versions, DeleteMarkers][][].{{Key: Key, VersionId: VersionId}}'")
        (cli.folder / "delete.json").write_text(json.dumps({"Objects": versions, "Quiet": True}))
        cli.aws(f"s3api delete-objects --bucket {bucket} --delete file://delete.json")
        cli.text(f"aws s3 rb s3://{bucket} --force")
        cli.aws(f"s3api wait bucket-not-exists --bucket {bucket}")


def others(play, cli):
    play.suite("aws kms, sqs, logs, events, resourcegroupstaggingapi")

    @play.step("kms: key, alias, rotation, deletion and its cancellation")
    def _():
        key = cli.aws("kms create-key --description cli --query KeyMetadata.KeyId --output text")
        cli.aws(f"kms create-alias --alias-name alias/cli --target-key-id {key}")
        same("by its alias", cli.aws("kms describe-key --key-id alias/cli --query KeyMetadata.KeyId --output text"), key)
        cli.aws(f"kms enable-key-rotation --key-id {key}")
        same("rotation", cli.aws(f"kms get-key-rotation-status --key-id {key}")["KeyRotationEnabled"], True)
        cli.aws("kms delete-alias --alias-name alias/cli")
        gone = cli.aws(f"kms schedule-key-deletion --key-id {key} --pending-window-in-days 7")
        same("its state", gone["KeyState"], "PendingDeletion")
        cli.fails(f"aws kms enable-key-rotation --key-id {key}", "KMSInvalidStateException")
        cli.aws(f"kms cancel-key-deletion --key-id {key}")
        same("its state", cli.aws(f"kms describe-key --key-id {key} --query KeyMetadata.KeyState --output text"), "Disabled")
        cli.fails("aws kms describe-key --key-id 00000000-0000-4000-8000-000000000000", "NotFoundException")

    @play.step("sqs: queue, attributes, deletion")
    def _():
        url = cli.aws("sqs create-queue --queue-name cli --query QueueUrl --output text")
        same("its URL", cli.aws("sqs get-queue-url --queue-name cli")["QueueUrl"], url)
        cli.aws(f"sqs set-queue-attributes --queue-url {url} --attributes VisibilityTimeout=7")
        same("the attribute", cli.aws(f"sqs get-queue-attributes --queue-url {url} --attribute-names VisibilityTimeout")["Attributes"], {"VisibilityTimeout": "7"})
        cli.aws(f"sqs delete-queue --queue-url {url}")
        until("its end", lambda: cli.run(*cli.split("aws sqs get-queue-url --queue-name cli")).returncode != 0, within=30)
        cli.fails("aws sqs get-queue-url --queue-name cli", "NonExistentQueue")

    @play.step("logs: groups, retention, tags")
    def _():
        cli.aws("logs create-log-group --log-group-name /cli/one --tags team=shop")
        cli.aws("logs put-retention-policy --log-group-name /cli/one --retention-in-days 14")
        group = cli.aws("logs describe-log-groups --log-group-name-prefix /cli/")["logGroups"][0]
        want(group["retentionInDays"] == 14 and group["arn"].endswith(":*") and group["creationTime"] > 1e12, str(group))
        tags = cli.aws(f"logs list-tags-for-resource --resource-arn {group['arn'].removesuffix(':*')}")["tags"]
        same("its tags", tags, {"team": "shop"})
        cli.fails("aws logs create-log-group --log-group-name /cli/one", "ResourceAlreadyExistsException")
        cli.aws("logs delete-log-group --log-group-name /cli/one")

    @play.step("events: rule and target")
    def _():
        url = cli.aws("sqs create-queue --queue-name cli-events --query QueueUrl --output text")
        arn = cli.aws(f"sqs get-queue-attributes --queue-url {url} --attribute-names QueueArn")["Attributes"]["QueueArn"]
        pattern = shlex.quote('{"source": ["aws.ec2"]}')
        cli.aws(f"events put-rule --name cli --event-pattern {pattern}")
        cli.aws(f"events put-targets --rule cli --targets Id=q,Arn={arn}")
        same("the target", cli.aws("events list-targets-by-rule --rule cli --query 'Targets[].Arn'"), [arn])
        same("the rule of the target", cli.aws(f"events list-rule-names-by-target --target-arn {arn}")["RuleNames"], ["cli"])
        cli.fails("aws events delete-rule --name cli", "ValidationException", "Rule can't be deleted since it has targets.")
        cli.aws("events remove-targets --rule cli --ids q")
        cli.aws("events delete-rule --name cli")
        cli.fails("aws events describe-rule --name cli", "ResourceNotFoundException")
        cli.aws(f"sqs delete-queue --queue-url {url}")

    @play.step("resourcegroupstaggingapi get-resources, across services")
    def _():
        tags = "ResourceType=vpc,Tags=[{Key=Across,Value=cli}]"
        vpc = cli.aws(f"ec2 create-vpc --cidr-block 10.7.0.0/16 --tag-specifications '{tags}' --query Vpc.VpcId --output text")
        cli.aws("logs create-log-group --log-group-name /cli/across --tags Across=cli")
        key = cli.aws("kms create-key --tags TagKey=Across,TagValue=cli --query KeyMetadata.Arn --output text")
        found = cli.aws("resourcegroupstaggingapi get-resources --tag-filters Key=Across,Values=cli --query 'ResourceTagMappingList[].ResourceARN'")
        want(len(found) == 3 and key in found and any(arn.endswith(f":vpc/{vpc}") for arn in found), str(found))
        only = cli.aws("resourcegroupstaggingapi get-resources --tag-filters Key=Across --resource-type-filters ec2:vpc --query 'ResourceTagMappingList[].ResourceARN'")
        same("how many of one type", len(only), 1)
        want("Across" in cli.aws("resourcegroupstaggingapi get-tag-keys")["TagKeys"], "the key is not listed")
        cli.aws(f"ec2 delete-vpc --vpc-id {vpc}")
        cli.aws("logs delete-log-group --log-group-name /cli/across")

