"""Two generated claims of one pod and podClaim: the pod's status names one of them, later perhaps the other.

kube-controller-manager creates the second claim if it got no answer to its create of the first. It chooses between them as long as its copy
of the pod is older than the status that it wrote.
"""

import contextlib

import pytest

from allocator.reservations import ReservationState
from allocator.service import bound_pods
from cluster import resources
from cluster.embedded import Embedded
from cluster.patch import Merge
from tests.allocator.service.sidecar import (
    DRIVER,
    EXTENDED_RESOURCE_CLASS,
    claim,
    fleet,
    node,
    pod,
    pod_with_extended_resource,
    running,
    until,
    until_deallocated,
    until_event,
)
from tests.objects import owner, template_entries


def generated(name):
    """Return a claim that was generated for the entry `gpu` of the pod p."""
    annotations = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    return claim(name, ownerReferences=[owner("Pod", "p", uid="pod-p")], annotations=annotations)


def naming(name):
    return {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]}


def waiting_pod(name="first", **spec):
    return pod("p", resourceClaims=template_entries("gpu"), status=naming(name), **spec)


async def rename(cluster, name):
    """Let the pod's status name another claim."""
    await Embedded.patch(cluster, resources.PODS, "p", Merge({"status": naming(name)}), "default", subresource="status")


class Store(Embedded):
    """A store in which the pod's status changes right before, or right after, a write to a claim. The first write has the number 1."""

    def __init__(self, *, change_before=0, change_after=0, blind=False):
        """With `blind`, no watch shows the change."""
        super().__init__()
        self.change_before, self.change_after = change_before, change_after
        self.blind = blind
        self.is_changed = False
        self.writes = 0
        self.pod_reads = 0

    async def patch(self, resource, name, patch, namespace=None, **options):
        if resource.kind != "ResourceClaim" or options.get("dry_run"):
            return await super().patch(resource, name, patch, namespace, **options)
        self.writes += 1
        number = self.writes
        if number == self.change_before:
            self.is_changed = True
            await rename(self, "second")
        written = await super().patch(resource, name, patch, namespace, **options)
        if number == self.change_after:
            self.is_changed = True
            await rename(self, "second")
        return written

    async def get(self, resource, name, namespace=None, **options):
        self.pod_reads += resource.kind == "Pod" and resource is resources.PODS
        return await super().get(resource, name, namespace, **options)

    @contextlib.asynccontextmanager
    async def watch(self, resource, *args, **options):
        async with super().watch(resource, *args, **options) as events:
            yield self._without_changes(events) if self.blind and resource.kind == "Pod" else events

    async def _without_changes(self, events):
        async for event in events:
            if not self.is_changed:
                yield event


def store_of(*objects, nodes=1, each=2, **changes):
    cluster = Store(**changes)
    cluster.load([*fleet(nodes, each), *objects])
    return cluster


async def retry_until_placed(sidecar):
    """Schedule the pod again, as its scheduler does after 409, until the commit succeeds."""

    await until(lambda: sidecar.try_to_place("p"))


async def test_a_pod_whose_status_is_written_late_waits():
    unnamed = waiting_pod()
    del unnamed["status"]
    async with running(store_of(generated("first"), generated("second"), unnamed)) as sidecar:
        answer = await sidecar.prefilter("p")
        assert (answer["verdict"], answer["message"]) == ("waiting", "waiting for claim gpu to be created")
        await rename(sidecar.cluster, "second")
        await retry_until_placed(sidecar)
        assert await sidecar.allocated_devices("second")
        assert not await sidecar.allocated_devices("first")


async def test_a_reservation_follows_a_status_that_changed_after_the_question():
    async with running(store_of(generated("first"), generated("second"), waiting_pod())) as sidecar:
        answer = await sidecar.prefilter("p")
        await rename(sidecar.cluster, "second")
        await sidecar.until_pod("p", lambda pod: pod.status.resource_claim_statuses[0].resource_claim_name == "second")
        _, reserved = await sidecar.plugin("reserve", {"token": answer["token"], "node": "n0"})
        assert (await sidecar.plugin("commit", reserved))[0] == 200
        assert await sidecar.allocated_devices("second")
        assert not await sidecar.allocated_devices("first")


async def test_a_commit_is_refused_before_it_writes_if_the_status_names_another_claim():
    cluster = store_of(generated("first"), generated("second"), waiting_pod())
    async with running(cluster) as sidecar:
        _, reserved = await sidecar.reserve("p", "n0")
        await rename(cluster, "second")
        await sidecar.until_pod("p", lambda pod: pod.status.resource_claim_statuses[0].resource_claim_name == "second")
        status, body = await sidecar.plugin("commit", reserved)
        assert (status, body["remedy"]) == (409, "schedule the pod again")
        assert "the pod's status names claim default/second, and devices were reserved for claim default/first" in body["error"]  # fmt: skip
        assert cluster.writes == 0
        await retry_until_placed(sidecar)
        assert await sidecar.allocated_devices("second")
        assert not await sidecar.allocated_devices("first")


@pytest.mark.parametrize("blind", [False, True], ids=["seen", "before the watch shows it"])
@pytest.mark.parametrize("change", [{"change_before": 1}, {"change_before": 2}, {"change_after": 2}])
async def test_a_commit_is_refused_if_the_status_changes_during_the_writes(change, blind):
    cluster = store_of(generated("first"), generated("second"), waiting_pod(), blind=blind, each=1, **change)
    async with running(cluster) as sidecar:
        status, body = await sidecar.place("p")
        assert status == 409, body
        await until_deallocated(sidecar, "first")
        await until_event(cluster, "the pod's status names claim default/second")
        await retry_until_placed(sidecar)
        assert await sidecar.allocated_devices("second") == ["n0/gpu-0"]


