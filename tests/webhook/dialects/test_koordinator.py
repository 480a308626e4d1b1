"""Koordinator's keys: requests are summed over the pod and spread over GPUs that all containers see."""

import pytest

from tests.webhook.dialects.koordinator_pods import (
    BINDING,
    CORE_AND_MEMORY,
    HINT,
    JOINT,
    PARTITION,
    SAME_PCIE,
    TOPOLOGY,
    details_about,
    koordinator_pod,
    koordinator_pod_with_fields,
    koordinator_verdict,
)
from tests.webhook.dialects.rows import Row
from tests.webhook.pods import (
    GPU_MODELS,
    HAMI,
    KOORD,
    WHOLE_GPUS,
    alternatives,
    container,
    devices,
    exactly,
    example_fleet,
    patched,
    pod,
    refused,
    share,
    untouched,
    verdict_of,
)


def pod_selecting(selector: str, value: str = "x") -> dict:
    return koordinator_pod_with_fields({"gpu": 100}, nodeSelector={selector: value})


def pod_with_label(key: str) -> dict:
    manifest = koordinator_pod({"gpu": 100})
    manifest["metadata"]["labels"] = {key: "HAMi-core"}
    return manifest


ROWS = {
    KOORD + "gpu": Row(koordinator_pod({"gpu": 200}), "translated"),
    KOORD + "gpu-core": Row(koordinator_pod(CORE_AND_MEMORY), "translated"),
    KOORD + "gpu-memory": Row(koordinator_pod(CORE_AND_MEMORY), "translated"),
    KOORD + "gpu-memory-ratio": Row(
        koordinator_pod({"gpu-core": 50, "gpu-memory-ratio": 50}), "approximated", GPU_MODELS
    ),
    KOORD + "gpu.shared": Row(koordinator_pod({"gpu.shared": 2, **CORE_AND_MEMORY}), "translated"),
    KOORD + "rdma": Row(koordinator_pod({"rdma": 100}), "translated"),
    KOORD + "fpga": Row(koordinator_pod({"fpga": 100}), "left"),
    **{
        key: Row(pod({key: 1}, scheduler="koord-scheduler"), "left")
        for key in ("huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp")
    },
    "nvidia.com/gpu": Row(pod({"nvidia.com/gpu": 2}), "translated", {"meanings": {"nvidia.com/gpu": "koordinator"}}),
    JOINT: Row(koordinator_pod({"gpu": 100, "rdma": 100}, device_joint_allocate=SAME_PCIE), "approximated"),
    HINT: Row(
        koordinator_pod({"rdma": 1}, device_allocate_hint={"rdma": {"allocateStrategy": "ApplyForAll"}}), "approximated"
    ),
    **{
        key: Row(pod({KOORD + "rdma": 100, key: 1}, scheduler="koord-scheduler"), "left")
        for key in ("amd.com/gpu", "dcu.com/gpu", "metax-tech.com/sgpu")
    },
    **{
        f"kubernetes.io/{name}": Row(pod({f"kubernetes.io/{name}": 100}, scheduler="koord-scheduler"), "left")
        for name in ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "rdma", "fpga")
    },
    "scheduling.koordinator.sh/reservation-affinity": Row(
        koordinator_pod({"gpu": 100}, reservation_affinity={"name": "r"}), "left"
    ),
    "gang.scheduling.koordinator.sh/name": Row(
        koordinator_pod_with_fields({"gpu": 100}, annotations={"gang.scheduling.koordinator.sh/name": "g"}), "left"
    ),
    **{
        key: Row(pod_with_label(key), "left")
        for key in ("pod-group.scheduling.sigs.k8s.io", "quota.scheduling.koordinator.sh/name")
    },
    PARTITION: Row(koordinator_pod(CORE_AND_MEMORY, gpu_partition_spec={}), "translated"),
    TOPOLOGY: Row(
        koordinator_pod({"gpu": 100}, numa_topology_spec={"numaTopologyPolicy": "SingleNUMANode"}), "approximated"
    ),
    BINDING: Row(koordinator_pod({"gpu": 100}, resource_spec={"requiredCPUBindPolicy": "FullPCPUs"}), "approximated"),
    KOORD + "gpu-isolation-provider": Row(pod_with_label(KOORD + "gpu-isolation-provider"), ""),
    "scheduling.koordinator.sh/gpu-minors": Row(koordinator_pod({"gpu": 100}, gpu_minors=1), "left"),
    "scheduling.koordinator.sh/bind-timestamp": Row(koordinator_pod({"gpu": 100}, bind_timestamp=1), "left"),
    "scheduling.koordinator.sh/device-allocated": Row(koordinator_pod({"gpu": 100}, device_allocated={}), "left"),
    "node.koordinator.sh/gpu-vendor": Row(pod_selecting("node.koordinator.sh/gpu-vendor", "huawei"), "left"),
    **{
        key: Row(pod_selecting(key), "")
        for key in ("node.koordinator.sh/gpu-model", "node.koordinator.sh/gpu-driver-version")
    },
}


