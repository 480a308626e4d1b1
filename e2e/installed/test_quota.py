"""DeviceQuotas at creation: the API server calls the pods of the allocator, which use the certificate that the authority renews."""

import pytest

from cluster.manifests import dump
from e2e.actors import fleet
from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import claim, container, pod, request, template, using_template

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.time_limit(480, "images are made, and a dozen processes start")]  # fmt: skip

ASKED = 4  # attempts, so that both replicas are called


@pytest.fixture
def team(node, installation):
    """A namespace without a mode, with a quota of one device."""
    name = node.cluster.namespace("budget")
    limit = {
        "apiVersion": "drawbridge.dev/v1alpha1",
        "kind": "DeviceQuota",
        "metadata": {"name": "team", "namespace": name},
        "spec": {"hard": {f"{fleet.NVIDIA}/devices": 1}},
    }
    node.cluster.create(limit, template("gpus", name, request("gpu", fleet.NVIDIA)))
    yield name
    node.cluster.delete(f"/api/v1/namespaces/{name}")


def refusals(cluster, item):
    """Create an object in several dry runs; return the different refusals, with "" for an accepted creation."""
    dry = ["create", "--dry-run=server", "-f", "-"]
    return {cluster.kubectl(*dry, input=dump([item]), check=False).stderr.strip() for _ in range(ASKED)}


def denied(team, kind, rest):
    """Return what kubectl prints when the API server refuses a creation."""
    door = f'admission webhook "{kind}.quota.drawbridge.dev" denied the request'
    line = f"quota {team}/team: {fleet.NVIDIA}/devices: {rest}"
    return {f'Error from server (QuotaExceeded): error when creating "STDIN": {door}: {line}'}


def waiting(name, team):
    """A pod of a scheduler that does not exist."""
    return pod(name, team, container(), schedulerName="no-such-scheduler", resourceClaims=[using_template("gpus")])


def test_the_next_leader_keeps_the_counts_of_the_quota_listener(node, installation, team):
    cluster = node.cluster
    much = claim("much", team, request("gpu", fleet.NVIDIA, 2))
    whole = denied(team, "claims", "2 requested, 0 of 1 used; at most 1 can be requested")
    cluster.until("every replica turns back what is too much", lambda: refusals(cluster, much) == whole, 60)
    cluster.create(waiting("one", team))
    used = "1 requested, 1 of 1 used, including 1 by pods that wait for devices; at most 0 can be requested"
    full = denied(team, "pods", used)
    cluster.until("a second pod is turned back", lambda: refusals(cluster, waiting("two", team)) == full, 60)
    first = installation.wait_for_leader()
    cluster.delete(f"/api/v1/namespaces/{SYSTEM}/pods/{first}")
    cluster.until("another leads", lambda: installation.leader() not in ("", first), 60)
    cluster.until("a pod too many is turned back", lambda: refusals(cluster, waiting("two", team)) == full, 60)
