"""`drawbridge demo`: the pods that it creates, and how it prints their progress."""

import os
import pty
import re
import signal
import subprocess
import urllib.request

import pytest

from cli import story as stories
from cli.commands.demo import EXAMPLES
from cli.playground.pod_progress import pods_of
from cli.story import End, PodProgress
from cluster import manifests
from tests.cli.commands.playgrounds import CONFIGURATION, DRAWBRIDGE, OBJECT_OF_UNKNOWN_KIND, POD_WITH_TEMPLATE
from tests.cli.running import manifest, run
from tests.limits import PATIENCE
from tests.objects import node, obj, pod

POD_OF_A_PART = pod("p", namespace="", limits={"nvidia.com/gpu": "1.5"})


def test_without_a_terminal_the_demo_prints_every_pod_and_ends():
    result = run("demo")
    assert (result.exit_code, result.stderr) == (0, "")
    # The signs of pods that are placed, unchanged, waiting and refused.
    lines = [line for line in result.stdout.splitlines() if line[:1] in "✓·…✗" and line]
    assert len(lines) >= 12
    assert {line[0] for line in lines} == set("✓·…✗")
    assert "\x1b" not in result.stdout
    assert "next:" in result.stdout
    # The files of the suggested command have the devices.
    [line] = [line for line in result.stdout.splitlines() if " dashboard " in line]
    assert "gpu.nvidia.com/train-1" in run("free", *line.split()[2:-1], "-o", "json").stdout
    assert " ".join(result.stdout.split()).count("waits until devices are free") == 1  # only one warning


def test_on_a_terminal_the_demo_serves_the_dashboard_until_interrupted(tmp_path):
    controller, terminal = pty.openpty()
    with subprocess.Popen([DRAWBRIDGE, "demo"], stdin=terminal, stdout=terminal, stderr=terminal, cwd=tmp_path) as demo:
        os.close(terminal)
        try:
            printed = b""
            while b"until Ctrl-C" not in printed:
                printed += os.read(controller, 1 << 16)
            [url] = re.findall(r"^  (http://[^ /]*)\r$", printed.decode(), re.MULTILINE)
            with urllib.request.urlopen(f"{url}/waiting", timeout=60) as page:
                assert "/pods/team-a/whole-node" in page.read().decode()
            demo.send_signal(signal.SIGINT)
            assert demo.wait(PATIENCE) == 0
        finally:
            demo.kill()
            os.close(controller)


