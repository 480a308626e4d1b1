"""HAMi's words: each container its GPUs, so much memory and compute of each."""

import pytest

from allocator.strategies import read_placement
from tests.webhook.dialects.rows import Row
from tests.webhook.pods import (
    HAMI,
    SIZES,
    alternatives,
    became,
    devices,
    exactly,
    example_fleet,
    outcomes,
    patched,
    pod,
    refused,
    selected,
    share,
    untouched,
)
from webhook.dialects import Served
from webhook.state.inventory import Inventory


def noted(key: str, value: str, place: str = "annotations") -> dict:
    """A pod that asks for a share of two GPUs, with an annotation or a label."""
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
    assert became(noted(key, value, "labels")).changed


def hami(annotations=None, **limits):
    """`hami({"use_gputype": "A100"}, gpu=1)`; an underscore stands for a hyphen."""
    keys = {f"nvidia.com/{key.replace('_', '-')}": value for key, value in limits.items()}
    return pod(keys, annotations={f"nvidia.com/{k.replace('_', '-')}": v for k, v in (annotations or {}).items()})


def scheduled(**limits) -> dict:
    """A pod for HAMi's own scheduler."""
    return pod(
        {f"nvidia.com/{key.replace('_', '-')}": value for key, value in limits.items()}, scheduler="hami-scheduler"
    )


EXCLUSIVE = [{"class": HAMI, "count": 1}]


@pytest.mark.parametrize(("cores", "given"), [(30, "30"), (150, "100")])
def test_cores_above_100_are_100(cores, given):
    done = became(hami(gpu=1, gpumem=1000, gpucores=cores))
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "1000Mi", "cores": given}}]


def test_all_cores_with_a_memory_cap_is_said_to_be_less_exclusive():
    done = became(hami(gpu=1, gpumem=1000, gpucores=100))
    assert outcomes(done)["nvidia.com/gpucores"] == "approximated"


def test_the_factor_and_the_defaults_of_the_config_map_count():
    done = became(hami(gpumem=1000), hami={"memoryFactor": 2, "defaultGPUNum": 3, "defaultCores": 10})
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "2000Mi", "cores": "10"}}] * 3


def test_a_default_memory_is_not_a_whole_card():
    done = became(pod({"nvidia.com/gpu": 1}, scheduler="hami-scheduler"), hami={"defaultMemory": 5000})
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "5000Mi", "cores": "100"}}]


@pytest.mark.parametrize("percent", [-1, 101])
def test_a_percentage_out_of_range_is_refused(percent):
    assert refused(became(hami(gpu=1, gpumem_percentage=percent)))


def test_a_factor_that_leaves_hamis_range_is_refused():
    assert refused(became(hami(gpu=1, gpumem=2**30), hami={"memoryFactor": 2}))


@pytest.mark.parametrize(
    ("entry", "product", "wanted"),
    [
        ("A100,V100", "NVIDIA A100-SXM4-40GB", True),
        (" a100 , ", "NVIDIA A100-SXM4-40GB", True),
        ("V100", "NVIDIA A100-SXM4-40GB", False),
        ("NVIDIA-Tesla", "Tesla V100", True),  # HAMi prepends NVIDIA- to such a name
        ("NVIDIA-A100", "NVIDIA A100-SXM4-40GB", False),  # but a blank differs from a hyphen
        ('"] || true || ["', "NVIDIA A100-SXM4-40GB", False),
        ("a\\\"b\n'ü", "NVIDIA A100", False),
    ],
)
def test_use_gputype_is_a_substring_of_the_product_whatever_the_case(entry, product, wanted):
    assert selected(became(hami({"use_gputype": entry}, gpumem=1)), productName=product) is wanted
    assert selected(became(hami({"nouse_gputype": entry}, gpumem=1)), productName=product) is not wanted


