"""What tests of Chainsaw and kuttl expect of objects is no manifest: it is skipped, and said once."""

import pytest
import yaml

from tests.cli.running import run, run_json
from tests.objects import obj
from tests.webhook.placement.mixed_nodes import gpu_pod

EXPECTED = gpu_pod("expected", 64)
WITH_EXPRESSION = {**EXPECTED, "status": {"(length(conditions))": 2}}
CHAINSAW, ERROR = (
    obj("Test", "t", "chainsaw.kyverno.io/v1alpha1", steps=[step])
    for step in (
        {"try": [{"apply": {"file": "pod.yaml"}}, {"assert": {"file": "../shared/a.yaml"}}]},
        {"catch": [{"error": {"file": "../shared/a.yaml"}}]},
    )
)
SCENES = {
    "a file that a test asserts": {"test/chainsaw-test.yaml": [CHAINSAW], "shared/a.yaml": [EXPECTED]},
    "a file that a test must not find": {"test/chainsaw-test.yaml": [ERROR], "shared/a.yaml": [EXPECTED]},
    "a key that is an expression": {"a.yaml": [WITH_EXPRESSION]},
    "an assertion of kuttl": {"01-assert.yaml": [EXPECTED]},
    "an error of kuttl": {"01-errors.yaml": [EXPECTED]},
    "a part of an object in a file of assertions": {
        "tests/assert-node.yaml": [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n"},
                "status": {"allocatable": {"nvidia.com/gpu": "8"}},
            }
        ]
    },
    "a part of an object in a golden file": {"pkg/testdata/pod.golden.yaml": [{**EXPECTED, "metadata": {}}]},
    "a TestAssert": {"x.yaml": [{"apiVersion": "kuttl.dev/v1beta1", "kind": "TestAssert", "timeout": 9}, EXPECTED]},
}


@pytest.fixture
def tree(tmp_path, request):
    files = {"test/pod.yaml": [gpu_pod("applied")], **SCENES[request.param]}
    for name, objects in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(yaml.safe_dump_all(objects))
    return tmp_path


@pytest.mark.parametrize("tree", SCENES, indirect=True)
def test_what_a_test_expects_is_skipped(tree):
    code, answer = run_json("survey", "-f", tree)
    assert code == 0
    assert [workload["name"].rpartition("/")[2] for workload in answer["workloads"]] == ["applied"]
    [skipped] = {document["reason"] for document in answer["skippedDocuments"]}
    assert skipped == "assertion"
    assert not any(document["key"] for document in answer["skippedDocuments"])
    assert run("check", "-f", tree).stderr.count("expect, which is not applied") == 1


def test_a_whole_object_in_a_folder_of_tests_is_a_manifest(tmp_path):
    (tmp_path / "testdata").mkdir()
    (tmp_path / "testdata/pod.yaml").write_text(yaml.safe_dump(gpu_pod("applied")))
    _, answer = run_json("survey", "-f", tmp_path)
    assert (len(answer["workloads"]), answer["skippedDocuments"]) == (1, [])


def test_a_policy_of_kyverno_hides_no_pod_of_its_file(tmp_path):
    rule = {"name": "r", "validate": {"pattern": {"spec": {"=(containers)": [{"(image)": "x"}]}}}}
    mutation = {"name": "s", "mutate": {"patchStrategicMerge": {"(kind)": "Pod"}}}
    policy = obj("ClusterPolicy", "p", "kyverno.io/v1", rules=[rule, mutation])
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([policy, gpu_pod("applied")]))
    _, answer = run_json("survey", "-f", tmp_path)
    assert (len(answer["workloads"]), answer["skippedDocuments"]) == (1, [])


def test_a_text_with_a_line_in_parentheses_is_no_assertion(tmp_path):
    """The line is in a script of the object."""
    (tmp_path / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: applied\n  annotations:\n    script: |\n      (cd /x): y\n"
        "spec:\n  containers:\n  - {name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}\n"
    )
    _, answer = run_json("survey", "-f", tmp_path)
    assert (len(answer["workloads"]), answer["skippedDocuments"]) == (1, [])
