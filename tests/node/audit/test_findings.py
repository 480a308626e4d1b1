"""The audit reports contradictions on a node as findings. A missing source is no contradiction."""

from msgspec.structs import replace

from node.audit import FindingAges, FindingKind, examine
from node.audit.findings import LATE, MAX_FINDINGS, SOON
from tests.loops import every
from tests.node.audit.snapshots import (
    UID,
    allocated_claim,
    claim_holding,
    hardware_of,
    make_snapshot,
    plugin_holding,
    pod,
    prepared_record,
    published_slice,
    slices,
)
from tests.node.machines import DRIVER, gpu


def findings_of(snapshot):
    return examine(snapshot, hardware_of(snapshot))


def kinds_of(snapshot):
    return [finding.kind for finding in findings_of(snapshot)]


CLAIM_C = allocated_claim("c", "gpu-0")
RUNNING_POD = pod("p", "c")
TERMINATING_POD = replace(
    RUNNING_POD, metadata=replace(RUNNING_POD.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
)
# The kubelet's answer lists claims by container, so it does not list those that no container uses.
POD_WITHOUT_CONTAINERS = replace(RUNNING_POD, spec=replace(RUNNING_POD.spec, containers=()))
CDI_FILES = (f"drawbridge_{DRIVER}_{UID}.json",)
SNAPSHOTS_WITHOUT_FINDINGS = {
    "there is no contradiction": make_snapshot(
        plugin_holding("old", "GPU-1"),
        claim_holding("new", "c", "gpu-0"),
        pods=[pod("new", "c"), pod("old")],
        claims=[CLAIM_C],
        prepared=(prepared_record("c", "gpu-0"),),
        files=(f"drawbridge_{DRIVER}_uid-c.json",),
    ),
    "a finished pod holds no device": make_snapshot(
        plugin_holding("old", "GPU-0"), pods=[pod("new", "c", phase="Succeeded")], claims=[CLAIM_C]
    ),
    "admin access may use devices of plugins": make_snapshot(
        plugin_holding("old", "GPU-0"),
        claim_holding("new", "c", "gpu-0"),
        pods=[pod("new", "c")],
        claims=[allocated_claim("c", "gpu-0", adminAccess=True)],
    ),
    "the prepared claim was not read": make_snapshot(prepared=(prepared_record("c", "gpu-0"),)),
    "the pod is pending": make_snapshot(pods=[pod("p", "c", phase="Pending")], claims=[CLAIM_C]),
    "the pod terminates": make_snapshot(pods=[TERMINATING_POD], claims=[CLAIM_C]),
    "no container uses the claim": make_snapshot(pods=[POD_WITHOUT_CONTAINERS], claims=[CLAIM_C]),
    "the claim skips operations on the node": make_snapshot(
        pods=[RUNNING_POD], claims=[allocated_claim("c", "gpu-0", skipNodeOperations=["All"])]
    ),
    "the claim has no devices": make_snapshot(pods=[RUNNING_POD], claims=[allocated_claim("c")]),
    "the kubelet does not answer": replace(make_snapshot(pods=[RUNNING_POD], claims=[CLAIM_C]), kubelet=None),
    "a prepared claim was not read, and a file is left": make_snapshot(
        files=CDI_FILES, prepared=(prepared_record("c", "gpu-0"),)
    ),
    "a pod's claim was not read, and a file is left": make_snapshot(
        files=CDI_FILES, pods=[pod("p", "c", phase="Pending")]
    ),
    "no pods were read, and a file is left": replace(make_snapshot(files=CDI_FILES), pods=None),
}


@every("reason", SNAPSHOTS_WITHOUT_FINDINGS)
def test_a_node_without_contradictions_has_no_findings(reason):
    assert findings_of(SNAPSHOTS_WITHOUT_FINDINGS[reason]) == ()


def test_a_device_of_a_plugin_and_a_claim_is_reported():
    snapshot = make_snapshot(
        plugin_holding("old", "GPU-0"),
        claim_holding("new", "c", "gpu-0"),
        pods=[pod("new", "c")],
        claims=[CLAIM_C],
    )
    [finding] = findings_of(snapshot)
    assert finding.kind is FindingKind.GIVEN_TWICE
    assert finding.users == (("ns", "old"), ("ns", "new"))
    assert (
        "pod ns/old has it as example.com/gpu GPU-0 of a device plugin, and ResourceClaim ns/c has it"
        in finding.message
    )
    assert "ns/" not in finding.pod_message


def test_a_plugin_device_allocated_to_an_unprepared_claim_is_found():
    """The claim's pod is bound to this node, and the claim is not prepared yet."""
    snapshot = make_snapshot(
        plugin_holding("old", "GPU-1"),
        pods=[pod("new", "c", phase="Pending")],
        claims=[allocated_claim("c", "gpu-1-1g-2")],
    )
    [finding] = findings_of(snapshot)
    assert (finding.kind, finding.object) == (FindingKind.GIVEN_TWICE, f"Device/{DRIVER}/node-1/gpu-1-1g-2")


def test_a_device_given_twice_is_found_without_pods():
    snapshot = make_snapshot(plugin_holding("old", "GPU-0"), claim_holding("new", "c", "gpu-0"))
    assert kinds_of(replace(snapshot, pods=None)) == [FindingKind.GIVEN_TWICE]


def test_a_device_that_two_drivers_allocated_to_claims_is_found():
    slice_of_a = published_slice("a.example.com", ("x", {"uuid": {"string": "GPU-7"}}))
    slice_of_b = published_slice("b.example.com", ("y", {"uuid": {"string": "GPU-7"}}))
    snapshot = make_snapshot(
        claim_holding("p", "c", "x", driver="a.example.com"),
        claim_holding("q", "d", "y", driver="b.example.com"),
        claims=[allocated_claim("c", "x", driver="a.example.com"), allocated_claim("d", "y", driver="b.example.com")],
        slices=(slice_of_a, slice_of_b),
    )
    [finding] = findings_of(snapshot)
    assert finding.kind is FindingKind.GIVEN_TWICE
    assert "ns/c, ns/d" in finding.message


def test_a_prepared_device_without_an_allocation_is_found():
    snapshot = make_snapshot(pods=[], claims=[allocated_claim("c"), allocated_claim("d", "gpu-1")], prepared=(prepared_record("c", "gpu-0"), prepared_record("d", "gpu-0")))  # fmt: skip
    assert [(finding.kind, finding.object) for finding in findings_of(snapshot)] == [
        (FindingKind.NOT_ALLOCATED, "ResourceClaim/ns/c"),
        (FindingKind.NOT_ALLOCATED, "ResourceClaim/ns/d"),
    ]


def test_a_claim_prepared_with_another_device_than_it_is_allocated_is_reported_to_its_pods():
    """After a forced deletion the claim was allocated again before the kubelet unprepared it."""
    snapshot = make_snapshot(
        claim_holding("p", "c", "gpu-0"),
        pods=[pod("p", "c")],
        claims=[allocated_claim("c", "gpu-1")],
        prepared=(prepared_record("c", "gpu-0"),),
    )
    finding = findings_of(snapshot)[0]
    assert (finding.kind, finding.users) == (FindingKind.NOT_ALLOCATED, (("ns", "p"),))
    assert f"but the claim's status allocates {DRIVER}/node-1/gpu-1" in finding.message
    assert finding.pod_message == f"{DRIVER}/node-1/gpu-0 is prepared for the ResourceClaim c, whose status allocates {DRIVER}/node-1/gpu-1"  # fmt: skip


GIVEN = {device.name: device for slice_ in slices() for device in slice_.spec.devices}


@every("name", ["gone", "renamed", "swapped"])
def test_a_prepared_device_that_the_driver_offers_otherwise_is_reported(name):
    """The inventory changed: the device of this name is gone, or it is other hardware."""
    gpus = {"gone": [], "renamed": [gpu(0, name="x")], "swapped": [gpu(0, uuid="GPU-9")]}[name]
    snapshot = make_snapshot(
        claim_holding("p", "c", "gpu-0"),
        pods=[pod("p", "c")],
        claims=[CLAIM_C],
        prepared=(prepared_record("c", "gpu-0", given=GIVEN["gpu-0"]),),
        slices=slices(gpus=gpus),
    )
    [finding] = findings_of(snapshot)
    assert (finding.kind, finding.users) == (FindingKind.MOVED, (("ns", "p"),))
    words = "offers other hardware under this name" if name == "swapped" else "does not offer this device"
    assert words in finding.message


def test_a_driver_without_slices_and_an_unknown_identity_prove_nothing():
    record = prepared_record("c", "gpu-0", given=GIVEN["gpu-0"])
    for others in ((), [published_slice("other.example.com", ("gpu-1", {}))]):
        assert findings_of(make_snapshot(claims=[CLAIM_C], prepared=(record,), slices=others)) == ()
    unidentified = prepared_record("c", "gpu-0", given=replace(GIVEN["gpu-0"], attributes={}))
    assert findings_of(make_snapshot(claims=[CLAIM_C], prepared=(unidentified, record))) == ()


def test_an_unprepared_claim_of_a_running_pod_is_found():
    snapshot = make_snapshot(pods=[RUNNING_POD], claims=[CLAIM_C])
    [finding] = findings_of(snapshot)
    assert (finding.kind, finding.users) == (FindingKind.NOT_PREPARED, (("ns", "p"),))


def test_shares_that_exceed_the_device_are_found():
    snapshot = make_snapshot(
        claims=[
            allocated_claim("c", "gpu-2-shared", shareID="s", consumedCapacity={"memory": "30Gi"}),
            allocated_claim("d", "gpu-2-shared", shareID="t", consumedCapacity={"memory": "20Gi"}),
        ],
        prepared=(
            prepared_record("c", "gpu-2-shared", share="s", memory="30Gi"),
            prepared_record("d", "gpu-2-shared", share="t", memory="20Gi"),
        ),
    )
    [finding] = findings_of(snapshot)
    assert (finding.kind, finding.object) == (FindingKind.SUMS, f"Device/{DRIVER}/node-1/gpu-2-shared")


def test_a_prepared_share_that_differs_from_its_claim_is_found():
    snapshot = make_snapshot(
        claims=[allocated_claim("c", "gpu-2-shared", shareID="s", consumedCapacity={"memory": "10Gi"})],
        prepared=(prepared_record("c", "gpu-2-shared", share="s", memory="30Gi"),),
    )
    [finding] = findings_of(snapshot)
    assert finding.kind is FindingKind.SUMS
    assert "memory 30Gi" in finding.message
    assert "memory 10Gi" in finding.message


def test_devices_prepared_for_a_deleted_or_replaced_claim_are_found():
    snapshot = make_snapshot(missing=["c"], claims=[allocated_claim("d", "gpu-1")], prepared=(prepared_record("c", "gpu-0"), prepared_record("d", "gpu-1", uid="uid-of-a-deleted-claim")))  # fmt: skip
    assert [(finding.kind, finding.object) for finding in findings_of(snapshot)] == [
        (FindingKind.LEFT, "ResourceClaim/ns/c"),
        (FindingKind.LEFT, "ResourceClaim/ns/d"),
    ]


def test_cdi_files_of_missing_claims_are_reported():
    snapshot = make_snapshot(files=(f"drawbridge_{DRIVER}_{UID}.json", "nvidia.yaml", f"k8s.{DRIVER}-claim_{UID}.yaml"))
    assert [finding.object for finding in findings_of(snapshot)] == [f"CDI file drawbridge_{DRIVER}_{UID}.json", f"CDI file k8s.{DRIVER}-claim_{UID}.yaml"]  # fmt: skip


def test_the_cdi_file_of_a_replaced_claim_is_reported_with_the_claim():
    snapshot = make_snapshot(files=CDI_FILES, claims=[CLAIM_C], prepared=(prepared_record("c", "gpu-0", uid=UID),))
    assert findings_of(snapshot)[0].object == "ResourceClaim/ns/c"


def test_the_number_of_findings_is_bounded():
    missing_claims = [f"c{number}" for number in range(MAX_FINDINGS + 50)]
    snapshot = make_snapshot(
        missing=missing_claims, prepared=tuple(prepared_record(name, "gpu-0") for name in missing_claims)
    )
    assert len(findings_of(snapshot)) == MAX_FINDINGS


def test_findings_that_may_end_by_themselves_become_old_more_slowly():
    [left_behind] = findings_of(make_snapshot(missing=["c"], prepared=(prepared_record("c", "gpu-0"),)))
    [not_prepared] = findings_of(make_snapshot(pods=[RUNNING_POD], claims=[CLAIM_C]))
    [given_twice] = findings_of(make_snapshot(plugin_holding("old", "GPU-0"), claim_holding("p", "c", "gpu-0")))
    ages = FindingAges().after([left_behind, not_prepared, given_twice], 100.0)
    assert [ages.is_old(finding, 100.0) for finding in (given_twice, not_prepared, left_behind)] == [True, False, False]
    ages = ages.after([left_behind, not_prepared], 100.0 + SOON)
    assert [ages.is_old(finding, 100.0 + SOON) for finding in (not_prepared, left_behind)] == [True, False]
    assert ages.is_old(left_behind, 100.0 + LATE)
    ages = ages.after([], 200.0).after([left_behind], 300.0)
    assert not ages.is_old(left_behind, 100.0 + LATE), "the finding is old although it had ended in between"


def test_invented_devices_of_a_driver_do_not_hide_other_findings():
    invented_records = tuple(prepared_record("c", f"made-up-{number}") for number in range(5000))
    snapshot = make_snapshot(
        pods=[pod("p", "d")], claims=[allocated_claim("c", "gpu-0"), allocated_claim("d", "gpu-1")], missing=["e"], prepared=(*invented_records, prepared_record("e", "gpu-0"))
    )  # fmt: skip
    assert set(kinds_of(snapshot)) == {FindingKind.NOT_ALLOCATED, FindingKind.NOT_PREPARED, FindingKind.LEFT}
