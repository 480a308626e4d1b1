"""What the pages are looked at over: the example fleet, 5,000 nodes, an empty cluster, and a hostile one. Views are addresses of pages of each."""

from functools import cache
from pathlib import Path

import yaml

from analysis.loading import reading_of
from tests.cli.explain.scenes import DRIVER, claim, device_class, fleet, gpus, held, node, phased, pod
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
    return [one for file in files for one in yaml.safe_load_all(file.read_text()) if one]


def large(nodes=5_000, each=8, holders=2_000, waiting=500):
    """A fleet in zones, some of it held, and pods that wait for more than a node has."""
    objects = fleet(nodes, each)
    for at, one in enumerate(obj for obj in objects if obj["kind"] == "Node"):
        one["metadata"]["labels"] = {"topology.kubernetes.io/zone": f"zone-{at % 12}"}
    for at in range(holders):
        name = f"job-{at}"
        for one in (
            held(name, name, on=f"n{at}/gpu-{at % each}"),
            phased(pod(name, name, nodeName=f"n{at}"), "Running"),
        ):
            one["metadata"]["namespace"] = f"team-{at % 20}"
            objects.append(one)
    for at in range(waiting):
        objects += [claim(f"wants-{at}", count=each + 1), pod(f"wants-{at}", f"wants-{at}")]
    return [*objects, QUOTA]


def crowded(*more):
    """One node, one of whose devices is held, and a pod that waits for two."""
    return [*fleet(1, 2), held("c0", "p0"), phased(pod("p0", "c0", nodeName="n0"), "Running"), claim("wants", 2), pod("wants", "wants"), QUOTA, *more]  # fmt: skip


def hostile(waiting=10_000):
    """Markup in whatever a tenant writes freely, names of 63 letters, and 10,000 pods that wait."""
    words = {"labels": {MARKUP: MARKUP}, "annotations": {MARKUP: MARKUP}}
    objects = [device_class(selectors=[{"cel": {"expression": f"device.driver == '{DRIVER}' || '{MARKUP}' == ''"}}])]
    objects += [node(f"{LONG[:62]}{at}") for at in range(3)] + [gpus(f"{LONG[:62]}{at}", 8) for at in range(3)]
    objects += [
        held(LONG, LONG, on=f"{LONG[:62]}0/gpu-0"),
        phased(pod(LONG, LONG, nodeName=f"{LONG[:62]}0"), "Running"),
    ]
    objects += [QUOTA | {"metadata": {"name": LONG, "namespace": LONG}}]
    for at in range(waiting):
        name = f"{LONG[:55]}-{at}"
        said = {"type": "PodScheduled", "status": "False", "reason": MARKUP, "message": f"{MARKUP} {LONG} {at % 7}"}
        one = phased(pod(name, "gone"), "Pending", conditions=[said], message=MARKUP)
        one["spec"]["containers"][0] |= {"name": MARKUP, "image": MARKUP}
        objects.append(one)
    for one in objects:
        one["metadata"] = {**one["metadata"], **words}
        if one["kind"] in ("Pod", "ResourceClaim", "DeviceQuota"):
            one["metadata"]["namespace"] = LONG
    for one in objects[:3]:
        one["metadata"]["labels"] = words["labels"] | {"topology.kubernetes.io/zone": MARKUP}
    return objects


FLEETS = {"example": example, "large": large, "empty": list, "hostile": hostile}


@cache
def scene(name):
    return reading_of(FLEETS[name](), Features())


def views(name):
    """Addresses of each kind of page: where there is none of a kind, the page says so."""
    found = scene(name)
    pods = sorted(found.pods)
    some = [*pods[:1], *pods[-1:]]
    nodes = sorted(found.stock.nodes)[:1]
    paths = [*ALWAYS, *(f"/pods/{one}" for one in some), *(f"/namespaces/{one.partition('/')[0]}" for one in some[:1])]
    paths += [f"/claims/{one}" for one in sorted(found.stock.claims)[:1]]
    paths += [path for one in nodes for path in (f"/nodes/{one}", f"/nodes/{one}/together")]
    return list(dict.fromkeys(paths))
