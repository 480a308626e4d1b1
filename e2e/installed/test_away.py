"""While a component of the installation is down, the first line of `drawbridge explain pod` names the component and the remedy."""

from contextlib import ExitStack

import pytest

from e2e.actors import fleet
from e2e.actors.webhook import SYSTEM, gpu, untouched
from e2e.installed.breakages import (
    MUTATING,
    broken,
    delete_pods,
    deployment,
    name_of,
    reference,
    role,
    scaled_to_zero,
    until_healthy,
    without_resource,
)
from e2e.installed.installation import until_pods_are_translated
from e2e.installed.test_waiting_pods import explained

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.timeout(480)]  # fmt: skip

DRIVER = reference("apps/v1", "DaemonSet", "drawbridge-driver", "drawbridge-driver")
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@pytest.fixture
def cluster(installation, tenants):
    until_healthy(installation.cluster)
    until_pods_are_translated(installation.cluster, tenants)
    yield installation.cluster
    until_healthy(installation.cluster)


def create_stuck_pod(cluster, stack, tenants, name, condition, **spec):
    """Create a pod with a GPU, and wait until it is stuck."""
    item = gpu(name, tenants, **spec)
    stack.callback(cluster.remove, item)
    cluster.create(item)
    cluster.until(f"pod {name} is stuck", lambda: condition(cluster.read(item)), detail=lambda: cluster.read(item))


def is_unschedulable(pod):
    return any(condition.get("reason") == "Unschedulable" for condition in pod["status"].get("conditions", ()))


def is_translated(pod):
    return pod["spec"].get("resourceClaims")


def has_claim(pod):
    return pod["status"].get("resourceClaimStatuses")


def until_explained(cluster, tenants, name, component, remedy):
    """Explain the pod until the explanation begins with the component and contains the remedy."""
    answer = {}

    def begins_with_component():
        answer.update(explained(cluster, name, tenants)["state"]["reasons"][0])
        return answer["text"].startswith(f"{name_of(component)}: ") and remedy in answer["remedies"][0]

    cluster.until(f"the explanation begins with {name_of(component)}", begins_with_component, detail=lambda: answer)


def test_each_waiting_pod_names_the_component_that_is_down(cluster, tenants):
    """The components are stopped one after the other. After each stop, a new pod waits for the component that was stopped last."""
    with ExitStack() as stack:
        stack.enter_context(scaled_to_zero(cluster, "allocator"))
        create_stuck_pod(cluster, stack, tenants, "placed", has_claim, schedulerName="drawbridge")
        stack.enter_context(scaled_to_zero(cluster, "controller"))
        create_stuck_pod(cluster, stack, tenants, "templated", is_translated, count=2)
        with broken(cluster, MUTATING, None):
            untouched(cluster, gpu("unasked", tenants))
            create_stuck_pod(cluster, stack, tenants, "unasked", is_unschedulable)
            until_explained(cluster, tenants, "unasked", MUTATING, "apply the manifests")
        stack.enter_context(scaled_to_zero(cluster, "webhook"))
        create_stuck_pod(cluster, stack, tenants, "missed", is_unschedulable)
        until_explained(cluster, tenants, "missed", deployment("webhook"), "scale deployment")
        until_explained(cluster, tenants, "templated", deployment("controller"), "scale deployment")
        until_explained(cluster, tenants, "placed", deployment("allocator"), "scale deployment")


def test_a_pod_without_published_devices_names_the_missing_driver(cluster, tenants):
    """The kubelet deletes the slices half a minute after the driver has stopped."""

    def delete_slices():
        slices = [slice_ for slice_ in cluster.get(SLICES)["items"] if slice_["spec"]["driver"] == fleet.NVIDIA]
        for slice_ in slices:
            cluster.delete(f"{SLICES}/{slice_['metadata']['name']}")
        return not slices

    with ExitStack() as stack:
        stack.enter_context(broken(cluster, DRIVER, None))
        # A driver that still runs publishes the slices again.
        cluster.until("the driver has no pod", lambda: delete_pods(cluster, DRIVER["metadata"]["namespace"]), 60)
        cluster.until("no slice is left", delete_slices)
        create_stuck_pod(cluster, stack, tenants, "missed", is_unschedulable)
        until_explained(cluster, tenants, "missed", DRIVER, "apply the manifests")


def test_a_pod_without_a_template_names_the_missing_controller(cluster, tenants):
    broken_role = role("drawbridge-controller", "Role")
    with ExitStack() as stack:
        with scaled_to_zero(cluster, "controller"):
            stack.enter_context(broken(cluster, broken_role, without_resource("leases")))
            cluster.remove(reference("coordination.k8s.io/v1", "Lease", "drawbridge", SYSTEM))
        create_stuck_pod(cluster, stack, tenants, "templated", is_translated, count=2)
        until_explained(cluster, tenants, "templated", broken_role, "apply the manifests")
