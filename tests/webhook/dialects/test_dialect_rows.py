"""The rows of the three dialects' tables (vocabularies.md 3.1) that no golden vector covers."""

import json

import pytest

from dra import cel, wire
from dra.objects.device import Device
from tests.webhook.pods import (
    HAMI,
    KOORD,
    SIZES,
    UNKNOWN,
    WHOLE,
    actions,
    became,
    configured,
    container,
    devices,
    exactly,
    example_fleet,
    patched,
    pod,
    refused,
    strip,
    untouched,
)
from webhook.dialects.nvidia import profile_of
from webhook.dialects.table import Action

JOINT = "scheduling.koordinator.sh/device-joint-allocate"
HINT = "scheduling.koordinator.sh/device-allocate-hint"
PARTITION = "scheduling.koordinator.sh/gpu-partition-spec"


def selected(done, **attributes: str) -> bool:
    """Whether a device with these attributes of its driver passes the selectors of the only request."""
    (request,) = exactly(done)
    device = wire.convert(
        {"name": "d", "attributes": {name: {"string": value} for name, value in attributes.items()}}, Device
    )
    driver = request["class"].replace("mig.", "gpu.")
    return all(cel.compile(text).matches(cel.view_of(driver, device)) for text in request.get("cel", []))


def hami(annotations=None, **limits):
    keys = {f"nvidia.com/{key.replace('_', '-')}": value for key, value in limits.items()}
    return pod(keys, annotations={f"nvidia.com/{k.replace('_', '-')}": v for k, v in (annotations or {}).items()})


def koordinator(*limits: dict, fleet=UNKNOWN, hints: dict | None = None, config: dict | None = None):
    value = pod(
        *({KOORD + key: amount for key, amount in each.items()} for each in limits),
        annotations={key: json.dumps(hint) for key, hint in (hints or {}).items()},
        scheduler="koord-scheduler",
    )
    return became(value, fleet=fleet, **(config or {}))


# NVIDIA


@pytest.mark.parametrize(
    ("suffix", "profile"),
    [
        ("1g.5gb", "1g.5gb"),
        ("1g.5gb.me", "1g.5gb+me"),
        ("1g.24gb.me.all", "1g.24gb+me.all"),
        ("1g.24gb.gfx", "1g.24gb+gfx"),
        ("1g.24gb-me", "1g.24gb-me"),
        ("1c.3g.20gb", ""),
        ("5g.x", ""),
    ],
)
def test_mig_names_become_profiles(suffix, profile):
    assert profile_of(suffix) == profile


def test_a_name_that_only_looks_like_mig_is_left():
    done = became(pod({"nvidia.com/mig-1c.3g.20gb": 1}))
    assert untouched(done)
    assert done.warnings


@pytest.mark.parametrize(
    "key", ["nvidia.com/mig-1g.5gb.shared", "nvidia.com/mig-1g.5gb.me.shared", "nvidia.com/gpu.shared"]
)
def test_replicas_are_left(key):
    done = became(pod({key: 1}))
    assert untouched(done)
    assert actions(done) == {key: "left"}


def test_a_replica_is_a_unit_of_shares_where_the_driver_publishes_them():
    done = became(pod({"nvidia.com/gpu.shared": 1}), nvidia={"consumableShares": True})
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 1, "capacity": {"shares": "1"}}]
    assert actions(done) == {"nvidia.com/gpu.shared": "approximated"}


def test_several_replicas_are_refused():
    assert refused(became(pod({"nvidia.com/gpu.shared": 2}), nvidia={"consumableShares": True}))


