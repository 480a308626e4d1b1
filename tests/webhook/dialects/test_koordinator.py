"""Koordinator's words: sums over the pod, spread over GPUs that all containers see."""

import json
import re
from pathlib import Path

import pytest

from cluster import manifests
from dra import cel, wire
from dra.objects import Device, DeviceClass, ResourceSlice
from tests.webhook.dialects.rows import Row
from tests.webhook.pods import (
    HAMI,
    KOORD,
    SIZES,
    UNKNOWN,
    WHOLE,
    alternatives,
    became,
    container,
    devices,
    exactly,
    example_fleet,
    outcomes,
    patched,
    pod,
    refused,
    share,
    strip,
    untouched,
)
from webhook.state import Inventory

JOINT = "scheduling.koordinator.sh/device-joint-allocate"
HINT = "scheduling.koordinator.sh/device-allocate-hint"
PARTITION = "scheduling.koordinator.sh/gpu-partition-spec"
TOPOLOGY = "scheduling.koordinator.sh/numa-topology-spec"
BINDING = "scheduling.koordinator.sh/resource-spec"
PAIRED = {JOINT: json.dumps({"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"})}


def koordinator_pod(*limits: dict, **annotations: object) -> dict:
    """A pod for Koordinator's scheduler; annotations by their last word."""
    return pod(
        *({KOORD + key: amount for key, amount in limit.items()} for limit in limits),
        annotations={f"scheduling.koordinator.sh/{k.replace('_', '-')}": json.dumps(v) for k, v in annotations.items()},
        scheduler="koord-scheduler",
    )


def on(selector: str, value: str = "x") -> dict:
    return koordinator_pod({"gpu": 100}) | {
        "spec": koordinator_pod({"gpu": 100})["spec"] | {"nodeSelector": {selector: value}}
    }


def labelled(key: str) -> dict:
    made = koordinator_pod({"gpu": 100})
    made["metadata"]["labels"] = {key: "HAMi-core"}
    return made


BOTH = {"gpu-core": 50, "gpu-memory": "8Gi"}

ROWS = {
    KOORD + "gpu": Row(koordinator_pod({"gpu": 200}), "translated"),
    KOORD + "gpu-core": Row(koordinator_pod(BOTH), "translated"),
    KOORD + "gpu-memory": Row(koordinator_pod(BOTH), "translated"),
    KOORD + "gpu-memory-ratio": Row(koordinator_pod({"gpu-core": 50, "gpu-memory-ratio": 50}), "approximated", SIZES),
    KOORD + "gpu.shared": Row(koordinator_pod({"gpu.shared": 2, **BOTH}), "translated"),
    KOORD + "rdma": Row(koordinator_pod({"rdma": 100}), "translated"),
    KOORD + "fpga": Row(koordinator_pod({"fpga": 100}), "left"),
    **{
        key: Row(pod({key: 1}, scheduler="koord-scheduler"), "left")
        for key in ("huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp")
    },
    "nvidia.com/gpu": Row(pod({"nvidia.com/gpu": 2}), "translated", {"meanings": {"nvidia.com/gpu": "koordinator"}}),
    JOINT: Row(
        koordinator_pod(
            {"gpu": 100, "rdma": 100},
            device_joint_allocate={"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"},
        ),
        "approximated",
    ),
    HINT: Row(
        koordinator_pod({"rdma": 1}, device_allocate_hint={"rdma": {"allocateStrategy": "ApplyForAll"}}), "approximated"
    ),
    **{
        key: Row(pod({KOORD + "rdma": 100, key: 1}, scheduler="koord-scheduler"), "left")
        for key in ("amd.com/gpu", "dcu.com/gpu", "metax-tech.com/sgpu")
    },
    **{
        f"kubernetes.io/{name}": Row(pod({f"kubernetes.io/{name}": 100}, scheduler="koord-scheduler"), "left")
        for name in ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "rdma", "fpga")
    },
    "scheduling.koordinator.sh/reservation-affinity": Row(
        pod(
            {KOORD + "gpu": 100},
            scheduler="koord-scheduler",
            annotations={"scheduling.koordinator.sh/reservation-affinity": '{"name": "r"}'},
        ),
        "left",
    ),
    "gang.scheduling.koordinator.sh/name": Row(
        pod(
            {KOORD + "gpu": 100}, scheduler="koord-scheduler", annotations={"gang.scheduling.koordinator.sh/name": "g"}
        ),
        "left",
    ),
    **{
        key: Row(labelled(key), "left")
        for key in ("pod-group.scheduling.sigs.k8s.io", "quota.scheduling.koordinator.sh/name")
    },
    PARTITION: Row(koordinator_pod(BOTH, gpu_partition_spec={}), "translated"),
    TOPOLOGY: Row(
        koordinator_pod({"gpu": 100}, numa_topology_spec={"numaTopologyPolicy": "SingleNUMANode"}), "approximated"
    ),
    BINDING: Row(koordinator_pod({"gpu": 100}, resource_spec={"requiredCPUBindPolicy": "FullPCPUs"}), "approximated"),
    KOORD + "gpu-isolation-provider": Row(labelled(KOORD + "gpu-isolation-provider"), ""),
    "scheduling.koordinator.sh/gpu-minors": Row(koordinator_pod({"gpu": 100}, gpu_minors=1), "left"),
    "scheduling.koordinator.sh/bind-timestamp": Row(koordinator_pod({"gpu": 100}, bind_timestamp=1), "left"),
    "scheduling.koordinator.sh/device-allocated": Row(koordinator_pod({"gpu": 100}, device_allocated={}), "left"),
    "node.koordinator.sh/gpu-vendor": Row(on("node.koordinator.sh/gpu-vendor", "huawei"), "left"),
    **{key: Row(on(key), "") for key in ("node.koordinator.sh/gpu-model", "node.koordinator.sh/gpu-driver-version")},
}


