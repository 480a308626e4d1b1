"""The rail webhook of openshift-psap: pairs of a GPU and a network device."""

import pytest

from cluster import manifests
from dra.objects import DeviceClass, Node, ResourceSlice
from tests.webhook.dialects.rows import Row
from tests.webhook.pods import (
    EXAMPLES,
    SIZES,
    WHOLE,
    became,
    configured,
    container,
    devices,
    pod,
    read_objects,
    refused,
    untouched,
)
from webhook.dialects import NUMA_NODE, PCIE_ROOT
from webhook.state import Inventory
from webhook.state.configuration import read

HEAD = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration"}
EFA = "vpc.amazonaws.com/efa"
PAIRS = "dra.llm-d.io/gpu-nic-pair"
ACROSS, MADE = "dra.llm-d.io/allow-cross-numa", "dra.llm-d.io/mutated"
ROWS = {
    PAIRS: Row(pod({PAIRS: 2}), "approximated"),
    ACROSS: Row(pod({PAIRS: 6}, annotations={ACROSS: "true"}), "translated"),
    MADE: Row(pod({PAIRS: 2}, annotations={MADE: "true"}), "left"),
}


def ties(done):
    return [(one["requests"], one["matchAttribute"]) for one in devices(done)["constraints"]]


def test_two_pairs_are_two_of_each_kind_joined_by_root_and_by_numa_node():
    done = became(pod({PAIRS: 2}))
    requests = devices(done)["requests"]
    assert [request["name"] for request in requests] == ["gpu-0", "nic-0", "gpu-1", "nic-1"]
    assert [request["exactly"]["deviceClassName"] for request in requests] == ["gpu.nvidia.com", "dranet"] * 2
    assert [request["exactly"]["count"] for request in requests] == [1] * 4
    assert ties(done) == [
        (["gpu-0", "nic-0"], PCIE_ROOT),
        (["gpu-1", "nic-1"], PCIE_ROOT),
        (["gpu-0", "nic-0", "gpu-1", "nic-1"], NUMA_NODE),
    ]


@pytest.mark.parametrize(
    ("count", "annotations", "tied"),
    [(1, {}, 0), (4, {}, 1), (4, {ACROSS: "true"}, 0), (4, {ACROSS: "yes"}, 1), (6, {ACROSS: "true"}, 0), (8, {}, 0)],
)
def test_pairs_are_on_one_numa_node_unless_allowed_or_all_of_a_node(count, annotations, tied):
    done = became(pod({PAIRS: count}, annotations=annotations))
    attributes = [attribute for _, attribute in ties(done)]
    assert attributes == [PCIE_ROOT] * count + [NUMA_NODE] * tied


def test_the_sum_over_the_containers_is_seen_by_those_that_ask():
    value = pod({PAIRS: 1}, {}, {PAIRS: 2})
    done = became(value)
    assert len(devices(done)["requests"]) == 6
    assert [one.users for one in done.given] == [("c0", "c2")]


@pytest.mark.parametrize(
    ("count", "options", "code", "remedy"),
    [
        (5, {}, "R004", f"{ACROSS}: 'true'"),
        (9, {}, "R002", "pairsPerNode: 9"),
        (40, {}, "R002", "ask for 8 at most"),
        (3, {"pairsPerNumaNode": 2}, "R004", "ask for 2 or 8"),
        ("1500m", {}, "R001", ""),
        (-1, {}, "R001", ""),
    ],
)
def test_a_pair_request_that_the_rail_webhook_would_reject_is_refused(count, options, code, remedy):
    done = became(pod({PAIRS: count}), llmd=options)
    assert refused(done)
    (said,) = done.refusals
    assert said.code == code
    assert remedy in said.remedy


@pytest.mark.parametrize(("count", "pairs"), [(16, [16]), (20, [10, 10])])
def test_more_pairs_than_a_claim_holds_are_split_between_pairs(count, pairs):
    done = became(pod({PAIRS: count}), llmd={"pairsPerNode": count})
    specs = [one.spec["spec"]["devices"] for one in done.given]
    assert [len(spec["constraints"]) for spec in specs] == pairs
    assert all(len(spec["requests"]) <= 32 for spec in specs)


def test_none_asks_for_nothing_and_an_init_container_is_not_looked_at():
    assert untouched(became(pod({PAIRS: 0})))
    assert untouched(became(pod({}, init=(container("i", {PAIRS: 1}),))))


@pytest.mark.parametrize("options", [{"pairsPerNode": 0}, {"pairsPerNode": 65}, {"pairsPerNumaNode": 9}])
def test_limits_that_make_no_sense_are_found(options):
    made, findings = read({**HEAD, "llmd": options})
    assert made is None
    assert "/llmd/" in str(findings)
    assert configured(llmd={"pairsPerNode": 64})


