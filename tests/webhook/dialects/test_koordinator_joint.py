"""Koordinator's joint allocation and GPU partitions."""

import json

import pytest

from tests.webhook.dialects.koordinator_pods import HINT, JOINT, PARTITION, SAME, detail, koordinator, seen, spoken
from tests.webhook.pods import HAMI, KOORD, devices, exactly, outcomes, patched, pod, strip, untouched, verdict_of

PAIRED = {JOINT: json.dumps({"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"})}


def test_without_a_scope_joint_allocation_is_approximated():
    done = koordinator({"gpu": 200, "rdma": 200}, hints={JOINT: {"deviceTypes": ["gpu", "rdma"]}})
    assert len(done.templates) == 2
    assert not any("constraints" in spec["spec"]["devices"] for spec in done.templates.values())
    assert outcomes(done)[JOINT] == "approximated"


def test_joint_allocation_of_a_single_type_has_no_effect():
    done = koordinator({"gpu": 200}, hints={JOINT: SAME})
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 2}]
    assert outcomes(done)[JOINT] == "translated"


def test_counts_that_do_not_pair_are_left():
    assert untouched(koordinator({"gpu": 200, "rdma": 300}, hints={JOINT: SAME}))


def test_one_network_device_ties_all_gpus_to_its_root():
    done = koordinator({"gpu": 200, "rdma": 100}, hints={JOINT: SAME})
    assert devices(done)["constraints"] == [
        {"requests": ["gpu-0", "gpu-1", "nic"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    ]


def test_half_a_gpu_and_a_network_device_share_a_claim():
    done = koordinator({"gpu-core": 50, "gpu-memory": "8Gi", "rdma": 100}, hints={JOINT: SAME})
    gpu, nic = (strip(request["exactly"]) for request in devices(done)["requests"])
    assert gpu == {"class": HAMI, "count": 1, "capacity": {"memory": "8Gi", "cores": "50"}}
    assert nic == {"class": "dranet", "count": 1}


def test_more_pairs_than_a_claim_holds_are_split_between_pairs():
    value = pod({KOORD + "gpu": 2000, KOORD + "rdma": 2000}, annotations={JOINT: json.dumps(SAME)})
    done = verdict_of(value)
    assert len(patched(value, done)["spec"]["resourceClaims"]) == 2
    assert all(len(spec["spec"]["devices"]["requests"]) <= 32 for spec in done.templates.values())


@pytest.mark.parametrize(
    ("amounts", "counts"),
    [({"gpu": 100, "rdma": 200}, (1, 2)), ({"gpu": 200, "rdma": 200}, (2, 2)), ({"gpu": 200, "rdma": 100}, (2, 1))],
)
def test_the_devices_annotation_counts_both_device_classes_of_a_pair(amounts, counts):
    value = spoken(amounts, annotations=PAIRED)
    [entries] = json.loads(
        patched(value, verdict_of(value))["metadata"]["annotations"]["drawbridge.dev/devices"]
    ).values()
    classes = ("gpu.nvidia.com", "dranet")
    keys = (KOORD + "gpu", KOORD + "rdma")
    assert entries == [
        {"key": key, "class": name, "count": count} for key, name, count in zip(keys, classes, counts, strict=True)
    ]


def test_a_pair_with_a_managed_driver_goes_to_the_bridge():
    bridge = {"schedulerName": "drawbridge", "drivers": ["dra.net"]}
    value = spoken({"gpu": 100, "rdma": 100}, annotations=PAIRED)
    assert patched(value, verdict_of(value, bridge=bridge))["spec"]["schedulerName"] == "drawbridge"


def test_apply_for_all_under_one_switch_is_left():
    hints = {JOINT: SAME, HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}}
    assert untouched(koordinator({"gpu": 100, "rdma": 100}, hints=hints))


def test_a_partition_with_ring_bandwidth_is_left():
    assert untouched(koordinator({"gpu": 200}, hints={PARTITION: {"ringBusBandwidth": "100Gi"}}))


@pytest.mark.parametrize(("spec", "lost"), [({}, False), ({"allocatePolicy": "BestEffort"}, False), ({"allocatePolicy": "Restricted"}, True)])  # fmt: skip
def test_gpus_are_tied_to_a_published_partition_and_losses_reported(spec, lost):
    cards = [{"name": f"g{at}", "attributes": {"type": {"string": "gpu"}, "partition2": {"string": "a"}}} for at in (0, 1)]  # fmt: skip
    done = koordinator({"gpu": 200}, hints={PARTITION: spec}, fleet=seen(("gpu.nvidia.com", "gpu.nvidia.com", cards)))
    assert devices(done)["constraints"] == [{"requests": ["gpu"], "matchAttribute": "gpu.nvidia.com/partition2"}]
    assert outcomes(done)[PARTITION] == "approximated"
    assert ("Restricted, which takes only the best, is lost" in detail(done, PARTITION)) is lost


def test_a_partition_hint_does_not_affect_shares():
    done = koordinator({"gpu-core": 50, "gpu-memory": "8Gi"}, hints={PARTITION: {}})
    assert done.changed
    assert outcomes(done)[PARTITION] == "translated"


def test_gpus_and_nics_under_one_switch_are_pairs():
    done = verdict_of(spoken({"gpu": 200, "rdma": 200}, annotations=PAIRED))
    assert [request["name"] for request in devices(done)["requests"]] == ["gpu-0", "nic-0", "gpu-1", "nic-1"]
    assert devices(done)["constraints"] == [
        {"requests": ["gpu-0", "nic-0"], "matchAttribute": "resource.kubernetes.io/pcieRoot"},
        {"requests": ["gpu-1", "nic-1"], "matchAttribute": "resource.kubernetes.io/pcieRoot"},
    ]


def test_a_partition_is_never_dropped():
    value = spoken({"gpu": 200}, annotations={"scheduling.koordinator.sh/gpu-partition-spec": "{}"})
    assert untouched(verdict_of(value))


STRATEGY = "drawbridge.dev/strategy"
NEAR = {JOINT: json.dumps({"deviceTypes": ["gpu", "rdma"]})}


def joint_pod(**annotations: str) -> dict:
    amounts = {KOORD + "gpu": 100, KOORD + "rdma": 100}
    return pod(amounts, scheduler="koord-scheduler", annotations={**NEAR, **annotations})


BRIDGE = {"bridge": {"schedulerName": "drawbridge", "drivers": ["gpu.nvidia.com"]}}


def test_without_a_scope_the_bridge_uses_the_topology_strategy():
    value = joint_pod()
    done = verdict_of(value, **BRIDGE)
    after = patched(value, done)
    assert after["spec"]["schedulerName"] == "drawbridge"
    assert after["metadata"]["annotations"][STRATEGY] == "topology"
    assert "the bridge prefers" in detail(done, JOINT)
    assert "lost" not in detail(done, JOINT)


def test_joint_placement_needs_the_bridge_and_keeps_a_pods_strategy():
    plain = joint_pod()
    done = verdict_of(plain)
    assert STRATEGY not in patched(plain, done)["metadata"]["annotations"]
    assert "lost" in detail(done, JOINT)
    own = joint_pod(**{STRATEGY: "CompactFirst"})
    done = verdict_of(own, **BRIDGE)
    assert patched(own, done)["metadata"]["annotations"][STRATEGY] == "CompactFirst"
    assert "the pod's own" in detail(done, JOINT)


def test_a_required_scope_needs_no_strategy():
    value = pod({KOORD + "gpu": 100, KOORD + "rdma": 100}, scheduler="koord-scheduler", annotations=PAIRED)
    assert STRATEGY not in patched(value, verdict_of(value, **BRIDGE))["metadata"]["annotations"]
