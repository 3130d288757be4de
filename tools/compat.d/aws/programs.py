"""Where Terraform, OpenTofu and the AWS provider are."""

import glob
import os
import pathlib
import re
import shutil
import subprocess

from play import Wrong

ROOT = pathlib.Path(__file__).parents[3]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "berth-tools"
PROVIDER = "hashicorp/aws/5.100.0"
#: Where `terraform providers mirror` and packages put providers, beside what a CLI configuration names.
MIRRORS = [
    "~/.terraform.d/plugins",
    "~/.local/share/terraform/plugins",
    "/usr/local/share/terraform/plugins",
    "/usr/share/terraform/plugins",
    "/opt/*",
]


def program(name):
    """The path of `terraform` or `tofu`."""
    found = shutil.which(name)
    if found:
        return found
    if name == "tofu":
        built = subprocess.run([ROOT / "tools/peers/build", "tofu"], stdout=subprocess.PIPE, text=True, check=True)
        return built.stdout.strip().split("\t")[-1]
    raise Wrong(f"{name} was not found; install it (developer.hashicorp.com/terraform/install), then run this again")


def installed_provider():
    """The folder of the provider's version in a mirror on this machine, if there is one."""
    named = []
    for file in (os.environ.get("TF_CLI_CONFIG_FILE"), os.path.expanduser("~/.terraformrc")):
        if file and os.path.isfile(file):
            named += re.findall(r'path\s*=\s*"([^"]+)"', pathlib.Path(file).read_text())
    for mirror in named + [os.path.expanduser(path) for path in MIRRORS]:
        for found in glob.glob(f"{mirror}/registry.terraform.io/{PROVIDER}"):
            return found
    return None


def environment():
    """Variables that let both programs take the installed provider; none where it comes from a registry, as for any user."""
    found = installed_provider()
    cache = CACHE / "terraform"
    cache.mkdir(parents=True, exist_ok=True)
    config = cache / "cli.tfrc"
    if not found:
        (cache / "plugins").mkdir(exist_ok=True)
        config.write_text(f'plugin_cache_dir = "{cache}/plugins"\n')
        return {"TF_CLI_CONFIG_FILE": str(config)}
    # Each program looks under the host name of its own registry.
    for host in ("registry.terraform.io", "registry.opentofu.org"):
        # Links to folders of a version are not followed, those to folders of a platform are.
        for platform in os.listdir(found):
            link = cache / "mirror" / host / PROVIDER / platform
            link.parent.mkdir(parents=True, exist_ok=True)
            if not (link.is_symlink() and os.readlink(link) == os.path.join(found, platform)):
                link.unlink(missing_ok=True)
                link.symlink_to(os.path.join(found, platform))
    config.write_text(f'provider_installation {{\n  filesystem_mirror {{\n    path = "{cache}/mirror"\n  }}\n}}\n')
    return {"TF_CLI_CONFIG_FILE": str(config)}
