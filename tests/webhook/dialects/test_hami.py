"""HAMi's keys: amounts, percentages and counts of each container."""

import pytest

from tests.webhook.dialects.hami_pods import hami_pod
from tests.webhook.dialects.rows import Row
from tests.webhook.pods import (
    GPU_MODELS,
    HAMI,
    alternatives,
    devices,
    exactly,
    example_fleet,
    outcomes,
    pod,
    refused,
    share,
    untouched,
    verdict_of,
)
from webhook.dialects import Served
from webhook.state.inventory import Inventory


def pod_with_metadata(key: str, value: str, field: str = "annotations") -> dict:
    """Return a pod that requests a share of each of two GPUs, with an annotation or a label."""
    manifest = pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1000})
    manifest["metadata"][field] = {key: value}
    return manifest


def pod_with_variable(name: str, value: str) -> dict:
    manifest = pod({"nvidia.com/gpumem": 1000})
    manifest["spec"]["containers"][0]["env"] = [{"name": name, "value": value}]
    return manifest


DEVICE_KINDS = ["vgpu", "amd", "cambricon-mlu", "dcu", "enflame-gcu", "xpu", "metax-gpu", "metax-sgpu", "mthreads-vgpu"]
WRITTEN_BY_HAMI = [
    "hami.io/vgpu-node",
    "hami.io/vgpu-time",
    "hami.io/bind-time",
    "hami.io/bind-phase",
    "hami.io/vgpu-mig-allocations",
    *(f"hami.io/{kind}-devices-to-allocate" for kind in DEVICE_KINDS),
    *(f"hami.io/{kind}-devices-allocated" for kind in DEVICE_KINDS),
]
POLICIES = ["hami.io/node-scheduler-policy", "hami.io/gpu-scheduler-policy", "hami.io/device-scoring-weights"]
ROWS = {
    "nvidia.com/gpu": Row(pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1000}), "translated"),
    "nvidia.com/gpumem": Row(pod({"nvidia.com/gpumem": 1000, "nvidia.com/gpucores": 10}), "translated"),
    "nvidia.com/gpumem-percentage": Row(
        pod({"nvidia.com/gpumem-percentage": 50, "nvidia.com/gpucores": 10}), "approximated", GPU_MODELS
    ),
    "nvidia.com/gpucores": Row(pod({"nvidia.com/gpucores": 10}), "translated"),
    "nvidia.com/priority": Row(pod({"nvidia.com/gpumem": 1000, "nvidia.com/priority": 1}), "approximated"),
    "nvidia.com/use-gputype": Row(pod_with_metadata("nvidia.com/use-gputype", "A100"), "translated"),
    "nvidia.com/nouse-gputype": Row(pod_with_metadata("nvidia.com/nouse-gputype", "A100"), "translated"),
    "nvidia.com/use-gpuuuid": Row(pod_with_metadata("nvidia.com/use-gpuuuid", "GPU-1"), "translated"),
    "nvidia.com/nouse-gpuuuid": Row(pod_with_metadata("nvidia.com/nouse-gpuuuid", "GPU-1"), "translated"),
    "nvidia.com/numa-bind": Row(
        pod_with_metadata("nvidia.com/numa-bind", "true"), "approximated", {"numaBind": "drop"}
    ),
    "nvidia.com/vgpu-mode": Row(pod_with_metadata("nvidia.com/vgpu-mode", "mps"), "left"),
    **{key: Row(pod_with_metadata(key, "binpack"), "approximated") for key in POLICIES},
    "hami.io/webhook": Row(pod_with_metadata("hami.io/webhook", "ignore", "labels"), "left"),
    "hami.io/dra": Row(pod_with_metadata("hami.io/dra", "true", "labels"), "left", key="nvidia.com/gpu"),
    "CUDA_DISABLE_CONTROL": Row(pod_with_variable("CUDA_DISABLE_CONTROL", "true"), ""),
    "GPU_CORE_UTILIZATION_POLICY": Row(pod_with_variable("GPU_CORE_UTILIZATION_POLICY", "force"), ""),
    **{key: Row(pod_with_metadata(key, "x"), "left") for key in WRITTEN_BY_HAMI},
}


@pytest.mark.parametrize(("key", "value"), [("hami.io/webhook", "mutate"), ("hami.io/dra", "false")])
def test_a_pod_whose_hami_label_does_not_opt_out_is_translated(key, value):
    """Only the labels `hami.io/webhook: ignore` and `hami.io/dra: true` opt out."""
    assert verdict_of(pod_with_metadata(key, value, "labels")).changed


