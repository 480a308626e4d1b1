"""The pure decisions behind informers and queues: reflection, copies, waiting, selectors, the store's memory."""

import asyncio
import contextlib
import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.embedded.label_selectors import selector
from cluster.embedded.store import Store
from cluster.errors import (
    BadRequest,
    ConfigError,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    StatusCause,
    Throttled,
    Unavailable,
    map_exceptions,
)
from cluster.protocol import Change, Unreadable
from cluster.resources import CONFIG_MAPS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, key, metadata, resource_of
from cluster.server import PROBES, survives
from dra.pointer import field_path
from runtime.controllers.workqueue import WorkQueue
from runtime.informers.backoff import Backoff
from runtime.informers.cache import Delta, ObjectCache
from runtime.informers.reflection import TABLE, ReflectionPhase, ReflectionState, StepOutcome, outcome
from tests.cluster.conftest import eventually
from tests.cluster.objects import claim
from tests.limits import PATIENCE


def test_every_outcome_of_a_phase_is_in_the_table():
    impossible = {
        (ReflectionPhase.LIST, StepOutcome.ENDED),
        (ReflectionPhase.LIST, StepOutcome.SILENT),
        (ReflectionPhase.WATCH, StepOutcome.COMPLETE),
    }
    assert set(TABLE) == set(product(ReflectionPhase, StepOutcome)) - impossible


def test_a_failure_is_counted_in_each_phase_of_reflection():
    for phase in ReflectionPhase:
        state = ReflectionState(phase=phase, version="7", failures=3)
        assert state.after(StepOutcome.FAILED).failures == 4


def test_a_watch_that_failed_goes_on_where_it_was():
    state = ReflectionState(phase=ReflectionPhase.WATCH, version="7").after(StepOutcome.FAILED)
    assert (state.phase, state.version) == (ReflectionPhase.WATCH, "7")


def test_a_version_that_is_gone_is_forgotten():
    assert ReflectionState(phase=ReflectionPhase.WATCH, version="7").after(StepOutcome.GONE) == ReflectionState(
        phase=ReflectionPhase.STREAM
    )
    assert ReflectionState(phase=ReflectionPhase.WATCH, streams=False, version="7").after(
        StepOutcome.GONE
    ) == ReflectionState(ReflectionPhase.LIST, streams=False)


def test_a_server_that_refuses_to_stream_is_not_asked_again():
    state = ReflectionState().after(StepOutcome.REFUSED)
    assert (state.phase, state.streams, state.failures) == (ReflectionPhase.LIST, False, 0)
    assert state.advance("5").after(StepOutcome.COMPLETE).after(StepOutcome.GONE).phase is ReflectionPhase.LIST


def test_a_page_that_failed_is_asked_for_again():
    state = ReflectionState(phase=ReflectionPhase.LIST, streams=False).turn_page("token").after(StepOutcome.FAILED)
    assert (state.phase, state.more) == (ReflectionPhase.LIST, "token")
    assert state.after(StepOutcome.GONE).more == ""


def test_progress_ends_a_row_of_failures():
    assert ReflectionState(phase=ReflectionPhase.WATCH, version="7", failures=5).advance("8").failures == 0


@given(st.lists(st.sampled_from(StepOutcome), max_size=30))
def test_reflection_has_a_resource_version_only_while_it_watches(outcomes):
    state = ReflectionState()
    for one in outcomes:
        if (state.phase, one) not in TABLE:
            continue
        if one is StepOutcome.COMPLETE:
            state = state.advance("9")
        state = state.after(one)
        assert bool(state.version) == (state.phase is ReflectionPhase.WATCH)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Gone("x"), StepOutcome.GONE),
        (Unavailable("x", causes=(StatusCause(reason="ResourceVersionTooLarge"),), status=504), StepOutcome.GONE),
        (Invalid("x"), StepOutcome.REFUSED),
        (BadRequest("x"), StepOutcome.REFUSED),
        (Forbidden("x"), StepOutcome.FAILED),
        (Throttled("x"), StepOutcome.FAILED),
        (Unavailable("x"), StepOutcome.FAILED),
    ],
)
def test_an_api_error_maps_to_its_reflection_outcome(error, expected):
    assert outcome(error) is expected


