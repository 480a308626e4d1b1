"""`drawbridge uninstall` deletes the installation, keeps and names what others use, and is idempotent."""

import pytest

from cli.uninstall import execute, find
from cluster import resources
from tests.allocator.service.sidecar import DRIVER, claim, device_class, loaded, node, pod
from tests.cli.running import empty_directory, run, run_json  # noqa: F401  a fixture
from webhook import names
from webhook.claims import taint_rule, template

DRAWBRIDGE_LABELS = {"app.kubernetes.io/name": "drawbridge"}
SYSTEM_NAMESPACE = "drawbridge-system"


def obj(version, kind, name, namespace="", labels=DRAWBRIDGE_LABELS, **fields):
    meta = {"name": name, "labels": labels} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": meta, **fields}


def installed_objects(namespace=SYSTEM_NAMESPACE):
    """The objects of an installation in this namespace."""
    return [
        obj("v1", "Namespace", namespace),
        obj("apps/v1", "Deployment", "drawbridge-webhook", namespace, spec={}),
        obj("v1", "ConfigMap", "drawbridge", namespace),
        obj("v1", "ConfigMap", "kube-root-ca.crt", namespace, labels={}),
        obj("coordination.k8s.io/v1", "Lease", "drawbridge", namespace, labels={}, spec={}),
    ]


def shared_objects():
    """The objects that all installations in a cluster share."""
    definition = obj("apiextensions.k8s.io/v1", "CustomResourceDefinition", "devicequotas.drawbridge.dev", spec={})
    return [obj("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "drawbridge", webhooks=[]), definition]  # fmt: skip


def template_for(name):
    spec = {"spec": claim(name)["spec"]}
    return template.object_of(template.name_of(spec), spec, "default")


def translated_pod(name, has_claim):
    """A pod that gets a claim from a template. Without `has_claim`, the pod still waits for the claim."""
    entry = {"name": "c", "resourceClaimTemplateName": template_for("a")["metadata"]["name"]}
    status = {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "x"}]} if has_claim else {}
    return pod(name, resourceClaims=[entry], status=status)


QUOTA = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceQuota", "metadata": {"name": "q", "namespace": "a"}, "spec": {}}  # fmt: skip


async def uninstall(cluster, namespace="", *, kinds=False):
    """Uninstall drawbridge, with `kinds` also its CRDs and their objects; return descriptions of the deleted and of the kept objects."""
    plan = await find(cluster, namespace, kinds=kinds)
    return [step.description for step in plan.steps if await execute(cluster, step)], plan.left


async def test_uninstall_deletes_webhooks_first_and_leaves_nothing():
    labelled_namespace = obj("v1", "Namespace", "team", labels={"drawbridge.dev/mode": "enforce", "own": "kept"})
    labelled_node = node("n0")
    labelled_node["metadata"]["labels"] = {"drawbridge.dev/driver": "reference", "own": "kept"}
    cluster = loaded(
        *installed_objects(),
        *shared_objects(),
        labelled_namespace,
        labelled_node,
        taint_rule(DRIVER),
        template_for("a"),
        device_class(),
    )
    deleted, kept = await uninstall(cluster)
    assert deleted[0] == "MutatingWebhookConfiguration drawbridge"
    assert deleted[-1] == f"Namespace {SYSTEM_NAMESPACE}"
    assert kept == ()
    for kind, name in ((resources.NAMESPACES, "team"), (resources.NODES, "n0")):
        labels = (await cluster.get(kind, name)).metadata.labels
        assert [key for key in labels if "kubernetes.io" not in key] == ["own"]
    assert (await cluster.list(resources.DEVICE_TAINT_RULES)).items == ()
    assert (await cluster.list(resources.RESOURCE_CLAIM_TEMPLATES)).items == ()
    assert (await cluster.list(resources.DEVICE_CLASSES)).items != ()
    assert await uninstall(cluster) == ([], ())


@pytest.mark.parametrize("executed_steps", range(7))
async def test_a_second_uninstall_finishes_an_interrupted_uninstall(executed_steps):
    cluster = loaded(*installed_objects(), *shared_objects(), taint_rule(DRIVER), template_for("a"))
    all_steps = [step.description for step in (await find(cluster)).steps]
    assert len(all_steps) == 8
    for step in (await find(cluster)).steps[:executed_steps]:
        await execute(cluster, step)
    assert all_steps[:executed_steps] + (await uninstall(cluster))[0] == all_steps