def test_an_empty_list_of_models_says_nothing():
    assert became(hami({"use_gputype": " , "}, gpumem=1)).templates == became(hami(gpumem=1)).templates


def test_a_device_without_a_product_name_breaks_no_selector():
    assert not selected(became(hami({"use_gputype": "A100"}, gpumem=1)))
    assert selected(became(hami({"nouse_gputype": "A100"}, gpumem=1)))


def test_uuids_are_members_of_the_list():
    use, avoid = (
        became(hami({"use_gpuuuid": "GPU-1, GPU-2"}, gpumem=1)),
        became(hami({"nouse_gpuuuid": "GPU-1"}, gpumem=1)),
    )
    assert selected(use, uuid="GPU-2")
    assert not selected(use, uuid="GPU-3")
    assert not selected(avoid, uuid="GPU-1")
    assert selected(avoid)


@pytest.mark.parametrize(("entries", "letters"), [(250, 40), (300, 1), (2, 9_000)])
def test_a_list_too_long_for_an_expression_is_left(entries, letters):
    words = ",".join(f"{i:0{letters}}" for i in range(entries))
    done = became(hami({"use_gpuuuid": words}, gpumem=1))
    assert untouched(done)
    assert done.warnings


def test_models_narrow_the_alternatives_of_a_percentage():
    done = became(hami({"use_gputype": "l40s"}, gpumem_percentage=50), **SIZES)
    (request,) = devices(done)["requests"]
    assert [one["capacity"]["requests"]["memory"] for one in request["firstAvailable"]] == ["23034Mi"]


def test_percentages_come_from_the_fleet():
    done = became(hami(gpumem_percentage=25), fleet=example_fleet())
    (request,) = devices(done)["requests"]
    assert [one["capacity"]["requests"]["memory"] for one in request["firstAvailable"]] == ["10Gi", "11517Mi"]


def test_a_declared_size_wins_over_a_published_one():
    models = [{"product": "NVIDIA L40S", "memory": "40Gi"}]
    done = became(hami(gpumem_percentage=50), fleet=example_fleet(), models=models)
    (request,) = devices(done)["requests"]
    assert [one["capacity"]["requests"]["memory"] for one in request["firstAvailable"]] == ["20Gi"]
    assert "L40S" in request["firstAvailable"][0]["selectors"][-1]["cel"]["expression"]


def test_a_remedy_names_no_product_that_nobody_published():
    done = became(hami(gpumem_percentage=50))
    assert "`models: [{product: PRODUCT, memory: SIZE}]`" in done.warnings[0]


def test_more_sizes_than_alternatives_are_cut_and_said():
    models = [{"product": f"GPU {i}", "memory": f"{i}Gi"} for i in range(1, 12)]
    done = became(hami(gpumem_percentage=50), models=models)
    (request,) = devices(done)["requests"]
    assert len(request["firstAvailable"]) == 8
    assert any("3 sizes left out" in warning for warning in done.warnings)


def test_numa_binding_of_one_gpu_is_not_a_demand():
    done = became(hami({"numa_bind": "true"}, gpumem=1))
    assert exactly(done) == exactly(became(hami(gpumem=1)))


def test_numa_binding_of_whole_gpus_goes_to_the_driver_that_publishes_nodes():
    done = became(hami({"numa_bind": "true"}, gpu=2), fleet=example_fleet())
    assert devices(done)["constraints"] == [{"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/numaNode"}]
    assert exactly(done)[0]["class"] == "gpu.nvidia.com"


def test_an_unreadable_numa_binding_has_no_effect_as_in_hami():
    assert became(hami({"numa_bind": "yes please"}, gpu=2, gpumem=1)).changed


@pytest.mark.parametrize(("mode", "left"), [("hami-core", False), ("hami-core,mig", False), ("mps", True), ("", False)])
def test_the_mode_of_division(mode, left):
    assert untouched(became(hami({"vgpu_mode": mode}, gpumem=1))) is left


