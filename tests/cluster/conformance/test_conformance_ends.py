"""Deletion: preconditions, finalizers, owners and namespaces. The embedded store and a real API server give equal answers."""

import pytest

from cluster import Merge
from cluster.embedded.embedded import Embedded
from cluster.errors import Conflict, Forbidden, Invalid, NotFound
from cluster.resources import CONFIG_MAPS, NAMESPACES, PODS, RESOURCE_CLAIMS
from tests.cluster.conftest import eventually
from tests.cluster.objects import claim, config_map, owned_by, pod
from tests.limits import PATIENCE


async def gone(cluster, resource, name, home, seconds=PATIENCE):
    """Wait until an object does not exist."""

    async def look():
        try:
            await cluster.get(resource, name, home)
        except NotFound:
            return True
        return False

    return await eventually(look, seconds)


async def finalize(cluster, name, home, finalizers):
    return await cluster.patch(CONFIG_MAPS, name, Merge({"metadata": {"finalizers": finalizers}}), home)


async def collector_knows(cluster, resource, made, home):
    """Wait until the garbage collector knows all existing objects of a kind.

    The collector neither orphans nor waits for objects that it does not know. It receives the objects of a kind in the
    order of their creation, so once it has deleted a new object (the witness), it knows all older objects.
    """
    owner = await cluster.create(CONFIG_MAPS, config_map("owner-of-witness"), home)
    await cluster.create(resource, made("witness", metadata=owned_by(owner)), home)
    await cluster.delete(CONFIG_MAPS, "owner-of-witness", home)
    assert await gone(cluster, resource, "witness", home)


async def test_a_deleted_object_is_gone(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("one"), home)
    await cluster.delete(CONFIG_MAPS, "one", home)
    with pytest.raises(NotFound):
        await cluster.delete(CONFIG_MAPS, "one", home)


@pytest.mark.parametrize("precondition", [{"uid": "another"}, {"resource_version": "1"}])
async def test_a_delete_means_the_object_that_was_seen(cluster, home, precondition):
    made = await cluster.create(CONFIG_MAPS, config_map("one"), home)
    with pytest.raises(Conflict):
        await cluster.delete(CONFIG_MAPS, "one", home, **precondition)
    await cluster.delete(
        CONFIG_MAPS, "one", home, uid=made.metadata.uid, resource_version=made.metadata.resource_version
    )


async def test_a_finalizer_holds_an_object_until_it_is_taken_off(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("one", metadata={"finalizers": ["example.com/a"]}), home)
    await cluster.delete(CONFIG_MAPS, "one", home)
    held = await cluster.get(CONFIG_MAPS, "one", home)
    assert held.metadata.deletion_timestamp
    await finalize(cluster, "one", home, None)
    assert await gone(cluster, CONFIG_MAPS, "one", home)


async def test_no_finalizer_is_added_to_an_object_being_deleted(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("one", metadata={"finalizers": ["example.com/a"]}), home)
    await cluster.delete(CONFIG_MAPS, "one", home)
    with pytest.raises(Invalid, match="finalizers"):
        await finalize(cluster, "one", home, ["example.com/a", "example.com/b"])
    await finalize(cluster, "one", home, None)


async def test_a_second_delete_succeeds_while_a_finalizer_holds(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("one", metadata={"finalizers": ["example.com/a"]}), home)
    await cluster.delete(CONFIG_MAPS, "one", home)
    first = await cluster.get(CONFIG_MAPS, "one", home)
    await cluster.delete(CONFIG_MAPS, "one", home)
    assert await cluster.get(CONFIG_MAPS, "one", home) == first
    await finalize(cluster, "one", home, None)


async def test_deleting_an_owner_deletes_the_objects_it_owns(cluster, home):
    owner = await cluster.create(CONFIG_MAPS, config_map("owner"), home)
    await cluster.create(RESOURCE_CLAIMS, claim("owned", metadata=owned_by(owner)), home)
    await cluster.delete(CONFIG_MAPS, "owner", home)
    assert await gone(cluster, RESOURCE_CLAIMS, "owned", home)


async def test_an_object_with_a_second_owner_stays_with_that_owner(cluster, home):
    owners = [await cluster.create(CONFIG_MAPS, config_map(name), home) for name in ("one", "two")]
    references = [owned_by(owner)["ownerReferences"][0] for owner in owners]
    await cluster.create(RESOURCE_CLAIMS, claim("owned", metadata={"ownerReferences": references}), home)
    await cluster.delete(CONFIG_MAPS, "one", home)

    async def left():
        claim_ = await cluster.get(RESOURCE_CLAIMS, "owned", home)
        return [owner_reference.name for owner_reference in claim_.metadata.owner_references] == ["two"]

    assert await eventually(left)


