"""The DeviceClass that stands for a resource of a plugin, so that pods which ask for the resource run as they are.

Kubernetes' scheduler makes the claim of such a pod by itself, because the class names the resource (KEP-5004).
"""

from __future__ import annotations

from dra.objects import CELDeviceSelector, DeviceClass, DeviceClassSpec, DeviceSelector, ObjectMeta
from node.inventory import label


def class_of(driver: str, resource: str) -> DeviceClass:
    """Make the class of a resource."""
    domain, _, name = resource.partition("/")
    expression = f'device.driver == "{driver}" && device.attributes["{driver}"].resource == "{resource}"'
    selector = DeviceSelector(cel=CELDeviceSelector(expression=expression))
    return DeviceClass(
        metadata=ObjectMeta(name=f"{label(name)}.{domain}.{driver}"),
        spec=DeviceClassSpec(selectors=(selector,), extended_resource_name=resource),
    )
