"""Tells pods that were missed so, in an event, and evicts them where the configuration says that it may; names misspelt resources in
an event about their pod; tells an administrator, in events about the controller's own Deployment, what pods wait for or are refused for
and their authors cannot fix.

Pods without a node are listed now and then; the work of a round is bounded: pods that are kept and judged, events, evictions.
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
from dra.footprint import footprint
from dra.texts import list_first
from runtime.informers import Allotment
from webhook import names
from webhook.claims import known_at_admission
from webhook.service.pod_survey import EVERYWHERE, PodSurvey
from webhook.state import Mode, mode_of, workload
from webhook.translate import find_missed, find_unknown, find_unserved, why_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cluster.protocol import Cluster
    from dra.finding import Finding
    from dra.objects import Pod
    from runtime.controllers import Recorder
    from webhook.claims import TemplateKey
    from webhook.service.metrics import WebhookMetrics
    from webhook.state import State
    from webhook.translate import MissedPod

logger = logging.getLogger("drawbridge.missed")
REASON = "NotTranslated"
MISSPELT = "UnknownResource"
NEEDED = "AdministratorNeeded"
CONTROLLER = "drawbridge-controller"
KEPT_BYTES = 8 << 20
JUDGED = 1_000  # pods of a round, those that were judged longest ago first, and namespaces in turn
EVENTS = 32
OWNERS = 4096  # of evicted pods, that are remembered
REPEAT = 1200.0  # an API server forgets events after an hour
_SHOWN = 3  # names of a pod
OF_NAMESPACE = 4  # of the EVENTS that an administrator is told in that time


class MissedPods:
    """Finds pods that were missed; run it on the leader only."""

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
        """`home` is the namespace of the controller; `refused` are the workloads whose pods are, and why."""
        self._cluster = cluster
        self._home = home
        self._refused = refused if refused is not None else {}
        self._administrator_events: dict[str, tuple[str, float]] = {}  # by message: the namespace, and when
        self._state = state
        self._recorder = recorder
        self._metrics = metrics
        self._survey = PodSurvey(cluster)
        self._every = every
        self._judged: dict[str, float] = {}  # by uid
        self._reported: dict[str, float] = {}
        # By uid of the owner, when the last pod was created that was there at the first eviction.
        self._evicted: dict[str, str] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.check()
            except ApiError as error:
                logger.warning("cannot look for pods that were missed", extra={"problem": str(error)})

    async def check(self) -> None:
        """Look once."""
        clock = asyncio.get_running_loop().time
        waiting = await self._waiting()
        missed: list[tuple[Pod, MissedPod]] = []
        messages: list[tuple[Pod, str, str]] = []  # for the author of a pod: reason and text of its event
        for_administrator: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for pod in waiting[:JUDGED]:
            self._judged[pod.metadata.uid] = clock()
            try:
                if found := find_missed(pod, self._state(), Budget(step_limits.MISSED_POD)):
                    missed.append((pod, found))
                    messages.append((pod, REASON, f"{found.message}: {found.remedy}"))
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
        await self._evict([one for one in missed if one[0].metadata.uid in self._reported], waiting)
        unreported = [
            message for message in messages if clock() - self._reported.get(message[0].metadata.uid, -REPEAT) >= REPEAT
        ]
        for pod, reason, text in unreported[:EVENTS]:
            self._reported[pod.metadata.uid] = clock()
            await self._recorder.record(pod, reason, text, warning=True)
        for (kind, (namespace, name)), denial in self._refused.items():
            problem = (
                f"its pods are refused: {denial.message} [{denial.code}]; bring what is missing, or tell its author"
            )
            for_administrator[problem].append((namespace, f"{kind} {namespace}/{name}"))
        await self._report_to_administrator(for_administrator)
        living = {pod.metadata.uid for pod in waiting}
        for known in (self._judged, self._reported):
            for uid in known.keys() - living:
                del known[uid]

    def _misspelt(self, pod: Pod) -> str:
        """Name the resources of a pod that nothing has and that are nearly known ones, where authors are warned; "" if there is none."""
        state, metadata = self._state(), pod.metadata
        if metadata.labels.get(names.SKIP_LABEL) == "true":
            return ""
        if mode_of(state, workload(metadata.namespace, known_at_admission(pod))) not in (Mode.ENFORCE, Mode.WARN):
            return ""
        unknown = {
            key: meant for key, meant in find_unknown(pod, state, Budget(step_limits.MISSED_POD)).items() if meant
        }
        if not unknown:
            return ""
        owner = next(
            (owner_reference for owner_reference in metadata.owner_references if owner_reference.controller), None
        )
        remedy = "Create the pod again with that name"
        if owner is not None:
            remedy = f"Correct the template of {owner.kind} {owner.name}, or its owner's"
        problems = [f"no node has {key}: {why_unknown(meant)}" for key, meant in unknown.items()]
        return f"{' '.join(problems[:_SHOWN])} {remedy}"

    async def _report_to_administrator(self, problems: Mapping[str, list[tuple[str, str]]]) -> None:
        """Say what only an administrator can fix, once in a while: so much in all, and of one namespace."""
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
            found = await self._cluster.list(DEPLOYMENTS, self._home, fields=f"metadata.name={CONTROLLER}")
            text = f"{list_first([pod for _, pod in objects], 1)}: {problem}"
            for about in found.items:
                await self._recorder.record(DEPLOYMENTS.plain(about), NEEDED, text, warning=True)

    async def _waiting(self) -> list[Pod]:
        """List the pods that their scheduler refused, in the order in which they are judged."""
        found: list[Pod] = []
        room = Allotment(KEPT_BYTES)

        def take(pod: Pod) -> None:
            meta = pod.metadata
            asks = any(container.resources.limits for container in pod.spec.all_containers)
            if not asks or names.ORIGINAL in meta.annotations or not pod.status.conditions:
                return
            if room.take((meta.namespace, meta.name), meta.namespace, footprint(pod)):
                found.append(pod)

        await self._survey.list_unplaced(EVERYWHERE, take)
        place: Counter[str] = Counter()
        turn: dict[str, int] = {}
        for pod in sorted(found, key=lambda pod: self._judged.get(pod.metadata.uid, 0.0)):
            turn[pod.metadata.uid] = place[pod.metadata.namespace]
            place[pod.metadata.namespace] += 1
        return sorted(found, key=lambda pod: turn[pod.metadata.uid])

    async def _evict(self, missed: list[tuple[Pod, MissedPod]], waiting: Iterable[Pod]) -> None:
        """Evict pods that a controller creates again; if that one was missed as well, there is no third."""
        # By uid of the owner, when its last pod was created: by the API server's clock, because ours may be ahead of it.
        newest: dict[str, str] = {}
        for pod in waiting:
            for owner in pod.metadata.owner_references:
                newest[owner.uid] = max(newest.get(owner.uid, ""), pod.metadata.creation_timestamp)
        allowed = self._state().configuration.file.evict_missed_pods * self._every / 60.0
        for pod, one in missed:
            meta = pod.metadata
            if one.owner is None or one.owner.kind == "Node" or allowed <= 0:
                continue
            if meta.creation_timestamp > self._evicted.get(one.owner.uid, "9999"):
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
                continue  # it is gone, or a PodDisruptionBudget says no for now
            except ApiError as error:
                logger.warning("a pod was not evicted", extra={"pod": meta.key, "problem": str(error)})
                return
            if len(self._evicted) >= OWNERS:
                self._evicted.clear()
            self._evicted.setdefault(one.owner.uid, newest.get(one.owner.uid, meta.creation_timestamp))
            logger.info("a pod was evicted that was created without its claims", extra={"pod": meta.key})
