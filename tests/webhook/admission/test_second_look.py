"""Reinvocation of the webhook: which labels select a pod for another review, and what the labels of its author change."""

import copy

import pytest

from tests.webhook.admission.reviews import ENFORCE, KEY, answer, gpu_pod, mutated, state, validated
from webhook.claims import template, template_lifecycle
from webhook.registration import Registration, validating
from webhook.state import Configuration

LABEL = "drawbridge.dev/translated"


def selected(item):
    """Return whether the second webhook's objectSelector matches a pod, by the API server's rules."""
    (webhook, *_) = validating(Configuration().dialects, Registration(ca_bundle="Ym9v"))["webhooks"]
    labels = item["metadata"].get("labels") or {}
    selector = webhook["objectSelector"]
    named = all(labels.get(key) == value for key, value in selector["matchLabels"].items())
    return named and not any(
        labels.get(expression["key"]) in expression["values"] for expression in selector["matchExpressions"]
    )


@pytest.mark.parametrize(
    "labels",
    [None, {}, {"app": "x"}, {LABEL: "false"}, {LABEL: ""}, {LABEL: "true"}],
    ids=["none", "an empty map", "others", "another value", "no value", "there already"],
)
def test_a_translated_pod_is_reviewed_again_despite_its_labels(labels):
    item = gpu_pod()
    if labels is not None:
        item["metadata"]["labels"] = labels
    after, _ = mutated(item)
    assert after["spec"]["resourceClaims"]
    assert selected(after)
    assert (
        after["metadata"]["labels"].items()
        >= {key: value for key, value in (labels or {}).items() if key != LABEL}.items()
    )


def test_a_removed_label_returns_when_a_key_was_restored():
    after, _ = mutated(gpu_pod())
    del after["metadata"]["labels"]
    after["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    again, _ = mutated(after)
    assert "limits" not in again["spec"]["containers"][0]["resources"]
    assert selected(again)


def test_a_key_restored_by_another_webhook_is_removed_again():
    after, _ = mutated(gpu_pod(labels={"app": "x"}))
    back = copy.deepcopy(after)
    back["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    again, _ = mutated(back)
    assert again == after


def test_a_restored_key_is_refused_unless_skipped():
    after, _ = mutated(gpu_pod())
    after["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    assert selected(after)
    assert "request its devices twice" in answer(validated(after))["status"]["message"]
    after["metadata"]["labels"]["drawbridge.dev/skip"] = "true"
    assert not selected(after)


def test_a_pod_forged_as_translated_is_allowed():
    own = gpu_pod(limits={"nvidia.com/gpu": "1"}, labels={LABEL: "true"})
    assert selected(own)
    assert answer(validated(own, ENFORCE))["allowed"]


def test_a_pod_whose_template_exists_is_reviewed_but_unfollowed():
    first, _ = mutated(gpu_pod())
    (entry,) = first["spec"]["resourceClaims"]
    name = entry["resourceClaimTemplateName"]
    signed = first["metadata"]["annotations"]["drawbridge.dev/templates"]
    made = template.verify(signed, template.identify_raw(first, "ns"), KEY)[name]
    there = {("ns", name): template_lifecycle.read_claim_spec(made)}
    after, _ = mutated(gpu_pod(), state(templates=there))
    assert after["metadata"]["labels"] == {LABEL: "true"}
