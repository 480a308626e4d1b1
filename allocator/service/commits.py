"""Writes finalizers, allocations and reservations of claims. Each write is a patch with the resourceVersion that was seen.

Each write has one outcome. No other module of the allocator writes these fields.

Claims are patched and never replaced, because decoding drops unknown fields, and opaque parameters are compared byte for byte.
Every allocation gets an allocationTimestamp: without one, kube-scheduler cannot bind a pod to another writer's allocation.
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
from cluster.controllers import api_timestamp
from cluster.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound, Throttled, Unauthorized
from cluster.patch import Merge
from cluster.resources import RESOURCE_CLAIMS
from dra.wire import builtins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allocator.service.knowledge import Lead
    from allocator.service.metrics import Metrics
    from cluster.protocol import Cluster
    from dra.objects import ResourceClaim

logger = logging.getLogger("drawbridge.allocator")
Outcome = events.Written | events.Conflicted | events.Denied | events.Lost | events.ClaimGone
# The ValidatingAdmissionPolicy that lets only the Lease holder write. It learns of a new holder a moment after the holder itself.
HOLDER_POLICY = "drawbridge-allocator-holder"
POLICY_PAUSE = 0.25  # seconds before the retry of a write that the policy rejected
DRY_RUN_PAUSE = 0.05  # seconds between two dry runs; until these have ended, a new leader decides nothing
MAX_DRY_RUNS = 16  # claims with which the dry run is tried, because a claim may have been deleted
NO_CHANGE = Merge({"metadata": {"annotations": {f"drawbridge.dev/{HOLDER_POLICY}": None}}})
MAX_WRITERS = 64  # writes at the same time
DEADLINE = 10.0  # seconds for one write, including pauses that the API server requests
# The API server's messages for a missing permission. Every other refusal is about one object.
LACKS = re.compile(r'User ".*" cannot patch resource|requires resource="resourceclaims/binding", verb="patch"')
# Errors after which the API server certainly does not carry out the write later.
ANSWERED = (Conflict, NotFound, Throttled, Forbidden, Unauthorized, Invalid, BadRequest)
LACKING_SECONDS = 120.0  # how long after the last refusal a missing permission is reported


class Commits:
    """Carries out the writes of a ledger while this replica is certain to hold the Lease."""

    def __init__(self, cluster: Cluster, lead: Lead, metrics: Metrics) -> None:
        self._cluster = cluster
        self._lead = lead
        self._metrics = metrics
        self._sent = 0  # writes without an answer yet
        self._unanswered_at = -inf  # when a write last ended without an answer
        self.unsure = 0  # writes postponed because another replica might lead
        # By kind of write: the last message about a missing permission, and its time.
        self._lacking: dict[str, tuple[str, float]] = {}
        self._clock = asyncio.get_running_loop().time
        self._writers = asyncio.Semaphore(MAX_WRITERS)

    async def perform(self, effect: effects.ClaimWrite, report: Callable[[Outcome], object]) -> None:
        """Write a claim and report the outcome.

        Retry until the deadline while the API server throttles, or while the policy has not seen that this replica holds the Lease.
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
                        # Either the Lease is renewed in a moment, or the ledger gets BecameFollower.
                        self.unsure += 1
                        await asyncio.sleep(POLICY_PAUSE)
                        continue
                    try:
                        outcome = events.Written(version, await self._send(effect))
                    except Throttled as error:
                        throttled = f"the API server is busy ({error.message or 'HTTP 429'})"
                        await asyncio.sleep(error.retry_after)
                    except (Forbidden, Invalid) as error:
                        if HOLDER_POLICY not in error.message:
                            raise
                        await asyncio.sleep(POLICY_PAUSE)
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
            details = {"write": write_kind, "claim": effect.claim.metadata.key, "problem": outcome.sentence}
            logger.error("a write was refused", extra=details)
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
        """Return whether the API server may still carry out a write of ours."""
        return self._sent > 0 or self._clock() - self._unanswered_at < REST_SECONDS

    def missing_rights(self) -> str:
        """Return the permissions that were missing a moment ago; "" if none were."""
        since = self._clock() - LACKING_SECONDS
        return "; ".join(
            f"{write_kind}: {sentence}" for write_kind, (sentence, at) in self._lacking.items() if at > since
        )

    async def wait_for_policy(self, claims: Iterable[ResourceClaim], seconds: float = DEADLINE) -> None:
        """Wait, at most `seconds`, until the policy has seen that we hold the Lease. From then on it rejects writes of the former leader.

        The test is a dry run: a patch without changes to the first of these claims that exists.
        """
        try:
            async with asyncio.timeout(seconds):
                for claim in islice(claims, MAX_DRY_RUNS):
                    if await self._is_allowed_by_policy(claim):
                        return
        except TimeoutError:
            logger.warning(
                "the policy has not seen that this replica holds the Lease, or the API server does not answer"
            )

    async def _is_allowed_by_policy(self, claim: ResourceClaim) -> bool:
        """Wait until the policy lets us write a claim; False if the claim is gone or cannot be written for another reason."""
        meta = claim.metadata
        while True:
            try:
                await self._cluster.patch(RESOURCE_CLAIMS, meta.name, NO_CHANGE, meta.namespace, dry_run=True)
            except NotFound:
                return False
            except (BadRequest, Forbidden, Invalid, Unauthorized) as error:
                # Another check rejects the write, perhaps before the policy sees it.
                if HOLDER_POLICY not in error.message:
                    return isinstance(error, Forbidden | Unauthorized)
            except ApiError:
                pass
            else:
                return True
            await asyncio.sleep(DRY_RUN_PAUSE)


async def write(cluster: Cluster, effect: effects.ClaimWrite) -> ResourceClaim:
    """Patch a claim if it still has the resourceVersion that was seen; else raise Conflict."""
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
            allocation["allocationTimestamp"] = api_timestamp()
            body["status"] = {"allocation": allocation, "reservedFor": builtins(effect.reserved_for)}
        case effects.PatchReservedFor():
            body["status"] = {"reservedFor": builtins(effect.reserved_for) or None}
        case effects.Unallocate():
            body["status"] = dict.fromkeys(("allocation", "reservedFor", "devices"))
        case _:
            assert_never(effect)
    return await cluster.patch(RESOURCE_CLAIMS, name, Merge(body), namespace, subresource=subresource)
