"""The golden vectors of the three dialects (vocabularies.md 3.4), by their numbers there."""

import json

import pytest

from tests.webhook.pods import (
    HAMI,
    KOORD,
    SIZES,
    WHOLE,
    actions,
    became,
    container,
    devices,
    exactly,
    patched,
    pod,
    refused,
    untouched,
)

JOINT = {
    "scheduling.koordinator.sh/device-joint-allocate": json.dumps(
        {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
    )
}


def hami(**limits) -> dict:
    """`hami(gpu=1, gpumem=3000)`; an underscore stands for a hyphen."""
    return pod(
        {f"nvidia.com/{key.replace('_', '-')}": value for key, value in limits.items()}, scheduler="hami-scheduler"
    )


def koordinator(*containers: dict, **more) -> dict:
    limits = [{KOORD + key: value for key, value in each.items()} for each in containers]
    return pod(*limits, scheduler="koord-scheduler", **more)


def share(**capacity) -> dict:
    return {"class": HAMI, "count": 1, "capacity": capacity}


def alternatives(done) -> list[list[dict]]:
    return [[one["capacity"]["requests"] for one in request["firstAvailable"]] for request in devices(done)["requests"]]


EXCLUSIVE = [{"class": HAMI, "count": 1}]


def test_1_two_whole_gpus_are_one_request():
    assert exactly(became(pod({"nvidia.com/gpu": 2}), **WHOLE)) == [{"class": "gpu.nvidia.com", "count": 2}]


def test_2_shares_of_two_gpus_are_two_requests_on_distinct_devices():
    done = became(hami(gpu=2, gpumem=3000, gpucores=30))
    assert exactly(done) == [share(memory="3000Mi", cores="30")] * 2
    assert devices(done)["constraints"] == [{"requests": ["gpu-0", "gpu-1"], "distinctAttribute": f"{HAMI}/uuid"}]


def test_3_memory_alone_is_one_gpu_with_cores_0():
    assert exactly(became(hami(gpumem=3000))) == [share(memory="3000Mi", cores="0")]


def test_4_a_bare_count_is_the_whole_card():
    assert exactly(became(hami(gpu=1))) == EXCLUSIVE


def test_5_cores_alone_take_the_memory_whole():
    assert exactly(became(hami(gpu=1, gpucores=30))) == [share(cores="30")]


@pytest.mark.parametrize("limits", [{"gpumem": 0}, {"gpumem_percentage": 0}], ids=["6", "26"])
def test_a_zero_counts_as_present_and_is_no_exclusive_form(limits):
    done = became(hami(gpu=1, **limits))
    assert exactly(done) == [share(cores="0")]
    assert done.warnings


@pytest.mark.parametrize(
    "limits",
    [{"gpu": 1, "gpumem_percentage": 100}, {"gpumem_percentage": 100}, {"gpu": 1, "gpucores": 100}],
    ids=["7", "27", "29"],
)
def test_forms_that_mean_the_whole_card(limits):
    assert exactly(became(hami(**limits))) == EXCLUSIVE


def test_8_a_percentage_is_an_alternative_for_each_size():
    done = became(hami(gpu=1, gpumem_percentage=50), **SIZES)
    assert alternatives(done) == [[{"memory": "20Gi", "cores": "0"}, {"memory": "23034Mi", "cores": "0"}]]


def test_8_a_percentage_without_any_size_is_refused():
    assert refused(became(hami(gpu=1, gpumem_percentage=50)))
    assert untouched(became(hami(gpu=1, gpumem_percentage=50), unresolved="leave"))


@pytest.mark.parametrize("amount", [1.5, "1.5", "1500m"])
def test_9_fractions_are_refused(amount):
    done = became(hami(gpu=1, gpumem=amount))
    assert refused(done)
    assert "nvidia.com/gpumem" in done.refusals[0]
    assert str(amount) in done.refusals[0]


def test_10_suffixes_are_quantities():
    assert exactly(became(hami(gpu=1, gpumem="3k"))) == [share(memory="3000Mi", cores="0")]


@pytest.mark.parametrize(("policy", "fate"), [("leave", untouched), ("refuse", refused)])
def test_11_numa_binding_is_not_given_by_hamis_driver(policy, fate):
    value = pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1}, annotations={"nvidia.com/numa-bind": "true"})
    assert fate(became(value, numaBind=policy))


