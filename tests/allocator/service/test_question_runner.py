"""Questions that exceed their turn on the event loop are computed in a thread, with the same answers, and block no other question.

A question asks, for example, which nodes of a stock (the objects of a fleet) can serve a pod.
"""

import asyncio
import random
import threading
import time
from functools import partial

import pytest
from msgspec.structs import replace

from allocator.decisions import BY_DEFAULT, Decider, Outlook
from allocator.service import question_runner, questions
from allocator.service.namespace_turns import NamespaceTurns
from allocator.service.question_runner import TURN, QuestionRunner
from cluster import resources
from cluster.patch import Merge
from dra.objects import Container, DeviceClass, Node, Pod
from dra.wire import convert
from tests.allocator.generate import FAMILIES
from tests.allocator.mixed_fleets import assemble_fleet
from tests.allocator.service import sidecar
from tests.limits import PATIENCE, draws
from tests.waiting import until


def new_runner(max_turn=0.02):
    runner = QuestionRunner(NamespaceTurns(asyncio.get_running_loop().time), max_turn)
    runner.seconds = PATIENCE
    return runner


def pod_of(claims):
    """Return a pod with these claims, all in one namespace."""
    return convert(
        {
            "metadata": {"name": "p", "namespace": claims[0].metadata.namespace, "uid": "p"},
            "spec": {
                "resourceClaims": [
                    {"name": f"c{i}", "resourceClaimName": claim.metadata.name} for i, claim in enumerate(claims)
                ]
            },
        },
        Pod,
    )


def question_of(family, seed):
    """Return a pod, and a random stock of a family (a kind of random fleet) with unallocated claims, which the pod uses."""
    stock, claims = assemble_fleet(family, 70_000 + seed, random.Random(seed))
    for claim in claims:
        stock = stock.with_object(claim)
    return pod_of(claims), stock


