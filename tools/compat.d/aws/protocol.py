"""What the sandbox answers to what it does not know, to nonsense, and to every operation that AWS's services have: never a 5xx, which
SDKs would ask for again for minutes."""

import json
import urllib.error
import urllib.request

import botocore.session
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from play import Wrong, same, want
from reads import SCOPES, SERVICES
from sandbox import REGION, Sandbox, connect

FORM = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}


def send(url, scope, method="POST", path="/", body="", headers=None, key="sandbox", secret="sandbox"):
    """A signed request that no SDK would make: status, headers, body."""
    request = AWSRequest(method=method, url=url + path, data=body, headers=headers or {})
    signer = S3SigV4Auth if scope == "s3" else SigV4Auth
    signer(Credentials(key, secret), scope, REGION).add_auth(request)
    data = body.encode() if body else None
    plain = urllib.request.Request(url + path, data=data, headers=dict(request.headers), method=method)
    try:
        with urllib.request.urlopen(plain, timeout=30) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def target(prefix, version="1.1"):
    return {"X-Amz-Target": f"{prefix}.FlyToTheMoon", "Content-Type": f"application/x-amz-json-{version}"}


#: How an unknown action looks in each protocol, and the code that it is refused with.
UNKNOWN = [
    ("ec2", {"body": "Action=FlyToTheMoon&Version=2016-11-15", "headers": FORM}, "InvalidAction"),
    ("sts", {"body": "Action=FlyToTheMoon&Version=2011-06-15", "headers": FORM}, "InvalidAction"),
    ("iam", {"body": "Action=FlyToTheMoon&Version=2010-05-08", "headers": FORM}, "InvalidAction"),
    ("kms", {"body": "{}", "headers": target("TrentService")}, "UnknownOperationException"),
    ("logs", {"body": "{}", "headers": target("Logs_20140328")}, "UnknownOperationException"),
    ("events", {"body": "{}", "headers": target("AWSEvents")}, "UnknownOperationException"),
    ("sqs", {"body": "{}", "headers": target("AmazonSQS", "1.0")}, "UnknownOperationException"),
    ("tagging", {"body": "{}", "headers": target("ResourceGroupsTaggingAPI_20170126")}, "UnknownOperationException"),
    ("eks", {"body": "{}", "path": "/fly/to/the/moon"}, "UnknownOperationException"),
    ("dynamodb", {"body": "{}", "headers": target("DynamoDB_20120810", "1.0")}, "UnknownOperationException"),
]

NONSENSE = [
    ("ec2", {"body": "", "headers": FORM}),
    ("ec2", {"body": "Action=CreateVpc&CidrBlock=ten", "headers": FORM}),
    ("ec2", {"body": "Action=DescribeVpcs&Filter.1.Name=&Filter.x.Value.1=a&=&&&%zz", "headers": FORM}),
    ("ec2", {"body": "Action=DescribeVpcs&MaxResults=-1", "headers": FORM}),
    ("ec2", {"body": "Action=CreateSubnet&VpcId=vpc-1&CidrBlock=10.0.0.0/99", "headers": FORM}),
    ("iam", {"body": "Action=CreateRole&Tags.member.99999999.Key=a", "headers": FORM}),
    ("kms", {"body": "{", "headers": {**target("TrentService"), "X-Amz-Target": "TrentService.CreateKey"}}),
    ("kms", {"body": "[]", "headers": {**target("TrentService"), "X-Amz-Target": "TrentService.CreateKey"}}),
    ("kms", {"body": '{"KeyId": 7}', "headers": {**target("TrentService"), "X-Amz-Target": "TrentService.DescribeKey"}}),
    ("kms", {"body": "{}", "headers": {}}),
    ("eks", {"body": "{", "path": "/clusters"}),
    ("eks", {"body": '{"name": ["a"]}', "path": "/clusters"}),
    ("eks", {"body": "null", "path": "/clusters"}),
    ("eks", {"method": "GET", "path": "/clusters/%2F%00"}),
    ("eks", {"method": "PATCH", "path": "/clusters", "body": "{}"}),
    ("s3", {"method": "PUT", "path": "/berth-compat-none?lifecycle", "body": "<Lifecycle"}),
    ("s3", {"method": "PUT", "path": "/UPPER_CASE!"}),
    ("s3", {"method": "GET", "path": "/?list-type=2"}),
    ("s3", {"method": "POST", "path": "/berth-compat-none?delete", "body": "not xml"}),
]


