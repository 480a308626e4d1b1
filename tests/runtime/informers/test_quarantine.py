"""No stored object ends a process: each that cannot be digested is set aside by itself, and named once."""

import asyncio
import json
import logging
import uuid

import msgspec
import pytest

from cluster import Apply, Merge
from cluster.embedded.embedded import Embedded
from cluster.errors import ApiError, BadRequest, ConfigError
from cluster.kubernetes import Kubernetes, answers
from cluster.kubernetes.answers import elements, members
from cluster.protocol import Unreadable
from cluster.resources import ALL, CONFIG_MAPS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, resource_of
from dra.wire import WireError
from runtime.controllers.claim_controller import ClaimController
from runtime.controllers.workqueue import WorkQueue
from runtime.informers import Backoff, Informer, Quarantine
from tests.cluster.conftest import eventually
from tests.cluster.hostile import deep_json, nested, odd_objects, stored
from tests.cluster.objects import claim, config_map, pod, template
from tests.limits import PATIENCE
from tests.runtime.informers.test_informer import running

QUICK = Backoff(least=0.001, most=0.01)


def recursive(value):
    """Fails on what is nested too deeply, as any honest reader may."""
    return max((recursive(one) for one in value.values()), default=0) + 1 if isinstance(value, dict) else 0


def test_a_failing_decision_quarantines_its_object():
    quarantine = Quarantine()
    with quarantine.guard("pods", "default", "a", version="7"):
        recursive(nested(5000))
    assert quarantine.failures == 1
    assert quarantine.holds("pods", "default", "a", version="7")
    assert not quarantine.holds("pods", "default", "a", version="8")
    assert str(quarantine).startswith("pods default/a: RecursionError: maximum recursion depth exceeded")
    assert "informers/test_quarantine.py:" in str(quarantine)


def test_an_object_that_is_digested_again_is_taken_back():
    quarantine = Quarantine()
    with quarantine.guard("nodes", "", "n"):
        raise StopIteration
    assert str(quarantine).startswith("nodes n: StopIteration")
    with quarantine.guard("nodes", "", "n"):
        pass
    assert str(quarantine) == ""
    assert quarantine.failures == 1


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
    class Odd(Exception):  # noqa: N818  an error like those of libraries
        def __str__(self):
            return str(10**5000)

    quarantine = Quarantine()
    with quarantine.guard("pods", "default", "a"):
        raise Odd
    assert "Odd: (its message cannot be written)" in str(quarantine)


def test_many_bad_objects_are_counted_and_not_all_remembered():
    quarantine = Quarantine()
    for number in range(3000):
        quarantine.hold(("pods", "default", str(number)), "bad")
    assert quarantine.failures == 3000
    assert len(quarantine.objects) == 1000
    assert str(quarantine).endswith("; and 997 more")


async def test_a_failing_listener_gets_all_other_objects():
    cluster = Embedded.holding([config_map(name, data={"n": name}) for name in "abcdef"])
    informer, seen = Informer(cluster, CONFIG_MAPS), {}

    def listener(batch):
        for delta in batch.deltas:
            if delta.new is not None and delta.new.data["n"] == "c":
                raise StopIteration
            seen[delta.key[1]] = delta.new

    informer.listen(listener)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        assert sorted(seen) == ["a", "b", "d", "e", "f"]
        assert [*informer.quarantine.objects] == [("configmaps", "default", "c")]
        await cluster.patch(CONFIG_MAPS, "c", Merge({"data": {"n": "fine"}}), "default")
        await eventually(lambda: asyncio.sleep(0, "c" in seen))
    assert not informer.quarantine.objects


async def test_a_change_after_quarantine_has_the_last_good_object():
    cluster = Embedded.holding([config_map("a", data={"n": "1"})])
    informer, heard = Informer(cluster, CONFIG_MAPS), []

    def listener(batch):
        for delta in batch.deltas:
            if delta.new is not None and delta.new.data["n"] == "bad":
                raise RecursionError
            heard.append((delta.old and delta.old.data["n"], delta.new and delta.new.data["n"]))

    informer.listen(listener)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        for number in ("bad", "2", "bad"):
            await cluster.patch(CONFIG_MAPS, "a", Merge({"data": {"n": number}}), "default")
        await cluster.delete(CONFIG_MAPS, "a", "default")
        await eventually(lambda: asyncio.sleep(0, not informer.objects))
    assert heard == [(None, "1"), ("1", "2"), ("2", None)]
    assert not informer.quarantine.objects


