"""What becomes of a pod, its claim and its reservation where a binding fails: our scheduler and the allocator, each with a line of its own."""

import time
from typing import Any

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import PLUGIN_SCHEDULER, Bridge, plugin_configuration
from e2e.actors.client import ApiError
from e2e.actors.proxy import Proxy, Request
from e2e.actors.workloads import claim, pod, request, using
from e2e.build import program
from e2e.ground.controlplane import ControlPlane
from tests.limits import PATIENCE

pytestmark = pytest.mark.real
DRIVER = "bind.example.com"
CLASS = "bind-gpu"
NODES = ("bind-0", "bind-1")
REFUSED = "not to be bound"
SILENT_SECONDS = 15.0  # until the allocator lists what its watches do not show
ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


def is_binding(one: Request) -> bool:
    return one.verb == "POST" and one.path.partition("?")[0].endswith("/binding")


def is_allocation(one: Request) -> bool:
    return one.is_of_claim and bool(one.body.get("status", {}).get("allocation"))


class World:
    """A control plane with two nodes of one device each, the allocator and our scheduler."""

    def __init__(self, cluster: ControlPlane, bridge: Bridge, line: Proxy, schedulers: Proxy) -> None:
        self.cluster = cluster
        self.bridge = bridge
        self.line = line  # the allocator's
        self.schedulers = schedulers

    def start(self) -> None:
        self.bridge.prepare()
        self.bridge.start(via=f"http://127.0.0.1:{self.line.port}")
        way = self.cluster.write_kubeconfig(
            "bind-scheduler", self.cluster.token, f"http://127.0.0.1:{self.schedulers.port}"
        )
        configuration = plugin_configuration(self.bridge.socket) | {"clientConnection": {"kubeconfig": str(way)}}
        self.cluster.start_scheduler(configuration, name="bind-scheduler", binary=program("drawbridge-scheduler"))
        self.cluster.add_fake_nodes(len(NODES), prefix="bind-")
        self.cluster.create(fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"))
        for name in NODES:
            self.cluster.create(*fleet.slices(DRIVER, name, [fleet.device("gpu-0", {})], by_name=True))

    def ask_for(self, namespace: str, name: str, node: str = NODES[0]) -> None:
        """Create a pod for one node, and a claim of its own."""
        self.cluster.create(
            claim(name, namespace, request("gpu", CLASS)),
            pod(name, namespace, schedulerName=PLUGIN_SCHEDULER, resourceClaims=[using(name)], node=node),
        )

    def pod(self, namespace: str, name: str) -> Any:
        return self.cluster.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def delete(self, namespace: str, name: str) -> None:
        self.cluster.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)

    def holders(self, namespace: str) -> dict[str, list[str]]:
        """Name the pods that each allocated claim is reserved for."""
        found = self.cluster.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]
        return {
            one["metadata"]["name"]: [pod["name"] for pod in one["status"].get("reservedFor", ())]
            for one in found
            if one.get("status", {}).get("allocation")
        }

    def hold_binding(self, namespace: str, name: str, node: str = NODES[0]) -> None:
        """Create a pod, and keep its binding on its way to the API server."""
        self.schedulers.hold_at(1, which=is_binding)
        self.ask_for(namespace, name, node)
        assert self.schedulers.held.wait(PATIENCE), "nothing was bound"
        assert self.holders(namespace) == {name: [name]}

    def let_go(self) -> bytes:
        """Pass the binding on; answer with what the API server says to it."""
        self.schedulers.let_go.set()
        self.cluster.until("the API server has answered", lambda: self.schedulers.late, 20)
        return self.schedulers.late.partition(b"\r\n")[0]

    def reservations(self) -> int:
        said = self.bridge.ask("/metrics", self.bridge.metrics_port)[1].splitlines()
        [line] = [one for one in said if one.startswith("drawbridge_reservations ")]
        return int(float(line.split()[1]))


@pytest.fixture(scope="module")
def world():
    with ControlPlane(name="bind") as cluster:
        bridge = Bridge(cluster)
        line = Proxy(cluster.url, cluster.ca)
        schedulers = Proxy(cluster.url, cluster.ca, cluster.token)
        try:
            running = World(cluster, bridge, line, schedulers)
            running.start()
            yield running
        finally:
            bridge.remove()
            line.close()
            schedulers.close()


@pytest.fixture
def ours(world, request):
    """A fresh namespace; afterwards its pods are gone, and so is what was held for them."""
    name = world.cluster.namespace(f"bind-{abs(hash(request.node.name)) % 10**6}")
    yield name
    world.line.restore()
    world.schedulers.restore()
    world.cluster.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
    world.cluster.until("nothing is held", lambda: not world.holders(name) and not world.reservations(), 60)


@pytest.fixture
def refusing(world, ours):
    """A policy by which no pod of the namespace is bound."""
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
    tried = pod("tried", ours, schedulerName="none")
    world.cluster.create(policy, binding, tried)

    def is_refused():
        try:
            bind(world, ours, "tried", NODES[1], dryRun="All")
        except ApiError as error:
            return REFUSED in error.message
        return False

    try:
        world.cluster.until("the policy is in force", is_refused, PATIENCE)
        world.cluster.remove(tried)
        yield binding
    finally:
        world.cluster.remove(binding, policy)


def bind(world, namespace, name, node, **query):
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace}, "target": target}
    world.cluster.post(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body, **query)


