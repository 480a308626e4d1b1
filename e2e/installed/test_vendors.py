"""Vendors' own drivers, each installed by its own chart on the node of an installed drawbridge: unmodified pods get their devices.

Programs and charts are those of the vendors' Go modules (e2e/binaries/drivers). Images are made here from the programs, with the
paths of the vendors' Dockerfiles. DRANET's chart has no DeviceClass, so the tests create one, as an administrator would.
"""

import os
import subprocess
from typing import NamedTuple

import pytest

from e2e.actors import fleet
from e2e.actors.client import ApiError
from e2e.actors.webhook import claims_of, known, results_of
from e2e.actors.workloads import container, limits, pod
from e2e.build import program, source_of
from e2e.ground.images import Image, add, add_folders, layer, write
from e2e.installed.conftest import CONFIGURATION, VALUES
from e2e.installed.installation import printed_manifests
from tests.webhook.dialects.test_published import unpublished

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.timeout(480)]

GPU = "gpu.example.com"
CPU = "dra.cpu"
NET = "dra.net"
EXTENDED_NAME = "example.com/gpu"
INTERFACE = f"db{os.getpid() % 100000}"
PRINT_DEVICES = "env; ip -o link; grep Cpus_allowed_list /proc/self/status; echo spoken=yes; sleep 600"
VENDOR_CONFIGURATION = CONFIGURATION | {
    "targets": [
        {"name": "example", "driver": GPU, "unique": f"{GPU}/uuid", "product": f"{GPU}/model", "request": "gpu"},
        {"name": "interface", "driver": NET, "request": "nic", "moved": True},
        {"name": "cpus", "driver": CPU, "request": "cpus", "cores": "cpu"},
    ],
    "classes": {"example": GPU, "interface": NET, "cpus": CPU},
    "koordinator": {"hostResources": {"cpu": "cpus"}},
    "dialects": [
        {
            "name": "old",
            "title": "Old plugins",
            "target": "example",
            "keys": [
                {"name": "old.example.com/gpu", "meaning": "whole GPUs", "role": "count"},
                {"name": EXTENDED_NAME, "meaning": "whole GPUs", "role": "count"},
            ],
        },
        {
            "name": "interfaces",
            "title": "Old plugin of interfaces",
            "target": "interface",
            "keys": [{"name": "old.example.com/nic", "meaning": "network interfaces", "role": "count"}],
        },
    ],
}


class Vendor(NamedTuple):
    """A driver: the name of its release, its program and its path in the image, its chart in the module, and values for the chart."""

    driver: str
    release: str
    program: str
    path: str
    chart: str
    values: tuple[str, ...] = ()


VENDORS = (
    Vendor(
        GPU,
        "example",
        "dra-example-kubeletplugin",
        "usr/bin/dra-example-kubeletplugin",
        "deployments/helm/dra-example-driver",
        (f"deviceClass.extendedResourceName={EXTENDED_NAME}", "kubeletPlugin.numDevices=2"),
    ),
    Vendor(CPU, "cpu", "dracpu", "dracpu", "deployment/helm/dra-driver-cpu", ("args.hostnameOverride={node}",)),
    Vendor(
        NET,
        "net",
        "dranet",
        "dranet",
        "deployments/helm/dranet",
        (f'args.filter=attributes["{NET}/ifName"].StringValue == "{INTERFACE}"', "args.cloudProviderHint=NONE"),
    ),
)


