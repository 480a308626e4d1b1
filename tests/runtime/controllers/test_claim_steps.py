"""The claim controller's next step for a pod and a claim."""

import msgspec
import pytest

from dra.objects.claim import POD_CLAIM_NAME, ResourceClaim
from dra.objects.pod import Pod
from dra.wire import convert
from runtime.controllers.claim_decisions import Create, Delete, RecordNames, Write, actions_for_claim, actions_for_pod
from tests.cluster.objects import FINALIZER, allocation, claim, pod_with_claim


def typed_pod(**status):
    body = pod_with_claim("train", metadata={"uid": "p-1", "namespace": "ns"}) | {
        "status": {"phase": "Pending"} | status
    }
    return convert(body, Pod)


def typed_claim(name="train-gpu-abcde", *, owned=True, finalizers=(), **status):
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": "p-1", "controller": True}
    meta = {
        "uid": "c-1",
        "resourceVersion": "7",
        "finalizers": list(finalizers),
        "annotations": {POD_CLAIM_NAME: "gpu"},
    }
    return convert(
        claim(name, metadata=meta | ({"ownerReferences": [owner]} if owned else {}), status=status), ResourceClaim
    )


NAMED = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "train-gpu-abcde"}]}
USER = {"resource": "pods", "name": "train", "uid": "p-1"}


def kinds(actions):
    return [type(action).__name__ for action in actions]


@pytest.mark.parametrize(
    ("pod", "claims", "expected"),
    [
        (typed_pod(), [], [Create("gpu", "t")]),
        (typed_pod(), [typed_claim(owned=False)], [Create("gpu", "t")]),
        (typed_pod(**NAMED), [typed_claim()], []),
        (typed_pod(**NAMED), [], [Create("gpu", "t")]),
        (typed_pod(resourceClaimStatuses=[{"name": "gpu"}]), [], []),
        (typed_pod(phase="Succeeded"), [], []),
    ],
    ids=["new", "foreign claim of the name", "made", "made and lost", "none needed", "finished"],
)
def test_a_missing_claim_of_a_pod_is_created(pod, claims, expected):
    assert actions_for_pod(pod, claims) == expected


def test_a_claim_missing_in_the_pod_status_is_found():
    assert kinds(actions_for_pod(typed_pod(), [typed_claim()])) == ["RecordNames"]


@pytest.mark.parametrize(
    ("claim", "pod", "expected"),
    [
        (typed_claim(), typed_pod(), []),
        (typed_claim(allocation=allocation(), reservedFor=[USER]), typed_pod(), []),
        (typed_claim(), typed_pod(phase="Failed"), [Delete("train-gpu-abcde", "c-1")]),
        (typed_claim(), None, []),
    ],
    ids=["waiting", "in use", "finished", "orphaned: left to the collector"],
)
def test_a_claim_is_deleted_only_when_its_pod_has_finished(claim, pod, expected):
    assert actions_for_claim(claim, lambda _: pod) == expected


def test_an_allocation_without_our_finalizer_is_not_taken_back():
    (write,) = actions_for_claim(typed_claim(allocation=allocation(), reservedFor=[USER]), lambda _: None)
    assert write.patch.body["status"] == {"reservedFor": None}


def test_a_protected_claim_keeps_its_finalizer_until_deletion():
    assert actions_for_claim(typed_claim(finalizers=[FINALIZER]), lambda _: typed_pod()) == []
    going = typed_claim(finalizers=[FINALIZER])
    going = msgspec.structs.replace(
        going, metadata=msgspec.structs.replace(going.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    (write,) = actions_for_claim(going, lambda _: None)
    assert write.patch.body == {"metadata": {"uid": "c-1", "resourceVersion": "7", "finalizers": None}}


def test_a_release_names_the_version_it_was_decided_on():
    held = typed_claim(allocation=allocation(), reservedFor=[USER], finalizers=[FINALIZER])
    (write,) = actions_for_claim(held, lambda _: None)
    assert isinstance(write, Write)
    assert write.patch.body == {
        "metadata": {"uid": "c-1", "resourceVersion": "7"},
        "status": {"reservedFor": None, "allocation": None, "devices": None},
    }


def test_a_recorded_name_is_forced_by_the_controllers_own_manager():
    (record,) = actions_for_pod(typed_pod(), [typed_claim()])
    assert isinstance(record, RecordNames)
    assert (record.patch.manager, record.patch.force) == ("ResourceClaimController", True)
