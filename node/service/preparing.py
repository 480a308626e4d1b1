"""What the kubelet asks of a driver, from its request to the answer: claims are read, judged, and what is prepared is told in their status."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from cluster import ApiError, Apply
from cluster.errors import NotFound
from cluster.resources import RESOURCE_CLAIMS
from dra.objects import ResourceClaim, results_of
from node.messages import PrepareResponse, UnprepareResponse
from node.service.metrics import DriverMetrics
from runtime.controllers import now_of_the_wall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cluster import Cluster
    from node.checkpoint import Prepared
    from node.inventory import Machine
    from node.messages import ClaimReference, PreparedClaim, PrepareRequest
    from node.service.prepared_store import Found, PreparedStore

# The kubelet waits for 45 seconds, and asks again anyway.
READING = 15.0
# A claim whose devices are held by claims that are gone, and whose containers the kubelet still ends, waits for so long until those are
# unprepared: if it were refused, the kubelet would ask again only in its next round. The driver beside us may get that call.
WAITING = 30.0
LOOK = 2.0
# A claim is forgotten without the kubelet's word when it has been gone for this long. The kubelet looks each minute for what it should
# unprepare, and while it does not, a container that was deleted by force may still run.
GONE = 300.0
logger = logging.getLogger("drawbridge.driver")


class Preparing:
    def __init__(
        self,
        cluster: Cluster,
        machine: Machine,
        store: PreparedStore,
        *,
        clock: Callable[[], float],
        metrics: DriverMetrics | None = None,
    ) -> None:
        self._cluster = cluster
        self._machine = machine
        self._store = store
        self._clock = clock
        self._metrics = metrics or DriverMetrics()
        self._gone_since: dict[str, float] = {}
        # What was asked for since the last look: a claim may be back, and a look that has begun does not know.
        self._asked_for: set[str] = set()
        self._alone = asyncio.Lock()
        self._unprepared = asyncio.Event()
        # How many claims wait for others to be unprepared.
        self.waiting = 0
        self._telling: set[asyncio.Task[None]] = set()

    async def prepare(self, request: PrepareRequest) -> PrepareResponse:
        """Prepare claims. Only what touches no cluster is done while others wait."""
        begun = self._clock()
        answers: dict[str, PreparedClaim] = {}
        late = request.claims
        while late:
            self._asked_for.update(reference.uid for reference in late)
            unprepared = self._unprepared
            claims = await asyncio.gather(*(self._find(reference.name, reference.namespace) for reference in late))
            found = {reference.uid: claim for reference, claim in zip(late, claims, strict=True)}
            async with self._alone:
                answers |= await asyncio.to_thread(self._store.prepare, late, found)
            for uid, claim in found.items():
                if isinstance(claim, ResourceClaim) and not answers[uid].error:
                    # The status is written when the kubelet has its answer.
                    task = asyncio.create_task(self._tell(claim))
                    self._telling.add(task)
                    task.add_done_callback(self._telling.discard)
            late = tuple(reference for reference in late if answers[reference.uid].error)
            patience = begun + WAITING - self._clock()
            if not await self._is_worth_another_try(late, found, unprepared, patience):
                break
        errors = [answer.error for answer in answers.values()]
        self._metrics.count_call("prepare", errors, self._clock() - begun)
        return PrepareResponse(claims=answers)

    async def unprepare(self, request: PrepareRequest) -> UnprepareResponse:
        begun = self._clock()
        answers = await asyncio.to_thread(self._store.unprepare, request.claims)
        self._tell_unprepared()
        errors = [answer.error for answer in answers.values()]
        self._metrics.count_call("unprepare", errors, self._clock() - begun)
        return UnprepareResponse(claims=answers)

    async def settle(self) -> None:
        """Forget claims that have been gone for long: a kubelet that lost its own memory will never ask for that."""
        claims = await asyncio.to_thread(self._store.claims)
        now = self._clock()
        since: dict[str, float] = {}
        for uid, record in claims.items():
            if await self._is_gone(record):
                since[uid] = self._gone_since.get(uid, now)
        async with self._alone:
            since |= dict.fromkeys(self._asked_for & since.keys(), now)
            self._gone_since = since
            self._asked_for.clear()
            over = [uid for uid, first in since.items() if now - first >= GONE]
            if over:
                logger.warning("claims that are gone are forgotten", extra={"uids": over})
                await asyncio.to_thread(self._store.forget, over)
        if over:
            self._tell_unprepared()

    async def finish(self) -> None:
        """Wait until the statuses are written."""
        await asyncio.gather(*self._telling, return_exceptions=True)

    async def _is_worth_another_try(
        self, late: Sequence[ClaimReference], found: Found, unprepared: asyncio.Event, patience: float
    ) -> bool:
        """Wait until a claim is unprepared that is gone and in the way of these; say whether that happened in time."""
        if not late or patience <= 0:
            return False
        if unprepared.is_set():
            return True
        # Claims that are prepared, and that are gone.
        claims = await asyncio.to_thread(self._store.claims)
        gone = await asyncio.gather(*map(self._is_gone, claims.values()))
        leaving = {uid for uid, is_gone in zip(claims, gone, strict=True) if is_gone}
        if not await asyncio.to_thread(self._store.are_hindered, late, found, leaving):
            return False
        self.waiting += len(late)
        try:
            async with asyncio.timeout(patience):
                while True:
                    unprepared = self._unprepared
                    claims = await asyncio.to_thread(self._store.claims)
                    if not claims.keys() >= leaving:
                        return True
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK):
                            await unprepared.wait()
        except TimeoutError:
            return False
        finally:
            self.waiting -= len(late)

    def _tell_unprepared(self) -> None:
        self._unprepared.set()
        self._unprepared = asyncio.Event()

    async def _find(self, name: str, namespace: str) -> ResourceClaim | str | None:
        """Read a claim; None if it is gone, and a text why it cannot be read."""
        try:
            async with asyncio.timeout(READING):
                return await self._cluster.get(RESOURCE_CLAIMS, name, namespace)
        except NotFound:
            return None
        except (ApiError, TimeoutError) as error:
            return f"the API server cannot be asked about it: {str(error) or 'no answer in time'}"

    async def _is_gone(self, record: Prepared) -> bool:
        """Say whether a claim is deleted, replaced or not allocated: only an answer that says so counts."""
        claim = await self._find(record.name, record.namespace)
        if isinstance(claim, ResourceClaim):
            return claim.metadata.uid != record.uid or claim.status.allocation is None
        return claim is None

    async def _tell(self, claim: ResourceClaim) -> None:
        """Write into a claim's status a member for each device and share; those that are network interfaces say which."""
        metadata = claim.metadata
        now = now_of_the_wall()
        ready = {"type": "Ready", "status": "True", "reason": "Prepared", "message": "", "lastTransitionTime": now}
        devices: list[dict[str, object]] = []
        for result in results_of(claim):
            if result.driver != self._machine.driver:
                continue
            one: dict[str, object] = {
                "driver": result.driver,
                "pool": result.pool,
                "device": result.device,
                "conditions": [ready],
            }
            if result.share_id is not None:
                one["shareID"] = result.share_id
            interface = self._machine.interface_of(result.device)
            if interface:
                one["networkData"] = {"interfaceName": interface}
            devices.append(one)
        body = {
            "apiVersion": claim.api_version,
            "kind": claim.kind,
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
            "status": {"devices": devices},
        }
        patch = Apply(body, manager=self._machine.driver, force=True)
        try:
            async with asyncio.timeout(READING):
                await self._cluster.patch(
                    RESOURCE_CLAIMS, metadata.name, patch, metadata.namespace, subresource="status"
                )
        except (ApiError, TimeoutError) as error:
            extra = {"claim": metadata.key, "why": str(error)}
            logger.warning("the status of a claim does not tell", extra=extra)