def koordinator(*limits: dict, fleet=UNKNOWN, hints: dict | None = None, config: dict | None = None):
    value = pod(
        *({KOORD + key: amount for key, amount in limit.items()} for limit in limits),
        annotations={key: json.dumps(hint) for key, hint in (hints or {}).items()},
        scheduler="koord-scheduler",
    )
    return became(value, fleet=fleet, **(config or {}))


def spoken(*containers: dict, **more) -> dict:
    limits = [{KOORD + key: value for key, value in each.items()} for each in containers]
    return pod(*limits, scheduler="koord-scheduler", **more)


def test_compute_and_memory_in_bytes():
    done = koordinator({"gpu-core": 50, "gpu-memory": "8Gi"})
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "8Gi", "cores": "50"}}]


def test_memory_alone_has_no_compute():
    done = koordinator({"gpu-memory": "8Gi"})
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "8Gi", "cores": "0"}}]


def test_bytes_are_divided_and_rounded_down():
    done = koordinator({"gpu.shared": 3, "gpu-memory": "1000"})
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "333", "cores": "0"}}] * 3


@pytest.mark.parametrize(
    "limits",
    [
        {"gpu": 100, "gpu-core": 50},
        {"gpu-memory": "8Gi", "gpu-memory-ratio": 50},
        {"gpu.shared": 2},
        {"gpu-core": 100, "gpu.shared": 2},
    ],
)
def test_combinations_that_koordinator_refuses(limits):
    assert refused(koordinator(limits))


def test_whole_gpus_of_the_device_plugin_name_are_seen_by_all_containers():
    value = pod({"nvidia.com/gpu": 2}, {}, scheduler="koord-scheduler")
    done = became(value, meanings={"nvidia.com/gpu": "koordinator"})
    after = patched(value, done)["spec"]
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 2}]
    assert [one["resources"]["claims"] for one in after["containers"]] == [[{"name": "drawbridge-pod-gpu"}]] * 2
    assert after["schedulerName"] == "default-scheduler"


def test_the_device_plugin_name_beside_koordinators_is_refused():
    value = pod({"nvidia.com/gpu": 1, KOORD + "gpu": 100})
    assert refused(became(value, meanings={"nvidia.com/gpu": "koordinator"}))


def test_with_the_webhook_off_the_raw_sum_counts():
    done = koordinator({"gpu": 50}, {"gpu": 50}, config={"koordinator": {"webhook": False}})
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 1}]


def test_rdma_in_hundreds_is_whole_devices():
    assert exactly(koordinator({"rdma": 200})) == [{"class": "dranet", "count": 2}]


def test_a_share_of_a_network_device_is_left_unless_declared():
    assert untouched(koordinator({"rdma": 30}))
    done = koordinator({"rdma": 30}, config={"koordinator": {"wholeNICForShare": True}})
    assert exactly(done) == [{"class": "dranet", "count": 1}]
    assert outcomes(done)[KOORD + "rdma"] == "approximated"


def nics(*bandwidths: str, shared: bool = True, missing: int = 0) -> Inventory:
    """Make a node with a network card of each bandwidth, and cards that publish none."""
    policy = {"requestPolicy": {"default": "1G", "validRange": {"min": "1G", "step": "1G"}}}
    root = {"resource.kubernetes.io/pcieRoot": {"string": "pci0000:10"}}
    cards = [{"capacity": {"bandwidth": {"value": bandwidth, **policy}}} for bandwidth in bandwidths] + [
        {} for _ in range(missing)
    ]
    devices = [
        {"name": f"card-{i}", "attributes": root, "allowMultipleAllocations": shared, **card}
        for i, card in enumerate(cards)
    ]
    gpu = {"name": "gpu", "attributes": {**root, "type": {"string": "gpu"}}}
    return seen(("dra.net", "dranet", devices), ("gpu.nvidia.com", "gpu.nvidia.com", [gpu]))


def seen(*published: tuple[str, str, list[dict]]) -> Inventory:
    """A node on which drivers publish devices, each with a class that takes in all of them."""
    return Inventory.gather(classes_of(published), slices_of("n", published), ())


def classes_of(published: tuple[tuple[str, str, list[dict]], ...]) -> list[DeviceClass]:
    chosen = {name: {"cel": {"expression": f"device.driver == '{driver}'"}} for driver, name, _ in published}
    return [
        wire.convert({"metadata": {"name": name}, "spec": {"selectors": [one]}}, DeviceClass)
        for name, one in chosen.items()
    ]


def slices_of(node: str, published: tuple[tuple[str, str, list[dict]], ...]) -> list[ResourceSlice]:
    slices = []
    for driver, _, found in published:
        pool = {"name": f"{node}-{driver}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": found}
        slices.append(wire.convert({"metadata": {"name": f"{node}-{driver}"}, "spec": spec}, ResourceSlice))
    return slices


