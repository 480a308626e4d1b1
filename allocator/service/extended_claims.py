"""Creates claims for pods that request devices as extended resources (KEP-5004), because the plugin DynamicResources is disabled.

The claim is created before nodes and devices are chosen for the pod, and the pod's status names the claim for the kubelet. From then on it
is a claim like any other. The claim's name is derived from the pod. So if the process is killed between the two writes, the next attempt
does not create a second claim.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from allocator.decisions import find_claims
from allocator.service.app import HttpError
from allocator.service.commits import DEADLINE, MAX_WRITERS
from allocator.service.part import Part
from cluster.errors import AlreadyExists, ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound
from cluster.informers import Backoff
from cluster.patch import Merge
from cluster.resources import PODS, RESOURCE_CLAIMS
from dra.objects import PodExtendedResourceClaimStatus
from dra.policy import tolerate_fence
from dra.wire import builtins

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from allocator.service.part import Shared
    from cluster.protocol import Cluster
    from dra.objects import ExtendedClaim, Pod

logger = logging.getLogger("drawbridge.allocator")


class ExtendedClaims(Part):
    """Creates one claim for each pod with extended resources."""

    def __init__(self, shared: Shared, record_event: Callable[[Pod, str], Awaitable[None]]) -> None:
        super().__init__(shared)
        self._record_event = record_event
        self._backoff = Backoff(least=1.0, most=10.0)
        self._writers = asyncio.Semaphore(MAX_WRITERS)
        self.deadline = DEADLINE  # seconds for one write
        self._making: dict[str, asyncio.Task[None]] = {}  # by uid of the pod

    def make(self, pod: Pod) -> None:
        """Start to create the claim of a pod, unless this has already started. The pod is requeued when the informer shows the claim."""
        uid = pod.metadata.uid
        if uid not in self._making:
            task = self._making[uid] = asyncio.get_running_loop().create_task(self._make_patiently(pod))
            task.add_done_callback(lambda _: self._making.pop(uid, None))

    async def close(self) -> None:
        """Cancel all tasks."""
        tasks = tuple(self._making.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def is_making(self, uid: str) -> bool:
        """Return whether the claim of a pod is being created."""
        return uid in self._making

    async def _make_patiently(self, pod: Pod) -> None:
        """Retry until the claim exists, the pod needs no claim or is gone, or another replica leads."""
        failures = 0
        while True:
            pod = self._pods.newest(pod)
            wanted = find_claims(pod, self._knowledge.stock).uncreated
            if wanted is None:
                return
            problem: Exception
            try:
                self._lead.require_lead()
                async with self._writers, asyncio.timeout(self.deadline):
                    await create_extended_claim(self._cluster, pod, wanted)
            except HttpError as error:
                if not self._lead.leads:
                    return  # the next leader creates the claim
                problem = error
            except ApiError as error:
                problem = error
                if isinstance(error, BadRequest | Conflict | Forbidden | Invalid):
                    sentence = f"claim {wanted.claim.metadata.name} cannot be created: {error.message}"
                    await self._record_event(pod, sentence)
            except Exception as error:
                problem = error
                if not isinstance(error, TimeoutError):
                    logger.exception("a bug while creating a claim; please report it")
            else:
                self._metrics.writes.labels("ExtendedClaim", "Written").inc()
                return
            self._metrics.writes.labels("ExtendedClaim", type(problem).__name__).inc()
            extra = {"pod": pod.metadata.key, "problem": str(problem) or "it took too long"}
            logger.warning("a claim cannot be created", extra=extra)
            failures += 1
            await asyncio.sleep(self._backoff.seconds(failures, 0.5, problem))
            if not await self._waits(pod):
                return

    async def _waits(self, pod: Pod) -> bool:
        """Return whether a pod still has no node. If our watch has not shown the pod yet, read it from the API server."""
        meta = pod.metadata
        if self._pods.find(meta.uid) is not None:
            return self._pods.waits(meta.uid)
        try:
            current = await self._cluster.get(PODS, meta.name, meta.namespace)
        except NotFound:
            return False
        except ApiError:
            return True
        return current.metadata.uid == meta.uid and not current.spec.node_name


async def create_extended_claim(cluster: Cluster, pod: Pod, wanted: ExtendedClaim) -> None:
    """Create the claim for a pod's extended resources, unless it exists, and write its name into the status of the pod."""
    meta = pod.metadata
    name = wanted.claim.metadata.name
    try:
        await cluster.create(RESOURCE_CLAIMS, tolerate_fence(wanted.claim), meta.namespace)
    except AlreadyExists:
        existing = await cluster.get(RESOURCE_CLAIMS, name, meta.namespace)
        if not any(owner.uid == meta.uid and owner.controller for owner in existing.metadata.owner_references):
            raise Conflict(f"claim {name} does not belong to the pod: delete the claim") from None
    status = PodExtendedResourceClaimStatus(request_mappings=wanted.mappings, resource_claim_name=name)
    body = {"metadata": {"uid": meta.uid}, "status": {"extendedResourceClaimStatus": builtins(status)}}
    await cluster.patch(PODS, meta.name, Merge(body), meta.namespace, subresource="status")
