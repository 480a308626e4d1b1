"""Leader election through a Lease, as k8s.io/client-go/tools/leaderelection does it.

A holder counts as gone when the Lease has not changed for the lease duration by this process' monotonic clock, so the clocks of two machines
are never compared. A leader that cannot renew in time stops leading before another candidate can start. But a write that it has sent may still
take effect later. So a leader's writes must tolerate a second writer (preconditions, content hashes); the lease only avoids duplicate work.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple

from cluster import resources
from cluster.errors import AlreadyExists, ApiError, Conflict, NotFound
from cluster.patch import Merge
from dra.objects import is_later

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cluster.objects import Lease
    from cluster.protocol import Cluster

logger = logging.getLogger("drawbridge.election")


class Term(NamedTuple):
    """Seconds: a lease lasts `duration`, a candidate tries every `retry`, and a leader that lost the lease waits `rest` to lead again.

    If a leader led again too early, late writes of its former term could take effect. After `rest`, none is under way. A candidate does not
    wait if `Election.may_write_late` returns False.
    """

    duration: float = 15.0
    retry: float = 2.0
    rest: float = 0.0

    @property
    def renew_deadline(self) -> float:
        """How long a leader continues without a renewal; less than the duration, or two could lead."""
        return self.duration * 2 / 3

    @property
    def lease_duration_seconds(self) -> int:
        """The Lease's value: the duration in whole seconds, rounded up."""
        return max(1, ceil(self.duration))


class StoreRestoredError(Exception):
    """The API server's store was restored to an older copy, so this process must read all objects again."""


class Election:
    """One candidate for one Lease."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        name: str,
        identity: str,
        term: Term | None = None,
        ends_on_restore: bool = False,
    ) -> None:
        """With `ends_on_restore`, `run` raises StoreRestoredError when the API server returns an older version of the Lease than before."""
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._term = term or Term()
        self._observed: tuple[str, float] = (
            "",
            0.0,
        )  # the Lease's version, and when this process first saw this version
        self._ends_on_restore = ends_on_restore
        self.lease: Lease | None = None  # the Lease as the API server has last returned it
        self._is_held_by_other = False  # whether another live holder had the lease at the last attempt
        self._renewed_at = -inf  # when the last successful renewal was started
        self._ended_at = -inf  # when this candidate last stopped leading
        self.leading = False
        self.may_write_late: Callable[[], bool] = lambda: True  # whether a write of this candidate may be under way

    def is_sure(self) -> bool:
        """Report whether this candidate leads and no other can lead by now. False for a leader that was suspended for too long."""
        return self.leading and self._seconds_left() > 0

    def _seconds_left(self) -> float:
        """Return the seconds until this candidate stops leading without a renewal, counted from the start of the last renewal."""
        return self._term.renew_deadline - (asyncio.get_running_loop().time() - self._renewed_at)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Stand for election until cancelled; run `lead` while holding the lease."""
        lease = {"lease": self._name, "identity": self.identity}
        try:
            while True:
                while not await self._hold():  # noqa: ASYNC110  what is waited for happens on a server
                    await asyncio.sleep(self._term.retry)
                self.leading = True
                logger.info("leading", extra=lease)
                work = asyncio.ensure_future(lead())
                renewal = asyncio.ensure_future(self._renew())
                try:
                    await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
                    for task in (work, renewal):
                        if task.done():
                            task.result()  # raises its error
                finally:
                    self.leading = False
                    self._ended_at = asyncio.get_running_loop().time()
                    for task in (work, renewal):
                        task.cancel()
                    await asyncio.gather(work, renewal, return_exceptions=True)
                logger.warning("no longer leading", extra=lease)
                # Work that ends at once must not be restarted at once.
                await asyncio.sleep(self._term.retry)
        finally:
            await self.release()

    async def release(self) -> None:
        """Release the lease, so that the next candidate can start at once."""
        with suppress(ApiError, StoreRestoredError):  # the lease will expire
            lease = await self._read()
            if lease is not None and lease.spec.holder_identity == self.identity:
                version = {"resourceVersion": lease.metadata.resource_version}
                body = {"metadata": version, "spec": {"holderIdentity": None, "leaseDurationSeconds": 1}}
                await self._cluster.patch(resources.LEASES, self._name, Merge(body), self._namespace)

    async def _renew(self) -> None:
        """Renew the lease; return when it is lost."""
        while self._seconds_left() > 0:
            await asyncio.sleep(self._term.retry)
            try:
                async with asyncio.timeout(max(self._seconds_left(), 0.0)):
                    if not await self._hold() and self._is_held_by_other:
                        return
            except TimeoutError:
                return

    async def _hold(self) -> bool:
        """Take or renew the lease; report whether this candidate holds it."""
        self._is_held_by_other = False
        started_at = asyncio.get_running_loop().time()
        try:
            lease = await self._read()
            if lease is None:
                self._note(await self._cluster.create(resources.LEASES, self._record(None), self._namespace))
                self._renewed_at = started_at
                return True
            version, holder = lease.metadata.resource_version, lease.spec.holder_identity
            if self._observed[0] != version:
                self._observed = version, started_at
            lease_seconds = lease.spec.lease_duration_seconds or self._term.duration
            if holder and holder != self.identity and started_at - self._observed[1] <= lease_seconds:
                self._is_held_by_other = True
                return False
            # This candidate stopped leading recently, and the lease names another holder or none.
            must_rest = not self.leading and holder != self.identity and started_at - self._ended_at < self._term.rest
            if must_rest and self.may_write_late():
                return False
            renewed = await self._cluster.patch(
                resources.LEASES, self._name, Merge(self._record(lease)), self._namespace
            )
            self._note(renewed)
        except (AlreadyExists, Conflict):
            return False
        except ApiError as error:
            logger.warning("cannot reach the lease", extra={"lease": self._name, "problem": str(error)})
            return False
        self._renewed_at = started_at
        return True

    async def _read(self) -> Lease | None:
        try:
            lease = await self._cluster.get(resources.LEASES, self._name, self._namespace)
        except NotFound:
            return None
        self._note(lease)
        return lease

    def _note(self, lease: Lease) -> None:
        version = lease.metadata.resource_version
        latest_version = self.lease.metadata.resource_version if self.lease is not None else ""
        if self._ends_on_restore and is_later(latest_version, version):
            raise StoreRestoredError(
                f"Lease {self._namespace}/{self._name} has resourceVersion {version} after {latest_version}: "
                "the API server's store was restored to an older copy, so this process ends and reads everything again"
            )
        self.lease = lease

    def _record(self, lease: Lease | None) -> resources.Raw:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        is_own = lease is not None and lease.spec.holder_identity == self.identity
        spec: dict[str, object] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._term.lease_duration_seconds,
            "renewTime": now,
        }
        if not is_own:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (lease.spec.lease_transitions or 0) + 1 if lease else 0
        metadata: dict[str, object] = {"name": self._name, "namespace": self._namespace}
        if lease is not None:
            metadata["resourceVersion"] = lease.metadata.resource_version
        return {
            "apiVersion": resources.LEASES.api_version,
            "kind": resources.LEASES.kind,
            "metadata": metadata,
            "spec": spec,
        }