@pytest.mark.parametrize(("sharing", "translated"), [(1, False), (2, True)])
def test_one_node_that_shares_its_card_does_not_decide_for_the_pods_of_all(sharing, translated):
    """A thief with a node's credentials may publish anything there; pods that others serve would wait for it."""
    shared = {"allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "100G"}}}
    fleet = {f"n{i}": ("dra.net", "dranet", [{"name": "c", **(shared if i < sharing else {})}]) for i in range(3)}
    slices = [slice_ for node, published in fleet.items() for slice_ in slices_of(node, (published,))]
    done = koordinator({"rdma": 30}, fleet=Inventory.gather(classes_of(tuple(fleet.values())), slices, ()))
    assert done.changed == translated
    assert untouched(done) != translated


def test_a_share_of_a_network_device_is_a_share_of_its_bandwidth_where_the_driver_gives_such():
    done = koordinator({"rdma": 30}, fleet=nics("100G", "25G", "25G"))
    [request] = devices(done)["requests"]
    told = [
        (one["capacity"]["requests"]["bandwidth"], one["selectors"][0]["cel"]["expression"])
        for one in request["firstAvailable"]
    ]
    assert [amount for amount, _ in told] == ["7500M", "30G"]
    assert ["25000000000" in text for _, text in told] == [True, False]
    assert outcomes(done)[KOORD + "rdma"] == "approximated"


def test_the_cards_are_told_apart_by_their_own_bandwidth_and_whole_ones_are_left_alone():
    done = koordinator({"rdma": 30}, fleet=nics("100G", "25G"))
    [request] = devices(done)["requests"]
    texts = [one["selectors"][-1]["cel"]["expression"] for one in request["firstAvailable"]]
    picked = []
    for shared in (True, False):
        for card in ({"bandwidth": {"value": "25G"}}, {"bandwidth": {"value": "100G"}}, {}):
            device = wire.convert({"name": "d", "capacity": card, "allowMultipleAllocations": shared}, Device)
            view = cel.view_of("dra.net", device)
            picked.append([cel.compile(text).matches(view) for text in texts])
    assert picked == [[True, False], [False, True], [False, False]] + [[False, False]] * 3


def test_bandwidths_beyond_the_alternatives_that_a_request_may_have_are_told():
    """Ten bandwidths, of which one request names eight."""
    done = koordinator({"rdma": 30}, fleet=nics(*(f"{number}G" for number in range(10, 110, 10))))
    [request] = devices(done)["requests"]
    assert len(request["firstAvailable"]) == 8
    assert any("2 bandwidths left out" in warning for warning in done.warnings)


@pytest.mark.parametrize("fleet", [nics("100G", shared=False), nics(missing=1)])
def test_a_share_of_a_card_that_is_not_shared_or_says_no_bandwidth_is_left(fleet):
    assert untouched(koordinator({"rdma": 30}, fleet=fleet))


def test_a_share_with_a_selector_of_virtual_functions_is_one_of_them():
    done = koordinator({"rdma": 30}, hints={HINT: {"rdma": {"vfSelector": {}}}})
    assert [one["count"] for one in exactly(done)] == [1]
    assert outcomes(done)[KOORD + "rdma"] == "approximated"
    assert "one virtual function" in detail(done, KOORD + "rdma")


def test_a_share_beside_a_gpu_is_under_its_root():
    done = koordinator({"gpu": 100, "rdma": 50}, hints={JOINT: SAME}, fleet=nics("100G"))
    asked = devices(done)
    assert [request["name"] for request in asked["requests"]] == ["gpu-0", "nic-0"]
    assert asked["constraints"] == [
        {"requests": ["gpu-0", "nic-0"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    ]
    [share] = asked["requests"][1]["firstAvailable"]
    assert share["capacity"]["requests"] == {"bandwidth": "50G"}


NUMA = "resource.kubernetes.io/numaNode"
ONE_NODE = {TOPOLOGY: {"numaTopologyPolicy": "SingleNUMANode"}}
BOUND = {BINDING: {"requiredCPUBindPolicy": "FullPCPUs"}}
HOST = {
    "koordinator": {"hostResources": {"cpu": "cpus", "hugepages-2Mi": "pages"}},
    "classes": {"cpus": "cpus", "pages": "pages"},
    "targets": [
        {"name": "cpus", "driver": "cpu.example.com", "cores": "cpus", "request": "cpus"},
        {
            "name": "pages",
            "driver": "host.example.com",
            "memory": "size",
            "profile": "pageSize",
            "request": "pages",
        },
    ],
}


def hosts(numa: bool = True) -> Inventory:
    place = {NUMA: {"int": 0}} if numa else {}

    def of(name: str, capacity: str, amount: str, **attributes: str) -> dict:
        said = {key: {"string": value} for key, value in attributes.items()}
        policy = {"requestPolicy": {"default": "1", "validRange": {"min": "1"}}}
        shared = {"allowMultipleAllocations": True, "capacity": {capacity: {"value": amount, **policy}}}
        return {"name": name, "attributes": {**place, **said}, **shared}

    gpu = {"name": "gpu", "attributes": {**place, "type": {"string": "gpu"}}}
    nic = {"name": "nic", "attributes": {**place}}
    return seen(
        ("gpu.nvidia.com", "gpu.nvidia.com", [gpu]),
        ("dra.net", "dranet", [nic]),
        ("cpu.example.com", "cpus", [of("cpus", "cpus", "64")]),
        ("host.example.com", "pages", [of("pages", "size", "1Gi", pageSize="2Mi")]),
    )


def hosted(*native: dict, asked: dict, hints: dict, fleet: Inventory, config: dict = HOST):
    """A pod with requests of CPUs and huge pages beside what it asks Koordinator for, by container."""
    value = pod(
        *(
            {**({KOORD + key: one for key, one in asked.items()} if not i else {}), **each}
            for i, each in enumerate(native)
        ),
        annotations={key: json.dumps(hint) for key, hint in hints.items()},
        scheduler="koord-scheduler",
    )
    return value, became(value, fleet=fleet, **config)


def test_a_request_of_zero_devices_on_one_numa_node_makes_no_claim():
    """An amount of 0 is no request, also where it is tied to one NUMA node."""
    _, done = hosted({}, asked={"rdma": 0}, hints=ONE_NODE, fleet=hosts())
    assert outcomes(done) == {}
    assert done.templates == {}


def test_gpu_nic_cpus_and_huge_pages_of_one_numa_node_are_one_claim():
    native = {"cpu": "3", "hugepages-2Mi": "64Mi", "memory": "1Gi"}
    value, done = hosted(native, {"cpu": "1"}, asked={"gpu": 100, "rdma": 100}, hints=ONE_NODE, fleet=hosts())
    asked = devices(done)
    names = ["gpu", "nic", "cpus", "pages"]
    assert [request["name"] for request in asked["requests"]] == names
    assert asked["constraints"] == [{"requests": names, "matchAttribute": NUMA}]
    amounts = [one["exactly"]["capacity"]["requests"] for one in asked["requests"][2:]]
    assert amounts == [{"cpus": "4"}, {"size": "64Mi"}]
    after = patched(value, done)["spec"]["containers"]
    assert after[0]["resources"]["limits"] == native, "what the node and quotas count stays"
    told = json.loads(patched(value, done)["metadata"]["annotations"]["drawbridge.dev/devices"])
    assert [one["key"] for one in told["c0"]] == [KOORD + "gpu", KOORD + "rdma", "cpu", "hugepages-2Mi"]


def test_the_configuration_of_the_page_does_so_without_an_inventory():
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
    [block] = re.findall(r"## CPUs and huge pages by claim\n.*?```yaml\n(.*?)```", page, re.DOTALL)
    [document] = manifests.parse(block)
    native = {"cpu": "3", "hugepages-2Mi": "64Mi"}
    _, done = hosted(native, asked={"gpu": 100, "rdma": 100}, hints=ONE_NODE, fleet=UNKNOWN, config=document.object)
    assert [request["name"] for request in devices(done)["requests"]] == ["gpu", "nic", "cpus", "pages"]


def test_pairs_stay_pairs_on_one_numa_node():
    fleet = hosts()
    _, done = hosted({"cpu": "2"}, asked={"gpu": 200, "rdma": 200}, hints={**ONE_NODE, JOINT: SAME}, fleet=fleet)
    ties = [one["requests"] for one in devices(done)["constraints"]]
    assert ties == [["gpu-0", "nic-0"], ["gpu-1", "nic-1"], ["gpu-0", "nic-0", "gpu-1", "nic-1", "cpus"]]


def test_bound_cpus_are_a_claim_of_their_own():
    _, done = hosted({"cpu": "2"}, asked={"gpu": 100}, hints=BOUND, fleet=hosts())
    assert len(done.templates) == 2
    assert outcomes(done)[BINDING] == "approximated"
    assert "own request stays" in detail(done, BINDING)


@pytest.mark.parametrize(
    ("hints", "native", "fleet", "words"),
    [
        (ONE_NODE, {"cpu": "1500m"}, hosts(), "not a whole number"),
        (ONE_NODE, {"cpu": "2"}, hosts(numa=False), "do not publish"),
        ({**ONE_NODE, HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}}, {"cpu": "2"}, hosts(), "ApplyForAll"),
    ],
)
def test_a_numa_policy_that_no_claim_can_express_leaves_the_pod_with_a_reason(hints, native, fleet, words):
    rdma = 1 if HINT in hints else 100
    _, done = hosted(native, asked={"gpu": 100, "rdma": rdma}, hints=hints, fleet=fleet)
    assert untouched(done)
    assert any(words in decision.detail for decision in done.decisions)


def test_without_a_word_of_the_administrators_no_cpu_is_claimed_and_what_is_lost_is_said():
    _, done = hosted({"cpu": "2"}, asked={"gpu": 100}, hints={**ONE_NODE, **BOUND}, fleet=hosts(), config={})
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 1}]
    assert "is lost" in detail(done, TOPOLOGY)
    assert "is lost" in detail(done, BINDING)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"numaTopologyPolicy": "Restricted"}, "Restricted, the fewest NUMA nodes"),
        ({"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": "Required"}, "Exclusive Required is lost"),
    ],
)
def test_a_required_numa_policy_that_is_not_kept_is_reported_as_lost(spec, words):
    _, done = hosted({"cpu": "2"}, asked={"gpu": 100}, hints={TOPOLOGY: spec}, fleet=hosts())
    assert done.changed
    assert words in detail(done, TOPOLOGY)
    assert outcomes(done)[TOPOLOGY] == "approximated"
    softer = {**spec, "singleNUMANodeExclusive": "Preferred", "numaTopologyPolicy": "BestEffort"}
    _, done = hosted({"cpu": "2"}, asked={"gpu": 100}, hints={TOPOLOGY: softer}, fleet=hosts())
    assert "lost" not in detail(done, TOPOLOGY)


