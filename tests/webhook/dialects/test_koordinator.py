"""Koordinator's keys: requests are summed over the pod and spread over GPUs that all containers see."""

import pytest

from tests.webhook.dialects.koordinator_pods import (
    BINDING,
    BOTH,
    HINT,
    JOINT,
    PARTITION,
    TOPOLOGY,
    detail,
    koordinator,
    koordinator_pod,
    spoken,
)
from tests.webhook.dialects.rows import Row
from tests.webhook.pods import (
    HAMI,
    KOORD,
    SIZES,
    WHOLE,
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


def on(selector: str, value: str = "x") -> dict:
    return koordinator_pod({"gpu": 100}) | {
        "spec": koordinator_pod({"gpu": 100})["spec"] | {"nodeSelector": {selector: value}}
    }


def labelled(key: str) -> dict:
    made = koordinator_pod({"gpu": 100})
    made["metadata"]["labels"] = {key: "HAMi-core"}
    return made


ROWS = {
    KOORD + "gpu": Row(koordinator_pod({"gpu": 200}), "translated"),
    KOORD + "gpu-core": Row(koordinator_pod(BOTH), "translated"),
    KOORD + "gpu-memory": Row(koordinator_pod(BOTH), "translated"),
    KOORD + "gpu-memory-ratio": Row(koordinator_pod({"gpu-core": 50, "gpu-memory-ratio": 50}), "approximated", SIZES),
    KOORD + "gpu.shared": Row(koordinator_pod({"gpu.shared": 2, **BOTH}), "translated"),
    KOORD + "rdma": Row(koordinator_pod({"rdma": 100}), "translated"),
    KOORD + "fpga": Row(koordinator_pod({"fpga": 100}), "left"),
    **{
        key: Row(pod({key: 1}, scheduler="koord-scheduler"), "left")
        for key in ("huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp")
    },
    "nvidia.com/gpu": Row(pod({"nvidia.com/gpu": 2}), "translated", {"meanings": {"nvidia.com/gpu": "koordinator"}}),
    JOINT: Row(
        koordinator_pod(
            {"gpu": 100, "rdma": 100},
            device_joint_allocate={"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"},
        ),
        "approximated",
    ),
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
        pod(
            {KOORD + "gpu": 100},
            scheduler="koord-scheduler",
            annotations={"scheduling.koordinator.sh/reservation-affinity": '{"name": "r"}'},
        ),
        "left",
    ),
    "gang.scheduling.koordinator.sh/name": Row(
        pod(
            {KOORD + "gpu": 100}, scheduler="koord-scheduler", annotations={"gang.scheduling.koordinator.sh/name": "g"}
        ),
        "left",
    ),
    **{
        key: Row(labelled(key), "left")
        for key in ("pod-group.scheduling.sigs.k8s.io", "quota.scheduling.koordinator.sh/name")
    },
    PARTITION: Row(koordinator_pod(BOTH, gpu_partition_spec={}), "translated"),
    TOPOLOGY: Row(
        koordinator_pod({"gpu": 100}, numa_topology_spec={"numaTopologyPolicy": "SingleNUMANode"}), "approximated"
    ),
    BINDING: Row(koordinator_pod({"gpu": 100}, resource_spec={"requiredCPUBindPolicy": "FullPCPUs"}), "approximated"),
    KOORD + "gpu-isolation-provider": Row(labelled(KOORD + "gpu-isolation-provider"), ""),
    "scheduling.koordinator.sh/gpu-minors": Row(koordinator_pod({"gpu": 100}, gpu_minors=1), "left"),
    "scheduling.koordinator.sh/bind-timestamp": Row(koordinator_pod({"gpu": 100}, bind_timestamp=1), "left"),
    "scheduling.koordinator.sh/device-allocated": Row(koordinator_pod({"gpu": 100}, device_allocated={}), "left"),
    "node.koordinator.sh/gpu-vendor": Row(on("node.koordinator.sh/gpu-vendor", "huawei"), "left"),
    **{key: Row(on(key), "") for key in ("node.koordinator.sh/gpu-model", "node.koordinator.sh/gpu-driver-version")},
}


