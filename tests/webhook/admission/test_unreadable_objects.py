"""Decisions while the webhook cannot read some objects of the cluster, or while its cache is stale."""

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
    incomplete_state = state(incomplete=frozenset({"ResourceClaim", "ResourceClaimTemplate"}))
    kwargs = {"resource": "resourceclaims", "group": "resource.k8s.io"}
    assert not answer(validated(gpu_claim("gpu.elsewhere"), incomplete_state, **kwargs))["allowed"]


def test_an_unreadable_template_is_not_called_missing():
    pod = gpu_pod()
    pod["spec"]["resourceClaims"] = [{"name": "a", "resourceClaimTemplateName": "t"}]
    (warning_if_missing,) = answer(validated(pod))["warnings"]
    assert "ResourceClaimTemplate t does not exist" in warning_if_missing
    (warning_if_unreadable,) = answer(validated(pod, state(incomplete=frozenset({"ResourceClaimTemplate"}))))[
        "warnings"
    ]
    assert warning_if_unreadable == "ResourceClaimTemplate t could not be read, and was not checked"


def test_no_pod_is_refused_while_the_cache_is_stale():
    half_gpu_pod = gpu_pod(limits={"nvidia.com/gpumem-percentage": "50"})
    without_sizes = msgspec.structs.replace(ENFORCE, fleet=Inventory(), configuration=configured(unresolved="refuse"))
    assert "[R006]" in answer(mutated(half_gpu_pod, without_sizes)[1])["status"]["message"]
    stale_state = msgspec.structs.replace(without_sizes, stock=None, confirmed=False)
    reviewed, outcome = mutated(half_gpu_pod, stale_state)
    assert reviewed == half_gpu_pod
    assert outcome.record.outcome == "left"
    incomplete_state = msgspec.structs.replace(without_sizes, incomplete=frozenset({"ResourceSlice"}))
    assert mutated(half_gpu_pod, incomplete_state)[1].record.outcome == "left"
    translated_pod, _ = mutated(gpu_pod())
    name = translated_pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    taken_name = {("ns", name): wire.convert({"devices": {"requests": []}}, ResourceClaimSpec)}
    assert "[R011]" in answer(mutated(gpu_pod(), state(templates=taken_name))[1])["status"]["message"]
    assert answer(mutated(gpu_pod(), msgspec.structs.replace(stale_state, templates=taken_name))[1])["allowed"]


# Unreadable objects of a namespace


QUOTA_UNREADABLE = state(unsure={"ns": ("ResourceQuota",)})
UNREADABLE_WARNING = "drawbridge translates and refuses nothing in namespace ns: ResourceQuota could not be read, so its rules are unknown"


def test_unreadable_quotas_of_a_namespace_prevent_a_translation():
    reviewed, outcome = mutated(gpu_pod(), QUOTA_UNREADABLE)
    assert reviewed == gpu_pod()
    assert outcome.record.outcome == "would translate"
    assert answer(outcome)["warnings"][-1] == UNREADABLE_WARNING
    assert UNREADABLE_WARNING in outcome.record.problems


def test_a_namespaces_invalid_mode_causes_a_warning_for_its_pods():
    misspelt = state(namespaces={"ns": {MODE_LABEL: "Off"}})
    reviewed, outcome = mutated(gpu_pod(), misspelt)
    assert reviewed == gpu_pod()
    assert "'Off' is not a valid mode" in answer(outcome)["warnings"][-1]
    assert "warnings" not in answer(mutated(gpu_pod(limits={}), misspelt)[1])


def test_unreadable_quotas_of_a_namespace_prevent_a_refusal():
    impossible = gpu_pod(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1500m"})
    assert not answer(mutated(impossible)[1])["allowed"]
    reviewed, outcome = mutated(impossible, QUOTA_UNREADABLE)
    assert reviewed == impossible
    assert answer(outcome)["allowed"]
    assert answer(outcome)["warnings"][-1] == UNREADABLE_WARNING


def test_unreadable_quotas_affect_only_device_pods_of_the_namespace():
    assert "warnings" not in answer(mutated(gpu_pod(limits={}), QUOTA_UNREADABLE)[1])
    reviewed, _ = mutated(gpu_pod(), QUOTA_UNREADABLE, namespace="elsewhere")
    assert reviewed != gpu_pod()


def test_off_and_observe_modes_hold_while_limit_ranges_are_unknown():
    for mode in ("off", "observe"):
        outcome = mutated(gpu_pod(), state(mode=mode, unsure={"ns": ("LimitRange",)}))[1]
        assert outcome.record.mode == mode
        assert "warnings" not in answer(outcome)


def test_an_update_is_replayed_even_if_quotas_are_unreadable():
    """Without the replay, the API server would refuse the update."""
    translated_pod, _ = mutated(gpu_pod())
    reviewed, outcome = mutated(gpu_pod(), QUOTA_UNREADABLE, operation="UPDATE", old=translated_pod)
    reviewed_with_readable_quotas, _ = mutated(gpu_pod(), ENFORCE, operation="UPDATE", old=translated_pod)
    assert reviewed == reviewed_with_readable_quotas
    assert outcome.record.outcome == "replayed"
