"""Tenants, squatters and stolen tokens against the webhook and its controller, on a real API server."""

import base64
import json
from itertools import product

import jsonpatch
import pytest

from analysis.installation import CLUSTER_WIDE
from cluster import manifests
from e2e.actors import fleet
from e2e.actors.client import ApiError
from e2e.actors.webhook import BASE, MODE, NOWHERE, SYSTEM, gpu, review, untouched
from e2e.actors.workloads import container, limits, pod, request, template, using_template

pytestmark = pytest.mark.real
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates"
AUTHORITY = f"system:serviceaccount:{SYSTEM}:drawbridge-authority"
WITHHELD = 'drawbridge_template_writes_total{action="withheld"}'
REGISTRATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/drawbridge"


def names(cluster, namespace):
    return {item["metadata"]["name"] for item in cluster.get(TEMPLATES.format(namespace))["items"]}


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
    """What /mutate makes of a pod for a namespace that the caller names."""
    answer = webhook.post("/mutate", review(item, namespace))
    if "patch" not in answer:
        return None
    return jsonpatch.apply_patch(item, json.loads(base64.b64decode(answer["patch"])))


def withheld(webhook):
    """How often a controller made no template that a pod proved."""
    lines = webhook.controllers("/metrics").splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith(WITHHELD))


@pytest.fixture
def off(control_plane, webhook):
    """A namespace that is off, with no GPU in its quota."""
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


def test_a_signature_that_was_taken_elsewhere_buys_nothing(control_plane, fleet_node, gated, webhook, off):
    """A tenant whose namespace is off posts a review in another's name, and pastes what it gets on its own pod."""
    who = tenant(control_plane, off)
    wanted = pod("thief", off, container(**limits(**{"nvidia.com/gpu": 6})), nodeSelector=NOWHERE)
    wanted["spec"]["serviceAccountName"] = "default"
    control_plane.until("for a namespace that is off nothing is signed", lambda: signed(webhook, wanted, off) is None)
    stolen = signed(webhook, wanted, gated)
    [(name)] = [entry["resourceClaimTemplateName"] for entry in stolen["spec"]["resourceClaims"]]
    before = withheld(webhook)
    control_plane.until_may(who, "create", "pods", off)
    control_plane.kubectl("create", f"--as={who}", "-f", "-", input=json.dumps(stolen))
    # The controller works: a pod that came after it, in a namespace that enforces, has its template.
    control_plane.create(gpu("honest", gated, nodeSelector=NOWHERE))
    control_plane.until("the honest pod's template is there", lambda: names(control_plane, gated), 30)
    control_plane.until("the stolen signature is noticed", lambda: withheld(webhook) > before, 20)
    assert name not in names(control_plane, off)
    assert control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{off}/resourceclaims")["items"] == []


def test_a_pod_signed_earlier_gets_no_template_while_its_namespace_is_off(control_plane, fleet_node, gated, webhook):
    """The signature is the pod's own; the mode has changed since. The controller reads afresh, so that it knows that as well as the webhook."""
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
    assert names(control_plane, gated) == set()
    control_plane.patch(f"/api/v1/namespaces/{gated}", {"metadata": {"labels": {"drawbridge.dev/mode": "enforce"}}})
    control_plane.until("it is made when it is on again", lambda: names(control_plane, gated), 20)


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
    """An administrator may take such a name; the pod must not be given what stands there."""
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
    control_plane.delete(f"{TEMPLATES.format(gated)}/{name}")
    control_plane.until("the name is free again", lambda: not refused(), 20)
    control_plane.create(gpu("p", gated))
    control_plane.wait_scheduled(gated, "p")


# A stolen token


