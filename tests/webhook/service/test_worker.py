import asyncio
import gc
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from weakref import WeakSet, ref

import pytest

from runtime.http import Reply
from runtime.workers import Bug, Requester, Undecided, WorkerPool
from tests.limits import PATIENCE
from tests.waiting import until
from tests.webhook.admission.test_decide import ENFORCE, pod, review
from webhook.admission import Answer
from webhook.admission.review import mutate
from webhook.service.deciding import cpu_timer as timer_module
from webhook.service.deciding.cpu_timer import CpuTimer, Overtime, _guard


def answer(path, body):
    """Make a decision that depends on the review, as the webhook's does."""
    match body:
        case b"spin":
            while True:
                pass
        case b"die":
            os._exit(3)
        case b"eat":
            held = []
            while True:
                held.append(bytearray(16 << 20))
        case b"bug":
            raise RuntimeError("a bug")
    said = f"{os.getpid()} {len(body)}".encode()
    return Reply(200, said)


@pytest.fixture
async def pool(request):
    made = WorkerPool(2, getattr(request, "param", Reply))
    yield made
    made.close()


async def ask(pool, body=b"", *, state="a state", seconds=60.0, account=""):
    outcome = await pool.decide(answer, state, "mutate", body, seconds, requester=Requester(account))
    pid, size = outcome.body.split()
    return int(pid), int(size)


def alive(pid):
    """Whether there is anything of it, be it its name alone."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def gone(pid):
    await until(lambda: not alive(pid))


async def test_a_review_is_decided_in_another_process_that_serves_again_while_the_state_is_the_same(pool):
    first, size = await ask(pool, b"x" * 5_000_000)
    assert first != os.getpid()
    assert size == 5_000_000
    assert (await ask(pool))[0] == first
    other, _ = await ask(pool, state="a new one")
    assert other != first
    await gone(first)


async def test_without_a_state_a_worker_decides_once(pool):
    first, _ = await ask(pool, state=None)
    await gone(first)
    assert (await ask(pool, state=None))[0] != first


async def test_a_worker_that_takes_too_long_is_killed_and_its_review_is_undecided(pool):
    pid, _ = await ask(pool)
    with pytest.raises(Undecided, match=r"more than 0.2 s"):  # the work itself never ends
        await ask(pool, b"spin", seconds=0.2)
    await gone(pid)
    assert (await ask(pool))[0] != pid


@pytest.mark.parametrize(
    "body", [b"die", pytest.param(b"eat", marks=pytest.mark.linux("limits a worker by what /proc says of it"))]
)
async def test_a_worker_that_ends_by_itself_or_by_its_limit_of_memory_leaves_a_review_undecided(pool, body):
    with pytest.raises(Undecided, match="ended"):
        await ask(pool, body, seconds=30)
    assert (await ask(pool))[1] == 0


@pytest.mark.parametrize("pool", [Answer], indirect=True)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_the_memory_of_a_worker_is_enough_for_the_largest_pod_that_can_be_stored(pool, operation):
    """An etcd takes 1.5 MiB; nothing is dearer to read than many small values."""
    full = pod()
    full["spec"]["containers"][0]["env"] = [{"name": "a"}] * 120_000
    body = review(full, operation=operation, old=full if operation == "UPDATE" else None)
    outcome = await pool.decide(lambda _, asked: mutate(asked, ENFORCE), ENFORCE, "mutate", body, 60.0)
    assert outcome.record.outcome == ("translated" if operation == "CREATE" else "untouched")


async def test_a_request_to_a_worker_that_was_killed_while_idle_goes_to_another_worker(pool):
    """The kernel takes workers first where memory runs out, and the next review has done nothing."""
    pid, _ = await ask(pool)
    os.kill(pid, signal.SIGKILL)
    other, _ = await ask(pool, b"honest")
    assert other != pid


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_review_whose_worker_is_killed_under_it_is_decided_by_another(pool, tmp_path, stopped):
    first, told = tmp_path / "first", tmp_path / "told"

    def decide(path, body):
        if not first.exists():
            first.write_text(str(os.getpid()))
            if stopped:
                os.kill(os.getpid(), signal.SIGSTOP)
            while True:
                signal.pause()
        told.write_text(str(os.getpid()))
        return answer(path, body)

    asked = asyncio.create_task(pool.decide(decide, "a state", "mutate", b"honest", 60.0))
    await until(lambda: first.exists() and first.read_text())
    os.kill(int(first.read_text()), signal.SIGKILL)
    await asked
    assert told.read_text() != first.read_text()


@pytest.mark.parametrize("idle", [True, False])
async def test_a_request_to_a_worker_that_stays_stopped_is_decided_by_another_worker(pool, tmp_path, idle):
    """It passed undecided when its time was over, though it was not looked at."""
    first = tmp_path / "first"

    def decide(path, body):
        if not first.exists() and body == b"stop":
            first.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        return answer(path, body)

    if idle:
        outcome = await pool.decide(decide, "a state", "mutate", b"", 60.0)
        first.write_bytes(outcome.body.split()[0])
        os.kill(int(first.read_text()), signal.SIGSTOP)
    async with asyncio.timeout(PATIENCE):
        outcome = await pool.decide(decide, "a state", "mutate", b"stop", 1_000.0)
    assert outcome.body.split()[0].decode() != first.read_text()
    assert pool.counts["killed"] == 1
    await gone(int(first.read_text()))


async def test_a_worker_at_work_is_not_taken_for_a_stopped_one(pool, tmp_path):
    release = tmp_path / "release"

    def decide(path, body):
        while not release.exists():
            pass
        return answer(path, body)

    asked = asyncio.create_task(pool.decide(decide, "a state", "mutate", b"", 60.0))
    await until(lambda: pool._watch is not None)
    for _ in range(3):
        pool._find_stopped()
    release.touch()
    await asked
    assert pool.counts == {"forked": 1, "decided": 1, "killed": 0, "crowded": 0}


@pytest.mark.linux("limits a worker by what /proc says of it")
async def test_an_honest_review_in_a_worker_that_others_have_filled_is_decided_by_another(pool):
    """The memory that a worker's reviews leave behind is never collected: the last drop is not the fault of the pod that comes with it."""
    left = []

    def decide(path, body):
        left.append(bytearray(100 << 20))  # of 128 MiB that a worker may have
        return answer(path, body)

    # A process that was forked from a large one may have given some of that back: then it bears one more.
    answers = [await pool.decide(decide, "a state", "mutate", b"", 60.0) for _ in range(6)]
    assert len({one.body for one in answers}) > 1
    assert pool.counts["killed"] == len({one.body for one in answers}) - 1