async def test_a_failing_listener_does_not_affect_other_listeners():
    cluster = Embedded.holding([config_map("a")])
    informer, seen = Informer(cluster, CONFIG_MAPS), []
    informer.listen(lambda batch: [1 / 0 for _ in batch.deltas])
    informer.listen(lambda batch: seen.extend(delta.key[1] for delta in batch.deltas))
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
    assert seen == ["a"]
    assert informer.quarantine.objects


async def test_an_unreadable_object_is_quarantined_until_deleted(caplog):
    caplog.set_level(logging.WARNING)
    cluster = Embedded.holding([claim("bad", spec={"devices": {"requests": "none"}}), claim("good")])
    informer = Informer(cluster, RESOURCE_CLAIMS)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        assert "/spec/devices/requests" in str(informer.quarantine)
        await cluster.delete(RESOURCE_CLAIMS, "bad", "default")
        await eventually(lambda: asyncio.sleep(0, not informer.quarantine.objects))
    assert caplog.text.count("default/bad") == 1


@pytest.mark.parametrize("what", stored())
async def test_no_stored_object_ends_an_informer_or_hides_another(what):
    hostile = stored()[what]
    good = {"apiVersion": hostile["apiVersion"], "kind": hostile["kind"], "metadata": {"name": "good"}}
    cluster = Embedded.holding([hostile, good])
    resource = resource_of(hostile)
    for read_as in (resource, resource.raw):
        informer, seen = Informer(cluster, read_as), set()
        informer.listen(lambda batch, seen=seen: seen.update(delta.key[1] for delta in batch.deltas))
        async with running(informer):
            assert await informer.wait_for_sync(PATIENCE)
            assert "good" in informer.objects.keys() & seen or "good" in {name for _, name in informer.objects}
            assert "p" in {name for _, name in {*informer.objects, *informer.unreadable}}


@pytest.mark.parametrize("what", stored())
async def test_no_stored_object_ends_the_claim_controller(what):
    hostile = stored()[what]
    cluster = Embedded.holding([hostile, template("t")])
    task = asyncio.ensure_future(ClaimController(cluster).run())
    try:
        claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
        await cluster.create(PODS, pod("honest", resourceClaims=claims), "default")

        async def made():
            found = await cluster.get(PODS, "honest", "default")
            return task.done() or found.status.resource_claim_statuses

        await eventually(made)
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_bad_template_does_not_delay_other_pods():
    odd = template("odd")
    odd["spec"]["metadata"] = {"annotations": ["x"]}
    cluster = Embedded.holding([odd, template("t")])
    controller = ClaimController(cluster)
    task = asyncio.ensure_future(controller.run())
    try:
        for name, source in (("a", "odd"), ("b", "t")):
            claims = [{"name": "gpu", "resourceClaimTemplateName": source}]
            await cluster.create(PODS, pod(name, resourceClaims=claims), "default")

        async def made():
            found = await cluster.get(PODS, "b", "default")
            return task.done() or found.status.resource_claim_statuses

        await eventually(made)
        assert not task.done()
        assert ("claim controller", "pod", "default", "a") in controller.quarantine.objects
        assert "a" in str(controller.quarantine)
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_failing_work_is_quarantined_until_its_key_returns():
    queue, done, broken = WorkQueue("q", backoff=QUICK), [], {"bad"}

    async def work(key):
        if key in broken:
            raise RecursionError
        done.append(key)

    task = asyncio.ensure_future(queue.run(work))
    for key in ("a", "bad", "b"):
        queue.add(key)
    await eventually(lambda: asyncio.sleep(0, "b" in done))
    assert [*queue.quarantine.objects] == [("q", "bad")]
    assert len(queue) == 1  # in a long while, once more
    broken.clear()
    queue.add("bad")
    await eventually(lambda: asyncio.sleep(0, "bad" in done))
    assert not queue.quarantine.objects
    task.cancel()
    await asyncio.wait({task})


