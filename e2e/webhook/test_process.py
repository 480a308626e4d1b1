"""The running webhook follows its configuration, and loses no review when it is stopped."""

import json
import signal

import pytest

from e2e.actors.webhook import gpu, review

pytestmark = pytest.mark.real


def test_a_new_configuration_takes_effect_without_a_restart(control_plane, fleet_node, gated, webhook):
    """The mode applies to namespaces without a label.

    The test calls the webhook directly, because the API server sends only pods of labelled namespaces here.
    """
    good = webhook.config.read_text()

    def is_translated():
        return "patch" in webhook.post("/mutate", review(gpu("p", "default"), "default"))

    assert is_translated()
    try:
        webhook.configure(good.replace("enforce", "observe"))
        control_plane.until("pods are left as they are", lambda: not is_translated(), 20)
        webhook.configure("mode: [")
        control_plane.until(
            "the bad file is counted", lambda: "drawbridge_configuration_good 0.0" in webhook.metrics(), 20
        )
        assert not is_translated()
    finally:
        webhook.follow(good)
    control_plane.until("and forgotten", lambda: "drawbridge_configuration_good 1.0" in webhook.metrics(), 20)
    assert is_translated()


def test_mode_warn_warns_and_changes_nothing(control_plane, fleet_node, gated, webhook):
    control_plane.patch(f"/api/v1/namespaces/{gated}", {"metadata": {"labels": {"drawbridge.dev/mode": "warn"}}})
    manifest = json.dumps(gpu("p", gated))

    def warning():
        done = control_plane.kubectl("apply", "--dry-run=server", "-o", "json", "-f", "-", input=manifest)
        return "resourceClaims" not in json.loads(done.stdout)["spec"] and done.stderr

    assert "Warning: drawbridge would make this pod request its devices through ResourceClaims" in control_plane.until(
        "warn is in force", warning, 20
    )


def test_a_replica_that_is_stopped_loses_no_review(control_plane, fleet_node, gated, webhook):
    """Requests continue after SIGTERM until the process reports that it is not ready."""
    item = gpu("p", gated)
    webhook.processes["webhook"].stop()
    process = webhook.start_webhook(notice=10)  # on a busy machine a review can take longer than the usual notice
    control_plane.create(item, dryRun="All")
    process.child.send_signal(signal.SIGTERM)
    answered = 0
    while webhook.ready():
        control_plane.create(item, dryRun="All")  # failurePolicy Fail: an unanswered review would raise
        answered += 1
    control_plane.create(item, dryRun="All")
    process.child.wait(60)
    assert process.child.returncode == 0
    webhook.start_webhook()
    control_plane.create(item, dryRun="All")