@pytest.mark.parametrize(
    ("limits", "requests"),
    [
        pytest.param(CORE_AND_MEMORY, [share(memory="8Gi", cores="50")], id="compute and memory"),
        pytest.param({"gpu-memory": "8Gi"}, [share(memory="8Gi", cores="0")], id="memory alone"),
        pytest.param({"gpu.shared": 3, "gpu-memory": "1000"}, [share(memory="333", cores="0")] * 3, id="rounded down"),
        pytest.param(
            {"gpu.shared": 2, "gpu-core": 100, "gpu-memory": "16Gi"}, [share(memory="8Gi", cores="50")] * 2, id="totals"
        ),
        pytest.param({"rdma": 200}, [{"class": "dranet", "count": 2}], id="each 100 of rdma is a device"),
    ],
)
def test_amounts_of_a_pod_are_divided_among_its_devices(limits, requests):
    assert exactly(koordinator_verdict(limits)) == requests


@pytest.mark.parametrize(
    "limits",
    [
        [{"gpu": 100, "gpu-core": 50}],
        [{"gpu-memory": "8Gi", "gpu-memory-ratio": 50}],
        [{"gpu.shared": 2}],
        [{"gpu-core": 100, "gpu.shared": 2}],
        [{"gpu-core": 50}],
        [{"gpu": 150}],
        [{"gpu": 31}, {"gpu": 50}],
    ],
    ids=str,
)
def test_amounts_that_koordinator_refuses_are_refused(limits):
    assert refused(koordinator_verdict(*limits))


def test_all_containers_see_whole_gpus_requested_by_the_plugin_name():
    manifest = pod({"nvidia.com/gpu": 2}, {}, scheduler="koord-scheduler")
    verdict = verdict_of(manifest, meanings={"nvidia.com/gpu": "koordinator"})
    patched_spec = patched(manifest, verdict)["spec"]
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 2}]
    assert [container["resources"]["claims"] for container in patched_spec["containers"]] == [
        [{"name": "drawbridge-pod-gpu"}]
    ] * 2
    assert patched_spec["schedulerName"] == "default-scheduler"


def test_the_device_plugin_name_beside_koordinators_is_refused():
    manifest = pod({"nvidia.com/gpu": 1, KOORD + "gpu": 100})
    assert refused(verdict_of(manifest, meanings={"nvidia.com/gpu": "koordinator"}))


def test_without_koordinators_webhook_the_plain_sum_is_requested():
    config = {"koordinator": {"webhook": False}}
    verdict = koordinator_verdict({"gpu": 50}, {"gpu": 50}, config=config)
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 1}]
    assert refused(koordinator_verdict({"gpu-core": 150, "gpu-memory-ratio": 200}, config=config))


def test_init_containers_and_sidecars_see_the_pods_devices():
    manifest = pod(
        {KOORD + "gpu": 100},
        {},
        init=(container("i"), container("s", {}, restartPolicy="Always")),
        scheduler="koord-scheduler",
    )
    patched_spec = patched(manifest, verdict_of(manifest))["spec"]
    containers = [*patched_spec["initContainers"], *patched_spec["containers"]]
    assert [container["resources"]["claims"] for container in containers] == [[{"name": "drawbridge-pod-gpu"}]] * 4


def test_a_pod_with_keys_of_hami_and_koordinator_is_unchanged():
    assert untouched(verdict_of(pod({"nvidia.com/gpumem": 1000}, {KOORD + "gpu": 100})))
    assert untouched(verdict_of(pod({"nvidia.com/gpumem": 1000, KOORD + "gpu": 100})))


