"""Preparing claims while the API server fails, and unpreparing claims that are deleted."""

import asyncio
import contextlib
import random

import pytest

from cluster import Merge
from cluster.errors import NotFound, Unavailable
from cluster.resources import RESOURCE_CLAIMS
from node.guard import Guard
from node.messages import PrepareRequest
from node.service import preparing
from node.service.disk import Disk
from node.service.prepared_store import PreparedStore
from node.service.preparing import FORGET_AFTER, Preparing
from tests.node.machines import NODE, result
from tests.node.service.running_driver import create_claim, machine, reallocate, set_allocation


class Unreachable:
    """An API server that cannot be reached."""

    async def get(self, *arguments):
        del arguments
        raise Unavailable("connection refused")


def preparer_and_store(cluster, kubelet, clock):
    (kubelet.folder / "cdi").mkdir(exist_ok=True)
    node_machine = machine()
    guard, paths = Guard(node_machine, NODE), kubelet.paths
    store = PreparedStore(guard, Disk(), str(kubelet.folder), paths.cdi, pods=paths.pods)
    return Preparing(cluster, store, clock=clock), store


async def prepare(preparer, *references):
    """Prepare claims, wait until their statuses are written, and return the answers by uid."""
    answers = await preparer.prepare(PrepareRequest(claims=references))
    await preparer.wait_for_statuses()
    return answers.claims


async def test_prepared_claims_are_answered_while_the_api_server_is_unavailable(cluster, kubelet):
    """Claims that are not prepared yet get an error."""
    preparer, _ = preparer_and_store(cluster, kubelet, lambda: 0.0)
    old, new = await create_claim(cluster, "a", result("gpu-0")), await create_claim(cluster, "b", result("gpu-1"))
    first = await prepare(preparer, old)
    offline_preparer, _ = preparer_and_store(Unreachable(), kubelet, lambda: 0.0)
    answers = await prepare(offline_preparer, old, new)
    assert answers[old.uid] == first[old.uid]
    assert "the claim cannot be read from the API server: connection refused" in answers[new.uid].error
    await offline_preparer.unprepare(PrepareRequest(claims=(old,)))
    await offline_preparer.unprepare_deleted()


async def test_a_deleted_claim_is_unprepared_after_a_delay(cluster, kubelet):
    now = [0.0]
    preparer, store = preparer_and_store(cluster, kubelet, lambda: now[0])
    a, b = await create_claim(cluster, "a", result("gpu-0")), await create_claim(cluster, "b", result("gpu-1"))
    await prepare(preparer, a, b)
    await cluster.delete(RESOURCE_CLAIMS, "a", "ns")
    for seconds in (0.0, FORGET_AFTER - 1):
        now[0] = seconds
        await preparer.unprepare_deleted()
        assert set(store.claims()) == {a.uid, b.uid}
    now[0] = FORGET_AFTER
    await preparer.unprepare_deleted()
    assert set(store.claims()) == {b.uid}


@pytest.mark.parametrize("seen", ["before", "after"])
async def test_a_deleted_claim_stays_prepared_while_the_kubelet_has_one_of_its_pods(cluster, kubelet, seen):
    """A second pod begins to use the claim before or after the driver reads the claim for the last time."""
    now = [0.0]
    preparer, store = preparer_and_store(cluster, kubelet, lambda: now[0])
    reference = await create_claim(cluster, "a", result("gpu-0"))
    kubelet.create_pod("pod")
    await prepare(preparer, reference)
    consumers = [{"resource": "pods", "name": name, "uid": name} for name in ("pod", "second")]
    patch = Merge({"status": {"reservedFor": consumers}})
    await cluster.patch(RESOURCE_CLAIMS, "a", patch, "ns", subresource="status")
    kubelet.create_pod("second")
    if seen == "before":
        await preparer.unprepare_deleted()
    await cluster.delete(RESOURCE_CLAIMS, "a", "ns")
    for uid in ("pod", "second"):
        for _ in range(2):
            now[0] += FORGET_AFTER
            await preparer.unprepare_deleted()
        assert set(store.claims()) == {reference.uid}
        kubelet.remove_pod(uid)
    await preparer.unprepare_deleted()
    assert not store.claims()


