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
    SAME,
    TOPOLOGY,
    detail,
    koordinator,
    koordinator_pod,
    seen,
    spoken,
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
        named = {key: {"string": value} for key, value in attributes.items()}
        policy = {"requestPolicy": {"default": "1", "validRange": {"min": "1"}}}
        shared = {"allowMultipleAllocations": True, "capacity": {capacity: {"value": amount, **policy}}}
        return {"name": name, "attributes": {**place, **named}, **shared}

    gpu = {"name": "gpu", "attributes": {**place, "type": {"string": "gpu"}}}
    nic = {"name": "nic", "attributes": {**place}}
    return seen(
        ("gpu.nvidia.com", "gpu.nvidia.com", [gpu]),
        ("dra.net", "dranet", [nic]),
        ("cpu.example.com", "cpus", [of("cpus", "cpus", "64")]),
        ("host.example.com", "pages", [of("pages", "size", "1Gi", pageSize="2Mi")]),
    )


def hosted(*native: dict, pod_amounts: dict, hints: dict, fleet: Inventory, config: dict = HOST):
    """A pod with CPUs and huge pages for each container, and with devices requested from Koordinator."""
    value = pod(
        *(
            {**({KOORD + key: amount for key, amount in pod_amounts.items()} if not i else {}), **each}
            for i, each in enumerate(native)
        ),
        annotations={key: json.dumps(hint) for key, hint in hints.items()},
        scheduler="koord-scheduler",
    )
    return value, verdict_of(value, fleet=fleet, **config)


def test_zero_devices_on_one_numa_node_make_no_claim():
    _, done = hosted({}, pod_amounts={"rdma": 0}, hints=ONE_NODE, fleet=hosts())
    assert outcomes(done) == {}
    assert done.templates == {}


def test_resources_of_one_numa_node_are_requested_in_one_claim():
    native = {"cpu": "3", "hugepages-2Mi": "64Mi", "memory": "1Gi"}
    value, done = hosted(native, {"cpu": "1"}, pod_amounts={"gpu": 100, "rdma": 100}, hints=ONE_NODE, fleet=hosts())
    spec = devices(done)
    names = ["gpu", "nic", "cpus", "pages"]
    assert [request["name"] for request in spec["requests"]] == names
    assert spec["constraints"] == [{"requests": names, "matchAttribute": NUMA}]
    amounts = [request["exactly"]["capacity"]["requests"] for request in spec["requests"][2:]]
    assert amounts == [{"cpus": "4"}, {"size": "64Mi"}]
    after = patched(value, done)["spec"]["containers"]
    assert after[0]["resources"]["limits"] == native, "what the node and quotas count stays"
    recorded = json.loads(patched(value, done)["metadata"]["annotations"]["drawbridge.dev/devices"])
    assert [request["key"] for request in recorded["c0"]] == [KOORD + "gpu", KOORD + "rdma", "cpu", "hugepages-2Mi"]


def test_the_documented_configuration_works_without_an_inventory():
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
    [block] = re.findall(r"## CPUs and huge pages by claim\n.*?```yaml\n(.*?)```", page, re.DOTALL)
    [document] = manifests.parse(block)
    native = {"cpu": "3", "hugepages-2Mi": "64Mi"}
    _, done = hosted(
        native, pod_amounts={"gpu": 100, "rdma": 100}, hints=ONE_NODE, fleet=UNKNOWN, config=document.object
    )
    assert [request["name"] for request in devices(done)["requests"]] == ["gpu", "nic", "cpus", "pages"]


def test_pairs_on_a_numa_node_remain_pairs():
    fleet = hosts()
    _, done = hosted({"cpu": "2"}, pod_amounts={"gpu": 200, "rdma": 200}, hints={**ONE_NODE, JOINT: SAME}, fleet=fleet)
    ties = [constraint["requests"] for constraint in devices(done)["constraints"]]
    assert ties == [["gpu-0", "nic-0"], ["gpu-1", "nic-1"], ["gpu-0", "nic-0", "gpu-1", "nic-1", "cpus"]]


