"""Reservations of the allocator are compared with the devices that plugins and claims hold on a node."""

import json

import pytest

from node.audit import FindingKind, InvalidAnswer, NodeReservation, examine, in_both, read_reservations
from node.audit.snapshot import NodeReservedDevice
from tests.loops import every
from tests.node.audit.snapshots import (
    allocated_claim,
    claim_holding,
    device,
    hardware_of,
    make_snapshot,
    plugin_holding,
    pod,
    prepared_record,
    published_slice,
    reservations_answer,
)
from tests.node.machines import DRIVER, NODE


def reservation_of(claim, *names, in_doubt=False, share="", driver=DRIVER, uid=""):
    devices = tuple(NodeReservedDevice(*device(name, driver), share) for name in names)
    return NodeReservation("ns", claim, uid or f"uid-{claim}", in_doubt, devices)


def findings_with(*holdings, **sources):
    snapshot = make_snapshot(*holdings, **sources)
    return examine(snapshot, hardware_of(snapshot))


def kinds_with(*holdings, **sources):
    return [finding.kind for finding in findings_with(*holdings, **sources)]


def test_a_reservation_of_an_unused_device_has_no_finding():
    assert findings_with(plugin_holding("old", "GPU-1"), reservations=(reservation_of("c", "gpu-0"),)) == ()


def test_a_reservation_of_a_now_allocated_claim_has_no_finding():
    """The driver's record of the claim has the uid of the claim. The kubelet's record has none."""
    sources = {
        "reservations": (reservation_of("c", "gpu-0"),),
        "claims": [allocated_claim("c", "gpu-0")],
        "pods": [pod("p", "c")],
    }
    assert findings_with(claim_holding("p", "c", "gpu-0"), prepared=(prepared_record("c", "gpu-0"),), **sources) == ()
    assert findings_with(claim_holding("p", "c", "gpu-0"), **sources) == ()


def test_a_reserved_device_that_a_plugin_allocated_is_found():
    [finding] = findings_with(plugin_holding("old", "GPU-0"), reservations=(reservation_of("c", "gpu-0"),))
    assert (finding.kind, finding.object) == (FindingKind.RESERVED_ELSEWHERE, f"Device/{device('gpu-0')}")
    assert finding.users == (("ns", "old"),)
    assert "reserved it for ResourceClaim ns/c, and pod ns/old has it as example.com/gpu GPU-0" in finding.message
    assert "ns/" not in finding.pod_message


def test_a_reserved_partition_of_a_plugins_device_is_found():
    assert kinds_with(plugin_holding("old", "GPU-1"), reservations=(reservation_of("c", "gpu-1-1g-2"),)) == [
        FindingKind.RESERVED_ELSEWHERE
    ]


@pytest.mark.parametrize(
    "sources",
    [
        {"prepared": (prepared_record("d", "gpu-0"),)},
        {"held": claim_holding("q", "d", "gpu-0")},
        {
            "prepared": (prepared_record("c", "gpu-0", uid="uid-of-a-deleted-claim"),),
            "held": claim_holding("q", "c", "gpu-0"),
        },
        {"prepared": (prepared_record("", "gpu-0", uid="uid-y"), prepared_record("", "gpu-0", uid="uid-z"))},
    ],
    ids=["prepared by a driver", "held by a pod", "deleted claim of the same name", "prepared claims without names"],
)
def test_a_reserved_device_that_another_claim_holds_is_found(sources):
    holdings = [sources.pop("held")] if "held" in sources else []
    claims = [allocated_claim("d", "gpu-0")]
    pods = [pod("q", "d")]
    assert FindingKind.RESERVED_ELSEWHERE in kinds_with(
        *holdings, pods=pods, claims=claims, reservations=(reservation_of("c", "gpu-0"),), **sources
    )


