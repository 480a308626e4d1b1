"""Fleets for tests of pages (the example, 5,000 nodes, an empty and a hostile fleet), and the paths of their pages."""

from functools import cache
from pathlib import Path

import yaml

from analysis.loading import reading_of
from tests.cli.explain.scenes import DRIVER, claim, device_class, fleet, gpus, held_claim, in_phase, node, pod
from webhook.state import Features

EXAMPLES = Path(__file__).parents[3] / "manifests/examples"
MARKUP = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'&\u202e\x1b[31m"
LONG_NAME = "a" * 63
DEVICE_QUOTA = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceQuota", "metadata": {"name": "gpus", "namespace": "default"}, "spec": {"limits": [{"key": "gpu", "hard": "100", "devices": {}}]}}  # fmt: skip
FIXED_PATHS = (  # of pages that exist for every fleet
    "/",
    "/?colour=namespace",
    "/?by=+&shelf=all+nodes&colour=namespace",
    "/waiting",
    "/together",
    "/?colour=health",
    "/quota",
    "/move",
    "/history",
    "/what-if",
    "/api",
    "/find?q=a",
    "/pods/none/none",
)


def example_fleet():
    files = [*sorted((EXAMPLES / "fleet").glob("*.yaml")), *sorted((EXAMPLES / "pods").glob("*.yaml"))]
    return [obj for file in files for obj in yaml.safe_load_all(file.read_text()) if obj]


def large_fleet(nodes=5_000, devices_per_node=8, holders=2_000, waiting=500):
    """Return a fleet in zones with some held devices, and pods that request more devices than a node has."""
    objects = fleet(nodes, devices_per_node)
    for i, obj in enumerate(obj for obj in objects if obj["kind"] == "Node"):
        obj["metadata"]["labels"] = {"topology.kubernetes.io/zone": f"zone-{i % 12}"}
    for i in range(holders):
        name = f"job-{i}"
        for obj in (
            held_claim(name, name, on=f"n{i}/gpu-{i % devices_per_node}"),
            in_phase(pod(name, name, nodeName=f"n{i}"), "Running"),
        ):
            obj["metadata"]["namespace"] = f"team-{i % 20}"
            objects.append(obj)
    for i in range(waiting):
        objects += [claim(f"wants-{i}", count=devices_per_node + 1), pod(f"wants-{i}", f"wants-{i}")]
    return [*objects, DEVICE_QUOTA]