async def test_orphaned_dependents_stay(cluster, home):
    owner = await cluster.create(CONFIG_MAPS, config_map("owner"), home)
    await cluster.create(RESOURCE_CLAIMS, claim("owned", metadata=owned_by(owner)), home)
    await collector_knows(cluster, RESOURCE_CLAIMS, claim, home)
    await cluster.delete(CONFIG_MAPS, "owner", home, propagation="Orphan")
    assert await gone(cluster, CONFIG_MAPS, "owner", home)
    assert (await cluster.get(RESOURCE_CLAIMS, "owned", home)).metadata.owner_references == ()


async def test_with_foreground_deletion_the_owner_is_deleted_last(cluster, home):
    owner = await cluster.create(CONFIG_MAPS, config_map("owner"), home)
    meta = owned_by(owner, blockOwnerDeletion=True) | {"finalizers": ["example.com/a"]}
    await cluster.create(CONFIG_MAPS, config_map("owned", metadata=meta), home)
    await collector_knows(cluster, CONFIG_MAPS, config_map, home)
    await cluster.delete(CONFIG_MAPS, "owner", home, propagation="Foreground")

    async def marked():
        return (await cluster.get(CONFIG_MAPS, "owned", home)).metadata.deletion_timestamp

    assert await eventually(marked)
    assert (await cluster.get(CONFIG_MAPS, "owner", home)).metadata.deletion_timestamp
    await finalize(cluster, "owned", home, None)
    assert await gone(cluster, CONFIG_MAPS, "owner", home)


async def test_a_pod_that_never_ran_is_gone_at_once(cluster, home):
    await eventually(lambda: cluster.create(PODS, pod("one"), home))
    await cluster.delete(PODS, "one", home)
    assert await gone(cluster, PODS, "one", home)


async def test_deleting_a_namespace_deletes_its_content(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("one", metadata={"finalizers": ["example.com/a"]}), home)
    await cluster.delete(NAMESPACES, home)

    async def terminating():
        namespace = await cluster.get(NAMESPACES, home)
        return namespace.status.phase == "Terminating" and namespace.metadata.deletion_timestamp

    assert await eventually(terminating)
    with pytest.raises(Forbidden, match="terminated") as caught:
        await cluster.create(CONFIG_MAPS, config_map("two"), home)
    assert caught.value.has_cause("NamespaceTerminating")

    async def release():
        await finalize(cluster, "one", home, None)
        return True

    await eventually(release)
    # After any error, such as a kind that was just removed, the namespace controller retries after 5, 10, 20 and 40 seconds.
    assert await gone(cluster, CONFIG_MAPS, "one", home, 150.0)


async def test_a_long_chain_of_owners_is_deleted_completely():
    cluster = Embedded()
    owner = await cluster.create(CONFIG_MAPS, config_map("c-0"), "default")
    for number in range(1, 1500):
        owner = await cluster.create(CONFIG_MAPS, config_map(f"c-{number}", metadata=owned_by(owner)), "default")
    await cluster.delete(CONFIG_MAPS, "c-0", "default")
    assert (await cluster.list(CONFIG_MAPS)).items == ()


async def test_owners_of_each_other_are_deleted_together():
    cluster = Embedded()
    first = await cluster.create(CONFIG_MAPS, config_map("one"), "default")
    second = await cluster.create(CONFIG_MAPS, config_map("two", metadata=owned_by(first)), "default")
    await cluster.patch(CONFIG_MAPS, "one", Merge({"metadata": owned_by(second)}), "default")
    await cluster.delete(CONFIG_MAPS, "two", "default")
    assert (await cluster.list(CONFIG_MAPS)).items == ()


async def test_owners_missing_in_a_snapshot_cause_no_deletion():
    cluster = Embedded()
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "gone", "controller": True}
    cluster.load([pod("one", metadata={"ownerReferences": [reference]})])
    await cluster.create(PODS, pod("two", metadata={"ownerReferences": [reference]}), "default")
    await cluster.delete(PODS, "two", "default")
    assert [item.metadata.name for item in (await cluster.list(PODS)).items] == ["one"]
