"""`drawbridge uninstall` deletes the installation, keeps and names what others use, and is idempotent."""

import pytest

from analysis.uninstall import execute, find
from cluster import resources
from tests.allocator.service.sidecar import DRIVER, claim, device_class, loaded, node, pod
from tests.cli.running import run, run_json, somewhere  # noqa: F401  a fixture
from webhook import names
from webhook.claims import taint_rule, template

OURS = {"app.kubernetes.io/name": "drawbridge"}
SYSTEM = "drawbridge-system"


def obj(version, kind, name, namespace="", labels=OURS, **more):
    meta = {"name": name, "labels": labels} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": meta, **more}


def installed(home=SYSTEM):
    return [
        obj("v1", "Namespace", home),
        obj("apps/v1", "Deployment", "drawbridge-webhook", home, spec={}),
        obj("v1", "ConfigMap", "drawbridge", home),
        obj("v1", "ConfigMap", "kube-root-ca.crt", home, labels={}),
        obj("coordination.k8s.io/v1", "Lease", "drawbridge", home, labels={}, spec={}),
    ]


def shared():
    definition = obj("apiextensions.k8s.io/v1", "CustomResourceDefinition", "devicequotas.drawbridge.dev", spec={})
    return [obj("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "drawbridge", webhooks=[]), definition]  # fmt: skip


def template_for(name):
    spec = {"spec": claim(name)["spec"]}
    return template.object_of(template.name_of(spec), spec, "default")


def translated_pod(name, made):
    """A pod that gets a claim from a template. Without `has_claim`, the pod still waits for the claim."""
    entry = {"name": "c", "resourceClaimTemplateName": template_for("a")["metadata"]["name"]}
    status = {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "x"}]} if made else {}
    return pod(name, resourceClaims=[entry], status=status)


QUOTA = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceQuota", "metadata": {"name": "q", "namespace": "a"}, "spec": {}}  # fmt: skip


async def uninstall(cluster, namespace="", *, kinds=False):
    """Uninstall drawbridge; return descriptions of the deleted and of the kept objects."""
    plan = await find(cluster, namespace, kinds=kinds)
    return [step.description for step in plan.steps if await execute(cluster, step)], plan.left


async def test_uninstall_deletes_webhooks_first_and_leaves_nothing():
    team = obj("v1", "Namespace", "team", labels={"drawbridge.dev/mode": "enforce", "own": "kept"})
    switched = node("n0")
    switched["metadata"]["labels"] = {"drawbridge.dev/driver": "reference", "own": "kept"}
    cluster = loaded(*installed(), *shared(), team, switched, taint_rule(DRIVER), template_for("a"), device_class())
    taken, left = await uninstall(cluster)
    assert taken[0] == "MutatingWebhookConfiguration drawbridge"
    assert taken[-1] == f"Namespace {SYSTEM}"
    assert left == ()
    for kind, name in ((resources.NAMESPACES, "team"), (resources.NODES, "n0")):
        labels = (await cluster.get(kind, name)).metadata.labels
        assert [key for key in labels if "kubernetes.io" not in key] == ["own"]
    assert (await cluster.list(resources.DEVICE_TAINT_RULES)).items == ()
    assert (await cluster.list(resources.RESOURCE_CLAIM_TEMPLATES)).items == ()
    assert (await cluster.list(resources.DEVICE_CLASSES)).items != ()
    assert await uninstall(cluster) == ([], ())


@pytest.mark.parametrize("done", range(7))
async def test_an_uninstallation_that_was_interrupted_is_finished_by_the_next(done):
    cluster = loaded(*installed(), *shared(), taint_rule(DRIVER), template_for("a"))
    whole = [step.description for step in (await find(cluster)).steps]
    assert len(whole) == 8
    for step in (await find(cluster)).steps[:done]:
        await execute(cluster, step)
    assert whole[:done] + (await uninstall(cluster))[0] == whole


