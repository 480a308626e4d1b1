"""Answers the kubelet's calls: reads the claims, prepares or unprepares them, and writes prepared devices into the claims' status."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from cluster import ApiError, Apply
from cluster.controllers import api_timestamp
from cluster.errors import NotFound
from cluster.resources import RESOURCE_CLAIMS
from dra.objects import ResourceClaim, results_of
from node.guard import GuardRefusal
from node.messages import ClaimReference, PrepareResponse, UnprepareResponse
from node.service.metrics import DriverMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cluster import Cluster
    from node.checkpoint import Prepared
    from node.messages import PreparedClaim, PrepareRequest
    from node.service.prepared_store import Found, PreparedStore

# Seconds. The kubelet waits for 45 and then repeats its call.
API_TIMEOUT = 15.0
# How long a prepare call waits if deleted claims still hold the devices. Meanwhile the kubelet ends the containers of these claims and
# unprepares them; after a refusal the kubelet would repeat its call only in its next round. In a rolling update the other instance of the
# driver may get the unprepare call, so the checkpoint is read again every CHECK_INTERVAL seconds.
UNPREPARE_TIMEOUT = 30.0
CHECK_INTERVAL = 2.0
# A claim that was deleted this many seconds ago, and whose pods are gone from the kubelet, is unprepared without a call of the kubelet. The
# kubelet looks every minute for claims to unprepare.
FORGET_AFTER = 300.0
OTHERWISE = "PreparedOtherwise"  # the reason why a device of a claim is not ready: the node has prepared another one
logger = logging.getLogger("drawbridge.driver")


class Preparing:
    def __init__(
        self,
        cluster: Cluster,
        store: PreparedStore,
        *,
        clock: Callable[[], float],
        metrics: DriverMetrics | None = None,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._metrics = metrics or DriverMetrics()
        self._released_since: dict[str, float] = {}
        # Claims of prepare calls since the last `unprepare_deleted`, which may have read an older state of these claims. So the time since
        # their deletion starts again.
        self._asked_for: set[str] = set()
        # By claim: the kubelet's pods just before the claim was last read. Pods that are added later may use the claim, too.
        self._pods_before: dict[str, frozenset[str]] = {}
        self._lock = asyncio.Lock()
        self._unprepared = asyncio.Event()
        self.waiting = 0  # claims waiting for deleted claims to be unprepared
        self._status_writes: set[asyncio.Task[None]] = set()

    async def prepare(self, request: PrepareRequest) -> PrepareResponse:
        """Prepare claims; try again while deleted claims block some of them. The lock is not held during API calls."""
        begun = self._clock()
        answers: dict[str, PreparedClaim] = {}
        pending = request.claims
        while pending:
            self._asked_for.update(reference.uid for reference in pending)
            unprepared = self._unprepared
            pods = await asyncio.to_thread(self._store.pods)
            claims = await asyncio.gather(
                *(self._read_claim(reference.name, reference.namespace) for reference in pending)
            )
            claims_by_uid = {reference.uid: claim for reference, claim in zip(pending, claims, strict=True)}
            async with self._lock:
                answers |= await asyncio.to_thread(self._store.prepare, pending, claims_by_uid)
            for uid, claim in claims_by_uid.items():
                if isinstance(claim, ResourceClaim) and not answers[uid].error:
                    self._pods_before.setdefault(uid, pods)
                    # Written in the background, so that the kubelet need not wait.
                    task = asyncio.create_task(self._write_status(claim))
                    self._status_writes.add(task)
                    task.add_done_callback(self._status_writes.discard)
            pending = tuple(reference for reference in pending if answers[reference.uid].error)
            seconds = begun + UNPREPARE_TIMEOUT - self._clock()
            if not await self._wait_for_unprepared(pending, claims_by_uid, unprepared, seconds):
                break
        errors = [answer.error for answer in answers.values()]
        self._metrics.count_call("prepare", errors, self._clock() - begun)
        return PrepareResponse(claims=answers)

    async def unprepare(self, request: PrepareRequest) -> UnprepareResponse:
        begun = self._clock()
        answers = await asyncio.to_thread(self._store.unprepare, request.claims)
        self._wake_waiting()
        errors = [answer.error for answer in answers.values()]
        self._metrics.count_call("unprepare", errors, self._clock() - begun)
        return UnprepareResponse(claims=answers)

    async def unprepare_deleted(self) -> None:
        """Unprepare claims that were deleted FORGET_AFTER seconds ago: a kubelet that lost its state never unprepares them.

        Everybody who may edit claims can delete a claim that is in use. Its devices stay prepared until the kubelet has removed its pods.
        """
        claims = await asyncio.to_thread(self._store.claims)
        now = self._clock()
        deleted_since: dict[str, float] = {}
        pods_of = {uid: set(record.pods) for uid, record in claims.items()}
        pods_before = await asyncio.to_thread(self._store.pods)
        read = {uid: await self._read_claim(record.name, record.namespace) for uid, record in claims.items()}
        pods = await asyncio.to_thread(self._store.pods)
        for uid, claim in read.items():
            if self._has_left(claims[uid], claim):
                deleted_since[uid] = self._released_since.get(uid, now)
                pods_of[uid] |= pods - self._pods_before.pop(uid, pods)
            elif isinstance(claim, ResourceClaim):
                self._pods_before[uid] = pods_before
                pods_of[uid] &= pods
                pods_of[uid].update(consumer.uid for consumer in claim.status.reserved_for)
                await self._compare(claim, claims)
        changed = {uid: uids for uid, uids in pods_of.items() if uids != set(claims[uid].pods)}
        if changed:
            await asyncio.to_thread(self._store.set_pods, changed)
        async with self._lock:
            deleted_since |= dict.fromkeys(self._asked_for & deleted_since.keys(), now)
            self._released_since = deleted_since
            for uid in self._pods_before.keys() - claims.keys() - self._asked_for:
                del self._pods_before[uid]
            self._asked_for.clear()
            expired = [
                uid
                for uid, deleted_at in deleted_since.items()
                if now - deleted_at >= FORGET_AFTER and pods.isdisjoint(pods_of[uid])
            ]
            if expired:
                logger.warning("unpreparing claims that were deleted", extra={"uids": expired})
                await asyncio.to_thread(self._store.forget, expired)
        if expired:
            self._wake_waiting()

    async def _compare(self, claim: ResourceClaim, claims: Mapping[str, Prepared]) -> None:
        """Write into a claim's status that the node has other devices prepared for the claim.

        After a pod is deleted by force, the claim can be allocated again before the kubelet unprepares it. The kubelet prepares a claim once.
        """
        metadata = claim.metadata
        reference = ClaimReference(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)
        verdict = self._store.guard.check_claim(claim, reference, claims)
        written = [condition.reason for device in claim.status.devices for condition in device.conditions]
        if isinstance(verdict, GuardRefusal) and verdict.reason == "Changed" and OTHERWISE not in written:
            logger.warning("prepared otherwise", extra={"claim": metadata.key, "why": verdict.message})
            await self._write_status(claim, verdict.message)

    async def wait_for_statuses(self) -> None:
        await asyncio.gather(*self._status_writes, return_exceptions=True)

    async def _wait_for_unprepared(
        self, pending: Sequence[ClaimReference], claims_by_uid: Found, unprepared: asyncio.Event, seconds: float
    ) -> bool:
        """If deleted claims block a pending claim, wait until one of them is unprepared; report whether to try again."""
        if not pending or seconds <= 0:
            return False
        if unprepared.is_set():
            return True
        claims = await asyncio.to_thread(self._store.claims)
        released = await asyncio.gather(*map(self._is_released, claims.values()))
        leaving = {uid for uid, is_released in zip(claims, released, strict=True) if is_released}
        if not await asyncio.to_thread(self._store.is_blocked_only_by, leaving, pending, claims_by_uid):
            return False
        self.waiting += len(pending)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    unprepared = self._unprepared
                    claims = await asyncio.to_thread(self._store.claims)
                    if not claims.keys() >= leaving:
                        return True
                    with suppress(TimeoutError):
                        async with asyncio.timeout(CHECK_INTERVAL):
                            await unprepared.wait()
        except TimeoutError:
            return False
        finally:
            self.waiting -= len(pending)

    def _wake_waiting(self) -> None:
        self._unprepared.set()
        self._unprepared = asyncio.Event()

    async def _read_claim(self, name: str, namespace: str) -> ResourceClaim | str | None:
        """Read a claim; None if it is deleted, and the reason if it cannot be read."""
        try:
            async with asyncio.timeout(API_TIMEOUT):
                return await self._cluster.get(RESOURCE_CLAIMS, name, namespace)
        except NotFound:
            return None
        except (ApiError, TimeoutError) as error:
            return f"the claim cannot be read from the API server: {str(error) or 'no answer in time'}"

    async def _is_released(self, record: Prepared) -> bool:
        """Read a claim, and report whether the node may unprepare it."""
        return self._has_left(record, await self._read_claim(record.name, record.namespace))

    def _has_left(self, record: Prepared, claim: ResourceClaim | str | None) -> bool:
        """Report whether a claim is deleted, recreated, deallocated or allocated on other nodes; False if it could not be read."""
        if not isinstance(claim, ResourceClaim):
            return claim is None
        driver = self._store.guard.machine.driver
        is_here = any(result.driver == driver and result.pool == record.pool for result in results_of(claim))
        return claim.metadata.uid != record.uid or not is_here

    async def _write_status(self, claim: ResourceClaim, problem: str = "") -> None:
        """Write an entry for each device and share into a claim's status, with the name of a network interface.

        A device with a `problem` is not ready.
        """
        metadata, driver = claim.metadata, self._store.guard.machine.driver
        record = self._store.prepared.get(metadata.uid)
        interfaces = {held.device: held.access.interface for held in record.devices} if record is not None else {}
        now = api_timestamp()
        status, reason = ("False", OTHERWISE) if problem else ("True", "Prepared")
        ready = {"type": "Ready", "status": status, "reason": reason, "message": problem, "lastTransitionTime": now}
        devices: list[dict[str, object]] = []
        for result in results_of(claim):
            if result.driver != driver:
                continue
            entry: dict[str, object] = {
                "driver": result.driver,
                "pool": result.pool,
                "device": result.device,
                "conditions": [ready],
            }
            if result.share_id is not None:
                entry["shareID"] = result.share_id
            if interfaces.get(result.device):
                entry["networkData"] = {"interfaceName": interfaces[result.device]}
            devices.append(entry)
        body = {
            "apiVersion": claim.api_version,
            "kind": claim.kind,
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
            "status": {"devices": devices},
        }
        patch = Apply(body, manager=driver)
        try:
            async with asyncio.timeout(API_TIMEOUT):
                await self._cluster.patch(
                    RESOURCE_CLAIMS, metadata.name, patch, metadata.namespace, subresource="status"
                )
        except (ApiError, TimeoutError) as error:
            extra = {"claim": metadata.key, "why": str(error)}
            logger.warning("cannot write the status of a claim", extra=extra)
