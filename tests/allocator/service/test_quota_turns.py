"""Turns of waiting reviews: one review per iteration of the event loop, from each namespace in rotation."""

import asyncio
from itertools import pairwise

from allocator.service.quota.admission import LoopTurns


async def test_a_busy_namespace_gets_at_most_every_second_turn():
    turns, order = LoopTurns(), []

    async def work(namespace, times):
        for _ in range(times):
            await turns.wait(namespace)
            order.append(namespace)

    await asyncio.gather(*(work("busy", 3) for _ in range(20)), work("quiet", 3))
    assert len(order) == 63
    assert order[:7].count("quiet") == 3


async def test_one_waiter_proceeds_per_iteration_and_cancelled_waiters_are_skipped():
    turns, order = LoopTurns(), []

    async def work(number):
        await turns.wait("team")
        order.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(6)]
    await asyncio.sleep(0)
    for cancelled in (0, 3):
        tasks[cancelled].cancel()
    counts = []
    while len(order) < 4:
        await asyncio.sleep(0)
        counts.append(len(order))
    assert order == [1, 2, 4, 5]
    assert all(after - before <= 1 for before, after in pairwise(counts))
