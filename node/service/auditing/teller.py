"""Tells people what does not fit: one event a node and kind of finding, and one a pod that is touched. What is over is said to be over.

A pod's event names nothing of another namespace. Events are renewed while something is so, and `drawbridge doctor` believes only fresh ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from node.audit import OVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from cluster.controllers import Recorder
    from dra.objects import Node, Pod
    from node.audit import Finding

RENEWED = 600.0
MOST = 16  # events of one round
_LONGEST = 900
Key = tuple[str, str]  # whose uid, which reason
PodName = tuple[str, str]


class _Saying(NamedTuple):
    """What is said about an object, and when it was."""

    about: Node | Pod
    sentence: str
    at: float = 0.0


class Teller:
    """Writes events, and remembers which."""

    def __init__(self, recorder: Recorder, clock: Callable[[], float]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._told: dict[Key, _Saying] = {}

    async def tell(self, found: Iterable[Finding], node: Node, pods: Mapping[PodName, Pod]) -> None:
        """Say what is so now."""
        wanted = _sentences(found, node, pods)
        said = {key: saying._replace(sentence=OVER) for key, saying in self._told.items()}
        writes = 0
        for key, saying in (said | wanted).items():
            if writes < MOST:
                writes += await self._say(key, saying)

    async def _say(self, key: Key, saying: _Saying) -> bool:
        """Say it unless it has just been said; answer if that took a write."""
        before = self._told.get(key)
        now = self._clock()
        if before is not None and before.sentence == saying.sentence and now - before.at < RENEWED:
            return False
        _, reason = key
        if not await self._recorder.keep(saying.about, reason, saying.sentence, warning=True):
            return True
        if saying.sentence == OVER:
            del self._told[key]
        else:
            self._told[key] = saying._replace(at=now)
        return True


def _sentences(found: Iterable[Finding], node: Node, pods: Mapping[PodName, Pod]) -> dict[Key, _Saying]:
    """Say what is to be said, by the uid of what it is about, and the reason."""
    said: dict[Key, list[str]] = {}
    about: dict[Key, Node | Pod] = {}
    for one in found:
        reason = one.what.reason
        for whom, sentence in _told(one, node, pods):
            uid = whom.metadata.uid
            key = uid, reason
            about[key] = whom
            said.setdefault(key, []).append(sentence)
    sayings: dict[Key, _Saying] = {}
    for key, sentences in said.items():
        text = _short(sentences)
        sayings[key] = _Saying(about[key], text)
    return sayings


def _told(one: Finding, node: Node, pods: Mapping[PodName, Pod]) -> Iterator[tuple[Node | Pod, str]]:
    yield node, f"{one.object}: {one.message}"
    for name in one.users:
        if name in pods:
            yield pods[name], one.told


def _short(sentences: list[str]) -> str:
    once = list(dict.fromkeys(sentences))
    text = once[0][:_LONGEST]
    number = 1
    for sentence in once[1:]:
        if len(text) + len(sentence) > _LONGEST:
            break
        text = f"{text}; {sentence}"
        number += 1
    left = len(once) - number
    return f"{text}; and {left} more" if left else text
