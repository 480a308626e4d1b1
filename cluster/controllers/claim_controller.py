"""The resource claim controller: passes the objects of informers to `cluster.controllers.claim_decisions`, and executes the decisions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, assert_never

from cluster.controllers.claim_decisions import (
    Create,
    Delete,
    RecordNames,
    Write,
    actions_for_claim,
    actions_for_pod,
    claim_from,
    generated_for,
    templates_of,
    unprotect,
)
from cluster.controllers.workqueue import WorkQueue
from cluster.errors import NotFound
from cluster.informers import Informer, Quarantine
from cluster.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from dra.objects import claim_names, is_later

if TYPE_CHECKING:
    from cluster.controllers.claim_decisions import Action
    from cluster.informers import Batch
    from cluster.protocol import Cluster
    from cluster.resources import Key
    from dra.objects import Pod, ResourceClaim, ResourceClaimTemplate

_POD, _CLAIM = "pod", "claim"
Work = tuple[str, str, str]  # _POD or _CLAIM, namespace, name
_ByNamespace = defaultdict[str, dict[str, "ResourceClaim"]]


class ClaimController:
    """Creates, reserves, releases and deletes claims for pods, on a cluster without kube-controller-manager."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.quarantine = quarantine = Quarantine()
        self._pods = Informer(cluster, PODS, quarantine=quarantine)
        self._claims = Informer(cluster, RESOURCE_CLAIMS, quarantine=quarantine)
        self._templates = Informer(cluster, RESOURCE_CLAIM_TEMPLATES, quarantine=quarantine)
        self._queue: WorkQueue[Work] = WorkQueue("claim controller", quarantine=quarantine)
        self._by_namespace: _ByNamespace = defaultdict(dict)
        # Claims that this controller has created and that the informer does not show yet, so that none is created twice.
        self._created: dict[Key, ResourceClaim] = {}
        self._pods.listen(self._on_pods)
        self._claims.listen(self._on_claims)
        self._templates.listen(self._on_templates)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in (self._pods, self._claims, self._templates):
                tasks.create_task(informer.run())
            # Decisions need all pods and claims: an unknown pod would look like a deleted one.
            for awaited in (self._pods, self._claims):
                await awaited.wait_for_sync()
            tasks.create_task(self._queue.run(self._work))

    def _on_pods(self, batch: Batch[Pod]) -> None:
        for delta in batch.deltas:
            self._queue.add((_POD, *delta.key))
            for pod in (delta.old, delta.new):
                if pod is None:
                    continue
                for name in claim_names(pod):
                    self._queue.add((_CLAIM, pod.metadata.namespace, name))

    def _on_claims(self, batch: Batch[ResourceClaim]) -> None:
        if batch.complete:
            # Claims created after this list are not in it, and still exist.
            self._created = {
                where: claim
                for where, claim in self._created.items()
                if is_later(claim.metadata.resource_version, batch.version)
            }
        for delta in batch.deltas:
            self._created.pop(delta.key, None)
            namespace, name = delta.key
            if delta.new is not None:
                self._by_namespace[namespace][name] = delta.new
            else:
                self._by_namespace[namespace].pop(name, None)
            self._queue.add((_CLAIM, *delta.key))
            claim = delta.new or delta.old
            for owner in claim.metadata.owner_references if claim else ():
                self._queue.add((_POD, namespace, owner.name))

    def _on_templates(self, batch: Batch[ResourceClaimTemplate]) -> None:
        added = {delta.key for delta in batch.deltas if delta.old is None}
        for where, pod in self._pods.objects.items():
            used = templates_of(pod)
            if not added.isdisjoint(used):
                self._queue.add((_POD, *where))

    def _claims_in(self, namespace: str) -> dict[str, ResourceClaim]:
        created = {name: claim for (where, name), claim in self._created.items() if where == namespace}
        return created | self._by_namespace[namespace]

    async def _work(self, work: Work) -> None:
        kind, namespace, name = work
        if kind == _POD:
            pod = self._pods.objects.get((namespace, name))
            if pod is None:
                return
            claims = self._claims_in(namespace).values()
            for action in actions_for_pod(pod, claims):
                await self._execute(action, namespace, pod)
            return
        claim = self._claims_in(namespace).get(name)
        if claim is None:
            return
        # Pods that the informer lacks are read from the API server: they may have been created and reserved for just now.
        fetched_pods: dict[str, Pod] = {}
        for user in claim.status.reserved_for:
            cached_pod = self._pods.objects.get((namespace, user.name))
            if user.is_pod and (cached_pod is None or cached_pod.metadata.uid != user.uid):
                with suppress(NotFound):
                    fetched_pods[user.name] = await self._cluster.get(PODS, user.name, namespace)
        for action in actions_for_claim(
            claim, lambda pod: fetched_pods.get(pod) or self._pods.objects.get((namespace, pod))
        ):
            await self._execute(action, namespace, None)

    async def _execute(self, action: Action, namespace: str, pod: Pod | None) -> None:
        match action:
            case Create():
                assert pod is not None
                try:
                    template = await self._cluster.get(RESOURCE_CLAIM_TEMPLATES.raw, action.template, namespace)
                except NotFound:
                    return  # the pod is queued again when the template appears
                if any(generated_for(claim, pod, action.entry) for claim in self._claims_in(namespace).values()):
                    return
                new_claim = claim_from(template, pod, action.entry)
                claim = await self._cluster.create(RESOURCE_CLAIMS, new_claim, namespace)
                self._created[namespace, claim.metadata.name] = claim
                self._queue.add((_POD, namespace, pod.metadata.name))
            case RecordNames():
                await self._cluster.patch(PODS, action.pod, action.patch, namespace, subresource="status")
            case Write():
                written = await self._cluster.patch(
                    RESOURCE_CLAIMS, action.claim, action.patch, namespace, subresource=action.subresource
                )
                if action.frees:
                    await self._execute(unprotect(written), namespace, None)
            case Delete():
                with suppress(NotFound):
                    await self._cluster.delete(RESOURCE_CLAIMS, action.claim, namespace, uid=action.uid)
            case _:
                assert_never(action)
