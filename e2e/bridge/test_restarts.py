"""Pods are placed, and no device is lost or held twice, although the allocator is killed or stopped."""

import pytest

from e2e.actors.proxy import Proxy
from e2e.actors.workloads import claim, request, using
from e2e.bridge import extender
from e2e.bridge.extender import CLASS, REPLICA, claim_pod, claims_of, delete, devices
from tests.limits import PATIENCE

pytestmark = pytest.mark.real
gpus, ours = extender.gpus, extender.ours
# The write at which the connection breaks, and whether the server receives it.
BETWEEN = {"after the finalizer": (1, True), "after the allocation": (2, True)}
BEFORE = {"before the finalizer": (1, False), "before the allocation": (2, False)}


@pytest.mark.parametrize("moments", [BETWEEN, pytest.param(BEFORE, marks=pytest.mark.long)], ids=["after", "before"])
def test_the_next_start_repairs_a_service_killed_at_a_write(control_plane, bridge, gpus, ours, moments):
    """The connection breaks at the write, and the process is killed. Every pod is placed; no device is held twice or without a pod."""
    proxy = Proxy(control_plane.url, control_plane.ca)
    way = f"http://127.0.0.1:{proxy.port}"
    try:
        bridge.processes[REPLICA].stop()
        for at, (write, answered) in enumerate(moments.values()):
            bridge.start(REPLICA, via=way)
            proxy.break_at(write, answered=answered)
            control_plane.create(
                claim(f"a{at}", ours, request("gpu", CLASS)), claim_pod(f"p{at}", ours, using(f"a{at}"))
            )
            assert proxy.broken.wait(PATIENCE), "nothing was written"
            bridge.processes[REPLICA].stop(hard=True)
            proxy.break_at(0, answered=True)
        bridge.start(REPLICA)
    finally:
        proxy.close()
    control_plane.create(*(claim(f"a{at}", ours, request("gpu", CLASS)) for at in (2, 3)))
    control_plane.create(*(claim_pod(f"p{at}", ours, using(f"a{at}")) for at in (2, 3)))
    for at in range(4):
        control_plane.wait_scheduled(ours, f"p{at}", 60)
    given = [device for claim in claims_of(control_plane, ours) for device in devices(claim)]
    assert len(given) == len(set(given)) == 4
    delete(control_plane, ours, *(f"p{at}" for at in range(4)))
    control_plane.until("all is free", lambda: not any(map(devices, claims_of(control_plane, ours))), 30)


def test_a_pod_waits_while_the_service_is_down(control_plane, bridge, gpus, ours):
    bridge.processes[REPLICA].stop(hard=True)
    control_plane.create(claim("a", ours, request("gpu", CLASS)), claim_pod("p", ours, using("a")))
    control_plane.until("the scheduler has said so", lambda: any("extender" in event for event in control_plane.events(ours, "p")), 30)  # fmt: skip
    bridge.start(REPLICA)
    control_plane.wait_scheduled(ours, "p", 60)
