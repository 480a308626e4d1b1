"""HAMi's keys: amounts, percentages and counts of each container."""

import pytest

from tests.webhook.dialects.hami_pods import hami
from tests.webhook.dialects.rows import Row
from tests.webhook.pods import (
    HAMI,
    SIZES,
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


def noted(key: str, value: str, place: str = "annotations") -> dict:
    """A pod that requests a share of each of two GPUs, with an annotation or a label."""
    made = pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1000})
    made["metadata"][place] = {key: value}
    return made


def with_variable(name: str, value: str) -> dict:
    made = pod({"nvidia.com/gpumem": 1000})
    made["spec"]["containers"][0]["env"] = [{"name": name, "value": value}]
    return made


KINDS = ["vgpu", "amd", "cambricon-mlu", "dcu", "enflame-gcu", "xpu", "metax-gpu", "metax-sgpu", "mthreads-vgpu"]
OUTPUTS = [
    "hami.io/vgpu-node",
    "hami.io/vgpu-time",
    "hami.io/bind-time",
    "hami.io/bind-phase",
    "hami.io/vgpu-mig-allocations",
    *(f"hami.io/{kind}-devices-to-allocate" for kind in KINDS),
    *(f"hami.io/{kind}-devices-allocated" for kind in KINDS),
]
POLICIES = ["hami.io/node-scheduler-policy", "hami.io/gpu-scheduler-policy", "hami.io/device-scoring-weights"]
ROWS = {
    "nvidia.com/gpu": Row(pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1000}), "translated"),
    "nvidia.com/gpumem": Row(pod({"nvidia.com/gpumem": 1000, "nvidia.com/gpucores": 10}), "translated"),
    "nvidia.com/gpumem-percentage": Row(
        pod({"nvidia.com/gpumem-percentage": 50, "nvidia.com/gpucores": 10}), "approximated", SIZES
    ),
    "nvidia.com/gpucores": Row(pod({"nvidia.com/gpucores": 10}), "translated"),
    "nvidia.com/priority": Row(pod({"nvidia.com/gpumem": 1000, "nvidia.com/priority": 1}), "approximated"),
    "nvidia.com/use-gputype": Row(noted("nvidia.com/use-gputype", "A100"), "translated"),
    "nvidia.com/nouse-gputype": Row(noted("nvidia.com/nouse-gputype", "A100"), "translated"),
    "nvidia.com/use-gpuuuid": Row(noted("nvidia.com/use-gpuuuid", "GPU-1"), "translated"),
    "nvidia.com/nouse-gpuuuid": Row(noted("nvidia.com/nouse-gpuuuid", "GPU-1"), "translated"),
    "nvidia.com/numa-bind": Row(noted("nvidia.com/numa-bind", "true"), "approximated", {"numaBind": "drop"}),
    "nvidia.com/vgpu-mode": Row(noted("nvidia.com/vgpu-mode", "mps"), "left"),
    **{key: Row(noted(key, "binpack"), "approximated") for key in POLICIES},
    "hami.io/webhook": Row(noted("hami.io/webhook", "ignore", "labels"), "left"),
    "hami.io/dra": Row(noted("hami.io/dra", "true", "labels"), "left", key="nvidia.com/gpu"),
    "CUDA_DISABLE_CONTROL": Row(with_variable("CUDA_DISABLE_CONTROL", "true"), ""),
    "GPU_CORE_UTILIZATION_POLICY": Row(with_variable("GPU_CORE_UTILIZATION_POLICY", "force"), ""),
    **{key: Row(noted(key, "x"), "left") for key in OUTPUTS},
}


@pytest.mark.parametrize(("key", "value"), [("hami.io/webhook", "mutate"), ("hami.io/dra", "false")])
def test_a_label_counts_only_with_its_value(key, value):
    assert verdict_of(noted(key, value, "labels")).changed


def scheduled(**limits) -> dict:
    """A pod for HAMi's own scheduler."""
    return pod(
        {f"nvidia.com/{key.replace('_', '-')}": value for key, value in limits.items()}, scheduler="hami-scheduler"
    )


EXCLUSIVE = [{"class": HAMI, "count": 1}]


@pytest.mark.parametrize(("cores", "given"), [(30, "30"), (150, "100")])
def test_cores_above_100_are_100(cores, given):
    done = verdict_of(hami(gpu=1, gpumem=1000, gpucores=cores))
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "1000Mi", "cores": given}}]


