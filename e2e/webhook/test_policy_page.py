"""The kubectl output in docs/translation.md: pods and claims that the webhook admits, warns about and refuses, on a real API server."""

import pytest

from cluster import manifests
from e2e.actors.page import ROOT, follow

pytestmark = pytest.mark.real
EXAMPLES = ROOT / "manifests" / "examples"


@pytest.fixture
def four_modes(control_plane):
    """The GPU of manifests/examples/modes, with the rules of ours that keep its modes apart."""
    files = [EXAMPLES / "modes" / f"{name}.yaml" for name in ("classes", "plain", "expressions")]
    made = [document.object for document in manifests.read(files)]
    try:
        control_plane.kubectl("apply", "--server-side", "-f", "-", input=manifests.dump(made))
        yield
    finally:
        control_plane.remove(*reversed(made))


@pytest.mark.usefixtures("fleet_node")
@pytest.mark.parametrize("title", ["Served", "Driver parameters"])
def test_policy_page_examples_match_the_output_of_kubectl(control_plane, gated, monkeypatch, title):
    monkeypatch.chdir(ROOT)
    follow(control_plane, gated, title)


@pytest.mark.usefixtures("fleet_node", "four_modes")
def test_compatibility_examples_of_the_page_match_the_output_of_kubectl(control_plane, gated, monkeypatch):
    monkeypatch.chdir(ROOT)
    follow(control_plane, gated, "Compatibility")
