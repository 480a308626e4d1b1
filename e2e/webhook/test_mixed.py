"""A fleet of which one node has moved to DRA, on a real API server: unmodified pods run on both sides."""

from pathlib import Path

import pytest

from e2e.actors.webhook import CONFIGURATION, NODE, claims_of, gpu

pytestmark = pytest.mark.real

OLD = "mixed-old-0"
ROLE = Path(__file__).parents[2] / "manifests/mixed/role.yaml"
POLICY = f"{CONFIGURATION}mixed:\n  nvidia.com/gpu: {{prefer: plugin}}\n"
UNCOUNTED = "[!]pods: pods stay on the nodes that `mixed` prefers"


@pytest.fixture
def half_moved(control_plane, fleet_node, webhook):
    """A node with a driver beside a node whose device plugin offers a single GPU, and a policy that prefers the plugin."""
    try:
        control_plane.add_fake_nodes(1, prefix="mixed-old-", allocatable={"nvidia.com/gpu": "1"})
        webhook.configure(POLICY)
        yield webhook
    finally:
        webhook.follow(CONFIGURATION)
        control_plane.kubectl("delete", "--ignore-not-found", "-f", str(ROLE))
        control_plane.remove({"apiVersion": "v1", "kind": "Node", "metadata": {"name": OLD}})


def test_unedited_pods_fill_plugin_nodes_before_dra_nodes(control_plane, gated, half_moved):
    def notes():
        return half_moved.get("/readyz?verbose")[1]

    def placed(name, node):
        def bound():
            return control_plane.get(f"/api/v1/namespaces/{gated}/pods/{name}")["spec"].get("nodeName")

        assert control_plane.until(f"{name} has a node", bound, 60) == node

    def tried():
        """Return what the webhook would make of a pod now."""
        return "resourceClaims" in control_plane.create(gpu("tried", gated), dryRun="All")[0]["spec"]

    control_plane.until("the webhook says that it may not count", lambda: UNCOUNTED in notes(), 60)
    control_plane.kubectl("apply", "-f", str(ROLE))
    control_plane.until("the webhook counts", lambda: UNCOUNTED not in notes(), 60)
    control_plane.until("the old side is preferred", lambda: not tried(), 60)
    control_plane.create(gpu("first", gated))
    placed("first", OLD)
    assert claims_of(control_plane, gated, "first") == {}
    control_plane.until("the old side is full", tried, 60)
    control_plane.create(gpu("second", gated))
    placed("second", NODE)
    [claim] = claims_of(control_plane, gated, "second").values()
    assert claim["status"]["allocation"]


def test_a_pinned_pod_runs_on_its_node(control_plane, gated, half_moved):
    """Claims are preferred, but no pod waits for a claim if only nodes with a device plugin can run it."""
    half_moved.follow(POLICY.replace("plugin", "dra"))

    def pinned(name, node, *, fields):
        there = {"key": "metadata.name" if fields else "kubernetes.io/hostname", "operator": "In", "values": [node]}
        term = {"matchFields" if fields else "matchExpressions": [there]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        pod = gpu(name, gated)
        pod["spec"]["affinity"] = {"nodeAffinity": required}
        return pod

    def left():
        return "resourceClaims" not in control_plane.create(pinned("tried", OLD, fields=False), dryRun="All")[0]["spec"]

    control_plane.until("the webhook has seen both nodes", left, 60)
    for name, node, fields in (("by-label", OLD, False), ("by-field", NODE, True)):
        control_plane.create(pinned(name, node, fields=fields))

        def bound(name=name):
            return control_plane.get(f"/api/v1/namespaces/{gated}/pods/{name}")["spec"].get("nodeName")

        assert control_plane.until(f"{name} has a node", bound, 60) == node
        assert bool(claims_of(control_plane, gated, name)) is (node == NODE)
