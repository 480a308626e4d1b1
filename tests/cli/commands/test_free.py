"""`drawbridge free`: the holder of each device and since when, for claims and for device plugins."""

import pytest

from tests.cli.explain.scenes import DRIVER, dump, fleet, full_fleet, held_claim, in_phase, pod
from tests.cli.running import run, run_json

SINCE = "2026-11-20T08:00:00Z"


def plugin_pod(name, node, **status):
    """A running pod with two devices of a device plugin."""
    obj = pod(name, nodeName=node)
    obj["spec"]["containers"] = [{"name": "c", "image": "x", "resources": {"limits": {"example.com/gpu": 2, "cpu": 1}}}]
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": SINCE}]
    return in_phase(obj, "Running", conditions=conditions, **status)


def test_every_device_has_a_row_with_holder_and_time(tmp_path):
    lines = run(
        "free", "-f", dump(tmp_path, *full_fleet("c3"), held_claim("c", on="n1/gpu-1", since=SINCE))
    ).stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["NODE", "DEVICE", "STATE", "HOLDER", "SINCE"],
        ["n0", f"{DRIVER}/n0/gpu-0", "held", "default/p0", "2026-11-20T00:00:00Z"],
        ["n0", f"{DRIVER}/n0/gpu-1", "held", "default/p1", "2026-11-20T01:00:00Z"],
        ["n1", f"{DRIVER}/n1/gpu-0", "held", "default/p2", "2026-11-20T02:00:00Z"],
        ["n1", f"{DRIVER}/n1/gpu-1", "held", "claim", "default/c", SINCE],
        ["2", "nodes:", "4", "devices,", "0", "free,", "4", "in", "use"],
    ]


def test_devices_of_an_incomplete_pool_are_listed(tmp_path):
    objects = fleet(1, 2)
    [pool] = [obj["spec"]["pool"] for obj in objects if obj["kind"] == "ResourceSlice"]
    pool["resourceSliceCount"] = 2
    file = dump(tmp_path, *objects, held_claim("c"))
    [node] = run_json("free", "-f", file)[1]["nodes"]
    assert [(device["state"], len(device["holders"])) for device in node["devices"]] == [("held", 1), ("blocked", 0)]
    assert "1 node: 2 devices, 0 free, 1 in use" in run("free", "-f", file).stdout
    _, survey = run_json("survey", "-f", file)
    assert survey["drivers"][0]["devices"] == 2


def test_free_devices_and_devices_of_a_plugin_are_listed(tmp_path):
    # This pod has a claim for its resource, and no device of the plugin.
    served_pod = plugin_pod(
        "served", "n0", extendedResourceClaimStatus={"resourceClaimName": "x", "requestMappings": []}
    )
    file = dump(
        tmp_path,
        *fleet(1, 1),
        plugin_pod("old", "n0"),
        served_pod,
        plugin_pod("done", "n0") | {"status": {"phase": "Failed"}},
    )
    [node] = run_json("free", "n0", "-f", file)[1]["nodes"]
    free_device, plugin_device = node["devices"]
    assert (free_device["state"], free_device["holders"]) == ("free", [])
    [holder] = plugin_device["holders"]
    assert (plugin_device["device"], plugin_device["state"]) == ("example.com/gpu", "plugin")
    assert (holder["pods"], holder["share"], holder["since"]) == (["default/old"], {"example.com/gpu": "2"}, SINCE)
    assert "1 node: 3 devices, 1 free, 2 in use" in run("free", "-f", file).stdout
    assert "example.com/gpu=2" in run("free", "-f", file, "-o", "wide").stdout


@pytest.mark.parametrize(("name", "hint"), [("n00", "did you mean n0?"), ("zzz", "there are: n0, n1")])
def test_an_unknown_node_name_has_a_suggestion(tmp_path, name, hint):
    code, answer = run_json("free", name, "-f", dump(tmp_path, *fleet()))
    assert (code, answer["nodes"]) == (1, [])
    assert hint in answer["errors"][0]["remedy"]
