"""The validation refuses exactly the objects that the API server refuses. The objects are valid ones, and these with one or two changes.

The referee runs the code of the API server's registry for create and status. The tests marked `long` try every change.
"""

import copy
import json
import re

import pytest

from dra.objects import versions
from dra.server import CURRENT, known_gates
from dra.validation import problems
from dra.validation.fields import gates
from dra.validation.fleet.pod_rules import pod_problems
from dra.validation.fleet.world import World
from dra.validation.objects.updates import update_errors
from tests.dra.cel.corpus import expressions
from tests.dra.validation import corpus

pytestmark = pytest.mark.oracle

BETA = frozenset(gate for gate in gates.ALL if known_gates(CURRENT)[gate].maturity != "alpha")
GATES = {"none": frozenset(), "default": gates.DEFAULT, "beta": BETA, "all": gates.ALL}


def errors(value, enabled):
    reported = problems(json.loads(json.dumps(value)), enabled)
    return [problem for problem in reported if problem.refuses]


def disagreements(api_server, objects, enabled):
    answers = api_server.ask(objects, enabled)
    return [
        (corpus.as_json(value), answer.get("decode") or answer["errors"], our_errors)
        for value, answer in zip(objects, answers, strict=True)
        if api_server.refuses(answer) != bool(our_errors := errors(value, enabled))
    ]


@pytest.mark.parametrize("name", corpus.VALID)
def test_objects_that_use_every_field_are_accepted(api_server, name):
    enabled = gates.ALL if name in corpus.ALPHA else BETA
    value = corpus.VALID[name]
    assert not errors(value, enabled)
    (answer,) = api_server.ask([value], enabled)
    assert not api_server.refuses(answer)


@pytest.mark.parametrize("enabled", GATES)
@pytest.mark.parametrize("name", corpus.VALID)
def test_sampled_changes_are_validated_as_by_the_api_server(api_server, name, enabled):
    objects = api_server.changes(corpus.VALID[name], 45, seed=7)
    assert not disagreements(api_server, objects, GATES[enabled])


@pytest.mark.long
@pytest.mark.parametrize("enabled", GATES)
@pytest.mark.parametrize("name", corpus.VALID)
def test_every_change_is_judged_as_the_api_server_does(api_server, name, enabled):
    objects = [mutant for _, mutant in corpus.mutations(corpus.VALID[name])]
    objects += corpus.sample(corpus.VALID[name], 4000, seed=11)
    assert not disagreements(api_server, objects, GATES[enabled])


def dotted(pointer):
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", ".".join(steps))


def test_unknown_fields_are_those_of_strict_validation(api_server):
    objects = []
    for value in corpus.VALID.values():
        for path in corpus.paths(value):
            if isinstance(corpus._at(value, path), dict):
                mutant = copy.deepcopy(value)
                corpus._at(mutant, path)["bogus"] = {"x": 1}
                objects.append(mutant)
    answers = api_server.ask(objects, gates.ALL)
    for value, answer in zip(objects, answers, strict=True):
        if answer.get("decode"):
            continue
        server_fields = set(re.findall(r'unknown field "([^"]*)"', " ".join(answer.get("strict") or ())))
        our_fields = {dotted(p.path) for p in problems(value, gates.ALL) if p.code == "D002"}
        assert our_fields == server_fields, corpus.as_json(value)


def in_version(version, value):
    """Convert an object of v1 to an older version, as an author would have written it."""
    value = json.loads(json.dumps(value))
    value["apiVersion"] = f"resource.k8s.io/{version}"
    if version == "v1beta1":
        spec = value["spec"]
        for holder in (spec, spec.get("spec", {})):
            for request in (
                holder.get("devices", {}).get("requests", []) if isinstance(holder.get("devices"), dict) else []
            ):
                request.update(request.pop("exactly", {}))
        if value["kind"] == "ResourceSlice":
            for device in spec.get("devices", []):
                device["basic"] = {key: device.pop(key) for key in list(device) if key != "name"}
    return value


OLD_VERSIONS = [
    (version, name)
    for version in ("v1beta1", "v1beta2")
    for name, value in corpus.VALID.items()
    if value["kind"] in versions.SERVED[f"resource.k8s.io/{version}"]
]


