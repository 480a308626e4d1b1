"""Reading and writing: the embedded store and a real API server give equal answers."""

import pytest

from cluster import Merge
from cluster.errors import AlreadyExists, ApiError, BadRequest, Invalid, NotFound
from cluster.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    Resource,
)
from dra.objects.claim import ResourceClaim
from tests.cluster.conftest import eventually
from tests.cluster.objects import claim, config_map, pod, template


async def test_a_created_object_has_name_uid_time_and_version(cluster, namespace):
    created = await cluster.create(RESOURCE_CLAIMS, claim(), namespace)
    meta = created.metadata
    assert isinstance(created, ResourceClaim)
    assert meta.name.startswith("claim-")
    assert len(meta.name) == len("claim-") + 5
    assert meta.namespace == namespace
    assert meta.uid
    assert meta.resource_version.isdigit()
    assert meta.creation_timestamp.endswith("Z")


async def test_a_long_generated_name_is_shortened_to_fit(cluster, namespace):
    created = await cluster.create(CONFIG_MAPS, config_map(metadata={"generateName": "a" * 80}), namespace)
    assert len(created.metadata.name) == 63


async def test_a_created_object_is_read_back_typed_and_plain(cluster, namespace):
    created = await cluster.create(RESOURCE_CLAIMS, claim("one"), namespace)
    assert await cluster.get(RESOURCE_CLAIMS, "one", namespace) == created
    plain = await cluster.get(RESOURCE_CLAIMS.raw, "one", namespace)
    assert plain["kind"] == "ResourceClaim"
    assert plain["apiVersion"] == "resource.k8s.io/v1"
    assert plain["metadata"]["uid"] == created.metadata.uid


async def test_a_typed_object_can_be_created(cluster, namespace):
    original = await cluster.create(RESOURCE_CLAIMS, claim("one"), namespace, dry_run=True)
    copy = ResourceClaim(metadata=type(original.metadata)(name="two"), spec=original.spec)
    assert (await cluster.create(RESOURCE_CLAIMS, copy, namespace)).spec == original.spec


async def test_the_server_fills_in_count_and_mode_of_a_request(cluster, namespace):
    exactly = (await cluster.create(RESOURCE_CLAIMS, claim("one"), namespace)).spec.devices.requests[0].exactly
    assert (exactly.allocation_mode, exactly.count) == ("ExactCount", 1)


async def test_the_server_fills_in_the_same_defaults_for_a_template(cluster, namespace):
    created = await cluster.create(RESOURCE_CLAIM_TEMPLATES, template("one"), namespace)
    exactly = created.spec.spec.devices.requests[0].exactly
    assert (exactly.allocation_mode, exactly.count) == ("ExactCount", 1)


async def test_limits_become_requests_where_none_are_given(cluster, namespace):
    container = {
        "name": "main",
        "image": "i",
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}},
    }
    created = await eventually(
        lambda: cluster.create(PODS.raw, pod("one", containers=[container]), namespace, dry_run=True)
    )
    assert created["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


async def test_a_namespace_always_has_a_label_with_its_name(cluster, namespace):
    stored_namespace = await cluster.get(NAMESPACES, namespace)
    assert stored_namespace.metadata.labels["kubernetes.io/metadata.name"] == namespace
    assert stored_namespace.status.phase == "Active"
    label_removal = Merge({"metadata": {"labels": {"kubernetes.io/metadata.name": None}}})
    patched = await cluster.patch(NAMESPACES, namespace, label_removal)
    assert patched.metadata.labels["kubernetes.io/metadata.name"] == namespace


async def test_a_second_object_of_the_same_name_is_refused(cluster, namespace):
    await cluster.create(CONFIG_MAPS, config_map("one"), namespace)
    with pytest.raises(AlreadyExists) as caught:
        await cluster.create(CONFIG_MAPS, config_map("one"), namespace)
    assert (caught.value.status, caught.value.reason) == (409, "AlreadyExists")


async def test_an_object_in_a_missing_namespace_is_refused(cluster):
    with pytest.raises(NotFound, match="namespaces"):
        await cluster.create(CONFIG_MAPS, config_map("one"), "nowhere-at-all")


async def test_the_namespaces_of_object_and_request_must_agree(cluster, namespace):
    with pytest.raises(BadRequest, match="namespace"):
        await cluster.create(CONFIG_MAPS, config_map("one", metadata={"namespace": "other"}), namespace)


async def test_a_new_object_with_a_resource_version_is_refused(cluster, namespace):
    with pytest.raises(ApiError, match="resourceVersion should not be set"):  # the API server answers with status 500
        await cluster.create(CONFIG_MAPS, config_map("one", metadata={"resourceVersion": "1"}), namespace)


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "a" * 254, "sla/sh"])
async def test_a_name_that_is_no_dns_name_is_refused(cluster, namespace, name):
    with pytest.raises(Invalid) as caught:
        await cluster.create(CONFIG_MAPS, config_map(name), namespace)
    assert caught.value.causes[0].field == "metadata.name"


