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


async def names(cluster, home, **options):
    page = await cluster.list(CONFIG_MAPS, home, **options)
    return [item.metadata.name for item in page.items if item.metadata.name != "kube-root-ca.crt"]


async def test_a_list_comes_in_pages_and_in_order(cluster, home):
    for name in ("e", "b", "d", "a", "c"):
        await cluster.create(CONFIG_MAPS, config_map(name, metadata={"labels": {"mine": "yes"}}), home)
    pages, more = [], ""
    while True:
        page = await cluster.list(CONFIG_MAPS, home, labels="mine=yes", limit=2, more=more)
        pages.append([item.metadata.name for item in page.items])
        more = page.more
        if not more:
            break
    assert pages == [["a", "b"], ["c", "d"], ["e"]]


async def test_the_last_full_page_has_no_continue_token(cluster, home):
    for name in ("a", "b"):
        await cluster.create(RESOURCE_CLAIMS, claim(name), home)
    page = await cluster.list(RESOURCE_CLAIMS, home, limit=2)
    assert len(page.items) == 2
    assert page.more == ""


async def test_an_invalid_continue_token_is_refused(cluster, home):
    with pytest.raises((BadRequest, Gone)):
        await cluster.list(CONFIG_MAPS, home, limit=2, more="nonsense")


async def test_plain_items_have_kind_and_version(cluster, home):
    await cluster.create(RESOURCE_CLAIMS, claim("a"), home)
    (item,) = (await cluster.list(RESOURCE_CLAIMS.raw, home)).items
    assert (item["apiVersion"], item["kind"]) == ("resource.k8s.io/v1", "ResourceClaim")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("tier=gold", "a"),
        ("tier==gold", "a"),
        ("tier!=gold,tier", "b"),
        ("tier", "ab"),
        ("!tier,any", "c"),
        ("tier in (gold, silver)", "ab"),
        ("tier notin (gold),any", "bc"),
        ("tier=gold,tier=silver", ""),
    ],
)
async def test_label_selectors_filter_lists(cluster, home, labels, expected):
    for name, tier in (("a", {"tier": "gold"}), ("b", {"tier": "silver"}), ("c", {})):
        await cluster.create(CONFIG_MAPS, config_map(name, metadata={"labels": {"any": "", **tier}}), home)
    assert "".join(await names(cluster, home, labels=labels)) == expected


async def test_field_selectors_filter_lists(cluster, home):
    for name in ("a", "b"):
        await eventually(lambda name=name: cluster.create(PODS, pod(name), home))
    await cluster.bind("b", home, "node-b")
    bound = await cluster.list(PODS, home, fields="spec.nodeName=node-b")
    waiting = await cluster.list(PODS, home, fields="spec.nodeName=,metadata.name!=c")
    assert [item.metadata.name for item in bound.items] == ["b"]
    assert [item.metadata.name for item in waiting.items] == ["a"]


async def test_slices_are_selected_by_driver(cluster):
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    body = {"metadata": {"generateName": "s-"}, "spec": {"driver": "only.example.com", "pool": pool, "allNodes": True}}
    made = await cluster.create(RESOURCE_SLICES, body)
    page = await cluster.list(RESOURCE_SLICES, fields="spec.driver=only.example.com")
    await cluster.delete(RESOURCE_SLICES, made.metadata.name)
    assert [item.metadata.name for item in page.items] == [made.metadata.name]


@pytest.mark.parametrize(
    "selector", [{"labels": "a in"}, {"labels": "=b"}, {"fields": "spec.color=red"}, {"fields": "a"}]
)
async def test_a_selector_that_cannot_be_read_is_refused(cluster, home, selector):
    with pytest.raises(BadRequest):
        await cluster.list(CONFIG_MAPS, home, **selector)


async def collect(cluster, resource, home, until, begun=None, **options):
    """Watch until an event satisfies `until`; return the events. `begun` is set when the watch waits for its first event."""
    seen = []
    async with asyncio.timeout(PATIENCE), cluster.watch(resource, home, **options) as events:
        if begun is not None:
            begun.set()
        async for event in events:
            seen.append(event)
            if until(event):
                break
    return seen


def deleted(event):
    return isinstance(event, Change) and event.type == "DELETED"


