"""What the kubelet asks of a driver, from its request to the answer: claims are read, judged, and what is prepared is told in their status."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cluster import ApiError, Apply
from cluster.controllers import now_of_the_wall
from cluster.errors import NotFound
from cluster.resources import RESOURCE_CLAIMS
from dra.objects import ResourceClaim, results_of
from node.messages import PrepareResponse, UnprepareResponse
from node.service.metrics import DriverMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cluster import Cluster
    from node.checkpoint import Prepared
    from node.inventory import Machine
    from node.messages import ClaimReference, PrepareRequest
    from node.service.keeper import Keeper

# The kubelet waits for 45 seconds, and asks again anyway.
READING = 15.0
# A claim is forgotten without the kubelet's word when it has been gone for this long. The kubelet looks each minute for what it should
# unprepare, and while it does not, a container that was deleted by force may still run.
GONE = 300.0
logger = logging.getLogger("drawbridge.driver")


class Preparing:
    """Answers the kubelet."""

    def __init__(
        self,
        cluster: Cluster,
        machine: Machine,
        keeper: Keeper,
        *,
        clock: Callable[[], float],
        metrics: DriverMetrics | None = None,
    ) -> None:
        self._cluster = cluster
        self._machine = machine
        self._keeper = keeper
        self._clock = clock
        self._metrics = metrics or DriverMetrics()
        self._gone_since: dict[str, float] = {}
        # What was asked for since the last look: a claim may be back, and a look that has begun does not know.
        self._asked_for: set[str] = set()
        self._alone = asyncio.Lock()
        self._telling: set[asyncio.Task[None]] = set()

    async def prepare(self, request: PrepareRequest) -> PrepareResponse:
        """Prepare claims. Only what touches no cluster is done while others wait."""
        begun = self._clock()
        references = request.claims
        self._asked_for.update(reference.uid for reference in references)
        found = await self._read(references)
        async with self._alone:
            answers = await asyncio.to_thread(self._keeper.prepare, references, found)
        errors = [answer.error for answer in answers.values()]
        for uid, claim in found.items():
            is_prepared = not answers[uid].error
            if is_prepared and isinstance(claim, ResourceClaim):
                self._tell_later(claim)
        self._metrics.count_call("prepare", errors, self._clock() - begun)
        return PrepareResponse(claims=answers)

    async def unprepare(self, request: PrepareRequest) -> UnprepareResponse:
        """Unprepare claims."""
        begun = self._clock()
        answers = await asyncio.to_thread(self._keeper.unprepare, request.claims)
        errors = [answer.error for answer in answers.values()]
        self._metrics.count_call("unprepare", errors, self._clock() - begun)
        return UnprepareResponse(claims=answers)

    async def settle(self) -> None:
        """Forget claims that have been gone for long: a kubelet that lost its own memory will never ask for that."""
        claims = await asyncio.to_thread(self._keeper.claims)
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
                await asyncio.to_thread(self._keeper.forget, over)

    async def finish(self) -> None:
        """Wait until what is being told is told."""
        await asyncio.gather(*self._telling, return_exceptions=True)

    async def _read(self, references: Iterable[ClaimReference]) -> dict[str, ResourceClaim | str | None]:
        """Read claims, all at once."""
        uids = [reference.uid for reference in references]
        found = await asyncio.gather(*map(self._find, references))
        return dict(zip(uids, found, strict=True))

    async def _find(self, reference: ClaimReference) -> ResourceClaim | str | None:
        try:
            async with asyncio.timeout(READING):
                return await self._cluster.get(RESOURCE_CLAIMS, reference.name, reference.namespace)
        except NotFound:
            return None
        except (ApiError, TimeoutError) as error:
            return f"the API server cannot be asked about it: {str(error) or 'no answer in time'}"

    async def _is_gone(self, record: Prepared) -> bool:
        """Say whether nobody can have a claim any more: only an answer that says so counts."""
        try:
            async with asyncio.timeout(READING):
                claim = await self._cluster.get(RESOURCE_CLAIMS, record.name, record.namespace)
        except NotFound:
            return True
        except (ApiError, TimeoutError):
            return False
        return claim.metadata.uid != record.uid or claim.status.allocation is None

    def _tell_later(self, claim: ResourceClaim) -> None:
        """Tell in a claim's status what became of its devices, when the kubelet has its answer."""
        task = asyncio.create_task(self._tell(claim))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, claim: ResourceClaim) -> None:
        metadata = claim.metadata
        body = {
            "apiVersion": claim.api_version,
            "kind": claim.kind,
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
            "status": {"devices": self._told(claim)},
        }
        patch = Apply(body, manager=self._machine.driver, force=True)
        try:
            async with asyncio.timeout(READING):
                await self._cluster.patch(
                    RESOURCE_CLAIMS, metadata.name, patch, metadata.namespace, subresource="status"
                )
        except (ApiError, TimeoutError) as error:
            named = metadata.key
            logger.warning("the status of a claim does not tell", extra={"claim": named, "why": str(error)})

    def _told(self, claim: ResourceClaim) -> list[dict[str, object]]:
        """A member for each device and share; those that are network interfaces say which."""
        now = now_of_the_wall()
        ready = {"type": "Ready", "status": "True", "reason": "Prepared", "message": "", "lastTransitionTime": now}
        told: list[dict[str, object]] = []
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
            told.append(one)
        return told
