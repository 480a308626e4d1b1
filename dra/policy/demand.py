"""How much a claim may come to hold, before anything is allocated: the most, by what drivers publish now.

    ExactCount       so many times the largest share or device of those that would do, by each amount
    All              all devices of the node that has most of them; where nothing is published, as core's quota counts: 32
    firstAvailable   of its alternatives the largest, by each amount
    adminAccess      nothing

"Would do" is what the class, the selectors and the capacity requests say, whether the device is in use or not. A node can be stolen and publish
what it likes, and a single one shall not make every claim too large: of what nodes publish, each amount is the largest that two of them
have (or the only one that has any); devices of no node count as they are. So the answer is never less than what an allocation would then
add (`dra.stock.amounts`), unless it is on the one node with the largest devices, or drivers publish something larger in the meantime; what
is allocated is counted as it is (`allocator.reservations`). A look at very many
devices goes on where its budget ended it; until its end a claim counts as it says itself: devices, and amounts that it names.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

import msgspec

from dra.budget import Budget
from dra.cel import compile as compile_selector
from dra.cel import view_of
from dra.errors import CapacityError, OutOfBudget, SelectorError
from dra.stock import ALL_CLASSES, DEVICES, ONE, charges, held_of, total
from dra.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from dra.cel import Selector
    from dra.objects import (
        Device,
        DeviceSubRequest,
        ExactDeviceRequest,
        ResourceClaimSpec,
    )
    from dra.quantity import Quantity
    from dra.stock import Amounts, Page, Stock

    Ask = ExactDeviceRequest | DeviceSubRequest
    Held = dict[str, int]
    Seen = dict[Page, "Most"]

T = TypeVar("T")

ALL = 32  # what core's quota counts where a claim wants all, and as many as one claim can have
STEPS = 500_000  # of looking at devices for one claim, of about a microsecond each
REMEMBERED = 4096  # answers
LOOKS = 256
_SHORT = 256  # bytes of a question that is remembered as it is
PAGES = 400_000  # that all looks together remember, of some hundred bytes each
_READ_FROM = 2  # letters of a selector that take as much, once it is compiled
_LOOKED = 25  # steps for one device, besides its selectors
_RECALLED = 2  # ... for a slice that was looked at before


class Most(msgspec.Struct, frozen=True):
    """The most that one device that would do has, and all that there is of them: of a slice, or of one node."""

    one: Held
    all: Held


NOTHING = Most({}, {})


class Demands:
    """Says what claims may come to hold. What was looked at is remembered slice by slice, so that the next look goes on from there."""

    def __init__(self, steps: int = STEPS, pages: int = PAGES) -> None:
        self._steps = steps
        self._most_pages = pages
        self._classes: object = None
        self._pages: object = None
        self._published = 0  # how often something else was published
        self._looks: dict[bytes, _FleetLook] = {}  # by question, the latest last
        self._most: dict[bytes, Most] = {}

    def of(self, spec: ResourceClaimSpec, stock: Stock) -> Amounts:
        """Say how much a claim of this spec may come to hold at most, and if that cannot be seen soon, what it says itself."""
        try:
            return self.look(spec, stock, Budget(self._steps))
        except OutOfBudget:
            return self.at_hand(spec, stock)

    def look(self, spec: ResourceClaimSpec, stock: Stock, budget: Budget) -> Amounts:
        """Say how much a claim of this spec may come to hold at most. Once the budget is out, ask again: the look goes on."""
        self._forget(stock)

        def most_of(ask: Ask) -> Most:
            key = _key(ask)
            known = self._most.get(key)
            if known is not None:
                return known
            look = self._looks.pop(key, None)
            if look is None or look.published != self._published:
                look = _FleetLook(ask, stock, self._published, look.known(stock) if look is not None else {})
            self._looks[key] = look
            # Forget the looks that are the longest ago: a tenant may ask for something new each time.
            pages = sum(one.size for one in self._looks.values())
            while len(self._looks) > 1 and (pages > self._most_pages or len(self._looks) > LOOKS):
                pages -= self._looks.pop(next(iter(self._looks))).size
            found = look.go_on(budget)
            if len(self._most) >= REMEMBERED:
                self._most.clear()
            self._most[key] = found
            return found

        return _asked(spec, most_of)

    def at_hand(self, spec: ResourceClaimSpec, stock: Stock) -> Amounts:
        """Say the same as far as all devices were looked at already, and else what the claim says itself."""
        self._forget(stock)
        return _asked(spec, lambda ask: self._most.get(_key(ask), NOTHING))

    def _forget(self, stock: Stock) -> None:
        """Forget what may not be so any more."""
        if stock.classes is not self._classes:
            self._classes = stock.classes
            self._looks.clear()
            self._pages = None
        if stock.pages_of is not self._pages:
            self._pages = stock.pages_of
            self._published += 1
            self._most.clear()


class _FleetLook:
    """A look at all devices for those that would do. It stops where a budget ends, and goes on there."""

    def __init__(self, ask: Ask, stock: Stock, published: int, known: Seen) -> None:
        """`published` says of which pages; `known` what was seen in some of them before."""
        self.published = published
        self.seen: Seen = {}
        self._wanted = _capacity(ask)
        class_ = stock.classes.get(ask.device_class_name)
        self._unread: list[str] = []  # selectors, the first last
        self._selectors: list[Selector] = []
        self._known = known
        self._pages: list[Page] = []
        self._letters = 0  # of its selectors
        if class_ is not None:
            selectors = (*class_.spec.selectors, *ask.selectors)
            self._unread = [one.cel.expression for one in selectors if one.cel is not None][::-1]
            self._letters = sum(map(len, self._unread))
            self._pages = list(stock.pages.values())
        self._found: Most | None = None
        self._shapes: dict[object, Most] = {}  # equivalent slices have one answer
        self._takes: dict[bytes, Held | None] = {}  # what is taken of a device, by its capacities as text
        # By node, and "" for what no single node has: the most of one device, and all of them.
        self._ones: dict[str, Held] = {"": {}}
        self._nodes: dict[str, Held] = {"": {}}
        self._device = 0  # that is next in its slice
        self._of_page = Most({}, {})

    @property
    def size(self) -> int:
        """Say how much is kept, in pages that were seen."""
        return len(self.seen) + self._letters // _READ_FROM

    def known(self, stock: Stock) -> Seen:
        """Say what is known of the pages that there are now."""
        known = self._known | self.seen
        return {page: known[page] for page in stock.pages.values() if page in known}

    def go_on(self, budget: Budget) -> Most:
        """Look at what is left, and answer."""
        if self._found is not None:
            return self._found
        before, whole = self._place, budget.spent == 0
        try:
            self._go(budget)
        except SelectorError:
            self._found = NOTHING  # a selector that cannot be read selects nothing
        except OutOfBudget:
            if self._place != before or not whole:
                raise
            self._found = NOTHING  # no other budget of this size gets any further: the claim's own amounts count
        else:
            one, everything = self._ones.pop(""), self._nodes.pop("")
            _raise(one, _largest_of_two(self._ones.values()))
            _add(everything, _largest_of_two(self._nodes.values()))
            self._ones, self._nodes = {}, {}
            self._found = Most(one, everything)
        self._known, self._takes = {}, {}
        self._selectors, self._letters = [], 0
        return self._found

    @property
    def _place(self) -> tuple[int, int, int]:
        """How far it has come."""
        return len(self._unread), len(self._pages), self._device

    def _go(self, budget: Budget) -> None:
        # Selectors are read in one go each and paid for then: the API lets 10 KiB through, some hundredths of a second.
        while self._unread:
            own = Budget(STEPS, longest=budget.longest)
            selector = compile_selector(self._unread[-1], budget=own)
            self._unread.pop()
            self._selectors.append(selector)
            budget.charge(own.spent)
        while self._pages:
            page = self._pages[-1]
            budget.charge(_RECALLED)
            most = self._known.get(page)
            if most is None:
                for device in page.devices[self._device :]:
                    held = self._held(page.pool[0], device, budget)
                    if held is not None:
                        _raise(self._of_page.one, held)
                        _add(self._of_page.all, held)
                    self._device += 1
                # One object stands for all slices that have as much.
                shape = tuple(self._of_page.one.items()), tuple(self._of_page.all.items())
                most = self._shapes.setdefault(shape, self._of_page)
            self.seen[page] = most
            node = page.slice.spec.node_name or ""
            _raise(self._ones.setdefault(node, {}), most.one)
            _add(self._nodes.setdefault(node, {}), most.all)
            self._pages.pop()
            self._device, self._of_page = 0, Most({}, {})

    def _held(self, driver: str, device: Device, budget: Budget) -> Mapping[str, int] | None:
        """Return what a claim that is given a device has of it; None if the device would not do."""
        budget.charge(_LOOKED)
        view = view_of(driver, device)
        try:
            if not all(selector.matches(view, budget) for selector in self._selectors):
                return None
        except SelectorError:
            return None
        text, capacity = encode(device.capacity), device.capacity
        if text not in self._takes:
            self._takes[text] = None
            try:
                amounts = charges(self._wanted, capacity)
            except CapacityError:
                amounts = None
            if amounts is not None and all(amount <= capacity[name].value for name, amount in amounts.items()):
                self._takes[text] = {name: amount.nano for name, amount in amounts.items()}
        taken = self._takes[text]
        if taken is None:
            return None
        return held_of(driver, device, taken if device.allow_multiple_allocations else None)


def _asked(spec: ResourceClaimSpec, look: Callable[[Ask], Most]) -> Amounts:
    """Add up what the requests of a claim may come to hold; of a request's alternatives the largest counts, by each amount."""
    parts: list[Amounts] = []
    for request in spec.devices.requests:
        exactly = request.exactly
        if exactly is not None and exactly.admin_access:
            continue
        found: dict[tuple[str, str], int] = {}
        for ask in request.first_available if exactly is None else (exactly,):
            most, count = look(ask), max(ask.count, 1)
            wants_all = ask.allocation_mode == "All"
            if not most.one:  # by what the claim says alone
                said = {name: amount.nano for name, amount in _capacity(ask).items()} | {DEVICES: ONE}
                held = _times(said, ALL if wants_all else count)
            else:
                held = most.all if wants_all else _times(most.one, count)
            for class_name in (ask.device_class_name, ALL_CLASSES):
                _raise(found, {(class_name, what): amount for what, amount in held.items()})
        parts.append(found)
    return total(parts)


