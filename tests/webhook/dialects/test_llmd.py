"""The rail webhook of openshift-psap: pairs of a GPU and a network device."""

import pytest

from cluster import manifests
from dra.objects import DeviceClass, Node, ResourceSlice
from tests.webhook.dialects.rows import Row
from tests.webhook.pods import (
    EXAMPLES,
    GPU_MODELS,
    WHOLE_GPUS,
    container,
    devices,
    pod,
    read_objects,
    refused,
    untouched,
    verdict_of,
)
from tests.webhook.state.configurations import HEAD
from webhook.dialects import NUMA_NODE, PCIE_ROOT
from webhook.state import Inventory
from webhook.state.configuration import read_configuration

EFA = "vpc.amazonaws.com/efa"
PAIRS = "dra.llm-d.io/gpu-nic-pair"
CROSS_NUMA, MUTATED = "dra.llm-d.io/allow-cross-numa", "dra.llm-d.io/mutated"
ROWS = {
    PAIRS: Row(pod({PAIRS: 2}), "approximated"),
    CROSS_NUMA: Row(pod({PAIRS: 6}, annotations={CROSS_NUMA: "true"}), "translated"),
    MUTATED: Row(pod({PAIRS: 2}, annotations={MUTATED: "true"}), "left"),
}


def constraints_of(verdict):
    return [(constraint["requests"], constraint["matchAttribute"]) for constraint in devices(verdict)["constraints"]]


def test_pairs_require_one_numa_node_and_a_pcie_root_each():
    verdict = verdict_of(pod({PAIRS: 2}))
    requests = devices(verdict)["requests"]
    assert [request["name"] for request in requests] == ["gpu-0", "nic-0", "gpu-1", "nic-1"]
    assert [request["exactly"]["deviceClassName"] for request in requests] == ["gpu.nvidia.com", "dranet"] * 2
    assert [request["exactly"]["count"] for request in requests] == [1] * 4
    assert constraints_of(verdict) == [
        (["gpu-0", "nic-0"], PCIE_ROOT),
        (["gpu-1", "nic-1"], PCIE_ROOT),
        (["gpu-0", "nic-0", "gpu-1", "nic-1"], NUMA_NODE),
    ]


@pytest.mark.parametrize(
    ("count", "annotations", "numa_constraints"),
    [
        (1, {}, 0),
        (4, {}, 1),
        (4, {CROSS_NUMA: "true"}, 0),
        (4, {CROSS_NUMA: "yes"}, 1),
        (6, {CROSS_NUMA: "true"}, 0),
        (8, {}, 0),
    ],
    ids=["single", "several", "relaxed", "the value yes", "six relaxed", "all pairs of a node"],
)
def test_pairs_require_one_numa_node_unless_single_relaxed_or_all(count, annotations, numa_constraints):
    verdict = verdict_of(pod({PAIRS: count}, annotations=annotations))
    attributes = [attribute for _, attribute in constraints_of(verdict)]
    assert attributes == [PCIE_ROOT] * count + [NUMA_NODE] * numa_constraints


def test_containers_with_requests_see_the_sum_of_all_requests():
    manifest = pod({PAIRS: 1}, {}, {PAIRS: 2})
    verdict = verdict_of(manifest)
    assert len(devices(verdict)["requests"]) == 6
    assert [claim.users for claim in verdict.added_claims] == [("c0", "c2")]


@pytest.mark.parametrize(
    ("count", "options", "code", "remedy"),
    [
        (5, {}, "R004", f"{CROSS_NUMA}: 'true'"),
        (9, {}, "R002", "pairsPerNode: 9"),
        (40, {}, "R002", "ask for 8 at most"),
        (3, {"pairsPerNumaNode": 2}, "R004", "ask for 2 or 8"),
        ("1500m", {}, "R001", ""),
        (-1, {}, "R001", ""),
    ],
)
def test_a_request_the_rail_webhook_would_reject_is_refused(count, options, code, remedy):
    verdict = verdict_of(pod({PAIRS: count}), llmd=options)
    assert refused(verdict)
    (refusal,) = verdict.refusals
    assert refusal.code == code
    assert remedy in refusal.remedy


@pytest.mark.parametrize(("count", "pairs"), [(16, [16]), (20, [10, 10])])
def test_more_pairs_than_a_claim_holds_are_split_between_pairs(count, pairs):
    verdict = verdict_of(pod({PAIRS: count}), llmd={"pairsPerNode": count})
    specs = [claim.spec["spec"]["devices"] for claim in verdict.added_claims]
    assert [len(spec["constraints"]) for spec in specs] == pairs
    assert all(len(spec["requests"]) <= 32 for spec in specs)


def test_zero_pairs_and_pairs_of_init_containers_are_ignored():
    assert untouched(verdict_of(pod({PAIRS: 0})))
    assert untouched(verdict_of(pod({}, init=(container("i", {PAIRS: 1}),))))


