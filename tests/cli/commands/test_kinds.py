"""Some objects are not rewritten, because only the webhook can translate their pods. Each format of `translate` and `survey` says why."""

import json

import pytest

from cli.reports import inline
from cluster import manifests
from tests.cli.running import run
from tests.objects import obj
from tests.webhook.definitions import DROPS_CLAIMS, KEEPS_CLAIMS, definition, object_with, template
from tests.webhook.pods import EXAMPLES, pod

FLEET_OPTIONS = ["--inventory", str(EXAMPLES / "fleet"), "--config", str(EXAMPLES / "configuration.yaml")]
POD_SPEC = pod({"nvidia.com/gpu": 1})["spec"]
NOTEBOOK_NAMES = ("kubeflow.org", "Notebook")
NOTEBOOK = obj("Notebook", "nb", "kubeflow.org/v1", namespace="n", template={"spec": POD_SPEC})
RAY_CLUSTER = obj(
    "RayCluster",
    "ray",
    "ray.io/v1",
    namespace="n",
    workerGroupSpecs=[{"groupName": "g", "template": {"spec": POD_SPEC}}],
)
KEEP_REASONS = {
    "Notebook": "its CRD drops claims (Kubeflow Notebooks 1.11)",
    "RayCluster": "the keys in it are read by KubeRay",
    "Notebook with a CRD": "its CRD notebooks.kubeflow.org has no spec.resourceClaims in v1",
}


def notebook_crd(pod_schema):
    return definition(NOTEBOOK_NAMES, ("v1", object_with("template", template(pod_schema))))


@pytest.fixture
def write_file(tmp_path):
    def write(*objects, name="objects.yaml"):
        path = tmp_path / name
        path.write_text(manifests.dump(list(objects)))
        return str(path)

    return write


@pytest.mark.parametrize("case", ["Notebook", "RayCluster", "Notebook with a CRD"])
def test_every_format_says_that_the_webhook_translates_the_object(write_file, case):
    # The commands read the object before its CRD.
    objects = {
        "Notebook": [NOTEBOOK],
        "RayCluster": [RAY_CLUSTER],
        "Notebook with a CRD": [NOTEBOOK, notebook_crd(DROPS_CLAIMS)],
    }[case]
    options = ["-f", write_file(*objects), *FLEET_OPTIONS]
    report = run("translate", *options, "-o", "report").stdout
    assert "  translated  c0: nvidia.com/gpu" in report
    assert f"at the webhook: {KEEP_REASONS[case]}" in report
    other_objects = len(objects) - 1
    assert f", 0 rewritten, 1 left to the webhook: 1 translated, {other_objects} without a legacy request" in report
    result = run("translate", *options, "-o", "json")
    (decision,) = json.loads(result.stdout)["decisions"]
    assert decision["outcome"] == "translated"
    assert decision["keepReason"].startswith(KEEP_REASONS[case])
    diff = run("translate", *options, "-o", "diff")
    assert (diff.stdout, f"the template stays: {KEEP_REASONS[case]}" in diff.stderr) == ("", True)
    assert manifests.parse(run("translate", *options).stdout)[0].object == objects[0]
    findings = json.loads(run("translate", *options, "-o", "sarif").stdout)["runs"][0]["results"]
    assert [(finding["ruleId"], finding["level"]) for finding in findings] == [("M004", "note")]
    workloads = json.loads(run("survey", *options[:2], "-o", "json").stdout)["workloads"]
    assert workloads[0]["keys"][0]["keepReason"] == decision["keepReason"]
    assert run("survey", *options[:2], "-o", "wide").stdout.partition("Workloads of")[2].count(KEEP_REASONS[case]) == 1
    page = run("survey", *options[:2], "-o", "markdown").stdout
    assert workloads[0]["outcome"] == "translated"
    assert inline(KEEP_REASONS[case]) in page


def test_a_crd_among_the_files_overrides_the_inventory(write_file):
    result_with_inventory = run(
        "translate",
        "-f",
        write_file(NOTEBOOK),
        *FLEET_OPTIONS,
        "--inventory",
        write_file(notebook_crd(KEEPS_CLAIMS), name="crd.yaml"),
    )
    assert "resourceClaims" in result_with_inventory.stdout
    notebook_and_crd = write_file(NOTEBOOK, notebook_crd(DROPS_CLAIMS))
    result_with_both = run(
        "translate",
        "-f",
        notebook_and_crd,
        *FLEET_OPTIONS,
        "--inventory",
        write_file(notebook_crd(KEEPS_CLAIMS), name="crd.yaml"),
    )
    assert "nvidia.com/gpu" in result_with_both.stdout
    assert "has no spec.resourceClaims" in result_with_both.stderr


def test_items_of_a_list_are_decided_like_single_objects(write_file):
    list_object = {"apiVersion": "v1", "kind": "List", "items": [NOTEBOOK, notebook_crd(DROPS_CLAIMS)]}
    report = run("translate", "-f", write_file(list_object), *FLEET_OPTIONS, "-o", "report").stdout
    assert ", 0 rewritten, 1 left to the webhook: 1 translated" in report
    notebook_list = {"apiVersion": "kubeflow.org/v1", "kind": "NotebookList", "items": [NOTEBOOK]}
    assert (
        "the webhook translates its pods"
        in run(
            "translate", "-f", write_file(notebook_list, notebook_crd(DROPS_CLAIMS)), *FLEET_OPTIONS, "-o", "report"
        ).stdout
    )