def test_all_cores_with_a_memory_cap_are_approximated():
    done = verdict_of(hami(gpu=1, gpumem=1000, gpucores=100))
    assert outcomes(done)["nvidia.com/gpucores"] == "approximated"


def test_the_factor_and_defaults_of_the_config_map_apply():
    done = verdict_of(hami(gpumem=1000), hami={"memoryFactor": 2, "defaultGPUNum": 3, "defaultCores": 10})
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "2000Mi", "cores": "10"}}] * 3


@pytest.mark.parametrize(("default", "outcome", "detail"), [(0, "approximated", "unlimited"), (10, "translated", "10")])
def test_default_cores_are_reserved_so_only_0_cores_are_unlimited(default, outcome, detail):
    done = verdict_of(hami(gpumem=1000), hami={"defaultCores": default})
    decisions = [decision for decision in done.decisions if "gpucores is absent" in decision.detail]
    assert [(str(decision.outcome), decision.detail.endswith(detail)) for decision in decisions] == [(outcome, True)]


def test_a_default_memory_is_not_a_whole_card():
    done = verdict_of(pod({"nvidia.com/gpu": 1}, scheduler="hami-scheduler"), hami={"defaultMemory": 5000})
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "5000Mi", "cores": "100"}}]


@pytest.mark.parametrize("percent", [-1, 101])
def test_a_percentage_out_of_range_is_refused(percent):
    assert refused(verdict_of(hami(gpu=1, gpumem_percentage=percent)))


def test_a_factor_that_leaves_hamis_range_is_refused():
    assert refused(verdict_of(hami(gpu=1, gpumem=2**30), hami={"memoryFactor": 2}))


def test_models_narrow_the_alternatives_of_a_percentage():
    done = verdict_of(hami({"use_gputype": "l40s"}, gpumem_percentage=50), **SIZES)
    (request,) = devices(done)["requests"]
    assert [alternative["capacity"]["requests"]["memory"] for alternative in request["firstAvailable"]] == ["23034Mi"]


def test_percentages_come_from_the_fleet():
    done = verdict_of(hami(gpumem_percentage=25), fleet=example_fleet())
    (request,) = devices(done)["requests"]
    assert [alternative["capacity"]["requests"]["memory"] for alternative in request["firstAvailable"]] == [
        "10Gi",
        "11517Mi",
    ]


def test_a_declared_size_wins_over_a_published_one():
    models = [{"product": "NVIDIA L40S", "memory": "40Gi"}]
    done = verdict_of(hami(gpumem_percentage=50), fleet=example_fleet(), models=models)
    (request,) = devices(done)["requests"]
    assert [alternative["capacity"]["requests"]["memory"] for alternative in request["firstAvailable"]] == ["20Gi"]
    assert "L40S" in request["firstAvailable"][0]["selectors"][-1]["cel"]["expression"]


def test_a_remedy_has_placeholders_if_no_product_is_published():
    done = verdict_of(hami(gpumem_percentage=50))
    assert "`models: [{product: PRODUCT, memory: SIZE}]`" in done.warnings[0]


def test_sizes_above_the_limit_of_alternatives_are_left_out_with_a_warning():
    models = [{"product": f"GPU {i}", "memory": f"{i}Gi"} for i in range(1, 12)]
    done = verdict_of(hami(gpumem_percentage=50), models=models)
    (request,) = devices(done)["requests"]
    assert len(request["firstAvailable"]) == 8
    assert any("3 sizes are left out" in warning for warning in done.warnings)


def test_two_shares_become_requests_on_distinct_devices():
    done = verdict_of(scheduled(gpu=2, gpumem=3000, gpucores=30))
    assert exactly(done) == [share(memory="3000Mi", cores="30")] * 2
    assert devices(done)["constraints"] == [{"requests": ["gpu-0", "gpu-1"], "distinctAttribute": f"{HAMI}/uuid"}]


def test_memory_alone_is_one_gpu_with_cores_0():
    assert exactly(verdict_of(scheduled(gpumem=3000))) == [share(memory="3000Mi", cores="0")]


def test_a_bare_count_is_the_whole_card():
    assert exactly(verdict_of(scheduled(gpu=1))) == EXCLUSIVE


def test_cores_without_memory_take_the_whole_memory():
    assert exactly(verdict_of(scheduled(gpu=1, gpucores=30))) == [share(cores="30")]


