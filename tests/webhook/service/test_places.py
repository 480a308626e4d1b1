import asyncio

import pytest

from webhook.service.deciding.places import Crowded, Places


class Waiting:
    """Whoever wants places, in order; each says when it has one."""

    def __init__(self, places):
        self.places, self.served, self.tasks = places, [], {}

    async def ask(self, name):
        """`name` is the account and a number."""
        task = self.tasks[name] = asyncio.create_task(self.wait(name))
        await turn()
        return task

    async def wait(self, name):
        await self.places.take(name[0])
        self.served.append(name)


async def turn():
    for _ in range(4):
        await asyncio.sleep(0)


async def test_one_account_never_has_all_places_and_another_finds_one():
    waiting = Waiting(Places(2, 16))
    for name in ("a1", "a2", "a3", "b1"):
        await waiting.ask(name)
    assert waiting.served == ["a1", "b1"]
    waiting.places.leave("a")
    await turn()
    assert waiting.served == ["a1", "b1", "a2"]


async def test_a_single_place_is_for_everybody():
    waiting = Waiting(Places(1, 16))
    for name in ("a1", "a2"):
        await waiting.ask(name)
    waiting.places.leave("a")
    await turn()
    assert waiting.served == ["a1", "a2"]


async def test_accounts_take_turns_however_many_wait_for_one_of_them():
    waiting = Waiting(Places(1, 16))
    for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
        await waiting.ask(name)
    for _ in range(6):
        waiting.places.leave(waiting.served[-1][0])
        await turn()
    assert waiting.served == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]


async def test_in_a_crowd_the_last_of_who_wants_most_goes():
    waiting = Waiting(Places(1, 3))
    tasks = [await waiting.ask(name) for name in ("a1", "a2", "a3", "a4", "b1")]
    with pytest.raises(Crowded):
        await tasks[3]
    assert not tasks[4].done(), "it waits in that one's stead"
    for late in ("a5", "b2"):
        with pytest.raises(Crowded):
            await (await waiting.ask(late))
    for _ in range(3):
        waiting.places.leave(waiting.served[-1][0])
        await turn()
    assert waiting.served == ["a1", "a2", "b1", "a3"]


@pytest.mark.parametrize("when", ["before", "in the same moment", "after it was granted"])
async def test_who_has_gone_leaves_the_place_to_the_next(when):
    waiting = Waiting(Places(1, 16))
    tasks = [await waiting.ask(name) for name in ("a1", "b1", "b2")]
    if when == "after it was granted":
        waiting.places.leave("a")
        tasks[1].cancel()
    else:
        tasks[1].cancel()
        if when == "before":
            await turn()
        waiting.places.leave("a")
    await turn()
    assert waiting.served == ["a1", "b2"]
    waiting.places.leave("b")
    await waiting.ask("d1")
    assert waiting.served[-1] == "d1"


async def test_who_is_sent_away_in_the_moment_in_which_he_goes_gives_back_no_place():
    waiting = Waiting(Places(1, 3))
    tasks = [await waiting.ask(name) for name in ("a1", "a2", "a3", "a4")]
    coming = asyncio.create_task(waiting.wait("b1"))  # in whose stead the last of them is sent away
    asyncio.get_running_loop().call_soon(tasks[3].cancel)
    await turn()
    assert (tasks[3].cancelled(), coming.done()) == (True, False)
    assert waiting.served == ["a1"], "there is one place, and it is taken"
    waiting.places.leave("a")
    await turn()
    assert waiting.served == ["a1", "a2"]


async def test_room_that_is_made_of_one_who_is_going_is_room():
    waiting = Waiting(Places(1, 2))
    tasks = [await waiting.ask(name) for name in ("a1", "a2", "a3")]
    tasks[2].cancel()
    await waiting.ask("b1")
    waiting.places.leave("a")
    await turn()
    waiting.places.leave("a")
    await turn()
    assert waiting.served == ["a1", "a2", "b1"]
