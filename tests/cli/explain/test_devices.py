"""`drawbridge explain device`: the claims that hold a device, the remaining capacity, and the other devices nearby (neighbours)."""

import msgspec
import pytest
from msgspec.structs import replace

from analysis.capacity import devices_of_nodes
from analysis.explain import device_story, screen_of_device
from analysis.loading import Unread, reading_of
from tests.analysis.test_matrix import example, judged_pools, two_pools_each
from tests.cli.explain.scenes import DRIVER, dump, explain, explain_json, fleet, held_claim, in_phase, pod
from tests.cli.running import modes, run_json
from tests.objects import RESOURCE_API, obj
from webhook.state import Features

SELECTOR = {"driver": DRIVER, "pool": "n0", "device": "gpu-0"}
TAINT = {"key": "ill", "effect": "NoExecute", "timeAdded": "2026-11-20T06:00:00Z"}
TAINT_RULE = obj("DeviceTaintRule", "broken", RESOURCE_API, deviceSelector=SELECTOR, taint=TAINT)


def shared_fleet():
    """Return a node with a tainted device of 40Gi that several claims may share."""
    objects = fleet(1, 1)
    [slice_] = [obj for obj in objects if obj["kind"] == "ResourceSlice"]
    slice_["spec"]["devices"][0] |= {
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "40Gi"}},
        "taints": [{"key": "hot", "effect": "NoSchedule"}],
    }
    return objects


def device_answer(tmp_path, *objects, name="n0/gpu-0"):
    code, answer = explain_json(tmp_path, f"device {name}", *objects)
    assert code == 0
    return answer["device"]


def test_a_shared_device_lists_holders_shares_times_and_remaining_capacity(tmp_path):
    objects = [
        *shared_fleet(),
        held_claim("late", "b", share={"memory": "6Gi"}, since="2026-11-20T09:00:00Z"),
        held_claim("early", "a", share={"memory": "10Gi"}),
        *(in_phase(pod(name, nodeName="n0"), "Running") for name in "ab"),
    ]
    answer = device_answer(tmp_path, *objects)
    assert answer["state"] == "shared"
    assert [(holder["claim"], holder["share"], holder["since"]) for holder in answer["holders"]] == [
        ("default/early", {"memory": "10Gi"}, "2026-11-20T08:00:00Z"),
        ("default/late", {"memory": "6Gi"}, "2026-11-20T09:00:00Z"),
    ]
    assert (answer["capacity"], answer["available"]) == ({"memory": "40Gi"}, {"memory": "24Gi"})
    text = explain(tmp_path, "device n0/gpu-0", *objects).stdout
    assert "memory: 24Gi of 40Gi left" in text
    assert "claim default/early holds 10Gi memory of it for default/a since 2026-11-20T08:00:00Z" in text


def test_taints_are_listed_with_their_source(tmp_path):
    answer = device_answer(tmp_path, *shared_fleet(), TAINT_RULE)
    assert [(taint["taint"], taint["source"], taint["since"]) for taint in answer["taints"]] == [
        ("hot:NoSchedule", f"driver {DRIVER}", ""),
        ("ill:NoExecute", "DeviceTaintRule broken", "2026-11-20T06:00:00Z"),
    ]


def test_a_held_device_without_a_slice_is_still_explained(tmp_path):
    answer = device_answer(tmp_path, *fleet(1, 1), held_claim("c", on="n0/gpu-9"), name="n0/gpu-9")
    assert (answer["state"], answer["slice"]) == ("gone", "")
    assert "no longer publishes" in answer["remarks"][0]


def test_two_claims_on_an_exclusive_device_are_reported(tmp_path):
    answer = device_answer(tmp_path, *fleet(1, 1), held_claim("a"), held_claim("b"))
    assert answer["state"] == "held"
    assert "claim default/a: its devices must not be in use together with those of default/b" in answer["remarks"]


def test_neighbours_are_usable_together_as_in_the_matrix():
    """The matrix has a row and a column for each kind of device, and says in each cell whether both kinds can be used together."""
    files = modes("classes", "groups")
    [pool] = judged_pools(*example("classes", "groups"))
    rows = msgspec.to_builtins(pool)["rows"]
    for row_number, row in enumerate(rows):
        device = row["devices"][0]
        code, answer = run_json("explain", "device", f"gpu-node/{device}", *files)
        assert code == 0
        neighbours = {neighbour["devices"][-1]: neighbour for neighbour in answer["device"]["neighbours"]}
        for column_number, other_row in enumerate(rows):
            name = other_row["devices"][-1]
            if name == device:
                continue
            cell = row["cells"][column_number]
            assert neighbours[name]["usableTogether"] == (cell["stage"] is None), (
                f"cell {row_number}, {column_number} of the matrix"
            )
            assert neighbours[name]["text"] == cell["text"]
            assert neighbours[name]["freeDevices"] > 0


