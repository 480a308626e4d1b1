"""All commands and the dashboard count the same devices."""

import json

import pytest

from analysis.capacity import count_devices, in_use, node_stories
from analysis.loading import reading_of
from analysis.matrix import judge, reachable
from dashboard.colours import attributes_of
from dashboard.picture import devices_by_namespace, draw_picture
from dashboard.tenants import for_tenant
from tests.cli.explain.scenes import DRIVER, dump, fleet, held_claim, in_phase, node, pod
from tests.cli.running import run_json
from webhook.state import Features

GPU = "nvidia.com/gpu"


def of_plugin(name, *containers, init=(), status=None, namespace="default", key=GPU):
    """Return a running pod whose containers each request devices of a plugin. `init` has an amount and a policy for each init container."""
    obj = pod(name, nodeName="p")
    obj["metadata"]["namespace"] = namespace
    obj["spec"]["containers"] = [
        {"name": f"c{i}", "image": "i", "resources": {"limits": {key: amount}}} for i, amount in enumerate(containers)
    ]
    obj["spec"]["initContainers"] = [
        {"name": f"i{i}", "image": "i", "resources": {"limits": {key: amount}}} | policy
        for i, (amount, policy) in enumerate(init)
    ]
    return in_phase(obj, "Running", **(status or {}))


SERVED = {"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": []}}
SIDECAR = {"restartPolicy": "Always"}
# The first pod holds 2 + 1 devices of the plugin. The second holds 1 + 3, because its sidecar runs during its second init
# container. The third holds none, because a claim serves it.
PODS = (
    of_plugin("two", 2, 1),
    of_plugin("sidecar", 1, init=[(1, SIDECAR), (3, {})], namespace="b"),
    of_plugin("served", 2, status=SERVED),
)
USED = 3 + 4


def objects(*more):
    return [*fleet(1, 2), node("p", allocatable={GPU: "8"}), *more]


@pytest.mark.parametrize(
    ("key", "devices"),
    [
        ("hygon.com/dcumem", 0),
        ("huawei.com/npu-core", 0),
        ("gpu.intel.com/memory.max", 0),
        ("baidu.com/910B_cgpu_memory_percent", 0),
        ("example.com/gpu-mem", 0),
        ("sgx.intel.com/epc", 0),
        ("aws.amazon.com/neuron", 50),
        ("hygon.com/dcunum", 50),
        ("example.com/fpga", 50),
    ],
)
def test_memory_or_compute_is_not_counted_in_devices(key, devices):
    picture = draw_picture(reading_of(objects(of_plugin("share", 50, key=key)), Features()), read_at="", source="")
    assert in_use(count_devices(picture.nodes)) == devices


def test_survey_free_and_dashboard_count_the_same_plugin_devices(tmp_path):
    file = dump(tmp_path, *objects(*PODS))
    [plugin] = run_json("survey", "-f", file)[1]["plugins"]
    nodes = run_json("free", "-f", file)[1]["nodes"]
    listed = sum(
        int(holder["share"][GPU])
        for story in nodes
        for device in story["devices"]
        if device["state"] == "plugin"
        for holder in device["holders"]
    )
    picture = draw_picture(reading_of(objects(*PODS), Features()), read_at="", source="")
    counted = in_use(count_devices(picture.nodes))
    assert (plugin["migratingDevices"] + plugin["stayingDevices"], listed, counted) == (USED, USED, USED)
    assert devices_by_namespace(picture) == {"b": 4, "default": 3}


def test_a_tenant_sees_the_same_number_of_devices():
    scene = reading_of(objects(*PODS), Features())
    every, narrowed = (count_devices(node_stories((), reading)) for reading in (scene, for_tenant(scene, {"mine"})))
    assert every == narrowed == {"free": 2, "plugin": USED}


def test_admin_access_holds_no_device():
    claim = held_claim("watches", "w")
    [result] = claim["status"]["allocation"]["devices"]["results"]
    result["adminAccess"] = True
    scene = reading_of([*fleet(1, 2), claim], Features())
    [pool] = judge(reachable(scene.stock, ["n0"]).values(), scene.stock)
    assert pool.in_use == ()
    assert count_devices(node_stories((), scene)) == {"free": 2}
    assert devices_by_namespace(draw_picture(scene, read_at="", source="")) == {}


def test_a_device_of_a_superseded_slice_is_not_counted(tmp_path):
    old = json.loads(json.dumps(fleet(1, 2)[-1]))
    old["metadata"]["name"] = "old"
    old["spec"]["devices"] = [{"name": f"old-{i}", "attributes": {"a": {"string": f"{i}"}}} for i in range(3)]
    new = json.loads(json.dumps(fleet(1, 2)))
    new[-1]["spec"]["pool"]["generation"] = 2
    file = dump(tmp_path, *new, old)
    [driver] = run_json("survey", "-f", file)[1]["drivers"]
    nodes = run_json("free", "-f", file)[1]["nodes"]
    assert (driver["driver"], driver["devices"], len(nodes[0]["devices"])) == (DRIVER, 2, 2)
    assert attributes_of(reading_of([*new, old], Features()).stock) == ()


def test_a_superseded_slice_does_not_serve_an_extended_resource(tmp_path):
    """All devices of the newest slice are tainted, and the devices of the superseded slice are not."""
    [kind, slice_, new] = json.loads(json.dumps(fleet(1, 2)))
    old = json.loads(json.dumps(new)) | {"metadata": {"name": "old"}}
    kind["spec"]["extendedResourceName"] = GPU
    new["spec"]["pool"]["generation"] = 2
    for device in new["spec"]["devices"]:
        device["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    asking = of_plugin("w", 1) | {"status": {}}
    del asking["spec"]["nodeName"], asking["spec"]["schedulerName"]
    file = dump(tmp_path, kind, slice_, new, old, asking)
    [workload] = run_json("survey", "-f", file)[1]["workloads"]
    assert [key.get("until") for key in workload["keys"]] == [f"a device of {DRIVER} has no taint that blocks claims"]
