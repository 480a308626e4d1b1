"""Keeps a `StateBuilder` up to date from a cluster, and knows how far it can be trusted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cluster import resources
from cluster.errors import ApiError
from cluster.manifests import unfold
from dra.texts import list_first
from runtime.informers import ClusterView
from webhook.service.evidence import ReadEvidence, read_evidence
from webhook.service.pace import Pace
from webhook.service.pod_survey import LIVING
from webhook.state import IN_CONFIG_MAPS, OF_DEVICES, OF_NAMESPACES, Features, doubts, installed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.protocol import Cluster
    from cluster.resources import Resource
    from cluster.server import ServerInfo
    from runtime.informers import Batch, Informer
    from webhook.state import Seen, State, StateBuilder

# The kinds of devices and of requests for them; the holders are in claims.
DECLARED: tuple[Resource[Any], ...] = (
    resources.NAMESPACES,
    resources.NODES,
    resources.RESOURCE_QUOTAS,
    resources.LIMIT_RANGES,
    resources.RESOURCE_SLICES,
    resources.DEVICE_CLASSES,
    resources.RESOURCE_CLAIM_TEMPLATES,
)
# Followed where the server has them; a server of the right group may still lack a kind, so these are not waited for long (`Pace.extra`).
EXTRA: tuple[Resource[Any], ...] = (resources.DEVICE_TAINT_RULES, resources.DEVICE_COMPATIBILITIES)

# Pods that hold what device plugins hand out.
ON_NODES = f"spec.nodeName!=,{LIVING}"

# More namespaces than these are counted, not named.
NAMED = 5


class Follower(ClusterView):
    """Follows a cluster, and keeps the state that reviews are decided by."""

    def __init__(
        self,
        cluster: Cluster,
        builder: StateBuilder,
        pace: Pace = Pace(),  # noqa: B008  a value
        *,
        holders: bool = True,
    ) -> None:
        """Claims change with every pod, and say whether devices are free: without `holders` they are not followed."""
        super().__init__(cluster, retry=pace.retry, extra=pace.extra, server=pace.server)
        self._holders = holders
        self._pace = pace
        self._builder = builder
        # Pods on nodes, from when a policy for a mixed fleet asks for them.
        self._pods: Informer[Any] | None = None
        # How device plugins and autoscalers are set up, as it was last read, and why it was not.
        self._evidence = ReadEvidence()
        self._evidence_problem = ""

    async def run(self) -> None:
        """Follow until cancelled."""
        server = await self.learn_server()
        claims: tuple[Resource[Any], ...] = (resources.RESOURCE_CLAIMS,) if self._holders else ()
        needed = [self.informer(kind) for kind in (*DECLARED, *claims)]
        extra = [self.informer(kind) for kind in EXTRA if server.serves(kind.api_version)]
        for informer in (*needed, *extra):
            informer.listen(self._take)
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
        """Read how device plugins and autoscalers are set up. The last reading stays while the server does not answer."""
        namespaces = self._builder.evidence_in
        read = ReadEvidence()
        self._evidence_problem = ""
        try:
            async with asyncio.timeout(self._pace.evidence_look):
                if namespaces:
                    read = await read_evidence(self._cluster, namespaces)
        except (ApiError, TimeoutError) as error:
            self._evidence_problem = str(error) or "the API server does not answer"
            return
        if read != self._evidence:
            self._evidence = read
            # Beside the loop: a text as large as a ConfigMap may be takes a while.
            found = await asyncio.to_thread(installed, (unfold(obj, IN_CONFIG_MAPS) for obj in read.objects))
            self._builder.learn(installed=found)

    async def _survey(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                if self._pods is None and self._holders and self._builder.asks_for_pods:
                    self._pods = self.informer(resources.PODS, fields=ON_NODES)
                    self._pods.listen(self._take)
                    group.create_task(self._pods.run())
                if survey := self._builder.survey():
                    # On 5,000 nodes a look takes 100 ms, in which reviews want to be answered.
                    await asyncio.to_thread(survey.count_devices)
                    self._builder.take(survey)
                await asyncio.sleep(self._pace.refresh)

    def stale(self) -> str:
        """Name what was not confirmed for so long, or is so incomplete, that nothing is refused for it; "" if all is well."""
        if not self.is_synced:
            return ""
        old = [f"{name} ({age:.0f} s)" for name, age in self.ages().items() if age > self._pace.fresh]
        if old:
            return f"nothing is refused, because this was not confirmed lately: {', '.join(old)}"
        unseen = ", ".join(sorted(self.incomplete() & OF_DEVICES))
        return f"nothing is refused for want of devices, because objects are set aside of: {unseen}" if unseen else ""

    def state(self) -> State:
        """Hand out what is known now, and of what it is known that it is not."""
        incomplete = self.incomplete()
        unsure = self._unsure() if incomplete else {}
        self._builder.learn(incomplete=incomplete, unsure=unsure)
        self._builder.follow_pods(followed=self._knows_pods())
        return self._builder.state(fresh=True)

    def _knows_pods(self) -> bool:
        """Say whether what pods ask for on their nodes is known as it is now."""
        if self._pods is None:
            return False
        age = asyncio.get_running_loop().time() - self._pods.confirmed_at
        return age <= self._pace.fresh

    def uncounted(self) -> str:
        """Say why it is not known what device plugins have left, where a policy asks for it; "" if all is well."""
        if not (self.is_synced and self._holders and self._builder.asks_for_pods) or self._knows_pods():
            return ""
        error = self._pods.health.error if self._pods is not None else ""
        why = f" ({error})" if error else ""
        return f"pods stay on the nodes that `mixed` prefers, because those on nodes could not be counted lately{why}"

    def unread_evidence(self) -> str:
        """Say what of device plugins and autoscalers may not be read; "" if all is well."""
        refused = ", ".join(self._evidence.refused)
        why = self._evidence_problem or (f"forbidden are {refused}" if refused else "")
        return f"device plugins and autoscalers (`evidence.namespaces`) are not all known: {why}" if why else ""

    def doubts(self) -> str:
        """Say what of the server's gates is a guess, or was declared and not found out; "" if it told everything."""
        return self._builder.state(fresh=False).features.doubts() if self.is_synced else ""

    def unsure(self) -> str:
        """Name the namespaces in which nothing is done, because their rules could not be read; "" if there are none."""
        state = self.state()
        names = sorted({*state.unsure, *state.namespaces})
        found = [f"{name} ({', '.join(reasons)})" for name in names if (reasons := doubts(state, name))]
        why = "nothing is translated or refused in these, because their rules could not be read"
        return f"{why}: {list_first(found, NAMED)}" if found else ""

    def _unsure(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for informer in self._needed:
            kind = informer.resource.kind
            if kind not in OF_NAMESPACES:
                continue
            for namespace, name in informer.set_aside:
                where = namespace or name  # a Namespace is in none
                kinds = found.get(where, ())
                if kind not in kinds:
                    found[where] = (*kinds, kind)
        return found

    def incomplete(self) -> frozenset[str]:
        """Name the kinds of which objects are set aside."""
        return frozenset([informer.resource.kind for informer in self._needed if informer.incomplete])

    def fresh(self) -> bool:
        """Say whether what we know may refuse something."""
        return self.age() <= self._pace.fresh

    def _take(self, batch: Batch[Seen]) -> None:
        changed = [delta.new for delta in batch.deltas if delta.new is not None]
        deleted = [delta.old for delta in batch.deltas if delta.new is None and delta.old is not None]
        self._builder.take_in(changed, deleted)
