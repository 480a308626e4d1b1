"""What `drawbridge doctor` and `explain` name first where something around drawbridge is broken: the store, Kubernetes' own controllers,
nodes, drivers, what others refuse. One cluster for all of it: each is broken, asked about by the command, and fixed.
"""

import datetime as dt
import json
import resource
import subprocess
import urllib.request
from contextlib import contextmanager

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from e2e.actors import fleet
from e2e.actors.webhook import COMMAND, SYSTEM, Webhook, gpu
from e2e.actors.workloads import claim, container, limits, pod, request, template, using
from e2e.ground import pki
from e2e.ground.controlplane import ControlPlane
from e2e.installed.test_doctor import HOOKS, ailments, named
from e2e.kubernetes.test_survey import Markers, secretive
from tests.cli.running import run_json

pytestmark = [pytest.mark.real, pytest.mark.gated, pytest.mark.time_limit(240, "nothing is stored for 45 s, and twenty breakages are made and repaired")]  # fmt: skip

SECONDS = (
    5.0  # of its processor, and of its time where nothing is waited for: the machine may be busy with other things
)
TEAM = "team"
NODE = "night-0"
DRIVER = "night.example.com"
LEADS = {"leaderElection": {"leaderElect": True}}
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture(scope="module")
def night(people):
    """A control plane with drawbridge beside it, a node with GPUs, and a pod that has one."""
    with ControlPlane(
        name="night",
        controller_args=["--leader-elect=true"],
        scheduler=LEADS,
        api_args=[f"--client-ca-file={people.authority}"],
    ) as cluster:
        cluster.add_fake_nodes(1, prefix="night-")
        devices = [fleet.device("only", {"mode": "whole"})]
        cluster.create(*fleet.classes(extended=False), fleet.device_class("night", f"device.driver == '{DRIVER}'"))
        cluster.create(*fleet.slices(fleet.NVIDIA, NODE, fleet.whole_gpus(2), by_name=True), *fleet.slices(DRIVER, NODE, devices, by_name=True))  # fmt: skip
        webhook = Webhook(cluster).install()
        cluster.delete(DEPLOYMENTS)  # its processes run beside the cluster
        cluster.namespace(TEAM)
        webhook.admits(TEAM)
        webhook.reads_on(NODE)
        cluster.create(gpu("keeps", TEAM))
        cluster.wait_scheduled(TEAM, "keeps")
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            change(
                cluster,
                f"{WEBHOOKS}/{kind}/drawbridge",
                lambda found: [one.update(timeoutSeconds=3) for one in found["webhooks"]],
            )
        well(cluster)
        yield cluster, webhook


