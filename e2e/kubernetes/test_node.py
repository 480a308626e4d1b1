"""The baselines on a real node: what Kubernetes does by itself with claims, extended resources and device plugins.

Our own parts are compared with these. Nothing here runs code of ours but the harness.
"""

import pytest

from e2e.actors import fleet
from e2e.actors.workloads import claim, container, limits, pod, request, template, using, using_template
from e2e.ground.node import TEST_DRIVER

pytestmark = [pytest.mark.real, pytest.mark.node]


def test_a_container_sees_the_device_of_its_template_claim(control_plane, node_cluster, namespace, created):
    """In-tree allocation, the test driver's preparation, and CDI, from the pod to the container's environment."""
    parameters = {"opaque": {"driver": TEST_DRIVER, "parameters": {"a": "b"}}}
    created(
        fleet.device_class("e2e-test-driver", f"device.driver == '{TEST_DRIVER}'"),
        template("one", namespace, request("device", "e2e-test-driver"), config=[parameters]),
        pod(
            "p",
            namespace,
            container(resources={"claims": [{"name": "one"}]}),
            node=node_cluster.name,
            resourceClaims=[using_template("one")],
        ),
    )
    ran = control_plane.wait_phase(namespace, "p", "Succeeded")
    environment = node_cluster.environment(namespace, "p")
    [status] = ran["status"]["resourceClaimStatuses"]
    prepared = f"claim_{status['resourceClaimName']}_device".replace("-", "_")
    assert environment["user_a"] == "b"
    assert environment[prepared] == "true"


def test_an_unchanged_pod_gets_its_gpu_through_the_extended_resource_name(
    control_plane, node_cluster, namespace, created
):
    """`nvidia.com/gpu: 1` and nothing else: the scheduler makes the claim, the driver prepares it."""
    node_cluster.driver(fleet.NVIDIA)
    created(
        *fleet.slices(fleet.NVIDIA, node_cluster.name, fleet.whole_gpus(2)),
        fleet.classes()[0],
        pod("p", namespace, container(**limits(**{"nvidia.com/gpu": 1})), node=node_cluster.name),
    )
    ran = control_plane.wait_phase(namespace, "p", "Succeeded")
    served = ran["status"]["extendedResourceClaimStatus"]
    [mapping] = served["requestMappings"]
    assert ran["spec"].get("resourceClaims") is None
    prepared = f"claim_{served['resourceClaimName']}_{mapping['requestName']}".replace("-", "_")
    assert node_cluster.environment(namespace, "p")[prepared] == "true"


def test_a_device_plugin_serves_the_pod_that_asks_for_it(control_plane, node_cluster, namespace, created):
    """The path that pods come from: allocatable on the node, the plugin's mount in the container."""
    node_cluster.start_device_plugin()
    control_plane.until(
        "the node offers example.com/resource",
        lambda: node_cluster.allocatable().get("example.com/resource") == "2",
        seconds=60,
    )
    created(pod("p", namespace, container(command="ls /tmp; echo spoken=yes", **limits(**{"example.com/resource": 1}))))
    control_plane.wait_phase(namespace, "p", "Succeeded")
    [device] = node_cluster.said(namespace, "p").split()
    assert device in {"Dev-1", "Dev-2"}


def test_a_container_with_a_claim_outlives_a_restart_of_the_kubelet(control_plane, node_cluster, namespace, created):
    """And the claim is released when the pod goes, so the new kubelet still knows what the old one had prepared."""
    control_plane.until("nothing is prepared for others", lambda: not prepared_files(node_cluster), seconds=60)
    created(
        fleet.device_class("e2e-restart", f"device.driver == '{TEST_DRIVER}'"),
        claim("kept", namespace, request("device", "e2e-restart")),
        pod(
            "p",
            namespace,
            container(command="sleep 600", resources={"claims": [{"name": "kept"}]}),
            node=node_cluster.name,
            resourceClaims=[using("kept")],
        ),
    )
    before = control_plane.wait_phase(namespace, "p", "Running")["status"]["containerStatuses"][0]
    assert len(prepared_files(node_cluster)) == 1
    node_cluster.restart_kubelet()
    control_plane.until("the node is ready again", node_cluster.ready)
    after = control_plane.wait_phase(namespace, "p", "Running")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/p")
    held = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/kept"
    control_plane.until("the claim is released", lambda: not control_plane.get(held).get("status"), seconds=60)
    control_plane.until("the claim is unprepared", lambda: not prepared_files(node_cluster), seconds=60)


def prepared_files(node):
    return list(node.outside("/run/cdi").glob(f"{TEST_DRIVER}-*-device.json"))
