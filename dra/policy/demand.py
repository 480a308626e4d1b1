"""How much a claim may come to hold, before anything is allocated: the most, by what drivers publish now.

    ExactCount       so many times the largest share or device of those that would do, by each amount
    All              all devices of the node that has most of them; where nothing is published, as core's quota counts: 32
    firstAvailable   of its alternatives the largest, by each amount
    adminAccess      nothing

"Would do" is what the class, the selectors and the capacity requests say, whoever has the device now. The answer is never less than
what an allocation would then add (`dra.stock.amounts`), unless drivers publish something larger in the meantime. If there are so many
devices that looking at them would cost too much, what the claim itself says is counted: devices, and amounts that it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from dra.budget import Budget
from dra.cel import compile as compile_selector
from dra.cel import view_of
from dra.errors import CapacityError, OutOfBudget, SelectorError
from dra.stock import ALL_CLASSES, DEVICES, ONE, charges, held_of, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dra.cel import Selector
    from dra.objects import (
        Device,
        DeviceRequest,
        DeviceSelector,
        DeviceSubRequest,
        ExactDeviceRequest,
        ResourceClaimSpec,
    )
    from dra.quantity import Quantity
    from dra.stock import Amounts, Page, Stock

    Ask = ExactDeviceRequest | DeviceSubRequest

T = TypeVar("T")

ALL = 32  # what core's quota counts where a claim wants all, and as many as one claim can have
STEPS = 50_000  # of looking at devices for one question at a time, of about a microsecond each
REMEMBERED = 256  # questions
_LOOKED = 4  # steps for one device, besides its selectors
_RECALLED = 1  # ... for a slice that was looked at before


class Most(msgspec.Struct, frozen=True):
    """The most that one device that would do has, and all that there is of them: of a slice, or of one node."""

    one: dict[str, int]
    all: dict[str, int]


class Demands:
    """Says what claims may come to hold. What was looked at is remembered slice by slice, so that the next look goes on from there."""

    def __init__(self, steps: int = STEPS) -> None:
        self._steps = steps
        self._classes: object = None
        self._pages: object = None
        self._looked: dict[object, dict[Page, Most]] = {}
        self._most: dict[object, Most] = {}

    def of(self, spec: ResourceClaimSpec, stock: Stock, budget: Budget | None = None) -> Amounts:
        """Say how much a claim of this spec may come to hold at most. A budget is for all that somebody asks."""
        whole = budget or Budget()
        return total(self._request(request, stock, whole) for request in spec.devices.requests)

    def _request(self, request: DeviceRequest, stock: Stock, budget: Budget) -> Amounts:
        exactly = request.exactly
        if exactly is not None and exactly.admin_access:
            return {}
        asks = request.first_available if exactly is None else (exactly,)
        found: dict[tuple[str, str], int] = {}
        for ask in asks:
            held = self._ask(ask, stock, budget)
            for class_name in (ask.device_class_name, ALL_CLASSES):
                named = {(class_name, what): amount for what, amount in held.items()}
                _raise(found, named)
        return found

    def _ask(self, ask: Ask, stock: Stock, budget: Budget) -> Mapping[str, int]:
        wants_all = ask.allocation_mode == "All"
        most = self._look(ask, stock, budget)
        if most is None or not most.one:
            return _times(_said(ask), ALL if wants_all else ask.count)
        if wants_all:
            return most.all
        return _times(most.one, ask.count)

    def _look(self, ask: Ask, stock: Stock, budget: Budget) -> Most | None:
        """Look at all devices for those that would do; None if there are too many to look at now."""
        self._forget(stock)
        key = _key(ask)
        known = self._most.get(key)
        if known is not None:
            return known
        looked = self._looked.get(key)
        if looked is None:
            if len(self._looked) >= REMEMBERED:
                self._looked.clear()
            looked = self._looked[key] = {}
        try:
            found = _look_at_all(ask, stock, looked, budget.part(self._steps))
        except OutOfBudget:
            return None
        except SelectorError:
            found = Most({}, {})  # a selector that cannot be read selects nothing
        self._most[key] = found
        return found

    def _forget(self, stock: Stock) -> None:
        """Forget what may not be so any more."""
        if stock.classes is not self._classes:
            self._classes = stock.classes
            self._looked.clear()
            self._pages = None
        if stock.pages_of is not self._pages:
            self._pages = stock.pages_of
            self._most.clear()


def _look_at_all(ask: Ask, stock: Stock, looked: dict[Page, Most], budget: Budget) -> Most:
    class_ = stock.classes.get(ask.device_class_name)
    if class_ is None:
        return Most({}, {})
    selectors = _selectors((*class_.spec.selectors, *ask.selectors), budget)
    one: dict[str, int] = {}
    nodes: dict[str, dict[str, int]] = {"": {}}  # "" is what no single node has
    kept: dict[Page, Most] = {}
    for page in stock.pages.values():
        budget.charge(_RECALLED)
        most = looked.get(page)
        if most is None:
            most = looked[page] = _look_at(page, ask, selectors, budget)
        kept[page] = most
        _raise(one, most.one)
        here = nodes.setdefault(page.node_name, {})
        _add(here, most.all)
    looked.clear()
    looked.update(kept)
    everywhere = nodes.pop("")
    everything = dict(everywhere)
    for here in nodes.values():
        _add(here, everywhere)
        _raise(everything, here)
    return Most(one, everything)


def _look_at(page: Page, ask: Ask, selectors: Sequence[Selector], budget: Budget) -> Most:
    one: dict[str, int] = {}
    together: dict[str, int] = {}
    for device in page.devices:
        held = _held(ask, selectors, page, device, budget)
        if held is not None:
            _raise(one, held)
            _add(together, held)
    return Most(one, together)


def _said(ask: Ask) -> dict[str, int]:
    """Say what one device counts as by what the claim says alone."""
    amounts = _capacity(ask)
    return {name: amount.nano for name, amount in amounts.items()} | {DEVICES: ONE}


def _key(ask: Ask) -> object:
    selectors = tuple(one.cel.expression for one in ask.selectors if one.cel is not None)
    amounts = tuple((name, amount.nano) for name, amount in _capacity(ask).items())
    return ask.device_class_name, selectors, amounts


def _capacity(ask: Ask) -> dict[str, Quantity]:
    return ask.capacity.requests if ask.capacity is not None else {}


def _selectors(all_of_them: Iterable[DeviceSelector], budget: Budget) -> list[Selector]:
    return [compile_selector(one.cel.expression, budget=budget) for one in all_of_them if one.cel is not None]


def _held(
    ask: Ask, selectors: Iterable[Selector], page: Page, device: Device, budget: Budget
) -> Mapping[str, int] | None:
    """Say what whoever is given a device for a request has of it; None if it would not do."""
    budget.charge(_LOOKED)
    driver = page.pool[0]
    view = view_of(driver, device)
    try:
        if not all(selector.matches(view, budget) for selector in selectors):
            return None
        taken = charges(_capacity(ask), device.capacity)
    except (SelectorError, CapacityError):
        return None
    if taken is None or any(amount > device.capacity[name].value for name, amount in taken.items()):
        return None
    share = {name: amount.nano for name, amount in taken.items()} if device.allow_multiple_allocations else None
    return held_of(driver, device, share)


def _raise(most: dict[T, int], held: Mapping[T, int]) -> None:
    for what, amount in held.items():
        most[what] = max(most.get(what, 0), amount)


def _add(into: dict[str, int], held: Mapping[str, int]) -> None:
    for what, amount in held.items():
        into[what] = into.get(what, 0) + amount


def _times(held: Mapping[str, int], count: int) -> dict[str, int]:
    """Count so many of the same, and one where it is not said how many."""
    return {what: amount * max(count, 1) for what, amount in held.items()}
