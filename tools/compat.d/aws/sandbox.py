"""A sandbox with AWS on a port of its own, and clients that point at it."""

import json
import os
import re
import subprocess
import tempfile
import time
import urllib.request

import boto3
from botocore.config import Config

import model
from play import Wrong

REGION = "eu-central-1"
START_WITHIN_SECONDS = 30
STOP_WITHIN_SECONDS = 10
#: What a destroyed stack leaves behind in AWS too, or no user made.
NOT_COUNTED = {"aws.client_token"}


def environment(url, key="sandbox", secret="sandbox", token=None, **more):
    """The variables that AWS's programs and Terraform's provider read, and none of the caller's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TF_"))}
    kept.update(
        AWS_ENDPOINT_URL=url,
        AWS_ACCESS_KEY_ID=key,
        AWS_SECRET_ACCESS_KEY=secret,
        AWS_REGION=REGION,
        AWS_DEFAULT_REGION=REGION,
        AWS_EC2_METADATA_DISABLED="true",
        AWS_CONFIG_FILE=os.devnull,
        AWS_SHARED_CREDENTIALS_FILE=os.devnull,
        AWS_PAGER="",
    )
    if token:
        kept["AWS_SESSION_TOKEN"] = token
    kept.update(more)
    return kept


def connect(url, service, key="sandbox", secret="sandbox", token=None, region=REGION, checked=True, **config):
    """boto3's client. Every answer that it gets is held against the service's model, unless `checked` is false."""
    settings = {"retries": {"max_attempts": 0}, "read_timeout": 60, **config}
    # A session of its own, so that nothing is taken from the caller's environment.
    session = boto3.session.Session(aws_access_key_id=key, aws_secret_access_key=secret, aws_session_token=token)
    client = session.client(service, region_name=region, endpoint_url=url, config=Config(**settings))
    if checked:
        model.watch(client)
    return client


class Sandbox:
    """`berth sandbox` as a process; the environment variable BERTH says which program, and may name the example `serve`."""

    def __init__(self, speed="max", credentials=None, enforce=False):
        self.folder = tempfile.TemporaryDirectory(prefix="berth-compat-")
        self.program = os.environ["BERTH"]
        self.speed, self.credentials, self.enforce = speed, credentials, enforce
        self.url = None
        self.process = None

    def __enter__(self):
        any_port = "127.0.0.1:0"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        if os.path.basename(self.program) == "serve":
            command = [self.program, "instant" if self.speed == "max" else str(self.speed)]
            environ.update({f"{cloud}_PORT": "0" for cloud in ("AWS", "CIVO", "DIGITALOCEAN")})
            environ.update({"AWS_CREDENTIALS": self.credentials} if self.credentials else {})
            environ.update({"AWS_ENFORCE": "1"} if self.enforce else {})
        else:
            command = [self.program, "sandbox", "--speed", str(self.speed)]
            for flag in ("--aws", "--civo", "--digitalocean", "--kube"):
                command += [flag, any_port]
            command += ["--aws-credentials", self.credentials] if self.credentials else []
            command += ["--aws-enforce"] if self.enforce else []
        self.said = open(os.path.join(self.folder.name, "said"), "w+")
        self.problems = open(os.path.join(self.folder.name, "problems"), "w+")
        self.process = subprocess.Popen(
            command, cwd=self.folder.name, env=environ, stdout=self.said, stderr=self.problems
        )
        deadline = time.monotonic() + START_WITHIN_SECONDS
        while self.url is None:
            with open(self.said.name) as said:
                found = re.search(r"^aws +(http://\S+)$", said.read(), re.M | re.I)
            self.url = found and found.group(1)
            if self.url is None and (self.process.poll() is not None or time.monotonic() > deadline):
                with open(self.problems.name) as problems:
                    text = problems.read()
                self.__exit__()
                raise Wrong(f"the sandbox did not start: {text}")
            time.sleep(0.02)
        self.started_with = {key for key in self.objects()}
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(STOP_WITHIN_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.said.close()
        self.problems.close()
        self.folder.cleanup()

    def client(self, service, **more):
        return connect(self.url, service, **more)

    def environment(self, **more):
        return environment(self.url, **more)

    def inside(self, what, body=None, method=None):
        data = body.encode() if body is not None else None
        request = urllib.request.Request(f"{self.url}/_sandbox/{what}", data=data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def faults(self, *rules):
        """Replaces the rules in force; none removes them."""
        return self.inside("faults", "\n".join(rules)) if rules else self.inside("faults", method="DELETE")

    def struck(self):
        return sum(rule["struck"] for rule in self.inside("faults")["faults"])

    def objects(self):
        """Every live object that an account does not have from the beginning, by type and id."""
        found = {}
        for one in self.inside("ledger")["objects"]:
            pending_key = one.get("state") == "PendingDeletion" or one.get("key_state") == "PendingDeletion"
            if one["type"] not in NOT_COUNTED and not one.get("default") and not pending_key:
                found[one["type"], str(one.get("id") or one.get("name"))] = one
        return found

    def left_over(self):
        return sorted(key for key in self.objects() if key not in self.started_with)

    def count(self, kind):
        """How many objects of a type there are, by the type's last word: `vpc` for aws.vpc."""
        return sum(1 for name, _ in self.left_over() if name.rsplit(".", 1)[-1] == kind)
