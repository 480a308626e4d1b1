"""Slots of workers: which waiting request gets a free slot, and which is rejected when too many requests wait.

`Slots(2, 16)` are two slots, for which at most 16 requests wait.
"""

import asyncio
import gc
import weakref

import pytest

from runtime.workers.slots import RECENT, REMEMBERED, SLOW, Crowded, Requester, Slots


class WaitingRequests:
    """Requests that wait for slots, and the names of the requests that got one, in order."""

    def __init__(self, slots):
        self.slots, self.served, self.tasks = slots, [], {}

    async def ask(self, name):
        """Start a request that waits for a slot. `name` is the letter of the account, a number, and optionally @ and the peer."""
        task = self.tasks[name] = asyncio.create_task(self.wait(name))
        await run_loop()
        return task

    async def wait(self, name):
        await self.slots.take(requester_of(name))
        self.served.append(name)


def requester_of(name):
    return Requester(name[0], name.partition("@")[2])


async def run_loop():
    for _ in range(4):
        await asyncio.sleep(0)


async def test_an_account_never_occupies_all_slots():
    requests = WaitingRequests(Slots(2, 16))
    for name in ("a1", "a2", "a3", "b1"):
        await requests.ask(name)
    assert requests.served == ["a1", "b1"]
    requests.slots.leave(requester_of("a"))
    await run_loop()
    assert requests.served == ["a1", "b1", "a2"]


async def test_a_single_slot_may_be_taken_by_any_account():
    requests = WaitingRequests(Slots(1, 16))
    for name in ("a1", "a2"):
        await requests.ask(name)
    requests.slots.leave(requester_of("a"))
    await run_loop()
    assert requests.served == ["a1", "a2"]


async def test_accounts_take_turns_however_many_requests_they_have():
    requests = WaitingRequests(Slots(1, 16))
    for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
        await requests.ask(name)
    for _ in range(6):
        requests.slots.leave(requester_of(requests.served[-1]))
        await run_loop()
    assert requests.served == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


async def test_the_largest_account_loses_its_last_request():
    requests = WaitingRequests(Slots(1, 3))
    tasks = [await requests.ask(name) for name in ("a1", "a2", "a3", "a4", "b1")]
    with pytest.raises(Crowded):
        await tasks[3]
    assert not tasks[4].done(), "the request b1 does not wait instead of a4"
    with pytest.raises(Crowded):
        await (await requests.ask("a5"))
    await requests.ask("b2")
    with pytest.raises(Crowded):
        await tasks[2]
    for _ in range(3):
        requests.slots.leave(requester_of(requests.served[-1]))
        await run_loop()
    assert requests.served == ["a1", "b1", "a2", "b2"]


@pytest.mark.parametrize("moment", ["before the slot is free", "as the slot becomes free", "after the slot is granted"])
async def test_a_cancelled_request_leaves_its_slot_to_the_next(moment):
    requests = WaitingRequests(Slots(1, 16))
    tasks = [await requests.ask(name) for name in ("a1", "b1", "b2")]
    if moment == "after the slot is granted":
        requests.slots.leave(requester_of("a"))
        tasks[1].cancel()
    else:
        tasks[1].cancel()
        if moment == "before the slot is free":
            await run_loop()
        requests.slots.leave(requester_of("a"))
    await run_loop()
    assert requests.served == ["a1", "b2"]
    requests.slots.leave(requester_of("b"))
    await requests.ask("d1")
    assert requests.served[-1] == "d1"


async def test_a_request_rejected_and_cancelled_at_once_releases_no_slot():
    requests = WaitingRequests(Slots(1, 3))
    tasks = [await requests.ask(name) for name in ("a1", "a2", "a3", "a4")]
    replacement = asyncio.create_task(requests.wait("b1"))  # waits instead of a4, which is rejected
    asyncio.get_running_loop().call_soon(tasks[3].cancel)
    await run_loop()
    assert (tasks[3].cancelled(), replacement.done()) == (True, False)
    assert requests.served == ["a1"], "the only slot was given to a second request"
    requests.slots.leave(requester_of("a"))
    await run_loop()
    assert requests.served == ["a1", "b1"]


async def test_a_cancelled_request_makes_room_for_a_new_request():
    requests = WaitingRequests(Slots(1, 2))
    tasks = [await requests.ask(name) for name in ("a1", "a2", "a3")]
    tasks[2].cancel()
    await requests.ask("b1")
    requests.slots.leave(requester_of("a"))
    await run_loop()
    requests.slots.leave(requester_of("a"))
    await run_loop()
    assert requests.served == ["a1", "b1", "a2"]


async def test_many_accounts_do_not_give_a_peer_every_slot():
    requests = WaitingRequests(Slots(2, 16))
    for name in ("h1@api", "a1@mallory", "b1@mallory", "c1@mallory"):
        await requests.ask(name)
    assert requests.served == ["h1@api", "a1@mallory"]
    requests.slots.leave(requester_of("h1@api"))
    await run_loop()
    assert requests.served == ["h1@api", "a1@mallory"], "the peer mallory got the last slot"
    await requests.ask("i1@api")
    assert requests.served[-1] == "i1@api"