async def test_a_process_is_copied_in_its_own_turn_and_a_request_gone_meanwhile_keeps_no_place():
    """To copy one takes as long as a slow review, and workers that end together are replaced together."""
    turns = asyncio.Semaphore(0)
    pool = WorkerPool(1, Reply, turn=turns.acquire)
    gone, asked = [asyncio.create_task(ask(pool, account=name)) for name in ("gone", "asked")]
    await until(lambda: pool._semaphore._free == 0)
    assert pool.counts["forked"] == 0
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    turns.release()
    turns.release()
    pid, _ = await asked
    assert pool.counts["forked"] == 1
    assert (await ask(pool))[0] == pid, "a pod that is there needs no turn"
    pool.close()


async def test_a_bug_is_told_and_the_worker_goes_on(pool):
    pid, _ = await ask(pool)
    with pytest.raises(Bug, match="RuntimeError: a bug"):
        await ask(pool, b"bug")
    assert (await ask(pool))[0] == pid


async def test_the_parent_turns_while_workers_work_and_a_crowd_is_sent_away_at_once(pool):
    async def one(number):
        with suppress(Undecided):
            await ask(pool, b"spin", seconds=0.5, account=f"ns{number % 2}")

    spinning = [asyncio.create_task(one(number)) for number in range(18)]
    await asyncio.sleep(0)  # now each of them has asked
    with pytest.raises(Undecided, match="too many"):
        await ask(pool, account="ns0")
    assert pool.counts["forked"] == 2
    await asyncio.gather(*spinning)
    assert (await ask(pool))[1] == 0


async def test_workers_hold_none_of_the_parents_connections(pool):
    theirs, ours = os.pipe()
    await ask(pool)
    os.close(ours)
    assert os.read(theirs, 1) == b"", "a worker that had the other end would keep this waiting"
    os.close(theirs)


async def test_where_no_process_can_be_made_a_review_is_undecided_and_the_next_may_be_luckier(pool, monkeypatch):
    def refuse():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        patched.setattr("runtime.workers.pool.os.fork", refuse)
        with pytest.raises(Undecided, match="no worker could be started"):
            await ask(pool)
    assert (await ask(pool))[1] == 0


