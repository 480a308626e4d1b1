import asyncio
import mmap
import os
import signal
from contextlib import suppress

import pytest

from runtime.http import Reply
from runtime.workers import Bug, Requester, Undecided, WorkerPool
from runtime.workers.pool import MAX_KEPT, MAX_MEMORY
from tests.limits import PATIENCE
from tests.waiting import until
from tests.webhook.admission.reviews import ENFORCE, gpu_pod, review
from webhook.admission import Answer, decide_review


def answer(path, body):
    """Return the worker's PID and the size of the body; some bodies end, block or fill the worker instead."""
    match body:
        case b"spin":
            while True:
                pass
        case b"die":
            os._exit(3)
        case b"eat":
            memory = []
            while True:
                memory.append(bytearray(16 << 20))
        case b"bug":
            raise RuntimeError("a bug")
    body_of_answer = f"{os.getpid()} {len(body)}".encode()
    return Reply(200, body_of_answer)


@pytest.fixture
async def pool(request):
    worker_pool = WorkerPool(2, getattr(request, "param", Reply))
    yield worker_pool
    worker_pool.close()


async def decide_in_pool(pool, body=b"", *, state="a state", seconds=60.0, account=""):
    outcome = await pool.decide(answer, state, "mutate", body, seconds, requester=Requester(account))
    pid, size = outcome.body.split()
    return int(pid), int(size)


