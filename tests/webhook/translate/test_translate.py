"""What decides whether a pod is translated at all, and what keeps it the same afterwards."""

import copy
import json
from pathlib import Path

import pytest

from cluster import manifests
from dra import wire
from dra.objects.claim import DeviceClass
from tests.webhook.pods import (
    HAMI,
    KEY,
    KOORD,
    SIZES,
    WHOLE,
    became,
    configured,
    container,
    devices,
    exactly,
    example_fleet,
    outcomes,
    patched,
    pod,
    refused,
    replayed,
    untouched,
)
from webhook.claims import template
from webhook.dialects.table import Outcome
from webhook.names import DECISION, DEVICES, ORIGINAL, TEMPLATES, VERSION
from webhook.state import State
from webhook.state.features import Features
from webhook.state.inventory import Inventory
from webhook.translate.record import digest
from webhook.translate.report import outcome_of
from webhook.translate.rewrite import PodClaim
from webhook.translate.translate import translate

GPU = {"nvidia.com/gpu": 1}
BRIDGE = Path(__file__).parents[3] / "manifests/bridge"


def annotations(value: dict) -> dict:
    return value["metadata"]["annotations"]


def serving(name: str, **more) -> Inventory:
    """A fleet whose only class carries an extended resource name."""
    metadata = {"name": "gpu.nvidia.com", **more}
    return Inventory.gather(
        [wire.convert({"metadata": metadata, "spec": {"extendedResourceName": name}}, DeviceClass)], [], []
    )


# Scope


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"nodeName": "here"}},
        {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
        {"metadata": {"labels": {"drawbridge.dev/skip": "true"}}},
    ],
    ids=["bound", "mirror", "skipped"],
)
def test_pods_out_of_scope_are_untouched_and_unreported(change):
    value = pod(GPU)
    for part, fields in change.items():
        value[part].update(fields)
    done = became(value, **WHOLE)
    assert untouched(done)
    assert done.decisions == ()


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"spec": None},
        {"spec": []},
        {"spec": {"containers": None}},
        {"spec": {"containers": [None, 1, {"name": 3, "resources": [], "x": 1}]}},
        {"metadata": [], "spec": {"containers": [{"resources": {"limits": ["nvidia.com/gpu"]}}]}},
    ],
)
def test_an_invalid_pod_is_left_unchanged(broken):
    assert untouched(became(broken, **WHOLE))


@pytest.mark.parametrize("amount", [[], {}, True, "", "one", "1 1", "0x1", 1e400])
def test_invalid_amounts_are_refused_with_their_text(amount):
    value = pod({})
    value["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpumem": amount}}
    done = became(value)
    assert refused(done)
    assert "nvidia.com/gpumem" in str(done.refusals[0])


def test_a_null_amount_is_zero():
    nothing = pod({"nvidia.com/gpu": None})
    done = became(nothing, **WHOLE)
    assert untouched(done)
    assert done.decisions == ()
    differs = pod({"nvidia.com/gpu": 1})
    differs["spec"]["containers"][0]["resources"]["requests"] = {"nvidia.com/gpu": None}
    assert "request 0 and limit 1 differ" in str(became(differs, **WHOLE).refusals[0])


# The record


def test_the_record_holds_what_was_taken_and_what_was_done():
    value = pod({"nvidia.com/gpumem": 3000, "cpu": 1}, scheduler="hami-scheduler")
    after = patched(value, became(value))
    record = json.loads(annotations(after)[ORIGINAL])
    assert record.pop("digest") == digest(annotations(after)[DECISION], annotations(after)[DEVICES])
    assert record == {
        "containers": {"c0": {"nvidia.com/gpumem": 3000}},
        "schedulerName": "hami-scheduler",
        "scheduledBy": "default-scheduler",
    }
    decision = json.loads(annotations(after)[DECISION])
    assert decision["version"] == VERSION
    assert {one["key"] for one in decision["decisions"]} == {"nvidia.com/gpumem", "schedulerName"}
    assert json.loads(annotations(after)[DEVICES]) == {"c0": [{"class": HAMI, "count": 1, "key": "nvidia.com/gpumem"}]}
    assert after["spec"]["containers"][0]["resources"]["limits"] == {"cpu": 1}


