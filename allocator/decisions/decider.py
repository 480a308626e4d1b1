"""Decides which nodes can serve a pod's claims (`Decider.outlook`), and which devices the pod gets on one node (`Decider.serve`).

A `Decider` keeps answers between questions: if the stock has changed on a few nodes since the same question, only these nodes are searched
again (`allocator.all_nodes`). So each caller keeps one `Decider` and passes it successive stocks.

Every question has a budget. Nodes that are not searched before the budget is used up are undecided: neither a fit nor a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from functools import partial
from operator import is_
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.all_nodes import FleetAnswer, FleetMemo, fleet
from allocator.answer import NodeAnswer, SearchVerdict, fail
from allocator.decisions.place import Placed, granted_or_why, place
from allocator.decisions.pod_claims import claims_on, find_claims, node_obstacle, plugin_nodes
from allocator.one_node import SearchOptions, budget_of
from allocator.pods import barriers
from allocator.reasons import MAX_EXPLAINED, by_text, cannot_serve, summary
from allocator.strategies import (
    STRATEGIES,
    Chosen,
    LooksAt,
    Placement,
    StrategyCache,
    choose_devices,
    split_equal_nodes,
)
from dra import step_limits
from dra.budget import Budget
from dra.errors import NodeSelectorError, OutOfBudget
from dra.objects import ResourceClaim
from dra.reason import Reason
from dra.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from allocator.decisions.pod_claims import PodClaims
    from dra.objects import Pod
    from dra.stock import Stock

    _ByNode = Mapping[str, str]  # node name → why the node does not fit

BY_DEFAULT = Placement()
MAX_COUNTED = 64  # pods that are counted one by one
MAX_SCORED = 64  # kinds of fitting nodes that a strategy scores; the others score 0
_HOPEFUL = frozenset({SearchVerdict.FEASIBLE, SearchVerdict.UNDECIDED})


class Outlook(StrEnum):
    """The verdict about a pod, as far as devices are concerned."""

    SKIP = "skip"  # the pod requests no devices
    FITS = "fits"
    FULL = "full"  # no node fits now, but some node would fit if no device were in use
    NEVER = "never"  # no node fits even if no device were in use
    WAITING = "waiting"  # a claim or another object is missing
    UNDECIDED = "undecided"


class FleetOutlook(msgspec.Struct, frozen=True):
    """Whether one pod fits in the cluster, on which nodes, and why not on others."""

    outlook: Outlook
    nodes: Mapping[str, int] = {}  # nodes that fit, with scores from 0 to 100
    reason: Reason = Reason(text="")  # why the pod fits on no node
    reasons: tuple[Reason, ...] = ()  # each with the nodes that it excludes

    def with_texts(self, rewrite: Callable[[str], str]) -> FleetOutlook:
        """Return the same answer with the text of each reason rewritten."""
        reason, *reasons = [replace(reason, text=rewrite(reason.text)) for reason in (self.reason, *self.reasons)]
        return replace(self, reason=reason, reasons=tuple(reasons))


class Serving(msgspec.Struct, frozen=True):
    """The claims of a pod on one node. `allocated` has the unallocated ones again, in the same order, with their new allocations."""

    claims: tuple[ResourceClaim, ...]
    allocated: tuple[ResourceClaim, ...] = ()


class Decider:
    """Answers questions about successive stocks, one at a time. Not thread-safe."""

    def __init__(self, options: SearchOptions | None = None) -> None:
        """By default, each question has its own budget.

        `options` are for a simulation: they apply to all questions together, whose stocks have the same slices. So all kinds of nodes are scored, and
        a score is kept until its node changes.
        """
        self._options = options
        # Returns whether to abandon the question; called every few hundred steps.
        self.is_abandoned: Callable[[], bool] = lambda: False
        self._memo = FleetMemo()
        self._strategy_cache = StrategyCache()
        self._classes: tuple[object, ...] = ()

    def outlook(
        self,
        pod: Pod,
        stock: Stock,
        placement: Placement = BY_DEFAULT,
        excluded_nodes: _ByNode = MappingProxyType({}),
        *,
        by_plugin: bool = False,
    ) -> FleetOutlook:
        """Return which nodes can serve a pod. `excluded_nodes` maps each node that must not be used to the reason.

        With `by_plugin`, consider only nodes whose device plugins offer the pod's extended resources, even if these are in use, and ignore
        the claim for these resources.
        """
        pod_claims = find_claims(pod, stock)
        if not pod_claims.want_devices:
            return FleetOutlook(Outlook.SKIP)
        plugins = plugin_nodes(pod, pod_claims, stock)
        if by_plugin:
            if not plugins:  # the usual case in a migrated cluster, so do not search its nodes
                return FleetOutlook(Outlook.SKIP)
            why = f"node(s) had no device plugin for {', '.join(pod_claims.by_claim)}"
            by_plugin_nodes = frozenset(plugins)
            excluded_nodes = {**{name: why for name in stock.nodes if name not in by_plugin_nodes}, **excluded_nodes}
            pod_claims = pod_claims.without_uncreated()
        may_fit_later = bool(excluded_nodes or plugins)
        if pod_claims.waits_for is not None:
            return FleetOutlook(Outlook.WAITING, reason=pod_claims.waits_for)
        open_ = pod_claims.open
        obstacles = dict(excluded_nodes)
        if pod_claims.by_claim or pod_claims.uncovered or len(open_) < len(pod_claims.claims):
            # These reasons exclude a node whatever devices are free there.
            for name, node in stock.nodes.items():
                if why := node_obstacle(pod_claims, node):
                    obstacles[name] = why
        if not open_:
            # All claims are allocated, so only their nodes matter.
            fitting = [name for name in stock.nodes if name not in obstacles]
            reasons = by_text(obstacles)
            if fitting:
                return FleetOutlook(Outlook.FITS, dict.fromkeys(fitting, 0), reasons=reasons)
            reason = summary(reasons, len(stock.nodes))
            return FleetOutlook(Outlook.FULL if may_fit_later else Outlook.NEVER, {}, reason, reasons)
        answers = self.search_fleet(stock, open_)
        fitting = answers.feasible
        if obstacles:
            fitting = [name for name in fitting if name not in obstacles]
        barred: dict[str, str] = {}
        barriers_on = barriers(pod, pod_claims.by_claim)
        if not any(next(barriers_on(stock.nodes[name], {}), None) is None for name in fitting):
            # Selectors or taints keep the pod off every node with free devices. So report the nodes that the pod may use.
            for name, node in stock.nodes.items():
                words = " and ".join(dict.fromkeys(barrier.words for barrier in barriers_on(node, {})))
                if words and name not in obstacles:
                    barred[name] = words
        candidates = [name for name in answers if name not in obstacles and name not in barred]
        if fitting and not (barred and candidates):
            scores = self.scores(answers, stock, open_, placement, fitting)
            reasons = ()
            if len(fitting) < len(answers):  # without details, because the pod fits elsewhere
                refusals = dict(obstacles)
                for name in answers:
                    if name not in scores:
                        refusals.setdefault(name, cannot_serve(NodeAnswer(answers.verdict(name))))
                reasons = by_text(refusals)
            return FleetOutlook(Outlook.FITS, {name: round(score) for name, score in scores.items()}, reasons=reasons)
        idle = self.search_fleet(stock, open_, idle=True)
        reasons = _node_reasons(answers, idle, candidates, obstacles | barred)
        outlook = Outlook.FULL
        if SearchVerdict.UNDECIDED in _verdicts(answers, candidates):
            outlook = Outlook.UNDECIDED
        elif not may_fit_later and _HOPEFUL.isdisjoint(_verdicts(idle, candidates)):
            outlook = Outlook.NEVER
        reason = summary(reasons, len(stock.nodes))
        if outlook is Outlook.NEVER:
            reason = replace(reason, text=f"no node could serve it, even with all devices free: {reason.text}")
        return FleetOutlook(outlook, {}, reason, reasons)

    def count_fitting(self, pods: Sequence[Pod], stock: Stock, excluded_nodes: _ByNode = MappingProxyType({})) -> int:
        """Return how many of these pods, which have equal open claims, fit now on nodes that are not excluded.

        Return the number of all pods if more than `MAX_COUNTED` fit, or if the answer is not known or depends on more than the open claims.
        """
        pod_claims = find_claims(pods[0], stock)
        if not demand_key(pod_claims):
            return len(pods)
        answers = self.search_fleet(stock, pod_claims.open)
        candidates = [name for name in answers if name not in excluded_nodes]
        if SearchVerdict.UNDECIDED in _verdicts(answers, candidates):
            return len(pods)
        nodes = [name for name in candidates if answers.verdict(name) is SearchVerdict.FEASIBLE]
        placed = Placed(stock)
        for number, pod in enumerate(pods[:MAX_COUNTED]):
            while nodes and (after := place([[(pod, nodes[-1])]], placed, self.options())).problems[-1]:
                nodes.pop()
            if not nodes:
                return number
            placed = after
        return len(pods)

    def serve(self, pod: Pod, node: str, stock: Stock, placement: Placement = BY_DEFAULT) -> Serving | str:
        """Return the allocations that a pod gets on one node, or a message why it gets none now. `place` answers for hypothetical stocks."""
        pod_claims = claims_on(pod, node, stock)
        if isinstance(pod_claims, str):
            return pod_claims
        if not pod_claims.open:
            return Serving(pod_claims.claims)
        allocated = granted_or_why(
            pod_claims.open, self.choose_on(node, stock, pod_claims.open, placement).answer, stock
        )
        return allocated if isinstance(allocated, str) else Serving(pod_claims.claims, allocated)

    # ---- one node

    def options(self) -> SearchOptions:
        """Return the options of one question. By default, its budget ends when `is_abandoned` returns True."""
        if self._options is not None:
            return self._options
        budget = Budget(step_limits.QUESTION, self.is_abandoned, max_call_steps=step_limits.WHOLE_CALL)
        return SearchOptions(budget=budget)

    def search_fleet(
        self,
        stock: Stock,
        claims: Sequence[ResourceClaim],
        *,
        idle: bool = False,
        within: Collection[str] | None = None,
        options: SearchOptions | None = None,
    ) -> FleetAnswer:
        """Return whether each node, or each node in `within`, can serve claims; with `idle`, as if no device were in use."""
        return fleet(stock, claims, options=options or self.options(), idle=idle, memo=self._memo, within=within)

    def choose_on(
        self,
        node: str,
        stock: Stock,
        claims: Sequence[ResourceClaim],
        placement: Placement,
        options: SearchOptions | None = None,
    ) -> Chosen:
        """Return the allocation of claims on one node, with the score of the node."""
        if _takes_the_first(placement, claims):
            everywhere = self.search_fleet(stock, claims)
            return Chosen(everywhere[node])
        self._forget_other_classes(stock)
        options = options or self.options()
        try:
            pools = self._memo.pools(stock, node, budget_of(options))
        except NodeSelectorError as error:
            return Chosen(fail(error))
        except OutOfBudget as reason:
            return Chosen(NodeAnswer(SearchVerdict.UNDECIDED, error=str(reason)))
        weighted_sum = 0.0
        weights = 0
        answers: list[NodeAnswer] = []
        for part in placement.parts:
            chosen = choose_devices(
                stock, node, claims, strategy=part.strategy, options=options, cache=self._strategy_cache, pools=pools
            )
            answers.append(chosen.answer)
            weighted_sum += part.weight * chosen.score
            weights += part.weight
        return Chosen(answers[0], weighted_sum / weights)

    def _forget_other_classes(self, stock: Stock) -> None:
        """Clear the cache of the strategies if the DeviceClasses or DeviceCompatibilities have changed."""
        classes = (*stock.classes.values(), *stock.compatibilities.values())
        same = len(classes) == len(self._classes)
        if same and all(map(is_, classes, self._classes)):
            return
        self._classes = classes
        self._strategy_cache = StrategyCache()

    def scores(
        self,
        answers: FleetAnswer,
        stock: Stock,
        claims: Sequence[ResourceClaim],
        placement: Placement,
        nodes: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return a score for each fitting node, or for each in `nodes`.

        Nodes that look equal to the strategies form a kind; one node of each kind is scored.
        """
        scores = dict.fromkeys(answers.feasible if nodes is None else nodes, 0.0)
        if _takes_the_first(placement, claims):
            return scores
        looks_at = max(STRATEGIES[part.strategy].looks_at for part in placement.parts)
        self._forget_other_classes(stock)
        kinds: list[list[str]] = []
        options = self.options()
        budget = options.budget or Budget()
        pools = partial(self._memo.pools, stock, budget=budget)
        keeps = self._options is not None and looks_at is not LooksAt.FLEET
        kept = answers.kept_scores(placement) if keeps else {}
        with suppress(OutOfBudget):  # the remaining nodes score 0
            for equal in answers.equal_nodes():
                if fits := [name for name in equal if name in scores and name not in kept]:
                    kinds += split_equal_nodes(pools, fits, looks_at, self._strategy_cache, budget)
        kinds.sort(key=len, reverse=True)
        for kind in kinds if keeps else kinds[:MAX_SCORED]:
            kept |= dict.fromkeys(kind, self.choose_on(kind[0], stock, claims, placement, options).score)
        return {name: kept.get(name, 0.0) for name in scores}


