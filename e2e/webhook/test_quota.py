"""A DeviceQuota on a real API server: the webhook refuses a pod that requests more than the whole quota, and warns beyond what is left."""

import json

import pytest

from e2e.actors.workloads import container, limits, pod

pytestmark = pytest.mark.real
KEY = "gpu.nvidia.com/devices"


def dry_run(cluster, namespace, gpus):
    """Return kubectl's exit code and output for a pod with this number of GPUs."""
    item = pod("probe", namespace, container(**limits(**{"nvidia.com/gpu": gpus})))
    done = cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(item), check=False)
    return done.returncode, done.stderr


def test_a_pod_beyond_the_whole_quota_is_refused(control_plane, fleet_node, gated):
    assert dry_run(control_plane, gated, 3)[0] == 0
    quota = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceQuota", "metadata": {"name": "team", "namespace": gated}, "spec": {"hard": {KEY: "2"}}}  # fmt: skip
    control_plane.create(quota)
    try:
        output = control_plane.until(
            "three GPUs are refused", lambda: (answer := dry_run(control_plane, gated, 3))[0] == 1 and answer[1], 30
        )
        assert "[R024]" in output
        assert dry_run(control_plane, gated, 2) == (0, "")
    finally:
        control_plane.remove(quota)