def test_a_compatibility_rule_between_pools_of_a_node_is_reported(tmp_path):
    objects = [*two_pools_each(), held_claim("c", on="n0/mig-1")]
    answer = device_answer(tmp_path, *objects, name="n0-whole/whole")
    [neighbour] = answer["neighbours"]
    assert (neighbour["devices"], neighbour["freeDevices"]) == (["n0/mig-0", "n0/mig-1"], 1)
    assert (neighbour["usableTogether"], neighbour["stage"]) == (False, "compatibility")
    assert neighbour["text"] == "DeviceCompatibility/mig: not together on one node"
    # A rule of scope `pool` does not apply to devices of two pools.
    assert device_answer(tmp_path, *two_pools_each("pool"), name="n0-whole/whole")["neighbours"] == []


def test_a_device_without_free_counters_is_shown_as_blocked(tmp_path):
    objects = [*fleet(1, 1)]
    [slice_] = [obj for obj in objects if obj["kind"] == "ResourceSlice"]
    slice_["spec"]["pool"]["resourceSliceCount"] = 2
    consumed_counters = [{"counterSet": "card", "counters": {"memory": {"value": "40Gi"}}}]
    slice_["spec"]["devices"] = [{"name": name, "consumesCounters": consumed_counters} for name in ("whole", "half")]
    counter_slice = slice_ | {
        "metadata": {"name": "counters"},
        "spec": {
            **{name: slice_["spec"][name] for name in ("driver", "pool", "nodeName")},
            "sharedCounters": [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}],
        },
    }
    answer = device_answer(tmp_path, *objects, counter_slice, held_claim("c", on="n0/whole"), name="n0/half")
    assert answer["state"] == "blocked"
    [neighbour] = answer["neighbours"]
    assert (neighbour["devices"], neighbour["usableTogether"], neighbour["stage"]) == (["whole"], False, "counters")
    assert neighbour["freeDevices"] == 0


@pytest.mark.parametrize("defect", ["incomplete", "no node", "bad selector"])
def test_the_device_of_an_unusable_pool_is_still_explained(defect, tmp_path):
    objects = fleet(1, 1)
    [slice_] = [obj for obj in objects if obj["kind"] == "ResourceSlice"]
    if defect == "incomplete":
        slice_["spec"]["pool"]["resourceSliceCount"] = 2
        message = "its pool cannot be used (incomplete)"
    elif defect == "no node":
        slice_["spec"]["nodeName"] = "elsewhere"
        message = "no node that was read can reach it"
    else:
        del slice_["spec"]["nodeName"]
        term = {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}
        slice_["spec"]["nodeSelector"] = {"nodeSelectorTerms": [term]}
        message = "Near"
    answer = device_answer(tmp_path, *objects)
    assert any(message in remark for remark in answer["remarks"])


def test_explain_does_not_change_its_input_file(tmp_path):
    path = dump(tmp_path, *fleet())
    bytes_before = path.read_bytes()
    run_json("explain", "device", "n0/gpu-0", "-f", path)
    assert path.read_bytes() == bytes_before


def test_without_access_to_all_claims_no_device_is_free():
    """A claim that was not read may hold a device. A device that a known claim holds is still reported as held."""
    objects = [*two_pools_each(), held_claim("c", on="n0/mig-1")]
    full_scene = reading_of(objects, Features())
    limited_scene = replace(full_scene, unread=(Unread("resourceclaims.resource.k8s.io", "forbidden"),))
    for scene, state, free_devices in ((full_scene, "free", 1), (limited_scene, "unknown", None)):
        story = device_story(f"{DRIVER}/n0-whole/whole", scene)
        assert (story.state, [neighbour.free_devices for neighbour in story.neighbours]) == (state, [free_devices])
        assert f"whole: {state}" in next(iter(screen_of_device(story)))
        assert device_story(f"{DRIVER}/n0/mig-1", scene).state == "held"
        [node] = devices_of_nodes(["n0"], scene)
        assert sorted({device.state for device in node.devices}) == sorted({"held", state})
