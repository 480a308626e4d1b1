"""Lists, selectors and watches: the embedded store and a real API server give equal answers."""

import asyncio

import pytest
from msgspec.structs import replace

from cluster import Merge
from cluster.errors import ApiError, BadRequest, Gone
from cluster.protocol import Bookmark, Change
from cluster.resources import CONFIG_MAPS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, key
from tests.cluster.conftest import eventually
from tests.cluster.objects import claim, config_map, pod
from tests.limits import PATIENCE


async def config_map_names(cluster, namespace, **options):
    page = await cluster.list(CONFIG_MAPS, namespace, **options)
    return [item.metadata.name for item in page.items if item.metadata.name != "kube-root-ca.crt"]


async def test_a_limited_list_comes_in_ordered_pages(cluster, namespace):
    for name in ("e", "b", "d", "a", "c"):
        await cluster.create(CONFIG_MAPS, config_map(name, metadata={"labels": {"mine": "yes"}}), namespace)
    pages, continue_token = [], ""
    while True:
        page = await cluster.list(CONFIG_MAPS, namespace, labels="mine=yes", limit=2, more=continue_token)
        pages.append([item.metadata.name for item in page.items])
        continue_token = page.more
        if not continue_token:
            break
    assert pages == [["a", "b"], ["c", "d"], ["e"]]


async def test_the_last_full_page_has_no_continue_token(cluster, namespace):
    for name in ("a", "b"):
        await cluster.create(RESOURCE_CLAIMS, claim(name), namespace)
    page = await cluster.list(RESOURCE_CLAIMS, namespace, limit=2)
    assert len(page.items) == 2
    assert page.more == ""


async def test_an_invalid_continue_token_is_refused(cluster, namespace):
    with pytest.raises((BadRequest, Gone)):
        await cluster.list(CONFIG_MAPS, namespace, limit=2, more="nonsense")


async def test_plain_items_have_kind_and_version(cluster, namespace):
    await cluster.create(RESOURCE_CLAIMS, claim("a"), namespace)
    (item,) = (await cluster.list(RESOURCE_CLAIMS.raw, namespace)).items
    assert (item["apiVersion"], item["kind"]) == ("resource.k8s.io/v1", "ResourceClaim")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("tier = gold , tier != silver", "a"),
        ("tier==gold", "a"),
        ("tier!=gold,tier", "b"),
        ("tier", "ab"),
        ("tier=", ""),
        ("!tier,example.com/any=", "c"),
        ("!example.com/any", ""),
        ("tier in (gold, silver)", "ab"),
        ("tier notin (gold),example.com/any in (x,)", "bc"),
        ("tier=gold,tier=silver", ""),
    ],
)
async def test_label_selectors_filter_lists(cluster, namespace, labels, expected):
    for name, tier in (("a", {"tier": "gold"}), ("b", {"tier": "silver"}), ("c", {})):
        await cluster.create(
            CONFIG_MAPS, config_map(name, metadata={"labels": {"example.com/any": "", **tier}}), namespace
        )
    assert "".join(await config_map_names(cluster, namespace, labels=labels)) == expected


async def test_field_selectors_filter_lists(cluster, namespace):
    for name in ("a", "b"):
        await eventually(lambda name=name: cluster.create(PODS, pod(name), namespace))
    await cluster.bind("b", namespace, "node-b")
    bound_pods = await cluster.list(PODS, namespace, fields="spec.nodeName=node-b")
    unbound_pods = await cluster.list(PODS, namespace, fields="spec.nodeName=,metadata.name!=c")
    assert [item.metadata.name for item in bound_pods.items] == ["b"]
    assert [item.metadata.name for item in unbound_pods.items] == ["a"]


async def test_slices_are_selected_by_driver(cluster):
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    body = {"metadata": {"generateName": "s-"}, "spec": {"driver": "only.example.com", "pool": pool, "allNodes": True}}
    created = await cluster.create(RESOURCE_SLICES, body)
    page = await cluster.list(RESOURCE_SLICES, fields="spec.driver=only.example.com")
    await cluster.delete(RESOURCE_SLICES, created.metadata.name)
    assert [item.metadata.name for item in page.items] == [created.metadata.name]


@pytest.mark.parametrize(
    "selector", [{"labels": "a in"}, {"labels": "=b"}, {"fields": "spec.color=red"}, {"fields": "a"}]
)
async def test_a_selector_that_cannot_be_read_is_refused(cluster, namespace, selector):
    with pytest.raises(BadRequest):
        await cluster.list(CONFIG_MAPS, namespace, **selector)


async def watch_until(cluster, resource, namespace, is_last, watch_started=None, **options):
    """Watch until `is_last` is true of an event; return all events. `watch_started` is set before the first event."""
    received = []
    async with asyncio.timeout(PATIENCE), cluster.watch(resource, namespace, **options) as events:
        if watch_started is not None:
            watch_started.set()
        async for event in events:
            received.append(event)
            if is_last(event):
                break
    return received


