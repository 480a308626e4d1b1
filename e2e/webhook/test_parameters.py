"""Driver parameters on a real API server: authors of a template and of its pod get a warning about what the driver would refuse."""

import json

import pytest

from e2e.actors.webhook import NOWHERE
from e2e.actors.workloads import container, pod

pytestmark = pytest.mark.real


def template(name, namespace, parameters):
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    config = [{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": [request], "config": config}}},
    }


def consumer(name, namespace):
    item = pod(name, namespace, container(resources={"claims": [{"name": "gpu"}]}), nodeSelector=NOWHERE)
    item["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": name}]
    return item


def warnings_of(cluster, item, *options):
    return cluster.kubectl("create", *options, "-f", "-", input=json.dumps(item)).stderr


def test_a_pod_with_parameters_its_driver_refuses_gets_a_warning(control_plane, fleet_node, gated):
    typed = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
    wrong = typed | {"sharing": {"strategy": "MPS", "timeSlicingConfig": {"interval": "Long"}}}
    warning = warnings_of(control_plane, template("wrong", gated, wrong))
    assert "Warning: D704 /spec/spec/devices/config/0/opaque/parameters/sharing/timeSlicingConfig" in warning
    assert "Warning" not in warnings_of(control_plane, template("fine", gated, typed))

    def heard():
        printed = warnings_of(control_plane, consumer("wrong", gated), "--dry-run=server")
        return "does not exist yet" not in printed and printed

    warning = control_plane.until("the webhook knows the template", heard, 30)
    assert "Warning: claim gpu: D704 /spec/devices/config/0/opaque/parameters/sharing/timeSlicingConfig" in warning
    created = warnings_of(control_plane, consumer("wrong", gated))
    assert created == warning
    assert control_plane.get(f"/api/v1/namespaces/{gated}/pods/wrong")["metadata"]["name"] == "wrong"
    assert "Warning: claim" not in warnings_of(control_plane, consumer("fine", gated), "--dry-run=server")