def said(cluster, *words, kubeconfig=None, ends=None):
    """What a command prints, which takes no longer than it may."""
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*COMMAND, *words, "--kubeconfig", str(kubeconfig or cluster.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime < SECONDS
    assert ends is None or done.returncode == ends, done
    return done.stdout + done.stderr


def well(cluster):
    cluster.until("nothing is wrong", lambda: not ailments(cluster), 20)


def named_first(cluster, about, what, words, seconds=20):
    """Wait until a thing is found first; then ask the command, which says what is wrong with it and what to do."""

    def is_found():
        one = next(iter(ailments(cluster)), None)
        return one is not None and one.object.startswith(about) and (one.code, words in one.message) == (what, True)

    try:
        cluster.until("it is found first", is_found, seconds)
    except AssertionError as error:
        raise AssertionError(f"{about}: {what}: {words}: {error}, but:\n{said(cluster, 'doctor')}") from None
    first, message, remedy, *_ = said(cluster, "doctor", ends=1).splitlines()
    assert (first.startswith(about), f" {what}: " in message, words in message) == (True, True, True), (first, message)
    assert remedy.startswith("  ")


def change(cluster, path, edit):
    """Change an object in its place, however often others do so meanwhile; answer with how it was."""

    def write():
        found = cluster.get(path)
        before = json.loads(json.dumps(found))
        edit(found)
        cluster.put(path, found)
        return before

    return cluster.until(f"{path} is changed", write)


@contextmanager
def there(cluster, *items):
    """Objects for as long as something is asked; a webhook may have no time for one at once."""
    try:
        for item in items:
            cluster.until(
                f"{item['kind']} {item['metadata']['name']} is made",
                lambda item=item: cluster.read(item) or cluster.create(item),
            )
        yield
    finally:
        cluster.remove(*reversed(items))
        cluster.until("they are gone", lambda: not any(map(cluster.read, items)))


# What only time shows: all of it is made at once, and seen after the longest wait.


KEPT = claim("kept", TEAM, request("r", "night"))
KEPT["metadata"]["finalizers"] = ["night.example.com/keeps"]
ENDING = claim("ending", "ending", request("r", "night"))
ENDING["metadata"]["finalizers"] = ["night.example.com/keeps-too"]
SOUGHT = claim("sought", TEAM, request("r", "night"))
LOST = pod("lost", TEAM, schedulerName="no-such-scheduler", resourceClaims=[using("sought")])
SPACE = named("v1", "Namespace", "ending")
ELECTED = {
    "kube-controller-manager": "no claim is created from a template",
    "kube-scheduler": "no pod of its profiles is placed",
}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def test_doctor_names_faults_that_only_time_reveals_one_after_the_other(night):
    """First the store that takes nothing, then the controllers without a leader, then what waits for something missing."""
    cluster, _ = night
    cluster.create(SPACE)
    cluster.until(
        "claims are made", lambda: [cluster.read(one) or cluster.create(one) for one in (KEPT, ENDING, SOUGHT, LOST)]
    )
    cluster.remove(KEPT, ENDING, SPACE)
    cluster.until("the namespace says what keeps it", lambda: "keeps-too" in json.dumps(cluster.read(SPACE)["status"]))
    for name in ELECTED:
        cluster.named(name).stop(hard=True)
    with no_space(cluster):
        named_first(cluster, "Lease/kube-system/", "O020", "NOSPACE", 90)
    for name, without in ELECTED.items():
        named_first(cluster, f"Lease/kube-system/{name}", "O017", without, 40)
        cluster.delete(f"{LEASES}/{name}")  # what comes need not wait until it has run out
        cluster.kill(name)
    named_first(cluster, f"Pod/{TEAM}/lost", "O109", "no scheduler called no-such-scheduler has tried team/lost", 40)
    assert "no-such-scheduler" in said(cluster, "explain", "pod", "lost", "-n", TEAM, ends=0)
    cluster.remove(LOST, SOUGHT)
    named_first(cluster, "ResourceClaim/ending/ending", "O215", "finalizer night.example.com/keeps-too keeps it")
    free(cluster, ENDING)
    cluster.until("the namespace is gone", lambda: cluster.read(SPACE) is None)
    named_first(cluster, f"ResourceClaim/{TEAM}/kept", "O215", "finalizer night.example.com/keeps keeps it")
    free(cluster, KEPT)
    well(cluster)


def free(cluster, item):
    cluster.patch(cluster.path_of(item), {"metadata": {"finalizers": None}})


@contextmanager
def no_space(cluster):
    """etcd's alarm, as where its disk is full: everything is read, and nothing written."""
    [member] = etcd(cluster, "cluster/member/list", {})["members"]
    alarm = {"memberID": member["ID"], "alarm": "NOSPACE"}
    etcd(cluster, "maintenance/alarm", alarm | {"action": "ACTIVATE"})
    try:
        yield
    finally:
        etcd(cluster, "maintenance/alarm", alarm | {"action": "DEACTIVATE"})


def etcd(cluster, path, body):
    asked = urllib.request.Request(f"{cluster.etcd}/v3/{path}", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return json.load(answer)


# What shows at once.


@contextmanager
def a_node_that_is_not_ready(cluster, _):
    def ready(status):
        one = {
            "type": "Ready",
            "status": status,
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
        }
        cluster.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": [one]}}, "strategic")

    ready("Unknown")
    try:
        yield f"Node/{NODE}", "O201", "claims team/keeps-drawbridge-"
    finally:
        ready("True")


@contextmanager
def a_webhook_that_does_not_answer(_, webhook):
    """As behind a firewall or a NetworkPolicy: what the API server sends is taken, and there is no answer."""
    with webhook.processes["webhook"].frozen():
        yield "MutatingWebhookConfiguration/drawbridge", "O015", "context deadline exceeded"


@contextmanager
def a_webhook_that_is_passed_by(cluster, webhook):
    """The same under failurePolicy Ignore, under which no error is seen."""
    path = f"{WEBHOOKS}/mutatingwebhookconfigurations/drawbridge"

    def policy(word):
        change(cluster, path, lambda found: [one.update(failurePolicy=word) for one in found["webhooks"]])

    policy("Ignore")
    try:
        with webhook.processes["webhook"].frozen():
            yield (
                "MutatingWebhookConfiguration/drawbridge",
                "O015",
                "bypassed the webhook under failurePolicy Ignore",
            )
    finally:
        policy("Fail")


@contextmanager
def a_webhook_without_a_listener(cluster, webhook):
    """As behind a Service without endpoints: the connection is refused."""
    webhook.processes["webhook"].stop()
    try:
        yield "MutatingWebhookConfiguration/drawbridge", "O015", "connection refused"
    finally:
        webhook.start_webhook()


@contextmanager
def a_pool_that_is_not_whole(cluster, _):
    [one] = fleet.slices("parts.example.com", NODE, fleet.whole_gpus(2), by_name=True, pool="parts")
    one["spec"]["pool"]["resourceSliceCount"] = 2
    with there(cluster, one):
        yield f"ResourceSlice/{one['metadata']['name']}", "D401", "1 of 2 slices of pool parts"


@contextmanager
def devices_that_are_all_tainted(cluster, _):
    spec = {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "night.example.com/repair", "effect": "NoExecute"}}
    rule = named("resource.k8s.io/v1", "DeviceTaintRule", "repair") | {"spec": spec}
    with there(cluster, rule, claim("kept-away", TEAM, request("r", "night"))):
        yield (
            "DeviceTaintRule/repair",
            "O111",
            f"every device of {DRIVER} has the taint night.example.com/repair, which is not tolerated by ResourceClaim/{TEAM}/kept-away",
        )


def asking(space, **resources):
    """A workload of one pod with a GPU in its own namespace."""
    template = {
        "metadata": {"labels": {"app": "asks"}},
        "spec": {"containers": [container(**limits(**{"nvidia.com/gpu": 1} | resources))]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "asks"}}, "template": template}
    return named("apps/v1", "Deployment", "asks", space) | {"spec": spec}


