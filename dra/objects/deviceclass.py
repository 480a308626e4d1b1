"""A DeviceClass: what an admin calls a kind of device, and how it is set up."""

from __future__ import annotations

from dra.objects.claim import DeviceSelector, OpaqueDeviceConfiguration
from dra.objects.meta import ObjectMeta
from dra.wire import Wire


class DeviceClassConfiguration(Wire, frozen=True, kw_only=True):
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Wire, frozen=True, kw_only=True):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Wire, frozen=True, kw_only=True):
    api_version: str = "resource.k8s.io/v1"
    kind: str = "DeviceClass"
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()
