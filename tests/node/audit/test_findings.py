"""Contradictions on a node are findings; agreement and missing sources are not."""

from msgspec.structs import replace

from node.audit import FindingAges, FindingKind, examine
from node.audit.findings import LATE, MAX_FINDINGS, SOON
from tests.node.audit.snapshots import (
    UID,
    allocated,
    claiming,
    hardware,
    plugged,
    pod,
    prepared,
    published,
    slices,
    snapshot,
)
from tests.node.machines import DRIVER


def found(seen):
    return examine(seen, hardware(seen))


def kinds(seen):
    return [finding.kind for finding in found(seen)]


def test_a_node_without_contradictions_has_no_findings():
    seen = snapshot(
        plugged("old", "GPU-1"),
        claiming("new", "c", "gpu-0"),
        pods=[pod("new", "c"), pod("old")],
        claims=[allocated("c", "gpu-0")],
        prepared=(prepared("c", "gpu-0"),),
        files=(f"drawbridge_{DRIVER}_uid-c.json",),
    )
    assert found(seen) == ()


def test_a_device_of_a_plugin_and_a_claim_is_found():
    seen = snapshot(
        plugged("old", "GPU-0"),
        claiming("new", "c", "gpu-0"),
        pods=[pod("new", "c")],
        claims=[allocated("c", "gpu-0")],
    )
    [finding] = found(seen)
    assert finding.kind is FindingKind.GIVEN_TWICE
    assert finding.users == (("ns", "old"), ("ns", "new"))
    assert (
        "pod ns/old has it as example.com/gpu GPU-0 of a device plugin, and ResourceClaim ns/c has it"
        in finding.message
    )
    assert "ns/" not in finding.pod_message


def test_a_plugin_device_allocated_to_an_unprepared_claim_is_found():
    """The claim's pod is bound to this node, and the claim is not prepared yet."""
    seen = snapshot(
        plugged("old", "GPU-1"), pods=[pod("new", "c", phase="Pending")], claims=[allocated("c", "gpu-1-1g-2")]
    )
    [finding] = found(seen)
    assert (finding.kind, finding.object) == (FindingKind.GIVEN_TWICE, f"Device/{DRIVER}/node-1/gpu-1-1g-2")


def test_a_device_given_twice_is_found_without_pods():
    seen = snapshot(plugged("old", "GPU-0"), claiming("new", "c", "gpu-0"), pods=None or ())
    assert kinds(replace(seen, pods=None)) == [FindingKind.GIVEN_TWICE]


def test_a_finished_pod_holds_no_device():
    seen = snapshot(
        plugged("old", "GPU-0"), pods=[pod("new", "c", phase="Succeeded")], claims=[allocated("c", "gpu-0")]
    )
    assert found(seen) == ()


def test_a_claim_with_admin_access_may_use_plugin_devices():
    seen = snapshot(
        plugged("old", "GPU-0"),
        claiming("new", "c", "gpu-0"),
        pods=[pod("new", "c")],
        claims=[allocated("c", "gpu-0", adminAccess=True)],
    )
    assert found(seen) == ()


def test_one_device_of_two_drivers_in_two_claims_is_found():
    mine = published("a.example.com", ("x", {"uuid": {"string": "GPU-7"}}))
    theirs = published("b.example.com", ("y", {"uuid": {"string": "GPU-7"}}))
    seen = snapshot(
        claiming("p", "c", "x", driver="a.example.com"),
        claiming("q", "d", "y", driver="b.example.com"),
        claims=[allocated("c", "x", driver="a.example.com"), allocated("d", "y", driver="b.example.com")],
        slices=(mine, theirs),
    )
    [finding] = found(seen)
    assert finding.kind is FindingKind.GIVEN_TWICE
    assert "ns/c, ns/d" in finding.message


def test_a_prepared_device_without_an_allocation_is_found():
    seen = snapshot(pods=[], claims=[allocated("c"), allocated("d", "gpu-1")], prepared=(prepared("c", "gpu-0"), prepared("d", "gpu-0")))  # fmt: skip
    assert [(finding.kind, finding.object) for finding in found(seen)] == [
        (FindingKind.NOT_ALLOCATED, "ResourceClaim/ns/c"),
        (FindingKind.NOT_ALLOCATED, "ResourceClaim/ns/d"),
    ]


def test_an_unread_claim_is_neither_allocated_nor_gone():
    assert found(snapshot(prepared=(prepared("c", "gpu-0"),))) == ()


def test_an_unprepared_claim_of_a_running_pod_is_found():
    seen = snapshot(pods=[pod("p", "c")], claims=[allocated("c", "gpu-0")])
    [finding] = found(seen)
    assert (finding.kind, finding.users) == (FindingKind.NOT_PREPARED, (("ns", "p"),))