def types_and_names(events):
    return [(event.type, event.object.metadata.name) for event in events if isinstance(event, Change)]


async def test_a_watch_reports_changes_after_a_version(cluster, home):
    await cluster.create(RESOURCE_CLAIMS, claim("before"), home)
    version = (await cluster.list(RESOURCE_CLAIMS, home)).resource_version
    await cluster.create(RESOURCE_CLAIMS, claim("one"), home)
    await cluster.patch(RESOURCE_CLAIMS, "one", Merge({"metadata": {"labels": {"a": "b"}}}), home)
    await cluster.delete(RESOURCE_CLAIMS, "one", home)
    seen = await collect(cluster, RESOURCE_CLAIMS, home, deleted, resource_version=version)
    assert types_and_names(seen) == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]
    versions = [int(event.resource_version) for event in seen]
    assert versions == sorted(set(versions))


async def test_a_watch_reports_changes_while_it_waits(cluster, home):
    version = (await cluster.list(CONFIG_MAPS, home)).resource_version
    begun = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(
            collect(
                cluster,
                CONFIG_MAPS,
                home,
                lambda event: isinstance(event, Change) and event.object.metadata.name == "z",
                begun,
                resource_version=version,
                labels="mine",
            )
        )
        await begun.wait()
        for name in ("x", "y", "z"):
            await cluster.create(CONFIG_MAPS, config_map(name, metadata={"labels": {"mine": ""}}), home)
    assert types_and_names(watching.result()) == [("ADDED", "x"), ("ADDED", "y"), ("ADDED", "z")]


async def test_a_streamed_list_ends_with_its_mark(cluster, home):
    for name in ("a", "b"):
        await cluster.create(RESOURCE_CLAIMS, claim(name), home)

    def end(event):
        return isinstance(event, Bookmark) and event.initial_end

    seen = await collect(cluster, RESOURCE_CLAIMS, home, end, initial=True)
    assert sorted(types_and_names(seen)) == [("ADDED", "a"), ("ADDED", "b")]
    assert int(seen[-1].resource_version) >= max(int(event.resource_version) for event in seen[:-1])


async def test_leaving_a_selection_is_a_delete_event(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("one", metadata={"labels": {"in": "no"}}), home)
    version = (await cluster.list(CONFIG_MAPS, home)).resource_version
    for value in ("yes", "no"):
        await cluster.patch(CONFIG_MAPS, "one", Merge({"metadata": {"labels": {"in": value}}}), home)
    seen = await collect(cluster, CONFIG_MAPS, home, deleted, resource_version=version, labels="in=yes")
    assert types_and_names(seen) == [("ADDED", "one"), ("DELETED", "one")]


async def test_a_watch_ends_by_itself(cluster, home):
    version = (await cluster.list(RESOURCE_CLAIMS, home)).resource_version
    async with (
        asyncio.timeout(PATIENCE),
        cluster.watch(RESOURCE_CLAIMS, home, resource_version=version, timeout=1) as events,
    ):
        seen = [event async for event in events]
    assert not types_and_names(seen)


async def test_a_watch_can_be_left_and_cancelled(cluster, home):
    version = (await cluster.list(RESOURCE_CLAIMS, home)).resource_version
    begun = asyncio.Event()

    task = asyncio.ensure_future(
        collect(cluster, RESOURCE_CLAIMS, home, lambda _: False, begun, resource_version=version)
    )
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    await cluster.list(RESOURCE_CLAIMS, home)


async def test_a_version_that_was_never_given_out_is_refused(cluster, home):
    with pytest.raises(ApiError):
        await collect(cluster, RESOURCE_CLAIMS, home, lambda _: True, resource_version="nonsense")


async def test_each_object_of_a_list_is_reduced(cluster, home):
    for name in ("a", "b"):
        await cluster.create(RESOURCE_CLAIMS, claim(name), home)
    for kind in (RESOURCE_CLAIMS, RESOURCE_CLAIMS.raw):
        but_one = replace(kind, reduce=lambda obj: None if key(obj)[1] == "a" else obj)
        page = await cluster.list(but_one, home)
        assert [key(item)[1] for item in page.items] == ["b"]
