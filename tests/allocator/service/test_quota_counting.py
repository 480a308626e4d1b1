"""The quota listener, on the embedded store: from admission to reservation, each pod and each claim counts exactly once."""

import uuid

import pytest

from cluster import resources
from cluster.patch import Merge
from tests.allocator.service.reviews import QUOTA_LISTENER, pending_devices, pod_using, refusal, template_of
from tests.allocator.service.sidecar import (
    DRIVER,
    claim,
    device_class,
    fleet,
    loaded,
    node,
    pod,
    quota_of,
    running,
    until,
)
from webhook.claims import template as claim_templates


async def test_a_pod_reviewed_more_than_once_counts_once():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("two", 2))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        for _ in range(3):
            assert await refusal(sidecar, pod_using("p", "two")) == ""
        assert pending_devices(sidecar) == 2


async def test_a_pod_counts_once_from_admission_to_reservation():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=3), template_of("two", 2))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        assert await refusal(sidecar, pod_using("p", "two")) == ""
        cluster.load([pod_using("p", "two")])
        await until(lambda: sidecar.service.knowledge.pod("default", "p") is not None)
        assert pending_devices(sidecar) == 2
        stored = await sidecar.pod("p")
        created = claim("made", 2)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": stored["metadata"]["uid"], "controller": True}
        created["metadata"] |= {
            "ownerReferences": [owner],
            "annotations": {"resource.kubernetes.io/pod-claim-name": "e0"},
        }
        cluster.load([created])
        await until(lambda: "default/made" in sidecar.service.knowledge.stock.claims)
        assert pending_devices(sidecar) == 2
        status = {"status": {"resourceClaimStatuses": [{"name": "e0", "resourceClaimName": "made"}]}}
        await cluster.patch(resources.PODS, "p", Merge(status), "default", subresource="status")
        await until(lambda: sidecar.service.knowledge.pod("default", "p").status.resource_claim_statuses)
        assert "2 of 3 used, including 2 by" in await refusal(sidecar, pod_using("q", "two"))
        _, answer = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")})
        assert (await sidecar.plugin("reserve", {"token": answer["token"], "node": "n0"}))[0] == 200
        assert pending_devices(sidecar) == 0
        assert "2 of 3 used; " in await refusal(sidecar, pod_using("q", "two")), (
            "the reserved devices were counted twice"
        )


async def test_an_admitted_claim_counts_until_it_is_deleted():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=3))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        assert await refusal(sidecar, claim("a", 2)) == ""
        assert "2 of 3 used" in await refusal(sidecar, claim("b", 2))
        cluster.load([claim("a", 2)])
        await until(lambda: "default/a" in sidecar.service.knowledge.stock.claims)
        assert "2 of 3 used" in await refusal(sidecar, claim("b", 2))
        await cluster.delete(resources.RESOURCE_CLAIMS, "a", "default")
        await until(lambda: "default/a" not in sidecar.service.knowledge.stock.claims)
        assert await refusal(sidecar, claim("b", 2)) == ""


async def test_an_admitted_pod_that_is_never_stored_expires():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("two", 2))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        assert await refusal(sidecar, pod_using("p", "two")) == ""
        assert "2 of 2 used" in await refusal(sidecar, pod_using("q", "two"))
        sidecar.service._admission.pending.expire(float("inf"))
        assert await refusal(sidecar, pod_using("q", "two")) == ""


async def test_an_annotated_template_counts_only_if_its_hash_matches():
    spec = template_of("x", 2)["spec"]
    name = claim_templates.name_of(spec)
    annotation = claim_templates.sign(
        {name: spec, "drawbridge-" + "0" * 32: template_of("x", 1)["spec"]}, b"k", claim_templates.SignedPod("default")
    )
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=1))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        annotated_pod = pod_using("p", name)
        annotated_pod["metadata"]["annotations"] = {"drawbridge.dev/templates": annotation}
        assert "2 requested" in await refusal(sidecar, annotated_pod)
        forged_pod = pod_using("p", "drawbridge-" + "0" * 32)
        forged_pod["metadata"]["annotations"] = {"drawbridge.dev/templates": annotation}
        assert await refusal(sidecar, forged_pod) == "", "a template whose name is not the hash of its spec was counted"


