"""Reports findings as events and, if enabled, as a node condition.

For each kind of finding the node has one event, and each affected pod has one. When the finding is over, the event says so.

A pod's event names no object of another namespace. Events are renewed while a finding lasts, and `drawbridge doctor` uses only recent
events.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster import ApiError, Apply
from cluster.controllers import api_timestamp
from cluster.resources import NODES
from node.audit import COMPONENT, FINDING_ENDED, condition_of, condition_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cluster import Cluster
    from cluster.controllers import Recorder
    from dra.objects import Node, Pod
    from node.audit import NodeFinding

RENEWAL_INTERVAL = 600.0  # seconds
MAX_EVENTS = 16  # events in one round
_LONGEST = 900  # characters of an event's message
Key = tuple[str, str]  # the object's UID, and the reason
PodName = tuple[str, str]
REMOVE_TIMEOUT = 5.0  # seconds, for removing the condition
logger = logging.getLogger("drawbridge.agent")


class _ReportedEvent(NamedTuple):
    """The message of an event about an object, and when it was written."""

    about: Node | Pod
    sentence: str
    at: float = 0.0


class EventReporter:
    def __init__(self, recorder: Recorder, clock: Callable[[], float]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._written: dict[Key, _ReportedEvent] = {}

    async def report(self, findings: Iterable[NodeFinding], node: Node, pods: Mapping[PodName, Pod]) -> None:
        """Write the events of the current findings, unless they were written recently."""
        sentences_by_key: dict[Key, list[str]] = {}
        objects: dict[Key, Node | Pod] = {}
        for finding in findings:
            messages: list[tuple[Node | Pod, str]] = [(node, f"{finding.object}: {finding.message}")]
            messages += ((pods[name], finding.pod_message) for name in finding.users if name in pods)
            for regarding, sentence in messages:
                key = regarding.metadata.uid, finding.kind.reason
                objects[key] = regarding
                sentences_by_key.setdefault(key, []).append(sentence)
        reports: dict[Key, _ReportedEvent] = {}
        for key, sentences in sentences_by_key.items():
            # The event has as many sentences as fit, but at least the first one.
            first, *others = dict.fromkeys(sentences)
            text = first[:_LONGEST]
            left_out = len(others)
            for sentence in others:
                if len(text) + len(sentence) > _LONGEST:
                    break
                text = f"{text}; {sentence}"
                left_out -= 1
            reports[key] = _ReportedEvent(objects[key], f"{text}; and {left_out} more" if left_out else text)
        ended = {key: report._replace(sentence=FINDING_ENDED) for key, report in self._written.items()}
        writes = 0
        for key, report in (ended | reports).items():
            before, now = self._written.get(key), self._clock()
            recently_written = (
                before is not None and before.sentence == report.sentence and now - before.at < RENEWAL_INTERVAL
            )
            if recently_written or writes >= MAX_EVENTS:
                continue
            writes += 1
            _, reason = key
            if not await self._recorder.record(report.about, reason, report.sentence, warning=True, replaces=True):
                continue
            if report.sentence == FINDING_ENDED:
                del self._written[key]
            else:
                self._written[key] = report._replace(at=now)


class Conditioner:
    """Writes the node condition if it is `wanted`, and removes it when the agent ends, because then no agent renews it.

    `problem` is the reason why the last write failed. A failure does not affect the agent's other work.
    """

    def __init__(self, cluster: Cluster, node: str, *, wanted: bool) -> None:
        self._cluster = cluster
        self._node = node
        self._wanted = wanted
        self.problem = ""

    async def keep(self, findings: Iterable[NodeFinding], unread: str) -> None:
        if not self._wanted:
            return
        try:
            node = await self._cluster.get(NODES.raw, self._node)
            before = condition_on(node)
            condition = condition_of(findings, unread, before, api_timestamp())
            if before is None or any(before.get(name) != value for name, value in condition.items()):
                await self._apply([condition])
            self.problem = ""
        except ApiError as error:
            if not self.problem:
                logger.warning("cannot write the node's condition", extra={"why": str(error)})
            self.problem = str(error)

    async def remove(self) -> None:
        if not self._wanted:
            return
        try:
            async with asyncio.timeout(REMOVE_TIMEOUT):
                await self._apply([])
        except (ApiError, TimeoutError) as error:
            logger.warning("cannot remove the node's condition", extra={"why": str(error)})

    async def _apply(self, conditions: list[dict[str, Any]]) -> None:
        status: dict[str, Any] = {"conditions": conditions} if conditions else {}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._node}, "status": status}
        apply = Apply(body, COMPONENT)
        await self._cluster.patch(NODES, self._node, apply, subresource="status")
