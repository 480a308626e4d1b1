"""Writes events about pending pods that can never be scheduled, and evicts those that the webhook would translate if they were created again.

| pending pod | event on | evicted |
|---|---|---|
| was created without claims, and would be translated now (a missed pod) | the pod | if `evictMissedPods` allows it |
| requests a misspelt resource | the pod | no |
| needs something from an administrator; also a workload whose pods are refused for lack of this | drawbridge's Deployment of the controller | no |

Each round lists the pods without a node. The memory, the judged pods, the events and the evictions of a round are limited.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from cluster.errors import ApiError, NotFound, Throttled
from cluster.resources import DEPLOYMENTS, eviction_of
from dra import step_limits
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.texts import list_first
from webhook import names
from webhook.claims import metadata_at_admission
from webhook.service.pod_survey import EVERYWHERE, PodSurvey
from webhook.state import Mode, mode_of, workload
from webhook.unknown import find_missed, find_unknown, find_unserved, why_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cluster.controllers import Recorder
    from cluster.protocol import Cluster
    from dra.finding import Finding
    from dra.objects import Pod
    from webhook.claims import TemplateKey
    from webhook.service.metrics import WebhookMetrics
    from webhook.state import State

logger = logging.getLogger("drawbridge.missed")
REASON = "NotTranslated"
MISSPELT = "UnknownResource"
NEEDED = "AdministratorNeeded"
CONTROLLER = "drawbridge-controller"
KEPT_BYTES = 8 << 20  # the most memory for the pods of a round
JUDGED = 1_000  # the most pods judged in a round: namespaces take turns, and pods judged longest ago come first
EVENTS = 32  # the most events on pods in a round, and the most events for the administrator in REPEAT seconds
OF_NAMESPACE = 4  # the most events for the administrator about one namespace in REPEAT seconds
REPEAT = 1200.0  # seconds between two events with the same content; an API server deletes events after an hour
OWNERS = 4096  # the most owners of evicted pods that are remembered
_SHOWN = 3  # the most resources that an event names


class MissedPods:
    """Finds the pods of the table above. Run it on the leader only."""

    def __init__(
        self,
        cluster: Cluster,
        state: Callable[[], State],
        recorder: Recorder,
        metrics: WebhookMetrics,
        *,
        home: str = names.NAMESPACE,
        refused: Mapping[tuple[str, TemplateKey], Finding] | None = None,
        every: float = 60.0,
    ) -> None:
        """`home` is the namespace of the controller; `refused` are the workloads whose pods are refused, with the reason."""
        self._cluster = cluster
        self._home = home
        self._refused = refused if refused is not None else {}
        self._administrator_events: dict[str, tuple[str, float]] = {}  # by message: the namespace, and the time
        self._state = state
        self._recorder = recorder
        self._metrics = metrics
        self._survey = PodSurvey(cluster)
        self._every = every
        # By the uid of a pod: when it was last judged, and when the last event was written.
        self._judged: dict[str, float] = {}
        self._reported: dict[str, float] = {}
        # By the uid of an owner: the creation time of its newest pod at the first eviction.
        self._evicted: dict[str, str] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.check()
            except ApiError as error:
                logger.warning("cannot look for pods that were missed", extra={"problem": str(error)})

    async def check(self) -> None:
        clock = asyncio.get_running_loop().time
        waiting = await self._waiting()
        missed: list[Pod] = []
        messages: list[tuple[Pod, str, str]] = []  # the reason and the text of the event on each pod
        for_administrator: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for pod in waiting[:JUDGED]:
            self._judged[pod.metadata.uid] = clock()
            try:
                if why := find_missed(pod, self._state(), Budget(step_limits.MISSED_POD)):
                    missed.append(pod)
                    messages.append((pod, REASON, f"{why.text}: {why.remedies[0]}"))
                    continue
                if text := self._misspelt(pod):
                    messages.append((pod, MISSPELT, text))
                for key, reason in find_unserved(pod, self._state(), Budget(step_limits.MISSED_POD)).items():
                    for_administrator[f"no node has {key}: {reason}"].append(
                        (pod.metadata.namespace, f"Pod {pod.metadata.key}")
                    )
            except OutOfBudget:
                pass
            except Exception:
                logger.exception("a bug while judging a pod; please report it", extra={"pod": pod.metadata.key})
            await asyncio.sleep(0)
        self._metrics.missed.set(len(missed))
        await self._evict([pod for pod in missed if pod.metadata.uid in self._reported], waiting)
        unreported = [
            message for message in messages if clock() - self._reported.get(message[0].metadata.uid, -REPEAT) >= REPEAT
        ]
        for pod, reason, text in unreported[:EVENTS]:
            self._reported[pod.metadata.uid] = clock()
            await self._recorder.record(pod, reason, text, warning=True)
        for (kind, (namespace, name)), denial in self._refused.items():
            problem = (
                f"its pods are refused: {denial.message} [{denial.code}]; provide what is missing, or inform the author"
            )
            for_administrator[problem].append((namespace, f"{kind} {namespace}/{name}"))
        await self._report_to_administrator(for_administrator)
        waiting_uids = {pod.metadata.uid for pod in waiting}
        for times in (self._judged, self._reported):
            for uid in times.keys() - waiting_uids:
                del times[uid]

    def _misspelt(self, pod: Pod) -> str:
        """Return the text about the misspelt resources of a pod; "" if it has none, or if the mode gives no warnings."""
        state, metadata = self._state(), pod.metadata
        if metadata.labels.get(names.SKIP_LABEL) == "true":
            return ""
        if mode_of(state, workload(metadata.namespace, metadata_at_admission(pod))) not in (Mode.ENFORCE, Mode.WARN):
            return ""
        suggestions = {
            key: suggestion
            for key, suggestion in find_unknown(pod, state, Budget(step_limits.MISSED_POD)).items()
            if suggestion
        }
        if not suggestions:
            return ""
        owner = metadata.controller
        remedy = "Create the pod again with that name"
        if owner is not None:
            remedy = f"Correct the pod template of {owner.kind} {owner.name}, or of its owner"
        problems = [f"no node has {key}: {why_unknown(suggestion)}" for key, suggestion in suggestions.items()]
        return f"{' '.join(problems[:_SHOWN])} {remedy}"

    async def _report_to_administrator(self, problems: Mapping[str, list[tuple[str, str]]]) -> None:
        """Write an event for each new problem that only an administrator can fix, at most EVENTS in all and OF_NAMESPACE for a namespace."""
        now = asyncio.get_running_loop().time()
        self._administrator_events = {
            problem: event for problem, event in self._administrator_events.items() if now - event[1] < REPEAT
        }
        for problem, objects in problems.items():
            namespace = objects[0][0]
            reported = Counter(where for where, _ in self._administrator_events.values())
            is_enough = reported.total() >= EVENTS or reported[namespace] >= OF_NAMESPACE
            if problem in self._administrator_events or is_enough:
                continue
            self._administrator_events[problem] = namespace, now
            deployments = await self._cluster.list(DEPLOYMENTS, self._home, fields=f"metadata.name={CONTROLLER}")
            text = f"{list_first([pod for _, pod in objects], 1)}: {problem}"
            for deployment in deployments.items:
                await self._recorder.record(DEPLOYMENTS.plain(deployment), NEEDED, text, warning=True)

    async def _waiting(self) -> list[Pod]:
        """Return the pods that a scheduler refused, that have limits, and that are not translated, in the order in which they are judged."""

        def may_be_missed(pod: Pod) -> bool:
            has_limits = any(container.resources.limits for container in pod.spec.all_containers)
            return has_limits and names.ORIGINAL not in pod.metadata.annotations and bool(pod.status.conditions)

        pods = (await self._survey.pending(EVERYWHERE, may_be_missed, KEPT_BYTES)).values()
        pods_before: Counter[str] = Counter()
        position: dict[str, int] = {}
        for pod in sorted(pods, key=lambda pod: self._judged.get(pod.metadata.uid, 0.0)):
            position[pod.metadata.uid] = pods_before[pod.metadata.namespace]
            pods_before[pod.metadata.namespace] += 1
        return sorted(pods, key=lambda pod: position[pod.metadata.uid])

    async def _evict(self, missed: Iterable[Pod], waiting: Iterable[Pod]) -> None:
        """Evict missed pods that a controller creates again. If the new pod is also missed, it is not evicted."""
        # By the uid of the owner: the creation time of its newest pod, by the API server's clock, because ours may be ahead of it.
        newest: dict[str, str] = {}
        for pod in waiting:
            for owner in pod.metadata.owner_references:
                newest[owner.uid] = max(newest.get(owner.uid, ""), pod.metadata.creation_timestamp)
        allowed = self._state().configuration.file.evict_missed_pods * self._every / 60.0
        for pod in missed:
            meta, creator = pod.metadata, pod.metadata.controller
            if creator is None or creator.kind == "Node" or allowed <= 0:
                continue
            if meta.creation_timestamp > self._evicted.get(creator.uid, "9999"):
                continue
            allowed -= 1
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": meta.name, "namespace": meta.namespace},
                "deleteOptions": {"preconditions": {"uid": meta.uid}},
            }
            try:
                await self._cluster.create(eviction_of(meta.name), body, meta.namespace)
            except (NotFound, Throttled):
                continue  # the pod is deleted, or a PodDisruptionBudget forbids the eviction now
            except ApiError as error:
                logger.warning("a pod was not evicted", extra={"pod": meta.key, "problem": str(error)})
                return
            self._evicted.setdefault(creator.uid, newest.get(creator.uid, meta.creation_timestamp))
            if len(self._evicted) > OWNERS:
                del self._evicted[next(iter(self._evicted))]
            logger.info("a pod that was created without its claims was evicted", extra={"pod": meta.key})
