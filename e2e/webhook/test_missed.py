"""Pods that the webhook did not review, on a real control plane: events, explanations, and eviction if the configuration allows it."""

from pathlib import Path

import pytest
import yaml

from e2e.actors.webhook import CONFIGURATION, MODE, SYSTEM, gpu, untouched
from e2e.actors.workloads import container, limits, pod
from e2e.kubernetes.test_explain import drawbridge

pytestmark = pytest.mark.real
ROLE = Path(__file__).parents[2] / "manifests" / "missed" / "role.yaml"


def deployment(namespace):
    labels = {"app": "late"}
    spec = {"containers": [container(**limits(**{"nvidia.com/gpu": 1}))]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "late", "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def test_a_pod_missed_by_the_webhook_is_reported_and_evicted(control_plane, webhook, fleet_node, gated, created):
    """The controller evicts it once the configuration allows that."""
    where = f"/api/v1/namespaces/{gated}"
    control_plane.patch(where, {"metadata": {"labels": {MODE: "off"}}})
    untouched(control_plane, gpu("dry", gated))
    control_plane.create(deployment(gated))

    def late():
        return [pod["metadata"]["name"] for pod in control_plane.get(f"{where}/pods")["items"]]

    control_plane.until("the pod is there", late, 30)
    [missed] = late()
    control_plane.wait_unschedulable(gated, missed)
    control_plane.patch(where, {"metadata": {"labels": {MODE: "enforce"}}})
    event = "NotTranslated"
    control_plane.until(event, lambda: any(event in text for text in control_plane.events(gated, missed)), 30)
    _, answer, _ = drawbridge(control_plane.kubeconfig, "explain", "pod", missed, "-n", gated)
    # A part of drawbridge that does not run comes before the pod's own reason.
    reason = answer["pod"]["state"]["reasons"][-1]
    assert (reason["code"], reason["actor"]) == ("O103", "user")
    assert "nvidia.com/gpu" in reason["text"]
    try:
        created(*yaml.safe_load_all(ROLE.read_text()))
        webhook.follow(f"{CONFIGURATION}evictMissedPods: 60\n")
        control_plane.until("another is made", lambda: missed not in late() and late(), 30)
        [another] = late()
        assert control_plane.wait_scheduled(gated, another)["spec"]["nodeName"] == fleet_node
        assert "a pod was not evicted" not in webhook.processes["controller"].log.read_text()
    finally:
        webhook.follow(CONFIGURATION)
        control_plane.delete(f"/apis/apps/v1/namespaces/{gated}/deployments/late")


def test_a_problem_for_administrators_is_an_event_of_the_controller(control_plane, webhook, fleet_node, gated, created):
    """The pod requests a resource that no node advertises and no class serves."""
    webhook.kill_controller()  # events are limited in rate, and earlier tests have used some
    created(pod("alone", gated, container(**limits(**{"amd.com/gpu": 1}))))
    control_plane.wait_unschedulable(gated, "alone")
    webhook.start_controller()
    words = f"Pod {gated}/alone: "

    def described():
        done = control_plane.kubectl("describe", "deployment", "drawbridge-controller", "-n", SYSTEM)
        return words in done.stdout

    control_plane.until("kubectl describe shows it", described, 30)
    [event] = [event for event in control_plane.events(SYSTEM, "drawbridge-controller") if gated in event]
    assert event.startswith(f"AdministratorNeeded: {words}")
