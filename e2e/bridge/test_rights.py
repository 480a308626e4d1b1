"""Only the allocator that holds the lease writes, and it uses every right that it has."""

from functools import partial

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import LEASE, POLICY
from e2e.actors.client import ApiError, Client
from e2e.actors.rights import check_rights
from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import claim, compatibility, container, limits, request, using
from e2e.bridge import gpu_nodes
from e2e.bridge.gpu_nodes import CLASS, REPLICA, claim_pod, quota, status_of

pytestmark = pytest.mark.real
gpus, ours = gpu_nodes.gpus, gpu_nodes.ours


def test_the_api_server_accepts_writes_of_the_lease_holder_only(control_plane, bridge, gpus, ours):
    control_plane.create(claim("a", ours, request("gpu", CLASS)))
    path = f"/apis/resource.k8s.io/v1/namespaces/{ours}/resourceclaims/a"
    tokens = {name: bridge.token(name) for name in (REPLICA, "allocator-1")}
    tokens["bound to no pod"] = control_plane.token_of(SYSTEM, "drawbridge-allocator")
    for name, token in tokens.items():
        client = Client(control_plane.url, token, control_plane.ca)
        try:
            for subresource, body in (("", {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}), ("/status", {"status": {"reservedFor": None}})):  # fmt: skip
                if name == REPLICA:  # the API server may not know the new lease holder yet
                    control_plane.until(
                        "the holder may write", partial(client.patch, path + subresource, body, dryRun="All")
                    )
                    continue
                with pytest.raises(ApiError, match=POLICY) as refusal:
                    client.patch(path + subresource, body, dryRun="All")
                assert refusal.value.code == 403
                assert "does not hold the lease" in refusal.value.message
        finally:
            client.close()


# Rights that these tests do not use, and what they are needed for.
UNUSED_RIGHTS = {
    ("*", "*", "list"): "servers that do not stream lists are asked for pages",
    ("resource.k8s.io", "resourceclaims/binding", "patch"): "the API server requires it for writes of a status",
    ("", "events", "create"): "events of pods whose reservation ends",
    ("", "events", "patch"): "the same events, repeated",
    ("", "pods", "get"): "a pod for which two claims were made is read again (e2e/bridge/test_changed_claims.py)",
    ("", "pods", "delete"): "evictions (e2e/bridge/test_plugin.py)",
    ("", "pods/status", "patch"): "the reason of an eviction",
    (
        "resource.k8s.io",
        "resourceclaims",
        "update",
    ): "writes of claims that a patch would spell differently (e2e/bridge/test_spellings.py)",
    ("resource.k8s.io", "resourceclaims/status", "update"): "the same",
    ("resource.k8s.io", "resourceclaims/binding", "update"): "the same",
    (
        "scheduling.k8s.io",
        "podgroups",
        "watch",
    ): "PodGroups, which this control plane does not serve (e2e/bridge/test_groups.py)",
    ("resource.k8s.io", "resourceclaims", "get"): "claims are read again after a conflict, or if an answer was lost",
}


def test_without_a_lease_other_writers_may_change_claims(control_plane, bridge, ours):
    """The API server looks for a policy's parameter before it evaluates match conditions.

    So a policy that denies without its parameter, the lease, would block the claims of all other writers.
    """
    bridge.processes["allocator-0"].stop()
    try:
        control_plane.delete(LEASE)
        control_plane.until("other writers may write claims", lambda: not bridge.is_fenced())
        [claim_] = control_plane.create(claim("c", ours, request("gpu", CLASS)))
        finalizers = {"metadata": {"finalizers": ["drawbridge.dev/test"]}}
        control_plane.patch(control_plane.path_of(claim_), finalizers, dryRun="All")
    finally:
        bridge.start()
    control_plane.until("claim writes are refused to pods that do not hold the lease", bridge.is_fenced)


def test_the_allocator_uses_all_of_its_rights_and_no_others(control_plane, bridge, gpus, ours, created):
    """The rights in use are read from the API server's audit log."""
    control_plane.create(quota(ours, 1))
    control_plane.until("the quota's status has the use", lambda: "used" in status_of(control_plane, ours), 30)
    [rule] = created(compatibility("bridge-rights", driver=fleet.NVIDIA, compatibleOnlyWith="true"))
    path = control_plane.path_of(rule)
    expected = {"observedGeneration": 1, "devices": 4, "findings": []}
    control_plane.until(
        "the rule's status counts its devices", lambda: control_plane.get(path).get("status") == expected, 30
    )
    control_plane.create(
        claim("a", ours, request("gpu", CLASS)), claim_pod("p", ours, using("a")), claim_pod("q", ours)
    )
    control_plane.wait_scheduled(ours, "p")
    control_plane.wait_scheduled(ours, "q")
    # For an extended resource the allocator creates the claim.
    created(fleet.device_class("bridge-rights", f"device.driver == '{fleet.NVIDIA}'", "bridge-rights.example.com/gpu"))
    control_plane.create(
        claim_pod("r", ours, containers=[container(**limits(**{"bridge-rights.example.com/gpu": 1}))]),
    )
    control_plane.wait_scheduled(ours, "r", 60)
    check_rights(control_plane, "drawbridge-allocator", UNUSED_RIGHTS)
