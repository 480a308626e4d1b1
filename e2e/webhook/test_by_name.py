"""Pods with extended resources that the scheduler serves, on NVIDIA's class: judged by the scheduler's claim, or translated."""

import pytest

from dra import wire
from dra.objects import DeviceClass, Pod, extended_claim, serve_resources
from e2e.actors import fleet
from e2e.actors.webhook import CONFIGURATION, claims_of
from e2e.actors.workloads import container, limits, pod

pytestmark = pytest.mark.real
NODE = "by-name-webhook-0"
GPU = "nvidia.com/gpu"
IMPLICIT = f"deviceclass.resource.kubernetes.io/{fleet.NVIDIA}"
OTHER = "by-name-other"  # a class without its own name
TRANSLATES = f"{CONFIGURATION}\nextendedResources: {{drivers: {{{fleet.NVIDIA}: translate}}}}\n"


@pytest.fixture(scope="module")
def gpus(control_plane, webhook):
    """One node with two GPUs."""
    other = fleet.device_class(OTHER, f"device.driver == '{fleet.NVIDIA}'")
    made = [*fleet.slices(fleet.NVIDIA, NODE, fleet.whole_gpus(2), by_name=True), *fleet.classes(), other]
    try:
        control_plane.add_fake_nodes(1, prefix="by-name-webhook-")
        control_plane.create(*made)
        webhook.reads_on(NODE)
        yield [obj for obj in made if obj["kind"] == "DeviceClass"]
    finally:
        control_plane.remove(*made, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


def asking(name, namespace, count, key=GPU, **spec):
    return pod(name, namespace, container(**limits(**{key: count})), **spec)


def made_by_core(control_plane, stored):
    claims = control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{stored['metadata']['namespace']}/resourceclaims")
    uid = stored["metadata"]["uid"]
    [made] = [claim for claim in claims["items"] if claim["metadata"]["ownerReferences"][0]["uid"] == uid]
    return made


@pytest.mark.parametrize("key", [GPU, IMPLICIT])
def test_a_request_above_the_largest_node_is_refused(control_plane, gpus, gated, key):
    """A smaller request is served."""
    message = control_plane.refusal(asking("three", gated, 3, key))
    assert "[R023]" in message
    assert fleet.NVIDIA in message
    control_plane.create(asking("two", gated, 2, key))
    served = control_plane.wait_scheduled(gated, "two")
    assert served["spec"].get("resourceClaims") is None
    assert served["status"]["extendedResourceClaimStatus"]


def test_pods_are_judged_by_the_claim_that_core_creates(control_plane, gpus, gated):
    def some(name, key, **more):
        return {**container(name, **limits(**{key: 1, "cpu": "1m"})), **more}

    implicit = f"deviceclass.resource.kubernetes.io/{OTHER}"
    item = pod("p", gated, some("main", GPU))
    item["spec"]["initContainers"] = [
        some("short", GPU),
        some("sidecar", implicit, restartPolicy="Always"),
        some("later", implicit),
    ]
    # The last init container starts after the sidecar, so three devices are needed; without it, two will do.
    assert "[R02" in control_plane.refusal(item)
    item["metadata"]["name"] = "q"
    del item["spec"]["initContainers"][2]
    control_plane.create(item)
    stored = control_plane.wait_scheduled(gated, "q")
    made = made_by_core(control_plane, stored)
    serving = serve_resources(wire.convert(device_class, DeviceClass) for device_class in gpus)
    foretold = extended_claim(wire.convert(stored, Pod), serving)
    assert made["spec"] == wire.builtins(foretold.claim.spec)
    assert made["metadata"]["generateName"] == foretold.claim.metadata.generate_name
    assert made["metadata"]["annotations"] == foretold.claim.metadata.annotations
    mappings = stored["status"]["extendedResourceClaimStatus"]["requestMappings"]
    assert mappings == [wire.builtins(mapping) for mapping in foretold.mappings]


def test_the_setting_translates_new_pods_and_leaves_existing_pods(control_plane, webhook, gpus, gated):
    control_plane.create(asking("left", gated, 1))
    before = control_plane.wait_scheduled(gated, "left")
    try:
        webhook.follow(TRANSLATES)
        control_plane.create(asking("translated", gated, 1))
        after = control_plane.wait_scheduled(gated, "translated")
        assert claims_of(control_plane, gated, "translated")
        assert "extendedResourceClaimStatus" not in after["status"]
        stays = asking("stays", gated, 1)
        stays["metadata"]["annotations"] = {"drawbridge.dev/extended-resources": "leave"}
        [kept] = control_plane.create(stays, dryRun="All")
        assert "resourceClaims" not in kept["spec"]
        assert control_plane.get(f"/api/v1/namespaces/{gated}/pods/left")["spec"] == before["spec"]
    finally:
        webhook.follow(CONFIGURATION)
    [again] = control_plane.create(asking("again", gated, 1), dryRun="All")
    assert "resourceClaims" not in again["spec"]
    assert control_plane.get(f"/api/v1/namespaces/{gated}/pods/translated")["spec"] == after["spec"]
