"""Baselines on a real node: claims, extended resources and device plugins with Kubernetes alone.

Our own components are compared with these. No code of ours runs here except for the harness.
"""

import pytest

from e2e.actors import fleet
from e2e.actors.workloads import claim, container, limits, pod, request, template, using, using_template
from e2e.ground.node import TEST_DRIVER

pytestmark = [pytest.mark.real, pytest.mark.node]


def test_a_container_sees_the_device_of_its_template_claim(control_plane, node_cluster, namespace, created):
    """Kubernetes' scheduler allocates, its test driver prepares, and CDI sets the container's environment."""
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
    control_plane.wait_phase(namespace, "p", "Succeeded")
    environment = node_cluster.environment(namespace, "p")
    # The pod's status may name another claim already: kube-controller-manager can make one more for a pod that has just ended.
    [prepared] = [name for name in environment if name.startswith("claim_p_one_") and name.endswith("_device")]
    assert environment["user_a"] == "b"
    assert environment[prepared] == "true"


def test_an_unchanged_pod_gets_its_gpu_through_an_extended_resource(control_plane, node_cluster, namespace, created):
    """The pod requests `nvidia.com/gpu: 1` only: the scheduler creates the claim, and the driver prepares it."""
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


def test_a_device_plugin_serves_the_pod_that_requests_it(control_plane, node_cluster, namespace, created):
    """The node's allocatable has the resource, and the container has the plugin's mount. Pods start here before they move to claims."""
    node_cluster.start_device_plugin()
    control_plane.until(
        "the node offers example.com/resource",
        lambda: node_cluster.allocatable().get("example.com/resource") == "2",
        seconds=60,
    )
    created(pod("p", namespace, container(command="ls /tmp; echo spoken=yes", **limits(**{"example.com/resource": 1}))))
    control_plane.wait_phase(namespace, "p", "Succeeded")
    [device] = node_cluster.output_of(namespace, "p").split()
    assert device in {"Dev-1", "Dev-2"}


def test_a_container_with_a_claim_survives_a_kubelet_restart(control_plane, node_cluster, namespace, created):
    """The claim is released when the pod ends, so the restarted kubelet knows the prepared claims."""
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
