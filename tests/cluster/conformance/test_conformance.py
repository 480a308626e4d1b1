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
    SECRETS,
    Resource,
)
from dra.objects.claim import ResourceClaim
from tests.cluster.conftest import eventually
from tests.cluster.objects import claim, config_map, pod, template


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


async def test_limits_become_requests_where_none_are_given(cluster, home):
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
    namespace = await cluster.get(NAMESPACES, home)
    assert namespace.metadata.labels["kubernetes.io/metadata.name"] == home
    assert namespace.status.phase == "Active"
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


async def test_a_new_object_must_not_have_a_version(cluster, home):
    with pytest.raises(ApiError, match="resourceVersion should not be set"):  # the API server answers with status 500
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


async def test_a_generation_counts_changes_of_the_spec(cluster):
    made = await cluster.create(DEVICE_CLASSES, {"metadata": {"generateName": "c-"}, "spec": {}})
    name = made.metadata.name
    labelled = await cluster.patch(DEVICE_CLASSES, name, Merge({"metadata": {"labels": {"a": "b"}}}))
    selectors = [{"cel": {"expression": "true"}}]
    selecting = await cluster.patch(DEVICE_CLASSES, name, Merge({"spec": {"selectors": selectors}}))
    await cluster.delete(DEVICE_CLASSES, name)
    assert [class_.metadata.generation for class_ in (made, labelled, selecting)] == [1, 1, 2]


async def test_a_deployment_is_stored_with_all_fields(cluster, home):
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


async def test_the_server_reports_its_version_and_gates(cluster):
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
