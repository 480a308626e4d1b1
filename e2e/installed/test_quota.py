"""DeviceQuotas at creation: the API server calls the pods of the allocator, which use the certificate that the authority renews."""

import pytest

from cluster.manifests import dump
from e2e.actors import fleet
from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import claim, container, pod, request, template, using_template

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.timeout(480)]  # fmt: skip

ATTEMPTS = 4  # attempts, so that both replicas are called


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
    command = ["create", "--dry-run=server", "-f", "-"]
    return {cluster.kubectl(*command, input=dump([item]), check=False).stderr.strip() for _ in range(ATTEMPTS)}


def expected_refusal(team, kind, rest):
    """Return what kubectl prints when the API server refuses a creation."""
    prefix = f'admission webhook "{kind}.quota.drawbridge.dev" denied the request'
    line = f"quota {team}/team: {fleet.NVIDIA}/devices: {rest}"
    return {f'Error from server (QuotaExceeded): error when creating "STDIN": {prefix}: {line}'}


def unscheduled_pod(name, team):
    """A pod of a scheduler that does not exist."""
    return pod(name, team, container(), schedulerName="no-such-scheduler", resourceClaims=[using_template("gpus")])


def test_the_next_leader_counts_previously_admitted_pods(node, installation, team):
    cluster = node.cluster
    large_claim = claim("much", team, request("gpu", fleet.NVIDIA, 2))
    refusal_of_claim = expected_refusal(team, "claims", "2 requested, 0 of 1 used; at most 1 can be requested")
    cluster.until(
        "every replica refuses a claim for two devices", lambda: refusals(cluster, large_claim) == refusal_of_claim, 60
    )
    cluster.create(unscheduled_pod("one", team))
    used = "1 requested, 1 of 1 used, including 1 by pods that wait for devices; at most 0 can be requested"
    refusal_of_pod = expected_refusal(team, "pods", used)
    cluster.until(
        "the second pod is refused", lambda: refusals(cluster, unscheduled_pod("two", team)) == refusal_of_pod, 60
    )
    first = installation.wait_for_leader()
    cluster.delete(f"/api/v1/namespaces/{SYSTEM}/pods/{first}")
    cluster.until("another replica leads", lambda: installation.leader() not in ("", first), 60)
    cluster.until(
        "the new leader refuses the second pod",
        lambda: refusals(cluster, unscheduled_pod("two", team)) == refusal_of_pod,
        60,
    )
