"""Reading and writing: the embedded store and a real API server give equal answers."""

import asyncio

import pytest

from cluster import Apply, Merge
from cluster.errors import AlreadyExists, ApiError, BadRequest, Conflict, Invalid, NotFound
from cluster.patch import Operations
from cluster.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SECRETS,
    Resource,
)
from dra.objects.claim import ResourceClaim
from tests.cluster.conftest import eventually
from tests.cluster.objects import allocation, claim, config_map, pod, template
from tests.limits import PATIENCE


async def test_a_created_object_has_name_uid_time_and_version(cluster, home):
    made = await cluster.create(RESOURCE_CLAIMS, claim(), home)
    meta = made.metadata
    assert isinstance(made, ResourceClaim)
    assert meta.name.startswith("claim-")
    assert len(meta.name) == len("claim-") + 5
    assert meta.namespace == home
    assert meta.uid
    assert meta.resource_version.isdigit()
    assert meta.creation_timestamp.endswith("Z")


async def test_a_long_generated_name_is_shortened_to_fit(cluster, home):
    made = await cluster.create(CONFIG_MAPS, config_map(metadata={"generateName": "a" * 80}), home)
    assert len(made.metadata.name) == 63


async def test_a_created_object_is_read_back_typed_and_plain(cluster, home):
    made = await cluster.create(RESOURCE_CLAIMS, claim("one"), home)
    assert await cluster.get(RESOURCE_CLAIMS, "one", home) == made
    plain = await cluster.get(RESOURCE_CLAIMS.raw, "one", home)
    assert plain["kind"] == "ResourceClaim"
    assert plain["apiVersion"] == "resource.k8s.io/v1"
    assert plain["metadata"]["uid"] == made.metadata.uid


async def test_a_typed_object_of_ours_can_be_created(cluster, home):
    original = await cluster.create(RESOURCE_CLAIMS, claim("one"), home, dry_run=True)
    copy = ResourceClaim(metadata=type(original.metadata)(name="two"), spec=original.spec)
    assert (await cluster.create(RESOURCE_CLAIMS, copy, home)).spec == original.spec


async def test_the_server_fills_in_count_and_mode_of_a_request(cluster, home):
    exactly = (await cluster.create(RESOURCE_CLAIMS, claim("one"), home)).spec.devices.requests[0].exactly
    assert (exactly.allocation_mode, exactly.count) == ("ExactCount", 1)


async def test_a_template_gets_the_same_defaults_as_a_claim(cluster, home):
    made = await cluster.create(RESOURCE_CLAIM_TEMPLATES, template("one"), home)
    exactly = made.spec.spec.devices.requests[0].exactly
    assert (exactly.allocation_mode, exactly.count) == ("ExactCount", 1)


async def test_limits_become_requests_where_none_are_said(cluster, home):
    limited = {
        "name": "main",
        "image": "i",
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}},
    }
    made = await eventually(lambda: cluster.create(PODS.raw, pod("one", containers=[limited]), home, dry_run=True))
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


async def test_text_of_a_secret_is_kept_as_base64(cluster, home):
    body = {"metadata": {"name": "s"}, "stringData": {"a": "b"}}
    made = await cluster.create(SECRETS, body, home)
    assert made.data == {"a": "Yg=="}
    assert made.type == "Opaque"


async def test_a_namespace_is_labelled_with_its_name(cluster, home):
    found = await cluster.get(NAMESPACES, home)
    assert found.metadata.labels["kubernetes.io/metadata.name"] == home
    assert found.status.phase == "Active"
    without = Merge({"metadata": {"labels": {"kubernetes.io/metadata.name": None}}})
    kept = await cluster.patch(NAMESPACES, home, without)
    assert kept.metadata.labels["kubernetes.io/metadata.name"] == home


async def test_a_name_is_taken_only_once(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("one"), home)
    with pytest.raises(AlreadyExists) as caught:
        await cluster.create(CONFIG_MAPS, config_map("one"), home)
    assert (caught.value.status, caught.value.reason) == (409, "AlreadyExists")


async def test_a_namespace_must_exist_before_what_is_in_it(cluster):
    with pytest.raises(NotFound, match="namespaces"):
        await cluster.create(CONFIG_MAPS, config_map("one"), "nowhere-at-all")


async def test_the_namespaces_of_object_and_request_must_agree(cluster, home):
    with pytest.raises(BadRequest, match="namespace"):
        await cluster.create(CONFIG_MAPS, config_map("one", metadata={"namespace": "other"}), home)


async def test_a_new_object_must_not_say_a_version(cluster, home):
    with pytest.raises(ApiError, match="resourceVersion should not be set"):  # the real one says so with a 500
        await cluster.create(CONFIG_MAPS, config_map("one", metadata={"resourceVersion": "1"}), home)


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "a" * 254, "sla/sh"])
async def test_a_name_must_be_a_dns_name(cluster, home, name):
    with pytest.raises(Invalid) as caught:
        await cluster.create(CONFIG_MAPS, config_map(name), home)
    assert caught.value.causes[0].field == "metadata.name"


async def test_an_object_of_another_kind_is_refused(cluster, home):
    with pytest.raises(BadRequest):
        await cluster.create(RESOURCE_CLAIMS, pod("one"), home)


async def test_an_unknown_object_is_not_found(cluster, home):
    with pytest.raises(NotFound) as caught:
        await cluster.get(RESOURCE_CLAIMS, "none", home)
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")
    assert '"none" not found' in str(caught.value)


