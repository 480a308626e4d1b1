"""Preemption on the embedded store: which pods are evicted, and what is reported."""

import pytest
from msgspec.structs import replace

from allocator.reservations import ReservationState
from allocator.service.preemption.evictions import NO_ROOM
from cluster import resources
from cluster.errors import Forbidden
from tests.allocator.service.preemptors import (
    StoreWithDeletionHooks,
    existing_pods,
    full_node_and_preemptor,
    important_pod,
    nominate,
    pod_exists,
    postfilter,
    start_pod,
)
from tests.allocator.service.sidecar import (
    claim,
    fleet,
    loaded,
    pod,
    pods_with_claims,
    quota_of,
    running,
    until,
)
from tests.objects import allocated, result


async def test_the_lowest_priority_pod_is_evicted_and_the_preemptor_fits():
    pods = [pod("low", "low", priority=1), pod("mid", "mid", priority=2), important_pod("urgent", "urgent")]
    cluster = loaded(*fleet(2, 1), *map(claim, ("low", "mid", "urgent")), *pods)
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "mid", "n0")
        await start_pod(sidecar, "low", "n1")
        status, answer = await postfilter(sidecar, "urgent", "n0", "n1")
        assert (status, answer["nominatedNode"]) == (200, "n1")
        assert answer["victims"] == [{"namespace": "default", "name": "low", "uid": "pod-low"}]
        assert await existing_pods(sidecar, "low", "mid") == ["mid"]
        await until(lambda: sidecar.service.pods.find("pod-low") is None)
        second_answer = (await postfilter(sidecar, "urgent", "n0", "n1"))[1]
        assert (second_answer["nominatedNode"], second_answer["victims"]) == ("n1", []), (
            "a second call did not wait for the devices of the first victim"
        )
        await sidecar.free_claim("low")
        assert (await sidecar.place("urgent"))[0] == 200
        assert await sidecar.allocated_devices("urgent") == ["n1/gpu-0"]
        events = (await cluster.list(resources.EVENTS, "default")).items
        assert [event.message for event in events] == ["preempted by pod default/urgent, which has a higher priority"]


async def test_a_pod_with_an_extended_resource_claim_is_a_victim():
    """kube-scheduler created the claim; only the pod's status names the claim."""
    claim_status = {"resourceClaimName": "made", "requestMappings": []}
    status = {"phase": "Running", "extendedResourceClaimStatus": claim_status}
    low = pod("low", priority=1, nodeName="n0", schedulerName="default-scheduler", status=status)
    low_claim = claim("made", status=allocated(result("gpu-0", pool="n0"), pods=["low"]))
    cluster = loaded(*fleet(1, 1), low_claim, low, claim("urgent"), important_pod("urgent", "urgent"))
    async with running(cluster) as sidecar:
        answer = (await postfilter(sidecar, "urgent", "n0"))[1]
        assert (answer["nominatedNode"], [victim["name"] for victim in answer["victims"]]) == ("n0", ["low"])
        assert not await pod_exists(sidecar, "low")


async def test_no_other_pod_is_evicted_while_a_victim_terminates():
    slow_pod = pod("slow", "slow", priority=1, finalizers=["example.com/slow"])
    claims = map(claim, ("slow", "other", "urgent"))
    cluster = loaded(
        *fleet(2, 1), *claims, slow_pod, pod("other", "other", priority=1), important_pod("urgent", "urgent")
    )
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "slow", "n0")
        await start_pod(sidecar, "other", "n1")
        assert (await postfilter(sidecar, "urgent", "n0"))[1]["nominatedNode"] == "n0"
        marked_victim = await cluster.get(resources.PODS, "slow", "default")
        conditions = [
            (condition.type, condition.status, condition.reason) for condition in marked_victim.status.conditions
        ]
        assert ("DisruptionTarget", "True", "PreemptionByScheduler") in conditions
        await nominate(sidecar, "n0")
        await sidecar.until_pod("slow", lambda pod: pod.metadata.deletion_timestamp)
        answer = (await postfilter(sidecar, "urgent", "n0", "n1"))[1]
        assert answer == {"nominatedNode": "n0", "victims": [], "message": "waits for pod default/slow to end"}
        assert await pod_exists(sidecar, "other")