def test_bound_cpus_get_a_separate_claim():
    _, done = hosted({"cpu": "2"}, pod_amounts={"gpu": 100}, hints=BOUND, fleet=hosts())
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
def test_a_pod_whose_numa_policy_no_claim_expresses_is_left(hints, native, fleet, words):
    rdma = 1 if HINT in hints else 100
    _, done = hosted(native, pod_amounts={"gpu": 100, "rdma": rdma}, hints=hints, fleet=fleet)
    assert untouched(done)
    assert any(words in decision.detail for decision in done.decisions)


def test_cpu_hints_are_reported_as_lost_without_configuration_for_cpus():
    _, done = hosted({"cpu": "2"}, pod_amounts={"gpu": 100}, hints={**ONE_NODE, **BOUND}, fleet=hosts(), config={})
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
def test_an_unmet_required_numa_policy_is_reported_as_lost(spec, words):
    _, done = hosted({"cpu": "2"}, pod_amounts={"gpu": 100}, hints={TOPOLOGY: spec}, fleet=hosts())
    assert done.changed
    assert words in detail(done, TOPOLOGY)
    assert outcomes(done)[TOPOLOGY] == "approximated"
    softer = {**spec, "singleNUMANodeExclusive": "Preferred", "numaTopologyPolicy": "BestEffort"}
    _, done = hosted({"cpu": "2"}, pod_amounts={"gpu": 100}, hints={TOPOLOGY: softer}, fleet=hosts())
    assert "lost" not in detail(done, TOPOLOGY)


@pytest.mark.parametrize(
    "hints", [{TOPOLOGY: {"numaTopologyPolicy": "BestEffort"}}, {BINDING: {"preferredCPUBindPolicy": "FullPCPUs"}}, {}]
)
def test_a_preferred_numa_policy_adds_no_claim(hints):
    _, done = hosted({"cpu": "2"}, pod_amounts={"gpu": 100}, hints=hints, fleet=hosts())
    assert exactly(done) == [{"class": "gpu.nvidia.com", "count": 1}]
    assert {outcomes(done)[key] for key in hints} <= {"translated"}


@pytest.mark.parametrize(
    ("declared", "words"), [({"memory": "cpus"}, "not a pod resource"), ({"cpu": "unknown"}, "unknown target")]
)
def test_unknown_resources_and_targets_in_the_configuration_are_reported(declared, words):
    with pytest.raises(AssertionError, match=words):
        verdict_of(koordinator_pod({"gpu": 100}), koordinator={"hostResources": declared})


def test_a_numa_scope_ties_whole_gpus():
    done = koordinator(
        {"gpu": 200}, hints={HINT: {"gpu": {"requiredTopologyScope": "NUMANode"}}}, fleet=example_fleet()
    )
    assert devices(done)["constraints"] == [{"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/numaNode"}]


def test_several_shares_cannot_have_a_scope():
    hint = {HINT: {"gpu": {"requiredTopologyScope": "NUMANode"}}}
    assert refused(koordinator({"gpu-core": 100, "gpu-memory": "8Gi", "gpu.shared": 2}, hints=hint))


def test_scopes_of_other_hints_have_no_effect():
    done = koordinator({"rdma": 100}, hints={HINT: {"rdma": {"requiredTopologyScope": "NUMANode"}}})
    assert exactly(done) == [{"class": "dranet", "count": 1}]


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
    value = spoken({"gpu": 100}, annotations={key: json.dumps(hint) for key, hint in BOUND.items()}, **spec)
    value["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    done = verdict_of(value, fleet=hosts(), **HOST)
    [claim] = [
        template for template in done.templates.values() if template["spec"]["devices"]["requests"][0]["name"] == "cpus"
    ]
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"] == {"cpus": cpus}


@pytest.mark.parametrize("amount", ["1e30", "9" * 4000, "1e-30", "9223372036854775808"])
def test_a_pod_with_an_amount_no_claim_expresses_is_left(amount):
    _, done = hosted({"cpu": amount}, pod_amounts={"gpu": 100}, hints=ONE_NODE, fleet=hosts())
    assert untouched(done)
    assert "whole number" in detail(done, "cpu")