OBJECTS_IN_USE = [
    ([QUOTA], "CustomResourceDefinition devicequotas.drawbridge.dev, because of a/q"),
    (
        [obj("v1", "Secret", "own", SYSTEM_NAMESPACE, labels={})],
        f"Namespace {SYSTEM_NAMESPACE}, because of Secret {SYSTEM_NAMESPACE}/own",
    ),
    ([template_for("a"), translated_pod("p", has_claim=False)], "until Pod default/p has its claim"),
    ([pod("q", schedulerName="drawbridge")], "Pod default/q, which waits for scheduler drawbridge"),
]


@pytest.mark.parametrize(("objects", "message"), OBJECTS_IN_USE, ids=[message for _, message in OBJECTS_IN_USE])
async def test_uninstall_keeps_and_names_objects_that_others_use(objects, message):
    cluster = loaded(*installed_objects(), *shared_objects(), *objects)
    for _ in range(2):
        _, kept = await uninstall(cluster)
        assert message in " ".join(kept)
    for kept_object in objects:
        metadata = kept_object["metadata"]
        assert await cluster.get(resources.resource_of(kept_object), metadata["name"], metadata.get("namespace"))


async def test_the_kinds_option_deletes_crds_and_their_objects():
    cluster = loaded(*installed_objects(), *shared_objects(), QUOTA)
    deleted, kept = await uninstall(cluster, kinds=True)
    assert "CustomResourceDefinition devicequotas.drawbridge.dev" in deleted
    assert kept == ()


async def test_a_template_whose_pod_has_its_claim_is_deleted():
    cluster = loaded(*installed_objects(), template_for("a"), translated_pod("p", has_claim=True))
    await uninstall(cluster)
    assert (await cluster.list(resources.RESOURCE_CLAIM_TEMPLATES)).items == ()


def tenant_objects():
    """Objects with drawbridge's names and labels that a tenant may create in a namespace."""
    template_of_tenant = {
        **template_for("a"),
        "metadata": {"name": "mine", "namespace": "default", "labels": names.LABELS},
    }
    labelled_objects = [
        obj("apps/v1", "Deployment", "drawbridge-webhook", "team", spec={}),
        obj("v1", "ConfigMap", "boards", "team"),
    ]
    lease = obj("coordination.k8s.io/v1", "Lease", "drawbridge", "team", labels={}, spec={})
    return [obj("v1", "Namespace", "team", labels={}), *labelled_objects, lease, template_of_tenant]


@pytest.mark.parametrize("namespace", ["", SYSTEM_NAMESPACE])
@pytest.mark.parametrize("is_labelled", [True, False])
async def test_labelled_objects_in_namespaces_of_tenants_are_kept(namespace, is_labelled):
    """The namespace of an installation has the label of drawbridge. If the namespace existed before, it has none, and the webhook configuration refers to it."""
    service = {"service": {"namespace": SYSTEM_NAMESPACE, "name": "w"}}
    webhook_list = [] if is_labelled else [{"name": "w", "clientConfig": service}]
    webhooks = obj(
        "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "drawbridge", webhooks=webhook_list
    )
    [namespace_object, *other_objects] = installed_objects()
    namespace_object["metadata"]["labels"] = DRAWBRIDGE_LABELS if is_labelled else {}
    cluster = loaded(namespace_object, *other_objects, webhooks, *tenant_objects())
    deleted, reported_as_kept = await uninstall(cluster, namespace)
    assert {"MutatingWebhookConfiguration drawbridge", "Deployment drawbridge-system/drawbridge-webhook"} <= {*deleted}
    assert not [step for step in deleted if "team" in step or "mine" in step]
    assert (
        "ConfigMap team/boards, in a namespace without drawbridge: if it belongs to drawbridge, use --namespace team"
        in reported_as_kept
    )
    assert not [step for step in reported_as_kept if step.startswith("Namespace team")]
    for tenant_object in tenant_objects():
        assert await cluster.get(
            resources.resource_of(tenant_object),
            tenant_object["metadata"]["name"],
            tenant_object["metadata"].get("namespace"),
        )


async def test_uninstall_keeps_objects_that_another_installation_uses():
    cluster = loaded(*installed_objects(), *installed_objects("gpu-tools"), *shared_objects())
    deleted, [kept] = await uninstall(cluster, "gpu-tools")
    assert deleted == ["Deployment gpu-tools/drawbridge-webhook", "ConfigMap gpu-tools/drawbridge"]
    assert f"used by {SYSTEM_NAMESPACE}" in kept
    assert await cluster.get(resources.MUTATING_WEBHOOKS, "drawbridge")


@pytest.mark.usefixtures("empty_directory")
def test_without_an_installation_there_is_nothing_to_uninstall():
    assert run_json("uninstall", "--yes") == (0, {"removedObjects": [], "remainingObjects": [], "changed": False})
    assert run("uninstall").stdout == "no objects of drawbridge to remove\n"
