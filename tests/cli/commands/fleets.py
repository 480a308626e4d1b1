"""Slices, classes, claims and pods for the tests of simulations."""

from tests.allocator.fleets import DRIVER
from tests.objects import allocated, claim, device_class, pod, resource_slice, result


def node_slice(node, *devices, name=None):
    """A slice with the devices of a node."""
    return resource_slice(name or node, *devices, driver=DRIVER, pool=node, nodeName=node)


def class_of(name, expression="true"):
    """A DeviceClass of the devices that match this CEL expression."""
    return device_class(name, expression)


def allocated_claim(name, device, pool="n0", **fields):
    """A claim to which this device is allocated."""
    return claim(name, status=allocated(result(device, driver=DRIVER, pool=pool, **fields)))


def pod_of_template(name, template):
    """A pod that gets a claim from this template."""
    return pod(name, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": template}])
