"""Writing into claims: patches with the version that was seen, and what became of each. The one place that writes.

A claim is never put back whole: what was read here has lost the fields we do not know, and opaque parameters are compared
byte for byte. A foreign allocation without a timestamp could never be bound by kube-scheduler, so each of ours has one.
"""

from __future__ import annotations

import asyncio
import logging
import re
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, assert_never

from allocator.reservations import effects, events
from allocator.service.settings import REST_SECONDS
from cluster.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound, Throttled, Unauthorized
from cluster.patch import Merge
from cluster.resources import RESOURCE_CLAIMS
from dra.wire import builtins
from runtime.controllers import now_of_the_wall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allocator.service.knowledge import Lead
    from allocator.service.metrics import Metrics
    from cluster.protocol import Cluster
    from dra.objects import ResourceClaim

logger = logging.getLogger("drawbridge.allocator")
Outcome = events.Written | events.Conflicted | events.Denied | events.Lost | events.ClaimGone
# The policy that lets only the holder of the lease write. It learns of a new holder a moment after we do.
FENCE = "drawbridge-allocator-holder"
FENCE_SECONDS = 0.25
LOOK_SECONDS = 0.05  # between looks whether it has, while nothing is decided
TRIED = 16  # claims to look with, of which each may be gone by now
NO_CHANGE = Merge({"metadata": {"annotations": {f"drawbridge.dev/{FENCE}": None}}})
WRITERS = 64  # writes under way at once
DEADLINE = 10.0  # seconds for one write, pauses that the server asks for included
# How the API server says that an account lacks a right. Every other refusal is about one object.
LACKS = re.compile(r'User ".*" cannot patch resource|requires resource="resourceclaims/binding", verb="patch"')
# Answers after which a write is not carried out later.
ANSWERED = (Conflict, NotFound, Throttled, Forbidden, Unauthorized, Invalid, BadRequest)
LACKING_SECONDS = 120.0  # a right that was missing, and has not been asked for since, may be there by now


