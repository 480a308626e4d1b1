"""`drawbridge survey` reads large dumps with bounded memory, and a live cluster page by page."""

import json
import tracemalloc

import pytest

from analysis.loading import SURVEY, Trimmer, read_cluster
from analysis.survey import SurveyScope, overview
from cluster import manifests
from cluster.embedded import Embedded
from tests.cli.commands.surveys import (
    HAMI_CONTAINER,
    INFERENCE_SERVICE,
    plugin_node,
    running_deployment,
    running_pod,
    survey_of,
)
from tests.cli.forbidden import forbidding
from tests.cli.running import manifest, run_json
from tests.objects import obj


def stored_pod(number, **fields):
    """A pod as the API server returns it."""
    pod = running_pod(
        f"p{number}",
        HAMI_CONTAINER,
        node=f"n{number}",
        uid=f"u{number}",
        labels={"app": "x"},
        annotations=dict(ANNOTATIONS),
    )
    pod["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": {f"f:{i}": {} for i in range(40)}}]
    pod["status"] = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "message": "m"}],
        "ip": "i",
    }
    return pod | fields


ANNOTATIONS = {"kubectl.kubernetes.io/last-applied-configuration": "{}" * 500, "kept": "yes"}


def test_the_trimmer_shares_equal_parts_and_drops_unneeded_fields():
    """The trimmer keeps only the fields that a survey reads. Equal parts of pods are one object in memory."""
    trim = Trimmer().trim
    first, second = trim(stored_pod(1)), trim(stored_pod(2))
    assert first["spec"]["containers"] is second["spec"]["containers"]
    assert first["metadata"]["labels"] is second["metadata"]["labels"]
    assert (first["spec"]["nodeName"], second["spec"]["nodeName"]) == ("n1", "n2")
    assert first["metadata"].keys() == {"name", "namespace", "uid", "labels", "annotations"}
    assert first["metadata"]["annotations"] == {"kept": "yes"}
    assert first["status"] == {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def test_the_trimmer_keeps_unstored_malformed_and_claim_objects():
    unstored_pod = running_pod("p", HAMI_CONTAINER, managedFields=[1])
    assert Trimmer().trim(unstored_pod) is unstored_pod
    malformed_pod = {
        "kind": "Pod",
        "metadata": {"uid": "u", "labels": 3, "annotations": []},
        "spec": [1],
        "status": "x",
    }
    assert Trimmer().trim(malformed_pod)["spec"] == [1]
    claim = {"kind": "ResourceClaim", "metadata": {"uid": "u"}, "status": {"allocation": {"devices": {}}}}
    assert Trimmer().trim(claim)["status"] == claim["status"]


def dump_text(form, objects):
    """The text of a dump of these objects in a format of kubectl."""
    if form == "documents":
        return manifests.dump(objects)
    list_object = {"apiVersion": "v1", "items": objects, "kind": "List", "metadata": {"resourceVersion": ""}}
    return json.dumps(list_object, indent=1) if form == "json" else manifests.dump([list_object])


@pytest.mark.long
@pytest.mark.parametrize("form", ["json", "yaml", "documents"])
def test_a_large_dump_is_read_item_by_item(form, tmp_path):
    """Only the text and the trimmed objects are in memory, not all parsed objects at once."""
    file = tmp_path / f"dump.{form}"
    file.write_text(dump_text(form, [stored_pod(i) for i in range(600)]))
    size = file.stat().st_size
    tracemalloc.start()
    try:
        documents, problems = manifests.read_leniently([file], keep=Trimmer().trim)
        kept_bytes, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(documents), problems) == (600, [])
    assert kept_bytes < 0.9 * size
    # At most about two copies of the text.
    assert peak_bytes < 2.1 * size


@pytest.mark.parametrize("form", ["yaml", "documents"])
def test_a_syntax_error_in_a_dump_has_its_line(form):
    text = dump_text(form, [stored_pod(1), stored_pod(2)])
    broken = text.replace("name: p2", "name: p: 2")
    line = broken[: broken.index("p: 2")].count("\n") + 1
    documents, [problem] = manifests.read_leniently(["-"], keep=Trimmer().trim, outside=lambda _: (broken.encode(), ""))
    assert (problem.line, "mapping values" in problem.message) == (line, True)
    assert [document.object["metadata"]["name"] for document in documents] == (["p1"] if form == "documents" else [])


ODD_LISTS = {
    "a list in a list": "kind: List\nitems:\n- kind: List\n  items:\n  - {kind: Pod, metadata: {name: a, uid: u, managedFields: []}}\n",
    "a List in a string": 'a: "\nkind: List\n"\nitems:\n- {kind: Pod, metadata: {uid: u, managedFields: []}}\n',
    "two kinds in one object": "kind: List\nitems: [{kind: Pod, metadata: {uid: u, managedFields: []}}]\nkind: List\nkind: Odd\n",
    "items that are no objects": "items: [1, text, [], {kind: Pod, metadata: {uid: u, managedFields: []}}]\nkind: List\n",
    "an item with an anchor": "items:\n- &p {kind: Pod, metadata: {uid: u, name: a, managedFields: []}}\n- *p\nkind: List\n",
}


