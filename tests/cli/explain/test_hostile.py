"""No stored or sent object ends an explanation: each odd one beside a sound fleet, one after the other."""

import copy

import pytest

from analysis.explain import screen
from analysis.explain.devices import device_story
from analysis.explain.lone_claims import lone_claim_story
from analysis.explain.pods import pod_story
from analysis.loading import reading_of
from analysis.loading.objects import without_bookkeeping
from analysis.naming import device_names
from dra.wire import builtins
from rendering.output import printable
from tests.cli.explain.scenes import claim, dump, fleet, full, held, phased, pod
from tests.cli.running import run
from tests.cluster.hostile import ODD, odd_objects
from webhook.state import Configuration, Features

CONFIGURATION, FEATURES = Configuration(), Features(minor=37)
TERM = {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}
BROKEN = {"nodeSelectorTerms": [TERM]}


def tell_all(objects):
    """Tell of everything that can be named, for people and for programs."""
    scene = reading_of(map(without_bookkeeping, objects), FEATURES)
    for key in scene.pods:
        story = pod_story(key, scene, CONFIGURATION)
        assert builtins(story)["name"] == key
        assert all(map(printable, screen.screen_of_pod(story)))
    for key in scene.stock.claims:
        story = lone_claim_story(key, scene, CONFIGURATION)
        assert builtins(story)["claim"]["name"] == key
        assert all(map(printable, screen.screen_of_claim(story)))
    for name in device_names(scene.stock):
        assert list(screen.screen_of_device(device_story(name, scene)))
    return scene


def test_odd_objects_are_left_out_or_told():
    sound = [*full("c3"), claim("c"), pod("w", "c")]
    odd = list(odd_objects())
    assert len(odd) > 100
    seen = 0
    for obj in odd:
        scene = tell_all([*sound, obj])
        seen += bool(scene.unread)
    assert seen > 20


def places(value, way=()):
    """Every place in an object."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*way, name)
            yield from places(inner, (*way, name))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield (*way, at)
            yield from places(inner, (*way, at))


def changed(obj, way, value):
    after = copy.deepcopy(obj)
    *steps, last = way
    inner = after
    for step in steps:
        inner = inner[step]
    inner[last] = value
    return after


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceSlice", "Pod"])
def test_an_odd_value_in_any_place_ends_nothing(kind):
    objects = [*fleet(1, 2), held("c", "p", share={"memory": "1Gi"}), phased(pod("p", "c", nodeName="n0"), "Pending"), claim("w"), pod("w", "w")]  # fmt: skip
    at = next(number for number, obj in enumerate(objects) if obj["kind"] == kind)
    for way in places(objects[at]):
        for value in (None, *ODD[:4]):
            odd = changed(objects[at], way, value)
            tell_all([*objects[:at], odd, *objects[at + 1 :]])


def test_a_slice_whose_node_selector_cannot_be_read_is_told_and_ends_nothing(tmp_path):
    objects = [*full(), claim("c"), pod("w", "c")]
    slice_ = copy.deepcopy(next(obj for obj in objects if obj["kind"] == "ResourceSlice"))
    slice_["metadata"]["name"] = "broken"
    slice_["spec"] |= {"pool": {"name": "broken", "generation": 1, "resourceSliceCount": 1}, "nodeSelector": BROKEN}
    del slice_["spec"]["nodeName"]
    tell_all([*objects, slice_])
    for what in ("explain pod w", "explain claim c", "explain device n0/gpu-0"):
        done = run(*what.split(), "-f", dump(tmp_path, *objects, slice_))
        assert "bug in drawbridge" not in done.output, done.output
        assert "broken" in done.output