@pytest.mark.parametrize(
    "hints", [{TOPOLOGY: {"numaTopologyPolicy": "BestEffort"}}, {BINDING: {"preferredCPUBindPolicy": "FullPCPUs"}}, {}]
)
def test_a_preference_claims_nothing(hints):
    _, done = hosted({"cpu": "2"}, asked={"gpu": 100}, hints=hints, fleet=hosts())
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 1}]
    assert {outcomes(done)[key] for key in hints} <= {"translated"}


@pytest.mark.parametrize(
    ("declared", "words"), [({"memory": "cpus"}, "not a pod resource"), ({"cpu": "unknown"}, "unknown target")]
)
def test_unknown_resources_and_targets_in_the_configuration_are_reported(declared, words):
    with pytest.raises(AssertionError, match=words):
        became(koordinator_pod({"gpu": 100}), koordinator={"hostResources": declared})


def test_apply_for_all_takes_all_matching_devices():
    done = koordinator({"rdma": 1}, hints={HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}})
    (request,) = devices(done)["requests"]
    assert request["exactly"] == {"deviceClassName": "dranet", "allocationMode": "All"}


def test_apply_for_all_has_no_effect_on_several_whole_devices():
    done = koordinator({"rdma": 200}, hints={HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}})
    assert exactly(done) == [{"class": "dranet", "count": 2}]