def test_a_demo_accepts_pods_from_files(tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text("# mine\nkind: Pod\napiVersion: v1\nmetadata: {name: mine}\nspec: {containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}\n")  # fmt: skip
    result = run("demo", "-f", str(file), "--config", CONFIGURATION)
    assert result.exit_code == 0
    assert "✓ mine  mine" in result.stdout  # the name, and the comment in the file
    assert "requests c: nvidia.com/gpu 1" in result.stdout


DEPLOYMENT = obj("Deployment", "d", "apps/v1", replicas=1, template={"spec": POD_OF_A_PART["spec"]})
POD_WITH_GENERATED_NAME = """\
kind: Pod
apiVersion: v1
metadata: {generateName: train-, namespace: team-g}
spec: {containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""


def test_the_demo_uses_and_names_the_configuration_in_force(tmp_path):
    configuration = obj("DrawbridgeConfiguration", "c", "drawbridge.dev/v1alpha1")
    configuration |= {"extendedResources": {"drivers": {"gpu.nvidia.com": "translate"}}}
    gpu_pod = pod("p", namespace="n", limits={"nvidia.com/gpu": "1"})
    file_with_configuration = manifest(tmp_path / "both.yaml", configuration, gpu_pod)
    pod_file = manifest(tmp_path / "alone.yaml", gpu_pod)
    output_with_defaults, output_with_configuration = (
        run("demo", "-f", path, "--once").stdout for path in (pod_file, file_with_configuration)
    )
    assert "configuration: defaults; mode enforce" in output_with_defaults
    assert "outcome  served" in output_with_defaults
    assert "1 pod: 1 placed" in output_with_defaults, "no claim was created for the DeviceClass"
    assert f"configuration: {file_with_configuration}:1; mode enforce" in output_with_configuration
    assert "claims   " in output_with_configuration
    assert "ignored" not in output_with_configuration
    assert "configuration: defaults; mode enforce" in run("demo", "--once").stdout, "the same key has two outcomes"


def test_a_demo_on_another_fleet_names_the_plugins_node_and_that_fleet(tmp_path):
    amounts = {"nvidia.com/gpu": "8", "pods": "9"}
    fleet = f"--inventory {EXAMPLES}/fleet --inventory " + str(
        manifest(tmp_path / "old.yaml", node("old", allocatable=amounts, capacity=amounts))
    )
    file = tmp_path / "pod.yaml"
    file.write_text(POD_WITH_GENERATED_NAME.replace("gpu: 1", "gpu: 8"))
    output = run("demo", "-f", file, *fleet.split(), "--once").stdout
    assert "runs on  old: by its device plugin" in output
    assert f"translate -f {file} {fleet} -o diff" in output
    assert f"demo -f {file}" not in output
    deployment = manifest(tmp_path / "d.json", DEPLOYMENT)
    output = run("resize", "deployment/d", "nvidia.com/gpu=8", "-f", deployment, *fleet.split()).stdout
    assert "old (no device of a driver)" in output


@pytest.mark.parametrize(("amount", "exit_code"), [(1, 0), (16, 1)], ids=["placed", "refused"])
def test_the_exit_code_of_a_demo_reports_refused_pods(tmp_path, amount, exit_code):
    file = tmp_path / "pod.yaml"
    file.write_text(POD_WITH_GENERATED_NAME.replace("gpu: 1", f"gpu: {amount}"))
    assert run("demo", "-f", file, "--once").exit_code == exit_code


JOB_WITH_GENERATED_NAME = """\
kind: Job
apiVersion: batch/v1
metadata: {generateName: train-, namespace: team-g}
spec: {template: {spec: {containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
"""
DEMO_OF_FILE = f"demo --config {CONFIGURATION} --inventory {{fleet}} -f {{file}}"


@pytest.mark.parametrize(
    ("command", "text", "pattern"),
    [
        (DEMO_OF_FILE, POD_WITH_GENERATED_NAME, r"2 pods: 2 placed"),
        ("simulate -f {file} -f {fleet}", POD_WITH_GENERATED_NAME, r"2 of 2 pods placed .*\n\n.*\n  ✓  team-g/train-00002 "),
        ("explain pod train-00002 -n team-g -f {file} -f {fleet}", POD_WITH_GENERATED_NAME, r"pod team-g/train-00002: in no cluster yet"),
        (DEMO_OF_FILE, JOB_WITH_GENERATED_NAME, r"2 pods: 2 placed"),
        ("simulate -f {file} -f {fleet}", JOB_WITH_GENERATED_NAME, r"2 of 2 pods placed .*\n\n.*\n  ✓  team-g/train-00002-0 "),
    ],
    ids=["demo", "simulate", "explain", "demo of jobs", "simulated jobs"],
)  # fmt: skip
def test_two_objects_with_one_generate_name_get_different_names(tmp_path, command, text, pattern):
    file = tmp_path / "two.yaml"
    file.write_text(f"{text}---\n{text}")
    result = run(*command.format(file=file, fleet=EXAMPLES / "fleet").split())
    assert re.search(pattern, result.stdout), result.output


@pytest.mark.parametrize(
    ("content", "message"), [("kind: [", "yaml"), (None, "No such file")], ids=["broken", "missing"]
)  # fmt: skip
def test_the_demo_does_not_start_with_an_unreadable_file(tmp_path, content, message):
    file = tmp_path / "pods.yaml"
    if content is not None:
        file.write_text(content)
    result = run("demo", "-f", str(file))
    assert result.exit_code == 2
    assert message.lower() in result.stderr.lower()
    assert not result.stdout


@pytest.mark.parametrize(("replicas", "names"), [(0, []), (1, ["d-0"]), (64, [f"d-{i}" for i in range(8)])])
def test_a_demo_creates_at_most_eight_pods_of_a_deployment(replicas, names):
    spec = {"replicas": replicas, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    created_pods = pods_of({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
    assert [created_pod.pod["metadata"]["name"] for created_pod in created_pods] == names
    assert [created_pod.part for created_pod in created_pods][-1:] == (
        [f"8 of {replicas}"] if replicas > 8 else [""] * bool(replicas)
    )


def test_replicas_with_the_same_refusal_have_one_block():
    refused = [
        PodProgress(name=f"p-{number}", shows=f"{number} of 3", end=End.REFUSED, because=(reason,))
        for number, reason in enumerate(["too many", "too many", "too many", "another reason"])
    ]
    text = "\n".join(stories.lines(refused, width=None, colour=False))
    assert (text.count("too many"), text.count("another reason")) == (1, 1)
    assert "and 2 pods more, to p-2, for the same reason" in text


def test_a_refusal_keeps_its_parentheses_together(tmp_path):
    file = manifest(tmp_path / "p.yaml", POD_OF_A_PART)
    assert "(ask for a whole number; request a part" in run("demo", "-f", file, "--once").stdout


def test_a_demo_counts_the_objects_that_it_ignores(tmp_path):
    ignored_objects = (
        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i}\n"
        "---\napiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: r}\nspec: {}\n"
        "---\napiVersion: v1\nkind: Secret\nmetadata: {name: odd, labels: [x]}\n"
        "---\n"
    )
    file = tmp_path / "all.yaml"
    file.write_text(ignored_objects + POD_WITH_TEMPLATE)
    result = run("demo", "-f", str(file), "--once")
    assert result.exit_code == 0, result.stderr
    assert "✓ own" in result.stdout
    assert "1 pod: 1 placed" in result.stdout
    assert "3 objects ignored" in result.stdout
    assert "1 Service, 1 Ingress, 1 Secret" in result.stdout
    assert "1 object whose pods are built by controllers" in result.stdout
    assert "lists their keys): 1 RayCluster" in result.stdout
    assert "1 object added to the store: 1 ResourceClaimTemplate" in result.stdout


def test_a_demo_ignores_fleet_objects_of_unknown_kinds(tmp_path):
    file = tmp_path / "thing.yaml"
    file.write_text(OBJECT_OF_UNKNOWN_KIND)
    result = run("demo", "-f", str(EXAMPLES / "pods/nvidia-training.yaml"), "--inventory", str(EXAMPLES / "fleet"), "--inventory", str(file), "--once")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "1 object ignored" in result.stdout
    assert "1 Thing" in result.stdout


def test_every_example_becomes_a_pod_with_name_and_containers():
    for path in sorted((EXAMPLES / "pods").glob("*.yaml")):
        pod = pods_of(manifests.read([path])[-1].object)[0].pod
        assert pod["kind"] == "Pod"
        assert pod["metadata"].get("name") or pod["metadata"]["generateName"]
        assert pod["spec"]["containers"]
    assert pods_of({"kind": "ConfigMap", "apiVersion": "v1"}) == []


def test_the_progress_of_a_pod_fits_the_width():
    progress = PodProgress(
        name="p",
        shows="why " * 40 + "so",
        end=End.PLACED,
        requested=("c: x 1",),
        claims=("word " * 60,),
        runs=("n: d",),
    )
    lines = list(
        stories.lines([progress, PodProgress(name="longer", end=End.REFUSED, because=("no",))], width=80, colour=False)
    )
    assert lines[0].startswith("✓ p       why why")
    assert lines[1].startswith(" " * 10 + "  why"), "the second line does not continue below the first"
    assert all(len(line) <= 80 for line in lines)
    assert "    runs on  n: d" in lines
    assert "✗ longer" in lines


def test_colours_are_only_used_when_enabled():
    progress = PodProgress(name="p", end=End.WAITS)
    assert "\x1b[33m" in next(iter(stories.lines([progress], width=80, colour=True)))
    assert "\x1b" not in next(iter(stories.lines([progress], width=80, colour=False)))


@pytest.mark.whole
def test_a_demo_whose_output_is_closed_reports_no_bug():
    with subprocess.Popen([DRAWBRIDGE, "demo", "--once"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as demo:
        demo.stdout.readline()
        demo.stdout.close()
        assert b"bug" not in demo.stderr.read()


def test_the_total_counts_the_pods_by_outcome():
    total = stories.total([PodProgress(name="a", end=End.PLACED), PodProgress(name="b", end=End.REFUSED)], 1.25)
    assert total == "2 pods: 1 placed, 1 refused; 1.2 s"
    total_of_one_pod = stories.total([PodProgress(name="a", end=End.LEFT)], 1)
    assert total_of_one_pod == "1 pod: 1 left; 1.0 s"
