"""One cluster for all that is installed as pods: its node, its images, and the installation with our scheduler and its allocator."""

import pytest

from cluster.manifests import dump
from e2e.actors import fleet
from e2e.driver.test_adapter import RESOURCE
from e2e.driver.test_migrate import daemon_set
from e2e.ground import product
from e2e.ground.controlplane import ControlPlane
from e2e.ground.node import Node
from e2e.installed.installation import INVENTORY, PROGRAM, Installation, kustomized, objects, printed_manifests

NODE_LABELS = {"drawbridge.dev/driver": "reference", "drawbridge.dev/adapter": "on", "drawbridge.dev/node-agent": "on"}
CONFIGURATION = {
    "apiVersion": "drawbridge.dev/v1alpha1",
    "kind": "DrawbridgeConfiguration",
    "mode": "observe",
    "bridge": {"schedulerName": "drawbridge"},
}
VALUES = {"level": "node", "bridge": {"schedulerImage": product.SCHEDULER}}


@pytest.fixture(scope="package")
def node():
    with ControlPlane(name="pods", network=True) as cluster:
        yield Node(cluster).start()


@pytest.fixture(scope="package")
def installation(node):
    """The installation of `drawbridge manifests`, with our scheduler in the configuration, and the components of nodes."""
    cluster = node.cluster
    node.import_images(product.archive(cluster.run.data))
    cluster.patch(f"/api/v1/nodes/{node.name}", {"metadata": {"labels": NODE_LABELS}})
    installed = Installation(node)
    items = [
        *printed_manifests(cluster, CONFIGURATION, **VALUES),
        *node_components(cluster),
        *vendor_plugin(),
        *fleet.classes(extended=False),
    ]
    installed.apply(items)
    installed.wait(items)
    return installed


@pytest.fixture(scope="package")
def tenants(node, installation):
    name = node.cluster.namespace("tenants")
    node.cluster.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": {"drawbridge.dev/mode": "enforce"}}})
    return name


def node_components(cluster):
    """The components of the reference driver and of the adapter as built by kustomize, and the inventory of the driver."""
    inventory = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "drawbridge-inventory", "namespace": "drawbridge-driver"},
        "data": {"inventory.yaml": dump([INVENTORY])},
    }
    return [*kustomized(cluster, components=["driver", "adapter"]), inventory]


def vendor_plugin():
    """A foreign device plugin behind the adapter, and the class for its resource."""
    plugin = daemon_set("kube-system", "vendor-plugin", "/var/lib/kubelet/adapted-plugins")
    return [plugin, *objects(product.run([PROGRAM, "driver", "--classes", RESOURCE]))]
