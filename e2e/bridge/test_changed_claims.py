"""Two claims were generated for one entry of a pod, and the pod's status names the other one at each point of scheduling.

kube-controller-manager does this if it gets no answer to its create of a claim; here it is stopped, and the tests do it. Kubernetes' own
scheduler binds the pod with the former claim, so the pod never starts; ours must not.
"""

import time
from contextlib import ExitStack

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER, Bridge
from e2e.actors.client import BUSY_FACTOR
from e2e.actors.proxy import Proxy, Request
from e2e.actors.workloads import claim, pod, request
from e2e.bridge.test_bind import is_binding
from e2e.ground.controlplane import ControlPlane
from tests.limits import PATIENCE

pytestmark = pytest.mark.real
DRIVER, CLASS, NODE = "changed.example.com", "changed-gpu", "changed-0"
STOCK = "stock"
FIRST, SECOND = "first", "second"
SERVED_SECONDS = 30.0 * BUSY_FACTOR  # the allocator looks at a bound pod after ten seconds


def is_allocation(write: Request) -> bool:
    """Return whether either scheduler writes an allocation: the allocator patches the status, kube-scheduler replaces it."""
    return (
        write.verb in ("PATCH", "PUT")
        and "/resourceclaims/" in write.path
        and write.path.partition("?")[0].endswith("/status")
    )


class World:
    """A control plane with a node of two devices, our scheduler and Kubernetes' own, each with proxies that can delay its writes."""

    def __init__(self, stack: ExitStack) -> None:
        self.cluster = stack.enter_context(ControlPlane(name="changed-claims"))
        self.bridge = Bridge(self.cluster)
        stack.callback(self.bridge.remove)
        allocator, ours, stock = (
            Proxy(self.cluster.url, self.cluster.ca, token) for token in ("", *[self.cluster.token] * 2)
        )
        for proxy in (allocator, ours, stock):
            stack.callback(proxy.close)
        self.writers = {SCHEDULER: (allocator, ours), STOCK: (stock, stock)}  # the proxies of claims and of bindings
        self.bridge.prepare()
        self.bridge.start(via=f"http://127.0.0.1:{allocator.port}")
        self.bridge.start_scheduler(clientConnection=self.connection("ours", ours))
        profile = {"profiles": [{"schedulerName": STOCK}], "clientConnection": self.connection(STOCK, stock)}
        self.cluster.start_scheduler(profile, name="stock-scheduler")
        self.cluster.add_fake_nodes(1, prefix="changed-")
        self.cluster.create(
            fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"),
            *fleet.slices(DRIVER, NODE, [fleet.device("gpu-0", {}), fleet.device("gpu-1", {})], by_name=True),
        )

    def connection(self, name, proxy):
        kubeconfig = self.cluster.write_kubeconfig(
            f"changed-{name}", self.cluster.token, f"http://127.0.0.1:{proxy.port}"
        )
        return {"kubeconfig": str(kubeconfig)}


@pytest.fixture(scope="module")
def world():
    with ExitStack() as stack:
        yield World(stack)


class Scheduled:
    """A pod `p` with two generated claims."""

    def __init__(self, world, namespace, scheduler):
        self.world, self.cluster, self.namespace = world, world.cluster, namespace
        self.claims, self.bindings = world.writers[scheduler]
        entry = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
        self.cluster.create(pod("p", namespace, schedulerName=scheduler, resourceClaims=[entry]))
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "uid": self.pod()["metadata"]["uid"],
            "controller": True,
        }
        for name in (FIRST, SECOND):
            generated = claim(name, namespace, request("gpu", CLASS))
            generated["metadata"] |= {
                "ownerReferences": [owner],
                "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
            }
            self.cluster.create(generated)

    def pod(self):
        return self.cluster.get(f"/api/v1/namespaces/{self.namespace}/pods/p")

    def name_claim(self, name):
        """Let the pod's status name a claim, as kube-controller-manager does."""
        status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]}
        self.cluster.patch(f"/api/v1/namespaces/{self.namespace}/pods/p/status", {"status": status})

    def allocated(self):
        """Return the names of the claims with devices that are reserved for the pod."""
        claims = self.cluster.get(f"/apis/resource.k8s.io/v1/namespaces/{self.namespace}/resourceclaims")["items"]
        return {item["metadata"]["name"] for item in claims if item.get("status", {}).get("reservedFor")}

    def until_bound(self):
        self.cluster.until("the pod is bound", lambda: self.pod()["spec"].get("nodeName"), PATIENCE)

    def change_at(self, proxy, selects):
        """Let the status name the first claim, and the second one while a write is under way."""
        proxy.hold_at(1, selects=selects)
        self.name_claim(FIRST)
        assert proxy.held.wait(PATIENCE), "no such write was sent"
        self.name_claim(SECOND)
        proxy.let_go.set()


@pytest.fixture(params=[SCHEDULER, STOCK])
def scheduled(world, request):
    """A pod of each scheduler, while kube-controller-manager is stopped."""
    namespace = world.cluster.namespace(f"changed-{abs(hash(request.node.name)) % 10**6}")
    with world.cluster.controller_manager.frozen():
        yield Scheduled(world, namespace, request.param)
        for proxy in world.writers[request.param]:
            proxy.restore()
        world.cluster.delete(f"/api/v1/namespaces/{namespace}/pods/p", gracePeriodSeconds=0)
    claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    world.cluster.until("the claims are gone", lambda: not world.cluster.get(claims)["items"], PATIENCE)


def is_ours(scheduled):
    return scheduled.pod()["spec"]["schedulerName"] == SCHEDULER


def test_a_pod_whose_status_is_written_late_gets_the_named_claim(scheduled):
    time.sleep(1)  # both schedulers look at the pod meanwhile
    assert "nodeName" not in scheduled.pod()["spec"]
    scheduled.name_claim(SECOND)
    scheduled.until_bound()
    assert scheduled.allocated() == {SECOND}


def test_the_status_changes_while_the_allocation_is_written(scheduled):
    scheduled.change_at(scheduled.claims, is_allocation)
    scheduled.until_bound()
    assert scheduled.allocated() == {SECOND if is_ours(scheduled) else FIRST}


def test_the_status_changes_while_the_binding_is_written(scheduled):
    scheduled.change_at(scheduled.bindings, is_binding)
    scheduled.until_bound()
    if is_ours(scheduled):
        scheduled.cluster.until("the former claim is free", lambda: scheduled.allocated() == {SECOND}, PATIENCE)
    else:
        assert scheduled.allocated() == {FIRST}


def test_the_former_claim_is_deleted_meanwhile(scheduled):
    scheduled.claims.hold_at(1, selects=is_allocation)
    scheduled.name_claim(FIRST)
    assert scheduled.claims.held.wait(PATIENCE)
    scheduled.name_claim(SECOND)
    path = f"/apis/resource.k8s.io/v1/namespaces/{scheduled.namespace}/resourceclaims/{FIRST}"
    scheduled.cluster.patch(path, {"metadata": {"finalizers": None}})
    scheduled.cluster.delete(path)
    scheduled.claims.let_go.set()
    scheduled.until_bound()
    assert scheduled.allocated() == {SECOND}


def test_the_status_changes_after_the_binding(scheduled):
    scheduled.name_claim(FIRST)
    scheduled.until_bound()
    scheduled.name_claim(SECOND)
    if is_ours(scheduled):
        scheduled.cluster.until("the second claim is served", lambda: SECOND in scheduled.allocated(), SERVED_SECONDS)
    else:
        time.sleep(2)
        assert scheduled.allocated() == {FIRST}
