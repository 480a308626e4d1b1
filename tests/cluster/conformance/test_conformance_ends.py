"""Deletion: preconditions, finalizers and owners. The embedded store and a real API server give equal answers."""

import pytest

from cluster import Merge
from cluster.embedded.embedded import Embedded
from cluster.errors import Conflict, Invalid, NotFound
from cluster.resources import CONFIG_MAPS, NAMESPACES, PODS, RESOURCE_CLAIMS
from tests.cluster.conftest import eventually
from tests.cluster.objects import claim, config_map, owned_by, pod
from tests.limits import PATIENCE


async def wait_until_gone(cluster, resource, name, namespace, seconds=PATIENCE):
    """Wait until an object does not exist."""

    async def object_is_gone():
        try:
            await cluster.get(resource, name, namespace)
        except NotFound:
            return True
        return False

    return await eventually(object_is_gone, seconds)


async def set_finalizers(cluster, name, namespace, finalizers):
    return await cluster.patch(CONFIG_MAPS, name, Merge({"metadata": {"finalizers": finalizers}}), namespace)


async def test_a_deleted_object_is_gone(cluster, namespace):
    await cluster.create(CONFIG_MAPS, config_map("one"), namespace)
    await cluster.delete(CONFIG_MAPS, "one", namespace)
    with pytest.raises(NotFound):
        await cluster.delete(CONFIG_MAPS, "one", namespace)


@pytest.mark.parametrize("precondition", [{"uid": "another"}, {"resource_version": "1"}])
async def test_a_delete_with_another_uid_or_version_is_refused(cluster, namespace, precondition):
    created = await cluster.create(CONFIG_MAPS, config_map("one"), namespace)
    with pytest.raises(Conflict):
        await cluster.delete(CONFIG_MAPS, "one", namespace, **precondition)
    await cluster.delete(
        CONFIG_MAPS, "one", namespace, uid=created.metadata.uid, resource_version=created.metadata.resource_version
    )


async def test_a_deleted_object_stays_until_its_finalizer_is_removed(cluster, namespace):
    await cluster.create(CONFIG_MAPS, config_map("one", metadata={"finalizers": ["example.com/a"]}), namespace)
    await cluster.delete(CONFIG_MAPS, "one", namespace)
    deleted = await cluster.get(CONFIG_MAPS, "one", namespace)
    assert deleted.metadata.deletion_timestamp
    await set_finalizers(cluster, "one", namespace, None)
    assert await wait_until_gone(cluster, CONFIG_MAPS, "one", namespace)


async def test_an_object_being_deleted_accepts_no_new_finalizer(cluster, namespace):
    await cluster.create(CONFIG_MAPS, config_map("one", metadata={"finalizers": ["example.com/a"]}), namespace)
    await cluster.delete(CONFIG_MAPS, "one", namespace)
    with pytest.raises(Invalid, match="finalizers"):
        await set_finalizers(cluster, "one", namespace, ["example.com/a", "example.com/b"])
    await set_finalizers(cluster, "one", namespace, None)


async def test_a_second_delete_while_a_finalizer_remains_changes_nothing(cluster, namespace):
    await cluster.create(CONFIG_MAPS, config_map("one", metadata={"finalizers": ["example.com/a"]}), namespace)
    await cluster.delete(CONFIG_MAPS, "one", namespace)
    after_first_delete = await cluster.get(CONFIG_MAPS, "one", namespace)
    await cluster.delete(CONFIG_MAPS, "one", namespace)
    assert await cluster.get(CONFIG_MAPS, "one", namespace) == after_first_delete
    await set_finalizers(cluster, "one", namespace, None)


async def test_deleting_an_owner_deletes_the_objects_it_owns(cluster, namespace):
    owner = await cluster.create(CONFIG_MAPS, config_map("owner"), namespace)
    await cluster.create(RESOURCE_CLAIMS, claim("owned", metadata=owned_by(owner)), namespace)
    await cluster.delete(CONFIG_MAPS, "owner", namespace)
    assert await wait_until_gone(cluster, RESOURCE_CLAIMS, "owned", namespace)


async def test_an_object_created_after_the_end_of_its_owner_is_deleted(cluster, namespace):
    owner = await cluster.create(CONFIG_MAPS, config_map("owner"), namespace)
    await cluster.delete(CONFIG_MAPS, "owner", namespace)
    await cluster.create(RESOURCE_CLAIMS, claim("owned", metadata=owned_by(owner)), namespace)
    assert await wait_until_gone(cluster, RESOURCE_CLAIMS, "owned", namespace)


async def test_an_object_outlives_the_first_of_its_two_owners(cluster, namespace):
    owners = [await cluster.create(CONFIG_MAPS, config_map(name), namespace) for name in ("one", "two")]
    references = [owned_by(owner)["ownerReferences"][0] for owner in owners]
    await cluster.create(RESOURCE_CLAIMS, claim("owned", metadata={"ownerReferences": references}), namespace)
    await cluster.delete(CONFIG_MAPS, "one", namespace)

    async def only_second_owner_is_left():
        owned_claim = await cluster.get(RESOURCE_CLAIMS, "owned", namespace)
        return [owner_reference.name for owner_reference in owned_claim.metadata.owner_references] == ["two"]

    assert await eventually(only_second_owner_is_left)


async def test_a_deleted_pod_that_never_ran_disappears(cluster, namespace):
    await eventually(lambda: cluster.create(PODS, pod("one"), namespace))
    await cluster.delete(PODS, "one", namespace)
    assert await wait_until_gone(cluster, PODS, "one", namespace)


async def test_deleting_a_namespace_deletes_its_content(cluster, namespace):
    await cluster.create(CONFIG_MAPS, config_map("one"), namespace)
    await cluster.delete(NAMESPACES, namespace)
    # After any error, such as a kind that was just removed, the namespace controller retries after 5, 10, 20 and 40 seconds.
    assert await wait_until_gone(cluster, CONFIG_MAPS, "one", namespace, 150.0)


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


async def test_a_loaded_object_stays_though_its_owner_is_missing():
    cluster = Embedded()
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "gone", "controller": True}
    cluster.load([pod("one", metadata={"ownerReferences": [reference]})])
    await cluster.create(PODS, pod("two", metadata={"ownerReferences": [reference]}), "default")
    await cluster.delete(PODS, "two", "default")
    assert [item.metadata.name for item in (await cluster.list(PODS)).items] == ["one"]