def test_mig_alone_takes_the_smallest_profile_that_holds_the_memory():
    done = became(hami({"vgpu_mode": "mig"}, gpu=2, gpumem=8000, gpucores=30), fleet=example_fleet())
    first, second = devices(done)["requests"]
    profiles = [one["selectors"][0]["cel"]["expression"].rpartition(" == ")[2] for one in first["firstAvailable"]]
    assert profiles == ['"2g.10gb"', '"3g.20gb"']
    assert first["firstAvailable"] == second["firstAvailable"]
    assert first["firstAvailable"][0]["deviceClassName"] == "mig.nvidia.com"
    assert outcomes(done)["nvidia.com/gpu"] == "approximated"
    told = [decision.detail for decision in done.decisions if decision.key == "nvidia.com/gpu"]
    assert told[0].startswith("2 MIG devices")


@pytest.mark.parametrize("limits", [{"gpumem": 30000}, {"gpu": 1}, {"gpumem_percentage": 50}])
def test_mig_alone_is_left_where_no_profile_can_be_told(limits):
    assert untouched(became(hami({"vgpu_mode": "mig"}, **limits), fleet=example_fleet()))
    assert untouched(became(hami({"vgpu_mode": "mig"}, **limits)))


def test_mutex_is_the_exclusive_form():
    value = pod({"nvidia.com/gpumem": 1000}, annotations={"hami.io/gpu-scheduler-policy": "binpack,mutex"})
    assert exactly(became(value)) == [{"class": HAMI, "count": 1}]


@pytest.mark.parametrize(
    "key", ["hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy", "hami.io/device-scoring-weights"]
)
def test_scoring_is_dropped_and_said(key):
    done = became(pod({"nvidia.com/gpumem": 1000}, annotations={key: "spread"}))
    assert done.changed
    assert outcomes(done)[key] == "approximated"
    (text,) = [decision.detail for decision in done.decisions if decision.key == key]
    assert text.startswith("dropped: ")
    assert any(key in warning for warning in done.warnings)


NODE, GPU, STRATEGY = "hami.io/node-scheduler-policy", "hami.io/gpu-scheduler-policy", "drawbridge.dev/strategy"
BRIDGE = {"bridge": {"schedulerName": "drawbridge", "drivers": [HAMI]}}


def wishing(**annotations):
    names = {"node": NODE, "gpu": GPU, "own": STRATEGY}
    return pod(
        {"nvidia.com/gpumem": 1000},
        scheduler="hami-scheduler",
        annotations={names[name]: text for name, text in annotations.items()},
    )


@pytest.mark.parametrize(
    ("wish", "strategy"),
    [
        ({"node": "binpack"}, "NodeCompactGPULowLoad"),
        ({"node": "spread"}, "LowLoadFirst"),
        ({"gpu": "binpack"}, "CompactFirst"),
        ({"gpu": "spread"}, "NodeCompactGPULowLoad"),
        ({"node": "spread", "gpu": "binpack"}, "CompactFirst=1,LowLoadFirst=100"),
        ({"node": "spread", "gpu": "mutex, topology-aware"}, "topology=1,LowLoadFirst=1"),
        ({"gpu": "numa"}, "topology=1,CompactFirst=1"),
        ({"node": "odd", "gpu": "binpack"}, "CompactFirst"),
    ],
)
def test_the_bridge_packs_by_the_nearest_strategy(wish, strategy):
    value = wishing(**wish)
    done = became(value, **BRIDGE)
    written = patched(value, done)
    assert written["spec"]["schedulerName"] == "drawbridge"
    assert written["metadata"]["annotations"][STRATEGY] == strategy
    assert read_placement(strategy)
    told = {"node": NODE, "gpu": GPU}
    known = [told[name] for name, text in wish.items() if text != "odd"]
    assert [outcomes(done)[key] for key in known] == ["approximated"] * len(known)
    assert not any("dropped" in text and key in text for text in done.warnings for key in known)


