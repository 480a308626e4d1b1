"""No value of a reviewed object raises an exception. With failurePolicy Ignore, status 500 would admit the object undecided."""

import pytest

from dra import validation
from tests import shapes
from tests.webhook.admission.reviews import answer, claim_request, validated

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


@pytest.mark.whole
@pytest.mark.parametrize("shape", shapes.SOME, ids=repr)
def test_a_claim_is_judged_whatever_its_parameters_look_like(shape):
    for claim in shapes.claims_with(shape):
        response = answer(validated(claim, **claim_request()))
        assert response["allowed"] is True
        assert not [text for text in response.get("warnings", ()) if "bug" in text]


def test_a_bug_in_a_warning_check_refuses_no_claim(monkeypatch):
    def fails(*_):
        raise KeyError("a bug")

    monkeypatch.setattr(validation, "claim_settings", fails)
    response = answer(validated(shapes.claim_with("gpu.nvidia.com", {}), **claim_request()))
    assert response["allowed"] is True
    assert ["because of a bug in drawbridge" in text for text in response["warnings"]] == [True]
