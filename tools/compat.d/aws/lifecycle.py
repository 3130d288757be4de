"""Each configuration through its whole life, by Terraform and by OpenTofu: applied, planned empty, changed in place and by replacement,
imported, refreshed after outside changes, repaired, destroyed to an empty ledger."""

import base64
import concurrent.futures
import os
import re
import subprocess
import tempfile

import outside
import stack
from play import Play, same, until, want
from programs import ROOT, program
from sandbox import Sandbox
from stack import NAMES, Stack

#: What each configuration must replace at step 3, and nothing else that it does not bring with it.
REPLACED = {
    "network": ["aws_subnet.private", "aws_security_group.inline", "aws_launch_template.nodes", "aws_network_acl_rule.https"],
    "iam": ["aws_iam_role.node", "aws_iam_policy.own", "aws_kms_alias.main", "aws_sqs_queue.events", "aws_cloudwatch_event_rule.spot"],
    "storage": ["aws_s3_bucket.other"],
    "kubernetes": ["aws_eks_node_group.plain", "aws_eks_access_entry.team", "aws_eks_pod_identity_association.app"],
}


def types_in_facts():
    """The types of the table that says what is simulated, in the documentation."""
    text = (ROOT / "docs/sandbox.md").read_text()
    return set(re.findall(r"`(aws_[a-z0-9_]+)`", text))


def types_in_configurations():
    found = set()
    for name in NAMES:
        for file in (stack.HERE / name).glob("*.tf"):
            found |= set(re.findall(r'^(?:resource|data) "(aws_\w+)"', file.read_text(), re.M))
    return found


def whole_life(play, sandbox, one):
    """All steps of one configuration; returns when it is destroyed or broken."""
    name = one.name

    @play.step("init, apply")
    def _():
        one.init()
        one.apply(1)
        want(one.resources(), "the state is empty")

    @play.step("plan: no changes")
    def _():
        one.plan_is_empty(1)

    if name == "kubernetes":

        @play.step("kubectl with the provider's token: the nodes of both groups")
        def _():
            same("the number of nodes", len(nodes(one)), 3)

    @play.step("change in place")
    def _():
        changes = one.apply(2)
        same("what is not changed in place", changes.of("create", "delete", "replace"), [])
        want(changes.of("update"), "nothing was changed")

    @play.step("plan after it: no changes")
    def _():
        one.plan_is_empty(2)

    @play.step("change by replacement")
    def _():
        changes = one.apply(3)
        missing = sorted(set(REPLACED[name]) - set(changes.of("replace")))
        same("what is not replaced", missing, [])

    @play.step("plan after that: no changes")
    def _():
        one.plan_is_empty(3)

    @play.step("import of everything changes nothing")
    def _():
        one.import_everything(3)
        one.plan_is_empty(3)

    @play.step("outside changes are seen and repaired")
    def _():
        changed, gone = outside.CHANGES[name](sandbox.client, one.resources())
        seen = one.plan(3, "-refresh-only").drifted
        same("what a refresh does not show", sorted(set(changed + gone) - set(seen)), [])
        same("what is not shown as gone", [address for address in gone if seen[address] != "delete"], [])
        repaired = one.apply(3)
        same("what is not made again", sorted(set(gone) - set(repaired.of("create"))), [])
        same("what is not changed back", sorted(set(changed) - set(repaired.of("update", "replace"))), [])
        one.plan_is_empty(3)

    @play.step("destroy leaves nothing")
    def _():
        one.destroy(3)
        same("what is left", settled(sandbox), [])


def nodes(one):
    """The names of the cluster's nodes, with the token of `aws_eks_cluster_auth`."""
    cluster = one.resources()["aws_eks_cluster.main"]
    token = one.data("aws_eks_cluster_auth")["token"]
    authority = one.folder / "ca.pem"
    authority.write_bytes(base64.b64decode(cluster["certificate_authority"][0]["data"]))
    command = ["kubectl", "--kubeconfig", os.devnull, "--server", cluster["endpoint"], "--certificate-authority", authority]
    command += ["--token", token, "get", "nodes", "-o", "name"]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    want(asked.returncode == 0, asked.stderr)
    return asked.stdout.split()


def short_life(play, sandbox, one):
    @play.step("init, apply")
    def _():
        one.init()
        one.apply(1)

    @play.step("plan: no changes")
    def _():
        one.plan_is_empty(1)

    @play.step("change in place")
    def _():
        one.apply(2)
        one.plan_is_empty(2)

    @play.step("destroy leaves nothing")
    def _():
        one.destroy(2)
        same("what is left", settled(sandbox), [])


def settled(sandbox, seconds=60):
    """What is in the ledger when it has stopped to shrink."""
    try:
        until("an empty ledger", lambda: not sandbox.left_over(), within=seconds, pause=0.5)
    except AssertionError:
        pass
    return sandbox.left_over()


def side_by_side(play, title, names, life, rules=(), speed="max", tool="terraform"):
    """One life for each configuration, each on a sandbox of its own, at the same time: they mostly wait."""

    def live(name):
        lines = []
        own = Play(lines.append)
        own.suite(f"{title}: {name}", chained=True)
        with Sandbox(speed=speed) as sandbox, tempfile.TemporaryDirectory(prefix="berth-stack-") as folder:
            if rules:
                sandbox.faults(*rules)
            life(own, sandbox, Stack(name, program(tool), sandbox.environment(), folder))
            if rules:

                @own.step("the faults have struck")
                def _():
                    want(sandbox.struck() > 0, "no fault struck")

        return own, lines

    with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
        for own, lines in pool.map(live, names):
            for line in lines:
                play.out(line)
            play.passed += own.passed
            play.not_run += own.not_run
            play.failed += own.failed


def whole(play, tool, names=NAMES):
    play.suite(f"{tool}: configurations")

    @play.step("every simulated type of the documentation is in a configuration")
    def _():
        same("what is in none", sorted(types_in_facts() - types_in_configurations()), [])

    side_by_side(play, f"{tool}, speed max", names, whole_life, tool=tool)


def at_sixty(play, tool="terraform", names=NAMES):
    side_by_side(play, f"{tool}, speed 60", names, short_life, speed=60, tool=tool)