def test_a_reservation_conflicts_with_other_names_of_its_hardware():
    """The other name is that of a partition, or the name that another driver uses."""
    prepared_gpu = prepared_record("d", "gpu-1")
    assert kinds_with(claims=[allocated_claim("d", "gpu-1")], pods=[pod("q", "d")], prepared=(prepared_gpu,), reservations=(reservation_of("c", "gpu-1-1g-2"),)).count(FindingKind.RESERVED_ELSEWHERE) == 1  # fmt: skip
    slice_of_b = published_slice("b.example.com", ("y", {"uuid": {"string": "GPU-7"}}))
    our_slice = published_slice(DRIVER, ("x", {"uuid": {"string": "GPU-7"}}))
    reservation_of_b = reservation_of("c", "y", driver="b.example.com")
    assert FindingKind.RESERVED_ELSEWHERE in kinds_with(
        prepared=(prepared_record("d", "x"),), slices=(our_slice, slice_of_b), reservations=(reservation_of_b,)
    )


def test_two_partitions_that_fit_together_have_no_finding():
    prepared_partition = prepared_record("d", "gpu-1-1g-2")
    assert findings_with(claims=[allocated_claim("d", "gpu-1-1g-2")], pods=[], prepared=(prepared_partition,), reservations=(reservation_of("c", "gpu-1-1g-1"),)) == ()  # fmt: skip


def test_only_a_share_may_be_reserved_beside_a_share():
    prepared_share = prepared_record("d", "gpu-2-shared", share="s-1")
    claims = [allocated_claim("d", "gpu-2-shared", shareID="s-1")]
    for share, expected in (("s-2", []), ("", [FindingKind.RESERVED_ELSEWHERE])):
        assert kinds_with(claims=claims, prepared=(prepared_share,), reservations=(reservation_of("c", "gpu-2-shared", share=share),)) == expected  # fmt: skip


def test_a_claim_with_admin_access_does_not_hold_the_device():
    admin_claim = allocated_claim("d", "gpu-0", adminAccess=True)
    assert findings_with(claim_holding("q", "d", "gpu-0"), pods=[pod("q", "d")], claims=[admin_claim], reservations=(reservation_of("c", "gpu-0"),)) == ()  # fmt: skip


def test_a_reservation_in_doubt_is_found():
    [finding] = findings_with(reservations=(reservation_of("c", "gpu-0", in_doubt=True), reservation_of("d", "gpu-1")))
    assert (finding.kind, finding.object) == (FindingKind.IN_DOUBT, "ResourceClaim/ns/c")
    assert str(device("gpu-0")) in finding.message


def test_only_reservations_in_both_answers_count():
    """A device that was released or reserved between the answers may have had another holder meanwhile."""
    kept, released, moved = (reservation_of(name, f"gpu-{i}") for i, name in enumerate(("kept", "released", "moved")))
    moved_later, doubted = reservation_of("moved", "gpu-1"), reservation_of("kept", "gpu-0", in_doubt=True)
    assert in_both((kept, released, moved), (moved_later, doubted)) == (kept,), (
        "a reservation that only the second answer doubts is in doubt"
    )
    assert in_both((doubted,), (kept,)) == (kept,)
    assert in_both((doubted,), (doubted,)) == (doubted,)


def test_the_allocators_answer_is_read():
    [reservation] = read_reservations(json.dumps(reservations_answer()).encode(), NODE)
    assert reservation == NodeReservation("ns", "c", "u", True, (NodeReservedDevice(DRIVER, NODE, "gpu-0", "s"),))


@every(
    "data",
    [
        b"",
        b"<html>",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"node":' * 50_000,
        json.dumps(reservations_answer() | {"node": "another"}),
        json.dumps({"node": NODE}),
        json.dumps(reservations_answer(inDoubt="yes")),
    ],
)
def test_an_invalid_answer_of_the_allocator_is_refused_completely(data):
    with pytest.raises(InvalidAnswer) as error:
        read_reservations(data if isinstance(data, bytes) else data.encode(), NODE)
    assert len(str(error.value)) < 600
    assert str(error.value).isprintable()