@pytest.mark.parametrize(
    "selector",
    [
        {"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"},
        {"nvidia.com/gpu.sharing-strategy": "mps"},
        {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-SHARED"},
    ],
)
def test_a_selector_that_shows_a_replica_wins_over_a_declaration(selector):
    assert untouched(became(pod({"nvidia.com/gpu": 1}, nodeSelector=selector), **WHOLE))


@pytest.mark.parametrize(
    "selector",
    [
        {"cloud.google.com/gke-gpu-partition-size": "3g.20gb"},
        {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb"},
    ],
)
def test_a_selector_can_make_a_gpu_a_mig_device_and_stays(selector):
    value = pod({"nvidia.com/gpu": 1}, nodeSelector=selector)
    done = became(value)
    assert selected(done, profile="3g.20gb")
    assert not selected(done, profile="1g.5gb")
    assert exactly(done)[0]["class"] == "mig.nvidia.com"
    assert patched(value, done)["spec"]["nodeSelector"] == selector


def test_a_required_affinity_is_a_selector_too():
    expression = {"key": "nvidia.com/gpu.sharing-strategy", "operator": "In", "values": ["time-slicing"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert untouched(became(pod({"nvidia.com/gpu": 1}, affinity=affinity), **WHOLE))
    expression["operator"] = "NotIn"
    assert became(pod({"nvidia.com/gpu": 1}, affinity=affinity), **WHOLE).changed


def test_a_plain_product_selector_stays_and_changes_nothing():
    selector = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert exactly(became(pod({"nvidia.com/gpu": 1}, nodeSelector=selector), **WHOLE)) == [
        {"class": "gpu.nvidia.com", "count": 1}
    ]


def test_a_gpu_and_a_mig_device_in_one_container_are_two_claims():
    value = pod({"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 1})
    done = became(value, **WHOLE)
    claims = patched(value, done)["spec"]["containers"][0]["resources"]["claims"]
    assert claims == [{"name": "drawbridge-c0-gpu"}, {"name": "drawbridge-c0-mig"}]


def test_meanings_decide():
    value = pod({"nvidia.com/gpu": 1})
    assert exactly(became(value, meanings={"nvidia.com/gpu": "mig:1g.5gb"}))[0]["class"] == "mig.nvidia.com"
    assert exactly(became(value, meanings={"nvidia.com/gpu": "hami"})) == [{"class": HAMI, "count": 1}]
    assert untouched(became(value, meanings={"nvidia.com/gpu": "leave"}))
    assert untouched(became(value, meanings={"nvidia.com/gpu": "shared"}))


# HAMi


@pytest.mark.parametrize(("cores", "given"), [(30, "30"), (150, "100")])
def test_cores_above_100_are_100(cores, given):
    done = became(hami(gpu=1, gpumem=1000, gpucores=cores))
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "1000Mi", "cores": given}}]


def test_all_cores_with_a_memory_cap_is_said_to_be_less_exclusive():
    done = became(hami(gpu=1, gpumem=1000, gpucores=100))
    assert actions(done)["nvidia.com/gpucores"] == "approximated"


def test_the_factor_and_the_defaults_of_the_config_map_count():
    done = became(hami(gpumem=1000), hami={"memoryFactor": 2, "defaultGPUNum": 3, "defaultCores": 10})
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "2000Mi", "cores": "10"}}] * 3


def test_a_default_memory_is_no_whole_card():
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
        ("NVIDIA-A100", "NVIDIA A100-SXM4-40GB", False),  # but a blank is no hyphen
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


def test_more_sizes_than_alternatives_are_cut_and_said():
    models = [{"product": f"GPU {i}", "memory": f"{i}Gi"} for i in range(1, 12)]
    done = became(hami(gpumem_percentage=50), models=models)
    (request,) = devices(done)["requests"]
    assert len(request["firstAvailable"]) == 8
    assert any("3 sizes left out" in warning for warning in done.warnings)


def test_numa_binding_of_one_gpu_is_no_demand():
    done = became(hami({"numa_bind": "true"}, gpumem=1))
    assert exactly(done) == exactly(became(hami(gpumem=1)))


def test_numa_binding_of_whole_gpus_goes_to_the_driver_that_publishes_nodes():
    done = became(hami({"numa_bind": "true"}, gpu=2), fleet=example_fleet())
    assert devices(done)["constraints"] == [{"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/numaNode"}]
    assert exactly(done)[0]["class"] == "gpu.nvidia.com"


def test_an_unreadable_numa_binding_is_ignored_as_hami_ignores_it():
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
    assert actions(done)["nvidia.com/gpu"] == "approximated"


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
    assert actions(done)[key] == "ignored"
    assert any(key in warning for warning in done.warnings)


def test_a_priority_is_lost_and_said():
    done = became(hami(gpumem=1000, priority=1))
    assert actions(done)["nvidia.com/priority"] == "approximated"


def test_a_priority_alone_is_no_gpu():
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
    assert refused(became(value))


def test_hami_takes_no_privileged_pods():
    value = pod({"nvidia.com/gpumem": 1000}, {})
    value["spec"]["containers"][1]["securityContext"] = {"privileged": True}
    assert refused(became(value))


def test_annotations_are_evidence_for_a_bare_count():
    value = pod({"nvidia.com/gpu": 2}, annotations={"nvidia.com/use-gputype": "A100"})
    assert exactly(became(value))[0]["class"] == HAMI


# Koordinator


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
def test_combinations_that_koordinator_refuses(limits):
    assert refused(koordinator(limits))