async def test_work_with_a_transient_failure_recovers():
    queue, looks = WorkQueue("q", healing=0.02), []

    async def work(key):
        looks.append(key)
        if len(looks) < 3:
            raise KeyError(key)

    task = asyncio.ensure_future(queue.run(work))
    queue.add("a")
    await eventually(lambda: asyncio.sleep(0, len(looks) == 3))
    await eventually(lambda: asyncio.sleep(0, not queue.quarantine.objects))
    task.cancel()
    await asyncio.wait({task})


async def test_work_that_never_waits_leaves_others_their_turn():
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


async def test_a_caller_that_never_waits_yields_to_the_loop():
    cluster, turns = Embedded.holding([config_map("a")]), 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    end = asyncio.get_running_loop().time() + 0.2
    while asyncio.get_running_loop().time() < end:
        await cluster.get(CONFIG_MAPS, "a", "default")
    task.cancel()
    await asyncio.wait({task})
    assert turns > 10


async def test_the_store_refuses_a_deeply_nested_object():
    cluster = Embedded()
    deep = nested(500_000)  # from where on it is too deep differs between versions of Python
    with pytest.raises(BadRequest, match="nested too deeply"):
        await cluster.create(CONFIG_MAPS, config_map("a", nested=deep), "default")
    with pytest.raises(BadRequest, match="nested too deeply"):
        cluster.load([config_map("a", nested=deep)])
    assert not (await cluster.list(CONFIG_MAPS, "default")).items


async def test_the_store_takes_an_odd_object_or_says_why_not():
    """Whatever is created, applied or loaded: an answer of the API, never an error of another kind."""
    answers_ = []
    for obj in odd_objects():
        resource = resource_of(obj) if isinstance(obj.get("kind"), str) else None
        if resource is None:
            continue
        home = "default" if resource.namespaced else None
        cluster = Embedded()
        for attempt in (
            lambda obj=obj, to=resource, at=home, cluster=cluster: cluster.create(to.raw, obj, at),
            lambda obj=obj, to=resource, at=home, cluster=cluster: cluster.patch(to.raw, "q", Apply(obj, "me"), at),
            lambda obj=obj, cluster=cluster: asyncio.to_thread(cluster.load, [obj]),
        ):
            try:
                await attempt()
            except ApiError as error:
                answers_.append(error.status)
            else:
                answers_.append(200)
    assert {200, 400, 422} <= set(answers_)


def an_item(name, inner=b"{}", version="5"):
    meta = f'{{"name":"{name}","namespace":"default","resourceVersion":"{version}"}}'.encode()
    return b'{"apiVersion":"v1","metadata":' + meta + b',"spec":' + inner + b"}"


@pytest.mark.parametrize("levels", [900, 1000, 1100, 9000])
@pytest.mark.parametrize("read_as", [PODS, PODS.raw], ids=["typed", "plain"])
def test_a_deep_object_does_not_hide_the_others(levels, read_as):
    items = b",".join([an_item("a"), an_item("deep", deep_json(levels)), an_item("b")])
    data = b'{"kind":"PodList","metadata":{"resourceVersion":"9","continue":"more"},"items":[' + items + b"]}"
    page = answers.page(data, read_as)
    read = {*[_name(item) for item in page.items], *[one.name for one in page.unreadable]}
    assert read == {"a", "deep", "b"}
    assert (page.resource_version, page.more) == ("9", "more")


def _name(obj):
    return obj["metadata"]["name"] if isinstance(obj, dict) else obj.metadata.name


def test_an_event_with_a_deep_object_is_unreadable():
    event = answers.line(b'{"type":"MODIFIED","object":' + an_item("deep", deep_json(500_000)) + b"}", PODS)
    assert event == Unreadable("default", "deep", "5", "nested too deeply to be read")
    event = answers.line(b'{"type":"DELETED","object":' + an_item("deep", deep_json(500_000)) + b"}", PODS)
    assert event.deleted


