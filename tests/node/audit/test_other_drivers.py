"""Checkpoints of other vendors' drivers: in the forms that are known, with sums that Kubernetes' own code made; and anything else."""

import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.audit import BadCheckpoint, DeviceId, UnknownForm, examine, read_other_driver, with_names
from node.audit.other_drivers import MOST_BYTES, MOST_DEVICES, sum_of
from node.checkpoint import BrokenCheckpoint, decode
from tests.draws import draws
from tests.node.audit.snapshots import allocated, claiming, hardware, pod, snapshot
from tests.node.machines import DRIVER, NODE

UID = "0f0e0d0c-1111-4222-8333-444455556666"


def compact(value):
    return json.dumps(value, separators=(",", ":")).encode()


def device(name, **more):
    return {"Requests": ["r"], "PoolName": NODE, "DeviceName": name, "CDIDeviceIDs": None, **more}


def groups(*names, kind="gpu", **more):
    held = [{"info": {"uuid": "GPU-0"}, "device": device(name, **more)} for name in names]
    return [{"devices": [{"gpu": None, "mig": None} | {kind: fields} for fields in held], "configState": {}}]


def second(claims, **more):
    """A file of the second form: `v2` with its own sum."""
    inner = compact({"checksum": 0, "preparedClaims": claims, **more})
    inner = inner.replace(b'"checksum":0', b'"checksum":%d' % sum_of(inner), 1)
    return b'{"checksum":1,"v1":{},"v2":%s}' % inner


def first(claims):
    inner = compact({"preparedClaims": claims})
    return b'{"checksum":%d,"v1":%s}' % (sum_of(b'{"checksum":0,"v1":%s}' % inner), inner)


def completed(*names, **more):
    return {"checkpointState": "PrepareCompleted", "status": {}, "preparedDevices": groups(*names), **more}


def where(records):
    return [(record.namespace, record.claim, record.uid, record.where.device, record.share) for record in records]


@pytest.mark.parametrize(("data", "expected"), [
    (b"", 4046067964),
    (b"a\x00\x0f{", 4105354276),
    (b'{"checksum":0,"preparedClaims":{"u":{"checkpointState":"PrepareCompleted","status":{}}}}', 2532967065),
], ids=["nothing", "bytes", "a checkpoint"])  # fmt: skip
def test_a_sum_is_what_kubernetes_own_code_makes_of_it(data, expected):
    """Made by k8s.io/kubernetes/pkg/kubelet/checkpointmanager/checksum of 1.37."""
    assert sum_of(data) == expected


def test_a_claim_of_the_second_form_has_its_name_and_its_devices():
    data = second({UID: completed("gpu-0", namespace="ns", name="c")}, nodeBootID="x")
    assert where(read_other_driver(data, DRIVER)) == [("ns", "c", UID, "gpu-0", "")]
    older = second({UID: completed("gpu-0")})
    assert where(read_other_driver(older, DRIVER)) == [("", "", UID, "gpu-0", "")]
    [record] = read_other_driver(data, DRIVER)
    assert record.where == DeviceId(DRIVER, NODE, "gpu-0")


@pytest.mark.parametrize("state", ["", "PrepareStarted", "PrepareAborted"])
def test_a_claim_whose_checkpoint_state_is_not_completed_is_not_prepared(state):
    assert read_other_driver(second({UID: completed("gpu-0") | {"checkpointState": state}}), DRIVER) == ()


@pytest.mark.parametrize("kind", ["gpu", "mig", "vfio", "hami-gpu", "channel"])
def test_devices_of_every_kind_are_found_with_their_share(kind):
    claim = {"status": {}, "preparedDevices": groups("d", kind=kind, ShareID="s")}
    assert where(read_other_driver(first({UID: claim}), DRIVER)) == [("", "", UID, "d", "s")]


def test_the_form_that_older_drivers_began_with():
    held = [{"request_names": ["r"], "pool_name": NODE, "device_name": "gpu-1", "ContainerEdits": {"env": ["A=b"]}}]
    assert where(read_other_driver(first({UID: held}), DRIVER)) == [("", "", UID, "gpu-1", "")]


def test_a_list_of_uids():
    data = compact({"kind": "Checkpoint", "apiVersion": "x/v1", "preparedClaims": [{"uid": UID}, {"uid": "../x"}, {}]})
    assert where(read_other_driver(data, DRIVER)) == [("", "", UID, "", "")]


