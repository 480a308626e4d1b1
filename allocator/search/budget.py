"""Limits a search: its steps are charged to a budget (`dra.budget`), and proofs (`allocator.search.proof`) are tried after refusals.

A search step is the attempt to place one device, which takes about `MICROSECONDS`. Steps are charged to the budget in blocks of `_BLOCK`,
because charging each step is too slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dra.budget import Budget

MICROSECONDS = 8
_BLOCK = 64


class SearchSteps:
    """Counts steps of the search and of its proofs; the budget ends the search by raising OutOfBudget."""

    __slots__ = ("_budget", "_paid", "_unpaid")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._paid = 0
        self._unpaid = 0

    @property
    def spent(self) -> int:
        return self._paid + self._unpaid

    def spend(self, steps: int) -> None:
        """Charge steps that are about to be done."""
        self._unpaid += steps
        if self._unpaid >= _BLOCK:
            self.pay()

    def pay(self) -> None:
        """Charge the steps since the last call."""
        steps = self._unpaid
        self._paid += steps
        self._unpaid = 0
        self._budget.charge(MICROSECONDS * steps)


class ProofPatience:
    """Decides when a search tries a proof, from the number of failed candidates.

    A search begins without proofs, because most fits are found without backtracking. When more than `refusals_allowed` candidates have
    failed, the search tries to prove that there is no fit. If the result is "maybe", a proof is tried for each further candidate. Once
    proofs refuse fewer than about one in five failed candidates, a proof is tried only for one candidate in 16.
    """

    __slots__ = ("candidates", "caught", "refusals", "refusals_allowed")

    def __init__(self, refusals_allowed: int) -> None:
        self.refusals_allowed = refusals_allowed  # negative: unlimited
        self.refusals = 0
        self.caught = 0  # candidates that a proof refused
        self.candidates = 0

    def refuse(self) -> bool:
        """Count a failed candidate; return whether that exceeds the limit."""
        self.refusals += 1
        return 0 <= self.refusals_allowed < self.refusals

    def is_worth_proof(self) -> bool:
        """Return whether to try a proof for the next candidate."""
        self.candidates += 1
        return self.refusals <= 32 + 5 * self.caught or self.candidates % 16 == 0


class Recall:
    """Decides whether to remember failed states within a request, which is not worthwhile if these states rarely recur."""

    __slots__ = ("looked_up", "recalled")

    def __init__(self) -> None:
        self.looked_up = 0
        self.recalled = 0

    def pays(self) -> bool:
        """Return whether enough lookups of states were hits."""
        return self.looked_up < 256 or self.recalled * 16 > self.looked_up
