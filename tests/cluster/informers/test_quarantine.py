"""Quarantine: an object that cannot be processed is set aside, and all others are processed."""

import asyncio
import logging

import pytest

from cluster import Merge
from cluster.controllers.claim_controller import ClaimController
from cluster.controllers.workqueue import WorkQueue
from cluster.embedded.embedded import Embedded
from cluster.errors import ConfigError
from cluster.informers import Backoff, Informer, Quarantine
from cluster.kubernetes import answers
from cluster.protocol import Unreadable
from cluster.resources import CONFIG_MAPS, PODS, RESOURCE_CLAIMS, resource_of
from tests.cluster.conftest import eventually
from tests.cluster.hostile import malformed_objects, nested
from tests.cluster.informers.running import running
from tests.cluster.objects import claim, config_map, encoded_item, pod, template
from tests.limits import PATIENCE

QUICK_BACKOFF = Backoff(least=0.001, most=0.01)


def depth_of(value):
    """Return the depth of a value. Like any recursive reader, it raises RecursionError for a value that is nested too deeply."""
    return max((depth_of(item) for item in value.values()), default=0) + 1 if isinstance(value, dict) else 0


def test_an_error_while_processing_an_object_quarantines_the_object():
    quarantine = Quarantine()
    with quarantine.guard("pods", "default", "a"):
        depth_of(nested(5000))
    assert list(quarantine.objects) == [("pods", "default", "a")]
    assert str(quarantine).startswith("pods default/a: RecursionError: maximum recursion depth exceeded")
    assert "informers/test_quarantine.py:" in str(quarantine)


def test_an_object_that_is_processed_without_error_leaves_quarantine():
    quarantine = Quarantine()
    with quarantine.guard("nodes", "", "n"):
        raise StopIteration
    assert str(quarantine).startswith("nodes n: StopIteration")
    with quarantine.guard("nodes", "", "n"):
        pass
    assert str(quarantine) == ""


@pytest.mark.parametrize("error", [MemoryError(), ConfigError("no kubeconfig"), asyncio.CancelledError()])
def test_an_error_that_is_not_the_objects_fault_is_raised(error):
    with pytest.raises(type(error)), Quarantine().guard("pods", "default", "a"):
        raise error


def test_a_quarantined_object_is_logged_once_in_one_line(caplog):
    quarantine = Quarantine()
    for _ in range(5):
        with quarantine.guard("pods", "default", "a"):
            raise ValueError("x\n" * 1_000_000)
        quarantine.release(("pods", "default", "a"))
    (record,) = caplog.records
    assert len(record.getMessage()) < 600
    assert "\n" not in record.getMessage()


def test_an_error_that_cannot_be_printed_is_named():
    class UnprintableError(Exception):
        def __str__(self):
            return str(10**5000)

    quarantine = Quarantine()
    with quarantine.guard("pods", "default", "a"):
        raise UnprintableError
    assert "UnprintableError: (its message cannot be written)" in str(quarantine)


def test_the_number_of_quarantined_objects_is_bounded():
    quarantine = Quarantine()
    for number in range(3000):
        quarantine.hold(("pods", "default", str(number)), "bad")
    assert len(quarantine.objects) == 1000
    assert str(quarantine).endswith("; and 997 more")


async def test_a_listener_that_fails_for_one_object_gets_all_others():
    cluster = Embedded.holding([config_map(name, data={"n": name}) for name in "abcdef"])
    informer, received_objects = Informer(cluster, CONFIG_MAPS), {}

    def listener(batch):
        for delta in batch.deltas:
            if delta.new is not None and delta.new.data["n"] == "c":
                raise StopIteration
            received_objects[delta.key[1]] = delta.new

    informer.listen(listener)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        assert sorted(received_objects) == ["a", "b", "d", "e", "f"]
        assert [*informer.quarantine.objects] == [("configmaps", "default", "c")]
        await cluster.patch(CONFIG_MAPS, "c", Merge({"data": {"n": "fine"}}), "default")
        await eventually(lambda: asyncio.sleep(0, "c" in received_objects))
    assert not informer.quarantine.objects


async def test_a_listener_that_fails_on_an_object_still_gets_a_complete_batch():
    cluster = Embedded.holding([config_map(name) for name in "ab"])
    informer, is_complete = Informer(cluster, CONFIG_MAPS), []

    def listener(batch):
        if any(delta.key[1] == "a" for delta in batch.deltas):
            raise StopIteration
        is_complete.append(batch.complete)

    informer.listen(listener)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
    assert is_complete == [True, False]


async def test_after_quarantine_deltas_continue_from_the_last_accepted_object():
    """`delta.old` is the last form of the object that the listener accepted, not the form on which it failed."""
    cluster = Embedded.holding([config_map("a", data={"n": "1"})])
    informer, changes = Informer(cluster, CONFIG_MAPS), []

    def listener(batch):
        for delta in batch.deltas:
            if delta.new is not None and delta.new.data["n"] == "bad":
                raise RecursionError
            changes.append((delta.old and delta.old.data["n"], delta.new and delta.new.data["n"]))

    informer.listen(listener)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        for value in ("bad", "2", "bad"):
            await cluster.patch(CONFIG_MAPS, "a", Merge({"data": {"n": value}}), "default")
        await cluster.delete(CONFIG_MAPS, "a", "default")
        await eventually(lambda: asyncio.sleep(0, not informer.objects))
    assert changes == [(None, "1"), ("1", "2"), ("2", None)]
    assert not informer.quarantine.objects


