"""Signatures and IAM policies: who is refused, and with which words."""

import json
import os
import tempfile
import time
import urllib.error
import urllib.request

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

import furnish
from play import refused, same, want
from protocol import send
from sandbox import Sandbox

PROFILES = """[admin]
aws_access_key_id = AKIAADMIN00000000001
aws_secret_access_key = admin-secret

[limited]
aws_access_key_id = AKIALIMITED000000001
aws_secret_access_key = limited-secret
"""
ADMIN = {"key": "AKIAADMIN00000000001", "secret": "admin-secret"}
LIMITED = {"key": "AKIALIMITED000000001", "secret": "limited-secret"}

#: A wrong secret, and a key that nobody has: the codes of each protocol.
WRONG_SECRET = {
    "ec2": ("describe_vpcs", "AuthFailure", 401),
    "sts": ("get_caller_identity", "SignatureDoesNotMatch", 403),
    "iam": ("list_roles", "SignatureDoesNotMatch", 403),
    "s3": ("list_buckets", "SignatureDoesNotMatch", 403),
    "kms": ("list_keys", "InvalidSignatureException", 400),
    "eks": ("list_clusters", "InvalidSignatureException", 403),
    "sqs": ("list_queues", "InvalidSignatureException", 400),
}
UNKNOWN_KEY = {
    "ec2": ("describe_vpcs", "AuthFailure", 401),
    "sts": ("get_caller_identity", "InvalidClientTokenId", 403),
    "iam": ("list_roles", "InvalidClientTokenId", 403),
    "s3": ("list_buckets", "InvalidAccessKeyId", 403),
    "kms": ("list_keys", "UnrecognizedClientException", 400),
    "eks": ("list_clusters", "UnrecognizedClientException", 403),
}