def demand_key(pod_claims: PodClaims) -> bytes:
    """Return a key that is equal for pods with equal open claims, or b"" if the decision depends on more than the open claims."""
    open_ = pod_claims.open
    is_individual = pod_claims.waits_for is not None or len(open_) < len(pod_claims.claims)
    return b"" if is_individual else encode([claim.spec for claim in open_])


def _takes_the_first(placement: Placement, claims: Iterable[ResourceClaim]) -> bool:
    """Return whether the placement takes the first devices that fit. The search of all nodes then already has the answer."""
    return placement.is_default and not any(
        request.first_available for claim in claims for request in claim.spec.devices.requests
    )


def _node_reasons(
    answers: FleetAnswer, idle: FleetAnswer, candidates: Sequence[str], others: _ByNode
) -> tuple[Reason, ...]:
    """Return the reasons why nodes do not fit.

    Reasons of nodes that the pod may use come first, and temporary reasons before permanent ones. Among these, the reason with more
    nodes comes first. Nodes without a detailed reason are counted, too.
    """
    candidate_names = frozenset(candidates)
    refusing: list[tuple[bool, list[str]]] = []
    for nodes in answers.equal_nodes():
        candidate_group = [name for name in nodes if name in candidate_names]
        if candidate_group and answers.verdict(candidate_group[0]) is not SearchVerdict.FEASIBLE:
            is_hopeless = idle.verdict(candidate_group[0]) not in _HOPEFUL
            refusing.append((is_hopeless, candidate_group))
    refusing.sort(key=lambda kind: (kind[0], -len(kind[1])))
    refusals: dict[str, str] = {}
    hopeless: dict[str, bool] = {}
    for rank, (is_hopeless, nodes) in enumerate(refusing):
        first = nodes[0]
        text = answers.refusal(first) if rank < MAX_EXPLAINED else cannot_serve(NodeAnswer(answers.verdict(first)))
        refusals |= dict.fromkeys(nodes, text)
        hopeless.setdefault(text, is_hopeless)
    # If time ran out, equal nodes may be in separate groups; `by_text` merges groups with the same text.
    by_claims = sorted(by_text(refusals), key=lambda reason: hopeless[reason.text])
    return (*by_claims, *by_text(others))


def _verdicts(answers: FleetAnswer, nodes: Iterable[str]) -> set[SearchVerdict]:
    return {answers.verdict(name) for name in nodes}
