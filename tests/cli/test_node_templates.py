"""Every command with a configuration uses its node templates and its trusted drivers in the same way."""

import pytest

from tests.allocator.fleets import DRIVER, gpu
from tests.cli.commands.fleets import class_of, node_slice, pod_of_template
from tests.cli.running import manifest, run, run_json
from tests.objects import claim, claim_template, exactly, node
from tests.webhook.pods import CLAIMED, EXAMPLES

HEAD = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "metadata": {"name": "c"}}
BIG = {"name": "big", "devices": [{"driver": DRIVER, "count": 4}]}


@pytest.fixture
def fleet(tmp_path):
    objects = [node("n0"), node_slice("n0", gpu("gpu-0"), gpu("gpu-1")), class_of("gpu")]
    return manifest(tmp_path / "fleet.yaml", *objects)


@pytest.fixture
def config(tmp_path):
    return manifest(tmp_path / "config.yaml", HEAD | {"nodeTemplates": [BIG]})


def codes(*args):
    _, answer = run_json("check", *args)
    return [finding["code"] for finding in answer["findings"]]


@pytest.mark.parametrize("option", ["-f", "--inventory"])
def test_check_accepts_a_claim_that_fits_on_a_declared_node(fleet, config, tmp_path, option):
    four = manifest(tmp_path / "four.yaml", claim("four", exactly("gpu", count=4)))
    five = manifest(tmp_path / "five.yaml", claim("five", exactly("gpu", count=5)))
    assert codes("-f", four, "--inventory", fleet) == ["R023", "D305"]
    assert codes("-f", four, "--inventory", fleet, option, config) == []
    assert codes("-f", five, "--inventory", fleet, option, config) == ["R023"], (
        "the node has two devices, and a node of the template four"
    )


def test_simulate_names_the_declared_node_that_would_fit(fleet, config, tmp_path):
    objects = [claim_template("four", exactly("gpu", count=4)), claim_template("five", exactly("gpu", count=5))]
    pods = manifest(tmp_path / "pods.yaml", *objects, pod_of_template("a", "four"), pod_of_template("b", "five"))
    code, plain = run_json("simulate", "-f", fleet, "-f", pods)
    again, answer = run_json("simulate", "-f", fleet, "-f", pods, "--config", config)
    assert (code, again) == (1, 1)
    summaries = {pod["pod"]: pod["summary"] for pod in answer["pods"]}
    before = {pod["pod"]: pod["summary"] for pod in plain["pods"]}
    assert before["default/a"].startswith("refused: the only node cannot serve this pod, even with all devices free")
    assert summaries["default/a"].startswith("0/1 nodes: 1 node(s) had too few devices that can be used together")
    assert summaries["default/a"].endswith("; a node of template big could serve it (`nodeTemplates`)")
    assert summaries["default/b"] == before["default/b"]
    assert answer["totals"] == plain["totals"]


SIXTEEN = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "ns"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "16"}}}]},
}
H100 = {"type": {"string": "gpu"}, "productName": {"string": "NVIDIA H100 80GB HBM3"}}
LARGE = {"name": "large", "devices": [{"driver": "gpu.nvidia.com", "count": 16, "attributes": H100}]}


def test_translate_refuses_a_pod_unless_a_declared_node_could_serve_it(tmp_path):
    pod_file = manifest(tmp_path / "pod.yaml", SIXTEEN)
    known = ["--inventory", EXAMPLES / "fleet"]
    refused = run("translate", "-f", pod_file, *known)
    assert refused.exit_code == 1
    assert "error: Pod/ns/p: none of the 6 nodes can serve this pod, even with all devices free" in refused.stderr
    config = manifest(tmp_path / "config.yaml", HEAD | {"nodeTemplates": [LARGE]})
    result = run("translate", "-f", pod_file, *known, "--config", config)
    assert "a node of template large could" in result.stderr
    assert (result.exit_code, "error" in result.stderr) == (0, False)
    without_fleet = run("translate", "-f", pod_file).stderr
    assert "even with all devices free" not in without_fleet, "without a fleet nothing is known to be impossible"


def test_translate_counts_only_nodes_of_the_drivers_that_the_configuration_trusts(tmp_path):
    pod_file = manifest(tmp_path / "pod.yaml", SIXTEEN | {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}})  # fmt: skip
    config = manifest(tmp_path / "config.yaml", HEAD | {"evidence": {"drivers": ["dra.net"]}})
    _, answer = run_json("translate", "-f", pod_file, "--inventory", EXAMPLES / "fleet", "--config", config)
    assert [decision["outcome"] for decision in answer["decisions"]] == ["left"]
    config = manifest(tmp_path / "config.yaml", HEAD | CLAIMED | {"evidence": {"drivers": ["gpu.nvidia.com"]}})
    _, answer = run_json("translate", "-f", pod_file, "--inventory", EXAMPLES / "fleet", "--config", config)
    assert [decision["basis"] for decision in answer["decisions"]] == [
        "3 of 3 nodes that count (`evidence`) publish it as a whole GPU (class gpu.nvidia.com)"
    ]
