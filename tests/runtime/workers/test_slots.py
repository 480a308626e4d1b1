"""Slots of workers: which waiting request gets a free slot, and which is rejected when too many requests wait."""

import asyncio
import gc
import weakref

import pytest

from runtime.workers.slots import RECENT, REMEMBERED, SLOW, Crowded, Requester, Slots


class Waiting:
    """Requests that wait for slots, and the names of the requests that got one, in order."""

    def __init__(self, places):
        self.places, self.served, self.tasks = places, [], {}

    async def ask(self, name):
        """Start a request that waits for a slot. `name` is the letter of the account, a number, and optionally @ and the peer."""
        task = self.tasks[name] = asyncio.create_task(self.wait(name))
        await turn()
        return task

    async def wait(self, name):
        await self.places.take(who(name))
        self.served.append(name)


def who(name):
    return Requester(name[0], name.partition("@")[2])


async def turn():
    for _ in range(4):
        await asyncio.sleep(0)


async def test_an_account_never_occupies_all_places():
    waiting = Waiting(Slots(2, 16))
    for name in ("a1", "a2", "a3", "b1"):
        await waiting.ask(name)
    assert waiting.served == ["a1", "b1"]
    waiting.places.leave(who("a"))
    await turn()
    assert waiting.served == ["a1", "b1", "a2"]


async def test_a_single_place_may_be_taken_by_any_account():
    waiting = Waiting(Slots(1, 16))
    for name in ("a1", "a2"):
        await waiting.ask(name)
    waiting.places.leave(who("a"))
    await turn()
    assert waiting.served == ["a1", "a2"]


async def test_accounts_take_turns_however_many_wait_for_one_of_them():
    waiting = Waiting(Slots(1, 16))
    for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
        await waiting.ask(name)
    for _ in range(6):
        waiting.places.leave(who(waiting.served[-1]))
        await turn()
    assert waiting.served == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


async def test_the_largest_account_loses_its_last_request():
    waiting = Waiting(Slots(1, 3))
    tasks = [await waiting.ask(name) for name in ("a1", "a2", "a3", "a4", "b1")]
    with pytest.raises(Crowded):
        await tasks[3]
    assert not tasks[4].done(), "it waits in that one's stead"
    with pytest.raises(Crowded):
        await (await waiting.ask("a5"))
    await waiting.ask("b2")
    with pytest.raises(Crowded):
        await tasks[2]
    for _ in range(3):
        waiting.places.leave(who(waiting.served[-1]))
        await turn()
    assert waiting.served == ["a1", "b1", "a2", "b2"]


@pytest.mark.parametrize("when", ["before", "in the same moment", "after it was granted"])
async def test_a_cancelled_waiter_leaves_its_slot_to_the_next(when):
    waiting = Waiting(Slots(1, 16))
    tasks = [await waiting.ask(name) for name in ("a1", "b1", "b2")]
    if when == "after it was granted":
        waiting.places.leave(who("a"))
        tasks[1].cancel()
    else:
        tasks[1].cancel()
        if when == "before":
            await turn()
        waiting.places.leave(who("a"))
    await turn()
    assert waiting.served == ["a1", "b2"]
    waiting.places.leave(who("b"))
    await waiting.ask("d1")
    assert waiting.served[-1] == "d1"


async def test_a_cancelled_rejected_waiter_releases_no_slot():
    waiting = Waiting(Slots(1, 3))
    tasks = [await waiting.ask(name) for name in ("a1", "a2", "a3", "a4")]
    coming = asyncio.create_task(waiting.wait("b1"))  # waits instead of a4, which is rejected
    asyncio.get_running_loop().call_soon(tasks[3].cancel)
    await turn()
    assert (tasks[3].cancelled(), coming.done()) == (True, False)
    assert waiting.served == ["a1"], "there is one place, and it is taken"
    waiting.places.leave(who("a"))
    await turn()
    assert waiting.served == ["a1", "b1"]


async def test_a_leaving_request_makes_room_for_a_new_request():
    waiting = Waiting(Slots(1, 2))
    tasks = [await waiting.ask(name) for name in ("a1", "a2", "a3")]
    tasks[2].cancel()
    await waiting.ask("b1")
    waiting.places.leave(who("a"))
    await turn()
    waiting.places.leave(who("a"))
    await turn()
    assert waiting.served == ["a1", "b1", "a2"]


async def test_many_namespaces_do_not_give_a_peer_every_place():
    waiting = Waiting(Slots(2, 16))
    for name in ("h1@api", "a1@mallory", "b1@mallory", "c1@mallory"):
        await waiting.ask(name)
    assert waiting.served == ["h1@api", "a1@mallory"]
    waiting.places.leave(who("h1@api"))
    await turn()
    assert waiting.served == ["h1@api", "a1@mallory"], "a place is left for another account"
    await waiting.ask("i1@api")
    assert waiting.served[-1] == "i1@api"