def test_a_key_that_another_webhook_puts_back_is_removed_again():
    value = pod({"nvidia.com/gpu": "2"})
    after = patched(value, became(value, **WHOLE))
    once = copy.deepcopy(after)
    after["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": 2}
    again = became(after, **WHOLE)
    assert patched(after, again) == once
    assert again.templates == {}


def test_a_restored_key_with_another_number_requests_twice():
    value = pod({"nvidia.com/gpu": 2})
    after = patched(value, became(value, **WHOLE))
    after["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": 3}
    done = became(after, **WHOLE)
    assert refused(done)
    assert "another webhook" in str(done.refusals[0])


def test_a_later_key_of_another_dialect_is_translated_too():
    value = pod({"nvidia.com/gpumem": 3000})
    after = patched(value, became(value))
    after["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/mig-1g.5gb": 1}
    done = became(after)
    last = patched(after, done)
    names = [claim["name"] for claim in last["spec"]["containers"][0]["resources"]["claims"]]
    assert names == ["drawbridge-c0-gpu", "drawbridge-c0-mig"]
    assert json.loads(annotations(last)[ORIGINAL])["containers"]["c0"] == {
        "nvidia.com/gpumem": 3000,
        "nvidia.com/mig-1g.5gb": 1,
    }
    assert len(template.verify(annotations(last)[TEMPLATES], template.identify_raw(last, "n"), KEY)) == 2
    assert not became(last).changed


def test_a_late_key_of_the_same_dialect_is_left():
    value = pod({"nvidia.com/gpu": 1, "nvidia.com/gpucores": 100})
    after = patched(value, became(value))
    after["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpumem": 1000}
    assert untouched(became(after))


def test_a_record_without_claims_of_ours_is_not_believed():
    value = pod(GPU, annotations={ORIGINAL: '{"containers":{"c0":{"nvidia.com/gpu":1}}}'})
    done = became(value, **WHOLE)
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 1}]


@pytest.mark.parametrize("damaged", ["{", "[]", '{"containers":3}', ""])
def test_a_damaged_record_counts_as_none(damaged):
    assert became(pod(GPU, annotations={ORIGINAL: damaged}), **WHOLE).changed


def test_a_templates_annotation_signed_with_another_key_is_replaced():
    forged = template.sign({"drawbridge-0123456789abcdef": {}}, b"another key", template.identify_raw({}, "n"))
    value = pod(GPU, annotations={TEMPLATES: forged})
    done = became(value, **WHOLE)
    after = patched(value, done)
    signed = annotations(after)[TEMPLATES]
    assert template.verify(signed, template.identify_raw(after, "n"), KEY) == dict(done.templates)


# Updates


def test_a_second_apply_is_undone_and_the_scheduler_too():
    value = pod({KOORD + "gpu": 100}, scheduler="koord-scheduler")
    stored = patched(value, became(value))
    asked = copy.deepcopy(stored)
    asked["spec"]["schedulerName"] = "koord-scheduler"
    asked["spec"]["containers"][0]["resources"]["limits"] = {KOORD + "gpu": "100"}
    assert patched(asked, replayed(asked, stored)) == stored


def test_a_changed_number_is_not_a_replay():
    value = pod({"nvidia.com/gpu": 1})
    stored = patched(value, became(value, **WHOLE))
    asked = copy.deepcopy(stored)
    asked["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": 2}
    assert replayed(asked, stored).operations == ()


def test_an_update_of_a_pod_we_never_touched_is_untouched():
    assert replayed(pod(GPU), pod(GPU)).operations == ()


# Evidence for whole GPUs


def test_a_fleet_of_whole_gpus_is_evidence():
    assert exactly(became(pod(GPU), fleet=example_fleet())) == [{"class": "gpu.nvidia.com", "count": 1}]


def test_without_a_fleet_a_bare_count_is_left():
    done = became(pod(GPU))
    assert untouched(done)
    assert "meanings" in done.warnings[0]


