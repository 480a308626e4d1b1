"""`drawbridge allocator --read-only` beside the stock scheduler of a real control plane, with exactly its own rights."""

import http.client

import pytest

from cluster import manifests
from e2e.actors import fleet
from e2e.actors.rights import check_rights
from e2e.actors.webhook import COMMAND, ROOT, SYSTEM
from e2e.actors.workloads import claim, pod, request, using
from e2e.ground.controlplane import free_port

pytestmark = pytest.mark.real
ACCOUNT = "drawbridge-read-only"
CLASS = "read-only-share"
NODE = "read-only-0"
# Rights that these tests do not use, and what they are needed for.
UNUSED_RIGHTS = {
    ("", "events", "patch"): "the reason of a pod changes, or an earlier process wrote the event",
    ("*", "*", "list"): "servers that do not stream lists are asked for pages",
    ("drawbridge.dev", "devicecompatibilities", "watch"): "needed where our kinds are installed",
    ("drawbridge.dev", "devicequotas", "watch"): "the same",
}


@pytest.fixture(scope="module")
def read_only_allocator(control_plane):
    """A node with one shared GPU, and the read-only allocator; yields a function that reads the allocator's metrics."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    if control_plane.read(namespace) is None:
        control_plane.namespace(SYSTEM)
    objects = [document.object for document in manifests.read([ROOT / "manifests/read-only/rbac.yaml"])]
    for obj in objects:
        if obj["kind"] == "ServiceAccount":
            obj["metadata"]["namespace"] = SYSTEM
    objects.append(fleet.device_class(CLASS, f"device.driver == '{fleet.HAMI}'"))
    objects += fleet.slices(fleet.HAMI, NODE, fleet.hami_gpus(1), by_name=True)
    control_plane.add_fake_nodes(1, prefix="read-only-")
    control_plane.create(*objects)
    control_plane.until_may(
        f"system:serviceaccount:{SYSTEM}:{ACCOUNT}", "list", "pods"
    )  # an allocator that starts earlier is refused at first
    port = free_port()
    kubeconfig = control_plane.account_kubeconfig(SYSTEM, ACCOUNT)
    options = [f"--kubeconfig={kubeconfig}", f"--metrics-listen=127.0.0.1:{port}"]
    process = control_plane.spawn(ACCOUNT, [*COMMAND, "allocator", "--read-only", *options])

    def metrics(path="/metrics"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except OSError:
            return ""
        finally:
            connection.close()

    try:
        control_plane.until("the allocator has read the cluster", lambda: process.check() or "[+]cluster ok" in metrics("/readyz"), 30)  # fmt: skip
        yield metrics
    finally:
        process.stop()
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        control_plane.remove(*reversed(objects), node)


def check_events_and_metrics(control_plane, read_only_allocator, namespace, **capacity):
    """Two pods request one device, or two shares that do not fit together.

    Check the events of the waiting pod and the metrics of the running pod; return these metrics.
    """
    control_plane.create(
        claim("has", namespace, request("gpu", CLASS, **capacity)),
        claim("wants", namespace, request("gpu", CLASS, **capacity)),
        pod("runs", namespace, node=NODE, resourceClaims=[using("has")]),
    )
    control_plane.wait_scheduled(namespace, "runs")
    control_plane.create(pod("waits", namespace, node=NODE, resourceClaims=[using("wants")]))
    words = f"claim {namespace}/has"
    events = control_plane.until("an event says when the pod would fit", lambda: [event for event in control_plane.events(namespace, "waits") if words in event], 30)  # fmt: skip
    assert {event.partition(": ")[0] for event in events} == {"Devices"}

    def series_of_namespace():
        return [line for line in read_only_allocator().splitlines() if f'namespace="{namespace}"' in line]

    # The allocator learns of both from separate watches: events come from the watch of claims, metrics from the watch of pods.
    series = control_plane.until("the metrics show the running pod", series_of_namespace)
    device = next(line for line in series if line.startswith("drawbridge_pod_device{"))
    for label in ('pod="runs"', 'claim="has"', f'driver="{fleet.HAMI}"', f'node="{NODE}"', 'uuid="GPU-00000000-'):
        assert label in device
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/runs", gracePeriodSeconds=0)
    control_plane.wait_scheduled(namespace, "waits", 60)
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/waits", gracePeriodSeconds=0)
    return series


def test_waiting_pods_have_a_reason_and_running_pods_metrics(control_plane, read_only_allocator, namespace):
    """The stock scheduler places one of two pods; the allocator writes events only."""
    share = {"requests": {"memory": "30Gi", "cores": "30"}}
    series = check_events_and_metrics(control_plane, read_only_allocator, namespace, capacity=share)
    memory = next(line for line in series if 'capacity="memory"' in line)
    assert float(memory.rpartition(" ")[2]) == 30 * 2**30
    used = check_rights(control_plane, ACCOUNT, UNUSED_RIGHTS)
    assert {verb for _, resource, verb in used if resource != "events"} <= {"list", "watch", "get"}
    assert {resource for _, resource, verb in used if verb == "get"} <= {"/version", "/apis", "/metrics"}
