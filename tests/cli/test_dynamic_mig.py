"""NVIDIA's driver with DynamicMIG: legacy keys become claims for MIG devices (partitions of a GPU), which never overlap."""

import pytest
import yaml

from tests.cli.running import run, run_json
from tests.objects import pod
from tests.webhook.pods import EXAMPLES

FLEET = EXAMPLES / "partitions" / "nvidia-dynamic-mig.yaml"
AMPERE, HOPPER = "a100-dynamic-1", "h100-dynamic-1"
GPU, MIG_PREFIX = "nvidia.com/gpu", "nvidia.com/mig-"


def pods_file(folder, node, *amounts):
    """Write a file with a pod for each `KEY: COUNT`, in this order. The pods select this node."""
    pods = []
    for number, amount in enumerate(amounts):
        key, _, count = amount.partition(": ")
        limits = {key: int(count)}
        node_selector = {"nodeSelector": {"kubernetes.io/hostname": node}}
        pods.append(pod(f"p{number}", namespace="team", limits=limits, requests=limits, **node_selector))
    path = folder / "pods.yaml"
    path.write_text(yaml.safe_dump_all(pods))
    return path


def simulated_devices(folder, node, *amounts):
    """Return the names of the devices that `simulate` gives to each pod. A pod that waits has an empty list."""
    _, answer = run_json("simulate", "-f", pods_file(folder, node, *amounts), "-f", FLEET)
    return {
        outcome["pod"].partition("/")[2]: [name.rpartition("/")[2] for name in outcome["devices"]]
        for outcome in answer["pods"]
    }


def small_partitions(count):
    return [f"{MIG_PREFIX}1g.5gb: 1"] * count


# The requests of pods on an A100 with MIG mode on, in order, and the numbers of the pods that wait.
PARTITION_REQUESTS = {
    "the pod of an eighth small partition waits": ([*small_partitions(8)], {7}),
    "two partitions with half of the memory leave no memory": ([f"{MIG_PREFIX}3g.20gb: 2", *small_partitions(1)], {1}),
    "partitions of four sevenths and of three sevenths fill the GPU": ([f"{MIG_PREFIX}4g.20gb: 1", f"{MIG_PREFIX}3g.20gb: 1", *small_partitions(1)], {2}),
    "only one partition has media engines": ([f"{MIG_PREFIX}1g.5gb.me: 1", f"{MIG_PREFIX}1g.5gb.me: 1", *small_partitions(6)], {1}),
    "four partitions with twice the memory leave no memory": ([f"{MIG_PREFIX}1g.10gb: 4", *small_partitions(1)], {1}),
    "a partition can be the whole GPU": ([f"{MIG_PREFIX}7g.40gb: 1", *small_partitions(1)], {1}),
    "a small partition leaves room for two larger ones": ([*small_partitions(1), f"{MIG_PREFIX}3g.20gb: 1", f"{MIG_PREFIX}2g.10gb: 1"], set()),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTITION_REQUESTS)
def test_mig_devices_are_allocated_while_the_gpu_has_room(name, tmp_path):
    amounts, waiting_numbers = PARTITION_REQUESTS[name]
    devices_by_pod = simulated_devices(tmp_path, AMPERE, *amounts)
    assert {pod for pod, devices in devices_by_pod.items() if not devices} == {
        f"p{number}" for number in waiting_numbers
    }
    for number, amount in enumerate(amounts):
        key, _, count = amount.partition(": ")
        profile = key.removeprefix(MIG_PREFIX).replace(".me", "-me").replace(".", "")
        devices = devices_by_pod[f"p{number}"]
        assert len(devices) == (0 if number in waiting_numbers else int(count))
        assert all(f"-mig-{profile}-{device.split('-')[-2]}-" in device for device in devices)