def test_the_authoritys_token_writes_the_bundle_and_nothing_else(control_plane, webhook):
    before = control_plane.get(REGISTRATION)
    bundle = before["webhooks"][0]["clientConfig"]["caBundle"]

    def asked(*operations):
        patch = json.dumps(list(operations))
        return control_plane.kubectl(
            "patch", "mutatingwebhookconfiguration", "drawbridge", f"--as={AUTHORITY}", "--type=json",
            f"--patch={patch}", "--dry-run=server", check=False,
        )  # fmt: skip

    def change(path, value):
        return {"op": "add", "path": path, "value": value}

    twice = base64.b64encode(base64.b64decode(bundle) * 2).decode()
    fine = asked(change("/webhooks/0/clientConfig/caBundle", twice))
    assert fine.returncode == 0, fine.stderr
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"], "scope": "*"}
    for path, value in {
        "/webhooks/0/clientConfig/url": "https://evil.example:443/mutate",
        "/webhooks/0/rules": [everything],
        "/webhooks/0/failurePolicy": "Ignore" if before["webhooks"][0]["failurePolicy"] == "Fail" else "Fail",
        "/webhooks/0/matchConditions": [],
        "/webhooks/0/namespaceSelector": {},
        "/webhooks/0/objectSelector": {},
        "/webhooks/0/timeoutSeconds": 30,
        "/webhooks/0/reinvocationPolicy": "Never",
        "/webhooks/0/name": "other.drawbridge.dev",
        "/webhooks": [],
        "/metadata/annotations": {"drawbridge.dev/rules": "{}"},
        "/metadata/finalizers": ["example.com/stay"],
    }.items():
        done = asked(change(path, value))
        assert done.returncode, f"{path} could be changed"
        assert "drawbridge-registration" in done.stderr, done.stderr
    control_plane.patch(REGISTRATION, {"metadata": {"labels": {"an-administrator": "may"}}})
    control_plane.patch(REGISTRATION, {"metadata": {"labels": {"an-administrator": None}}})


def test_a_misspelt_mode_is_turned_back_with_the_words_there_are(control_plane, webhook):
    """The administrator who wants a namespace to be left alone, and writes another word for it."""
    name = control_plane.namespace("webhook-misspelt", {MODE: "enforce"})
    control_plane.until("the policy is in force", lambda: is_turned_back(control_plane), 30)
    for word in ("Off", "disabled", "false"):
        done = control_plane.kubectl("label", "namespace", name, f"{MODE}={word}", "--overwrite", check=False)
        assert done.returncode, f"the mode may be {word}"
        assert f'says "{word}", which is not one of off, observe, warn, enforce' in done.stderr
    for word in ("off", "observe", "warn", "enforce"):
        control_plane.kubectl("label", "namespace", name, f"{MODE}={word}", "--overwrite")
    control_plane.kubectl("label", "namespace", name, f"{MODE}-")
    control_plane.kubectl("label", "namespace", name, f"{MODE}=")


BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/drawbridge-mode"


@pytest.fixture
def unbound(control_plane):
    """A cluster whose namespaces were labelled before there was a policy about that."""
    binding = control_plane.get(BINDING)
    control_plane.delete(BINDING)
    yield
    meta = {"name": binding["metadata"]["name"]}
    control_plane.create({**binding, "metadata": meta})
    control_plane.until("the policy is in force again", lambda: is_turned_back(control_plane), 30)


def is_turned_back(cluster):
    """Whether no account may write another word for a mode."""
    misspelt = ("label", "namespace", "default", f"{MODE}=nonsense", "--dry-run=server")
    return cluster.kubectl(*misspelt, check=False).returncode != 0


def test_where_a_misspelt_mode_stands_nothing_is_done(control_plane, fleet_node, gated, unbound):
    """The webhooks here are for namespaces that opted in, which this one has not: the webhook is not asked, and so does not warn."""
    control_plane.create(gpu("before", gated, nodeSelector=NOWHERE))
    misspelt = ("label", "namespace", gated, f"{MODE}=Off", "--overwrite")
    control_plane.until("the label stands", lambda: control_plane.kubectl(*misspelt, check=False).returncode == 0, 30)
    untouched(control_plane, gpu("p", gated), 20)
    path = f"/api/v1/namespaces/{gated}/pods/before"
    assert control_plane.patch(path, {"metadata": {"labels": {"seen": "yes"}}})["spec"]["resourceClaims"]
    control_plane.delete(path)


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
    """Zero-replica Deployments, each of which ended the controller of a whole cluster once."""
    deep = "[" * 100_000 + "]" * 100_000
    asking = limits(**{"nvidia.com/gpu": 1})
    one = pod("x", namespace, container(**asking))
    one["metadata"]["annotations"] = {"drawbridge.dev/original": '{"containers":' + deep + "}"}
    yield deployment("deep-original", namespace, one)
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


