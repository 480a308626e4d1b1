"""A vendor's memory driver on a real node: a pod's own claim is judged by the published sizes, and allocated.

Huge pages would be taken from the machine, so it has none here. The program is in the directory DRAWBRIDGE_DRIVERS; without it this
is not collected (conftest.py).
"""

import os
from pathlib import Path

import pytest
import yaml

from e2e.actors.webhook import claims_of, results_of
from e2e.actors.workloads import container, pod, template, using_template
from e2e.vendors.pods import gone, runs

pytestmark = [pytest.mark.real, pytest.mark.node]

PROGRAMS = Path(os.environ.get("DRAWBRIDGE_DRIVERS", "/nonexistent"))
EXAMPLE = Path(__file__).parents[2] / "manifests" / "examples" / "drivers" / "dra.memory.yaml"
MEMORY = "dra.memory"
# A shell passes on no variable with a hyphen in its name.
SEE = "tr '\\0' '\\n' < /proc/1/environ; grep Mems_allowed_list /proc/self/status; echo spoken=yes; sleep 600"


def published(cluster):
    """Return the driver's published devices."""
    slices = cluster.get("/apis/resource.k8s.io/v1/resourceslices", fieldSelector=f"spec.driver={MEMORY}")["items"]
    return [device for slice_ in slices for device in slice_["spec"]["devices"]]


def asking(size, namespace):
    request = {"deviceClassName": MEMORY, "capacity": {"requests": {"size": size}}}
    return template("memory", namespace, {"name": "memory", "exactly": request})


def test_a_memory_claim_is_judged_and_pins_the_container(node_cluster, gated, created):
    cluster = node_cluster.cluster
    classes, examples = [], []
    for obj in yaml.safe_load_all(EXAMPLE.read_text()):
        if obj["kind"] == "DeviceClass":
            classes.append(obj)
        else:
            examples += obj["spec"]["devices"]
    created(*classes)
    options = [f"--kubeconfig={cluster.kubeconfig}", f"--hostname-override={node_cluster.name}"]
    driver = node_cluster.spawn("dramemory", [PROGRAMS / "dramemory", *options])
    try:
        device, *_ = cluster.until("memory is published", lambda: driver.check() or published(cluster), 60)
        assert shape(device) == shape(examples[0])
        output = cluster.until("too much is refused", lambda: cluster.refusal(asking("900Ti", gated)), 30)
        assert f"size: 900Ti requested, the device has {device['capacity']['size']['value']}" in output
        cluster.create(asking("64Mi", gated))
        asks = container(command=SEE, resources={"claims": [{"name": "memory"}]})
        claims = [using_template("memory")]
        output = runs(node_cluster, gated, pod("p", gated, asks, node=node_cluster.name, resourceClaims=claims))
        numa = device["attributes"]["resource.kubernetes.io/numaNode"]["int"]
        assert f"_memory=numanode:{numa},size:64Mi" in output
        assert output.splitlines()[-2].split() == ["Mems_allowed_list:", str(numa)]
        [result] = results_of(claims_of(cluster, gated, "p")["memory"])
        assert (result["device"], result["consumedCapacity"]) == (device["name"], {"size": "64Mi"})
        cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
        gone(cluster, gated)
    finally:
        driver.stop()
        cluster.kubectl("delete", "resourceslices", f"--field-selector=spec.driver={MEMORY}")


def shape(device):
    """A device without its name and its amounts."""
    attributes = {name: next(iter(value)) for name, value in device["attributes"].items()}
    policy = device["capacity"]["size"]["requestPolicy"]
    default, least, step = policy["default"], policy["validRange"]["min"], policy["validRange"]["step"]
    size = device["attributes"]["resource.kubernetes.io/pageSize"]
    return attributes, default, least, step, size, device["allowMultipleAllocations"], list(device["capacity"])
