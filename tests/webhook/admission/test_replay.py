"""If a manifest is applied again or a pod is updated, the webhook replays the decision that the pod has on record."""

import copy

import pytest

from tests.webhook.admission.reviews import FORGED, gpu_pod, mutated, state, untouched

# Replay


def test_a_second_apply_of_the_manifest_is_replayed():
    stored, _ = mutated(gpu_pod())
    again = copy.deepcopy(stored)
    again["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    reviewed, outcome = mutated(again, operation="UPDATE", old=stored)
    assert reviewed["spec"]["containers"][0]["resources"].get("limits") in (None, {})
    assert outcome.record.outcome == "replayed"


def test_an_update_is_replayed_in_mode_warn():
    stored, _ = mutated(gpu_pod())
    again = copy.deepcopy(stored)
    again["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    reviewed, outcome = mutated(again, state(mode="warn"), operation="UPDATE", old=stored)
    assert outcome.record.outcome == "replayed"
    assert reviewed["spec"]["containers"][0]["resources"].get("limits") in (None, {})


@pytest.mark.parametrize(("mode", "expected"), [("observe", "would replay"), ("off", "off")])
def test_observe_and_off_do_not_replay_an_update(mode, expected):
    stored, _ = mutated(gpu_pod())
    again = copy.deepcopy(stored)
    again["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    reviewed, outcome = mutated(again, state(mode=mode), operation="UPDATE", old=stored)
    assert reviewed == again
    assert outcome.record.outcome == expected


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
    again = copy.deepcopy(translated_pod)
    again["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    assert untouched(mutated(again, operation="UPDATE", old=translated_pod, namespace="ns")[1])
