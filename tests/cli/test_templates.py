"""Which texts are templates that something fills in first, and which are manifests: by a name, an image or an amount that is a placeholder."""

import pytest

from tests.cli.running import run, run_json

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  containers:
  - name: {container}
    image: {image}
    resources: {{limits: {{nvidia.com/gpu: {amount}}}}}
"""


def pod(name="p", container="c", image="i", amount="1"):
    return POD.format(name=name, container=container, image=image, amount=amount)


BROKEN = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [\n"
# By name: the file and its text.
TEMPLATES = {
    "a name of str.format": ("pod.yaml", pod(name="{job_id}")),
    "a container's name of str.format": ("pod.yaml", pod(container="{job_id}")),
    "an image of str.format": ("pod.yaml", pod(image="{image}")),
    "an image of str.format beside text": ("pod.yaml", pod(image="{user}/image:1")),
    "an amount of str.format": ("pod.yaml", pod(amount="{gpus}")),
    "a name that sed replaces": ("pod.yaml", pod(name="POD_NAME")),
    "a part of a name that sed replaces": ("pod.yaml", pod(name="job-@@NUMBER@@")),
    "an image that sed replaces": ("pod.yaml", pod(image="@@IMAGE@@")),
    "a part of a template": ("pod.tmpl.yaml", "kind: Pod\nmetadata: {name: p}\nspec: {limits: {nvidia.com/gpu: 1}}\n"),
    "a template that is not YAML": ("deploy/pod.tmpl.yaml", BROKEN),
}
MANIFESTS = {
    "a name that Flux replaces": pod(name="${APP}"),
    "a name that a person fills in": pod(name="<your name>"),
    "an image for a person": pod(image="<your image>"),
    "a name without a placeholder": pod(),
    "an annotation with a map of one null": pod().replace("name: p\n", "name: p\n  annotations: {a: {b}}\n"),
    "a selector with a null": pod() + "  nodeSelector: {gpu}\n",
}


def check(tmp_path, file, text):
    path = tmp_path / "tree" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (tmp_path / "tree/other.yaml").write_text(pod(name="other"))
    result = run("check", tmp_path / "tree")
    _, answer = run_json("survey", "-f", tmp_path / "tree")
    return result, answer


@pytest.mark.parametrize(("file", "text"), TEMPLATES.values(), ids=TEMPLATES)
def test_a_template_is_skipped_with_its_key(file, text, tmp_path):
    result, answer = check(tmp_path, file, text)
    assert result.exit_code == 0, result.stdout
    assert "0 errors" in result.stdout
    [skipped] = answer["skippedDocuments"]
    assert skipped["reason"] == "template"
    assert skipped["key"] == ("" if text == BROKEN else "nvidia.com/gpu")
    assert [workload["name"] for workload in answer["workloads"]] == ["other"]


@pytest.mark.parametrize("text", MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_stays_one(text, tmp_path):
    _, answer = check(tmp_path, "pod.yaml", text)
    assert (len(answer["workloads"]), answer["skippedDocuments"]) == (2, [])


def test_a_manifest_that_cannot_be_read_is_an_error(tmp_path):
    result, _ = check(tmp_path, "pod.yaml", BROKEN)
    assert result.exit_code == 2


@pytest.mark.parametrize("file", ["pkg/testdata/pod.yaml", "golden/pod.yaml"])
def test_a_text_of_a_test_that_cannot_be_read_is_skipped(file, tmp_path):
    result, answer = check(tmp_path, file, BROKEN)
    assert result.exit_code == 0
    assert [skipped["reason"] for skipped in answer["skippedDocuments"]] == ["other"]


@pytest.mark.parametrize("above", ["testdata", "golden"])
def test_the_kind_of_a_text_does_not_depend_on_the_folders_above_its_tree(above, tmp_path):
    result, _ = check(tmp_path / above, "pod.yaml", BROKEN)
    assert result.exit_code == 2