@pytest.mark.long
async def test_deleted_claims_never_give_a_device_to_two_running_pods(cluster, kubelet, monkeypatch):
    """A tenant starts and ends pods and deletes their claims at any time, while the driver restarts and the kubelet loses its state."""
    monkeypatch.setattr(preparing, "UNPREPARE_TIMEOUT", 0.0)
    rng, now, running, refused = random.Random(20261129), [0.0], {}, 0
    preparer, _ = preparer_and_store(cluster, kubelet, lambda: now[0])
    for step in range(600):
        action = rng.choice(("start", "start", "delete", "end", "wait", "restart"))
        uid = rng.choice(list(running)) if running else ""
        if action == "start":
            uid, device = f"pod-{step}", rng.choice(("gpu-0", "gpu-1"))
            reference = await create_claim(cluster, uid, result(device))
            patch = Merge({"status": {"reservedFor": [{"resource": "pods", "name": uid, "uid": uid}]}})
            await cluster.patch(RESOURCE_CLAIMS, uid, patch, "ns", subresource="status")
            kubelet.create_pod(uid)
            answers = await prepare(preparer, reference)
            if answers[reference.uid].error:
                refused += 1
                kubelet.remove_pod(uid)
                await cluster.delete(RESOURCE_CLAIMS, uid, "ns")
            else:
                assert device not in {held for held, _ in running.values()}
                running[uid] = device, reference
        elif action in ("delete", "end") and uid:
            with contextlib.suppress(NotFound):
                await cluster.delete(RESOURCE_CLAIMS, uid, "ns")
            if action == "end":
                kubelet.remove_pod(uid)
                _, reference = running.pop(uid)
                if rng.random() < 0.5:
                    await preparer.unprepare(PrepareRequest(claims=(reference,)))
        elif action == "wait":
            await preparer.unprepare_deleted()
            now[0] += FORGET_AFTER
            await preparer.unprepare_deleted()
        elif action == "restart":
            preparer, _ = preparer_and_store(cluster, kubelet, lambda: now[0])
    assert refused


async def test_the_pods_of_a_deleted_claim_are_known_after_a_restart(cluster, kubelet):
    now = [0.0]
    reference = await create_claim(cluster, "a", result("gpu-0"))
    kubelet.create_pod("pod")
    preparer, _ = preparer_and_store(cluster, kubelet, lambda: now[0])
    await prepare(preparer, reference)
    await cluster.delete(RESOURCE_CLAIMS, "a", "ns")
    preparer, store = preparer_and_store(cluster, kubelet, lambda: now[0])
    for _ in range(2):
        await preparer.unprepare_deleted()
        now[0] += FORGET_AFTER
    assert set(store.claims()) == {reference.uid}


@pytest.mark.parametrize("seed", range(10))
async def test_a_claim_allocated_again_during_the_cleanup_stays_prepared(cluster, kubelet, seed):
    """A claim may outlive its pod, and the next pod may start just when the delay has passed."""
    rng = random.Random(seed)

    class YieldingCluster:
        """A cluster that yields to other tasks before each answer."""

        patch = cluster.patch

        async def get(self, *arguments):
            stored = await cluster.get(*arguments)
            for _ in range(rng.randrange(20)):
                await asyncio.sleep(0)
            return stored

    now = [0.0]
    preparer, store = preparer_and_store(YieldingCluster(), kubelet, lambda: now[0])
    reference = await create_claim(cluster, "a", result("gpu-0"))
    request = PrepareRequest(claims=(reference,))
    await preparer.prepare(request)
    await set_allocation(cluster, "a")
    await preparer.unprepare_deleted()
    now[0] = FORGET_AFTER

    async def allocate_and_prepare_again():
        for _ in range(rng.randrange(40)):
            await asyncio.sleep(0)
        await set_allocation(cluster, "a", result("gpu-0"))
        return (await preparer.prepare(request)).claims[reference.uid].error

    problem, _ = await asyncio.gather(allocate_and_prepare_again(), preparer.unprepare_deleted())
    assert (problem, set(store.claims())) == ("", {reference.uid})
    await set_allocation(cluster, "a")
    now[0] += 1
    await preparer.unprepare_deleted()
    assert set(store.claims()) == {reference.uid}, (
        "the claim is not prepared, although it was deallocated only a moment ago"
    )
    now[0] += FORGET_AFTER
    await preparer.unprepare_deleted()
    assert not store.claims()
    await preparer.wait_for_statuses()


