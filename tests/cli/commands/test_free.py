"""`drawbridge free`: the holder of each device and since when, for claims and for device plugins."""

import pytest

from tests.cli.explain.scenes import DRIVER, claim, dump, fleet, full_fleet, held_claim, in_phase, pod
from tests.cli.running import run, run_json
from tests.objects import allocated, node, resource_slice, result

SINCE = "2026-11-20T08:00:00Z"


def plugin_pod(name, node, **status):
    """A running pod with two devices of a device plugin."""
    obj = pod(name, nodeName=node)
    obj["spec"]["containers"] = [{"name": "c", "image": "x", "resources": {"limits": {"example.com/gpu": 2, "cpu": 1}}}]
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": SINCE}]
    return in_phase(obj, "Running", conditions=conditions, **status)


def test_every_device_has_a_row_with_holder_and_time(tmp_path):
    file = dump(tmp_path, *full_fleet("c3"), held_claim("c", on="n1/gpu-1", since=SINCE))
    assert run("free", "-f", file).stdout.splitlines()[5:] == [
        "",
        "Nodes",
        "  NODE  DEVICES            IN USE  FREE  HELD BY",
        "  n0    2 gpu.example.com       2     0  default/p0, default/p1",
        "  n1    2 gpu.example.com       2     0  default/p2",
    ]
    lines = run("free", "n0", "n1", "-f", file).stdout.splitlines()
    assert [words for line in lines if (words := line.split())][5:] == [
        ["NODE", "DEVICE", "STATE", "HOLDER", "SINCE"],
        ["n0", f"{DRIVER}/n0/gpu-0", "held", "default/p0", "2026-11-20T00:00:00Z"],
        ["n0", f"{DRIVER}/n0/gpu-1", "held", "default/p1", "2026-11-20T01:00:00Z"],
        ["n1", f"{DRIVER}/n1/gpu-0", "held", "default/p2", "2026-11-20T02:00:00Z"],
        ["n1", f"{DRIVER}/n1/gpu-1", "held", "claim", "default/c", SINCE],
    ]
    assert lines[0] == "2 nodes: 4 devices, 4 in use, 0 free"


def test_pairs_of_devices_that_can_be_in_use_together_are_printed(tmp_path):
    for devices, stage in ((1, "in use"), (2, "")):  # one device cannot be in use twice
        file = dump(tmp_path, *fleet(1, devices))
        assert "IN USE; WANTED AS WELL:" in run("free", "-f", file, "--together").stdout
        [pool] = run_json("free", "-f", file, "--together")[1]["together"]
        assert [[cell["stage"] or "" for cell in row["cells"]] for row in pool["rows"]] == [[stage]]
        assert run_json("free", "-f", file)[1]["together"] == []


@pytest.mark.parametrize("missing", ["ResourceSlice", "Node"])
def test_no_devices_to_compare_is_the_answer_instead_of_a_legend(missing, tmp_path):
    file = dump(tmp_path, *(obj for obj in fleet(1, 2) if obj["kind"] != missing))
    result = run("free", "-f", file, "--together")
    assert result.stdout == "no devices to compare: no Node can reach a device of a ResourceSlice\n"
    assert result.exit_code == 0


def test_devices_of_an_incomplete_pool_are_listed(tmp_path):
    objects = fleet(1, 2)
    [pool] = [obj["spec"]["pool"] for obj in objects if obj["kind"] == "ResourceSlice"]
    pool["resourceSliceCount"] = 2
    file = dump(tmp_path, *objects, held_claim("c"))
    [node] = run_json("free", "-f", file)[1]["nodes"]
    assert [(device["state"], len(device["holders"])) for device in node["devices"]] == [("held", 1), ("unusable", 0)]
    assert "1 node: 2 devices, 1 in use, 0 free, 1 not usable" in run("free", "-f", file).stdout
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
    assert "1 node: 3 devices, 2 in use, 1 free" in run("free", "-f", file).stdout
    assert "example.com/gpu=2" in run("free", "-f", file, "-o", "wide").stdout


@pytest.mark.parametrize(("name", "hint"), [("n00", "did you mean n0?"), ("zzz", "there are: n0, n1")])
def test_an_unknown_node_name_has_a_suggestion(tmp_path, name, hint):
    code, answer = run_json("free", name, "-f", dump(tmp_path, *fleet()))
    assert (code, answer["nodes"]) == (1, [])
    assert hint in answer["errors"][0]["remedy"]


TAINTED = [{"key": "x.example/sick", "effect": "NoSchedule"}]
FENCED = [{"key": "drawbridge.dev/fence", "effect": "NoSchedule"}]


def changed(objects, kind, **spec):
    """Return the objects; those of this kind have these fields of their spec."""
    return [obj | {"spec": obj.get("spec", {}) | spec} if obj["kind"] == kind else obj for obj in objects]