async def test_an_unknown_resource_is_not_found(cluster, home):
    nothing = Resource("nothing.example.com", "v1", "nothings", "Nothing", dict)
    with pytest.raises(NotFound, match="could not find the requested resource"):
        await cluster.list(nothing, home)


async def test_a_dry_run_answers_and_leaves_nothing(cluster, home):
    made = await cluster.create(CONFIG_MAPS, config_map("one"), home, dry_run=True)
    assert made.metadata.uid
    with pytest.raises(NotFound):
        await cluster.get(CONFIG_MAPS, "one", home)


async def test_a_dry_run_patch_or_delete_changes_nothing(cluster, home):
    made = await cluster.create(CONFIG_MAPS, config_map("one"), home)
    changed = await cluster.patch(CONFIG_MAPS, "one", Merge({"data": {"a": "b"}}), home, dry_run=True)
    await cluster.delete(CONFIG_MAPS, "one", home, dry_run=True)
    assert changed.data == {"a": "b"}
    assert await cluster.get(CONFIG_MAPS, "one", home) == made


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


async def test_a_generation_counts_changes_of_the_spec(cluster):
    made = await cluster.create(DEVICE_CLASSES, {"metadata": {"generateName": "c-"}, "spec": {}})
    name = made.metadata.name
    labelled = await cluster.patch(DEVICE_CLASSES, name, Merge({"metadata": {"labels": {"a": "b"}}}))
    selectors = [{"cel": {"expression": "true"}}]
    selecting = await cluster.patch(DEVICE_CLASSES, name, Merge({"spec": {"selectors": selectors}}))
    await cluster.delete(DEVICE_CLASSES, name)
    assert [one.metadata.generation for one in (made, labelled, selecting)] == [1, 1, 2]


async def test_of_many_writers_each_one_counts(cluster, home):
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


async def test_apply_creates_what_is_not_there(cluster, home):
    made = await cluster.patch(CONFIG_MAPS, "one", owned({"a": "1"}), home)
    assert made.data == {"a": "1"}
    assert made.metadata.uid


async def test_apply_removes_what_its_manager_no_longer_wants(cluster, home):
    await cluster.create(CONFIG_MAPS, config_map("one", data={"theirs": "0"}), home)
    await cluster.patch(CONFIG_MAPS, "one", owned({"a": "1", "b": "2"}), home)
    changed = await cluster.patch(CONFIG_MAPS, "one", owned({"b": "2"}), home)
    assert changed.data == {"theirs": "0", "b": "2"}


async def test_apply_keeps_what_another_manager_wants_too(cluster, home):
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
    # The first manager lost the field, so it may now drop it without taking it away.
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


async def test_a_deployment_is_carried_whole(cluster, home):
    labels = {"app": "x"}
    body = {
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }
    made = await cluster.create(DEPLOYMENTS, body, home)
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == "i"
    assert made["metadata"]["generation"] == 1


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


async def test_the_server_says_what_it_is_and_can_do(cluster):
    server = await cluster.server()
    assert server.version.startswith("v1.")
    assert server.minor >= 37
    assert server.serves("resource.k8s.io/v1")
    assert not server.serves("resource.k8s.io/v9")
    assert server.gates["DRAConsumableCapacity"] is True
    assert server.gates["DRADeviceCompatibilityGroups"] is True
    assert server.gates["DRANodeAllocatableResources"] is True


def bad_request(**request):
    return claim("bad", spec={"devices": {"requests": [{"name": "r"} | request]}})


@pytest.mark.parametrize(
    ("resource", "body", "field"),
    [
        (RESOURCE_CLAIMS, bad_request(exactly={}), "spec.devices.requests[0].exactly.deviceClassName"),
        (RESOURCE_CLAIMS, bad_request(), "spec.devices.requests[0]"),
        (RESOURCE_CLAIMS, bad_request(exactly={"deviceClassName": "c", "count": -1}), "spec.devices.requests[0].exactly.count"),
        (RESOURCE_CLAIM_TEMPLATES, template("bad") | {"spec": {"spec": bad_request()["spec"]}}, "spec.spec.devices.requests[0]"),
        (
            DEVICE_CLASSES,
            {"metadata": {"name": "bad"}, "spec": {"selectors": [{"cel": {"expression": "device.nothing"}}]}},
            "spec.selectors[0].cel.expression",
        ),
        (DEVICE_TAINT_RULES, {"metadata": {"name": "bad"}, "spec": {"taint": {"key": "a", "effect": "No"}}}, "spec.taint.effect"),
    ],
)  # fmt: skip
async def test_an_object_violating_its_schema_is_refused_as_invalid(cluster, home, resource, body, field):
    with pytest.raises(Invalid) as caught:
        await cluster.create(resource, body, home if resource.namespaced else None)
    assert field in [cause.field for cause in caught.value.causes]


@pytest.mark.parametrize(
    "wrong",
    [
        {"metadata": ["name"]},
        {"metadata": {"name": "bad", "labels": {"a": 1}}},
        {"metadata": {"name": "bad"}, "spec": []},
        {"metadata": {"name": "bad"}, "spec": {"devices": {"requests": {"name": "r"}}}},
        {"metadata": {"name": "bad"}, "spec": {"devices": {"requests": [{"name": 7}]}}},
    ],
)
async def test_an_object_of_the_wrong_shape_is_a_bad_request(cluster, home, wrong):
    with pytest.raises(BadRequest):
        await cluster.create(RESOURCE_CLAIMS, wrong, home)


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
