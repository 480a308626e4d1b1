"""Messages between kubelet and driver have the bytes of protocol buffers. No message breaks the decoder."""

import random

import pytest

from dra.protobuf import ProtobufError
from node.messages import (
    ClaimReference,
    DeviceHealth,
    DeviceIdentifier,
    Empty,
    HealthReport,
    PluginInfo,
    PreparedClaim,
    PreparedDevice,
    PrepareRequest,
    PrepareResponse,
    RegistrationStatus,
    UnpreparedClaim,
    UnprepareResponse,
    decode,
    encode,
)
from tests.loops import every

DEVICE = PreparedDevice(requests=("gpu",), pool="n", device="gpu-0", cdi=("d/claim=u-0",), share="s")
# Written by hand from the rules of the format: key = number << 3 | wire type, then the length, then the text.
ENCODED_MESSAGES = [
    (Empty(), b""),
    (RegistrationStatus(registered=True), b"\x08\x01"),
    (RegistrationStatus(error="no"), b"\x12\x02no"),
    (PluginInfo(type="DRAPlugin", supported_versions=("v1", "v2")), b"\x0a\x09DRAPlugin\x22\x02v1\x22\x02v2"),
    (ClaimReference(namespace="n", uid="u", name="c"), b"\x0a\x01n\x12\x01u\x1a\x01c"),
    (PrepareRequest(claims=(ClaimReference(uid="u"),)), b"\x0a\x03\x12\x01u"),
    (DEVICE, b"\x0a\x03gpu\x12\x01n\x1a\x05gpu-0\x22\x0bd/claim=u-0\x2a\x01s"),
    (PreparedDevice(share=""), b"\x2a\x00"),
    (PrepareResponse(claims={"u": PreparedClaim(error="e")}), b"\x0a\x08\x0a\x01u\x12\x03\x12\x01e"),
    (UnprepareResponse(claims={"u": UnpreparedClaim()}), b"\x0a\x05\x0a\x01u\x12\x00"),
    (DeviceHealth(health=1, updated=300, seconds=-1), b"\x10\x01\x18\xac\x02\x20" + b"\xff" * 9 + b"\x01"),
    (HealthReport(devices=(DeviceHealth(device=DeviceIdentifier(pool="p")),)), b"\x0a\x05\x0a\x03\x0a\x01p"),
]


@every(("message", "data"), ENCODED_MESSAGES)
def test_a_message_has_the_bytes_of_protocol_buffers(message, data):
    assert encode(message) in (data, b"\x0a\x00" + data)  # `encode` also writes empty nested messages
    assert decode(data, type(message)) == message


def test_fields_that_a_later_kubelet_adds_are_skipped():
    unknown_fields = b"\x50\x07" + b"\x5a\x03abc" + b"\x65\x00\x00\x00\x00" + b"\x69" + bytes(8)
    assert decode(unknown_fields + b"\x0a\x01n", ClaimReference) == ClaimReference(namespace="n")


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05ab",
        b"\x0a\xff",
        b"\x00\x01",
        b"\x0b",
        b"\x0a\x01\xff",
        b"\x08\x01",
        b"\xff" * 11,
        b"\x0d\x01",
    ],
)
def test_bytes_that_are_no_message_are_an_error(data):
    with pytest.raises(ProtobufError):
        decode(data, ClaimReference)


def test_arbitrary_bytes_decode_or_raise_only_a_protobuf_error():
    rng = random.Random(7)
    message = encode(PrepareResponse(claims={"u": PreparedClaim(devices=(DEVICE, DEVICE))}))
    outcomes = set()
    for _ in range(4000):
        data = bytearray(message)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            outcomes.add(type(decode(bytes(data), PrepareResponse)))
        except ProtobufError:
            outcomes.add(ProtobufError)
    assert outcomes == {PrepareResponse, ProtobufError}