def test_no_stored_object_keeps_the_controller_from_other_peoples_templates(control_plane, fleet_node, gated, webhook):
    stored = []
    for one in hostile(gated):
        try:
            stored += control_plane.create(one)
        except ApiError as error:  # an object that the API server itself does not take needs no defence
            if error.code not in (400, 413, 422):
                raise
    assert len(stored) >= 2
    control_plane.create(gpu("honest", gated, nodeSelector=NOWHERE))
    control_plane.until("the honest pod's template is there", lambda: names(control_plane, gated), 30)
    webhook.kill_controller()
    control_plane.delete(f"/api/v1/namespaces/{gated}/pods/honest", gracePeriodSeconds=0)
    webhook.start_controller()
    two = pod("honest-2", gated, container(**limits(**{"nvidia.com/gpu": 2})), nodeSelector=NOWHERE)
    control_plane.create(two)
    name = control_plane.get(f"/api/v1/namespaces/{gated}/pods/honest-2")["spec"]["resourceClaims"][0]
    wanted = name["resourceClaimTemplateName"]
    control_plane.until("and after a restart", lambda: wanted in names(control_plane, gated), 60)
    webhook.processes["controller"].check()


def test_a_pod_with_a_forged_signature_is_still_checked_and_refused(control_plane, fleet_node, gated):
    """A pod with our signature is not asked about a second time; so no other author can bear it that far."""
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
                return "even if idle" in str(error)
            return False

        # The webhook may not have heard of the template yet: a pod whose template is unknown waits, and is let in.
        control_plane.until("it is refused, since the template is known", refused, 30)


def test_a_manifest_that_was_read_from_a_cluster_is_judged_with_the_signature_on_it(
    control_plane, fleet_node, gated, created
):
    """The signature is ours, and holds for a pod of that name; what could be served then is asked again."""
    [stored] = control_plane.create(gpu("p", gated, nodeSelector=NOWHERE))
    control_plane.delete(f"/api/v1/namespaces/{gated}/pods/p", gracePeriodSeconds=0)
    control_plane.until("it is gone", lambda: not control_plane.read(stored))
    again = {"apiVersion": "v1", "kind": "Pod", "metadata": {k: stored["metadata"][k] for k in ("name", "namespace", "annotations")}, "spec": stored["spec"]}  # fmt: skip
    again["spec"].pop("volumes", None)
    for one in again["spec"]["containers"]:
        one.pop("volumeMounts", None)
    [answer] = control_plane.create(again, dryRun="All")
    assert answer["spec"]["resourceClaims"] == stored["spec"]["resourceClaims"]


# Both ways to install, and the rights


def test_kustomize_and_the_command_print_the_same_objects(control_plane, webhook):
    image = "drawbridge.invalid/name-an-image"
    built = control_plane.kubectl("kustomize", "manifests/base").stdout
    made = webhook.drawbridge("manifests", f"--image={image}")

    def digest(text):
        return {(d.object["kind"], d.object["metadata"]["name"]): d.object for d in manifests.parse(text)}

    one, other = digest(built), digest(made)
    assert one.keys() == other.keys()
    for key, built_one in one.items():
        if key[0] in CLUSTER_WIDE:
            built_one["metadata"].pop("namespace", None)  # kustomize takes some of them for namespaced ones
        assert built_one == other[key], key


def test_the_server_stores_our_network_policies_as_they_are(control_plane, webhook):
    """No network here holds them; tests/test_network_policies.py reads what they say."""
    listed = control_plane.get(f"/apis/networking.k8s.io/v1/namespaces/{SYSTEM}/networkpolicies")["items"]
    stored = {one["metadata"]["name"]: one["spec"] for one in listed}
    written = [d.object for d in manifests.read([BASE / "network.yaml"])]
    assert stored.keys() == {one["metadata"]["name"] for one in written}
    for one in written:
        for rules in (one["spec"]["ingress"], one["spec"]["egress"]):
            for port in (port for rule in rules for port in rule["ports"]):
                port.setdefault("protocol", "TCP")
        assert stored[one["metadata"]["name"]] == one["spec"]


