"""The fair queue: which request is answered next."""

import asyncio

import pytest

from runtime.http import fair_queue
from runtime.http.fair_queue import CHEAP, QUICK_TURN_SECONDS, UNKNOWN_COST, FairQueue
from tests.runtime.http.queue_clients import Client

pytestmark = pytest.mark.usefixtures("clock")


async def drain(queue):
    while len(queue):  # noqa: ASYNC110  the queue has no event for this, and needs none
        await asyncio.sleep(0)


async def test_cheap_clients_overtake_an_expensive_client(log):
    queue = FairQueue()
    expensive = Client(log, "expensive", 2 * UNKNOWN_COST)
    queue.join(expensive, "tenant", None, b"")
    await drain(queue)
    for _ in range(3):
        queue.join(expensive, "tenant", None, b"")
    queue.join(Client(log, "other", cost=0.0), "other", None, b"")
    queue.join(Client(log, "third", cost=0.0), "other", None, b"")
    await drain(queue)
    assert log == ["expensive", "other", "third", "expensive", "expensive", "expensive"]


async def test_a_cheap_request_is_answered_between_expensive_requests(log):
    queue = FairQueue()
    expensive = Client(log, "expensive", 2 * UNKNOWN_COST)
    queue.join(expensive, "", None, b"")
    await drain(queue)
    for _ in range(8):
        queue.join(expensive, "", None, b"")
    while log.count("expensive") < 3:  # noqa: ASYNC110  as above
        await asyncio.sleep(0)
    queue.join(Client(log, "late", cost=0.0), "", None, b"")
    await drain(queue)
    assert log.index("late") <= 4


async def test_one_turn_has_a_limit_of_cpu_time(log):
    queue = FairQueue()
    turns = 0

    def turn():
        nonlocal turns
        turns += 1
        if len(queue):
            asyncio.get_running_loop().call_soon(turn)

    for number in range(8):
        queue.join(Client(log, number, 0.6 * QUICK_TURN_SECONDS), "", None, b"")
    asyncio.get_running_loop().call_soon(turn)
    await drain(queue)
    assert log == list(range(8)), "requests of equal cost are not answered in their order"
    assert turns >= 4


async def test_an_expensive_account_or_connection_delays_no_cheap_request(log):
    queue = FairQueue()
    expensive, shared_connection = Client(log, "expensive", 2 * UNKNOWN_COST), Client(log, "shared")
    queue.join(expensive, "tenant", None, b"")
    await drain(queue)
    shared_connection.cost = expensive.cost  # earlier requests on this connection were expensive
    same_account, other_account = Client(log, "same account"), Client(log, "another")
    for _ in range(10):
        queue.join(same_account, "tenant", None, b"")
        queue.join(other_account, "another", None, b"")
        queue.join(expensive, "tenant", None, b"")
        await drain(queue)
    log.clear()
    queue.join(expensive, "tenant", None, b"")
    queue.join(same_account, "tenant", None, b"")
    queue.join(shared_connection, "another", None, b"")
    await drain(queue)
    assert sorted(log[:2]) == ["same account", "shared"]
    assert log[2:] == ["expensive"]


async def test_one_expensive_answer_does_not_make_a_client_expensive(log):
    """A single review may be slow after a cache was cleared or during a garbage collection."""
    queue = FairQueue()
    client = Client(log, "client")
    for _ in range(40):
        queue.join(client, "", None, b"")
        await drain(queue)
    client.seconds = 10 * UNKNOWN_COST
    queue.join(client, "", None, b"")
    await drain(queue)
    queue.join(client, "", None, b"")
    assert not queue._slow
    await drain(queue)
    queue.join(client, "", None, b"")
    assert queue._slow, "the client is still cheap after several expensive answers"
    await drain(queue)


