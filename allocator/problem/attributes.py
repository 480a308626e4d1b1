"""Which attributes a question reads, and what devices answer, page by page.

Two devices with the same body that agree on these attributes are the same to the question. What an expression reads is seen when it is
compiled, which is charged to the question: a claim holds a hundred expressions of 10 KiB, of some hundredths of a second each.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from dra import cel
from dra.cache import Cache
from dra.errors import SelectorError
from dra.objects import DeviceAttribute

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from allocator.problem.question import Question
    from dra.budget import Budget
    from dra.policy import Rules
    from dra.stock import Page

Name = tuple[str, str]  # domain and name of an attribute
Row = tuple[object, ...]  # what one device says of several attributes
Column = tuple[object, ...]  # what each device of a page says of one attribute
_EVERYTHING: Name = ("", "")
_MOST_CELLS = 1 << 21  # about 16 MiB of references
_SAMPLE = 64  # pages that are looked at for attributes with a value of their own; smaller fleets are not
# What expressions read. It is paid for once: a compiled expression takes fifty times as much memory and is soon forgotten.
_READ: Cache[frozenset[Name]] = Cache(8 << 20)


class AttributesRead(NamedTuple):
    """The attributes that a question reads, by what reads them."""

    selectors: dict[str, frozenset[Name]]  # of requests and classes, by their text
    constraints: frozenset[Name]
    others: frozenset[Name]  # read by compatibility rules and derived attributes

    @property
    def names(self) -> tuple[Name, ...]:
        """All of them."""
        return whole(self.constraints.union(self.others, *self.selectors.values()))


def whole(names: frozenset[Name]) -> tuple[Name, ...]:
    """Put names in order; a reader of every attribute reads these, too."""
    return (_EVERYTHING,) if _EVERYTHING in names else tuple(sorted(names))


def attributes_read(question: Question, rules: Rules, budget: Budget) -> AttributesRead:
    """Name the attributes that a question and the compatibility rules read. Once the budget is out, ask again: it goes on."""
    others: set[Name] = set()
    for rule in rules.selectors():
        others |= _names(rule.reads)
    for leaf in question.leaves:
        for expression in leaf.derived.values():
            others |= _of_expression(expression, budget, derived=True)
    selectors = {
        check.expression: _of_expression(check.expression, budget, derived=False)
        for ask in question.asks
        for check in ask.checks
    }
    constraints: set[Name] = set()
    for constraint in question.constraints:
        domain, slash, name = constraint.attribute.partition("/")
        constraints.add((domain, name) if slash else ("", constraint.attribute))
    return AttributesRead(selectors, frozenset(constraints), frozenset(others))


class Signature(NamedTuple):
    """What tells devices apart for a question: devices that agree on it are the same to it.

    An attribute with a value of its own on almost every node (a UUID) would make each node another case. So a selector that
    reads one is compared by its answers, and a constraint's attribute by which devices of the node have equal values.
    """

    names: tuple[Name, ...] = ()  # compared by value
    selectors: tuple[str, ...] = ()  # compared by answer
    within: tuple[Name, ...] = ()  # compared within a node


def signature_of(reads: AttributesRead, pages: Collection[Page], cache: PageCache) -> Signature:
    """Choose how each attribute is compared, by a sample of the pages. The choice decides how long a look takes, and no answer."""
    sample = list(pages)[:: max(1, len(pages) // _SAMPLE)]
    if len(sample) < _SAMPLE:
        return Signature(reads.names)
    every = reads.constraints.union(*reads.selectors.values())
    scattered = {
        name
        for name in every - reads.others
        if len({cache.columns(page, (name,))[0] for page in sample}) > len(sample) // 2
    }
    answered = [text for text, names in reads.selectors.items() if names & scattered]
    by_value = reads.others.union(*(names for text, names in reads.selectors.items() if text not in answered))
    return Signature(
        whole(by_value | (reads.constraints - scattered)),
        tuple(answered),
        tuple(sorted(reads.constraints & scattered)),
    )


def answers(page: Page, selectors: Sequence[str], budget: Budget) -> list[Column]:
    """Answer per selector with what it says of each device; one that it fails on is compared by all its attributes."""
    views = [cel.view_of(page.pool[0], device) for device in page.devices]
    found: list[Column] = []
    for text in selectors:
        selector = cel.compile(text, budget=budget)
        column: list[object] = []
        for at, view in enumerate(views):
            try:
                column.append(selector.matches(view, budget))
            except SelectorError:
                column.append(_column(page, _EVERYTHING)[at])
        found.append(tuple(column))
    return found


def numbered(columns: Sequence[Column], numbers: dict[object, int]) -> list[Column]:
    """Put in place of each single value the number at which the node first had it; lists may overlap and stay."""
    return [
        tuple(
            numbers.setdefault(value, len(numbers))
            if isinstance(value, DeviceAttribute) and not (value.ints or value.bools or value.strings or value.versions)
            else value
            for value in column
        )
        for column in columns
    ]


class PageCache:
    """What the devices of pages say, kept between questions: by attribute, and by the combinations asked for.

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
                self._columns.clear()
                self._rows.clear()
                self.cells = 0
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


def _column(page: Page, name: Name) -> Column:
    # Lists, for they are made faster than generators are read, and there is a row for every device of a fleet.
    every = [device.attributes for device in page.devices]
    if name == _EVERYTHING:
        return tuple([tuple(sorted(attributes.items(), key=itemgetter(0))) for attributes in every])
    domain, bare = name
    full = f"{domain}/{bare}" if domain else bare
    if domain != page.pool[0]:
        return tuple([attributes.get(full) for attributes in every])
    # The full name wins wherever a device has both.
    return tuple([attributes.get(full) or attributes.get(bare) for attributes in every])


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
