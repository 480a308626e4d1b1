"""Claims for memory and huge pages: a single NUMA node has to serve the amount of a request."""

from pathlib import Path

import pytest

from tests.cli.running import manifest, run, run_json
from tests.objects import claim_template, container, exactly, pod, template_entries

DRIVERS = Path(__file__).parents[2] / "manifests" / "examples" / "drivers"
FLEET = [part for name in ("dra.memory.yaml", "nodes.yaml") for part in ("-f", DRIVERS / name)]
POD_LIMITS = {"cpu": "4", "memory": "200Gi", "hugepages-1Gi": "8Gi"}


def template_and_pod(*requests, aligned=False):
    """Return a claim template with a request for each (class, size, count), and a pod that uses the template.

    All devices of an aligned template have to be on one NUMA node.
    """
    device_requests = [
        exactly(class_, name=f"r{number}", count=count, capacity={"requests": {"size": size}})
        for number, (class_, size, count) in enumerate(requests)
    ]
    constraints = [{"matchAttribute": "resource.kubernetes.io/numaNode"}] if aligned else []
    template = claim_template("memory", *device_requests, namespace="db", constraints=constraints)
    containers = [container("db", POD_LIMITS, claims=["memory"])]
    return template, pod("db", namespace="db", containers=containers, resourceClaims=template_entries("memory"))


# The example driver publishes 256Gi of memory, 32Gi in pages of 2Mi and 16Gi in pages of 1Gi on each of two NUMA nodes.
@pytest.mark.parametrize(
    ("objects", "devices"),
    [
        (template_and_pod(("dra.memory", "256Gi", 1)), ["memory-x7c2k0"]),
        (template_and_pod(("dra.memory", "257Gi", 1)), []),
        (template_and_pod(("dra.memory", "150Gi", 2)), ["memory-x7c2k0", "memory-x7c2k1"]),
        (template_and_pod(("dra.memory", "200Gi", 1), ("dra.hugepages-1g", "8Gi", 1), aligned=True), ["memory-x7c2k0", "hugepages-1gi-b8m6d0"]),
        (template_and_pod(("dra.memory", "200Gi", 1), ("dra.memory", "100Gi", 1)), ["memory-x7c2k0", "memory-x7c2k1"]),
        (template_and_pod(("dra.memory", "200Gi", 1), ("dra.memory", "100Gi", 1), aligned=True), []),
    ],
    ids=["all memory of a node", "more memory than a node has", "two equal amounts", "aligned memory and huge pages", "two amounts", "two aligned amounts"],
)  # fmt: skip
def test_a_memory_claim_is_served_by_numa_nodes_or_refused(objects, devices, tmp_path):
    file = manifest(tmp_path / "db.yaml", *objects)
    _, simulated = run_json("simulate", *FLEET, "-f", file)
    [simulated_pod] = simulated["pods"]
    assert [device.rpartition("/")[2] for device in simulated_pod["devices"]] == devices
    _, checked = run_json("check", *FLEET, "-f", file)
    refused = {finding["object"] for finding in checked["findings"] if finding["code"] == "R020"}
    assert refused == (set() if devices else {"Pod/db/db", "ResourceClaimTemplate/db/memory"})
    code, translated = run_json("translate", *FLEET, "-f", file)
    assert (code, bool(translated["refusals"])) == ((0, False) if devices else (1, True))


def test_memory_and_huge_page_limits_stay_beside_a_claim(tmp_path):
    file = manifest(tmp_path / "db.yaml", *template_and_pod(("dra.hugepages-1g", "8Gi", 1)))
    _, translated = run_json("translate", *FLEET, "-f", file)
    [pod] = [obj for obj in translated["items"] if obj["kind"] == "Pod"]
    assert pod["spec"]["containers"][0]["resources"] == {"limits": POD_LIMITS, "claims": [{"name": "memory"}]}


def test_check_reports_amounts_of_memory_that_the_server_drops(tmp_path):
    file = manifest(tmp_path / "db.yaml", *template_and_pod(("dra.memory", "1Gi", 1)))
    output = run("check", "--kubernetes", "1.35", *FLEET, "-f", file).stdout
    assert "warning D006: " in output