async def test_an_expensive_client_becomes_cheap_again(log):
    queue = FairQueue()
    client = Client(log, "expensive", 2 * UNKNOWN_COST)
    queue.join(client, "tenant", None, b"")
    await drain(queue)
    client.seconds = 0.0
    for _ in range(10):
        queue.join(client, "tenant", None, b"")
        await drain(queue)
    queue.join(client, "tenant", None, b"")
    assert not queue._slow
    await drain(queue)


async def test_the_number_of_remembered_accounts_is_bounded(log):
    queue = FairQueue()
    for number in range(fair_queue.MAX_ACCOUNTS + 10):
        queue.join(Client(log, number), str(number), None, b"")
    await drain(queue)
    assert len(queue._accounts) <= fair_queue.MAX_ACCOUNTS


async def test_a_bug_while_answering_ends_only_one_connection(log, caplog):
    queue = FairQueue()
    broken = Client(log, "broken")
    queue.join(broken, "", None, b"bug")
    queue.join(Client(log, "other"), "", None, b"")
    await drain(queue)
    assert log == ["broken", "other"]
    assert broken.was_cut
    assert "a bug while answering" in caplog.text


async def test_new_clients_do_not_starve_an_expensive_client(log):
    queue = FairQueue()
    expensive = Client(log, "expensive", 2 * UNKNOWN_COST)
    queue.join(expensive, "tenant", None, b"")
    await drain(queue)
    for number in range(6):
        queue.join(Client(log, number, 1.1 * QUICK_TURN_SECONDS, cost=0.0), "", None, b"")
    queue.join(expensive, "tenant", None, b"")
    await drain(queue)
    assert log.index("expensive", 1) <= 3


async def test_a_late_cheap_account_precedes_an_expensive_account(log):
    queue = FairQueue()
    cheap, crowd = Client(log, "cheap"), [Client(log, number, 1.5 * CHEAP) for number in range(32)]
    for client, account in (*((member, "crowd") for member in crowd), *[(cheap, "cheap")] * 8):
        for _ in range(3):
            queue.join(client, account, None, b"")
            await drain(queue)
    log.clear()
    for client in crowd:
        queue.join(client, "crowd", None, b"")
    while not log:  # noqa: ASYNC110  as above
        await asyncio.sleep(0)
    queue.join(cheap, "cheap", None, b"")
    answers_before = len(log)
    await drain(queue)
    assert log.index("cheap") == answers_before, "the cheap request was not answered next"
    assert len(log) == 33


async def test_a_cheap_account_has_priority_on_any_connection(log):
    queue = FairQueue()
    shared_connection, cheap_connection = (
        Client(log, "shared", 2 * UNKNOWN_COST),
        Client(log, "other", 0.2 * UNKNOWN_COST),
    )
    for _ in range(20):
        queue.join(shared_connection, "expensive", None, b"")
        queue.join(cheap_connection, "cheap", None, b"")
        await drain(queue)
    log.clear()
    queue.join(Client(log, "unknown"), "unknown", None, b"")
    queue.join(shared_connection, "cheap", None, b"")
    await drain(queue)
    assert log == ["shared", "unknown"]


async def test_many_cheap_requests_do_not_starve_a_slow_request(log):
    queue = FairQueue()
    cheap, slow = Client(log, "cheap", 0.7 * CHEAP, cost=0.0), Client(log, "slow", 2 * UNKNOWN_COST)
    queue.join(slow, "slow", None, b"")
    for _ in range(40):
        queue.join(cheap, "cheap", None, b"")
    await drain(queue)
    assert 0 < log.index("slow") < 20, "the slow request did not follow one or two turns of cheap requests"


async def test_unfinished_requests_continue_in_order_between_new_requests(log):
    queue = FairQueue()

    async def continue_request(number):
        await queue.wait_turn()
        log.append(number)

    tasks = [asyncio.create_task(continue_request(number)) for number in range(8)]
    tasks[0].cancel()
    while len(log) < 2:  # noqa: ASYNC110  as above
        await asyncio.sleep(0)
    queue.join(Client(log, "new"), "", None, b"")
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [name for name in log if name != "new"] == list(range(1, 8))
    assert log.index("new") <= 4
