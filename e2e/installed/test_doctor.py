"""What `drawbridge doctor` names first of an installation that was broken in one place, and how soon; each breakage is fixed after it."""

import asyncio
import base64
import json
import subprocess
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from analysis.doctor import diagnose, survey
from certs import authority
from cluster.kubernetes import Kubernetes
from e2e.actors.webhook import SYSTEM, untouched
from e2e.actors.workloads import claim, container, limits, pod, request
from e2e.ground import product
from e2e.installed.installation import PROGRAM

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.time_limit(480, "a dozen processes start, and some forty breakages are made and repaired")]  # fmt: skip

SECONDS = 5.0  # of its processor: the machine may be busy with other things
HOOKS = "admissionregistration.k8s.io/v1"
RBAC = "rbac.authorization.k8s.io/v1"
CRDS = "apiextensions.k8s.io/v1"
VOLATILE = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields")


def named(version, kind, name, namespace=""):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name} | ({"namespace": namespace} if namespace else {})}  # fmt: skip


MUTATING = named(HOOKS, "MutatingWebhookConfiguration", "drawbridge")
VALIDATING = named(HOOKS, "ValidatingWebhookConfiguration", "drawbridge")
QUOTA = named(HOOKS, "ValidatingWebhookConfiguration", "drawbridge-quota")
MODE = named(HOOKS, "ValidatingAdmissionPolicyBinding", "drawbridge-mode")
CONFIG = named("v1", "ConfigMap", "drawbridge", SYSTEM)
SCHEDULER = named("v1", "ConfigMap", "drawbridge-scheduler", SYSTEM)
SERVICE = named("v1", "Service", "drawbridge", SYSTEM)
QUOTAS = named(CRDS, "CustomResourceDefinition", "devicequotas.drawbridge.dev")
SECRET = named("v1", "Secret", "drawbridge", SYSTEM)
SIGNATURE = named("v1", "Secret", "drawbridge-signature", SYSTEM)
INVENTORY = named("v1", "ConfigMap", "drawbridge-inventory", "drawbridge-driver")


def role(name, kind="ClusterRole"):
    return named(RBAC, kind, name, SYSTEM if kind.startswith("Role") else "")


def deployment(component):
    return named("apps/v1", "Deployment", f"drawbridge-{component}", SYSTEM)


class Breakage(NamedTuple):
    """What is broken: an object that is deleted (no change), or changed in its place; and what has to be named first."""

    broken: dict[str, Any]
    change: Any
    what: str
    said: str = ""
    about: dict[str, Any] = {}  # what is named, if that is another object


def each_hook(key, value, only=""):
    def change(found):
        for hook in found["webhooks"]:
            if only in hook["name"]:
                hook[key] = value if not callable(value) else value(hook[key])

    return change


def at(*path, value):
    """Set what stands at a path."""

    def change(found):
        for key in path[:-1]:
            found = found[key]
        found[path[-1]] = value

    return change


def without(resource):
    """Take a right away."""

    def change(found):
        for rule in found["rules"]:
            if "resources" in rule:
                rule["resources"] = [one for one in rule["resources"] if one != resource] or ["nothing"]

    return change


def elsewhere(client):
    return client | {"service": client["service"] | {"namespace": "drawbridge-sytem"}}


def scheduler_reads(before, after):
    """Have the scheduler's configuration say something else, which it reads when it starts."""

    def change(found):
        text = found["data"]["scheduler.yaml"]
        assert before in text
        found["data"]["scheduler.yaml"] = text.replace(before, after)

    return change


def another_image(found):
    """Name another image in a Deployment that starts no pod meanwhile."""
    found["spec"]["paused"] = True
    found["spec"]["template"]["spec"]["containers"][0]["image"] += "-of-another-day"