STAYS = [
    ([QUOTA], "CustomResourceDefinition devicequotas.drawbridge.dev, because of a/q"),
    ([obj("v1", "Secret", "own", SYSTEM, labels={})], f"Namespace {SYSTEM}, because of Secret {SYSTEM}/own"),
    ([template_for("a"), translated_pod("p", made=False)], "until Pod default/p has its claim"),
    ([pod("q", schedulerName="drawbridge")], "Pod default/q, which waits for scheduler drawbridge"),
]


@pytest.mark.parametrize(("objects", "message"), STAYS, ids=[message for _, message in STAYS])
async def test_uninstall_keeps_and_names_objects_that_others_use(objects, message):
    cluster = loaded(*installed(), *shared(), *objects)
    for _ in range(2):
        _, left = await uninstall(cluster)
        assert message in " ".join(left)
    for obj in objects:
        assert await cluster.get(resources.resource_of(obj), obj["metadata"]["name"], obj["metadata"].get("namespace"))


async def test_crds_are_deleted_with_their_objects_with_the_option():
    cluster = loaded(*installed(), *shared(), QUOTA)
    taken, left = await uninstall(cluster, kinds=True)
    assert "CustomResourceDefinition devicequotas.drawbridge.dev" in taken
    assert left == ()


async def test_a_template_whose_pod_has_its_claim_is_deleted():
    cluster = loaded(*installed(), template_for("a"), translated_pod("p", made=True))
    await uninstall(cluster)
    assert (await cluster.list(resources.RESOURCE_CLAIM_TEMPLATES)).items == ()


def forged():
    """Objects with drawbridge's names and labels that a tenant may create in a namespace."""
    mine = {**template_for("a"), "metadata": {"name": "mine", "namespace": "default", "labels": names.LABELS}}
    own = [
        obj("apps/v1", "Deployment", "drawbridge-webhook", "team", spec={}),
        obj("v1", "ConfigMap", "boards", "team"),
    ]
    lease = obj("coordination.k8s.io/v1", "Lease", "drawbridge", "team", labels={}, spec={})
    return [obj("v1", "Namespace", "team", labels={}), *own, lease, mine]


@pytest.mark.parametrize("home", ["", SYSTEM])
@pytest.mark.parametrize("is_labelled", [True, False])
async def test_objects_with_our_label_in_other_namespaces_are_kept(home, is_labelled):
    """The namespace of an installation has our label. If the namespace existed before, it has none, and the webhook configuration refers to it."""
    service = {"service": {"namespace": SYSTEM, "name": "w"}}
    called = [] if is_labelled else [{"name": "w", "clientConfig": service}]
    webhooks = obj("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "drawbridge", webhooks=called)
    [home_namespace, *others] = installed()
    home_namespace["metadata"]["labels"] = OURS if is_labelled else {}
    cluster = loaded(home_namespace, *others, webhooks, *forged())
    taken, left = await uninstall(cluster, home)
    assert {"MutatingWebhookConfiguration drawbridge", "Deployment drawbridge-system/drawbridge-webhook"} <= {*taken}
    assert not [step for step in taken if "team" in step or "mine" in step]
    assert (
        "ConfigMap team/boards, in a namespace without drawbridge: if it belongs to drawbridge, use --namespace team"
        in left
    )
    assert not [step for step in left if step.startswith("Namespace team")]
    for kept in forged():
        assert await cluster.get(
            resources.resource_of(kept), kept["metadata"]["name"], kept["metadata"].get("namespace")
        )


async def test_uninstall_keeps_what_a_second_installation_shares():
    cluster = loaded(*installed(), *installed("gpu-tools"), *shared())
    taken, [left] = await uninstall(cluster, "gpu-tools")
    assert taken == ["Deployment gpu-tools/drawbridge-webhook", "ConfigMap gpu-tools/drawbridge"]
    assert f"used by {SYSTEM}" in left
    assert await cluster.get(resources.MUTATING_WEBHOOKS, "drawbridge")


@pytest.mark.usefixtures("somewhere")
def test_without_an_installation_there_is_nothing_to_uninstall():
    assert run_json("uninstall", "--yes") == (0, {"removedObjects": [], "remainingObjects": [], "changed": True})
    assert run("uninstall").stdout == "no objects of drawbridge to remove\n"
