"""Quotas at the reservation, over the embedded store: no pod gets past a line, and refused pods are tried again."""

import asyncio
import logging

from allocator.service.knowledge import Knowledge
from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import Unavailable
from cluster.patch import Merge
from runtime.informers import allotment
from tests.allocator.service.sidecar import claim, fleet, loaded, node, pod, running, until
from tests.objects import device_quota


def quota_of(name="team", **hard):
    """A DeviceQuota; `gpu__devices` stands for `gpu/devices`."""
    return device_quota(name, {key.replace("__", "/"): amount for key, amount in hard.items()})


async def reserve(one, name, where="n0"):
    _, found = await one.plugin("prefilter", {"pod": await one.pod(name)})
    return await one.plugin("reserve", {"token": found["token"], "node": where})


def status_of_quota(one):
    status = one.bridge.knowledge.quotas.objects["default", "team"].status
    return tuple({key: str(amount) for key, amount in amounts.items()} for amounts in (status.hard, status.used))


async def test_a_reservation_beyond_a_line_is_refused_with_what_would_pass_and_comes_back_when_there_is_room():
    cluster = loaded(*fleet(1, 4), quota_of(gpu__devices=3), claim("a", 2), claim("b", 2), pod("p", "a"), pod("q", "b"))
    async with running(cluster) as one:
        assert (await reserve(one, "p"))[0] == 200
        status, refused = await reserve(one, "q")
        assert status == 409
        assert refused["exceeded"] == {
            "line": "default/team: gpu/devices",
            "asked": "2",
            "hard": "3",
            "used": "2",
            "largest": "1",
        }
        assert refused["error"].endswith("2 asked for, 2 of 3 used; the most that would pass is 1")
        seq = one.bridge.requeue_events.seq
        await one.plugin("unreserve", {"token": one.bridge.ledger.state.reservations["pod-p"].token})
        assert "default/q" in (await one.bridge.requeue_events.after(seq, 0)).pods
        assert (await reserve(one, "q"))[0] == 200


async def test_a_wider_line_wakes_pods_that_were_turned_back():
    cluster = loaded(*fleet(1, 4), quota_of(gpu__devices=1), claim("a", 2), pod("p", "a"))
    async with running(cluster) as one:
        assert (await reserve(one, "p"))[0] == 409
        seq = one.bridge.requeue_events.seq
        await cluster.patch(resources.DEVICE_QUOTAS, "team", Merge({"spec": {"hard": {"gpu/devices": 2}}}), "default")
        await until(lambda: one.bridge.requeue_events.seq > seq)
        assert (await reserve(one, "p"))[0] == 200


async def test_two_hundred_pods_at_once_never_overshoot():
    names = [f"p{at}" for at in range(200)]
    things = [thing for name in names for thing in (claim(name), pod(name, name))]
    nodes = 50
    cluster = loaded(*fleet(nodes, 4), quota_of(gpu__devices=37), *things)
    async with running(cluster) as one:
        asked = [one.place(name, f"n{at % nodes}") for at, name in enumerate(names)]
        done = await asyncio.gather(*asked)
        assert sorted({status for status, _ in done}) == [200, 409]
        assert sum(status == 200 for status, _ in done) == 37
        assert len([name for name in names if await one.held(name)]) == 37


async def test_quota_usage_is_reported_and_written_by_the_leader():
    cluster = loaded(*fleet(1, 4), quota_of(gpu__devices=3), claim("a", 2), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster) as one:
        await one.place("p")
        await reserve(one, "q")
        assert (await one.ask("/api/v1/quota"))[1] == {
            "quotas": [{"quota": "default/team", "key": "gpu/devices", "hard": "3", "used": "2", "assumed": "1"}]
        }
        await until(lambda: status_of_quota(one) == ({"gpu/devices": "3"}, {"gpu/devices": "2"}))
        before = await cluster.get(resources.DEVICE_QUOTAS.raw, "team", "default")
        await one.bridge.quotas.keep(one.bridge.knowledge.stock, one.bridge.ledger.unwritten(), one.bridge.lead)
        assert await cluster.get(resources.DEVICE_QUOTAS.raw, "team", "default") == before, (
            "written though nothing changed"
        )


