"""Pods are placed, and no device is lost or held twice, although the allocator is killed or stopped."""

import pytest

from e2e.actors.proxy import Proxy
from e2e.actors.workloads import claim, request, using
from e2e.bridge import gpu_nodes
from e2e.bridge.gpu_nodes import CLASS, REPLICA, claim_pod, claims_of, delete, devices
from tests.limits import PATIENCE

pytestmark = pytest.mark.real
gpus, ours = gpu_nodes.gpus, gpu_nodes.ours
# The write at which the connection breaks, and whether the server receives it.
AFTER_A_WRITE = {"after the finalizer": (1, True), "after the allocation": (2, True)}
BEFORE_A_WRITE = {"before the finalizer": (1, False), "before the allocation": (2, False)}


@pytest.mark.parametrize(
    "writes", [AFTER_A_WRITE, pytest.param(BEFORE_A_WRITE, marks=pytest.mark.long)], ids=["after", "before"]
)
def test_the_next_start_repairs_an_interrupted_write(control_plane, bridge, gpus, ours, writes):
    """The connection breaks at the write, and the process is killed. Every pod is placed; no device is held twice or without a pod."""
    proxy = Proxy(control_plane.url, control_plane.ca)
    url = f"http://127.0.0.1:{proxy.port}"
    try:
        bridge.processes[REPLICA].stop()
        for index, (write, answered) in enumerate(writes.values()):
            bridge.start(REPLICA, via=url)
            proxy.break_at(write, answered=answered)
            control_plane.create(
                claim(f"a{index}", ours, request("gpu", CLASS)), claim_pod(f"p{index}", ours, using(f"a{index}"))
            )
            assert proxy.broken.wait(PATIENCE), "the allocator did not write"
            bridge.processes[REPLICA].stop(hard=True)
            proxy.break_at(0, answered=True)
        bridge.start(REPLICA)
    finally:
        proxy.close()
    control_plane.create(*(claim(f"a{index}", ours, request("gpu", CLASS)) for index in (2, 3)))
    control_plane.create(*(claim_pod(f"p{index}", ours, using(f"a{index}")) for index in (2, 3)))
    for index in range(4):
        control_plane.wait_scheduled(ours, f"p{index}", 60)
    allocated = [device for claim in claims_of(control_plane, ours) for device in devices(claim)]
    assert len(allocated) == len(set(allocated)) == 4
    delete(control_plane, ours, *(f"p{index}" for index in range(4)))
    control_plane.until("all claims are deallocated", lambda: not any(map(devices, claims_of(control_plane, ours))), 30)


def test_a_pod_waits_while_the_service_is_down(control_plane, bridge, gpus, ours):
    bridge.processes[REPLICA].stop(hard=True)
    control_plane.create(claim("a", ours, request("gpu", CLASS)), claim_pod("p", ours, using("a")))
    control_plane.until("an event says that the pod waits for the allocator", lambda: any("waits for the drawbridge allocator" in event for event in control_plane.events(ours, "p")), 30)  # fmt: skip
    bridge.start(REPLICA)
    control_plane.wait_scheduled(ours, "p", 60)