# Stepping aside


def test_a_key_served_by_a_class_is_left_silently():
    done = became(pod(GPU, scheduler="hami-scheduler"), fleet=serving("nvidia.com/gpu"), extendedResources={}, **WHOLE)
    assert untouched(done)
    assert done.warnings == ()
    assert outcomes(done) == {"nvidia.com/gpu": "served"}


def test_more_than_a_count_is_not_served_by_core():
    fleet = serving("nvidia.com/gpu")
    assert became(pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1}), fleet=fleet).decisions[0].detail != "served"
    narrowed = pod(GPU, nodeSelector={"cloud.google.com/gke-gpu-partition-size": "1g.5gb"})
    assert "extendedResourceName" not in became(narrowed, fleet=fleet).decisions[0].detail


def test_a_count_of_none_beside_it_changes_nothing():
    fleet = serving("nvidia.com/mig-1g.5gb")
    done = became(pod({"nvidia.com/gpu": 0, "nvidia.com/mig-1g.5gb": 1}), fleet=fleet, extendedResources={})
    assert untouched(done)
    said = {decision.key: decision.detail for decision in done.decisions}
    assert said["nvidia.com/mig-1g.5gb"] == "DeviceClass gpu.nvidia.com serves it through extendedResourceName"


def test_core_serves_nothing_where_the_feature_gate_is_off():
    done = became(pod(GPU), fleet=serving("nvidia.com/gpu"), features=Features(minor=35), **WHOLE)
    assert done.changed
    gated = Features(minor=37, gates={"DRAExtendedResource": False})
    assert became(pod(GPU), fleet=serving("nvidia.com/gpu"), features=gated, **WHOLE).changed


# Features and schedulers


def test_shares_need_a_server_that_keeps_them():
    value = pod({"nvidia.com/gpumem": 3000})
    done = became(value, features=Features(minor=35))
    assert untouched(done)
    assert "DRAConsumableCapacity" in done.warnings[0]
    assert became(value, features=Features(minor=35, gates={"DRAConsumableCapacity": True})).changed


def test_whole_cards_need_no_shares():
    assert became(pod({"nvidia.com/gpumem-percentage": 100}), features=Features(minor=34)).changed


def test_percentages_need_alternatives():
    done = became(
        pod({"nvidia.com/gpumem-percentage": 50}), features=Features(gates={"DRAPrioritizedList": False}), **SIZES
    )
    assert untouched(done)


def test_below_dra_nothing_is_translated():
    assert untouched(became(pod(GPU), features=Features(minor=33), **WHOLE))


def test_an_undeclared_scheduler_is_not_trusted():
    value = pod(GPU, scheduler="mine")
    assert untouched(became(value, **WHOLE))
    done = became(value, **WHOLE, schedulers={"mine": {"likeCluster": True}})
    assert patched(value, done)["spec"]["schedulerName"] == "mine"


@pytest.mark.parametrize("way", ["scheduler.yaml", "plugin/scheduler.yaml", "apart/scheduler.yaml"])
def test_a_pod_for_the_scheduler_that_ships_is_translated_though_the_configuration_says_nothing_of_it(way):
    stored = [one.object for one in manifests.read([BRIDGE / way])]
    [text] = [one["data"]["scheduler.yaml"] for one in stored if one["kind"] == "ConfigMap"]
    [document] = manifests.parse(text)
    [profile] = document.object["profiles"]
    value = pod(GPU, scheduler=profile["schedulerName"])
    assert DECISION in annotations(patched(value, became(value, **WHOLE)))


def test_the_dialects_own_scheduler_becomes_the_target_and_others_stay():
    own = pod({"nvidia.com/gpumem": 1}, scheduler="hami-scheduler")
    assert (
        patched(own, became(own, targetScheduler="other", schedulers={"other": {"likeCluster": True}}))["spec"][
            "schedulerName"
        ]
        == "other"
    )
    foreign = pod(GPU, scheduler="koord-scheduler")
    assert patched(foreign, became(foreign, **WHOLE))["spec"]["schedulerName"] == "koord-scheduler"