def plugin_pod(name, node, amount):
    limits = {"example.com/card": str(amount)}
    return pod(name, nodeName=node) | {"spec": {"nodeName": node, "containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}]}}  # fmt: skip


def busy_fleet():
    """Return 24 nodes in racks: held and shared devices, devices of a plugin, a cordoned node, partitioned cards, and pods that wait for minutes to days."""
    objects = [*example_fleet(), *fleet(17, 8), node("plugin-1", allocatable={"nvidia.com/gpu": "8"})]
    objects += [in_phase(plugin_pod(f"batch-{i}", "plugin-1", amount), "Running") for i, amount in enumerate((4, 2))]
    for i, count in enumerate((8, 8, 8, 6, 4, 8, 1, 0, 3, 8, 8, 2, 0, 8, 5)):
        for j in range(count):
            name, share = f"train-{i}-{j}", {"memory": f"{30 + 4 * j}Gi"} if i in (3, 8) else None
            objects += [
                held_claim(name, name, on=f"n{i}/gpu-{j}", share=share, since="2026-12-01T08:00:00Z"),
                in_phase(pod(name, name, nodeName=f"n{i}"), "Running"),
            ]
    partition = held_claim("slice", "slice", on="slice-1/gpu-0-mig-1g-5gb-0", since="2026-11-30T09:00:00Z")
    partition["status"]["allocation"]["devices"]["results"][0]["driver"] = "gpu.nvidia.com"
    objects += [partition, in_phase(pod("slice", "slice", nodeName="slice-1"), "Running")]
    for i, created in enumerate(("2026-11-28T08:00:00Z", "2026-12-01T05:00:00Z", "2026-12-01T08:55:00Z")):
        objects += [claim(f"wants-{i}", count=4 * i + 6), pod(f"wants-{i}", f"wants-{i}")]
        objects[-1]["metadata"]["creationTimestamp"] = created
    for i, obj in enumerate(obj for obj in objects if obj["kind"] == "Node"):
        obj["metadata"].setdefault("labels", {})["topology.kubernetes.io/rack"] = f"rack-{i // 8 + 1}"
        if obj["metadata"]["name"] == "n15":
            obj["spec"] = {"unschedulable": True}
    for slice_ in (
        obj for obj in objects if obj["kind"] == "ResourceSlice" and obj["spec"].get("nodeName", "")[:1] == "n"
    ):
        for device in slice_["spec"]["devices"]:
            device["attributes"] = {"productName": {"string": "NVIDIA H100 80GB HBM3"}}
            device.update(allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})
    return objects


def fleet_with_waiting_pod():
    """Return a node of which one of two devices is held, and a pod that waits for two devices."""
    return [*fleet(1, 2), held_claim("c0", "p0"), in_phase(pod("p0", "c0", nodeName="n0"), "Running"), claim("wants", 2), pod("wants", "wants"), DEVICE_QUOTA]  # fmt: skip


def hostile_fleet(waiting=10_000):
    """Return objects with markup in every text that a tenant writes, names of 63 letters, and 10,000 waiting pods."""
    markup = {"labels": {MARKUP: MARKUP}, "annotations": {MARKUP: MARKUP}}
    objects = [device_class(selectors=[{"cel": {"expression": f"device.driver == '{DRIVER}' || '{MARKUP}' == ''"}}])]
    objects += [node(f"{LONG_NAME[:62]}{i}") for i in range(3)] + [gpus(f"{LONG_NAME[:62]}{i}", 8) for i in range(3)]
    objects += [
        held_claim(LONG_NAME, LONG_NAME, on=f"{LONG_NAME[:62]}0/gpu-0"),
        in_phase(pod(LONG_NAME, LONG_NAME, nodeName=f"{LONG_NAME[:62]}0"), "Running"),
    ]
    objects += [DEVICE_QUOTA | {"metadata": {"name": LONG_NAME, "namespace": LONG_NAME}}]
    for i in range(waiting):
        name = f"{LONG_NAME[:55]}-{i}"
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": MARKUP,
            "message": f"{MARKUP} {LONG_NAME} {i % 7}",
        }
        obj = in_phase(pod(name, "gone"), "Pending", conditions=[condition], message=MARKUP)
        obj["spec"]["containers"][0] |= {"name": MARKUP, "image": MARKUP}
        objects.append(obj)
    for obj in objects:
        obj["metadata"] = {**obj["metadata"], **markup}
        if obj["kind"] in ("Pod", "ResourceClaim", "DeviceQuota"):
            obj["metadata"]["namespace"] = LONG_NAME
    for obj in objects[:3]:
        obj["metadata"]["labels"] = markup["labels"] | {"topology.kubernetes.io/zone": MARKUP}
    return objects


FLEETS = {"busy": busy_fleet, "example": example_fleet, "large": large_fleet, "empty": list, "hostile": hostile_fleet}


@cache
def reading_of_fleet(name):
    return reading_of(FLEETS[name](), Features())


def page_paths(fleet_name):
    """Return addresses of each kind of page. A kind of object that the fleet does not have has no address."""
    reading = reading_of_fleet(fleet_name)
    pods = sorted(reading.pods)
    chosen_pods = [*pods[:1], *pods[-1:]]
    node_names = sorted(reading.stock.nodes)[:1]
    paths = [
        *FIXED_PATHS,
        *(f"/pods/{key}" for key in chosen_pods),
        *(f"/namespaces/{key.partition('/')[0]}" for key in chosen_pods[:1]),
    ]
    paths += [f"/claims/{key}" for key in sorted(reading.stock.claims)[:1]]
    paths += [path for name in node_names for path in (f"/nodes/{name}", f"/nodes/{name}/together")]
    return list(dict.fromkeys(paths))