def test_compute_and_memory_in_bytes():
    done = koordinator({"gpu-core": 50, "gpu-memory": "8Gi"})
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "8Gi", "cores": "50"}}]


def test_memory_alone_has_no_compute():
    done = koordinator({"gpu-memory": "8Gi"})
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "8Gi", "cores": "0"}}]


def test_bytes_are_divided_and_rounded_down():
    done = koordinator({"gpu.shared": 3, "gpu-memory": "1000"})
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "333", "cores": "0"}}] * 3


@pytest.mark.parametrize(
    "limits",
    [
        {"gpu": 100, "gpu-core": 50},
        {"gpu-memory": "8Gi", "gpu-memory-ratio": 50},
        {"gpu.shared": 2},
        {"gpu-core": 100, "gpu.shared": 2},
    ],
)
def test_combinations_that_koordinator_refuses_are_refused(limits):
    assert refused(koordinator(limits))


def test_all_containers_see_whole_gpus_requested_by_the_plugin_name():
    value = pod({"nvidia.com/gpu": 2}, {}, scheduler="koord-scheduler")
    done = verdict_of(value, meanings={"nvidia.com/gpu": "koordinator"})
    after = patched(value, done)["spec"]
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 2}]
    assert [container["resources"]["claims"] for container in after["containers"]] == [
        [{"name": "drawbridge-pod-gpu"}]
    ] * 2
    assert after["schedulerName"] == "default-scheduler"


def test_the_device_plugin_name_beside_koordinators_is_refused():
    value = pod({"nvidia.com/gpu": 1, KOORD + "gpu": 100})
    assert refused(verdict_of(value, meanings={"nvidia.com/gpu": "koordinator"}))


def test_with_the_webhook_off_the_raw_sum_counts():
    done = koordinator({"gpu": 50}, {"gpu": 50}, config={"koordinator": {"webhook": False}})
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 1}]


def test_rdma_in_hundreds_is_whole_devices():
    assert exactly(koordinator({"rdma": 200})) == [{"class": "dranet", "count": 2}]


def test_a_designated_allocation_is_left():
    assert untouched(koordinator({"gpu": 100}, hints={"scheduling.koordinator.sh/device-allocated": {}}))


@pytest.mark.parametrize("key", ["scheduling.koordinator.sh/gpu-minors", "scheduling.koordinator.sh/bind-timestamp"])
def test_a_pod_that_koordinator_has_placed_is_left(key):
    assert untouched(koordinator({"gpu": 100}, hints={key: 1}))


def test_init_containers_and_sidecars_see_the_pods_devices():
    value = pod(
        {KOORD + "gpu": 100},
        {},
        init=(container("i"), container("s", {}, restartPolicy="Always")),
        scheduler="koord-scheduler",
    )
    after = patched(value, verdict_of(value))["spec"]
    every = [*after["initContainers"], *after["containers"]]
    assert [container["resources"]["claims"] for container in every] == [[{"name": "drawbridge-pod-gpu"}]] * 4


def test_two_systems_in_one_pod_are_a_double_request():
    assert untouched(verdict_of(pod({"nvidia.com/gpumem": 1000}, {KOORD + "gpu": 100})))
    assert untouched(verdict_of(pod({"nvidia.com/gpumem": 1000, KOORD + "gpu": 100})))


def test_a_declared_meaning_is_for_the_bare_key_only():
    value = pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1000}, {"nvidia.com/gpu": 1})
    done = verdict_of(value, **WHOLE)
    assert len(done.templates) == 2
    claims = [container["resources"]["claims"] for container in patched(value, done)["spec"]["containers"]]
    assert claims == [[{"name": "drawbridge-c0-gpu"}], [{"name": "drawbridge-c1-gpu"}]]


def test_more_than_one_gpu_on_one_gpu_is_refused():
    assert refused(verdict_of(spoken({"gpu": 150})))


def test_compute_without_memory_is_refused():
    assert refused(verdict_of(spoken({"gpu-core": 50})))


def test_totals_are_divided_by_the_number_of_gpus():
    done = verdict_of(spoken({"gpu.shared": 2, "gpu-core": 100, "gpu-memory": "16Gi"}))
    assert exactly(done) == [share(memory="8Gi", cores="50")] * 2


