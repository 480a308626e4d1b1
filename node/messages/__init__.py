"""What the kubelet and a driver say to each other, as values and as bytes."""

from __future__ import annotations

from node.messages.dra import (
    ClaimReference,
    DeviceHealth,
    DeviceIdentifier,
    HealthReport,
    NothingSaid,
    PluginInfo,
    PreparedClaim,
    PreparedDevice,
    PrepareRequest,
    PrepareResponse,
    RegistrationStatus,
    UnpreparedClaim,
    UnprepareResponse,
)
from node.messages.encoding import MessageError, decode, encode

__all__ = [
    "ClaimReference",
    "DeviceHealth",
    "DeviceIdentifier",
    "HealthReport",
    "MessageError",
    "NothingSaid",
    "PluginInfo",
    "PrepareRequest",
    "PrepareResponse",
    "PreparedClaim",
    "PreparedDevice",
    "RegistrationStatus",
    "UnprepareResponse",
    "UnpreparedClaim",
    "decode",
    "encode",
]
