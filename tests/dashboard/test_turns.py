"""The account whose questions used the least CPU time recently has the next turn. Questions that nobody waits for are dropped."""

import asyncio
import threading
import time

import aiohttp
import pytest

from dashboard import server
from dashboard.tenants import OTHERS
from dashboard.whatif import WhatIf
from serving.http import Turns
from tests.dashboard.test_login import bearer_header, login_session, read_as
from tests.limits import PATIENCE
from tests.waiting import until

QUESTION = "/api/v1/what-if?add=n0%3D2"


class Questions:
    """Replaces `what_if`: records the accounts of the questions that begin, and answers when `release` is set.

    `arrived` counts the questions that wait for a turn, have begun or were refused. A question uses the CPU seconds of its
    account in `costs`. The CPU time of the machine does not count.
    """

    def __init__(self, monkeypatch):
        self.accounts, self.release, self.arrived = [], threading.Event(), 0
        self.costs, self._cpu_seconds = {}, 0.0
        monkeypatch.setattr(server, "what_if", self._answer)
        monkeypatch.setattr(server, "thread_time", lambda: self._cpu_seconds)
        take_turn = Turns.turn

        def counted(turns, account):
            self.arrived += 1
            return take_turn(turns, account)

        monkeypatch.setattr(Turns, "turn", counted)

    def _answer(self, reading, *_):
        namespaces = {key.partition("/")[0] for key in reading.pods} - {OTHERS}
        account = namespaces.pop() if len(namespaces) == 1 else "all"
        self.accounts.append(account)
        assert self.release.wait(PATIENCE)
        self._cpu_seconds += self.costs.get(account, 1.0)
        return WhatIf(pods=(), placed=0)


async def ask(session, account):
    async with session.get(QUESTION, headers=bearer_header(account)) as answer:
        return answer.status


async def ask_all(session, questions, *accounts):
    """Ask a question of each account, one after another; return their tasks."""
    tasks = []
    for account in accounts:
        arrived = questions.arrived
        tasks.append(asyncio.create_task(ask(session, account)))
        await until(lambda arrived=arrived: questions.arrived > arrived)
    await until(lambda: questions.accounts)
    return tasks


async def test_accounts_take_turns_and_an_account_has_at_most_two_waiting_questions(monkeypatch):
    """The questions of all accounts cost the same, so an account that has not asked yet is before the account of the flood."""
    questions = Questions(monkeypatch)
    async with asyncio.timeout(PATIENCE), login_session() as session:
        flood = await ask_all(session, questions, *["all"] * 20)
        await until(lambda: sum(task.done() for task in flood) == 17)
        others = await ask_all(session, questions, "mine", "secret")
        questions.release.set()
        assert sorted([await task for task in flood]) == [200] * 3 + [429] * 17
        assert [await task for task in others] == [200, 200]
        assert questions.accounts == ["all", "mine", "secret", "all", "all"]
        assert await ask(session, "all") == 200


async def test_the_account_whose_questions_cost_the_least_is_next(monkeypatch):
    questions = Questions(monkeypatch)
    questions.costs = {"all": 1e6, "mine": 1e3, "secret": 1.0}  # far apart, because costs decay
    async with asyncio.timeout(PATIENCE), login_session() as session:
        tasks = await ask_all(session, questions, *["all", "mine", "secret"] * 2)
        questions.release.set()
        assert await asyncio.gather(*tasks) == [200] * 6
    assert questions.accounts == ["all", "mine", "secret", "secret", "mine", "all"]


async def test_an_account_pays_for_questions_of_closed_connections(monkeypatch):
    questions = Questions(monkeypatch)
    async with asyncio.timeout(PATIENCE), login_session() as session:
        [closed] = await ask_all(session, questions, "all")
        closed.cancel()
        tasks = await ask_all(session, questions, "all", "mine")
        questions.release.set()
        assert await asyncio.gather(*tasks) == [200, 200]
    assert questions.accounts == ["all", "mine", "all"]


@pytest.mark.long
async def test_twenty_questions_of_one_account_delay_the_question_of_another_account_by_one():
    """The questions are computed, so their times are those of a dashboard."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 150, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}}}  # fmt: skip

    async def seconds_of(session, account):
        begun = time.monotonic()
        url = "/api/v1/simulate?add=n0%3D200"
        async with session.post(url, json=job, headers=bearer_header(account)) as answer:
            assert answer.status in (200, 429), await answer.text()
        return time.monotonic() - begun

    async with login_session() as session:
        alone = max([await seconds_of(session, account) for account in ("mine", "all")])
        flood = [asyncio.create_task(seconds_of(session, "all")) for _ in range(20)]
        await asyncio.sleep(alone / 2)
        assert await seconds_of(session, "mine") < 4 * alone
        await asyncio.gather(*flood)


async def test_questions_of_closed_connections_are_dropped(monkeypatch):
    questions = Questions(monkeypatch)
    async with asyncio.timeout(PATIENCE), login_session() as session:
        first = await ask_all(session, questions, "mine")
        async with aiohttp.ClientSession(session._base_url) as leaving_session:
            closed = await ask_all(leaving_session, questions, "all", "all", "all")
            for task in closed:
                task.cancel()
        await asyncio.wait(closed)
        last = await ask_all(session, questions, "secret")
        questions.release.set()
        assert await asyncio.gather(*first, *last) == [200, 200]
        assert questions.accounts == ["mine", "secret"]


async def test_no_question_begins_before_the_thread_of_a_closed_connection_ends(monkeypatch):
    questions = Questions(monkeypatch)
    async with asyncio.timeout(PATIENCE), login_session() as session:
        [closed] = await ask_all(session, questions, "mine")
        closed.cancel()
        [waiting] = await ask_all(session, questions, "secret")
        assert questions.accounts == ["mine"]
        questions.release.set()
        assert await waiting == 200


@pytest.mark.parametrize("path", ["/", "/waiting", "/api/v1/waiting", "/namespaces/mine", "/pods/mine/wants", "/api/v1/fleet"])  # fmt: skip
@pytest.mark.parametrize("account", ["mine", "all"])
async def test_only_pages_that_show_reasons_search_for_them(monkeypatch, path, account):
    searches, find_reasons = [], server.with_reasons
    monkeypatch.setattr(server, "with_reasons", lambda *arguments: searches.append(1) or find_reasons(*arguments))
    async with asyncio.timeout(PATIENCE), login_session() as session:
        for _ in range(2):
            await read_as(account, session, path)
    assert len(searches) == (path == "/" or "waiting" in path or "namespaces" in path)
