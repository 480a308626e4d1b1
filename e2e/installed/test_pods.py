"""The unmodified manifests as pods.

The pods are webhook, controller, authority, our scheduler with its allocator, the reference driver, the adapter and the node agent.
"""

import pytest

from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import container, limits, pod
from e2e.driver.test_adapter import HOLD, RESOURCE
from e2e.installed.installation import is_prepared, until_pods_are_translated

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.timeout(480)]  # fmt: skip

TWO_REPLICAS = ("webhook", "controller", "authority", "allocator", "scheduler")  # each has two replicas
ON_EACH_NODE = ("driver", "adapter", "node-agent")  # on each node


@pytest.mark.parametrize("scheduler", ["default-scheduler", "drawbridge"])
def test_an_unmodified_pod_gets_its_gpu_from_the_installation(node, installation, tenants, scheduler):
    until_pods_are_translated(node.cluster, tenants, schedulerName=scheduler)
    installation.run_gpu_pod(tenants, f"by-{scheduler}", schedulerName=scheduler)


def test_a_device_plugin_keeps_working_behind_the_adapter(node, tenants):
    """The plugin is Kubernetes' unmodified sample plugin; the pod requests its resource and is not translated."""
    item = pod("adapted", tenants, container(command=HOLD, **limits(**{RESOURCE: 1})))
    node.cluster.create(item)
    node.cluster.wait_phase(tenants, "adapted", "Running")
    claims = f"/apis/resource.k8s.io/v1/namespaces/{tenants}/resourceclaims"
    node.cluster.until(
        "the adapter reports each device of the claim as ready",
        lambda: all(map(is_prepared, node.cluster.get(claims)["items"])),
        30,
    )
    node.cluster.delete(f"/api/v1/namespaces/{tenants}/pods/adapted", gracePeriodSeconds=0)


def test_no_container_has_been_restarted(installation, tenants):
    statuses = installation.containers()
    assert len(statuses) == 2 * len(TWO_REPLICAS) + len(ON_EACH_NODE)
    assert {name: restarts for name, (_, restarts) in statuses.items() if restarts} == {}


def test_another_replica_places_pods_after_the_leader_is_drained(node, installation, tenants):
    """A drained leader releases the lease."""
    first = installation.wait_for_leader()
    node.cluster.delete(f"/api/v1/namespaces/{SYSTEM}/pods/{first}")
    installation.run_gpu_pod(tenants, "after-a-drain", schedulerName="drawbridge")
    node.cluster.until("another replica leads", lambda: installation.leader() not in ("", first), 60)
