"""The manifests and the image of our scheduler with the plugin agree with the code: sockets, names and versions."""

import re
import subprocess
from pathlib import Path

import pytest

from analysis.installation import BRIDGE
from cli.commands.allocator import command
from cluster import manifests
from e2e.build import CURRENT, KUBERNETES_VERSIONS, kubernetes_flags

ROOT = Path(__file__).parent.parent


def shipped_object(kind):
    """Return the only object of a kind in the scheduler's manifest."""
    [only] = [
        document.object for document in manifests.read([BRIDGE / "scheduler.yaml"]) if document.object["kind"] == kind
    ]
    return only


@pytest.fixture
def profile():
    [document] = manifests.parse(shipped_object("ConfigMap")["data"]["scheduler.yaml"])
    assert document.object["leaderElection"] == {"leaderElect": False}  # the allocator's lease is the only one
    [only] = document.object["profiles"]
    return only


@pytest.fixture
def containers():
    return {
        container["name"]: container
        for container in shipped_object("Deployment")["spec"]["template"]["spec"]["containers"]
    }


def test_the_plugin_replaces_dynamic_resources(profile):
    plugins = profile["plugins"]["multiPoint"]
    assert [plugin["name"] for plugin in plugins["enabled"]] == ["Drawbridge"]
    assert [plugin["name"] for plugin in plugins["disabled"]] == ["DynamicResources"]
    assert profile["schedulerName"] in next(param for param in command.params if param.name == "scheduler_name").default


def test_the_plugin_connects_to_the_allocators_socket(profile, containers):
    [arguments] = [entry["args"] for entry in profile["pluginConfig"] if entry["name"] == "Drawbridge"]
    options = dict(argument.removeprefix("--").split("=") for argument in containers["allocator"]["args"][1:])
    assert options["plugin"] == f"unix:{arguments['socket']}"
    assert set(options) <= {option.removeprefix("--") for param in command.params for option in param.opts}


def test_both_containers_mount_the_parent_of_the_socket_folder(profile, containers):
    """Every user can access the volume, so the allocator makes a folder with mode 0700 below it."""
    socket = Path(profile["pluginConfig"][0]["args"]["socket"])
    mounts = [
        mount["mountPath"]
        for container in containers.values()
        for mount in container["volumeMounts"]
        if mount["name"] == "run"
    ]
    assert mounts == [str(socket.parent.parent)] * 2


def test_the_scheduler_image_has_the_kubernetes_version_of_the_tests():
    dockerfile = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    [build] = re.findall(r"^RUN (version=.* go build .*)", dockerfile, re.MULTILINE)
    listed_version = f"echo {KUBERNETES_VERSIONS[CURRENT]}"
    program = f'go() {{ if [ "$1" = list ]; then {listed_version}; else printf "%s\\n" "$@"; fi; }}\n{build}'
    output = subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=True).stdout
    assert kubernetes_flags(CURRENT)[1].split() == output.split("-ldflags\n")[1].split()[:-1]
    # The last stage is the default target, so it must not be the scheduler.
    assert dockerfile.rindex("FROM ") > dockerfile.index("AS scheduler")