def test_a_strategy_of_the_pod_itself_stands_and_an_unknown_policy_says_nothing():
    own = wishing(gpu="binpack", own="topology")
    done = became(own, **BRIDGE)
    assert patched(own, done)["metadata"]["annotations"][STRATEGY] == "topology"
    assert outcomes(done)[GPU] == "approximated"
    odd = wishing(gpu="odd")
    assert STRATEGY not in patched(odd, became(odd, **BRIDGE))["metadata"]["annotations"]


def test_without_the_bridge_no_strategy_is_written():
    value = wishing(gpu="binpack")
    done = became(value)
    assert STRATEGY not in patched(value, done)["metadata"]["annotations"]
    assert outcomes(done)[GPU] == "approximated"


def test_a_priority_is_lost_and_said():
    done = became(hami(gpumem=1000, priority=1))
    assert outcomes(done)["nvidia.com/priority"] == "approximated"


def test_a_priority_alone_is_not_a_gpu():
    assert untouched(became(hami(priority=1)))


@pytest.mark.parametrize("key", ["hami.io/vgpu-node", "hami.io/vgpu-devices-allocated", "hami.io/bind-phase"])
def test_a_pod_that_hami_has_placed_is_left(key):
    assert untouched(became(pod({"nvidia.com/gpumem": 1000}, annotations={key: "x"})))


def test_a_pod_that_hamis_webhook_shall_ignore_is_left():
    value = pod({"nvidia.com/gpumem": 1000})
    value["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    assert untouched(became(value))


def test_a_pod_with_claims_of_hami_dra_and_keys_asks_twice():
    value = pod({"nvidia.com/gpumem": 1000})
    value["metadata"]["labels"] = {"hami.io/dra": "true"}
    assert untouched(became(value))


def test_hami_takes_no_privileged_pods():
    value = pod({"nvidia.com/gpumem": 1000}, {})
    value["spec"]["containers"][1]["securityContext"] = {"privileged": True}
    assert refused(became(value))


def test_annotations_are_evidence_for_a_bare_count():
    value = pod({"nvidia.com/gpu": 2}, annotations={"nvidia.com/use-gputype": "A100"})
    assert exactly(became(value))[0]["class"] == HAMI


def test_2_shares_of_two_gpus_are_two_requests_on_distinct_devices():
    done = became(scheduled(gpu=2, gpumem=3000, gpucores=30))
    assert exactly(done) == [share(memory="3000Mi", cores="30")] * 2
    assert devices(done)["constraints"] == [{"requests": ["gpu-0", "gpu-1"], "distinctAttribute": f"{HAMI}/uuid"}]


def test_3_memory_alone_is_one_gpu_with_cores_0():
    assert exactly(became(scheduled(gpumem=3000))) == [share(memory="3000Mi", cores="0")]


def test_4_a_bare_count_is_the_whole_card():
    assert exactly(became(scheduled(gpu=1))) == EXCLUSIVE


def test_5_cores_alone_take_the_memory_whole():
    assert exactly(became(scheduled(gpu=1, gpucores=30))) == [share(cores="30")]


@pytest.mark.parametrize("limits", [{"gpumem": 0}, {"gpumem_percentage": 0}], ids=["6", "26"])
def test_a_zero_counts_as_present_and_is_not_an_exclusive_form(limits):
    done = became(scheduled(gpu=1, **limits))
    assert exactly(done) == [share(cores="0")]
    assert done.warnings


@pytest.mark.parametrize(
    "limits",
    [{"gpu": 1, "gpumem_percentage": 100}, {"gpumem_percentage": 100}, {"gpu": 1, "gpucores": 100}],
    ids=["7", "27", "29"],
)
def test_forms_that_mean_the_whole_card(limits):
    assert exactly(became(scheduled(**limits))) == EXCLUSIVE


def test_8_a_percentage_is_an_alternative_for_each_size():
    done = became(scheduled(gpu=1, gpumem_percentage=50), **SIZES)
    assert alternatives(done) == [[{"memory": "20Gi", "cores": "0"}, {"memory": "23034Mi", "cores": "0"}]]


def test_8_a_percentage_without_any_size_is_left_unless_the_administrator_wants_it_refused():
    assert untouched(became(scheduled(gpu=1, gpumem_percentage=50)))
    assert refused(became(scheduled(gpu=1, gpumem_percentage=50), unresolved="refuse"))


@pytest.mark.parametrize("amount", [1.5, "1.5", "1500m"])
def test_9_fractions_are_refused(amount):
    done = became(scheduled(gpu=1, gpumem=amount))
    assert refused(done)
    assert "nvidia.com/gpumem" in str(done.refusals[0])
    assert str(amount) in str(done.refusals[0])


def test_10_suffixes_are_quantities():
    assert exactly(became(scheduled(gpu=1, gpumem="3k"))) == [share(memory="3000Mi", cores="0")]


@pytest.mark.parametrize(("policy", "fate"), [("leave", untouched), ("refuse", refused)])
def test_11_numa_binding_is_not_given_by_hamis_driver(policy, fate):
    value = pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1}, annotations={"nvidia.com/numa-bind": "true"})
    assert fate(became(value, numaBind=policy))