def test_whole_gpus_of_the_device_plugin_name_are_seen_by_all_containers():
    value = pod({"nvidia.com/gpu": 2}, {}, scheduler="koord-scheduler")
    done = became(value, meanings={"nvidia.com/gpu": "koordinator"})
    after = patched(value, done)["spec"]
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 2}]
    assert [one["resources"]["claims"] for one in after["containers"]] == [[{"name": "drawbridge-pod-gpu"}]] * 2
    assert after["schedulerName"] == "default-scheduler"


def test_the_device_plugin_name_beside_koordinators_is_refused():
    value = pod({"nvidia.com/gpu": 1, KOORD + "gpu": 100})
    assert refused(became(value, meanings={"nvidia.com/gpu": "koordinator"}))


def test_with_the_webhook_off_the_raw_sum_counts():
    done = koordinator({"gpu": 50}, {"gpu": 50}, config={"koordinator": {"webhook": False}})
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 1}]


def test_rdma_in_hundreds_is_whole_devices():
    assert exactly(koordinator({"rdma": 200})) == [{"class": "dranet", "count": 2}]


def test_a_share_of_a_network_device_is_refused_unless_declared():
    assert refused(koordinator({"rdma": 30}))
    done = koordinator({"rdma": 30}, config={"koordinator": {"wholeNICForShare": True}})
    assert exactly(done) == [{"class": "dranet", "count": 1}]
    assert actions(done)[KOORD + "rdma"] == "approximated"


def test_apply_for_all_takes_all_matching_devices():
    done = koordinator({"rdma": 1}, hints={HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}})
    (request,) = devices(done)["requests"]
    assert request["exactly"] == {"deviceClassName": "dranet", "allocationMode": "All"}


def test_apply_for_all_is_ignored_for_several_whole_devices():
    done = koordinator({"rdma": 200}, hints={HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}})
    assert exactly(done) == [{"class": "dranet", "count": 2}]


@pytest.mark.parametrize(("policy", "action"), [("DeviceLevel", "translated"), ("", "approximated")])
def test_requests_as_count(policy, action):
    hint = {"rdma": {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": policy}}
    done = koordinator({"rdma": 3}, hints={HINT: hint})
    assert exactly(done) == [{"class": "dranet", "count": 3}]
    assert actions(done)[KOORD + "rdma"] == action


def test_a_virtual_function_can_be_demanded():
    done = koordinator({"rdma": 100}, hints={HINT: {"rdma": {"vfSelector": {}}}})
    assert exactly(done) == [
        {"class": "dranet", "count": 1, "cel": ['device.attributes["dra.net"].?isSriovVf.orValue(false)']}
    ]


def test_label_selectors_on_devices_are_left():
    hint = {"rdma": {"vfSelector": {"matchLabels": {"a": "b"}}}}
    assert untouched(koordinator({"rdma": 100}, hints={HINT: hint}))


@pytest.mark.parametrize("key", [KOORD + "fpga", "huawei.com/npu-core"])
def test_devices_without_a_driver_are_left(key):
    assert untouched(became(pod({key: 100, KOORD + "gpu": 100})))


@pytest.mark.parametrize("key", [JOINT, HINT, PARTITION])
def test_malformed_annotations_are_refused(key):
    assert refused(became(pod({KOORD + "gpu": 100}, annotations={key: "{"})))
    assert refused(became(pod({KOORD + "gpu": 100}, annotations={key: "[1]"})))


def test_a_designated_allocation_is_refused():
    assert refused(koordinator({"gpu": 100}, hints={"scheduling.koordinator.sh/device-allocated": {}}))


@pytest.mark.parametrize("key", ["scheduling.koordinator.sh/gpu-minors", "scheduling.koordinator.sh/bind-timestamp"])
def test_a_pod_that_koordinator_has_placed_is_left(key):
    assert untouched(koordinator({"gpu": 100}, hints={key: 1}))


SAME = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}


def test_without_a_scope_nothing_is_demanded_and_it_is_said():
    done = koordinator({"gpu": 200, "rdma": 200}, hints={JOINT: {"deviceTypes": ["gpu", "rdma"]}})
    assert len(done.templates) == 2
    assert not any("constraints" in spec["spec"]["devices"] for spec in done.templates.values())
    assert actions(done)[JOINT] == "approximated"


def test_joint_allocation_of_one_type_is_without_effect():
    done = koordinator({"gpu": 200}, hints={JOINT: SAME})
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 2}]
    assert actions(done)[JOINT] == "ignored"


