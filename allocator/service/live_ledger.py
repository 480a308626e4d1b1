"""Applies events to the ledger (`allocator.reservations`) and carries out the effects: writes, reads, pod events and answers.

How a commit works: `commit` applies `Commit`. Its effects are patches of claims, which `Commits.perform` sends. Each outcome is applied as
an event, with further patches as effects. The last outcome has the effect `Ready` or `Dropped`, which ends `commit`.

Events are applied on one event loop, one after the other. `Assume` names the generation of the ledger on which the decision was based. The
ledger declines an `Assume` if the devices have changed since then, so one replica does not give a device to two pods. The Lease, and the
resourceVersion in every write, prevent the same for two replicas.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, TypeVar, assert_never

from allocator.decisions import full_nodes
from allocator.reservations import Ledger, Terms, effects, events, step
from allocator.service.commits import Commits
from allocator.service.part import Part
from cluster.errors import ApiError, NotFound
from cluster.informers import Backoff
from cluster.protocol import pages
from cluster.resources import PODS, RESOURCE_CLAIMS
from dra.objects import claim_keys, is_later, owning_pods

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable

    from allocator.service.part import Shared
    from cluster.controllers import Recorder
    from cluster.resources import Resource
    from dra.objects import Pod, ResourceClaim

T = TypeVar("T")

logger = logging.getLogger("drawbridge.allocator")
PAUSE = 0.25  # seconds before a claim is read again after a write without an answer
UNSEEN_SECONDS = 5.0  # if the watch has not shown a known change after this time, claims are listed again
PAGE = 2000  # claims in one page when a new leader lists all claims; it decides nothing until it has them


class LiveLedger(Part):
    """Owns the state of the ledger and carries out its effects."""

    on_freed: Callable[[], None]  # called when devices became free
    # Returns a message for each node that may have one of these claims prepared (`PreparedClaims`).
    prepared_on: Callable[[Collection[str]], dict[str, str]]

    def __init__(self, shared: Shared, recorder: Recorder) -> None:
        super().__init__(shared)
        self._recorder = recorder
        self._clock = asyncio.get_running_loop().time
        self.state = Ledger(terms=Terms())
        self.commits = Commits(shared.cluster, shared.lead, shared.metrics)
        # One callback for each waiting call of `commit`. Each callback gets every Ready and Dropped, and ignores effects with other tokens.
        self._commit_callbacks: list[Callable[[effects.Ready | effects.Dropped], None]] = []
        self.claims_changed = asyncio.Event()  # set, and replaced by a new Event, when the informer shows a claim
        # The resourceVersion and the time of each change, by us or seen by a scheduler, that the watch has not shown yet.
        self._known: deque[tuple[str, float]] = deque()
        self.unseen_seconds = UNSEEN_SECONDS
        # By uid of a pod: the keys of the claims that were generated for it.
        self._claims_of_pods: dict[str, set[str]] = {}
        self._backoff = Backoff(least=PAUSE, most=10.0)
        self._tasks: set[asyncio.Task[None]] = set()

    def apply(self, event: events.Event) -> tuple[effects.Effect, ...]:
        """Apply an event to the ledger, and carry out the effects."""
        resulting = step(self.state, event, self._clock())
        for effect in resulting:
            match effect:
                case effects.OverlayClaim(uid, claim):
                    self._knowledge.overlay_claim(uid, claim)
                case (
                    effects.PatchFinalizer()
                    | effects.PatchAllocation()
                    | effects.PatchReservedFor()
                    | effects.Unallocate()
                ):
                    self.perform(effect)
                case effects.Reread() | effects.RereadPod():
                    self.run_in_background(self._reread(effect))
                case effects.Ready() | effects.Dropped():
                    for callback in tuple(self._commit_callbacks):
                        callback(effect)
                case effects.Freed():
                    self._pods.waiting.note_freed()
                    self.on_freed()
                case effects.PodEvent(uid, sentence):
                    pod = self._pods.find(uid)
                    if pod is not None:
                        self.run_in_background(self.record_event(pod, sentence))
                case effects.Requeue(uids):
                    pods = (self._pods.find(uid) for uid in uids)
                    self._pods.waiting.requeue(pod for pod in pods if pod is not None)
                case effects.Declined() | effects.Exceeded():
                    pass  # `Allocator.reserve` reads these
                case _:
                    assert_never(effect)
        return resulting

    def perform(self, effect: effects.ClaimWrite) -> None:
        """Start to write a claim, for the ledger or for a sweep. The outcome is applied to the ledger."""

        def report(outcome: events.Event) -> None:
            if isinstance(outcome, events.Written):
                self.expect([outcome.claim.metadata.resource_version])
            self.apply(outcome)

        self.run_in_background(self.commits.perform(effect, report))

    def expect(self, versions: Iterable[str]) -> None:
        """Expect the watch of claims to show these resourceVersions soon."""
        now = self._clock()
        self._known.extend([(version, now) for version in versions])

    def unseen(self, factor: float = 2.0) -> str:
        """Return a message if the watch has not shown a known change of a claim for `factor` times `unseen_seconds`; else "".

        This matters because a pod is bound only after the watch has shown the write.
        """
        claims = self._knowledge.claims
        while self._known and claims.version and not is_later(self._known[0][0], claims.version):
            self._known.popleft()
        age = self._clock() - self._known[0][1] if self._known else 0.0
        is_late = age > factor * self.unseen_seconds
        return f"{claims.resource.id}: the watch has not shown a known change for {age:.0f} s" if is_late else ""

    def check_watch(self) -> None:
        """List the claims again if their watch does not show known changes."""
        problem = self.unseen(1.0)
        if problem and self._knowledge.claims.distrust_watch():
            logger.warning("a watch is stale; the collection is listed again", extra={"problem": problem})

    async def commit(self, token: str) -> effects.Ready | effects.Dropped:
        """Write the claims of a reservation. Return `Ready` if every claim is reserved for the pod, `Dropped` if the reservation ends."""
        outcome: asyncio.Future[effects.Ready | effects.Dropped] = asyncio.get_running_loop().create_future()

        def resolve(effect: effects.Ready | effects.Dropped) -> None:
            if effect.token == token and not outcome.done():
                outcome.set_result(effect)

        self._commit_callbacks.append(resolve)
        try:
            reservation = self.state.reservations.get(self.state.tokens.get(token, ""))
            # An earlier call that timed out has started the writes.
            if reservation is None or not reservation.awaited:
                self.apply(events.Commit(token))
            return await outcome
        finally:
            self._commit_callbacks.remove(resolve)

    async def _reread(self, effect: effects.Reread | effects.RereadPod) -> None:
        """Read a claim whose last write conflicted or has no answer, or a pod whose binding the informer may not have shown yet."""
        if isinstance(effect, effects.Reread):
            meta = effect.claim.metadata
            claim = await self._read(RESOURCE_CLAIMS, meta.name, meta.namespace)
            self.apply(events.ClaimGone(meta.key, meta.uid) if claim is None else events.ClaimRead(claim))
        else:
            namespace, _, name = effect.name.partition("/")
            pod = await self._read(PODS, name, namespace)
            self.apply(
                events.PodGone(effect.pod) if pod is None or pod.metadata.uid != effect.pod else events.PodRead(pod)
            )

    async def _read(self, resource: Resource[T], name: str, namespace: str) -> T | None:
        """Read an object, and retry until the API server answers; None if the object does not exist."""
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

    async def catch_up(self) -> None:
        """Wait until an earlier leader can no longer write. Then list all claims, because the informer may lag behind its last write."""
        await self.commits.wait_for_policy([*self._knowledge.claims.objects.values()])
        async for page in pages(self._cluster, RESOURCE_CLAIMS, limit=PAGE):
            for claim in page.items:
                meta = claim.metadata
                latest = self._knowledge.claims.objects.get((meta.namespace, meta.name))
                if latest is None or is_later(meta.resource_version, latest.metadata.resource_version):
                    self.apply(events.ClaimRead(claim))

    def reread_unlisted(self) -> None:
        """Read the claims that `catch_up` found and a later list lacks. The informer does not report that such a claim is gone."""
        listed = self._knowledge.claims.objects
        for hold in self.state.holds.values():
            meta = hold.claim.metadata
            if not hold.informer_version and (meta.namespace, meta.name) not in listed:
                self.run_in_background(self._reread(effects.Reread(hold.claim)))

    def see_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """Apply a change of a claim that the informer shows."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self.apply(events.ClaimGone(old.metadata.key, old.metadata.uid))
            for owner in owning_pods(old):
                if keys := self._claims_of_pods.pop(owner.uid, set()) - {old.metadata.key}:
                    self._claims_of_pods[owner.uid] = keys
        if new is not None:
            for owner in owning_pods(new):
                self._claims_of_pods.setdefault(owner.uid, set()).add(new.metadata.key)
            self.apply(events.ClaimSeen(new))
            self._pods.objects_changed(new.metadata.namespace)
        self.claims_changed.set()
        self.claims_changed = asyncio.Event()

    def has_unnamed_claims(self, pod: Pod) -> bool:
        """Return whether a claim was generated for a pod that the pod's status does not name. The status may name it soon."""
        return not self._claims_of_pods.get(pod.metadata.uid, set()) <= set(claim_keys(pod))

    async def read_pod(self, pod: Pod) -> Pod | None:
        """Read a pod after a short pause; None if it is gone."""
        read = await self._read(PODS, pod.metadata.name, pod.metadata.namespace)
        return read if read is not None and read.metadata.uid == pod.metadata.uid else None

    def excluded_nodes(self, pod: Pod, leaving: Iterable[Pod] = ()) -> dict[str, str]:
        """Return a message for each node that can take no pod with devices, or not this pod.

        The node has reached its limit of pods, for which this pod and the pods of `leaving` do not count, or may have a claim of this pod
        prepared.
        """
        uids = {excluded.metadata.uid for excluded in (pod, *leaving)}
        claims = filter(None, map(self._knowledge.stock.claims.get, claim_keys(pod)))
        unallocated = [claim.metadata.uid for claim in claims if claim.status.allocation is None]
        prepared = self.prepared_on(unallocated)
        return full_nodes(self.reserved_nodes(), self._pods.rules.most_pods, uids) | prepared

    def reserved_nodes(self) -> tuple[tuple[str, str], ...]:
        """Return uid and node of each pod with a reservation, or nothing if the number of pods per node has no limit."""
        if not self._pods.rules.most_pods:
            return ()
        return tuple((reservation.pod, reservation.node) for reservation in self.state.unreleased())

    def unwritten(self) -> Iterable[ResourceClaim]:
        """Return, in their intended state, the claims that are not yet written in this state."""
        return self.state.ahead.values()

    async def record_event(self, pod: Pod, sentence: str) -> None:
        """Write an event about a pod."""
        await self._recorder.record(pod, "Devices", self._pods.redact(pod, sentence), warning=True)

    def run_in_background(self, work: Coroutine[None, None, None]) -> None:
        """Run a coroutine in the background; `close` cancels it."""

        def end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and task.exception() is not None:
                logger.error("a bug in the allocator; please report it", exc_info=task.exception())

        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(end)

    async def close(self) -> None:
        """Cancel all background tasks."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
