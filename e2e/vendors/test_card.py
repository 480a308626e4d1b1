"""Pods on the card of NVIDIA's GPU driver that DRAWBRIDGE_CARD names, by way of the webhook, our scheduler and NVIDIA's DRA driver.

Without DRAWBRIDGE_CARD the GPU driver is the one without hardware (hardware.py). Every pod takes all GPUs of the node, so the tests
are the same for one GPU and for several. Each prints what it saw: `pytest -rP` shows it.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.webhook import COMMAND, claims_of, known, results_of
from e2e.actors.workloads import limits, pod, request, template, using_template
from e2e.ground.images import Image, add, busybox, layer, write
from e2e.ground.product import libraries_of
from e2e.vendors import nvidia
from e2e.vendors.pods import gone
from tests.webhook.dialects.test_published import unpublished

pytestmark = [pytest.mark.real, pytest.mark.node]
IMAGE = "localhost/card:e2e"
CONFIGURATION = f"""\
apiVersion: drawbridge.dev/v1alpha1
kind: DrawbridgeConfiguration
mode: enforce
extendedResources: {{{{default: {{left}}}}}}
bridge: {{{{schedulerName: {SCHEDULER}, drivers: [{fleet.NVIDIA}]}}}}
"""
# Stub libraries that NVIDIA's libraries name. The linker omits them: glibc 2.34 has their functions in libc.so.6.
PARTS = ("libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1")


@pytest.fixture(scope="module")
def driver(node_cluster, card_root):
    with nvidia.installed(node_cluster, card_root) as running:
        yield running


@pytest.fixture(scope="module")
def scheduler(control_plane, bridge):
    return bridge.processes["scheduler"]


@pytest.fixture(scope="module")
def image(node_cluster):
    """The image of card.c, with the C library that this machine has."""
    root = node_cluster.cluster.run.data
    built = root / "card"
    subprocess.run(["cc", "-O1", "-o", built, Path(__file__).with_name("card.c")], check=True, timeout=60)

    def fill(tar):
        add(tar, "bin/card", built.read_bytes(), 0o755)
        libraries = {Path(library) for library in libraries_of([built])}
        [libc] = [library for library in libraries if library.name.startswith("libc.so")]
        for library in sorted(libraries | {libc.with_name(name) for name in PARTS}):
            tar.add(library.resolve(), str(library).lstrip("/"))

    layers = [busybox(), layer(root / "card-layer.tar", fill)]
    write(root / "card.tar", [Image(IMAGE, layers, {"Env": ["PATH=/bin:/usr/bin"]})])
    node_cluster.import_images(root / "card.tar")


@pytest.fixture
def configure(webhook, driver, scheduler, image):
    """Give the webhook a configuration until the test ends."""

    def apply(left):
        webhook.follow(CONFIGURATION.format(left=left))
        webhook.register(f"--config={webhook.config}")
        webhook.cluster.until("every webhook is called", webhook.is_called, 30)

    yield apply
    webhook.register()
    webhook.follow("apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: enforce\n")


@pytest.fixture
def home(node_cluster, configure, gated):
    """A namespace in which pods for device plugins are translated; its devices are free again afterwards."""
    configure("translate")
    yield gated
    node_cluster.cluster.delete(f"/api/v1/namespaces/{gated}/pods")
    gone(node_cluster.cluster, gated)


def program_of(name="main", **fields):
    """A container that shows its GPUs and holds them."""
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", "ls /dev | grep nvidia; nvidia-smi -L; exec card"],
        **fields,
    }


def wanting(name, namespace, node, count):
    """A pod as it is written for the device plugin."""
    return pod(name, namespace, program_of(**limits(**{"nvidia.com/gpu": count})), node=node.name)


def saw(node, namespace, name):
    """Return the UUID and name of each GPU that a container saw."""
    output = node.output_of(namespace, name)
    print(f"{name} printed:\n{output}")
    lines = [line.split(" ", 2) for line in output.splitlines()]
    return sorted((line[0], line[2]) for line in lines if len(line) == 3 and line[1].isdigit())


def allocated(cluster, namespace, name, driver):
    """Return the UUID and name that the driver has published of each device in a pod's claim."""
    (claim,) = claims_of(cluster, namespace, name).values()
    print(f"{name} has:", json.dumps(claim["status"], indent=1))
    devices = driver.devices()
    facts = [devices[result["device"]] for result in results_of(claim)]
    return sorted((fact_of(fact, "uuid"), fact_of(fact, "productName")) for fact in facts)


def fact_of(device, name):
    [value] = device["attributes"][name].values()
    return value


