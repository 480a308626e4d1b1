"""Follows a cluster with informers, passes the changes to a `StateBuilder`, and reports what is stale or incomplete."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cluster import resources
from cluster.errors import ApiError
from cluster.informers import ClusterView
from cluster.manifests import unfold
from dra.texts import list_first
from webhook.service.evidence import ReadEvidence, read_evidence
from webhook.service.pace import Pace
from webhook.service.pod_survey import LIVING
from webhook.state import IN_CONFIG_MAPS, OF_DEVICES, OF_NAMESPACES, Features, installed, why_rules_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.informers import Batch, Informer
    from cluster.protocol import Cluster
    from cluster.resources import Resource
    from cluster.server import ServerInfo
    from webhook.state import Seen, State, StateBuilder

# Kinds that are always followed. ResourceClaims, which show the holders of devices, and DeviceQuotas are followed only with `holders`.
DECLARED: tuple[Resource[Any], ...] = (
    resources.NAMESPACES,
    resources.NODES,
    resources.RESOURCE_QUOTAS,
    resources.LIMIT_RANGES,
    resources.RESOURCE_SLICES,
    resources.DEVICE_CLASSES,
    resources.RESOURCE_CLAIM_TEMPLATES,
)
# Followed if the API server has them. A server with the group may still lack a kind, so the wait for these is short (`Pace.extra`).
EXTRA: tuple[Resource[Any], ...] = (resources.DEVICE_TAINT_RULES, resources.DEVICE_COMPATIBILITIES)

# Pods that hold devices of device plugins.
ON_NODES = f"spec.nodeName!=,{LIVING}"

# The most namespaces that a message names; it counts further ones.
NAMED = 5


class Follower(ClusterView):
    """Follows a cluster, and keeps the state for decisions about reviews."""

    def __init__(
        self,
        cluster: Cluster,
        builder: StateBuilder,
        pace: Pace = Pace(),  # noqa: B008  a value
        *,
        holders: bool = True,
    ) -> None:
        """Without `holders`, ResourceClaims and DeviceQuotas are not followed: they only show which devices a pod may still get."""
        super().__init__(cluster, retry=pace.retry, extra=pace.extra, server=pace.server)
        self._holders = holders
        self._pace = pace
        self._builder = builder
        # The informer of pods on nodes, as soon as a policy for a mixed fleet needs them.
        self._pods: Informer[Any] | None = None
        # The setup of device plugins and autoscalers from the last successful read, and why the last read failed.
        self._evidence = ReadEvidence()
        self._evidence_problem = ""

    async def run(self) -> None:
        server = await self.learn_server()
        claims: tuple[Resource[Any], ...] = (resources.RESOURCE_CLAIMS,) if self._holders else ()
        quotas: tuple[Resource[Any], ...] = (resources.DEVICE_QUOTAS,) if self._holders else ()
        needed = [self.informer(kind) for kind in (*DECLARED, *claims)]
        extra = [self.informer(kind) for kind in (*EXTRA, *quotas) if server.serves(kind.api_version)]
        for informer in (*needed, *extra):
            informer.listen(self._apply_batch)
        await self._read_evidence()
        await self.follow(needed, extra, self.watch_server, self._survey, self._follow_evidence)

    def _on_sync(self) -> None:
        self._builder.settle()

    def _on_server(self, server: ServerInfo) -> None:
        self._builder.learn(features=Features.combine(server.minor, server.gates))

    async def _follow_evidence(self) -> None:
        while True:
            await asyncio.sleep(self._pace.evidence)
            await self._read_evidence()

    async def _read_evidence(self) -> None:
        """Read the setup of device plugins and autoscalers. The last result stays while the API server does not answer."""
        namespaces = self._builder.evidence_in
        read = ReadEvidence()
        self._evidence_problem = ""
        try:
            async with asyncio.timeout(self._pace.evidence_timeout):
                if namespaces:
                    read = await read_evidence(self._cluster, namespaces)
        except (ApiError, TimeoutError) as error:
            self._evidence_problem = str(error) or "the API server does not answer"
            return
        if read != self._evidence:
            self._evidence = read
            # In a thread, because a large ConfigMap takes long to parse.
            setup = await asyncio.to_thread(installed, (unfold(obj, IN_CONFIG_MAPS) for obj in read.objects))
            self._builder.learn(installed=setup)

    async def _survey(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                if self._pods is None and self._holders and self._builder.needs_pods:
                    self._pods = self.informer(resources.PODS, fields=ON_NODES)
                    self._pods.listen(self._apply_batch)
                    group.create_task(self._pods.run())
                if survey := self._builder.survey():
                    # With 5,000 nodes this takes 100 ms, during which reviews must be answered.
                    await asyncio.to_thread(survey.count_devices)
                    self._builder.apply_survey(survey)
                await asyncio.sleep(self._pace.refresh)

    def stale(self) -> str:
        """Return why nothing is refused, with the kinds that are stale or incomplete; "" if there are none."""
        if not self.is_synced:
            return ""
        stale_kinds = [f"{name} ({age:.0f} s)" for name, age in self.ages().items() if age > self._pace.fresh]
        if stale_kinds:
            return f"nothing is refused, because the copies of these kinds were not confirmed recently: {', '.join(stale_kinds)}"
        incomplete_kinds = ", ".join(sorted(self.incomplete() & OF_DEVICES))
        return (
            f"nothing is refused as impossible, because objects of these kinds are set aside: {incomplete_kinds}"
            if incomplete_kinds
            else ""
        )

    def state(self) -> State:
        """Return the current state, including what could not be read."""
        incomplete = self.incomplete()
        unsure = self._unsure() if incomplete else {}
        self._builder.learn(incomplete=incomplete, unsure=unsure)
        self._builder.follow_pods(followed=self._knows_pods())
        return self._builder.state(fresh=True)

    def _knows_pods(self) -> bool:
        """Report whether the requests of pods on nodes are up to date."""
        if self._pods is None:
            return False
        age = asyncio.get_running_loop().time() - self._pods.confirmed_at
        return age <= self._pace.fresh

    def uncounted(self) -> str:
        """Return why the free devices of device plugins are unknown although a policy needs them; "" if they are known."""
        if not (self.is_synced and self._holders and self._builder.needs_pods) or self._knows_pods():
            return ""
        error = self._pods.error if self._pods is not None else ""
        why = f" ({error})" if error else ""
        return (
            f"pods stay on the nodes that `mixed` prefers, because the pods on nodes could not be counted recently{why}"
        )

    def unread_evidence(self) -> str:
        """Return which objects of device plugins and autoscalers could not be read; "" if none."""
        refused = ", ".join(self._evidence.refused)
        why = self._evidence_problem or (f"not allowed to read {refused}" if refused else "")
        return f"device plugins and autoscalers (`evidence.namespaces`) are not all known: {why}" if why else ""

    def assumed_gates(self) -> str:
        """Return which feature gates of the API server are assumed or declared; "" if the server published all."""
        return self._builder.state(fresh=False).features.doubts() if self.is_synced else ""

    def unsure_namespaces(self) -> str:
        """List the namespaces in which the webhook does nothing, because their rules could not be read; "" if none."""
        state = self.state()
        names = sorted({*state.unsure, *state.namespaces})
        texts = [f"{name} ({', '.join(reasons)})" for name in names if (reasons := why_rules_unknown(state, name))]
        why = "nothing is translated or refused in these namespaces, because their rules could not be read"
        return f"{why}: {list_first(texts, NAMED)}" if texts else ""

    def _unsure(self) -> Mapping[str, tuple[str, ...]]:
        unsure: dict[str, tuple[str, ...]] = {}
        for informer in self._needed:
            kind = informer.resource.kind
            if kind not in OF_NAMESPACES:
                continue
            for namespace, name in informer.set_aside:
                where = namespace or name  # a Namespace has no namespace
                kinds = unsure.get(where, ())
                if kind not in kinds:
                    unsure[where] = (*kinds, kind)
        return unsure

    def incomplete(self) -> frozenset[str]:
        """Return the kinds that have unreadable objects."""
        return frozenset([informer.resource.kind for informer in self._needed if informer.incomplete])

    def fresh(self) -> bool:
        """Report whether the state is recent enough to refuse objects."""
        return self.age() <= self._pace.fresh

    def _apply_batch(self, batch: Batch[Seen]) -> None:
        changed = [delta.new for delta in batch.deltas if delta.new is not None]
        deleted = [delta.old for delta in batch.deltas if delta.new is None and delta.old is not None]
        self._builder.update_objects(changed, deleted)
