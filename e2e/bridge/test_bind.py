"""Failed bindings: what happens to the pod, its claim and its reservation.

Our scheduler and the allocator connect to the API server through separate proxies.
"""

import time
from typing import Any

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER, Bridge
from e2e.actors.client import ApiError
from e2e.actors.proxy import Proxy, Request
from e2e.actors.workloads import claim, pod, request, using
from e2e.ground.controlplane import ControlPlane
from tests.limits import PATIENCE

pytestmark = pytest.mark.real
DRIVER = "bind.example.com"
CLASS = "bind-gpu"
NODES = ("bind-0", "bind-1")
REFUSED = "not to be bound"
SILENT_SECONDS = 15.0  # until the allocator lists objects that its watches do not show
ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


def is_binding(write: Request) -> bool:
    return write.verb == "POST" and write.path.partition("?")[0].endswith("/binding")


def is_allocation(write: Request) -> bool:
    return write.patches_claim and bool(write.body.get("status", {}).get("allocation"))


class World:
    """A control plane with two nodes of one device each, the allocator and our scheduler."""

    def __init__(self, cluster: ControlPlane, bridge: Bridge, allocator_proxy: Proxy, scheduler_proxy: Proxy) -> None:
        self.cluster = cluster
        self.bridge = bridge
        self.allocator_proxy = allocator_proxy  # the allocator's proxy
        self.scheduler_proxy = scheduler_proxy

    def start(self) -> None:
        self.bridge.prepare()
        self.bridge.start(via=f"http://127.0.0.1:{self.allocator_proxy.port}")
        kubeconfig = self.cluster.write_kubeconfig(
            "bind-scheduler", self.cluster.token, f"http://127.0.0.1:{self.scheduler_proxy.port}"
        )
        self.bridge.start_scheduler(clientConnection={"kubeconfig": str(kubeconfig)})
        self.cluster.add_fake_nodes(len(NODES), prefix="bind-")
        self.cluster.create(fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"))
        for name in NODES:
            self.cluster.create(*fleet.slices(DRIVER, name, [fleet.device("gpu-0", {})], by_name=True))

    def create_pod(self, namespace: str, name: str, node: str = NODES[0]) -> None:
        """Create a pod for one node, and its own claim."""
        self.cluster.create(
            claim(name, namespace, request("gpu", CLASS)),
            pod(name, namespace, schedulerName=SCHEDULER, resourceClaims=[using(name)], node=node),
        )

    def pod(self, namespace: str, name: str) -> Any:
        return self.cluster.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def delete(self, namespace: str, name: str) -> None:
        self.cluster.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)

    def holders(self, namespace: str) -> dict[str, list[str]]:
        """Return the names of the pods that each allocated claim is reserved for."""
        claims = self.cluster.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]
        return {
            claim["metadata"]["name"]: [pod["name"] for pod in claim["status"].get("reservedFor", ())]
            for claim in claims
            if claim.get("status", {}).get("allocation")
        }

    def hold_binding(self, namespace: str, name: str, node: str = NODES[0]) -> None:
        """Create a pod, and delay its binding on the way to the API server."""
        self.scheduler_proxy.hold_at(1, selects=is_binding)
        self.create_pod(namespace, name, node)
        assert self.scheduler_proxy.held.wait(PATIENCE), "the scheduler sent no binding"
        assert self.holders(namespace) == {name: [name]}

    def let_go(self) -> bytes:
        """Forward the binding; return the API server's response."""
        self.scheduler_proxy.let_go.set()
        self.cluster.until("the API server has answered", lambda: self.scheduler_proxy.late, 20)
        return self.scheduler_proxy.late.partition(b"\r\n")[0]

    def reservations(self) -> int:
        lines = self.bridge.ask("/metrics", self.bridge.metrics_port)[1].splitlines()
        [line] = [line for line in lines if line.startswith("drawbridge_reservations ")]
        return int(float(line.split()[1]))


@pytest.fixture(scope="module")
def world():
    with ControlPlane(name="bind") as cluster:
        bridge = Bridge(cluster)
        allocator_proxy = Proxy(cluster.url, cluster.ca)
        scheduler_proxy = Proxy(cluster.url, cluster.ca, cluster.token)
        try:
            running = World(cluster, bridge, allocator_proxy, scheduler_proxy)
            running.start()
            yield running
        finally:
            bridge.remove()
            allocator_proxy.close()
            scheduler_proxy.close()


@pytest.fixture
def ours(world, request):
    """A fresh namespace; afterwards its pods are deleted and their reservations are gone."""
    name = world.cluster.namespace(f"bind-{abs(hash(request.node.name)) % 10**6}")
    yield name
    world.allocator_proxy.restore()
    world.scheduler_proxy.restore()
    world.cluster.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
    world.cluster.until(
        "no claim is allocated or reserved", lambda: not world.holders(name) and not world.reservations(), 60
    )


@pytest.fixture
def refusing_policy(world, ours):
    """A policy that refuses to bind any pod of the namespace."""
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "e2e-unbound"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"], "operations": ["CREATE"]}
                ]
            },
            "matchConditions": [{"name": "ours", "expression": f"request.namespace == '{ours}'"}],
            "validations": [{"expression": "false", "message": REFUSED, "reason": "Forbidden"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "e2e-unbound"},
        "spec": {"policyName": "e2e-unbound", "validationActions": ["Deny"]},
    }
    probe = pod("tried", ours, schedulerName="none")
    world.cluster.create(policy, binding, probe)

    def is_refused():
        try:
            bind(world, ours, "tried", NODES[1], dryRun="All")
        except ApiError as error:
            return REFUSED in error.message
        return False

    try:
        world.cluster.until("the policy is in force", is_refused, PATIENCE)
        world.cluster.remove(probe)
        yield binding
    finally:
        world.cluster.remove(binding, policy)


