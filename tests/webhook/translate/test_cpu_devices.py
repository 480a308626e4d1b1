"""CPUs of Guaranteed pods by claim: which devices are requested, and on which fleets."""

from cluster import manifests
from dra.objects.claim import DeviceClass
from dra.objects.device import ResourceSlice
from tests.webhook.pods import EXAMPLES, WHOLE, devices, exactly, patched, pod, read_objects, untouched
from tests.webhook.translate.cpu_fleets import (
    CLASS,
    GPU,
    GROUPS,
    TWO,
    cpus_on,
    exactly_of,
    fleet,
    gpus,
    group,
    labelled_node,
    outcomes_of,
    published,
    users,
    verdict_of,
)
from webhook.dialects.table import Outcome
from webhook.state.inventory import Inventory


def single(number):
    return {
        "name": f"cpudev{number:03}",
        "attributes": {"dra.cpu/cpuID": {"int": number}, "dra.cpu/socketID": {"int": 0}},
    }


# Pods that also request a GPU


def test_a_gpu_and_cpus_get_separate_claims():
    manifest = pod(TWO | GPU)
    verdict = verdict_of(manifest, **WHOLE)
    assert sorted(request["class"] for request in exactly_of(verdict)) == ["dra.cpu", "gpu.nvidia.com"]
    assert patched(manifest, verdict)["spec"]["containers"][0]["resources"]["limits"] == TWO
    gpu_left = verdict_of(manifest, meanings={"nvidia.com/gpu": "leave"})
    assert [request["class"] for request in exactly_of(gpu_left)] == ["dra.cpu"]
    nodes = [labelled_node("a"), labelled_node("b"), published("a", GROUPS)]
    without_class = verdict_of(manifest, given=fleet(*nodes, *gpus("b")), meanings={"nvidia.com/gpu": "whole"})
    assert [request["class"] for request in exactly_of(without_class)] == ["gpu.nvidia.com"]
    assert (
        "c0",
        Outcome.LEFT,
        "the cluster has no DeviceClass dra.cpu; if the DeviceClass has another name, an administrator can set `classes: {cpu: NAME}` (docs/configuration.md)",
    ) in outcomes_of(without_class)
    without_node = verdict_of(manifest, given=fleet(CLASS, *nodes, *gpus("b")), meanings={"nvidia.com/gpu": "whole"})
    assert [request["class"] for request in exactly_of(without_node)] == ["gpu.nvidia.com"]
    assert (
        "c0",
        Outcome.LEFT,
        "0 of 1 nodes that the pod can run on publish CPUs of class dra.cpu: more than half have to",
    ) in outcomes_of(without_node)


# How the driver publishes CPUs


def test_cpus_published_as_devices_are_counted_and_split_over_claims():
    single_cpus = [single(i) for i in range(64)]
    verdict = verdict_of(pod({"cpu": 40, "memory": "1Gi"}), given=cpus_on("a", "b", made=single_cpus))
    counts = [claim.spec["spec"]["devices"]["requests"][0]["exactly"]["count"] for claim in verdict.added_claims]
    assert counts == [20, 20]
    assert "capacity" not in str(verdict.added_claims)
    assert untouched(verdict_of(pod({"cpu": 200, "memory": "1Gi"}), given=cpus_on("a", made=single_cpus)))


def test_more_cpus_than_a_group_holds_span_groups():
    verdict = verdict_of(pod({"cpu": 50, "memory": "1Gi"}), given=cpus_on("a", "b"))
    assert [request["capacity"] for request in exactly(verdict)] == [
        {"dra.cpu/cpu": "17"},
        {"dra.cpu/cpu": "17"},
        {"dra.cpu/cpu": "16"},
    ]
    assert "from 3 devices, because most devices hold 24 CPUs" in verdict.warnings[0]
    assert untouched(verdict_of(pod({"cpu": 10**15, "memory": "1Gi"}), given=cpus_on("a")))


def test_cpus_that_are_grouped_by_machine_are_not_claimed():
    whole = [group("cpudevmachine", 0, 48)]
    del whole[0]["attributes"]["dra.cpu/socketID"]
    verdict = verdict_of(pod(TWO), given=cpus_on("a", made=whole))
    assert untouched(verdict)
    assert "as one device of class dra.cpu" in outcomes_of(verdict)[0][2]


def test_cpus_counted_by_both_node_and_claim_are_not_claimed():
    mapping = {"cpu": {"mapping": {"capacityKey": "dra.cpu/cpu", "capacityMultiplier": "1"}}}
    counted = [group("cpudevnuma000", 0, 24, nodeAllocatableResources=mapping)]
    verdict = verdict_of(pod(TWO), given=cpus_on("a", "b", made=counted))
    assert untouched(verdict)
    assert "would count them twice" in outcomes_of(verdict)[0][2]


def test_the_example_of_the_driver_serves_cpus_by_claim():
    given_ = read_objects(manifests.read([EXAMPLES / "drivers" / "dra.cpu.yaml"]))
    verdict = verdict_of(
        pod(TWO), given=Inventory.gather(given_.of_type(DeviceClass), given_.of_type(ResourceSlice), [])
    )
    assert devices(verdict)["requests"][0]["exactly"]["capacity"] == {"requests": {"dra.cpu/cpu": "2"}}


# When CPUs are left to the kubelet


def test_cpus_are_claimed_if_most_reachable_nodes_have_the_driver():
    half = cpus_on("a", "b", others=["c", "d"])
    verdict = verdict_of(pod(TWO), given=half)
    assert untouched(verdict)
    assert outcomes_of(verdict) == [
        (
            "c0",
            Outcome.LEFT,
            "2 of 4 nodes that the pod can run on publish CPUs of class dra.cpu: more than half have to",
        )
    ]
    assert verdict.warnings == ()  # the kubelet serves it as before
    assert users(pod(TWO), verdict_of(pod(TWO), given=cpus_on("a", "b", others=["c"]))) == ["c0"]
    here = pod(TWO, nodeSelector={"kind": "cpu"})
    assert users(here, verdict_of(here, given=half)) == ["c0"]
    there = pod(TWO, nodeSelector={"kind": "other"})
    assert untouched(verdict_of(there, given=half))


def test_cpus_are_left_unchanged_if_a_pod_exceeds_the_device_limit():
    single_cpus = [single(i) for i in range(128)]
    nodes = [labelled_node("a"), labelled_node("b"), published("a", single_cpus), published("b", single_cpus)]
    manifest = pod({"cpu": 128, "memory": "1Gi"} | GPU)
    verdict = verdict_of(manifest, given=fleet(CLASS, *nodes, *gpus("a", "b")))
    assert [request["class"] for request in exactly_of(verdict)] == ["gpu.nvidia.com"]
    assert ("c0", Outcome.LEFT, "129 devices for one pod, 128 is the maximum") in outcomes_of(verdict)