async def test_a_peer_that_is_alone_may_use_all_slots(monkeypatch):
    requests = WaitingRequests(Slots(2, 16))
    await requests.ask("x1@probe")
    requests.slots.leave(requester_of("x1@probe"))
    now = asyncio.get_running_loop().time()
    for name in ("a1@api", "b1@api"):
        monkeypatch.setattr(requests.slots, "_loop", LaterLoop(now + RECENT + 1))
        await requests.ask(name)
    assert requests.served == ["x1@probe", "a1@api", "b1@api"], "a peer that asked long ago still counts"


class LaterLoop:
    """A loop whose clock shows another time."""

    def __init__(self, now):
        self.now = now

    def time(self):
        return self.now

    def create_future(self):
        return asyncio.get_running_loop().create_future()


async def test_the_peer_with_fewer_slots_is_served_first():
    requests = WaitingRequests(Slots(4, 16))
    for name in ("a1@mallory", "b1@mallory", "c1@mallory", "h1@api", "d1@mallory", "e1@mallory", "i1@api"):
        await requests.ask(name)
    assert requests.served == ["a1@mallory", "b1@mallory", "c1@mallory", "h1@api"]
    requests.slots.leave(requester_of("a1@mallory"))
    await run_loop()
    assert requests.served[-1] == "i1@api"


async def test_in_a_full_queue_the_largest_peer_loses_requests():
    requests = WaitingRequests(Slots(1, 4))
    tasks = [await requests.ask(name) for name in ("z0@mallory", "a1@mallory", "b1@mallory", "c1@mallory", "h1@api")]
    last_request = await requests.ask("h2@api")
    with pytest.raises(Crowded):
        await tasks[3]
    assert not last_request.done(), "the request h2@api does not wait instead of c1@mallory"
    with pytest.raises(Crowded):
        await (await requests.ask("d1@mallory"))
    assert not last_request.done()
    assert not tasks[4].done()
    for _ in range(4):
        requests.slots.leave(requester_of(requests.served[-1]))
        await run_loop()
    assert sorted(requests.served[1:]) == ["a1@mallory", "b1@mallory", "h1@api", "h2@api"]


async def test_the_number_of_remembered_peers_is_bounded():
    requests = WaitingRequests(Slots(2, 16))
    for number in range(REMEMBERED + 10):
        name = f"a{number}@{number}"
        await requests.ask(name)
        requests.slots.leave(requester_of(name))
    assert len(requests.slots._callers) <= REMEMBERED + 1


async def test_the_account_that_has_used_less_goes_first():
    requests = WaitingRequests(Slots(1, 16))
    for name in ("a1", "a2", "b1", "b2"):
        await requests.ask(name)
    for seconds in (5.0, 0.01, 0.0):
        requests.slots.leave(requester_of(requests.served[-1]), seconds)
        await run_loop()
    assert requests.served == ["a1", "b1", "b2", "a2"]


@pytest.mark.parametrize(("seconds_later", "next_served"), [(0, "b1"), (3600, "a2")])
async def test_used_seconds_count_only_for_some_time(monkeypatch, seconds_later, next_served):
    requests = WaitingRequests(Slots(1, 16))
    await requests.ask("a1")
    requests.slots.leave(requester_of("a"), 3.0)
    await requests.ask("z1")
    monkeypatch.setattr(requests.slots, "_loop", LaterLoop(asyncio.get_running_loop().time() + seconds_later))
    for name in ("a2", "b1"):
        await requests.ask(name)
    requests.slots.leave(requester_of("z"))
    await run_loop()
    assert requests.served == ["a1", "z1", next_served]


@pytest.mark.parametrize("slot_count", [2, 1])
async def test_small_requests_precede_waiting_large_requests(slot_count):
    """Large requests once occupied both slots for 1.5 s each, and small requests were not decided in time."""
    slots, started = Slots(slot_count, 16), []

    async def use(name, account):
        seconds = 2 * SLOW if name[0] == "l" else 0.02
        requester = Requester(account, account, seconds)
        await slots.take(requester)
        started.append((name, requester))

    tasks = [asyncio.create_task(use(f"l{n}", f"large{n}")) for n in range(1, 6)]
    await run_loop()
    tasks += [asyncio.create_task(use(f"s{n}", f"small{n}")) for n in range(1, 3)]
    await run_loop()
    while len(started) < 3:
        slots.leave(started[-1][1])
        await run_loop()
    assert [name for name, _ in started] == ["l1", "s1", "s2"]
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
    body_reference = weakref.ref(body)
    gc.disable()
    try:
        with pytest.raises(Crowded):
            await ask(body)
        del body
        assert body_reference() is None
    finally:
        gc.enable()