class Commits:
    """Writes for a ledger, as long as this replica surely leads."""

    def __init__(
        self,
        cluster: Cluster,
        lead: Lead,
        metrics: Metrics,
    ) -> None:
        self._cluster = cluster
        self._lead = lead
        self._metrics = metrics
        self._sent = 0  # writes that have no answer yet
        self._unanswered_at = -inf  # when a write was last given up without one
        self.unsure = 0  # times that a write was not sent, since another replica might lead by now
        # By kind of write: what the server said last of a right, and when.
        self._lacking: dict[str, tuple[str, float]] = {}
        self._clock = asyncio.get_running_loop().time
        self._writers = asyncio.Semaphore(WRITERS)

    async def perform(self, effect: effects.ClaimWrite, report: Callable[[Outcome], object]) -> None:
        """Write, and report the outcome.

        What a server without time, or the fence of a moment ago, has turned back is not written, and tried again.
        """
        write_kind = type(effect).__name__
        claim = effect.claim
        uid, version = claim.metadata.uid, claim.metadata.resource_version
        outcome: Outcome = events.Lost(uid, version)
        throttled = ""
        try:
            async with self._writers, asyncio.timeout(DEADLINE):
                while isinstance(outcome, events.Lost):
                    if not self._lead.may_write():
                        # Nothing was sent. Either the lease is renewed in a moment, or the ledger hears that another replica leads.
                        self.unsure += 1
                        await asyncio.sleep(FENCE_SECONDS)
                        continue
                    try:
                        outcome = events.Written(version, await self._send(effect))
                    except Throttled as error:
                        throttled = f"the API server is busy ({error.message or 'HTTP 429'})"
                        await asyncio.sleep(error.retry_after)
                    except (Forbidden, Invalid) as error:
                        if FENCE not in error.message:
                            raise
                        await asyncio.sleep(FENCE_SECONDS)
        except Conflict:
            outcome = events.Conflicted(uid, version)
        except NotFound:
            outcome = events.ClaimGone(claim.metadata.key, uid)
        except (Forbidden, Unauthorized, Invalid, BadRequest) as error:
            if isinstance(error, Unauthorized) or LACKS.search(error.message):
                self._lacking[write_kind] = error.message, self._clock()
            outcome = events.Denied(uid, version, error.message)
        except (ApiError, TimeoutError) as error:
            problem = str(error) or throttled or "there was no answer"
            extra = {"write": write_kind, "claim": claim.metadata.key, "problem": problem, "seconds": DEADLINE}
            logger.warning("a write failed; the claim is read again", extra=extra)
        except Exception:
            logger.exception("a bug while writing; please report it", extra={"claim": claim.metadata.name})
        self._metrics.writes.labels(write_kind, type(outcome).__name__).inc()
        if isinstance(outcome, events.Denied):
            refused = {"write": write_kind, "claim": effect.claim.metadata.key, "problem": outcome.sentence}
            logger.error("a write was refused", extra=refused)
        elif isinstance(outcome, events.Written):
            self._lacking.pop(write_kind, None)
        report(outcome)

    async def _send(self, effect: effects.ClaimWrite) -> ResourceClaim:
        self._sent += 1
        try:
            return await write(self._cluster, effect)
        except BaseException as error:
            if not isinstance(error, ANSWERED):
                self._unanswered_at = self._clock()
            raise
        finally:
            self._sent -= 1

    def may_write_late(self) -> bool:
        """Say whether the API server may still carry out a write of ours."""
        return self._sent > 0 or self._clock() - self._unanswered_at < REST_SECONDS

    def missing_rights(self, seconds: float = LACKING_SECONDS) -> str:
        """Say which rights were missing in so many seconds; "" if none was. The refusal of one object says nothing about the others."""
        since = self._clock() - seconds
        return "; ".join(
            f"{write_kind}: {sentence}" for write_kind, (sentence, at) in self._lacking.items() if at > since
        )

    async def wait_for_fence(self, claims: Iterable[ResourceClaim], seconds: float = DEADLINE) -> None:
        """Wait, at most so long, until the fence has heard that we lead: from then on it turns back what the former leader has still on its way.

        A dry run of a write that changes nothing tells, on the first of these claims that is there.
        """
        try:
            async with asyncio.timeout(seconds):
                for claim in islice(claims, TRIED):
                    if await self._is_let_by_fence(claim):
                        return
        except TimeoutError:
            logger.warning(
                "the policy has not seen that this replica holds the Lease, or the API server does not answer"
            )

    async def _is_let_by_fence(self, claim: ResourceClaim) -> bool:
        """Wait until the fence lets us write into a claim; False if the claim is gone, or would be refused for what it is itself."""
        meta = claim.metadata
        while True:
            try:
                await self._cluster.patch(RESOURCE_CLAIMS, meta.name, NO_CHANGE, meta.namespace, dry_run=True)
            except NotFound:
                return False
            except (BadRequest, Forbidden, Invalid, Unauthorized) as error:
                if FENCE not in error.message:  # whatever is in our way, it is not the fence, or comes before it
                    return isinstance(error, Forbidden | Unauthorized)
            except ApiError:
                pass
            else:
                return True
            await asyncio.sleep(LOOK_SECONDS)


async def write(cluster: Cluster, effect: effects.ClaimWrite) -> ResourceClaim:
    """Patch a claim as it was seen. A Conflict says that it is another by now."""
    name = effect.claim.metadata.name
    namespace = effect.claim.metadata.namespace
    metadata: dict[str, Any] = {"resourceVersion": effect.claim.metadata.resource_version}
    body: dict[str, Any] = {"metadata": metadata}
    subresource = "status"
    match effect:
        case effects.PatchFinalizer():
            metadata["finalizers"] = list(effect.finalizers)
            subresource = ""
        case effects.PatchAllocation():
            allocation: Any = builtins(effect.allocation)
            allocation["allocationTimestamp"] = now_of_the_wall()
            body["status"] = {"allocation": allocation, "reservedFor": builtins(effect.reserved_for)}
        case effects.PatchReservedFor():
            body["status"] = {"reservedFor": builtins(effect.reserved_for) or None}
        case effects.Unallocate():
            body["status"] = dict.fromkeys(("allocation", "reservedFor", "devices"))
        case _:
            assert_never(effect)
    return await cluster.patch(RESOURCE_CLAIMS, name, Merge(body), namespace, subresource=subresource)