async def test_other_requests_do_not_wait_for_a_killed_worker_and_it_is_reaped(pool, monkeypatch):
    """To take down 250 MiB takes the kernel 50 ms, in which the loop stood still."""
    waits, waitpid = [], os.waitpid
    dying = asyncio.Event()

    def wait(pid, options):
        waits.append(options)
        return waitpid(pid, options) if dying.is_set() else (0, 0)

    pid, _ = await ask(pool)
    monkeypatch.setattr("runtime.workers.pool.os.waitpid", wait)
    with pytest.raises(Undecided, match=r"more than 0.1 s"):
        await ask(pool, b"spin", seconds=0.1, account="theirs")
    await until(lambda: len(waits) > 2)  # it is looked for again and again
    assert (await ask(pool))[0] != pid, "others are served meanwhile"
    dying.set()
    await gone(pid)
    assert set(waits) == {os.WNOHANG}


async def test_the_slot_of_a_killed_worker_is_not_reused_before_its_process_is_gone(monkeypatch):
    """Else there were four of them for a while, where two have their memory."""
    pool, gone, waitpid = WorkerPool(1, Reply), [], os.waitpid
    monkeypatch.setattr("runtime.workers.pool.os.waitpid", lambda *asked: waitpid(*asked) if gone else (0, 0))
    for body, why in ((b"spin", "more than"), (b"die", "more than"), (b"", "more than")):
        with pytest.raises(Undecided, match=why):
            await ask(pool, body, seconds=0.2)
    assert pool.counts["forked"] == 1
    gone.append(True)
    assert (await ask(pool))[1] == 0
    with pytest.raises(Undecided, match="ended"):
        await ask(pool, b"die")
    assert (await ask(pool))[1] == 0
    pool.close()


async def test_no_worker_outlives_its_pool(pool):
    pid, _ = await ask(pool)
    pool.close()
    assert not alive(pid)


def test_the_alarm_ends_work_that_catches_every_exception():
    timer = CpuTimer()
    timer.install()

    def stubborn():
        while True:
            with suppress(Exception):
                sum(range(100))

    started = time.process_time()  # the timer counts what this process works
    with pytest.raises(Overtime):
        timer.within(0.02, stubborn)
    assert time.process_time() - started < 1


def spin(seconds):
    """Use some CPU, which is what the timer counts."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_the_alarm_leaves_work_that_is_in_time_alone_and_never_rings_after_it():
    timer = CpuTimer()
    timer.install()
    assert timer.within(0.01, lambda: 3) == 3
    with pytest.raises(KeyError):
        timer.within(0.01, lambda: {}["x"])
    spin(0.05)


def test_an_alarm_that_rings_too_early_is_not_heard_and_rings_again():
    """The kernel counts a whole tick for the process at work when it comes: in a crowd 10 ms were over after 5, for honest work as well."""
    timer = CpuTimer()
    timer.install()

    def work():
        for _ in range(50):
            signal.raise_signal(signal.SIGPROF)
        return "done"

    assert timer.within(60, work) == "done"
    with pytest.raises(Overtime):
        timer.within(0.01, lambda: work() and spin(10))


def test_the_cpu_timer_does_not_count_the_work_of_other_threads():
    timer = CpuTimer()
    timer.install()
    go, done = threading.Event(), threading.Event()

    def toil():
        go.wait(PATIENCE)
        spin(0.2)
        done.set()

    thread = threading.Thread(target=toil)
    thread.start()
    try:
        assert timer.within(0.1, lambda: go.set() or done.wait(PATIENCE))
    finally:
        thread.join()


def test_a_timer_left_on_interrupts_no_later_work_and_is_switched_off():
    """Another signal's exception may come between the work and its end."""
    CpuTimer().install()
    signal.setitimer(signal.ITIMER_PROF, 0.005, 0.005)
    spin(0.05)
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_one_alarm_of_several_in_a_process_rings_for_its_own_work():
    first, second = CpuTimer(), CpuTimer()
    first.install()
    second.install()
    with pytest.raises(Overtime):
        first.within(0.01, lambda: spin(10))


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 12),
    reason="Python 3.12 traces no instructions of a frame that asks for it when it is called",
)
def test_wherever_the_alarm_rings_it_ends_the_work_or_nothing(request):
    """It is rung at each instruction before, in and after the work, one after the other."""
    timer = CpuTimer()
    timer.install()
    endings = set()
    # What rings while the collector runs a callback is lost, and rung again 5 ms later; here it rings once.
    gc.disable()
    request.addfinalizer(gc.enable)
    for position in range(200):
        told, rung_in_work, passed = rung_at(position, timer)
        assert (told == "ended") is rung_in_work
        assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
        if passed <= position:
            break
        endings.add((told, rung_in_work))
    assert passed <= position, "every instruction has had its turn"
    assert endings == {("done", False), ("ended", True)}


