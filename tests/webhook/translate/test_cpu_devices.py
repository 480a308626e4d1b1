"""CPUs of Guaranteed pods by claim: which devices are requested, and on which fleets."""

from cluster import manifests
from dra.objects.claim import DeviceClass
from dra.objects.device import ResourceSlice
from tests.webhook.pods import (
    EXAMPLES,
    WHOLE_GPUS,
    containers_with_claims,
    devices,
    exactly,
    patched,
    pod,
    read_objects,
    untouched,
)
from tests.webhook.translate.cpu_fleets import (
    CLASS,
    GPU,
    GROUPS,
    TWO_CPUS,
    cpu_group,
    cpu_slice,
    cpus_on,
    fleet_of,
    gpu_objects,
    labelled_node,
    outcomes_of,
    requested_classes,
    verdict_of,
)
from webhook.dialects.table import Outcome
from webhook.state.inventory import Inventory


def single_cpu(number):
    return {
        "name": f"cpudev{number:03}",
        "attributes": {"dra.cpu/cpuID": {"int": number}, "dra.cpu/socketID": {"int": 0}},
    }


# Pods that also request a GPU


def test_a_gpu_and_cpus_get_separate_claims():
    manifest = pod(TWO_CPUS | GPU)
    verdict = verdict_of(manifest, **WHOLE_GPUS)
    assert sorted(requested_classes(verdict)) == ["dra.cpu", "gpu.nvidia.com"]
    assert patched(manifest, verdict)["spec"]["containers"][0]["resources"]["limits"] == TWO_CPUS
    gpu_left = verdict_of(manifest, meanings={"nvidia.com/gpu": "leave"})
    assert requested_classes(gpu_left) == ["dra.cpu"]
    nodes = [labelled_node("a"), labelled_node("b"), cpu_slice("a", GROUPS)]
    without_class = verdict_of(manifest, fleet_=fleet_of(*nodes, *gpu_objects("b")), **WHOLE_GPUS)
    assert requested_classes(without_class) == ["gpu.nvidia.com"]
    [detail] = [detail for container, _, detail in outcomes_of(without_class) if "DeviceClass dra.cpu" in detail]
    assert "`classes: {cpu: NAME}`" in detail
    without_node = verdict_of(manifest, fleet_=fleet_of(CLASS, *nodes, *gpu_objects("b")), **WHOLE_GPUS)
    assert requested_classes(without_node) == ["gpu.nvidia.com"]
    assert any("0 of 1 nodes that the pod can run on" in detail for _, _, detail in outcomes_of(without_node))


# How the driver publishes CPUs


def test_cpus_published_as_devices_are_counted_and_split_over_claims():
    single_cpus = [single_cpu(i) for i in range(64)]
    verdict = verdict_of(pod({"cpu": 40, "memory": "1Gi"}), fleet_=cpus_on("a", "b", devices=single_cpus))
    counts = [claim.spec["spec"]["devices"]["requests"][0]["exactly"]["count"] for claim in verdict.added_claims]
    assert counts == [20, 20]
    assert "capacity" not in str(verdict.added_claims)
    assert untouched(verdict_of(pod({"cpu": 200, "memory": "1Gi"}), fleet_=cpus_on("a", devices=single_cpus)))


def test_more_cpus_than_a_group_holds_span_groups():
    verdict = verdict_of(pod({"cpu": 50, "memory": "1Gi"}), fleet_=cpus_on("a", "b"))
    assert [request["capacity"]["dra.cpu/cpu"] for request in exactly(verdict)] == ["17", "17", "16"]
    assert "from 3 devices, because most devices hold 24 CPUs" in verdict.warnings[0]
    assert untouched(verdict_of(pod({"cpu": 10**15, "memory": "1Gi"}), fleet_=cpus_on("a")))


def test_cpus_that_are_grouped_by_machine_are_not_claimed():
    one_group = [cpu_group("cpudevmachine", 0, 48)]
    del one_group[0]["attributes"]["dra.cpu/socketID"]
    verdict = verdict_of(pod(TWO_CPUS), fleet_=cpus_on("a", devices=one_group))
    assert untouched(verdict)
    assert "as one device of class dra.cpu" in outcomes_of(verdict)[0][2]


def test_cpus_that_would_count_twice_are_not_claimed():
    mapping = {"cpu": {"mapping": {"capacityKey": "dra.cpu/cpu", "capacityMultiplier": "1"}}}
    counted = [cpu_group("cpudevnuma000", 0, 24, nodeAllocatableResources=mapping)]
    verdict = verdict_of(pod(TWO_CPUS), fleet_=cpus_on("a", "b", devices=counted))
    assert untouched(verdict)
    assert "would count them twice" in outcomes_of(verdict)[0][2]


def test_the_example_of_the_driver_serves_cpus_by_claim():
    objects = read_objects(manifests.read([EXAMPLES / "drivers" / "dra.cpu.yaml"]))
    verdict = verdict_of(
        pod(TWO_CPUS), fleet_=Inventory.gather(objects.of_type(DeviceClass), objects.of_type(ResourceSlice), [])
    )
    assert devices(verdict)["requests"][0]["exactly"]["capacity"] == {"requests": {"dra.cpu/cpu": "2"}}


# When pods keep CPUs from the kubelet


def test_cpus_are_claimed_if_most_reachable_nodes_have_the_driver():
    half_of_nodes = cpus_on("a", "b", other_names=["c", "d"])
    verdict = verdict_of(pod(TWO_CPUS), fleet_=half_of_nodes)
    assert untouched(verdict)
    [(_, outcome, detail)] = outcomes_of(verdict)
    assert (outcome, "2 of 4 nodes that the pod can run on" in detail) == (Outcome.LEFT, True)
    assert verdict.warnings == ()  # the kubelet assigns CPUs as before
    assert containers_with_claims(
        pod(TWO_CPUS), verdict_of(pod(TWO_CPUS), fleet_=cpus_on("a", "b", other_names=["c"]))
    ) == ["c0"]
    pod_for_cpu_nodes = pod(TWO_CPUS, nodeSelector={"kind": "cpu"})
    assert containers_with_claims(pod_for_cpu_nodes, verdict_of(pod_for_cpu_nodes, fleet_=half_of_nodes)) == ["c0"]
    pod_for_other_nodes = pod(TWO_CPUS, nodeSelector={"kind": "other"})
    assert untouched(verdict_of(pod_for_other_nodes, fleet_=half_of_nodes))


def test_cpus_stay_if_the_pod_exceeds_the_device_limit():
    single_cpus = [single_cpu(i) for i in range(128)]
    nodes = [labelled_node("a"), labelled_node("b"), cpu_slice("a", single_cpus), cpu_slice("b", single_cpus)]
    manifest = pod({"cpu": 128, "memory": "1Gi"} | GPU)
    verdict = verdict_of(manifest, fleet_=fleet_of(CLASS, *nodes, *gpu_objects("a", "b")))
    assert requested_classes(verdict) == ["gpu.nvidia.com"]
    assert ("c0", Outcome.LEFT, "129 devices for one pod, 128 is the maximum") in outcomes_of(verdict)
