"""Patches and server-side apply: the embedded store and a real API server give equal answers."""

import asyncio

import pytest

from cluster import Apply, Merge
from cluster.errors import BadRequest, Conflict, Invalid, NotFound
from cluster.patch import Operations
from cluster.resources import CONFIG_MAPS, PODS, RESOURCE_CLAIMS
from tests.cluster.conftest import eventually
from tests.cluster.objects import allocation, claim, config_map, pod
from tests.limits import PATIENCE


async def test_a_merge_patch_sets_replaces_and_removes_fields(cluster, namespace):
    await cluster.create(CONFIG_MAPS, config_map("one", data={"a": "1", "b": "2"}), namespace)
    patched = await cluster.patch(CONFIG_MAPS, "one", Merge({"data": {"a": None, "b": "3", "c": "4"}}), namespace)
    assert patched.data == {"b": "3", "c": "4"}


async def test_a_patch_that_changes_nothing_writes_nothing(cluster, namespace):
    created = await cluster.create(CONFIG_MAPS, config_map("one", data={"a": "1"}), namespace)
    patched = await cluster.patch(CONFIG_MAPS, "one", Merge({"data": {"a": "1"}}), namespace)
    assert patched.metadata.resource_version == created.metadata.resource_version


async def test_a_patch_with_an_old_version_is_a_conflict(cluster, namespace):
    created = await cluster.create(CONFIG_MAPS, config_map("one"), namespace)
    await cluster.patch(CONFIG_MAPS, "one", Merge({"data": {"a": "1"}}), namespace)
    stale_patch = Merge({"metadata": {"resourceVersion": created.metadata.resource_version}, "data": {"a": "2"}})
    with pytest.raises(Conflict) as caught:
        await cluster.patch(CONFIG_MAPS, "one", stale_patch, namespace)
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    assert (await cluster.get(CONFIG_MAPS, "one", namespace)).data == {"a": "1"}


async def test_a_patch_with_another_uid_is_refused(cluster, namespace):
    await cluster.create(CONFIG_MAPS, config_map("one"), namespace)
    with pytest.raises(Invalid, match=r"metadata\.uid"):
        await cluster.patch(CONFIG_MAPS, "one", Merge({"metadata": {"uid": "another"}, "data": {"a": "1"}}), namespace)


async def test_json_patch_operations_apply_in_order(cluster, namespace):
    await cluster.create(CONFIG_MAPS, config_map("one", data={"a": "1"}), namespace)
    operations = (
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "move", "from": "/data/a", "path": "/data/x~1y"},
        {"op": "add", "path": "/data/b", "value": "2"},
        {"op": "replace", "path": "/data/b", "value": "3"},
        {"op": "copy", "from": "/data/b", "path": "/data/c"},
        {"op": "remove", "path": "/data/b"},
        {"op": "move", "from": "/data/x~1y", "path": "/data/d"},
    )
    patched = await cluster.patch(CONFIG_MAPS, "one", Operations(operations), namespace)
    assert patched.data == {"c": "3", "d": "1"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": "2"},
        {"op": "remove", "path": "/data/none"},
        {"op": "replace", "path": "/nothing/here", "value": 1},
    ],
    ids=["test fails", "removed field is missing", "replaced field is missing"],
)
async def test_a_failed_operation_cancels_the_whole_json_patch(cluster, namespace, operation):
    created = await cluster.create(CONFIG_MAPS, config_map("one", data={"a": "1"}), namespace)
    with pytest.raises(Invalid):
        await cluster.patch(CONFIG_MAPS, "one", Operations(({"op": "remove", "path": "/data/a"}, operation)), namespace)
    assert await cluster.get(CONFIG_MAPS, "one", namespace) == created


async def test_a_patch_of_a_missing_object_is_not_found(cluster, namespace):
    with pytest.raises(NotFound):
        await cluster.patch(CONFIG_MAPS, "none", Merge({"data": {}}), namespace)


async def test_a_patch_cannot_rename_an_object(cluster, namespace):
    await cluster.create(CONFIG_MAPS, config_map("one"), namespace)
    with pytest.raises((BadRequest, Invalid)):
        await cluster.patch(CONFIG_MAPS, "one", Merge({"metadata": {"name": "two"}}), namespace)


