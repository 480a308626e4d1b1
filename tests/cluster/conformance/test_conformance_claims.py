"""Rules for claims, slices, pods and taints: the embedded store and a real API server give equal answers."""

import pytest

from cluster import Merge
from cluster.errors import Conflict, Invalid, NotFound
from cluster.patch import Operations
from cluster.resources import (
    DEVICE_TAINT_RULES,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tests.cluster.conftest import eventually
from tests.cluster.objects import allocation, claim, pod, template


async def test_the_spec_of_a_claim_never_changes(cluster, home):
    await cluster.create(RESOURCE_CLAIMS, claim("one"), home)
    other = Operations(({"op": "replace", "path": "/spec/devices/requests/0/name", "value": "x"},))
    with pytest.raises(Invalid, match="immutable") as caught:
        await cluster.patch(RESOURCE_CLAIMS, "one", other, home)
    assert caught.value.causes[0].field.startswith("spec")


async def test_an_allocation_is_written_once_and_may_be_taken_back(cluster, home):
    async def write(allocation):
        body = {"status": {"allocation": allocation}}
        return await cluster.patch(RESOURCE_CLAIMS, "one", Merge(body), home, subresource="status")

    await cluster.create(RESOURCE_CLAIMS, claim("one"), home)
    await write(allocation())
    with pytest.raises(Invalid, match="cannot be modified") as caught:
        await write({"allocationTimestamp": "2026-01-02T00:00:00Z"})
    assert caught.value.causes[0].field.startswith("status.allocation")
    assert (await write(None)).status.allocation is None
    assert (await write(allocation("elsewhere"))).status.allocation.node_selector


async def test_a_claim_is_not_reserved_before_it_is_allocated(cluster, home):
    await cluster.create(RESOURCE_CLAIMS, claim("one"), home)
    body = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]}}
    with pytest.raises(Invalid) as caught:
        await cluster.patch(RESOURCE_CLAIMS, "one", Merge(body), home, subresource="status")
    (cause,) = caught.value.causes
    assert cause.field == "status.reservedFor"
    assert cause.message == "Forbidden: may not be specified when `allocated` is not set"
    assert cause.reason == "FieldValueForbidden"


async def test_a_claim_being_deleted_accepts_no_new_consumers(cluster, home):
    async def reserve(*uids):
        entries = [{"apiGroup": "example.com", "resource": "robots", "name": f"r{uid}", "uid": uid} for uid in uids]
        body = {"status": {"reservedFor": entries}}
        return await cluster.patch(RESOURCE_CLAIMS, "one", Merge(body), home, subresource="status")

    await cluster.create(RESOURCE_CLAIMS, claim("one", metadata={"finalizers": ["example.com/kept"]}), home)
    await cluster.patch(
        RESOURCE_CLAIMS, "one", Merge({"status": {"allocation": allocation()}}), home, subresource="status"
    )
    await reserve("1", "2")
    await cluster.delete(RESOURCE_CLAIMS, "one", home)
    with pytest.raises(Invalid) as caught:
        await reserve("1", "3")
    (cause,) = caught.value.causes
    assert cause.field == "status.reservedFor"
    message = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
    assert cause.message == f"Forbidden: {message}"
    assert [entry.uid for entry in (await reserve("1")).status.reserved_for] == ["1"]


async def test_a_slice_stays_with_its_driver(cluster):
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    body = {"metadata": {"generateName": "s-"}, "spec": {"driver": "a.example.com", "pool": pool, "allNodes": True}}
    made = await cluster.create(RESOURCE_SLICES, body)
    with pytest.raises(Invalid, match="immutable"):
        await cluster.patch(RESOURCE_SLICES, made.metadata.name, Merge({"spec": {"driver": "b.example.com"}}))
    await cluster.delete(RESOURCE_SLICES, made.metadata.name)


async def test_the_resources_of_a_running_container_do_not_change(cluster, home):
    await eventually(lambda: cluster.create(PODS, pod("one"), home))
    claims = {"op": "add", "path": "/spec/resourceClaims", "value": [{"name": "a", "resourceClaimName": "b"}]}
    with pytest.raises(Invalid, match="pod updates may not change fields"):
        await cluster.patch(PODS, "one", Operations((claims,)), home)
    image = {"op": "replace", "path": "/spec/containers/0/image", "value": "other"}
    changed = await cluster.patch(PODS.raw, "one", Operations((image,)), home)
    assert changed["spec"]["containers"][0]["image"] == "other"


