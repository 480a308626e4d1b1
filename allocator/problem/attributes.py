"""Which attributes a question reads, and what devices answer, page by page.

Two devices with the same body that agree on these attributes are the same to the question. What an expression reads is seen when it is
compiled, which whoever asks pays for: a claim holds a hundred expressions of 10 KiB, of some hundredths of a second each.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from dra import cel
from dra.cache import Cache
from dra.errors import SelectorError

if TYPE_CHECKING:
    from collections.abc import Collection

    from allocator.problem.question import Question
    from dra.budget import Budget
    from dra.policy import Rules
    from dra.stock import Page

Name = tuple[str, str]  # domain and name of an attribute
Row = tuple[object, ...]  # what one device says of several attributes
Column = tuple[object, ...]  # what each device of a page says of one attribute
_EVERYTHING: Name = ("", "")
_MOST_CELLS = 1 << 21  # about 16 MiB of references
# What expressions read. Who has paid for them once does not pay again, though compiled they take fifty times as much and are soon forgotten.
_READ: Cache[frozenset[Name]] = Cache(8 << 20)


def attributes_read(question: Question, rules: Rules, budget: Budget) -> tuple[Name, ...]:
    """Name the attributes that a question reads, and the rules that decide who goes with whom. Once the budget is out, ask again: it goes on."""
    names: set[Name] = set()
    for selector in rules.selectors():
        names |= _names(selector.reads)
    for ask in question.asks:
        for check in ask.checks:
            names |= _of_expression(check.expression, budget, derived=False)
    for leaf in question.leaves:
        for expression in leaf.derived.values():
            names |= _of_expression(expression, budget, derived=True)
    for constraint in question.constraints:
        domain, slash, name = constraint.attribute.partition("/")
        names.add((domain, name) if slash else ("", constraint.attribute))
    if _EVERYTHING in names:
        return (_EVERYTHING,)
    return tuple(sorted(names))


class PageCache:
    """What the devices of pages say, kept for whoever asks often: by attribute, and by the combinations asked for.

    A page never changes, so what was read of it stays true. When there are too many entries, all are forgotten.
    """

    def __init__(self, most: int = _MOST_CELLS) -> None:
        self._most = most
        self._columns: dict[Page, dict[Name, Column]] = {}
        self._rows: dict[Page, dict[tuple[Name, ...], tuple[Row, ...]]] = {}
        self.cells = 0

    def columns(self, page: Page, names: tuple[Name, ...]) -> list[Column]:
        """Answer per attribute with what the devices of a page say."""
        kept = self._columns.get(page)
        if kept is None:
            if self.cells > self._most:
                self._forget()
            kept = self._columns[page] = {}
        found: list[Column] = []
        for name in names:
            column = kept.get(name)
            if column is None:
                column = kept[name] = _column(page, name)
                self.cells += len(column)
            found.append(column)
        return found

    def rows(self, page: Page, names: tuple[Name, ...]) -> tuple[Row, ...]:
        """Answer per device with what it says of all the attributes."""
        kept = self._rows.setdefault(page, {})
        found = kept.get(names)
        if found is not None:
            return found
        columns = self.columns(page, names)
        size = len(page.devices)
        found = ((),) * size
        if columns:
            found = tuple(zip(*columns, strict=True))
        self.cells += size * (1 + len(names))
        kept[names] = found
        return found

    def keep(self, pages: Collection[Page]) -> None:
        """Forget every other page, if there are many of them."""
        if len(self._columns) <= 2 * len(pages) + 64:
            return
        kept = set(pages)
        for page in [page for page in self._columns if page not in kept]:
            del self._columns[page]
            self._rows.pop(page, None)

    def _forget(self) -> None:
        self._columns.clear()
        self._rows.clear()
        self.cells = 0


def _column(page: Page, name: Name) -> Column:
    # Lists, for they are made faster than generators are read, and there is a row for every device of a fleet.
    every = [device.attributes for device in page.devices]
    if name == _EVERYTHING:
        said = [tuple(sorted(attributes.items(), key=itemgetter(0))) for attributes in every]
        return tuple(said)
    domain, bare = name
    full = f"{domain}/{bare}" if domain else bare
    if domain != page.pool[0]:
        values = [attributes.get(full) for attributes in every]
        return tuple(values)
    # The full name wins wherever a device has both.
    values = [attributes.get(full) or attributes.get(bare) for attributes in every]
    return tuple(values)


def _of_expression(expression: str, budget: Budget, *, derived: bool) -> frozenset[Name]:
    """What does not compile reads nothing: it is a fault on every device. Capacity is part of a device's body."""
    key = expression, derived
    names = _READ.get(key)
    if names is None:
        try:
            names = frozenset(_names(cel.compile(expression, derived=derived, budget=budget).reads))
        except SelectorError:
            names = frozenset()
        _READ.put(key, names, 200 + len(expression) + 200 * len(names))
    return names


def _names(reads: cel.Reads) -> set[Name]:
    if reads.everything:
        return {_EVERYTHING}
    return {(domain, name) for kind, domain, name in reads.names if kind == "attributes"}