#: Operations that go to another host than the endpoint's, or are not signed.
ELSEWHERE = {"WriteGetObjectResponse"}


def example(shape, depth=0):
    """The smallest input that has the required members."""
    if shape is None or depth > 6:
        return {}
    kind = shape.type_name
    if kind == "structure":
        return {name: example(shape.members[name], depth + 1) for name in shape.required_members}
    if kind == "list":
        return [example(shape.member, depth + 1)]
    if kind == "map":
        return {"key": example(shape.value, depth + 1)}
    if kind == "string":
        return shape.enum[0] if getattr(shape, "enum", None) else "compat-none-such-name"
    return {"boolean": True, "blob": b"x", "timestamp": 0}.get(kind, 1)


def every_operation(sandbox, service):
    """Calls all that the service's model has. Which answers were a 5xx, or none at all."""
    wrong = []
    model = botocore.session.get_session().get_service_model(service)
    client = connect(sandbox.url, service, checked=False, parameter_validation=False, read_timeout=20)
    for name in model.operation_names:
        operation = model.operation_model(name)
        # With a host of its own the request would leave this machine.
        if operation.has_event_stream_input or operation.has_event_stream_output or operation.endpoint or name in ELSEWHERE:
            continue
        method = next(key for key, value in client.meta.method_to_api_mapping.items() if value == name)
        try:
            getattr(client, method)(**example(operation.input_shape))
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if status >= 500 or not error.response["Error"].get("Code"):
                wrong.append(f"{name} {status}")
        except (ConnectionError, HTTPClientError) as error:
            wrong.append(f"{name}: {type(error).__name__}")
        except Exception as error:  # botocore could not read the answer, or not write the request
            if "Parser" in type(error).__name__:
                wrong.append(f"{name}: {error}")
    return wrong, len(model.operation_names)


def code_of(headers, text):
    if headers.get("x-amzn-ErrorType"):
        return headers["x-amzn-ErrorType"].split(":")[0]
    if text.startswith("{"):
        return json.loads(text).get("__type", "").rsplit("#", 1)[-1]
    return text.partition("<Code>")[2].partition("</Code>")[0]


def run(play):
    play.suite("What is not known is refused with 400, in the form of each protocol")
    with Sandbox() as sandbox:
        for scope, request, expected in UNKNOWN:

            @play.step(f"{scope}: an unknown action")
            def _(scope=scope, request=request, expected=expected):
                status, headers, text = send(sandbox.url, scope, **request)
                want(status in ((400, 404) if scope == "eks" else (400,)), f"answered {status}: {text}")
                same("the code", code_of(headers, text), expected)

        @play.step("s3: an unknown sub-resource's answer is no 5xx")
        def _():
            for method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
                status, _, text = send(sandbox.url, "s3", method=method, path="/berth-compat-none?fly-to-the-moon")
                want(400 <= status < 500, f"{method} answered {status}: {text}")

        @play.step("nonsense breaks nothing")
        def _():
            for scope, request in NONSENSE:
                status, _, text = send(sandbox.url, scope, **request)
                want(status < 500, f"{scope} {request} answered {status}: {text}")

        @play.step("a request without a signature")
        def _():
            try:
                urllib.request.urlopen(sandbox.url + "/?Action=DescribeVpcs", timeout=10)
            except urllib.error.HTTPError as error:
                same("the status", error.code, 403)
            else:
                raise Wrong("was answered")

        for service in SERVICES:

            @play.step(f"{SCOPES.get(service, service)}: no operation of the service's model is a 5xx")
            def _(service=service):
                wrong, count = every_operation(sandbox, service)
                want(not wrong, f"{len(wrong)} of {count}: {', '.join(wrong[:10])}")