class Unresponsive(Unreachable):
    """An API server that does not answer in time."""

    async def get(self, *arguments):
        del arguments
        raise TimeoutError


async def test_an_unresponsive_api_server_is_named_in_the_error(cluster, kubelet):
    preparer, _ = preparer_and_store(Unresponsive(), kubelet, lambda: 0.0)
    reference = await create_claim(cluster, "a", result("gpu-0"))
    answers = await prepare(preparer, reference)
    assert answers[reference.uid].error.endswith("cannot be read from the API server: no answer in time")


async def test_a_claim_deleted_during_its_preparation_is_eventually_forgotten(cluster, kubelet):
    """The claim's pod was deleted by force. The kubelet may or may not call to unprepare the claim."""

    class DeletingCluster:
        """A cluster that deletes a claim as soon as it is read."""

        patch = cluster.patch

        async def get(self, *arguments):
            stored = await cluster.get(*arguments)
            await cluster.delete(RESOURCE_CLAIMS, stored.metadata.name, "ns")
            return stored

    now = [0.0]
    deleting_preparer, store = preparer_and_store(DeletingCluster(), kubelet, lambda: now[0])
    for name in ("unprepared", "forgotten"):
        reference = await create_claim(cluster, name, result("gpu-0"))
        assert (await prepare(deleting_preparer, reference))[reference.uid].error == ""
        if name == "unprepared":
            await deleting_preparer.unprepare(PrepareRequest(claims=(reference,)))
            assert store.claims() == {}
    preparer, store = preparer_and_store(cluster, kubelet, lambda: now[0])
    for seconds, prepared_uids in ((0.0, {reference.uid}), (FORGET_AFTER, set())):
        now[0] = seconds
        await preparer.unprepare_deleted()
        assert set(store.claims()) == prepared_uids
    assert list((kubelet.folder / "cdi").iterdir()) == []


async def test_an_unavailable_api_server_does_not_unprepare_claims(cluster, kubelet):
    preparer, _ = preparer_and_store(cluster, kubelet, lambda: 0.0)
    reference = await create_claim(cluster, "a", result("gpu-0"))
    await prepare(preparer, reference)
    now = [0.0]
    offline_preparer, store = preparer_and_store(Unreachable(), kubelet, lambda: now[0])
    for seconds in (0.0, 10 * FORGET_AFTER):
        now[0] = seconds
        await offline_preparer.unprepare_deleted()
    assert set(store.claims()) == {reference.uid}


@pytest.mark.parametrize("moved_to", [{"pool": "node-2"}, {"driver": "other.example.com"}])
async def test_a_claim_allocated_on_another_node_is_unprepared_when_its_pod_is_gone(cluster, kubelet, moved_to):
    """A kubelet that lost its state never unprepares the claim here."""
    now = [0.0]
    preparer, store = preparer_and_store(cluster, kubelet, lambda: now[0])
    reference = await create_claim(cluster, "a", result("gpu-0"))
    kubelet.create_pod("pod")
    await prepare(preparer, reference)
    await reallocate(cluster, "a", result("gpu-0") | moved_to)
    for _ in range(3):
        await preparer.unprepare_deleted()
        now[0] += FORGET_AFTER
    assert set(store.claims()) == {reference.uid}, "the device is free, although the pod may still run"
    kubelet.remove_pod("pod")
    await preparer.unprepare_deleted()
    assert not store.claims()


async def test_a_claim_that_comes_back_to_the_node_stays_prepared(cluster, kubelet):
    now = [0.0]
    preparer, store = preparer_and_store(cluster, kubelet, lambda: now[0])
    reference = await create_claim(cluster, "a", result("gpu-0"))
    await prepare(preparer, reference)
    for pool in ("node-2", NODE):
        await reallocate(cluster, "a", result("gpu-0") | {"pool": pool})
        await preparer.unprepare_deleted()
        now[0] += FORGET_AFTER
    await preparer.unprepare_deleted()
    assert set(store.claims()) == {reference.uid}
