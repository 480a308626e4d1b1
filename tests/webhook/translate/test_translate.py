"""Which pods are translated, and the claims, templates and patch that they get."""

import pytest

from tests.webhook.dialects.koordinator_pods import fleet_of
from tests.webhook.pods import (
    GPU_MODELS,
    HAMI,
    WHOLE_GPUS,
    configured,
    container,
    devices,
    exactly,
    example_fleet,
    outcomes,
    patched,
    pod,
    refused,
    untouched,
    verdict_of,
)
from tests.webhook.translate.samples import GPU, NETWORK, PAIRED
from webhook.state import State
from webhook.state.features import Features
from webhook.translate.pod_report import outcome_of
from webhook.translate.rewrite import PodClaim
from webhook.translate.translate import translate

# Scope


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
    assert untouched(verdict_of(broken, **WHOLE_GPUS))


@pytest.mark.parametrize("amount", [[], {}, True, "", "one", "1 1", "0x1", 1e400])
def test_invalid_amounts_are_refused_with_the_name_of_the_key(amount):
    manifest = pod({})
    manifest["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpumem": amount}}
    verdict = verdict_of(manifest)
    assert refused(verdict)
    assert "nvidia.com/gpumem" in str(verdict.refusals[0])


def test_a_null_amount_is_zero():
    pod_with_null = pod({"nvidia.com/gpu": None})
    verdict = verdict_of(pod_with_null, **WHOLE_GPUS)
    assert untouched(verdict)
    assert verdict.decisions == ()
    pod_with_null_request = pod({"nvidia.com/gpu": 1})
    pod_with_null_request["spec"]["containers"][0]["resources"]["requests"] = {"nvidia.com/gpu": None}
    assert "request 0 and limit 1 differ" in str(verdict_of(pod_with_null_request, **WHOLE_GPUS).refusals[0])


# What shows that a count means whole GPUs


def test_without_a_fleet_a_bare_count_is_left_unchanged():
    verdict = verdict_of(pod(GPU))
    assert untouched(verdict)
    assert "meanings" in verdict.warnings[0]


# Sizes of devices


CORES = {"cores": {"value": "100"}}
SIZE = CORES | {"memory": {"value": "40Gi"}}
NAMED_A100 = {"attributes": {"productName": {"string": "A100"}}}


@pytest.mark.parametrize(
    ("device", "cause"),
    [
        ({"capacity": SIZE}, f"no device of class {HAMI} publishes {HAMI}/productName"),
        (NAMED_A100, f"class {HAMI} publishes no sizes"),
        (
            NAMED_A100 | {"capacity": SIZE},
            f"the pod accepts no model of class {HAMI} with a known size (A100)",
        ),
    ],
    ids=["no names", "no sizes", "another model"],
)
def test_a_percentage_that_is_no_amount_has_the_reason_that_was_found(device, cause):
    fleet = fleet_of((HAMI, HAMI, [{"name": "gpu-0", "allowMultipleAllocations": True, "capacity": CORES} | device]))
    manifest = pod({"nvidia.com/gpumem-percentage": 50}, annotations={"nvidia.com/use-gputype": "L40S"})
    [decision] = [found for found in verdict_of(manifest, fleet=fleet).decisions if found.key.endswith("percentage")]
    assert f"50 % of a device's memory is unknown: {cause}; an administrator" in decision.detail


# Features and schedulers


def test_shares_need_a_server_with_consumable_capacity():
    manifest = pod({"nvidia.com/gpumem": 3000})
    verdict = verdict_of(manifest, features=Features(minor=35))
    assert untouched(verdict)
    assert "DRAConsumableCapacity" in verdict.warnings[0]
    assert verdict_of(manifest, features=Features(minor=35, gates={"DRAConsumableCapacity": True})).changed


def test_whole_cards_need_no_consumable_capacity():
    assert verdict_of(pod({"nvidia.com/gpumem-percentage": 100}), features=Features(minor=34)).changed


def test_percentages_need_a_server_with_prioritized_lists():
    verdict = verdict_of(
        pod({"nvidia.com/gpumem-percentage": 50}), features=Features(gates={"DRAPrioritizedList": False}), **GPU_MODELS
    )
    assert untouched(verdict)


