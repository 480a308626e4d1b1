"""Reports findings as events, and as a condition of the node where that is wanted.

There is one event for each node and kind of finding, and one for each affected pod. A finding that is over gets a last event.

A pod's event names nothing of another namespace. Events are renewed while something is so, and `drawbridge doctor` believes only fresh ones.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster import ApiError, Apply
from cluster.resources import NODES
from node.audit import COMPONENT, OVER, condition_of, worn_by
from runtime.controllers import now_of_the_wall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cluster import Cluster
    from dra.objects import Node, Pod
    from node.audit import AuditFinding
    from runtime.controllers import Recorder

RENEWED = 600.0
MOST = 16  # events of one round
_LONGEST = 900
Key = tuple[str, str]  # whose uid, which reason
PodName = tuple[str, str]
ENDING = 5.0  # for removing the condition
logger = logging.getLogger("drawbridge.agent")


class _Saying(NamedTuple):
    """What is said about an object, and when it was."""

    about: Node | Pod
    sentence: str
    at: float = 0.0


class EventReporter:
    def __init__(self, recorder: Recorder, clock: Callable[[], float]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._told: dict[Key, _Saying] = {}

    async def tell(self, found: Iterable[AuditFinding], node: Node, pods: Mapping[PodName, Pod]) -> None:
        """Write the events of what is found now, unless they were just written."""
        said: dict[Key, list[str]] = {}
        about: dict[Key, Node | Pod] = {}
        for one in found:
            told: list[tuple[Node | Pod, str]] = [(node, f"{one.object}: {one.message}")]
            told += ((pods[name], one.told) for name in one.users if name in pods)
            for one_object, sentence in told:
                key = one_object.metadata.uid, one.what.reason
                about[key] = one_object
                said.setdefault(key, []).append(sentence)
        wanted: dict[Key, _Saying] = {}
        for key, sentences in said.items():
            # An event has room for some sentences, the first in any case.
            first, *others = dict.fromkeys(sentences)
            text = first[:_LONGEST]
            left = len(others)
            for sentence in others:
                if len(text) + len(sentence) > _LONGEST:
                    break
                text = f"{text}; {sentence}"
                left -= 1
            wanted[key] = _Saying(about[key], f"{text}; and {left} more" if left else text)
        over = {key: saying._replace(sentence=OVER) for key, saying in self._told.items()}
        writes = 0
        for key, saying in (over | wanted).items():
            before, now = self._told.get(key), self._clock()
            is_known = before is not None and before.sentence == saying.sentence and now - before.at < RENEWED
            if is_known or writes >= MOST:
                continue
            writes += 1
            _, reason = key
            if not await self._recorder.keep(saying.about, reason, saying.sentence, warning=True):
                continue
            if saying.sentence == OVER:
                del self._told[key]
            else:
                self._told[key] = saying._replace(at=now)


class Conditioner:
    """Writes one condition of one node, if it is `wanted`, and removes it with the agent: without an agent it would not be renewed.

    `problem` says why the last write failed; that keeps the agent from nothing else.
    """

    def __init__(self, cluster: Cluster, node: str, *, wanted: bool) -> None:
        self._cluster = cluster
        self._node = node
        self._wanted = wanted
        self.problem = ""

    async def keep(self, findings: Iterable[AuditFinding], unread: str) -> None:
        if not self._wanted:
            return
        try:
            node = await self._cluster.get(NODES.raw, self._node)
            before = worn_by(node)
            condition = condition_of(findings, unread, before, now_of_the_wall())
            if before is None or any(before.get(name) != value for name, value in condition.items()):
                await self._apply([condition])
            self.problem = ""
        except ApiError as error:
            if not self.problem:
                logger.warning("the node's condition is not written", extra={"why": str(error)})
            self.problem = str(error)

    async def remove(self) -> None:
        if not self._wanted:
            return
        try:
            async with asyncio.timeout(ENDING):
                await self._apply([])
        except (ApiError, TimeoutError) as error:
            logger.warning("the node's condition is left behind", extra={"why": str(error)})

    async def _apply(self, conditions: list[dict[str, Any]]) -> None:
        status: dict[str, Any] = {"conditions": conditions} if conditions else {}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._node}, "status": status}
        apply = Apply(body, COMPONENT, force=True)
        await self._cluster.patch(NODES, self._node, apply, subresource="status")
