"""Pods of the default scheduler and of ours on the same devices, with or without the fence, a taint that ours tolerates."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

from dra.policy import FENCE_TOLERATION
from dra.wire import builtins
from e2e.actors import fleet
from e2e.actors.bridge import PLUGIN_SCHEDULER
from e2e.actors.taints import until_taint_rules_are_followed
from e2e.chaos.churn import PARTS, Churn, crowd
from e2e.chaos.judge import APART, DRAWN, EXCEEDED, STARTED_TWICE, TWICE, Fault, judge
from e2e.chaos.pairs import Pairs
from e2e.chaos.run import DRAIN_SECONDS, Stage, leftovers
from webhook.claims import taint_rule

IN_TREE = "default-scheduler"


class Mixed(NamedTuple):
    """The outcome of two crowds on one fleet."""

    fenced: bool
    bound_ours: int
    bound_theirs: int
    overlaps: int  # devices held twice, or beyond their capacity, at any moment
    started: int  # overlaps of bound pods
    unseen: tuple[str, ...]  # overlaps of bound pods that the leader never reported
    late: tuple[str, ...]  # overlaps of bound pods in which our allocation was written last
    taken_back: int  # our allocations that were removed before the pod was bound
    left: tuple[str, ...]  # what the leader still holds or reports at the end


def mixed(on: Stage, *, fenced: bool, seconds: float, seed: int) -> Mixed:
    """Run both crowds for a while, and judge etcd's history."""
    ours, theirs = (f"{whose}-{'fenced' if fenced else 'open'}" for whose in ("ours", "theirs"))
    fields = {"tolerations": [builtins(FENCE_TOLERATION)]} if fenced else {}
    half = crowd(on.nodes) * 2 // 3  # pods of each scheduler: more than fit, so that they compete
    for name in (ours, theirs):
        on.cluster.namespace(name)
    mine = Churn(on.cluster, ours, PLUGIN_SCHEDULER, pods=half, seed=seed, **fields)
    other = Churn(on.cluster, theirs, IN_TREE, pods=half, seed=seed + 1)
    with fence(on) if fenced else nothing(), closing(mine), closing(other):
        for churn in (mine, other):
            churn.start()
        time.sleep(seconds)
        for churn in (mine, other):
            churn.stop()
        if fenced:
            on.cluster.delete(other.path, gracePeriodSeconds=0)
        other.drain(DRAIN_SECONDS)
        mine.drain(DRAIN_SECONDS)
        left = tuple(leftovers(on, ours, theirs))
    verdict = judge(on.record(ours, theirs))
    started = verdict.of(STARTED_TWICE)
    seen = named(on.pairs)
    return Mixed(
        fenced,
        bound_ours=judge(on.record(ours)).counts["bound"],
        bound_theirs=judge(on.record(theirs)).counts["bound"],
        overlaps=len(verdict.of(TWICE, EXCEEDED, DRAWN, APART)),
        started=len(started),
        unseen=tuple(fault.words for fault in started if not any(claims_of(fault) <= claims for claims in seen)),
        late=tuple(second(on, started, ours, theirs)),
        taken_back=judge(on.record(ours)).counts["allocations taken back"],
        left=left,
    )


@contextmanager
def fence(on: Stage) -> Iterator[None]:
    """Keep other schedulers from the devices, and wait until the default scheduler follows the rules."""
    rules = [taint_rule(driver) for driver in (fleet.NVIDIA, fleet.HAMI, PARTS)]
    on.cluster.create(*rules)
    try:
        until_taint_rules_are_followed(on.cluster)
        yield
    finally:
        on.cluster.remove(*rules)


@contextmanager
def nothing() -> Iterator[None]:
    yield


def named(pairs: Pairs) -> list[frozenset[str]]:
    """Return the sets of claims that hold the same device according to the replicas' logs."""
    overlaps: list[frozenset[str]] = []
    for pair in pairs.all:
        lines = pair.cluster.named(pair.allocator).log.read_text().splitlines()
        overlaps += [frozenset(json.loads(line)["claims"]) for line in lines if "claims hold the same" in line]
    return overlaps


def second(on: Stage, started: Sequence[Fault], ours: str, theirs: str) -> Iterator[str]:
    """Yield the overlaps in which one of our pods was bound although the other scheduler's allocation was written first."""
    faults = sorted(started)
    since: dict[str, int] = {}  # when the current allocation of a claim was written
    for change in on.record(ours, theirs):
        while faults and faults[0].revision < change.revision:
            fault = faults.pop(0)
            held = claims_of(fault)
            mine = [since[key] for key in held if key.startswith(f"{ours}/")]
            others = [since[key] for key in held if key.startswith(f"{theirs}/")]
            if mine and others and max(mine) > min(others):
                yield fault.words
        if change.kind == "ResourceClaim":
            given = change.object is not None and change.object.get("status", {}).get("allocation")
            if not given:
                since.pop(change.key, None)
            else:
                since.setdefault(change.key, change.revision)


def claims_of(fault: Fault) -> frozenset[str]:
    return frozenset(fault.words.rpartition(" by claims ")[2].split(", "))
