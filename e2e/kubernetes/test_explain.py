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


def test_a_pod_that_waits_is_told_who_has_its_device(control_plane, namespace, created, node):
    """One device, two pods: the stock scheduler gives it to the first, and with the rights of the role the second is told to which pod."""
    device_class = fleet.device_class("e2e-why", f"device.driver == '{DRIVER}'")
    created(*fleet.slices(DRIVER, node, [fleet.device("only", {"mode": "whole"})]), device_class)
    created(*asking("first", namespace, node))
    control_plane.wait_scheduled(namespace, "first")
    created(*asking("second", namespace, node))
    control_plane.wait_unschedulable(namespace, "second")
    looker = account(control_plane, namespace, created, yaml.safe_load(ROLE.read_text()))

    code, told, said = drawbridge(looker, "explain", "pod", "second", "-n", namespace)
    assert (code, said, told["unread"]) == (0, "", [])
    story = told["pod"]
    assert story["standing"]["keeper"] == "scheduler"
    assert story["prospect"]["outlook"] == "full"
    [blocker] = story["prospect"]["blockers"]
    held = control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/first")
    assert blocker == {
        "node": node,
        "claim": f"{namespace}/first",
        "pods": [f"{namespace}/first"],
        "devices": [f"{DRIVER}/{node}-fleet/only"],
        "since": held["status"]["allocation"]["allocationTimestamp"],
        "alone": True,
        "unused": False,
    }
    assert any(one.startswith("PodScheduled=False (Unschedulable)") for one in story["conditions"])

    code, told, _ = drawbridge(looker, "explain", "device", f"{node}-fleet/only")
    assert (code, told["device"]["state"]) == (0, "held")
    assert [one["claim"] for one in told["device"]["holders"]] == [f"{namespace}/first"]

    code, told, said = drawbridge(looker, "free", node)
    assert (code, said) == (0, "")
    [[only]] = [one["devices"] for one in told["nodes"]]
    [holder] = only["holders"]
    assert (only["device"], only["state"]) == (f"{DRIVER}/{node}-fleet/only", "held")
    assert (holder["pods"], holder["since"]) == ([f"{namespace}/first"], blocker["since"])

    code, answer, said = drawbridge(looker, "explain", "pod", "secnd", "-n", namespace)
    assert code == 1
    assert f"did you mean {namespace}/second?" in said
    assert answer["errors"]


def test_where_devices_are_in_use_and_something_else_is_in_the_way_no_holder_is_blamed(
    control_plane, namespace, created, node
):
    """The device is held; beside it each pod has a reason of another kind, and only one waits for the device alone."""
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
    # What a pod and its container have more, and the reason that comes first.
    spread = {"maxSkew": 1, "topologyKey": "no-such-label", "whenUnsatisfiable": "DoNotSchedule"}
    reasons = {
        "spread": ({"topologySpreadConstraints": [spread]}, {}, "pod topology spread constraints"),
        "selector": ({"nodeSelector": {"disk": "ssd"}}, {}, "node(s) didn't match Pod's node affinity/selector: disk=ssd"),
        "cpu": ({}, {"resources": {"requests": {"cpu": "500"}}}, "Insufficient cpu"),
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
        code, told, _ = drawbridge(looker, "explain", "pod", name, "-n", namespace)
        assert code == 0
        story = told["pod"]
        enough = [one["claim"] for one in story["prospect"]["blockers"] if one["alone"]]
        if name == "alone":
            assert enough == [f"{namespace}/holder"]
            continue
        assert reasons[name][2] in story["standing"]["message"]
        assert (enough, story["prospect"]["nearest"]) == ([], ""), name


def test_a_deployment_is_told_by_its_pods(control_plane, namespace, created, node):
    """A Deployment of two pods, and one device: stock controllers make the pods and their claims, the stock scheduler places one."""
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
    one = pod("web", namespace, container(resources={"claims": [{"name": "one"}]}), node=node)
    one["spec"]["restartPolicy"] = "Always"
    one["spec"]["resourceClaims"] = [{"name": "one", "resourceClaimTemplateName": "one"}]
    created(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": one["spec"]},
            },
        }
    )
    looker = account(control_plane, namespace, created, yaml.safe_load(ROLE.read_text()))

    def told():
        code, answer, _ = drawbridge(looker, "explain", "deployment/web", "-n", namespace)
        assert code in (0, 1)
        story = answer.get("workload", {"pods": []})
        outlooks = [(one["first"]["prospect"] or {}).get("outlook") for one in story["pods"]]
        return story if outlooks == ["full", None] else None

    story = control_plane.until("one pod has the device and one waits for it", told, 60)
    assert (story["kind"], story["wanted"], story["conditions"]) == ("Deployment", 2, [])
    assert all(one["first"]["owners"][1] == "Deployment web" for one in story["pods"])


def test_explain_with_narrow_permissions_lists_the_resources_it_could_not_read(control_plane, namespace, created, node):
    created(*asking("first", namespace, node), fleet.device_class("e2e-why", f"device.driver == '{DRIVER}'"))
    role = yaml.safe_load(ROLE.read_text())
    role["metadata"]["name"] = "drawbridge-explain-narrow"
    role["rules"] = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    looker = account(control_plane, namespace, created, role)
    code, told, _ = drawbridge(looker, "explain", "pod", "first", "-n", namespace)
    assert code == 0
    assert "nodes" in {one["kind"] for one in told["unread"]}
    assert all("forbidden" in one["reason"] for one in told["unread"])


def test_explain_never_names_an_unreadable_namespace_nor_calls_its_devices_free(
    control_plane, namespace, created, node
):
    """The device is held in another namespace; the reader sees nodes and devices, and of claims and pods those of its own namespace."""
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
    own = [rule | {"resources": [one for one in rule["resources"] if one in inside]} for rule in role["rules"]]
    for rule in role["rules"]:
        rule["resources"] = [one for one in rule["resources"] if one not in inside]
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
        code, told, said = drawbridge(looker, "explain", *what, *(["-n", namespace] if what[0] != "device" else []))
        assert (code, "resourceclaims" in json.dumps(told["unread"])) == (0, True)
        assert stranger not in json.dumps(told) + said
        if what[0] == "pod":
            prospect = told["pod"]["prospect"]
            assert prospect["outlook"] == "undecided"
            assert "claims of other namespaces may not be read" in prospect["message"]
            assert "cannot allocate all claims" in prospect["message"]


@pytest.mark.node
def test_a_driver_that_is_gone_is_named_with_the_pod_that_waits_for_it(control_plane, node_cluster, namespace, created):
    """Its slices are there, and nothing is registered with the kubelet: the pod has a node, and no device is prepared."""
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
    code, told, _ = drawbridge(control_plane.kubeconfig, "doctor")
    [one] = [one for one in told["findings"] if one["object"] == f"Pod/{namespace}/p"]
    assert (code, one["code"]) == (1, "O112")
    assert f"on node {name}, {driver} does not prepare the devices of {namespace}/p" in one["message"]
    assert f"check that the driver's pod runs on {name}" in one["remedy"]