def test_11_numa_binding_can_be_dropped_by_policy():
    value = pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1}, annotations={"nvidia.com/numa-bind": "true"})
    done = became(value, numaBind="drop")
    assert exactly(done) == [share(memory="1Mi", cores="0")] * 2
    assert any("NUMA" in warning for warning in done.warnings)


def test_13_more_than_one_gpu_on_one_gpu_is_refused():
    assert refused(became(koordinator({"gpu": 150})))


def test_14_compute_without_memory_is_refused():
    assert refused(became(koordinator({"gpu-core": 50})))


def test_15_totals_are_divided_by_the_number_of_gpus():
    done = became(koordinator({"gpu.shared": 2, "gpu-core": 100, "gpu-memory": "16Gi"}))
    assert exactly(done) == [share(memory="8Gi", cores="50")] * 2


def test_16_gpus_and_nics_under_one_switch_are_pairs():
    done = became(koordinator({"gpu": 200, "rdma": 200}, annotations=JOINT))
    assert [request["name"] for request in devices(done)["requests"]] == ["gpu-0", "nic-0", "gpu-1", "nic-1"]
    assert devices(done)["constraints"] == [
        {"requests": ["gpu-0", "nic-0"], "matchAttribute": "resource.kubernetes.io/pcieRoot"},
        {"requests": ["gpu-1", "nic-1"], "matchAttribute": "resource.kubernetes.io/pcieRoot"},
    ]


def test_17_a_mig_name_gets_its_plus_sign_back():
    done = became(pod({"nvidia.com/mig-1g.5gb.me": 1}))
    cel = 'device.attributes["gpu.nvidia.com"].?profile.orValue("") == "1g.5gb+me"'
    assert exactly(done) == [{"class": "mig.nvidia.com", "count": 1, "cel": [cel]}]


@pytest.mark.parametrize("key", ["rdma/hca_shared_devices_a", "nvidia.com/hostdev"], ids=["20", "21"])
def test_names_that_are_no_gpus_are_left(key):
    done = became(pod({key: 1}), **WHOLE)
    assert untouched(done)
    assert done.decisions == ()


def test_21_a_nic_beside_a_gpu_stays_where_it_is():
    value = pod({"nvidia.com/gpu": 8, "nvidia.com/hostdev": 8})
    after = patched(value, became(value, **WHOLE))
    assert after["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/hostdev": 8}


def test_23_nothing_asked_is_no_claim():
    assert untouched(became(pod({"nvidia.com/gpu": 0}), **WHOLE))


def test_24_the_users_claims_are_kept():
    value = pod({"nvidia.com/gpu": 1}, resourceClaims=[{"name": "mine", "resourceClaimName": "x"}])
    value["spec"]["containers"][0]["resources"]["claims"] = [{"name": "mine"}]
    after = patched(value, became(value, **WHOLE))["spec"]
    assert after["resourceClaims"][0] == {"name": "mine", "resourceClaimName": "x"}
    assert [claim["name"] for claim in after["containers"][0]["resources"]["claims"]] == ["mine", "drawbridge-c0-gpu"]


def test_25_memory_decides_about_the_amount_and_percentage_about_exclusivity():
    assert exactly(became(hami(gpu=1, gpumem=3000, gpumem_percentage=100))) == [share(memory="3000Mi", cores="100")]


def test_28_a_unit_that_hami_would_misread_is_refused():
    assert refused(became(hami(gpu=1, gpumem="3Gi")))


@pytest.mark.parametrize(
    "resources",
    [{"requests": {"nvidia.com/gpu": 1}}, {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}],
    ids=["requests only", "unequal"],
)
def test_30_requests_that_are_not_the_limits_are_refused(resources):
    value = pod({})
    value["spec"]["containers"][0]["resources"] = resources
    assert refused(became(value, **WHOLE))


