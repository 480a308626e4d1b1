"""Partitions that do not exist yet (DynamicMIG of NVIDIA's driver): the stock scheduler allocates what `simulate` predicts."""

import json
import subprocess

import pytest
import yaml

from e2e.actors.webhook import COMMAND, ROOT, claims_of, known, results_of
from e2e.actors.workloads import container, limits, pod

pytestmark = pytest.mark.real

FLEET = ROOT / "manifests/examples/partitions/nvidia-dynamic-mig.yaml"
AMPERE, HOPPER = "dynamic-mig-0", "dynamic-mig-1"
NODES = {"a100-dynamic-1": AMPERE, "h100-dynamic-1": HOPPER}
# The requests of pods in this order, their nodes, and the pods that wait.
ASKED = {
    "a mix of parts": (AMPERE, ["1g.5gb", "3g.20gb", "2g.10gb", "1g.5gb.me", "1g.5gb"], {"p4"}),
    "twice half the memory": (AMPERE, ["3g.20gb", "3g.20gb", "1g.5gb"], {"p2"}),
    "parts of a GPU that could be whole": (HOPPER, ["4g.40gb", "1g.10gb.me", "2g.20gb", "1g.10gb"], {"p2"}),
}


@pytest.fixture(scope="module")
def fleet(control_plane, webhook, tmp_path_factory):
    """The example's nodes, as objects of the cluster and as a file."""
    text = FLEET.read_text()
    for example, name in NODES.items():
        text = text.replace(example, name)
    file = tmp_path_factory.mktemp("partitions") / "fleet.yaml"
    file.write_text(text)
    made = [obj for obj in yaml.safe_load_all(text) if obj["kind"] != "Node"]
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in NODES.values()]
    try:
        control_plane.add_fake_nodes(len(NODES), prefix="dynamic-mig-")
        control_plane.create(*made)
        webhook.reads_on(HOPPER)
        yield file
    finally:
        control_plane.remove(*made, *nodes)


@pytest.mark.parametrize("name", ASKED)
def test_partitions_are_allocated_as_simulate_predicts(control_plane, gated, fleet, name):
    node, profiles, waiting = ASKED[name]
    pods = [
        pod(f"p{number}", gated, container(**limits(**{f"nvidia.com/mig-{profile}": 1})), node=node)
        for number, profile in enumerate(profiles)
    ]
    file = fleet.with_name(f"{gated}.yaml")
    file.write_text(yaml.safe_dump_all(pods))
    # Exit code 1, because some pods wait.
    command = [*COMMAND, "simulate", "-f", file, "-f", fleet, "-o", "json"]
    simulated = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=False, cwd=ROOT).stdout)
    expected = {pod["pod"].partition("/")[2]: pod["devices"] for pod in simulated["pods"]}
    assert {pod for pod, devices in expected.items() if not devices} == waiting
    given = {}
    for item in pods:
        control_plane.create(known(control_plane, item))
        called = item["metadata"]["name"]
        if called in waiting:
            control_plane.wait_unschedulable(gated, called)
            given[called] = []
            continue
        control_plane.wait_scheduled(gated, called)
        results = [result for claim in claims_of(control_plane, gated, called).values() for result in results_of(claim)]
        given[called] = [f"{result['driver']}/{result['pool']}/{result['device']}" for result in results]
    assert given == expected