@pytest.mark.parametrize(("version", "name"), OLD_VERSIONS)
def test_old_versions_convert_as_in_the_api_server(api_server, version, name):
    mutants = api_server.changes(corpus.VALID[name], 60, seed=3)
    old_objects = [
        m for m in [corpus.VALID[name], *mutants] if not any(p.code == "D001" for p in problems(m, gates.ALL))
    ]
    old_objects = [in_version(version, value) for value in old_objects if isinstance(value.get("spec"), dict)]
    upgraded = [versions.upgrade(value).value for value in old_objects]
    for original, converted, value in zip(
        api_server.ask(old_objects, gates.ALL), api_server.ask(upgraded, gates.ALL), old_objects, strict=True
    ):
        if original.get("decode"):
            continue
        assert without_times(original.get("object")) == without_times(converted.get("object")), corpus.as_json(value)
        assert api_server.refuses(original) == bool(errors(value, gates.ALL)), corpus.as_json(value)


def without_times(value):
    """Clear timeAdded, because the API server sets the current time for taints without a time."""
    return json.loads(re.sub(r'"timeAdded": "[^"]*"', '"timeAdded": ""', json.dumps(value)))


CONTAINER = {
    "name": "c",
    "image": "x",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "Always",
    "resources": {"claims": [{"name": "one"}, {"name": "two", "request": "r"}, {"name": "two", "request": "s"}]},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "generateName": "p-",
        "namespace": "default",
        "labels": {"a": "b"},
        "annotations": {"example.com/c": "d"},
        "finalizers": ["example.com/e"],
    },
    "spec": {
        "containers": [CONTAINER],
        "initContainers": [{**CONTAINER, "name": "i"}],
        "resourceClaims": [
            {"name": "one", "resourceClaimName": "claim"},
            {"name": "two", "resourceClaimTemplateName": "template"},
        ],
    },
}


def test_pod_claims_and_metadata_are_validated_as_by_the_server(api_server):
    judged = {"claims", "resourceClaims", "labels", "annotations", "finalizers", "generateName"}
    objects = [POD] + [m for path, m in corpus.mutations(POD) if judged & set(path)]
    answers = api_server.ask(objects)
    for value, answer in zip(objects, answers, strict=True):
        reported = pod_problems(json.loads(json.dumps(value)), World(()), complete=False)
        our_errors = [problem for problem in reported if problem.refuses]
        assert api_server.refuses(answer) == bool(our_errors), (
            corpus.as_json(value),
            answer.get("decode") or answer["errors"],
            our_errors,
        )


@pytest.mark.parametrize("name", [name for name, value in corpus.VALID.items() if "name" in value["metadata"]])
def test_updates_are_judged_as_the_api_server_does(api_server, name):
    old_object = corpus.VALID[name]
    updates = [m for m in api_server.changes(old_object, 60, seed=5) if isinstance(m.get("metadata"), dict)]
    updates = [{**m, "metadata": {**m["metadata"], "name": old_object["metadata"]["name"]}} for m in updates]
    answers = api_server.ask(updates, gates.ALL, old=old_object)
    for value, answer in zip(updates, answers, strict=True):
        our_errors = update_errors(json.loads(json.dumps(value)), old_object, gates.ALL)
        assert api_server.refuses(answer) == bool(our_errors), (
            corpus.as_json(value),
            answer.get("decode") or answer["errors"],
            our_errors,
        )


def selecting(expression):
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return {"apiVersion": corpus.API, "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": spec}


def deriving(expression):
    derived = [{"name": "example.com/pair", "expression": expression}]
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "derivedAttributes": derived}}
    devices = {"requests": [request], "constraints": [{"matchAttribute": "example.com/pair"}]}
    return {"apiVersion": corpus.API, "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": devices}}


@pytest.mark.parametrize(("make_object", "enabled"), [(selecting, "default"), (selecting, "all"), (deriving, "all")])
def test_expressions_are_judged_as_the_api_server_does(api_server, make_object, enabled):
    objects = [make_object(expression) for expression in expressions()]
    assert not disagreements(api_server, objects, GATES[enabled])