def test_waits_double_up_to_a_most():
    backoff = Backoff(least=1, most=30)
    assert [backoff.seconds(failures, 0.999999) for failures in (1, 2, 3, 4, 5, 6, 1000)] == pytest.approx(
        [1, 2, 4, 8, 16, 30, 30], rel=1e-5
    )
    assert backoff.seconds(3, 0.0) == 2


def test_a_servers_word_is_the_least_wait():
    assert Backoff(least=1).seconds(1, 0.5, Throttled("x", retry_after=9)) == 9
    assert Backoff(least=1).seconds(1, 0.5, Unavailable("x", retry_after=0.1)) == 0.75


def typed(name, version):
    from dra.objects.claim import ResourceClaim
    from dra.wire import convert

    meta = {"namespace": "ns", "resourceVersion": str(version), "uid": f"{name}-{version}"}
    return convert(claim(name, metadata=meta), ResourceClaim)


def change(type_, name, version):
    return Change(type_, typed(name, version), str(version))


def test_events_from_before_a_reading_change_nothing():
    cache = ObjectCache()
    cache.replace([typed("a", 5)])
    assert cache.change(change("MODIFIED", "a", 4)) is None
    assert cache.change(change("DELETED", "a", 5)) is None
    assert cache.change(change("DELETED", "b", 6)) is None
    assert metadata(cache.objects["ns", "a"]).resource_version == "5"
    assert cache.change(change("DELETED", "a", 6)) == Delta(("ns", "a"), typed("a", 5), None)


def test_versions_are_compared_as_numbers():
    cache = ObjectCache()
    cache.replace([typed("a", 9)])
    assert cache.change(change("MODIFIED", "a", 10)) is not None


def test_a_new_reading_tells_what_differs():
    cache = ObjectCache()
    cache.replace([typed("a", 1), typed("b", 2), typed("c", 3)])
    deltas = {one.key[1]: one for one in cache.replace([typed("a", 1), typed("b", 5), typed("d", 6)])}
    assert {name: (one.old is not None, one.new is not None) for name, one in deltas.items()} == {
        "b": (True, True),
        "c": (True, False),
        "d": (False, True),
    }


def test_a_reading_from_before_the_present_is_believed():
    """A cluster that was restored to an earlier time: what it says is the truth now."""
    cache = ObjectCache()
    cache.replace([typed("a", 50)])
    assert [one.new.metadata.resource_version for one in cache.replace([typed("a", 7)])] == ["7"]
    assert cache.change(change("MODIFIED", "a", 8)) is not None


def test_an_object_that_became_unreadable_keeps_its_last_readable_form():
    cache = ObjectCache()
    cache.replace([typed("a", 1)])
    broken = Unreadable("ns", "a", "2", "odd")
    assert cache.skip(broken) is None
    assert ("ns", "a") in cache.objects
    assert cache.unreadable["ns", "a"] == broken
    cache.replace([], [broken])
    assert ("ns", "a") in cache.objects
    cache.change(change("MODIFIED", "a", 3))
    assert not cache.unreadable
    cache.skip(Unreadable("ns", "a", "4", "odd", deleted=True))
    assert not cache.objects


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["set", "delete", "read"])), max_size=40))
def test_a_copy_that_hears_everything_is_the_collection(steps):
    cache, truth, heard = ObjectCache(), {}, {}
    for version, (name, step) in enumerate(steps, 1):
        deltas = []
        if step == "set":
            truth["ns", name] = typed(name, version)
            deltas = [cache.change(Change("MODIFIED", truth["ns", name], str(version)))]
        elif step == "delete" and truth.pop(("ns", name), None) is not None:
            deltas = [cache.change(change("DELETED", name, version))]
        elif step == "read":
            deltas = cache.replace(truth.values())
        for delta in deltas:
            assert heard.get(delta.key) == delta.old
            heard[delta.key] = delta.new
        assert dict(cache.objects) == truth
    assert {where: one for where, one in heard.items() if one is not None} == truth


