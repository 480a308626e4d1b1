"""Creates pods at a steady rate, as in a busy cluster. The calls are dry runs: the API server stores nothing, but calls all webhooks.

Calls start at fixed times, so that a slow call does not delay the next one. On a busy machine the rate may be lower than requested;
`Calls.rate` is the rate that was reached.
"""

import threading
import time
from typing import NamedTuple, Self

from e2e.actors.client import Client
from e2e.actors.workloads import container, limits, pod

THREADS = 24
ORIGINAL = "drawbridge.dev/original"


class Call(NamedTuple):
    """The creation of one pod: when the request was sent, when the answer or the error came, and the text of the error."""

    begun: float
    ended: float
    problem: str = ""
    translated: bool = False


class Calls:
    """Creates `rate` GPU pods per second while the `with` block runs, and keeps the outcome of each call."""

    def __init__(self, cluster: Client, namespace: str, *, rate: float = 100.0) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.pause = 1 / rate
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.calls: list[Call] = []
        self.begun = self.ended = self.next = 0.0
        self.threads = [threading.Thread(target=self.run) for _ in range(THREADS)]

    def run(self) -> None:
        item = pod("p", self.namespace, container(**limits(**{"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100})))
        while not self.over.is_set():
            with self.lock:
                start_time = self.next = max(self.next + self.pause, time.monotonic() - 1.0)
            if self.over.wait(max(0.0, start_time - time.monotonic())):
                return
            begun, problem, translated = time.monotonic(), "", False
            try:
                (created,) = self.cluster.create(item, dryRun="All")
                translated = ORIGINAL in created["metadata"].get("annotations", {})
            except Exception as error:  # noqa: BLE001  whatever it is, a user would have seen it
                problem = f"{type(error).__name__}: {error}"
            self.calls.append(Call(begun, time.monotonic(), problem, translated))

    @property
    def answered(self) -> int:
        return sum(not call.problem for call in self.calls)

    @property
    def failures(self) -> list[str]:
        return [call.problem for call in self.calls if call.problem]

    @property
    def untranslated(self) -> list[Call]:
        """The calls whose pods were admitted untranslated."""
        return [call for call in self.calls if not call.problem and not call.translated]

    @property
    def rate(self) -> float:
        return len(self.calls) / (self.ended - self.begun)

    def __str__(self) -> str:
        return (
            f"{len(self.calls)} pods, {self.rate:.0f} a second, {len(self.failures)} refused or lost, "
            f"{len(self.untranslated)} admitted without translation"
        )

    def __enter__(self) -> Self:
        self.begun = self.next = time.monotonic()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        self.ended = time.monotonic()
