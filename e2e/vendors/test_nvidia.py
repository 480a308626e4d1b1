"""NVIDIA's own driver and chart on a real node, on an NVML of ours (nvml.c) that reports two GPUs or one GPU and two MIG devices."""

import contextlib

import pytest

from e2e.actors import fleet
from e2e.actors.client import ApiError
from e2e.actors.webhook import claims_of, known, results_of
from e2e.actors.workloads import container, limits, pod
from e2e.vendors import hardware, nvidia
from e2e.vendors.pods import gone, runs
from tests.webhook.dialects.test_published import unpublished

pytestmark = [pytest.mark.real, pytest.mark.node]
SAY = "env; ls /dev /dev/nvidia-caps; echo spoken=yes; sleep 600"
CONFIGURATION = """\
apiVersion: drawbridge.dev/v1alpha1
kind: DrawbridgeConfiguration
mode: enforce
extendedResources: {{default: {left}}}
"""
TOLD = """\
parameters:
  gpu:
    apiVersion: resource.nvidia.com/v1beta1
    kind: GpuConfig
    sharing: {}
"""


@pytest.fixture(scope="module")
def slices(node_cluster, driver_root, request):
    """The slices of NVIDIA's driver, with the classes of its chart: whole GPUs, or by parameter `mig`, or a way to share GPUs."""
    mode = getattr(request, "param", "disabled")
    mig, shares = mode == "mig", "disabled" if mode == "mig" else mode
    prepare, env = (hardware.mig_files("/mnt"), {"MIG": "1"}) if mig else ("", {})
    with nvidia.installed(node_cluster, driver_root, shares=shares, prepare=prepare, env=env) as driver:
        yield driver.slices()


@pytest.fixture
def configure(webhook, slices):
    """Give the webhook a configuration until the test ends."""

    def apply(configuration):
        webhook.follow(configuration)
        webhook.register(f"--config={webhook.config}")
        webhook.cluster.until("every webhook is called", webhook.is_called, 30)

    yield apply
    webhook.register()
    webhook.follow("apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: enforce\n")


def test_slices_published_by_the_driver_match_our_examples(slices):
    # The driver publishes its devices in the order of a Go map.
    assert sorted(device["name"] for item in slices for device in item["spec"]["devices"]) == ["gpu-0", "gpu-1"]
    assert unpublished([{"kind": "ResourceSlice"} | slice_ for slice_ in slices]) == []


def test_an_extended_resource_becomes_a_gpu_claim_of_ours(node_cluster, configure, gated):
    configure(CONFIGURATION.format(left="translate"))
    cluster = node_cluster.cluster
    pod_ = pod("p", gated, container(command=SAY, **limits(**{"nvidia.com/gpu": 2})), node=node_cluster.name)
    lines = runs(node_cluster, gated, known(cluster, pod_)).splitlines()
    (claim,) = claims_of(cluster, gated, "p").values()
    assert {result["device"] for result in results_of(claim)} == {"gpu-0", "gpu-1"}
    assert {"nvidia0", "nvidia1", "nvidiactl"} <= set(lines)
    cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
    gone(cluster, gated)


def test_an_extended_resource_that_is_left_becomes_a_core_claim(node_cluster, configure, gated):
    configure(CONFIGURATION.format(left="leave"))
    cluster = node_cluster.cluster
    pod_ = pod("p", gated, container(command=SAY, **limits(**{"nvidia.com/gpu": 1})), node=node_cluster.name)
    lines = runs(node_cluster, gated, pod_).splitlines()
    status = cluster.get(f"/api/v1/namespaces/{gated}/pods/p")["status"]
    assert status["extendedResourceClaimStatus"]["requestMappings"][0]["resourceName"] == "nvidia.com/gpu"
    assert len({"nvidia0", "nvidia1"} & set(lines)) == 1
    cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
    gone(cluster, gated)


@pytest.mark.parametrize("left", ["translate", "leave"])
def test_more_gpus_than_a_node_has_are_refused(node_cluster, configure, gated, left):
    configure(CONFIGURATION.format(left=left))
    pod_ = pod("p", gated, container(command=SAY, **limits(**{"nvidia.com/gpu": 3})), node=node_cluster.name)
    node_cluster.cluster.until("it is refused", lambda: refused(node_cluster.cluster, pod_), 20)


def refused(cluster, item):
    with contextlib.suppress(ApiError):
        cluster.create(item, dryRun="All")
        return ""
    return "refused"


def test_a_pod_pinned_to_a_product_runs_on_labelled_nodes(node_cluster, configure, gated):
    """The driver publishes the product but sets no label; GPU feature discovery is installed separately."""
    configure(CONFIGURATION.format(left="translate"))
    cluster = node_cluster.cluster
    label = {"nvidia.com/gpu.product": fleet.A100.replace(" ", "-")}
    pod_ = pod("p", gated, container(command=SAY, **limits(**{"nvidia.com/gpu": 1})), node=node_cluster.name)
    pod_["spec"]["nodeSelector"] |= label
    cluster.create(known(cluster, pod_))
    cluster.wait_unschedulable(gated, "p")
    cluster.patch(f"/api/v1/nodes/{node_cluster.name}", {"metadata": {"labels": label}})
    cluster.wait_phase(gated, "p", "Running", seconds=50)
    cluster.patch(f"/api/v1/nodes/{node_cluster.name}", {"metadata": {"labels": dict.fromkeys(label)}})
    cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
    gone(cluster, gated)


