"""Pods of the default scheduler and of ours on the same devices, with or without the fence, a taint that ours tolerates."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import NamedTuple

from dra.policy import FENCE_TOLERATION
from dra.wire import builtins
from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.taints import until_taint_rules_are_followed
from e2e.chaos.churn import PARTS, Churn, crowd
from e2e.chaos.judge import COUNTERS_EXCEEDED, EXCEEDED, INCOMPATIBLE, STARTED_TWICE, TWICE, Fault, judge
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
    remaining: tuple[str, ...]  # what the leader still holds or reports at the end


def mixed(stage: Stage, *, fenced: bool, seconds: float, seed: int) -> Mixed:
    """Run both crowds for a while, and judge etcd's history."""
    our_namespace, their_namespace = (f"{side}-{'fenced' if fenced else 'open'}" for side in ("ours", "theirs"))
    fields = {"tolerations": [builtins(FENCE_TOLERATION)]} if fenced else {}
    half = crowd(stage.nodes) * 2 // 3  # pods of each scheduler: more than fit, so that they compete
    for name in (our_namespace, their_namespace):
        stage.cluster.namespace(name)
    our_churn = Churn(stage.cluster, our_namespace, SCHEDULER, pods=half, seed=seed, **fields)
    their_churn = Churn(stage.cluster, their_namespace, IN_TREE, pods=half, seed=seed + 1)
    with fence(stage) if fenced else nullcontext(), closing(our_churn), closing(their_churn):
        for churn in (our_churn, their_churn):
            churn.start()
        time.sleep(seconds)
        for churn in (our_churn, their_churn):
            churn.stop()
        if fenced:
            stage.cluster.delete(their_churn.path, gracePeriodSeconds=0)
        their_churn.drain(DRAIN_SECONDS)
        our_churn.drain(DRAIN_SECONDS)
        remaining = tuple(leftovers(stage, our_namespace, their_namespace))
    verdict = judge(stage.record(our_namespace, their_namespace))
    started = verdict.of(STARTED_TWICE)
    reported = reported_overlaps(stage.pairs)
    return Mixed(
        fenced,
        bound_ours=judge(stage.record(our_namespace)).counts["bound"],
        bound_theirs=judge(stage.record(their_namespace)).counts["bound"],
        overlaps=len(verdict.of(TWICE, EXCEEDED, COUNTERS_EXCEEDED, INCOMPATIBLE)),
        started=len(started),
        unseen=tuple(fault.details for fault in started if not any(claims_of(fault) <= claims for claims in reported)),
        late=tuple(late_overlaps(stage, started, our_namespace, their_namespace)),
        taken_back=judge(stage.record(our_namespace)).counts["allocations taken back"],
        remaining=remaining,
    )


@contextmanager
def fence(stage: Stage) -> Iterator[None]:
    """Keep other schedulers from the devices, and wait until the default scheduler follows the rules."""
    rules = [taint_rule(driver) for driver in (fleet.NVIDIA, fleet.HAMI, PARTS)]
    stage.cluster.create(*rules)
    try:
        until_taint_rules_are_followed(stage.cluster)
        yield
    finally:
        stage.cluster.remove(*rules)


def reported_overlaps(pairs: Pairs) -> list[frozenset[str]]:
    """Return the sets of claims that hold the same device according to the replicas' logs."""
    overlaps: list[frozenset[str]] = []
    for pair in pairs.all:
        lines = pair.cluster.process(pair.allocator).log.read_text().splitlines()
        overlaps += [frozenset(json.loads(line)["claims"]) for line in lines if "claims hold the same" in line]
    return overlaps


def late_overlaps(stage: Stage, started: Sequence[Fault], our_namespace: str, their_namespace: str) -> Iterator[str]:
    """Yield the overlaps in which one of our pods was bound although the other scheduler's allocation was written first."""
    faults = sorted(started)
    since: dict[str, int] = {}  # when the current allocation of a claim was written
    for change in stage.record(our_namespace, their_namespace):
        while faults and faults[0].revision < change.revision:
            fault = faults.pop(0)
            claims = claims_of(fault)
            our_revisions = [since[key] for key in claims if key.startswith(f"{our_namespace}/")]
            their_revisions = [since[key] for key in claims if key.startswith(f"{their_namespace}/")]
            if our_revisions and their_revisions and max(our_revisions) > min(their_revisions):
                yield fault.details
        if change.kind == "ResourceClaim":
            allocated = change.object is not None and change.object.get("status", {}).get("allocation")
            if not allocated:
                since.pop(change.key, None)
            else:
                since.setdefault(change.key, change.revision)


def claims_of(fault: Fault) -> frozenset[str]:
    return frozenset(fault.details.rpartition(" by claims ")[2].split(", "))