def objects_of(store, resource="pods"):
    return {record.meta.name: record.data for record in store.records(resource)}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["owner", "x"]), st.booleans()), min_size=1, max_size=12)
)
def test_a_change_that_is_undone_never_was(steps):
    store = Store()
    for name, owner, remove in steps:
        before = (
            store.version,
            objects_of(store),
            store.dependents("owner"),
            store.dependents("x"),
            store.since("pods", 0),
        )
        body = f'{{"metadata":{{"name":"{name}","ownerReferences":[{{"uid":"{owner}"}}]}}}}'.encode()

        def write(name=name, body=body, remove=remove):
            if remove and store.get("pods", ("", name)):
                return store.remove("pods", ("", name), body, store.version + 1)
            return store.put("pods", ("", name), body, store.version + 1)

        store.undo("pods", write())
        assert before == (
            store.version,
            objects_of(store),
            store.dependents("owner"),
            store.dependents("x"),
            store.since("pods", 0),
        )
        write()


def test_history_is_bounded_in_number_and_in_bytes():
    for options, body in (
        ({"window": 10}, b'{"metadata":{}}'),
        ({"window_bytes": 1000}, b'{"metadata":{},"x":"' + b"y" * 100 + b'"}'),
    ):
        store = Store(**options)
        for _ in range(500):
            store.put("pods", ("", "a"), body, store.version + 1)
        kept = store.since("pods", store.version - 5)
        assert [one.version for one in kept] == [*range(store.version - 4, store.version + 1)]
        with pytest.raises(Gone):
            store.since("pods", 2)
        assert len(store._tables["pods"].history) <= 20


@pytest.mark.parametrize(
    ("labels", "have", "matches"),
    [
        ("a=b", {"a": "b"}, True),
        ("a = b , c != d", {"a": "b"}, True),
        ("a=", {"a": ""}, True),
        ("a=", {}, False),
        ("a in (x,)", {"a": ""}, True),
        ("a notin (x)", {}, True),
        ("!a", {"a": ""}, False),
        ("example.com/a", {"example.com/a": "1"}, True),
    ],
)
def test_label_selectors(labels, have, matches):
    assert selector("pods", labels, "").matches(have, dict) is matches


def test_no_selector_selects_all_and_looks_at_nothing():
    assert selector("pods", "", " ").matches({}, lambda: 1 / 0)


def test_unset_fields_are_empty_and_booleans_are_words():
    assert selector("pods", "", "spec.nodeName=").matches({}, lambda: {"metadata": {}})
    assert selector("nodes", "", "spec.unschedulable=true").matches({}, lambda: {"spec": {"unschedulable": True}})


def test_paths_of_the_api():
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("ns", "a", "binding") == "/api/v1/namespaces/ns/pods/a/binding"
    assert RESOURCE_SLICES.path("ignored", "a") == "/apis/resource.k8s.io/v1/resourceslices/a"


def test_objects_give_equal_answers_in_both_forms():
    plain = claim("a", metadata={"namespace": "ns", "uid": "1"})
    assert key(plain) == key(typed("a", 1)) == ("ns", "a")
    assert resource_of(plain) is resource_of(typed("a", 1)) is RESOURCE_CLAIMS
    assert metadata(plain).uid == "1"
    assert resource_of({"apiVersion": "v9", "kind": "Riddle"}) is None
    assert CONFIG_MAPS.raw.plain({"metadata": {}})["kind"] == "ConfigMap"


def test_a_probe_finds_its_field_if_the_gate_is_on():
    for probe in PROBES:
        assert survives(probe, probe.object), probe.gate
        assert not survives(probe, {"spec": {}}), probe.gate


