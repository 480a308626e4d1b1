"""The checkpoint: nothing of it is lost without notice, and versions may come and go."""

import msgspec
import pytest

from dra.quantity import parse
from node.checkpoint import (
    BrokenCheckpoint,
    Checkpoint,
    HeldDevice,
    Prepared,
    Write,
    _sum,
    decode,
    encode,
    shown,
    written,
)

HELD = HeldDevice(request="r", device="d", share_id="s", consumed={"memory": parse("1Gi")}, cpus="0-3")
ONE = Prepared(uid="u1", namespace="ns", name="one", pool="n", devices=(HELD,))
TWO = Prepared(uid="u2", namespace="ns", name="two", pool="n")
WHOLE = encode(Checkpoint().with_records(ONE, TWO))


def test_a_written_checkpoint_is_read_back():
    assert decode(WHOLE).claims == {"u1": ONE, "u2": TWO}
    assert decode(encode(Checkpoint())).claims == {}


def test_no_byte_can_be_lost():
    for at in range(len(WHOLE)):
        with pytest.raises(BrokenCheckpoint):
            decode(WHOLE[:at] + WHOLE[at + 1 :])
        with pytest.raises(BrokenCheckpoint, match=r"does not begin|bytes where"):
            decode(WHOLE[:at])


def test_no_byte_can_be_changed_or_added():
    for at in range(len(WHOLE)):
        changed = bytearray(WHOLE)
        changed[at] ^= 1
        with pytest.raises(BrokenCheckpoint):
            decode(bytes(changed))
        with pytest.raises(BrokenCheckpoint):
            decode(WHOLE[:at] + b"0" + WHOLE[at:])
    with pytest.raises(BrokenCheckpoint):
        decode(WHOLE + b"\n")


def with_more(data):
    """The same file as a later version would write it, with a field more in each record."""
    _head, _, body = data.partition(b"\n")
    plain = msgspec.json.decode(body)
    for record in plain["claims"].values():
        record["later"] = {"x": 1}
    return msgspec.json.encode(plain) + b"\n"


def signed(body, version, oldest):
    numbers = b"%d %d %d" % (version, oldest, len(body))
    return b"drawbridge-checkpoint %s %s\n%s" % (numbers, _sum(numbers, body), body)


def test_a_way_back_keeps_what_the_later_version_wrote_of_claims_that_stay():
    later = decode(signed(with_more(WHOLE), 2, 1))
    assert later.claims == {"u1": ONE, "u2": TWO}
    body = encode(later.without("u1").with_records(ONE)).partition(b"\n")[2]
    claims = msgspec.json.decode(body)["claims"]
    assert claims["u2"]["later"] == {"x": 1}
    assert "later" not in claims["u1"]


def test_a_record_that_changes_is_written_as_it_is_now():
    other = Prepared(uid="u1", namespace="ns", name="one", pool="another")
    assert decode(encode(decode(WHOLE).with_records(other))).claims == {"u1": other, "u2": TWO}


def test_a_version_that_this_one_cannot_read_is_named():
    with pytest.raises(BrokenCheckpoint, match="version 9 wrote it, and reading it needs at least version 8"):
        decode(signed(with_more(WHOLE), 9, 8))


def test_an_invalid_record_is_reported():
    with pytest.raises(BrokenCheckpoint, match="a record in it is not valid"):
        decode(signed(b'{"claims":{"u":{"uid":7}}}\n', 1, 1))


def test_the_steps_write_beside_and_put_in_place_at_the_end():
    steps = written("/a/b", b"x")
    assert steps[0] == Write("/a/b.new", b"x")
    assert [type(step).__name__ for step in steps] == ["Write", "SyncFile", "Rename", "SyncFolder"]
    assert shown("/a/b", b"x") == (steps[0], steps[2])
