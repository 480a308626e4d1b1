"""Measures the CPU time for a pod of its translation, its check against the fleet, and its quota, on 5,000 nodes whose claims change.

There is no server and no network. The benchmark calls the pure functions behind `/mutate` and `/quota`, for one review after the other.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.row import Row
from bench.webhook.admission import LIMITS, large_state_builder, patched_object, pod, review

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allocator.quota import NewObject
    from dra.objects import DeviceQuota
    from dra.stock import Stock

NODES = 5_000
REVIEWS = 2_000
WAITING = 200  # admitted pods of the namespace that have no devices yet
CHANGES = 10  # reviews between two changes of claims
NAMESPACE = "default"


def rows() -> Iterator[Row]:
    """Measure the two steps separately and together."""
    builder, claim_of = large_state_builder(NODES)
    millis_by_step: dict[str, list[float]] = {"translate and check": [], "quota": [], "translate, check + quota": []}
    body = review(pod(LIMITS))
    gate = QuotaGate()
    for number in range(REVIEWS):
        if number % CHANGES == 0:
            builder.update_objects([claim_of(number)])
        times = time_pod(body, builder.state(fresh=True), gate, number)
        for what, seconds in zip(millis_by_step, (*times, sum(times)), strict=True):
            millis_by_step[what].append(seconds * 1e3)
    for what, times_of in millis_by_step.items():
        times_of.sort()
        yield Row(
            what=f"{what} in process, 5 kB pod, {NODES:,} nodes, p99",
            unit="ms",
            ours=times_of[REVIEWS * 99 // 100],
            target="p99 < 1 ms" if "+" in what else "",
            note=f"p50 {times_of[REVIEWS // 2]:.2f} ms, most {times_of[-1]:.2f} ms; CPU time; {WAITING} pods wait",
        )


def time_pod(body: bytes, state: Any, gate: QuotaGate, number: int) -> tuple[float, float]:
    """Run both steps for one pod; return the CPU seconds of each step."""
    from webhook.admission import review as admission
    from webhook.admission import review_quota

    started = time.process_time()
    outcome = admission.decide_review("mutate", body, state)
    decided = time.process_time()
    patched = patched_object(body, outcome.body)
    patched["metadata"]["uid"] = f"pod-{number}"
    quota_review = review(patched)
    quota_started = time.process_time()
    quota_answer = json.loads(review_quota(quota_review, partial(gate.admit, stock=state.stock, now=float(number))))
    counted = time.process_time()
    if not quota_answer["response"]["allowed"] or not gate.admitted:
        raise AssertionError(f"the quota did not count the pod, or refused it: {quota_answer}")
    return decided - started, counted - quota_started


class QuotaGate:
    """Admits objects under a quota that is large enough, as `allocator.service` does, but without a clock."""

    def __init__(self) -> None:
        from allocator.quota import PendingUsage
        from dra.policy import Demands

        self._pending = PendingUsage(remembered=WAITING)
        self._demands = Demands()
        self._quotas = [_quota()]
        self.admitted = 0

    def admit(self, new: NewObject, *, stock: Stock, now: float) -> str:
        """Admit an object, or return the reason why not."""
        from allocator.quota import QuotaQuestion
        from dra.policy import held_of_quota

        self._pending.expire(now)
        demand = partial(self._demands.upper_bound, stock=stock)
        pending_usage = partial(
            self._pending.waiting,
            stock=stock,
            demand=demand,
            find_pod=_no_pod,
            find_spec=_nothing,
            except_uid=new.uid,
        )
        usage = partial(held_of_quota, stock=stock, find_pod=_no_pod)
        question = QuotaQuestion(self._quotas, usage, pending_usage, demand, _nothing)
        lines = question.lines_for(new, question.requested_by(new))
        if not lines or not new.claims:
            return "no line of the quota is about it"
        crossed = [str(line) for line in lines if line.exceeded]
        if not crossed:
            self._pending.admit(new, now)
            self.admitted += 1
        return "; ".join(crossed)


def _quota() -> DeviceQuota:
    from dra.objects import DeviceQuota
    from dra.wire import convert

    hard = {"*/devices": "100000", "*/memory": "100Ti", "*/cores": "10M"}
    meta = {"name": "team", "namespace": NAMESPACE}
    return convert({"metadata": meta, "spec": {"hard": hard}}, DeviceQuota)


def _no_pod(*_: str) -> None:
    return None


def _nothing(*_: str) -> None:
    return None
