"""The manifests of the reference driver and of the adapter: arguments exist, they run where a label says so, and may write no more than they have to."""

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
    """What the folder of a component has of a kind."""
    files = [path for path in sorted((BASE.parent / component).glob("*.yaml")) if path.name != "kustomization.yaml"]
    return [document.object for document in manifests.read(files) if document.object["kind"] == kind]


@pytest.fixture
def stored(component):
    return partial(stored_of, component)


def test_it_has_the_folders_of_the_kubelet(stored):
    [daemon_set] = stored("DaemonSet")
    [container] = daemon_set["spec"]["template"]["spec"]["containers"]
    folders = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert folders >= {"/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry", "/var/run/cdi"}


def test_it_runs_on_no_node_that_does_not_say_so_and_comes_before_the_old_one_goes(component, stored):
    [daemon_set] = stored("DaemonSet")
    spec = daemon_set["spec"]
    assert spec["template"]["spec"]["nodeSelector"] == LABELS[component]
    assert spec["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_it_writes_slices_and_the_status_of_claims_of_its_own_node_and_nothing_else(stored):
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
    bound = [one["spec"] for one in stored("ValidatingAdmissionPolicyBinding")]
    named = [{"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]} for policy in policies]
    assert bound == named


def test_its_probes_and_metrics_are_on_the_port_that_it_is_told(stored):
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
    assert [one["port"] for one in network["spec"]["ingress"][0]["ports"]] == [port["containerPort"]]


@pytest.mark.parametrize("component", [*LABELS, "node-agent"])
def test_its_namespace_lets_it_run_as_what_it_is(component):
    stored = partial(stored_of, component)
    [namespace] = stored("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    [daemon_set], [account], [binding] = stored("DaemonSet"), stored("ServiceAccount"), stored("ClusterRoleBinding")
    [subject] = binding["subjects"]
    places = {one["metadata"]["namespace"] for one in (daemon_set, account)} | {subject["namespace"]}
    assert places == {namespace["metadata"]["name"]}


def test_it_is_printed_where_it_is_asked_for_in_its_own_namespace_wherever_the_rest_is(component):
    plain, asked = (run("manifests", "--image", "registry/d:1", "--namespace", "dra", *more).stdout for more in ((), (f"--{component}",)))  # fmt: skip
    before = [document.object for document in manifests.parse(plain)]
    added = [document.object for document in manifests.parse(asked) if document.object not in before]
    [daemons] = [one for one in added if one["kind"] == "DaemonSet"]
    assert [one["image"] for one in daemons["spec"]["template"]["spec"]["containers"]] == ["registry/d:1"]
    places = {one["metadata"].get("namespace", "") for one in added}
    places |= {subject["namespace"] for one in added for subject in one.get("subjects", ())}
    assert places == {"", f"drawbridge-{component}"}
    kinds = {one["kind"] for one in added}
    assert kinds >= {"Namespace", "ServiceAccount", "ValidatingAdmissionPolicyBinding", "NetworkPolicy"}
    assert component not in run("manifests", "--only", "webhooks", f"--{component}").stdout
