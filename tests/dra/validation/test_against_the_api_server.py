"""Our validation refuses exactly what the API server refuses: valid objects, and one or two changes of each.

The referee runs the registry's own create and status paths. The long form tries every change.
"""

import copy
import json
import re

import pytest

from dra.objects import versions
from dra.server import NEWEST, known_gates
from dra.validation import CODES, problems
from dra.validation.fields import gates
from dra.validation.fleet.pods import pod_problems
from dra.validation.fleet.world import World
from dra.validation.objects.updates import update_errors
from tests.dra.cel.corpus import expressions
from tests.dra.validation import corpus

pytestmark = pytest.mark.oracle

BETA = frozenset(gate for gate in gates.ALL if known_gates(NEWEST)[gate].maturity != "alpha")
GATES = {"none": frozenset(), "default": gates.DEFAULT, "beta": BETA, "all": gates.ALL}


def errors(value, enabled):
    reported = problems(json.loads(json.dumps(value)), enabled)
    return [problem for problem in reported if CODES[problem.code].severity == "error"]


def disagreements(api_server, objects, enabled):
    answers = api_server.ask(objects, enabled)
    return [
        (corpus.shown(value), answer.get("decode") or answer["errors"], ours)
        for value, answer in zip(objects, answers, strict=True)
        if api_server.refuses(answer) != bool(ours := errors(value, enabled))
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
    objects = corpus.sample(corpus.VALID[name], 45, seed=7)
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
        theirs = set(re.findall(r'unknown field "([^"]*)"', " ".join(answer.get("strict") or ())))
        ours = {dotted(p.path) for p in problems(value, gates.ALL) if p.code == "D002"}
        assert ours == theirs, corpus.shown(value)


def old(version, value):
    """Write an object of v1 in an older version, as its author would have done."""
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


OLD = [
    (version, name)
    for version in ("v1beta1", "v1beta2")
    for name, value in corpus.VALID.items()
    if value["kind"] in versions.SERVED[f"resource.k8s.io/{version}"]
]


@pytest.mark.parametrize(("version", "name"), OLD)
def test_old_versions_convert_as_in_the_api_server(api_server, version, name):
    mutants = corpus.sample(corpus.VALID[name], 60, seed=3)
    written = [m for m in [corpus.VALID[name], *mutants] if not any(p.code == "D001" for p in problems(m, gates.ALL))]
    written = [old(version, value) for value in written if isinstance(value.get("spec"), dict)]
    upgraded = [versions.upgrade(value).value for value in written]
    for before, after, value in zip(
        api_server.ask(written, gates.ALL), api_server.ask(upgraded, gates.ALL), written, strict=True
    ):
        if before.get("decode"):
            continue
        assert undefaulted(before.get("object")) == undefaulted(after.get("object")), corpus.shown(value)
        assert api_server.refuses(before) == bool(errors(value, gates.ALL)), corpus.shown(value)


def undefaulted(value):
    """Clear timeAdded, because the API server sets it to the current time for taints without a time."""
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
        ours = [problem for problem in reported if CODES[problem.code].severity == "error"]
        assert api_server.refuses(answer) == bool(ours), (
            corpus.shown(value),
            answer.get("decode") or answer["errors"],
            ours,
        )


@pytest.mark.parametrize("name", [name for name, value in corpus.VALID.items() if "name" in value["metadata"]])
def test_updates_are_judged_as_the_api_server_does(api_server, name):
    before = corpus.VALID[name]
    after = [m for m in corpus.sample(before, 60, seed=5) if isinstance(m.get("metadata"), dict)]
    after = [{**m, "metadata": {**m["metadata"], "name": before["metadata"]["name"]}} for m in after]
    answers = api_server.ask(after, gates.ALL, old=before)
    for value, answer in zip(after, answers, strict=True):
        ours = update_errors(json.loads(json.dumps(value)), before, gates.ALL)
        assert api_server.refuses(answer) == bool(ours), (
            corpus.shown(value),
            answer.get("decode") or answer["errors"],
            ours,
        )


def selecting(expression):
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return {"apiVersion": corpus.API, "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": spec}


def deriving(expression):
    derived = [{"name": "example.com/pair", "expression": expression}]
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "derivedAttributes": derived}}
    devices = {"requests": [request], "constraints": [{"matchAttribute": "example.com/pair"}]}
    return {"apiVersion": corpus.API, "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": devices}}


@pytest.mark.parametrize(("made", "enabled"), [(selecting, "default"), (selecting, "all"), (deriving, "all")])
def test_expressions_are_judged_as_the_api_server_does(api_server, made, enabled):
    objects = [made(expression) for expression in expressions()]
    assert not disagreements(api_server, objects, GATES[enabled])
