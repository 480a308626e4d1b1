"""An object that is nested too deeply does not hide other objects."""

import asyncio
import json
import uuid

import msgspec
import pytest

from cluster import Apply
from cluster.embedded.embedded import Embedded
from cluster.errors import ApiError, BadRequest
from cluster.informers import Informer
from cluster.kubernetes import Kubernetes, answers
from cluster.kubernetes.answers import elements, members
from cluster.protocol import Unreadable
from cluster.resources import CONFIG_MAPS, PODS, RESOURCE_CLAIMS, resource_of
from dra.wire import WireError
from tests.cluster.conftest import eventually
from tests.cluster.hostile import deep_json, nested, odd_objects
from tests.cluster.informers.running import running
from tests.cluster.objects import claim, config_map, encoded_item
from tests.limits import PATIENCE


async def test_the_store_refuses_a_deeply_nested_object():
    cluster = Embedded()
    deep = nested(20_000)  # the limit differs between versions of Python
    with pytest.raises(BadRequest, match="nested too deeply"):
        await cluster.create(CONFIG_MAPS, config_map("a", nested=deep), "default")
    with pytest.raises(BadRequest, match="nested too deeply"):
        cluster.load([config_map("a", nested=deep)])
    assert not (await cluster.list(CONFIG_MAPS, "default")).items


async def test_the_store_accepts_an_odd_object_or_explains_the_refusal():
    """Creating, applying or loading an object raises only errors of the API."""
    statuses = []
    for obj in odd_objects():
        resource = resource_of(obj) if isinstance(obj.get("kind"), str) else None
        if resource is None:
            continue
        namespace = "default" if resource.namespaced else None
        cluster = Embedded()
        for attempt in (
            lambda obj=obj, to=resource, at=namespace, cluster=cluster: cluster.create(to.raw, obj, at),
            lambda obj=obj, to=resource, at=namespace, cluster=cluster: cluster.patch(
                to.raw, "q", Apply(obj, "me"), at
            ),
            lambda obj=obj, cluster=cluster: asyncio.to_thread(cluster.load, [obj]),
        ):
            try:
                await attempt()
            except ApiError as error:
                statuses.append(error.status)
            else:
                statuses.append(200)
    assert {200, 400, 422} <= set(statuses)


@pytest.mark.parametrize("levels", [900, 1000, 1100, 9000])
@pytest.mark.parametrize("read_as", [PODS, PODS.raw], ids=["typed", "plain JSON"])
def test_a_deep_object_hides_no_other_object_of_a_list(levels, read_as):
    items = b",".join([encoded_item("a"), encoded_item("deep", deep_json(levels)), encoded_item("b")])
    data = b'{"kind":"PodList","metadata":{"resourceVersion":"9","continue":"more"},"items":[' + items + b"]}"
    page = answers.page(data, read_as)
    names_read = {*[name_of(item) for item in page.items], *[broken.name for broken in page.unreadable]}
    assert names_read == {"a", "deep", "b"}
    assert (page.resource_version, page.more) == ("9", "more")


def name_of(obj):
    return obj["metadata"]["name"] if isinstance(obj, dict) else obj.metadata.name


def test_an_event_with_a_deep_object_is_unreadable():
    event = answers.line(b'{"type":"MODIFIED","object":' + encoded_item("deep", deep_json(20_000)) + b"}", PODS)
    assert event == Unreadable("default", "deep", "5", "nested too deeply to be read")
    event = answers.line(b'{"type":"DELETED","object":' + encoded_item("deep", deep_json(20_000)) + b"}", PODS)
    assert event.deleted


@pytest.mark.parametrize("value", [{}, {"a": 1}, {"a,b": ["]", '"', "\\"], "c": {"d": [{}]}, "": None}, {"x": "{[,:"}])
def test_splitting_an_object_yields_all_its_members(value):
    parts = members(msgspec.json.encode(value))
    assert {name: msgspec.json.decode(part) for name, part in parts.items()} == value


@pytest.mark.parametrize("value", [[], [1], [1, "a,b]", {"c": [2, 3]}, [], None]])
def test_splitting_an_array_yields_all_its_elements(value):
    assert [msgspec.json.decode(part) for part in elements(msgspec.json.encode(value))] == value


@pytest.mark.parametrize("data", [b"", b"7", b"{", b'{"a"}', b'{"a":1}}', b'{"a":[1}', b"{]", b'{"a":1}{"b":2}'])
def test_invalid_json_is_not_split_into_members(data):
    with pytest.raises(WireError):
        members(data)


@pytest.mark.real
@pytest.mark.parametrize("stream", [True, False], ids=["streamed list", "list in pages"])
@pytest.mark.parametrize("read_as", [RESOURCE_CLAIMS, RESOURCE_CLAIMS.raw], ids=["typed", "plain JSON"])
async def test_an_informer_continues_despite_a_deep_claim_on_a_server(control_plane, tmp_path, stream, read_as):
    """A claim whose driver parameters are nested 4,800 levels deep passes the server's validation."""
    namespace = f"hostile-{uuid.uuid4().hex[:8]}"
    control_plane.kubectl("create", "namespace", namespace)
    body = json.dumps(claim("deep"))
    config = '{"opaque":{"driver":"gpu.example.com","parameters":{"a":' + "[" * 4800 + "]" * 4800 + "}}}"
    body = body.replace('"devices": {', '"devices": {"config": [' + config + "], ")
    file = tmp_path / "deep.json"
    file.write_text(body)
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    cluster = Kubernetes.connect(kubeconfig=str(control_plane.kubeconfig))
    informer = Informer(cluster, read_as, namespace, stream=stream)
    received_names = set()
    informer.listen(lambda batch: received_names.update(delta.key[1] for delta in batch.deltas))
    try:
        await asyncio.to_thread(control_plane.kubectl, "create", "--raw", path, "-f", str(file))
        await cluster.create(RESOURCE_CLAIMS, claim("before"), namespace)
        async with running(informer):
            assert await informer.wait_for_sync(PATIENCE)
            assert informer.unreadable.keys() == {(namespace, "deep")}
            assert "nested too deeply" in str(informer.quarantine)
            await asyncio.to_thread(
                control_plane.kubectl, "annotate", "resourceclaim", "deep", "-n", namespace, "changed=yes"
            )
            await cluster.create(RESOURCE_CLAIMS, claim("after"), namespace)
            await eventually(lambda: asyncio.sleep(0, {"before", "after"} <= received_names))
            await asyncio.to_thread(control_plane.kubectl, "delete", "resourceclaim", "deep", "-n", namespace)
            await eventually(lambda: asyncio.sleep(0, not informer.unreadable))
            assert not informer.quarantine.objects
        assert informer.error == ""
    finally:
        await cluster.close()
        control_plane.kubectl("delete", "namespace", namespace, "--wait=false")