@pytest.mark.parametrize(("policy", "outcome"), [("DeviceLevel", "translated"), ("", "approximated")])
def test_requests_as_count(policy, outcome):
    hint = {"rdma": {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": policy}}
    done = koordinator({"rdma": 3}, hints={HINT: hint})
    assert exactly(done) == [{"class": "dranet", "count": 3}]
    assert outcomes(done)[KOORD + "rdma"] == outcome


def test_a_virtual_function_can_be_demanded():
    done = koordinator({"rdma": 100}, hints={HINT: {"rdma": {"vfSelector": {}}}})
    assert exactly(done) == [
        {"class": "dranet", "count": 1, "cel": ['device.attributes["dra.net"].?isSriovVf.orValue(false)']}
    ]


@pytest.mark.parametrize(("kind", "selector"), [("rdma", "vfSelector"), ("rdma", "selector"), ("gpu", "selector")])
def test_a_label_without_an_attribute_is_left(kind, selector):
    hint = {kind: {selector: {"matchLabels": {"a": "b"}}}}
    done = koordinator({kind: 100}, hints={HINT: hint}, config=LABELS)
    assert untouched(done)
    assert "koordinator.deviceLabels" in detail(done, HINT)


LABELS = {"koordinator": {"deviceLabels": {"type": "nic.example.com/model", "room": "nic.example.com/in"}}}
IN = '("model" in device.attributes["nic.example.com"] && device.attributes["nic.example.com"]["model"] in ["fast","slow"])'  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "values", "text"),
    [
        ("In", ["fast", "slow"], IN),
        ("NotIn", ["fast", "slow"], f"!{IN}"),
        ("Exists", [], '"model" in device.attributes["nic.example.com"]'),
        ("DoesNotExist", [], '!("model" in device.attributes["nic.example.com"])'),
    ],
)
def test_a_label_selector_asks_for_the_attribute_that_its_label_is_declared_to_be(operator, values, text):
    selector = {"matchExpressions": [{"key": "type", "operator": operator, "values": values}]}
    done = koordinator({"rdma": 100}, hints={HINT: {"rdma": {"selector": selector}}}, config=LABELS)
    (one,) = exactly(done)
    assert [part.replace(", ", ",") for part in one["cel"]] == [text]
    labels = {"spec": "a", "fast": "fast", "slow": "slow", "": None}
    matching = {name for name, model in labels.items() if _has_model(one["cel"][0], model)}
    expected = {"In": {"fast", "slow"}, "NotIn": {"spec", ""}, "Exists": {"spec", "fast", "slow"}, "DoesNotExist": {""}}
    assert matching == expected[operator]


def _has_model(text, model):
    attributes = {} if model is None else {"model": {"string": model}}
    device = wire.convert({"name": "d", "attributes": attributes}, Device)
    return cel.compile(text, cel.NEW).matches(cel.view_of("nic.example.com", device))


def test_labels_of_a_gpu_and_of_a_virtual_function_are_both_asked_for():
    both = {"selector": {"matchLabels": {"type": "fast"}}, "vfSelector": {"matchLabels": {"room": "b"}}}
    (one,) = exactly(koordinator({"rdma": 100}, hints={HINT: {"rdma": both}}, config=LABELS))
    assert one["cel"][0].endswith("isSriovVf.orValue(false)")
    assert [part in one["cel"][1] for part in ('["model"] in', '["in"] in')] == [True, True]
    (one,) = exactly(koordinator({"gpu": 100}, hints={HINT: {"gpu": {"selector": both["selector"]}}}, config=LABELS))
    assert '["model"] in ["fast"]' in one["cel"][0]


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": []},
        {"matchLabels": {"type": 1}},
        {"matchExpressions": [{"key": "type", "operator": "in", "values": ["a"]}]},
        {"matchExpressions": [{"key": "type", "operator": "In"}]},
        {"matchExpressions": [{"key": "type", "operator": "Exists", "values": ["a"]}]},
    ],
)
def test_a_malformed_label_selector_is_refused(selector):
    for name in ("selector", "vfSelector"):
        assert refused(koordinator({"rdma": 100}, hints={HINT: {"rdma": {name: selector}}}, config=LABELS))


def test_a_label_selector_of_a_size_that_no_claim_may_have_is_left():
    values = [f"value-{number}" for number in range(1_000)]
    selector = {"matchExpressions": [{"key": "type", "operator": "In", "values": values}]}
    assert untouched(koordinator({"rdma": 100}, hints={HINT: {"rdma": {"selector": selector}}}, config=LABELS))


def test_an_attribute_of_a_label_has_a_full_name():
    with pytest.raises(AssertionError, match=r"deviceLabels/type.*domain and a name"):
        became(koordinator_pod({"gpu": 100}), koordinator={"deviceLabels": {"type": "model"}})


@pytest.mark.parametrize("key", [KOORD + "fpga", "huawei.com/npu-core"])
def test_devices_without_a_driver_are_left(key):
    assert untouched(became(pod({key: 100, KOORD + "gpu": 100})))


@pytest.mark.parametrize("key", [JOINT, HINT, PARTITION])
def test_malformed_annotations_are_refused(key):
    assert refused(became(pod({KOORD + "gpu": 100}, annotations={key: "{"})))
    assert refused(became(pod({KOORD + "gpu": 100}, annotations={key: "[1]"})))


def test_a_designated_allocation_is_left():
    assert untouched(koordinator({"gpu": 100}, hints={"scheduling.koordinator.sh/device-allocated": {}}))


@pytest.mark.parametrize("key", ["scheduling.koordinator.sh/gpu-minors", "scheduling.koordinator.sh/bind-timestamp"])
def test_a_pod_that_koordinator_has_placed_is_left(key):
    assert untouched(koordinator({"gpu": 100}, hints={key: 1}))


SAME = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}