def get(url):
    """Status and body of a plain GET."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def signatures(play, file):
    play.suite("--aws-credentials: signatures decide")
    with Sandbox(credentials=file) as sandbox:

        @play.step("each profile is a user of its name")
        def _():
            arn = sandbox.client("sts", **LIMITED).get_caller_identity()["Arn"]
            want(arn.endswith(":user/limited"), arn)

        for title, table, keys in (
            ("a wrong secret", WRONG_SECRET, {"key": ADMIN["key"], "secret": "wrong"}),
            ("a key that nobody has", UNKNOWN_KEY, {"key": "AKIANOBODY0000000001", "secret": "any"}),
        ):
            for service, (call, code, status) in table.items():

                @play.step(f"{service}, {title}: {code}")
                def _(service=service, call=call, code=code, status=status, keys=keys):
                    answer = refused(code, getattr(sandbox.client(service, **keys), call))
                    same("the status", answer["ResponseMetadata"]["HTTPStatusCode"], status)

        @play.step("a body that was changed after it was signed")
        def _():
            body = "Action=DescribeVpcs&Version=2016-11-15"
            headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
            status, _, text = send(sandbox.url, "ec2", body=body, headers=headers, **ADMIN)
            want(status == 200, f"what was signed: {status} {text}")
            changed = tampered(sandbox.url, body, "Action=DescribeSubnets&Version=2016-11-15", headers)
            same("the status of what was not", changed, 401)

        @play.step("presigned URLs: good, of another method, changed, expired")
        def _():
            s3 = sandbox.client("s3", **ADMIN, signature_version="s3v4")
            s3.create_bucket(Bucket="berth-compat-signed", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
            one = {"Bucket": "berth-compat-signed", "Key": "a b/ü.txt"}
            s3.put_object(**one, Body=b"signed")
            url = s3.generate_presigned_url("get_object", Params=one, ExpiresIn=60)
            same("the answer", get(url), (200, "signed"))
            put = s3.generate_presigned_url("put_object", Params=one, ExpiresIn=60)
            status, text = get(put)
            want(status == 403 and "SignatureDoesNotMatch" in text, f"{status} {text}")
            status, text = get(url.replace("X-Amz-Expires=60", "X-Amz-Expires=6000"))
            want(status == 403 and "SignatureDoesNotMatch" in text, f"{status} {text}")
            short = s3.generate_presigned_url("get_object", Params=one, ExpiresIn=1)
            time.sleep(2.5)
            status, text = get(short)
            want(status == 403 and "AccessDenied" in text and "Request has expired" in text, f"{status} {text}")

        @play.step("presigned GetCallerIdentity, as tokens of clusters hold it")
        def _():
            sts = sandbox.client("sts", **ADMIN)
            status, text = get(sts.generate_presigned_url("get_caller_identity", ExpiresIn=60, HttpMethod="GET"))
            want(status == 200 and ":user/admin" in text, f"{status} {text}")


def tampered(url, signed, sent, headers):
    request = AWSRequest(method="POST", url=url + "/", data=signed, headers=headers)
    SigV4Auth(Credentials(ADMIN["key"], ADMIN["secret"]), "ec2", "eu-central-1").add_auth(request)
    plain = urllib.request.Request(url + "/", data=sent.encode(), headers=dict(request.headers))
    try:
        with urllib.request.urlopen(plain, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


#: For each service a call, the action that it needs, and what it is refused with.
LACKING = [
    ("ec2", "CreateVpc", {"CidrBlock": "10.0.0.0/16"}, "UnauthorizedOperation", "describe_vpcs", {}),
    ("iam", "CreateRole", {"RoleName": "r", "AssumeRolePolicyDocument": furnish.trust("ec2.amazonaws.com")}, "AccessDenied", "list_roles", {}),
    ("eks", "DescribeCluster", {"name": "none"}, "AccessDeniedException", "list_clusters", {}),
    ("s3", "CreateBucket", {"Bucket": "berth-compat-denied", "CreateBucketConfiguration": {"LocationConstraint": "eu-central-1"}}, "AccessDenied", "list_buckets", {}),
    ("kms", "CreateKey", {}, "AccessDeniedException", "list_keys", {}),
    ("sqs", "CreateQueue", {"QueueName": "denied"}, "AccessDeniedException", "list_queues", {}),
    ("logs", "CreateLogGroup", {"logGroupName": "/denied"}, "AccessDeniedException", "describe_log_groups", {}),
    ("events", "PutRule", {"Name": "denied", "ScheduleExpression": "rate(1 day)"}, "AccessDeniedException", "list_rules", {}),
]  # fmt: skip


def policies(play):
    play.suite("--aws-enforce: what the caller's policies do not allow is refused, and nothing else")
    with Sandbox(enforce=True) as sandbox:
        account = {}

        @play.step("a role for each service, with all actions but one")
        def _():
            iam, sts = sandbox.client("iam"), sandbox.client("sts")
            account["id"] = sts.get_caller_identity()["Account"]
            principal = {"AWS": f"arn:aws:iam::{account['id']}:root"}
            trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}]}
            for service, action, *_ in LACKING:
                role = iam.create_role(RoleName=f"no-{action}", AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
                document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "NotAction": f"{service}:{action}", "Resource": "*"}]}
                iam.put_role_policy(RoleName=f"no-{action}", PolicyName="all-but-one", PolicyDocument=json.dumps(document))
                given = sts.assume_role(RoleArn=role, RoleSessionName="eve")["Credentials"]
                account[action] = {"key": given["AccessKeyId"], "secret": given["SecretAccessKey"], "token": given["SessionToken"]}

        for service, action, inputs, code, allowed, more in LACKING:

            @play.step(f"{service}:{action} is refused with {code}; {allowed} is not")
            def _(service=service, action=action, inputs=inputs, code=code, allowed=allowed, more=more):
                client = sandbox.client(service, **account[action])
                getattr(client, allowed)(**more)
                name = next(key for key, value in client.meta.method_to_api_mapping.items() if value == action)
                answer = refused(code, getattr(client, name), **inputs)
                message = answer["Error"]["Message"]
                caller = f"arn:aws:sts::{account['id']}:assumed-role/no-{action}/eve"
                want(f"User: {caller} is not authorized to perform: {service}:{action}" in message, message)
                want(f"because no identity-based policy allows the {service}:{action} action" in message, message)
                # And it did not happen: whoever may do it can.
                others = {value["key"]: value for name, value in account.items() if name not in ("id", action)}
                if service in ("kms", "logs", "ec2"):
                    getattr(sandbox.client(service, **next(iter(others.values()))), name)(**inputs)

        @play.step("an explicit Deny goes before an Allow, and says so")
        def _():
            client = deny_user(sandbox, "ec2:DeleteVpc")
            vpc = client.create_vpc(CidrBlock="10.3.0.0/16")["Vpc"]["VpcId"]
            answer = refused("UnauthorizedOperation", client.delete_vpc, VpcId=vpc)
            want("with an explicit deny in an identity-based policy" in answer["Error"]["Message"], answer["Error"]["Message"])

        @play.step("a statement's Resource and Condition decide too")
        def _():
            by_resource(sandbox)

        @play.step("a user with an access key, and no policy at all")
        def _():
            iam = sandbox.client("iam")
            iam.create_user(UserName="newcomer")
            key = iam.create_access_key(UserName="newcomer")["AccessKey"]
            keys = {"key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}
            want(sandbox.client("sts", **keys).get_caller_identity()["Arn"].endswith(":user/newcomer"), "another caller")
            refused("UnauthorizedOperation", sandbox.client("ec2", **keys).describe_vpcs)
            iam.attach_user_policy(UserName="newcomer", PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess")
            sandbox.client("ec2", **keys).describe_vpcs()


def user(sandbox, name, statements):
    iam = sandbox.client("iam")
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": statements}))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return {"key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}


def deny_user(sandbox, action):
    statements = [{"Effect": "Allow", "Action": "*", "Resource": "*"}, {"Effect": "Deny", "Action": action, "Resource": "*"}]
    return sandbox.client("ec2", **user(sandbox, "denied", statements))


def by_resource(sandbox):
    statements = [
        {"Effect": "Allow", "Action": "s3:*", "Resource": ["arn:aws:s3:::berth-compat-mine", "arn:aws:s3:::berth-compat-mine/*"]},
        {"Effect": "Allow", "Action": "ec2:*", "Resource": "*", "Condition": {"StringEquals": {"aws:RequestedRegion": "eu-central-1"}}},
    ]
    keys = user(sandbox, "narrow", statements)
    s3 = sandbox.client("s3", **keys)
    place = {"CreateBucketConfiguration": {"LocationConstraint": "eu-central-1"}}
    s3.create_bucket(Bucket="berth-compat-mine", **place)
    s3.put_object(Bucket="berth-compat-mine", Key="a", Body=b"b")
    refused("AccessDenied", s3.create_bucket, Bucket="berth-compat-yours", **place)
    sandbox.client("ec2", **keys).describe_vpcs()
    refused("UnauthorizedOperation", sandbox.client("ec2", region="us-east-1", **keys).describe_vpcs)


def run(play):
    with tempfile.TemporaryDirectory(prefix="berth-keys-") as folder:
        file = os.path.join(folder, "credentials")
        with open(file, "w") as written:
            written.write(PROFILES)
        signatures(play, file)
    policies(play)

