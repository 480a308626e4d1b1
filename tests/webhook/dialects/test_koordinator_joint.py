"""Koordinator's joint allocation and GPU partitions. The bridge is drawbridge's scheduler for devices of the drivers that it manages."""

import json

import pytest

from tests.webhook.dialects.koordinator_pods import (
    HINT,
    JOINT,
    PARTITION,
    SAME_PCIE,
    details_about,
    fleet_of,
    koordinator_pod_with_fields,
    koordinator_verdict,
)
from tests.webhook.pods import HAMI, KOORD, devices, exactly, outcomes, patched, pod, strip, untouched, verdict_of

JOINT_WITH_SCOPE = {JOINT: json.dumps({"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"})}


def test_without_a_scope_joint_allocation_is_approximated():
    verdict = koordinator_verdict({"gpu": 200, "rdma": 200}, hints={JOINT: {"deviceTypes": ["gpu", "rdma"]}})
    assert len(verdict.templates) == 2
    assert not any("constraints" in spec["spec"]["devices"] for spec in verdict.templates.values())
    assert outcomes(verdict)[JOINT] == "approximated"


def test_joint_allocation_of_a_single_type_has_no_effect():
    verdict = koordinator_verdict({"gpu": 200}, hints={JOINT: SAME_PCIE})
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 2}]
    assert outcomes(verdict)[JOINT] == "translated"


def test_counts_that_do_not_pair_are_left_unchanged():
    assert untouched(koordinator_verdict({"gpu": 200, "rdma": 300}, hints={JOINT: SAME_PCIE}))


