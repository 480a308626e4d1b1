"""`drawbridge doctor` on a live cluster: what is found, what is put right, and what it says of the rest."""

import json
import subprocess

import pytest

from e2e.actors.gate import COMMAND
from e2e.actors.workloads import claim, request, template

pytestmark = pytest.mark.real
# The form of our names, with content that is not what the name says: nobody waits an hour for that.
OURS = f"drawbridge-{'0' * 32}"
LABELS = {"app.kubernetes.io/managed-by": "drawbridge"}


def doctor(control_plane, namespace, *options):
    """Ask it; answer with what it found in a namespace, and its exit code."""
    command = [*COMMAND, "doctor", "--kubeconfig", str(control_plane.kubeconfig), "-o", "json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = json.loads(done.stdout)["findings"]
    return [one for one in found if f" {namespace}/" in f"{one['object']} {one['message']}"], done.returncode


def test_a_live_cluster_is_looked_at_and_put_right_where_it_can_be(control_plane, namespace):
    left = template(OURS, namespace, request("gpu", "doctor-none"))
    left["metadata"]["labels"] = LABELS
    control_plane.create(left, claim("waits", namespace, request("gpu", "doctor-none")))
    found, code = doctor(control_plane, namespace)
    assert (code, [one["what"] for one in found]) == (1, ["without class", "unused template"])
    assert control_plane.read(left) is not None
    treated, code = doctor(control_plane, namespace, "--repair", "--yes")
    assert (code, [one["repaired"] for one in treated]) == (1, [False, True])
    assert control_plane.read(left) is None
    [rest], _ = doctor(control_plane, namespace)
    assert f"ResourceClaim {namespace}/waits" in rest["message"]
