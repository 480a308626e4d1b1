"""Turns: the account that has used the least CPU recently is next."""

import asyncio

import pytest

from serving.http import Crowded, Turns, turns


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


async def order_of(queue, accounts, charged=()):
    """Let work of these accounts wait behind other work; return the order of their turns."""
    order = []

    async def work(account):
        async with queue.turn(account):
            order.append(account)
            queue.charge(account, 0.05)
            await asyncio.sleep(0)

    async with queue.turn("other"):
        tasks = [asyncio.create_task(work(account)) for account in accounts]
        await asyncio.sleep(0)
        for account, seconds in charged:
            queue.charge(account, seconds)
    await asyncio.gather(*tasks)
    return order


async def test_the_account_with_the_least_cpu_time_is_next():
    accounts = [f"dear-{number}" for number in range(32)] + ["new"]
    order = await order_of(Turns(16), accounts, [(f"dear-{number}", 0.06) for number in range(32)])
    assert order[0] == "new"
    assert sorted(order) == sorted(accounts)


async def test_accounts_with_equal_cost_alternate():
    order = await order_of(Turns(16), ["a", "a", "a", "b", "b", "b"])
    assert order == ["a", "b"] * 3


async def test_cpu_time_decays():
    clock = Clock()
    queue = Turns(16, clock)
    queue.charge("long ago", 1.0)
    clock.now = 10 * turns.HALF_LIFE
    queue.charge("now", 0.1)
    assert await order_of(queue, ["now", "long ago"]) == ["long ago", "now"]


async def test_few_accounts_are_remembered():
    queue = Turns(16)
    for number in range(2 * turns.MAX_ACCOUNTS):
        queue.charge(f"account-{number}", 1.0)
    assert len(queue._used) == turns.MAX_ACCOUNTS


async def test_an_account_has_few_waiting_pieces():
    queue = Turns(1)
    async with queue.turn("a"):
        second = asyncio.create_task(order_of(queue, ["b"]))
        waiting = asyncio.create_task(queue.turn("a").__aenter__())
        await asyncio.sleep(0)
        with pytest.raises(Crowded):
            await queue.turn("a").__aenter__()
        waiting.cancel()
    await asyncio.wait([waiting])
    assert await second == ["b"]


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_cancelled_turn_blocks_no_other(has_begun):
    queue = Turns(16)
    first = queue.turn("a")
    await first.__aenter__()
    cancelled = asyncio.create_task(queue.turn("a").__aenter__())
    await asyncio.sleep(0)
    if has_begun:
        await first.__aexit__(None, None, None)
    cancelled.cancel()
    if not has_begun:
        await first.__aexit__(None, None, None)
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await order_of(queue, ["b", "c"]) == ["b", "c"]
    assert not queue._unfinished
