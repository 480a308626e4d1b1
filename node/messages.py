"""The gRPC messages between the kubelet, DRA drivers and device plugins (k8s.io/kubelet/pkg/apis), and their protobuf encoding.

A message is a frozen Struct. On the wire a field has a number and no name; the number is the field's position in the Struct, because the
kubelet's messages number their fields without gaps. Fields are strings, integers, booleans, messages, lists of these, and maps with string
keys; the kubelet uses no floats and no packed lists. As proto3 requires, unknown fields are skipped. Generated stubs would have 778 lines
and need a library that takes 7 MiB of memory.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from dra.protobuf import BYTES, INT64, VARINT, ProtobufError, WireField, varint, wire_fields

AnyMessage = TypeVar("AnyMessage", bound="Message")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every message."""


class Skipped(Message, frozen=True):
    """Takes the position of a field that is neither read nor written."""


class Empty(Message, frozen=True, kw_only=True):
    """A request or a response without fields."""


# Registration of plugins.


class PluginInfo(Message, frozen=True, kw_only=True):
    type: str = ""
    name: str = ""
    endpoint: str = ""
    supported_versions: tuple[str, ...] = ()


class RegistrationStatus(Message, frozen=True, kw_only=True):
    registered: bool = False
    error: str = ""


# DRA drivers. v1 adds only PreparedDevice.share to v1beta1, which an older kubelet skips.


class ClaimReference(Message, frozen=True, kw_only=True):
    namespace: str = ""
    uid: str = ""
    name: str = ""


class PrepareRequest(Message, frozen=True, kw_only=True):
    """Claims to prepare or to unprepare: both requests have the same fields."""

    claims: tuple[ClaimReference, ...] = ()


class PreparedDevice(Message, frozen=True, kw_only=True):
    """A device of a claim; `cdi` lists the CDI device names that the container runtime injects."""

    requests: tuple[str, ...] = ()
    pool: str = ""
    device: str = ""
    cdi: tuple[str, ...] = ()
    share: str | None = None


class PreparedClaim(Message, frozen=True, kw_only=True):
    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


class PrepareResponse(Message, frozen=True, kw_only=True):
    claims: dict[str, PreparedClaim] = {}


class UnpreparedClaim(Message, frozen=True, kw_only=True):
    """The result for one claim: empty, or why it is still prepared."""

    error: str = ""


class UnprepareResponse(Message, frozen=True, kw_only=True):
    claims: dict[str, UnpreparedClaim] = {}


class DeviceIdentifier(Message, frozen=True, kw_only=True):
    pool: str = ""
    device: str = ""


class DeviceHealth(Message, frozen=True, kw_only=True):
    """The health of a device (0 unknown, 1 healthy, 2 unhealthy) at the time `updated`, in seconds since 1970. It is valid for `seconds`."""

    device: DeviceIdentifier = DeviceIdentifier()
    health: int = 0
    updated: int = 0
    seconds: int = 0
    message: str = ""


class HealthReport(Message, frozen=True, kw_only=True):
    devices: tuple[DeviceHealth, ...] = ()


# Device plugins (deviceplugin/v1beta1). The adapter acts as the kubelet.


class PluginOptions(Message, frozen=True, kw_only=True):
    """The optional calls that a plugin supports: PreStartContainer, GetPreferredAllocation."""

    before_start: bool = False
    prefers: bool = False


class RegisterRequest(Message, frozen=True, kw_only=True):
    """The registration of a plugin; `endpoint` is the name of its socket in the registration folder."""

    version: str = ""
    endpoint: str = ""
    resource: str = ""
    options: PluginOptions = PluginOptions()


class NumaId(Message, frozen=True, kw_only=True):
    number: int = 0


class NumaNodes(Message, frozen=True, kw_only=True):
    nodes: tuple[NumaId, ...] = ()


class PluginDevice(Message, frozen=True, kw_only=True):
    id: str = ""
    health: str = ""
    topology: NumaNodes = NumaNodes()


class PluginDevices(Message, frozen=True, kw_only=True):
    """All devices of a plugin, sent whenever one of them changes."""

    devices: tuple[PluginDevice, ...] = ()


class ContainerPreferenceRequest(Message, frozen=True, kw_only=True):
    """Asks a plugin which `size` devices of `available` it prefers for a container; `included` must be among its answer."""

    available: tuple[str, ...] = ()
    included: tuple[str, ...] = ()
    size: int = 0


class PreferenceRequest(Message, frozen=True, kw_only=True):
    containers: tuple[ContainerPreferenceRequest, ...] = ()


class DeviceIds(Message, frozen=True, kw_only=True):
    ids: tuple[str, ...] = ()


class PreferenceResponse(Message, frozen=True, kw_only=True):
    containers: tuple[DeviceIds, ...] = ()


class AllocateRequest(Message, frozen=True, kw_only=True):
    containers: tuple[DeviceIds, ...] = ()


class PluginMount(Message, frozen=True, kw_only=True):
    container_path: str = ""
    host_path: str = ""
    read_only: bool = False


class PluginNode(Message, frozen=True, kw_only=True):
    """A device file of the host, and its path in the container."""

    container_path: str = ""
    host_path: str = ""
    permissions: str = ""