# Kept although no test needs it: a reason each.
SPARE = {
    ("*", "*", "list"): "servers that do not stream lists are asked for pages",
    ("resource.k8s.io", "resourceclaimtemplates", "get"): "asked for where another template was first with a name",
    ("drawbridge.dev", "reservedtemplates", "create"): "asked for by the policy, in the API server",
}


def test_every_right_that_is_granted_is_used_and_nothing_is_asked_for_that_is_not(
    control_plane, fleet_node, gated, webhook
):
    """From the API server's audit log of this session."""
    where = f"/api/v1/namespaces/{gated}"
    control_plane.patch(where, {"metadata": {"labels": {MODE: "off"}}})
    control_plane.create(untouched(control_plane, gpu("late", gated, nodeSelector=NOWHERE)))
    control_plane.wait_unschedulable(gated, "late")
    control_plane.patch(where, {"metadata": {"labels": {MODE: "enforce"}}})
    control_plane.until(
        "it is told", lambda: any("delete the pod" in event for event in control_plane.events(gated, "late")), 30
    )
    control_plane.create(gpu("p", gated, nodeSelector=NOWHERE))
    control_plane.until("the template is made", lambda: names(control_plane, gated), 20)
    control_plane.delete(f"/api/v1/namespaces/{gated}/pods/p", gracePeriodSeconds=0)
    control_plane.until("and swept", lambda: not names(control_plane, gated), 90)
    control_plane.patch(f"/api/v1/namespaces/{SYSTEM}/secrets/drawbridge", {"data": {"tls.crt": None}})
    control_plane.until("the leaf is made again", lambda: "tls.crt" in control_plane.get(f"/api/v1/namespaces/{SYSTEM}/secrets/drawbridge")["data"], 30)  # fmt: skip
    wiped = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    control_plane.patch(REGISTRATION, wiped, kind="json")
    control_plane.until("the bundle is back", lambda: control_plane.get(REGISTRATION)["webhooks"][0]["clientConfig"].get("caBundle"), 30)  # fmt: skip
    for role in ("webhook", "controller", "authority"):
        used, refused = set(), set()
        account = f"system:serviceaccount:{SYSTEM}:drawbridge-{role}"
        for event in control_plane.audit_events():
            reference = event.get("objectRef")
            if event["user"].get("username") != account:
                continue
            if reference is None:
                url, _, _ = event["requestURI"].partition("?")
                used.add(("", url, event["verb"]))
                continue
            if "dryRun=All" in event["requestURI"]:
                continue  # what the server can do is asked this way; where that is not allowed, its version tells
            what = reference.get("apiGroup", ""), reference["resource"], event["verb"]
            # Admission answers 403 as well: in a namespace that ends, and our own webhook for a template that no node can serve.
            forbidden = event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
            (refused if forbidden else used).add(what)
        assert refused == set(), f"the {role} asks for what it may not do"
        granted = rights(control_plane, f"drawbridge-{role}")
        spare = {right for right in granted - used if right not in SPARE and ("*", "*", right[2]) not in SPARE}
        assert spare == set(), f"the {role} never needs this"


def rights(cluster, account):
    """What the roles that are bound to an account grant: group, resource or address, verb."""
    base = "/apis/rbac.authorization.k8s.io/v1"
    granted = set()
    for bindings, roles in (
        (f"{base}/clusterrolebindings", f"{base}/clusterroles"),
        (f"{base}/namespaces/{SYSTEM}/rolebindings", f"{base}/namespaces/{SYSTEM}/roles"),
    ):
        for binding in cluster.get(bindings)["items"]:
            if any(subject["name"] == account for subject in binding.get("subjects", ())):
                for rule in cluster.get(f"{roles}/{binding['roleRef']['name']}")["rules"]:
                    groups = rule.get("apiGroups", [""])
                    what = rule.get("resources", []) + rule.get("nonResourceURLs", [])
                    granted |= set(product(groups, what, rule["verbs"]))
    return granted
