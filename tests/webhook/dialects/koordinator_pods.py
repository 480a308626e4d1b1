"""Pods with Koordinator's keys and hints, and the fleets that serve them."""

import json

from dra import wire
from dra.objects import DeviceClass, ResourceSlice
from tests.webhook.pods import KOORD, UNKNOWN, pod, verdict_of
from webhook.state import Inventory

JOINT = "scheduling.koordinator.sh/device-joint-allocate"
HINT = "scheduling.koordinator.sh/device-allocate-hint"
PARTITION = "scheduling.koordinator.sh/gpu-partition-spec"
TOPOLOGY = "scheduling.koordinator.sh/numa-topology-spec"
BINDING = "scheduling.koordinator.sh/resource-spec"


def koordinator_pod(*limits: dict, **annotations: object) -> dict:
    """Return a pod for Koordinator's scheduler; the names of `annotations` follow `scheduling.koordinator.sh/`."""
    return pod(
        *({KOORD + key: amount for key, amount in limit.items()} for limit in limits),
        annotations={f"scheduling.koordinator.sh/{k.replace('_', '-')}": json.dumps(v) for k, v in annotations.items()},
        scheduler="koord-scheduler",
    )


BOTH = {"gpu-core": 50, "gpu-memory": "8Gi"}


def koordinator(*limits: dict, fleet=UNKNOWN, hints: dict | None = None, config: dict | None = None):
    value = pod(
        *({KOORD + key: amount for key, amount in limit.items()} for limit in limits),
        annotations={key: json.dumps(hint) for key, hint in (hints or {}).items()},
        scheduler="koord-scheduler",
    )
    return verdict_of(value, fleet=fleet, **(config or {}))


def spoken(*containers: dict, **more) -> dict:
    limits = [{KOORD + key: value for key, value in each.items()} for each in containers]
    return pod(*limits, scheduler="koord-scheduler", **more)


def seen(*published: tuple[str, str, list[dict]]) -> Inventory:
    """Return a fleet with one node on which drivers publish devices, and a class for all devices of each driver."""
    return Inventory.gather(classes_of(published), slices_of("n", published), ())


def classes_of(published: tuple[tuple[str, str, list[dict]], ...]) -> list[DeviceClass]:
    chosen = {name: {"cel": {"expression": f"device.driver == '{driver}'"}} for driver, name, _ in published}
    return [
        wire.convert({"metadata": {"name": name}, "spec": {"selectors": [selector]}}, DeviceClass)
        for name, selector in chosen.items()
    ]


def slices_of(node: str, published: tuple[tuple[str, str, list[dict]], ...]) -> list[ResourceSlice]:
    slices = []
    for driver, _, devices in published:
        pool = {"name": f"{node}-{driver}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
        slices.append(wire.convert({"metadata": {"name": f"{node}-{driver}"}, "spec": spec}, ResourceSlice))
    return slices


SAME = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}


def detail(done, key: str) -> str:
    return "; ".join(decision.detail for decision in done.decisions if decision.key == key)
