"""The allocator knows less of the cluster than the scheduler, which stays connected: it loses its connection, or one watch is late."""

import time

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER, Bridge
from e2e.actors.proxy import Proxy
from e2e.actors.workloads import container, limits, pod
from e2e.bridge.test_by_name import claims, devices, gpu_pod, wait_for_reason
from e2e.ground.controlplane import ControlPlane

pytestmark = pytest.mark.real
NODE = "lost-0"
CUT_SECONDS = 2.0  # long enough to close every watch, so that none shows the pod
LOST_SECONDS = 4.0  # with CUT_SECONDS, less than the duration of the lease
PROMISED_SECONDS = 30.0  # from docs/operating.md


def test_a_pod_created_during_an_api_outage_is_placed_soon():
    """The pod requests an extended resource."""
    with ControlPlane(name="lost-link") as cluster:
        bridge = Bridge(cluster)
        proxy = Proxy(cluster.url, cluster.ca)
        try:
            bridge.prepare()
            proxy.header = f"Authorization: Bearer {bridge.token('allocator-0')}".encode()
            bridge.start(via=f"http://127.0.0.1:{proxy.port}")
            bridge.start_scheduler()
            cluster.add_fake_nodes(1, prefix="lost-")
            cluster.create(
                *fleet.slices(fleet.NVIDIA, NODE, fleet.whole_gpus(2), by_name=True),
                *fleet.classes(),
                gpu_pod("first", "default", SCHEDULER),
            )
            cluster.wait_scheduled("default", "first", 60)
            proxy.broken.set()
            time.sleep(CUT_SECONDS)
            cluster.create(gpu_pod("late", "default", SCHEDULER))
            cluster.wait_unschedulable("default", "late")
            time.sleep(LOST_SECONDS)
            proxy.restore()
            restored = time.monotonic()
            cluster.wait_scheduled("default", "late", PROMISED_SECONDS)
            assert time.monotonic() - restored < PROMISED_SECONDS
        finally:
            bridge.remove()
            proxy.close()


PODS = 12


def test_no_pod_runs_without_its_device_while_a_class_appears():
    """The pods wait for the extended resource of a class that does not exist. The allocator's watch shows the class late.

    Another class appears without a delay, so that scheduler and allocator see it in any order.
    """
    with ControlPlane(name="late-class") as cluster:
        bridge = Bridge(cluster)
        proxy = Proxy(cluster.url, cluster.ca)
        try:
            bridge.prepare()
            proxy.header = f"Authorization: Bearer {bridge.token('allocator-0')}".encode()
            bridge.start(via=f"http://127.0.0.1:{proxy.port}")
            bridge.start_scheduler()
            cluster.add_fake_nodes(1, prefix="lost-")
            cluster.create(*fleet.slices(fleet.NVIDIA, NODE, fleet.whole_gpus(2 * PODS), by_name=True))
            for name, silenced in (("at-once", ""), ("late", "deviceclasses")):
                proxy.silenced = silenced
                resource, pods = f"example.com/{name}", [f"{name}-{index}" for index in range(PODS)]
                requests = container(**limits(**{resource: 1}))
                cluster.create_many([pod(pod_, "default", requests, schedulerName=SCHEDULER) for pod_ in pods])
                for pod_ in pods:
                    cluster.wait_unschedulable("default", pod_)
                cluster.create(fleet.device_class(name, f"device.driver == '{fleet.NVIDIA}'", resource))
                if silenced:
                    for pod_ in pods:
                        wait_for_reason(cluster, "default", pod_, "waiting until the allocator sees the DeviceClass")
                    proxy.restore()
                for pod_ in pods:
                    placed = cluster.wait_scheduled("default", pod_, 60)
                    assert placed["status"].get("extendedResourceClaimStatus"), f"{pod_} is bound without its device"
            held = [device for claim in claims(cluster, "default").values() for device in devices(claim)]
            assert len(set(held)) == len(held) == 2 * PODS
        finally:
            bridge.remove()
            proxy.close()
