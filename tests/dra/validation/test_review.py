"""Reviews of many objects: the order and the names of findings, and objects that break no review."""

import json
import random

import pytest

from analysis.check.feasible import find_unservable
from dra.server import EVERYTHING, server_of
from dra.validation.review import name, review
from tests.dra.validation import corpus
from tests.dra.validation.manifests import claim, class_, join, request
from tests.limits import draws
from tests.loops import every


def test_findings_come_in_the_order_of_the_objects():
    from cluster import manifests

    objects = [d.object for d in manifests.parse(join(claim(request("A")), class_(), claim(request("B"))))]
    assert [bool(of_object) for of_object in review(objects)] == [True, False, True]


def test_objects_are_named_by_kind_namespace_and_name():
    assert name({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}}) == "Pod/default/p"
    assert (
        name({"kind": "Pod", "apiVersion": "v1", "metadata": {"generateName": "p-", "namespace": "n"}}) == "Pod/n/p-*"
    )
    assert name({"kind": "DeviceClass", "apiVersion": corpus.API, "metadata": {"name": "c"}}) == "DeviceClass/c"
    assert name({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}) == "Node/n"
    assert name({}) == "Unknown/default/*", (
        "an object without a name is not named like an object whose name is generated"
    )
    assert name({"metadata": [1]}) == "Unknown/default/*"


def test_a_review_of_many_broken_objects_never_fails():
    for seed in range(draws(3)):
        objects = [corpus.VALID[object_name] for object_name in corpus.VALID]
        for object_name in corpus.VALID:
            objects += corpus.sample(corpus.VALID[object_name], 20, seed)
        random.Random(seed).shuffle(objects)
        objects = [json.loads(json.dumps(value)) for value in objects]
        for server in (server_of(), server_of(34), EVERYTHING):
            by_object = review(objects, [], server)
            assert [
                {finding.object for finding in findings_of_object} - {name(value)}
                for findings_of_object, value in zip(by_object, objects, strict=True)
            ] == [set()] * len(objects)
            find_unservable(objects, [], by_object)


def claim_of(spec, **metadata):
    return {"apiVersion": corpus.API, "kind": "ResourceClaim", "metadata": {"name": "c", **metadata}, "spec": spec}


def demanding(**exactly):
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "g", **exactly}}]}}


MANY = 20_000
HOSTILE = {
    "a name of 5 MB": claim_of({}, name="x" * 5_000_000),
    "very many labels": claim_of({}, labels={f"k {n}": "v" for n in range(MANY)}),
    "very many unknown fields": claim_of({f"k{n}": 1 for n in range(MANY)}),
    "CEL of 5 MB": claim_of(demanding(selectors=[{"cel": {"expression": "a" * 5_000_000}}])),
    "CEL that only nests": claim_of(demanding(selectors=[{"cel": {"expression": "(" * 5000 + "true" + ")" * 5000}}])),
    "very many requests": claim_of({"devices": {"requests": [{"name": f"r{n}", "exactly": {}} for n in range(MANY)]}}),
    "very many references": claim_of({"devices": {"constraints": [{"requests": ["r"] * MANY}] * 32}}),
    "very many values of the wrong type": claim_of({"devices": {"requests": [1] * MANY}}),
    "an amount beyond all powers": claim_of(demanding(capacity={"requests": {"a": "1e999999999"}})),
    "an amount of a million digits": claim_of(demanding(capacity={"requests": {"a": "9" * 1_000_000}})),
    "very many claims of a pod": {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "c", "resources": {"claims": [{"name": f"x{n}"} for n in range(MANY)]}}],
            "resourceClaims": [{"name": f"c{n}", "resourceClaimName": "x"} for n in range(MANY)],
        },
    },
    "very many devices": {
        "apiVersion": corpus.API,
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d",
            "devices": [
                {"name": f"d{n}", "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": n}}}]}
                for n in range(MANY)
            ],
        },
    },
}


@pytest.mark.long
@every("name", HOSTILE)
def test_hostile_objects_are_judged_within_the_time_limit(name):
    review([HOSTILE[name]], [], EVERYTHING)
