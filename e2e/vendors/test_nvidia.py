"""NVIDIA's own driver and chart on a real node, on an NVML of ours (nvml.c) that reports two GPUs or one GPU and two MIG devices."""

import contextlib

import pytest

from e2e.actors import fleet
from e2e.actors.client import ApiError
from e2e.actors.webhook import claims_of, known, results_of
from e2e.actors.workloads import container, limits, pod
from e2e.vendors import hardware, nvidia
from e2e.vendors.pods import gone, runs
from tests.webhook.dialects.test_published import published

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
    """The slices of NVIDIA's driver, which runs with the DeviceClasses of its chart: by default with whole GPUs; `mig` or how they are shared."""
    asked = getattr(request, "param", "disabled")
    mig, shares = asked == "mig", "disabled" if asked == "mig" else asked
    prepare, env = (hardware.mig_files("/mnt"), {"MIG": "1"}) if mig else ("", {})
    with nvidia.installed(node_cluster, driver_root, shares=shares, prepare=prepare, env=env) as driver:
        yield driver.slices()


@pytest.fixture
def told(webhook, slices):
    """Give the webhook a configuration until the test ends."""
    options = ("--opt-in", "--failure-policy=Fail")

    def tell(configuration):
        webhook.follow(configuration)
        webhook.register(*options, f"--config={webhook.config}")
        webhook.cluster.until("every webhook is called", webhook.is_called, 30)

    yield tell
    webhook.register(*options)
    webhook.follow("apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: enforce\n")


def test_slices_published_by_the_driver_match_our_examples(slices):
    # The driver publishes its devices in the order of a Go map.
    assert sorted(one["name"] for item in slices for one in item["spec"]["devices"]) == ["gpu-0", "gpu-1"]
    assert published([{"kind": "ResourceSlice"} | slice_ for slice_ in slices]) == []


def test_gpus_of_the_old_name_come_by_claims_of_ours(node_cluster, told, gated):
    told(CONFIGURATION.format(left="translate"))
    cluster = node_cluster.cluster
    asked = pod("p", gated, container(command=SAY, **limits(**{"nvidia.com/gpu": 2})), node=node_cluster.name)
    said = runs(node_cluster, gated, known(cluster, asked)).splitlines()
    (claim,) = claims_of(cluster, gated, "p").values()
    assert {result["device"] for result in results_of(claim)} == {"gpu-0", "gpu-1"}
    assert {"nvidia0", "nvidia1", "nvidiactl"} <= set(said)
    cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
    gone(cluster, gated)


def test_gpus_of_the_old_name_that_are_left_come_by_claims_of_core(node_cluster, told, gated):
    told(CONFIGURATION.format(left="leave"))
    cluster = node_cluster.cluster
    asked = pod("p", gated, container(command=SAY, **limits(**{"nvidia.com/gpu": 1})), node=node_cluster.name)
    said = runs(node_cluster, gated, asked).splitlines()
    status = cluster.get(f"/api/v1/namespaces/{gated}/pods/p")["status"]
    assert status["extendedResourceClaimStatus"]["requestMappings"][0]["resourceName"] == "nvidia.com/gpu"
    assert len({"nvidia0", "nvidia1"} & set(said)) == 1
    cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
    gone(cluster, gated)


@pytest.mark.parametrize("left", ["translate", "leave"])
def test_more_gpus_than_a_node_has_are_refused(node_cluster, told, gated, left):
    told(CONFIGURATION.format(left=left))
    asked = pod("p", gated, container(command=SAY, **limits(**{"nvidia.com/gpu": 3})), node=node_cluster.name)
    node_cluster.cluster.until("it is refused", lambda: refused(node_cluster.cluster, asked), 20)


def refused(cluster, item):
    with contextlib.suppress(ApiError):
        cluster.create(item, dryRun="All")
        return ""
    return "refused"


def test_a_pod_pinned_to_a_product_runs_where_feature_discovery_has_labelled_its_node(node_cluster, told, gated):
    """The driver publishes the product and labels nothing: GPU feature discovery is its own installation."""
    told(CONFIGURATION.format(left="translate"))
    cluster = node_cluster.cluster
    label = {"nvidia.com/gpu.product": fleet.A100.replace(" ", "-")}
    asked = pod("p", gated, container(command=SAY, **limits(**{"nvidia.com/gpu": 1})), node=node_cluster.name)
    asked["spec"]["nodeSelector"] |= label
    cluster.create(known(cluster, asked))
    cluster.wait_unschedulable(gated, "p")
    cluster.patch(f"/api/v1/nodes/{node_cluster.name}", {"metadata": {"labels": label}})
    cluster.wait_phase(gated, "p", "Running", seconds=50)
    cluster.patch(f"/api/v1/nodes/{node_cluster.name}", {"metadata": {"labels": dict.fromkeys(label)}})
    cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
    gone(cluster, gated)


