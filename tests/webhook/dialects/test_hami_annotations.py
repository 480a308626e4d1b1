"""HAMi's annotations: models, UUIDs, NUMA binding, modes and scheduling policies. The bridge is drawbridge's scheduler for devices of some drivers."""

import pytest
from msgspec.structs import replace

from allocator.strategies import read_placement
from tests.webhook.dialects.hami_pods import hami_pod
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
    ("entry", "product", "is_matched"),
    [
        ("A100,V100", "NVIDIA A100-SXM4-40GB", True),
        (" a100 , ", "NVIDIA A100-SXM4-40GB", True),
        ("V100", "NVIDIA A100-SXM4-40GB", False),
        ("NVIDIA-Tesla", "Tesla V100", True),  # HAMi prepends NVIDIA- to a product name without NVIDIA
        ("NVIDIA-A100", "NVIDIA A100-SXM4-40GB", False),  # a blank differs from a hyphen
        ('"] || true || ["', "NVIDIA A100-SXM4-40GB", False),
        ("a\\\"b\n'ü", "NVIDIA A100", False),
    ],
)
def test_use_gputype_matches_product_substrings_case_insensitively(entry, product, is_matched):
    assert selected(verdict_of(hami_pod({"use_gputype": entry}, gpumem=1)), productName=product) is is_matched
    assert selected(verdict_of(hami_pod({"nouse_gputype": entry}, gpumem=1)), productName=product) is not is_matched


def test_an_empty_list_of_models_is_ignored():
    assert verdict_of(hami_pod({"use_gputype": " , "}, gpumem=1)).templates == verdict_of(hami_pod(gpumem=1)).templates


def test_a_device_without_a_product_name_breaks_no_selector():
    assert not selected(verdict_of(hami_pod({"use_gputype": "A100"}, gpumem=1)))
    assert selected(verdict_of(hami_pod({"nouse_gputype": "A100"}, gpumem=1)))


def test_uuid_lists_match_by_membership():
    use = verdict_of(hami_pod({"use_gpuuuid": "GPU-1, GPU-2"}, gpumem=1))
    avoid = verdict_of(hami_pod({"nouse_gpuuuid": "GPU-1"}, gpumem=1))
    assert selected(use, uuid="GPU-2")
    assert not selected(use, uuid="GPU-3")
    assert not selected(avoid, uuid="GPU-1")
    assert selected(avoid)


@pytest.mark.parametrize(("entries", "letters"), [(250, 40), (300, 1), (2, 9_000)])
def test_a_list_too_long_for_an_expression_is_left_unchanged(entries, letters):
    words = ",".join(f"{i:0{letters}}" for i in range(entries))
    verdict = verdict_of(hami_pod({"use_gpuuuid": words}, gpumem=1))
    assert untouched(verdict)
    assert verdict.warnings


def test_numa_binding_of_a_single_gpu_is_no_constraint():
    verdict = verdict_of(hami_pod({"numa_bind": "true"}, gpumem=1))
    assert exactly(verdict) == exactly(verdict_of(hami_pod(gpumem=1)))


def test_numa_bound_whole_gpus_use_a_driver_publishing_numa_nodes():
    verdict = verdict_of(hami_pod({"numa_bind": "true"}, gpu=2), fleet=example_fleet())
    assert devices(verdict)["constraints"] == [
        {"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/numaNode"}
    ]
    assert exactly(verdict)[0]["class"] == "gpu.nvidia.com"


def test_an_unreadable_numa_binding_has_no_effect_as_in_hami():
    assert verdict_of(hami_pod({"numa_bind": "yes please"}, gpu=2, gpumem=1)).changed


@pytest.mark.parametrize(
    ("mode", "is_left"), [("hami-core", False), ("hami-core,mig", False), ("mps", True), ("", False)]
)
def test_the_division_mode_decides_whether_a_pod_is_left_unchanged(mode, is_left):
    assert untouched(verdict_of(hami_pod({"vgpu_mode": mode}, gpumem=1))) is is_left


def test_mode_mig_requests_profiles_that_hold_the_memory_smallest_first():
    verdict = verdict_of(hami_pod({"vgpu_mode": "mig"}, gpu=2, gpumem=8000, gpucores=30), fleet=example_fleet())
    first_request, second_request = devices(verdict)["requests"]
    profiles = [
        alternative["selectors"][0]["cel"]["expression"].rpartition(" == ")[2]
        for alternative in first_request["firstAvailable"]
    ]
    assert profiles == ['"2g.10gb"', '"3g.20gb"']
    assert first_request["firstAvailable"] == second_request["firstAvailable"]
    assert first_request["firstAvailable"][0]["deviceClassName"] == "mig.nvidia.com"
    assert outcomes(verdict)["nvidia.com/gpu"] == "approximated"
    details = [decision.detail for decision in verdict.decisions if decision.key == "nvidia.com/gpu"]
    assert details[0].startswith("2 MIG devices")