# Parameters for drivers

NUMBERED_INTERFACES = {"interface": {"name": "net<i>", "mtu": 9000}}


def interfaces_of(verdict):
    """Return, for each claim, the requests and the interface parameters of each config entry."""
    configs = [claim.spec["spec"]["devices"]["config"] for claim in verdict.added_claims]
    assert {entry["opaque"]["driver"] for entries in configs for entry in entries} == {"dra.net"}
    return [
        [(entry["requests"], entry["opaque"]["parameters"]["interface"]) for entry in entries] for entries in configs
    ]


def test_equal_parameters_of_all_network_devices_are_one_entry():
    verdict = verdict_of(pod({PAIRS: 2}), parameters={"nic": {"interface": {"mtu": 9000}}})
    assert interfaces_of(verdict) == [[(["nic-0", "nic-1"], {"mtu": 9000})]]


def test_network_devices_are_numbered_across_all_claims_of_the_pod():
    verdict = verdict_of(pod({PAIRS: 20}), llmd={"pairsPerNode": 20}, parameters={"nic": NUMBERED_INTERFACES})
    entries = [entry for claim in interfaces_of(verdict) for entry in claim]
    assert len(interfaces_of(verdict)) == 2
    assert [entry["name"] for _, entry in entries] == [f"net{i}" for i in range(20)]
    assert [names for names, _ in entries] == [[f"nic-{i}"] for i in range(10)] * 2


def test_numbered_devices_are_requested_individually():
    verdict = verdict_of(pod({EFA: 3}), parameters={"efa": NUMBERED_INTERFACES})
    requests = devices(verdict)["requests"]
    counts = {request["name"]: request["exactly"]["count"] for request in requests}
    assert counts == {"efa-0": 1, "efa-1": 1, "efa-2": 1}
    assert [entry["name"] for _, entry in interfaces_of(verdict)[0]] == ["net0", "net1", "net2"]
    many_devices = verdict_of(pod({EFA: 33}), parameters={"efa": NUMBERED_INTERFACES})
    assert untouched(many_devices)
    assert "contain the number of a device" in many_devices.warnings[0]
    joint = [{"primary": "nvidia.com/gpu", "secondary": EFA}]
    pairs_verdict = verdict_of(
        pod({"nvidia.com/gpu": 1, EFA: 2}), joint=joint, parameters={"efa": NUMBERED_INTERFACES}, **WHOLE_GPUS
    )
    assert untouched(pairs_verdict)
    assert "contain the number of a device" in pairs_verdict.warnings[0]


def test_parameters_of_one_target_are_not_set_on_other_targets():
    verdict = verdict_of(pod({PAIRS: 1}, {"nvidia.com/gpu": 1}), parameters={"efa": NUMBERED_INTERFACES}, **WHOLE_GPUS)
    assert all("config" not in claim.spec["spec"]["devices"] for claim in verdict.added_claims)


def test_parameters_ignored_by_the_driver_are_warned_about():
    assert read_configuration({**HEAD, "parameters": {"nic": NUMBERED_INTERFACES}})[1] == []
    configuration, findings = read_configuration({**HEAD, "parameters": {"nic": {"interface": {"mtuu": 9000}}}})
    assert configuration is not None
    assert [(finding.code, finding.severity, finding.path) for finding in findings] == [
        ("D702", "warning", "/parameters/nic/interface/mtuu")
    ]


def test_pairs_without_a_network_class_have_a_remedy():
    objects = read_objects(manifests.read([EXAMPLES / "drivers" / "gpu.nvidia.com.yaml"]))
    fleet = Inventory.gather(objects.of_type(DeviceClass), objects.of_type(ResourceSlice), objects.of_type(Node))
    verdict = verdict_of(pod({PAIRS: 2}), fleet=fleet)
    assert untouched(verdict)
    assert "classes: {nic: NAME}" in verdict.warnings[0]


@pytest.mark.parametrize(
    ("amounts", "target", "meanings", "request_names"),
    [
        ({"nvidia.com/gpu": 2}, "gpu", {"nvidia.com/gpu": "whole"}, ["gpu"]),
        ({"nvidia.com/mig-1g.5gb": 1}, "mig", {}, ["mig"]),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpumem-percentage": 50}, "vgpu", {}, ["gpu-0", "gpu-1"]),
    ],
)
def test_time_slice_parameters_go_to_the_driver_of_each_device(amounts, target, meanings, request_names):
    time_slicing = {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}}
    time_slicing |= {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "MigDeviceConfig" if target == "mig" else "GpuConfig",
    }
    verdict = verdict_of(pod(amounts), parameters={target: time_slicing}, meanings=meanings, **GPU_MODELS)
    (entry,) = devices(verdict)["config"]
    assert entry["requests"] == request_names
    assert entry["opaque"]["parameters"] == time_slicing