def test_two_half_gpus_become_shares_of_two_distinct_gpus():
    done = verdict_of(spoken({"gpu": 50}, {"gpu": 50}), **SIZES)
    assert alternatives(done) == [[{"memory": "20Gi", "cores": "50"}, {"memory": "23034Mi", "cores": "50"}]] * 2
    assert devices(done)["constraints"] == [
        {"requests": ["gpu-0", "gpu-1"], "distinctAttribute": f"{HAMI}/uuid"},
        {"requests": ["gpu-0", "gpu-1"], "matchAttribute": f"{HAMI}/productName"},
    ]
    assert untouched(verdict_of(spoken({"gpu": 50}, {"gpu": 50})))


def test_containers_add_up_to_whole_gpus_that_both_see():
    value = spoken({"gpu": 150}, {"gpu": 50})
    done = verdict_of(value)
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 2}]
    claims = [container["resources"]["claims"] for container in patched(value, done)["spec"]["containers"]]
    assert claims == [[{"name": "drawbridge-pod-gpu"}]] * 2


def test_a_sum_that_does_not_divide_is_refused():
    assert refused(verdict_of(spoken({"gpu": 31}, {"gpu": 50})))


def test_koordinators_webhook_does_not_change_the_resulting_templates():
    raw = verdict_of(spoken({"gpu": 50}), **SIZES)
    rewritten = verdict_of(spoken({"gpu-core": 50, "gpu-memory-ratio": 50, "gpu.shared": 1}), **SIZES)
    assert raw.templates == rewritten.templates
    assert raw.templates


def test_a_scheduler_kept_by_policy_counts_too():
    value = spoken({"gpu-core": 50, "gpu-memory": "8Gi"})
    assert verdict_of(value).changed
    assert untouched(verdict_of(value, targetScheduler=""))


def test_init_containers_of_koordinator_are_not_rewritten():
    alone = pod({}, init=(container("i", {KOORD + "gpu": 100}),), scheduler="koord-scheduler")
    assert exactly(verdict_of(alone)) == [{"class": "gpu.nvidia.com", "count": 1}]
    beside = pod({KOORD + "gpu": 100}, init=(container("i", {KOORD + "gpu": 100}),), scheduler="koord-scheduler")
    assert refused(verdict_of(beside))


def test_a_pod_that_selects_another_vendor_is_left():
    vendor = "node.koordinator.sh/gpu-vendor"
    assert verdict_of(on(vendor, "nvidia")).changed
    done = verdict_of(on(vendor, "Huawei"))
    assert untouched(done)
    assert "Huawei" in done.warnings[0]


def test_a_node_selector_does_not_determine_the_dialect():
    value = pod({"nvidia.com/gpu": 2}, nodeSelector={"node.koordinator.sh/gpu-vendor": "nvidia"})
    done = verdict_of(value, fleet=example_fleet())
    assert [decision.dialect for decision in done.decisions] == ["nvidia"]


@pytest.mark.parametrize(
    ("limits", "requests", "refused_"),
    [("1500m", "1500m", False), ("2", "1", False), (None, "1", False), ("x", "x", True), ("-1", "-1", True)],
)
def test_a_kubernetes_io_key_is_refused_only_for_invalid_amounts(limits, requests, refused_):
    key = "kubernetes.io/gpu-memory"
    value = pod({})
    sides = {"limits": limits, "requests": requests}
    value["spec"]["containers"][0]["resources"] = {side: {key: amount} for side, amount in sides.items() if amount}
    done = verdict_of(value)
    assert refused(done) == refused_
    assert untouched(done) != refused_


@pytest.mark.parametrize("key", ["pod-group.scheduling.sigs.k8s.io", "quota.scheduling.koordinator.sh/name"])
def test_a_label_of_several_coscheduling_schedulers_is_not_called_koordinators(key):
    done = verdict_of(labelled(key))
    assert ("only Koordinator implements it" in detail(done, key)) is (key != "pod-group.scheduling.sigs.k8s.io")
    assert "the pod keeps its scheduler" in detail(done, key)
