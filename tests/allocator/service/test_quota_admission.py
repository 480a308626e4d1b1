"""The quota listener, on the embedded store: which pods and claims it admits, and with which messages it refuses objects."""

import asyncio
import math

import pytest

from tests.allocator.service.reviews import QUOTA_LISTENER, pending_devices, pod_using, post, refusal, template_of
from tests.allocator.service.sidecar import claim, fleet, loaded, quota_of, running, until
from tests.limits import PATIENCE


async def test_a_pod_over_quota_is_refused_with_usage_and_maximum():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=3), template_of("two", 2), template_of("one"))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        assert await refusal(sidecar, pod_using("p", "two")) == ""
        words = "quota default/team: gpu/devices: 2 requested, 2 of 3 used, including 2 by pods that wait for devices; at most 1 can be requested"
        assert await refusal(sidecar, pod_using("q", "two")) == words
        assert await refusal(sidecar, pod_using("q", "one")) == ""
        assert (await refusal(sidecar, pod_using("r", "one"))).endswith("at most 0 can be requested")


async def test_a_dry_run_is_answered_but_not_counted():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("two", 2))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        assert await refusal(sidecar, pod_using("p", "two"), dry_run=True) == ""
        assert pending_devices(sidecar) == 0
        assert await refusal(sidecar, pod_using("p", "two")) == ""
        assert "2 of 2 used" in await refusal(sidecar, pod_using("q", "two"), dry_run=True)


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[" * 5000, b'{"kind": "AdmissionReview"}', b"\xff\xfe"],
    ids=["no bytes", "an empty object", "deep nesting", "a review without a request", "invalid UTF-8"],
)
async def test_an_invalid_admission_review_is_a_bad_request(body):
    async with running(loaded(*fleet(1, 1)), **QUOTA_LISTENER) as sidecar:
        status, answer = await post(sidecar.listening.quota, body)
        assert (status, bool(answer["error"])) == (400, True)


@pytest.mark.parametrize(
    "obj",
    [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default"}, "spec": {"resourceClaims": 3}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default"}, "spec": None},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default"}},
    ],
    ids=["a pod whose claims are a number", "a pod without a spec", "a Secret"],
)
async def test_an_object_that_cannot_be_counted_is_admitted(obj):
    async with running(loaded(*fleet(1, 1), quota_of(gpu__devices=0)), **QUOTA_LISTENER) as sidecar:
        assert await refusal(sidecar, obj) == ""


async def test_a_refusal_names_resourcequotas_that_count_the_same_devices():
    key = "gpu.deviceclass.resource.k8s.io/devices"
    core = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "core", "namespace": "default"},
        "spec": {"hard": {key: 9}},
    }
    words = f"ResourceQuotas count the same devices: core: {key} ? of 9 used"
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=1), core)
    async with running(cluster, **QUOTA_LISTENER) as sidecar, asyncio.timeout(PATIENCE):
        while words not in await refusal(sidecar, claim("much", 2)):
            pass  # the ResourceQuota is not read yet; each review lets the loop continue
        assert await refusal(sidecar, claim("little")) == ""


def fleet_with_memory(nodes, per_node):
    """Return a fleet whose devices have memory, and a template whose claims request little memory."""
    template = template_of("little")
    [request] = template["spec"]["spec"]["devices"]["requests"]
    request["exactly"]["capacity"] = {"requests": {"memory": "1Ki"}}
    objects = fleet(nodes, per_node)
    for obj in objects:
        if obj["kind"] == "ResourceSlice":
            for device in obj["spec"]["devices"]:
                device["capacity"] = {"memory": {"value": "4Gi"}}
    return [*objects, template]


async def test_a_long_evaluation_yields_to_other_reviews():
    """A claim counts with the memory of a whole device, not with its own amounts, so its review needs the complete evaluation."""
    cluster = loaded(*fleet_with_memory(100, 8), quota_of(gpu__memory="1Gi"))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        admission = sidecar.service._admission
        admission.steps, admission.patience = 500, math.inf
        turns, may_continue = [], asyncio.Event()

        async def wait(namespace):
            turns.append(namespace)
            await may_continue.wait()

        admission._turns.wait = wait
        long_review = asyncio.create_task(refusal(sidecar, pod_using("p", "little")))
        await until(lambda: turns)
        assert await refusal(sidecar, pod_using("q")) == ""
        assert not long_review.done()
        may_continue.set()
        assert "4Gi requested, 0 of 1Gi used" in await long_review
        assert set(turns) == {"default"}
        assert len(turns) >= 40, "a turn of 500 steps evaluates at most 20 of the 800 devices"


async def test_a_review_without_time_counts_the_claims_own_amounts():
    cluster = loaded(*fleet_with_memory(100, 8), quota_of(gpu__memory="1Gi"))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        admission = sidecar.service._admission
        admission.steps, admission.patience = 500, 0.0
        assert await refusal(sidecar, pod_using("p", "little")) == ""
        admission.patience = math.inf
        assert "4Gi requested, 4Gi of 1Gi used, including 4Gi by pods that wait" in await refusal(
            sidecar, pod_using("q", "little")
        )


async def test_two_conflicting_quotas_both_apply_and_are_both_named():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=5), quota_of("narrow", gpu__devices=1, **{"*__devices": 9}))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        message = await refusal(sidecar, claim("both", 6))
        assert {line for line in message.split("; ") if line.startswith("quota")} == {
            "quota default/team: gpu/devices: 6 requested, 0 of 5 used",
            "quota default/narrow: gpu/devices: 6 requested, 0 of 1 used",
        }
        assert (await refusal(sidecar, claim("one", 2))).startswith(
            "quota default/narrow: gpu/devices: 2 requested, 0 of 1 used"
        )
        assert await refusal(sidecar, claim("none")) == ""
