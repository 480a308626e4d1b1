"""The fleets of the pages: the example, 5,000 nodes, an empty cluster, and a hostile one; and the addresses of their pages."""

from functools import cache
from pathlib import Path

import yaml

from analysis.loading import reading_of
from tests.cli.explain.scenes import DRIVER, claim, device_class, fleet, gpus, held_claim, in_phase, node, pod
from webhook.state import Features

EXAMPLES = Path(__file__).parents[3] / "manifests/examples"
MARKUP = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'&\u202e\x1b[31m"
LONG = "a" * 63
QUOTA = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceQuota", "metadata": {"name": "gpus", "namespace": "default"}, "spec": {"limits": [{"key": "gpu", "hard": "100", "devices": {}}]}}  # fmt: skip
ALWAYS = (
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
SINCE = "2026-11-20T08:00:00Z"


def example():
    files = [*sorted((EXAMPLES / "fleet").glob("*.yaml")), *sorted((EXAMPLES / "pods").glob("*.yaml"))]
    return [obj for file in files for obj in yaml.safe_load_all(file.read_text()) if obj]


def large(nodes=5_000, each=8, holders=2_000, waiting=500):
    """A fleet in zones with some held devices, and pods that request more devices than a node has."""
    objects = fleet(nodes, each)
    for i, obj in enumerate(obj for obj in objects if obj["kind"] == "Node"):
        obj["metadata"]["labels"] = {"topology.kubernetes.io/zone": f"zone-{i % 12}"}
    for i in range(holders):
        name = f"job-{i}"
        for obj in (
            held_claim(name, name, on=f"n{i}/gpu-{i % each}"),
            in_phase(pod(name, name, nodeName=f"n{i}"), "Running"),
        ):
            obj["metadata"]["namespace"] = f"team-{i % 20}"
            objects.append(obj)
    for i in range(waiting):
        objects += [claim(f"wants-{i}", count=each + 1), pod(f"wants-{i}", f"wants-{i}")]
    return [*objects, QUOTA]


def crowded(*more):
    """A node with one held device, and a pod that waits for two devices."""
    return [*fleet(1, 2), held_claim("c0", "p0"), in_phase(pod("p0", "c0", nodeName="n0"), "Running"), claim("wants", 2), pod("wants", "wants"), QUOTA, *more]  # fmt: skip


def hostile(waiting=10_000):
    """Markup in every text that a tenant writes, names of 63 letters, and 10,000 waiting pods."""
    words = {"labels": {MARKUP: MARKUP}, "annotations": {MARKUP: MARKUP}}
    objects = [device_class(selectors=[{"cel": {"expression": f"device.driver == '{DRIVER}' || '{MARKUP}' == ''"}}])]
    objects += [node(f"{LONG[:62]}{i}") for i in range(3)] + [gpus(f"{LONG[:62]}{i}", 8) for i in range(3)]
    objects += [
        held_claim(LONG, LONG, on=f"{LONG[:62]}0/gpu-0"),
        in_phase(pod(LONG, LONG, nodeName=f"{LONG[:62]}0"), "Running"),
    ]
    objects += [QUOTA | {"metadata": {"name": LONG, "namespace": LONG}}]
    for i in range(waiting):
        name = f"{LONG[:55]}-{i}"
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": MARKUP,
            "message": f"{MARKUP} {LONG} {i % 7}",
        }
        obj = in_phase(pod(name, "gone"), "Pending", conditions=[condition], message=MARKUP)
        obj["spec"]["containers"][0] |= {"name": MARKUP, "image": MARKUP}
        objects.append(obj)
    for obj in objects:
        obj["metadata"] = {**obj["metadata"], **words}
        if obj["kind"] in ("Pod", "ResourceClaim", "DeviceQuota"):
            obj["metadata"]["namespace"] = LONG
    for obj in objects[:3]:
        obj["metadata"]["labels"] = words["labels"] | {"topology.kubernetes.io/zone": MARKUP}
    return objects


FLEETS = {"example": example, "large": large, "empty": list, "hostile": hostile}


@cache
def scene(name):
    return reading_of(FLEETS[name](), Features())


def views(name):
    """Return addresses of each kind of page. A kind of object that the fleet does not have has no address."""
    reading = scene(name)
    pods = sorted(reading.pods)
    some = [*pods[:1], *pods[-1:]]
    nodes = sorted(reading.stock.nodes)[:1]
    paths = [*ALWAYS, *(f"/pods/{key}" for key in some), *(f"/namespaces/{key.partition('/')[0]}" for key in some[:1])]
    paths += [f"/claims/{key}" for key in sorted(reading.stock.claims)[:1]]
    paths += [path for name_of_node in nodes for path in (f"/nodes/{name_of_node}", f"/nodes/{name_of_node}/together")]
    return list(dict.fromkeys(paths))
