"""From a legacy pod to a container that sees its device: webhook, stock scheduler, real kubelet, CDI.

The test driver stands in for the vendors' drivers: the slices are shaped like theirs, and it prepares what was allocated.
"""

import asyncio
from collections import Counter

import pytest

from e2e.actors import fleet
from e2e.actors.webhook import known
from e2e.actors.workloads import container, limits, pod
from e2e.ground.node import KUBELET
from node.service.auditing.sources import ask_kubelet

pytestmark = [pytest.mark.real, pytest.mark.node]

CASES = {
    "nvidia": ({"nvidia.com/gpu": 1}, {}, {fleet.NVIDIA: 1}),
    "hami": ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}, {}, {fleet.HAMI: 1}),
    "koordinator": (
        {"koordinator.sh/gpu": 100, "koordinator.sh/rdma": 100},
        {"scheduling.koordinator.sh/device-joint-allocate": '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'},
        {fleet.NVIDIA: 1, fleet.DRANET: 1},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def drivers(control_plane, node_cluster, webhook):
    """Slices of three drivers on the real node, and a driver that prepares their devices."""
    made = fleet.classes(extended=False)
    for driver, devices in (
        (fleet.NVIDIA, fleet.whole_gpus(2)),
        (fleet.HAMI, fleet.hami_gpus(2)),
        (fleet.DRANET, fleet.dranet_nics(2)),
    ):
        node_cluster.driver(driver)
        made += fleet.slices(driver, node_cluster.name, devices)
    control_plane.create(*made)
    yield node_cluster
    control_plane.remove(*made)


@pytest.mark.parametrize("case", CASES)
def test_a_legacy_pod_sees_its_device_in_the_container(control_plane, drivers, gated, webhook, case):
    amounts, annotations, expected = CASES[case]
    # It keeps running, because the claims of a finished pod are deleted at once.
    item = pod("p", gated, container(command="env; echo spoken=yes; sleep 600", **limits(**amounts)), node=drivers.name)
    item["metadata"]["annotations"] = annotations

    control_plane.create(known(control_plane, item, 20))
    ran = control_plane.wait_phase(gated, "p", "Running")
    seen = drivers.environment(gated, "p")
    counts = Counter()
    allocated = set()
    for status in ran["status"]["resourceClaimStatuses"]:
        path = f"/apis/resource.k8s.io/v1/namespaces/{gated}/resourceclaims/{status['resourceClaimName']}"
        claim = control_plane.get(path)
        results = claim["status"]["allocation"]["devices"]["results"]
        counts.update(result["driver"] for result in results)
        allocated |= {(result["driver"], result["pool"], result["device"]) for result in results}
        for request in claim["spec"]["devices"]["requests"]:
            prepared = f"claim_{status['resourceClaimName']}_{request['name']}".replace("-", "_")
            assert seen[prepared] == "true"
    assert counts == expected
    assert told_by_the_kubelet(drivers, gated, "p") == (allocated, [])


def told_by_the_kubelet(node, namespace, name):
    """The devices of a pod's container in the pod resources API, by claims and by device plugins (docs/operating.md)."""
    answer = asyncio.run(ask_kubelet(str(node.outside(f"{KUBELET}/pod-resources/kubelet.sock"))))
    [held] = [pod for pod in answer.holdings.pods if (pod.namespace, pod.name) == (namespace, name)]
    [main] = held.containers
    return {(device.driver, device.pool, device.device) for claim in main.claims for device in claim.devices}, list(
        main.devices
    )
