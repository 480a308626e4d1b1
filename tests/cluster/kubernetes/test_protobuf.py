"""Patches of a claim in protobuf: changed fields, kept bytes and unsupported patches. tests/cluster/conformance uses a real server."""

import random

import pytest

from cluster.errors import Conflict, Invalid, StatusCause
from cluster.kubernetes.protobuf import Unsuitable, is_for, patched
from cluster.patch import Apply, Merge, Operations
from tests.loops import every


def field(number, content):
    """Return the encoding of a field with text, bytes or a message."""
    content = content.encode() if isinstance(content, str) else content
    size = len(content)
    length = [size] if size < 128 else [size & 127 | 128, size >> 7]
    return bytes([number << 3 | 2, *length]) + content


ENVELOPE_TYPE = field(1, field(1, "resource.k8s.io/v1") + field(2, "ResourceClaim"))
# Fields of every wire type, and JSON with a blank that a new encoding would drop.
SPEC = field(2, b"\x08\x96\x01" + b"\x11" + b"\xff" * 8 + b"\x1d" + b"\xff" * 4 + field(9, '{"a": 1}'))
UNKNOWN_FIELD = field(15, "a field of a later version")
# The envelope of an object has a content encoding and a content type, which are empty here.
ENVELOPE_END = field(3, "") + field(4, "")


def encoded_claim(metadata=b"", status=b""):
    encoded_metadata = field(1, "c") + field(5, "uid-1") + field(6, "7") + metadata
    claim = field(1, encoded_metadata) + SPEC + field(3, status) + UNKNOWN_FIELD
    return b"k8s\x00" + ENVELOPE_TYPE + field(2, claim) + ENVELOPE_END


def patched_claim(patch, **claim_fields):
    """Return the bytes of a claim after a patch; `claim_fields` are the arguments of `encoded_claim`."""
    return patched(encoded_claim(**claim_fields), patch)


def field_contents(message, number):
    """Return the contents of all fields of this number in a short message."""
    offset, values = 0, []
    while offset < len(message):
        tag, length = message[offset], message[offset + 1]
        if tag & 7 == 2:
            size, skip = (length, 2) if length < 128 else ((length & 127) | message[offset + 2] << 7, 3)
            if tag >> 3 == number:
                values.append(message[offset + skip : offset + skip + size])
            offset += skip + size
        else:
            offset += {0: 3, 1: 9, 5: 5}[tag & 7]  # all varints in these messages have two bytes
    return values


def metadata_of(data):
    """Return the encoded metadata of an encoded claim."""
    return field_contents(field_contents(data[4:], 2)[0], 1)[0]


def status_of(data):
    """Return the encoded status of an encoded claim."""
    return field_contents(field_contents(data[4:], 2)[0], 3)[0]


def test_new_finalizers_replace_the_old_and_change_nothing_else():
    metadata = field(14, "old") + field(11, field(1, "label") + field(2, "x"))
    patched_bytes = patched_claim(
        Merge({"metadata": {"resourceVersion": "7", "finalizers": ["a", "b"]}}), metadata=metadata
    )
    assert field_contents(metadata_of(patched_bytes), 14) == [b"a", b"b"]
    assert field_contents(metadata_of(patched_bytes), 11) == field_contents(metadata_of(encoded_claim(metadata)), 11)
    for unchanged_field in (SPEC, UNKNOWN_FIELD, ENVELOPE_TYPE, ENVELOPE_END):
        assert unchanged_field in patched_bytes


@pytest.mark.parametrize("finalizers", [None, []])
def test_empty_finalizers_in_a_patch_remove_all(finalizers):
    patched_bytes = patched_claim(Merge({"metadata": {"finalizers": finalizers}}), metadata=field(14, "old"))
    assert metadata_of(patched_bytes) == metadata_of(encoded_claim())


def test_annotations_that_a_patch_does_not_name_stay():
    entries = {name: field(1, name) + field(2, "1") for name in ("kept", "gone", "new")}
    metadata = b"".join(field(12, entry) for entry in entries.values())
    annotations = {"gone": None, "new": "2", "never": None}
    patched_bytes = patched_claim(Merge({"metadata": {"uid": "uid-1", "annotations": annotations}}), metadata=metadata)
    assert field_contents(metadata_of(patched_bytes), 12) == [entries["kept"], field(1, "new") + field(2, "2")]


def test_new_reservations_replace_the_old_and_keep_the_allocation():
    allocation = field(1, '{"b": 2}')
    consumers = [{"resource": "pods", "name": "p", "uid": "u"}]
    patched_bytes = patched_claim(
        Merge({"status": {"reservedFor": consumers}}), status=allocation + field(2, field(4, "old"))
    )
    assert status_of(patched_bytes) == allocation + field(2, field(3, "pods") + field(4, "p") + field(5, "u"))


