"""Quotas and reservations on the embedded store: no reservation exceeds a quota, and refused pods are requeued."""

import asyncio
import logging

from allocator.service.knowledge import Knowledge
from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import Unavailable
from cluster.informers import allotment
from cluster.patch import Merge
from tests.allocator.service.sidecar import claim, fleet, loaded, node, pod, quota_of, running, until


def status_of_quota(sidecar):
    """Return the limits and the usage in the status of the quota `team`."""
    status = sidecar.service.knowledge.quotas.objects["default", "team"].status
    return tuple({key: str(amount) for key, amount in amounts.items()} for amounts in (status.hard, status.used))


async def test_a_pod_over_quota_is_refused_and_requeued_later():
    cluster = loaded(*fleet(1, 4), quota_of(gpu__devices=3), claim("a", 2), claim("b", 2), pod("p", "a"), pod("q", "b"))
    async with running(cluster) as sidecar:
        assert (await sidecar.reserve("p", "n0"))[0] == 200
        status, refusal = await sidecar.reserve("q", "n0")
        assert status == 409
        exceeded = {"line": "default/team: gpu/devices", "requested": "2", "hard": "3", "used": "2", "remaining": "1"}
        assert refusal["exceeded"] == exceeded
        assert refusal["error"].endswith("2 requested, 2 of 3 used; at most 1 can be requested")
        seq = sidecar.service.requeue_events.seq
        await sidecar.plugin("unreserve", {"token": sidecar.reservation("p").token})
        assert "default/q" in (await sidecar.service.requeue_events.after(seq, 0)).pods
        assert (await sidecar.reserve("q", "n0"))[0] == 200


async def test_a_raised_quota_requeues_refused_pods():
    cluster = loaded(*fleet(1, 4), quota_of(gpu__devices=1), claim("a", 2), pod("p", "a"))
    async with running(cluster) as sidecar:
        assert (await sidecar.reserve("p", "n0"))[0] == 409
        seq = sidecar.service.requeue_events.seq
        await cluster.patch(resources.DEVICE_QUOTAS, "team", Merge({"spec": {"hard": {"gpu/devices": 2}}}), "default")
        await until(lambda: sidecar.service.requeue_events.seq > seq)
        assert (await sidecar.reserve("p", "n0"))[0] == 200


async def test_quota_usage_is_reported_and_written_by_the_leader():
    cluster = loaded(*fleet(1, 4), quota_of(gpu__devices=3), claim("a", 2), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster) as sidecar:
        await sidecar.place("p")
        await sidecar.reserve("q", "n0")
        assert (await sidecar.ask("/api/v1/quota"))[1] == {
            "quotas": [{"quota": "default/team", "key": "gpu/devices", "hard": "3", "used": "2", "assumed": "1"}]
        }
        await until(lambda: status_of_quota(sidecar) == ({"gpu/devices": "3"}, {"gpu/devices": "2"}))
        stored_quota = await cluster.get(resources.DEVICE_QUOTAS.raw, "team", "default")
        await sidecar.service.quotas.keep(
            sidecar.service.knowledge.stock, sidecar.service.ledger.unwritten(), sidecar.service.lead
        )
        assert await cluster.get(resources.DEVICE_QUOTAS.raw, "team", "default") == stored_quota, (
            "the status was written although nothing had changed"
        )


async def test_unreadable_quotas_are_logged_once_and_readable_limits_apply(caplog):
    broken = quota_of("broken", gpu__devices=[1])
    half_readable = quota_of("odd", gpu=1, gpu__devices=1)
    cluster = loaded(*fleet(1, 4), broken, half_readable, claim("a", 2), pod("p", "a"), node("n9"))
    with caplog.at_level(logging.ERROR, "drawbridge.quarantine"):
        async with running(cluster) as sidecar:
            assert (await sidecar.reserve("p", "n0"))[1]["exceeded"]["line"] == "default/odd: gpu/devices"
            quarantined = {key[2]: problem for key, problem in sidecar.service.knowledge.quarantine.objects.items()}
            assert sorted(quarantined) == ["broken", "odd"]
            assert "these keys limit nothing: 'gpu'" in quarantined["odd"]
    assert sorted(record.args[0].split("/")[-1] for record in caplog.records) == ["broken", "odd"]


class StoreWithLateQuotas(Embedded):
    """A store that refuses reads of quotas, except lists with limit 1, until a test sets `may_read_quotas`."""

    def __init__(self):
        super().__init__()
        self.may_read_quotas = False

    async def list(self, resource, namespace=None, **options):
        if options.get("limit") != 1:
            self.refuse(resource)
        return await super().list(resource, namespace, **options)

    def watch(self, resource, namespace=None, **options):
        self.refuse(resource)
        return super().watch(resource, namespace, **options)

    def refuse(self, resource):
        if resource.kind == "DeviceQuota" and not self.may_read_quotas:
            raise Unavailable("not now")


async def test_the_allocator_waits_until_quotas_are_read():
    """Without quotas the allocator would admit every pod."""
    cluster = loaded(*fleet(1, 4), quota_of(gpu__devices=1), cluster=StoreWithLateQuotas())
    knowledge = Knowledge(cluster, decides=True)
    reading = asyncio.create_task(knowledge.run())
    try:
        await until(lambda: knowledge.what_is_unread().startswith("still reading devicequotas"))
        cluster.may_read_quotas = True
        await until(lambda: not knowledge.what_is_unread())
        assert ("default", "team") in knowledge.quotas.objects
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def test_pods_are_refused_while_quotas_exceed_their_namespaces_memory_share(monkeypatch):
    cluster = loaded(*fleet(1, 4), quota_of(gpu__devices=1), *map(claim, "ab"), pod("p", "a"), pod("q", "b"))
    cluster.load([quota_of("more", gpu__devices=4) | {"metadata": {"name": "more", "namespace": "other"}}])
    async with running(cluster) as sidecar:
        quotas = sidecar.service.knowledge.quotas
        monkeypatch.setattr(allotment, "FLOOR", 0)
        monkeypatch.setattr(quotas, "_room", allotment.Allotment(1))
        larger_quota = Merge({"spec": {"hard": {"gpu/devices": 2}}})
        await cluster.patch(resources.DEVICE_QUOTAS, "team", larger_quota, "default")
        await until(lambda: ("default", "team") not in quotas.objects)
        status, refusal = await sidecar.reserve("p", "n0")
        assert (status, "has DeviceQuotas beyond its share" in refusal["error"]) == (409, True)
        monkeypatch.setattr(quotas, "_room", allotment.Allotment(1 << 20))
        await cluster.patch(resources.DEVICE_QUOTAS, "team", Merge({"spec": {"hard": {"gpu/devices": 1}}}), "default")
        await until(lambda: ("default", "team") in quotas.objects)
        assert [(await sidecar.reserve(name, "n0"))[0] for name in "pq"] == [200, 409]
