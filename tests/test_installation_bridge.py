"""The manifests of the bridge are what the code says: arguments, ports, names, and nothing that is on by default."""

import json
import socket

import pytest

from allocator.service import commits, settings
from analysis.installation import BASE, BRIDGE, bridge
from cli.commands.allocator import command
from cluster import manifests
from tests.cli.running import run

IMAGES = ("registry.example/drawbridge:1", "registry.example/kube-scheduler:v1.37.1")


def made(namespace="drawbridge-system"):
    return {(o["kind"], o["metadata"]["name"]): o for o in bridge(namespace, *IMAGES)}


def stored():
    files = [path for path in sorted(BRIDGE.glob("*.yaml")) if path.name != "kustomization.yaml"]
    return [document.object for document in manifests.read(files)]


@pytest.mark.parametrize("folder", ["bridge", "bridge/apart", "read-only"])
def test_a_component_names_its_namespace_for_that_of_the_base_does_not_reach_it(folder):
    """kustomize puts the base's namespace on the base's objects only: without one of its own a component lands wherever kubectl is."""
    [base], [component] = (manifests.read([BASE.parent / one / "kustomization.yaml"]) for one in ("base", folder))
    assert component.object["namespace"] == base.object["namespace"]


@pytest.mark.parametrize("file", ["scheduler.yaml", "plugin/scheduler.yaml", "apart/scheduler.yaml"])
def test_a_schedulers_own_client_does_not_hold_it_back(file):
    """By default it sends 50 requests a second, and a pod takes two."""
    [configuration] = manifests.parse(manifests.read([BRIDGE / file])[0].object["data"]["scheduler.yaml"])
    assert configuration.object["clientConnection"] == {"qps": 500, "burst": 1000}


@pytest.mark.parametrize("folder", [".", "apart"])
def test_both_ways_have_what_they_share(folder):
    listed = manifests.read([BRIDGE / folder / "kustomization.yaml"])[0].object["resources"]
    assert ["common" in one for one in listed].count(True) == 1


def test_the_bridge_is_off_unless_it_is_asked_for():
    plain = run("manifests", "--image", IMAGES[0])
    asked = run("manifests", "--image", IMAGES[0], "--bridge", "--scheduler-image", IMAGES[1])
    assert "drawbridge-allocator" not in plain.stdout
    assert "drawbridge-allocator" in asked.stdout
    listed = manifests.read([BASE / "kustomization.yaml"])[0].object
    assert "components" not in listed


def test_a_bridge_without_an_image_of_a_scheduler_is_a_broken_usage():
    done = run("manifests", "--image", IMAGES[0], "--bridge")
    assert done.exit_code == 2
    assert "--scheduler-image" in done.stderr


def test_the_scheduler_asks_where_the_allocator_listens_and_leaves_devices_to_it():
    [config_map] = [o for o in stored() if o["kind"] == "ConfigMap"]
    [document] = manifests.parse(config_map["data"]["scheduler.yaml"])
    [profile], [extender] = document.object["profiles"], document.object["extenders"]
    assert {"name": "DynamicResources"} in profile["plugins"]["multiPoint"]["disabled"]
    assert extender["nodeCacheCapable"] is True
    [deployment] = [o for o in stored() if o["kind"] == "Deployment"]
    allocator, _ = deployment["spec"]["template"]["spec"]["containers"]
    options = dict(argument.removeprefix("--").split("=") for argument in allocator["args"][1:])
    assert extender["urlPrefix"] == f"http://{options['extender']}/extender"
    assert profile["schedulerName"] in next(param for param in command.params if param.name == "scheduler_name").default


def test_the_fence_names_the_lease_and_the_account_wherever_they_are():
    for namespace in ("drawbridge-system", "elsewhere"):
        found = made(namespace)
        policy = found["ValidatingAdmissionPolicy", commits.FENCE]["spec"]
        binding = found["ValidatingAdmissionPolicyBinding", commits.FENCE]["spec"]
        [condition] = policy["matchConditions"]
        assert condition["expression"].endswith(f"'system:serviceaccount:{namespace}:drawbridge-allocator'")
        assert binding["paramRef"] == {
            "name": settings.LEASE,
            "namespace": namespace,
            "parameterNotFoundAction": "Allow",
        }
        assert ("ServiceAccount", "drawbridge-allocator") in found
        for obj in found.values():
            for subject in obj.get("subjects", ()):
                assert subject["namespace"] == namespace


