"""A cache has bounded memory: objects without room are counted by owner, and displace no objects of other owners.

Instead of a pod or claim without room, the cache keeps an outline: a small object with the fields that decisions need.
"""

import asyncio
import logging

import pytest
from msgspec.structs import replace

from cluster import Merge
from cluster.embedded.embedded import Embedded
from cluster.informers import Informer, Quarantine
from cluster.informers.allotment import FLOOR, MIB, Allotment
from cluster.outlines import NOT_KEPT, outline_of_claim, outline_of_pod
from cluster.patch import Operations
from cluster.resources import NAMESPACES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, owner
from dra.footprint import footprint
from dra.objects import Node, Pod, ResourceClaim, ResourceSlice
from dra.wire import convert
from tests.cluster.conftest import eventually
from tests.cluster.informers.running import QUICK_BACKOFF, running
from tests.cluster.objects import claim, template

TEMPLATES_WITH_8_MIB = replace(RESOURCE_CLAIM_TEMPLATES, room=8 * MIB)
CLAIMS_WITH_4_MIB = replace(RESOURCE_CLAIMS, room=4 * MIB)


def test_every_owner_has_a_guaranteed_share():
    room = Allotment(8 * MIB)
    assert all(room.take(("a", str(number)), "a", MIB) for number in range(4))
    assert not room.take(("a", "4"), "a", MIB)  # one owner gets at most half
    assert all(room.take(("b", str(number)), "b", MIB) for number in range(4))
    assert not room.take(("c", "0"), "c", 2 * MIB)
    assert room.take(("c", "1"), "c", FLOOR)  # an owner always gets this much


def test_a_changed_object_takes_its_room_once():
    room = Allotment(4 * MIB)
    for _ in range(10):
        assert room.take(("a", "x"), "a", 2 * MIB)
    assert not room.take(("a", "y"), "a", MIB)
    room.leave(("a", "x"))
    assert room.take(("a", "y"), "a", 2 * MIB)


def test_an_object_that_outgrows_the_room_is_dropped():
    room = Allotment(4 * MIB)
    assert room.take(("a", "x"), "a", MIB)
    assert not room.take(("a", "x"), "a", 3 * MIB)
    assert not room.has(("a", "x"))


def test_objects_without_room_are_counted_by_owner():
    room = Allotment(4 * MIB)
    room.put_aside("a", "x", MIB)
    assert "2 objects are not kept, the last one y of 2.00 MiB" in room.put_aside("a", "y", 2 * MIB)
    assert not room.take_back("a")
    assert room.take_back("a")
    assert not room.take_back("a")
    assert room.aside == {}


def test_only_a_removed_object_frees_room():
    room = Allotment(4 * MIB)
    assert room.take(("a", "x"), "a", 2 * MIB)
    room.put_aside("a", "y", MIB)
    assert not room.is_freed
    for _ in range(9):  # updates of the object free nothing
        assert room.take(("a", "x"), "a", 2 * MIB)
    assert not room.is_freed
    room.leave(("a", "x"))
    assert room.is_freed


