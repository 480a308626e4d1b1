"""The attributes that a question reads, and their values on the devices of each page (a ResourceSlice as the allocator reads it).

Devices with the same body (everything but name and attributes) and equal values of these attributes are equal for the question. An
expression must be compiled to find the attributes that it reads. The question's budget is charged for this, because a claim may hold a
hundred expressions of 10 KiB, and each takes some 20 ms.
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
Row = tuple[object, ...]  # one device's values of several attributes
Column = tuple[object, ...]  # one attribute's values on the devices of a page
_EVERYTHING: Name = ("", "")
_MAX_CELLS = 1 << 21  # about 16 MiB of references
_SAMPLE = 64  # pages that are searched for attributes with a different value on each device; a fleet with fewer pages is not sampled
# The attributes that each expression reads, so that only one question is charged for the compilation. The cache of compiled expressions
# keeps its entries for a shorter time, because these are 50 times larger.
_READ: Cache[frozenset[Name]] = Cache(8 << 20)


class AttributesRead(NamedTuple):
    """The attributes that a question reads, grouped by what reads them."""

    selectors: dict[str, frozenset[Name]]  # of requests and classes, by their text
    constraints: frozenset[Name]
    others: frozenset[Name]  # read by compatibility rules and derived attributes

    @property
    def names(self) -> tuple[Name, ...]:
        """Return the names of all attributes read."""
        return sorted_names(self.constraints.union(self.others, *self.selectors.values()))


def sorted_names(names: frozenset[Name]) -> tuple[Name, ...]:
    """Return the names in order. If `_EVERYTHING` is among them, return only that."""
    return (_EVERYTHING,) if _EVERYTHING in names else tuple(sorted(names))


def attributes_read(question: Question, rules: Rules, budget: Budget) -> AttributesRead:
    """Return the attributes that a question and the compatibility rules read.

    After OutOfBudget, the next call does not compile the same expressions again.
    """
    other_names: set[Name] = set()
    for rule in rules.selectors():
        other_names |= _names(rule.reads)
    for leaf in question.leaves:
        for expression in leaf.derived.values():
            other_names |= _of_expression(expression, budget, derived=True)
    selectors = {
        check.expression: _of_expression(check.expression, budget, derived=False)
        for ask in question.asks
        for check in ask.checks
    }
    constraints: set[Name] = set()
    for constraint in question.constraints:
        domain, slash, name = constraint.attribute.partition("/")
        constraints.add((domain, name) if slash else ("", constraint.attribute))
    return AttributesRead(selectors, frozenset(constraints), frozenset(other_names))


class Signature(NamedTuple):
    """How devices are compared for a question: devices that are equal in all these respects are equal for the question.

    An attribute with a different value on almost every node (a UUID) would make every node different. So a selector that reads such an
    attribute is compared by its results, and a constraint's attribute by which devices of the node have equal values.
    """

    names: tuple[Name, ...] = ()  # compared by value
    selectors: tuple[str, ...] = ()  # compared by result
    within: tuple[Name, ...] = ()  # compared within a node


def signature_of(reads: AttributesRead, pages: Collection[Page], cache: PageCache) -> Signature:
    """Choose how each attribute is compared, from a sample of the pages. The choice affects the time taken, but no answer."""
    sample = list(pages)[:: max(1, len(pages) // _SAMPLE)]
    if len(sample) < _SAMPLE:
        return Signature(reads.names)
    all_names = reads.constraints.union(*reads.selectors.values())
    scattered_names = {
        name
        for name in all_names - reads.others
        if len({cache.columns(page, (name,))[0] for page in sample}) > len(sample) // 2
    }
    evaluated_selectors = [text for text, names in reads.selectors.items() if names & scattered_names]
    names_by_value = reads.others.union(
        *(names for text, names in reads.selectors.items() if text not in evaluated_selectors)
    )
    return Signature(
        sorted_names(names_by_value | (reads.constraints - scattered_names)),
        tuple(evaluated_selectors),
        tuple(sorted(reads.constraints & scattered_names)),
    )


def selector_results(page: Page, selectors: Sequence[str], budget: Budget) -> list[Column]:
    """Return each selector's result on each device. If a selector fails on a device, the result is all attributes of the device."""
    views = [cel.view_of(page.pool[0], device) for device in page.devices]
    columns: list[Column] = []
    for text in selectors:
        selector = cel.compile(text, budget=budget)
        column: list[object] = []
        for index, view in enumerate(views):
            try:
                column.append(selector.matches(view, budget))
            except SelectorError:
                column.append(_column(page, _EVERYTHING)[index])
        columns.append(tuple(column))
    return columns


def numbered(columns: Sequence[Column], numbers: dict[object, int]) -> list[Column]:
    """Replace each single value by a number, in order of first occurrence. Lists are not replaced, because lists may overlap."""
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
    """The attribute values of pages, kept between questions, by attribute and by requested combination of attributes.

    A page never changes, so entries stay valid. When there are too many entries, all are dropped.
    """

    def __init__(self) -> None:
        self._columns: dict[Page, dict[Name, Column]] = {}
        self._rows: dict[Page, dict[tuple[Name, ...], tuple[Row, ...]]] = {}
        self.cells = 0

    def columns(self, page: Page, names: tuple[Name, ...]) -> list[Column]:
        """Return the devices' values, by attribute."""
        columns_by_name = self._columns.get(page)
        if columns_by_name is None:
            if self.cells > _MAX_CELLS:
                self._columns.clear()
                self._rows.clear()
                self.cells = 0
            columns_by_name = self._columns[page] = {}
        columns: list[Column] = []
        for name in names:
            column = columns_by_name.get(name)
            if column is None:
                column = columns_by_name[name] = _column(page, name)
                self.cells += len(column)
            columns.append(column)
        return columns

    def rows(self, page: Page, names: tuple[Name, ...]) -> tuple[Row, ...]:
        """Return the values of all the attributes, by device."""
        rows_by_names = self._rows.setdefault(page, {})
        rows = rows_by_names.get(names)
        if rows is not None:
            return rows
        columns = self.columns(page, names)
        size = len(page.devices)
        rows = ((),) * size
        if columns:
            rows = tuple(zip(*columns, strict=True))
        self.cells += size * (1 + len(names))
        rows_by_names[names] = rows
        return rows

    def keep(self, pages: Collection[Page]) -> None:
        """If the cache has too many pages, drop all but these."""
        if len(self._columns) <= 2 * len(pages) + 64:
            return
        remaining = set(pages)
        for page in [page for page in self._columns if page not in remaining]:
            del self._columns[page]
            self._rows.pop(page, None)


def _column(page: Page, name: Name) -> Column:
    # Lists are faster here than generators, which matters because a fleet has many devices.
    attributes_by_device = [device.attributes for device in page.devices]
    if name == _EVERYTHING:
        return tuple([tuple(sorted(attributes.items(), key=itemgetter(0))) for attributes in attributes_by_device])
    domain, short_name = name
    full_name = f"{domain}/{short_name}" if domain else short_name
    if domain != page.pool[0]:
        return tuple([attributes.get(full_name) for attributes in attributes_by_device])
    # If a device has both names, the full name wins.
    return tuple([attributes.get(full_name) or attributes.get(short_name) for attributes in attributes_by_device])


def _of_expression(expression: str, budget: Budget, *, derived: bool) -> frozenset[Name]:
    """Return the attributes that an expression reads; none if it does not compile, because it then fails on every device."""
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
