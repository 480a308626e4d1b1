"""Single faults in the objects of an installation: how each is made and repaired, and the finding that `doctor` has to name first."""

import asyncio
import base64
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from analysis.doctor import diagnose, survey
from certs import authority
from cluster.kubernetes import Kubernetes
from e2e.actors.webhook import SYSTEM

SECONDS = 5.0  # CPU seconds: the machine may be busy
ADMISSION = "admissionregistration.k8s.io/v1"
RBAC = "rbac.authorization.k8s.io/v1"
CRDS = "apiextensions.k8s.io/v1"
VOLATILE = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields")


def reference(version, kind, name, namespace=""):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name} | ({"namespace": namespace} if namespace else {})}  # fmt: skip


MUTATING = reference(ADMISSION, "MutatingWebhookConfiguration", "drawbridge")
VALIDATING = reference(ADMISSION, "ValidatingWebhookConfiguration", "drawbridge")
MODE = reference(ADMISSION, "ValidatingAdmissionPolicyBinding", "drawbridge-mode")
CONFIG = reference("v1", "ConfigMap", "drawbridge", SYSTEM)
SCHEDULER = reference("v1", "ConfigMap", "drawbridge-scheduler", SYSTEM)
SERVICE = reference("v1", "Service", "drawbridge", SYSTEM)
QUOTAS = reference(CRDS, "CustomResourceDefinition", "devicequotas.drawbridge.dev")
SECRET = reference("v1", "Secret", "drawbridge", SYSTEM)
SIGNATURE = reference("v1", "Secret", "drawbridge-signature", SYSTEM)
INVENTORY = reference("v1", "ConfigMap", "drawbridge-inventory", "drawbridge-driver")


def role(name, kind="ClusterRole"):
    return reference(RBAC, kind, name, SYSTEM if kind.startswith("Role") else "")


def deployment(component):
    return reference("apps/v1", "Deployment", f"drawbridge-{component}", SYSTEM)


class Breakage(NamedTuple):
    """A fault: an object that is changed, or deleted if there is no change, and the finding that has to be first."""

    broken: dict[str, Any]
    change: Any
    code: str
    words: str = ""
    about: dict[str, Any] = {}  # the object of the finding, if it is not the broken object


def each_hook(key, value, name_part=""):
    def change(obj):
        for hook in obj["webhooks"]:
            if name_part in hook["name"]:
                hook[key] = value if not callable(value) else value(hook[key])

    return change


def set_at(*path, value):
    """Return a change that sets the value at a path."""

    def change(obj):
        for key in path[:-1]:
            obj = obj[key]
        obj[path[-1]] = value

    return change


def without_resource(resource):
    """Return a change that removes a resource from the rules of a role."""

    def change(role_):
        for rule in role_["rules"]:
            if "resources" in rule:
                rule["resources"] = [name for name in rule["resources"] if name != resource] or ["nothing"]

    return change


def in_another_namespace(client):
    return client | {"service": client["service"] | {"namespace": "drawbridge-sytem"}}


def scheduler_reads(before, after):
    """Return a change of the scheduler's configuration, which the scheduler reads at its start."""

    def change(config_map):
        text = config_map["data"]["scheduler.yaml"]
        assert before in text
        config_map["data"]["scheduler.yaml"] = text.replace(before, after)

    return change


def another_image(deployment_):
    """Set another image in a paused Deployment, which starts no pod."""
    deployment_["spec"]["paused"] = True
    deployment_["spec"]["template"]["spec"]["containers"][0]["image"] += "-of-another-day"