def refusing(words, what, said, *objects, labels=None, **resources):
    """Something in the namespace of a workload that keeps its pod from being made, or from its claim."""

    @contextmanager
    def make(cluster, webhook):
        space = words.replace(" ", "-")
        tried = json.dumps(template("tried", space, request("r", "night")))
        cluster.namespace(space, (labels or {}) | {"drawbridge.dev/mode": "enforce"})
        named_ = [
            obj | {"metadata": obj["metadata"] | ({} if obj["kind"].startswith("Valid") else {"namespace": space})}
            for obj in objects
        ]
        with there(cluster, *named_):
            for one in named_:
                if one["kind"] == "ValidatingAdmissionPolicy":
                    cluster.until(
                        "it refuses",
                        lambda: (
                            cluster.kubectl(
                                "create", "--dry-run=server", "-f", "-", input=tried, check=False
                            ).returncode
                        ),
                    )
                if one["kind"] == "ResourceQuota":
                    cluster.until("the quota counts", lambda one=one: cluster.read(one)["status"].get("hard"))
            webhook.admits(space)
            with there(cluster, asking(space, **resources)):
                yield f"{'ReplicaSet' if what == 'O101' else 'Pod'}/{space}/asks-", what, said
        cluster.until("its pods are gone", lambda: gone(cluster, space))

    make.__name__ = words
    return make


def gone(cluster, space):
    places = [f"/apis/apps/v1/namespaces/{space}/replicasets", f"/api/v1/namespaces/{space}/pods"]
    for place in places:
        cluster.delete(place, gracePeriodSeconds=0)
    return not any(cluster.get(place)["items"] for place in places)


def quota(name, amount):
    return named("v1", "ResourceQuota", "few") | {"spec": {"hard": {name: amount}}}


LIMITED = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
SMALL = named("v1", "LimitRange", "small") | {"spec": LIMITED}
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
GUARD = {
    "name": "guard.example.com",
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "failurePolicy": "Fail",
    "clientConfig": {"url": "https://127.0.0.1:1/"},
    "rules": [PODS],
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "a-dead-webhook-of-others"}},
}
DEAD = named(HOOKS, "ValidatingWebhookConfiguration", "guard") | {"webhooks": [GUARD]}
COUNT = "count/{}.resource.k8s.io"
OWNED = named(HOOKS, "ValidatingAdmissionPolicy", "owned") | {"spec": {
    "matchConstraints": {"resourceRules": [{"apiGroups": ["resource.k8s.io"], "apiVersions": ["*"], "resources": ["resourceclaimtemplates"], "operations": ["CREATE"]}]},
    "validations": [{"expression": "'owner' in object.metadata.?labels.orValue({})", "message": "every object needs an owner"}],
}}  # fmt: skip
IN_ONE = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "a-policy-against-templates"}}}
OWNED_THERE = named(HOOKS, "ValidatingAdmissionPolicyBinding", "owned") | {
    "spec": {"policyName": "owned", "validationActions": ["Deny"], "matchResources": IN_ONE}
}

