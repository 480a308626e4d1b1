"""The outcomes, remedies and warnings of `drawbridge translate`, in the report, SARIF, GitHub annotations and JUnit."""

import copy
import json
import re
from xml.etree import ElementTree as ET

import pytest

from tests.cli.commands.translations import CONFIG_MAP, SHARE_POD, TAINTED_FLEET, complete_pod, yaml_of
from tests.cli.running import manifest, run, run_json
from tests.objects import obj
from tests.webhook.pods import EXAMPLES, pod


def test_a_report_counts_the_outcomes():
    refused_pod, left_pod = (
        complete_pod(pod({"nvidia.com/gpumem": 1.5})),
        complete_pod(pod({"nvidia.com/gpu.shared": 1})),
    )
    result = run(
        "translate", "-f", "-", "-o", "report", stdin=yaml_of(CONFIG_MAP, SHARE_POD, refused_pod, left_pod, SHARE_POD)
    )
    assert result.exit_code == 1
    first_line = result.stdout.splitlines()[0]
    assert first_line == "5 objects, 2 rewritten: 2 approximated, 1 left, 1 refused, 1 without a legacy request"


def test_a_queue_that_counts_keys_is_counted_apart():
    """It requests no device, and `survey` lists it as an obstacle (S020)."""
    resources = [{"name": "nvidia.com/gpu", "nominalQuota": 4}]
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "f", "resources": resources}]}]
    queue = obj("ClusterQueue", "q", "kueue.x-k8s.io/v1beta1", resourceGroups=groups)
    output = run("translate", "-f", "-", "-o", "report", stdin=yaml_of(queue)).stdout
    assert output.splitlines()[0] == "1 object, 0 rewritten: 1 counting keys, 0 without a legacy request"


def test_the_report_calls_no_key_of_a_refused_object_translated():
    """The API server refuses a pod without a name, so its keys stay."""
    unnamed_pod = complete_pod(pod({"nvidia.com/gpumem": 1000}))
    del unnamed_pod["metadata"]["name"]
    output = run("translate", "-f", "-", "-o", "report", stdin=yaml_of(unnamed_pod)).stdout
    assert [line.split()[0] for line in output.splitlines() if line] == ["1", "Pod/n/*", "left", "left", "refused"]
    assert "the object is refused; otherwise this key would be translated: 1000 MiB" in output


def test_a_refusal_in_the_report_has_remedy_and_code():
    invalid_pod = complete_pod(pod({"nvidia.com/gpumem": "8Gi"}))
    output = run("translate", "-f", "-", "-o", "report", stdin=yaml_of(invalid_pod)).stdout
    assert "8Gi is out of range (the number counts MiB: write 8192) [R002]" in " ".join(output.split())


def test_the_report_warns_that_no_node_can_serve_a_pod(tmp_path):
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(TAINTED_FLEET)
    pod_text = yaml_of(complete_pod(pod({"nvidia.com/gpu": 1})))
    output = run("translate", "-f", "-", "--inventory", str(fleet), "-o", "report", stdin=pod_text).stdout
    [warning] = [line for line in output.splitlines() if line.startswith("  warning ")]
    assert "no node can serve this pod now" in warning
    assert "example.com/broken" in warning


def test_a_refused_key_is_not_served_as_well(tmp_path):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    pod["spec"] = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 16}}}]}
    file = manifest(tmp_path / "p.json", pod)
    output = run("translate", "-f", file, "--inventory", EXAMPLES / "fleet", "-o", "report").stdout
    assert re.findall(r"^  (\w+) +c: nvidia.com/gpu", output, re.MULTILINE) == ["refused"]


PODS_WITH_CODES = """apiVersion: v1
kind: Pod
metadata: {name: half}
spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 0.5}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: rough}
spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 1000}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: kept}
spec: {nodeSelector: {nvidia.com/gpu.present: "true"}, containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu.shared: 1}}}]}
"""
# The code, the severity and the line of each finding about these pods.
CODES = [
    ("R001", "error", 4),
    ("M001", "warning", 9),
    ("D212", "warning", 14),
    ("D222", "warning", 14),
]


def translate_as(tmp_path, form):
    file = tmp_path / "pods.yaml"
    file.write_text(PODS_WITH_CODES)
    result = run("translate", "-f", file, "--inventory", EXAMPLES / "fleet", "-o", form)
    assert result.exit_code == 1
    return file, result.stdout


def test_sarif_and_github_have_the_decisions_with_their_lines(tmp_path):
    file, output = translate_as(tmp_path, "sarif")
    [answer] = json.loads(output)["runs"]
    places = [
        (result["ruleId"], result["level"], result["locations"][0]["physicalLocation"]["region"]["startLine"])
        for result in answer["results"]
    ]
    assert places == CODES
    assert [rule["id"] for rule in answer["tool"]["driver"]["rules"]] == ["D212", "D222", "M001", "R001"]
    _, output = translate_as(tmp_path, "github")
    lines = output.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["::error", *["::warning"] * 3]
    assert all(f"file={file},line=" in line for line in lines)


