"""The same configurations on moto: the same plan, the same outputs and the same state as on the sandbox, ids aside."""

import concurrent.futures
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

from play import Wrong, same, want
from programs import program
from sandbox import Sandbox, environment
from stack import Stack

START_WITHIN_SECONDS = 60
#: The configurations and steps that moto 5.2.5 carries.
CARRIED = {"network": (1, 2), "storage": (1, 2), "iam": (1,)}

#: Where moto does not do what AWS does, by type and attribute.
MOTO_DIFFERS = {
    # Descriptions of rules that refer to a group are lost.
    ("aws_security_group", "ingress.description"),
    # Tags of a launch template leak into the data of its versions.
    ("aws_launch_template", "tag_specifications"),
    # ModifySecurityGroupRules refuses the protocol -1.
    ("aws_vpc_security_group_egress_rule", "cidr_ipv4"),
}
REFUSED_BY_MOTO = "ModifySecurityGroupRules"

#: Ids, times and addresses, which are different in every account.
MASKS = [
    (re.compile(r"\b(sgrule|rtbassoc|aclassoc|eipassoc|eipalloc|vpce|[a-z]{2,8})-[0-9a-f]{8,17}\b"), r"\1-ID"),
    (re.compile(r"\bsgrule-\d+\b"), "sgrule-ID"),
    (re.compile(r"\br-rtb-ID\d+\b"), "r-rtb-ID"),
    (re.compile(r"\bnacl-\d+\b"), "nacl-ID"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b(AROA|AIPA|ANPA|AIDA)[A-Z0-9]{12,17}\b"), r"\1ID"),
    (re.compile(r"\b\d{12}\b"), "ACCOUNT"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)"), "TIME"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "ENDPOINT"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "CANONICAL"),
    (re.compile(r"\bpl-\w+\b"), "pl-ID"),
    (re.compile(r"-\d{26}\b"), "-UNIQUE"),
]
#: What is an address or a number that an account has by chance.
BY_CHANCE = {
    "public_ip", "private_ip", "public_dns", "private_dns", "ipv6_cidr_block", "ipv6_association_id", "ptr_record", "availability_zone_id",
    "cidr_blocks_of_prefix_list", "hosted_zone_id", "unique_id", "create_date", "network_border_group", "public_ipv4_pool",
    "ipv6_cidr_block_network_border_group", "arn_suffix", "grant", "id", "key_id",
}  # fmt: skip


class Moto:
    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = os.path.join(os.path.dirname(sys.executable), "moto_server")
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [server, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + START_WITHIN_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return self
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    self.__exit__()
                    raise Wrong("moto did not start") from None
                time.sleep(0.2)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def masked(value):
    """A value without what is different in every account; lists sorted, since their order says nothing."""
    if isinstance(value, dict):
        return {key: masked(inner) for key, inner in sorted(value.items()) if key not in BY_CHANCE}
    if isinstance(value, list):
        return sorted((masked(inner) for inner in value), key=lambda one: json.dumps(one, sort_keys=True))
    if isinstance(value, str):
        if value.startswith("{") and value.endswith("}"):
            return json.dumps(masked(json.loads(value)), sort_keys=True)
        for pattern, mask in MASKS:
            value = pattern.sub(mask, value)
    return None if value in ("", [], {}) else value


def differences(kind, left, right, path=""):
    """Where two masked values differ, but for what moto is known not to do."""
    if (kind, path) in MOTO_DIFFERS:
        return []
    if isinstance(left, dict) and isinstance(right, dict):
        found = []
        for key in sorted(set(left) | set(right)):
            inner = f"{path}.{key}" if path else key
            found += differences(kind, left.get(key), right.get(key), inner)
        return found
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [text for a, b in zip(left, right) for text in differences(kind, a, b, path)]
    return [] if (left or None) == (right or None) else [f"{path}: {left!r} here, {right!r} on moto"]


def life(name, url, folder, on_moto):
    """The plan's actions and the state after each step."""
    one = Stack(name, program("terraform"), environment(url), folder)
    one.init()
    seen = {}
    for step in CARRIED[name]:
        planned = one.plan(step).planned
        try:
            one.apply(step)
        except Wrong as error:
            if REFUSED_BY_MOTO not in str(error) or not on_moto:
                raise
        seen[step] = {"planned": planned, "resources": one.resources(), "outputs": one.state()["outputs"]}
    return seen


def run(play):
    play.suite("terraform on the sandbox and on moto: the same plans, outputs and states")
    with Sandbox() as sandbox, Moto() as moto, tempfile.TemporaryDirectory(prefix="berth-moto-") as folder:
        jobs = {(name, side): url for name in CARRIED for side, url in (("here", sandbox.url), ("moto", moto.url))}
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
            running = {job: pool.submit(life, job[0], url, os.path.join(folder, *job), job[1] == "moto") for job, url in jobs.items()}
        for name, steps in CARRIED.items():

            @play.step(f"{name}: both apply it")
            def _(name=name):
                for side in ("here", "moto"):
                    running[name, side].result()

            for step in steps:

                @play.step(f"{name}, step {step}: the plans, the outputs, the states")
                def _(name=name, step=step):
                    here, there = (running[name, side].result()[step] for side in ("here", "moto"))
                    same("the plan", here["planned"], there["planned"])
                    found = differences("outputs", masked(here["outputs"]), masked(there["outputs"]))
                    for address, attributes in here["resources"].items():
                        kind = address.split(".")[0]
                        other = there["resources"].get(address, {})
                        found += [f"{address}.{text}" for text in differences(kind, masked(attributes), masked(other))]
                    want(not found, f"{len(found)} differences:\n" + "\n".join(found[:40]))
