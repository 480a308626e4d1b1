"""What `drawbridge explain pod` says first of a pod while a part of the installation is away: that part, with the remedy."""

from contextlib import ExitStack

import pytest

from e2e.actors import fleet
from e2e.actors.webhook import SYSTEM, untouched
from e2e.installed.installation import translates
from e2e.installed.test_doctor import (
    MUTATING,
    away,
    broken,
    deployment,
    gpu,
    name_of,
    named,
    role,
    well,
    without,
)
from e2e.installed.test_waiting_pods import explained

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.time_limit(480, "a dozen processes start, and each part of them goes and comes back")]  # fmt: skip

DRIVER = named("apps/v1", "DaemonSet", "drawbridge-driver", "drawbridge-driver")
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@pytest.fixture
def cluster(installation, tenants):
    well(installation.cluster)
    translates(installation.cluster, tenants)
    yield installation.cluster
    well(installation.cluster)


def comes(cluster, stack, tenants, name, condition, **spec):
    """A pod that asks for a GPU, once it stands where it will wait."""
    item = gpu(name, tenants, **spec)
    stack.callback(cluster.remove, item)
    cluster.create(item)
    cluster.until(f"{name} waits", lambda: condition(cluster.read(item)), told=lambda: cluster.read(item))


def refused(pod):
    return any(one.get("reason") == "Unschedulable" for one in pod["status"].get("conditions", ()))


def translated(pod):
    return pod["spec"].get("resourceClaims")


def has_claim(pod):
    return pod["status"].get("resourceClaimStatuses")


def says(cluster, tenants, name, about, remedy):
    """Explain the pod until it names the part; what it names first has to be that."""
    told = {}

    def first():
        told.update(explained(cluster, name, tenants)["standing"])
        return told["message"].startswith(f"{name_of(about)}: ") and remedy in told["message"]

    cluster.until(f"{name_of(about)} is named", first, told=lambda: told)


def test_each_pod_is_told_the_part_that_it_waits_for_while_several_are_away(cluster, tenants):
    """One after the other goes, and a pod comes that gets no further."""
    with ExitStack() as stack:
        stack.enter_context(away(cluster, "allocator"))
        comes(cluster, stack, tenants, "placed", has_claim, schedulerName="drawbridge")
        stack.enter_context(away(cluster, "controller"))
        comes(cluster, stack, tenants, "templated", translated, count=2)
        with broken(cluster, MUTATING, None):
            untouched(cluster, gpu("unasked", tenants))
            comes(cluster, stack, tenants, "unasked", refused)
            says(cluster, tenants, "unasked", MUTATING, "apply the manifests")
        stack.enter_context(away(cluster, "webhook"))
        comes(cluster, stack, tenants, "missed", refused)
        says(cluster, tenants, "missed", deployment("webhook"), "scale deployment")
        says(cluster, tenants, "templated", deployment("controller"), "scale deployment")
        says(cluster, tenants, "placed", deployment("allocator"), "scale deployment")


def test_a_pod_for_which_no_driver_publishes_is_told_of_the_driver(cluster, tenants):
    """Its slices go with it, after half a minute by the kubelet's hand."""

    def unpublished():
        left = [one for one in cluster.get(SLICES)["items"] if one["spec"]["driver"] == fleet.NVIDIA]
        for one in left:
            cluster.delete(f"{SLICES}/{one['metadata']['name']}")
        return not left

    with ExitStack() as stack:
        stack.enter_context(broken(cluster, DRIVER, None))
        cluster.until("no slice is left", unpublished)
        comes(cluster, stack, tenants, "missed", refused)
        says(cluster, tenants, "missed", DRIVER, "apply the manifests")


def test_a_pod_without_a_template_is_told_that_no_controller_leads(cluster, tenants):
    may_not = role("drawbridge-controller", "Role")
    with ExitStack() as stack:
        with away(cluster, "controller"):
            stack.enter_context(broken(cluster, may_not, without("leases")))
            cluster.remove(named("coordination.k8s.io/v1", "Lease", "drawbridge", SYSTEM))
        comes(cluster, stack, tenants, "templated", translated, count=2)
        says(cluster, tenants, "templated", may_not, "apply the manifests")
