"""The first line of `drawbridge doctor` and `explain` with a fault around drawbridge: the store, Kubernetes' controllers, nodes, drivers,
foreign webhooks. One cluster for all faults: each is made, examined by the command, and repaired.
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
from e2e.actors.workloads import claim, pod, request, using
from e2e.ground import pki
from e2e.ground.controlplane import ControlPlane
from e2e.installed.breakages import findings_of_doctor, reference
from e2e.kubernetes.test_survey import Markers, secretive
from e2e.webhook.breakages import (
    AT_ONCE,
    DRIVER,
    NODE,
    TEAM,
    WEBHOOKS,
    a_pool_that_is_not_whole,
    change,
    devices_that_are_all_tainted,
    there,
)
from tests.cli.running import run_json

pytestmark = [pytest.mark.real, pytest.mark.gated, pytest.mark.timeout(600)]  # fmt: skip
SECONDS = 5.0  # CPU seconds, and seconds where nothing is waited for: the machine may be busy
LEADS = {"leaderElection": {"leaderElect": True}}
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"


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
        cluster.patch(f"/api/v1/namespaces/{TEAM}/pods/keeps/status", {"status": {"phase": "Running"}})
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            change(
                cluster,
                f"{WEBHOOKS}/{kind}/drawbridge",
                lambda configuration: [hook.update(timeoutSeconds=3) for hook in configuration["webhooks"]],
            )
        well(cluster)
        yield cluster, webhook


def output_of(cluster, *words, kubeconfig=None, ends=None):
    """Return a command's output; fail if it takes too much CPU time."""
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*COMMAND, *words, "--kubeconfig", str(kubeconfig or cluster.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime < SECONDS
    assert ends is None or done.returncode == ends, done
    return done.stdout + done.stderr


def well(cluster):
    cluster.until("nothing is wrong", lambda: not findings_of_doctor(cluster), 20)


def named_first(cluster, about, what, words, seconds=20):
    """Wait until a finding is the first one; then run the command, which prints its message and remedy."""

    def is_found():
        finding = next(iter(findings_of_doctor(cluster)), None)
        return (
            finding is not None
            and finding.object.startswith(about)
            and (finding.code, words in finding.message) == (what, True)
        )

    try:
        cluster.until("it is found first", is_found, seconds)
    except AssertionError as error:
        raise AssertionError(f"{about}: {what}: {words}: {error}, but:\n{output_of(cluster, 'doctor')}") from None
    summary, _, first, message, remedy, *_ = output_of(cluster, "doctor", ends=1).splitlines()
    assert " finding" in summary
    assert (first.startswith(about), f" {what}: " in message, words in message) == (True, True, True), (first, message)
    assert remedy.startswith("  ")


# Faults that only time shows: all are made at once and examined after the longest wait.


KEPT = claim("kept", TEAM, request("r", "night"))
KEPT["metadata"]["finalizers"] = ["night.example.com/keeps"]
ENDING = claim("ending", "ending", request("r", "night"))
ENDING["metadata"]["finalizers"] = ["night.example.com/keeps-too"]
SOUGHT = claim("sought", TEAM, request("r", "night"))
LOST = pod("lost", TEAM, schedulerName="no-such-scheduler", resourceClaims=[using("sought")])
SPACE = reference("v1", "Namespace", "ending")
ELECTED = ("kube-controller-manager", "kube-scheduler")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def test_doctor_names_faults_that_only_time_reveals_in_order(night):
    """First the store that rejects writes, then controllers without a leader, then objects that wait for something missing."""
    cluster, _ = night
    cluster.create(SPACE)
    cluster.until(
        "claims are made", lambda: [cluster.read(item) or cluster.create(item) for item in (KEPT, ENDING, SOUGHT, LOST)]
    )
    cluster.remove(KEPT, ENDING, SPACE)
    cluster.until("the namespace says what keeps it", lambda: "keeps-too" in json.dumps(cluster.read(SPACE)["status"]))
    for name in ELECTED:
        cluster.process(name).stop(hard=True)
    with no_space(cluster):
        named_first(cluster, "Lease/kube-system/", "O020", "NOSPACE", 90)
    for name in ELECTED:
        named_first(cluster, f"Lease/kube-system/{name}", "O017", "", 40)
        cluster.delete(f"{LEASES}/{name}")  # new pods need not wait until the lease has expired
        cluster.kill(name)
    named_first(cluster, f"Pod/{TEAM}/lost", "O109", "no-such-scheduler", 40)
    assert "no-such-scheduler" in output_of(cluster, "explain", "pod", "lost", "-n", TEAM, ends=0)
    cluster.remove(LOST, SOUGHT)
    named_first(cluster, "ResourceClaim/ending/ending", "O215", "night.example.com/keeps-too")
    free(cluster, ENDING)
    cluster.until("the namespace is gone", lambda: cluster.read(SPACE) is None)
    named_first(cluster, f"ResourceClaim/{TEAM}/kept", "O215", "night.example.com/keeps")
    free(cluster, KEPT)
    well(cluster)


def free(cluster, item):
    cluster.patch(cluster.path_of(item), {"metadata": {"finalizers": None}})


@contextmanager
def no_space(cluster):
    """etcd's NOSPACE alarm, as with a full disk: reads work, and writes fail."""
    [member] = etcd(cluster, "cluster/member/list", {})["members"]
    alarm = {"memberID": member["ID"], "alarm": "NOSPACE"}
    etcd(cluster, "maintenance/alarm", alarm | {"action": "ACTIVATE"})
    try:
        yield
    finally:
        etcd(cluster, "maintenance/alarm", alarm | {"action": "DEACTIVATE"})


def etcd(cluster, path, body):
    post = urllib.request.Request(f"{cluster.etcd}/v3/{path}", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(post, timeout=10) as answer:
        return json.load(answer)


@pytest.mark.parametrize("breakage", AT_ONCE, ids=lambda make: make.__name__.replace("_", " "))
def test_doctor_names_a_single_fault_around_drawbridge_first(night, breakage):
    cluster, webhook = night
    with breakage(cluster, webhook) as (about, what, words):
        named_first(cluster, about, what, words)
    well(cluster)


# A snapshot of the cluster


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
    """Objects of tenants and of the cluster with a marker in every field that the commands do not need."""
    yield from secretive(space, mark)
    opaque = {"driver": DRIVER, "parameters": {"apiVersion": "night.example.com/v1", "kind": "Any", "key": mark()}}
    of_class = {"selectors": [{"cel": {"expression": "false"}}], "config": [{"opaque": opaque}]}
    yield reference("resource.k8s.io/v1", "DeviceClass", "marked") | {"spec": of_class}
    annotated = reference("v1", "Node", "marked")
    annotated["metadata"]["annotations"] = {"cloud.example.com/instance": mark(), "kubernetes.io/description": mark()}
    yield annotated
    about = {"kind": "Pod", "namespace": space, "name": "pod", "fieldPath": mark()}
    event = reference("v1", "Event", "marked", space) | {"involvedObject": about, "reason": mark(), "message": mark()}
    yield event | {"source": {"component": mark(), "host": mark()}, "action": mark(), "reportingInstance": mark()}
    lease = reference("coordination.k8s.io/v1", "Lease", "marked", space)
    lease["metadata"]["annotations"] = {"example.com/leader": mark()}
    yield lease | {"spec": {"holderIdentity": "holder", "leaseDurationSeconds": 15}}
    yield reference("v1", "Secret", "marked", space) | {"stringData": {"password": mark()}}
    yield reference("v1", "ConfigMap", "marked", space) | {"data": {"settings.yaml": mark("password: {}")}}


def mark_states(cluster, space, mark):
    """Markers in the fields that kubelets and runtimes write, and in managed fields."""
    node_info = {
        "machineID": mark(),
        "systemUUID": mark(),
        "bootID": mark(),
        "kernelVersion": mark(),
        "osImage": mark(),
    }
    node_info |= {"containerRuntimeVersion": mark(), "kubeletVersion": mark(), "kubeProxyVersion": mark()}
    node_info |= {"operatingSystem": mark(), "architecture": mark()}
    status = {
        "nodeInfo": node_info,
        "addresses": [{"type": "Hostname", "address": mark()}],
        "images": [{"names": [mark()], "sizeBytes": 1}],
        "volumesInUse": [mark()],
        "conditions": [{"type": "Ready", "status": "True", "reason": "Fake", "message": mark()}],
    }
    cluster.patch("/api/v1/nodes/marked/status", {"status": status}, "strategic")
    ended = {"terminated": {"exitCode": 1, "message": mark(), "reason": mark()}}
    container_status = {
        "name": "main",
        "image": mark(),
        "imageID": mark(),
        "ready": False,
        "restartCount": 1,
        "lastState": ended,
    }
    pod_status = {
        "message": mark(),
        "containerStatuses": [container_status],
        "conditions": [{"type": "a.example.com/b", "status": "False", "message": mark()}],
    }
    place = f"/api/v1/namespaces/{space}/pods/pod"
    cluster.patch(f"{place}/status", {"status": pod_status}, "strategic")
    cluster.patch(place, {"metadata": {"annotations": {"example.com/written": "yes"}}}, fieldManager=mark())


def test_a_snapshot_answers_like_the_cluster_and_contains_no_marker(night, tmp_path):
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
            output_of(cluster, "snapshot", "--to", str(file), ends=0)
            dump.write_text(cluster.kubectl("get", SIMULATED, "-A", "-o", "json", "--show-managed-fields").stdout)
            commands = [("doctor", "--config", webhook.config), *ASKED]  # a snapshot does not contain its ConfigMap
            live = [answer(cluster, *words) for words in commands]
    text = file.read_text()
    assert len(mark.given) >= 40
    assert [marker for marker in mark.given if marker in text] == []
    stored = dump.read_text()
    assert sum(marker in stored for marker in mark.given) >= 40
    assert [answer(cluster, *words, file=file) for words in commands] == live
    assert {finding["code"] for finding in live[0]["findings"]} >= {"O104", "D401", "O111"}
    simulated = [answer(cluster, "simulate", file=path) for path in (dump, file)]
    assert simulated[0] == simulated[1]


def answer(cluster, *words, file=None):
    """Return a command's answer for the cluster or a file, without the fields about the source."""
    source = ("--kubeconfig", cluster.kubeconfig) if file is None else ("-f", file)
    return without(run_json(*words, *source)[1])


def without(value):
    if isinstance(value, list):
        return [without(item) for item in value]
    if isinstance(value, dict):
        return {key: without(item) for key, item in value.items() if key not in OF_THE_SOURCE}
    return value


# Failures of the connection


def test_an_expired_client_certificate_is_reported(night, people):
    cluster, _ = night
    assert output_of(cluster, "doctor", kubeconfig=people(cluster, dt.timedelta(hours=1)), ends=0) == "0 findings\n"
    late = people(cluster, -dt.timedelta(days=3))
    for words in (["explain", "pod", "keeps", "-n", TEAM], ["doctor"]):
        assert output_of(cluster, *words, kubeconfig=late, ends=3).startswith(
            "error: the client certificate of the kubeconfig expired at 20"
        )


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """The kubeconfig of an administrator with a certificate that expires after the given time."""
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


def test_an_unreachable_api_server_is_reported(night):
    """This is the last test: it stops the API server."""
    cluster, _ = night
    cluster.apiserver.stop(hard=True)
    for words in (["explain", "pod", "keeps", "-n", TEAM], ["doctor"]):
        output = output_of(cluster, *words, ends=3)
        assert output.startswith("error: ")
        assert "try again when the API server answers" in output
