"""Koordinator's NUMA policies: devices, CPUs and huge pages of one NUMA node."""

import json
import re
from pathlib import Path

import pytest

from cluster import manifests
from tests.webhook.dialects.koordinator_pods import (
    BINDING,
    HINT,
    JOINT,
    SAME_PCIE,
    TOPOLOGY,
    details_about,
    fleet_of,
    koordinator_pod,
    koordinator_pod_with_fields,
    koordinator_verdict,
)
from tests.webhook.pods import (
    KOORD,
    UNKNOWN,
    container,
    devices,
    exactly,
    example_fleet,
    outcomes,
    patched,
    pod,
    refused,
    untouched,
    verdict_of,
)
from webhook.state import Inventory

NUMA = "resource.kubernetes.io/numaNode"
ONE_NODE = {TOPOLOGY: {"numaTopologyPolicy": "SingleNUMANode"}}
CPU_BINDING = {BINDING: {"requiredCPUBindPolicy": "FullPCPUs"}}
CPUS_AND_PAGES_BY_CLAIM = {
    "koordinator": {"hostResources": {"cpu": "cpus", "hugepages-2Mi": "pages"}},
    "classes": {"cpus": "cpus", "pages": "pages"},
    "targets": [
        {"name": "cpus", "driver": "cpu.example.com", "cores": "cpus", "request": "cpus"},
        {"name": "pages", "driver": "host.example.com", "memory": "size", "profile": "pageSize", "request": "pages"},
    ],
}


def host_fleet(numa: bool = True) -> Inventory:
    """Return a fleet of one node that publishes a GPU, a network device, CPUs and huge pages, with their NUMA node if `numa`."""
    numa_attribute = {NUMA: {"int": 0}} if numa else {}

    def shared_device(name: str, capacity: str, amount: str, **attributes: str) -> dict:
        string_attributes = {key: {"string": value} for key, value in attributes.items()}
        policy = {"requestPolicy": {"default": "1", "validRange": {"min": "1"}}}
        shared = {"allowMultipleAllocations": True, "capacity": {capacity: {"value": amount, **policy}}}
        return {"name": name, "attributes": {**numa_attribute, **string_attributes}, **shared}

    gpu = {"name": "gpu", "attributes": {**numa_attribute, "type": {"string": "gpu"}}}
    nic = {"name": "nic", "attributes": {**numa_attribute}}
    return fleet_of(
        ("gpu.nvidia.com", "gpu.nvidia.com", [gpu]),
        ("dra.net", "dranet", [nic]),
        ("cpu.example.com", "cpus", [shared_device("cpus", "cpus", "64")]),
        ("host.example.com", "pages", [shared_device("pages", "size", "1Gi", pageSize="2Mi")]),
    )


def pod_and_verdict(
    *native: dict, pod_amounts: dict, hints: dict, fleet: Inventory, config: dict = CPUS_AND_PAGES_BY_CLAIM
):
    """Return a pod and its verdict. Each dict of `native` has the CPUs and huge pages of a container; the first container also has `pod_amounts` of Koordinator's keys."""
    manifest = pod(
        *(
            {**({KOORD + key: amount for key, amount in pod_amounts.items()} if not i else {}), **container_limits}
            for i, container_limits in enumerate(native)
        ),
        annotations={key: json.dumps(hint) for key, hint in hints.items()},
        scheduler="koord-scheduler",
    )
    return manifest, verdict_of(manifest, fleet=fleet, **config)


def test_zero_devices_on_one_numa_node_make_no_claim():
    _, verdict = pod_and_verdict({}, pod_amounts={"rdma": 0}, hints=ONE_NODE, fleet=host_fleet())
    assert outcomes(verdict) == {}
    assert verdict.templates == {}