def test_a_device_status_replaces_the_entry_of_that_device_only():
    device_key = field(1, "d") + field(2, "p") + field(3, "gpu-0")
    shared_device = device_key + field(7, "share")
    other_device = field(1, "other") + field(5, field(1, '{"c": 3}')) + UNKNOWN_FIELD
    status_before = b"".join(field(4, entry) for entry in (device_key + field(6, ""), other_device, shared_device))
    time = "2026-01-01T00:00:01Z"
    condition = {"type": "Ready", "status": "True", "observedGeneration": 300, "lastTransitionTime": time}
    device_status = {
        "driver": "d",
        "pool": "p",
        "device": "gpu-0",
        "conditions": [condition],
        "networkData": {"ips": ["a", "b"]},
    }
    patch = Apply(
        {"kind": "ResourceClaim", "metadata": {"name": "c"}, "status": {"devices": [device_status]}}, manager="d"
    )
    device_statuses = field_contents(status_of(patched_claim(patch, status=status_before)), 4)
    seconds = bytes([8, 0x81, 0xF2, 0xD6, 0xCA, 6])  # 1767225601, which is `time`
    encoded_condition = field(4, field(1, "Ready") + field(2, "True") + b"\x18\xac\x02" + field(4, seconds))
    assert device_statuses == [
        other_device,
        shared_device,
        device_key + encoded_condition + field(6, field(2, "a") + field(2, "b")),
    ]


@pytest.mark.parametrize("stale_metadata", [{"resourceVersion": "6"}, {"uid": "uid-2"}])
def test_a_patch_of_another_version_or_object_is_a_conflict(stale_metadata):
    with pytest.raises(Conflict):
        patched_claim(Merge({"metadata": {"finalizers": ["a"], **stale_metadata}}))


@every(
    "patch",
    [
        Merge({"spec": {}}),
        Merge({"metadata": {"finalizers": ["a"]}, "spec": {}}),
        Merge({"metadata": {"labels": {"a": "b"}}}),
        Merge({"metadata": None}),
        Merge({"metadata": {"annotations": ["a"]}}),
        Merge({"status": {"allocation": None}}),
        Merge({"status": {"reservedFor": [], "devices": []}}),
        Merge({"status": {"devices": []}}),
        Merge({"status": {"reservedFor": [{"what": "is this"}]}}),
        Apply({"status": {"reservedFor": []}}, manager="d"),
        Apply({"status": {"devices": [{"driver": "d", "data": {"a": 1}}]}}, manager="d"),
        Apply({"status": {"devices": ["d"]}}, manager="d"),
        Operations(({"op": "remove", "path": "/metadata/finalizers"},)),
    ],
)
def test_an_unsupported_patch_is_rejected_as_unsuitable(patch):
    with pytest.raises(Unsuitable):
        patched_claim(patch)


@pytest.mark.parametrize(
    "data", [b"", b'{"kind":"ResourceClaim"}', b"k8s\x00\xff", b"k8s\x00\x12\x05a", b"k8s\x00" + b"\xff" * 20]
)
def test_data_other_than_a_protobuf_claim_is_rejected_as_unsuitable(data):
    with pytest.raises(Unsuitable):
        patched(data, Merge({"metadata": {"uid": "u"}}))


def test_a_damaged_claim_is_patched_or_unsuitable():
    rng = random.Random(23)
    claim = encoded_claim(metadata=field(14, "a"), status=field(2, field(4, "p")))
    patch = Merge({"metadata": {"finalizers": ["b"], "annotations": {"a": "b"}}, "status": {"reservedFor": []}})
    patched_count = 0
    for _ in range(2000):
        data = bytearray(claim)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(4, len(data))] = rng.randrange(256)
        try:
            patched_count += bool(patched(bytes(data[: rng.randint(5, len(data))]), patch))
        except Unsuitable:
            continue
    assert 0 < patched_count < 2000


@pytest.mark.parametrize(
    ("paths", "is_for_kept_fields"),
    [
        (["spec"], True),
        (["status.allocation"], True),
        (["status.allocation", "status.devices"], True),
        (["spec", "metadata.uid"], False),
        (["metadata.finalizers"], False),
        ([], False),
    ],
)
def test_every_cause_must_name_a_field_that_is_kept(paths, is_for_kept_fields):
    """The kept fields are spec, allocation and statuses of devices: the server refuses a write that changes their bytes."""
    assert is_for(Invalid("because", causes=tuple(StatusCause(path) for path in paths))) is is_for_kept_fields