@pytest.mark.parametrize(
    ("pointer", "path"),
    [
        ("/spec/devices/requests/0/name", "spec.devices.requests[0].name"),
        ("/spec/devices/0/attributes/example.com~1a/string", "spec.devices[0].attributes[example.com/a].string"),
        ("", ""),
    ],
)
def test_a_pointer_as_the_api_writes_paths(pointer, path):
    assert field_path(pointer) == path


def test_foreign_exceptions_become_ours_and_ours_pass():
    table = {KeyError: lambda error: ConfigError(f"no {error}")}
    with pytest.raises(ConfigError, match="no 'x'") as caught, map_exceptions(table):
        raise KeyError("x")
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(NotFound), map_exceptions({Exception: lambda _: ConfigError("never")}):
        raise NotFound("x")
    with pytest.raises(ZeroDivisionError), map_exceptions(table):
        _ = 1 / 0


@contextlib.asynccontextmanager
async def working(queue, work, **options):
    task = asyncio.ensure_future(queue.run(work, **options))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_key_waits_at_most_once():
    queue, done = WorkQueue("q"), []

    async def work(key):
        done.append(key)

    for name in "abaab":
        queue.add(name)
    assert len(queue) == 2
    async with working(queue, work):
        await eventually(lambda: asyncio.sleep(0, len(done) == 2))
    assert done == ["a", "b"]


async def test_a_key_added_during_its_work_is_repeated():
    queue, done = WorkQueue("q"), []

    async def work(key):
        if not done:
            queue.add(key)
            queue.add(key)
        done.append(key)

    queue.add("a")
    async with working(queue, work):
        await eventually(lambda: asyncio.sleep(0, len(done) == 2))
        queue.add("later")
        await eventually(lambda: asyncio.sleep(0, "later" in done))
    assert done == ["a", "a", "later"]


async def test_a_failed_key_is_retried_without_delaying_others():
    queue, done = WorkQueue("q", backoff=Backoff(least=0.01, most=0.01)), []

    async def work(key):
        done.append(key)
        if key == "bad" and done.count("bad") < 3:
            raise Unavailable("not yet")

    for name in ("bad", "good"):
        queue.add(name)
    async with working(queue, work):
        await eventually(lambda: asyncio.sleep(0, done.count("bad") == 3))
    assert done[:2] == ["bad", "good"]
    assert len(queue) == 0


async def test_work_that_takes_too_long_is_ended_and_tried_again():
    queue, begun = WorkQueue("q", backoff=Backoff(least=0.01, most=0.01)), []

    async def work(key):
        begun.append(key)
        if len(begun) == 1:
            await asyncio.sleep(30)

    queue.add("a")
    async with working(queue, work, deadline=0.05):
        await eventually(lambda: asyncio.sleep(0, len(begun) >= 2))


async def test_a_set_up_that_is_broken_ends_the_work_loudly():
    queue = WorkQueue("q")

    async def work(_):
        raise ConfigError("no kubeconfig")

    queue.add("a")
    with pytest.raises(ConfigError):
        await asyncio.wait_for(queue.run(work), PATIENCE)


async def test_a_cancelled_queue_leaves_no_timer_behind():
    queue = WorkQueue("q")
    async with working(queue, lambda _: asyncio.sleep(0)):
        queue.add_after("a", 60)
        await asyncio.sleep(0)
    assert len(queue) == 0


async def test_a_key_queued_for_later_can_be_queued_for_now():
    queue, done = WorkQueue("q"), []

    async def work(key):
        done.append(key)

    queue.add_after("a", 60)
    queue.add("a")
    async with working(queue, work):
        await eventually(lambda: asyncio.sleep(0, done == ["a"]))
    assert len(queue) == 0


def test_jitter_spreads_the_waits():
    backoff, numbers = Backoff(least=1, most=30), random.Random(1)
    waits = [backoff.seconds(4, numbers.random()) for _ in range(200)]
    assert min(waits) >= 4
    assert max(waits) <= 8
    assert max(waits) - min(waits) > 3
