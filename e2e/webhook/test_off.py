"""Switching everything off with one command, and its effect on pods, as in docs/operating.md."""

import json

import pytest

from e2e.actors.webhook import MODE, NOWHERE, gpu, templates_of

pytestmark = pytest.mark.real
OFF = ("delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "drawbridge")


@pytest.fixture
def registered(webhook, control_plane):
    """Registers the webhooks again afterwards, and waits until they are called."""
    yield
    webhook.register()
    name = control_plane.namespace("webhook-on-again")
    webhook.admits(name)
    control_plane.delete(f"/api/v1/namespaces/{name}")


def test_switching_everything_off_keeps_running_and_waiting_pods(control_plane, fleet_node, gated, webhook, registered):
    manifest = json.dumps(gpu("runs", gated))
    control_plane.kubectl("apply", "-f", "-", input=manifest)
    control_plane.wait_scheduled(gated, "runs")
    webhook.kill_controller()
    waiting = gpu("waits", gated, nodeSelector=NOWHERE)
    waiting["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "2"
    [stored] = control_plane.create(waiting)
    name = stored["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]

    control_plane.kubectl(*OFF)
    webhook.start_controller()

    control_plane.until("the waiting pod gets its template", lambda: name in templates_of(control_plane, gated), 60)  # fmt: skip
    entered = gpu("new", gated)
    control_plane.until("no webhook is asked any more", lambda: "resourceClaims" not in control_plane.create(entered, dryRun="All")[0]["spec"])  # fmt: skip
    [entered] = control_plane.create(entered)
    assert entered["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "resourceClaims" not in entered["spec"]
    control_plane.wait_unschedulable(gated, "new")
    running = control_plane.get(f"/api/v1/namespaces/{gated}/pods/runs")
    assert running["spec"]["nodeName"]
    again = control_plane.kubectl("apply", "-f", "-", input=manifest, check=False)
    assert "pod updates may not change fields" in again.stderr
    assert control_plane.get(f"/api/v1/namespaces/{gated}")["metadata"]["labels"][MODE] == "enforce"