class CdiName(Message, frozen=True, kw_only=True):
    """A device that one of the plugin's CDI files describes."""

    name: str = ""


class Edits(Message, frozen=True, kw_only=True):
    """What to add to a container so that it can use its devices."""

    variables: dict[str, str] = {}
    mounts: tuple[PluginMount, ...] = ()
    nodes: tuple[PluginNode, ...] = ()
    annotations: dict[str, str] = {}
    cdi: tuple[CdiName, ...] = ()


class AllocateResponse(Message, frozen=True, kw_only=True):
    containers: tuple[Edits, ...] = ()


# The kubelet's pod resources API (podresources/v1).


class PluginHolding(Message, frozen=True, kw_only=True):
    resource: str = ""
    ids: tuple[str, ...] = ()


class ClaimDevice(Message, frozen=True, kw_only=True):
    cdi: Skipped = Skipped()
    driver: str = ""
    pool: str = ""
    device: str = ""
    share: str | None = None


class ClaimHolding(Message, frozen=True, kw_only=True):
    """The devices that a container has through one claim."""

    class_name: Skipped = Skipped()  # until Kubernetes 1.31
    claim: str = ""
    namespace: str = ""
    devices: tuple[ClaimDevice, ...] = ()


class ContainerHolding(Message, frozen=True, kw_only=True):
    name: str = ""
    devices: tuple[PluginHolding, ...] = ()
    cpus: Skipped = Skipped()
    memory: Skipped = Skipped()
    claims: tuple[ClaimHolding, ...] = ()


class PodHolding(Message, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    containers: tuple[ContainerHolding, ...] = ()


class PodHoldings(Message, frozen=True, kw_only=True):
    pods: tuple[PodHolding, ...] = ()


class PluginsOffer(Message, frozen=True, kw_only=True):
    """All devices of device plugins, allocated or not."""

    devices: tuple[PluginHolding, ...] = ()


# The encoding.


class MessageField(NamedTuple):
    """A field of a message: `collection` is "", "list" or "map"; an `optional` field distinguishes an empty string from none."""

    number: int
    name: str
    type: Any
    collection: str = ""
    optional: bool = False


def encode(message: Message) -> bytes:
    """Encode a message. As in proto3, a field with its default value is left out."""
    encoded = bytearray()
    for field in _fields(type(message)).values():
        value = getattr(message, field.name)
        if field.collection == "map":
            for key in sorted(value):
                encoded += _encode_value(field.number, _encode_value(1, key) + _encode_value(2, value[key]))
        elif field.collection:
            for item in value:
                encoded += _encode_value(field.number, item)
        elif value is not None and (value or field.optional):
            encoded += _encode_value(field.number, value)
    return bytes(encoded)


def decode(data: bytes, type_: type[AnyMessage]) -> AnyMessage:
    """Decode a message; raises ProtobufError if the bytes do not fit the type."""
    if not data:
        return type_()
    fields = _fields(type_)
    values: dict[str, Any] = {}
    for part in wire_fields(data):
        field = fields.get(part.number)
        if field is None:
            continue
        if field.collection == "map":
            # A map entry is a message: field 1 is the key, field 2 the value.
            key, value = "", field.type()
            for inner in wire_fields(_bytes(part)):
                if inner.number == 1:
                    key = _read(inner, str)
                elif inner.number == 2:
                    value = _read(inner, field.type)
            values.setdefault(field.name, {})[key] = value
        elif field.collection:
            values.setdefault(field.name, []).append(_read(part, field.type))
        else:
            values[field.name] = _read(part, field.type)
    return type_(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def _encode_value(number: int, value: Any) -> bytes:
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(int(value) % INT64)
    data: bytes = value
    if isinstance(value, Message):
        data = encode(value)
    elif isinstance(value, str):
        data = value.encode()
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def _read(part: WireField, type_: Any) -> Any:
    if type_ is str:
        try:
            return part.value.decode() if type(part.value) is bytes else _bytes(part)
        except UnicodeDecodeError:
            raise ProtobufError(f"field {part.number} is not UTF-8") from None
    if type_ is bool or type_ is int:
        if not isinstance(part.value, int):
            raise ProtobufError(f"field {part.number} is not a number")
        return type_(part.value - INT64 if part.value >= INT64 // 2 else part.value)
    return decode(_bytes(part), type_)


def _bytes(part: WireField) -> bytes:
    if not isinstance(part.value, bytes):
        raise ProtobufError(f"field {part.number} is a number where bytes belong")
    return part.value


@lru_cache(maxsize=64)
def _fields(type_: type[Message]) -> dict[int, MessageField]:
    """Return the fields of a message type by number."""
    hints = get_type_hints(type_)
    fields: dict[int, MessageField] = {}
    for number, name in enumerate(type_.__struct_fields__, 1):
        hint = hints[name]
        parts = get_args(hint)
        if hint is Skipped:
            continue
        if get_origin(hint) is tuple:
            fields[number] = MessageField(number, name, parts[0], "list")
        elif get_origin(hint) is dict:
            fields[number] = MessageField(number, name, parts[1], "map")
        elif type(None) in parts:
            fields[number] = MessageField(number, name, parts[0], optional=True)
        else:
            fields[number] = MessageField(number, name, hint)
    return fields
