"""`drawbridge survey` on the real API server: with the rights of its role, and with fewer."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.actors.webhook import COMMAND

pytestmark = pytest.mark.real
ROLE = Path(__file__).parents[2] / "manifests" / "survey" / "role.yaml"
RBAC = "rbac.authorization.k8s.io"
LIMITS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}


def deployment(namespace):
    container = {"name": "main", "image": "i", "resources": {"limits": LIMITS}}
    template = {"metadata": {"labels": {"app": "train"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "train"}}, "template": template}
    metadata = {"name": "train", "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def account(control_plane, namespace, created, role):
    """A service account with a role, and the kubeconfig of it."""
    name = role["metadata"]["name"]
    subject = {"kind": "ServiceAccount", "name": "looker", "namespace": namespace}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [subject],
    }
    metadata = {"name": "looker", "namespace": namespace}
    created({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}, role, binding)
    [rule, *_] = role["rules"]
    who = f"system:serviceaccount:{namespace}:looker"
    control_plane.until_may(who, rule["verbs"][0], rule["resources"][0], group=rule["apiGroups"][0])
    return control_plane.account_kubeconfig(namespace, "looker")


def survey(kubeconfig, namespace):
    command = [*COMMAND, "survey", "--kubeconfig", str(kubeconfig), "-n", namespace, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


def started(control_plane, namespace):
    """Create a Deployment, and wait until its three pods exist."""
    control_plane.create(deployment(namespace))
    pods = f"/api/v1/namespaces/{namespace}/pods"
    control_plane.until("three pods", lambda: len(control_plane.get(pods)["items"]) == 3, 30)


def test_the_survey_role_suffices_and_a_deployment_counts_once(control_plane, namespace, created):
    started(control_plane, namespace)
    role = yaml.safe_load(ROLE.read_text())
    code, answer, complaint = survey(account(control_plane, namespace, created, role), namespace)
    assert (answer["unread"], complaint) == ([], "")
    [workload] = answer["workloads"]
    assert (workload["kind"], workload["name"], workload["pods"], workload["outcome"]) == (
        "Deployment",
        "train",
        3,
        "left",
    )
    assert code == 0
    assert answer["server"].startswith("v1.")


def test_survey_with_fewer_rights_reports_gaps_and_exits_nonzero(control_plane, namespace, created):
    started(control_plane, namespace)
    role = yaml.safe_load(ROLE.read_text())
    role["metadata"]["name"] = "drawbridge-survey-narrow"
    for rule in role["rules"]:
        rule["resources"] = [name for name in rule["resources"] if name not in ("nodes", "deployments")]
    code, answer, _ = survey(account(control_plane, namespace, created, role), namespace)
    assert {entry["kind"] for entry in answer["unread"]} == {"nodes", "deployments.apps"}
    assert all("forbidden" in entry["reason"] for entry in answer["unread"])
    [workload] = answer["workloads"]
    assert (workload["kind"], workload["name"], workload["pods"]) == ("Deployment", "train", 3)
    assert code == 3


def test_a_snapshot_surveys_like_the_cluster_and_contains_no_secret(control_plane, namespace, created, tmp_path):
    workload = deployment(namespace)
    [container] = workload["spec"]["template"]["spec"]["containers"]
    container |= {"env": [{"name": "PASSWORD", "value": "hunter2"}], "args": ["--password=hunter2"]}
    annotation = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(workload)}
    workload["metadata"]["annotations"] = annotation
    created({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{namespace}"[:60].rstrip("-")}})
    control_plane.create(workload)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    control_plane.until("three pods", lambda: len(control_plane.get(pods)["items"]) == 3, 30)
    kubeconfig = account(control_plane, namespace, created, yaml.safe_load(ROLE.read_text()))
    file = tmp_path / "snapshot.json"
    command = [*COMMAND, "snapshot", "--kubeconfig", str(kubeconfig), "-n", namespace, "--to", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "hunter2" not in file.read_text()
    _, live, _ = survey(kubeconfig, namespace)
    replay = [*COMMAND, "survey", "-f", str(file), "-n", namespace, "-o", "json"]
    done = subprocess.run(replay, capture_output=True, text=True, timeout=120, check=False)
    replayed = json.loads(done.stdout)
    for workloads in (live["workloads"], replayed["workloads"]):
        for entry in workloads:
            del entry["file"], entry["line"]
    assert live["workloads"] == replayed["workloads"]
    assert [(workload["kind"], workload["pods"]) for workload in replayed["workloads"]] == [("Deployment", 3)]


class Markers:
    """Makes texts that a snapshot must not contain, and keeps them in `given`."""

    def __init__(self):
        self.given = []

    def __call__(self, form="{}"):
        self.given.append(f"m4rk{len(self.given):02}")
        return form.format(self.given[-1])


def secretive(namespace, mark):
    """Objects with a marker in every field that may have private content."""
    about = {
        "namespace": namespace,
        "annotations": {"vault.example.com/role": mark()},
        "labels": {"example.com/team": mark()},
    }
    http = {"path": mark("/{}"), "port": 80, "httpHeaders": [{"name": "Authorization", "value": mark()}]}
    container = {
        "name": "main",
        "image": mark("registry.example.com/{}:1"),
        "command": ["sh", "-c", mark()],
        "args": [mark("--password={}")],
        "workingDir": mark("/{}"),
        "env": [{"name": "PASSWORD", "value": mark()}],
        "envFrom": [{"prefix": mark(), "configMapRef": {"name": mark()}}],
        "lifecycle": {"preStop": {"exec": {"command": [mark()]}}},
        "livenessProbe": {"httpGet": http},
        "readinessProbe": {"exec": {"command": [mark()]}},
        "startupProbe": {"grpc": {"port": 1, "service": mark()}},
        "ports": [{"name": mark("p{}"), "containerPort": 80}],
        "volumeMounts": [{"name": "flex", "mountPath": mark("/{}"), "subPath": mark()}],
        "terminationMessagePath": mark("/{}"),
        "securityContext": {"seLinuxOptions": {"user": mark(), "role": mark(), "type": mark(), "level": mark()}},
        "resources": {"limits": LIMITS},
    }
    volumes = [
        {
            "name": "flex",
            "flexVolume": {"driver": mark("example.com/{}"), "options": {"password": mark()}, "fsType": mark()},
        },
        {"name": "csi", "csi": {"driver": mark("{}.example.com"), "volumeAttributes": {"share": mark()}}},
        {"name": "git", "gitRepo": {"repository": mark("https://user:{}@example.com/r.git"), "revision": mark()}},
        {"name": "nfs", "nfs": {"server": mark("{}.example.com"), "path": mark("/{}")}},
        {"name": "host", "hostPath": {"path": mark("/{}")}},
        {"name": "secret", "secret": {"secretName": mark()}},
    ]
    spec = {
        "containers": [container],
        "volumes": volumes,
        "hostname": mark(),
        "subdomain": mark(),
        "imagePullSecrets": [{"name": mark()}],
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": [mark()]}],
        "dnsConfig": {"searches": [mark()], "options": [{"name": mark(), "value": mark()}]},
    }
    template = {"metadata": {"labels": {"app": mark()}, "annotations": {"example.com/a": mark()}}, "spec": spec}
    selector = {"matchLabels": {"app": template["metadata"]["labels"]["app"]}}
    parameters = {
        "apiVersion": "example.com/v1",
        "kind": "Config",
        "login": {"user": {"password": mark()}},
        "list": [mark()],
    }
    config = [{"opaque": {"driver": "example.com", "parameters": parameters}}]
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
    devices = {"devices": {"requests": requests, "config": config}}
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": about | {"name": "pod"}, "spec": spec}
    deployed = {"replicas": 0, "selector": selector, "template": template}
    yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about | {"name": "deployment"}, "spec": deployed}
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": about | {"name": "claim"},
        "spec": devices,
    }
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": about | {"name": "template"},
        "spec": {"metadata": {"annotations": {"example.com/b": mark()}}, "spec": devices},
    }
    hard = {"hard": {"requests.nvidia.com/gpu": "4"}}
    yield {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": about | {"name": "quota"}, "spec": hard}


def test_a_snapshot_contains_no_secret_marker_but_every_deciding_field(control_plane, namespace, created, tmp_path):
    mark = Markers()
    for obj in secretive(namespace, mark):
        control_plane.create(obj)
    pod = f"/api/v1/namespaces/{namespace}/pods/pod"
    ended = {"terminated": {"exitCode": 1, "message": mark(), "reason": mark()}}
    status = {"name": "main", "image": mark(), "imageID": mark(), "ready": False, "restartCount": 1, "lastState": ended}
    condition = {"type": "example.com/ready", "status": "False", "message": mark()}
    control_plane.patch(
        f"{pod}/status",
        {"status": {"message": mark(), "containerStatuses": [status], "conditions": [condition]}},
        "strategic",
    )
    stored = json.dumps(control_plane.get(pod))
    assert len(mark.given) >= 40
    assert mark.given[-1] in stored
    assert mark.given[20] in stored
    kubeconfig = account(control_plane, namespace, created, yaml.safe_load(ROLE.read_text()))
    file = tmp_path / "snapshot.json"
    command = [*COMMAND, "snapshot", "--kubeconfig", str(kubeconfig), "-n", namespace, "--to", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    text = file.read_text()
    assert [marker for marker in mark.given if marker in text] == []
    kept = {obj["kind"]: obj for obj in json.loads(text)["items"] if obj["metadata"].get("namespace") == namespace}
    assert {"Pod", "Deployment", "ResourceClaim", "ResourceClaimTemplate", "ResourceQuota"} <= kept.keys()
    assert kept["Pod"]["spec"]["containers"][0]["resources"]["limits"].keys() == LIMITS.keys()
    assert kept["ResourceClaim"]["spec"]["devices"]["config"][0]["opaque"]["driver"] == "example.com"