@pytest.mark.parametrize(
    ("preemptor", "quotas", "words"),
    [
        (important_pod("urgent", "urgent", preemptionPolicy="Never"), [], "preemptionPolicy is Never"),
        (pod("urgent", "urgent", priority=1), [], NO_ROOM),
        (important_pod("urgent", "big"), [], NO_ROOM),
        (important_pod("urgent", "urgent"), [quota_of(gpu__devices=0)], NO_ROOM),
    ],
    ids=[
        "the preemptor's policy is Never",
        "no pod has a lower priority",
        "the preemptor would not fit anyway",
        "a quota would still refuse the preemptor",
    ],
)
async def test_no_pod_is_evicted_if_preemption_is_forbidden_or_useless(preemptor, quotas, words):
    cluster = loaded(*fleet(1, 1), claim("urgent"), claim("big", 2), *pods_with_claims("low", priority=1), preemptor)
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "low", "n0")
    cluster.load(quotas)
    async with running(cluster) as sidecar:
        answer = (await postfilter(sidecar, "urgent", "n0"))[1]
        assert (answer["nominatedNode"], answer["victims"]) == ("", [])
        assert words in answer["message"]
        assert await pod_exists(sidecar, "low")


async def test_a_forbidden_eviction_is_reported():
    cluster = loaded(*full_node_and_preemptor("low", requested=1))

    async def refuse(*_, **__):
        raise Forbidden("pods is forbidden")

    async with running(cluster) as sidecar:
        await start_pod(sidecar, "low", "n0")
        cluster.delete = refuse
        status, answer = await postfilter(sidecar, "urgent", "n0")
        assert (status, answer["error"]) == (503, "pod default/low could not be evicted: pods is forbidden")


async def test_a_pod_with_a_released_reservation_is_no_victim():
    cluster = loaded(*fleet(1, 1), *pods_with_claims("low", priority=1), important_pod("urgent"))
    async with running(cluster) as sidecar:
        await sidecar.reserve("low", "n0")
        urgent = sidecar.service.knowledge.pods.objects["default", "urgent"]
        assert sidecar.service.evictions.scene([(urgent, "")]).reserved == {"pod-low": "n0"}
        reservations = sidecar.service.ledger.state.reservations
        reservations["pod-low"] = replace(reservations["pod-low"], state=ReservationState.RELEASED)
        assert sidecar.service.evictions.scene([(urgent, "")]).reserved == {}


async def test_pods_of_other_namespaces_are_not_named_in_an_event():
    """The victim's event does not name the preemptor, nor does the preemptor's message name the victim. The answer's list is for administrators."""
    foreign_pod = pod("secret", "secret", priority=1, namespace="theirs")
    foreign_claim = claim("secret", namespace="theirs")
    cluster = loaded(*fleet(1, 1), foreign_claim, foreign_pod, *pods_with_claims("urgent", priority=100))
    async with running(cluster) as sidecar:
        _, answer = await sidecar.plugin("prefilter", {"pod": foreign_pod})
        assert (await sidecar.plugin("reserve", {"token": answer["token"], "node": "n0"}))[0] == 200
        await sidecar.plugin("commit", {"reservation": answer["token"]})
        await cluster.bind("secret", "theirs", "n0")
        await until(lambda: sidecar.service.pods.find("pod-secret").spec.node_name)
        answer = (await postfilter(sidecar, "urgent", "n0"))[1]
        assert answer["message"] == "evicted a pod of another namespace"
        assert answer["victims"] == [{"namespace": "theirs", "name": "secret", "uid": "pod-secret"}]
        [event] = (await cluster.list(resources.EVENTS, "theirs")).items
        assert event.message == "preempted by a pod of another namespace, which has a higher priority"


def counts_by_outcome(sidecar, counter):
    """Return the values of a metrics counter by outcome."""
    series = sidecar.service.metrics.registry.collect()
    return {sample.labels["outcome"]: sample.value for family in series if family.name == counter for sample in family.samples if sample.name.endswith("_total")}  # fmt: skip


async def test_evictions_and_postfilter_calls_are_counted_by_outcome():
    """First the API server forbids the eviction. Then the pods end before they are evicted. The last preemptor has no possible victims."""
    cluster = StoreWithDeletionHooks(
        *full_node_and_preemptor("a", "b", requested=1), claim("vain", 3), important_pod("vain", "vain")
    )
    async with running(cluster) as sidecar:
        for name in "ab":
            await start_pod(sidecar, name, "n0")

        async def end_pods():
            cluster.before_deletion.clear()
            for name in "ab":
                await cluster.delete(resources.PODS, name, "default")

        async def refuse():
            raise Forbidden("pods is forbidden")

        cluster.before_deletion = {"a": refuse, "b": refuse}
        assert (await postfilter(sidecar, "urgent", "n0"))[0] == 503
        cluster.before_deletion = {"a": end_pods, "b": end_pods}
        status, answer = await postfilter(sidecar, "urgent", "n0")
        assert (status, answer["message"]) == (200, "no pod is evicted: devices are being freed already")
        assert (await postfilter(sidecar, "vain", "n0"))[1]["nominatedNode"] == ""
        assert counts_by_outcome(sidecar, "drawbridge_evictions") == {"failed": 1, "gone": 1}
        assert counts_by_outcome(sidecar, "drawbridge_preemptions") == {"waits": 1, "nobody": 1}
