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


async def test_a_merge_patch_sets_replaces_and_removes(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("one", data={"a": "1", "b": "2"}), home)
    changed = await cluster.patch(CONFIG_MAPS, "one", Merge({"data": {"a": None, "b": "3", "c": "4"}}), home)
    assert changed.data == {"b": "3", "c": "4"}


async def test_a_patch_that_changes_nothing_writes_nothing(cluster, home):
    made = await cluster.create(CONFIG_MAPS, config_map("one", data={"a": "1"}), home)
    same = await cluster.patch(CONFIG_MAPS, "one", Merge({"data": {"a": "1"}}), home)
    assert same.metadata.resource_version == made.metadata.resource_version


async def test_a_patch_made_from_an_old_reading_is_a_conflict(cluster, home):
    made = await cluster.create(CONFIG_MAPS, config_map("one"), home)
    await cluster.patch(CONFIG_MAPS, "one", Merge({"data": {"a": "1"}}), home)
    stale = Merge({"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"a": "2"}})
    with pytest.raises(Conflict) as caught:
        await cluster.patch(CONFIG_MAPS, "one", stale, home)
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    assert (await cluster.get(CONFIG_MAPS, "one", home)).data == {"a": "1"}


async def test_a_patch_for_another_object_of_that_name_is_refused(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("one"), home)
    with pytest.raises(Invalid, match=r"metadata\.uid"):
        await cluster.patch(CONFIG_MAPS, "one", Merge({"metadata": {"uid": "another"}, "data": {"a": "1"}}), home)


async def test_json_patch_operations_apply_in_order(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("one", data={"a": "1"}), home)
    operations = (
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "move", "from": "/data/a", "path": "/data/x~1y"},
        {"op": "add", "path": "/data/b", "value": "2"},
        {"op": "replace", "path": "/data/b", "value": "3"},
        {"op": "copy", "from": "/data/b", "path": "/data/c"},
        {"op": "remove", "path": "/data/b"},
        {"op": "move", "from": "/data/x~1y", "path": "/data/d"},
    )
    changed = await cluster.patch(CONFIG_MAPS, "one", Operations(operations), home)
    assert changed.data == {"c": "3", "d": "1"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": "2"},
        {"op": "remove", "path": "/data/none"},
        {"op": "replace", "path": "/nothing/here", "value": 1},
    ],
    ids=["test-fails", "remove-nothing", "replace-nothing"],
)
async def test_json_patch_is_all_or_nothing(cluster, home, operation):
    made = await cluster.create(CONFIG_MAPS, config_map("one", data={"a": "1"}), home)
    with pytest.raises(Invalid):
        await cluster.patch(CONFIG_MAPS, "one", Operations(({"op": "remove", "path": "/data/a"}, operation)), home)
    assert await cluster.get(CONFIG_MAPS, "one", home) == made


async def test_a_patch_of_nothing_is_not_found(cluster, home):
    with pytest.raises(NotFound):
        await cluster.patch(CONFIG_MAPS, "none", Merge({"data": {}}), home)


async def test_a_patch_cannot_rename(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("one"), home)
    with pytest.raises((BadRequest, Invalid)):
        await cluster.patch(CONFIG_MAPS, "one", Merge({"metadata": {"name": "two"}}), home)


async def test_a_status_is_not_written_with_the_object(cluster, home):
    made = await cluster.create(RESOURCE_CLAIMS, claim("one", status={"allocation": allocation()}), home)
    assert made.status.allocation is None
    same = await cluster.patch(RESOURCE_CLAIMS, "one", Merge({"status": {"allocation": allocation()}}), home)
    assert same.status.allocation is None


async def test_a_status_write_changes_the_status_only(cluster, home):
    await cluster.create(RESOURCE_CLAIMS, claim("one"), home)
    body = {"metadata": {"labels": {"a": "b"}}, "spec": None, "status": {"allocation": allocation()}}
    changed = await cluster.patch(RESOURCE_CLAIMS, "one", Merge(body), home, subresource="status")
    assert changed.status.allocation.devices.results[0].device == "gpu-0"
    assert changed.status.allocation.allocation_timestamp == "2026-01-01T00:00:00Z"
    assert changed.metadata.labels == {}
    assert changed.spec.devices.requests