def test_resources_of_one_numa_node_are_requested_in_one_claim():
    native = {"cpu": "3", "hugepages-2Mi": "64Mi", "memory": "1Gi"}
    manifest, verdict = pod_and_verdict(
        native, {"cpu": "1"}, pod_amounts={"gpu": 100, "rdma": 100}, hints=ONE_NODE, fleet=host_fleet()
    )
    spec = devices(verdict)
    names = ["gpu", "nic", "cpus", "pages"]
    assert [request["name"] for request in spec["requests"]] == names
    assert spec["constraints"] == [{"requests": names, "matchAttribute": NUMA}]
    amounts = [request["exactly"]["capacity"]["requests"] for request in spec["requests"][2:]]
    assert amounts == [{"cpus": "4"}, {"size": "64Mi"}]
    patched_containers = patched(manifest, verdict)["spec"]["containers"]
    assert patched_containers[0]["resources"]["limits"] == native, "limits that the node and quotas count changed"
    recorded = json.loads(patched(manifest, verdict)["metadata"]["annotations"]["drawbridge.dev/devices"])
    assert [request["key"] for request in recorded["c0"]] == [KOORD + "gpu", KOORD + "rdma", "cpu", "hugepages-2Mi"]


def test_the_documented_configuration_works_without_an_inventory():
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
    [block] = re.findall(r"## CPUs and huge pages by claim\n.*?```yaml\n(.*?)```", page, re.DOTALL)
    [document] = manifests.parse(block)
    native = {"cpu": "3", "hugepages-2Mi": "64Mi"}
    _, verdict = pod_and_verdict(
        native, pod_amounts={"gpu": 100, "rdma": 100}, hints=ONE_NODE, fleet=UNKNOWN, config=document.object
    )
    assert [request["name"] for request in devices(verdict)["requests"]] == ["gpu", "nic", "cpus", "pages"]


def test_pairs_on_a_numa_node_remain_pairs():
    fleet = host_fleet()
    _, verdict = pod_and_verdict(
        {"cpu": "2"}, pod_amounts={"gpu": 200, "rdma": 200}, hints={**ONE_NODE, JOINT: SAME_PCIE}, fleet=fleet
    )
    ties = [constraint["requests"] for constraint in devices(verdict)["constraints"]]
    assert ties == [["gpu-0", "nic-0"], ["gpu-1", "nic-1"], ["gpu-0", "nic-0", "gpu-1", "nic-1", "cpus"]]


def test_bound_cpus_get_a_separate_claim():
    _, verdict = pod_and_verdict({"cpu": "2"}, pod_amounts={"gpu": 100}, hints=CPU_BINDING, fleet=host_fleet())
    assert len(verdict.templates) == 2
    assert outcomes(verdict)[BINDING] == "approximated"
    assert "own request stays" in details_about(verdict, BINDING)


@pytest.mark.parametrize(
    ("hints", "native", "fleet", "words"),
    [
        (ONE_NODE, {"cpu": "1500m"}, host_fleet(), "not a whole number"),
        (ONE_NODE, {"cpu": "2"}, host_fleet(numa=False), "do not publish"),
        ({**ONE_NODE, HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}}, {"cpu": "2"}, host_fleet(), "ApplyForAll"),
    ],
)
def test_a_numa_policy_that_no_claim_expresses_changes_nothing(hints, native, fleet, words):
    rdma = 1 if HINT in hints else 100  # ApplyForAll has an effect only on less than a whole device, which is 100
    _, verdict = pod_and_verdict(native, pod_amounts={"gpu": 100, "rdma": rdma}, hints=hints, fleet=fleet)
    assert untouched(verdict)
    assert any(words in decision.detail for decision in verdict.decisions)


def test_cpu_hints_are_reported_as_lost_without_configuration_for_cpus():
    _, verdict = pod_and_verdict(
        {"cpu": "2"}, pod_amounts={"gpu": 100}, hints={**ONE_NODE, **CPU_BINDING}, fleet=host_fleet(), config={}
    )
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 1}]
    assert "CPUs and memory may be on another" in details_about(verdict, TOPOLOGY)
    assert "is lost" in details_about(verdict, BINDING)


@pytest.mark.parametrize("numa", [True, False])
def test_devices_are_on_one_numa_node_where_nodes_publish_it(numa):
    _, verdict = pod_and_verdict(
        {"cpu": "2"}, pod_amounts={"gpu": 200, "rdma": 100}, hints=ONE_NODE, fleet=host_fleet(numa), config={}
    )
    spec = devices(verdict)
    names = [request["name"] for request in spec["requests"]]
    assert spec.get("constraints", []) == ([{"requests": names, "matchAttribute": NUMA}] if numa else [])
    assert ("the claim has no such constraint" in details_about(verdict, KOORD + "gpu")) is not numa