def is_deletion(event):
    return isinstance(event, Change) and event.type == "DELETED"


def types_and_names(events):
    return [(event.type, event.object.metadata.name) for event in events if isinstance(event, Change)]


async def test_a_watch_reports_changes_after_a_version(cluster, namespace):
    await cluster.create(RESOURCE_CLAIMS, claim("before"), namespace)
    version = (await cluster.list(RESOURCE_CLAIMS, namespace)).resource_version
    await cluster.create(RESOURCE_CLAIMS, claim("one"), namespace)
    await cluster.patch(RESOURCE_CLAIMS, "one", Merge({"metadata": {"labels": {"a": "b"}}}), namespace)
    await cluster.delete(RESOURCE_CLAIMS, "one", namespace)
    events = await watch_until(cluster, RESOURCE_CLAIMS, namespace, is_deletion, resource_version=version)
    assert types_and_names(events) == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]
    versions = [int(event.resource_version) for event in events]
    assert versions == sorted(set(versions))


async def test_a_watch_reports_changes_while_it_waits(cluster, namespace):
    version = (await cluster.list(CONFIG_MAPS, namespace)).resource_version
    watch_started = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        watch_task = tasks.create_task(
            watch_until(
                cluster,
                CONFIG_MAPS,
                namespace,
                lambda event: isinstance(event, Change) and event.object.metadata.name == "z",
                watch_started,
                resource_version=version,
                labels="mine",
            )
        )
        await watch_started.wait()
        for name in ("x", "y", "z"):
            await cluster.create(CONFIG_MAPS, config_map(name, metadata={"labels": {"mine": ""}}), namespace)
    assert types_and_names(watch_task.result()) == [("ADDED", "x"), ("ADDED", "y"), ("ADDED", "z")]


async def test_a_streamed_list_ends_with_a_bookmark(cluster, namespace):
    for name in ("a", "b"):
        await cluster.create(RESOURCE_CLAIMS, claim(name), namespace)

    def is_end_of_list(event):
        return isinstance(event, Bookmark) and event.initial_end

    events = await watch_until(cluster, RESOURCE_CLAIMS, namespace, is_end_of_list, initial=True)
    assert sorted(types_and_names(events)) == [("ADDED", "a"), ("ADDED", "b")]
    assert int(events[-1].resource_version) >= max(int(event.resource_version) for event in events[:-1])


async def test_an_object_that_leaves_a_selection_is_reported_as_deleted(cluster, namespace):
    await cluster.create(CONFIG_MAPS, config_map("one", metadata={"labels": {"in": "no"}}), namespace)
    version = (await cluster.list(CONFIG_MAPS, namespace)).resource_version
    for value in ("yes", "no"):
        await cluster.patch(CONFIG_MAPS, "one", Merge({"metadata": {"labels": {"in": value}}}), namespace)
    events = await watch_until(cluster, CONFIG_MAPS, namespace, is_deletion, resource_version=version, labels="in=yes")
    assert types_and_names(events) == [("ADDED", "one"), ("DELETED", "one")]


async def test_a_watch_ends_after_its_timeout(cluster, namespace):
    version = (await cluster.list(RESOURCE_CLAIMS, namespace)).resource_version
    async with (
        asyncio.timeout(PATIENCE),
        cluster.watch(RESOURCE_CLAIMS, namespace, resource_version=version, timeout=1) as events,
    ):
        received = [event async for event in events]
    assert not types_and_names(received)


async def test_a_cancelled_watch_does_not_disturb_the_cluster(cluster, namespace):
    version = (await cluster.list(RESOURCE_CLAIMS, namespace)).resource_version
    watch_started = asyncio.Event()

    task = asyncio.ensure_future(
        watch_until(cluster, RESOURCE_CLAIMS, namespace, lambda _: False, watch_started, resource_version=version)
    )
    await watch_started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    await cluster.list(RESOURCE_CLAIMS, namespace)


async def test_a_watch_from_an_invalid_version_is_refused(cluster, namespace):
    with pytest.raises(ApiError):
        await watch_until(cluster, RESOURCE_CLAIMS, namespace, lambda _: True, resource_version="nonsense")


async def test_a_reduce_function_may_drop_objects_of_a_list(cluster, namespace):
    for name in ("a", "b"):
        await cluster.create(RESOURCE_CLAIMS, claim(name), namespace)
    for resource in (RESOURCE_CLAIMS, RESOURCE_CLAIMS.raw):
        resource_without_a = replace(resource, reduce=lambda obj: None if key(obj)[1] == "a" else obj)
        page = await cluster.list(resource_without_a, namespace)
        assert [key(item)[1] for item in page.items] == ["b"]
