"""All commands and the dashboard count the same devices."""

import json

import pytest

from analysis.capacity import devices_of_nodes
from analysis.loading import reading_of
from analysis.matrix import build_matrices, reachable
from dashboard.colours import attributes_of
from dashboard.picture import count_devices, devices_by_namespace, draw_picture, in_use
from dashboard.tenants import for_tenant
from tests.cli.explain.scenes import DRIVER, dump, fleet, held_claim, in_phase, node, pod
from tests.cli.running import run_json
from webhook.state import Features

PLUGIN_KEY = "nvidia.com/gpu"


def pod_of_plugin(name, *amounts, init_containers=(), status_fields=None, namespace="default", key=PLUGIN_KEY):
    """Return a running pod whose containers each request devices of a plugin. `init_containers` has an amount and a policy for each init container."""
    running_pod = pod(name, nodeName="p")
    running_pod["metadata"]["namespace"] = namespace
    running_pod["spec"]["containers"] = [
        {"name": f"c{i}", "image": "i", "resources": {"limits": {key: amount}}} for i, amount in enumerate(amounts)
    ]
    running_pod["spec"]["initContainers"] = [
        {"name": f"i{i}", "image": "i", "resources": {"limits": {key: amount}}} | policy
        for i, (amount, policy) in enumerate(init_containers)
    ]
    return in_phase(running_pod, "Running", **(status_fields or {}))


SERVED_BY_CLAIM = {"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": []}}
ALWAYS_RESTARTED = {"restartPolicy": "Always"}
# The first pod holds 2 + 1 devices of the plugin. The second holds 4: the 1 of its sidecar, which always runs, and the 3 of its second
# init container. (Its main container requests only 1, and starts when the init container has ended.) The third holds none, because a
# claim serves it.
PODS = (
    pod_of_plugin("two", 2, 1),
    pod_of_plugin("sidecar", 1, init_containers=[(1, ALWAYS_RESTARTED), (3, {})], namespace="b"),
    pod_of_plugin("served", 2, status_fields=SERVED_BY_CLAIM),
)
PLUGIN_DEVICES_IN_USE = 3 + 4


def fleet_with_plugin_node(*further_objects):
    return [*fleet(1, 2), node("p", allocatable={PLUGIN_KEY: "8"}), *further_objects]


@pytest.mark.parametrize(
    ("key", "device_count"),
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
def test_only_amounts_of_devices_count_as_devices_in_use(key, device_count):
    picture = draw_picture(
        reading_of(fleet_with_plugin_node(pod_of_plugin("share", 50, key=key)), Features()), read_at="", source=""
    )
    assert in_use(count_devices(picture.nodes)) == device_count


def test_the_dashboard_counts_plugin_devices_like_commands_survey_and_free(tmp_path):
    file = dump(tmp_path, *fleet_with_plugin_node(*PODS))
    [plugin] = run_json("survey", "-f", file)[1]["plugins"]
    totals_in_free = run_json("free", "-f", file)[1]["totals"]
    [devices_in_free] = [total["used"] for total in totals_in_free if total["name"] == PLUGIN_KEY]
    picture = draw_picture(reading_of(fleet_with_plugin_node(*PODS), Features()), read_at="", source="")
    devices_in_dashboard = in_use(count_devices(picture.nodes))
    devices_in_survey = plugin["migratingDevices"] + plugin["stayingDevices"]
    assert devices_in_survey == devices_in_free == devices_in_dashboard == PLUGIN_DEVICES_IN_USE
    assert devices_by_namespace(picture) == {"b": 4, "default": 3}


def test_a_tenant_sees_how_many_devices_other_tenants_use():
    reading = reading_of(fleet_with_plugin_node(*PODS), Features())
    counts_of_administrator = count_devices(devices_of_nodes((), reading))
    counts_of_tenant = count_devices(devices_of_nodes((), for_tenant(reading, {"mine"})))
    assert counts_of_administrator == counts_of_tenant == {"free": 2 + 1, "plugin": PLUGIN_DEVICES_IN_USE}


def test_admin_access_holds_no_device():
    claim = held_claim("watches", "w")
    [result] = claim["status"]["allocation"]["devices"]["results"]
    result["adminAccess"] = True
    reading = reading_of([*fleet(1, 2), claim], Features())
    [pool] = build_matrices(reachable(reading.stock, ["n0"]).values(), reading.stock)
    assert pool.in_use == ()
    assert count_devices(devices_of_nodes((), reading)) == {"free": 2}
    assert devices_by_namespace(draw_picture(reading, read_at="", source="")) == {}


def test_a_device_of_a_superseded_slice_is_not_counted(tmp_path):
    old_slice = json.loads(json.dumps(fleet(1, 2)[-1]))
    old_slice["metadata"]["name"] = "old"
    old_slice["spec"]["devices"] = [{"name": f"old-{i}", "attributes": {"a": {"string": f"{i}"}}} for i in range(3)]
    new_objects = json.loads(json.dumps(fleet(1, 2)))
    new_objects[-1]["spec"]["pool"]["generation"] = 2
    file = dump(tmp_path, *new_objects, old_slice)
    [driver] = run_json("survey", "-f", file)[1]["drivers"]
    nodes = run_json("free", "-f", file)[1]["nodes"]
    assert (driver["driver"], driver["devices"], len(nodes[0]["devices"])) == (DRIVER, 2, 2)
    assert attributes_of(reading_of([*new_objects, old_slice], Features()).stock) == ()


def test_a_superseded_slice_does_not_serve_an_extended_resource(tmp_path):
    """All devices of the newest slice are tainted, and the devices of the superseded slice are not."""
    [device_class, node_object, new_slice] = json.loads(json.dumps(fleet(1, 2)))
    old_slice = json.loads(json.dumps(new_slice)) | {"metadata": {"name": "old"}}
    device_class["spec"]["extendedResourceName"] = PLUGIN_KEY
    new_slice["spec"]["pool"]["generation"] = 2
    for device in new_slice["spec"]["devices"]:
        device["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    pending_pod = pod_of_plugin("w", 1) | {"status": {}}
    del pending_pod["spec"]["nodeName"], pending_pod["spec"]["schedulerName"]
    file = dump(tmp_path, device_class, node_object, new_slice, old_slice, pending_pod)
    [workload] = run_json("survey", "-f", file)[1]["workloads"]
    assert "taint" in workload["keys"][0]["until"]
