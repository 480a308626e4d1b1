"""Whose turn it is: a namespace whose questions take long waits for the next one, so that other namespaces' pods do not.

Schedulers ask about one pod after the other, so forty pods with dear selectors would hold up every pod behind them. A namespace owes
the time of a question that takes the processor longer than `FREE`, and pays it off with `SHARE` of the time; one that owes more than
`MOST` is answered at once, with how long it has to wait, and its pods are woken when it has paid.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dra.objects import Pod

FREE = 0.02  # seconds of the processor; most questions take less
MOST = 0.5
SHARE = 0.5
AT_ONCE = 4  # pods of a namespace that are tried again at a time: the first may be dear again
NAMESPACES = 1024  # that are remembered: those that owe most


class NamespaceTurns:
    """What namespaces owe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._paid_at: dict[str, float] = {}  # by namespace

    def owe(self, namespace: str, seconds: float, worked: float) -> None:
        """Have a namespace owe the seconds that a question of it took, unless the processor `worked` on it for a moment only."""
        if worked < FREE:
            return
        now = self._clock()
        self._paid_at[namespace] = max(now, self._paid_at.get(namespace, now)) + seconds / SHARE
        if len(self._paid_at) > NAMESPACES:
            del self._paid_at[min(self._paid_at, key=lambda one: self._paid_at[one])]

    def owed(self, namespace: str) -> float:
        """Return how long a namespace pays for what it owes."""
        return max(0.0, self._paid_at.get(namespace, 0.0) - self._clock())

    def seconds_until(self, namespace: str) -> float:
        """Say how long a namespace has to wait for its next turn; 0 if it may be answered now."""
        return max(0.0, self._paid_at.get(namespace, 0.0) - self._clock() - MOST / SHARE)

    def wait(self, namespace: str) -> str:
        """Say what the pods of a namespace wait for if it is not their turn; "" if it is."""
        seconds = self.seconds_until(namespace)
        if not seconds:
            return ""
        return f"the selectors of namespace {namespace} take long to evaluate: its next pod is decided in {seconds:.0f} s, so that others do not wait"

    def next_pods(self, waiting: Iterable[Pod]) -> list[Pod]:
        """Choose from the pods that wait for their turn the first ones of each namespace whose turn it is."""
        now = self._clock()
        for namespace in [one for one, paid in self._paid_at.items() if paid <= now]:
            del self._paid_at[namespace]
        chosen: list[Pod] = []
        count: Counter[str] = Counter()
        for pod in waiting:
            namespace = pod.metadata.namespace
            if count[namespace] < AT_ONCE and not self.seconds_until(namespace):
                count[namespace] += 1
                chosen.append(pod)
        return chosen