def test_without_a_scope_nothing_is_demanded_and_a_warning_says_so():
    done = koordinator({"gpu": 200, "rdma": 200}, hints={JOINT: {"deviceTypes": ["gpu", "rdma"]}})
    assert len(done.templates) == 2
    assert not any("constraints" in spec["spec"]["devices"] for spec in done.templates.values())
    assert outcomes(done)[JOINT] == "approximated"


def test_joint_allocation_of_one_type_is_without_effect():
    done = koordinator({"gpu": 200}, hints={JOINT: SAME})
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 2}]
    assert outcomes(done)[JOINT] == "translated"


def test_counts_that_do_not_pair_are_left():
    assert untouched(koordinator({"gpu": 200, "rdma": 300}, hints={JOINT: SAME}))


def test_one_network_device_ties_all_gpus_to_its_root():
    done = koordinator({"gpu": 200, "rdma": 100}, hints={JOINT: SAME})
    assert devices(done)["constraints"] == [
        {"requests": ["gpu-0", "gpu-1", "nic"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    ]


def test_half_a_gpu_beside_a_network_device():
    done = koordinator({"gpu-core": 50, "gpu-memory": "8Gi", "rdma": 100}, hints={JOINT: SAME})
    gpu, nic = (strip(request["exactly"]) for request in devices(done)["requests"])
    assert gpu == {"class": HAMI, "count": 1, "capacity": {"memory": "8Gi", "cores": "50"}}
    assert nic == {"class": "dranet", "count": 1}


def test_more_pairs_than_a_claim_holds_are_split_between_pairs():
    value = pod({KOORD + "gpu": 2000, KOORD + "rdma": 2000}, annotations={JOINT: json.dumps(SAME)})
    done = became(value)
    assert len(patched(value, done)["spec"]["resourceClaims"]) == 2
    assert all(len(spec["spec"]["devices"]["requests"]) <= 32 for spec in done.templates.values())


@pytest.mark.parametrize(
    ("asked", "counts"),
    [({"gpu": 100, "rdma": 200}, (1, 2)), ({"gpu": 200, "rdma": 200}, (2, 2)), ({"gpu": 200, "rdma": 100}, (2, 1))],
)
def test_the_devices_annotation_counts_both_device_classes_of_a_pair(asked, counts):
    value = spoken(asked, annotations=PAIRED)
    [told] = json.loads(patched(value, became(value))["metadata"]["annotations"]["drawbridge.dev/devices"]).values()
    classes = ("gpu.nvidia.com", "dranet")
    keys = (KOORD + "gpu", KOORD + "rdma")
    assert told == [
        {"key": key, "class": name, "count": count} for key, name, count in zip(keys, classes, counts, strict=True)
    ]


def test_a_bridge_that_manages_the_other_side_of_a_pair_is_asked():
    bridge = {"schedulerName": "drawbridge", "drivers": ["dra.net"]}
    value = spoken({"gpu": 100, "rdma": 100}, annotations=PAIRED)
    assert patched(value, became(value, bridge=bridge))["spec"]["schedulerName"] == "drawbridge"


def test_apply_for_all_under_one_switch_is_left():
    hints = {JOINT: SAME, HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}}
    assert untouched(koordinator({"gpu": 100, "rdma": 100}, hints=hints))


def test_a_numa_scope_ties_whole_gpus():
    done = koordinator(
        {"gpu": 200}, hints={HINT: {"gpu": {"requiredTopologyScope": "NUMANode"}}}, fleet=example_fleet()
    )
    assert devices(done)["constraints"] == [{"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/numaNode"}]


def test_several_shares_can_not_be_held_to_a_scope():
    hint = {HINT: {"gpu": {"requiredTopologyScope": "NUMANode"}}}
    assert refused(koordinator({"gpu-core": 100, "gpu-memory": "8Gi", "gpu.shared": 2}, hints=hint))


def test_scopes_of_other_hints_have_no_effect():
    done = koordinator({"rdma": 100}, hints={HINT: {"rdma": {"requiredTopologyScope": "NUMANode"}}})
    assert exactly(done) == [{"class": "dranet", "count": 1}]


def test_a_partition_with_ring_bandwidth_is_left():
    assert untouched(koordinator({"gpu": 200}, hints={PARTITION: {"ringBusBandwidth": "100Gi"}}))


@pytest.mark.parametrize(("spec", "lost"), [({}, False), ({"allocatePolicy": "BestEffort"}, False), ({"allocatePolicy": "Restricted"}, True)])  # fmt: skip
def test_where_partitions_are_published_the_gpus_are_one_and_a_wish_for_the_best_is_named_as_lost(spec, lost):
    cards = [{"name": f"g{at}", "attributes": {"type": {"string": "gpu"}, "partition2": {"string": "a"}}} for at in (0, 1)]  # fmt: skip
    done = koordinator({"gpu": 200}, hints={PARTITION: spec}, fleet=seen(("gpu.nvidia.com", "gpu.nvidia.com", cards)))
    assert devices(done)["constraints"] == [{"requests": ["gpu"], "matchAttribute": "gpu.nvidia.com/partition2"}]
    assert outcomes(done)[PARTITION] == "approximated"
    assert ("Restricted, which takes only the best, is lost" in detail(done, PARTITION)) is lost


def test_a_partition_does_not_concern_shares():
    done = koordinator({"gpu-core": 50, "gpu-memory": "8Gi"}, hints={PARTITION: {}})
    assert done.changed
    assert outcomes(done)[PARTITION] == "translated"


def test_init_containers_and_sidecars_see_the_pods_devices():
    value = pod(
        {KOORD + "gpu": 100},
        {},
        init=(container("i"), container("s", {}, restartPolicy="Always")),
        scheduler="koord-scheduler",
    )
    after = patched(value, became(value))["spec"]
    every = [*after["initContainers"], *after["containers"]]
    assert [one["resources"]["claims"] for one in every] == [[{"name": "drawbridge-pod-gpu"}]] * 4


def test_two_systems_in_one_pod_are_a_double_request():
    assert untouched(became(pod({"nvidia.com/gpumem": 1000}, {KOORD + "gpu": 100})))
    assert untouched(became(pod({"nvidia.com/gpumem": 1000, KOORD + "gpu": 100})))


def test_a_declared_meaning_is_for_the_bare_key_only():
    value = pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1000}, {"nvidia.com/gpu": 1})
    done = became(value, **WHOLE)
    assert len(done.templates) == 2
    claims = [one["resources"]["claims"] for one in patched(value, done)["spec"]["containers"]]
    assert claims == [[{"name": "drawbridge-c0-gpu"}], [{"name": "drawbridge-c1-gpu"}]]


