"""The checkpoint file: every changed or missing byte is noticed, and other versions can read the file."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra.quantity import parse
from node.checkpoint import (
    BrokenCheckpoint,
    Checkpoint,
    HeldDevice,
    Prepared,
    WriteFile,
    _sum,
    decode,
    durable_steps,
    encode,
    unflushed_steps,
)

HELD_DEVICE = HeldDevice(request="r", device="d", share_id="s", consumed={"memory": parse("1Gi")}, cpus="0-3")
RECORD_1 = Prepared(uid="u1", namespace="ns", name="one", pool="n", devices=(HELD_DEVICE,))
RECORD_2 = Prepared(uid="u2", namespace="ns", name="two", pool="n")
CHECKPOINT = encode(Checkpoint().with_records(RECORD_1, RECORD_2))


def test_a_written_checkpoint_is_read_back():
    assert decode(CHECKPOINT).claims == {"u1": RECORD_1, "u2": RECORD_2}
    assert decode(encode(Checkpoint())).claims == {}


def test_a_checkpoint_with_a_missing_byte_is_refused():
    for i in range(len(CHECKPOINT)):
        with pytest.raises(BrokenCheckpoint):
            decode(CHECKPOINT[:i] + CHECKPOINT[i + 1 :])
        with pytest.raises(BrokenCheckpoint, match=r"does not begin|bytes, but"):
            decode(CHECKPOINT[:i])


def test_a_checkpoint_with_a_changed_or_additional_byte_is_refused():
    for i in range(len(CHECKPOINT)):
        changed = bytearray(CHECKPOINT)
        changed[i] ^= 1
        with pytest.raises(BrokenCheckpoint):
            decode(bytes(changed))
        with pytest.raises(BrokenCheckpoint):
            decode(CHECKPOINT[:i] + b"0" + CHECKPOINT[i:])
    with pytest.raises(BrokenCheckpoint):
        decode(CHECKPOINT + b"\n")


def with_later_fields(data):
    """Return the body of a checkpoint as a later version writes it, with an additional field in each record."""
    _head, _, body = data.partition(b"\n")
    plain = msgspec.json.decode(body)
    for record in plain["claims"].values():
        record["later"] = {"x": 1}
    return msgspec.json.encode(plain) + b"\n"


def checkpoint_file(body, version, oldest):
    """Return a file of this version of the format; `oldest` is the oldest version that can read the file."""
    numbers = b"%d %d %d" % (version, oldest, len(body))
    return b"drawbridge-checkpoint %s %s\n%s" % (numbers, _sum(numbers, body), body)


@given(st.binary(max_size=100))
def test_arbitrary_content_with_a_correct_checksum_is_refused(body):
    """The checksum may be correct, because every writer of the file can compute it."""
    with pytest.raises(BrokenCheckpoint):
        decode(checkpoint_file(body, 1, 1))


def test_a_rollback_keeps_unknown_fields_of_unchanged_claims():
    later = decode(checkpoint_file(with_later_fields(CHECKPOINT), 2, 1))
    assert later.claims == {"u1": RECORD_1, "u2": RECORD_2}
    body = encode(later.without("u1").with_records(RECORD_1)).partition(b"\n")[2]
    claims = msgspec.json.decode(body)["claims"]
    assert claims["u2"]["later"] == {"x": 1}
    assert "later" not in claims["u1"]


def test_a_driver_of_version_1_can_read_the_file():
    assert CHECKPOINT.startswith(b"drawbridge-checkpoint 2 1 ")


def test_a_changed_record_is_written():
    changed_record = Prepared(uid="u1", namespace="ns", name="one", pool="another")
    assert decode(encode(decode(CHECKPOINT).with_records(changed_record))).claims == {
        "u1": changed_record,
        "u2": RECORD_2,
    }


def test_an_unsupported_version_is_named():
    with pytest.raises(
        BrokenCheckpoint, match="it has version 9 of the format, which only version 8 or later can read"
    ):
        decode(checkpoint_file(with_later_fields(CHECKPOINT), 9, 8))


def test_an_invalid_record_is_reported():
    with pytest.raises(BrokenCheckpoint, match="a record in it is not valid"):
        decode(checkpoint_file(b'{"claims":{"u":{"uid":7}}}\n', 1, 1))


def test_a_file_is_written_under_another_name_then_renamed():
    steps = durable_steps("/a/b", b"x")
    assert steps[0] == WriteFile("/a/b.new", b"x")
    assert [type(step).__name__ for step in steps] == ["WriteFile", "SyncFile", "Rename", "SyncFolder"]
    assert unflushed_steps("/a/b", b"x") == (steps[0], steps[2])
