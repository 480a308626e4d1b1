"""What a pod or claim requests beyond a DeviceQuota of its namespace: refused beyond the whole limit, warned about beyond what is left."""

import pytest
from msgspec.structs import replace

from dra.objects import ResourceClaimSpec
from dra.policy import requested_amounts
from dra.wire import convert
from tests.objects import allocated, claim, device_quota, exactly, result, typed
from tests.webhook.admission.pods_with_claims import pod_with_claims, review_outcome, state_with_template
from tests.webhook.admission.reviews import (
    GPU,
    STOCK,
    answer,
    claim_request,
    gpu_claim,
    gpu_pod,
    state,
    validated,
)
from tests.webhook.pods import configured


def requesting(**fields):
    return {"name": "r", "exactly": {"deviceClassName": "gpu", **fields}}


def one_of(*alternatives):
    return {"name": "r", "firstAvailable": [{"name": f"s{at}", **fields} for at, fields in enumerate(alternatives)]}


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([requesting(count=2)], {("gpu", "devices"): 2}),
        ([requesting(count=2), requesting()], {("gpu", "devices"): 3}),
        ([requesting(allocationMode="All")], {("gpu", "devices"): 1}),
        ([requesting(adminAccess=True)], {}),
        (
            [requesting(count=2, capacity={"requests": {"memory": "10"}})],
            {("gpu", "devices"): 2, ("gpu", "memory"): 20},
        ),
        (
            [one_of({"deviceClassName": "gpu", "count": 4}, {"deviceClassName": "gpu", "count": 1})],
            {("gpu", "devices"): 1},
        ),
        ([one_of({"deviceClassName": "gpu"}, {"deviceClassName": "nic"})], {}),
    ],
    ids=["count", "two requests", "all", "admin access", "capacity", "smaller alternative", "other class"],
)
def test_a_claim_requests_the_least_that_it_can_hold(requests, expected):
    spec = convert({"devices": {"requests": requests}}, ResourceClaimSpec)
    amounts = requested_amounts(spec)
    assert {key: amount for key, amount in amounts.items() if key[0] == "gpu"} == {
        key: amount * 10**9 for key, amount in expected.items()
    }


def quotas(hard, **fields):
    """Return the quotas of the reviewed namespace: one, with this limit of GPUs."""
    return {"ns": (typed(device_quota("team", {f"{GPU}/devices": hard}, "ns", **fields)),)}


BY_TEMPLATE = pod_with_claims({"resourceClaimTemplateName": "t"})
NEVER = f"quota ns/team: {GPU}/devices: 2 requested, but the whole quota is 1"


def outcome_of(kind, world):
    """Review a pod or claim that requests two GPUs."""
    match kind:
        case "translated":
            return review_outcome(gpu_pod(limits={"nvidia.com/gpu": "2"}), world)
        case "template":
            return review_outcome(BY_TEMPLATE, replace(world, templates=state_with_template(2).templates))
    return validated(gpu_claim(count=2), world, **claim_request())


@pytest.mark.parametrize("kind", ["translated", "template", "claim"])
def test_a_request_beyond_the_whole_quota_is_refused(kind):
    response = answer(outcome_of(kind, state(device_quotas=quotas(1))))
    assert not response["allowed"]
    assert f"{NEVER} (request less, or ask for a larger quota) [R024]" in response["status"]["message"]
    assert answer(outcome_of(kind, state(device_quotas=quotas(2))))["allowed"]


@pytest.mark.parametrize("kind", ["translated", "template", "claim"])
def test_a_request_beyond_what_is_left_gets_a_warning(kind):
    """Another claim of the namespace holds a device."""
    status = allocated(result("gpu-0", driver=GPU, pool="n"))
    held = typed(claim("held", exactly(GPU), namespace="ns", status=status))
    world = state(device_quotas=quotas(2), stock=STOCK.with_all([held]))
    response = answer(outcome_of(kind, world))
    assert response["allowed"]
    line = f"quota ns/team: {GPU}/devices: 2 requested, 1 of 2 used; at most 1 can be requested"
    assert any(line in warning for warning in response["warnings"])


def test_a_stale_copy_and_other_namespaces_refuse_nothing():
    for world in (
        state(device_quotas=quotas(1), confirmed=False, stock=None),
        state(device_quotas={"other": quotas(1)["ns"]}),
    ):
        assert answer(outcome_of("translated", world))["allowed"]


def test_impossible_warn_turns_the_refusal_into_a_warning():
    world = replace(state(device_quotas=quotas(1)), configuration=configured(impossible="warn"))
    response = answer(outcome_of("translated", world))
    assert response["allowed"]
    assert any(NEVER in warning for warning in response["warnings"])


def test_a_quota_for_a_priority_class_counts_only_its_pods():
    scope = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
    world = state(device_quotas=quotas(1, scopeSelector=scope))
    pod = gpu_pod(limits={"nvidia.com/gpu": "2"})
    assert answer(review_outcome(pod, world))["allowed"]
    pod["spec"]["priorityClassName"] = "high"
    assert not answer(review_outcome(pod, world))["allowed"]