WHOLE_GPU = {"class": HAMI, "count": 1}


def pod_for_hamis_scheduler(**limits) -> dict:
    """Return a pod for HAMi's own scheduler."""
    manifest = hami_pod(**limits)
    manifest["spec"]["schedulerName"] = "hami-scheduler"
    return manifest


@pytest.mark.parametrize(
    ("limits", "request_of_gpu"),
    [
        ({"gpu": 1}, WHOLE_GPU),
        ({"gpu": 1, "gpumem_percentage": 100}, WHOLE_GPU),
        ({"gpumem_percentage": 100}, WHOLE_GPU),
        ({"gpu": 1, "gpucores": 100}, WHOLE_GPU),
        ({"gpumem": 3000}, share(memory="3000Mi", cores="0")),
        ({"gpu": 1, "gpumem": "3k"}, share(memory="3000Mi", cores="0")),
        ({"gpu": 1, "gpucores": 30}, share(cores="30")),
        ({"gpu": 1, "gpumem": 3000, "gpucores": 30}, share(memory="3000Mi", cores="30")),
        ({"gpu": 1, "gpumem": 3000, "gpucores": 150}, share(memory="3000Mi", cores="100")),
        ({"gpu": 1, "gpumem": 3000, "gpumem_percentage": 100}, share(memory="3000Mi", cores="100")),
    ],
    ids=str,
)
def test_amounts_request_a_share_or_a_whole_gpu(limits, request_of_gpu):
    assert exactly(verdict_of(pod_for_hamis_scheduler(**limits))) == [request_of_gpu]


def test_all_cores_with_a_memory_cap_are_approximated():
    verdict = verdict_of(hami_pod(gpu=1, gpumem=1000, gpucores=100))
    assert outcomes(verdict)["nvidia.com/gpucores"] == "approximated"


def test_the_factor_and_defaults_of_hamis_config_map_apply():
    verdict = verdict_of(hami_pod(gpumem=1000), hami={"memoryFactor": 2, "defaultGPUNum": 3, "defaultCores": 10})
    assert exactly(verdict) == [{"class": HAMI, "count": 1, "capacity": {"memory": "2000Mi", "cores": "10"}}] * 3


@pytest.mark.parametrize(("default", "outcome", "detail"), [(0, "approximated", "unlimited"), (10, "translated", "10")])
def test_absent_cores_are_reported_as_unlimited_or_as_the_default(default, outcome, detail):
    verdict = verdict_of(hami_pod(gpumem=1000), hami={"defaultCores": default})
    decisions = [decision for decision in verdict.decisions if "gpucores is absent" in decision.detail]
    assert [(str(decision.outcome), decision.detail.endswith(detail)) for decision in decisions] == [(outcome, True)]


def test_with_a_default_memory_a_bare_gpu_count_requests_a_share():
    verdict = verdict_of(pod({"nvidia.com/gpu": 1}, scheduler="hami-scheduler"), hami={"defaultMemory": 5000})
    assert exactly(verdict) == [{"class": HAMI, "count": 1, "capacity": {"memory": "5000Mi", "cores": "100"}}]


@pytest.mark.parametrize("percent", [-1, 101])
def test_a_percentage_out_of_range_is_refused(percent):
    assert refused(verdict_of(hami_pod(gpu=1, gpumem_percentage=percent)))


def test_memory_that_a_factor_raises_beyond_hamis_range_is_refused():
    assert refused(verdict_of(hami_pod(gpu=1, gpumem=2**30), hami={"memoryFactor": 2}))


@pytest.mark.parametrize(
    ("annotations", "percentage", "sizes", "expected"),
    [
        ({}, 50, GPU_MODELS, ["20Gi", "23034Mi"]),
        ({"use_gputype": "l40s"}, 50, GPU_MODELS, ["23034Mi"]),
        ({}, 25, {"fleet": example_fleet()}, ["10Gi", "11517Mi"]),
        ({}, 50, {"fleet": example_fleet(), "models": [{"product": "NVIDIA L40S", "memory": "40Gi"}]}, ["20Gi"]),
    ],
    ids=["declared sizes", "a named model", "published sizes", "a declared size beside a published one"],
)
def test_a_percentage_is_an_alternative_for_each_size(annotations, percentage, sizes, expected):
    verdict = verdict_of(hami_pod(annotations, gpu=1, gpumem_percentage=percentage), **sizes)
    assert alternatives(verdict) == [[{"memory": memory, "cores": "0"} for memory in expected]]