def with_taints(taints):
    objects = fleet(1, 2)
    for obj in objects:
        for device in obj.get("spec", {}).get("devices", []):
            device["taints"] = taints
    return objects


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        (changed(fleet(1, 2), "Node", unschedulable=True), "its node is cordoned"),
        (
            changed(fleet(1, 2), "Node", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]),
            "its node is not ready",
        ),
        (changed(fleet(1, 2), "Node", taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]), ""),
        (with_taints(TAINTED), "tainted x.example/sick:NoSchedule"),
        (with_taints(FENCED), ""),
    ],
    ids=("cordoned", "not ready", "taint that pods tolerate", "tainted devices", "fenced devices"),
)
def test_a_device_that_no_pod_can_use_is_not_free(objects, reason, tmp_path):
    """The other device is held, which the state of its node does not change."""
    objects = [*objects, held_claim("c", "runs"), in_phase(pod("runs", nodeName="n0"), "Running")]
    [total] = run_json("free", "-f", dump(tmp_path, *objects))[1]["totals"]
    unusable = {reason: 1} if reason else {}
    assert (total["total"], total["used"], total["free"], total["unusable"]) == (2, 1, not reason, unusable)
    text = run("free", "-f", dump(tmp_path, *objects)).stdout
    assert ("1 not usable" in text) == bool(reason)
    assert f"1 {reason}" in text
    device = run_json("explain", "device", f"{DRIVER}/n0/gpu-1", "-f", dump(tmp_path, *objects))[1]["device"]
    assert device["state"] == (f"unusable: {reason}" if reason else "free")


def test_a_device_that_a_usable_node_reaches_is_free(tmp_path):
    """Both nodes reach the pool, and the first is cordoned."""
    objects = changed(fleet(2, 1), "ResourceSlice", nodeName=None, allNodes=True)[:-1]
    for obj in objects:
        if obj["metadata"]["name"] == "n0" and obj["kind"] == "Node":
            obj["spec"] = {"unschedulable": True}
    [total] = run_json("free", "-f", dump(tmp_path, *objects))[1]["totals"]
    assert (total["total"], total["free"], total["unusable"]) == (1, 1, {})


def test_the_parts_of_a_card_count_once(tmp_path):
    """A card is published whole and as two halves; a half of the first card is held."""

    def part(card, name, memory):
        counters = {"memory": {"value": str(memory)}}
        return {"name": f"{card}-{name}", "consumesCounters": [{"counterSet": card, "counters": counters}]}

    cards = ("a", "b")
    devices = [part(card, name, memory) for card in cards for name, memory in (("all", 2), ("one", 1), ("two", 1))]
    sets = [{"name": card, "counters": {"memory": {"value": "2"}}} for card in cards]
    node_object, slice_object = (obj for obj in fleet(1, 2) if obj["kind"] in {"Node", "ResourceSlice"})
    pool = slice_object["spec"]["pool"] | {"resourceSliceCount": 2}
    counters = slice_object | {"metadata": {"name": "counters"}}
    counters["spec"] = {"driver": DRIVER, "pool": pool, "nodeName": "n0", "sharedCounters": sets}
    slice_object["spec"] |= {"pool": pool, "devices": devices}
    objects = [node_object, slice_object, counters, held_claim("c", on="n0/a-one")]
    [total] = run_json("free", "-f", dump(tmp_path, *objects))[1]["totals"]
    assert (total["total"], total["used"], total["free"]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("attribute", "value"), [("uuid", "GPU-1"), ("resource.kubernetes.io/pciBusID", "0000:3b:00.0")]
)
def test_a_card_of_two_drivers_counts_once_and_has_one_holder(attribute, value, tmp_path):
    """During a move both drivers publish the card. Each of the claims holds it through one of them."""
    device, objects = {"name": "gpu-0", "attributes": {attribute: {"string": value}}}, [node("n0")]
    for driver, name in (("a.example.com", "p"), ("b.example.com", "q")):
        held = claim(name) | {"status": allocated(result("gpu-0", driver=driver, pool="n0"), pods=[name])}
        devices = resource_slice(driver, device, driver=driver, pool="n0", nodeName="n0")
        objects += [devices, held, in_phase(pod(name, name, nodeName="n0"), "Running")]
    [total] = run_json("free", "-f", (file := dump(tmp_path, *objects)))[1]["totals"]
    [finding] = run_json("doctor", "-f", file)[1]["findings"]
    assert (total["total"], total["used"], finding["code"], finding["severity"]) == (1, 1, "O209", "error")
    assert "a.example.com/n0/gpu-0 and b.example.com/n0/gpu-0 are one card" in finding["message"]


def test_a_device_is_not_free_while_the_same_card_of_another_driver_is_held(tmp_path):
    device = {"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-1"}}}
    slices = [resource_slice(driver, device, driver=driver, pool="n0", nodeName="n0") for driver in ("a.example.com", "b.example.com")]  # fmt: skip
    held = claim("p") | {"status": allocated(result("gpu-0", driver="b.example.com", pool="n0"), pods=["p"])}
    user = in_phase(pod("p", "p", nodeName="n0"), "Running")
    report = run_json("free", "-f", dump(tmp_path, node("n0"), *slices, held, user))[1]
    [total], [of_node] = report["totals"], report["nodes"]
    assert [device["state"] for device in of_node["devices"]] == ["blocked", "held"]
    assert (total["total"], total["used"], total["partly"], total["free"]) == (1, 1, 0, 0)