def test_all_network_devices_of_a_node_are_not_tied():
    hints = {**ONE_NODE, HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}}
    _, verdict = pod_and_verdict({}, pod_amounts={"gpu": 100, "rdma": 1}, hints=hints, fleet=host_fleet(), config={})
    assert verdict.changed
    assert "is lost: ApplyForAll" in details_about(verdict, TOPOLOGY)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"numaTopologyPolicy": "Restricted"}, "Restricted is lost: a claim can require one NUMA node"),
        ({"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": "Required"}, "Exclusive Required is lost"),
    ],
)
def test_an_unmet_required_numa_policy_is_reported_as_lost(spec, words):
    _, verdict = pod_and_verdict({"cpu": "2"}, pod_amounts={"gpu": 100}, hints={TOPOLOGY: spec}, fleet=host_fleet())
    assert verdict.changed
    assert words in details_about(verdict, TOPOLOGY)
    assert outcomes(verdict)[TOPOLOGY] == "approximated"
    preferred_spec = {**spec, "singleNUMANodeExclusive": "Preferred", "numaTopologyPolicy": "BestEffort"}
    _, verdict = pod_and_verdict(
        {"cpu": "2"}, pod_amounts={"gpu": 100}, hints={TOPOLOGY: preferred_spec}, fleet=host_fleet()
    )
    assert "lost" not in details_about(verdict, TOPOLOGY)


@pytest.mark.parametrize(
    "hints", [{TOPOLOGY: {"numaTopologyPolicy": "BestEffort"}}, {BINDING: {"preferredCPUBindPolicy": "FullPCPUs"}}, {}]
)
def test_a_preferred_numa_policy_adds_no_claim(hints):
    _, verdict = pod_and_verdict({"cpu": "2"}, pod_amounts={"gpu": 100}, hints=hints, fleet=host_fleet())
    assert exactly(verdict) == [{"class": "gpu.nvidia.com", "count": 1}]
    assert {outcomes(verdict)[key] for key in hints} <= {"translated"}


@pytest.mark.parametrize(
    ("declared", "words"), [({"memory": "cpus"}, "not a pod resource"), ({"cpu": "unknown"}, "unknown target")]
)
def test_unknown_resources_and_targets_in_the_configuration_are_reported(declared, words):
    with pytest.raises(AssertionError, match=words):
        verdict_of(koordinator_pod({"gpu": 100}), koordinator={"hostResources": declared})


def test_a_numa_scope_ties_whole_gpus():
    verdict = koordinator_verdict(
        {"gpu": 200}, hints={HINT: {"gpu": {"requiredTopologyScope": "NUMANode"}}}, fleet=example_fleet()
    )
    assert devices(verdict)["constraints"] == [
        {"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/numaNode"}
    ]


def test_several_shares_cannot_have_a_scope():
    hint = {HINT: {"gpu": {"requiredTopologyScope": "NUMANode"}}}
    assert refused(koordinator_verdict({"gpu-core": 100, "gpu-memory": "8Gi", "gpu.shared": 2}, hints=hint))


def test_a_numa_scope_of_network_devices_has_no_effect():
    verdict = koordinator_verdict({"rdma": 100}, hints={HINT: {"rdma": {"requiredTopologyScope": "NUMANode"}}})
    assert exactly(verdict) == [{"class": "dranet", "count": 1}]


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
def test_a_claim_requests_the_cpus_that_the_pods_scheduler_counts(spec, cpus):
    manifest = koordinator_pod_with_fields(
        {"gpu": 100}, annotations={key: json.dumps(hint) for key, hint in CPU_BINDING.items()}, **spec
    )
    manifest["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    verdict = verdict_of(manifest, fleet=host_fleet(), **CPUS_AND_PAGES_BY_CLAIM)
    requests = [template["spec"]["devices"]["requests"][0] for template in verdict.templates.values()]
    assert [part["exactly"]["capacity"]["requests"] for part in requests if part["name"] == "cpus"] == [{"cpus": cpus}]


@pytest.mark.parametrize("amount", ["1e30", "9" * 4000, "1e-30", "9223372036854775808"])
def test_an_amount_that_no_claim_expresses_changes_nothing(amount):
    _, verdict = pod_and_verdict({"cpu": amount}, pod_amounts={"gpu": 100}, hints=ONE_NODE, fleet=host_fleet())
    assert untouched(verdict)
    assert "whole number" in details_about(verdict, "cpu")