def test_11_numa_binding_can_be_dropped_by_policy():
    value = pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1}, annotations={"nvidia.com/numa-bind": "true"})
    done = became(value, numaBind="drop")
    assert exactly(done) == [share(memory="1Mi", cores="0")] * 2
    assert any("NUMA" in warning for warning in done.warnings)


def test_25_memory_decides_about_the_amount_and_percentage_about_exclusivity():
    assert exactly(became(scheduled(gpu=1, gpumem=3000, gpumem_percentage=100))) == [
        share(memory="3000Mi", cores="100")
    ]


def test_28_a_unit_that_hami_would_misread_is_refused():
    assert refused(became(scheduled(gpu=1, gpumem="3Gi")))


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "koord-scheduler"])
def test_41_no_share_for_a_scheduler_that_does_not_know_shares(scheduler):
    value = pod({"nvidia.com/gpumem": 3000}, scheduler=scheduler)
    assert untouched(became(value))
    assert refused(became(value, notUnderstood="refuse"))


def test_the_injected_form_and_the_written_one_share_a_template():
    written, injected = became(scheduled(gpu=1)), became(scheduled(gpu=1, gpucores=100))
    assert written.templates == injected.templates


def test_every_word_of_a_vector_is_reported():
    done = became(scheduled(gpu=2, gpumem=3000, gpucores=30))
    told = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores", "schedulerName")
    assert outcomes(done) == dict.fromkeys(told, "translated")


def test_a_long_list_is_told_by_its_first_entries():
    done = became(hami({"use_gpuuuid": ",".join(f"GPU-{i}" for i in range(20))}, gpumem=1))
    (said,) = [decision.detail for decision in done.decisions if decision.key == "nvidia.com/use-gpuuuid"]
    assert said.startswith("GPU-0, GPU-1")
    assert said.endswith("GPU-7 and 12 more")


def test_a_percentage_is_left_where_a_class_could_not_be_looked_at_as_a_whole_whatever_the_administrator_wants():
    """A class with selectors too dear to ask does not prove that its devices have no sizes."""
    asked = scheduled(gpu=1, gpumem_percentage=50)
    seen = {doubt: Inventory(known=True, classes={HAMI: Served(name=HAMI, doubt=doubt)}) for doubt in ("", "too dear")}
    assert refused(became(asked, fleet=seen[""], unresolved="refuse"))
    done = became(asked, fleet=seen["too dear"], unresolved="refuse")
    assert untouched(done)
    assert "too dear" in done.warnings[0]