async def test_a_single_peer_may_use_all_places(monkeypatch):
    waiting = Waiting(Slots(2, 16))
    await waiting.ask("x1@probe")
    waiting.places.leave(who("x1@probe"))
    now = asyncio.get_running_loop().time()
    for name in ("a1@api", "b1@api"):
        monkeypatch.setattr(waiting.places, "_loop", Later(now + RECENT + 1))
        await waiting.ask(name)
    assert waiting.served == ["x1@probe", "a1@api", "b1@api"], "an account of long ago has no record"


class Later:
    """A loop whose clock shows another time."""

    def __init__(self, now):
        self.now = now

    def time(self):
        return self.now

    def create_future(self):
        return asyncio.get_running_loop().create_future()


async def test_the_peer_with_fewer_places_is_served_first():
    waiting = Waiting(Slots(4, 16))
    for name in ("a1@mallory", "b1@mallory", "c1@mallory", "h1@api", "d1@mallory", "e1@mallory", "i1@api"):
        await waiting.ask(name)
    assert waiting.served == ["a1@mallory", "b1@mallory", "c1@mallory", "h1@api"]
    waiting.places.leave(who("a1@mallory"))
    await turn()
    assert waiting.served[-1] == "i1@api"


async def test_in_a_full_queue_a_peer_loses_its_own_places():
    waiting = Waiting(Slots(1, 4))
    tasks = [await waiting.ask(name) for name in ("z0@mallory", "a1@mallory", "b1@mallory", "c1@mallory", "h1@api")]
    late = await waiting.ask("h2@api")
    with pytest.raises(Crowded):
        await tasks[3]
    assert not late.done(), "it waits in the stead of one of those that the other peer has"
    with pytest.raises(Crowded):
        await (await waiting.ask("d1@mallory"))
    assert not late.done()
    assert not tasks[4].done()
    for _ in range(4):
        waiting.places.leave(who(waiting.served[-1]))
        await turn()
    assert sorted(waiting.served[1:]) == ["a1@mallory", "b1@mallory", "h1@api", "h2@api"]


async def test_the_number_of_remembered_peers_is_bounded():
    waiting = Waiting(Slots(2, 16))
    for number in range(REMEMBERED + 10):
        name = f"a{number}@{number}"
        await waiting.ask(name)
        waiting.places.leave(who(name))
    assert len(waiting.places._callers) <= REMEMBERED + 1


async def test_the_account_that_has_used_less_goes_first():
    waiting = Waiting(Slots(1, 16))
    for name in ("a1", "a2", "b1", "b2"):
        await waiting.ask(name)
    for seconds in (5.0, 0.01, 0.0):
        waiting.places.leave(who(waiting.served[-1]), seconds)
        await turn()
    assert waiting.served == ["a1", "b1", "b2", "a2"]


@pytest.mark.parametrize(("later", "next_"), [(0, "b1"), (3600, "a2")])
async def test_used_seconds_are_forgotten(monkeypatch, later, next_):
    waiting = Waiting(Slots(1, 16))
    await waiting.ask("a1")
    waiting.places.leave(who("a"), 3.0)
    await waiting.ask("z1")
    monkeypatch.setattr(waiting.places, "_loop", Later(asyncio.get_running_loop().time() + later))
    for name in ("a2", "b1"):
        await waiting.ask(name)
    waiting.places.leave(who("z"))
    await turn()
    assert waiting.served == ["a1", "z1", next_]


@pytest.mark.parametrize(("slots", "served"), [(2, ["l1", "s1", "s2"]), (1, ["l1", "s1", "s2"])])
async def test_large_requests_leave_the_last_slot_to_small_ones(slots, served):
    """Large requests occupied both slots for 1.5 s each, and small requests were not decided in time."""
    places, order = Slots(slots, 16), []

    async def use(name, account):
        seconds = 2 * SLOW if name[0] == "l" else 0.02
        requester = Requester(account, account, seconds)
        await places.take(requester)
        order.append((name, requester))

    tasks = [asyncio.create_task(use(f"l{n}", f"large{n}")) for n in range(1, 6)]
    await turn()
    tasks += [asyncio.create_task(use(f"s{n}", f"small{n}")) for n in range(1, 3)]
    await turn()
    while len(order) < 3:
        places.leave(order[-1][1])
        await turn()
    assert [name for name, _ in order] == served
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_rejected_request_is_freed_at_once():
    """Stack frames of a rejected request hold the body of a review. Bodies that waited for the garbage collector took 2 GiB."""

    class Body:
        """An object that supports weak references."""

    async def ask(body):
        await slots.take(Requester(f"{body}"))

    slots = Slots(1, 0)
    await slots.take(Requester("a"))
    body = Body()
    is_there = weakref.ref(body)
    gc.disable()
    try:
        with pytest.raises(Crowded):
            await ask(body)
        del body
        assert is_there() is None
    finally:
        gc.enable()