@pytest.mark.whole
def test_concurrent_questions_get_the_same_answers_as_sequential_questions():
    """All questions exceed their turn and are computed in the thread, while the loop computes other questions on the same stocks."""
    differences = []
    for family in FAMILIES:
        for first_seed in range(0, draws(16), 4):
            questions = [question_of(family, first_seed + i // 2) for i in range(4)]
            expected_answers = [Decider().outlook(pod, stock) for pod, stock in questions]
            answers = asyncio.run(answer_concurrently(questions))
            differences += [
                (family, first_seed, i) for i, (answer, expected_answer) in enumerate(zip(answers, expected_answers, strict=True)) if not is_as_expected(answer, expected_answer)
            ]  # fmt: skip
    assert differences == []


async def answer_concurrently(questions):
    """Return the answers of a runner that gets all questions at once."""
    runner = new_runner(max_turn=-1.0)
    tasks = [
        asyncio.create_task(runner.answer(f"n{i}", partial(outlook, pod, stock)))
        for i, (pod, stock) in enumerate(questions)
    ]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(TURN / 20)  # a loop that never rests can keep the thread waiting
        for pod, stock in questions:
            runner._on_loop.count_fitting([pod], stock)
    return [task.result() for task in tasks]


def outlook(pod, stock, decider):
    decider.is_abandoned()
    return decider.outlook(pod, stock)


async def test_a_question_that_raises_is_charged():
    turns = NamespaceTurns(asyncio.get_running_loop().time)

    def question(_):
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await QuestionRunner(turns).answer("team", question)
    assert turns.owed("team") > 0


async def test_a_thread_that_cannot_start_does_not_block_later_questions(monkeypatch):
    runner = new_runner(max_turn=-1.0)

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            await runner.answer_in_thread("team", lambda _: 1)
    assert await asyncio.wait_for(runner.answer_in_thread("team", lambda _: 2), PATIENCE) == 2


EXTENDED_RESOURCE = "example.com/by-name"
QUICK_FAMILIES = (
    "general",
    "tight",
    "admin",
    "shares",
    "places",
    "clash",
)  # no deep searches: many questions in little time


def with_extended_resource(pod, stock):
    """Return the pod with a request for an extended resource, and a stock where any device or a device plugin on every second node serves it."""
    selector = {"cel": {"expression": "device.driver != ''"}}
    device_class = sidecar.device_class("served", extendedResourceName=EXTENDED_RESOURCE, selectors=[selector])
    plugin_nodes = [sidecar.node(name, allocatable={EXTENDED_RESOURCE: "1"}) for name in list(stock.nodes)[::2]]
    stock = stock.with_all(
        [convert(device_class, DeviceClass), *(convert(plugin_node, Node) for plugin_node in plugin_nodes)]
    )
    containers = convert([{"name": "c", "resources": {"limits": {EXTENDED_RESOURCE: "1"}}}], tuple[Container, ...])
    return replace(pod, spec=replace(pod.spec, containers=containers)), stock


def ask(decider, kind, pod, stock):
    match kind:
        case "outlook":
            return decider.outlook(pod, stock)
        case "by_plugin":
            return decider.outlook(pod, stock, by_plugin=True)
        case "crowded":
            return decider.outlook(pod, stock, BY_DEFAULT, {next(iter(stock.nodes), "none"): "crowded"})
        case "serve":
            return decider.serve(pod, next(iter(stock.nodes), "none"), stock)


def ask_all(decider, plan):
    """Ask several questions in one call. Earlier answers decide which questions are skipped, as in `questions.find_serving_nodes`."""
    answers = []
    for kind, pod, stock in plan:
        if not answers or kind == "by_plugin" or getattr(answers[-1], "nodes", ()) or len(answers) % 2:
            answers.append(ask(decider, kind, pod, stock))
    return answers


def is_as_expected(answer, expected_answer):
    """Return whether an answer is correct. Any answer is correct if a new decider did not finish."""
    if getattr(expected_answer, "outlook", None) is Outlook.UNDECIDED:
        return True  # the limit of steps was reached, and a second attempt may find an answer
    return answer == expected_answer


def test_interrupted_questions_leave_no_wrong_answer_in_the_cache():
    """A question is interrupted at a random check of the clock, repeatedly; the decider answers later questions correctly."""
    abandoned = 0
    for seed in range(draws(24)):
        rng = random.Random(seed)
        cases = [question_of(rng.choice(QUICK_FAMILIES), rng.randrange(1000)) for _ in range(4)]
        cases += [with_extended_resource(pod, stock) for pod, stock in cases]
        cases += [(pod, stock.idle().with_all(stock.claims.values())) for pod, stock in cases]
        decider = Decider()
        for _ in range(24):
            pod, stock = rng.choice(cases)
            plan = [(rng.choice(("outlook", "by_plugin", "crowded", "serve")), pod, stock) for _ in range(5)]
            checks_left = rng.randrange(6)

            def is_abandoned():
                nonlocal checks_left
                checks_left -= 1
                return checks_left < 0

            decider.is_abandoned = is_abandoned
            ask_all(decider, plan)
            abandoned += checks_left < 0
            decider.is_abandoned = lambda: False
            expected_answers = ask_all(Decider(), plan)
            answers = ask_all(decider, plan)
            assert len(answers) == len(expected_answers), seed
            assert all(map(is_as_expected, answers, expected_answers)), (seed, [kind for kind, *_ in plan])
    assert abandoned > draws(24)


class SlowQuestion:
    """A question that exceeds a turn, and stays in the thread until `may_end` is set."""

    def __init__(self, name, order):
        self.name, self.order = name, order
        self.may_end, self.begun, self.was_given_up = threading.Event(), threading.Event(), False

    def __call__(self, decider):
        if threading.current_thread() is threading.main_thread():
            while not decider.is_abandoned():
                pass
            return None
        self.begun.set()
        self.order.append(self.name)
        deadline = time.monotonic() + PATIENCE
        while not self.may_end.wait(0.001) and time.monotonic() < deadline:
            if decider.is_abandoned():
                self.was_given_up = True
                break
        return self.name


async def test_the_question_of_the_namespace_with_least_debt_is_next():
    """A namespace owes a debt: the time that the questions about its pods took."""
    runner, order = new_runner(max_turn=0.001), []
    slow_questions = [SlowQuestion(name, order) for name in ("first", "hog", "hog", "team")]
    tasks = [asyncio.create_task(runner.answer(question.name, question)) for question in slow_questions]
    await until(slow_questions[0].begun.is_set)
    runner._turns.owe("hog", 1.0, 1.0)
    for question in slow_questions:
        question.may_end.set()
    assert await asyncio.gather(*tasks) == ["first", "hog", "hog", "team"]
    assert order == ["first", "team", "hog", "hog"]


async def test_a_cancelled_question_ends_and_the_next_is_computed():
    runner, order = new_runner(max_turn=0.001), []
    running, waiting, last = (SlowQuestion(name, order) for name in ("running", "waiting", "last"))
    tasks = [asyncio.create_task(runner.answer("n", question)) for question in (running, waiting, last)]
    await until(running.begun.is_set)
    for task in tasks[:2]:
        task.cancel()
    await until(last.begun.is_set)
    last.may_end.set()
    assert await tasks[2] == "last"
    assert (running.was_given_up, order) == (True, ["running", "last"])


async def test_a_question_ends_at_its_time_limit():
    runner = new_runner(max_turn=0.001)
    slow_question = SlowQuestion("slow", [])
    runner.seconds = 0.05
    assert await runner.answer("n", slow_question) == "slow"
    assert slow_question.was_given_up


class Pauses(threading.Event):
    """Records that a search pauses until no question waits or runs."""

    def __init__(self):
        super().__init__()
        self.set()
        self.begun = threading.Event()

    def wait(self, timeout=None):
        self.begun.set()
        return super().wait(timeout)


async def test_a_victim_search_pauses_for_other_questions(monkeypatch):
    """The pause does not count toward the time limit of the search."""
    now = 0.0
    monkeypatch.setattr(question_runner, "monotonic", lambda: now)
    runner = new_runner(max_turn=0.001)
    runner._no_question = pauses = Pauses()
    search, question = SlowQuestion("search", []), SlowQuestion("question", [])
    searching = asyncio.create_task(runner.search("n", search, 1.0))
    await until(search.begun.is_set)
    answering = asyncio.create_task(runner.answer("other", question))
    await until(lambda: question.begun.is_set() and pauses.begun.is_set())
    now = 2.0
    question.may_end.set()
    assert await answering == "question"
    search.may_end.set()
    assert await searching == "search"
    assert not search.was_given_up, "the pause counted"


async def test_a_victim_search_does_not_pause_forever(monkeypatch):
    monkeypatch.setattr(question_runner, "REST", 0.2)
    runner = new_runner(max_turn=0.001)
    search, question = SlowQuestion("search", []), SlowQuestion("question", [])
    answering = asyncio.create_task(runner.answer("other", question))
    await until(question.begun.is_set)
    assert await runner.search("n", search, 0.1) == "search"
    assert not answering.done()
    question.may_end.set()
    assert await answering == "question"


async def test_an_error_in_the_thread_is_raised_in_the_caller():
    """The next question is computed."""
    runner = new_runner(max_turn=0.001)

    def fail(decider):
        if threading.current_thread() is threading.main_thread():
            while not decider.is_abandoned():
                pass
            return
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await runner.answer("n", fail)
    slow_question = SlowQuestion("slow", [])
    slow_question.may_end.set()
    assert await runner.answer("n", slow_question) == "slow"


async def test_time_in_the_thread_adds_to_the_namespaces_debt():
    runner = new_runner(max_turn=0.001)

    def work(decider):
        deadline = time.thread_time() + 0.1
        while time.thread_time() < deadline and not (
            threading.current_thread() is threading.main_thread() and decider.is_abandoned()
        ):
            pass

    await runner.answer("hog", work)
    assert runner._turns.owed("hog") > 0.1
    assert runner._turns.owed("team") == 0


@pytest.mark.parametrize("change", ["another pod gets the device", "the device is gone", "nothing changes"])
async def test_a_threads_reservation_is_recomputed_only_after_a_change(monkeypatch, change):
    thread_has_served, may_end, decisions = threading.Event(), threading.Event(), 0
    serve = questions.serve

    def serve_long(pod, *arguments):
        nonlocal decisions
        if pod.metadata.name != "p":
            return serve(pod, *arguments)
        decisions += 1
        arguments[-1].is_abandoned()
        serving = serve(pod, *arguments)
        if threading.current_thread() is not threading.main_thread():
            thread_has_served.set()
            assert may_end.wait(PATIENCE)
        return serving

    cluster = sidecar.loaded(*sidecar.fleet(1, 2), *map(sidecar.claim, "ab"), sidecar.pod("p", "a"), sidecar.pod("q", "b"))  # fmt: skip
    async with sidecar.running(cluster) as client:
        answer = await client.prefilter("p")
        monkeypatch.setattr(questions, "serve", serve_long)
        client.service.runner._turn = -1.0  # every question exceeds its turn
        reserving = asyncio.create_task(client.plugin("reserve", {"token": answer["token"], "node": "n0"}))
        await until(thread_has_served.is_set)
        client.service.runner._turn = TURN
        if change == "another pod gets the device":
            assert (await client.place("q"))[0] == 200
            assert await client.allocated_devices("b") == ["n0/gpu-0"]
        elif change == "the device is gone":
            stock = client.service.knowledge.stock
            devices = [{"name": "gpu-1"}]
            pool = {"name": "n0", "generation": 2, "resourceSliceCount": 1}
            await cluster.patch(
                resources.RESOURCE_SLICES, "n0-gpus", Merge({"spec": {"devices": devices, "pool": pool}})
            )
            await until(lambda: client.service.knowledge.stock is not stock)
        may_end.set()
        status, reserved = await reserving
        assert status == 200
        assert (await client.plugin("commit", reserved))[0] == 200
        assert await client.allocated_devices("a") == ["n0/gpu-0" if change == "nothing changes" else "n0/gpu-1"]
    assert decisions == (2 if change == "nothing changes" else 3)  # on the loop, in the thread, and after a change
