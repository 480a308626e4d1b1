"""A DeviceQuota without a webhook that reviews claims: the allocator counts what claims use, and pods over quota wait."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.actors import fleet
from e2e.actors.workloads import claim, request, template, using, using_template
from e2e.bridge import gpu_nodes
from e2e.bridge.gpu_nodes import CLASS, REPLICA, claim_pod, claims_of, delete, devices, quota, read_claim, status_of
from tests.limits import PATIENCE

pytestmark = pytest.mark.real
gpus, ours = gpu_nodes.gpus, gpu_nodes.ours


def test_a_pod_over_quota_waits_with_an_event_for_room(control_plane, bridge, gpus, ours):
    control_plane.create(quota(ours, 1))
    control_plane.until("the service knows the quota", lambda: "used" in status_of(control_plane, ours), 30)
    control_plane.create(claim("a", ours, request("gpu", CLASS)), claim_pod("p", ours, using("a")))
    control_plane.wait_scheduled(ours, "p")
    control_plane.until(
        "the status counts one device", lambda: status_of(control_plane, ours)["used"] == {f"{CLASS}/devices": "1"}, 30
    )
    control_plane.create(claim("b", ours, request("gpu", CLASS)), claim_pod("q", ours, using("b")))
    words = f"quota {ours}/team"
    control_plane.until(words, lambda: any(words in event for event in control_plane.events(ours, "q")), 60)
    assert devices(read_claim(control_plane, ours, "b")) == []
    delete(control_plane, ours, "p")
    control_plane.wait_scheduled(ours, "q", 60)


def test_racing_writers_never_exceed_the_quota_while_the_allocator_restarts(control_plane, bridge, gpus, ours):
    """12 writers create and delete pods. There are more devices than the quota allows, and no webhook reviews the claims."""
    limit, writers, node = 9, 12, "bridge-race"
    device_class = "bridge-race"
    control_plane.add_fake_nodes(1, prefix=node)
    objects = [
        fleet.device_class(device_class, "device.driver == 'race.example.com'"),
        *fleet.slices("race.example.com", f"{node}0", [fleet.device(f"gpu-{at}", {}) for at in range(2 * limit)], by_name=True),
    ]  # fmt: skip
    control_plane.create(
        *objects, quota(ours, limit, device_class), template("one", ours, request("gpu", device_class))
    )
    control_plane.until("the service knows the quota", lambda: "used" in status_of(control_plane, ours), 30)
    path = f"/api/v1/namespaces/{ours}/pods"
    stopped = threading.Event()

    def write(writer):
        draw = random.Random(writer)
        remaining = []
        number = 0
        while not stopped.is_set():
            number += 1
            name = f"w{writer}-{number}"
            control_plane.create(claim_pod(name, ours, using_template("one"), terminationGracePeriodSeconds=0))
            remaining.append(name)
            if len(remaining) > 3 or draw.random() < 0.3:
                control_plane.delete(f"{path}/{remaining.pop(draw.randrange(len(remaining)))}", gracePeriodSeconds=0)
            time.sleep(draw.uniform(0.1, 0.5))
        return remaining

    def used():
        return sum(len(devices(claim)) for claim in claims_of(control_plane, ours))

    try:
        with ThreadPoolExecutor(writers) as executor:
            results = [executor.submit(write, writer) for writer in range(writers)]
            try:
                for _ in range(2):
                    control_plane.until("the quota is used up", lambda: at_most(limit, used()) == limit, PATIENCE)
                    bridge.processes[REPLICA].stop(hard=True)
                    bridge.start(REPLICA)
            finally:
                stopped.set()
        remaining = sum(len(writer.result()) for writer in results)
        assert remaining > limit
        control_plane.until("the remaining pods use up the quota", lambda: at_most(limit, used()) == limit, PATIENCE)
        expected = {f"{device_class}/devices": str(limit)}
        control_plane.until(
            "the status counts all devices of the quota",
            lambda: status_of(control_plane, ours)["used"] == expected,
            PATIENCE,
        )
    finally:
        control_plane.delete(path, gracePeriodSeconds=0)
        control_plane.until("the claims are gone", lambda: not claims_of(control_plane, ours), PATIENCE)
        control_plane.remove(*objects, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{node}0"}})


def at_most(limit, used):
    assert used <= limit, f"{used} devices are in use, and the quota allows {limit}"
    return used