def test_the_fence_of_devices_is_printed_where_the_configuration_wants_it(tmp_path):
    from dra.policy import FENCE_TOLERATION

    config = tmp_path / "c.yaml"
    head = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
    for fence, wanted in (("false", []), ("true", ["gpu.example.com", "nic.example.com"])):
        config.write_text(f"{head}bridge: {{schedulerName: drawbridge, drivers: [gpu.example.com, nic.example.com], fence: {fence}}}\n")  # fmt: skip
        options = ("--image", IMAGES[0], "--bridge", "--scheduler-image", IMAGES[1], "--config", str(config))
        result = run("manifests", *options)
        rules = [
            one.object["spec"] for one in manifests.parse(result.stdout) if one.object["kind"] == "DeviceTaintRule"
        ]
        assert [rule["deviceSelector"]["driver"] for rule in rules] == wanted
        assert ("other schedulers can allocate the bridge's devices" in result.stderr) is (not wanted)
        for rule in rules:
            assert (rule["taint"]["key"], rule["taint"]["effect"]) == (FENCE_TOLERATION.key, FENCE_TOLERATION.effect)


@pytest.mark.parametrize("command", ["manifests", "doctor", "check"])
def test_a_fence_beside_pods_that_are_left_for_core_is_refused(command, tmp_path):
    config = tmp_path / "c.yaml"
    head = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
    fence = "bridge: {schedulerName: drawbridge, drivers: [gpu.nvidia.com], fence: true}\n"
    config.write_text(f"{head}{fence}extendedResources: {{default: leave}}\n")
    dump = tmp_path / "dump.yaml"
    dump.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n")
    given = (
        ["--image", IMAGES[0], "--bridge", "--scheduler-image", IMAGES[1]]
        if command == "manifests"
        else ["-f", str(dump)]
    )
    result = run(command, *given, "--config", str(config))
    assert result.exit_code == 2
    assert "pods for gpu.nvidia.com are left to kube-scheduler" in result.stderr
    assert "/extendedResources/default" in result.stderr


def test_images_come_from_the_command_and_from_nowhere_otherwise():
    [deployment] = [o for o in stored() if o["kind"] == "Deployment"]
    containers = deployment["spec"]["template"]["spec"]["containers"]
    assert all(".invalid/" in container["image"] for container in containers)
    given = made()["Deployment", "drawbridge-allocator"]["spec"]["template"]["spec"]["containers"]
    assert tuple(one["image"] for one in given) == IMAGES


def test_no_container_of_the_bridge_may_become_more_than_it_is():
    for container in made()["Deployment", "drawbridge-allocator"]["spec"]["template"]["spec"]["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "no address to listen on is given"),
        (("--plugin", "0.0.0.0:9440"), "not on loopback"),
        (("--extender", "10.0.0.1:9441"), "not on loopback"),
        (("--api", ":9442"), "give --tls-cert, --tls-key and --client-ca"),
        (("--api", "unix:"), "names no socket"),
        (("--api", "127.0.0.1:0", "--tls-cert", "c"), "belong together"),
        (("--api", "127.0.0.1:0", "--client-name", "n"), "give --client-ca"),
        (("--api", "127.0.0.1:0", "--tls-cert", "c", "--tls-key", "k", "--client-ca", "a"), "c cannot be read"),
    ],
)
def test_an_allocator_with_no_or_unprotected_addresses_does_not_start(options, words):
    done = run("allocator", *options)
    assert done.exit_code == 2
    assert words in done.stderr


def test_an_allocator_whose_place_is_taken_says_which_and_what_to_do(tmp_path):
    """Ports are opened before anything is read, so nothing need answer behind the kubeconfig."""
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "users": [], "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}], "current-context": "c"}  # fmt: skip
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket(socket.AF_UNIX) as answered:
        port = f"127.0.0.1:{taken.getsockname()[1]}"
        path = tmp_path / "plugin.sock"
        answered.bind(str(path))
        answered.listen()
        for place, words in ((f"--extender={port}", port.replace(":", "', ")), (f"--plugin=unix:{path}", str(path))):
            done = run("allocator", place, "--metrics-listen=127.0.0.1:0", f"--kubeconfig={kubeconfig}")
            assert done.exit_code == 3
            assert words in done.stderr
            assert "stop the process that uses this address, or choose another one" in done.stderr
