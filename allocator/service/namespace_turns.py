"""Limits the time that questions about one namespace's pods take, so that pods of other namespaces do not wait for these questions.

A scheduler decides one pod after the other, so forty pods with expensive selectors would delay every pod behind them. A question that
takes more than `FREE` seconds of CPU time adds its duration to what its namespace owes. The debt shrinks by `SHARE` seconds per second.
While the debt exceeds `MAX_DEBT`, the namespace's pods wait, and the answer says for how many seconds. Then the pods are requeued.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dra.objects import Pod

FREE = 0.02  # seconds of CPU time; most questions take less
MAX_DEBT = 0.5  # seconds
SHARE = 0.5  # seconds paid per second
AT_ONCE = 4  # pods of a namespace that are requeued together: the first one may exceed the limit again
NAMESPACES = 1024  # debts that are kept; if there are more, the smallest debt is dropped


class NamespaceTurns:
    """The time that each namespace owes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.free = FREE
        self._paid_at: dict[str, float] = {}  # by namespace

    def owe(self, namespace: str, seconds: float, worked: float) -> None:
        """Add the `seconds` of a question to what a namespace owes, if the question took at least `free` seconds of CPU time (`worked`)."""
        if worked < self.free:
            return
        now = self._clock()
        self._paid_at[namespace] = max(now, self._paid_at.get(namespace, now)) + seconds / SHARE
        if len(self._paid_at) > NAMESPACES:
            del self._paid_at[min(self._paid_at, key=lambda known: self._paid_at[known])]

    def owed(self, namespace: str) -> float:
        """Return the seconds until a namespace owes nothing."""
        return max(0.0, self._paid_at.get(namespace, 0.0) - self._clock())

    def seconds_until(self, namespace: str) -> float:
        """Return the seconds until the next question of a namespace may be answered; 0 if it may be answered now."""
        return max(0.0, self._paid_at.get(namespace, 0.0) - self._clock() - MAX_DEBT / SHARE)

    def reason_to_wait(self, namespace: str) -> str:
        """Return why the pods of a namespace have to wait; "" if they need not wait."""
        seconds = self.seconds_until(namespace)
        if not seconds:
            return ""
        return f"the selectors of namespace {namespace} take long to evaluate, so its next pod is checked in {seconds:.0f} s, and other namespaces need not wait"

    def next_pods(self, waiting: Iterable[Pod]) -> list[Pod]:
        """Return the first waiting pods of each namespace whose debt does not exceed `MAX_DEBT`."""
        now = self._clock()
        for namespace in [known for known, paid_at in self._paid_at.items() if paid_at <= now]:
            del self._paid_at[namespace]
        chosen: list[Pod] = []
        chosen_count: Counter[str] = Counter()
        for pod in waiting:
            namespace = pod.metadata.namespace
            if chosen_count[namespace] < AT_ONCE and not self.seconds_until(namespace):
                chosen_count[namespace] += 1
                chosen.append(pod)
        return chosen
