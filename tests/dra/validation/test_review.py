"""Many objects together: order, names, and that nothing one object says can break the review of the others."""

import json
import random

from cli.feasible import never
from dra.validation import gates
from dra.validation.review import name, review
from tests.dra.validation import corpus
from tests.dra.validation.manifests import claim, class_, join, request


def test_findings_come_in_the_order_of_the_objects():
    from cluster import manifests

    objects = [d.object for d in manifests.parse(join(claim(request("A")), class_(), claim(request("B"))))]
    assert [one.number for one in review(objects)] == [0, 2]


def test_objects_are_named_by_kind_namespace_and_name():
    assert name({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}}) == "Pod/default/p"
    assert (
        name({"kind": "Pod", "apiVersion": "v1", "metadata": {"generateName": "p-", "namespace": "n"}}) == "Pod/n/p-*"
    )
    assert name({"kind": "DeviceClass", "apiVersion": corpus.API, "metadata": {"name": "c"}}) == "DeviceClass/c"
    assert name({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}) == "Node/n"
    assert name({}) == "Unknown/default/"
    assert name({"metadata": [1]}) == "Unknown/default/"


def test_broken_objects_together_never_break_a_review():
    for seed in range(3):
        objects = [corpus.VALID[known] for known in corpus.VALID]
        for known in corpus.VALID:
            objects += corpus.sample(corpus.VALID[known], 20, seed)
        random.Random(seed).shuffle(objects)
        objects = [json.loads(json.dumps(value)) for value in objects]
        for enabled in (gates.DEFAULT, gates.ALL):
            found = [(one.number, one.finding) for one in review(objects, [], enabled)]
            assert {one.object for number, one in found} <= {name(value) for value in objects}
            never(objects, [], found)
