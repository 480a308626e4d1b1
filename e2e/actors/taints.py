"""Waits until the default scheduler follows taint rules: it watches rules, slices and pods separately, and each watch may lag."""

import itertools
import secrets

from e2e.actors import fleet
from e2e.actors.client import Client, Object, conditions
from e2e.actors.workloads import claim, pod, request, using
from e2e.ground.controlplane import ControlPlane

# The scheduler's message for a tainted device; no other lagging watch causes it.
NO_DEVICE = "cannot allocate all claims"


def until_taint_rules_are_followed(cluster: ControlPlane) -> None:
    """Wait until the default scheduler follows every rule that is stored.

    The scheduler's watch delivers rules in the order of their creation. So this function creates one more rule. Once no pod gets the
    device that this rule taints, the scheduler follows all earlier rules, too.
    """
    name = f"witness-{secrets.token_hex(4)}"
    driver = f"{name}.example.com"
    capacity = fleet.shared("1000000", minimum="1", step="1", default="1")
    device = fleet.device("shared", {}, {"parts": capacity}, allowMultipleAllocations=True)
    objects = [
        *fleet.slices(driver, f"{name}-0", [device], by_name=True),
        fleet.device_class(name, f"device.driver == '{driver}'"),
    ]
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {"deviceSelector": {"driver": driver}, "taint": {"key": "example.com/witness", "effect": "NoSchedule"}},
    }
    numbers = itertools.count()

    def pod_gets_device() -> bool:
        return gets_device(cluster, name, f"pod-{next(numbers)}")

    cluster.namespace(name)
    nodes = cluster.add_fake_nodes(1, prefix=f"{name}-")
    try:
        cluster.create(*objects)
        cluster.until("the default scheduler gives a pod the device of the test's own driver", pod_gets_device)
        cluster.create(rule)
        cluster.until("the default scheduler follows the new taint rule", lambda: not pod_gets_device())
    finally:
        cluster.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
        cluster.remove(
            rule, *objects, *({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}} for node in nodes)
        )
        cluster.delete(f"/api/v1/namespaces/{name}")


def gets_device(cluster: Client, name: str, item: str) -> bool:
    """Return whether a new pod gets a device: it has a node, or the scheduler has reported that there is no device for it."""
    cluster.create(claim(item, name, request("any", name)), pod(item, name, resourceClaims=[using(item)]))
    pod_ = cluster.pod_condition(name, item, is_decided, "decided about", 30)
    return bool(pod_["spec"].get("nodeName"))


def is_decided(item: Object) -> bool:
    messages = (condition.get("message", "") for condition in conditions(item) if condition["type"] == "PodScheduled")
    return bool(item["spec"].get("nodeName")) or any(NO_DEVICE in words for words in messages)