async def test_the_bridge_binds_only_the_version_of_the_pod_that_was_read():
    """With a second claim, the status may still change. So the answer has the pod's version, which the binding requires."""
    async with running(store_of(generated("first"), generated("second"), waiting_pod())) as sidecar:
        status, body = await sidecar.place("p")
        version = (await sidecar.pod("p"))["metadata"]["resourceVersion"]
        assert (status, body) == (200, {"committed": True, "message": "", "resourceVersion": version})


async def test_a_pod_with_one_claim_is_not_read():
    cluster = store_of(generated("first"), waiting_pod())
    async with running(cluster) as sidecar:
        assert await sidecar.place("p") == (200, {"committed": True, "message": ""})
        assert cluster.pod_reads == 0


async def test_a_deleted_claim_that_the_status_no_longer_names_is_not_waited_for():
    cluster = store_of(generated("first"), generated("second"), waiting_pod(), change_before=2)
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 409
        await until_deallocated(sidecar, "first")
        await cluster.patch(resources.RESOURCE_CLAIMS, "first", Merge({"metadata": {"finalizers": None}}), "default")
        await cluster.delete(resources.RESOURCE_CLAIMS, "first", "default")
        await retry_until_placed(sidecar)
        assert await sidecar.allocated_devices("second")


# ---- the status changes after the binding


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(bound_pods, "DELAY", 0.2)
    monkeypatch.setattr(bound_pods, "PAUSE", 0.2)


async def bind(sidecar):
    assert (await sidecar.place("p"))[0] == 200
    await sidecar.cluster.bind("p", "default", "n0")
    await until(lambda: sidecar.reservation("p").state is ReservationState.BOUND)


async def test_a_bound_pod_gets_devices_for_the_claim_that_its_status_names(soon):
    """The first claim keeps its devices, because containers may use them already."""
    async with running(store_of(generated("first"), generated("second"), waiting_pod())) as sidecar:
        await bind(sidecar)
        await rename(sidecar.cluster, "second")
        await until(lambda: sidecar.allocated_devices("second"))
        assert await sidecar.allocated_devices("first") == ["n0/gpu-0"]
        assert await sidecar.allocated_devices("second") == ["n0/gpu-1"]
        assert [consumer.uid for consumer in (await sidecar.claim("second")).status.reserved_for] == ["pod-p"]
        state = sidecar.service.ledger.state
        await until(lambda: state.reservations["pod-p"].state is ReservationState.BOUND)
        assert state.reservations["pod-p"].claims == ("claim-second",)


async def test_a_bound_pod_whose_node_has_no_devices_left_gets_an_event(soon):
    async with running(store_of(generated("first"), generated("second"), waiting_pod(), each=1)) as sidecar:
        await bind(sidecar)
        await rename(sidecar.cluster, "second")
        await until_event(sidecar.cluster, "claim default/second, which the pod's status names, has no devices, and node n0 cannot give it any")  # fmt: skip
        await until_event(sidecar.cluster, "tries again in a minute, or delete the pod")
        assert await sidecar.allocated_devices("first") == ["n0/gpu-0"]


async def test_a_bound_pod_without_a_claim_for_its_extended_resource_is_reported_until_it_is_deleted(soon):
    """Whoever bound it: the pod p names its node itself. The device plugin of node n1 serves the pod q."""
    pods = pod_with_extended_resource("p", nodeName="n0"), pod_with_extended_resource("q", nodeName="n1")
    plugin_node = node("n1", allocatable={"example.com/gpu": "1"})
    async with running(store_of(EXTENDED_RESOURCE_CLASS, plugin_node, *pods)) as sidecar:
        words = "the pod is on node n0 without a claim for example.com/gpu, and no device plugin of the node offers it: recreate"
        await until_event(sidecar.cluster, words)
        assert (await sidecar.ask("/api/v1/drift"))[1]["withoutDevices"] == ["default/p"]
        await sidecar.cluster.delete(resources.PODS, "p", "default")
        await until(lambda: not sidecar.service.bound_pods.without_devices)


async def test_a_new_leader_serves_a_bound_pod(soon):
    bound = waiting_pod("second", nodeName="n0")
    async with running(store_of(generated("first"), generated("second"), bound)) as sidecar:
        await until(lambda: sidecar.allocated_devices("second"))
        assert not await sidecar.allocated_devices("first")


async def test_a_served_pod_releases_all_its_devices_when_it_ends(soon):
    async with running(store_of(generated("first"), generated("second"), waiting_pod())) as sidecar:
        await bind(sidecar)
        await rename(sidecar.cluster, "second")
        await until(lambda: sidecar.allocated_devices("second"))
        await sidecar.cluster.delete(resources.PODS, "p", "default")
        for name in ("first", "second"):  # as the garbage collector and kube-controller-manager do
            no_status = dict.fromkeys(("allocation", "reservedFor"))
            await sidecar.cluster.patch(resources.RESOURCE_CLAIMS, name, Merge({"status": no_status}), "default", subresource="status")  # fmt: skip
        await until(lambda: not sidecar.service.ledger.state.reservations)
        await until(lambda: not sidecar.service.knowledge.stock.use((DRIVER, "n0")).dedicated)