@pytest.mark.parametrize("limits", [{"gpumem": 0}, {"gpumem_percentage": 0}], ids=["memory", "percentage"])
def test_a_zero_amount_requests_a_share_not_a_whole_gpu(limits):
    done = verdict_of(scheduled(gpu=1, **limits))
    assert exactly(done) == [share(cores="0")]
    assert done.warnings


@pytest.mark.parametrize(
    "limits",
    [{"gpu": 1, "gpumem_percentage": 100}, {"gpumem_percentage": 100}, {"gpu": 1, "gpucores": 100}],
    ids=["percentage", "percentage alone", "cores"],
)
def test_whole_card_forms_request_whole_cards(limits):
    assert exactly(verdict_of(scheduled(**limits))) == EXCLUSIVE


def test_a_percentage_is_an_alternative_for_each_size():
    done = verdict_of(scheduled(gpu=1, gpumem_percentage=50), **SIZES)
    assert alternatives(done) == [[{"memory": "20Gi", "cores": "0"}, {"memory": "23034Mi", "cores": "0"}]]


def test_a_percentage_of_unknown_size_is_left_or_refused():
    assert untouched(verdict_of(scheduled(gpu=1, gpumem_percentage=50)))
    assert refused(verdict_of(scheduled(gpu=1, gpumem_percentage=50), unresolved="refuse"))


@pytest.mark.parametrize("amount", [1.5, "1.5", "1500m"])
def test_fractions_are_refused(amount):
    done = verdict_of(scheduled(gpu=1, gpumem=amount))
    assert refused(done)
    assert "nvidia.com/gpumem" in str(done.refusals[0])
    assert str(amount) in str(done.refusals[0])


def test_suffixes_are_quantities():
    assert exactly(verdict_of(scheduled(gpu=1, gpumem="3k"))) == [share(memory="3000Mi", cores="0")]


@pytest.mark.parametrize(("policy", "fate"), [("leave", untouched), ("refuse", refused)])
def test_numa_binding_is_unsupported_by_hamis_driver(policy, fate):
    value = pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1}, annotations={"nvidia.com/numa-bind": "true"})
    assert fate(verdict_of(value, numaBind=policy))


def test_numa_binding_can_be_dropped_by_policy():
    value = pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1}, annotations={"nvidia.com/numa-bind": "true"})
    done = verdict_of(value, numaBind="drop")
    assert exactly(done) == [share(memory="1Mi", cores="0")] * 2
    assert any("NUMA" in warning for warning in done.warnings)


def test_a_percentage_of_100_beside_memory_reserves_all_cores():
    assert exactly(verdict_of(scheduled(gpu=1, gpumem=3000, gpumem_percentage=100))) == [
        share(memory="3000Mi", cores="100")
    ]


def test_a_unit_that_hami_would_misread_is_refused():
    assert refused(verdict_of(scheduled(gpu=1, gpumem="3Gi")))


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "koord-scheduler"])
def test_a_share_is_left_if_its_scheduler_ignores_shares(scheduler):
    value = pod({"nvidia.com/gpumem": 3000}, scheduler=scheduler)
    assert untouched(verdict_of(value))
    assert refused(verdict_of(value, notUnderstood="refuse"))


def test_cores_that_hamis_webhook_injects_do_not_change_the_template():
    written, injected = verdict_of(scheduled(gpu=1)), verdict_of(scheduled(gpu=1, gpucores=100))
    assert written.templates == injected.templates


def test_every_key_of_a_container_is_reported():
    done = verdict_of(scheduled(gpu=2, gpumem=3000, gpucores=30))
    keys = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores", "schedulerName")
    assert outcomes(done) == dict.fromkeys(keys, "translated")


def test_a_percentage_of_a_partly_examined_class_is_not_refused():
    """A class whose selectors cost too much to evaluate does not prove that its devices have no sizes."""
    value = scheduled(gpu=1, gpumem_percentage=50)
    fleets = {
        doubt: Inventory(known=True, classes={HAMI: Served(name=HAMI, doubt=doubt)}) for doubt in ("", "too costly")
    }
    assert refused(verdict_of(value, fleet=fleets[""], unresolved="refuse"))
    done = verdict_of(value, fleet=fleets["too costly"], unresolved="refuse")
    assert untouched(done)
    assert "too costly" in done.warnings[0]