async def test_a_kind_without_a_status_has_no_status_subresource(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("one"), home)
    with pytest.raises(NotFound):
        await cluster.patch(CONFIG_MAPS, "one", Merge({"data": {"a": "b"}}), home, subresource="status")


async def test_every_concurrent_write_takes_effect(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("counter", data={"n": "0"}), home)

    async def count():
        while True:
            seen = await cluster.get(CONFIG_MAPS, "counter", home)
            version = {"resourceVersion": seen.metadata.resource_version}
            body = {"metadata": version, "data": {"n": str(int(seen.data["n"]) + 1)}}
            await asyncio.sleep(0)
            try:
                return await cluster.patch(CONFIG_MAPS, "counter", Merge(body), home)
            except Conflict:
                continue

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(count())
    assert (await cluster.get(CONFIG_MAPS, "counter", home)).data["n"] == "8"


def owned(data, manager="one"):
    return Apply({"apiVersion": "v1", "kind": "ConfigMap", "data": data}, manager)


async def test_apply_creates_a_missing_object(cluster, home):
    made = await cluster.patch(CONFIG_MAPS, "one", owned({"a": "1"}), home)
    assert made.data == {"a": "1"}
    assert made.metadata.uid


async def test_apply_removes_fields_its_manager_no_longer_sets(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("one", data={"theirs": "0"}), home)
    await cluster.patch(CONFIG_MAPS, "one", owned({"a": "1", "b": "2"}), home)
    changed = await cluster.patch(CONFIG_MAPS, "one", owned({"b": "2"}), home)
    assert changed.data == {"theirs": "0", "b": "2"}


async def test_apply_keeps_fields_another_manager_also_sets(cluster, home):
    await cluster.patch(CONFIG_MAPS, "one", owned({"a": "1"}), home)
    await cluster.patch(CONFIG_MAPS, "one", owned({"a": "1", "b": "2"}, "two"), home)
    changed = await cluster.patch(CONFIG_MAPS, "one", owned({"c": "3"}), home)
    assert changed.data == {"a": "1", "b": "2", "c": "3"}


async def test_two_managers_with_two_values_are_a_conflict_unless_forced(cluster, home):
    await cluster.patch(CONFIG_MAPS, "one", owned({"a": "1"}), home)
    with pytest.raises(Conflict, match='conflict with "one"'):
        await cluster.patch(CONFIG_MAPS, "one", owned({"a": "2"}, "two"), home)
    forced = Apply(owned({"a": "2"}).body, "two", force=True)
    assert (await cluster.patch(CONFIG_MAPS, "one", forced, home)).data == {"a": "2"}
    # The first manager lost `a` to the second, so an apply of the first without `a` does not remove `a`.
    assert (await cluster.patch(CONFIG_MAPS, "one", owned({"x": "1"}), home)).data == {"a": "2", "x": "1"}


async def test_applying_the_same_again_writes_nothing(cluster, home):
    made = await cluster.patch(CONFIG_MAPS, "one", owned({"a": "1"}), home)
    same = await cluster.patch(CONFIG_MAPS, "one", owned({"a": "1"}), home)
    assert same.metadata.resource_version == made.metadata.resource_version


async def test_managers_share_a_status_list_by_its_key(cluster, home):
    claims = [{"name": name, "resourceClaimTemplateName": "t"} for name in "ab"]
    await eventually(lambda: cluster.create(PODS, pod("one", resourceClaims=claims), home))

    async def say(manager, name, claim):
        entry = {"name": name, "resourceClaimName": claim}
        body = {"apiVersion": "v1", "kind": "Pod", "status": {"resourceClaimStatuses": [entry]}}
        return await cluster.patch(PODS, "one", Apply(body, manager), home, subresource="status")

    await say("one", "a", "claim-a")
    both = await say("two", "b", "claim-b")
    assert {
        resource_claim_status.name: resource_claim_status.resource_claim_name
        for resource_claim_status in both.status.resource_claim_statuses
    } == {
        "a": "claim-a",
        "b": "claim-b",
    }
    nothing = Apply({"apiVersion": "v1", "kind": "Pod", "status": {}}, "two")
    rest = await cluster.patch(PODS, "one", nothing, home, subresource="status")
    assert {
        resource_claim_status.name: resource_claim_status.resource_claim_name
        for resource_claim_status in rest.status.resource_claim_statuses
    } == {"a": "claim-a"}
