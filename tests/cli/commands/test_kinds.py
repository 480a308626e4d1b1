"""Some objects are not rewritten, because only the webhook can translate their pods. Each format of `translate` and `survey` says why."""

import json

import pytest

from cluster import manifests
from tests.cli.running import run
from tests.webhook.definitions import DROPS_CLAIMS, KEEPS_CLAIMS, definition, object_with, template
from tests.webhook.pods import EXAMPLES, pod

FLEET = ["--inventory", str(EXAMPLES / "fleet"), "--config", str(EXAMPLES / "configuration.yaml")]
SPEC = pod({"nvidia.com/gpu": 1})["spec"]
BOTH = ("kubeflow.org", "Notebook")
NOTEBOOK = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "Notebook",
    "metadata": {"name": "nb", "namespace": "n"},
    "spec": {"template": {"spec": SPEC}},
}
RAY = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"name": "ray", "namespace": "n"},
    "spec": {"workerGroupSpecs": [{"groupName": "g", "template": {"spec": SPEC}}]},
}
WHY = {
    "Notebook": "its CRD drops claims (Kubeflow Notebooks 1.11)",
    "RayCluster": "the keys in it are read by KubeRay",
    "Notebook with a CRD": "its CRD notebooks.kubeflow.org has no spec.resourceClaims in v1",
}


def crd(spec):
    return definition(BOTH, ("v1", object_with("template", template(spec))))


@pytest.fixture
def file(tmp_path):
    def write(*objects, name="objects.yaml"):
        path = tmp_path / name
        path.write_text(manifests.dump(list(objects)))
        return str(path)

    return write


@pytest.mark.parametrize("kind", ["Notebook", "RayCluster", "Notebook with a CRD"])
def test_every_format_says_that_the_webhook_translates_the_object(file, kind):
    # The commands read the object before its CRD.
    objects = {"Notebook": [NOTEBOOK], "RayCluster": [RAY], "Notebook with a CRD": [NOTEBOOK, crd(DROPS_CLAIMS)]}[kind]
    given = ["-f", file(*objects), *FLEET]
    report = run("translate", *given, "-o", "report").stdout
    assert "  translated  c0: nvidia.com/gpu" in report
    assert f"at the webhook: {WHY[kind]}" in report
    others = len(objects) - 1
    assert f", 0 rewritten: 1 translated, {others} without a legacy request" in report
    made = run("translate", *given, "-o", "json")
    (decision,) = json.loads(made.stdout)["decisions"]
    assert decision["outcome"] == "translated"
    assert decision["keepReason"].startswith(WHY[kind])
    diff = run("translate", *given, "-o", "diff")
    assert (diff.stdout, f"the template stays: {WHY[kind]}" in diff.stderr) == ("", True)
    assert manifests.parse(run("translate", *given).stdout)[0].object == objects[0]
    findings = json.loads(run("translate", *given, "-o", "sarif").stdout)["runs"][0]["results"]
    assert [(finding["ruleId"], finding["level"]) for finding in findings] == [("M004", "note")]
    seen = json.loads(run("survey", *given[:2], "-o", "json").stdout)["workloads"]
    assert seen[0]["keys"][0]["keepReason"] == decision["keepReason"]
    assert run("survey", *given[:2], "-o", "wide").stdout.partition("Workloads of")[2].count(WHY[kind]) == 1
    page = run("survey", *given[:2], "-o", "html").stdout
    assert seen[0]["outcome"] == "translated"
    assert WHY[kind].replace("`", "&#x60;") in page or WHY[kind] in page


def test_a_crd_among_the_files_overrides_the_inventorys(file):
    kept = run("translate", "-f", file(NOTEBOOK), *FLEET, "--inventory", file(crd(KEEPS_CLAIMS), name="crd.yaml"))
    assert "resourceClaims" in kept.stdout
    both = file(NOTEBOOK, crd(DROPS_CLAIMS))
    replaced = run("translate", "-f", both, *FLEET, "--inventory", file(crd(KEEPS_CLAIMS), name="crd.yaml"))
    assert "nvidia.com/gpu" in replaced.stdout
    assert "has no spec.resourceClaims" in replaced.stderr


def test_items_of_a_list_are_decided_like_single_objects(file):
    held = {"apiVersion": "v1", "kind": "List", "items": [NOTEBOOK, crd(DROPS_CLAIMS)]}
    report = run("translate", "-f", file(held), *FLEET, "-o", "report").stdout
    assert ", 0 rewritten: 1 translated" in report
    typed = {"apiVersion": "kubeflow.org/v1", "kind": "NotebookList", "items": [NOTEBOOK]}
    assert (
        "the webhook translates its pods"
        in run("translate", "-f", file(typed, crd(DROPS_CLAIMS)), *FLEET, "-o", "report").stdout
    )