def test_13_more_than_one_gpu_on_one_gpu_is_refused():
    assert refused(became(spoken({"gpu": 150})))


def test_14_compute_without_memory_is_refused():
    assert refused(became(spoken({"gpu-core": 50})))


def test_15_totals_are_divided_by_the_number_of_gpus():
    done = became(spoken({"gpu.shared": 2, "gpu-core": 100, "gpu-memory": "16Gi"}))
    assert exactly(done) == [share(memory="8Gi", cores="50")] * 2


def test_16_gpus_and_nics_under_one_switch_are_pairs():
    done = became(spoken({"gpu": 200, "rdma": 200}, annotations=PAIRED))
    assert [request["name"] for request in devices(done)["requests"]] == ["gpu-0", "nic-0", "gpu-1", "nic-1"]
    assert devices(done)["constraints"] == [
        {"requests": ["gpu-0", "nic-0"], "matchAttribute": "resource.kubernetes.io/pcieRoot"},
        {"requests": ["gpu-1", "nic-1"], "matchAttribute": "resource.kubernetes.io/pcieRoot"},
    ]


def test_31_two_halves_are_two_gpus_at_half_for_the_pod():
    done = became(spoken({"gpu": 50}, {"gpu": 50}), **SIZES)
    assert alternatives(done) == [[{"memory": "20Gi", "cores": "50"}, {"memory": "23034Mi", "cores": "50"}]] * 2
    assert devices(done)["constraints"] == [
        {"requests": ["gpu-0", "gpu-1"], "distinctAttribute": f"{HAMI}/uuid"},
        {"requests": ["gpu-0", "gpu-1"], "matchAttribute": f"{HAMI}/productName"},
    ]
    assert untouched(became(spoken({"gpu": 50}, {"gpu": 50})))


def test_32_containers_add_up_to_whole_gpus_that_both_see():
    value = spoken({"gpu": 150}, {"gpu": 50})
    done = became(value)
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 2}]
    claims = [one["resources"]["claims"] for one in patched(value, done)["spec"]["containers"]]
    assert claims == [[{"name": "drawbridge-pod-gpu"}]] * 2


def test_33_a_sum_that_does_not_divide_is_refused():
    assert refused(became(spoken({"gpu": 31}, {"gpu": 50})))


def test_34_a_pod_that_went_through_koordinators_webhook_is_the_same():
    raw = became(spoken({"gpu": 50}), **SIZES)
    rewritten = became(spoken({"gpu-core": 50, "gpu-memory-ratio": 50, "gpu.shared": 1}), **SIZES)
    assert raw.templates == rewritten.templates
    assert raw.templates


def test_35_a_partition_is_never_dropped():
    value = spoken({"gpu": 200}, annotations={"scheduling.koordinator.sh/gpu-partition-spec": "{}"})
    assert untouched(became(value))


def test_41_a_scheduler_that_is_kept_by_policy_counts_too():
    value = spoken({"gpu-core": 50, "gpu-memory": "8Gi"})
    assert became(value).changed
    assert untouched(became(value, targetScheduler=""))


def test_init_containers_of_koordinator_are_not_rewritten():
    alone = pod({}, init=(container("i", {KOORD + "gpu": 100}),), scheduler="koord-scheduler")
    assert exactly(became(alone)) == [{"class": "gpu.nvidia.com", "count": 1}]
    beside = pod({KOORD + "gpu": 100}, init=(container("i", {KOORD + "gpu": 100}),), scheduler="koord-scheduler")
    assert refused(became(beside))


def test_a_vendor_that_is_selected_by_name_keeps_its_pods():
    vendor = "node.koordinator.sh/gpu-vendor"
    assert became(on(vendor, "nvidia")).changed
    done = became(on(vendor, "Huawei"))
    assert untouched(done)
    assert "Huawei" in done.warnings[0]


def test_where_a_pod_may_run_says_nothing_about_the_system_its_numbers_are_for():
    value = pod({"nvidia.com/gpu": 2}, nodeSelector={"node.koordinator.sh/gpu-vendor": "nvidia"})
    done = became(value, fleet=example_fleet())
    assert [decision.dialect for decision in done.decisions] == ["nvidia"]


def detail(done, key: str) -> str:
    return "; ".join(decision.detail for decision in done.decisions if decision.key == key)