def drawbridge(cluster, *args):
    """Run a command on the cluster and return what it printed."""
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run(
        [*COMMAND, *map(str, args)], capture_output=True, text=True, check=False, timeout=60, env=environment
    )
    print(f"drawbridge {' '.join(map(str, args))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def test_the_driver_publishes_devices_like_our_examples(driver):
    slices = driver.slices()
    print(json.dumps(slices, indent=1))
    assert driver.devices()
    assert unpublished([{"kind": "ResourceSlice"} | slice_ for slice_ in slices]) == []


def test_a_device_plugin_pod_sees_the_gpus_of_its_claim(node_cluster, driver, home):
    cluster, count = node_cluster.cluster, len(driver.devices())
    cluster.create(known(cluster, wanting("p", home, node_cluster, count)))
    cluster.wait_phase(home, "p", "Running", seconds=60)
    seen = saw(node_cluster, home, "p")
    assert seen == allocated(cluster, home, "p", driver)
    assert len(seen) == count
    ran = cluster.get(f"/api/v1/namespaces/{home}/pods/p")
    print(json.dumps({"annotations": ran["metadata"]["annotations"], "spec": ran["spec"]}, indent=1))
    assert ran["spec"]["schedulerName"] == SCHEDULER
    for file in node_cluster.outside("/run/cdi").glob("*gpu.nvidia.com*"):
        print(file.name, file.read_text())


def test_a_second_pod_waits_until_the_gpus_are_free(node_cluster, driver, home):
    cluster, count = node_cluster.cluster, len(driver.devices())
    cluster.create(known(cluster, wanting("p", home, node_cluster, count)))
    cluster.wait_phase(home, "p", "Running", seconds=60)
    cluster.create(wanting("q", home, node_cluster, 1))
    waits = lambda: cluster.wait_unschedulable(home, "q")["message"]  # noqa: E731
    cluster.until("the scheduler says why", lambda: "in use" in waits(), 20, waits)
    print("q waits:", waits())
    assert "in use" in drawbridge(cluster, "explain", "pod", "q", "-n", home)
    assert f"{home}/p" in drawbridge(cluster, "free", "-o", "wide")
    for command in (["doctor"], ["survey", "-n", home]):
        drawbridge(cluster, *command)
    snapshot = cluster.run.data / "card-snapshot.yaml"
    drawbridge(cluster, "snapshot", "--to", snapshot, "--force")
    assert "in use" in drawbridge(cluster, "simulate", "-f", snapshot)
    cluster.delete(f"/api/v1/namespaces/{home}/pods/p")
    cluster.wait_phase(home, "q", "Running", seconds=60)
    assert saw(node_cluster, home, "q") == allocated(cluster, home, "q", driver)


def test_more_gpus_than_the_node_has_are_refused(node_cluster, driver, home):
    cluster, count = node_cluster.cluster, len(driver.devices())
    known(cluster, wanting("p", home, node_cluster, count))
    refusal = cluster.refusal(wanting("p", home, node_cluster, count + 1))
    print(refusal)
    assert "[R023]" in refusal


def test_core_serves_a_resource_that_the_configuration_leaves(node_cluster, driver, configure, gated):
    configure("leave")
    cluster, count = node_cluster.cluster, len(driver.devices())
    cluster.create(wanting("p", gated, node_cluster, count))
    ran = cluster.wait_phase(gated, "p", "Running", seconds=60)
    assert ran["status"]["extendedResourceClaimStatus"]["requestMappings"][0]["resourceName"] == "nvidia.com/gpu"
    assert len(saw(node_cluster, gated, "p")) == count
    cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
    gone(cluster, gated)


def test_claims_select_the_gpu_by_published_attributes(node_cluster, driver, home):
    cluster = node_cluster.cluster
    device = next(iter(driver.devices().values()))
    memory = device["capacity"]["memory"]["value"]
    says = f"device.attributes['{fleet.NVIDIA}']"
    has = f"device.capacity['{fleet.NVIDIA}'].memory.compareTo(quantity('{memory}'))"
    fits = [
        f"{says}.productName == '{fact_of(device, 'productName')}'",
        f"{says}.architecture == '{fact_of(device, 'architecture')}'",
        f"{says}.cudaComputeCapability.compareTo(semver('{fact_of(device, 'cudaComputeCapability')}')) >= 0",
        f"{has} >= 0",
    ]
    selects = lambda *wanted: {"selectors": [{"cel": {"expression": expression}} for expression in wanted]}  # noqa: E731
    cluster.create(template("fits", home, request("gpu", fleet.NVIDIA, **selects(*fits))))
    asks = {"resources": {"claims": [{"name": "this"}]}}
    spec = {"schedulerName": SCHEDULER, "resourceClaims": [using_template("fits") | {"name": "this"}]}
    cluster.create(pod("fits", home, program_of(**asks), node=node_cluster.name, **spec))
    cluster.wait_phase(home, "fits", "Running", seconds=60)
    assert len(saw(node_cluster, home, "fits")) == 1
    refusal = cluster.refusal(template("larger", home, request("gpu", fleet.NVIDIA, **selects(f"{has} > 0"))))
    print(refusal)
    assert f"published values of {fleet.NVIDIA}/memory: {memory}" in refusal


def test_a_pod_keeps_its_gpus_while_driver_and_allocator_restart(node_cluster, driver, bridge, home):
    cluster, count = node_cluster.cluster, len(driver.devices())
    cluster.create(known(cluster, wanting("p", home, node_cluster, count)))
    before = cluster.wait_phase(home, "p", "Running", seconds=60)["status"]["containerStatuses"][0]
    first = allocated(cluster, home, "p", driver)
    driver.process.stop(hard=True)
    bridge.processes["allocator-0"].stop(hard=True)
    cluster.create(wanting("q", home, node_cluster, count))
    driver.start()
    bridge.start("allocator-1")
    waits = lambda: cluster.wait_unschedulable(home, "q")["message"]  # noqa: E731
    cluster.until("the scheduler says why", lambda: "in use" in waits(), 30, waits)
    after = cluster.wait_phase(home, "p", "Running")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    assert allocated(cluster, home, "p", driver) == first
    cluster.delete(f"/api/v1/namespaces/{home}/pods/p")
    cluster.wait_phase(home, "q", "Running", seconds=60)
    assert saw(node_cluster, home, "q") == first