def test_without_dra_nothing_is_translated():
    assert untouched(verdict_of(pod(GPU), features=Features(minor=33), **WHOLE_GPUS))


@pytest.mark.parametrize(
    ("policy", "changed", "is_warned"), [("allow", True, False), ("warn", True, True), ("leave", False, True)]
)
def test_an_approximation_is_translated_warned_about_or_left_by_policy(policy, changed, is_warned):
    verdict = verdict_of(pod({"nvidia.com/gpumem": 3000}), approximations=policy)
    assert (verdict.changed, bool(verdict.warnings)) == (changed, is_warned)


# Only the first policy can change the request, with the value mutex.
SCORING = ("hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy")


@pytest.mark.parametrize("key", SCORING)
@pytest.mark.parametrize(("policy", "is_warned"), [("allow", False), ("warn", True), ("leave", True)])
def test_a_dropped_hint_alone_does_not_prevent_translation(key, policy, is_warned):
    limits = {"nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    verdict = verdict_of(pod(limits, annotations={key: "binpack"}), approximations=policy)
    assert verdict.changed
    assert outcomes(verdict)[key] == "approximated"
    assert outcome_of(verdict.decisions) == "approximated"
    assert any(key in warning for warning in verdict.warnings) == is_warned


@pytest.mark.parametrize("key", SCORING)
def test_a_hint_of_an_unchanged_pod_is_kept(key):
    manifest = pod({"nvidia.com/gpumem": 3000}, annotations={key: "binpack"})
    verdict = verdict_of(manifest, approximations="leave")  # an amount without cores is an approximation
    assert outcome_of(verdict.decisions) == "left"
    assert not verdict.changed


def test_warnings_fit_the_limits_of_clients():
    manifest = pod({"nvidia.com/gpumem": 3000}, annotations={"nvidia.com/use-gputype": "ü" * 300})
    manifest["spec"]["containers"][0]["name"] = "c" * 63
    assert all(len(warning.encode()) <= 256 for warning in verdict_of(manifest, approximations="warn").warnings)


# Size


def test_a_request_larger_than_a_claim_is_split():
    manifest = pod({"nvidia.com/gpu": 100})
    verdict = verdict_of(manifest, **WHOLE_GPUS)
    entries = patched(manifest, verdict)["spec"]["resourceClaims"]
    counts = {
        name: spec["spec"]["devices"]["requests"][0]["exactly"]["count"] for name, spec in verdict.templates.items()
    }
    assert [counts[entry["resourceClaimTemplateName"]] for entry in entries] == [25] * 4
    assert len({entry["name"] for entry in entries}) == 4


@pytest.mark.parametrize(
    "limits", [{"nvidia.com/gpu": 129}, {"nvidia.com/gpu": 33, "nvidia.com/gpumem": 1}, {"nvidia.com/gpu": 10**12}]
)
def test_a_request_above_the_limit_of_a_pod_is_unchanged(limits):
    verdict = verdict_of(pod(limits), **WHOLE_GPUS)
    assert untouched(verdict)
    assert not refused(verdict)
    assert any("left as it is" in text for text in verdict.warnings)


def test_equal_requests_share_a_template():
    manifest = pod(GPU, GPU, {"nvidia.com/gpu": 2})
    verdict = verdict_of(manifest, **WHOLE_GPUS)
    assert len(verdict.templates) == 2
    assert len(patched(manifest, verdict)["spec"]["resourceClaims"]) == 3


# Claim entries


def test_names_of_claim_entries_are_unique_and_short_enough():
    long = "a" * 63
    manifest = pod({}, resourceClaims=[{"name": "drawbridge-c0-gpu", "resourceClaimName": "x"}])
    manifest["spec"]["containers"] = [container("c0", GPU), container(long, GPU)]
    patched_spec = patched(manifest, verdict_of(manifest, **WHOLE_GPUS))["spec"]
    names = [entry["name"] for entry in patched_spec["resourceClaims"]]
    assert names[1] == "drawbridge-c0-gpu-2"
    assert len(set(names)) == 3
    assert max(map(len, names)) <= 63


def test_null_fields_are_replaced_by_maps_and_lists():
    manifest = {
        "metadata": {"annotations": None},
        "spec": {"resourceClaims": None, "containers": [container("c0", GPU)]},
    }
    manifest["spec"]["containers"][0]["resources"]["claims"] = None
    patched_pod = patched(manifest, verdict_of(manifest, **WHOLE_GPUS))
    assert patched_pod["spec"]["containers"][0]["resources"] == {"claims": [{"name": "drawbridge-c0-gpu"}]}


def test_a_gpu_and_a_nic_become_one_claim_on_request():
    verdict = verdict_of(pod({"nvidia.com/gpu": 2, "example.com/nic": 2}), fleet=example_fleet(), **PAIRED)
    ties = [constraint["matchAttribute"] for constraint in devices(verdict)["constraints"]]
    assert ties == ["resource.kubernetes.io/pcieRoot"] * 2
    assert outcomes(verdict) == {"nvidia.com/gpu": "translated", "example.com/nic": "translated"}


def test_without_pairing_a_gpu_and_a_nic_are_two_claims():
    verdict = verdict_of(pod({"nvidia.com/gpu": 2, "example.com/nic": 2}), fleet=example_fleet(), dialects=[NETWORK])
    assert len(verdict.templates) == 2


@pytest.mark.parametrize(("otherwise", "has_outcome"), [("leave", untouched), ("refuse", refused)])
def test_counts_that_do_not_pair_are_left_unchanged_or_refused(otherwise, has_outcome):
    joint = [{"primary": "nvidia.com/gpu", "secondary": "example.com/nic", "otherwise": otherwise}]
    manifest = pod({"nvidia.com/gpu": 2, "example.com/nic": 3})
    assert has_outcome(verdict_of(manifest, fleet=example_fleet(), dialects=[NETWORK], joint=joint))


def test_the_configuration_can_name_the_attribute_of_a_pair():
    joint = [
        {"primary": "nvidia.com/gpu", "secondary": "example.com/nic", "attribute": "resource.kubernetes.io/numaNode"}
    ]
    verdict = verdict_of(
        pod({"nvidia.com/gpu": 1, "example.com/nic": 1}), fleet=example_fleet(), dialects=[NETWORK], joint=joint
    )
    assert devices(verdict)["constraints"][0]["matchAttribute"] == "resource.kubernetes.io/numaNode"


def test_a_users_text_stays_inside_its_cel_literal():
    injection = '"] || true || device.attributes["x'
    verdict = verdict_of(pod({"nvidia.com/gpumem": 1}, annotations={"nvidia.com/use-gpuuuid": injection}))
    (request,) = exactly(verdict)
    assert request["cel"] == [
        f'device.attributes["{HAMI}"].?uuid.orValue("") in ["\\"] || true || device.attributes[\\"x"]'
    ]


# The operations


def test_the_requested_keys_of_a_container_are_sorted():
    """The API server sorts keys, and a file may not. Both get the same refusal."""
    amounts = {"nvidia.com/mig-1g.5gb": "0", "nvidia.com/gpu": "6"}
    for limits in (amounts, dict(sorted(amounts.items()))):
        assert (
            PodClaim("g", users=("c",), amounts=limits).requester
            == "container c (nvidia.com/gpu: 6, nvidia.com/mig-1g.5gb: 0)"
        )


def test_the_order_of_keys_changes_no_template():
    """The API server sorts keys, and a file may not. The templates of both must have the same names."""
    limits_in_file = {"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-1g.5gb": 2, "nvidia.com/gpu": 1}
    state = State(configuration=configured(extendedResources={"default": "translate"}), fleet=example_fleet())
    verdicts = [
        translate(pod(limits), state, namespace="n")
        for limits in (limits_in_file, dict(sorted(limits_in_file.items())))
    ]
    assert verdicts[0].templates
    assert verdicts[0].templates == verdicts[1].templates
    assert verdicts[0].decisions == verdicts[1].decisions
