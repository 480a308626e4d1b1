"""The manifests of the reference driver and of the adapter: valid arguments, nodes selected by label, and least rights."""

from functools import partial

import pytest

from analysis.installation import BASE
from cluster import manifests
from tests.cli.running import run

LABELS = {"driver": {"drawbridge.dev/driver": "reference"}, "adapter": {"drawbridge.dev/adapter": "on"}}


@pytest.fixture(params=LABELS)
def component(request):
    return request.param


def stored_of(component, kind):
    """Return the objects of a kind in the folder of a component."""
    files = [path for path in sorted((BASE.parent / component).glob("*.yaml")) if path.name != "kustomization.yaml"]
    return [document.object for document in manifests.read(files) if document.object["kind"] == kind]


@pytest.fixture
def stored(component):
    return partial(stored_of, component)


def test_the_pod_mounts_the_kubelets_folders(stored):
    [daemon_set] = stored("DaemonSet")
    [container] = daemon_set["spec"]["template"]["spec"]["containers"]
    folders = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert folders >= {"/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry", "/var/run/cdi"}


def test_the_pod_needs_a_node_label_and_surges_on_update(component, stored):
    """During an update, the new pod of a node starts before its old pod ends."""
    [daemon_set] = stored("DaemonSet")
    spec = daemon_set["spec"]
    assert spec["template"]["spec"]["nodeSelector"] == LABELS[component]
    assert spec["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_it_writes_only_slices_and_claim_status_of_its_node(stored):
    [role] = stored("ClusterRole")
    writing = {
        resource: sorted(set(rule["verbs"]) - {"get", "list", "watch"})
        for rule in role["rules"]
        for resource in rule["resources"]
        if not {"get", "list", "watch"}.issuperset(rule["verbs"])
    }
    assert writing == {
        "resourceclaims/status": ["patch", "update"],
        "resourceclaims/driver": ["associated-node:patch", "associated-node:update"],
        "resourceslices": ["create", "delete", "patch"],
    }
    [account] = stored("ServiceAccount")
    own = f"system:serviceaccount:{account['metadata']['namespace']}:{account['metadata']['name']}"
    policies = stored("ValidatingAdmissionPolicy")
    held = set()
    for policy in policies:
        [condition] = policy["spec"]["matchConditions"]
        assert f'"{own}"' in condition["expression"]
        assert policy["spec"]["failurePolicy"] == "Fail"
        [rule] = policy["spec"]["matchConstraints"]["resourceRules"]
        held |= set(rule["resources"])
    assert held == {"resourceslices", "resourceclaims/status"}
    bound = [obj["spec"] for obj in stored("ValidatingAdmissionPolicyBinding")]
    named = [{"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]} for policy in policies]
    assert bound == named


def test_probes_and_metrics_use_the_configured_port(stored):
    [daemon_set] = stored("DaemonSet")
    [container] = daemon_set["spec"]["template"]["spec"]["containers"]
    [port] = container["ports"]
    assert f"--metrics-listen=0.0.0.0:{port['containerPort']}" in container["args"]
    probes = {
        container[f"{kind}Probe"]["httpGet"]["path"]: container[f"{kind}Probe"]["httpGet"]["port"]
        for kind in ("readiness", "liveness")
    }
    assert probes == {"/readyz": port["name"], "/livez": port["name"]}
    [network] = stored("NetworkPolicy")
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]
    assert network["spec"]["podSelector"]["matchLabels"] == labels
    assert [opened["port"] for opened in network["spec"]["ingress"][0]["ports"]] == [port["containerPort"]]


@pytest.mark.parametrize("component", [*LABELS, "node-agent"])
def test_the_namespace_allows_privileged_pods(component):
    stored = partial(stored_of, component)
    [namespace] = stored("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    [daemon_set], [account], [binding] = stored("DaemonSet"), stored("ServiceAccount"), stored("ClusterRoleBinding")
    [subject] = binding["subjects"]
    places = {obj["metadata"]["namespace"] for obj in (daemon_set, account)} | {subject["namespace"]}
    assert places == {namespace["metadata"]["name"]}


def test_the_option_prints_the_component_in_its_own_namespace(component):
    plain, enabled = (run("manifests", "--image", "registry/d:1", "--namespace", "dra", *more).stdout for more in ((), (f"--{component}",)))  # fmt: skip
    before = [document.object for document in manifests.parse(plain)]
    added = [document.object for document in manifests.parse(enabled) if document.object not in before]
    [daemons] = [obj for obj in added if obj["kind"] == "DaemonSet"]
    assert [container["image"] for container in daemons["spec"]["template"]["spec"]["containers"]] == ["registry/d:1"]
    places = {obj["metadata"].get("namespace", "") for obj in added}
    places |= {subject["namespace"] for obj in added for subject in obj.get("subjects", ())}
    assert places == {"", f"drawbridge-{component}"}
    kinds = {obj["kind"] for obj in added}
    assert kinds >= {"Namespace", "ServiceAccount", "ValidatingAdmissionPolicyBinding", "NetworkPolicy"}
    assert component not in run("manifests", "--only", "webhooks", f"--{component}").stdout
