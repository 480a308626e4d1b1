"""Checkpoints of other vendors' drivers: the known formats, and arbitrary content."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.audit import DeviceId, UnknownForm, examine, read_other_driver, with_names
from tests.node.audit.snapshots import UID, allocated_claim, claim_holding, hardware_of, make_snapshot, pod
from tests.node.audit.vendor_checkpoints import (
    compact,
    completed_claim,
    device_groups,
    first_format,
    second_format,
)
from tests.node.machines import DRIVER, NODE


def fields_of(records):
    return [(record.namespace, record.claim, record.uid, record.device_id.device, record.share) for record in records]


def test_claims_of_the_second_format_are_read():
    data = second_format({UID: completed_claim("gpu-0", namespace="ns", name="c")}, nodeBootID="x")
    assert fields_of(read_other_driver(data, DRIVER)) == [("ns", "c", UID, "gpu-0", "")]
    older = second_format({UID: completed_claim("gpu-0")})
    assert fields_of(read_other_driver(older, DRIVER)) == [("", "", UID, "gpu-0", "")]
    [record] = read_other_driver(data, DRIVER)
    assert record.device_id == DeviceId(DRIVER, NODE, "gpu-0")


@pytest.mark.parametrize("state", ["", "PrepareStarted", "PrepareAborted"])
def test_a_claim_with_an_uncompleted_checkpoint_state_is_not_prepared(state):
    assert read_other_driver(second_format({UID: completed_claim("gpu-0") | {"checkpointState": state}}), DRIVER) == ()


@pytest.mark.parametrize("kind", ["gpu", "mig", "vfio", "hami-gpu", "channel"])
def test_devices_of_every_kind_are_read_with_their_share(kind):
    claim = {"status": {}, "preparedDevices": device_groups("d", kind=kind, ShareID="s")}
    assert fields_of(read_other_driver(first_format({UID: claim}), DRIVER)) == [("", "", UID, "d", "s")]


def test_the_format_of_the_oldest_drivers_is_read():
    devices = [{"request_names": ["r"], "pool_name": NODE, "device_name": "gpu-1", "ContainerEdits": {"env": ["A=b"]}}]
    assert fields_of(read_other_driver(first_format({UID: devices}), DRIVER)) == [("", "", UID, "gpu-1", "")]


def test_a_list_of_uids_is_read():
    data = compact({"kind": "Checkpoint", "apiVersion": "x/v1", "preparedClaims": [{"uid": UID}, {}]})
    assert fields_of(read_other_driver(data, DRIVER)) == [("", "", UID, "", "")]


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"null", b"[]", b"\xff", b'{"claims":{}}', b"drawbridge-checkpoint 1", b"[" * 100_000, b'{"a":' * 50_000],
    ids=["empty", "empty object", "null", "list", "invalid UTF-8", "records under another key", "drawbridge's format", "nested lists", "nested objects"],
)  # fmt: skip
def test_another_format_is_reported_as_unknown(data):
    with pytest.raises(UnknownForm):
        read_other_driver(data, DRIVER)


ANY_JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["PrepareCompleted", UID]), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["checksum", "v1", "v2", "kind", "preparedClaims", "preparedDevices", "checkpointState", "name", "namespace", "PoolName", "DeviceName", UID]), inner, max_size=4), max_leaves=20)  # fmt: skip


@given(st.binary(max_size=200) | ANY_JSON.map(compact) | ANY_JSON.map(lambda inner: first_format({UID: inner})) | ANY_JSON.map(lambda inner: second_format({UID: inner})))  # fmt: skip
def test_arbitrary_content_in_a_foreign_checkpoint_raises_only_unknown_form(data):
    try:
        records = read_other_driver(data, DRIVER)
    except UnknownForm:
        return
    assert all(
        isinstance(text, str)
        for record in records
        for text in (record.namespace, record.claim, record.uid, *record.device_id)
    )


def test_a_prepared_device_that_the_claim_lacks_is_found():
    records = read_other_driver(second_format({"uid-c": completed_claim("gpu-1", namespace="ns", name="c")}), DRIVER)
    snapshot = make_snapshot(
        claim_holding("p", "c", "gpu-0"), pods=[pod("p", "c")], claims=[allocated_claim("c", "gpu-0")], prepared=records
    )
    [finding] = examine(snapshot, hardware_of(snapshot))
    assert (finding.kind.value, finding.object) == ("prepared, not allocated", "ResourceClaim/ns/c")
    assert f"the driver {DRIVER} has {DRIVER}/{NODE}/gpu-1" in finding.message


def test_a_claim_without_a_name_is_found_by_its_uid():
    """A record with the uid of no claim is reported as left on the node."""
    records = read_other_driver(
        first_format({"uid-c": completed_claim("gpu-1"), UID: completed_claim("gpu-0")}), DRIVER
    )
    claims = [allocated_claim("c", "gpu-0")]
    named_records = with_names(records, {("ns", "c"): claims[0]})
    assert fields_of(named_records) == [("ns", "c", "uid-c", "gpu-1", ""), ("", "", UID, "gpu-0", "")]
    snapshot = make_snapshot(
        claim_holding("p", "c", "gpu-0"), pods=[pod("p", "c")], claims=claims, prepared=named_records
    )
    assert [(finding.kind.value, finding.object) for finding in examine(snapshot, hardware_of(snapshot))] == [
        ("prepared, not allocated", "ResourceClaim/ns/c"),
        ("left on the node", f"claim with the uid {UID}"),
    ]
    snapshot_without_claims = msgspec.structs.replace(snapshot, claims={})
    assert [
        finding
        for finding in examine(snapshot_without_claims, hardware_of(snapshot_without_claims))
        if finding.kind.value == "left on the node"
    ] == [], "a claim is reported that may only not have been read"
