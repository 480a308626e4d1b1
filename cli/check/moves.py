"""What becomes of requests, as findings: so that `translate` and `survey` speak to code hosts and test reports as `check` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.check.gate import finding_of
from cli.check.reports import APPROXIMATED, STAYS, Placed
from webhook.dialects import Action

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cluster.manifests import Document
    from dra.validation import Reviewed
    from webhook.translate import Decision


def place_decisions(decided: Iterable[tuple[Document, Iterable[Decision]]]) -> list[Placed]:
    """Make findings of what does not simply become a claim: refused, approximated, left or not understood, each once."""
    found: dict[Placed, None] = {}  # a set that keeps their order
    for number, (document, decisions) in enumerate(decided):
        for decision in decisions:
            code = decision.code
            if not code and decision.action is Action.APPROXIMATED:
                code = APPROXIMATED
            # A key of no dialect stays whatever becomes of the request beside it.
            if not code and decision.action is Action.LEFT and decision.dialect:
                code = STAYS
            if not code:
                continue
            value: dict[str, Any] = document.object
            finding = finding_of(value, decision, code)
            place = document.place_of(finding.path)
            found[Placed(number, finding, *place)] = None
    return list(found)


def place(documents: Sequence[Document], found: Iterable[Reviewed]) -> list[Placed]:
    """Give findings their places."""
    placed: list[Placed] = []
    for number, finding in found:
        where = documents[number].place_of(finding.path)
        placed.append(Placed(number, finding, *where))
    return placed
