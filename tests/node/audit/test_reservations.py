"""Reservations of the allocator beside what containers and claims hold on a node."""

import json

import pytest

from node.audit import FindingKind, InvalidAnswer, NodeReservation, examine, in_both, read_reservations
from node.audit.reservations import LONGEST, MAX_ENTRIES
from node.audit.snapshot import NodeReservedDevice
from tests.node.audit.snapshots import (
    DEVICE,
    ROW,
    allocated,
    answer,
    claiming,
    device,
    hardware,
    plugged,
    pod,
    prepared,
    published,
    snapshot,
)
from tests.node.machines import DRIVER, NODE


def reserved(claim, *names, in_doubt=False, share="", driver=DRIVER, uid=""):
    devices = tuple(NodeReservedDevice(*device(name, driver), share) for name in names)
    return NodeReservation("ns", claim, uid or f"uid-{claim}", in_doubt, devices)


def found(*held, **more):
    seen = snapshot(*held, **more)
    return examine(seen, hardware(seen))


def kinds(*held, **more):
    return [finding.kind for finding in found(*held, **more)]


def test_a_reservation_of_an_unused_device_has_no_finding():
    assert found(plugged("old", "GPU-1"), reservations=(reserved("c", "gpu-0"),)) == ()


def test_a_reservation_in_commit_has_no_finding():
    """The claim is allocated and prepared meanwhile. The kubelet's record has no uid, the driver's record has it."""
    seen = {"reservations": (reserved("c", "gpu-0"),), "claims": [allocated("c", "gpu-0")], "pods": [pod("p", "c")]}
    assert found(claiming("p", "c", "gpu-0"), prepared=(prepared("c", "gpu-0"),), **seen) == ()
    assert found(claiming("p", "c", "gpu-0"), **seen) == ()


def test_a_reserved_device_that_a_plugin_allocated_is_found():
    [finding] = found(plugged("old", "GPU-0"), reservations=(reserved("c", "gpu-0"),))
    assert (finding.kind, finding.object) == (FindingKind.RESERVED_ELSEWHERE, f"Device/{device('gpu-0')}")
    assert finding.users == (("ns", "old"),)
    assert "reserved it for ResourceClaim ns/c, and pod ns/old has it as example.com/gpu GPU-0" in finding.message
    assert "ns/" not in finding.pod_message


def test_a_reserved_partition_of_a_plugins_device_is_found():
    assert kinds(plugged("old", "GPU-1"), reservations=(reserved("c", "gpu-1-1g-2"),)) == [
        FindingKind.RESERVED_ELSEWHERE
    ]


@pytest.mark.parametrize(
    "seen",
    [
        {"prepared": (prepared("d", "gpu-0"),)},
        {"held": claiming("q", "d", "gpu-0")},
        {"prepared": (prepared("c", "gpu-0", uid="uid-of-one-before"),), "held": claiming("q", "c", "gpu-0")},
        {"prepared": (prepared("", "gpu-0", uid="uid-y"), prepared("", "gpu-0", uid="uid-z"))},
    ],
    ids=["a driver", "the kubelet", "the claim of that name that was before", "prepared without a name"],
)
def test_a_reserved_device_that_another_claim_holds_is_found(seen):
    held = [seen.pop("held")] if "held" in seen else []
    claims = [allocated("d", "gpu-0")]
    pods = [pod("q", "d")]
    assert FindingKind.RESERVED_ELSEWHERE in kinds(
        *held, pods=pods, claims=claims, reservations=(reserved("c", "gpu-0"),), **seen
    )