async def test_a_write_of_an_object_ignores_its_status(cluster, namespace):
    created = await cluster.create(RESOURCE_CLAIMS, claim("one", status={"allocation": allocation()}), namespace)
    assert created.status.allocation is None
    patched = await cluster.patch(RESOURCE_CLAIMS, "one", Merge({"status": {"allocation": allocation()}}), namespace)
    assert patched.status.allocation is None


async def test_a_status_write_changes_the_status_only(cluster, namespace):
    await cluster.create(RESOURCE_CLAIMS, claim("one"), namespace)
    body = {"metadata": {"labels": {"a": "b"}}, "spec": None, "status": {"allocation": allocation()}}
    patched = await cluster.patch(RESOURCE_CLAIMS, "one", Merge(body), namespace, subresource="status")
    assert patched.status.allocation.devices.results[0].device == "gpu-0"
    assert patched.status.allocation.allocation_timestamp == "2026-01-01T00:00:00Z"
    assert patched.metadata.labels == {}
    assert patched.spec.devices.requests


async def test_a_kind_without_a_status_has_no_status_subresource(cluster, namespace):
    await cluster.create(CONFIG_MAPS, config_map("one"), namespace)
    with pytest.raises(NotFound):
        await cluster.patch(CONFIG_MAPS, "one", Merge({"data": {"a": "b"}}), namespace, subresource="status")


async def test_every_concurrent_write_takes_effect(cluster, namespace):
    await cluster.create(CONFIG_MAPS, config_map("counter", data={"n": "0"}), namespace)

    async def increment():
        while True:
            counter = await cluster.get(CONFIG_MAPS, "counter", namespace)
            version = {"resourceVersion": counter.metadata.resource_version}
            body = {"metadata": version, "data": {"n": str(int(counter.data["n"]) + 1)}}
            await asyncio.sleep(0)
            try:
                return await cluster.patch(CONFIG_MAPS, "counter", Merge(body), namespace)
            except Conflict:
                continue

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(increment())
    assert (await cluster.get(CONFIG_MAPS, "counter", namespace)).data["n"] == "8"


def apply_of_data(data, manager="one"):
    """Return a server-side apply of a ConfigMap with this data."""
    return Apply({"apiVersion": "v1", "kind": "ConfigMap", "data": data}, manager)


async def test_apply_creates_a_missing_object(cluster, namespace):
    created = await cluster.patch(CONFIG_MAPS, "one", apply_of_data({"a": "1"}), namespace)
    assert created.data == {"a": "1"}
    assert created.metadata.uid


async def test_apply_keeps_the_fields_of_others(cluster, namespace):
    await cluster.create(CONFIG_MAPS, config_map("one", data={"theirs": "0"}), namespace)
    patched = await cluster.patch(CONFIG_MAPS, "one", apply_of_data({"a": "1", "b": "2"}), namespace)
    assert patched.data == {"theirs": "0", "a": "1", "b": "2"}


async def test_applying_the_same_data_again_writes_nothing(cluster, namespace):
    created = await cluster.patch(CONFIG_MAPS, "one", apply_of_data({"a": "1"}), namespace)
    applied_again = await cluster.patch(CONFIG_MAPS, "one", apply_of_data({"a": "1"}), namespace)
    assert applied_again.metadata.resource_version == created.metadata.resource_version


async def test_managers_own_items_of_a_status_list_by_name(cluster, namespace):
    claims = [{"name": name, "resourceClaimTemplateName": "t"} for name in "ab"]
    await eventually(lambda: cluster.create(PODS, pod("one", resourceClaims=claims), namespace))

    async def apply_status(manager, name, claim_name):
        entry = {"name": name, "resourceClaimName": claim_name}
        body = {"apiVersion": "v1", "kind": "Pod", "status": {"resourceClaimStatuses": [entry]}}
        return await cluster.patch(PODS, "one", Apply(body, manager), namespace, subresource="status")

    await apply_status("one", "a", "claim-a")
    with_both_items = await apply_status("two", "b", "claim-b")
    assert {
        resource_claim_status.name: resource_claim_status.resource_claim_name
        for resource_claim_status in with_both_items.status.resource_claim_statuses
    } == {
        "a": "claim-a",
        "b": "claim-b",
    }