def _key(ask: Ask) -> bytes:
    """Name a question by as few bytes as may be: thousands are remembered, and one may have 32 selectors of 10 KiB."""
    selectors = [one.cel.expression for one in ask.selectors if one.cel is not None]
    amounts = [(name, str(amount.nano)) for name, amount in _capacity(ask).items()]
    text = encode((ask.device_class_name, selectors, amounts))
    return text if len(text) <= _SHORT else sha256(text).digest()


def _capacity(ask: Ask) -> dict[str, Quantity]:
    return ask.capacity.requests if ask.capacity is not None else {}


def _raise(most: dict[T, int], held: Mapping[T, int]) -> None:
    for what, amount in held.items():
        most[what] = max(most.get(what, 0), amount)


def _largest_of_two(nodes: Collection[Held]) -> Held:
    """Say of each amount the largest that two nodes have; of one that a single node has, what it says, if it is the only node."""
    having = [held for held in nodes if held]
    found: Held = {}
    for what in {what for held in having for what in held}:
        amounts = sorted((held.get(what, 0) for held in having), reverse=True)
        found[what] = amounts[min(1, len(amounts) - 1)]
    return {what: amount for what, amount in found.items() if amount}


def _add(into: dict[str, int], held: Mapping[str, int]) -> None:
    for what, amount in held.items():
        into[what] = into.get(what, 0) + amount


def _times(held: Held, count: int) -> Held:
    return {what: amount * count for what, amount in held.items()}
