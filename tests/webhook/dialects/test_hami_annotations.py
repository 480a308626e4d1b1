"""HAMi's annotations: models, UUIDs, NUMA binding, modes and scheduling policies."""

import pytest
from msgspec.structs import replace

from allocator.strategies import read_placement
from tests.webhook.dialects.hami_pods import hami
from tests.webhook.pods import (
    HAMI,
    devices,
    exactly,
    example_fleet,
    outcomes,
    patched,
    pod,
    refused,
    selected,
    untouched,
    verdict_of,
)


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
def test_use_gputype_matches_product_substrings_case_insensitively(entry, product, wanted):
    assert selected(verdict_of(hami({"use_gputype": entry}, gpumem=1)), productName=product) is wanted
    assert selected(verdict_of(hami({"nouse_gputype": entry}, gpumem=1)), productName=product) is not wanted


def test_an_empty_list_of_models_is_ignored():
    assert verdict_of(hami({"use_gputype": " , "}, gpumem=1)).templates == verdict_of(hami(gpumem=1)).templates


def test_a_device_without_a_product_name_breaks_no_selector():
    assert not selected(verdict_of(hami({"use_gputype": "A100"}, gpumem=1)))
    assert selected(verdict_of(hami({"nouse_gputype": "A100"}, gpumem=1)))


def test_uuid_lists_match_by_membership():
    use, avoid = (
        verdict_of(hami({"use_gpuuuid": "GPU-1, GPU-2"}, gpumem=1)),
        verdict_of(hami({"nouse_gpuuuid": "GPU-1"}, gpumem=1)),
    )
    assert selected(use, uuid="GPU-2")
    assert not selected(use, uuid="GPU-3")
    assert not selected(avoid, uuid="GPU-1")
    assert selected(avoid)


@pytest.mark.parametrize(("entries", "letters"), [(250, 40), (300, 1), (2, 9_000)])
def test_a_list_too_long_for_an_expression_is_left(entries, letters):
    words = ",".join(f"{i:0{letters}}" for i in range(entries))
    done = verdict_of(hami({"use_gpuuuid": words}, gpumem=1))
    assert untouched(done)
    assert done.warnings


def test_numa_binding_of_a_single_gpu_is_no_constraint():
    done = verdict_of(hami({"numa_bind": "true"}, gpumem=1))
    assert exactly(done) == exactly(verdict_of(hami(gpumem=1)))


def test_numa_bound_whole_gpus_use_a_driver_publishing_numa_nodes():
    done = verdict_of(hami({"numa_bind": "true"}, gpu=2), fleet=example_fleet())
    assert devices(done)["constraints"] == [{"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/numaNode"}]
    assert exactly(done)[0]["class"] == "gpu.nvidia.com"


def test_an_unreadable_numa_binding_has_no_effect_as_in_hami():
    assert verdict_of(hami({"numa_bind": "yes please"}, gpu=2, gpumem=1)).changed


@pytest.mark.parametrize(("mode", "left"), [("hami-core", False), ("hami-core,mig", False), ("mps", True), ("", False)])
def test_the_division_mode_decides_whether_a_pod_is_left(mode, left):
    assert untouched(verdict_of(hami({"vgpu_mode": mode}, gpumem=1))) is left


def test_mig_alone_takes_the_smallest_profile_that_holds_the_memory():
    done = verdict_of(hami({"vgpu_mode": "mig"}, gpu=2, gpumem=8000, gpucores=30), fleet=example_fleet())
    first, second = devices(done)["requests"]
    profiles = [
        alternative["selectors"][0]["cel"]["expression"].rpartition(" == ")[2]
        for alternative in first["firstAvailable"]
    ]
    assert profiles == ['"2g.10gb"', '"3g.20gb"']
    assert first["firstAvailable"] == second["firstAvailable"]
    assert first["firstAvailable"][0]["deviceClassName"] == "mig.nvidia.com"
    assert outcomes(done)["nvidia.com/gpu"] == "approximated"
    details = [decision.detail for decision in done.decisions if decision.key == "nvidia.com/gpu"]
    assert details[0].startswith("2 MIG devices")


def test_rarer_profiles_that_no_request_holds_are_reported():
    fleet = example_fleet()
    served = fleet.classes["mig.nvidia.com"]
    profiles = tuple(replace(served.profiles[0], name=f"{i}g.40gb", memory=(40 + i) << 30) for i in range(10))
    fleet = replace(fleet, classes={**fleet.classes, "mig.nvidia.com": replace(served, profiles=profiles)})
    done = verdict_of(hami({"vgpu_mode": "mig"}, gpumem=8000), fleet=fleet)
    assert len(devices(done)["requests"][0]["firstAvailable"]) == 8
    assert any("2 rarer profiles are left out" in decision.detail for decision in done.decisions)