def test_31_two_halves_are_two_gpus_at_half_for_the_pod():
    done = became(koordinator({"gpu": 50}, {"gpu": 50}), **SIZES)
    assert alternatives(done) == [[{"memory": "20Gi", "cores": "50"}, {"memory": "23034Mi", "cores": "50"}]] * 2
    assert devices(done)["constraints"] == [
        {"requests": ["gpu-0", "gpu-1"], "distinctAttribute": f"{HAMI}/uuid"},
        {"requests": ["gpu-0", "gpu-1"], "matchAttribute": f"{HAMI}/productName"},
    ]
    assert refused(became(koordinator({"gpu": 50}, {"gpu": 50})))


def test_32_containers_add_up_to_whole_gpus_that_both_see():
    value = koordinator({"gpu": 150}, {"gpu": 50})
    done = became(value)
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 2}]
    claims = [one["resources"]["claims"] for one in patched(value, done)["spec"]["containers"]]
    assert claims == [[{"name": "drawbridge-pod-gpu"}]] * 2


def test_33_a_sum_that_does_not_divide_is_refused():
    assert refused(became(koordinator({"gpu": 31}, {"gpu": 50})))


def test_34_a_pod_that_went_through_koordinators_webhook_is_the_same():
    raw = became(koordinator({"gpu": 50}), **SIZES)
    rewritten = became(koordinator({"gpu-core": 50, "gpu-memory-ratio": 50, "gpu.shared": 1}), **SIZES)
    assert raw.templates == rewritten.templates
    assert raw.templates


def test_35_a_partition_is_never_dropped():
    value = koordinator({"gpu": 200}, annotations={"scheduling.koordinator.sh/gpu-partition-spec": "{}"})
    assert refused(became(value))


def test_37_gpus_with_several_nics_each_are_split_between_pairs():
    network = {
        "name": "efa",
        "title": "EFA",
        "target": "nic",
        "keys": [{"name": "vpc.amazonaws.com/efa", "meaning": "an EFA interface", "role": "nic"}],
    }
    value = pod({"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32})
    done = became(
        value,
        **WHOLE,
        dialects=[network],
        classes={"nic": "efa.networking.k8s.aws"},
        joint=[{"primary": "nvidia.com/gpu", "secondary": "vpc.amazonaws.com/efa"}],
    )
    (spec,) = done.templates.values()  # two claims of one template
    parts = spec["spec"]["devices"]
    assert len(parts["constraints"]) == 4
    assert sum(request["exactly"]["count"] for request in parts["requests"]) == 20
    assert len(patched(value, done)["spec"]["resourceClaims"]) == 2


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "koord-scheduler"])
def test_41_no_share_for_a_scheduler_that_does_not_know_shares(scheduler):
    value = pod({"nvidia.com/gpumem": 3000}, scheduler=scheduler)
    assert untouched(became(value))
    assert refused(became(value, notUnderstood="refuse"))


def test_41_a_scheduler_that_is_kept_by_policy_counts_too():
    value = koordinator({"gpu-core": 50, "gpu-memory": "8Gi"})
    assert became(value).changed
    assert untouched(became(value, targetScheduler=""))


def test_the_injected_form_and_the_written_one_share_a_template():
    written, injected = became(hami(gpu=1)), became(hami(gpu=1, gpucores=100))
    assert written.templates == injected.templates


def test_init_containers_of_koordinator_are_not_rewritten():
    alone = pod({}, init=(container("i", {KOORD + "gpu": 100}),), scheduler="koord-scheduler")
    assert exactly(became(alone)) == [{"class": "gpu.nvidia.com", "count": 1}]
    beside = pod({KOORD + "gpu": 100}, init=(container("i", {KOORD + "gpu": 100}),), scheduler="koord-scheduler")
    assert refused(became(beside))


def test_every_word_of_a_vector_is_reported():
    done = became(hami(gpu=2, gpumem=3000, gpucores=30))
    assert actions(done) == dict.fromkeys(("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"), "translated")
