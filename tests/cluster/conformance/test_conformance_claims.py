"""Rules for claims, slices and pods: the embedded store and a real API server give equal answers."""

import pytest

from cluster import Merge
from cluster.errors import Conflict, Invalid, NotFound
from cluster.patch import Operations
from cluster.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.cluster.conftest import eventually
from tests.cluster.objects import allocation, claim, pod


async def test_a_change_of_a_claims_spec_is_refused(cluster, namespace):
    await cluster.create(RESOURCE_CLAIMS, claim("one"), namespace)
    request_renaming = Operations(({"op": "replace", "path": "/spec/devices/requests/0/name", "value": "x"},))
    with pytest.raises(Invalid, match="immutable") as caught:
        await cluster.patch(RESOURCE_CLAIMS, "one", request_renaming, namespace)
    assert caught.value.causes[0].field.startswith("spec")


async def test_an_allocation_cannot_change_until_it_is_removed(cluster, namespace):
    async def write(value):
        body = {"status": {"allocation": value}}
        return await cluster.patch(RESOURCE_CLAIMS, "one", Merge(body), namespace, subresource="status")

    await cluster.create(RESOURCE_CLAIMS, claim("one"), namespace)
    await write(allocation())
    with pytest.raises(Invalid, match="cannot be modified") as caught:
        await write({"allocationTimestamp": "2026-01-02T00:00:00Z"})
    assert caught.value.causes[0].field.startswith("status.allocation")
    assert (await write(None)).status.allocation is None
    assert (await write(allocation("elsewhere"))).status.allocation.node_selector


async def test_an_unallocated_claim_cannot_be_reserved(cluster, namespace):
    await cluster.create(RESOURCE_CLAIMS, claim("one"), namespace)
    body = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]}}
    with pytest.raises(Invalid) as caught:
        await cluster.patch(RESOURCE_CLAIMS, "one", Merge(body), namespace, subresource="status")
    (cause,) = caught.value.causes
    assert cause.field == "status.reservedFor"
    assert cause.message == "Forbidden: may not be specified when `allocated` is not set"
    assert cause.reason == "FieldValueForbidden"


async def test_a_claim_being_deleted_accepts_no_new_consumers(cluster, namespace):
    async def reserve(*uids):
        entries = [{"apiGroup": "example.com", "resource": "robots", "name": f"r{uid}", "uid": uid} for uid in uids]
        body = {"status": {"reservedFor": entries}}
        return await cluster.patch(RESOURCE_CLAIMS, "one", Merge(body), namespace, subresource="status")

    await cluster.create(RESOURCE_CLAIMS, claim("one", metadata={"finalizers": ["example.com/kept"]}), namespace)
    await cluster.patch(
        RESOURCE_CLAIMS, "one", Merge({"status": {"allocation": allocation()}}), namespace, subresource="status"
    )
    await reserve("1", "2")
    await cluster.delete(RESOURCE_CLAIMS, "one", namespace)
    with pytest.raises(Invalid) as caught:
        await reserve("1", "3")
    (cause,) = caught.value.causes
    assert cause.field == "status.reservedFor"
    message = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
    assert cause.message == f"Forbidden: {message}"
    assert [entry.uid for entry in (await reserve("1")).status.reserved_for] == ["1"]


async def test_the_driver_of_a_slice_cannot_change(cluster):
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    body = {"metadata": {"generateName": "s-"}, "spec": {"driver": "a.example.com", "pool": pool, "allNodes": True}}
    created = await cluster.create(RESOURCE_SLICES, body)
    with pytest.raises(Invalid, match="immutable"):
        await cluster.patch(RESOURCE_SLICES, created.metadata.name, Merge({"spec": {"driver": "b.example.com"}}))
    await cluster.delete(RESOURCE_SLICES, created.metadata.name)


async def test_a_pod_can_be_bound_only_once(cluster, namespace):
    created = await eventually(lambda: cluster.create(PODS, pod("one"), namespace))
    with pytest.raises(Conflict):
        await cluster.bind("one", namespace, "node-a", uid="another")
    await cluster.bind("one", namespace, "node-a", uid=created.metadata.uid, dry_run=True)
    assert not (await cluster.get(PODS, "one", namespace)).spec.node_name
    await cluster.bind("one", namespace, "node-a", uid=created.metadata.uid)
    bound = await cluster.get(PODS, "one", namespace)
    assert bound.spec.node_name == "node-a"
    assert {condition.type: condition.status for condition in bound.status.conditions}["PodScheduled"] == "True"
    with pytest.raises(Conflict, match="already assigned"):
        await cluster.bind("one", namespace, "node-b")


async def test_a_missing_pod_cannot_be_bound(cluster, namespace):
    with pytest.raises(NotFound):
        await cluster.bind("none", namespace, "node-a")


async def test_only_allocated_devices_have_a_device_status(cluster, namespace):
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "r",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    device_status = {"driver": "gpu.example.com", "pool": "p", "device": "gpu-0", "conditions": [ready]}

    async def write(**status):
        return await cluster.patch(RESOURCE_CLAIMS, "one", Merge({"status": status}), namespace, subresource="status")

    await cluster.create(RESOURCE_CLAIMS, claim("one"), namespace)
    assert (await write(allocation=allocation(), devices=[device_status])).status.devices[0].device == "gpu-0"
    with pytest.raises(Invalid, match="must be an allocated device"):
        await write(devices=[device_status, {**device_status, "device": "gpu-1"}])
