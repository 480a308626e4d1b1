"""The publisher of the driver: it writes the machine's slices, keeps them, and pauses between changes."""

import asyncio

import pytest

from cluster.resources import NODES, RESOURCE_SLICES
from node.service.publisher import Publisher
from tests.limits import PATIENCE
from tests.node.machines import NODE, gpu
from tests.node.service.running_driver import RecordedBackoff, eventually, list_slices, machine, running_driver


async def test_deleted_slices_are_published_again(cluster, kubelet):
    async with running_driver(cluster, kubelet) as driver:
        async with asyncio.timeout(PATIENCE):
            await driver.publisher.published.wait()
        [slice_] = await list_slices(cluster)
        assert [device.name for device in slice_.spec.devices] == ["gpu-0", "gpu-1", "nic"]
        assert [(owner.kind, owner.name) for owner in slice_.metadata.owner_references] == [("Node", NODE)]
        await cluster.delete(RESOURCE_SLICES, slice_.metadata.name)

        async def new_slices():
            return [
                published for published in await list_slices(cluster) if published.metadata.uid != slice_.metadata.uid
            ]

        assert len(await eventually(new_slices)) == 1


@pytest.mark.parametrize("name", ["n" * 253, ".".join(["n" * 49] * 5)])
async def test_slices_of_a_node_with_the_longest_name_are_published(cluster, name):
    await cluster.create(NODES, {"metadata": {"name": name}})
    assert await Publisher(cluster, machine(), name).round()
    [slice_] = await list_slices(cluster)
    assert slice_.spec.pool.name == name


async def test_a_second_publisher_of_the_same_machine_writes_nothing(cluster):
    assert await Publisher(cluster, machine(), NODE).round()
    before = await list_slices(cluster)
    assert not await Publisher(cluster, machine(), NODE).round()
    assert await list_slices(cluster) == before


async def test_a_changed_machine_is_published_in_the_existing_slice(cluster):
    await Publisher(cluster, machine(), NODE).round()
    await Publisher(cluster, machine(gpus=[gpu(7)]), NODE).round()
    [slice_] = await list_slices(cluster)
    assert ([device.name for device in slice_.spec.devices], slice_.spec.pool.generation) == (["gpu-7"], 1)


async def test_slices_that_keep_changing_are_written_with_growing_pauses(cluster):
    backoff = RecordedBackoff(counts=[])
    publisher = Publisher(cluster, machine(), NODE, backoff)
    publish = publisher.round

    async def change_meanwhile():
        has_written = await publish()
        if has_written and len(backoff.counts) < 5:
            publisher.update_machine(machine(gpus=[gpu(len(backoff.counts))]))
        return has_written

    publisher.round = change_meanwhile
    task = asyncio.create_task(publisher.run())

    async def is_written_six_times():
        return len(backoff.counts) >= 6

    await eventually(is_written_six_times)
    task.cancel()
    assert backoff.counts == [1, 2, 3, 4, 5, 6]