def bind(world, namespace, name, node, **query):
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace}, "target": target}
    world.cluster.post(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body, **query)


def test_a_pod_keeps_its_device_until_refused_bindings_are_allowed(world, ours, refusing_policy):
    world.create_pod(ours, "a")
    world.cluster.until(
        "the refusal is an event", lambda: any(REFUSED in event for event in world.cluster.events(ours, "a"))
    )
    world.create_pod(ours, "b")
    held_by = f"held by claim {ours}/a"
    world.cluster.until(held_by, lambda: any(held_by in event for event in world.cluster.events(ours, "b")))
    assert world.holders(ours) == {"a": ["a"]}
    assert world.reservations() == 1
    world.cluster.remove(refusing_policy)
    world.cluster.wait_scheduled(ours, "a")


def test_deletion_frees_the_device_although_every_binding_is_refused(world, ours, refusing_policy):
    world.create_pod(ours, "a")
    world.cluster.until(
        "the refusal is an event", lambda: any(REFUSED in event for event in world.cluster.events(ours, "a"))
    )
    world.delete(ours, "a")
    world.cluster.until("the device is free", lambda: not world.holders(ours) and not world.reservations(), 5)


def test_a_device_of_a_pod_deleted_during_binding_is_reused(world, ours):
    world.hold_binding(ours, "a")
    world.delete(ours, "a")
    world.create_pod(ours, "b")
    assert b" 404 " in world.let_go()
    world.cluster.wait_scheduled(ours, "b")
    assert world.holders(ours) == {"b": ["b"]}


def test_a_pod_bound_elsewhere_by_another_scheduler_frees_its_device(world, ours):
    world.hold_binding(ours, "a")
    bind(world, ours, "a", NODES[1])
    assert b" 409 " in world.let_go()
    world.create_pod(ours, "b")
    world.cluster.wait_scheduled(ours, "b")
    assert world.holders(ours) == {"b": ["b"]}


def test_a_pod_of_a_deleted_node_is_still_bound(world, ours):
    """The API server does not check that the node exists; the pod garbage collector deletes such pods."""
    [node] = world.cluster.add_fake_nodes(1, prefix="bind-gone-")
    world.cluster.create(*fleet.slices(DRIVER, node, [fleet.device("gpu-0", {})], by_name=True))
    world.hold_binding(ours, "a", node)
    world.cluster.remove({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    assert b" 201 " in world.let_go()
    assert world.cluster.wait_scheduled(ours, "a")["spec"]["nodeName"] == node
    world.delete(ours, "a")
    world.cluster.until("its device is free", lambda: not world.holders(ours) and not world.reservations(), 10)


def test_a_claim_deleted_during_allocation_is_replaced_by_the_next(world, ours):
    """The claim is deleted during its allocation, so that the write fails."""
    world.allocator_proxy.hold_at(1, selects=is_allocation)
    world.create_pod(ours, "a")
    assert world.allocator_proxy.held.wait(PATIENCE), "the allocator wrote no allocation"
    path = f"/apis/resource.k8s.io/v1/namespaces/{ours}/resourceclaims/a"
    world.cluster.delete(path)
    world.allocator_proxy.let_go.set()
    world.cluster.until("the API server has answered", lambda: world.allocator_proxy.late, 20)
    assert b" 40" in world.allocator_proxy.late.partition(b"\r\n")[0]
    message = "the pod is scheduled again"
    world.cluster.until(message, lambda: any(message in event for event in world.cluster.events(ours, "a")))
    world.cluster.until(
        "no claim is allocated or reserved", lambda: not world.holders(ours) and not world.reservations(), 10
    )
    world.cluster.until("the claim is gone", lambda: world.cluster.read(claim("a", ours)) is None)
    world.cluster.create(claim("a", ours, request("gpu", CLASS)))
    world.cluster.wait_scheduled(ours, "a")


@pytest.mark.parametrize("written", [True, False])
def test_a_pod_keeps_its_device_after_an_unanswered_binding(world, ours, written):
    world.scheduler_proxy.break_at(1, answered=written, selects=is_binding)
    world.create_pod(ours, "a")
    assert world.scheduler_proxy.broken.wait(PATIENCE)
    world.create_pod(ours, "b")
    time.sleep(1)  # the scheduler sees neither the result of the binding nor pod b
    world.scheduler_proxy.restore()
    world.cluster.wait_scheduled(ours, "a")
    assert world.holders(ours) == {"a": ["a"]}


def test_a_pod_is_bound_although_its_claim_write_reported_failure(world, ours):
    world.allocator_proxy.answer_at(1, ERROR, selects=is_allocation)
    world.create_pod(ours, "a")
    assert world.allocator_proxy.held.wait(PATIENCE)
    world.cluster.wait_scheduled(ours, "a")
    assert world.holders(ours) == {"a": ["a"]}


@pytest.mark.parametrize("kind", ["pods", "resourceclaims", "*"])
def test_a_pod_is_bound_soon_although_watches_are_silent(world, ours, kind):
    world.allocator_proxy.silenced = kind
    begun = time.monotonic()
    for name in ("a", "b"):
        world.create_pod(ours, name, NODES["ab".index(name)])
    for name in ("a", "b"):
        world.cluster.wait_scheduled(ours, name, SILENT_SECONDS)
    print(f"{kind}: {time.monotonic() - begun:.1f} s")
    assert sorted(world.holders(ours)) == ["a", "b"]