AT_ONCE = [
    a_node_that_is_not_ready,
    a_webhook_that_does_not_answer,
    a_webhook_that_is_passed_by,
    a_webhook_without_a_listener,
    a_pool_that_is_not_whole,
    devices_that_are_all_tainted,
    refusing("a dead webhook of others", "O101", 'failed calling webhook "guard.example.com"', DEAD),
    refusing("limits", "O101", "maximum cpu usage per Container is 1", SMALL, cpu=2),
    refusing("security", "O101", 'violates PodSecurity "restricted:latest"', labels={"pod-security.kubernetes.io/enforce": "restricted"}),
    refusing("a quota of pods", "O101", "exceeded quota: few", quota("pods", "0")),
    refusing("a quota of claims", "O106", "exceeded quota: few", quota(COUNT.format("resourceclaims"), "0")),
    refusing("a policy against templates", "O105", "denied request: every object needs an owner", OWNED, OWNED_THERE),
    refusing("a quota of templates", "O105", "ResourceQuota a-quota-of-templates/few has no room for", quota(COUNT.format("resourceclaimtemplates"), "0")),
]  # fmt: skip


@pytest.mark.parametrize("breakage", AT_ONCE, ids=lambda make: make.__name__.replace("_", " "))
def test_doctor_names_a_single_fault_around_drawbridge_first(night, breakage):
    cluster, webhook = night
    with breakage(cluster, webhook) as (about, what, words):
        named_first(cluster, about, what, words)
    well(cluster)


# A file of it


ASKED = [
    ("explain", "pod", "keeps", "-n", TEAM),
    ("explain", "pod", "waits", "-n", TEAM),
    ("explain", "claim", "kept-away", "-n", TEAM),
    ("survey",),
    ("free", NODE),
]
SIMULATED = "nodes,pods,resourceclaims,resourceclaimtemplates,resourceslices,deviceclasses,devicetaintrules,namespaces"
OF_THE_SOURCE = ("file", "line", "server", "objects", "notChecked")


def marked(space, mark):
    """Objects with a marker in all that the commands do not need: of tenants, and of the cluster."""
    yield from secretive(space, mark)
    opaque = {"driver": DRIVER, "parameters": {"apiVersion": "night.example.com/v1", "kind": "Any", "key": mark()}}
    of_class = {"selectors": [{"cel": {"expression": "false"}}], "config": [{"opaque": opaque}]}
    yield named("resource.k8s.io/v1", "DeviceClass", "marked") | {"spec": of_class}
    annotated = named("v1", "Node", "marked")
    annotated["metadata"]["annotations"] = {"cloud.example.com/instance": mark(), "kubernetes.io/description": mark()}
    yield annotated
    about = {"kind": "Pod", "namespace": space, "name": "pod", "fieldPath": mark()}
    event = named("v1", "Event", "marked", space) | {"involvedObject": about, "reason": mark(), "message": mark()}
    yield event | {"source": {"component": mark(), "host": mark()}, "action": mark(), "reportingInstance": mark()}
    lease = named("coordination.k8s.io/v1", "Lease", "marked", space)
    lease["metadata"]["annotations"] = {"example.com/leader": mark()}
    yield lease | {"spec": {"holderIdentity": "holder", "leaseDurationSeconds": 15}}
    yield named("v1", "Secret", "marked", space) | {"stringData": {"password": mark()}}
    yield named("v1", "ConfigMap", "marked", space) | {"data": {"settings.yaml": mark("password: {}")}}


def mark_states(cluster, space, mark):
    """What kubelets and runtimes write, and who has written a field."""
    told = {"machineID": mark(), "systemUUID": mark(), "bootID": mark(), "kernelVersion": mark(), "osImage": mark()}
    told |= {"containerRuntimeVersion": mark(), "kubeletVersion": mark(), "kubeProxyVersion": mark()}
    told |= {"operatingSystem": mark(), "architecture": mark()}
    status = {
        "nodeInfo": told,
        "addresses": [{"type": "Hostname", "address": mark()}],
        "images": [{"names": [mark()], "sizeBytes": 1}],
        "volumesInUse": [mark()],
        "conditions": [{"type": "Ready", "status": "True", "reason": "Fake", "message": mark()}],
    }
    cluster.patch("/api/v1/nodes/marked/status", {"status": status}, "strategic")
    ended = {"terminated": {"exitCode": 1, "message": mark(), "reason": mark()}}
    one = {"name": "main", "image": mark(), "imageID": mark(), "ready": False, "restartCount": 1, "lastState": ended}
    pod_status = {
        "message": mark(),
        "containerStatuses": [one],
        "conditions": [{"type": "a.example.com/b", "status": "False", "message": mark()}],
    }
    place = f"/api/v1/namespaces/{space}/pods/pod"
    cluster.patch(f"{place}/status", {"status": pod_status}, "strategic")
    cluster.patch(place, {"metadata": {"annotations": {"example.com/written": "yes"}}}, fieldManager=mark())


