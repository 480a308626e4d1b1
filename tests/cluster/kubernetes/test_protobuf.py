"""Patches of a claim's bytes: changed, kept and unsupported fields. tests/cluster/conformance compares with a real server."""

import random

import pytest

from cluster.errors import Conflict, Invalid, StatusCause
from cluster.kubernetes.protobuf import Unsuitable, is_for, patched
from cluster.patch import Apply, Merge, Operations


def field(number, content):
    content = content.encode() if isinstance(content, str) else content
    size = len(content)
    length = [size] if size < 128 else [size & 127 | 128, size >> 7]
    return bytes([number << 3 | 2, *length]) + content


TYPE = field(1, field(1, "resource.k8s.io/v1") + field(2, "ResourceClaim"))
SPEC = field(2, b"\x08\x96\x01" + b"\x11" + b"\xff" * 8 + b"\x1d" + b"\xff" * 4 + field(9, '{"a": 1}'))
UNKNOWN = field(15, "what is not known yet")
END = field(3, "") + field(4, "")


def stored(metadata=b"", status=b""):
    meta = field(1, "c") + field(5, "uid-1") + field(6, "7") + metadata
    claim = field(1, meta) + SPEC + field(3, status) + UNKNOWN
    return b"k8s\x00" + TYPE + field(2, claim) + END


def changed(patch, **before):
    """Return the bytes of a patched claim; `before` are the arguments of `stored`."""
    return patched(stored(**before), patch)


def contents(message, number):
    """Return the contents of all fields of this number in a short message."""
    at, values = 0, []
    while at < len(message):
        tag, length = message[at], message[at + 1]
        if tag & 7 == 2:
            size, skip = (length, 2) if length < 128 else ((length & 127) | message[at + 2] << 7, 3)
            if tag >> 3 == number:
                values.append(message[at + skip : at + skip + size])
            at += skip + size
        else:
            at += {0: 3, 1: 9, 5: 5}[tag & 7]  # all varints in these messages have two bytes
    return values


def metadata_of(data):
    return contents(contents(data[4:], 2)[0], 1)[0]


def status_of(data):
    return contents(contents(data[4:], 2)[0], 3)[0]


def test_new_finalizers_replace_the_old_ones_only():
    before = field(14, "old") + field(11, field(1, "label") + field(2, "x"))
    after = changed(Merge({"metadata": {"resourceVersion": "7", "finalizers": ["a", "b"]}}), metadata=before)
    assert contents(metadata_of(after), 14) == [b"a", b"b"]
    assert contents(metadata_of(after), 11) == contents(metadata_of(stored(before)), 11)
    for kept in (SPEC, UNKNOWN, TYPE, END):
        assert kept in after


@pytest.mark.parametrize("none", [None, []])
def test_a_patch_that_empties_finalizers_leaves_no_finalizer(none):
    after = changed(Merge({"metadata": {"finalizers": none}}), metadata=field(14, "old"))
    assert metadata_of(after) == metadata_of(stored())


def test_one_annotation_changes_and_the_others_stay():
    entries = {name: field(1, name) + field(2, "1") for name in ("kept", "gone", "new")}
    before = b"".join(field(12, entry) for entry in entries.values())
    annotations = {"gone": None, "new": "2", "never": None}
    after = changed(Merge({"metadata": {"uid": "uid-1", "annotations": annotations}}), metadata=before)
    assert contents(metadata_of(after), 12) == [entries["kept"], field(1, "new") + field(2, "2")]


def test_reservations_take_the_place_of_those_before_beside_the_allocation():
    allocation = field(1, '{"b": 2}')
    users = [{"resource": "pods", "name": "p", "uid": "u"}]
    after = changed(Merge({"status": {"reservedFor": users}}), status=allocation + field(2, field(4, "old")))
    assert status_of(after) == allocation + field(2, field(3, "pods") + field(4, "p") + field(5, "u"))


def test_a_device_status_replaces_its_own_entry_only():
    own = field(1, "d") + field(2, "p") + field(3, "gpu-0")
    shared = own + field(7, "share")
    other = field(1, "other") + field(5, field(1, '{"c": 3}')) + UNKNOWN
    before = b"".join(field(4, status) for status in (own + field(6, ""), other, shared))
    time = "2026-01-01T00:00:01Z"
    condition = {"type": "Ready", "status": "True", "observedGeneration": 300, "lastTransitionTime": time}
    device = {
        "driver": "d",
        "pool": "p",
        "device": "gpu-0",
        "conditions": [condition],
        "networkData": {"ips": ["a", "b"]},
    }
    patch = Apply({"kind": "ResourceClaim", "metadata": {"name": "c"}, "status": {"devices": [device]}}, manager="d")
    after = contents(status_of(changed(patch, status=before)), 4)
    seconds = bytes([8, 0x81, 0xF2, 0xD6, 0xCA, 6])  # 1767225601, which is `time`
    ready = field(4, field(1, "Ready") + field(2, "True") + b"\x18\xac\x02" + field(4, seconds))
    assert after == [other, shared, own + ready + field(6, field(2, "a") + field(2, "b"))]


@pytest.mark.parametrize("stale", [{"resourceVersion": "6"}, {"uid": "uid-2"}])
def test_another_version_or_object_is_a_conflict(stale):
    with pytest.raises(Conflict):
        changed(Merge({"metadata": {"finalizers": ["a"], **stale}}))


@pytest.mark.parametrize(
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
    ids=str,
)
def test_other_patches_are_unsuitable(patch):
    with pytest.raises(Unsuitable):
        changed(patch)


@pytest.mark.parametrize(
    "data", [b"", b'{"kind":"ResourceClaim"}', b"k8s\x00\xff", b"k8s\x00\x12\x05a", b"k8s\x00" + b"\xff" * 20]
)
def test_data_other_than_a_protobuf_claim_is_unsuitable(data):
    with pytest.raises(Unsuitable):
        patched(data, Merge({"metadata": {"uid": "u"}}))


def test_arbitrary_bytes_are_at_most_unsuitable():
    draw = random.Random(23)
    whole = stored(metadata=field(14, "a"), status=field(2, field(4, "p")))
    patch = Merge({"metadata": {"finalizers": ["b"], "annotations": {"a": "b"}}, "status": {"reservedFor": []}})
    read = 0
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(4, len(data))] = draw.randrange(256)
        try:
            read += bool(patched(bytes(data[: draw.randint(5, len(data))]), patch))
        except Unsuitable:
            continue
    assert 0 < read < 2000


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["spec"], True),
        (["status.allocation"], True),
        (["status.allocation", "status.devices"], True),
        (["spec", "metadata.uid"], False),
        (["metadata.finalizers"], False),
        ([], False),
    ],
)
def test_a_refusal_concerns_kept_bytes_only_if_all_causes_do(fields, expected):
    assert is_for(Invalid("because", causes=tuple(StatusCause(field) for field in fields))) is expected