def test_the_driver_sets_the_configured_time_slice(node_cluster, driver_root, configure, gated):
    configure(
        CONFIGURATION.format(left="translate")
        + TOLD.format("{strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}")
    )
    cluster = node_cluster.cluster
    pod_ = pod("p", gated, container(command=SAY, **limits(**{"nvidia.com/gpu": 1})), node=node_cluster.name)
    runs(node_cluster, gated, known(cluster, pod_))
    heard = (driver_root / "usr/bin/asked").read_text()
    assert "--set-timeslice 3" in heard
    cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
    gone(cluster, gated)


def test_the_driver_starts_mps_as_configured(node_cluster, driver_root, configure, gated):
    shared = "{strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi}}"
    configure(CONFIGURATION.format(left="translate") + TOLD.format(shared))
    cluster = node_cluster.cluster
    pod_ = pod("p", gated, container(command=SAY, **limits(**{"nvidia.com/gpu": 1})), node=node_cluster.name)
    output = runs(node_cluster, gated, known(cluster, pod_))
    assert "CUDA_MPS_PIPE_DIRECTORY=" in output
    heard = (driver_root / "usr/bin/asked").read_text()
    assert "nvidia-cuda-mps-control" in heard
    assert "set_default_active_thread_percentage 50" in heard
    cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
    gone(cluster, gated)


@pytest.mark.parametrize("slices", ["memory", "unlimited"], indirect=True)
def test_published_slices_of_shared_gpus_match_our_examples(slices):
    (slice_,) = slices
    assert all(device["allowMultipleAllocations"] for device in slice_["spec"]["devices"])
    assert unpublished([{"kind": "ResourceSlice"} | slice_]) == []


@pytest.mark.parametrize("slices", ["4"], indirect=True)
def test_shared_extended_resources_become_shares_of_the_drivers_gpus(node_cluster, configure, gated, slices):
    configure(CONFIGURATION.format(left="translate") + "nvidia: {consumableShares: true}\n")
    cluster = node_cluster.cluster
    assert unpublished([{"kind": "ResourceSlice"} | slice_ for slice_ in slices]) == []
    results = []
    for name in ("p", "q", "r"):
        pod_ = pod(
            name, gated, container(command=SAY, **limits(**{"nvidia.com/gpu.shared": 1})), node=node_cluster.name
        )
        runs(node_cluster, gated, known(cluster, pod_))
        (claim,) = claims_of(cluster, gated, name).values()
        results += results_of(claim)
    assert [result["consumedCapacity"]["shares"] for result in results] == ["1", "1", "1"]
    assert len({result["device"] for result in results}) < 3
    for name in ("p", "q", "r"):
        cluster.delete(f"/api/v1/namespaces/{gated}/pods/{name}")
    gone(cluster, gated)


@pytest.mark.parametrize("slices", ["mig"], indirect=True)
def test_an_extended_mig_resource_becomes_a_claim_of_ours(node_cluster, configure, gated, slices):
    configure(CONFIGURATION.format(left="translate"))
    cluster = node_cluster.cluster
    published_ = {device["name"]: device for item in slices for device in item["spec"]["devices"]}
    parts = {name for name, device in published_.items() if device["attributes"]["type"]["string"] == "mig"}
    assert (len(published_), len(parts)) == (3, 2)
    assert unpublished([{"kind": "ResourceSlice"} | slice_ for slice_ in slices]) == []
    given = {}
    for name in ("p", "q"):
        pod_ = pod(
            name, gated, container(command=SAY, **limits(**{"nvidia.com/mig-1g.5gb": 1})), node=node_cluster.name
        )
        lines = runs(node_cluster, gated, known(cluster, pod_)).splitlines()
        (claim,) = claims_of(cluster, gated, name).values()
        (result,) = results_of(claim)
        given[result["device"]] = {line for line in lines if line.startswith("nvidia-cap") and line != "nvidia-caps"}
        assert {"nvidia0", "nvidia1"} & set(lines) == {"nvidia1"}
    # Each has the device files of its own GPU instance and compute instance.
    assert given.keys() == parts
    assert sorted(map(sorted, given.values())) == [
        ["nvidia-cap70", "nvidia-cap71"],
        ["nvidia-cap80", "nvidia-cap81"],
    ]
    more = pod("more", gated, container(**limits(**{"nvidia.com/mig-1g.5gb": 3})), node=node_cluster.name)
    assert refused(cluster, more)
    for name in ("p", "q"):
        cluster.delete(f"/api/v1/namespaces/{gated}/pods/{name}")
    gone(cluster, gated)
