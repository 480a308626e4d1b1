"""The manifests of the audit agent: it is off by default, mounts its node read-only, and may write only events and taint rules of its node."""

from functools import partial

from analysis.installation import BASE
from cluster import manifests
from node.audit import COMPONENT, CONDITION
from node.audit.marks import HELD_BY_PLUGIN
from tests.cli.running import run_manifests
from tests.test_installation_driver import objects_of_component

objects_of_kind = partial(objects_of_component, "node-agent")


def test_the_agent_runs_on_labelled_nodes_and_mounts_read_only():
    [daemon_set] = objects_of_kind("DaemonSet")
    pod = daemon_set["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["nodeSelector"] == {"drawbridge.dev/node-agent": "on"}
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "/var/lib/kubelet" not in {mount["mountPath"] for mount in container["volumeMounts"]}, (
        "the agent mounts the folder with the secrets of pods"
    )


def test_the_agent_may_write_only_events_and_taint_rules():
    [role] = objects_of_kind("ClusterRole")
    written_resources = [
        rule["resources"] for rule in role["rules"] if not {"get", "list", "watch"}.issuperset(rule["verbs"])
    ]
    resources_of_own_node = [
        rule["resources"] for rule in role["rules"] if any("associated-node" in verb for verb in rule["verbs"])
    ]
    assert resources_of_own_node == [["nodes"], ["pods"]], (
        "the rights that are limited to the agent's node are not those to nodes and pods"
    )
    assert [resources for resources in written_resources if resources not in resources_of_own_node] == [
        ["events"],
        ["devicetaintrules"],
    ]


def test_the_role_for_all_pods_is_in_a_separate_folder():
    """The agent needs the role on servers before 1.36."""
    objects = [document.object for document in manifests.read([BASE.parent / "node-agent-pods" / "role.yaml"])]
    role, binding = objects
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    [account] = objects_of_kind("ServiceAccount")
    [subject] = binding["subjects"]
    assert (subject["namespace"], subject["name"]) == (account["metadata"]["namespace"], account["metadata"]["name"])
    [default_role] = objects_of_kind("ClusterRole")
    assert all(
        {"list", "watch", "get"}.isdisjoint(rule["verbs"])
        for rule in default_role["rules"]
        if "pods" in rule["resources"]
    )


def test_policies_limit_the_agents_taint_rules_and_events():
    event_policy, taint_rule_policy = policies = objects_of_kind("ValidatingAdmissionPolicy")
    [account] = objects_of_kind("ServiceAccount")
    for policy in policies:
        [condition] = policy["spec"]["matchConditions"]
        assert f"drawbridge-system-nodes:{account['metadata']['name']}" in condition["expression"]
    assert f"'{HELD_BY_PLUGIN}'" in taint_rule_policy["spec"]["validations"][0]["expression"]
    assert f"'{COMPONENT}'" in event_policy["spec"]["validations"][0]["expression"]


def test_the_option_prints_the_agent_in_the_nodes_namespace():
    plain, enabled = (run_manifests("--image", "x", "--namespace", "dra", **values).stdout for values in ({}, {"nodeAgent": True}))  # fmt: skip
    assert "drawbridge-node-agent" not in plain
    assert "system:serviceaccount:dra-nodes:drawbridge-node-agent" in enabled
    network_policies = [
        document.object for document in manifests.parse(enabled) if document.object["kind"] == "NetworkPolicy"
    ]
    assert ("dra-nodes", "drawbridge-node-agent") in [(obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in network_policies]  # fmt: skip
    assert "drawbridge.invalid" not in enabled


def test_the_right_to_node_status_comes_with_its_policy():
    """The role, its binding and the policy that limits the role are in a separate folder."""
    objects = [document.object for document in manifests.read([BASE.parent / "node-condition" / "role.yaml"])]
    by_kind = {obj["kind"]: obj for obj in objects}
    assert by_kind["ClusterRole"]["rules"] == [{"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}]
    policy = by_kind["ValidatingAdmissionPolicy"]
    expressions = {
        variable["expression"] for variable in policy["spec"]["variables"] if CONDITION in variable["expression"]
    }
    assert len(expressions) == 2
    [account] = objects_of_kind("ServiceAccount")
    [subject] = by_kind["ClusterRoleBinding"]["subjects"]
    assert (subject["namespace"], subject["name"]) == (account["metadata"]["namespace"], account["metadata"]["name"])
    assert "--condition" not in str(objects_of_kind("DaemonSet")), "the agent writes node conditions by default"
