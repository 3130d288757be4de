"""Requests a second and resident memory of the simulated AWS and of moto."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import furnish
from moto_same import Moto
from play import Wrong
from sandbox import REGION, Sandbox, connect

HERE = pathlib.Path(__file__).parent
CONNECTIONS = 8
#: How many objects there are when memory is read.
OBJECTS = 500
FORM = "Content-Type: application/x-www-form-urlencoded; charset=utf-8"
OBJECT = "x" * 1024


def form(service, version, body):
    return {"service": service, "method": "POST", "path": "/", "headers": [FORM], "body": f"{body}&Version={version}"}


#: In this order: what creates comes last, so that lists are as long on both sides.
CALLS = {
    "GetCallerIdentity": form("sts", "2011-06-15", "Action=GetCallerIdentity"),
    "GetRole": form("iam", "2010-05-08", "Action=GetRole&RoleName=bench"),
    "DescribeVpcs": form("ec2", "2016-11-15", "Action=DescribeVpcs"),
    "DescribeCluster": {"service": "eks", "method": "GET", "path": "/clusters/bench", "headers": [], "body": ""},
    "GetObject": {"service": "s3", "method": "GET", "path": "/berth-bench/object", "headers": [], "body": ""},
    "PutObject": {"service": "s3", "method": "PUT", "path": "/berth-bench/object", "headers": [], "body": OBJECT},
    "CreateVpc": form("ec2", "2016-11-15", "Action=CreateVpc&CidrBlock=10.0.0.0%2F16"),
}


def furnished(url):
    """What the calls ask for: a role, a cluster, ten VPCs, a bucket with an object."""

    def client(service):
        return connect(url, service, checked=False)

    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{n}.0/24", AvailabilityZone=REGION + "ab"[n])["Subnet"]["SubnetId"]
        for n in range(2)
    ]
    for number in range(9):
        ec2.create_vpc(CidrBlock=f"10.{number}.0.0/16")
    iam = client("iam")
    role = iam.create_role(RoleName="bench", AssumeRolePolicyDocument=furnish.trust("eks.amazonaws.com"))["Role"]["Arn"]
    iam.attach_role_policy(RoleName="bench", PolicyArn="arn:aws:iam::aws:policy/AmazonEKSClusterPolicy")
    client("eks").create_cluster(name="bench", roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
    s3 = client("s3")
    s3.create_bucket(Bucket="berth-bench", CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(Bucket="berth-bench", Key="object", Body=OBJECT.encode())


def load(url, call, seconds):
    """One round of one call: requests a second and latencies."""
    scope = f"sandbox/20260101/{REGION}/{call['service']}/aws4_request"
    signed = f"Authorization: AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host;x-amz-date, Signature={'0' * 64}"
    headers = [*call["headers"], signed, "X-Amz-Date: 20260101T000000Z"]
    environment = {
        **os.environ,
        "BENCH_METHOD": call["method"],
        "BENCH_PATH": call["path"],
        "BENCH_BODY": call["body"],
        "BENCH_HEADERS": "\n".join(headers),
    }
    command = [os.environ["WRK"], "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(HERE / "aws.lua"), url]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    line = next(line for line in said.splitlines() if line.startswith("RESULT "))
    result = json.loads(line.removeprefix("RESULT "))
    if result["refused"] or not result["requests"]:
        raise Wrong(f"{call['path']} {call['body'][:60]}: {result}")
    return {**result, "a_second": result["requests"] / result["seconds"]}


def resident_mib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def memory(server):
    """Resident memory of a server: furnished, and with OBJECTS VPCs, roles and stored objects more."""
    furnished(server.url)
    first = resident_mib(server.process.pid)
    ec2, iam, s3 = (connect(server.url, service, checked=False) for service in ("ec2", "iam", "s3"))
    for number in range(OBJECTS):
        ec2.create_vpc(CidrBlock="10.0.0.0/16")
        iam.create_role(RoleName=f"bench-{number}", AssumeRolePolicyDocument=furnish.trust("ec2.amazonaws.com"))
        s3.put_object(Bucket="berth-bench", Key=f"object-{number}", Body=OBJECT.encode())
    return first, resident_mib(server.process.pid)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--seconds", type=int, default=5)
    arguments.add_argument("--json")
    given = arguments.parse_args()
    sides = {"sandbox": Sandbox, "moto": Moto}
    results = {side: {call: [] for call in CALLS} for side in sides}
    for number in range(given.rounds):
        for side, server in sides.items():
            with server() as running:
                furnished(running.url)
                for name, call in CALLS.items():
                    results[side][name].append(load(running.url, call, given.seconds))
            print(f"round {number + 1} of {side}", file=sys.stderr)
    figures = {"calls": {}, "memory_mib": {}}
    print(f"| call, {CONNECTIONS} connections | sandbox, a second | moto, a second | times moto's | p99 ms, sandbox | p99 ms, moto |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in CALLS:
        rate = {side: statistics.median(one["a_second"] for one in results[side][name]) for side in sides}
        late = {side: statistics.median(one["p99_ms"] for one in results[side][name]) for side in sides}
        times = rate["sandbox"] / rate["moto"]
        figures["calls"][name] = {"a_second": rate, "p99_ms": late, "times": times}
        print(f"| {name} | {rate['sandbox']:.0f} | {rate['moto']:.0f} | {times:.0f} | {late['sandbox']:.1f} | {late['moto']:.1f} |")
    for side, server in sides.items():
        with server() as running:
            figures["memory_mib"][side] = memory(running)
    print("\n| resident memory, MiB | sandbox | moto | share of moto's |\n|---|---:|---:|---:|")
    for number, what in enumerate(("furnished", f"with {OBJECTS} VPCs, roles and objects more")):
        own, other = (figures["memory_mib"][side][number] for side in sides)
        print(f"| {what} | {own:.0f} | {other:.0f} | {own / other:.2f} |")
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
