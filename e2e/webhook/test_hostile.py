"""Attacks of tenants on signatures, template names and stored objects, against the webhook and its controller on a real API server."""

import base64
import json

import jsonpatch
import pytest

from e2e.actors import fleet
from e2e.actors.client import ApiError
from e2e.actors.webhook import NOWHERE, gpu, review, template_path, templates_of
from e2e.actors.workloads import container, limits, pod, request, template, using_template

pytestmark = pytest.mark.real

WITHHELD = 'drawbridge_template_writes_total{action="withheld"}'


def tenant(cluster, namespace):
    """An account that may create and patch pods in one namespace, and nothing else."""
    cluster.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant", "namespace": namespace}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "tenant", "namespace": namespace},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "patch"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "tenant", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}],
        },
    )
    return f"system:serviceaccount:{namespace}:tenant"


def signed(webhook, item, namespace):
    """Return a pod as /mutate patches it, for a namespace that the caller names."""
    answer = webhook.post("/mutate", review(item, namespace))
    if "patch" not in answer:
        return None
    return jsonpatch.apply_patch(item, json.loads(base64.b64decode(answer["patch"])))


def withheld(webhook):
    """Return how often the controllers withheld a template for which a pod had a signature."""
    lines = webhook.controllers("/metrics").splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith(WITHHELD))


@pytest.fixture
def off(control_plane, webhook):
    """A namespace with mode off, and no GPU in its quota."""
    name = control_plane.namespace("webhook-off", {"drawbridge.dev/mode": "off"})
    control_plane.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none", "namespace": name},
            "spec": {"hard": {"requests.nvidia.com/gpu": "0"}},
        }
    )
    yield name
    control_plane.delete(f"/api/v1/namespaces/{name}")


def test_a_signature_copied_from_another_review_has_no_effect(control_plane, fleet_node, gated, webhook, off):
    """A tenant whose namespace has mode off sends a review for another namespace, and copies the result to its own pod."""
    who = tenant(control_plane, off)
    wanted = pod("thief", off, container(**limits(**{"nvidia.com/gpu": 6})), nodeSelector=NOWHERE)
    wanted["spec"]["serviceAccountName"] = "default"
    control_plane.until("for a namespace that is off nothing is signed", lambda: signed(webhook, wanted, off) is None)
    stolen = signed(webhook, wanted, gated)
    [(name)] = [entry["resourceClaimTemplateName"] for entry in stolen["spec"]["resourceClaims"]]
    before = withheld(webhook)
    control_plane.until_may(who, "create", "pods", off)
    control_plane.kubectl("create", f"--as={who}", "-f", "-", input=json.dumps(stolen))
    # The controller works: a later pod of an enforcing namespace has its template.
    control_plane.create(gpu("honest", gated, nodeSelector=NOWHERE))
    control_plane.until("the honest pod's template is there", lambda: templates_of(control_plane, gated), 30)
    control_plane.until("the stolen signature is noticed", lambda: withheld(webhook) > before, 20)
    assert name not in templates_of(control_plane, off)
    assert control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{off}/resourceclaims")["items"] == []


def test_a_pod_signed_before_mode_off_gets_no_template(control_plane, fleet_node, gated, webhook):
    """The signature is valid, but the mode has changed. The controller reads the namespace again before it creates a template."""
    bare = gpu("late", gated, nodeSelector=NOWHERE)
    bare["spec"]["serviceAccountName"] = "default"
    own = signed(webhook, bare, gated)
    control_plane.patch(f"/api/v1/namespaces/{gated}", {"metadata": {"labels": {"drawbridge.dev/mode": "off"}}})

    def still():
        return signed(webhook, bare, gated) is None

    control_plane.until("the webhook knows that it is off", still, 20)
    webhook.kill_controller()
    webhook.start_controller()
    before = withheld(webhook)
    control_plane.create(own)
    control_plane.until("it is withheld", lambda: withheld(webhook) > before, 20)
    assert templates_of(control_plane, gated) == {}
    control_plane.patch(f"/api/v1/namespaces/{gated}", {"metadata": {"labels": {"drawbridge.dev/mode": "enforce"}}})
    control_plane.until("it is made when it is on again", lambda: templates_of(control_plane, gated), 20)


# Names


def test_a_tenant_cannot_take_the_name_of_a_template(control_plane, fleet_node, gated):
    [planned] = control_plane.create(gpu("p", gated), dryRun="All")
    name = planned["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    control_plane.kubectl("create", "rolebinding", "edit", "--clusterrole=edit", "--serviceaccount", f"{gated}:default", "-n", gated)  # fmt: skip
    control_plane.kubectl("create", "role", "t", "--verb=create", "--resource=resourceclaimtemplates.resource.k8s.io", "-n", gated)  # fmt: skip
    control_plane.kubectl("create", "rolebinding", "t", "--role=t", "--serviceaccount", f"{gated}:default", "-n", gated)
    account = f"system:serviceaccount:{gated}:default"
    control_plane.until_may(account, "create", "resourceclaimtemplates", gated, group="resource.k8s.io")
    who = f"--as={account}"
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 7}}
    for taken in (name, name[:-16]):
        done = control_plane.kubectl(
            "create", who, "-f", "-", input=json.dumps(template(taken, gated, request)), check=False
        )
        assert "is reserved" in done.stderr, done
    control_plane.kubectl("create", who, "-f", "-", input=json.dumps(template("drawbridge-mine", gated, request)))