async def test_a_failing_listener_does_not_affect_other_listeners():
    cluster = Embedded.holding([config_map("a")])
    informer, received_names = Informer(cluster, CONFIG_MAPS), []
    informer.listen(lambda batch: [1 / 0 for _ in batch.deltas])
    informer.listen(lambda batch: received_names.extend(delta.key[1] for delta in batch.deltas))
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
    assert received_names == ["a"]
    assert informer.quarantine.objects


async def test_an_unreadable_object_is_quarantined_until_deleted(caplog):
    caplog.set_level(logging.WARNING)
    cluster = Embedded.holding([claim("bad", spec={"devices": {"requests": "none"}}), claim("good")])
    informer = Informer(cluster, RESOURCE_CLAIMS)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        assert "/spec/devices/requests" in str(informer.quarantine)
        assert [*informer.unreadable] == [("default", "bad")]
        await cluster.delete(RESOURCE_CLAIMS, "bad", "default")
        await eventually(lambda: asyncio.sleep(0, not informer.quarantine.objects))
        assert not informer.unreadable
    assert caplog.text.count("default/bad") == 1


@pytest.mark.parametrize("name", malformed_objects())
async def test_no_stored_object_ends_an_informer_or_hides_another(name):
    hostile = malformed_objects()[name]
    good = {"apiVersion": hostile["apiVersion"], "kind": hostile["kind"], "metadata": {"name": "good"}}
    cluster = Embedded.holding([hostile, good])
    resource = resource_of(hostile)
    for read_as in (resource, resource.raw):
        informer, received_names = Informer(cluster, read_as), set()
        informer.listen(
            lambda batch, received_names=received_names: received_names.update(delta.key[1] for delta in batch.deltas)
        )
        async with running(informer):
            assert await informer.wait_for_sync(PATIENCE)
            assert "good" in received_names
            assert "good" in {object_name for _, object_name in informer.objects}
            # The hostile object has the name p.
            assert "p" in {object_name for _, object_name in {*informer.objects, *informer.unreadable}}


@pytest.mark.parametrize("name", malformed_objects())
async def test_no_stored_object_ends_the_claim_controller(name):
    hostile = malformed_objects()[name]
    cluster = Embedded.holding([hostile, template("t")])
    task = asyncio.ensure_future(ClaimController(cluster).run())
    try:
        claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
        await cluster.create(PODS, pod("good", resourceClaims=claims), "default")

        async def has_claim():
            pod_ = await cluster.get(PODS, "good", "default")
            return task.done() or pod_.status.resource_claim_statuses

        await eventually(has_claim)
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_bad_template_does_not_delay_other_pods():
    bad_template = template("odd")
    bad_template["spec"]["metadata"] = {"annotations": ["x"]}
    cluster = Embedded.holding([bad_template, template("t")])
    controller = ClaimController(cluster)
    task = asyncio.ensure_future(controller.run())
    try:
        for name, template_name in (("a", "odd"), ("b", "t")):
            claims = [{"name": "gpu", "resourceClaimTemplateName": template_name}]
            await cluster.create(PODS, pod(name, resourceClaims=claims), "default")

        async def has_claim():
            pod_ = await cluster.get(PODS, "b", "default")
            return task.done() or pod_.status.resource_claim_statuses

        await eventually(has_claim)
        assert not task.done()
        assert ("claim controller", "pod", "default", "a") in controller.quarantine.objects
        assert "a" in str(controller.quarantine)
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_failing_work_is_quarantined_until_its_key_is_added_again():
    queue, done, broken = WorkQueue("q", backoff=QUICK_BACKOFF), [], {"bad"}

    async def work(key):
        if key in broken:
            raise RecursionError
        done.append(key)

    task = asyncio.ensure_future(queue.run(work))
    for key in ("a", "bad", "b"):
        queue.add(key)
    await eventually(lambda: asyncio.sleep(0, "b" in done))
    assert [*queue.quarantine.objects] == [("q", "bad")]
    assert len(queue) == 1  # one more attempt after a long pause
    broken.clear()
    queue.add("bad")
    await eventually(lambda: asyncio.sleep(0, "bad" in done))
    assert not queue.quarantine.objects
    task.cancel()
    await asyncio.wait({task})


async def test_work_with_a_transient_failure_recovers():
    queue, attempts = WorkQueue("q", healing=0.02), []

    async def work(key):
        attempts.append(key)
        if len(attempts) < 3:
            raise KeyError(key)

    task = asyncio.ensure_future(queue.run(work))
    queue.add("a")
    await eventually(lambda: asyncio.sleep(0, len(attempts) == 3))
    await eventually(lambda: asyncio.sleep(0, not queue.quarantine.objects))
    task.cancel()
    await asyncio.wait({task})


async def test_work_without_awaits_lets_other_tasks_run():
    queue, turns = WorkQueue("q"), 0

    async def work(key):
        queue.add(key)  # again and again

    queue.add("a")
    task = asyncio.ensure_future(queue.run(work))
    async with asyncio.timeout(PATIENCE):
        while turns < 100:
            turns += 1
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})


async def test_many_reads_of_an_embedded_cluster_yield_to_the_loop():
    cluster, turns = Embedded.holding([config_map("a")]), 0

    async def count_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(count_turns())
    for _ in range(100_000):
        await cluster.get(CONFIG_MAPS, "a", "default")
        if turns > 10:
            break
    task.cancel()
    await asyncio.wait({task})
    assert turns > 10


def test_a_problem_that_quotes_a_whole_object_is_shortened():
    bad = encoded_item("p", b'{"containers":[{"name":"m","resources":{"limits":{"a":"' + b"x" * 1_000_000 + b'"}}}]}')
    event = answers.line(b'{"type":"ADDED","object":' + bad + b"}", PODS)
    assert isinstance(event, Unreadable)
    assert len(event.problem) < 600