# What the drivers are told

NIC = {"interface": {"name": "net<i>", "mtu": 9000}}


def interfaces_of(done):
    """Of each claim, the requests and parameters of its entries."""
    every = [one.spec["spec"]["devices"]["config"] for one in done.given]
    assert {entry["opaque"]["driver"] for entries in every for entry in entries} == {"dra.net"}
    return [[(entry["requests"], entry["opaque"]["parameters"]["interface"]) for entry in entries] for entries in every]


def test_every_network_device_is_told_the_same_in_one_entry():
    done = became(pod({PAIRS: 2}), parameters={"nic": {"interface": {"mtu": 9000}}})
    assert interfaces_of(done) == [[(["nic-0", "nic-1"], {"mtu": 9000})]]


def test_each_network_device_is_told_its_number_in_all_of_the_pod():
    done = became(pod({PAIRS: 20}), llmd={"pairsPerNode": 20}, parameters={"nic": NIC})
    entries = [entry for claim in interfaces_of(done) for entry in claim]
    assert len(interfaces_of(done)) == 2
    assert [one["name"] for _, one in entries] == [f"net{i}" for i in range(20)]
    assert [names for names, _ in entries] == [[f"nic-{i}"] for i in range(10)] * 2


def test_devices_that_are_numbered_are_asked_for_one_by_one():
    done = became(pod({EFA: 3}), parameters={"efa": NIC})
    requests = devices(done)["requests"]
    assert [(request["name"], request["exactly"]["count"]) for request in requests] == [
        ("efa-0", 1),
        ("efa-1", 1),
        ("efa-2", 1),
    ]
    assert [one["name"] for _, one in interfaces_of(done)[0]] == ["net0", "net1", "net2"]
    many = became(pod({EFA: 33}), parameters={"efa": NIC})
    assert untouched(many)
    assert "number each device" in many.warnings[0]
    joint = [{"primary": "nvidia.com/gpu", "secondary": EFA}]
    pairs = became(pod({"nvidia.com/gpu": 1, EFA: 2}), joint=joint, parameters={"efa": NIC}, **WHOLE)
    assert untouched(pairs)
    assert "number each device" in pairs.warnings[0]


def test_parameters_of_one_target_are_not_set_on_other_targets():
    done = became(pod({PAIRS: 1}, {"nvidia.com/gpu": 1}), parameters={"efa": NIC}, **WHOLE)
    assert all("config" not in one.spec["spec"]["devices"] for one in done.given)


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"nics": {}}, "/parameters/nics"),
        ({"nic": [1]}, "/parameters/nic"),
        ({"nic": {"x": "y" * 10240}}, "/parameters/nic"),
    ],
)
def test_parameters_that_no_claim_can_have_are_found(parameters, path):
    made, findings = read({**HEAD, "parameters": parameters})
    assert made is None
    assert [finding.path for finding in findings] == [path]


def test_parameters_that_the_driver_would_not_read_are_warned_of():
    assert read({**HEAD, "parameters": {"nic": NIC}})[1] == []
    made, findings = read({**HEAD, "parameters": {"nic": {"interface": {"mtuu": 9000}}}})
    assert made is not None
    assert [(finding.code, finding.severity, finding.path) for finding in findings] == [
        ("D702", "warning", "/parameters/nic/interface/mtuu")
    ]


def test_pairs_stay_where_no_class_gives_network_devices_and_a_warning_says_what_to_declare():
    given = read_objects(manifests.read([EXAMPLES / "drivers" / "gpu.nvidia.com.yaml"]))
    fleet = Inventory.gather(given.of_type(DeviceClass), given.of_type(ResourceSlice), given.of_type(Node))
    done = became(pod({PAIRS: 2}), fleet=fleet)
    assert untouched(done)
    assert "classes: {nic: NAME}" in done.warnings[0]


@pytest.mark.parametrize(
    ("asked", "target", "said", "names"),
    [
        ({"nvidia.com/gpu": 2}, "gpu", {"nvidia.com/gpu": "whole"}, ["gpu"]),
        ({"nvidia.com/mig-1g.5gb": 1}, "mig", {}, ["mig"]),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpumem-percentage": 50}, "vgpu", {}, ["gpu-0", "gpu-1"]),
    ],
)
def test_time_slices_are_said_to_the_driver_of_whichever_device(asked, target, said, names):
    slices = {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}}
    slices |= {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "MigDeviceConfig" if target == "mig" else "GpuConfig",
    }
    done = became(pod(asked), parameters={target: slices}, meanings=said, **SIZES)
    (entry,) = devices(done)["config"]
    assert entry["requests"] == names
    assert entry["opaque"]["parameters"] == slices
