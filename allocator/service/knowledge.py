"""The allocator's view of the cluster: informers, the stock that decisions use, and whether this replica leads.

`Knowledge.stock` is an immutable snapshot. It has claims in the state that the ledger intends (`overlay_claim`), before an informer shows
the writes. Each change makes a new stock from the last one and keeps what has not changed, so that caches of earlier decisions stay valid.
Of several replicas one leads (`Lead`): it decides and writes, and the others return an error.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from allocator.service.app import HttpError
from cluster import resources
from cluster.errors import ApiError, Forbidden, NotFound
from cluster.informers import ClusterView
from cluster.outlines import without_environment
from dra.objects import DeviceCompatibility, Node
from dra.policy import misread
from dra.server import DeclaredServer, KnownServer, known_of
from dra.stock import Stock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cluster.controllers import Election
    from cluster.informers import Batch, Delta, Informer
    from cluster.objects import Namespace
    from cluster.protocol import Cluster
    from cluster.server import ServerInfo
    from dra.objects import DeviceQuota, Pod, ResourceClaim

logger = logging.getLogger("drawbridge.allocator")
ROLE = "allow the allocator to list and watch it (manifests/bridge/rbac.yaml)"
NEEDED = (
    resources.NODES,
    resources.RESOURCE_SLICES,
    resources.DEVICE_CLASSES,
)


def _ignore(*_: object) -> None:
    """Do nothing. This is the default listener."""


class Knowledge(ClusterView):
    """The stock and the pods of a cluster, kept up to date."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        decides: bool = False,
    ) -> None:
        """With `decides`, follow Namespaces, PodDisruptionBudgets and PodGroups too, and wait for quotas."""
        super().__init__(cluster)
        self._decides = decides
        # Listeners. Claims and pods: old and new object. Namespace: its name.
        self.on_claim: Callable[[ResourceClaim | None, ResourceClaim | None], None] = _ignore
        self.on_claims_listed: Callable[[], None] = _ignore  # the copy of all claims was read again
        self.on_pod: Callable[[Pod | None, Pod | None], None] = _ignore
        self.on_namespace: Callable[[str], None] = _ignore
        self.on_devices: Callable[[], None] = _ignore  # nodes, slices, classes, taint rules or compatibilities changed
        self.on_quota: Callable[[], None] = _ignore  # the spec of a quota changed
        self.stock = Stock.of()
        # The feature gates that the API server reports, and those that the administrator declares.
        self.server = KnownServer()
        self._declared = DeclaredServer()
        self._server_changed = asyncio.Event()
        self.claims = self.informer(resources.RESOURCE_CLAIMS)
        self.pods = self.informer(resources.PODS, trim=without_environment)
        self.quotas = self.informer(resources.DEVICE_QUOTAS)
        self.compatibilities = self.informer(resources.DEVICE_COMPATIBILITIES)
        self.namespaces = self.informer(resources.NAMESPACES)
        self.budgets = self.informer(resources.POD_DISRUPTION_BUDGETS)
        self.groups = self.informer(resources.POD_GROUPS)
        self._others: list[Informer[Any]] = [self.informer(kind) for kind in NEEDED]
        # By uid: claims in the state that the ledger intends, until the informer shows this state.
        self._ahead: dict[str, ResourceClaim] = {}

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        deciding: list[Informer[Any]] = []
        extra: list[Informer[Any]] = []
        server = await self.learn_server()
        self.stock = Stock.of(server=self.server.server)
        limited = server.serves(resources.DEVICE_QUOTAS.api_version)
        if self._decides:
            deciding += [self.namespaces, self.budgets]
            versions = (resources.POD_GROUPS, resources.POD_GROUPS_OF_1_36)
            for kind in [kind for kind in versions if server.serves(kind.api_version)]:
                refusal = await self._refusal(kind)
                if not isinstance(refusal, NotFound):
                    self.groups = self.informer(kind)
                    (deciding if refusal is None else extra).append(self.groups)
                    break
            # Before the quotas are read, a decision would admit every pod.
            if limited and await self._refusal(resources.DEVICE_QUOTAS, needed=True) is None:
                deciding.append(self.quotas)
        needed = (self.claims, self.pods, *deciding, *self._others)
        taints = self.informer(resources.DEVICE_TAINT_RULES)
        rules = [
            informer for informer in (taints, self.compatibilities) if server.serves(informer.resource.api_version)
        ]
        self._others += rules
        extra += rules
        if limited and self.quotas not in needed:
            extra.append(self.quotas)
        self.claims.listen(self._take_claims)
        self.pods.listen(self._take_pods)
        self.quotas.listen(self._take_quotas)
        self.namespaces.listen(self._take_namespaces)
        for informer in self._others:
            informer.listen(self._take)
        await self.follow(needed, extra, self._rebuild_stock, self.watch_server)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """Return a pod of any scheduler."""
        return self.pods.objects.get((namespace, name))

    def objects(self) -> list[object]:
        """Return all objects, with claims as the ledger intends them. Any thread can call this function."""
        stock = self.stock
        objects: list[object] = []
        for fleet in (stock.nodes, stock.slices, stock.classes, stock.rules, stock.compatibilities, stock.claims):
            objects += fleet.values()
        for informer in (self.pods, self.quotas, self.budgets, self.groups, self.namespaces):
            # One step of the interpreter, so the event loop changes nothing meanwhile.
            objects += informer.objects.values()
        return objects

    def overlay_claim(self, uid: str, claim: ResourceClaim | None) -> None:
        """Use this version of a claim in the stock. If `claim` is None, use the informer's version again."""
        if claim is not None:
            self._ahead[uid] = claim
            self.stock = self.stock.with_object(claim)
        else:
            self._put_as_seen([self._ahead.pop(uid)])

    def _put_as_seen(self, claims: Iterable[ResourceClaim]) -> None:
        """Put the informer's versions of claims into the stock."""
        latest = [(claim, self.claims.objects.get((claim.metadata.namespace, claim.metadata.name))) for claim in claims]
        removed = [claim for claim, seen in latest if seen is None]
        self.stock = self.stock.with_all([seen for _, seen in latest if seen is not None], removed)

    def declare(self, declared: DeclaredServer) -> None:
        """Use the administrator's declaration for everything that the API server does not report."""
        self._declared = declared
        self._understand(self.server.minor, self.server.reported)

    def _understand(self, minor: int, gates: Mapping[str, bool]) -> None:
        self.server = known_of(minor, gates, self._declared)
        if self.server.server != self.stock.reading.server:
            self._server_changed.set()

    def _on_server(self, server: ServerInfo) -> None:
        self._understand(server.minor, server.gates)

    async def _rebuild_stock(self) -> None:
        """When the API server's version or feature gates change, rebuild the stock in a thread. Meanwhile decisions use the old stock."""
        while True:
            await self._server_changed.wait()
            self._server_changed.clear()
            earlier = self.stock
            server = self.server.server
            if earlier.reading.server == server:
                continue
            rebuilt = await asyncio.to_thread(earlier.as_read_by, server)
            self.stock = rebuilt.caught_up(earlier, self.stock)
            self.on_devices()

    async def _refusal(self, kind: resources.Resource[Any], *, needed: bool = False) -> ApiError | None:
        """Return NotFound if the API server does not serve a resource, and Forbidden if it must not be read, unless it is `needed`.

        Retry after other errors. None means that the resource can be read.
        """
        while True:
            try:
                await self._cluster.list(kind, limit=1)
            except NotFound as error:
                return error
            except ApiError as error:
                logger.warning(
                    "a resource cannot be read", extra={"kind": kind.kind, "problem": str(error), "remedy": ROLE}
                )
                if isinstance(error, Forbidden) and not needed:
                    return error
                await asyncio.sleep(self._retry)
            else:
                return None

    def missing_rights(self) -> str:
        """Return which optional resource this process has no right to read; "" if there is none."""
        groups = self.groups
        refused = groups.error if not groups.is_synced else ""
        return f"{groups.resource.id}: {refused}: preemption can split groups: {ROLE}" if refused else ""

    def _take_claims(self, batch: Batch[ResourceClaim]) -> None:
        claims = [claim for delta in batch.deltas if (claim := delta.new or delta.old) is not None]
        self._put_as_seen([claim for claim in claims if claim.metadata.uid not in self._ahead])
        for delta in batch.deltas:
            self.on_claim(delta.old, delta.new)
        if batch.complete:
            self.on_claims_listed()

    def _take_pods(self, batch: Batch[Pod]) -> None:
        for delta in batch.deltas:
            self.on_pod(delta.old, delta.new)

    def _take_namespaces(self, batch: Batch[Namespace]) -> None:
        for delta in batch.deltas:
            if delta.new is not None:
                self.on_namespace(delta.new.metadata.name)

    def _take_quotas(self, batch: Batch[DeviceQuota]) -> None:
        for delta in batch.deltas:
            old, new = delta.old, delta.new
            if old is None or new is None or old.spec != new.spec:
                self.on_quota()
            problem = misread(new) if new is not None else ""
            if problem:
                raise ValueError(problem)  # the informer quarantines the object; its valid lines still apply

    def _take(self, batch: Batch[Any]) -> None:
        changes = [delta for delta in batch.deltas if not _is_idle(delta)]
        if changes:
            current = [delta.new for delta in changes if delta.new is not None]
            gone = [delta.old for delta in changes if delta.new is None and delta.old is not None]
            self.stock = self.stock.with_all(current, gone)
            self.on_devices()


