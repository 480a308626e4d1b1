"""The policy about the label drawbridge.dev/mode refuses misspelt modes, and without it such a mode changes no pod."""

import pytest

from e2e.actors.webhook import MODE, NOWHERE, gpu, untouched

pytestmark = pytest.mark.real


def test_a_misspelt_mode_is_refused_with_the_valid_modes(control_plane, webhook):
    """An administrator wants to exclude a namespace and misspells the mode."""
    name = control_plane.namespace("webhook-misspelt", {MODE: "enforce"})
    control_plane.until("the policy is in force", lambda: is_turned_back(control_plane), 30)
    for word in ("Off", "disabled", "false"):
        done = control_plane.kubectl("label", "namespace", name, f"{MODE}={word}", "--overwrite", check=False)
        assert done.returncode, f"the mode may be {word}"
        assert f'says "{word}", which is not one of off, observe, warn, enforce' in done.stderr
    for word in ("off", "observe", "warn", "enforce"):
        control_plane.kubectl("label", "namespace", name, f"{MODE}={word}", "--overwrite")
    control_plane.kubectl("label", "namespace", name, f"{MODE}-")
    control_plane.kubectl("label", "namespace", name, f"{MODE}=")


BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/drawbridge-mode"


@pytest.fixture
def unbound(control_plane):
    """A cluster whose namespaces were labelled before the policy existed."""
    binding = control_plane.get(BINDING)
    control_plane.delete(BINDING)
    yield
    meta = {"name": binding["metadata"]["name"]}
    control_plane.create({**binding, "metadata": meta})
    control_plane.until("the policy is in force again", lambda: is_turned_back(control_plane), 30)


def is_turned_back(cluster):
    """Return whether the policy refuses a misspelt mode."""
    misspelt = ("label", "namespace", "default", f"{MODE}=nonsense", "--dry-run=server")
    return cluster.kubectl(*misspelt, check=False).returncode != 0


def test_under_a_misspelt_mode_pods_are_unchanged(control_plane, fleet_node, gated, unbound):
    """The webhooks of this test select namespaces that opted in. This namespace did not, so the webhook is not called and cannot warn."""
    control_plane.create(gpu("before", gated, nodeSelector=NOWHERE))
    misspelt = ("label", "namespace", gated, f"{MODE}=Off", "--overwrite")
    control_plane.until("the label stands", lambda: control_plane.kubectl(*misspelt, check=False).returncode == 0, 30)
    untouched(control_plane, gpu("p", gated), 20)
    path = f"/api/v1/namespaces/{gated}/pods/before"
    assert control_plane.patch(path, {"metadata": {"labels": {"seen": "yes"}}})["spec"]["resourceClaims"]
    control_plane.delete(path)