def test_a_pod_that_is_only_partly_translated_keeps_its_scheduler():
    value = pod(
        {"nvidia.com/gpumem": 1},
        {"nvidia.com/gpumem": 1, "nvidia.com/mig-1g.5gb.shared": 1},
        scheduler="hami-scheduler",
    )
    after = patched(value, became(value))["spec"]
    assert after["schedulerName"] == "hami-scheduler"
    assert after["containers"][1] == value["spec"]["containers"][1]


def test_pods_for_managed_devices_get_the_scheduler_of_the_bridge():
    bridge = {"schedulerName": "drawbridge-scheduler", "drivers": ["gpu.nvidia.com"]}
    value, other = pod(GPU), pod({"nvidia.com/gpumem": 1})
    after = patched(value, became(value, **WHOLE, bridge=bridge))
    assert after["spec"]["schedulerName"] == "drawbridge-scheduler"
    assert "schedulerName" not in patched(other, became(other, bridge=bridge))["spec"]
    unable = {"drawbridge-scheduler": {"claims": False}}
    assert "schedulerName" not in patched(value, became(value, **WHOLE, bridge=bridge, schedulers=unable))["spec"]


def test_only_claims_that_go_to_the_bridge_pass_the_fence_whether_it_stands_yet_or_not():
    bridge = {"schedulerName": "drawbridge-scheduler", "drivers": ["gpu.nvidia.com"]}
    known = {"drawbridge-scheduler": {"likeCluster": True}}
    toleration = {"key": "drawbridge.dev/fence", "operator": "Exists", "effect": "NoSchedule"}

    def tolerations(value, **more):
        done = became(value, **WHOLE, schedulers=known, bridge=bridge | more)
        [spec] = done.templates.values()
        [request] = spec["spec"]["devices"]["requests"]
        return request["exactly"].get("tolerations", [])

    assert tolerations(pod(GPU), fence=True) == [toleration]
    assert tolerations(pod(GPU, scheduler="drawbridge-scheduler"), fence=True) == [toleration]
    assert tolerations(pod(GPU)) == [toleration]
    assert tolerations(pod(GPU), drivers=["other.example.com"]) == []
    assert tolerations(pod(GPU), fence=True, drivers=["other.example.com"]) == []


# Quotas and approximations


def test_a_key_under_a_limit_range_is_left():
    limited = frozenset({"nvidia.com/gpu"})
    done = became(pod(GPU), limit_range=limited, **WHOLE)
    assert untouched(done)
    assert "a LimitRange" in done.warnings[0]
    assert became(pod(GPU), limit_range=frozenset({"cpu"}), **WHOLE).changed
    assert untouched(became(pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1}), limit_range=limited))


def test_a_quota_that_would_lose_its_hold_keeps_the_key_until_it_is_mapped():
    quota = frozenset({"requests.nvidia.com/gpu"})
    done = became(pod(GPU), quota=quota, **WHOLE)
    assert untouched(done)
    assert "quotas" in done.warnings[0]
    mapped = {"nvidia.com/gpu": BY_CLASS}
    assert became(pod(GPU), quota=quota | {BY_CLASS}, **WHOLE, quotas=mapped).changed
    assert became(pod(GPU), quota=frozenset({"requests.cpu"}), **WHOLE).changed


BY_CLASS = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
LIMITED = frozenset({"requests.nvidia.com/gpu"})


@pytest.mark.parametrize(
    "key",
    [BY_CLASS, "requests.deviceclass.resource.kubernetes.io/gpu.nvidia.com", "count/resourceclaims.resource.k8s.io"],
)
@pytest.mark.parametrize("approximations", ["warn", "allow", "leave"])
def test_a_mapped_key_without_a_quota_is_warned_about(key, approximations):
    mapped = {**WHOLE, "quotas": {"nvidia.com/gpu": key}, "approximations": approximations}
    done = became(pod(GPU), quota=LIMITED, **mapped)
    assert done.changed
    [warning] = done.warnings
    assert warning == f"container c0: nvidia.com/gpu: no ResourceQuota here limits {key}, which `quotas` names for it: no ResourceQuota counts its claims"  # fmt: skip
    assert [decision.code for decision in done.decisions if decision.key == "nvidia.com/gpu"] == ["", "D223"]
    counted = became(pod(GPU), quota=LIMITED | {key}, **mapped)
    assert counted.changed
    assert (counted.warnings, {decision.code for decision in counted.decisions}) == ((), {""})
    assert became(pod(GPU), quota=frozenset({"requests.cpu"}), **mapped).warnings == (), "nothing limits the old key"


