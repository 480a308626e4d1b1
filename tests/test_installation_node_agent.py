"""The manifests of the audit agent: off unless named, read-only on the node, and what it may write is events and marks of its own node."""

from functools import partial

from analysis.installation import BASE
from cluster import manifests
from node.audit import COMPONENT, CONDITION
from node.audit.marks import HELD_BY_PLUGIN
from tests.cli.running import run
from tests.test_installation_driver import stored_of

stored = partial(stored_of, "node-agent")


def test_on_the_node_it_only_reads_and_is_where_a_label_says_so():
    [daemon_set] = stored("DaemonSet")
    pod = daemon_set["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["nodeSelector"] == {"drawbridge.dev/node-agent": "on"}
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "/var/lib/kubelet" not in {mount["mountPath"] for mount in container["volumeMounts"]}, "secrets of pods"


def test_its_port_is_for_probes_and_for_namespaces_that_are_labelled_for_metrics():
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


def test_all_it_may_write_is_events_and_marks():
    [role] = stored("ClusterRole")
    writing = [rule["resources"] for rule in role["rules"] if not {"get", "list", "watch"}.issuperset(rule["verbs"])]
    as_node = [rule["resources"] for rule in role["rules"] if any("associated-node" in verb for verb in rule["verbs"])]
    assert as_node == [["nodes"], ["pods"]], "read as the node"
    assert [one for one in writing if one not in as_node] == [["events"], ["devicetaintrules"]]


def test_the_right_to_all_pods_is_for_old_servers_and_comes_apart():
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


def test_the_policies_are_for_its_account_its_marks_and_its_events():
    events, marks = policies = stored("ValidatingAdmissionPolicy")
    bound = [one["spec"] for one in stored("ValidatingAdmissionPolicyBinding")]
    assert bound == [{"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]} for policy in policies]
    [account] = stored("ServiceAccount")
    for policy in policies:
        assert policy["spec"]["failurePolicy"] == "Fail"
        [condition] = policy["spec"]["matchConditions"]
        assert f"drawbridge-system-nodes:{account['metadata']['name']}" in condition["expression"]
    assert f"'{HELD_BY_PLUGIN}'" in marks["spec"]["validations"][0]["expression"]
    assert f"'{COMPONENT}'" in events["spec"]["validations"][0]["expression"]


def test_it_is_printed_where_it_is_asked_for_with_the_account_of_a_namespace_beside():
    plain, asked = (run("manifests", "--image", "x", "--namespace", "dra", *more).stdout for more in ((), ("--node-agent",)))  # fmt: skip
    assert "drawbridge-node-agent" not in plain
    assert "system:serviceaccount:dra-nodes:drawbridge-node-agent" in asked
    written = [document.object for document in manifests.parse(asked) if document.object["kind"] == "NetworkPolicy"]
    assert ("dra-nodes", "drawbridge-node-agent") in [(one["metadata"].get("namespace"), one["metadata"]["name"]) for one in written]  # fmt: skip
    assert "drawbridge.invalid" not in asked


def test_the_right_to_a_nodes_status_comes_apart_and_with_its_policy():
    """By itself, and never without what holds it."""
    objects = [document.object for document in manifests.read([BASE.parent / "node-condition" / "role.yaml"])]
    by_kind = {obj["kind"]: obj for obj in objects}
    assert by_kind["ClusterRole"]["rules"] == [{"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}]
    policy = by_kind["ValidatingAdmissionPolicy"]
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert by_kind["ValidatingAdmissionPolicyBinding"]["spec"]["policyName"] == policy["metadata"]["name"]
    said = {one["expression"] for one in policy["spec"]["variables"] if CONDITION in one["expression"]}
    assert len(said) == 2
    [account] = stored("ServiceAccount")
    [subject] = by_kind["ClusterRoleBinding"]["subjects"]
    assert (subject["namespace"], subject["name"]) == (account["metadata"]["namespace"], account["metadata"]["name"])
    assert "--condition" not in str(stored("DaemonSet")), "off unless asked for"