def test_a_snapshot_answers_as_the_cluster_does_and_holds_none_of_the_markers(night, tmp_path):
    cluster, webhook = night
    mark, space = Markers(), cluster.namespace("secretive", {"drawbridge.dev/mode": "off"})
    with (
        there(cluster, *marked(space, mark)),
        a_pool_that_is_not_whole(cluster, webhook),
        devices_that_are_all_tainted(cluster, webhook),
    ):
        mark_states(cluster, space, mark)
        with there(cluster, gpu("waits", TEAM, nodeSelector={"kubernetes.io/hostname": "nowhere"})):
            cluster.wait_unschedulable(TEAM, "waits")
            file, dump = tmp_path / "snapshot.json", tmp_path / "dump.json"
            said(cluster, "snapshot", "--to", str(file), ends=0)
            dump.write_text(cluster.kubectl("get", SIMULATED, "-A", "-o", "json", "--show-managed-fields").stdout)
            asked = [("doctor", "--config", webhook.config), *ASKED]  # what its ConfigMap says is not in a file
            live = [answer(cluster, *words) for words in asked]
    text = file.read_text()
    assert len(mark.given) >= 40
    assert [one for one in mark.given if one in text] == []
    stored = dump.read_text()
    assert sum(one in stored for one in mark.given) >= 40
    assert [answer(cluster, *words, file=file) for words in asked] == live
    assert {one["code"] for one in live[0]["findings"]} >= {"O104", "D401", "O111"}
    simulated = [answer(cluster, "simulate", file=one) for one in (dump, file)]
    assert simulated[0] == simulated[1]


def answer(cluster, *words, file=None):
    """What a command answers, of the cluster or of a file; what is told of the source itself is left out."""
    source = ("--kubeconfig", cluster.kubeconfig) if file is None else ("-f", file)
    return without(run_json(*words, *source)[1])


def without(value):
    if isinstance(value, list):
        return [without(one) for one in value]
    if isinstance(value, dict):
        return {key: without(one) for key, one in value.items() if key not in OF_THE_SOURCE}
    return value


# What the command itself is told.


def test_a_certificate_that_has_expired_is_said_to_have(night, people):
    cluster, _ = night
    assert said(cluster, "doctor", kubeconfig=people(cluster, dt.timedelta(hours=1)), ends=0) == "0 findings\n"
    late = people(cluster, -dt.timedelta(days=3))
    for words in (["explain", "pod", "keeps", "-n", TEAM], ["doctor"]):
        assert said(cluster, *words, kubeconfig=late, ends=3).startswith(
            "error: the client certificate of the kubeconfig expired at 20"
        )


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """The kubeconfig of an administrator with a certificate, which is valid for so long from now."""
    folder = tmp_path_factory.mktemp("people")
    authority = ec.generate_private_key(ec.SECP256R1())
    root = pki.name("people")
    signed = pki.builder(root, root, authority.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    (folder / "ca.crt").write_bytes(pki.pem(signed.sign(authority, hashes.SHA256())))

    def kubeconfig(cluster, life):
        key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
        who = x509.Name(
            [
                x509.NameAttribute(NameOID.COMMON_NAME, "night"),
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters"),
            ]
        )
        made = x509.CertificateBuilder().subject_name(who).issuer_name(root).public_key(key.public_key())
        made = (
            made.serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=9))
            .not_valid_after(now + life)
        )
        made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        (folder / "night.crt").write_bytes(pki.pem(made.sign(authority, hashes.SHA256())))
        pki.private(folder / "night.key", key)
        written = json.loads(cluster.kubeconfig.read_text())
        written["users"][0]["user"] = {
            "client-certificate": str(folder / "night.crt"),
            "client-key": str(folder / "night.key"),
        }
        file = folder / "kubeconfig"
        file.write_text(json.dumps(written))
        return file

    kubeconfig.authority = folder / "ca.crt"
    return kubeconfig


def test_an_api_server_that_is_away_is_said_to_be(night):
    """The last of all: nothing is asked of this cluster afterwards."""
    cluster, _ = night
    cluster.apiserver.stop(hard=True)
    for words in (["explain", "pod", "keeps", "-n", TEAM], ["doctor"]):
        told = said(cluster, *words, ends=3)
        assert told.startswith("error: ")
        assert "try again when the API server answers" in told