@pytest.mark.parametrize(
    ("key", "features"),
    [
        ("mig.nvidia.com.deviceclass.resource.k8s.io/devices", {}),
        ("requests.nvidia.com/gpu", {}),
        ("requests.example.com/gpu", {}),
        ("requests.deviceclass.resource.kubernetes.io/gpu.nvidia.com", {"DRAExtendedResource": False}),
    ],
)
def test_a_mapped_key_that_does_not_count_the_class_of_the_claims_is_warned_of(key, features):
    done = became(pod(GPU), quota=LIMITED | {key}, **WHOLE, quotas={"nvidia.com/gpu": key}, features=Features(gates=features))  # fmt: skip
    assert done.changed
    [warning] = done.warnings
    assert warning == f"container c0: nvidia.com/gpu: {key}, which `quotas` names for it, counts no claims of class gpu.nvidia.com"  # fmt: skip


def test_a_class_with_the_old_name_keeps_being_charged():
    quota, off = frozenset({"requests.nvidia.com/gpu"}), Features(gates={"DRAExtendedResource": False})
    value, fleet = (
        pod(GPU, nodeSelector={"cloud.google.com/gke-gpu-partition-size": "1g.5gb"}),
        serving("nvidia.com/gpu"),
    )
    classes = {"mig": "gpu.nvidia.com"}
    assert became(value, quota=quota, fleet=fleet, classes=classes).changed
    assert untouched(
        became(value, quota=quota, fleet=fleet, classes=classes, features=off)
    )  # the charge needs the webhook


@pytest.mark.parametrize(
    ("policy", "changed", "warned"), [("allow", True, False), ("warn", True, True), ("leave", False, True)]
)
def test_approximations_are_allowed_warned_of_or_left(policy, changed, warned):
    done = became(pod({"nvidia.com/gpumem": 3000}), approximations=policy)
    assert (done.changed, bool(done.warnings)) == (changed, warned)


SCORING = ("hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy")  # one with a role, one without