async def test_a_pod_is_bound_once(cluster, home):
    made = await eventually(lambda: cluster.create(PODS, pod("one"), home))
    with pytest.raises(Conflict):
        await cluster.bind("one", home, "node-a", uid="another")
    await cluster.bind("one", home, "node-a", uid=made.metadata.uid, dry_run=True)
    assert not (await cluster.get(PODS, "one", home)).spec.node_name
    await cluster.bind("one", home, "node-a", uid=made.metadata.uid)
    bound = await cluster.get(PODS, "one", home)
    assert bound.spec.node_name == "node-a"
    assert {condition.type: condition.status for condition in bound.status.conditions}["PodScheduled"] == "True"
    with pytest.raises(Conflict, match="already assigned"):
        await cluster.bind("one", home, "node-b")


async def test_a_pod_that_is_not_there_is_not_bound(cluster, home):
    with pytest.raises(NotFound):
        await cluster.bind("none", home, "node-a")


async def test_administrative_access_needs_a_marked_namespace(cluster, home):
    request = {"name": "gpu", "exactly": {"deviceClassName": "c", "adminAccess": True}}
    asking = claim("admin", spec={"devices": {"requests": [request]}})
    with pytest.raises(Invalid, match="admin access to devices requires") as caught:
        await cluster.create(RESOURCE_CLAIMS, asking, home)
    assert caught.value.causes[0].field == "spec.devices.requests[0].adminAccess"
    with pytest.raises(Invalid, match="admin access to devices requires"):
        await cluster.create(RESOURCE_CLAIM_TEMPLATES, template("admin") | {"spec": {"spec": asking["spec"]}}, home)
    given = allocation()
    given["devices"]["results"][0]["adminAccess"] = True
    patch = Merge({"status": {"allocation": given}})
    await cluster.create(RESOURCE_CLAIMS, claim("one"), home)
    with pytest.raises(Invalid, match="admin access to devices requires"):
        await cluster.patch(RESOURCE_CLAIMS, "one", patch, home, subresource="status")
    label = {"resource.kubernetes.io/admin-access": "true"}
    await cluster.patch(NAMESPACES, home, Merge({"metadata": {"labels": label}}))
    await eventually(lambda: cluster.create(RESOURCE_CLAIMS, asking, home))
    assert await cluster.patch(RESOURCE_CLAIMS, "admin", patch, home, subresource="status")


async def test_statuses_of_devices_go_with_their_allocation(cluster, home):
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "r",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    device = {"driver": "gpu.example.com", "pool": "p", "device": "gpu-0", "conditions": [ready]}

    async def write(**status):
        return await cluster.patch(RESOURCE_CLAIMS, "one", Merge({"status": status}), home, subresource="status")

    await cluster.create(RESOURCE_CLAIMS, claim("one"), home)
    assert (await write(allocation=allocation(), devices=[device])).status.devices[0].device == "gpu-0"
    with pytest.raises(Invalid, match="must be an allocated device"):
        await write(devices=[device, {**device, "device": "gpu-1"}])
    assert (await write(allocation=None)).status.devices == ()


async def test_a_taint_has_the_time_its_effect_began(cluster):
    taint = {"key": "example.com/a", "effect": "NoSchedule"}
    rule = {"metadata": {"generateName": "r-"}, "spec": {"deviceSelector": {"driver": "a.example.com"}, "taint": taint}}
    made = await cluster.create(DEVICE_TAINT_RULES, rule)
    assert made.spec.taint.time_added.endswith("Z")
    early = Merge({"spec": {"taint": {"timeAdded": "2026-01-01T00:00:00Z"}}})
    await cluster.patch(DEVICE_TAINT_RULES, made.metadata.name, early)
    other = await cluster.patch(
        DEVICE_TAINT_RULES, made.metadata.name, Merge({"spec": {"taint": {"effect": "NoExecute"}}})
    )
    await cluster.delete(DEVICE_TAINT_RULES, made.metadata.name)
    assert other.spec.taint.time_added > "2026-01-01T00:00:00Z"
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "a.example.com", "pool": pool, "allNodes": True, "devices": [{"name": "d", "taints": [taint]}]}
    sliced = await cluster.create(RESOURCE_SLICES, {"metadata": {"generateName": "s-"}, "spec": spec}, dry_run=True)
    assert sliced.spec.devices[0].taints[0].time_added.endswith("Z")
