"""One configuration with its state, run by Terraform or OpenTofu."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import importing
import programs
from play import Wrong, want

HERE = pathlib.Path(__file__).parent
NAMES = ("network", "iam", "storage", "kubernetes")
#: No run takes longer, whatever the faults.
RUN_SECONDS = 1200


class Changes:
    """What a run said that it would change, and what had changed outside."""

    def __init__(self, output):
        self.planned = {}
        self.drifted = {}
        self.summary = {}
        for line in output.splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("type") == "planned_change":
                change = event["change"]
                self.planned[change["resource"]["addr"]] = change["action"]
            elif event.get("type") == "resource_drift":
                change = event["change"]
                self.drifted[change["resource"]["addr"]] = change["action"]
            elif event.get("type") == "change_summary":
                self.summary[event["changes"]["operation"]] = event["changes"]

    def of(self, *actions):
        return sorted(address for address, action in self.planned.items() if action in actions)


class Stack:
    def __init__(self, name, program, environment, folder):
        self.name = name
        self.program = program
        self.folder = pathlib.Path(folder)
        self.environment = {**environment, **programs.environment(), "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in (HERE / name).glob("*.tf"):
            shutil.copy(file, self.folder)

    def run(self, *args, exits=(0,)):
        result = subprocess.run(
            [self.program, *args],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_SECONDS,
        )
        if result.returncode not in exits:
            raise Wrong(f"{args[0]} of {self.name} ended with {result.returncode}:\n{problems(result.stdout)}")
        return result.returncode, result.stdout

    def init(self):
        self.run("init", "-input=false", "-no-color")

    def apply(self, step, *more, exits=(0,)):
        _, output = self.run("apply", "-json", "-auto-approve", "-input=false", f"-var=step={step}", *more, exits=exits)
        return Changes(output)

    def plan(self, step, *more):
        """The changes of a plan, whatever they are."""
        _, output = self.run(
            "plan", "-json", "-detailed-exitcode", "-input=false", f"-var=step={step}", *more, exits=(0, 2)
        )
        return Changes(output)

    def plan_is_empty(self, step):
        plan = ("plan", "-detailed-exitcode", "-input=false", "-no-color", f"-var=step={step}")
        code, output = self.run(*plan, exits=(0, 2))
        want(code == 0, f"the plan of {self.name} is not empty:\n{shortened(output)}")

    def destroy(self, step):
        self.run("apply", "-destroy", "-json", "-auto-approve", "-input=false", f"-var=step={step}")
        want(not self.resources(), f"the state still holds {sorted(self.resources())}")

    def state(self):
        file = self.folder / "terraform.tfstate"
        return json.loads(file.read_text()) if file.exists() else {"resources": [], "outputs": {}}

    def resources(self):
        """The attributes of every managed object in the state, by address."""
        found = {}
        for resource in self.state()["resources"]:
            if resource["mode"] != "managed":
                continue
            for instance in resource["instances"]:
                key = instance.get("index_key")
                index = "" if key is None else f"[{json.dumps(key)}]"
                found[f"{resource['type']}.{resource['name']}{index}"] = instance["attributes"]
        return found

    def data(self, kind):
        """The attributes of the state's first data source of a type."""
        found = (one for one in self.state()["resources"] if one["mode"] == "data" and one["type"] == kind)
        return next(found)["instances"][0]["attributes"]

    def import_everything(self, step):
        """Forgets the state, and takes every object in again by the id that its type is imported by."""
        before = self.resources()
        blocks = [
            f'import {{\n  to = {address}\n  id = {json.dumps(importing.identifier(address.split(".")[0], attributes))}\n}}\n'
            for address, attributes in before.items()
        ]
        for file in self.folder.glob("terraform.tfstate*"):
            file.unlink()
        (self.folder / "imports.tf").write_text("\n".join(blocks))
        self.run("plan", "-input=false", "-no-color", f"-var=step={step}", "-out=imports.plan")
        _, text = self.run("show", "-json", "imports.plan")
        plan = json.loads(text[text.index("{") :])
        wrong = [problem for change in plan["resource_changes"] for problem in importing.problems(change)]
        want(not wrong, f"importing {self.name} would change:\n" + "\n".join(wrong))
        self.run("apply", "-input=false", "-no-color", "imports.plan")
        os.remove(self.folder / "imports.tf")
        missing = sorted(set(before) - set(self.resources()))
        want(not missing, f"not imported: {missing}")


def problems(output):
    """The errors of a run's output, from its JSON lines or as it is."""
    found = []
    for line in output.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        diagnostic = event.get("diagnostic", {}) if isinstance(event, dict) else {}
        if diagnostic.get("severity") == "error":
            found.append(f"{diagnostic.get('address', '')}: {diagnostic['summary']} {diagnostic.get('detail', '')}")
    return "\n".join(found) or output[-4000:]


def shortened(output):
    """A plan without the lines that tell of reading."""
    lines = [line for line in output.splitlines() if not re.search(r": (Refreshing state|Reading|Read complete)", line)]
    return "\n".join(lines)[:6000]
