"""Decisions while some objects of the cluster are unreadable or the cache is stale."""

import msgspec
import pytest

from dra import wire
from dra.objects.claim import ResourceClaimSpec
from tests.webhook.admission.reviews import ENFORCE, answer, gpu_claim, gpu_pod, mutated, state, validated
from tests.webhook.pods import configured
from webhook.names import MODE_LABEL
from webhook.state.inventory import Inventory


@pytest.mark.parametrize("kind", ["DeviceClass", "ResourceSlice", "Node"])
def test_unreadable_objects_turn_refusals_into_warnings(kind):
    claim = gpu_claim("gpu.elsewhere")
    kwargs = {"resource": "resourceclaims", "group": "resource.k8s.io"}
    assert "DeviceClass gpu.elsewhere does not exist" in answer(validated(claim, **kwargs))["status"]["message"]
    response = answer(validated(claim, state(incomplete=frozenset({kind})), **kwargs))
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith(f"this may never work, but some {kind} objects could not be read: ")
    assert "DeviceClass gpu.elsewhere does not exist" in warning


def test_unreadable_templates_do_not_affect_claims():
    lacking = state(incomplete=frozenset({"ResourceClaim", "ResourceClaimTemplate"}))
    kwargs = {"resource": "resourceclaims", "group": "resource.k8s.io"}
    assert not answer(validated(gpu_claim("gpu.elsewhere"), lacking, **kwargs))["allowed"]


def test_an_unreadable_template_is_not_called_missing():
    pod = gpu_pod()
    pod["spec"]["resourceClaims"] = [{"name": "a", "resourceClaimTemplateName": "t"}]
    (missing,) = answer(validated(pod))["warnings"]
    assert missing == "ResourceClaimTemplate t does not exist yet: the pod waits until it does"
    (unread,) = answer(validated(pod, state(incomplete=frozenset({"ResourceClaimTemplate"}))))["warnings"]
    assert unread == "ResourceClaimTemplate t could not be read, and was not checked"


def test_nothing_is_refused_by_a_stale_cache():
    percent = gpu_pod(limits={"nvidia.com/gpumem-percentage": "50"})
    sizeless = msgspec.structs.replace(ENFORCE, fleet=Inventory(), configuration=configured(unresolved="refuse"))
    assert "[R006]" in answer(mutated(percent, sizeless)[1])["status"]["message"]
    old = msgspec.structs.replace(sizeless, stock=None, confirmed=False)
    after, outcome = mutated(percent, old)
    assert after == percent
    assert outcome.record.outcome == "left"
    lacking = msgspec.structs.replace(sizeless, incomplete=frozenset({"ResourceSlice"}))
    assert mutated(percent, lacking)[1].record.outcome == "left"
    taken, _ = mutated(gpu_pod())
    name = taken["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    taken_name = {("ns", name): wire.convert({"devices": {"requests": []}}, ResourceClaimSpec)}
    assert "[R011]" in answer(mutated(gpu_pod(), state(templates=taken_name))[1])["status"]["message"]
    assert answer(mutated(gpu_pod(), msgspec.structs.replace(old, templates=taken_name))[1])["allowed"]


# Unreadable objects of a namespace


UNREADABLE = state(unsure={"ns": ("ResourceQuota",)})
UNREADABLE_WARNING = "drawbridge translates and refuses nothing in namespace ns: ResourceQuota could not be read, so its rules are unknown"


def test_a_pod_of_an_unreadable_namespace_is_left():
    after, outcome = mutated(gpu_pod(), UNREADABLE)
    assert after == gpu_pod()
    assert outcome.record.outcome == "would translate"
    assert answer(outcome)["warnings"][-1] == UNREADABLE_WARNING
    assert UNREADABLE_WARNING in outcome.record.problems


def test_an_invalid_mode_of_a_namespace_is_warned():
    misspelt = state(namespaces={"ns": {MODE_LABEL: "Off"}})
    after, outcome = mutated(gpu_pod(), misspelt)
    assert after == gpu_pod()
    expected = "its label drawbridge.dev/mode='Off' is not a valid mode (expected off, observe, warn, enforce)"
    assert expected in answer(outcome)["warnings"][-1]
    assert "warnings" not in answer(mutated(gpu_pod(limits={}), misspelt)[1])


def test_a_pod_is_not_refused_with_unreadable_limits():
    impossible = gpu_pod(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1500m"})
    assert not answer(mutated(impossible)[1])["allowed"]
    after, outcome = mutated(impossible, UNREADABLE)
    assert after == impossible
    assert answer(outcome)["allowed"]
    assert answer(outcome)["warnings"][-1] == UNREADABLE_WARNING


def test_unreadable_limits_affect_only_device_pods_of_the_namespace():
    assert "warnings" not in answer(mutated(gpu_pod(limits={}), UNREADABLE)[1])
    after, _ = mutated(gpu_pod(), UNREADABLE, namespace="elsewhere")
    assert after != gpu_pod()


def test_off_and_observe_modes_hold_while_limit_ranges_are_unknown():
    for mode in ("off", "observe"):
        outcome = mutated(gpu_pod(), state(mode=mode, unsure={"ns": ("LimitRange",)}))[1]
        assert outcome.record.mode == mode
        assert "warnings" not in answer(outcome)


def test_a_translated_pod_survives_an_unreadable_namespace():
    """Its update is replayed all the same; otherwise the API server would refuse it."""
    before, _ = mutated(gpu_pod())
    kept, outcome = mutated(gpu_pod(), UNREADABLE, operation="UPDATE", old=before)
    known, _ = mutated(gpu_pod(), ENFORCE, operation="UPDATE", old=before)
    assert kept == known
    assert outcome.record.outcome == "replayed"
