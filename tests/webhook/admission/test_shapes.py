"""No value of a reviewed object raises an exception. With failurePolicy Ignore, status 500 would admit the object undecided."""

import json
import random

import pytest

from dra import validation
from tests import shapes
from tests.limits import draws
from tests.loops import every
from tests.webhook.admission.reviews import gpu_pod, review, state
from webhook.admission import admission_review as reviews
from webhook.admission import review as admission
from webhook.names import MODE_LABEL

RESOURCES = {
    "Pod": ("", "pods"),
    "Deployment": ("apps", "deployments"),
    "Job": ("batch", "jobs"),
    "ResourceClaim": ("resource.k8s.io", "resourceclaims"),
    "ResourceClaimTemplate": ("resource.k8s.io", "resourceclaimtemplates"),
    "ResourceSlice": ("resource.k8s.io", "resourceslices"),
    "DeviceClass": ("resource.k8s.io", "deviceclasses"),
    "DeviceQuota": ("drawbridge.dev", "devicequotas"),
    "DeviceCompatibility": ("drawbridge.dev", "devicecompatibilities"),
    "Namespace": ("", "namespaces"),
}


@pytest.mark.parametrize("shape", shapes.SOME, ids=repr)
def test_a_claim_is_judged_whatever_its_parameters_look_like(shape):
    group, resource = RESOURCES["ResourceClaim"]
    for claim in shapes.claims_with(shape):
        outcome = admission.decide_review("validate", review(claim, group=group, resource=resource), state())
        response = json.loads(outcome.body)["response"]
        assert response["allowed"] is True
        assert not [text for text in response.get("warnings", ()) if "bug" in text]


def test_a_bug_in_a_warning_check_refuses_no_claim(monkeypatch):
    def fails(*_):
        raise KeyError("a bug")

    monkeypatch.setattr(validation, "claim_settings", fails)
    group, resource = RESOURCES["ResourceClaim"]
    claim = shapes.claim_with("gpu.nvidia.com", {})
    response = json.loads(
        admission.decide_review("validate", review(claim, group=group, resource=resource), state()).body
    )["response"]
    assert response["allowed"] is True
    assert ["because of a bug in drawbridge" in text for text in response["warnings"]] == [True]


@every("mode", ["enforce", "warn"])
@every("kind", RESOURCES)
def test_a_review_of_values_of_any_shape_has_an_answer(kind, mode):
    rng = random.Random(f"reviews of {kind} in {mode}")
    world = state(mode=mode)
    examples = {
        **shapes.examples(),
        "Namespace": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {MODE_LABEL: "warn"}}}
        ],
    }
    originals = [
        *examples[kind],
        *([gpu_pod()] if kind == "Pod" else [shapes.claim(rng) for _ in range(20)] if kind == "ResourceClaim" else []),
    ]
    group, resource = RESOURCES[kind]
    for _ in range(draws(150)):
        obj, old = (shapes.bent(rng.choice(originals), rng) for _ in range(2))
        operation = rng.choice(("CREATE", "UPDATE"))
        body = review(
            obj, operation=operation, old=old if operation == "UPDATE" else None, group=group, resource=resource
        )
        for path in ("mutate", "validate"):
            try:
                outcome = admission.decide_review(path, body, world)
            except reviews.ReviewError:
                continue
            assert json.loads(outcome.body)["response"]["uid"] == "u"