def test_profiles_beyond_the_limit_of_alternatives_are_reported():
    fleet = example_fleet()
    mig_class = fleet.classes["mig.nvidia.com"]
    profiles = tuple(replace(mig_class.profiles[0], name=f"{i}g.40gb", memory=(40 + i) << 30) for i in range(10))
    fleet = replace(fleet, classes={**fleet.classes, "mig.nvidia.com": replace(mig_class, profiles=profiles)})
    verdict = verdict_of(hami_pod({"vgpu_mode": "mig"}, gpumem=8000), fleet=fleet)
    assert len(devices(verdict)["requests"][0]["firstAvailable"]) == 8
    assert any("2 rarer profiles are left out" in decision.detail for decision in verdict.decisions)


@pytest.mark.parametrize("limits", [{"gpumem": 30000}, {"gpu": 1}, {"gpumem_percentage": 50}])
def test_mode_mig_without_a_known_profile_leaves_the_pod_unchanged(limits):
    assert untouched(verdict_of(hami_pod({"vgpu_mode": "mig"}, **limits), fleet=example_fleet()))
    assert untouched(verdict_of(hami_pod({"vgpu_mode": "mig"}, **limits)))


def test_the_mutex_policy_requests_a_whole_gpu():
    manifest = pod({"nvidia.com/gpumem": 1000}, annotations={"hami.io/gpu-scheduler-policy": "binpack,mutex"})
    assert exactly(verdict_of(manifest)) == [{"class": HAMI, "count": 1}]


NODE_POLICY, GPU_POLICY = "hami.io/node-scheduler-policy", "hami.io/gpu-scheduler-policy"
STRATEGY = "drawbridge.dev/strategy"
BRIDGE = {"bridge": {"schedulerName": "drawbridge", "drivers": [HAMI]}}


def pod_with_policies(**annotations):
    """Return a pod with annotations: `node` and `gpu` are HAMi's policies, `strategy` is drawbridge's."""
    annotation_keys = {"node": NODE_POLICY, "gpu": GPU_POLICY, "strategy": STRATEGY}
    return pod(
        {"nvidia.com/gpumem": 1000},
        scheduler="hami-scheduler",
        annotations={annotation_keys[name]: text for name, text in annotations.items()},
    )


@pytest.mark.parametrize(
    ("policies", "strategy"),
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
def test_a_scoring_policy_becomes_the_nearest_strategy_of_the_bridge(policies, strategy):
    manifest = pod_with_policies(**policies)
    verdict = verdict_of(manifest, **BRIDGE)
    patched_pod = patched(manifest, verdict)
    assert patched_pod["spec"]["schedulerName"] == "drawbridge"
    assert patched_pod["metadata"]["annotations"][STRATEGY] == strategy
    assert read_placement(strategy)
    annotations = {"node": NODE_POLICY, "gpu": GPU_POLICY}
    known_keys = [annotations[name] for name, text in policies.items() if text != "odd"]
    assert [outcomes(verdict)[key] for key in known_keys] == ["approximated"] * len(known_keys)
    assert not any("dropped" in text and key in text for text in verdict.warnings for key in known_keys)


def test_a_pods_own_strategy_is_kept_and_unknown_policies_ignored():
    pod_with_strategy = pod_with_policies(gpu="binpack", strategy="topology")
    verdict = verdict_of(pod_with_strategy, **BRIDGE)
    assert patched(pod_with_strategy, verdict)["metadata"]["annotations"][STRATEGY] == "topology"
    assert outcomes(verdict)[GPU_POLICY] == "approximated"
    unknown = pod_with_policies(gpu="odd")
    assert STRATEGY not in patched(unknown, verdict_of(unknown, **BRIDGE))["metadata"]["annotations"]


def test_without_the_bridge_no_strategy_is_written():
    manifest = pod_with_policies(gpu="binpack")
    verdict = verdict_of(manifest)
    assert STRATEGY not in patched(manifest, verdict)["metadata"]["annotations"]
    assert outcomes(verdict)[GPU_POLICY] == "approximated"


def test_a_priority_alone_requests_nothing():
    assert untouched(verdict_of(hami_pod(priority=1)))


def test_a_privileged_pod_is_refused_as_by_hami():
    manifest = pod({"nvidia.com/gpumem": 1000}, {})
    manifest["spec"]["containers"][1]["securityContext"] = {"privileged": True}
    assert refused(verdict_of(manifest))


def test_a_hami_annotation_turns_a_count_into_hamis_request():
    manifest = pod({"nvidia.com/gpu": 2}, annotations={"nvidia.com/use-gputype": "A100"})
    assert exactly(verdict_of(manifest))[0]["class"] == HAMI


def test_a_long_list_is_reported_by_its_first_entries():
    verdict = verdict_of(hami_pod({"use_gpuuuid": ",".join(f"GPU-{i}" for i in range(20))}, gpumem=1))
    (detail,) = [decision.detail for decision in verdict.decisions if decision.key == "nvidia.com/use-gpuuuid"]
    assert detail.startswith("GPU-0, GPU-1")
    assert detail.endswith("GPU-7 and 12 more")