OBJECTS = [
    Breakage(MUTATING, None, "O003", "pods"),
    Breakage(VALIDATING, None, "O003"),
    Breakage(QUOTA, None, "O003"),
    Breakage(VALIDATING, each_hook("failurePolicy", "Fail", "claims."), "O004", "failurePolicy"),
    Breakage(MUTATING, each_hook("namespaceSelector", {"matchLabels": {"no": "namespace"}}), "O004", "namespaceSelector"),
    Breakage(MUTATING, each_hook("objectSelector", {"matchLabels": {"no": "pod"}}), "O004", "objectSelector"),
    Breakage(MUTATING, each_hook("matchConditions", [{"name": "never", "expression": "false"}]), "O004", "matchConditions"),
    Breakage(MUTATING, each_hook("timeoutSeconds", 1), "O004", "timeoutSeconds"),
    Breakage(MUTATING, each_hook("reinvocationPolicy", "Never"), "O004", "reinvocationPolicy"),
    Breakage(MUTATING, each_hook("clientConfig", elsewhere), "O004", "clientConfig"),
    Breakage(QUOTAS, None, "O003"),
    Breakage(QUOTAS, lambda it: it["spec"]["versions"][0].pop("additionalPrinterColumns"), "O004", "additionalPrinterColumns"),
    Breakage(QUOTAS, lambda it: it["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].pop("spec"), "O004", "spec"),
    Breakage(named(HOOKS, "ValidatingAdmissionPolicy", "drawbridge-secrets"), None, "O003"),
    Breakage(MODE, None, "O003"),
    Breakage(named(HOOKS, "ValidatingAdmissionPolicy", "drawbridge-leases"), at("spec", "failurePolicy", value="Ignore"), "O004", "failurePolicy"),
    Breakage(MODE, at("spec", "validationActions", value=["Audit"]), "O004", "validationActions"),
    Breakage(role("drawbridge-webhook"), without("deviceclasses"), "O004", "rules"),
    Breakage(role("drawbridge-controller", "Role"), without("leases"), "O004", "rules"),
    Breakage(role("drawbridge-controller", "ClusterRoleBinding"), at("subjects", 0, "namespace", value="drawbridge-sytem"), "O004", "subjects"),
    Breakage(role("drawbridge-authority", "RoleBinding"), None, "O003"),
    Breakage(role("drawbridge-webhook", "ClusterRoleBinding"), None, "O003"),
    Breakage(role("drawbridge-controller"), None, "O003"),
    Breakage(SERVICE, None, "O003"),
    Breakage(SERVICE, at("spec", "selector", "app.kubernetes.io/component", value="webhooks"), "O004", "selector"),
    Breakage(SERVICE, at("spec", "ports", 0, "targetPort", value=9999), "O004", "ports"),
    Breakage(named("networking.k8s.io/v1", "NetworkPolicy", "drawbridge-webhook", SYSTEM), None, "O003"),
    Breakage(CONFIG, None, "O003"),
    Breakage(CONFIG, at("data", value={"drawbridge.yml": "mode: observe\n"}), "O002", "has no drawbridge.yaml"),
    Breakage(CONFIG, at("data", "drawbridge.yaml", value="apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: enforced\n"), "O002", "line 3"),
    Breakage(SCHEDULER, scheduler_reads("schedulerName: drawbridge", "schedulerName: drawbrigde"), "O002", "no profile in it is called drawbridge"),
    Breakage(SCHEDULER, scheduler_reads("enabled: [{name: Drawbridge, weight: 2}]", "enabled: []"), "O002", "neither the plugin Drawbridge nor an extender"),
    Breakage(INVENTORY, None, "O003", "pods of its namespace that mount it do not start"),
    Breakage(deployment("authority"), another_image, "O011", "of-another-day"),
    Breakage(deployment("controller"), at("spec", "replicas", value=0), "O009", "no templates are created"),
    Breakage(deployment("webhook"), at("spec", "replicas", value=0), "O009", "pods are admitted as written"),
    Breakage(deployment("authority"), at("spec", "replicas", value=0), "O009", "no certificate is renewed"),
    Breakage(deployment("allocator"), at("spec", "replicas", value=0), "O009", "0 replicas"),
]  # fmt: skip


def leaf(days, name=f"drawbridge.{SYSTEM}.svc"):
    """A certificate for so many days from now, of an authority that is not the installation's."""
    made = datetime.now(UTC) - timedelta(days=100)
    signer = authority.authority("drawbridge", now=made, life=timedelta(days=900))
    return base64.b64encode(
        authority.leaf(signer, [name], now=made, life=timedelta(days=100 + days)).certificate
    ).decode()


def another_bundle(client):
    other = authority.authority("drawbridge", now=datetime.now(UTC), life=timedelta(days=9))
    return client | {"caBundle": base64.b64encode(other.certificate).decode()}


# What the authority would fix at once.
OF_THE_AUTHORITY = [
    Breakage(MUTATING, each_hook("clientConfig", another_bundle), "O007", "not of the authority"),
    Breakage(VALIDATING, each_hook("rules", []), "O008", "no rules or no bundle"),
    Breakage(SECRET, None, "O006", "does not exist"),
    Breakage(SECRET, lambda it: it["data"].update({"tls.crt": leaf(-1)}), "O006", "expired"),
    Breakage(SECRET, lambda it: it["data"].update({"tls.crt": leaf(9, "other.svc")}), "O006", "is for other.svc"),
    Breakage(SECRET, lambda it: it["data"].update({"tls.crt": ""}), "O006", "no certificate that can be read"),
    Breakage(SECRET, lambda it: it["data"].update({"tls.crt": leaf(9)}), "O007", "not of the authority", MUTATING),
    Breakage(SIGNATURE, None, "O003", "no template can be verified"),
]  # fmt: skip


def label(one):
    change = "changed" if one.change else "deleted"
    return f"{one.broken['kind']} {one.broken['metadata']['name']} {change}: {one.said or one.what}"


def clean(found):
    return found | {"metadata": {key: value for key, value in found["metadata"].items() if key not in VOLATILE}}


@contextmanager
def broken(cluster, item, change):
    """Break one object, and put it back as it was."""
    before = cluster.read(item)

    def write():
        after = cluster.read(item)
        change(after)
        return cluster.put(cluster.path_of(item), after)

    try:
        if change is None:
            cluster.remove(item)
            cluster.until("it is gone", lambda: cluster.read(item) is None)
        else:
            cluster.until("it is changed", write)
        yield
    finally:
        cluster.until("it is as before", lambda: put_back(cluster, before))


@contextmanager
def away(cluster, component):
    """A Deployment without a replica. Its pods have a second: one that only begins hears no SIGTERM, and would have half a minute."""
    path = f"/api/v1/namespaces/{SYSTEM}/pods"
    item = deployment(component)
    with broken(cluster, item, at("spec", "replicas", value=0)):

        def gone():
            there = cluster.get(path, labelSelector=f"app.kubernetes.io/component={component}")["items"]
            for one in there:
                cluster.delete(f"{path}/{one['metadata']['name']}", gracePeriodSeconds=1)
            found = cluster.read(item)
            seen = found["status"].get("observedGeneration") == found["metadata"]["generation"]
            return seen and not there and not found["status"].get("replicas")

        cluster.until(f"the {component} is away", gone, 60)
        yield


def put_back(cluster, before):
    there = cluster.read(before)
    if there is None:
        return cluster.create(clean(before))
    version = {"resourceVersion": there["metadata"]["resourceVersion"]}
    return cluster.put(cluster.path_of(before), clean(before) | {"metadata": clean(before)["metadata"] | version})


def ailments(cluster, kubeconfig=None):
    """What is found, and in which time; the process and its imports are there already."""

    async def look():
        api = Kubernetes.connect(kubeconfig=str(kubeconfig or cluster.kubeconfig))
        try:
            return list(diagnose(await survey(api, datetime.now(UTC), None, api)))
        finally:
            await api.close()

    begun = time.process_time()
    found = asyncio.run(look())
    assert time.process_time() - begun < SECONDS
    return found


def is_named_first(cluster, breakage, after=()):
    """A breakage is the first finding, but for those `after` which it comes."""
    found = ailments(cluster)
    one = found[len(after)]
    named = [(it.code, it.object) for it in found[: len(after) + 1]]
    assert named == [*after, (breakage.what, name_of(breakage.about or breakage.broken))], [f"{it.object}: {it.code}: {it.message}" for it in found]  # fmt: skip
    assert breakage.said in one.message
    assert one.remedy


def name_of(item):
    meta = item["metadata"]
    return f"{item['kind']}/{meta['namespace'] + '/' if 'namespace' in meta else ''}{meta['name']}"


@pytest.fixture(scope="module")
def cluster(installation):
    """The cluster, whose installation is well before and after all of it."""
    well(installation.cluster)
    yield installation.cluster
    well(installation.cluster)


def well(cluster):
    cluster.until("nothing is wrong", lambda: not ailments(cluster), 90, lambda: ailments(cluster))


def test_a_snapshot_of_it_is_well_and_a_reader_of_little_is_told_what_was_not_read(cluster, tenants, tmp_path):
    well(cluster)
    file = tmp_path / "snapshot.json"
    product.run([PROGRAM, "snapshot", "--kubeconfig", str(cluster.kubeconfig), "--to", str(file)])
    assert product.run([PROGRAM, "doctor", "-f", str(file)]).endswith("0 findings\n")
    little = cluster.account_kubeconfig(tenants, "default")
    done = subprocess.run([PROGRAM, "doctor", "--kubeconfig", str(little), "-o", "json"], capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["findings"]) == (3, [])
    assert {"deployments.apps", "pods", "leases.coordination.k8s.io"} <= {one["kind"] for one in answer["unread"]}


def gpu(name, namespace, count=1, **spec):
    return pod(name, namespace, container(**limits(**{"nvidia.com/gpu": count})), **spec)


def came_while_the_webhook_was_away(cluster, tenants):
    item = gpu("silent", tenants)
    with broken(cluster, MUTATING, None):
        cluster.create(untouched(cluster, item))
    return item, "O103", "webhook was down", [item]


def where_nothing_is_translated(cluster, tenants):
    del tenants
    item = gpu("observed", cluster.namespace("observing"))
    cluster.create(item)
    return item, "O103", "the configuration says mode: observe", [item]


def in_a_misspelt_mode(cluster, tenants):
    del tenants
    space = named("v1", "Namespace", "misspelt")
    space["metadata"]["labels"] = {"drawbridge.dev/mode": "enforced"}
    with broken(cluster, MODE, None):
        cluster.until("the policy is off", lambda: cluster.create(space))
    return space, "D214", "'enforced'", [space]


def of_a_class_that_does_not_exist(cluster, tenants):
    del tenants
    item = claim("lost", cluster.namespace("elsewhere"), request("gpu", "none.example.com"))
    cluster.create(item)
    return named("resource.k8s.io/v1", "DeviceClass", "none.example.com"), "O107", "lost", [item]


def for_what_no_claim_can_stand(cluster, tenants):
    item = pod("unserved", tenants, container(**limits(**{"habana.ai/gaudi": 1})))
    cluster.create(item)
    return item, "O104", "habana.ai/gaudi", [item]


def a_second_installation(cluster, tenants):
    del tenants
    there = cluster.namespace("gpu-tools")
    other = clean(cluster.read(deployment("webhook")))
    other["metadata"] |= {"namespace": there}
    other["spec"] |= {"replicas": 0}
    del other["status"]
    cluster.create(other)
    return named("v1", "Namespace", there), "O001", SYSTEM, [other]


@pytest.mark.parametrize(
    "make",
    [
        came_while_the_webhook_was_away,
        where_nothing_is_translated,
        in_a_misspelt_mode,
        of_a_class_that_does_not_exist,
        for_what_no_claim_can_stand,
        a_second_installation,
    ],
)
def test_doctor_names_first_an_object_created_at_a_wrong_time_or_place(cluster, tenants, make):
    about, what, said, made = make(cluster, tenants)
    try:
        one = cluster.until("it is found", lambda: next(iter(ailments(cluster)), None))
        assert (one.code, one.object) == (what, name_of(about)), [f"{it.object}: {it.code}" for it in ailments(cluster)]
        assert said in one.message
    finally:
        cluster.remove(*made)
        cluster.until("it is gone", lambda: name_of(about) not in [it.object for it in ailments(cluster)])


@pytest.mark.parametrize("breakage", OBJECTS, ids=label)
def test_doctor_names_a_broken_installation_object_first(cluster, breakage):
    with broken(cluster, breakage.broken, breakage.change):
        is_named_first(cluster, breakage)


def test_a_dead_installation_is_told_of_in_full(cluster):
    """Both configurations deleted, and nothing runs."""
    workloads = [deployment(one) for one in ("controller", "webhook", "authority", "allocator")]
    with ExitStack() as stack:
        for item in (MUTATING, VALIDATING):
            stack.enter_context(broken(cluster, item, None))
        for item in workloads:
            stack.enter_context(broken(cluster, item, at("spec", "replicas", value=0)))
        found = {(ailment.code, ailment.object) for ailment in ailments(cluster)}
    assert found >= {("O003", name_of(MUTATING)), ("O003", name_of(VALIDATING))}
    assert found >= {("O009", name_of(item)) for item in workloads}


@pytest.fixture(scope="module")
def unattended(cluster):
    """The authority is away, which would fix these at once."""
    with away(cluster, "authority"):
        yield cluster


@pytest.mark.parametrize("breakage", OF_THE_AUTHORITY, ids=label)
def test_doctor_names_a_stopped_authority_and_then_what_it_does_not_repair(unattended, breakage):
    with broken(unattended, breakage.broken, breakage.change):
        is_named_first(unattended, breakage, after=[("O009", name_of(deployment("authority")))])