async def test_a_scoped_quota_counts_only_pods_of_its_priority_class():
    scoped_quota = quota_of(gpu__devices=1)
    scoped_quota["spec"]["scopeSelector"] = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}  # fmt: skip
    cluster = loaded(*fleet(1, 8), scoped_quota, template_of("two", 2))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        assert await refusal(sidecar, pod_using("p", "two")) == ""
        assert "2 requested, 0 of 1 used" in await refusal(sidecar, pod_using("q", "two", priorityClassName="high"))


async def test_a_schedulers_claim_counts_after_its_allocation():
    """The pod has no claim yet when it is admitted."""
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=1))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        requesting_pod = pod_using(
            "p", containers=[{"name": "main", "resources": {"limits": {"example.com/gpu": "2"}}}]
        )
        assert await refusal(sidecar, requesting_pod) == ""
        scheduler_claim = claim("made", 2)
        scheduler_claim["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
        results = [{"request": "r", "driver": DRIVER, "pool": "n0", "device": f"gpu-{i}"} for i in range(2)]
        cluster.load([scheduler_claim | {"status": {"allocation": {"devices": {"results": results}}}}])
        await until(lambda: "default/made" in sidecar.service.knowledge.stock.claims)
        assert "1 requested, 2 of 1 used; at most 0 can be requested" in await refusal(sidecar, claim("more"))


async def test_the_requests_of_a_pods_templates_are_added():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=3), template_of("a"), template_of("b"), template_of("c", 2))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        assert "4 requested" in await refusal(sidecar, pod_using("p", "a", "b", "c"))
        assert "4 requested" in await refusal(sidecar, pod_using("p", "a", "a", "a", "b"))
        assert await refusal(sidecar, pod_using("p", "a", "b", "a")) == ""
        assert "3 of 3 used, including 3 by pods that wait" in await refusal(sidecar, pod_using("renamed", "a"))


def pod_requesting(name, count=1, key="example.com/gpu", **spec):
    """Return a pod whose container requests an extended resource."""
    return pod(name, requests={key: str(count)}, **spec)


