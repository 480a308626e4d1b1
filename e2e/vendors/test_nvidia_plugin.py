"""NVIDIA's device plugin behind our adapter on a real node: unmodified pods get GPUs and MIG devices by the scheduler's claims."""

import subprocess

import pytest
import yaml

from e2e.actors.webhook import results_of
from e2e.actors.workloads import container, limits, pod
from e2e.build import program
from e2e.driver.test_adapter import PROGRAM, Adapter
from e2e.vendors import hardware
from e2e.vendors.pods import gone, runs

pytestmark = [pytest.mark.real, pytest.mark.node]
PLUGIN = "nvidia-device-plugin"
GPU, PART = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
SEE = "env; ls /dev; ls /dev/nvidia-caps; echo spoken=yes; sleep 600"


@pytest.fixture(scope="module")
def adapted(node_cluster, driver_root):
    """The adapter, and NVIDIA's plugin, which offers one whole GPU and the two MIG devices of the other."""
    adapter = Adapter(node_cluster)
    command = [PROGRAM, "driver", "--classes", GPU, "--classes", PART]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    classes = list(yaml.safe_load_all(printed))
    adapter.start()
    variables = {
        "MIG": "1",
        "MIG_STRATEGY": "mixed",
        "PASS_DEVICE_SPECS": "true",
        "DEVICE_DISCOVERY_STRATEGY": "nvml",
        "NVIDIA_DRIVER_ROOT": driver_root,
        "DRIVER_ROOT_CTR_PATH": driver_root,
        "NVIDIA_DEV_ROOT": driver_root,
        "DP_DISABLE_HEALTHCHECKS": "all",
    }
    words = [f"{name}={value}" for name, value in variables.items()]
    plugin = adapter.start_plugin(
        "sh", "-ec", f'{hardware.mig_files()}\nexec env "$@"', "plugin", *words, program(PLUGIN)
    )

    def published():
        plugin.check()
        return len(adapter.healthy_ids()) == 3

    try:
        node_cluster.cluster.create(*classes)
        node_cluster.cluster.until("the plugin's devices are published", published, 60)
        yield adapter
    finally:
        plugin.stop()
        adapter.remove()
        node_cluster.cluster.remove(*classes)


@pytest.mark.parametrize(
    ("resource", "count", "sees"),
    [(GPU, 1, {"nvidia0"}), (PART, 2, {"nvidia1", "nvidia-cap70", "nvidia-cap71", "nvidia-cap80", "nvidia-cap81"})],
)
def test_an_unmodified_pod_gets_the_devices_of_nvidias_plugin(adapted, gated, resource, count, sees):
    node, cluster = adapted.node, adapted.cluster
    pod_ = pod("p", gated, container(command=SEE, **limits(**{resource: count})), node=node.name)
    lines = runs(node, gated, pod_).splitlines()
    status = cluster.get(f"/api/v1/namespaces/{gated}/pods/p")["status"]["extendedResourceClaimStatus"]
    assert status["requestMappings"][0]["resourceName"] == resource
    claim = cluster.get(f"/apis/resource.k8s.io/v1/namespaces/{gated}/resourceclaims/{status['resourceClaimName']}")
    given = {result["device"] for result in results_of(claim)}
    ids = {device["attributes"]["id"]["string"] for device in adapted.devices() if device["name"] in given}
    [visible] = [line.partition("=")[2] for line in lines if line.startswith("NVIDIA_VISIBLE_DEVICES=")]
    assert len(given) == count
    assert set(visible.split(",")) == ids
    files = {f"nvidia{index}" for index in range(2)} | {f"nvidia-cap{n}" for n in sum(hardware.INSTANCES.values(), ())}
    assert files & set(lines) == sees
    cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
    gone(cluster, gated)