BREAKAGES = [
    Breakage(MUTATING, None, "O003", "pods"),
    Breakage(VALIDATING, None, "O003"),
    Breakage(VALIDATING, each_hook("failurePolicy", "Fail", "claims."), "O004", "failurePolicy"),
    Breakage(MUTATING, each_hook("namespaceSelector", {"matchLabels": {"no": "namespace"}}), "O004", "namespaceSelector"),
    Breakage(MUTATING, each_hook("objectSelector", {"matchLabels": {"no": "pod"}}), "O004", "objectSelector"),
    Breakage(MUTATING, each_hook("matchConditions", [{"name": "never", "expression": "false"}]), "O004", "matchConditions"),
    Breakage(MUTATING, each_hook("timeoutSeconds", 1), "O004", "timeoutSeconds"),
    Breakage(MUTATING, each_hook("reinvocationPolicy", "Never"), "O004", "reinvocationPolicy"),
    Breakage(MUTATING, each_hook("clientConfig", in_another_namespace), "O004", "clientConfig"),
    Breakage(QUOTAS, None, "O003"),
    Breakage(QUOTAS, lambda obj: obj["spec"]["versions"][0].pop("additionalPrinterColumns"), "O004", "additionalPrinterColumns"),
    Breakage(QUOTAS, lambda obj: obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].pop("spec"), "O004", "spec"),
    Breakage(reference(ADMISSION, "ValidatingAdmissionPolicy", "drawbridge-secrets"), None, "O003"),
    Breakage(MODE, None, "O003"),
    Breakage(reference(ADMISSION, "ValidatingAdmissionPolicy", "drawbridge-leases"), set_at("spec", "failurePolicy", value="Ignore"), "O004", "failurePolicy"),
    Breakage(MODE, set_at("spec", "validationActions", value=["Audit"]), "O004", "validationActions"),
    Breakage(role("drawbridge-webhook"), without_resource("deviceclasses"), "O004", "rules"),
    Breakage(role("drawbridge-controller", "Role"), without_resource("leases"), "O004", "rules"),
    Breakage(role("drawbridge-controller", "ClusterRoleBinding"), set_at("subjects", 0, "namespace", value="drawbridge-sytem"), "O004", "subjects"),
    Breakage(role("drawbridge-authority", "RoleBinding"), None, "O003"),
    Breakage(role("drawbridge-webhook", "ClusterRoleBinding"), None, "O003"),
    Breakage(role("drawbridge-controller"), None, "O003"),
    Breakage(SERVICE, None, "O003"),
    Breakage(SERVICE, set_at("spec", "selector", "app.kubernetes.io/component", value="webhooks"), "O004", "selector"),
    Breakage(SERVICE, set_at("spec", "ports", 0, "targetPort", value=9999), "O004", "ports"),
    Breakage(reference("networking.k8s.io/v1", "NetworkPolicy", "drawbridge-webhook", SYSTEM), None, "O003"),
    Breakage(CONFIG, None, "O003"),
    Breakage(CONFIG, set_at("data", value={"drawbridge.yml": "mode: observe\n"}), "O002", "drawbridge.yaml"),
    Breakage(CONFIG, set_at("data", "drawbridge.yaml", value="apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: enforced\n"), "O002", "line 3"),
    Breakage(SCHEDULER, scheduler_reads("schedulerName: drawbridge", "schedulerName: drawbrigde"), "O002", "profile"),
    Breakage(SCHEDULER, scheduler_reads("enabled: [{name: Drawbridge, weight: 2}]", "enabled: []"), "O002", "plugin Drawbridge"),
    Breakage(INVENTORY, None, "O003"),
    Breakage(deployment("authority"), another_image, "O011", "of-another-day"),
    Breakage(deployment("controller"), set_at("spec", "replicas", value=0), "O009"),
    Breakage(deployment("webhook"), set_at("spec", "replicas", value=0), "O009"),
    Breakage(deployment("authority"), set_at("spec", "replicas", value=0), "O009"),
    Breakage(deployment("allocator"), set_at("spec", "replicas", value=0), "O009"),
]  # fmt: skip


def leaf(days, name=f"drawbridge.{SYSTEM}.svc"):
    """A certificate that expires in this many days, signed by another authority than the installation's."""
    issued = datetime.now(UTC) - timedelta(days=100)
    signer = authority.authority("drawbridge", now=issued, life=timedelta(days=900))
    return base64.b64encode(
        authority.leaf(signer, [name], now=issued, life=timedelta(days=100 + days)).certificate
    ).decode()


def another_bundle(client):
    other = authority.authority("drawbridge", now=datetime.now(UTC), life=timedelta(days=9))
    return client | {"caBundle": base64.b64encode(other.certificate).decode()}


