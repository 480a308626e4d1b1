"""The real API server refuses, in dry runs, exactly what `dra.validation` calls an error."""

import json

import pytest

from dra.validation import problems
from dra.validation.fields import gates
from e2e.actors.client import ApiError
from e2e.ground.controlplane import ALPHA_GATES
from tests.dra.validation import corpus

pytestmark = pytest.mark.real

ENABLED = gates.DEFAULT | (gates.ALL & ALPHA_GATES.keys())
PATHS = {
    "DeviceClass": "deviceclasses",
    "DeviceTaintRule": "devicetaintrules",
    "ResourceClaim": "namespaces/default/resourceclaims",
    "ResourceClaimTemplate": "namespaces/default/resourceclaimtemplates",
    "ResourceSlice": "resourceslices",
}
# What a manifest does not show: the labels of a namespace, and whether a node exists (for nodeAllocatableResources).
UNSEEN = ("admin access", "not found for device")


def refusal(control_plane, value):
    """Return the server's refusal to create an object, or ""."""
    try:
        control_plane.post(f"/apis/{corpus.API}/{PATHS[value['kind']]}", value, dryRun="All")
    except ApiError as error:
        return "" if any(unseen in error.message for unseen in UNSEEN) else error.message
    return ""


def errors(value):
    """Return our errors about creation, without those about status."""
    findings = problems(json.loads(json.dumps(value)), ENABLED)
    return [p for p in findings if p.refuses and not p.path.startswith("/status")]


@pytest.mark.parametrize("name", corpus.VALID)
def test_valid_and_invalid_objects_are_judged_like_the_real_server(control_plane, name):
    original = corpus.VALID[name]
    # The request path names the namespace, and an unreadable status is refused even where it is dropped.
    metadata = {key: value for key, value in original["metadata"].items() if key != "namespace"}
    original = {key: value for key, value in {**original, "metadata": metadata}.items() if key != "status"}
    for value in [original, *corpus.sample(original, 60, seed=13)]:
        theirs, ours = refusal(control_plane, value), errors(value)
        assert bool(theirs) == bool(ours), (corpus.as_json(value), theirs, ours)