def test_a_pod_without_a_need_to_prepare_has_no_finding():
    """Pending, terminating, without devices, or with skipNodeOperations."""
    for seen in (
        snapshot(pods=[pod("p", "c", phase="Pending")], claims=[allocated("c", "gpu-0")]),
        snapshot(pods=[pod("p", "c")], claims=[allocated("c", "gpu-0", skipNodeOperations=["All"])]),
        snapshot(pods=[pod("p", "c")], claims=[allocated("c")]),
    ):
        assert found(seen) == ()
    going = pod("p", "c")
    going = replace(going, metadata=replace(going.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    assert found(snapshot(pods=[going], claims=[allocated("c", "gpu-0")])) == ()


def test_an_unprepared_claim_of_no_container_is_ignored():
    """The kubelet's answer lists claims by container, and no container uses this one."""
    consumer = pod("p", "c")
    consumer = replace(consumer, spec=replace(consumer.spec, containers=()))
    assert found(snapshot(pods=[consumer], claims=[allocated("c", "gpu-0")])) == ()


def test_an_unavailable_kubelet_causes_no_findings():
    seen = snapshot(pods=[pod("p", "c")], claims=[allocated("c", "gpu-0")])
    assert found(replace(seen, kubelet=None)) == ()


def test_shares_that_exceed_the_device_are_found():
    seen = snapshot(
        claims=[
            allocated("c", "gpu-2-shared", shareID="s", consumedCapacity={"memory": "30Gi"}),
            allocated("d", "gpu-2-shared", shareID="t", consumedCapacity={"memory": "20Gi"}),
        ],
        prepared=(
            prepared("c", "gpu-2-shared", share="s", memory="30Gi"),
            prepared("d", "gpu-2-shared", share="t", memory="20Gi"),
        ),
    )
    [finding] = found(seen)
    assert (finding.kind, finding.object) == (FindingKind.SUMS, f"Device/{DRIVER}/node-1/gpu-2-shared")


def test_a_share_that_differs_from_its_status_is_found():
    seen = snapshot(
        claims=[allocated("c", "gpu-2-shared", shareID="s", consumedCapacity={"memory": "10Gi"})],
        prepared=(prepared("c", "gpu-2-shared", share="s", memory="30Gi"),),
    )
    [finding] = found(seen)
    assert finding.kind is FindingKind.SUMS
    assert "memory 30Gi" in finding.message
    assert "memory 10Gi" in finding.message


def test_devices_prepared_for_a_deleted_or_replaced_claim_are_found():
    seen = snapshot(gone=["c"], claims=[allocated("d", "gpu-1")], prepared=(prepared("c", "gpu-0"), prepared("d", "gpu-1", uid="before")))  # fmt: skip
    assert [(finding.kind, finding.object) for finding in found(seen)] == [
        (FindingKind.LEFT, "ResourceClaim/ns/c"),
        (FindingKind.LEFT, "ResourceClaim/ns/d"),
    ]


def test_cdi_files_of_missing_claims_are_reported():
    seen = snapshot(files=(f"drawbridge_{DRIVER}_{UID}.json", "nvidia.yaml", f"k8s.{DRIVER}-claim_{UID}.yaml"))
    assert [finding.object for finding in found(seen)] == [f"CDI file drawbridge_{DRIVER}_{UID}.json", f"CDI file k8s.{DRIVER}-claim_{UID}.yaml"]  # fmt: skip


def test_cdi_files_are_orphaned_only_if_all_claims_were_read():
    files = (f"drawbridge_{DRIVER}_{UID}.json",)
    assert found(snapshot(files=files, prepared=(prepared("c", "gpu-0"),))) == ()
    assert found(snapshot(files=files, pods=[pod("p", "c", phase="Pending")])) == ()
    assert found(replace(snapshot(files=files), pods=None)) == ()
    assert found(snapshot(files=files, claims=[allocated("c", "gpu-0")], prepared=(prepared("c", "gpu-0", uid=UID),)))[0].object == "ResourceClaim/ns/c"  # fmt: skip


def test_the_number_of_findings_is_bounded():
    gone = [f"c{number}" for number in range(MAX_FINDINGS + 50)]
    seen = snapshot(gone=gone, prepared=tuple(prepared(name, "gpu-0") for name in gone))
    assert len(found(seen)) == MAX_FINDINGS


def test_a_finding_that_may_resolve_itself_must_persist():
    [left] = found(snapshot(gone=["c"], prepared=(prepared("c", "gpu-0"),)))
    [missing] = found(snapshot(pods=[pod("p", "c")], claims=[allocated("c", "gpu-0")]))
    [twice] = found(snapshot(plugged("old", "GPU-0"), claiming("p", "c", "gpu-0")))
    patience = FindingAges().after([left, missing, twice], 100.0)
    assert [patience.is_old(finding, 100.0) for finding in (twice, missing, left)] == [True, False, False]
    patience = patience.after([left, missing], 100.0 + SOON)
    assert [patience.is_old(finding, 100.0 + SOON) for finding in (missing, left)] == [True, False]
    assert patience.is_old(left, 100.0 + LATE)
    patience = patience.after([], 200.0).after([left], 300.0)
    assert not patience.is_old(left, 100.0 + LATE), "it was gone in between"


def test_the_example_slices_have_one_driver():
    assert len({slice_.spec.driver for slice_ in slices()}) == 1


def test_invented_findings_of_a_driver_do_not_hide_other_kinds():
    lies = tuple(prepared("c", f"made-up-{number}") for number in range(5000))
    seen = snapshot(
        pods=[pod("p", "d")], claims=[allocated("c", "gpu-0"), allocated("d", "gpu-1")], gone=["e"], prepared=(*lies, prepared("e", "gpu-0"))
    )  # fmt: skip
    kinds = {finding.kind for finding in examine(seen, hardware(seen))}
    assert kinds == {FindingKind.NOT_ALLOCATED, FindingKind.NOT_PREPARED, FindingKind.LEFT}