@pytest.mark.parametrize("key", SCORING)
@pytest.mark.parametrize(("policy", "warned"), [("allow", False), ("warn", True), ("leave", True)])
def test_a_dropped_hint_alone_leaves_no_container(key, policy, warned):
    limits = {"nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    done = became(pod(limits, annotations={key: "binpack"}), approximations=policy)
    assert done.changed
    assert outcomes(done)[key] == "approximated"
    assert outcome_of(done.decisions) == "approximated"
    assert any(key in warning for warning in done.warnings) == warned


@pytest.mark.parametrize("key", SCORING)
def test_a_hint_beside_keys_that_stay_is_not_dropped(key):
    value = pod({"nvidia.com/gpumem": 3000}, annotations={key: "binpack"})
    done = became(value, approximations="leave")  # without cores the amount is an approximation
    assert outcome_of(done.decisions) == "left"
    assert not done.changed


def test_warnings_keep_to_what_clients_show():
    value = pod({"nvidia.com/gpumem": 3000}, annotations={"nvidia.com/use-gputype": "ü" * 300})
    value["spec"]["containers"][0]["name"] = "c" * 63
    assert all(len(warning.encode()) <= 256 for warning in became(value, approximations="warn").warnings)


def test_a_quota_on_one_key_of_a_pair_keeps_both():
    value = pod({"nvidia.com/gpu": 1, "example.com/nic": 1})
    pairs = {**TOGETHER, "fleet": example_fleet()}
    quota = frozenset({"requests.example.com/nic"})
    assert became(value, **pairs).changed
    done = became(value, quota=quota, **pairs)
    assert untouched(done)
    assert "a ResourceQuota limits requests.example.com/nic" in done.warnings[0]
    nic = "dranet.deviceclass.resource.k8s.io/devices"
    mapped = became(value, quota=quota | {nic}, **pairs, quotas={"example.com/nic": nic})
    assert (mapped.changed, {decision.code for decision in mapped.decisions}) == (True, {""})


# Size


def test_more_than_a_claim_holds_is_split():
    value = pod({"nvidia.com/gpu": 100})
    done = became(value, **WHOLE)
    entries = patched(value, done)["spec"]["resourceClaims"]
    counts = {name: spec["spec"]["devices"]["requests"][0]["exactly"]["count"] for name, spec in done.templates.items()}
    assert [counts[entry["resourceClaimTemplateName"]] for entry in entries] == [25] * 4
    assert len({entry["name"] for entry in entries}) == 4


@pytest.mark.parametrize(
    "limits", [{"nvidia.com/gpu": 129}, {"nvidia.com/gpu": 33, "nvidia.com/gpumem": 1}, {"nvidia.com/gpu": 10**12}]
)
def test_more_than_a_pod_may_have_is_left(limits):
    done = became(pod(limits), **WHOLE)
    assert untouched(done)
    assert not refused(done)
    assert any("left as it is" in text for text in done.warnings)


def test_equal_requests_share_a_template():
    value = pod(GPU, GPU, {"nvidia.com/gpu": 2})
    done = became(value, **WHOLE)
    assert len(done.templates) == 2
    assert len(patched(value, done)["spec"]["resourceClaims"]) == 3


# Claim entries


def test_names_that_are_taken_or_too_long_are_avoided():
    long = "a" * 63
    value = pod({}, resourceClaims=[{"name": "drawbridge-c0-gpu", "resourceClaimName": "x"}])
    value["spec"]["containers"] = [container("c0", GPU), container(long, GPU)]
    after = patched(value, became(value, **WHOLE))["spec"]
    names = [entry["name"] for entry in after["resourceClaims"]]
    assert names[1] == "drawbridge-c0-gpu-2"
    assert len(set(names)) == 3
    assert max(map(len, names)) <= 63


def test_null_parents_are_filled():
    value = {"metadata": {"annotations": None}, "spec": {"resourceClaims": None, "containers": [container("c0", GPU)]}}
    value["spec"]["containers"][0]["resources"]["claims"] = None
    after = patched(value, became(value, **WHOLE))
    assert after["spec"]["containers"][0]["resources"] == {"claims": [{"name": "drawbridge-c0-gpu"}]}


# Joint requests that the administrator asks for

NETWORK = {
    "name": "network",
    "title": "network",
    "target": "nic",
    "keys": [{"name": "example.com/nic", "meaning": "a NIC", "role": "nic"}],
}
TOGETHER = {"dialects": [NETWORK], "joint": [{"primary": "nvidia.com/gpu", "secondary": "example.com/nic"}]}


def test_a_gpu_and_a_nic_become_one_claim_on_request():
    done = became(pod({"nvidia.com/gpu": 2, "example.com/nic": 2}), fleet=example_fleet(), **TOGETHER)
    ties = [one["matchAttribute"] for one in devices(done)["constraints"]]
    assert ties == ["resource.kubernetes.io/pcieRoot"] * 2
    assert outcomes(done) == {"nvidia.com/gpu": "translated", "example.com/nic": "translated"}


def test_without_it_they_are_two_claims():
    done = became(pod({"nvidia.com/gpu": 2, "example.com/nic": 2}), fleet=example_fleet(), dialects=[NETWORK])
    assert len(done.templates) == 2


@pytest.mark.parametrize(("otherwise", "fate"), [("leave", untouched), ("refuse", refused)])
def test_counts_that_do_not_pair_are_left_or_refused(otherwise, fate):
    joint = [{"primary": "nvidia.com/gpu", "secondary": "example.com/nic", "otherwise": otherwise}]
    value = pod({"nvidia.com/gpu": 2, "example.com/nic": 3})
    assert fate(became(value, fleet=example_fleet(), dialects=[NETWORK], joint=joint))


def test_the_user_can_name_the_attribute():
    joint = [
        {"primary": "nvidia.com/gpu", "secondary": "example.com/nic", "attribute": "resource.kubernetes.io/numaNode"}
    ]
    done = became(
        pod({"nvidia.com/gpu": 1, "example.com/nic": 1}), fleet=example_fleet(), dialects=[NETWORK], joint=joint
    )
    assert devices(done)["constraints"][0]["matchAttribute"] == "resource.kubernetes.io/numaNode"


def test_user_texts_never_leave_their_literal():
    evil = '"] || true || device.attributes["x'
    done = became(pod({"nvidia.com/gpumem": 1}, annotations={"nvidia.com/use-gpuuuid": evil}))
    (request,) = exactly(done)
    assert request["cel"] == [
        f'device.attributes["{HAMI}"].?uuid.orValue("") in ["\\"] || true || device.attributes[\\"x"]'
    ]


def test_the_same_pod_gives_the_same_bytes():
    value = pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000})
    state = State(configuration=configured(), keys=(KEY,))
    one = translate(value, state, namespace="n", sign=True)
    two = translate(copy.deepcopy(value), state, namespace="n", sign=True)
    assert json.dumps(one.operations) == json.dumps(two.operations)