def _is_idle(delta: Delta[Any]) -> bool:
    """Return whether a change does not matter for decisions, such as a kubelet's heartbeat or a status that this allocator writes."""
    old, new = delta.old, delta.new
    if old is None or new is None or old.metadata.uid != new.metadata.uid:
        return False
    match new:
        case Node():
            same_labels = old.metadata.labels == new.metadata.labels
            return bool(same_labels and old.spec == new.spec and old.status == new.status)
        case DeviceCompatibility():
            return bool(old.spec == new.spec)
    return False


class Lead:
    """Whether this replica may decide and write."""

    def __init__(self, knowledge: Knowledge, election: Election) -> None:
        self._knowledge = knowledge
        self._election = election
        self.leads = False  # set by `AllocatorServer`

    def unready(self) -> str:
        """Return why this replica cannot decide now; "" if it can."""
        return "" if self.leads else self._knowledge.what_is_unread() or "another replica leads"

    def may_write(self) -> bool:
        """Return whether this replica leads and no other replica can hold the Lease yet."""
        return self.leads and self._election.is_sure()

    def require_ready(self) -> None:
        """Raise HttpError unless this replica leads."""
        if not self.leads:
            raise HttpError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"cannot decide on devices now: {self.unready()}",
                "wait; nothing is lost",
            )

    def require_lead(self) -> None:
        """Raise HttpError unless this replica certainly is the only leader."""
        if not self.may_write():
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "another replica may lead now", "wait; nothing is lost")
