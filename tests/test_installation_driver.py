"""The manifests of the reference driver and of the adapter: valid arguments, nodes selected by label, and least rights."""

from functools import partial

import pytest

from analysis.installation import BASE
from cluster import manifests
from tests.cli.running import run_manifests

NODE_LABELS = {"driver": {"drawbridge.dev/driver": "reference"}, "adapter": {"drawbridge.dev/adapter": "on"}}


@pytest.fixture(params=NODE_LABELS)
def component(request):
    return request.param


def objects_of_component(component, kind):
    """Return the objects of a kind in the folder of a component."""
    files = [path for path in sorted((BASE.parent / component).glob("*.yaml")) if path.name != "kustomization.yaml"]
    return [document.object for document in manifests.read(files) if document.object["kind"] == kind]


@pytest.fixture
def objects_of_kind(component):
    return partial(objects_of_component, component)


def test_the_pod_mounts_the_kubelets_folders(objects_of_kind):
    [daemon_set] = objects_of_kind("DaemonSet")
    [container] = daemon_set["spec"]["template"]["spec"]["containers"]
    folders = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert folders >= {
        "/var/lib/kubelet/plugins",
        "/var/lib/kubelet/plugins_registry",
        "/var/lib/kubelet/pods",
        "/var/run/cdi",
    }


def test_the_daemon_set_needs_a_label_and_surges_on_update(component, objects_of_kind):
    """During an update, the new pod of a node starts before its old pod ends."""
    [daemon_set] = objects_of_kind("DaemonSet")
    spec = daemon_set["spec"]
    assert spec["template"]["spec"]["nodeSelector"] == NODE_LABELS[component]
    assert spec["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_the_component_writes_only_slices_and_claims_of_its_node(objects_of_kind):
    [role] = objects_of_kind("ClusterRole")
    writing_verbs = {
        resource: sorted(set(rule["verbs"]) - {"get", "list", "watch"})
        for rule in role["rules"]
        for resource in rule["resources"]
        if not {"get", "list", "watch"}.issuperset(rule["verbs"])
    }
    assert writing_verbs == {
        "resourceclaims/status": ["patch", "update"],
        "resourceclaims/driver": ["associated-node:patch", "associated-node:update"],
        "resourceslices": ["create", "delete", "patch"],
    }
    [account] = objects_of_kind("ServiceAccount")
    account_name = f"system:serviceaccount:{account['metadata']['namespace']}:{account['metadata']['name']}"
    limited_resources = set()
    for policy in objects_of_kind("ValidatingAdmissionPolicy"):
        [condition] = policy["spec"]["matchConditions"]
        assert f'"{account_name}"' in condition["expression"]
        [rule] = policy["spec"]["matchConstraints"]["resourceRules"]
        limited_resources |= set(rule["resources"])
    assert limited_resources == {"resourceslices", "resourceclaims/status"}


@pytest.mark.parametrize("component", [*NODE_LABELS, "node-agent"])
def test_probes_and_metrics_use_the_configured_port(component):
    """Only namespaces that are labelled for metrics may connect, and the policy limits no connection that the pod opens."""
    objects_of_kind = partial(objects_of_component, component)
    [daemon_set] = objects_of_kind("DaemonSet")
    [container] = daemon_set["spec"]["template"]["spec"]["containers"]
    [port] = container["ports"]
    assert f"--metrics-listen=0.0.0.0:{port['containerPort']}" in container["args"]
    probes = {
        container[f"{kind}Probe"]["httpGet"]["path"]: container[f"{kind}Probe"]["httpGet"]["port"]
        for kind in ("readiness", "liveness")
    }
    assert probes == {"/readyz": port["name"], "/livez": port["name"]}
    [network] = objects_of_kind("NetworkPolicy")
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]
    assert network["spec"]["podSelector"]["matchLabels"] == labels
    assert network["metadata"]["namespace"] == daemon_set["metadata"]["namespace"]
    assert network["spec"]["policyTypes"] == ["Ingress"]
    [rule] = network["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"drawbridge.dev/metrics": "true"}}}]
    assert [port_entry["port"] for port_entry in rule["ports"]] == [port["containerPort"]]


@pytest.mark.parametrize("component", [*NODE_LABELS, "node-agent"])
def test_the_namespace_allows_privileged_pods(component):
    objects_of_kind = partial(objects_of_component, component)
    [namespace] = objects_of_kind("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    [daemon_set], [account], [binding] = (
        objects_of_kind("DaemonSet"),
        objects_of_kind("ServiceAccount"),
        objects_of_kind("ClusterRoleBinding"),
    )
    [subject] = binding["subjects"]
    namespaces = {obj["metadata"]["namespace"] for obj in (daemon_set, account)} | {subject["namespace"]}
    assert namespaces == {namespace["metadata"]["name"]}


def test_the_option_prints_the_component_in_its_own_namespace(component):
    plain, enabled = (run_manifests("--image", "registry/d:1", "--namespace", "dra", **values).stdout for values in ({}, {component: True}))  # fmt: skip
    default_objects = [document.object for document in manifests.parse(plain)]
    added = [document.object for document in manifests.parse(enabled) if document.object not in default_objects]
    [daemon_set] = [obj for obj in added if obj["kind"] == "DaemonSet"]
    assert [container["image"] for container in daemon_set["spec"]["template"]["spec"]["containers"]] == [
        "registry/d:1"
    ]
    namespaces = {obj["metadata"].get("namespace", "") for obj in added}
    namespaces |= {subject["namespace"] for obj in added for subject in obj.get("subjects", ())}
    assert namespaces == {"", f"drawbridge-{component}"}
    kinds = {obj["kind"] for obj in added}
    assert kinds >= {"Namespace", "ServiceAccount", "ValidatingAdmissionPolicyBinding", "NetworkPolicy"}
    assert component not in run_manifests("--only", "webhooks", **{component: True}).stdout