def test_junit_has_a_case_for_each_object(tmp_path):
    _, output = translate_as(tmp_path, "junit")
    [suite] = ET.fromstring(output)
    assert suite.attrib == {"name": "drawbridge translate", "tests": "3", "failures": "1"}
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["Pod/default/half"]


@pytest.mark.parametrize("other_tolerations", [[], [{"key": "own", "operator": "Exists"}]])
def test_a_report_names_the_tolerations_that_are_added(other_tolerations):
    """The API server adds a toleration to a pod with this key. A translated template has no key, so the translation adds the toleration."""

    def report_with(tolerations):
        spec = {**copy.deepcopy(SHARE_POD["spec"]), "tolerations": tolerations}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": spec}}}
        return run("translate", "-f", "-", "-o", "report", stdin=yaml_of(job)).stdout

    assert "  toleration    nvidia.com/gpumem:NoSchedule  added" in report_with(other_tolerations)
    assert "own" not in report_with(other_tolerations)
    tolerated = {"key": "nvidia.com/gpumem", "operator": "Exists", "effect": "NoSchedule"}
    assert "translated" in report_with([tolerated])
    assert "toleration" not in report_with([tolerated])


@pytest.mark.parametrize(
    ("resources", "total"),
    [
        ("", "rewritten: 1 without a legacy request"),
        (", resources: {limits: {nvidia.com/pgpu: 1}}", "rewritten: 1 left, 0 without"),
    ],
    ids=["only a node selector", "a node selector and a key that is left"],
)
def test_a_vendors_node_selector_is_not_counted_as_left(resources, total, tmp_path):
    """DaemonSets of NVIDIA's GPU operator have such a selector and request no device."""
    daemon_set = f"""
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: dcgm}}
spec:
  selector: {{matchLabels: {{a: b}}}}
  template:
    metadata: {{labels: {{a: b}}}}
    spec:
      nodeSelector: {{nvidia.com/gpu.deploy.dcgm: "true"}}
      containers: [{{name: c, image: dcgm{resources}}}]
"""
    (tmp_path / "set.yaml").write_text(daemon_set)
    result = run("translate", "-o", "report", "-f", str(tmp_path / "set.yaml"))
    assert "nvidia.com/gpu.deploy.dcgm  stays where it is" in result.stdout
    assert total in result.stdout


def test_equal_decisions_about_templates_of_one_object_have_one_line(tmp_path):
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    template = {"template": {"spec": {"containers": [container]}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"}}
    job["spec"] = {"pytorchReplicaSpecs": {"Master": template, "Worker": {"replicas": 2, **template}}}
    report = run("translate", "-f", manifest(tmp_path / "job.yaml", job), "-o", "report").stdout
    assert report.count("  translated  ") == 1
    assert "c: nvidia.com/gpu (2 templates)" in report


def pytorch_job(first, second):
    return obj("PyTorchJob", "j", "kubeflow.org/v1", pytorchReplicaSpecs={"Worker": second, "Master": first}), (
        "pytorchReplicaSpecs/Master",
        "pytorchReplicaSpecs/Worker",
    )


def leader_worker_set(first, second):
    templates = {"leaderTemplate": first["template"], "workerTemplate": second["template"]}
    return obj("LeaderWorkerSet", "j", "leaderworkerset.x-k8s.io/v1", leaderWorkerTemplate=templates), (
        "leaderWorkerTemplate/leaderTemplate",
        "leaderWorkerTemplate/workerTemplate",
    )


def job_set(first, second):
    jobs = [{"name": name, "template": {"spec": job}} for name, job in (("a", first), ("b", second))]
    return obj("JobSet", "j", "jobset.x-k8s.io/v1alpha2", replicatedJobs=jobs), (
        "replicatedJobs/0/template/spec",
        "replicatedJobs/1/template/spec",
    )


@pytest.mark.parametrize("made", [pytorch_job, leader_worker_set, job_set])
def test_containers_of_one_name_in_two_templates_are_two(tmp_path, made):
    def written(*amounts):
        containers = [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": n}}} for n in amounts]
        job, places = made(*({"template": {"spec": {"containers": [container]}}} for container in containers))
        return manifest(tmp_path / "job.yaml", job), places

    file, places = written(1, 8)
    report = run("translate", "-f", file, "-o", "report").stdout
    assert [f"c: nvidia.com/gpu in {place}" in report for place in places] == [True, True]
    assert "nvidia.com/gpu=1+8" in run("survey", "-f", file).stdout
    file, _ = written("0.3", "0.7")  # both refused: each finding has the place of its own container
    _, report = run_json("check", file)
    paths = [finding["path"] for finding in report["findings"] if finding["code"] == "R001"]
    assert [any(f"/{place}/" in path for path in paths) for place in places] == [True, True], paths