def test_a_remedy_has_placeholders_if_no_product_is_published():
    verdict = verdict_of(hami_pod(gpumem_percentage=50))
    assert "`models: [{product: PRODUCT, memory: SIZE}]`" in verdict.warnings[0]


def test_sizes_above_the_limit_of_alternatives_cause_a_warning():
    models = [{"product": f"GPU {i}", "memory": f"{i}Gi"} for i in range(1, 12)]
    verdict = verdict_of(hami_pod(gpumem_percentage=50), models=models)
    (request,) = devices(verdict)["requests"]
    assert len(request["firstAvailable"]) == 8
    assert any("3 sizes are left out" in warning for warning in verdict.warnings)


def test_two_shares_become_requests_on_distinct_devices():
    verdict = verdict_of(pod_for_hamis_scheduler(gpu=2, gpumem=3000, gpucores=30))
    assert exactly(verdict) == [share(memory="3000Mi", cores="30")] * 2
    assert devices(verdict)["constraints"] == [{"requests": ["gpu-0", "gpu-1"], "distinctAttribute": f"{HAMI}/uuid"}]


@pytest.mark.parametrize("limits", [{"gpumem": 0}, {"gpumem_percentage": 0}], ids=["memory", "percentage"])
def test_a_zero_amount_requests_a_share_not_a_whole_gpu(limits):
    verdict = verdict_of(pod_for_hamis_scheduler(gpu=1, **limits))
    assert exactly(verdict) == [share(cores="0")]
    assert verdict.warnings


def test_a_percentage_of_unknown_gpu_memory_is_left_or_refused():
    assert untouched(verdict_of(pod_for_hamis_scheduler(gpu=1, gpumem_percentage=50)))
    assert refused(verdict_of(pod_for_hamis_scheduler(gpu=1, gpumem_percentage=50), unresolved="refuse"))


@pytest.mark.parametrize("amount", [1.5, "1.5", "1500m"])
def test_a_fractional_amount_is_refused(amount):
    verdict = verdict_of(pod_for_hamis_scheduler(gpu=1, gpumem=amount))
    assert refused(verdict)
    assert "nvidia.com/gpumem" in str(verdict.refusals[0])
    assert str(amount) in str(verdict.refusals[0])


@pytest.mark.parametrize(("policy", "has_outcome"), [("leave", untouched), ("refuse", refused)])
def test_numa_binding_is_unsupported_by_hamis_driver(policy, has_outcome):
    assert has_outcome(verdict_of(hami_pod({"numa_bind": "true"}, gpu=2, gpumem=1), numaBind=policy))


def test_numa_binding_can_be_dropped_by_policy():
    verdict = verdict_of(hami_pod({"numa_bind": "true"}, gpu=2, gpumem=1), numaBind="drop")
    assert exactly(verdict) == [share(memory="1Mi", cores="0")] * 2
    assert any("NUMA" in warning for warning in verdict.warnings)


def test_a_unit_that_hami_would_misread_is_refused():
    assert refused(verdict_of(pod_for_hamis_scheduler(gpu=1, gpumem="3Gi")))


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "koord-scheduler"])
def test_a_share_is_left_unchanged_if_its_scheduler_ignores_shares(scheduler):
    manifest = pod({"nvidia.com/gpumem": 3000}, scheduler=scheduler)
    assert untouched(verdict_of(manifest))
    assert refused(verdict_of(manifest, notUnderstood="refuse"))


def test_cores_that_hamis_webhook_injects_do_not_change_the_template():
    without_cores, with_cores = pod_for_hamis_scheduler(gpu=1), pod_for_hamis_scheduler(gpu=1, gpucores=100)
    assert verdict_of(without_cores).templates == verdict_of(with_cores).templates


def test_a_percentage_of_a_partly_examined_class_is_not_refused():
    """If the selectors of a class cost too much to evaluate, it is unknown whether its devices have memory sizes."""
    manifest = pod_for_hamis_scheduler(gpu=1, gpumem_percentage=50)
    fleets = {
        doubt: Inventory(known=True, classes={HAMI: Served(name=HAMI, doubt=doubt)}) for doubt in ("", "too costly")
    }
    assert refused(verdict_of(manifest, fleet=fleets[""], unresolved="refuse"))
    verdict = verdict_of(manifest, fleet=fleets["too costly"], unresolved="refuse")
    assert untouched(verdict)
    assert "too costly" in verdict.warnings[0]
