"""The second review of a translated pod: the label that selects the pod, and labels that its author or another webhook sets."""

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
    has_labels = all(labels.get(key) == value for key, value in selector["matchLabels"].items())
    return has_labels and not any(
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
    translated_pod, _ = mutated(item)
    assert translated_pod["spec"]["resourceClaims"]
    assert selected(translated_pod)
    assert (
        translated_pod["metadata"]["labels"].items()
        >= {key: value for key, value in (labels or {}).items() if key != LABEL}.items()
    )


def test_a_pod_with_a_restored_key_gets_its_label_again():
    translated_pod, _ = mutated(gpu_pod())
    del translated_pod["metadata"]["labels"]
    translated_pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    again, _ = mutated(translated_pod)
    assert "limits" not in again["spec"]["containers"][0]["resources"]
    assert selected(again)


def test_a_pod_with_a_restored_key_is_refused_unless_skipped():
    translated_pod, _ = mutated(gpu_pod())
    translated_pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    assert selected(translated_pod)
    assert "request its devices twice" in answer(validated(translated_pod))["status"]["message"]
    translated_pod["metadata"]["labels"]["drawbridge.dev/skip"] = "true"
    assert not selected(translated_pod)


def test_a_pod_with_a_forged_label_is_admitted():
    forged = gpu_pod(limits={"nvidia.com/gpu": "1"}, labels={LABEL: "true"})
    assert selected(forged)
    assert answer(validated(forged, ENFORCE))["allowed"]


def test_a_pod_whose_template_exists_gets_only_one_label():
    first_pod, _ = mutated(gpu_pod())
    (entry,) = first_pod["spec"]["resourceClaims"]
    name = entry["resourceClaimTemplateName"]
    signed = first_pod["metadata"]["annotations"]["drawbridge.dev/templates"]
    verified_template = template.verify(signed, template.identify_raw(first_pod, "ns"), KEY)[name]
    templates = {("ns", name): template_lifecycle.read_claim_spec(verified_template)}
    second_pod, _ = mutated(gpu_pod(), state(templates=templates))
    assert second_pod["metadata"]["labels"] == {LABEL: "true"}
