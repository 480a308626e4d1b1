"""A malformed object in a valid fleet causes no exception in `drawbridge explain`."""

import copy
import random

import pytest

from analysis.explain import screen
from analysis.explain.devices import device_story
from analysis.explain.lone_claims import lone_claim_story
from analysis.explain.pod_story import pod_story
from analysis.loading import reading_of
from analysis.loading.objects import without_bookkeeping
from analysis.naming import device_names
from analysis.printable import printable
from dra.wire import builtins
from tests.cli.explain.scenes import claim, dump, fleet, full_fleet, held_claim, in_phase, pod
from tests.cli.running import run
from tests.cluster.hostile import ODD_VALUES, odd_objects
from tests.limits import draws
from webhook.state import Features

FEATURES = Features(minor=37)
INVALID_TERM = {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}
INVALID_NODE_SELECTOR = {"nodeSelectorTerms": [INVALID_TERM]}


def explain_everything(objects):
    """Explain every pod, claim and device, as text and as JSON; return what was read from the objects."""
    scene = reading_of(map(without_bookkeeping, objects), FEATURES)
    for key in scene.pods:
        story = pod_story(key, scene)
        assert builtins(story)["name"] == key
        assert all(map(printable, screen.screen_of_pod(story)))
    for key in scene.stock.claims:
        story = lone_claim_story(key, scene)
        assert builtins(story)["claim"]["name"] == key
        assert all(map(printable, screen.screen_of_claim(story)))
    for name in device_names(scene.stock):
        assert list(screen.screen_of_device(device_story(name, scene)))
    return scene


def test_malformed_objects_are_skipped_or_reported():
    valid_objects = [*full_fleet("c3"), claim("c"), pod("w", "c")]
    malformed_objects = random.Random(0).sample(list(odd_objects()), 8 * draws(16))
    scenes_with_unread_objects = 0
    for obj in malformed_objects:
        scene = explain_everything([*valid_objects, obj])
        scenes_with_unread_objects += bool(scene.unread)
    assert scenes_with_unread_objects


def member_paths(value, path=()):
    """Yield the path of each value inside an object."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*path, name)
            yield from member_paths(inner, (*path, name))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield (*path, i)
            yield from member_paths(inner, (*path, i))


def with_value(obj, path, value):
    changed_object = copy.deepcopy(obj)
    *steps, last = path
    inner = changed_object
    for step in steps:
        inner = inner[step]
    inner[last] = value
    return changed_object


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceSlice", "Pod"])
def test_a_malformed_value_in_any_field_causes_no_exception(kind):
    objects = [*fleet(1, 2), held_claim("c", "p", share={"memory": "1Gi"}), in_phase(pod("p", "c", nodeName="n0"), "Pending"), claim("w"), pod("w", "w")]  # fmt: skip
    position = next(number for number, obj in enumerate(objects) if obj["kind"] == kind)
    for path in member_paths(objects[position]):
        for value in (None, *ODD_VALUES[:4]):
            malformed = with_value(objects[position], path, value)
            explain_everything([*objects[:position], malformed, *objects[position + 1 :]])


def test_an_invalid_node_selector_of_a_slice_is_reported(tmp_path):
    objects = [*full_fleet(), claim("c"), pod("w", "c")]
    slice_ = copy.deepcopy(next(obj for obj in objects if obj["kind"] == "ResourceSlice"))
    slice_["metadata"]["name"] = "broken"
    slice_["spec"] |= {
        "pool": {"name": "broken", "generation": 1, "resourceSliceCount": 1},
        "nodeSelector": INVALID_NODE_SELECTOR,
    }
    del slice_["spec"]["nodeName"]
    explain_everything([*objects, slice_])
    for command in ("explain pod w", "explain claim c", "explain device n0/gpu-0"):
        result = run(*command.split(), "-f", dump(tmp_path, *objects, slice_))
        assert "bug in drawbridge" not in result.output, result.output
        assert "broken" in result.output