def test_the_driver_sets_the_time_slice_that_the_configuration_tells_it(node_cluster, driver_root, told, gated):
    told(
        CONFIGURATION.format(left="translate")
        + TOLD.format("{strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}")
    )
    cluster = node_cluster.cluster
    asked = pod("p", gated, container(command=SAY, **limits(**{"nvidia.com/gpu": 1})), node=node_cluster.name)
    runs(node_cluster, gated, known(cluster, asked))
    heard = (driver_root / "usr/bin/asked").read_text()
    assert "--set-timeslice 3" in heard
    cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
    gone(cluster, gated)


def test_the_driver_starts_mps_as_the_configuration_tells_it(node_cluster, driver_root, told, gated):
    shared = "{strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi}}"
    told(CONFIGURATION.format(left="translate") + TOLD.format(shared))
    cluster = node_cluster.cluster
    asked = pod("p", gated, container(command=SAY, **limits(**{"nvidia.com/gpu": 1})), node=node_cluster.name)
    said = runs(node_cluster, gated, known(cluster, asked))
    assert "CUDA_MPS_PIPE_DIRECTORY=" in said
    heard = (driver_root / "usr/bin/asked").read_text()
    assert "nvidia-cuda-mps-control" in heard
    assert "set_default_active_thread_percentage 50" in heard
    cluster.delete(f"/api/v1/namespaces/{gated}/pods/p")
    gone(cluster, gated)


@pytest.mark.parametrize("slices", ["memory", "unlimited"], indirect=True)
def test_slices_of_shared_gpus_published_by_the_driver_match_our_examples(slices):
    (one,) = slices
    assert all(device["allowMultipleAllocations"] for device in one["spec"]["devices"])
    assert published([{"kind": "ResourceSlice"} | one]) == []


@pytest.mark.parametrize("slices", ["4"], indirect=True)
def test_replicas_of_the_old_name_are_shares_of_the_drivers_gpus(node_cluster, told, gated, slices):
    told(CONFIGURATION.format(left="translate") + "nvidia: {consumableShares: true}\n")
    cluster = node_cluster.cluster
    assert published([{"kind": "ResourceSlice"} | slice_ for slice_ in slices]) == []
    results = []
    for name in ("p", "q", "r"):
        asked = pod(
            name, gated, container(command=SAY, **limits(**{"nvidia.com/gpu.shared": 1})), node=node_cluster.name
        )
        runs(node_cluster, gated, known(cluster, asked))
        (claim,) = claims_of(cluster, gated, name).values()
        results += results_of(claim)
    assert [result["consumedCapacity"]["shares"] for result in results] == ["1", "1", "1"]
    assert len({result["device"] for result in results}) < 3
    for name in ("p", "q", "r"):
        cluster.delete(f"/api/v1/namespaces/{gated}/pods/{name}")
    gone(cluster, gated)


@pytest.mark.parametrize("slices", ["mig"], indirect=True)
def test_mig_devices_of_the_old_name_come_by_claims_of_ours(node_cluster, told, gated, slices):
    told(CONFIGURATION.format(left="translate"))
    cluster = node_cluster.cluster
    published_ = {one["name"]: one for item in slices for one in item["spec"]["devices"]}
    parts = {name for name, one in published_.items() if one["attributes"]["type"]["string"] == "mig"}
    assert (len(published_), len(parts)) == (3, 2)
    assert published([{"kind": "ResourceSlice"} | slice_ for slice_ in slices]) == []
    given = {}
    for name in ("p", "q"):
        asked = pod(
            name, gated, container(command=SAY, **limits(**{"nvidia.com/mig-1g.5gb": 1})), node=node_cluster.name
        )
        said = runs(node_cluster, gated, known(cluster, asked)).splitlines()
        (claim,) = claims_of(cluster, gated, name).values()
        (result,) = results_of(claim)
        given[result["device"]] = {one for one in said if one.startswith("nvidia-cap") and one != "nvidia-caps"}
        assert {"nvidia0", "nvidia1"} & set(said) == {"nvidia1"}
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