# The operations


LIMITS = "/spec/containers/0/resources/limits"


def on_limits(limits: dict) -> list[dict]:
    """The operations on what a container's limits hold."""
    done = became(pod(limits))
    return [operation for operation in done.operations if operation["path"].startswith(LIMITS)]


def test_where_most_amounts_go_the_others_are_written_in_one_operation():
    rest = {"cpu": "100m", "memory": 1e9}
    asked = rest | {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
    assert on_limits(asked) == [{"op": "replace", "path": LIMITS, "value": rest}]


def test_where_most_amounts_stay_only_those_that_go_are_named():
    rest = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
    asked = rest | {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
    assert [on_limit["op"] for on_limit in on_limits(asked)] == ["remove", "remove"]


def test_two_names_of_one_container_that_core_serves_are_left_whatever_stands_beside_it():
    """Once the neighbour is translated the names mean the plugin's devices again: the second pass took them."""
    for beside in ({}, {"nvidia.com/gpu": 1, "nvidia.com/mig-3g.20gb": 1, "nvidia.com/gpumem": 0}):
        asking = [container("c0", {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 1}), container("c1", beside)]
        both = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": asking}}
        state = State(configuration=configured(), fleet=example_fleet())
        done = translate(both, state, namespace="n")
        outcomes_of_first = {
            decision.key: decision.outcome for decision in done.decisions if decision.container == "c0"
        }
        assert outcomes_of_first.keys() == {"nvidia.com/gpu", "nvidia.com/mig-1g.5gb"}
        assert set(outcomes_of_first.values()) <= {Outcome.SERVED, Outcome.LEFT}
        if done.changed:
            assert not translate(patched(both, done), state, namespace="n").operations


def test_the_requested_keys_of_a_container_are_sorted():
    """Files keep the order that was written, and the API server sorts: the refusal is the same."""
    words = {"nvidia.com/mig-1g.5gb": "0", "nvidia.com/gpu": "6"}
    for asked in (words, dict(sorted(words.items()))):
        assert (
            PodClaim("g", users=("c",), words=asked).requester
            == "container c (nvidia.com/gpu: 6, nvidia.com/mig-1g.5gb: 0)"
        )


def test_the_order_of_keys_changes_no_template():
    """The API server sorts them, so files in another order would have templates of other names than the webhook makes."""
    written = {"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-1g.5gb": 2, "nvidia.com/gpu": 1}
    state = State(configuration=configured(extendedResources={"default": "translate"}), fleet=example_fleet())
    made = [translate(pod(limits), state, namespace="n") for limits in (written, dict(sorted(written.items())))]
    assert made[0].templates
    assert made[0].templates == made[1].templates
    assert made[0].decisions == made[1].decisions