def test_a_pod_is_refused_until_its_template_name_is_free(control_plane, fleet_node, gated):
    """An administrator may create a template with such a name; the pod must not use its content."""
    [planned] = control_plane.create(gpu("p", gated), dryRun="All")
    name = planned["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    squat = template(name, gated, {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 7}})
    squat["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "a-user"}
    control_plane.create(squat)

    def refused():
        try:
            control_plane.create(gpu("p", gated), dryRun="All")
        except ApiError as error:
            return error.message
        return ""

    message = control_plane.until("the webhook has seen it", refused, 20)
    assert f"{gated}/{name}" in message
    assert "a-user manages it" in message
    control_plane.delete(template_path(gated, name))
    control_plane.until("the name is free again", lambda: not refused(), 20)
    control_plane.create(gpu("p", gated))
    control_plane.wait_scheduled(gated, "p")


# Stored objects


def deployment(name, namespace, template_pod):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"a": name}},
            "template": {
                "metadata": {"labels": {"a": name}, "annotations": template_pod["metadata"].get("annotations", {})},
                "spec": template_pod["spec"] | {"restartPolicy": "Always"},
            },
        },
    }


def hostile(namespace):
    """Deployments without replicas whose content must not end the controller: deep JSON, many claims, a huge number."""
    deep = "[" * 100_000 + "]" * 100_000
    asking = limits(**{"nvidia.com/gpu": 1})
    pod_ = pod("x", namespace, container(**asking))
    pod_["metadata"]["annotations"] = {"drawbridge.dev/original": '{"containers":' + deep + "}"}
    yield deployment("deep-original", namespace, pod_)
    many = pod("x", namespace, container(**asking))
    many["spec"]["resourceClaims"] = [
        using_template("none") | {"name": f"drawbridge-main-gpu-{n}"} for n in range(2, 999)
    ]
    many["spec"]["resourceClaims"].append(using_template("none") | {"name": "drawbridge-main-gpu"})
    yield deployment("many-claims", namespace, many)
    yield deployment(
        "digits", namespace, pod("x", namespace, container(**limits(**{"nvidia.com/gpu": "9" * 90 + "e40"})))
    )
    joint = pod("x", namespace, container(**limits(**{"koordinator.sh/gpu": 100})))
    joint["metadata"]["annotations"] = {
        "scheduling.koordinator.sh/device-joint-allocate": '{"deviceTypes":' + deep + "}"
    }
    yield deployment("deep-joint", namespace, joint)


def test_no_stored_object_blocks_templates_of_other_tenants(control_plane, fleet_node, gated, webhook):
    stored = []
    for deployment_ in hostile(gated):
        try:
            stored += control_plane.create(deployment_)
        except ApiError as error:  # no defence is needed against an object that the API server refuses
            if error.code not in (400, 413, 422):
                raise
    assert len(stored) >= 2
    control_plane.create(gpu("honest", gated, nodeSelector=NOWHERE))
    control_plane.until("the honest pod's template is there", lambda: templates_of(control_plane, gated), 30)
    webhook.kill_controller()
    control_plane.delete(f"/api/v1/namespaces/{gated}/pods/honest", gracePeriodSeconds=0)
    webhook.start_controller()
    two = pod("honest-2", gated, container(**limits(**{"nvidia.com/gpu": 2})), nodeSelector=NOWHERE)
    control_plane.create(two)
    name = control_plane.get(f"/api/v1/namespaces/{gated}/pods/honest-2")["spec"]["resourceClaims"][0]
    wanted = name["resourceClaimTemplateName"]
    control_plane.until("and after a restart", lambda: wanted in templates_of(control_plane, gated), 60)
    webhook.processes["controller"].check()


def test_a_pod_with_a_forged_signature_is_checked_and_refused(control_plane, fleet_node, gated):
    """Only pods with our signature are not reviewed again, so a forged signature must not skip the review."""
    control_plane.create(template("mine", gated, request("gpu", fleet.NVIDIA, count=6)))
    content = json.dumps({"spec": {"devices": {"requests": []}}}, separators=(",", ":"))
    for name in ("mine", "drawbridge-0123456789abcdef0123456789abcdef"):
        twice = [using_template("mine"), using_template("mine") | {"name": "drawbridge-main-gpu"}]
        item = pod("p", gated, container(), resourceClaims=twice)
        item["metadata"]["annotations"] = {
            "drawbridge.dev/templates": f'v2 {"0" * 64} {{"{name}":{content},"mine":{content}}}'
        }

        def refused(item=item):
            try:
                control_plane.create(item, dryRun="All")
            except ApiError as error:
                return "[R02" in str(error)
            return False

        # The webhook may not know the template yet: a pod with an unknown template is admitted and waits.
        control_plane.until("it is refused, since the template is known", refused, 30)


def test_a_signed_pod_read_from_a_cluster_is_checked_again(control_plane, fleet_node, gated, created):
    """The signature is ours and valid for a pod of that name; feasibility is checked again."""
    [stored] = control_plane.create(gpu("p", gated, nodeSelector=NOWHERE))
    control_plane.delete(f"/api/v1/namespaces/{gated}/pods/p", gracePeriodSeconds=0)
    control_plane.until("it is gone", lambda: not control_plane.read(stored))
    again = {"apiVersion": "v1", "kind": "Pod", "metadata": {k: stored["metadata"][k] for k in ("name", "namespace", "annotations")}, "spec": stored["spec"]}  # fmt: skip
    again["spec"].pop("volumes", None)
    for container_ in again["spec"]["containers"]:
        container_.pop("volumeMounts", None)
    [answer] = control_plane.create(again, dryRun="All")
    assert answer["spec"]["resourceClaims"] == stored["spec"]["resourceClaims"]
