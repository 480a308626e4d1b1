"""Which attributes a question reads, and what devices answer, page by page.

Two devices with the same body that agree on these attributes are the same to the question. Columns are kept with the
page they belong to; a page lives as long as its slice does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra import cel
from dra.errors import SelectorError

if TYPE_CHECKING:
    from allocator.problem.question import Question
    from dra.policy import Rules
    from dra.stock import Page

Column = tuple[object, ...]  # one entry a device
_EVERYTHING = ("", "")
_KEPT = 32  # attributes, and combinations of them, that a page keeps columns for


class Reads:
    """The attributes that one question reads, and the rules that decide who goes with whom, as (domain, name)."""

    def __init__(self, question: Question, rules: Rules) -> None:
        names: set[tuple[str, str]] = set()
        for selector in rules.selectors():
            names |= _names(selector.reads)
        for ask in question.asks:
            for check in ask.checks:
                names |= _of_expression(check.expression, derived=False)
        for leaf in question.leaves:
            for expression in leaf.derived.values():
                names |= _of_expression(expression, derived=True)
        for constraint in question.constraints:
            domain, slash, name = constraint.attribute.partition("/")
            names.add((domain, name) if slash else ("", constraint.attribute))
        self.names = (_EVERYTHING,) if _EVERYTHING in names else tuple(sorted(names))

    def columns(self, page: Page) -> tuple[Column, ...]:
        """Answer per attribute with what the devices of a page say."""
        kept: dict[tuple[str, str], Column] = page.__dict__.setdefault("columns", {})
        if len(kept) > _KEPT:
            kept.clear()
        return tuple([kept[name] if name in kept else _column(page, name, kept) for name in self.names])

    def of(self, page: Page) -> tuple[Column, ...]:
        """Answer per device with what it says of all the attributes."""
        kept: dict[tuple[tuple[str, str], ...], tuple[Column, ...]] = page.__dict__.setdefault("rows", {})
        found = kept.get(self.names)
        if found is None:
            if len(kept) > _KEPT:
                kept.clear()
            columns = self.columns(page)
            found = kept[self.names] = tuple(zip(*columns, strict=True)) if columns else ((),) * len(page.devices)
        return found


def _column(page: Page, name: tuple[str, str], kept: dict[tuple[str, str], Column]) -> Column:
    column: Column
    if name == _EVERYTHING:
        column = tuple([tuple(sorted(device.attributes.items(), key=lambda one: one[0])) for device in page.devices])
    else:
        domain, bare = name
        full = f"{domain}/{bare}" if domain else bare
        if domain == page.pool[0]:
            # The full name wins wherever a device has both.
            every = [device.attributes for device in page.devices]
            column = tuple([attributes.get(full) or attributes.get(bare) for attributes in every])
        else:
            column = tuple([device.attributes.get(full) for device in page.devices])
    kept[name] = column
    return column


def _of_expression(expression: str, *, derived: bool) -> set[tuple[str, str]]:
    """What does not compile reads nothing: it is a fault on every device. Capacity is part of a device's body."""
    try:
        reads = cel.compile(expression, derived=derived).reads
    except SelectorError:
        return set()
    return _names(reads)


def _names(reads: cel.Reads) -> set[tuple[str, str]]:
    if reads.everything:
        return {_EVERYTHING}
    return {(domain, name) for kind, domain, name in reads.names if kind == "attributes"}
