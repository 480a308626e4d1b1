"""Pods with Koordinator's keys and hints, and fleets that have the devices for them."""

import json

from dra.objects import DeviceClass, ResourceSlice
from tests.objects import device_class, resource_slice, typed
from tests.webhook.pods import KOORD, UNKNOWN, pod, verdict_of
from webhook.state import Inventory

JOINT = "scheduling.koordinator.sh/device-joint-allocate"
HINT = "scheduling.koordinator.sh/device-allocate-hint"
PARTITION = "scheduling.koordinator.sh/gpu-partition-spec"
TOPOLOGY = "scheduling.koordinator.sh/numa-topology-spec"
BINDING = "scheduling.koordinator.sh/resource-spec"


def koordinator_pod_with_fields(*limits: dict, **fields) -> dict:
    """Return a pod for Koordinator's scheduler; `fields` are arguments of `tests.webhook.pods.pod`, such as complete annotations."""
    keys = ({KOORD + key: amount for key, amount in limit.items()} for limit in limits)
    return pod(*keys, scheduler="koord-scheduler", **fields)


def koordinator_pod(*limits: dict, **annotations: object) -> dict:
    """Return a pod for Koordinator's scheduler. The keys of its annotations are `scheduling.koordinator.sh/` and the names in `annotations`."""
    texts = {f"scheduling.koordinator.sh/{k.replace('_', '-')}": json.dumps(v) for k, v in annotations.items()}
    return koordinator_pod_with_fields(*limits, annotations=texts)


CORE_AND_MEMORY = {"gpu-core": 50, "gpu-memory": "8Gi"}


def koordinator_verdict(*limits: dict, fleet=UNKNOWN, hints: dict | None = None, config: dict | None = None):
    """Return the verdict on a pod for Koordinator's scheduler. `hints` has the values of annotations by their whole keys, `config` the fields of the configuration."""
    annotations = {key: json.dumps(hint) for key, hint in (hints or {}).items()}
    return verdict_of(koordinator_pod_with_fields(*limits, annotations=annotations), fleet=fleet, **(config or {}))


def fleet_of(*published: tuple[str, str, list[dict]]) -> Inventory:
    """Return a fleet with one node. Each argument has a driver, the name of the class for its devices, and the devices that it publishes."""
    return Inventory.gather(classes_of(published), slices_of("n", published), ())


def classes_of(published: tuple[tuple[str, str, list[dict]], ...]) -> list[DeviceClass]:
    drivers = {name: driver for driver, name, _ in published}
    return [typed(device_class(name, f"device.driver == '{driver}'")) for name, driver in drivers.items()]


def slices_of(node: str, published: tuple[tuple[str, str, list[dict]], ...]) -> list[ResourceSlice]:
    return [
        typed(resource_slice(f"{node}-{driver}", *devices, driver=driver, pool=f"{node}-{driver}", nodeName=node))
        for driver, _, devices in published
    ]


SAME_PCIE = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}


def details_about(verdict, key: str) -> str:
    """Return the details of all decisions on a key."""
    return "; ".join(decision.detail for decision in verdict.decisions if decision.key == key)
