"""The allocator when etcd is restored to an older copy, and when two leaders fail within a minute."""

import shutil
import time

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER, Bridge
from e2e.bridge.test_by_name import claims, devices, gpu_pod
from e2e.ground.controlplane import ControlPlane, free_port

pytestmark = pytest.mark.real
NODE = "restored-0"
DEVICES = 4
# From docs/operating.md. It takes longest to replace a stopped leader, because its Lease lasts 15 s.
PROMISED_SECONDS = 30.0


@pytest.fixture
def cluster():
    """A control plane of its own, with one node of four GPUs."""
    with ControlPlane(name="restored") as cluster:
        cluster.add_fake_nodes(1, prefix="restored-")
        cluster.create(
            *fleet.slices(fleet.NVIDIA, NODE, fleet.whole_gpus(DEVICES), by_name=True),
            *fleet.classes(),
        )
        yield cluster


@pytest.fixture
def bridge(cluster):
    bridge = Bridge(cluster)
    try:
        yield bridge.install()
    finally:
        bridge.remove()


def place(cluster, *names):
    cluster.create(*(gpu_pod(name, "default", SCHEDULER) for name in names))
    for name in names:
        cluster.wait_scheduled("default", name, 60)


def devices_of_pods(cluster):
    return {pod: devices(claim) for pod, claim in claims(cluster, "default").items()}


def stop_etcd(cluster):
    """Stop etcd's server, and return a function that starts it again."""
    etcd = cluster.process("etcd")
    etcd.stop()
    cluster.processes.remove(etcd)
    return lambda: cluster.spawn("etcd", etcd.argv)


def test_an_allocator_ends_when_etcd_is_restored(cluster, bridge):
    data, backup = cluster.run.data / "etcd", cluster.run.data / "backup"
    place(cluster, "kept")
    start = stop_etcd(cluster)
    shutil.copytree(data, backup)
    start()
    cluster.until("the API server is ready", cluster.api_ready, 60)
    place(cluster, "lost-1", "lost-2", "lost-3")  # the allocator now knows no free device

    allocator = bridge.processes["allocator-0"]
    for name in ("kube-apiserver", "etcd"):
        process = cluster.process(name)
        process.stop(hard=True)
        cluster.processes.remove(process)
    shutil.rmtree(data)
    shutil.copytree(backup, data)
    start()
    cluster.start_apiserver()
    # docs/operating.md: all other components have to be restarted.
    cluster.kill("kube-controller-manager")
    cluster.kill("drawbridge-scheduler")
    cluster.until("the allocator ends", lambda: not allocator.alive, 60)
    assert "restored" in allocator.tail()

    cluster.processes.remove(allocator)
    bridge.start()
    place(cluster, "new-1", "new-2", "new-3")
    devices_by_pod = devices_of_pods(cluster)
    assert devices_by_pod.keys() == {"kept", "new-1", "new-2", "new-3"}
    assert sorted(device for of_pod in devices_by_pod.values() for device in of_pod) == [
        f"gpu-{n}" for n in range(DEVICES)
    ]


def test_a_former_leader_leads_when_the_next_one_fails(cluster, bridge):
    replicas = {"allocator-0": bridge.metrics_port, "allocator-1": free_port()}
    api = f"127.0.0.1:{free_port()}"
    bridge.spawn(
        "allocator-1",
        plugin=f"unix:{bridge.socket}-1",
        api=api,
        metrics_listen=f"127.0.0.1:{replicas['allocator-1']}",
    )
    place(cluster, "first")

    def until_leads(name):
        cluster.until(f"{name} leads", lambda: bridge.leads(replicas[name]), PROMISED_SECONDS)

    with bridge.processes["allocator-0"].frozen():
        until_leads("allocator-1")
    cluster.until("allocator-0 does not lead", lambda: not bridge.leads(replicas["allocator-0"]), PROMISED_SECONDS)
    bridge.processes["allocator-1"].stop(hard=True)
    failed = time.monotonic()
    until_leads("allocator-0")
    assert time.monotonic() - failed < PROMISED_SECONDS
    place(cluster, "second")