# Faults that the authority would repair at once.
REPAIRED_BY_THE_AUTHORITY = [
    Breakage(MUTATING, each_hook("clientConfig", another_bundle), "O007"),
    Breakage(VALIDATING, each_hook("rules", []), "O008"),
    Breakage(SECRET, None, "O006"),
    Breakage(SECRET, lambda obj: obj["data"].update({"tls.crt": leaf(-1)}), "O006", "expired"),
    Breakage(SECRET, lambda obj: obj["data"].update({"tls.crt": leaf(9, "other.svc")}), "O006", "other.svc"),
    Breakage(SECRET, lambda obj: obj["data"].update({"tls.crt": ""}), "O006"),
    Breakage(SECRET, lambda obj: obj["data"].update({"tls.crt": leaf(9)}), "O007", about=MUTATING),
    Breakage(SIGNATURE, None, "O003"),
]  # fmt: skip


def label(breakage):
    change = "changed" if breakage.change else "deleted"
    return (
        f"{breakage.broken['kind']} {breakage.broken['metadata']['name']} {change}: {breakage.words or breakage.code}"
    )


def clean(obj):
    return obj | {"metadata": {key: value for key, value in obj["metadata"].items() if key not in VOLATILE}}


@contextmanager
def broken(cluster, item, change):
    """Break one object, and restore it."""
    before = cluster.read(item)

    def write():
        after = cluster.read(item)
        change(after)
        return cluster.put(cluster.path_of(item), after)

    try:
        if change is None:
            cluster.remove(item)
            cluster.until("the object is deleted", lambda: cluster.read(item) is None)
        else:
            cluster.until("the object is changed", write)
        yield
    finally:
        cluster.until("the object is restored", lambda: restore(cluster, before))


def delete_pods(cluster, namespace, **query):
    """Delete the pods of a namespace; return whether there were none. The grace period is one second, because new pods ignore SIGTERM."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    pods = cluster.get(path, **query)["items"]
    for pod in pods:
        cluster.delete(f"{path}/{pod['metadata']['name']}", gracePeriodSeconds=1)
    return not pods


@contextmanager
def scaled_to_zero(cluster, component):
    """A Deployment with 0 replicas and no pod."""
    item = deployment(component)
    with broken(cluster, item, set_at("spec", "replicas", value=0)):

        def is_stopped():
            has_none = delete_pods(cluster, SYSTEM, labelSelector=f"app.kubernetes.io/component={component}")
            deployment_ = cluster.read(item)
            is_observed = deployment_["status"].get("observedGeneration") == deployment_["metadata"]["generation"]
            return is_observed and has_none and not deployment_["status"].get("replicas")

        cluster.until(f"the {component} has no replica and no pod", is_stopped, 60)
        yield


def restore(cluster, before):
    existing = cluster.read(before)
    if existing is None:
        return cluster.create(clean(before))
    version = {"resourceVersion": existing["metadata"]["resourceVersion"]}
    return cluster.put(cluster.path_of(before), clean(before) | {"metadata": clean(before)["metadata"] | version})


def findings_of_doctor(cluster, kubeconfig=None):
    """Return doctor's findings; fail if they take too much CPU time, not counting the start and the imports of a process."""

    async def look():
        api = Kubernetes.connect(kubeconfig=str(kubeconfig or cluster.kubeconfig))
        try:
            return list(diagnose(await survey(api, datetime.now(UTC), None, api)))
        finally:
            await api.close()

    begun = time.process_time()
    findings = asyncio.run(look())
    assert time.process_time() - begun < SECONDS
    return findings


def check_named_first(cluster, breakage, after=()):
    """Check that a breakage is the first finding after those in `after`."""
    findings = findings_of_doctor(cluster)
    finding = findings[len(after)]
    first = [(each.code, each.object) for each in findings[: len(after) + 1]]
    assert first == [*after, (breakage.code, name_of(breakage.about or breakage.broken))], [f"{each.object}: {each.code}: {each.message}" for each in findings]  # fmt: skip
    assert breakage.words in finding.message
    assert finding.remedy


def name_of(item):
    meta = item["metadata"]
    return f"{item['kind']}/{meta['namespace'] + '/' if 'namespace' in meta else ''}{meta['name']}"


def until_healthy(cluster):
    cluster.until(
        "doctor has no finding", lambda: not findings_of_doctor(cluster), 90, lambda: findings_of_doctor(cluster)
    )