def test_one_network_device_ties_all_gpus_to_its_root():
    verdict = koordinator_verdict({"gpu": 200, "rdma": 100}, hints={JOINT: SAME_PCIE})
    assert devices(verdict)["constraints"] == [
        {"requests": ["gpu-0", "gpu-1", "nic"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    ]


def test_half_a_gpu_and_a_network_device_share_a_claim():
    verdict = koordinator_verdict({"gpu-core": 50, "gpu-memory": "8Gi", "rdma": 100}, hints={JOINT: SAME_PCIE})
    gpu, nic = (strip(request["exactly"]) for request in devices(verdict)["requests"])
    assert gpu == {"class": HAMI, "count": 1, "capacity": {"memory": "8Gi", "cores": "50"}}
    assert nic == {"class": "dranet", "count": 1}


@pytest.mark.parametrize(
    ("amounts", "counts"),
    [({"gpu": 100, "rdma": 200}, (1, 2)), ({"gpu": 200, "rdma": 200}, (2, 2)), ({"gpu": 200, "rdma": 100}, (2, 1))],
)
def test_the_devices_annotation_counts_both_device_classes_of_a_pair(amounts, counts):
    manifest = koordinator_pod_with_fields(amounts, annotations=JOINT_WITH_SCOPE)
    [entries] = json.loads(
        patched(manifest, verdict_of(manifest))["metadata"]["annotations"]["drawbridge.dev/devices"]
    ).values()
    classes = ("gpu.nvidia.com", "dranet")
    keys = (KOORD + "gpu", KOORD + "rdma")
    assert entries == [
        {"key": key, "class": name, "count": count} for key, name, count in zip(keys, classes, counts, strict=True)
    ]


def test_a_pair_with_a_managed_driver_goes_to_the_bridge():
    bridge = {"schedulerName": "drawbridge", "drivers": ["dra.net"]}
    manifest = koordinator_pod_with_fields({"gpu": 100, "rdma": 100}, annotations=JOINT_WITH_SCOPE)
    assert patched(manifest, verdict_of(manifest, bridge=bridge))["spec"]["schedulerName"] == "drawbridge"


def test_apply_for_all_under_one_switch_is_left_unchanged():
    hints = {JOINT: SAME_PCIE, HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}}
    assert untouched(koordinator_verdict({"gpu": 100, "rdma": 100}, hints=hints))


def test_a_partition_with_ring_bandwidth_is_left_unchanged():
    assert untouched(koordinator_verdict({"gpu": 200}, hints={PARTITION: {"ringBusBandwidth": "100Gi"}}))


@pytest.mark.parametrize(("spec", "is_lost"), [({}, False), ({"allocatePolicy": "BestEffort"}, False), ({"allocatePolicy": "Restricted"}, True)])  # fmt: skip
def test_gpus_are_tied_to_a_published_partition_and_losses_reported(spec, is_lost):
    cards = [{"name": f"g{index}", "attributes": {"type": {"string": "gpu"}, "partition2": {"string": "a"}}} for index in (0, 1)]  # fmt: skip
    verdict = koordinator_verdict(
        {"gpu": 200}, hints={PARTITION: spec}, fleet=fleet_of(("gpu.nvidia.com", "gpu.nvidia.com", cards))
    )
    assert devices(verdict)["constraints"] == [{"requests": ["gpu"], "matchAttribute": "gpu.nvidia.com/partition2"}]
    assert outcomes(verdict)[PARTITION] == "approximated"
    assert ("Restricted, which takes only the best, is lost" in details_about(verdict, PARTITION)) is is_lost


def test_a_partition_hint_does_not_affect_shares():
    verdict = koordinator_verdict({"gpu-core": 50, "gpu-memory": "8Gi"}, hints={PARTITION: {}})
    assert verdict.changed
    assert outcomes(verdict)[PARTITION] == "translated"


def test_gpus_and_nics_under_one_switch_are_pairs():
    verdict = verdict_of(koordinator_pod_with_fields({"gpu": 200, "rdma": 200}, annotations=JOINT_WITH_SCOPE))
    assert [request["name"] for request in devices(verdict)["requests"]] == ["gpu-0", "nic-0", "gpu-1", "nic-1"]
    assert devices(verdict)["constraints"] == [
        {"requests": ["gpu-0", "nic-0"], "matchAttribute": "resource.kubernetes.io/pcieRoot"},
        {"requests": ["gpu-1", "nic-1"], "matchAttribute": "resource.kubernetes.io/pcieRoot"},
    ]


def test_a_partition_that_no_driver_publishes_leaves_the_pod_unchanged():
    manifest = koordinator_pod_with_fields(
        {"gpu": 200}, annotations={"scheduling.koordinator.sh/gpu-partition-spec": "{}"}
    )
    assert untouched(verdict_of(manifest))


STRATEGY = "drawbridge.dev/strategy"
JOINT_WITHOUT_SCOPE = {JOINT: json.dumps({"deviceTypes": ["gpu", "rdma"]})}


def joint_pod(**annotations: str) -> dict:
    amounts = {KOORD + "gpu": 100, KOORD + "rdma": 100}
    return pod(amounts, scheduler="koord-scheduler", annotations={**JOINT_WITHOUT_SCOPE, **annotations})


BRIDGE = {"bridge": {"schedulerName": "drawbridge", "drivers": ["gpu.nvidia.com"]}}


def test_without_a_scope_the_bridge_uses_the_topology_strategy():
    manifest = joint_pod()
    verdict = verdict_of(manifest, **BRIDGE)
    patched_pod = patched(manifest, verdict)
    assert patched_pod["spec"]["schedulerName"] == "drawbridge"
    assert patched_pod["metadata"]["annotations"][STRATEGY] == "topology"
    assert "the bridge prefers" in details_about(verdict, JOINT)
    assert "lost" not in details_about(verdict, JOINT)


def test_the_topology_strategy_needs_the_bridge_and_replaces_no_other():
    plain_pod = joint_pod()
    verdict = verdict_of(plain_pod)
    assert STRATEGY not in patched(plain_pod, verdict)["metadata"]["annotations"]
    assert "lost" in details_about(verdict, JOINT)
    pod_with_strategy = joint_pod(**{STRATEGY: "CompactFirst"})
    verdict = verdict_of(pod_with_strategy, **BRIDGE)
    assert patched(pod_with_strategy, verdict)["metadata"]["annotations"][STRATEGY] == "CompactFirst"
    assert "the pod's own" in details_about(verdict, JOINT)


def test_a_required_scope_needs_no_strategy():
    manifest = pod({KOORD + "gpu": 100, KOORD + "rdma": 100}, scheduler="koord-scheduler", annotations=JOINT_WITH_SCOPE)
    assert STRATEGY not in patched(manifest, verdict_of(manifest, **BRIDGE))["metadata"]["annotations"]
