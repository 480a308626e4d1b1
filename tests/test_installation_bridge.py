"""The manifests of the bridge (allocator and scheduler) agree with the code, and the bridge is off by default."""

import pytest

from allocator.service import commits, settings
from analysis.installation import BASE, BRIDGE, render
from cluster import manifests
from tests.cli.running import run, run_manifests

IMAGES = ("registry.example/drawbridge:1", "registry.example/kube-scheduler:v1.37.2")
ENABLED = {"enabled": True, "schedulerImage": IMAGES[1]}


def rendered_objects(namespace="drawbridge-system"):
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in render(BRIDGE, namespace, *IMAGES)}


def stored_objects():
    files = [path for path in sorted(BRIDGE.glob("*.yaml")) if path.name != "kustomization.yaml"]
    return [document.object for document in manifests.read(files)]


@pytest.mark.parametrize("folder", ["bridge", "read-only", "guards"])
def test_a_component_has_the_namespace_of_the_base(folder):
    """kustomize sets the base's namespace only on the objects of the base. A component without a namespace would be created in that of kubectl's context."""
    [base], [component] = (manifests.read([BASE.parent / name / "kustomization.yaml"]) for name in ("base", folder))
    assert component.object["namespace"] == base.object["namespace"]


def test_the_scheduler_may_send_500_requests_per_second():
    """The default is 50 requests per second, and a pod needs two."""
    [configuration] = manifests.parse(manifests.read([BRIDGE / "scheduler.yaml"])[0].object["data"]["scheduler.yaml"])
    assert configuration.object["clientConnection"] == {"qps": 500, "burst": 1000}


def test_the_bridge_is_off_by_default():
    plain = run("manifests", "--image", IMAGES[0])
    enabled = run_manifests("--image", IMAGES[0], bridge=ENABLED)
    assert "drawbridge-allocator" not in plain.stdout
    assert "drawbridge-allocator" in enabled.stdout
    kustomization = manifests.read([BASE / "kustomization.yaml"])[0].object
    assert "components" not in kustomization


def test_a_bridge_without_a_scheduler_image_is_a_usage_error():
    result = run_manifests("--image", IMAGES[0], bridge={"enabled": True})
    assert result.exit_code == 2
    assert "bridge.schedulerImage" in result.stderr


def test_the_lease_policy_names_the_allocators_account_and_lease():
    for namespace in ("drawbridge-system", "elsewhere"):
        objects = rendered_objects(namespace)
        policy = objects["ValidatingAdmissionPolicy", commits.HOLDER_POLICY]["spec"]
        binding = objects["ValidatingAdmissionPolicyBinding", commits.HOLDER_POLICY]["spec"]
        [condition] = policy["matchConditions"]
        assert condition["expression"].endswith(f"'system:serviceaccount:{namespace}:drawbridge-allocator'")
        assert binding["paramRef"] == {
            "name": settings.LEASE,
            "namespace": namespace,
            "parameterNotFoundAction": "Allow",
        }
        assert ("ServiceAccount", "drawbridge-allocator") in objects
        for obj in objects.values():
            for subject in obj.get("subjects", ()):
                assert subject["namespace"] == namespace


def test_taint_rules_are_printed_if_the_configuration_enables_the_fence(tmp_path):
    """The fence is a taint on the bridge's devices, so that other schedulers do not allocate them."""
    from dra.policy import FENCE_TOLERATION

    config = tmp_path / "c.yaml"
    head = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
    for fence, expected_drivers in (("false", []), ("true", ["gpu.example.com", "nic.example.com"])):
        config.write_text(f"{head}bridge: {{schedulerName: drawbridge, drivers: [gpu.example.com, nic.example.com], fence: {fence}}}\n")  # fmt: skip
        result = run_manifests("--image", IMAGES[0], "--config", config, bridge=ENABLED)
        rules = [
            document.object["spec"]
            for document in manifests.parse(result.stdout)
            if document.object["kind"] == "DeviceTaintRule"
        ]
        assert [rule["deviceSelector"]["driver"] for rule in rules] == expected_drivers
        assert ("other schedulers can allocate the bridge's devices" in result.stderr) is (not expected_drivers)
        for rule in rules:
            assert (rule["taint"]["key"], rule["taint"]["effect"]) == (FENCE_TOLERATION.key, FENCE_TOLERATION.effect)


@pytest.mark.parametrize("command_name", ["manifests", "doctor", "check"])
def test_a_fence_with_pods_left_to_kube_scheduler_is_refused(command_name, tmp_path):
    config = tmp_path / "c.yaml"
    head = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
    fence = "bridge: {schedulerName: drawbridge, drivers: [gpu.nvidia.com], fence: true}\n"
    config.write_text(f"{head}{fence}extendedResources: {{default: leave}}\n")
    dump = tmp_path / "dump.yaml"
    dump.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n")
    options = ["--image", IMAGES[0]] if command_name == "manifests" else ["-f", str(dump)]
    result = run(command_name, *options, "--config", str(config))
    assert result.exit_code == 2
    assert "such pods are left to kube-scheduler" in result.stderr
    assert "/extendedResources/default" in result.stderr


def test_images_come_only_from_the_command_line():
    [deployment] = [obj for obj in stored_objects() if obj["kind"] == "Deployment"]
    containers = deployment["spec"]["template"]["spec"]["containers"]
    assert all(".invalid/" in container["image"] for container in containers)
    rendered_containers = rendered_objects()["Deployment", "drawbridge-allocator"]["spec"]["template"]["spec"][
        "containers"
    ]
    assert tuple(container["image"] for container in rendered_containers) == IMAGES