@pytest.mark.parametrize("key", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"])
async def test_an_extended_resource_counts_once_for_pod_and_claim(key):
    class_ = device_class(extendedResourceName="example.com/gpu")
    nodes_and_slices = [obj for obj in fleet(1, 8) if obj["kind"] != "DeviceClass"]
    cluster = loaded(*nodes_and_slices, class_, quota_of(gpu__devices=1))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        assert await refusal(sidecar, pod_requesting("p", key=key)) == ""
        assert "1 of 1 used, including 1 by pods that wait" in await refusal(sidecar, pod_requesting("q", key=key))
        cluster.load([pod_requesting("p", key=key)])
        await until(lambda: sidecar.service.knowledge.pod("default", "p") is not None)
        assert "1 of 1 used, including 1 by pods that wait" in await refusal(sidecar, pod_requesting("q", key=key))
        stored = await sidecar.pod("p")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": stored["metadata"]["uid"], "controller": True}
        scheduler_claim = claim("made", 1)
        scheduler_claim["metadata"] |= {
            "ownerReferences": [owner],
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        }
        cluster.load([scheduler_claim])
        await until(lambda: "default/made" in sidecar.service.knowledge.stock.claims)
        assert "1 of 1 used, including 1 by pods that wait" in await refusal(sidecar, pod_requesting("q", key=key)), (
            "the pod and its claim were both counted"
        )


async def test_resources_that_a_device_plugin_can_serve_are_not_counted():
    class_ = device_class(extendedResourceName="example.com/gpu")
    nodes_and_slices = [obj for obj in fleet(1, 8) if obj["kind"] != "DeviceClass"]
    cluster = loaded(
        *nodes_and_slices, node("old", allocatable={"example.com/gpu": "2"}), class_, quota_of(gpu__devices=1)
    )
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        assert await refusal(sidecar, pod_requesting("p", 2)) == ""
        assert "requested" in await refusal(sidecar, pod_requesting("q", 3))
        assert "requested" in await refusal(sidecar, pod_requesting("r", 2, nodeSelector={"device-plugin": "none"}))


def claim_created_for(owner_pod, name="made", **options):
    """Return the claim that kube-controller-manager creates for a pod's first template."""
    owner_reference = {"apiVersion": "v1", "kind": "Pod", "controller": True} | {key: owner_pod["metadata"][key] for key in ("name", "uid")}  # fmt: skip
    created = claim(name, **options)
    created["metadata"] |= {
        "uid": str(uuid.uuid4()),
        "ownerReferences": [owner_reference],
        "annotations": {"resource.kubernetes.io/pod-claim-name": "e0"},
    }
    return created


async def test_pods_older_than_their_template_do_not_exceed_the_quota():
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        pods = [pod_using(f"p{i}", "late") for i in range(5)]
        for waiting_pod in pods:
            assert await refusal(sidecar, waiting_pod) == ""
        cluster.load([*pods, template_of("late")])
        await until(lambda: pending_devices(sidecar) == 5)
        stored_pods = [await sidecar.pod(f"p{i}") for i in range(5)]
        refusals = [
            await refusal(sidecar, claim_created_for(owner, f"c{i}", count=1)) for i, owner in enumerate(stored_pods)
        ]
    assert refusals[:2] == ["", ""]
    assert all("1 requested, 2 of 2 used" in message for message in refusals[2:])


async def test_a_pod_with_an_unstored_claim_counts_once(monkeypatch):
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("t"))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        assert await refusal(sidecar, pod_using("p", "t")) == ""
        cluster.load([pod_using("p", "t")])
        await until(lambda: sidecar.service.knowledge.pod("default", "p") is not None)
        assert await refusal(sidecar, claim_created_for(await sidecar.pod("p"), count=1)) == ""
        assert pending_devices(sidecar) == 1
        admission = sidecar.service._admission
        later_time = admission._clock() + 60
        monkeypatch.setattr(admission, "_clock", lambda: later_time)
        assert await refusal(sidecar, pod_using("q", "t"), dry_run=True) == ""
        assert pending_devices(sidecar) == 1, "the pod whose claim was not stored was not counted"


async def test_a_claim_counts_for_its_pods_priority_class():
    scoped_quota = quota_of(gpu__devices=1)
    scoped_quota["spec"]["scopeSelector"] = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}  # fmt: skip
    cluster = loaded(
        *fleet(1, 8), scoped_quota, pod_using("low", "t"), pod_using("high", "t", priorityClassName="high")
    )
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        await until(lambda: sidecar.service.knowledge.pod("default", "high") is not None)
        low, high = [claim_created_for(await sidecar.pod(name), name, count=2) for name in ("low", "high")]
        assert await refusal(sidecar, low) == ""
        assert "2 requested, 0 of 1 used" in await refusal(sidecar, high)


async def test_claims_with_a_forged_owner_do_not_exceed_the_quota():
    """Anyone who may create claims may write the owner and the annotation that kube-controller-manager writes."""
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=2), template_of("t", 2))
    async with running(cluster, **QUOTA_LISTENER) as sidecar:
        assert await refusal(sidecar, pod_using("p", "t")) == ""
        cluster.load([pod_using("p", "t")])
        await until(lambda: sidecar.service.knowledge.pod("default", "p") is not None)
        stored = await sidecar.pod("p")
        nobody = {"metadata": {"name": "nobody", "uid": "no-such-pod"}}
        refusals = [await refusal(sidecar, claim_created_for(owner, f"c{i}", count=1)) for i, owner in enumerate((stored, stored, stored, nobody))]  # fmt: skip
        assert refusals[:2] == ["", ""]
        assert all("1 requested, 2 of 2 used" in message for message in refusals[2:])
