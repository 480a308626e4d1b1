"""The manifests of the audit agent: it is off by default, mounts its node read-only, and may write only events and taint rules of its node."""

from functools import partial

from analysis.installation import BASE
from cluster import manifests
from node.audit import COMPONENT, CONDITION
from node.audit.marks import HELD_BY_PLUGIN
from tests.cli.running import run
from tests.test_installation_driver import stored_of

stored = partial(stored_of, "node-agent")


def test_the_agent_runs_on_labelled_nodes_and_mounts_read_only():
    [daemon_set] = stored("DaemonSet")
    pod = daemon_set["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["nodeSelector"] == {"drawbridge.dev/node-agent": "on"}
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "/var/lib/kubelet" not in {mount["mountPath"] for mount in container["volumeMounts"]}, "secrets of pods"


def test_the_agents_port_admits_only_namespaces_labelled_for_metrics():
    [daemon_set], [network] = stored("DaemonSet"), stored("NetworkPolicy")
    template = daemon_set["spec"]["template"]
    [container] = template["spec"]["containers"]
    [port] = container["ports"]
    assert f"--metrics-listen=0.0.0.0:{port['containerPort']}" in container["args"]
    assert network["metadata"]["namespace"] == daemon_set["metadata"]["namespace"]
    assert network["spec"]["podSelector"]["matchLabels"] == template["metadata"]["labels"]
    assert network["spec"]["policyTypes"] == ["Ingress"], "its peers may be anywhere"
    [rule] = network["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"drawbridge.dev/metrics": "true"}}}]
    assert rule["ports"] == [{"port": port["containerPort"]}]


def test_the_agent_may_write_only_events_and_taint_rules():
    [role] = stored("ClusterRole")
    writing = [rule["resources"] for rule in role["rules"] if not {"get", "list", "watch"}.issuperset(rule["verbs"])]
    as_node = [rule["resources"] for rule in role["rules"] if any("associated-node" in verb for verb in rule["verbs"])]
    assert as_node == [["nodes"], ["pods"]], "read as the node"
    assert [resources for resources in writing if resources not in as_node] == [["events"], ["devicetaintrules"]]


def test_the_role_for_all_pods_is_a_separate_folder():
    """The agent needs the role on servers before 1.36."""
    objects = [document.object for document in manifests.read([BASE.parent / "node-agent-pods" / "role.yaml"])]
    role, binding = objects
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    [account] = stored("ServiceAccount")
    [subject] = binding["subjects"]
    assert (subject["namespace"], subject["name"]) == (account["metadata"]["namespace"], account["metadata"]["name"])
    [shipped] = stored("ClusterRole")
    assert all(
        {"list", "watch", "get"}.isdisjoint(rule["verbs"]) for rule in shipped["rules"] if "pods" in rule["resources"]
    )


def test_policies_limit_the_agents_taint_rules_and_events():
    events, marks = policies = stored("ValidatingAdmissionPolicy")
    bound = [obj["spec"] for obj in stored("ValidatingAdmissionPolicyBinding")]
    assert bound == [{"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]} for policy in policies]
    [account] = stored("ServiceAccount")
    for policy in policies:
        assert policy["spec"]["failurePolicy"] == "Fail"
        [condition] = policy["spec"]["matchConditions"]
        assert f"drawbridge-system-nodes:{account['metadata']['name']}" in condition["expression"]
    assert f"'{HELD_BY_PLUGIN}'" in marks["spec"]["validations"][0]["expression"]
    assert f"'{COMPONENT}'" in events["spec"]["validations"][0]["expression"]


def test_the_option_prints_the_agent_in_the_nodes_namespace():
    plain, enabled = (run("manifests", "--image", "x", "--namespace", "dra", *more).stdout for more in ((), ("--node-agent",)))  # fmt: skip
    assert "drawbridge-node-agent" not in plain
    assert "system:serviceaccount:dra-nodes:drawbridge-node-agent" in enabled
    written = [document.object for document in manifests.parse(enabled) if document.object["kind"] == "NetworkPolicy"]
    assert ("dra-nodes", "drawbridge-node-agent") in [(obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in written]  # fmt: skip
    assert "drawbridge.invalid" not in enabled


def test_the_right_to_node_status_comes_with_its_policy():
    """The role, its binding and the policy that limits the role are in a separate folder."""
    objects = [document.object for document in manifests.read([BASE.parent / "node-condition" / "role.yaml"])]
    by_kind = {obj["kind"]: obj for obj in objects}
    assert by_kind["ClusterRole"]["rules"] == [{"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}]
    policy = by_kind["ValidatingAdmissionPolicy"]
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert by_kind["ValidatingAdmissionPolicyBinding"]["spec"]["policyName"] == policy["metadata"]["name"]
    expressions = {
        variable["expression"] for variable in policy["spec"]["variables"] if CONDITION in variable["expression"]
    }
    assert len(expressions) == 2
    [account] = stored("ServiceAccount")
    [subject] = by_kind["ClusterRoleBinding"]["subjects"]
    assert (subject["namespace"], subject["name"]) == (account["metadata"]["namespace"], account["metadata"]["name"])
    assert "--condition" not in str(stored("DaemonSet")), "off unless asked for"
