"""While a component of the installation is down, the first line of `drawbridge explain pod` names the component and the remedy."""

from contextlib import ExitStack

import pytest

from e2e.actors import fleet
from e2e.actors.webhook import SYSTEM, gpu, untouched
from e2e.installed.breakages import (
    MUTATING,
    away,
    broken,
    deployment,
    name_of,
    named,
    role,
    well,
    without,
    without_pods,
)
from e2e.installed.installation import translates
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
    """Create a pod with a GPU, and wait until it is stuck."""
    item = gpu(name, tenants, **spec)
    stack.callback(cluster.remove, item)
    cluster.create(item)
    cluster.until(f"{name} waits", lambda: condition(cluster.read(item)), detail=lambda: cluster.read(item))


def refused(pod):
    return any(condition.get("reason") == "Unschedulable" for condition in pod["status"].get("conditions", ()))


def translated(pod):
    return pod["spec"].get("resourceClaims")


def has_claim(pod):
    return pod["status"].get("resourceClaimStatuses")


def says(cluster, tenants, name, about, remedy):
    """Explain the pod until the explanation begins with the component and contains the remedy."""
    answer = {}

    def first():
        answer.update(explained(cluster, name, tenants)["nextStep"])
        return answer["message"].startswith(f"{name_of(about)}: ") and remedy in answer["message"]

    cluster.until(f"{name_of(about)} is named", first, detail=lambda: answer)


def test_each_waiting_pod_names_the_component_that_is_down(cluster, tenants):
    """The components are stopped one after the other. After each stop, a new pod waits for the component that was stopped last."""
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


def test_a_pod_without_published_devices_names_the_missing_driver(cluster, tenants):
    """The kubelet deletes the slices half a minute after the driver has stopped."""

    def unpublished():
        left = [slice_ for slice_ in cluster.get(SLICES)["items"] if slice_["spec"]["driver"] == fleet.NVIDIA]
        for slice_ in left:
            cluster.delete(f"{SLICES}/{slice_['metadata']['name']}")
        return not left

    with ExitStack() as stack:
        stack.enter_context(broken(cluster, DRIVER, None))
        # A driver that still runs publishes the slices again.
        cluster.until("the driver is away", lambda: without_pods(cluster, DRIVER["metadata"]["namespace"]), 60)
        cluster.until("no slice is left", unpublished)
        comes(cluster, stack, tenants, "missed", refused)
        says(cluster, tenants, "missed", DRIVER, "apply the manifests")


def test_a_pod_without_a_template_names_the_missing_controller(cluster, tenants):
    may_not = role("drawbridge-controller", "Role")
    with ExitStack() as stack:
        with away(cluster, "controller"):
            stack.enter_context(broken(cluster, may_not, without("leases")))
            cluster.remove(named("coordination.k8s.io/v1", "Lease", "drawbridge", SYSTEM))
        comes(cluster, stack, tenants, "templated", translated, count=2)
        says(cluster, tenants, "templated", may_not, "apply the manifests")
