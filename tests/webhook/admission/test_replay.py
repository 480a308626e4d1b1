"""If a manifest is applied again or a pod is updated, the webhook replays the decision that the pod has on record."""

import copy

import pytest

from tests.webhook.admission.reviews import FORGED, gpu_pod, mutated, state, untouched


def applied_again(stored):
    """Return a stored pod to which its manifest is applied again, so its container has the key again."""
    again = copy.deepcopy(stored)
    again["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    return again


@pytest.mark.parametrize(
    ("mode", "expected"), [("enforce", "replayed"), ("warn", "replayed"), ("observe", "would replay"), ("off", "off")]
)
def test_a_second_apply_of_the_manifest_is_replayed_unless_observing_or_off(mode, expected):
    stored, _ = mutated(gpu_pod())
    again = applied_again(stored)
    reviewed, outcome = mutated(again, state(mode=mode), operation="UPDATE", old=stored)
    assert outcome.record.outcome == expected
    if expected == "replayed":
        assert reviewed["spec"]["containers"][0]["resources"].get("limits") in (None, {})
    else:
        assert reviewed == again


def test_an_update_translates_nothing():
    plain = gpu_pod(limits={})
    _, outcome = mutated(gpu_pod(), operation="UPDATE", old=plain)
    assert untouched(outcome)


@pytest.mark.parametrize("namespace", ["ns", "other"])
def test_a_forged_record_changes_no_update(namespace):
    stored = gpu_pod(annotations=FORGED)
    update = copy.deepcopy(stored)
    update["metadata"]["finalizers"] = []
    reviewed, outcome = mutated(update, operation="UPDATE", old=stored, namespace=namespace)
    assert reviewed == update
    assert untouched(outcome)


def test_a_copied_record_without_our_claim_changes_no_update():
    translated_pod, _ = mutated(gpu_pod())
    stored = gpu_pod(annotations=translated_pod["metadata"]["annotations"])
    assert untouched(mutated(copy.deepcopy(stored), operation="UPDATE", old=stored)[1])


@pytest.mark.parametrize("old", [None, -1, "x", [], [{}]])
def test_an_update_without_an_old_object_changes_nothing(old):
    assert untouched(mutated(gpu_pod(), operation="UPDATE", old=old)[1])


def test_a_record_of_another_namespace_is_not_replayed():
    translated_pod, _ = mutated(gpu_pod(), namespace="theirs")
    again = applied_again(translated_pod)
    assert untouched(mutated(again, operation="UPDATE", old=translated_pod, namespace="ns")[1])
