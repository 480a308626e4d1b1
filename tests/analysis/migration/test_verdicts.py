"""The verdict about each key is that of the whole object: what a plan says is what the translation of the object does."""

import re

import click
import pytest

from analysis.migration import make_plan
from analysis.migration.consumers import consumer_edits
from analysis.migration.requests import with_drivers
from cli.configuration import given_configuration
from cli.files import InputFiles
from cli.loading import read_whole
from cluster.patch import apply_json_patch
from dra.raw import inside, items
from tests.cli.dialect_examples import CONFIGURATION, FILES, OPTIONAL_CONFIGURATION, OPTIONAL_FILES
from tests.cli.test_git_trees import repository, write
from tests.cli.test_migrate_plan import RESOURCES, app
from tests.webhook.pods import EXAMPLES
from webhook.admission import decide_object
from webhook.translate import name_of, resolve_pointer

__all__ = ["repository"]

CONTAINER = "{name: a, image: a, resources: {limits: {nvidia.com/gpu: %s}}}"
QUEUED = f"""\
apiVersion: batch/v1
kind: Job
metadata: {{name: queued, labels: {{kueue.x-k8s.io/queue-name: main}}}}
spec: {{template: {{spec: {{restartPolicy: Never, containers: [{CONTAINER % 1}]}}}}}}
"""
TRAINING = f"""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: train}}
spec:
  pytorchReplicaSpecs:
    Master: {{replicas: 1, template: {{spec: {{containers: [{CONTAINER.replace("name: a", "name: pytorch") % 1}]}}}}}}
    Worker: {{replicas: 2, template: {{spec: {{containers: [{CONTAINER.replace("name: a", "name: pytorch") % 8}]}}}}}}
"""
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: pod}\nspec: {containers: [%s]}\n"
SHARE = POD % (CONTAINER % "1, nvidia.com/gpumem: 3000")
OTHER = CONTAINER.replace("name: a", "name: b") % "1, nvidia.com/gpumem: 3000"
NETWORK = POD % f"{CONTAINER % '1, rdma/hca_shared_devices_a: 1'}, {OTHER}"
TREES = {path.relative_to(EXAMPLES).as_posix(): (path.read_text(), str(CONFIGURATION)) for path in FILES}
TREES |= {
    path.relative_to(EXAMPLES).as_posix(): (path.read_text(), str(OPTIONAL_CONFIGURATION)) for path in OPTIONAL_FILES
}
TREES |= {f"pods/{path.stem}": (path.read_text(), "") for path in (EXAMPLES / "pods").glob("*.yaml")}
TREES |= {"queued": (QUEUED, ""), "training": (TRAINING, ""), "share": (SHARE, ""), "network": (NETWORK, "")}
RESOURCES_OF_CONTAINER = re.compile(r"(.*)/(?:initC|c)ontainers/\d+/resources(?=/)")


def planned(repository, files, configuration=""):
    """Return the documents, the plan as if all families moved, the consumers that the commits move, and the state in which all drivers are installed."""
    write(repository, files)
    with click.Context(click.Command("migrate")):
        reading, read = read_whole(InputFiles(paths=(".",)), given_configuration(configuration), None)
    plan = make_plan(read.everything, read.tree, reading.state, read.skipped).with_all()
    step = consumer_edits(read.everything, read.tree, plan.of_moving(), reading.state)
    return read.everything, plan, step.moved, with_drivers(reading.state)


def drivers_of(claims, spec, verdict, state):
    """Return the drivers of the claims of a container of a translated pod."""
    names = {entry["name"]: entry.get("resourceClaimTemplateName") for entry in items(spec, "resourceClaims")}
    templates = [inside(verdict.templates.get(names[claim["name"]]), "spec", "devices") for claim in claims]
    requests = [request for template in templates for request in items(template, "requests")]
    bodies = [body for request in requests for body in (request.get("exactly"), *items(request, "firstAvailable"))]
    targets = state.configuration.targets.values()
    return {target.driver for body in bodies if body for target in targets if body["deviceClassName"] in target.classes}


@pytest.mark.parametrize("name", TREES)
def test_what_a_plan_says_of_a_key_is_what_the_translation_of_its_object_does(repository, name):
    text, configuration = TREES[name]
    files = {"base/kustomization.yaml": "resources: [object.yaml]\n", "base/object.yaml": text}
    documents, plan, moved, state = planned(repository, files, configuration)
    objects = {name_of(document.placed): document.placed for document in documents}
    said = {}  # the drivers of the claims of each container, by object and pointer
    for consumer in plan.consumers:
        if match := RESOURCES_OF_CONTAINER.match(consumer.place):
            obj = objects[consumer.object]
            translated = apply_json_patch(obj, decide_object(obj, state).operations)
            resources = resolve_pointer(translated, match[0])
            assert (consumer.key not in inside(resources, "limits")) is (consumer.verdict == "edit"), consumer
            drivers = said.setdefault((consumer.object, match[0], match[1]), set())
            drivers.update(consumer.drivers if consumer.verdict == "edit" else ())
    for (of_object, pointer, spec), drivers in said.items():
        verdict = decide_object(objects[of_object], state)
        translated = apply_json_patch(objects[of_object], verdict.operations)
        claims = items(resolve_pointer(translated, pointer), "claims")
        assert drivers == drivers_of(claims, resolve_pointer(translated, spec), verdict, state)
    assert [consumer for consumer in plan.consumers if consumer.verdict == "edit"] == list(moved)


@pytest.mark.parametrize(
    ("text", "reader"), [(QUEUED, "Kueue"), (TRAINING, "the training operator")], ids=["queued", "training"]
)
def test_a_template_whose_keys_others_read_is_changed_by_hand(repository, text, reader):
    files = {"base/kustomization.yaml": "resources: [object.yaml]\n", "base/object.yaml": text}
    _, plan, moved, _ = planned(repository, files)
    assert {consumer.verdict for consumer in plan.consumers} == {"by hand"}
    assert all(reader in consumer.why for consumer in plan.consumers)
    assert not moved


def test_all_keys_of_a_container_in_values_decide_the_driver(repository):
    files = app("llm", "ai", values=RESOURCES % "nvidia.com/gpu: 1, nvidia.com/gpumem: 3000")
    _, plan, moved, _ = planned(repository, files)
    drivers = {consumer.key: consumer.drivers for consumer in plan.consumers}
    assert drivers == dict.fromkeys(("nvidia.com/gpu", "nvidia.com/gpumem"), ("hami-core-gpu.project-hami.io",))
    assert list(moved) == list(plan.consumers)
