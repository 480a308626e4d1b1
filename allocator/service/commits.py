"""Writing into claims: patches with the version that was seen, and what became of each. The one place that writes.

A claim is never put back whole: what was read here has lost the fields we do not know, and opaque parameters are compared
byte for byte. A foreign allocation without a timestamp could never be bound by kube-scheduler, so each of ours has one.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import TYPE_CHECKING, Any, assert_never

from allocator.reservations import (
    ClaimGone,
    Conflicted,
    Denied,
    Lost,
    PatchAllocation,
    PatchFinalizer,
    PatchReservedFor,
    Unallocate,
    Written,
)
from cluster.controllers import now_of_the_wall
from cluster.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound, Throttled, Unauthorized
from cluster.patch import Merge
from cluster.resources import RESOURCE_CLAIMS
from dra.wire import builtins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allocator.reservations import ClaimWrite
    from cluster.protocol import Cluster
    from dra.objects import ResourceClaim

logger = logging.getLogger("drawbridge.allocator")
Outcome = Written | Conflicted | Denied | Lost | ClaimGone
# The policy that lets only the holder of the lease write. It hears of a new holder a moment after we do.
FENCE = "drawbridge-allocator-holder"
FENCE_SECONDS = 0.25
LOOK_SECONDS = 0.05  # between looks whether it has, while nothing is decided
TRIED = 16  # claims to look with, of which each may be gone by now
NO_CHANGE = Merge({"metadata": {"annotations": {f"drawbridge.dev/{FENCE}": None}}})
DEADLINE = 10.0  # seconds for one write, pauses that the server asks for included


class Commits:
    """Writes for a ledger. What it may not write any more, since nobody may any more, it does not send."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        may_write: Callable[[], bool],
        count: Callable[[str, str], None],
    ) -> None:
        """`count` is told of each write and its outcome."""
        self._cluster = cluster
        self._may_write = may_write
        self._count = count
        self.unsure = 0  # times that a write was not sent, since somebody else might lead by now
        self.denied: dict[str, str] = {}  # by kind of write: what the server said last, until one is let through

    async def perform(self, effect: ClaimWrite) -> Outcome:
        """Write, and say what became of it."""
        what = type(effect).__name__
        outcome = await self._try(effect)
        self._count(what, type(outcome).__name__)
        if isinstance(outcome, Denied):
            if what not in self.denied:
                logger.error("a write was refused", extra={"write": what, "problem": outcome.sentence})
            self.denied[what] = outcome.sentence
        elif isinstance(outcome, Written):
            self.denied.pop(what, None)
        return outcome

    async def until_let(self, claims: Iterable[ResourceClaim], seconds: float = DEADLINE) -> None:
        """Wait, at most so long, until the fence has heard that we lead: from then on it turns back what who led before has still on its way.

        A dry run of a write that changes nothing tells, on the first of these claims that is there.
        """
        try:
            async with asyncio.timeout(seconds):
                for claim in islice(claims, TRIED):
                    if await self._is_let(claim):
                        return
        except TimeoutError:
            logger.warning("the fence has not heard that this replica leads, or the API server does not answer")

    async def _is_let(self, claim: ResourceClaim) -> bool:
        """Wait until the fence lets us write into a claim; False if the claim is gone."""
        meta = claim.metadata
        while True:
            try:
                await self._cluster.patch(RESOURCE_CLAIMS, meta.name, NO_CHANGE, meta.namespace, dry_run=True)
            except NotFound:
                return False
            except (BadRequest, Forbidden, Invalid, Unauthorized) as error:
                if FENCE not in error.message:  # whatever is in our way, it is not the fence
                    return True
            except ApiError:
                pass
            else:
                return True
            await asyncio.sleep(LOOK_SECONDS)

    async def _try(self, effect: ClaimWrite) -> Outcome:
        claim = effect.claim
        uid, version = claim.metadata.uid, claim.metadata.resource_version
        try:
            async with asyncio.timeout(DEADLINE):
                return Written(version, await self._patiently(effect))
        except Conflict:
            return Conflicted(uid, version)
        except NotFound:
            return ClaimGone(claim.metadata.key, uid)
        except (Forbidden, Unauthorized, Invalid, BadRequest) as error:
            return Denied(uid, version, error.message)
        except (ApiError, TimeoutError) as error:
            logger.warning(
                "a write has no answer",
                extra={"claim": claim.metadata.name, "problem": str(error) or "it took too long"},
            )
            return Lost(uid, version)

    async def _patiently(self, effect: ClaimWrite) -> ResourceClaim:
        """Write; what a server without time, or the fence of a moment ago, has turned back is not written, and tried again."""
        while True:
            if not self._may_write():
                # Nothing was sent. Either the lease is renewed in a moment, or the ledger hears that somebody else leads.
                self.unsure += 1
                await asyncio.sleep(FENCE_SECONDS)
                continue
            try:
                return await write(self._cluster, effect)
            except Throttled as error:
                await asyncio.sleep(error.retry_after)
            except (Forbidden, Invalid) as error:
                if FENCE not in error.message:
                    raise
                await asyncio.sleep(FENCE_SECONDS)


async def write(cluster: Cluster, effect: ClaimWrite) -> ResourceClaim:
    """Patch a claim as it was seen. A Conflict says that it is another by now."""
    name = effect.claim.metadata.name
    namespace = effect.claim.metadata.namespace
    body = _body(effect, now_of_the_wall())
    subresource = "" if isinstance(effect, PatchFinalizer) else "status"
    return await cluster.patch(RESOURCE_CLAIMS, name, Merge(body), namespace, subresource=subresource)


def _body(effect: ClaimWrite, now: str) -> dict[str, Any]:
    """Say what a write is as a merge patch that holds for the version that was seen."""
    metadata: dict[str, Any] = {"resourceVersion": effect.claim.metadata.resource_version}
    match effect:
        case PatchFinalizer():
            metadata["finalizers"] = list(effect.finalizers)
            return {"metadata": metadata}
        case PatchAllocation():
            allocation: Any = builtins(effect.allocation)
            allocation["allocationTimestamp"] = now
            status = {"allocation": allocation, "reservedFor": builtins(effect.reserved_for)}
        case PatchReservedFor():
            status = {"reservedFor": builtins(effect.reserved_for) or None}
        case Unallocate():
            status = dict.fromkeys(("allocation", "reservedFor", "devices"))
        case _:
            assert_never(effect)
    return {"metadata": metadata, "status": status}
