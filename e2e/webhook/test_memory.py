"""A tenant stores large objects on a real API server: no process of ours exceeds its memory, and each becomes ready after a restart."""

from contextlib import closing
from pathlib import Path

import pytest

from e2e.actors.client import Client
from e2e.actors.webhook import NOWHERE, gpu, templates_of
from e2e.ground.controlplane import ControlPlane

pytestmark = pytest.mark.real
# With parameters as Python objects, sixty such templates alone would take the controller to 989 MiB.
TEMPLATES, CLAIMS, DEPLOYMENTS, PODS, MANY = 60, 15, 10, 2, 2
CEILING = 220  # MiB
GROUPS = {"resource.k8s.io": ["resourceclaimtemplates", "resourceclaims"], "apps": ["deployments"], "": ["pods"]}


def tenant(cluster: ControlPlane, namespace: str) -> closing[Client]:
    """A client that may create these kinds in one namespace, and nothing else."""
    rules = [{"apiGroups": [group], "resources": kinds, "verbs": ["create"]} for group, kinds in GROUPS.items()]
    rbac = "rbac.authorization.k8s.io"
    cluster.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "filler", "namespace": namespace}},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "filler", "namespace": namespace}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "filler", "namespace": namespace},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "filler"},
            "subjects": [{"kind": "ServiceAccount", "name": "filler", "namespace": namespace}],
        },
    )  # fmt: skip
    who = f"system:serviceaccount:{namespace}:filler"
    for group, kinds in GROUPS.items():
        for kind in kinds:
            cluster.until_may(who, "create", kind, namespace, group)
    return cluster.client_of(namespace, "filler")


def hostile(namespace):
    """Objects of the maximum size, in the shapes that grow most when they are decoded."""
    parameters = {"a": [{}] * 2500}
    request = {"name": "r", "exactly": {"deviceClassName": "none.example.com"}}
    config = [{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}] * 32
    spec = {"devices": {"requests": [request], "config": config}}
    version = "resource.k8s.io/v1"
    for number in range(TEMPLATES):
        yield {"apiVersion": version, "kind": "ResourceClaimTemplate", "metadata": {"name": f"t{number}", "namespace": namespace}, "spec": {"spec": spec}}  # fmt: skip
    for number in range(CLAIMS):
        yield {"apiVersion": version, "kind": "ResourceClaim", "metadata": {"name": f"c{number}", "namespace": namespace}, "spec": spec}  # fmt: skip
    # An API server takes seconds for a list of ten thousand entries, because of managed fields; so only few objects have them.
    many_variables = [{"name": f"E{number:x}"} for number in range(10_000)]
    long_variable = [{"name": "E", "value": "x" * 900_000}]
    labels = {"app": "x"}
    for number in range(DEPLOYMENTS):
        variables = many_variables if number < MANY else long_variable
        pod = {"containers": [{"name": "c", "image": "none", "env": variables}]}
        template = {"metadata": {"labels": labels}, "spec": pod}
        yield {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": f"d{number}", "namespace": namespace},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
        }
    many = {f"l{number:x}": "" for number in range(20_000)}
    for number in range(PODS):
        waiting = many | {"drawbridge.dev/awaits-template": "true"}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}", "namespace": namespace, "labels": waiting},
            "spec": {"containers": [{"name": "c", "image": "none"}], "schedulerName": "none"},
        }


def peak(process):
    """Return the peak resident memory of a process, in MiB."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def test_objects_of_a_tenant_do_not_exhaust_our_memory(control_plane, fleet_node, gated, webhook, created):
    other = control_plane.namespace("webhook-filler")
    try:
        with tenant(control_plane, other) as client:
            client.create_many(hostile(other), threads=4)
        webhook.kill_controller()
        webhook.start_controller()
        webhook.processes["webhook"].stop()
        webhook.start_webhook()
        created(gpu("honest", gated, nodeSelector=NOWHERE))
        control_plane.until("another namespace's pod has its template", lambda: templates_of(control_plane, gated), 30)
        # The API server takes seconds for the list of large Deployments, and templates do not wait for it.
        noted = "deployments.apps webhook-filler"
        control_plane.until(
            "the note names what is not kept", lambda: noted in webhook.controllers("/readyz?verbose"), 60
        )
        peaks = {name: peak(webhook.processes[name]) for name in ("webhook", "controller")}
        assert max(peaks.values()) < CEILING, peaks
    finally:
        control_plane.delete(f"/api/v1/namespaces/{other}")