def test_a_problem_that_quotes_a_whole_object_is_cut():
    bad = an_item("p", b'{"containers":[{"name":"m","resources":{"limits":{"a":"' + b"x" * 1_000_000 + b'"}}}]}')
    event = answers.line(b'{"type":"ADDED","object":' + bad + b"}", PODS)
    assert isinstance(event, Unreadable)
    assert len(event.problem) < 600


@pytest.mark.parametrize("value", [{}, {"a": 1}, {"a,b": ["]", '"', "\\"], "c": {"d": [{}]}, "": None}, {"x": "{[,:"}])
def test_an_object_taken_apart_has_the_members_that_it_has(value):
    found = members(msgspec.json.encode(value))
    assert {name: msgspec.json.decode(part) for name, part in found.items()} == value


@pytest.mark.parametrize("value", [[], [1], [1, "a,b]", {"c": [2, 3]}, [], None]])
def test_an_array_taken_apart_has_the_elements_that_it_has(value):
    assert [msgspec.json.decode(part) for part in elements(msgspec.json.encode(value))] == value


@pytest.mark.parametrize("data", [b"", b"7", b"{", b'{"a"}', b'{"a":1}}', b'{"a":[1}', b"{]", b'{"a":1}{"b":2}'])
def test_invalid_json_is_not_split_into_members(data):
    with pytest.raises(WireError):
        members(data)


def test_every_resource_can_say_the_version_of_its_objects():
    from cluster.resources import version_of

    for resource in ALL:
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"resourceVersion": "7"}}
        assert version_of(obj) == "7"
    assert version_of({"metadata": ["odd"]}) == ""
    assert RESOURCE_CLAIM_TEMPLATES in ALL


@pytest.mark.real
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "listed"])
@pytest.mark.parametrize("read_as", [RESOURCE_CLAIMS, RESOURCE_CLAIMS.raw], ids=["typed", "plain"])
async def test_an_informer_survives_a_deep_claim_of_a_server(control_plane, tmp_path, stream, read_as):
    """A claim whose driver parameters are nested 4,800 levels deep passes the server's validation."""
    home = f"hostile-{uuid.uuid4().hex[:8]}"
    control_plane.kubectl("create", "namespace", home)
    body = json.dumps(claim("deep"))
    config = '{"opaque":{"driver":"gpu.example.com","parameters":{"a":' + "[" * 4800 + "]" * 4800 + "}}}"
    body = body.replace('"devices": {', '"devices": {"config": [' + config + "], ")
    file = tmp_path / "deep.json"
    file.write_text(body)
    path = f"/apis/resource.k8s.io/v1/namespaces/{home}/resourceclaims"
    cluster = Kubernetes.connect(kubeconfig=str(control_plane.kubeconfig))
    informer = Informer(cluster, read_as, home, stream=stream)
    seen = set()
    informer.listen(lambda batch: seen.update(delta.key[1] for delta in batch.deltas))
    try:
        await asyncio.to_thread(control_plane.kubectl, "create", "--raw", path, "-f", str(file))
        await cluster.create(RESOURCE_CLAIMS, claim("before"), home)
        async with running(informer):
            assert await informer.wait_for_sync(PATIENCE)
            assert informer.unreadable.keys() == {(home, "deep")}
            assert "nested too deeply" in str(informer.quarantine)
            await asyncio.to_thread(
                control_plane.kubectl, "annotate", "resourceclaim", "deep", "-n", home, "changed=yes"
            )
            await cluster.create(RESOURCE_CLAIMS, claim("after"), home)
            await eventually(lambda: asyncio.sleep(0, {"before", "after"} <= seen))
            await asyncio.to_thread(control_plane.kubectl, "delete", "resourceclaim", "deep", "-n", home)
            await eventually(lambda: asyncio.sleep(0, not informer.unreadable))
            assert not informer.quarantine.objects
        assert informer.health.failures == 0
    finally:
        await cluster.close()
        control_plane.kubectl("delete", "namespace", home, "--wait=false")