def test_a_declared_meaning_applies_only_to_bare_keys():
    manifest = pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1000}, {"nvidia.com/gpu": 1})
    verdict = verdict_of(manifest, **WHOLE_GPUS)
    assert len(verdict.templates) == 2
    claims = [container["resources"]["claims"] for container in patched(manifest, verdict)["spec"]["containers"]]
    assert claims == [[{"name": "drawbridge-c0-gpu"}], [{"name": "drawbridge-c1-gpu"}]]


def test_two_half_gpus_become_shares_of_two_distinct_gpus():
    verdict = verdict_of(koordinator_pod({"gpu": 50}, {"gpu": 50}), **GPU_MODELS)
    assert alternatives(verdict) == [[{"memory": "20Gi", "cores": "50"}, {"memory": "23034Mi", "cores": "50"}]] * 2
    assert devices(verdict)["constraints"] == [
        {"requests": ["gpu-0", "gpu-1"], "distinctAttribute": f"{HAMI}/uuid"},
        {"requests": ["gpu-0", "gpu-1"], "matchAttribute": f"{HAMI}/productName"},
    ]
    assert untouched(verdict_of(koordinator_pod({"gpu": 50}, {"gpu": 50})))


def test_containers_add_up_to_whole_gpus_that_both_see():
    manifest = koordinator_pod({"gpu": 150}, {"gpu": 50})
    verdict = verdict_of(manifest)
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 2}]
    claims = [container["resources"]["claims"] for container in patched(manifest, verdict)["spec"]["containers"]]
    assert claims == [[{"name": "drawbridge-pod-gpu"}]] * 2


def test_koordinators_webhook_does_not_change_the_resulting_templates():
    original, rewritten = ({"gpu": 50}, {"gpu-core": 50, "gpu-memory-ratio": 50, "gpu.shared": 1})
    templates = verdict_of(koordinator_pod(original), **GPU_MODELS).templates
    assert templates == verdict_of(koordinator_pod(rewritten), **GPU_MODELS).templates != {}


def test_a_pod_that_must_keep_koordinators_scheduler_is_left_unchanged():
    manifest = koordinator_pod({"gpu-core": 50, "gpu-memory": "8Gi"})
    assert verdict_of(manifest).changed
    assert untouched(verdict_of(manifest, targetScheduler=""))


def test_a_request_of_an_init_container_beside_others_is_refused():
    init = (container("i", {KOORD + "gpu": 100}),)
    init_request_only = koordinator_pod_with_fields({}, init=init)
    assert exactly(verdict_of(init_request_only)) == [{"class": "gpu.nvidia.com", "count": 1}]
    assert refused(verdict_of(koordinator_pod_with_fields({"gpu": 100}, init=init)))


def test_a_pod_that_selects_another_vendor_is_left_unchanged():
    vendor = "node.koordinator.sh/gpu-vendor"
    assert verdict_of(pod_selecting(vendor, "nvidia")).changed
    verdict = verdict_of(pod_selecting(vendor, "Huawei"))
    assert untouched(verdict)
    assert "Huawei" in verdict.warnings[0]


def test_a_node_selector_does_not_determine_the_dialect():
    manifest = pod({"nvidia.com/gpu": 2}, nodeSelector={"node.koordinator.sh/gpu-vendor": "nvidia"})
    verdict = verdict_of(manifest, fleet=example_fleet())
    assert [decision.dialect for decision in verdict.decisions] == ["nvidia"]


@pytest.mark.parametrize(
    ("limits", "requests", "is_refused"),
    [("1500m", "1500m", False), ("2", "1", False), (None, "1", False), ("x", "x", True), ("-1", "-1", True)],
)
def test_a_kubernetes_io_key_is_refused_only_for_invalid_amounts(limits, requests, is_refused):
    key = "kubernetes.io/gpu-memory"
    manifest = pod({})
    sides = {"limits": limits, "requests": requests}
    manifest["spec"]["containers"][0]["resources"] = {side: {key: amount} for side, amount in sides.items() if amount}
    verdict = verdict_of(manifest)
    assert refused(verdict) == is_refused
    assert untouched(verdict) != is_refused


@pytest.mark.parametrize("key", ["pod-group.scheduling.sigs.k8s.io", "quota.scheduling.koordinator.sh/name"])
def test_the_reason_names_koordinator_only_for_its_own_labels(key):
    verdict = verdict_of(pod_with_label(key))
    assert ("only Koordinator implements it" in details_about(verdict, key)) is (
        key != "pod-group.scheduling.sigs.k8s.io"
    )
    assert "the pod keeps its scheduler" in details_about(verdict, key)
