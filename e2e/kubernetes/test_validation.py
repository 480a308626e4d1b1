"""The real API server refuses, in dry runs, exactly what `dra.validation` calls an error; also that of an unreleased minor."""

import json

import pytest

from dra.server import server_of
from dra.validation import problems
from e2e.actors.client import ApiError
from e2e.build import CURRENT, NEWEST
from e2e.ground.controlplane import ALPHA_GATES, ControlPlane
from tests.dra.validation import corpus

pytestmark = pytest.mark.real

PATHS = {
    "DeviceClass": "deviceclasses",
    "DeviceTaintRule": "devicetaintrules",
    "ResourceClaim": "namespaces/default/resourceclaims",
    "ResourceClaimTemplate": "namespaces/default/resourceclaimtemplates",
    "ResourceSlice": "resourceslices",
}
# What a manifest does not show: the labels of a namespace, and whether a node exists (for nodeAllocatableResources).
UNSEEN = ("admin access", "not found for device")


@pytest.fixture(
    scope="module",
    params=[pytest.param(minor, marks=pytest.mark.kubernetes(minor)) for minor in sorted({CURRENT, NEWEST})],
)
def control_plane(request):
    """A control plane of one minor, with the alpha gates on."""
    with ControlPlane(name=f"validation-{request.param}", version=request.param) as running:
        yield running


def refusal(control_plane, value):
    """Return the server's refusal to create an object, or ""."""
    try:
        control_plane.post(f"/apis/{corpus.API}/{PATHS[value['kind']]}", value, dryRun="All")
    except ApiError as error:
        return "" if any(unseen in error.message for unseen in UNSEEN) else error.message
    return ""


def errors(control_plane, value):
    """Return our errors about creation, without those about status."""
    server = server_of(int(control_plane.version.partition(".")[2]), ALPHA_GATES)
    findings = problems(json.loads(json.dumps(value)), server.gates, server.minor)
    return [p for p in findings if p.refuses and not p.path.startswith("/status")]


@pytest.mark.parametrize("name", corpus.VALID)
def test_valid_and_invalid_objects_are_judged_like_the_real_server(control_plane, name):
    original = corpus.VALID[name]
    # The request path names the namespace, and an unreadable status is refused even where it is dropped.
    metadata = {key: value for key, value in original["metadata"].items() if key != "namespace"}
    original = {key: value for key, value in {**original, "metadata": metadata}.items() if key != "status"}
    for value in [original, *corpus.sample(original, 60, seed=13)]:
        theirs, ours = refusal(control_plane, value), errors(control_plane, value)
        assert bool(theirs) == bool(ours), (corpus.as_json(value), theirs, ours)