def test_counts_that_do_not_pair_are_refused():
    assert refused(koordinator({"gpu": 200, "rdma": 300}, hints={JOINT: SAME}))


def test_one_network_device_ties_all_gpus_to_its_root():
    done = koordinator({"gpu": 200, "rdma": 100}, hints={JOINT: SAME})
    assert devices(done)["constraints"] == [
        {"requests": ["gpu-0", "gpu-1", "nic"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    ]


def test_half_a_gpu_beside_a_network_device():
    done = koordinator({"gpu-core": 50, "gpu-memory": "8Gi", "rdma": 100}, hints={JOINT: SAME})
    gpu, nic = (strip(request["exactly"]) for request in devices(done)["requests"])
    assert gpu == {"class": HAMI, "count": 1, "capacity": {"memory": "8Gi", "cores": "50"}}
    assert nic == {"class": "dranet", "count": 1}


def test_more_pairs_than_a_claim_holds_are_split_between_pairs():
    value = pod({KOORD + "gpu": 2000, KOORD + "rdma": 2000}, annotations={JOINT: json.dumps(SAME)})
    done = became(value)
    assert len(patched(value, done)["spec"]["resourceClaims"]) == 2
    assert all(len(spec["spec"]["devices"]["requests"]) <= 32 for spec in done.templates.values())


def test_apply_for_all_under_one_switch_is_refused():
    hints = {JOINT: SAME, HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}}
    assert refused(koordinator({"gpu": 100, "rdma": 100}, hints=hints))


def test_a_numa_scope_ties_whole_gpus():
    done = koordinator(
        {"gpu": 200}, hints={HINT: {"gpu": {"requiredTopologyScope": "NUMANode"}}}, fleet=example_fleet()
    )
    assert devices(done)["constraints"] == [{"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/numaNode"}]


def test_several_shares_can_not_be_held_to_a_scope():
    hint = {HINT: {"gpu": {"requiredTopologyScope": "NUMANode"}}}
    assert refused(koordinator({"gpu-core": 100, "gpu-memory": "8Gi", "gpu.shared": 2}, hints=hint))


def test_scopes_of_other_hints_have_no_effect():
    done = koordinator({"rdma": 100}, hints={HINT: {"rdma": {"requiredTopologyScope": "NUMANode"}}})
    assert exactly(done) == [{"class": "dranet", "count": 1}]


def test_a_partition_with_ring_bandwidth_is_refused():
    assert refused(koordinator({"gpu": 200}, hints={PARTITION: {"ringBusBandwidth": "100Gi"}}))


def test_a_partition_does_not_concern_shares():
    done = koordinator({"gpu-core": 50, "gpu-memory": "8Gi"}, hints={PARTITION: {}})
    assert done.changed
    assert actions(done)[PARTITION] == "ignored"


def test_init_containers_and_sidecars_see_the_pods_devices():
    value = pod(
        {KOORD + "gpu": 100},
        {},
        init=(container("i"), container("s", {}, restartPolicy="Always")),
        scheduler="koord-scheduler",
    )
    after = patched(value, became(value))["spec"]
    every = [*after["initContainers"], *after["containers"]]
    assert [one["resources"]["claims"] for one in every] == [[{"name": "drawbridge-pod-gpu"}]] * 4


def test_two_systems_in_one_pod_are_a_double_request():
    assert refused(became(pod({"nvidia.com/gpumem": 1000}, {KOORD + "gpu": 100})))
    assert refused(became(pod({"nvidia.com/gpumem": 1000, KOORD + "gpu": 100})))


def test_a_declared_meaning_is_for_the_bare_key_only():
    value = pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1000}, {"nvidia.com/gpu": 1})
    done = became(value, **WHOLE)
    assert len(done.templates) == 2
    claims = [one["resources"]["claims"] for one in patched(value, done)["spec"]["containers"]]
    assert claims == [[{"name": "drawbridge-c0-gpu"}], [{"name": "drawbridge-c1-gpu"}]]


# The tables themselves


def test_every_row_says_why_it_is_not_plainly_translated():
    for dialect in configured().dialects:
        for row in dialect.keys:
            assert row.meaning, row.name
            assert row.because or row.action is Action.TRANSLATED, row.name


def test_no_name_is_matched_by_its_prefix_alone():
    configuration = configured()
    for name in (
        "nvidia.com/hostdev",
        "nvidia.com/gpumemory",
        "nvidia.com/mig-",
        "nvidia.com/gpu-10gb",
        "koordinator.sh/gpu-shared",
    ):
        assert configuration.resource(name) == (), name
