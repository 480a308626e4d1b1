"""Two hundred pods wait for devices of two kinds, with the plugin: when a device is freed, one pod that can use it is retried."""

import re
import ssl
import urllib.request
from functools import partial

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER, Bridge, scheduler_configuration
from e2e.actors.workloads import pod, request, template, using_template
from e2e.build import program
from e2e.ground.controlplane import ControlPlane, free_port

pytestmark = pytest.mark.real
KINDS = ("near", "far")
NODE = "wakes-0"
PODS_PER_KIND = 100  # waiting pods of each kind
MOST_ATTEMPTS = 2  # after one device is freed


class Counts:
    """Reads our scheduler's metrics about its queue."""

    def __init__(self, port):
        self.url = f"https://127.0.0.1:{port}/metrics"
        self.context = ssl.create_default_context()
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE  # the scheduler has a self-signed certificate

    def read(self, series, **labels):
        """Add up a series over the labels that are not given."""
        with urllib.request.urlopen(self.url, context=self.context, timeout=60) as response:
            text = response.read().decode()
        samples = re.findall(rf"^{series}{{(.*)}} ([0-9.e+]+)$", text, re.MULTILINE)
        return sum(
            float(number)
            for label_text, number in samples
            if all(f'{key}="{value}"' in label_text for key, value in labels.items())
        )

    def all_wait(self, number):
        """Return whether this many pods wait and no attempt is in progress or due."""
        waiting = {
            queue: self.read("scheduler_pending_pods", queue=queue) for queue in ("active", "backoff", "unschedulable")
        }
        return waiting == {"active": 0, "backoff": 0, "unschedulable": number}

    def attempts(self):
        return self.read("scheduler_schedule_attempts_total")

    def has_attempts(self, number):
        """Return whether this many attempts are counted; an attempt that binds is counted after the API server shows the binding."""
        return self.attempts() >= number

    def requeues(self):
        """Return how often a pod was put back into the queue, by any event."""
        return self.read("scheduler_queue_incoming_pods_total", queue="active") + self.read(
            "scheduler_queue_incoming_pods_total", queue="backoff"
        )


@pytest.fixture(scope="module")
def cluster():
    """A control plane of its own, because other events in a cluster retry pods, too."""
    with ControlPlane(name="wakes") as running:
        yield running


@pytest.fixture(scope="module")
def counts(cluster):
    """The allocator, our scheduler, and a node with two devices of each kind, of different drivers."""
    port = free_port()
    bridge = Bridge(cluster)
    try:
        bridge.prepare()
        bridge.start()
        cluster.start_scheduler(
            scheduler_configuration(bridge.socket),
            name="drawbridge-wakes",
            binary=program("drawbridge-scheduler"),
            args=[f"--secure-port={port}"],
        )
        cluster.add_fake_nodes(1, prefix="wakes-")
        for kind in KINDS:
            driver = f"{kind}.wakes.example.com"
            devices = [fleet.device(f"gpu-{at}", {}) for at in range(2)]
            cluster.create(fleet.device_class(f"wakes-{kind}", f"device.driver == '{driver}'"))
            cluster.create(*fleet.slices(driver, NODE, devices, by_name=True))
        yield Counts(port)
    finally:
        bridge.remove()


def claim_pod(name, namespace, kind):
    return pod(name, namespace, schedulerName=SCHEDULER, resourceClaims=[using_template(kind)])


def placed_pods(cluster, namespace, kind):
    pods = cluster.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {
        item["metadata"]["name"]
        for item in pods
        if item["spec"].get("nodeName") and item["metadata"]["name"].startswith(kind)
    }


def newly_placed(cluster, namespace, before):
    return placed_pods(cluster, namespace, "near") - before


@pytest.mark.timeout(300)
def test_a_freed_device_requeues_one_pod_that_can_use_it(cluster, counts):
    """Not the other pods with equal requests, and no pods that wait for the other kind."""
    namespace = cluster.namespace("wakes")
    cluster.create(*[template(kind, namespace, request("gpu", f"wakes-{kind}")) for kind in KINDS])
    cluster.create(*[claim_pod(f"{kind}-first-{index}", namespace, kind) for kind in KINDS for index in range(2)])
    for kind in KINDS:
        for index in range(2):
            cluster.wait_scheduled(namespace, f"{kind}-first-{index}")
    cluster.create_many(
        [claim_pod(f"{kind}-{index}", namespace, kind) for index in range(PODS_PER_KIND) for kind in KINDS]
    )
    cluster.until("all others wait", lambda: counts.all_wait(2 * PODS_PER_KIND), 60)
    for placed in range(1, 4):
        attempts, requeues = counts.attempts(), counts.requeues()
        placed_before = placed_pods(cluster, namespace, "near")
        cluster.delete(f"/api/v1/namespaces/{namespace}/pods/{min(placed_before)}", gracePeriodSeconds=0)
        cluster.until("one more pod is placed", partial(newly_placed, cluster, namespace, placed_before))
        cluster.until("the others wait", partial(counts.all_wait, 2 * PODS_PER_KIND - placed))
        cluster.until("the attempt is counted", partial(counts.has_attempts, attempts + 1))
        # A second pod may have been requeued before the first one had its device.
        assert counts.attempts() - attempts <= MOST_ATTEMPTS
        assert counts.requeues() - requeues <= MOST_ATTEMPTS
    assert len(placed_pods(cluster, namespace, "far")) == 2
