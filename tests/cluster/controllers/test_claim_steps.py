"""The claim controller's next step for a pod and a claim."""

import msgspec
import pytest

from cluster.controllers.claim_decisions import Create, Delete, Write, actions_for_claim, actions_for_pod
from dra.objects.claim import POD_CLAIM_NAME, ResourceClaim
from dra.objects.pod import Pod
from dra.wire import convert
from tests.cluster.objects import FINALIZER, allocation, claim, pod_with_claim


def typed_pod(**status):
    body = pod_with_claim("train", metadata={"uid": "p-1", "namespace": "ns"}) | {
        "status": {"phase": "Pending"} | status
    }
    return convert(body, Pod)


def typed_claim(name="train-gpu-abcde", *, is_owned=True, finalizers=(), **status):
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": "p-1", "controller": True}
    meta = {
        "uid": "c-1",
        "resourceVersion": "7",
        "finalizers": list(finalizers),
        "annotations": {POD_CLAIM_NAME: "gpu"},
    }
    return convert(
        claim(name, metadata=meta | ({"ownerReferences": [owner]} if is_owned else {}), status=status), ResourceClaim
    )


STATUS_WITH_CLAIM = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "train-gpu-abcde"}]}
CONSUMER = {"resource": "pods", "name": "train", "uid": "p-1"}


@pytest.mark.parametrize(
    ("pod", "claims", "expected"),
    [
        (typed_pod(), [], [Create("gpu", "t")]),
        (typed_pod(), [typed_claim(is_owned=False)], [Create("gpu", "t")]),
        (typed_pod(**STATUS_WITH_CLAIM), [typed_claim()], []),
        (typed_pod(**STATUS_WITH_CLAIM), [], [Create("gpu", "t")]),
        (typed_pod(resourceClaimStatuses=[{"name": "gpu"}]), [], []),
        (typed_pod(phase="Succeeded"), [], []),
    ],
    ids=[
        "new pod",
        "claim of another owner",
        "existing claim",
        "deleted claim",
        "status without a claim",
        "finished pod",
    ],
)
def test_a_claim_is_created_only_if_the_pod_needs_it(pod, claims, expected):
    assert actions_for_pod(pod, claims) == expected


@pytest.mark.parametrize(
    ("claim", "pod", "expected"),
    [
        (typed_claim(), typed_pod(), []),
        (typed_claim(allocation=allocation(), reservedFor=[CONSUMER]), typed_pod(), []),
        (typed_claim(), typed_pod(phase="Failed"), [Delete("train-gpu-abcde", "c-1")]),
        (typed_claim(), None, []),
    ],
    ids=["waiting pod", "claim in use", "finished pod", "no pod, so the garbage collector deletes"],
)
def test_a_claim_is_deleted_only_when_its_pod_has_finished(claim, pod, expected):
    assert actions_for_claim(claim, lambda _: pod) == expected


def test_a_claim_without_the_finalizer_keeps_its_allocation():
    (write,) = actions_for_claim(typed_claim(allocation=allocation(), reservedFor=[CONSUMER]), lambda _: None)
    assert write.patch.body["status"] == {"reservedFor": None}


def test_a_claim_keeps_its_finalizer_until_its_deletion():
    assert actions_for_claim(typed_claim(finalizers=[FINALIZER]), lambda _: typed_pod()) == []
    deleted_claim = typed_claim(finalizers=[FINALIZER])
    deleted_claim = msgspec.structs.replace(
        deleted_claim,
        metadata=msgspec.structs.replace(deleted_claim.metadata, deletion_timestamp="2026-01-01T00:00:00Z"),
    )
    (write,) = actions_for_claim(deleted_claim, lambda _: None)
    assert write.patch.body == {"metadata": {"uid": "c-1", "resourceVersion": "7", "finalizers": None}}


def test_a_released_claim_is_written_only_at_its_known_version():
    reserved_claim = typed_claim(allocation=allocation(), reservedFor=[CONSUMER], finalizers=[FINALIZER])
    (write,) = actions_for_claim(reserved_claim, lambda _: None)
    assert isinstance(write, Write)
    assert write.patch.body == {
        "metadata": {"uid": "c-1", "resourceVersion": "7"},
        "status": {"reservedFor": None, "allocation": None, "devices": None},
    }
