"""The allocator loses its connection to the API server for a few seconds. The scheduler stays connected and asks about a new pod."""

import time

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER, Bridge
from e2e.actors.proxy import Proxy
from e2e.bridge.test_by_name import gpu_pod
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