def test_a_reservation_conflicts_under_any_name_of_the_hardware():
    """A partition of a prepared device, and the same device of another driver."""
    whole = prepared("d", "gpu-1")
    assert kinds(claims=[allocated("d", "gpu-1")], pods=[pod("q", "d")], prepared=(whole,), reservations=(reserved("c", "gpu-1-1g-2"),)).count(FindingKind.RESERVED_ELSEWHERE) == 1  # fmt: skip
    twin = published("b.example.com", ("y", {"uuid": {"string": "GPU-7"}}))
    mine = published(DRIVER, ("x", {"uuid": {"string": "GPU-7"}}))
    other = reserved("c", "y", driver="b.example.com")
    assert FindingKind.RESERVED_ELSEWHERE in kinds(
        prepared=(prepared("d", "x"),), slices=(mine, twin), reservations=(other,)
    )


def test_two_partitions_that_fit_beside_each_other_are_no_finding():
    there = prepared("d", "gpu-1-1g-2")
    assert found(claims=[allocated("d", "gpu-1-1g-2")], pods=[], prepared=(there,), reservations=(reserved("c", "gpu-1-1g-3"),)) == ()  # fmt: skip


def test_shares_are_reserved_beside_shares_and_not_beside_the_whole():
    there = prepared("d", "gpu-2-shared", share="s-1")
    claims = [allocated("d", "gpu-2-shared", shareID="s-1")]
    for share, expected in (("s-2", []), ("", [FindingKind.RESERVED_ELSEWHERE])):
        assert kinds(claims=claims, prepared=(there,), reservations=(reserved("c", "gpu-2-shared", share=share),)) == expected  # fmt: skip


def test_a_claim_with_admin_access_does_not_hold_the_device():
    looking = allocated("d", "gpu-0", adminAccess=True)
    assert found(claiming("q", "d", "gpu-0"), pods=[pod("q", "d")], claims=[looking], reservations=(reserved("c", "gpu-0"),)) == ()  # fmt: skip


def test_a_reservation_in_doubt_is_found():
    [finding] = found(reservations=(reserved("c", "gpu-0", in_doubt=True), reserved("d", "gpu-1")))
    assert (finding.kind, finding.object) == (FindingKind.IN_DOUBT, "ResourceClaim/ns/c")
    assert str(device("gpu-0")) in finding.message


def test_only_reservations_in_both_answers_count():
    """A device that was released or reserved again in between may have belonged to another claim during the reading."""
    kept, went, moved = reserved("kept", "gpu-0"), reserved("went", "gpu-1"), reserved("moved", "gpu-2")
    came, doubted = reserved("moved", "gpu-1"), reserved("kept", "gpu-0", in_doubt=True)
    assert in_both((kept, went, moved), (came, doubted)) == (kept,), "and it was in doubt for a part of it only"
    assert in_both((doubted,), (kept,)) == (kept,)
    assert in_both((doubted,), (doubted,)) == (doubted,)


def test_the_allocators_answer_is_read():
    [reservation] = read_reservations(json.dumps(answer()).encode(), NODE)
    assert reservation == NodeReservation("ns", "c", "u", True, (NodeReservedDevice(DRIVER, NODE, "gpu-0", "s"),))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"node":' * 50_000,
        json.dumps(answer() | {"node": "another"}),
        json.dumps({"node": NODE}),
        json.dumps(answer(claim="a\nb")),
        json.dumps(answer(claim="\x1b[2J")),
        json.dumps(answer(uid="")),
        json.dumps(answer(namespace="n" * (LONGEST + 1))),
        json.dumps(answer(inDoubt="yes")),
        json.dumps(answer(devices=[DEVICE | {"device": "\u202egpu"}])),
        json.dumps(answer(devices=[DEVICE] * (MAX_ENTRIES + 1))),
        json.dumps({"node": NODE, "reservations": [ROW | {"devices": []}] * (MAX_ENTRIES + 1)}),
    ],
)
def test_an_invalid_answer_of_the_allocator_is_refused_completely(data):
    with pytest.raises(InvalidAnswer) as refused:
        read_reservations(data if isinstance(data, bytes) else data.encode(), NODE)
    assert len(str(refused.value)) < 600
    assert str(refused.value).isprintable()