@pytest.mark.parametrize("name", ODD_LISTS)
def test_reading_a_list_item_by_item_changes_no_object(name):
    trim = Trimmer().trim
    text = "\n" + ODD_LISTS[name]
    documents, problems = manifests.read_leniently(["-"], keep=trim, outside=lambda _: (text.encode(), ""))
    untrimmed_documents, untrimmed_problems = manifests.read_leniently(["-"], outside=lambda _: (text.encode(), ""))
    assert [document.object for document in documents] == [
        Trimmer().trim(document.object) for document in untrimmed_documents
    ]
    assert [str(problem) for problem in problems] == [str(problem) for problem in untrimmed_problems]


@pytest.mark.parametrize("form", ["json", "yaml", "documents"])
def test_a_list_and_separate_objects_have_the_same_survey(form, tmp_path):
    objects = [
        *running_deployment(),
        stored_pod(1),
        stored_pod(2),
        plugin_node("n1", nvidia_gpu=10),
        {"kind": "Pod"},
        INFERENCE_SERVICE,
    ]
    list_file = tmp_path / f"dump.{form}"
    list_file.write_text(dump_text(form, objects))
    objects_file = manifest(tmp_path / "objects.json", *objects)
    answers = [run_json("survey", "-f", file)[1] for file in (list_file, objects_file)]
    for answer in answers:
        for workload in answer["workloads"]:
            del workload["file"], workload["line"]
        assert [skip["reason"] for skip in answer.pop("skippedDocuments")] == [
            "other"
        ]  # a Pod that has nothing but its kind
    assert answers[0] == answers[1]
    assert len(answers[0]["workloads"]) == 4


@pytest.mark.parametrize("item", ['"text"', "[" * 600 + "]" * 600, '{"kind": "Pod", "metadata": {"name": "\\ud800"}}'])
def test_a_malformed_item_of_a_list_hides_no_other_item(item, tmp_path):
    file = tmp_path / "dump.json"
    valid_pod = json.dumps(running_pod("p", HAMI_CONTAINER))
    file.write_text(f'{{"apiVersion": "v1", "kind": "List", "items": [{item}, {valid_pod}]}}')
    code, answer = run_json("survey", "-f", file, "--fail-on", "never")
    assert code == (0 if "kind" in item else 2)
    assert "p" in [workload["name"] for workload in answer["workloads"]]
    assert all(error["pointer"] == "/items/0" for error in answer.get("errors", ()))


def test_equal_pods_are_decided_once(monkeypatch):
    from analysis.survey import verdicts

    decided_objects = []

    def decide(obj, state, **options):
        decided_objects.append(obj)
        return decide_object(obj, state, **options)

    decide_object = verdicts.decide_object
    monkeypatch.setattr(verdicts, "decide_object", decide)
    survey = survey_of(*[stored_pod(number) for number in range(50)])
    assert (len(survey.workloads), len(decided_objects)) == (50, 1)


def custom_resource_definition(kind, plural, properties):
    """A CRD whose schema has these properties."""
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "kubeflow.org", "scope": "Namespaced", "names": {"kind": kind, "plural": plural}}
    name = f"{plural}.kubeflow.org"
    return obj("CustomResourceDefinition", name, "apiextensions.k8s.io/v1", **spec, versions=[version])


async def read_for_survey(cluster, namespace=""):
    """What a survey reads from the cluster, and the progress messages."""
    progress = []
    return await read_cluster(cluster, SURVEY, progress.append, namespace=namespace), progress


async def test_a_live_cluster_is_read_page_by_page():
    cluster = Embedded.holding([*running_deployment(1200), plugin_node("n1", nvidia_gpu=10)])
    reading, progress = await read_for_survey(cluster)
    [workload] = overview(reading, SurveyScope()).workloads
    assert (workload.pods, reading.unread) == (1200, ())
    assert [text for text in progress if text.endswith(" pods")] == ["500 pods", "1000 pods", "1200 pods"]


async def test_a_survey_names_unreadable_resources_and_reads_the_others():
    reading, _ = await read_for_survey(forbidding("Node", "Deployment").holding(running_deployment()))
    kinds = {resource.kind for resource in reading.unread}
    assert {kind for kind in kinds if " in " not in kind} == {"nodes", "deployments.apps"}
    [workload] = overview(reading, SurveyScope()).workloads
    assert (workload.kind, workload.pods) == ("Deployment", 3)


class RecordingCluster(Embedded):
    """A cluster that records the namespace of each list, by the plural name of its kind."""

    def __init__(self):
        super().__init__()
        self.listed = {}

    async def list(self, resource, namespace=None, **options):
        self.listed[resource.plural] = namespace
        return await super().list(resource, namespace, **options)


async def test_kinds_that_can_hold_pods_are_found_by_their_schema():
    pod_template = {"spec": {"type": "object", "properties": {"template": {"properties": {"containers": {}}}}}}
    kinds = [
        custom_resource_definition("PyTorchJob", "pytorchjobs", pod_template),
        custom_resource_definition("Note", "notes", {}),
    ]
    cluster = RecordingCluster.holding([*kinds, running_pod("p", HAMI_CONTAINER)])
    await read_for_survey(cluster)
    assert ("pytorchjobs" in cluster.listed, "notes" in cluster.listed) == (True, False)


async def test_only_the_given_namespace_is_read():
    cluster = RecordingCluster.holding(running_deployment())
    await read_for_survey(cluster, "a")
    assert (cluster.listed["pods"], cluster.listed["nodes"]) == ("a", None)
