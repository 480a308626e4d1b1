"""`check`, `simulate` and `translate` use the node templates and the trusted drivers of a configuration."""

import pytest

from tests.allocator.fleets import DRIVER, gpu
from tests.cli.commands.fleets import class_of, node_slice, pod_of_template
from tests.cli.running import manifest, run, run_json
from tests.objects import claim, claim_template, exactly, node, obj
from tests.webhook.pods import EXAMPLES, NVIDIA_BY_CLAIM

EMPTY_CONFIGURATION = obj("DrawbridgeConfiguration", "c", "drawbridge.dev/v1alpha1")
BIG_TEMPLATE = {"name": "big", "devices": [{"driver": DRIVER, "count": 4}]}


@pytest.fixture
def fleet(tmp_path):
    objects = [node("n0"), node_slice("n0", gpu("gpu-0"), gpu("gpu-1")), class_of("gpu")]
    return manifest(tmp_path / "fleet.yaml", *objects)


@pytest.fixture
def config(tmp_path):
    return manifest(tmp_path / "config.yaml", EMPTY_CONFIGURATION | {"nodeTemplates": [BIG_TEMPLATE]})


def codes_of_check(*args):
    _, answer = run_json("check", *args)
    return [finding["code"] for finding in answer["findings"]]


@pytest.mark.parametrize("option", ["-f", "--inventory"])
def test_check_accepts_a_claim_that_fits_on_a_declared_node(fleet, config, tmp_path, option):
    four = manifest(tmp_path / "four.yaml", claim("four", exactly("gpu", count=4)))
    five = manifest(tmp_path / "five.yaml", claim("five", exactly("gpu", count=5)))
    assert codes_of_check("-f", four, "--inventory", fleet) == ["R023", "D305"]
    assert codes_of_check("-f", four, "--inventory", fleet, option, config) == []
    assert codes_of_check("-f", five, "--inventory", fleet, option, config) == ["R023"], (
        "five devices fit neither on the node, which has two, nor on a node of the template, which has four"
    )


def test_simulate_names_the_declared_node_that_would_fit(fleet, config, tmp_path):
    objects = [claim_template("four", exactly("gpu", count=4)), claim_template("five", exactly("gpu", count=5))]
    pods = manifest(tmp_path / "pods.yaml", *objects, pod_of_template("a", "four"), pod_of_template("b", "five"))
    code_without_config, answer_without_config = run_json("simulate", "-f", fleet, "-f", pods)
    code_with_config, answer = run_json("simulate", "-f", fleet, "-f", pods, "--config", config)
    assert (code_without_config, code_with_config) == (1, 1)
    summaries = {pod["pod"]: " ".join((pod["reason"]["text"], *pod["reason"]["remedies"])) for pod in answer["pods"]}
    summaries_without_config = {
        pod["pod"]: " ".join((pod["reason"]["text"], *pod["reason"]["remedies"]))
        for pod in answer_without_config["pods"]
    }
    assert summaries_without_config["default/a"].startswith("refused: ")
    assert summaries["default/a"].startswith("0 of 1 nodes can serve the pod: 1 node(s) cannot serve request ")
    assert summaries["default/a"].endswith("; a node of template big could serve it (`nodeTemplates`)")
    assert "request at most 2 devices" in summaries_without_config["default/b"]
    assert "request at most 4 devices" in summaries["default/b"]
    assert answer["totals"] == answer_without_config["totals"]


SIXTEEN_GPU_POD = obj(
    "Pod",
    "p",
    namespace="ns",
    containers=[{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "16"}}}],
)
H100_ATTRIBUTES = {"type": {"string": "gpu"}, "productName": {"string": "NVIDIA H100 80GB HBM3"}}
LARGE_TEMPLATE = {
    "name": "large",
    "devices": [{"driver": "gpu.nvidia.com", "count": 16, "attributes": H100_ATTRIBUTES}],
}


def test_translate_refuses_a_pod_that_no_declared_node_could_serve(tmp_path):
    pod_file = manifest(tmp_path / "pod.yaml", SIXTEEN_GPU_POD)
    fleet_options = ["--inventory", EXAMPLES / "fleet"]
    refused = run("translate", "-f", pod_file, *fleet_options)
    assert refused.exit_code == 1
    assert "[R02" in refused.stderr
    config = manifest(tmp_path / "config.yaml", EMPTY_CONFIGURATION | {"nodeTemplates": [LARGE_TEMPLATE]})
    result = run("translate", "-f", pod_file, *fleet_options, "--config", config)
    assert "a node of template large could" in result.stderr
    assert (result.exit_code, "error" in result.stderr) == (0, False)
    without_fleet = run("translate", "-f", pod_file).stderr
    assert "[R02" not in without_fleet, "without a fleet nothing is known to be impossible"


def test_translate_counts_only_the_nodes_of_trusted_drivers(tmp_path):
    one_gpu = {"limits": {"nvidia.com/gpu": "1"}}
    one_gpu_pod = SIXTEEN_GPU_POD | {"spec": {"containers": [{"name": "c", "image": "i", "resources": one_gpu}]}}
    pod_file = manifest(tmp_path / "pod.yaml", one_gpu_pod)
    config = manifest(tmp_path / "config.yaml", EMPTY_CONFIGURATION | {"evidence": {"drivers": ["dra.net"]}})
    _, answer = run_json("translate", "-f", pod_file, "--inventory", EXAMPLES / "fleet", "--config", config)
    assert [decision["outcome"] for decision in answer["decisions"]] == ["left"]
    config = manifest(
        tmp_path / "config.yaml", EMPTY_CONFIGURATION | NVIDIA_BY_CLAIM | {"evidence": {"drivers": ["gpu.nvidia.com"]}}
    )
    _, answer = run_json("translate", "-f", pod_file, "--inventory", EXAMPLES / "fleet", "--config", config)
    [decision] = answer["decisions"]
    assert decision["basis"].startswith("3 of 3 nodes that count")
