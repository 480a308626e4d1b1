"""The line: nobody waits for a whole crowd, and nobody is forgotten."""

import asyncio
from time import thread_time

import pytest

from cluster.serving import line as lines
from cluster.serving.line import DEAR, SHARE, WaitingLine


class Guest:
    """Works for so long when it is its turn, and is written down."""

    def __init__(self, log, name, seconds=0.0):
        self.dear_until = 0.0
        self._log = log
        self._name = name
        self._seconds = seconds
        self.was_cut = False

    def answer(self, _head, body):
        until = thread_time() + self._seconds
        while thread_time() < until:
            pass
        self._log.append(self._name)
        if body == b"bug":
            raise RuntimeError("a bug")

    def cut(self):
        self.was_cut = True


async def over(line):
    while len(line):  # noqa: ASYNC110  the product has no event for it, and needs none
        await asyncio.sleep(0)


@pytest.fixture
def log():
    return []


async def test_who_was_dear_is_passed_by_who_was_not_and_served_one_a_turn(log):
    line = WaitingLine()
    dear = Guest(log, "dear", 2 * DEAR)
    line.join(dear, "tenant", None, b"")
    await over(line)
    for _ in range(3):
        line.join(dear, "tenant", None, b"")
    line.join(Guest(log, "other"), "other", None, b"")
    line.join(Guest(log, "third"), "other", None, b"")
    await over(line)
    assert log == ["dear", "other", "third", "dear", "dear", "dear"]


async def test_between_two_dear_ones_the_loop_looks_who_else_has_come(log):
    line = WaitingLine()
    dear = Guest(log, "dear", 2 * DEAR)
    line.join(dear, "", None, b"")
    await over(line)
    for _ in range(8):
        line.join(dear, "", None, b"")
    while log.count("dear") < 3:  # noqa: ASYNC110  as above
        await asyncio.sleep(0)
    line.join(Guest(log, "late"), "", None, b"")
    await over(line)
    assert log.index("late") <= 4


async def test_work_of_one_turn_is_bounded(log):
    line = WaitingLine()
    turns = 0

    def turn():
        nonlocal turns
        turns += 1
        if len(line):
            asyncio.get_running_loop().call_soon(turn)

    for number in range(8):
        line.join(Guest(log, number, 0.6 * SHARE), "", None, b"")
    asyncio.get_running_loop().call_soon(turn)
    await over(line)
    assert log == list(range(8)), "who came first is first"
    assert turns >= 4


async def test_neither_a_shared_account_nor_a_shared_connection_makes_anybody_wait(log):
    line = WaitingLine()
    dear, shared = Guest(log, "dear", 2 * DEAR), Guest(log, "shared")
    line.join(dear, "tenant", None, b"")
    await over(line)
    shared.dear_until = dear.dear_until  # what it brought before was dear
    line.join(dear, "tenant", None, b"")
    line.join(Guest(log, "same account"), "tenant", None, b"")
    line.join(shared, "another", None, b"")
    await over(line)
    assert log == ["dear", "same account", "shared", "dear"]


async def test_what_was_dear_is_forgotten(log):
    line = WaitingLine(memory=0.0)
    dear = Guest(log, "dear", 2 * DEAR)
    line.join(dear, "tenant", None, b"")
    await over(line)
    line.join(dear, "tenant", None, b"")
    line.join(Guest(log, "other"), "", None, b"")
    await over(line)
    assert log == ["dear", "dear", "other"]


async def test_accounts_are_bounded(log):
    line = WaitingLine(dear=-1.0)
    for number in range(lines.ACCOUNTS + 10):
        line.join(Guest(log, number), str(number), None, b"")
    await over(line)
    assert len(line._accounts) <= lines.ACCOUNTS


async def test_a_bug_ends_one_connection_and_nobody_elses_turn(log, caplog):
    line = WaitingLine()
    broken = Guest(log, "broken")
    line.join(broken, "", None, b"bug")
    line.join(Guest(log, "other"), "", None, b"")
    await over(line)
    assert log == ["broken", "other"]
    assert broken.was_cut
    assert "a bug while answering" in caplog.text


async def test_who_is_dear_is_not_forgotten_for_a_crowd_that_is_not(log):
    line = WaitingLine()
    dear = Guest(log, "dear", 2 * DEAR)
    line.join(dear, "tenant", None, b"")
    await over(line)
    for number in range(6):
        line.join(Guest(log, number, 1.1 * SHARE), "", None, b"")
    line.join(dear, "tenant", None, b"")
    await over(line)
    assert log.index("dear", 1) <= 3