async def test_a_quota_that_cannot_be_read_is_named_once_and_the_others_hold(caplog):
    broken = quota_of("broken", gpu__devices=[1])
    odd = quota_of("odd", gpu=1, gpu__devices=1)
    cluster = loaded(*fleet(1, 4), broken, odd, claim("a", 2), pod("p", "a"), node("n9"))
    with caplog.at_level(logging.ERROR, "drawbridge.quarantine"):
        async with running(cluster) as one:
            assert (await reserve(one, "p"))[1]["exceeded"]["line"] == "default/odd: gpu/devices"
            held = {what[2]: each.problem for what, each in one.bridge.knowledge.quarantine.objects.items()}
            assert sorted(held) == ["broken", "odd"]
            assert "limits nothing by 'gpu'" in held["odd"]
    assert sorted(record.args[0].split("/")[-1] for record in caplog.records) == ["broken", "odd"]


async def test_a_simulation_says_which_line_a_pod_would_cross_and_nothing_of_it_is_held():
    cluster = loaded(*fleet(1, 4), quota_of(gpu__devices=3), claim("a", 2), claim("b", 2), pod("p", "a"))
    async with running(cluster) as one:
        assert (await reserve(one, "p"))[0] == 200
        _, said = await one.ask("/api/v1/simulate-schedule", pod("q", "b"))
        assert (said["verdict"], said["nodes"]) == ("exceeded", ["n0"])
        text = "quota default/team: gpu/devices: 2 asked for, 2 of 3 used; the most that would pass is 1"
        assert said["exceeded"] == {"line": "default/team: gpu/devices", "asked": "2", "hard": "3", "used": "2", "largest": "1", "text": text}  # fmt: skip
        await one.plugin("unreserve", {"token": one.bridge.ledger.state.reservations["pod-p"].token})
        _, said = await one.ask("/api/v1/simulate-schedule", pod("q", "b"))
        assert (said["verdict"], said["exceeded"]) == ("fits", None)


class Late(Embedded):
    """A store that says that there are quotas, and not which, until it may."""

    def __init__(self):
        super().__init__()
        self.may = False

    async def list(self, resource, namespace=None, **more):
        if more.get("limit") != 1:
            self.refuse(resource)
        return await super().list(resource, namespace, **more)

    def watch(self, resource, namespace=None, **more):
        self.refuse(resource)
        return super().watch(resource, namespace, **more)

    def refuse(self, resource):
        if resource.kind == "DeviceQuota" and not self.may:
            raise Unavailable("not now")


async def test_nothing_is_decided_before_quotas_were_read():
    """However long that takes: a process without them would admit every pod."""
    cluster = Late()
    cluster.load([*fleet(1, 4), quota_of(gpu__devices=1)])
    known = Knowledge(cluster, decides=True)
    following = asyncio.create_task(known.run())
    try:
        await until(lambda: known.what_is_unread().startswith("still reading devicequotas"))
        cluster.may = True
        await until(lambda: not known.what_is_unread())
        assert ("default", "team") in known.quotas.objects
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_a_quota_beyond_its_namespaces_share_of_memory_is_named_and_opens_nothing(monkeypatch):
    cluster = loaded(*fleet(1, 4), quota_of(gpu__devices=1), *map(claim, "ab"), pod("p", "a"), pod("q", "b"))
    cluster.load([quota_of("more", gpu__devices=4) | {"metadata": {"name": "more", "namespace": "other"}}])
    async with running(cluster) as one:
        quotas = one.bridge.knowledge.quotas
        monkeypatch.setattr(allotment, "FLOOR", 0)
        monkeypatch.setattr(quotas, "_room", allotment.Allotment(1))
        wider = Merge({"spec": {"hard": {"gpu/devices": 2}}})
        await cluster.patch(resources.DEVICE_QUOTAS, "team", wider, "default")
        await until(lambda: ("default", "team") not in quotas.objects)
        status, refused = await reserve(one, "p")
        assert (status, "has DeviceQuotas beyond its share" in refused["error"]) == (409, True)
        monkeypatch.setattr(quotas, "_room", allotment.Allotment(1 << 20))
        await cluster.patch(resources.DEVICE_QUOTAS, "team", Merge({"spec": {"hard": {"gpu/devices": 1}}}), "default")
        await until(lambda: ("default", "team") in quotas.objects)
        assert [(await reserve(one, name))[0] for name in "pq"] == [200, 409]