def test_a_whole_gpu_and_its_mig_devices_exclude_each_other(tmp_path):
    assert simulated_devices(tmp_path, HOPPER, f"{GPU}: 1", f"{MIG_PREFIX}1g.10gb: 1") == {"p0": ["gpu-0"], "p1": []}
    devices_by_pod = simulated_devices(tmp_path, HOPPER, f"{MIG_PREFIX}1g.10gb: 1", f"{GPU}: 1")
    assert devices_by_pod == {"p0": ["gpu-0-mig-1g10gb-19-0"], "p1": []}


@pytest.mark.parametrize(
    ("node", "amount", "maximum"),
    [(AMPERE, f"{MIG_PREFIX}1g.5gb: 8", 7), (AMPERE, f"{MIG_PREFIX}3g.20gb: 3", 2), (HOPPER, f"{MIG_PREFIX}1g.10gb.me: 2", 1), (HOPPER, f"{GPU}: 2", 1)],
)  # fmt: skip
def test_a_request_above_the_maximum_of_the_nodes_is_refused(node, amount, maximum, tmp_path):
    result = run("translate", "-f", pods_file(tmp_path, node, amount), "--inventory", FLEET, "-o", "report")
    assert result.exit_code == 1
    assert "[R02" in result.output
    assert f"request at most {maximum} device" in result.output


def test_ampere_with_mig_mode_on_has_no_whole_gpu(tmp_path):
    assert simulated_devices(tmp_path, AMPERE, f"{GPU}: 1") == {"p0": []}
    ampere_fleet = tmp_path / "ampere.yaml"
    ampere_fleet.write_text(
        yaml.safe_dump_all(
            [obj for obj in yaml.safe_load_all(FLEET.read_text()) if HOPPER not in obj["metadata"]["name"]]
        )
    )
    result = run(
        "translate", "-f", pods_file(tmp_path, AMPERE, f"{GPU}: 1"), "--inventory", ampere_fleet, "-o", "report"
    )
    assert result.exit_code == 1
    assert "[R022]" in result.output


def test_mig_devices_are_translated_and_whole_gpus_are_served(tmp_path):
    path = pods_file(tmp_path, HOPPER, f"{MIG_PREFIX}1g.10gb: 2", f"{MIG_PREFIX}1g.10gb.me: 1", f"{GPU}: 1")
    code, answer = run_json("translate", "-f", path, "--inventory", FLEET)
    assert code == 0
    assert [decision["outcome"] for decision in answer["decisions"]] == ["translated", "translated", "served"]
    assert [decision["detail"] for decision in answer["decisions"]] == [
        "2 MIG devices of profile 1g.10gb (class mig.nvidia.com)",
        "1 MIG device of profile 1g.10gb+me (class mig.nvidia.com)",
        "DeviceClass gpu.nvidia.com serves it through extendedResourceName",
    ]


def test_a_server_without_partitionable_devices_is_an_obstacle(tmp_path):
    path = pods_file(tmp_path, AMPERE, f"{MIG_PREFIX}1g.5gb: 1")
    for version, missing_gates in (("1.35", ["DRAPartitionableDevices"]), ("1.37", [])):
        _, answer = run_json("survey", "-f", path, "-f", FLEET, "--kubernetes", version)
        assert [finding["object"] for finding in answer["obstacles"] if finding["code"] == "S019"] == missing_gates


@pytest.mark.parametrize("command", ["check", "translate"])
def test_mps_with_dynamic_mig_is_reported(command, tmp_path):
    sharing = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "MPS"}}
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    devices = {"requests": [request], "config": [{"opaque": {"driver": "gpu.nvidia.com", "parameters": sharing}}]}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
    path = tmp_path / "claim.yaml"
    path.write_text(yaml.safe_dump(claim | {"spec": {"devices": devices}}))
    result = run(command, "-f", path, "--inventory", FLEET, *(["-o", "report"] * (command == "translate")))
    assert "the driver runs with DynamicMIG on each of its nodes, and then refuses MPS" in result.output
