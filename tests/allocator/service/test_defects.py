"""Leaks, races and drift that were defects of Tensor Fusion's allocator (docs/node-by-node.md) and must not happen in ours."""

from functools import partial

from allocator.reports import DeviceState, device_reports
from allocator.reservations import Terms
from cluster import resources
from cluster.patch import Merge
from tests.allocator.service.sidecar import (
    claim,
    device_class,
    fleet,
    gpus,
    loaded,
    node,
    pod,
    quota_of,
    running,
    until,
)


def shared_gpu(memory):
    """Return one GPU with shared memory."""
    slice_ = gpus("n0", 1)
    slice_["spec"]["devices"][0] |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": memory}}}
    return slice_


def is_published(client, memory):
    [device] = client.service.knowledge.stock.slices["n0-gpus"].spec.devices
    return str(device.capacity["memory"].value) == memory


def available(client):
    return str(device_reports(client.service.knowledge.stock, "n0")[0].available["memory"])


async def test_unreserving_twice_after_a_failed_binding_leaks_no_device(monkeypatch):
    """Tensor Fusion #479, #480: after the commit another plugin's PreBind fails, again and again."""
    monkeypatch.setattr("allocator.service.live_ledger.Terms", lambda: Terms(grace=0.01))
    cluster = loaded(*fleet(1, 1), claim("a"), pod("p", "a"))
    async with running(cluster, tick=0.01) as client:
        for _ in range(5):
            assert (await client.place("p"))[0] == 200
            token = client.service.ledger.state.reservations["pod-p"].token
            for _ in range(2):
                assert (await client.plugin("unreserve", {"reservation": token}))[0] == 200
            await until(lambda: not client.service.ledger.state.reservations)
            assert await client.allocated_devices("a") == []
            [device] = device_reports(client.service.knowledge.stock, "n0")
            assert device.state is DeviceState.FREE


async def test_a_recreated_pod_inherits_no_reservation():
    """Tensor Fusion #684: a new pod must not get the state of a deleted pod with the same name."""
    cluster = loaded(*fleet(1, 2), claim("a"), pod("p", "a"))
    async with running(cluster) as client:
        assert (await client.place("p"))[0] == 200
        await cluster.delete(resources.PODS, "p", "default")
        await cluster.create(resources.RESOURCE_CLAIMS, claim("b"), "default")
        await cluster.create(resources.PODS, pod("p", "b", uid="pod-again"), "default")
        await until(lambda: "pod-p" not in client.service.ledger.state.reservations)
        await until(lambda: client.service.knowledge.stock.claims.get("default/b") is not None)
        assert (await client.place("p"))[0] == 200
        [uid] = client.service.ledger.state.reservations
        assert uid == (await client.pod("p"))["metadata"]["uid"] != "pod-p"
        _, claims = await client.ask("/api/v1/claims")
        assert {row["claim"]: row["pods"] for row in claims["claims"]}["default/b"] == ["p"]
        assert await client.allocated_devices("b")


async def test_a_reservation_of_changed_devices_is_refused():
    """Tensor Fusion #684: the devices change between prefilter and the reservation, so the scheduler decides again."""
    cluster = loaded(*fleet(1, 1), claim("a"), pod("p", "a"))
    async with running(cluster) as client:
        answer = await client.prefilter("p")
        await cluster.delete(resources.RESOURCE_SLICES, "n0-gpus")
        await until(lambda: not client.service.knowledge.stock.slices)
        status, refusal = await client.plugin("reserve", {"token": answer["token"], "node": "n0"})
        assert (status, refusal["remedy"]) == (409, "schedule the pod again")
        assert not client.service.ledger.state.reservations


async def test_quota_usage_returns_to_zero_after_pods_are_deleted():
    """Tensor Fusion #691: a claim with several devices adds and removes that number of devices."""
    names = [f"p{i}" for i in range(4)]
    pods = [obj for name in names for obj in (claim(name, 2), pod(name, name))]
    cluster = loaded(*fleet(1, 8), quota_of(gpu__devices=8), *pods)
    async with running(cluster) as client:
        for name in names:
            assert (await client.place(name))[0] == 200
        quotas = client.service.knowledge.quotas.objects
        await until(lambda: str(quotas["default", "team"].status.used.get("gpu/devices")) == "8")
        for name in names:
            await cluster.delete(resources.PODS, name, "default")
            await cluster.patch(resources.RESOURCE_CLAIMS, name, Merge({"status": None}), "default", subresource="status")  # fmt: skip
        await until(lambda: str(quotas["default", "team"].status.used.get("gpu/devices")) == "0")


async def test_available_capacity_follows_device_capacity_and_is_full_without_claims():
    """Tensor Fusion #796: the free capacity is always computed as the device's capacity minus the held capacity."""
    cluster = loaded(device_class(), node("n0"), shared_gpu("80Gi"), claim("a", memory="30Gi"), pod("p", "a"))
    async with running(cluster) as client:
        assert (await client.place("p"))[0] == 200
        assert available(client) == "50Gi"
        for memory, remaining in (("64Gi", "34Gi"), ("96Gi", "66Gi")):
            device = shared_gpu(memory)["spec"]["devices"]
            await cluster.patch(resources.RESOURCE_SLICES, "n0-gpus", Merge({"spec": {"devices": device}}))
            await until(partial(is_published, client, memory))
            assert available(client) == remaining
        await cluster.delete(resources.PODS, "p", "default")
        await cluster.patch(resources.RESOURCE_CLAIMS, "a", Merge({"status": None}), "default", subresource="status")
        await until(lambda: client.service.knowledge.stock.claims["default/a"].status.allocation is None)
        assert available(client) == "96Gi"
