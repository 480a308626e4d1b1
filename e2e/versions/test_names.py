"""The row of docs/versions.md about pods that the scheduler serves by an extended resource name, on control planes of their own."""

from e2e.actors.webhook import claims_of
from e2e.versions import test_versions as versions
from e2e.webhook import test_by_name as by_name
from tests.limits import PATIENCE

pytestmark = versions.pytestmark
control_plane, webhook, cell, gpus = versions.control_plane, versions.webhook, versions.cell, by_name.gpus


def test_nvidia_pods_get_devices_if_the_class_serves_the_resource(control_plane, gpus, gated, cell):
    """Servers before 1.36 drop the class's extended resource name; there the webhook creates the claims."""
    assert "[R023]" in control_plane.refusal(by_name.asking("three", gated, 3))
    control_plane.create(by_name.asking("two", gated, 2))
    stored = control_plane.wait_scheduled(gated, "two")
    by_core, by_us = stored["status"].get("extendedResourceClaimStatus"), claims_of(control_plane, gated, "two")
    assert bool(by_core) != bool(by_us)
    served_by = "by Kubernetes" if by_core else "by our claims"
    cell("webhook: a class's resource name leads to GPUs", served_by)
    if by_core:
        control_plane.delete(f"/api/v1/namespaces/{gated}/pods/two", gracePeriodSeconds=0)
        claims = f"/apis/resource.k8s.io/v1/namespaces/{gated}/resourceclaims"
        control_plane.until("its claim is gone", lambda: not control_plane.get(claims)["items"], PATIENCE)
        by_name.test_pods_are_judged_by_the_claim_that_core_creates(control_plane, gpus, gated)
