"""The messages of registration, of the DRA plugin service and of the health service (k8s.io/kubelet/pkg/apis).

The names of fields are ours; on the wire only their numbers count, and those are their places. v1 and v1beta1 differ in nothing but the
share of a device, which an older kubelet passes over.
"""

from __future__ import annotations

from node.messages.encoding import Message


class NothingSaid(Message, frozen=True, kw_only=True):
    """A request or an answer without a field."""


class PluginInfo(Message, frozen=True, kw_only=True):
    """Who a plugin is."""

    type: str = ""
    name: str = ""
    endpoint: str = ""
    supported_versions: tuple[str, ...] = ()


class RegistrationStatus(Message, frozen=True, kw_only=True):
    """Whether the kubelet took the plugin."""

    registered: bool = False
    error: str = ""


class ClaimReference(Message, frozen=True, kw_only=True):
    """Which claim is meant."""

    namespace: str = ""
    uid: str = ""
    name: str = ""


class PrepareRequest(Message, frozen=True, kw_only=True):
    """Claims to prepare; or to unprepare, which is said with the same fields."""

    claims: tuple[ClaimReference, ...] = ()


class PreparedDevice(Message, frozen=True, kw_only=True):
    """A device of a claim, and by which names the runtime puts it into a container."""

    requests: tuple[str, ...] = ()
    pool: str = ""
    device: str = ""
    cdi: tuple[str, ...] = ()
    share: str | None = None


class PreparedClaim(Message, frozen=True, kw_only=True):
    """The devices of one claim, or why there are none."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


class PrepareResponse(Message, frozen=True, kw_only=True):
    """An answer for each claim, by its uid."""

    claims: dict[str, PreparedClaim] = {}


class UnpreparedClaim(Message, frozen=True, kw_only=True):
    """Nothing, or why a claim is still prepared."""

    error: str = ""


class UnprepareResponse(Message, frozen=True, kw_only=True):
    """An answer for each claim, by its uid."""

    claims: dict[str, UnpreparedClaim] = {}


class DeviceIdentifier(Message, frozen=True, kw_only=True):
    """Which device."""

    pool: str = ""
    device: str = ""


class DeviceHealth(Message, frozen=True, kw_only=True):
    """How a device fares: 0 nobody knows, 1 well, 2 not well; `updated` in seconds since 1970, believed for `seconds`."""

    device: DeviceIdentifier = DeviceIdentifier()
    health: int = 0
    updated: int = 0
    seconds: int = 0
    message: str = ""


class HealthReport(Message, frozen=True, kw_only=True):
    """How all devices fare."""

    devices: tuple[DeviceHealth, ...] = ()
