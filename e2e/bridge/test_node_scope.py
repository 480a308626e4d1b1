"""A DeviceCompatibility with `scope: node` on a real control plane.

A driver has two pools on a node, and devices of one pool must not be in use together with devices of the other. Devices have the same
names in both pools, so that only the rule decides which pods exclude each other.
"""

import json

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.workloads import claim, compatibility, pod, request, using

pytestmark = pytest.mark.real
DRIVER = "span.example.com"
NODE = "span-0"
KINDS = ("sealed", "open")
IS_SEALED = f'device.attributes["{DRIVER}"].kind == "sealed"'
RULE = "span-sealed"


def objects():
    """Two pools, a class for the devices of each, and the rule: beside a sealed device, only sealed devices may be in use."""
    result = [compatibility(RULE, driver=DRIVER, selector=IS_SEALED, compatibleOnlyWith=IS_SEALED, scope="node")]
    for kind in KINDS:
        devices = [fleet.device("d0", {"kind": kind}), fleet.device("d1", {"kind": kind})]
        result += fleet.slices(DRIVER, NODE, devices, pool=f"span-{kind}", by_name=True)
        expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].kind == "{kind}"'
        result.append(fleet.device_class(f"span-{kind}", expression))
    return result


@pytest.fixture
def two_pools(control_plane, created):
    control_plane.add_fake_nodes(1, prefix="span-")
    try:
        created(*objects())
        yield
    finally:
        control_plane.remove({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


@pytest.fixture
def own_namespace(control_plane, namespace):
    """A namespace whose pods are deleted after the test, because no kubelet ends them."""
    yield namespace
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)


def claim_and_pod(name, kind, namespace, scheduler):
    """A claim for a device of one kind, and a pod that uses it."""
    claim_ = claim(name, namespace, request("one", f"span-{kind}"))
    return claim_, pod(name, namespace, schedulerName=scheduler, resourceClaims=[using(name)])


def status(cluster):
    return cluster.get(f"/apis/drawbridge.dev/v1alpha1/devicecompatibilities/{RULE}").get("status", {})


def test_a_pod_waits_for_devices_in_another_pool(control_plane, bridge, two_pools, own_namespace):
    expected = {"observedGeneration": 1, "devices": 2, "findings": []}
    control_plane.until("the rule's status counts two devices", lambda: status(control_plane) == expected, 60)
    control_plane.create(*claim_and_pod("first", "open", own_namespace, SCHEDULER))
    control_plane.wait_scheduled(own_namespace, "first")
    control_plane.create(*claim_and_pod("second", "sealed", own_namespace, SCHEDULER))

    def is_explained():
        words = (f"DeviceCompatibility/{RULE}", f"{own_namespace}/first")
        return any(all(word in event for word in words) for event in control_plane.events(own_namespace, "second"))

    control_plane.until("an event names the conflicting device and its holder", is_explained, 60)
    control_plane.create(*claim_and_pod("third", "open", own_namespace, SCHEDULER))
    control_plane.wait_scheduled(own_namespace, "third")
    for name in ("first", "third"):
        control_plane.delete(f"/api/v1/namespaces/{own_namespace}/pods/{name}", gracePeriodSeconds=0)
    pod_ = control_plane.wait_scheduled(own_namespace, "second", 60)
    assert pod_["spec"]["nodeName"] == NODE


def test_the_webhook_refuses_claims_that_a_node_rule_never_allows(control_plane, two_pools, gated):
    def refusal(*kinds):
        claim_ = claim("both", gated, *(request(f"r{index}", f"span-{kind}") for index, kind in enumerate(kinds)))
        result = control_plane.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(claim_), check=False)
        return result.stderr

    def refuses_only_both():
        """Return whether a claim for both kinds is refused, and claims for one kind are not, as they would be for an unknown pool."""
        message = refusal("sealed", "open")
        both_refused = "(Forbidden)" in message and "[R02" in message
        return both_refused and refusal("sealed", "sealed") == "" and refusal("open", "open") == ""

    control_plane.until("the webhook refuses only claims for both kinds", refuses_only_both, 60)
