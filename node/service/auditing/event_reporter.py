"""Reports findings: one event for each node and kind of finding, and one for each pod that is touched. A finding that is over gets a last event.

A pod's event names nothing of another namespace. Events are renewed while something is so, and `drawbridge doctor` believes only fresh ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from node.audit import OVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dra.objects import Node, Pod
    from node.audit import Finding
    from runtime.controllers import Recorder

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


class EventReporter:
    """Writes events, and remembers which."""

    def __init__(self, recorder: Recorder, clock: Callable[[], float]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._told: dict[Key, _Saying] = {}

    async def tell(self, found: Iterable[Finding], node: Node, pods: Mapping[PodName, Pod]) -> None:
        """Write what is so now, as far as it was not just written."""
        wanted = _sentences(found, node, pods)
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


def _sentences(found: Iterable[Finding], node: Node, pods: Mapping[PodName, Pod]) -> dict[Key, _Saying]:
    """Say what is to be said, by the uid of the object and the reason."""
    said: dict[Key, list[str]] = {}
    about: dict[Key, Node | Pod] = {}
    for one in found:
        told: list[tuple[Node | Pod, str]] = [(node, f"{one.object}: {one.message}")]
        told += ((pods[name], one.told) for name in one.users if name in pods)
        for whom, sentence in told:
            key = whom.metadata.uid, one.what.reason
            about[key] = whom
            said.setdefault(key, []).append(sentence)
    sayings: dict[Key, _Saying] = {}
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
        sayings[key] = _Saying(about[key], f"{text}; and {left} more" if left else text)
    return sayings
