"""Twins: requests, or whole claims, that can be swapped without a change of the answer.

A request is swapped together with all requests that its constraints cover. In the first solution, the later twin has the higher position,
because otherwise the swapped solution would come first. So the search starts the later twin after the position of the earlier twin, and
sixteen requests for one device cost as much as one request for sixteen devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allocator.problem import SearchInput
    from dra.budget import Budget


def twins(problem: SearchInput, budget: Budget) -> list[int]:
    """Return, for each request, the earlier request that it can be swapped with, or -1."""
    question = problem.question
    earlier = [-1] * len(question.requests)
    by_claim: list[list[int]] = [[] for _ in question.claims]
    for at, request in enumerate(question.requests):
        by_claim[request.claim].append(at)
    whole: dict[object, int] = {}
    for claim, requests in enumerate(by_claim):
        if requests:
            _ClaimRequests(problem, claim, requests, budget).link_twins(earlier, whole)
    return earlier


_COMPARED = 64  # constraints of a leaf that a step compares
_Cover = tuple[tuple[bool, ...], ...]  # by request, by leaf: whether a constraint covers it


class _ClaimRequests:
    def __init__(self, problem: SearchInput, claim: int, requests: list[int], budget: Budget) -> None:
        self.problem = problem
        self.budget = budget
        self.requests = requests
        self.constraints: list[int] = []
        self.common: set[int] = set()
        for at, constraint in enumerate(problem.question.constraints):
            if constraint.claim != claim:
                continue
            self.constraints.append(at)
            if all(all(self._cover(at, request)) for request in requests):
                self.common.add(at)

    def link_twins(self, earlier: list[int], whole: dict[object, int]) -> None:
        # Only constraints that do not cover the whole claim tie requests together.
        group = {at: {at} for at in self.requests}
        others = [number for number in self.constraints if number not in self.common]
        for constraint in others:
            merged: set[int] = set()
            for at in self.requests:
                if any(self._cover(constraint, at)):
                    merged |= group[at]
            for at in merged:
                group[at] = merged
        last: dict[object, int] = {}
        for first in self.requests:
            if min(group[first]) == first:
                sign = self._sign(sorted(group[first]), others)
                earlier[first] = last.get(sign, -1)
                last[sign] = first
        first = self.requests[0]
        sign = self._sign(self.requests, self.constraints)
        earlier[first] = whole.get(sign, -1)
        whole[sign] = first

    def _sign(self, tied: list[int], constraints: list[int]) -> object:
        """Return a key that requests share if they differ only in names and places."""
        demands = self.problem.leaves
        bodies = [
            tuple(
                (demands[leaf.index].likeness, demands[leaf.index].count, leaf.all)
                for leaf in self.problem.question.requests[at].leaves
            )
            for at in tied
        ]
        covers: list[tuple[bool, str, _Cover]] = []
        for number in constraints:
            cover = tuple(self._cover(number, at) for at in tied)
            if any(map(any, cover)):
                constraint = self.problem.question.constraints[number]
                covers.append((constraint.match, constraint.attribute, cover))
        covers.sort()
        return tuple(bodies), tuple(covers)

    def _cover(self, constraint: int, at: int) -> tuple[bool, ...]:
        leaves = self.problem.question.requests[at].leaves
        self.budget.charge(1 + sum([len(leaf.constraints) for leaf in leaves]) // _COMPARED)
        return tuple(constraint in leaf.constraints for leaf in leaves)