def test_a_pod_whose_bindings_are_refused_keeps_its_device_and_is_bound_once_they_are_allowed(world, ours, refusing):
    world.ask_for(ours, "a")
    world.cluster.until(
        "the refusal is an event", lambda: any(REFUSED in event for event in world.cluster.events(ours, "a"))
    )
    world.ask_for(ours, "b")
    held_by = f"held by {ours}/a"
    world.cluster.until(held_by, lambda: any(held_by in event for event in world.cluster.events(ours, "b")))
    assert world.holders(ours) == {"a": ["a"]}
    assert world.reservations() == 1
    world.cluster.remove(refusing)
    world.cluster.wait_scheduled(ours, "a")


def test_a_device_is_free_for_others_when_its_pod_is_deleted_though_every_binding_is_refused(world, ours, refusing):
    world.ask_for(ours, "a")
    world.cluster.until(
        "the refusal is an event", lambda: any(REFUSED in event for event in world.cluster.events(ours, "a"))
    )
    world.delete(ours, "a")
    world.cluster.until("the device is free", lambda: not world.holders(ours) and not world.reservations(), 5)


def test_the_device_of_a_pod_that_is_deleted_while_its_binding_is_on_its_way_goes_to_the_next(world, ours):
    world.hold_binding(ours, "a")
    world.delete(ours, "a")
    world.ask_for(ours, "b")
    assert b" 404 " in world.let_go()
    world.cluster.wait_scheduled(ours, "b")
    assert world.holders(ours) == {"b": ["b"]}


def test_a_pod_that_another_scheduler_bound_elsewhere_gives_its_device_back(world, ours):
    world.hold_binding(ours, "a")
    bind(world, ours, "a", NODES[1])
    assert b" 409 " in world.let_go()
    world.ask_for(ours, "b")
    world.cluster.wait_scheduled(ours, "b")
    assert world.holders(ours) == {"b": ["b"]}


def test_a_pod_whose_node_is_deleted_is_bound_to_it_all_the_same_and_its_device_is_free_when_it_is_gone(world, ours):
    """The API server asks for no node: what collects garbage deletes such pods."""
    [node] = world.cluster.add_fake_nodes(1, prefix="bind-gone-")
    world.cluster.create(*fleet.slices(DRIVER, node, [fleet.device("gpu-0", {})], by_name=True))
    world.hold_binding(ours, "a", node)
    world.cluster.remove({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    assert b" 201 " in world.let_go()
    assert world.cluster.wait_scheduled(ours, "a")["spec"]["nodeName"] == node
    world.delete(ours, "a")
    world.cluster.until("its device is free", lambda: not world.holders(ours) and not world.reservations(), 10)


def test_a_pod_that_our_bind_refuses_holds_nothing_and_is_bound_with_its_next_claim(world, ours):
    """The claim is deleted while its allocation is on its way: that write comes too late."""
    world.line.hold_at(1, which=is_allocation)
    world.ask_for(ours, "a")
    assert world.line.held.wait(PATIENCE), "nothing was written"
    path = f"/apis/resource.k8s.io/v1/namespaces/{ours}/resourceclaims/a"
    world.cluster.delete(path)
    world.line.let_go.set()
    world.cluster.until("the API server has answered", lambda: world.line.late, 20)
    assert b" 40" in world.line.late.partition(b"\r\n")[0]
    again = "to be decided again"
    world.cluster.until(again, lambda: any(again in event for event in world.cluster.events(ours, "a")))
    world.cluster.until("nothing is held", lambda: not world.holders(ours) and not world.reservations(), 10)
    world.cluster.until("the claim is gone", lambda: world.cluster.read(claim("a", ours)) is None)
    world.cluster.create(claim("a", ours, request("gpu", CLASS)))
    world.cluster.wait_scheduled(ours, "a")


@pytest.mark.parametrize("landed", [True, False])
def test_a_device_stays_with_a_pod_whose_binding_had_no_answer(world, ours, landed):
    world.schedulers.break_at(1, answered=landed, which=is_binding)
    world.ask_for(ours, "a")
    assert world.schedulers.broken.wait(PATIENCE)
    world.ask_for(ours, "b")
    time.sleep(1)  # the scheduler sees neither of them
    world.schedulers.restore()
    world.cluster.wait_scheduled(ours, "a")
    assert world.holders(ours) == {"a": ["a"]}


def test_a_pod_is_bound_though_the_write_into_its_claim_was_said_to_have_failed(world, ours):
    world.line.answer_at(1, ERROR, which=is_allocation)
    world.ask_for(ours, "a")
    assert world.line.held.wait(PATIENCE)
    world.cluster.wait_scheduled(ours, "a")
    assert world.holders(ours) == {"a": ["a"]}


@pytest.mark.parametrize("kind", ["pods", "resourceclaims", "*"])
def test_a_pod_is_bound_soon_though_watches_of_the_allocator_stay_open_and_show_nothing(world, ours, kind):
    world.line.silenced = kind
    begun = time.monotonic()
    for name in ("a", "b"):
        world.ask_for(ours, name, NODES["ab".index(name)])
    for name in ("a", "b"):
        world.cluster.wait_scheduled(ours, name, SILENT_SECONDS)
    print(f"{kind}: {time.monotonic() - begun:.1f} s")
    assert sorted(world.holders(ours)) == ["a", "b"]