def test_a_node_whose_devices_are_not_known_is_named(tmp_path):
    """A slice whose node selector is invalid may select any node."""
    term = {"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["a", "b"]}]}
    invalid = resource_slice("s", "gpu-0", nodeSelector={"nodeSelectorTerms": [term]})
    file = dump(tmp_path, *fleet(1, 1), invalid)
    [of_node] = run_json("free", "-f", file)[1]["nodes"]
    assert of_node["devices"] == []
    assert of_node["reason"] in run("free", "-f", file).stdout


def test_free_devices_of_a_device_plugin_are_counted(tmp_path):
    objects = [obj for obj in fleet(1, 1) if obj["kind"] == "Node"]
    objects[0]["status"] = {"allocatable": {"nvidia.com/gpu": "8", "cpu": "64", "devices.kubevirt.io/kvm": "1k"}}
    holder = plugin_pod("old", "n0")
    holder["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": 3}
    [total] = run_json("free", "-f", dump(tmp_path, *objects, holder))[1]["totals"]
    assert total == {
        "name": "nvidia.com/gpu",
        "model": "",
        "total": 8,
        "used": 3,
        "partly": 0,
        "free": 5,
        "unusable": {},
        "unknown": 0,
        "capacity": {},
        "usedCapacity": {},
        "freeCapacity": {},
    }


@pytest.mark.parametrize("fields", [{"labels": {"nvidia.com/gpu.count": "8"}}, {"capacity": {"nvidia.com/gpu": "8"}}], ids=str)  # fmt: skip
def test_the_devices_of_a_node_without_its_driver_are_not_usable(fields, tmp_path):
    [total] = run_json("free", "-f", dump(tmp_path, node("n0", **fields)))[1]["totals"]
    assert total["unusable"] == {"neither a driver nor a device plugin serves it": 8}


def test_a_pod_that_is_gone_is_no_holder(tmp_path):
    objects = [*fleet(1, 1), held_claim("c", "gone"), in_phase(pod("runs", nodeName="n0"), "Running")]
    assert (
        "claim default/c, reserved for the deleted pod default/gone"
        in run("free", "n0", "-f", dump(tmp_path, *objects)).stdout
    )
    [node] = run_json("free", "-f", dump(tmp_path, *objects))[1]["nodes"]
    assert node["devices"][0]["holders"][0]["unused"] is True


def test_each_device_and_node_has_its_amounts_and_idle_nodes_are_listed(tmp_path):
    objects = fleet(2, 1)
    for obj in objects:
        for device in obj.get("spec", {}).get("devices", []):
            device |= {"capacity": {"memory": {"value": "80Gi"}}, "allowMultipleAllocations": True}
    share = held_claim("c", "runs")
    [of_share] = share["status"]["allocation"]["devices"]["results"]
    of_share |= {"consumedCapacity": {"memory": "30Gi"}, "shareID": "s"}
    file = dump(tmp_path, *objects, share, in_phase(pod("runs", nodeName="n0"), "Running"))
    _, answer = run_json("free", "-f", file)
    amounts = [
        [{name: device[name]["memory"] for name in ("capacity", "used", "available")} for device in node["devices"]]
        for node in answer["nodes"]
    ]
    assert amounts == [
        [{"capacity": "80Gi", "used": "30Gi", "available": "50Gi"}],
        [{"capacity": "80Gi", "used": "0", "available": "80Gi"}],
    ]
    totals = [total for owner in (*answer["nodes"], answer) for total in owner["totals"]]
    counts = [tuple(total[name] for name in ("total", "used", "partly", "free")) for total in totals]
    assert counts == [(1, 1, 1, 0), (1, 0, 0, 1), (2, 1, 1, 1)]
    sums = [tuple(total[name]["memory"] for name in ("capacity", "usedCapacity", "freeCapacity")) for total in totals]
    assert sums == [("80Gi", "30Gi", "50Gi"), ("80Gi", "0", "80Gi"), ("160Gi", "30Gi", "130Gi")]
    assert answer["idleNodes"] == ["n1"]
    printed = run("free", "-f", file).stdout
    assert "memory: 130Gi of 160Gi" in printed
    assert printed.startswith("2 nodes: 2 devices, 1 in use (1 with room left), 1 free\n\nTotals\n")
    assert printed.endswith("\n1 idle node: n1\n")
    of_share["consumedCapacity"]["memory"] = "80Gi"
    assert "2 devices, 1 in use, 1 free" in run("free", "-f", dump(tmp_path, *objects, share)).stdout
    cordoned = dump(tmp_path, *changed(fleet(1, 1), "Node", unschedulable=True))
    assert run_json("free", "-f", cordoned)[1]["idleNodes"] == []
