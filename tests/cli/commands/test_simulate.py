"""`drawbridge simulate` places the pending pods of a snapshot on its nodes."""

import pytest

from allocator.strategies import STRATEGIES
from tests.allocator.fleets import gpu
from tests.cli.commands.fleets import allocated_claim, class_of, node_slice, pod_of_template
from tests.cli.running import MODES, manifest, run, run_json
from tests.objects import claim_template, exactly, node, pod, resource_slice


@pytest.fixture
def fleet(tmp_path):
    """A node with two GPUs, a class, and a template of claims for one GPU."""
    objects = [node("n0"), node_slice("n0", gpu("gpu-0"), gpu("gpu-1")), class_of("gpu")]
    return manifest(tmp_path / "fleet.yaml", *objects, claim_template("one", exactly("gpu")))


def test_the_pods_of_a_snapshot_are_placed_and_counted(fleet, tmp_path):
    pods = manifest(tmp_path / "pods.yaml", pod_of_template("b", "one"), pod_of_template("a", "one"))
    code, answer = run_json("simulate", "-f", fleet, "-f", pods)
    assert code == 0
    assert [(outcome["pod"], outcome["node"], outcome["devices"]) for outcome in answer["pods"]] == [
        ("default/a", "n0", ["gpu.example.com/n0/gpu-0"]),
        ("default/b", "n0", ["gpu.example.com/n0/gpu-1"]),
    ]
    assert all(outcome["victims"] == [] for outcome in answer["pods"])
    assert (answer["totals"]["placed"], answer["totals"]["utilisation"]) == (2, 1.0)


def test_a_pod_that_fits_nowhere_is_printed_with_the_reasons(fleet, tmp_path):
    pods = manifest(
        tmp_path / "pods.yaml",
        pod_of_template("a", "one"),
        allocated_claim("x", "gpu-0"),
        allocated_claim("y", "gpu-1"),
    )
    result = run("simulate", "-f", fleet, "-f", pods)
    assert result.exit_code == 1
    assert "0 of 1 nodes" in result.stdout
    assert "2 of 2 devices are in use, such as gpu-0: held by claim default/x" in " ".join(result.stdout.split())
    code, answer = run_json("simulate", "-f", fleet, "-f", pods)
    (outcome,) = answer["pods"]
    assert (code, outcome["node"]) == (1, None)
    assert "devices are in use" in outcome["reason"]["text"]


def test_a_slice_with_an_invalid_node_selector_ends_no_command(fleet, tmp_path):
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["a"]}]}]
    shared_slice = resource_slice("shared", "gpu-0", nodeSelector={"nodeSelectorTerms": terms})
    pods = pod("low", phase="Running", nodeName="n0"), pod_of_template("high", "one")
    pods[1]["spec"]["priority"] = 9
    files = "-f", fleet, "-f", manifest(tmp_path / "more.yaml", shared_slice, *pods)
    code, answer = run_json("simulate", *files)
    (outcome,) = answer["pods"]
    assert (code, outcome["node"], outcome["victims"]) == (1, None, [])
    assert "Near" in outcome["reason"]["text"]
    assert [run(command, *files).exit_code for command in ("doctor", "free")] == [0, 0]


@pytest.mark.parametrize(("scope", "nodes"), [("node", ["n0", None]), ("pool", ["n0", "n0"])])
def test_a_compatibility_rule_covers_the_pools_of_its_scope(tmp_path, scope, nodes):
    slices = [node_slice("n0", gpu("gpu-0")), node_slice("n0", gpu("gpu-0"))]
    slices[1]["metadata"]["name"] = slices[1]["spec"]["pool"]["name"] = "second"
    spec = {"driver": "gpu.example.com", "compatibleOnlyWith": "false", "scope": scope}
    rule = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceCompatibility", "metadata": {"name": "alone"}}
    objects = [node("n0"), *slices, class_of("gpu"), rule | {"spec": spec}, claim_template("one", exactly("gpu"))]
    files = manifest(tmp_path / "all.yaml", *objects, pod_of_template("a", "one"), pod_of_template("b", "one"))
    _, answer = run_json("simulate", "-f", files)
    assert [outcome["node"] for outcome in answer["pods"]] == nodes
    texts = [outcome["reason"]["text"] for outcome in answer["pods"]]
    assert any("compatibleOnlyWith" in text for text in texts) == (scope == "node")


def test_a_snapshot_without_pending_pods_exits_with_0(fleet):
    result = run("simulate", "-f", fleet)
    assert (result.exit_code, result.stdout) == (0, "no pending pods\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "nothing to simulate"),
        (("-f", "FLEET", "--remove-node", "nowhere"), "there is no node 'nowhere'"),
    ],
)
def test_invalid_arguments_exit_with_2(fleet, args, message):
    result = run("simulate", *(fleet if arg == "FLEET" else arg for arg in args))
    assert result.exit_code == 2
    assert message in result.stderr


def test_objects_that_simulate_does_not_read_are_counted(fleet, tmp_path):
    stateful_set = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "d"}, "spec": {"replicas": 3}}
    ignored_file = manifest(
        tmp_path / "others.yaml", stateful_set, {"apiVersion": "batch/v1", "kind": "Job"}, stateful_set
    )
    result = run("simulate", "-f", fleet, "-f", ignored_file)
    assert (result.exit_code, result.stderr) == (0, "")
    result = run("simulate", "-v", "-f", fleet, "-f", ignored_file)
    assert "3 objects ignored, of kinds that this command does not read: 2 StatefulSet, 1 Job" in result.stderr


def test_a_pod_in_an_input_without_nodes_is_reported(tmp_path):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    result = run("simulate", "-f", manifest(tmp_path / "pod.yaml", pod))
    assert result.exit_code == 1
    assert "unknown: the input has no Nodes" in result.stdout


def test_the_strategies_are_listed():
    result = run("simulate", "--strategy", "help")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(STRATEGIES)


@pytest.mark.parametrize("command", [("simulate", "-f", MODES), ("simulate", "-f", MODES, "--claims")])
def test_an_unknown_strategy_is_refused_with_the_list(command):
    result = run(*command, "--strategy", "compact")
    assert result.exit_code == 2
    assert f"unknown strategy compact (strategies: {', '.join(STRATEGIES)})" in result.stderr


def test_the_order_of_nodes_in_the_files_does_not_matter(tmp_path):
    """The API server lists nodes by name. So the first pod gets node a, and the second pod, which can only use a, gets none."""
    nodes = [node("a"), node_slice("a", gpu("gpu-0"))], [node("b"), node_slice("b", gpu("gpu-0"))]
    on_a = pod_of_template("second", "one")
    on_a["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "a"}
    pods = [class_of("gpu"), claim_template("one", exactly("gpu")), pod_of_template("first", "one"), on_a]
    answers = [
        run_json("simulate", "-f", manifest(tmp_path / "all.yaml", *first, *last, *pods))[1]["pods"]
        for first, last in (nodes, nodes[::-1])
    ]
    assert answers[0] == answers[1]
    assert [pod["node"] for pod in answers[0]] == ["a", None]