@pytest.mark.parametrize("form", [first, second])
def test_a_byte_that_is_another_is_noticed(form):
    data = form({UID: completed("gpu-0")})
    with pytest.raises(BadCheckpoint, match="checksum"):
        read_other_driver(data.replace(b"gpu-0", b"gpu-1"), DRIVER)


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"null", b"[]", b"\xff", b'{"checksum":1}', b'{"claims":{}}', b"drawbridge-checkpoint 1", b"[" * 100_000, b'{"a":' * 50_000],
    ids=["empty", "object", "null", "list", "no text", "a sum alone", "another's", "ours", "nested lists", "nested objects"],
)  # fmt: skip
def test_another_form_is_said_to_be_one(data):
    with pytest.raises(UnknownForm):
        read_other_driver(data, DRIVER)


def test_invalid_names_are_not_asked_for():
    data = second({UID: completed("gpu-0", namespace="../..", name="c"), "no uid": completed("gpu-0")})
    assert where(read_other_driver(data, DRIVER)) == [("", "", UID, "gpu-0", "")]


def test_a_checkpoint_too_large_is_refused_and_one_too_deep_is_read_in_part():
    with pytest.raises(BadCheckpoint, match="is the maximum"):
        read_other_driver(b" " * (MOST_BYTES + 1), DRIVER)
    many = [{"pool_name": "p", "device_name": "d"}] * (MOST_DEVICES + 1)
    with pytest.raises(BadCheckpoint, match="more than"):
        read_other_driver(first({UID: many}), DRIVER)
    nested = device("deep")
    for _ in range(40):
        nested = [nested]
    assert where(read_other_driver(first({UID: nested}), DRIVER)) == [("", "", UID, "", "")]


ANY = st.recursive(st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["PrepareCompleted", UID]), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["checksum", "v1", "v2", "kind", "preparedClaims", "preparedDevices", "checkpointState", "name", "namespace", "PoolName", "DeviceName", UID]), inner, max_size=4), max_leaves=20)  # fmt: skip


@settings(max_examples=draws(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200) | ANY.map(compact) | ANY.map(lambda inner: first({UID: inner})) | ANY.map(lambda inner: second({UID: inner})))  # fmt: skip
def test_arbitrary_content_in_a_foreign_checkpoint_raises_only_bad_checkpoint(data):
    try:
        records = read_other_driver(data, DRIVER)
    except BadCheckpoint:
        return
    assert all(
        isinstance(text, str)
        for record in records
        for text in (record.namespace, record.claim, record.uid, *record.where)
    )


@settings(max_examples=draws(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=100), st.booleans())
def test_arbitrary_content_in_our_checkpoint_raises_broken_checkpoint(body, right):
    """A right sum over anything, too: a writer of the file can make one."""
    import hashlib

    numbers = b"1 1 %d" % len(body)
    digest = hashlib.sha256(numbers + b"\n" + body).hexdigest().encode() if right else b"0" * 64
    with pytest.raises(BrokenCheckpoint):
        decode(b"drawbridge-checkpoint %s %s\n%s" % (numbers, digest, body))


def test_a_device_that_a_driver_prepared_and_the_claim_has_not_is_found():
    there = read_other_driver(second({"uid-c": completed("gpu-1", namespace="ns", name="c")}), DRIVER)
    seen = snapshot(claiming("p", "c", "gpu-0"), pods=[pod("p", "c")], claims=[allocated("c", "gpu-0")], prepared=there)
    [finding] = examine(seen, hardware(seen))
    assert (finding.kind.value, finding.object) == ("prepared, not allocated", "ResourceClaim/ns/c")
    assert f"the driver {DRIVER} has {DRIVER}/{NODE}/gpu-1" in finding.message


def test_a_claim_without_a_name_gets_it_from_its_uid_or_is_left_over():
    there = read_other_driver(first({"uid-c": completed("gpu-1"), UID: completed("gpu-0")}), DRIVER)
    claims = [allocated("c", "gpu-0")]
    named = with_names(there, {("ns", "c"): claims[0]})
    assert where(named) == [("ns", "c", "uid-c", "gpu-1", ""), ("", "", UID, "gpu-0", "")]
    seen = snapshot(claiming("p", "c", "gpu-0"), pods=[pod("p", "c")], claims=claims, prepared=named)
    assert [(finding.kind.value, finding.object) for finding in examine(seen, hardware(seen))] == [
        ("prepared, not allocated", "ResourceClaim/ns/c"),
        ("left on the node", f"claim with the uid {UID}"),
    ]
    unread = msgspec.structs.replace(seen, claims={})
    assert [
        finding for finding in examine(unread, hardware(unread)) if finding.kind.value == "left on the node"
    ] == [], "it may be one that could not be read"