@pytest.mark.parametrize("limits", [{"gpumem": 30000}, {"gpu": 1}, {"gpumem_percentage": 50}])
def test_mig_alone_is_left_where_no_profile_is_known(limits):
    assert untouched(verdict_of(hami({"vgpu_mode": "mig"}, **limits), fleet=example_fleet()))
    assert untouched(verdict_of(hami({"vgpu_mode": "mig"}, **limits)))


def test_mutex_is_the_exclusive_form():
    value = pod({"nvidia.com/gpumem": 1000}, annotations={"hami.io/gpu-scheduler-policy": "binpack,mutex"})
    assert exactly(verdict_of(value)) == [{"class": HAMI, "count": 1}]


@pytest.mark.parametrize(
    "key", ["hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy", "hami.io/device-scoring-weights"]
)
def test_scoring_is_dropped_with_a_warning(key):
    done = verdict_of(pod({"nvidia.com/gpumem": 1000}, annotations={key: "spread"}))
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
    done = verdict_of(value, **BRIDGE)
    written = patched(value, done)
    assert written["spec"]["schedulerName"] == "drawbridge"
    assert written["metadata"]["annotations"][STRATEGY] == strategy
    assert read_placement(strategy)
    annotations = {"node": NODE, "gpu": GPU}
    known = [annotations[name] for name, text in wish.items() if text != "odd"]
    assert [outcomes(done)[key] for key in known] == ["approximated"] * len(known)
    assert not any("dropped" in text and key in text for text in done.warnings for key in known)


def test_a_pods_own_strategy_is_kept_and_unknown_policies_ignored():
    own = wishing(gpu="binpack", own="topology")
    done = verdict_of(own, **BRIDGE)
    assert patched(own, done)["metadata"]["annotations"][STRATEGY] == "topology"
    assert outcomes(done)[GPU] == "approximated"
    odd = wishing(gpu="odd")
    assert STRATEGY not in patched(odd, verdict_of(odd, **BRIDGE))["metadata"]["annotations"]


def test_without_the_bridge_no_strategy_is_written():
    value = wishing(gpu="binpack")
    done = verdict_of(value)
    assert STRATEGY not in patched(value, done)["metadata"]["annotations"]
    assert outcomes(done)[GPU] == "approximated"


def test_a_priority_is_approximated():
    done = verdict_of(hami(gpumem=1000, priority=1))
    assert outcomes(done)["nvidia.com/priority"] == "approximated"


def test_a_priority_alone_is_not_a_gpu():
    assert untouched(verdict_of(hami(priority=1)))


@pytest.mark.parametrize("key", ["hami.io/vgpu-node", "hami.io/vgpu-devices-allocated", "hami.io/bind-phase"])
def test_a_pod_that_hami_has_placed_is_left(key):
    assert untouched(verdict_of(pod({"nvidia.com/gpumem": 1000}, annotations={key: "x"})))


def test_a_pod_that_hamis_webhook_shall_ignore_is_left():
    value = pod({"nvidia.com/gpumem": 1000})
    value["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    assert untouched(verdict_of(value))


def test_a_pod_labelled_for_hami_dra_is_left_unchanged():
    value = pod({"nvidia.com/gpumem": 1000})
    value["metadata"]["labels"] = {"hami.io/dra": "true"}
    assert untouched(verdict_of(value))


def test_hami_takes_no_privileged_pods():
    value = pod({"nvidia.com/gpumem": 1000}, {})
    value["spec"]["containers"][1]["securityContext"] = {"privileged": True}
    assert refused(verdict_of(value))


def test_annotations_are_evidence_for_a_bare_count():
    value = pod({"nvidia.com/gpu": 2}, annotations={"nvidia.com/use-gputype": "A100"})
    assert exactly(verdict_of(value))[0]["class"] == HAMI


def test_a_long_list_is_reported_by_its_first_entries():
    done = verdict_of(hami({"use_gpuuuid": ",".join(f"GPU-{i}" for i in range(20))}, gpumem=1))
    (detail,) = [decision.detail for decision in done.decisions if decision.key == "nvidia.com/use-gpuuuid"]
    assert detail.startswith("GPU-0, GPU-1")
    assert detail.endswith("GPU-7 and 12 more")
