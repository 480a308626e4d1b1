"""`drawbridge explain` on the real API server, beside the stock scheduler."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.actors import fleet
from e2e.actors.webhook import COMMAND
from e2e.actors.workloads import claim, container, pod, request, using
from e2e.kubernetes.test_survey import account

pytestmark = pytest.mark.real
ROLE = Path(__file__).parents[2] / "manifests" / "explain" / "role.yaml"
DRIVER = "why.example.com"


@pytest.fixture
def node(control_plane):
    [name] = control_plane.add_fake_nodes(1, prefix="why-")
    yield name
    control_plane.delete(f"/api/v1/nodes/{name}")


def asking(name, namespace, node):
    using_it = container(resources={"claims": [{"name": name}]})
    return (
        claim(name, namespace, request("device", "e2e-why")),
        pod(name, namespace, using_it, node=node, resourceClaims=[using(name)]),
    )


def drawbridge(kubeconfig, *words):
    command = [*COMMAND, *words, "--kubeconfig", str(kubeconfig), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_a_waiting_pod_names_the_holder_of_its_device(control_plane, namespace, created, node):
    """Two pods request one device, and the stock scheduler allocates it to the first.

    For the second pod, `explain` names the first one. The command has the documented role.
    """
    device_class = fleet.device_class("e2e-why", f"device.driver == '{DRIVER}'")
    created(*fleet.slices(DRIVER, node, [fleet.device("only", {"mode": "whole"})]), device_class)
    created(*asking("first", namespace, node))
    control_plane.wait_scheduled(namespace, "first")
    created(*asking("second", namespace, node))
    control_plane.wait_unschedulable(namespace, "second")
    looker = account(control_plane, namespace, created, yaml.safe_load(ROLE.read_text()))

    code, answer, complaint = drawbridge(looker, "explain", "pod", "second", "-n", namespace)
    assert (code, complaint, answer["unread"]) == (0, "", [])
    story = answer["pod"]
    assert story["state"]["reasons"][0]["actor"] == "scheduler"
    assert story["prospect"]["outlook"] == "full"
    [obstacle] = story["prospect"]["wayOut"]["obstacles"]
    held = control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/first")
    since = held["status"]["allocation"]["allocationTimestamp"]
    first = f"{namespace}/first"
    assert obstacle["text"] == f"pod {first} holds only of node {node} since {since}"
    assert (obstacle["subject"], story["prospect"]["wayOut"]["degree"]) == (f"Pod/{first}", "waits")
    assert any(condition.startswith("PodScheduled=False (Unschedulable)") for condition in story["conditions"])

    code, answer, _ = drawbridge(looker, "explain", "device", f"{node}-fleet/only")
    assert (code, answer["device"]["state"]) == (0, "held")
    assert [holder["claim"] for holder in answer["device"]["holders"]] == [f"{namespace}/first"]

    code, answer, complaint = drawbridge(looker, "free", node)
    assert (code, complaint) == (0, "")
    [[only]] = [node["devices"] for node in answer["nodes"]]
    [holder] = only["holders"]
    assert (only["device"], only["state"]) == (f"{DRIVER}/{node}-fleet/only", "held")
    assert (holder["pods"], holder["since"]) == ([f"{namespace}/first"], since)

    code, answer, complaint = drawbridge(looker, "explain", "pod", "secnd", "-n", namespace)
    assert code == 1
    assert f"did you mean {namespace}/second?" in complaint
    assert answer["errors"]


def test_no_holder_is_blamed_if_another_reason_keeps_the_pod(control_plane, namespace, created, node):
    """The device is held. One pod waits only for the device, and each of the others for another reason, too.

    A remedy that mends both reasons names no holder.
    """
    device_class = fleet.device_class("e2e-why", f"device.driver == '{DRIVER}'")
    created(*fleet.slices(DRIVER, node, [fleet.device("only", {"mode": "whole"})]), device_class)
    port = {"ports": [{"containerPort": 80, "hostPort": 4321}]}
    held, holder = asking("holder", namespace, node)
    holder["metadata"]["labels"] = {"app": "one"}
    holder["spec"]["containers"][0] |= port
    created(held, holder)
    control_plane.wait_scheduled(namespace, "holder")
    apart = {"labelSelector": {"matchLabels": {"app": "one"}}, "topologyKey": "kubernetes.io/hostname"}
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}
    # The additional fields of a pod and its container, and the reason that comes first.
    spread = {"maxSkew": 1, "topologyKey": "no-such-label", "whenUnsatisfiable": "DoNotSchedule"}
    reasons = {
        "spread": ({"topologySpreadConstraints": [spread]}, {}, "pod topology spread constraints"),
        "selector": ({"nodeSelector": {"disk": "ssd"}}, {}, "no node has disk=ssd: the pod waits until one does"),
        "cpu": ({}, {"resources": {"requests": {"cpu": "500"}}}, "it requests 500 cpu"),
        "port": ({}, port, "free ports for the requested pod ports"),
        "apart": ({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}}, {}, "anti-affinity rules"),
        "volume": ({"volumes": [data]}, {}, 'persistentvolumeclaim "missing" not found'),
    }  # fmt: skip
    for name, (spec, inside, _) in reasons.items():
        own, waiting = asking(name, namespace, node)
        waiting["spec"] |= spec
        main = waiting["spec"]["containers"][0]
        main |= inside | {"resources": main["resources"] | inside.get("resources", {})}
        created(own, waiting)
    created(*asking("alone", namespace, node))
    looker = account(control_plane, namespace, created, yaml.safe_load(ROLE.read_text()))
    for name in (*reasons, "alone"):
        control_plane.wait_unschedulable(namespace, name)
        code, answer, _ = drawbridge(looker, "explain", "pod", name, "-n", namespace)
        assert code == 0
        story = answer["pod"]
        if name == "alone":
            assert [obstacle["subject"] for obstacle in story["prospect"]["wayOut"]["obstacles"]] == [
                f"Pod/{namespace}/holder"
            ]
            continue
        assert reasons[name][2] in story["state"]["reasons"][0]["text"]
        assert story["prospect"]["wayOut"]["remedy"] == ("request at most 64 cpu" if name == "cpu" else ""), name


def test_a_deployment_is_explained_by_its_pods(control_plane, namespace, created, node):
    """A Deployment of two pods and one device: the stock controllers create pods and claims, and the stock scheduler places one pod."""
    created(
        *fleet.slices(DRIVER, node, [fleet.device("only", {"mode": "whole"})]),
        fleet.device_class("e2e-why", f"device.driver == '{DRIVER}'"),
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one", "namespace": namespace},
            "spec": {"spec": claim("one", namespace, request("device", "e2e-why"))["spec"]},
        },
    )
    pod_ = pod("web", namespace, container(resources={"claims": [{"name": "one"}]}), node=node)
    pod_["spec"]["restartPolicy"] = "Always"
    pod_["spec"]["resourceClaims"] = [{"name": "one", "resourceClaimTemplateName": "one"}]
    created(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod_["spec"]},
            },
        }
    )
    looker = account(control_plane, namespace, created, yaml.safe_load(ROLE.read_text()))

    def workload():
        code, answer, _ = drawbridge(looker, "explain", "deployment/web", "-n", namespace)
        assert code in (0, 1)
        story = answer.get("workload", {"pods": []})
        outlooks = [(pod["first"]["prospect"] or {}).get("outlook") for pod in story["pods"]]
        return story if outlooks == ["full", None] else None

    story = control_plane.until("one pod has the device and one waits for it", workload, 60)
    assert (story["kind"], story["desiredPods"], story["conditions"]) == ("Deployment", 2, [])
    assert all(pod["first"]["owners"][1] == "Deployment web" for pod in story["pods"])


def test_explain_with_narrow_rights_lists_resources_it_could_not_read(control_plane, namespace, created, node):
    created(*asking("first", namespace, node), fleet.device_class("e2e-why", f"device.driver == '{DRIVER}'"))
    role = yaml.safe_load(ROLE.read_text())
    role["metadata"]["name"] = "drawbridge-explain-narrow"
    role["rules"] = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    looker = account(control_plane, namespace, created, role)
    code, answer, _ = drawbridge(looker, "explain", "pod", "first", "-n", namespace)
    assert code == 0
    assert "nodes" in {entry["kind"] for entry in answer["unread"]}
    assert all("forbidden" in entry["reason"] for entry in answer["unread"])


def test_explain_neither_names_unreadable_namespaces_nor_frees_their_devices(control_plane, namespace, created, node):
    """The device is held in another namespace. The reader may read nodes and devices, and claims and pods of its own namespace only."""
    stranger = f"stranger-of-{node}"
    created({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stranger}})
    service_account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": stranger},
    }
    control_plane.until("it has its account", lambda: control_plane.read(service_account))
    device_class = fleet.device_class("e2e-why", f"device.driver == '{DRIVER}'")
    created(*fleet.slices(DRIVER, node, [fleet.device("theirs", {})]), device_class)
    created(*asking("holder", stranger, node))
    control_plane.wait_scheduled(stranger, "holder")
    created(*asking("mine", namespace, node))
    control_plane.wait_unschedulable(namespace, "mine")
    role = yaml.safe_load(ROLE.read_text())
    inside = {"pods", "resourceclaims"}
    own = [
        rule | {"resources": [resource for resource in rule["resources"] if resource in inside]}
        for rule in role["rules"]
    ]
    for rule in role["rules"]:
        rule["resources"] = [resource for resource in rule["resources"] if resource not in inside]
    role["metadata"]["name"] = "drawbridge-explain-tenant"
    role["rules"] = [rule for rule in role["rules"] if rule["resources"]]
    looker = account(control_plane, namespace, created, role)
    group, kind = "rbac.authorization.k8s.io", {"name": "tenant", "namespace": namespace}
    subject = {"kind": "ServiceAccount", "name": "looker", "namespace": namespace}
    created(
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": kind,
            "rules": [rule for rule in own if rule["resources"]],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": kind,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "tenant"},
            "subjects": [subject],
        },
    )
    who = f"system:serviceaccount:{namespace}:looker"
    control_plane.until_may(who, "list", "resourceclaims", namespace, "resource.k8s.io")
    for what in (["pod", "mine"], ["claim", "mine"], ["device", "theirs"]):
        code, answer, complaint = drawbridge(
            looker, "explain", *what, *(["-n", namespace] if what[0] != "device" else [])
        )
        assert (code, "resourceclaims" in json.dumps(answer["unread"])) == (0, True)
        assert stranger not in json.dumps(answer) + complaint
        if what[0] == "pod":
            prospect = answer["pod"]["prospect"]
            assert prospect["outlook"] == "undecided"


@pytest.mark.node
def test_a_stopped_driver_is_named_with_its_waiting_pod(control_plane, node_cluster, namespace, created):
    """The slices exist, but no driver is registered with the kubelet: the pod has a node, and its device is not prepared."""
    driver, name = "gone.example.com", node_cluster.name
    created(
        fleet.device_class("e2e-gone", f"device.driver == '{driver}'"),
        *fleet.slices(driver, name, [fleet.device("only", {"mode": "whole"})]),
        claim("kept", namespace, request("device", "e2e-gone")),
        pod(
            "p",
            namespace,
            container(resources={"claims": [{"name": "kept"}]}),
            node=name,
            resourceClaims=[using("kept")],
        ),
    )
    control_plane.wait_scheduled(namespace, "p")
    control_plane.until(
        "the kubelet says so", lambda: "is not registered" in str(control_plane.events(namespace, "p")), 60
    )
    code, answer, _ = drawbridge(control_plane.kubeconfig, "doctor")
    [finding] = [entry for entry in answer["findings"] if entry["object"] == f"Pod/{namespace}/p"]
    assert (code, finding["code"]) == (1, "O112")
    assert name in finding["message"]
    assert driver in finding["message"]