async def test_an_object_of_another_kind_is_refused(cluster, namespace):
    with pytest.raises(BadRequest):
        await cluster.create(RESOURCE_CLAIMS, pod("one"), namespace)


async def test_an_unknown_object_is_not_found(cluster, namespace):
    with pytest.raises(NotFound) as caught:
        await cluster.get(RESOURCE_CLAIMS, "none", namespace)
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")
    assert '"none" not found' in str(caught.value)


async def test_an_unknown_resource_is_not_found(cluster, namespace):
    unknown_resource = Resource("nothing.example.com", "v1", "nothings", "Nothing", dict)
    with pytest.raises(NotFound, match="could not find the requested resource"):
        await cluster.list(unknown_resource, namespace)


async def test_a_dry_run_answers_and_stores_nothing(cluster, namespace):
    created = await cluster.create(CONFIG_MAPS, config_map("one"), namespace, dry_run=True)
    assert created.metadata.uid
    with pytest.raises(NotFound):
        await cluster.get(CONFIG_MAPS, "one", namespace)


async def test_a_dry_run_patch_or_delete_changes_nothing(cluster, namespace):
    created = await cluster.create(CONFIG_MAPS, config_map("one"), namespace)
    patched = await cluster.patch(CONFIG_MAPS, "one", Merge({"data": {"a": "b"}}), namespace, dry_run=True)
    await cluster.delete(CONFIG_MAPS, "one", namespace, dry_run=True)
    assert patched.data == {"a": "b"}
    assert await cluster.get(CONFIG_MAPS, "one", namespace) == created


async def test_a_generation_counts_changes_of_the_spec(cluster):
    created = await cluster.create(DEVICE_CLASSES, {"metadata": {"generateName": "c-"}, "spec": {}})
    name = created.metadata.name
    labelled = await cluster.patch(DEVICE_CLASSES, name, Merge({"metadata": {"labels": {"a": "b"}}}))
    selectors = [{"cel": {"expression": "true"}}]
    selected = await cluster.patch(DEVICE_CLASSES, name, Merge({"spec": {"selectors": selectors}}))
    await cluster.delete(DEVICE_CLASSES, name)
    assert [class_.metadata.generation for class_ in (created, labelled, selected)] == [1, 1, 2]


async def test_a_deployment_is_stored_with_all_fields(cluster, namespace):
    labels = {"app": "x"}
    body = {
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }
    created = await cluster.create(DEPLOYMENTS, body, namespace)
    assert created["spec"]["template"]["spec"]["containers"][0]["image"] == "i"
    assert created["metadata"]["generation"] == 1


async def test_the_server_reports_its_version_and_gates(cluster):
    server = await cluster.server()
    assert server.version.startswith("v1.")
    assert server.minor >= 37
    assert server.serves("resource.k8s.io/v1")
    assert not server.serves("resource.k8s.io/v9")
    assert server.gates["DRAConsumableCapacity"] is True
    assert server.gates["DRADeviceCompatibilityGroups"] is True
    assert server.gates["DRANodeAllocatableResources"] is True


def claim_with_request(**request):
    return claim("bad", spec={"devices": {"requests": [{"name": "r"} | request]}})


@pytest.mark.parametrize(
    ("resource", "body", "field"),
    [
        (RESOURCE_CLAIMS, claim_with_request(exactly={}), "spec.devices.requests[0].exactly.deviceClassName"),
        (RESOURCE_CLAIMS, claim_with_request(), "spec.devices.requests[0]"),
        (RESOURCE_CLAIMS, claim_with_request(exactly={"deviceClassName": "c", "count": -1}), "spec.devices.requests[0].exactly.count"),
        (RESOURCE_CLAIM_TEMPLATES, template("bad") | {"spec": {"spec": claim_with_request()["spec"]}}, "spec.spec.devices.requests[0]"),
        (
            DEVICE_CLASSES,
            {"metadata": {"name": "bad"}, "spec": {"selectors": [{"cel": {"expression": "device.nothing"}}]}},
            "spec.selectors[0].cel.expression",
        ),
        (DEVICE_TAINT_RULES, {"metadata": {"name": "bad"}, "spec": {"taint": {"key": "a", "effect": "No"}}}, "spec.taint.effect"),
    ],
)  # fmt: skip
async def test_an_object_that_fails_validation_is_refused_as_invalid(cluster, namespace, resource, body, field):
    with pytest.raises(Invalid) as caught:
        await cluster.create(resource, body, namespace if resource.namespaced else None)
    assert field in [cause.field for cause in caught.value.causes]


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": ["name"]},
        {"metadata": {"name": "bad", "labels": {"a": 1}}},
        {"metadata": {"name": "bad"}, "spec": []},
        {"metadata": {"name": "bad"}, "spec": {"devices": {"requests": {"name": "r"}}}},
        {"metadata": {"name": "bad"}, "spec": {"devices": {"requests": [{"name": 7}]}}},
    ],
)
async def test_an_object_with_wrong_types_is_a_bad_request(cluster, namespace, body):
    with pytest.raises(BadRequest):
        await cluster.create(RESOURCE_CLAIMS, body, namespace)
