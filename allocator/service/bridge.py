"""The bridge itself: schedulers ask, the ledger holds, claims are written. HTTP and processes are somebody else's.

    ask ──▶ Decider ──▶ token ──reserve──▶ Assume ─┐
                                   commit ──▶ Commit ├──▶ ledger ──▶ writes ──▶ outcomes ──▶ ledger ...
    informers ──────────▶ ClaimSeen, PodSeen, ... ─┘        └──▶ Ready / Dropped ──▶ the answer to the commit

Everything happens on one loop, and between reading the stock and holding devices nothing is awaited. So two questions
cannot be given one device; two replicas are kept apart by the lease, and by the versions that every write is conditioned on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar, assert_never

import msgspec

from allocator.decisions import (
    Decider,
    Outlook,
    Outlooks,
    UnknownStrategy,
    Unserved,
    devices_ready,
    discreet,
    full_nodes,
    placement_of,
    shape_of,
    wants_of,
    with_pods,
)
from allocator.one_node import Options
from allocator.preemption import without_pods
from allocator.reservations import (
    Assume,
    ClaimGone,
    ClaimPart,
    ClaimRead,
    ClaimSeen,
    Commit,
    Declined,
    Dropped,
    Exceeded,
    Followed,
    Freed,
    Led,
    Ledger,
    Lost,
    PatchAllocation,
    PatchFinalizer,
    PatchReservedFor,
    PodGone,
    PodRead,
    PodSeen,
    Ready,
    Reread,
    RereadPod,
    State,
    Tell,
    Terms,
    Tick,
    Unallocate,
    Unreserve,
    Wake,
    overlaps,
    pools_of,
    step,
)
from allocator.service.commits import Commits
from allocator.service.fairness.compatibilities import Compatibilities
from allocator.service.fairness.nominations import Nominations
from allocator.service.fairness.quotas import Quotas
from allocator.service.knowledge import Knowledge
from allocator.service.replies import Refusal
from allocator.service.wakes import Refusals, Wakes
from cluster.errors import ApiError, NotFound
from cluster.informers import Backoff
from cluster.resources import PODS, RESOURCE_CLAIMS
from dra.objects import is_later

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping

    from allocator.decisions import Placement, PlacementRules
    from allocator.reservations import ClaimWrite, Effect, Event, Reservation
    from cluster.protocol import Cluster
    from cluster.resources import Resource
    from dra.objects import Pod, ResourceClaim
    from dra.policy import QuotaLine
    from dra.stock import PoolId, Stock

T = TypeVar("T")
Object = TypeVar("Object", "Pod", "ResourceClaim")

logger = logging.getLogger("drawbridge.allocator")
TOKENS = 16384  # questions that may still be followed by a reservation
PAUSE = 0.25  # seconds before a claim is looked at again whose write has no answer
PAGE = 2000  # claims read at once by who begins to lead: everybody waits for it
WRITERS = 64  # writes under way at once
_WORTH_WAKING = (Outlook.FULL, Outlook.UNDECIDED)


class Progress(msgspec.Struct, frozen=True):
    """How far a commit is: done, or what it waits for."""

    committed: bool
    message: str = ""


class Bridge:
    """Answers schedulers, as long as it leads."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        schedulers: Collection[str],
        rules: PlacementRules,
        new_token: Callable[[], str],
        say: Callable[[Pod, str], Awaitable[None]],
        sure: Callable[[], bool],
        count_write: Callable[[str, str], None],
        count_outlook: Callable[[str, float], None],
        terms: Terms | None = None,
    ) -> None:
        """`say` says something to people about a pod; `sure` is whether nobody else can lead by now.

        `count_write` and `count_outlook` are for metrics.
        """
        self._cluster = cluster
        self._schedulers = frozenset(schedulers)
        self._new_token = new_token
        self._say = say
        self._count_outlook = count_outlook
        self._sure = sure
        self._terms = terms or Terms()
        self.ledger = Ledger(terms=self._terms)
        self.decider = Decider()
        self._rules = rules
        self.wakes = Wakes()
        self._refused = Refusals(self.wakes, self._may_fit, self._later)
        self.commits = Commits(cluster, may_write=self._may_write, count=count_write)
        self.knowledge = Knowledge(
            cluster,
            on_claim=self._on_claim,
            on_pod=self._on_pod,
            on_devices=self._on_devices,
            on_quota=self._refused.wake,
            on_namespace=self._wake_waiting,
        )
        self.quotas = Quotas(cluster, self.knowledge, may_write=self._may_write, unwritten=self._unwritten)
        self._clock = clock = asyncio.get_running_loop().time
        followed = self.knowledge.compatibilities
        self.compatibilities = Compatibilities(cluster, followed, may_write=self._may_write, clock=clock)
        self._asked: OrderedDict[str, Pod] = OrderedDict()  # by token: whose question it was
        self._commits_waiting: dict[str, asyncio.Future[str]] = {}
        self._hopeless: dict[str, str] = {}  # pods for which there have to be other devices, by uid
        self._waiting: dict[str, Pod] = {}  # pods that lack an object, by uid
        self._pods: dict[str, Pod] = {}  # ours, by uid
        self.nominations = Nominations(self._pods, self.wakes, clock)
        self._claims_changed = asyncio.Event()
        self._writers = asyncio.Semaphore(WRITERS)
        self._backoff = Backoff(least=PAUSE, most=10.0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._leading = False

    # ---- life

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        try:
            await self.knowledge.run()
        finally:
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Lead while inside: what an earlier leader wrote is read before anything is given to anybody.

        First it is kept from writing more, so that whatever it wrote is read.
        """
        await self.knowledge.wait_for_sync()
        await self.commits.until_let([*self.knowledge.claims.objects.values()])
        await self._catch_up()
        self._leading = True
        self.tell(Led())
        self.wakes.wake(everybody=True)
        try:
            yield
        finally:
            self._leading = False
            self.tell(Followed())
            self.wakes.wake(everybody=True)

    def unready(self) -> str:
        """Say why nothing can be decided now; "" if it can."""
        return self.knowledge.what_is_unread() or ("" if self._leading else "another replica leads")

    @property
    def leads(self) -> bool:
        """Whether this replica decides."""
        return self._leading

    def tick(self) -> None:
        """Let time pass in the ledger, and for nominations."""
        self.tell(Tick())
        self.nominations.tick()

    async def _catch_up(self) -> None:
        """Read all claims as they are now: our copy may be a moment older than the last write of who led before."""
        more = ""
        while True:
            page = await self._cluster.list(RESOURCE_CLAIMS, more=more, limit=PAGE)
            for claim in page.items:
                seen = self.knowledge.claims.objects.get((claim.metadata.namespace, claim.metadata.name))
                if seen is None or _is_later(claim, seen):
                    self.tell(ClaimRead(claim))
            more = page.more
            if not more:
                return

    def _may_write(self) -> bool:
        return self._leading and self._sure()

    # ---- the ledger

    def tell(self, event: Event) -> tuple[Effect, ...]:
        """Tell the ledger, and have done what it wants done."""
        before = self.ledger.ahead
        self.ledger, effects = step(self.ledger, event, self._clock())
        self.knowledge.mean(self.ledger.ahead.changes_since(before))
        for effect in effects:
            self._carry_out(effect)
        return effects

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case PatchFinalizer() | PatchAllocation() | PatchReservedFor() | Unallocate():
                self._later(self._write(effect))
            case Reread(claim):
                self._later(self._look(claim))
            case RereadPod(uid, name):
                self._later(self._visit(uid, name))
            case Ready(token):
                self._answer(token, "")
            case Dropped(token, _, sentence):
                self._answer(token, sentence or "the reservation has ended")
            case Freed():
                self._refused.look()
            case Tell(uid, sentence):
                pod = self._pods.get(uid)
                if pod is not None:
                    self._later(self.speak(pod, sentence))
            case Wake(pods):
                found = (self._pods.get(uid) for uid in pods)
                self.wakes.wake(pod.metadata.key for pod in found if pod is not None)
            case Declined() | Exceeded():
                return  # the answer of a reservation, which reads it there
            case _:
                assert_never(effect)

    def perform(self, effect: ClaimWrite) -> None:
        """Write into a claim what the ledger itself did not ask for; it learns of the outcome all the same."""
        self._later(self._write(effect))

    async def _write(self, effect: ClaimWrite) -> None:
        meta = effect.claim.metadata
        outcome: Event = Lost(meta.uid, meta.resource_version)
        try:
            async with self._writers:
                outcome = await self.commits.perform(effect)
        except Exception:
            logger.exception("a bug while writing; please report it", extra={"claim": meta.name})
        self.tell(outcome)

    async def _look(self, claim: ResourceClaim) -> None:
        """Read a claim whose state we are not sure of."""
        meta = claim.metadata
        read = await self._read(RESOURCE_CLAIMS, meta.name, meta.namespace)
        self.tell(ClaimGone(claim.metadata.key, meta.uid) if read is None else ClaimRead(read))

    async def _visit(self, uid: str, name: str) -> None:
        """Read a pod that may have been bound without our hearing of it."""
        namespace, _, name = name.partition("/")
        read = await self._read(PODS, name, namespace)
        if read is None or read.metadata.uid != uid:
            self.tell(PodGone(uid))
        else:
            self.tell(PodRead(read))

    async def _read(self, resource: Resource[T], name: str, namespace: str) -> T | None:
        """Read an object, until there is an answer; None if there is no such object."""
        failures = 0
        while True:
            failures += 1
            await asyncio.sleep(self._backoff.seconds(failures, 0.5))
            try:
                return await self._cluster.get(resource, name, namespace)
            except NotFound:
                return None
            except ApiError as error:
                problem = {"kind": resource.kind, "object": name, "problem": str(error)}
                logger.warning("an object could not be read", extra=problem)

    async def speak(self, pod: Pod, sentence: str) -> None:
        """Say something to people about a pod."""
        await self._say(pod, self._discreet(pod, sentence))

    def _again(self, pod: Pod | None, problem: str) -> Refusal:
        """Have a pod decided on again."""
        said = self._discreet(pod, problem) if pod is not None else problem
        return Refusal(HTTPStatus.CONFLICT, said, "decide again")

    def _discreet(self, pod: Pod, sentence: str) -> str:
        """Say it so that whoever may read a pod's events may read it."""
        return discreet(sentence, self.knowledge.stock, pod.metadata.namespace or "default")

    def _answer(self, token: str, problem: str) -> None:
        waiting = self._commits_waiting.pop(token, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(problem)

    def _later(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a bug in the bridge; please report it", exc_info=task.exception())

    # ---- what informers say

    def _on_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        gone = _loss(old, new)
        if gone is not None:
            self.tell(ClaimGone(gone.metadata.key, gone.metadata.uid))
        if new is not None:
            self.tell(ClaimSeen(new))
            self._wake_waiting(new.metadata.namespace)
        self._claims_changed.set()
        self._claims_changed = asyncio.Event()

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        awaited = self.nominations.awaited_by(old)
        self._learn_pod(old, new)
        self.nominations.follow(awaited, new)

    def _learn_pod(self, old: Pod | None, new: Pod | None) -> None:
        gone = _loss(old, new)
        if gone is not None:
            uid = gone.metadata.uid
            self._forget(uid)
            if self._pods.pop(uid, None) is not None:
                self.tell(PodGone(uid))
        if new is None or not new.spec.resource_claims:
            return
        if new.spec.scheduler_name in self._schedulers:
            uid = new.metadata.uid
            self._pods[uid] = new
            if new.spec.node_name:
                self._forget(uid)
            elif uid in self._waiting:
                self._wake_waiting(new.metadata.namespace)
            self.tell(PodSeen(new))

    def _forget(self, uid: str) -> None:
        """Wake a pod no more: it is gone, or has a node."""
        self._refused.pop(uid)
        self.nominations.forget(uid)
        for kept in (self._hopeless, self._waiting):
            kept.pop(uid, None)

    def _on_devices(self) -> None:
        for uid, name in self._hopeless.items():
            self._refused.put(uid, name)
        self._hopeless.clear()
        self._refused.wake()
        self._wake_waiting()

    def _wake_waiting(self, namespace: str = "") -> None:
        """Have pods tried again that lacked an object, all of them or those of a namespace: what came may be what they lack."""
        stock = self.knowledge.stock
        ready: list[Pod] = []
        for pod in self._waiting.values():
            if namespace not in ("", pod.metadata.namespace):
                continue
            newest = self.newest(pod)
            if not wants_of(newest, stock).waits_for and not self._unknown_strategy(newest):
                ready.append(pod)
        for pod in ready:
            del self._waiting[pod.metadata.uid]
        self.wakes.wake(pod.metadata.key for pod in ready)

    def _refuse(self, pod: Pod) -> None:
        """Keep a pod in mind that may be tried again once something comes free."""
        shape = shape_of(wants_of(pod, self.knowledge.stock))
        self._refused.put(pod.metadata.uid, pod.metadata.key, shape)

    def _may_fit(self, uid: str) -> bool:
        """Say whether there may be room for a pod by now."""
        pod = self._pods.get(uid)
        return pod is None or self.decider.may_fit(pod, self.knowledge.stock, self.full_nodes(pod))

    # ---- what schedulers ask

    def outlook(self, pod: Pod, token: str = "") -> tuple[str, Outlooks]:
        """Say which nodes can serve a pod, and under which token one of them may be reserved."""
        self.demand_ready()
        pod = self.newest(pod)
        begun = self._clock()
        found = self._look_around(pod)
        self._count_outlook(str(found.outlook), self._clock() - begun)
        if found.outlook in _WORTH_WAKING:
            self._refuse(pod)
        if found.outlook is Outlook.NEVER:
            self._hopeless[pod.metadata.uid] = pod.metadata.key
        if found.outlook is Outlook.WAITING:
            self._waiting[pod.metadata.uid] = pod
        if not found.nodes and found.outlook is not Outlook.FULL:
            return "", found
        token = token or self._new_token()
        self._ask(token, pod)
        return token, found

    def _look_around(self, pod: Pod) -> Outlooks:
        found = self._judge(pod)
        return found.tell(partial(self._discreet, pod))

    def _judge(self, pod: Pod) -> Outlooks:
        problem = self._unknown_strategy(pod)
        if problem and pod.spec.resource_claims:
            return Outlooks(Outlook.WAITING, message=problem)
        return self.decider.outlook(pod, self.knowledge.stock, self.placement_of(pod), self.full_nodes(pod))

    def place_by(self, rules: PlacementRules) -> None:
        """Place by other rules from the next decision on; what was refused may be tried again."""
        if rules != self._rules:
            self._rules = rules
            self._refused.wake()

    def placement_of(self, pod: Pod) -> Placement:
        """Find how a pod is placed; by default, if what it says is nothing known."""
        try:
            return placement_of(pod, self._said_of(pod.metadata.namespace), self._rules)
        except UnknownStrategy:
            return self._rules.of(pod.metadata.namespace)

    def _unknown_strategy(self, pod: Pod) -> str:
        """Say which strategy is asked for that nobody knows; "" if there is none."""
        try:
            placement_of(pod, self._said_of(pod.metadata.namespace), self._rules)
        except UnknownStrategy as error:
            return str(error)
        return ""

    def _said_of(self, namespace: str) -> Mapping[str, str]:
        found = self.knowledge.namespaces.objects.get(("", namespace or "default"))
        return found.metadata.annotations if found is not None else {}

    def full_nodes(self, pod: Pod, leaving: Iterable[Pod] = ()) -> dict[str, str]:
        """Say which nodes have pods enough without a pod itself, and without those that leave."""
        uids = {one.metadata.uid for one in (pod, *leaving)}
        return full_nodes(self.ledger, self._rules.most_pods, uids)

    def _ask(self, token: str, pod: Pod) -> None:
        self._asked[token] = pod
        self._asked.move_to_end(token)
        while len(self._asked) > TOKENS:
            self._asked.popitem(last=False)

    def adopt(self, token: str, pod: Pod) -> bool:
        """Have a token stand for a pod, if the pod wants anything of us."""
        self.demand_ready()
        pod = self.newest(pod)
        if not wants_of(pod, self.knowledge.stock).concern_us:
            return False
        self._ask(token, pod)
        return True

    def is_written(self, claim: ResourceClaim) -> bool:
        """Say whether a claim is as the API server has it, and not only as it is meant."""
        return claim.metadata.uid not in self.ledger.ahead

    def _unwritten(self) -> Iterable[ResourceClaim]:
        return self.ledger.ahead.values()

    def waits(self, uid: str) -> bool:
        """Say whether a pod of ours is there and has no node yet."""
        pod = self._pods.get(uid)
        return pod is not None and not pod.spec.node_name

    def demand_lead(self) -> None:
        """Refuse to act while somebody else might lead."""
        if not self._may_write():
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, "another replica may lead by now", "wait; nothing is lost meanwhile"
            )

    def pod(self, uid: str) -> Pod | None:
        """Find a pod of ours."""
        return self._pods.get(uid)

    def fits(self, token: str, node: str, add: Iterable[Pod], remove: Iterable[Pod]) -> str:
        """Say what is in the way on a node if some pods come first and others go; "" if nothing is."""
        self.demand_ready()
        pod = self._pod_of(token)
        leaving = tuple(remove)
        why = self.full_nodes(pod, leaving).get(node)
        if why:
            return why
        coming = [self.newest(one) for one in add]
        stock = without_pods(self.knowledge.stock, leaving)
        stock = with_pods(stock, node, coming)
        problem = self._unserved(pod, node, stock)
        if problem and coming:
            self.nominations.give_way(pod)
        return problem

    def _unserved(self, pod: Pod, node: str, stock: Stock) -> str:
        serving = self.decider.serve(pod, node, stock, alone=Options())
        message = serving.message if isinstance(serving, Unserved) else ""
        return self._discreet(pod, message)

    def reserve(self, token: str, node: str) -> None:
        """Hold a pod's devices on a node. The token stands for what is held from then on."""
        self.demand_ready()
        pod = self._pod_of(token)
        held = self.ledger.reservation(token)
        if held is not None and held.node == node and held.state is not State.RELEASED:
            return
        basis = self.ledger.generation
        problem = self._unknown_strategy(pod) or self.full_nodes(pod).get(node)
        if problem:
            raise Refusal(HTTPStatus.CONFLICT, problem, "decide again")
        serving = self.decider.serve(pod, node, self.knowledge.stock, self.placement_of(pod))
        if isinstance(serving, Unserved):
            raise self._again(pod, serving.message)
        if not serving.claims:
            return  # there is nothing to hold
        given = serving.allocated_claims()
        allocations = {claim.metadata.uid: claim.status.allocation for claim in given}
        parts: list[ClaimPart] = []
        for claim in serving.claims:
            allocation = allocations.get(claim.metadata.uid)
            parts.append(ClaimPart(claim, allocation))
        lines = self.quotas.lines(pod, given, self.knowledge.stock)
        assume = Assume(token, pod, node, tuple(parts), basis, lines)
        for effect in self.tell(assume):
            if isinstance(effect, Declined):
                raise self._again(pod, effect.sentence)
            if isinstance(effect, Exceeded):
                self._refuse(pod)
                raise _over(effect.line)
        self._refused.pop(pod.metadata.uid)

    def unreserve(self, token: str) -> None:
        """Let go of a reservation; one that is not known is fine."""
        self.tell(Unreserve(token))

    async def commit(self, token: str, seconds: float) -> Progress:
        """Write what is reserved. Answers when it is written and the devices are ready, or in `seconds` with what it waits for."""
        self.demand_ready()
        if self._holds_nothing(token):
            return Progress(committed=True)
        until = self._clock() + seconds
        waiting = self._commits_waiting.get(token)
        if waiting is None:
            waiting = self._commits_waiting[token] = asyncio.get_running_loop().create_future()
            self.tell(Commit(token))
        try:
            async with asyncio.timeout_at(until):
                problem = await asyncio.shield(waiting)
        except TimeoutError:
            return Progress(False, "waits for the API server to take the allocation")
        if problem:
            asked = self._asked.get(token)
            raise self._again(asked, problem)
        if not await self._look_who_was_first(token, until):
            return Progress(False, "waits to see its allocation among those of others")
        return await self._devices(token, until)

    async def _look_who_was_first(self, token: str, until: float) -> bool:
        """Let go of what somebody else was given before us; say whether that could be seen in time.

        Claims are told in the order they were written, so once we are told of what we wrote, we know of all that came before it.
        """
        while True:
            changed = self._claims_changed
            reservation = self._reservation_of(token)
            if not any(uid in self.ledger.ahead for uid in reservation.claims):
                break
            if not await _set(changed, until):
                return False
        pools: set[PoolId] = set()
        for uid in reservation.claims:
            hold = self.ledger.holds.get(uid)
            if hold is not None:
                pools |= pools_of(hold.claim.status.allocation)
        for overlap in overlaps(self.knowledge.stock, pools):
            self.tell(overlap)
        if self._reservation_of(token).due:
            raise Refusal(HTTPStatus.CONFLICT, "somebody else was given the same devices just before", "decide again")
        return True

    async def _devices(self, token: str, until: float) -> Progress:
        """Wait until the devices say that they are ready to be bound to (KEP-5007)."""
        while True:
            changed = self._claims_changed
            reservation = self._reservation_of(token)
            holds = [self.ledger.holds.get(uid) for uid in reservation.claims]
            readiness = devices_ready([hold.claim for hold in holds if hold is not None])
            if readiness.failed:
                raise Refusal(
                    HTTPStatus.CONFLICT,
                    readiness.failed,
                    "the devices cannot be made ready for the pod; the scheduler has to choose others",
                )
            if not readiness.waits_for:
                return Progress(True)
            if not await _set(changed, until):
                return Progress(False, readiness.waits_for)

    def _holds_nothing(self, token: str) -> bool:
        """Whether a token stands for a pod that may be bound as it is: it has no claims."""
        pod = self._asked.get(token)
        if pod is None or self.ledger.reservation(token) is not None:
            return False
        wants = wants_of(self.newest(pod), self.knowledge.stock)
        return not wants.claims and not wants.waits_for

    def _reservation_of(self, token: str) -> Reservation:
        reservation = self.ledger.reservation(token)
        if reservation is None:
            raise Refusal(HTTPStatus.CONFLICT, "the reservation has ended", "decide again")
        return reservation

    def demand_ready(self) -> None:
        """Refuse to decide before everything is known, or while another replica leads."""
        if problem := self.unready():
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"devices cannot be decided on now: {problem}",
                "wait; nothing is lost meanwhile",
            )

    def _pod_of(self, token: str) -> Pod:
        pod = self._asked.get(token)
        if pod is None:
            raise Refusal(HTTPStatus.GONE, "the token is not known any more", "decide again")
        return self.newest(pod)

    def newest(self, pod: Pod) -> Pod:
        """Answer with the later form of a pod: the one the scheduler sends, or ours."""
        seen = self._pods.get(pod.metadata.uid)
        return seen if seen is not None and _is_later(seen, pod) else pod


async def _set(event: asyncio.Event, until: float) -> bool:
    """Wait for an event; say whether it came in time."""
    try:
        async with asyncio.timeout_at(until):
            return await event.wait()
    except TimeoutError:
        return False


def _over(line: QuotaLine) -> Refusal:
    remedy = "ask for less, or wait until something in the namespace ends"
    return Refusal(HTTPStatus.CONFLICT, str(line), remedy, {"exceeded": line.facts()})


def _is_later(one: Pod | ResourceClaim, other: Pod | ResourceClaim) -> bool:
    """Say whether one of two forms of an object is the later."""
    return is_later(one.metadata.resource_version, other.metadata.resource_version)


def _loss(old: Object | None, new: Object | None) -> Object | None:
    """Answer with what was there and is not any more: it was deleted, or something else has its name by now."""
    if old is None or new is None:
        return old
    return None if new.metadata.uid == old.metadata.uid else old
