"""Pods that no node could ever serve, on a real API server: refused, warned about, or admitted if a node may be created."""

import json

import pytest

from e2e.actors import fleet
from e2e.actors.webhook import CONFIGURATION, NOWHERE, is_translated
from e2e.actors.workloads import claim, container, limits, pod, request

pytestmark = pytest.mark.real
POOL = "cloud.google.com/gke-nodepool"
TWELVE = {"nvidia.com/gpu": 12}  # the node has eight
TEMPLATE = {
    "name": "large",
    "devices": [{"driver": "gpu.nvidia.com", "count": 16, "attributes": {"type": {"string": "gpu"}}}],
}


def applied(cluster, name, namespace, *options):
    """Return kubectl's exit code and output for a pod with twelve devices."""
    item = pod(name, namespace, container(**limits(**TWELVE)), nodeSelector=NOWHERE)
    done = cluster.kubectl("create", *options, "-f", "-", input=json.dumps(item), check=False)
    return done.returncode, done.stderr


def follow(webhook, cluster, namespace, text, expected):
    """Put a configuration in force, and wait until a pod gets the expected words."""
    webhook.configure(text)

    def met():
        code, output = applied(cluster, "probe", namespace, "--dry-run=server")
        return all(word in output for word in expected) and (code, output)

    return cluster.until(f"{expected[0]} is said", met, 30)


def test_an_impossible_pod_is_refused_warned_or_admitted_as_configured(control_plane, fleet_node, gated, webhook):
    node = f"/api/v1/nodes/{fleet_node}"
    try:
        code, output = follow(webhook, control_plane, gated, CONFIGURATION, ["(Forbidden)", "[R023]"])
        assert code == 1
        code, output = follow(webhook, control_plane, gated, CONFIGURATION + "impossible: warn\n", ["can never work"])
        assert code == 0
        assert "[R023]" in output
        log = webhook.processes["webhook"].log.read_text().splitlines()
        assert any("can never work" in line and gated in line for line in log), "an operator sees it too"
        control_plane.patch(node, {"metadata": {"labels": {POOL: "a"}}})
        code, output = follow(webhook, control_plane, gated, CONFIGURATION, [f"({POOL})"])
        assert code == 0
        assert "[R023]" in output
        code, output = follow(webhook, control_plane, gated, CONFIGURATION + "impossible: refuse\n", ["(Forbidden)"])
        assert code == 1
        coming = CONFIGURATION + f"nodeTemplates: {json.dumps([TEMPLATE])}\n"
        code, output = follow(webhook, control_plane, gated, coming, ["template large"])
        assert code == 0
        assert applied(control_plane, "waiting", gated)[0] == 0
        control_plane.until("its claim is made, and waits", lambda: claims(control_plane, gated), 30)
        control_plane.patch(node, {"metadata": {"labels": {POOL: None}}})
        code, _ = follow(webhook, control_plane, gated, CONFIGURATION, ["(Forbidden)"])
        assert code == 1
    finally:
        control_plane.patch(node, {"metadata": {"labels": {POOL: None}}})
        webhook.follow(CONFIGURATION)


def test_a_refusal_for_an_absent_class_hides_its_selector(control_plane, fleet_node, gated, created):
    created(fleet.device_class("e2e-absent", "device.driver == 'absent.example.com'"))
    asking = json.dumps(claim("absent", gated, request("device", "e2e-absent")))

    def refusal():
        done = control_plane.kubectl("create", "--dry-run=server", "-f", "-", input=asking, check=False)
        return "[R022]" in done.stderr and done.stderr

    message = control_plane.until("the claim is refused", refusal, 30)
    assert "published values of productName:" in message
    assert "device.driver" not in message


def test_pods_are_judged_by_reachable_nodes_and_daemon_sets_warned(control_plane, fleet_node, gated, created):
    """The DaemonSet controller stops at a refused pod. Therefore its pods get a warning and wait."""
    label = {"e2e.example.com/reach": "yes"}
    few, many = control_plane.add_fake_nodes(2, prefix="reach-", labels=label)
    created(
        *fleet.slices("gpu.nvidia.com", few, fleet.whole_gpus(2), by_name=True),
        *fleet.slices("gpu.nvidia.com", many, fleet.whole_gpus(4), by_name=True),
    )
    four = container(**limits(**{"nvidia.com/gpu": 4}))
    try:
        item = json.dumps(pod("p", gated, four, nodeSelector={"kubernetes.io/hostname": few}))

        def refusal():
            done = control_plane.kubectl("create", "--dry-run=server", "-f", "-", input=item, check=False)
            return f"nearest is {few}: " in done.stderr and done.stderr

        message = control_plane.until("the pod is refused", refusal, 30)
        assert "[R020]" in message
        template = {"metadata": {"labels": {"app": "each"}}, "spec": {"containers": [four], "nodeSelector": label}}
        spec = {"selector": {"matchLabels": {"app": "each"}}, "template": template}
        metadata = {"name": "each", "namespace": gated}
        created({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec})
        pods = f"/api/v1/namespaces/{gated}/pods"

        def nodes():
            return sorted(pod["spec"].get("nodeName", "") for pod in control_plane.get(pods)["items"])

        control_plane.until("one pod has a node, and one waits", lambda: nodes() == ["", many], 60)
    finally:
        control_plane.remove(
            *({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in (few, many))
        )


def claims(cluster, namespace):
    return cluster.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]


def test_only_trusted_nodes_decide_what_a_resource_name_means(control_plane, fleet_node, gated, webhook):
    """Compromised nodes advertise the resource. Only the nodes that the administrator's selector trusts count."""
    vouched = {"example.com/vouched": "yes"}
    node = f"/api/v1/nodes/{fleet_node}"
    asks = pod("p", gated, container(**limits(**{"nvidia.com/gpu": 1})), nodeSelector=NOWHERE)

    def translated():
        return is_translated(control_plane, asks)

    stolen = []
    try:
        control_plane.patch(node, {"metadata": {"labels": vouched}})
        stolen = control_plane.add_fake_nodes(2, prefix="stolen-", allocatable={"nvidia.com/gpu": "8"})
        control_plane.until("most nodes hand it out, so it is left", lambda: not translated(), 30)
        webhook.configure(CONFIGURATION + f"evidence: {json.dumps({'nodeSelector': vouched})}\n")
        control_plane.until("only one node counts, and it is translated", translated, 30)
        webhook.follow(CONFIGURATION)
        control_plane.until("all nodes count again, and it is left", lambda: not translated(), 30)
    finally:
        webhook.follow(CONFIGURATION)
        control_plane.remove(*({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in stolen))
        control_plane.patch(node, {"metadata": {"labels": dict.fromkeys(vouched)}})
    control_plane.until("the stolen nodes are gone, and it is translated", translated, 30)
