"""Whose turn it is: a namespace whose questions take long waits for the next one, so that other namespaces' pods do not.

Schedulers ask about one pod after the other, so forty pods with dear selectors would hold up every pod behind them. A namespace owes
the time of a question that takes the processor longer than `FREE`, and pays it off with `SHARE` of the time; one that owes more than
`MOST` is answered at once, with how long it has to wait, and its pods are tried again when it has paid.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from time import thread_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allocator.service.requeue_events import RequeueEvents
    from dra.objects import Pod

FREE = 0.05  # seconds of the processor; most questions take less
MOST = 0.5
SHARE = 0.5
AT_ONCE = 4  # pods of a namespace that are tried again at a time: the first may be dear again
NAMESPACES = 1024  # that are remembered: those that owe most


class NamespaceTurns:
    """What namespaces owe, and the pods that wait until it is paid."""

    def __init__(
        self, events: RequeueEvents, clock: Callable[[], float], processor: Callable[[], float] = thread_time
    ) -> None:
        self._events = events
        self._clock = clock
        self._processor = processor
        self._paid_at: dict[str, float] = {}  # by namespace
        self._waiting: dict[str, Pod] = {}  # by uid

    @contextmanager
    def taken(self, namespace: str) -> Iterator[None]:
        """Have a namespace owe what is done inside."""
        begun, worked = self._clock(), self._processor()
        try:
            yield
        finally:
            if self._processor() - worked > FREE:
                self.owe(namespace, self._clock() - begun)

    def owe(self, namespace: str, seconds: float) -> None:
        """Have a namespace owe what was done for it."""
        now = self._clock()
        self._paid_at[namespace] = max(now, self._paid_at.get(namespace, now)) + seconds / SHARE
        if len(self._paid_at) > NAMESPACES:
            del self._paid_at[min(self._paid_at, key=lambda one: self._paid_at[one])]

    def seconds_until(self, namespace: str) -> float:
        """Say how long a namespace has to wait for its next turn; 0 if it may be answered now."""
        return max(0.0, self._paid_at.get(namespace, 0.0) - self._clock() - MOST / SHARE)

    def wait(self, pod: Pod) -> str:
        """Say what a pod waits for if it is not its namespace's turn, and have it tried again then; "" if it is."""
        namespace = pod.metadata.namespace
        seconds = self.seconds_until(namespace)
        if not seconds:
            return ""
        self._waiting[pod.metadata.uid] = pod
        return f"the selectors of namespace {namespace} take long to evaluate: its next pod is decided in {seconds:.0f} s, so that others do not wait"

    def forget(self, uid: str) -> None:
        """Try a pod again no more: it is gone, or has a node."""
        self._waiting.pop(uid, None)

    def tick(self) -> None:
        """Try the first pods of those namespaces again whose turn it is."""
        now = self._clock()
        for namespace in [one for one, paid in self._paid_at.items() if paid <= now]:
            del self._paid_at[namespace]
        again: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in self._waiting.values():
            pods = again[pod.metadata.namespace]
            if len(pods) < AT_ONCE and not self.seconds_until(pod.metadata.namespace):
                pods.append(pod)
        for pods in again.values():
            for pod in pods:
                self.forget(pod.metadata.uid)
            self._events.add(pod.metadata.key for pod in pods)