@pytest.mark.parametrize(
    ("obj", "expected_owner"),
    [
        (convert({"metadata": {"name": "p", "namespace": "n"}}, Pod), "n"),
        (convert({"metadata": {"name": "node-1"}}, Node), "node-1"),
        (convert({"metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "node-1", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}, ResourceSlice), "node-1"),
        (convert({"metadata": {"name": "s"}, "spec": {"driver": "d", "allNodes": True, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}, ResourceSlice), ""),
    ],
)  # fmt: skip
def test_an_objects_owner_is_its_namespace_its_node_or_empty(obj, expected_owner):
    assert owner(obj) == expected_owner


async def create_templates(cluster, namespace, count):
    await cluster.create(NAMESPACES.raw, {"metadata": {"name": namespace}})
    for number in range(count):
        body = template(f"t{number}")
        body["metadata"]["annotations"] = {"note": "x" * (200 * 1024)}
        await cluster.create(RESOURCE_CLAIM_TEMPLATES.raw, body, namespace)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed list", "list in pages"])
@pytest.mark.parametrize("is_filled_before", [True, False], ids=["filled before the list", "filled after the list"])
async def test_a_tenant_fills_only_its_own_share_of_the_cache(stream, is_filled_before, caplog):
    cluster = Embedded()
    quarantine = Quarantine()
    cache = Informer(cluster, TEMPLATES_WITH_8_MIB, stream=stream, backoff=QUICK_BACKOFF, quarantine=quarantine)
    if is_filled_before:
        await create_templates(cluster, "hostile", 40)
    with caplog.at_level(logging.ERROR):
        async with running(cache):
            assert await cache.wait_for_sync(10)
            if not is_filled_before:
                await create_templates(cluster, "hostile", 40)
            await create_templates(cluster, "other", 2)
            await eventually(lambda: asyncio.sleep(0, ("other", "t1") in cache.objects))
            cached_keys = [key for key in cache.objects if key[0] == "hostile"]
            assert 15 < len(cached_keys) < 25  # templates of 200 KiB in half of 8 MiB
            assert ("hostile", "") in cache.set_aside
            assert cache.incomplete
            text = str(quarantine)
            assert text.startswith("resourceclaimtemplates.resource.k8s.io hostile: ")
            assert f"{40 - len(cached_keys)} objects are not kept" in text
            for number in range(40):
                await cluster.delete(RESOURCE_CLAIM_TEMPLATES, f"t{number}", "hostile")
            await eventually(lambda: asyncio.sleep(0, not cache.incomplete))
            assert str(quarantine) == ""
    assert len([record for record in caplog.records if "set aside" in record.getMessage()]) == 1


async def test_objects_without_room_are_cached_when_room_is_free():
    cluster = Embedded()
    await create_templates(cluster, "hostile", 40)
    cache = Informer(cluster, TEMPLATES_WITH_8_MIB, backoff=QUICK_BACKOFF, watch_seconds=1.0, reread=0.0)
    async with running(cache):
        assert await cache.wait_for_sync(10)
        aside = {f"t{number}" for number in range(40)} - {name for _, name in cache.objects}
        assert aside
        for _, name in tuple(cache.objects):
            await cluster.delete(RESOURCE_CLAIM_TEMPLATES, name, "hostile")
        await eventually(lambda: asyncio.sleep(0, {name for _, name in cache.objects} == aside))
        assert not cache.incomplete


ALLOCATED_STATUS = {
    "allocation": {
        "devices": {
            "results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "g"}],
            "config": [{"source": "FromClaim", "opaque": {"driver": "d", "parameters": {"a": [{}] * 1000}}}],
        }
    },
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
}


async def test_a_claim_without_room_keeps_its_allocation():
    cluster = Embedded()
    cache = Informer(cluster, CLAIMS_WITH_4_MIB, backoff=QUICK_BACKOFF)
    many_labels = {f"label-{number}": "" for number in range(40_000)}
    allocated_claim = claim("held", metadata={"labels": many_labels})
    free_claim = claim("free", metadata={"labels": many_labels})
    await cluster.create(RESOURCE_CLAIMS.raw, allocated_claim, "default")
    await cluster.create(RESOURCE_CLAIMS.raw, free_claim, "default")
    await cluster.patch(RESOURCE_CLAIMS, "held", Merge({"status": ALLOCATED_STATUS}), "default", subresource="status")
    async with running(cache):
        assert await cache.wait_for_sync(10)
        claim_ = cache.objects["default", "held"]
        assert [result.device for result in claim_.status.allocation.devices.results] == ["g"]
        assert [consumer.uid for consumer in claim_.status.reserved_for] == ["u"]
        assert footprint(claim_) < 20_000
        assert [request.name for request in cache.objects["default", "free"].spec.devices.requests] == [NOT_KEPT]
        assert cache.incomplete
        await cluster.patch(
            RESOURCE_CLAIMS, "free", Operations(({"op": "remove", "path": "/metadata/labels"},)), "default"
        )
        await eventually(lambda: asyncio.sleep(0, [r.name for r in cache.objects["default", "free"].spec.devices.requests] != [NOT_KEPT]))  # fmt: skip


def many_entries(count):
    return {f"k{number}": "v" * 300 for number in range(count)}


def test_the_outline_of_a_large_object_is_small():
    references = [{"apiVersion": "v" * 9000, "kind": "K" * 9000, "name": "n" * 9000, "uid": "u"}] * 1000
    metadata = {"name": "x", "labels": many_entries(5000), "annotations": many_entries(5000), "ownerReferences": references, "finalizers": ["a/b" * 50] * 5000}  # fmt: skip
    amounts = {f"e.x/{number}": "1" for number in range(5000)}
    containers = [{"name": "c", "env": [{"name": "E"}] * 5000, "resources": {"limits": amounts, "requests": amounts}}]
    spec = {
        "containers": containers,
        "tolerations": [{}] * 5000,
        "affinity": many_entries(5000),
        "nodeSelector": many_entries(5000),
    }
    outline = outline_of_pod(convert({"metadata": metadata, "spec": spec}, Pod))
    assert footprint(outline) < 64 * 1024
    assert [gate.name for gate in outline.spec.scheduling_gates] == [NOT_KEPT]
    spec = {"devices": {"config": ALLOCATED_STATUS["allocation"]["devices"]["config"] * 100}}
    assert footprint(outline_of_claim(convert({"metadata": metadata, "spec": spec}, ResourceClaim))) < 64 * 1024


def test_an_outlined_pod_keeps_its_node_and_claims():
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    body = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"nodeName": "node", "resourceClaims": claims}, "status": {"phase": "Running"}}  # fmt: skip
    outline = outline_of_pod(convert(body, Pod))
    assert (outline.metadata.uid, outline.spec.node_name, outline.status.phase) == ("u", "node", "Running")
    assert outline.spec.resource_claims[0].resource_claim_name == "c"
    assert not outline.spec.scheduling_gates