def helm(cluster, *arguments):
    command = [program("helm"), f"--kubeconfig={cluster.kubeconfig}", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def image(folder, vendor):
    """Write the image of a driver into a file, with the program at the path of the driver's Dockerfile; return the file's path."""

    def fill(tar):
        add_folders(tar)
        add(tar, vendor.path, program(vendor.program).read_bytes(), 0o755)

    filled = layer(folder / f"{vendor.program}-layer.tar", fill)
    image_ = Image(f"localhost/{vendor.program}:e2e", [filled], {"Env": ["PATH=/usr/bin"]})
    path = folder / f"{vendor.program}.tar"
    write(path, [image_])
    return path


@pytest.fixture(scope="module")
def slices(node, installation):
    """Install the three drivers; yields a function that returns the slices of a driver."""
    cluster = node.cluster
    ip_link = [*cluster.network.enter(), "ip", "link"]
    subprocess.run(
        [*ip_link, "add", INTERFACE, "type", "veth", "peer", "name", f"{INTERFACE}p"], check=True, timeout=20
    )
    class_ = fleet.device_class(NET, f"device.driver == '{NET}'")
    cluster.create(class_)
    for vendor in VENDORS:
        node.import_images(image(cluster.run.data, vendor))
        settings = [f"image.repository=localhost/{vendor.program}", "image.tag=e2e", *vendor.values]
        options = [f"--set={setting.replace('{node}', node.name)}" for setting in settings]
        chart = source_of(vendor.program) / vendor.chart
        helm(cluster, "install", vendor.release, chart, f"--namespace={vendor.release}", "--create-namespace", *options)
    path = "/apis/resource.k8s.io/v1/resourceslices"

    def slices_of(driver):
        return cluster.get(path, fieldSelector=f"spec.driver={driver}")["items"]

    try:
        for vendor in VENDORS:
            daemon_sets = f"/apis/apps/v1/namespaces/{vendor.release}/daemonsets"
            cluster.until(
                f"the pod of {vendor.driver} is ready",
                lambda path_=daemon_sets: (
                    [item["status"].get("numberReady") for item in cluster.get(path_)["items"]] == [1]
                ),
                90,
            )
            cluster.until(f"{vendor.driver} has published slices", lambda name=vendor.driver: slices_of(name), 60)
        yield slices_of
    finally:
        for vendor in VENDORS:
            helm(cluster, "uninstall", vendor.release, f"--namespace={vendor.release}", "--wait")
            for item in slices_of(vendor.driver):
                cluster.delete(f"{path}/{item['metadata']['name']}")
        cluster.remove(class_)
        subprocess.run([*ip_link, "delete", INTERFACE], check=False, timeout=20)


@pytest.fixture(scope="module")
def cpu_namespace(node):
    """A namespace whose Guaranteed pods get their CPUs by claim."""
    name = node.cluster.namespace("pinned")
    node.cluster.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": {"drawbridge.dev/mode": "enforce"}}})
    return name


@pytest.fixture(scope="module")
def vendor_configuration(installation, slices, tenants, cpu_namespace):
    """The administrator's configuration for these drivers, until the end."""
    configuration = VENDOR_CONFIGURATION | {"cpuClaims": {"namespaces": {cpu_namespace: "translate"}}}
    installation.apply(printed_manifests(installation.cluster, configuration, **VALUES))
    known(installation.cluster, pod("dry", tenants, container(**limits(**{"old.example.com/gpu": 1}))), 120)
    yield
    # `doctor` would report that the templates name a class that was deleted with its driver.
    for namespace in (tenants, cpu_namespace):
        installation.cluster.delete(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates")
    installation.apply(printed_manifests(installation.cluster, CONFIGURATION, **VALUES))


def output_of_new_pod(node, namespace, item):
    """Create a pod, wait until its container has printed, and return its output."""
    name = item["metadata"]["name"]
    node.cluster.create(item)
    return node.output_of(namespace, name)


def end_pod(cluster, namespace, name):
    """Delete a pod, and wait until its claims are gone, so that its devices are free."""
    cluster.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")
    claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    cluster.until("the pod's claims are deleted", lambda: not cluster.get(claims)["items"], 60)


@pytest.mark.parametrize("driver", [GPU, CPU, NET])
def test_slices_published_by_each_vendor_driver_match_our_examples(slices, driver):
    published_slices = slices(driver)
    assert published_slices
    assert unpublished([{"kind": "ResourceSlice"} | slice_ for slice_ in published_slices]) == []


def test_a_pod_with_a_classs_resource_name_is_left_unchanged(node, vendor_configuration, tenants):
    """The chart of the driver sets `deviceClass.extendedResourceName`."""
    pod_ = pod("left", tenants, container(command=PRINT_DEVICES, **limits(**{EXTENDED_NAME: 2})))
    output = output_of_new_pod(node, tenants, pod_)
    assert {"GPU_DEVICE_0", "GPU_DEVICE_1"} <= {line.partition("=")[0] for line in output.splitlines()}
    stored = node.cluster.get(f"/api/v1/namespaces/{tenants}/pods/left")
    assert "drawbridge.dev/original" not in stored["metadata"].get("annotations", {})
    assert stored["status"]["extendedResourceClaimStatus"]["requestMappings"][0]["resourceName"] == EXTENDED_NAME
    end_pod(node.cluster, tenants, "left")


@pytest.mark.parametrize("name", [EXTENDED_NAME, "old.example.com/gpu"])
def test_more_gpus_than_any_node_has_are_refused(node, vendor_configuration, tenants, name):
    known(node.cluster, pod("fits", tenants, container(**limits(**{"old.example.com/gpu": 1}))))
    too_many = pod("more", tenants, container(command=PRINT_DEVICES, **limits(**{name: 3})))
    with pytest.raises(ApiError, match="R023"):
        node.cluster.create(too_many, dryRun="All")


@pytest.mark.parametrize("scheduler", ["default-scheduler", "drawbridge"])
def test_an_extended_resource_becomes_a_claim_of_the_example_driver(node, vendor_configuration, tenants, scheduler):
    pod_ = pod(
        "old",
        tenants,
        container(command=PRINT_DEVICES, **limits(**{"old.example.com/gpu": 2})),
        schedulerName=scheduler,
    )
    output = output_of_new_pod(node, tenants, known(node.cluster, pod_))
    (claim,) = claims_of(node.cluster, tenants, "old").values()
    assert {result["device"] for result in results_of(claim)} == {"gpu-0", "gpu-1"}
    assert {"GPU_DEVICE_0", "GPU_DEVICE_1"} <= {line.partition("=")[0] for line in output.splitlines()}
    end_pod(node.cluster, tenants, "old")


def test_the_cpu_driver_binds_a_container_to_claimed_cpus(node, vendor_configuration, tenants):
    amounts = limits(**{"cpu": 1, "memory": "64Mi", "koordinator.sh/gpu": 100})
    item = pod("bound", tenants, container(command=PRINT_DEVICES, **amounts))
    policy = {"scheduling.koordinator.sh/resource-spec": '{"requiredCPUBindPolicy": "FullPCPUs"}'}
    item["metadata"]["annotations"] = policy
    output = output_of_new_pod(node, tenants, known(node.cluster, item))
    (result,) = results_of(claims_of(node.cluster, tenants, "bound")["drawbridge-pod-cpus"])
    assert (result["driver"], result["consumedCapacity"]) == (CPU, {"dra.cpu/cpu": "1"})
    assert len(allowed_cpus(output)) == 1, output
    end_pod(node.cluster, tenants, "bound")


def test_a_guaranteed_pod_gets_exclusive_cpus_through_a_claim(node, vendor_configuration, cpu_namespace):
    """A pod without a claim runs on the other CPUs, so two CPUs are enough to see the difference."""
    count = min(2, os.cpu_count() // 2)
    resources = {"cpu": str(count), "memory": "64Mi"}
    item = pod("alone", cpu_namespace, container(command=PRINT_DEVICES, resources={"limits": resources}))
    output = output_of_new_pod(node, cpu_namespace, known(node.cluster, item))
    stored = node.cluster.get(f"/api/v1/namespaces/{cpu_namespace}/pods/alone")
    assert stored["status"]["qosClass"] == "Guaranteed"
    assert stored["spec"]["containers"][0]["resources"]["requests"] == resources
    claims = claims_of(node.cluster, cpu_namespace, "alone")
    (result,) = results_of(claims["drawbridge-main-cpus"])
    assert (result["driver"], result["consumedCapacity"]) == (CPU, {"dra.cpu/cpu": str(count)})
    exclusive_cpus = allowed_cpus(output)
    assert len(exclusive_cpus) == count
    other_cpus = allowed_cpus(
        output_of_new_pod(node, cpu_namespace, pod("others", cpu_namespace, container(command=PRINT_DEVICES)))
    )
    assert other_cpus
    assert other_cpus.isdisjoint(exclusive_cpus)
    node.cluster.delete(f"/api/v1/namespaces/{cpu_namespace}/pods/others")
    end_pod(node.cluster, cpu_namespace, "alone")


def allowed_cpus(output):
    """Return the CPUs of a container from the list that it printed (`0,2-3`)."""
    (cpu_list,) = [line.split()[-1] for line in output.splitlines() if line.startswith("Cpus_allowed_list")]
    ranges = [[int(number) for number in part.split("-")] for part in cpu_list.split(",")]
    return {number for range_ in ranges for number in range(range_[0], range_[-1] + 1)}


def test_dranet_moves_an_interface_into_the_pod(node, vendor_configuration, tenants):
    pod_ = pod("moved", tenants, container(command=PRINT_DEVICES, **limits(**{"old.example.com/nic": 1})))
    output = output_of_new_pod(node, tenants, known(node.cluster, pod_))
    assert f" {INTERFACE}@" in output
    end_pod(node.cluster, tenants, "moved")