@pytest.mark.parametrize(
    ("limits", "hint", "outcome", "words"),
    [
        ({"rdma": 100}, {"rdma": {"vfSelector": {}}}, "translated", "virtual functions only"),
        ({"rdma": 100}, {"rdma": {"exclusivePolicy": "DeviceLevel"}}, "translated", "rdma.exclusivePolicy holds"),
        ({"rdma": 100}, {"rdma": {"exclusivePolicy": "PCIeLevel"}}, "translated", "PCIeLevel has no effect"),
        ({"rdma": 100}, {"rdma": {"requiredTopologyScope": "PCIe"}}, "translated", "rdma.requiredTopologyScope has no"),
        ({"rdma": 200}, {"rdma": {"allocateStrategy": "ApplyForAll"}}, "translated", "rdma.allocateStrategy has no"),
        ({"gpu": 100}, {"gpu": {"allocateStrategy": "ApplyForAll"}}, "translated", "gpu.allocateStrategy has no"),
        ({"gpu": 100}, {"gpu": {"requiredTopologyScope": "PCIe"}}, "translated", "requiredTopologyScope PCIe holds"),
        ({"gpu": 200}, {"gpu": {"requiredTopologyScope": "Node"}}, "translated", "requiredTopologyScope Node holds"),
        ({"gpu": 200}, {"gpu": {"requiredTopologyScope": "Device"}}, "approximated", "Device is lost"),
        ({"gpu": 100}, {"gpu": {"exclusivePolicy": "DeviceLevel"}}, "translated", "gpu.exclusivePolicy holds"),
        (BOTH, {"gpu": {"exclusivePolicy": "DeviceLevel"}}, "approximated", "exclusivePolicy is lost"),
        ({"gpu": 100}, {"rdma": {"vfSelector": {}}}, "translated", "the pod requests nothing of type rdma"),
    ],
)
def test_each_word_of_a_hint_is_in_the_report(limits, hint, outcome, words):
    done = koordinator(limits, hints={HINT: hint})
    assert outcomes(done)[HINT] == outcome
    assert words in detail(done, HINT)


STRATEGY = "drawbridge.dev/strategy"
NEAR = {JOINT: json.dumps({"deviceTypes": ["gpu", "rdma"]})}


def joint_pod(**annotations: str) -> dict:
    asked = {KOORD + "gpu": 100, KOORD + "rdma": 100}
    return pod(asked, scheduler="koord-scheduler", annotations={**NEAR, **annotations})


BRIDGE = {"bridge": {"schedulerName": "drawbridge", "drivers": ["gpu.nvidia.com"]}}


def test_without_a_scope_the_bridge_is_told_to_place_devices_near_each_other():
    value = joint_pod()
    done = became(value, **BRIDGE)
    after = patched(value, done)
    assert after["spec"]["schedulerName"] == "drawbridge"
    assert after["metadata"]["annotations"][STRATEGY] == "topology"
    assert "the bridge prefers" in detail(done, JOINT)
    assert "lost" not in detail(done, JOINT)


def test_without_the_bridge_it_is_lost_and_a_strategy_of_the_pod_itself_stands():
    plain = joint_pod()
    done = became(plain)
    assert STRATEGY not in patched(plain, done)["metadata"]["annotations"]
    assert "lost" in detail(done, JOINT)
    own = joint_pod(**{STRATEGY: "CompactFirst"})
    done = became(own, **BRIDGE)
    assert patched(own, done)["metadata"]["annotations"][STRATEGY] == "CompactFirst"
    assert "the pod's own" in detail(done, JOINT)


def test_a_required_scope_needs_no_strategy():
    value = pod({KOORD + "gpu": 100, KOORD + "rdma": 100}, scheduler="koord-scheduler", annotations=PAIRED)
    assert STRATEGY not in patched(value, became(value, **BRIDGE))["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("spec", "cpus"),
    [
        ({"resources": {"requests": {"cpu": "6"}}}, "6"),
        ({"initContainers": [container("i", {"cpu": "5"})]}, "5"),
        ({"initContainers": [container("s", {"cpu": "3"}, restartPolicy="Always"), container("i", {"cpu": "4"})]}, "7"),
        ({"initContainers": [container("s", {"cpu": "3"}, restartPolicy="Always")]}, "5"),
        ({"initContainers": [container("i", {"cpu": "-5"}), container("j", {"cpu": "many"})]}, "2"),
    ],
)
def test_the_cpus_of_a_claim_are_those_that_the_pods_scheduler_counts(spec, cpus):
    value = spoken({"gpu": 100}, annotations={key: json.dumps(one) for key, one in BOUND.items()}, **spec)
    value["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    done = became(value, fleet=hosts(), **HOST)
    [claim] = [
        template for template in done.templates.values() if template["spec"]["devices"]["requests"][0]["name"] == "cpus"
    ]
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"] == {"cpus": cpus}


@pytest.mark.parametrize("amount", ["1e30", "9" * 4000, "1e-30", "9223372036854775808"])
def test_an_amount_that_no_claim_can_say_leaves_the_pod(amount):
    _, done = hosted({"cpu": amount}, asked={"gpu": 100}, hints=ONE_NODE, fleet=hosts())
    assert untouched(done)
    assert "whole number" in detail(done, "cpu")


@pytest.mark.parametrize(
    ("limits", "requests", "refused_"),
    [("1500m", "1500m", False), ("2", "1", False), (None, "1", False), ("x", "x", True), ("-1", "-1", True)],
)
def test_a_name_in_kubernetes_io_is_refused_for_no_amount_that_the_api_server_takes(limits, requests, refused_):
    key = "kubernetes.io/gpu-memory"
    value = pod({})
    sides = {"limits": limits, "requests": requests}
    value["spec"]["containers"][0]["resources"] = {side: {key: said} for side, said in sides.items() if said}
    done = became(value)
    assert refused(done) == refused_
    assert untouched(done) != refused_


@pytest.mark.parametrize("key", ["pod-group.scheduling.sigs.k8s.io", "quota.scheduling.koordinator.sh/name"])
def test_a_label_of_several_coscheduling_schedulers_is_not_called_koordinators(key):
    done = became(labelled(key))
    assert ("only Koordinator keeps it" in detail(done, key)) is (key != "pod-group.scheduling.sigs.k8s.io")
    assert "the pod keeps its scheduler" in detail(done, key)