def rung_at(position, timer):
    """Ring at an instruction of `asked` and what it calls; return what became of the work, and whether the work was rung at."""
    passed, rung_in_work = 0, False

    def trace(frame, event, _):
        nonlocal passed, rung_in_work
        frame.f_trace_opcodes = True
        if event == "opcode":
            passed += 1
            if passed == position + 1:
                stack = [one.f_code for one, _ in traceback.walk_stack(frame)]
                rung_in_work = _guard.__code__ in stack
                signal.raise_signal(signal.SIGPROF)
        return trace

    def asked():
        told = call()
        return told + ""

    def call():
        try:
            return timer.within(0.0, lambda: "done")  # its time is over, and it is rung at by hand
        except Overtime:
            return "ended"

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        told = asked()
    finally:
        sys.settrace(before)
    return told, rung_in_work, passed


def test_an_import_inside_of_the_work_is_ended_by_itself(tmp_path, monkeypatch):
    (tmp_path / "brought_late.py").write_text(
        "import time\nbegun = True\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass\nwhole = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    timer = CpuTimer()
    timer.install()

    def work():
        import brought_late  # noqa: F401  as a library may do

        spin(10)

    with pytest.raises(Overtime):
        timer.within(0.02, work)
    assert sys.modules.pop("brought_late").whole


def test_a_weak_set_callback_within_the_work_runs_to_its_end_before_the_overtime():
    """An exception there is swallowed, and written to standard error; the timer rings again for the work itself."""
    timer = CpuTimer()
    timer.install()
    forgetting = WeakSet()._remove
    ended = []

    def owner():
        spin(0.05)
        ended.append(True)

    def work():
        forgetting(None, selfref=owner)  # as a weak reference to a member does when the member is gone
        spin(10)

    with pytest.raises(Overtime):
        timer.within(0.02, work)
    assert ended == [True]


def test_the_cpu_timer_does_not_interrupt_gc_callbacks_of_other_code(request):
    """It swallows what is raised in it, too, and its caller would miss half of what it counts."""
    gc.collect()
    timer = CpuTimer()
    timer.install()
    ended = []

    def counted(phase, _):
        spin(0.05)
        ended.append(phase)

    gc.callbacks.append(counted)
    timer.install()  # ours stand around all others
    request.addfinalizer(lambda: gc.callbacks.remove(counted))

    def work():
        gc.collect()
        spin(10)

    with pytest.raises(Overtime):
        timer.within(0.02, work)
    assert ended[:2] == ["start", "stop"]


class Slow:
    """What takes its time to go."""

    def __init__(self, ended):
        self.ended = ended

    def __del__(self):
        spin(0.05)
        self.ended.append("gone")


def in_a_circle(ended):
    one = Slow(ended)
    one.itself = one
    return gc.collect


def in_a_weak_reference(ended):
    def gone(_):
        spin(0.05)
        ended.append("gone")

    one = type("Plain", (), {})()
    one.itself = one
    ended.watcher = ref(one, gone)
    return gc.collect


def at_once(ended):
    kept = [Slow(ended)]
    return kept.clear


class Ended(list):
    pass


@pytest.mark.parametrize("going", [in_a_circle, in_a_weak_reference, at_once])
def test_destructors_and_weakref_callbacks_within_the_work_run_to_their_end(going):
    """An exception in a destructor or while the collector is at work never reaches the work, and a report of it fails."""
    gc.collect()
    timer = CpuTimer()
    timer.install()
    ended = Ended()
    go = going(ended)

    def work():
        go()
        spin(10)

    with pytest.raises(Overtime):
        timer.within(0.02, work)
    assert ended == ["gone"]


def test_a_collection_in_another_thread_that_does_not_end_silences_nothing(request):
    """A look at a large fleet is made in a thread, and has the collector at work there."""
    gc.collect()
    gc.disable()  # here it is at work where it is called, and nowhere else
    request.addfinalizer(gc.enable)
    timer = CpuTimer()
    timer.install()
    go, begun, over = (threading.Event() for _ in range(3))

    class Lasting:
        def __del__(self):
            begun.set()
            over.wait(PATIENCE)

    def collect():
        one = Lasting()
        one.itself = one
        del one
        go.wait(PATIENCE)
        gc.collect()

    def work():
        go.set()
        assert begun.wait(PATIENCE)
        spin(10)

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        with pytest.raises(Overtime):
            timer.within(0.1, work)
    finally:
        over.set()
        thread.join()


def test_callbacks_that_are_taken_away_in_the_middle_silence_one_piece_of_work_at_most(monkeypatch):
    timer = CpuTimer()
    timer.install()
    monkeypatch.setattr(timer_module._COLLECTOR, "is_running", True)
    with pytest.raises(Overtime):
        timer.within(0.02, lambda: spin(10))