def alive(pid):
    """Return whether the process exists; a zombie exists too."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def wait_until_gone(pid):
    await until(lambda: not alive(pid))


async def test_a_worker_process_is_reused_while_the_state_is_unchanged(pool):
    first_pid, size = await decide_in_pool(pool, b"x" * 5_000_000)
    assert first_pid != os.getpid()
    assert size == 5_000_000
    assert (await decide_in_pool(pool))[0] == first_pid
    other_pid, _ = await decide_in_pool(pool, state="a new one")
    assert other_pid != first_pid
    await wait_until_gone(first_pid)


async def test_without_a_state_a_worker_decides_once(pool):
    first_pid, _ = await decide_in_pool(pool, state=None)
    await wait_until_gone(first_pid)
    assert (await decide_in_pool(pool, state=None))[0] != first_pid


async def test_a_slow_worker_is_killed_and_its_review_left_undecided(pool):
    pid, _ = await decide_in_pool(pool)
    with pytest.raises(Undecided, match=r"more than 0.2 s"):  # the work itself never ends
        await decide_in_pool(pool, b"spin", seconds=0.2)
    await wait_until_gone(pid)
    assert (await decide_in_pool(pool))[0] != pid


@pytest.mark.parametrize(
    "body", [b"die", pytest.param(b"eat", marks=pytest.mark.linux("limits a worker by what /proc says of it"))]
)
async def test_a_worker_that_ends_leaves_its_review_undecided(pool, body):
    with pytest.raises(Undecided, match="ended"):
        await decide_in_pool(pool, body, seconds=30)
    assert (await decide_in_pool(pool))[1] == 0


@pytest.mark.parametrize("pool", [Answer], indirect=True)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_a_worker_has_enough_memory_for_the_largest_pod(pool, operation):
    """etcd stores at most 1.5 MiB per object. Many small values take the most memory to decode."""
    large_pod = gpu_pod()
    large_pod["spec"]["containers"][0]["env"] = [{"name": "a"}] * 120_000
    body = review(large_pod, operation=operation, old=large_pod if operation == "UPDATE" else None)
    outcome = await pool.decide(
        lambda path, request_body: decide_review(path, request_body, ENFORCE), ENFORCE, "mutate", body, 60.0
    )
    assert outcome.record.outcome == ("translated" if operation == "CREATE" else "untouched")


async def test_a_request_to_a_killed_idle_worker_goes_to_another(pool):
    """When memory runs out, the kernel kills workers first. The next review is not the cause."""
    pid, _ = await decide_in_pool(pool)
    os.kill(pid, signal.SIGKILL)
    other_pid, _ = await decide_in_pool(pool, b"honest")
    assert other_pid != pid


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_review_whose_worker_is_killed_is_decided_by_another(pool, tmp_path, stopped):
    first_worker, last_worker = tmp_path / "first", tmp_path / "last"

    def decide(path, body):
        if not first_worker.exists():
            first_worker.write_text(str(os.getpid()))
            if stopped:
                os.kill(os.getpid(), signal.SIGSTOP)
            while True:
                signal.pause()
        last_worker.write_text(str(os.getpid()))
        return answer(path, body)

    decision = asyncio.create_task(pool.decide(decide, "a state", "mutate", b"honest", 60.0))
    await until(lambda: first_worker.exists() and first_worker.read_text())
    os.kill(int(first_worker.read_text()), signal.SIGKILL)
    await decision
    assert last_worker.read_text() != first_worker.read_text()


@pytest.mark.parametrize("idle", [True, False])
async def test_a_request_to_a_stopped_worker_is_decided_by_another(pool, tmp_path, idle):
    """No worker has read the request, so it must not time out undecided."""
    stopped_worker = tmp_path / "stopped"

    def decide(path, body):
        if not stopped_worker.exists() and body == b"stop":
            stopped_worker.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        return answer(path, body)

    if idle:
        outcome = await pool.decide(decide, "a state", "mutate", b"", 60.0)
        stopped_worker.write_bytes(outcome.body.split()[0])
        os.kill(int(stopped_worker.read_text()), signal.SIGSTOP)
    async with asyncio.timeout(PATIENCE):
        outcome = await pool.decide(decide, "a state", "mutate", b"stop", 1_000.0)
    assert outcome.body.split()[0].decode() != stopped_worker.read_text()
    assert pool.counts["killed"] == 1
    await wait_until_gone(int(stopped_worker.read_text()))


async def test_a_busy_worker_is_not_mistaken_for_a_stopped_worker(pool, tmp_path):
    release = tmp_path / "release"

    def decide(path, body):
        while not release.exists():
            pass
        return answer(path, body)

    decision = asyncio.create_task(pool.decide(decide, "a state", "mutate", b"", 60.0))
    await until(lambda: pool._watch is not None)
    for _ in range(3):
        pool._find_stopped()
    release.touch()
    await decision
    assert pool.counts == {"forked": 1, "decided": 1}


@pytest.mark.linux("limits a worker by what /proc says of it")
async def test_a_review_in_a_full_worker_is_decided_by_another(pool):
    """A worker never collects the memory of its reviews. The pod whose review exceeds the limit is not the cause."""
    kept_memory = []

    def decide(path, body):
        kept_memory.append(bytearray(MAX_MEMORY * 3 // 4))
        return answer(path, body)

    # A worker that was forked from a large process may free inherited memory, and then decides one more review.
    answers = [await pool.decide(decide, "a state", "mutate", b"", 60.0) for _ in range(6)]
    assert len({answer.body for answer in answers}) > 1
    assert pool.counts["killed"] == len({answer.body for answer in answers}) - 1


async def test_a_cancelled_request_frees_its_slot_while_a_fork_waits():
    """A fork takes as long as a slow review, and workers that end together are replaced together."""
    permits = asyncio.Semaphore(0)
    pool = WorkerPool(1, Reply, before_fork=permits.acquire)
    cancelled, waiting = [asyncio.create_task(decide_in_pool(pool, account=name)) for name in ("gone", "asked")]
    await until(lambda: pool._slots._free == 0)
    assert pool.counts["forked"] == 0
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    permits.release()
    permits.release()
    pid, _ = await waiting
    assert pool.counts["forked"] == 1
    assert (await decide_in_pool(pool))[0] == pid, "an idle worker was not reused"
    pool.close()


async def test_a_bug_is_reported_and_the_worker_continues(pool):
    pid, _ = await decide_in_pool(pool)
    with pytest.raises(Bug, match="RuntimeError: a bug"):
        await decide_in_pool(pool, b"bug")
    assert (await decide_in_pool(pool))[0] == pid


async def test_excess_requests_are_rejected_at_once_while_workers_are_busy(pool):
    async def spin(number):
        with suppress(Undecided):
            await decide_in_pool(pool, b"spin", seconds=0.5, account=f"ns{number % 2}")

    spinning = [asyncio.create_task(spin(number)) for number in range(18)]
    await asyncio.sleep(0)  # each task has made its request now
    with pytest.raises(Undecided, match="too many"):
        await decide_in_pool(pool, account="ns0")
    assert pool.counts["forked"] == 2
    await asyncio.gather(*spinning)
    assert (await decide_in_pool(pool))[1] == 0


async def test_workers_hold_none_of_the_parents_connections(pool):
    read_end, write_end = os.pipe()
    await decide_in_pool(pool)
    os.close(write_end)
    # This would block if the worker held the write end, too.
    assert os.read(read_end, 1) == b"", "a worker has written to a pipe of its parent"
    os.close(read_end)


async def test_a_failed_fork_leaves_only_that_review_undecided(pool, monkeypatch):
    def refuse():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        patched.setattr("runtime.workers.pool.os.fork", refuse)
        with pytest.raises(Undecided, match="no worker could be started"):
            await decide_in_pool(pool)
    assert (await decide_in_pool(pool))[1] == 0


async def test_a_killed_worker_is_reaped_without_delaying_other_requests(pool, monkeypatch):
    """The kernel needs 50 ms to free 250 MiB. The event loop must not wait for this."""
    waits, waitpid = [], os.waitpid
    dying = asyncio.Event()

    def wait(pid, options):
        waits.append(options)
        return waitpid(pid, options) if dying.is_set() else (0, 0)

    pid, _ = await decide_in_pool(pool)
    monkeypatch.setattr("runtime.workers.pool.os.waitpid", wait)
    with pytest.raises(Undecided, match=r"more than 0.1 s"):
        await decide_in_pool(pool, b"spin", seconds=0.1, account="theirs")
    await until(lambda: len(waits) > 2)  # the pool polls for the end of the process
    assert (await decide_in_pool(pool))[0] != pid, "the killed worker has decided a review"
    dying.set()
    await wait_until_gone(pid)
    assert set(waits) == {os.WNOHANG}


async def test_a_killed_workers_slot_is_free_after_its_process_ends(monkeypatch):
    """Otherwise the ending process and its successor could exist at once, with memory for one."""
    pool, ended, waitpid = WorkerPool(1, Reply), [], os.waitpid
    monkeypatch.setattr("runtime.workers.pool.os.waitpid", lambda *arguments: waitpid(*arguments) if ended else (0, 0))
    for body in (b"spin", b"die", b""):  # only the first gets a worker
        with pytest.raises(Undecided, match="more than"):
            await decide_in_pool(pool, body, seconds=0.2)
    assert pool.counts["forked"] == 1
    ended.append(True)
    assert (await decide_in_pool(pool))[1] == 0
    with pytest.raises(Undecided, match="ended"):
        await decide_in_pool(pool, b"die")
    assert (await decide_in_pool(pool))[1] == 0
    pool.close()


async def test_no_worker_outlives_its_pool(pool):
    pid, _ = await decide_in_pool(pool)
    pool.close()
    assert not alive(pid)


def copy_pages(shared):
    """Write to each page that the worker shares with its parent; this needs no further addresses."""
    pages = range(0, len(shared), mmap.PAGESIZE)
    shared[:: mmap.PAGESIZE] = b"x" * len(pages)


def reserve_addresses(_):
    return mmap.mmap(-1, MAX_MEMORY * 3 // 4)


@pytest.mark.linux("reads a worker's memory from /proc")
@pytest.mark.parametrize("use_memory", [copy_pages, reserve_addresses])
async def test_a_worker_that_keeps_much_memory_ends_after_its_request(pool, use_memory):
    """Two idle workers with that much memory would take a large part of the pod's limit, and leave the next review too little of their own."""

    def decide(path, body):
        kept_memory.append(use_memory(shared) if path == "large" else b"x")
        return answer(path, body)

    kept_memory, shared = [], bytearray(MAX_KEPT)
    small = [await pool.decide(decide, "a state", "small", b"", 60.0) for _ in range(2)]
    large = await pool.decide(decide, "a state", "large", b"", 60.0)
    assert len({reply.body for reply in (*small, large)}) == 1
    await until(pool._idle[0].has_ended)
    later_reply = await pool.decide(decide, "a state", "small", b"", 60.0)
    assert later_reply.body != large.body
    assert pool.counts["killed"] == 0
