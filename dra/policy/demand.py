"""The most that a claim may hold once it is allocated, computed from the devices that drivers publish now. For quotas.

    ExactCount       for each amount, count times the largest of the matching shares and devices All              for
    each amount, the sum over all matching devices of one node, of the node with the largest sum; if
                     no matching device is published, 32 devices, as in ResourceQuota
    firstAvailable   for each amount, the largest of the alternatives
    adminAccess      nothing

A device matches if the class, the selectors and the capacity requests allow it, whether it is in use or not. A
compromised node can publish any amount, and must not make every claim exceed its quota. So the largest node does not
count: the second largest amount of any node counts, or the amount of the only node that has one. Devices without a node
count as they are published. The result is an upper bound of what the allocation will add (`dra.stock.amounts`), except
if the claim gets devices of the largest node, or if drivers publish larger devices before the allocation. An allocated
claim counts by its allocation (`allocator.reservations`).

If the budget (`dra.budget`) ends during a scan of very many devices, the next call resumes the scan. Until the scan is
complete, a claim counts by its own text: by the number of devices and the amounts that it requests.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

import msgspec

from dra import step_limits
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

ALL = 32  # the most devices that one claim can have; as in ResourceQuota, allocation mode All counts as this number
MAX_ANSWERS = 4096
MAX_SCANS = 256
_MAX_PLAIN_KEY = 256  # bytes; longer keys are hashed
MAX_PAGES = 400_000  # slices whose results all scans together keep; each result takes some hundred bytes
_CHARACTERS_PER_PAGE = 2  # two characters of a selector, once compiled, take as much memory as the result of a slice
_STEPS_PER_DEVICE = 25  # budget steps for each device, in addition to the steps of the selectors
_STEPS_PER_KNOWN_PAGE = 2


class Most(msgspec.Struct, frozen=True):
    """The amounts of the matching devices of a slice or a node: the largest of any device, and the sum of all."""

    largest: Held
    sum: Held


NOTHING = Most({}, {})


class Demands:
    """Computes what claims may hold. It keeps results by slice, so that only changed slices are scanned again."""

    def __init__(self, steps: int = step_limits.COUNTED_CLAIM, pages: int = MAX_PAGES) -> None:
        self._steps = steps
        self._max_pages = pages
        self._classes: object = None
        self._pages: object = None
        self._published = 0  # counts changes of the published slices
        self._scans: dict[bytes, _FleetScan] = {}  # by key of the request; the scan used last is last
        self._most: dict[bytes, Most] = {}

    def upper_bound(self, spec: ResourceClaimSpec, stock: Stock) -> Amounts:
        """Return the most that a claim of this spec may hold.

        If the scan is not completed in time, return `at_hand`.
        """
        try:
            return self.most_held(spec, stock, Budget(self._steps))
        except OutOfBudget:
            return self.at_hand(spec, stock)

    def most_held(self, spec: ResourceClaimSpec, stock: Stock, budget: Budget) -> Amounts:
        """Return the most that a claim of this spec may hold. After OutOfBudget, the next call resumes the scan."""
        self._drop_outdated(stock)

        def most_of(ask: Ask) -> Most:
            key = _key(ask)
            cached = self._most.get(key)
            if cached is not None:
                return cached
            scan = self._scans.pop(key, None)
            if scan is None or scan.published != self._published:
                scan = _FleetScan(ask, stock, self._published, scan.valid_results(stock) if scan is not None else {})
            self._scans[key] = scan
            # Drop the least recently used scans: a tenant may write a new selector in each claim.
            pages = sum(scan_.size for scan_ in self._scans.values())
            while len(self._scans) > 1 and (pages > self._max_pages or len(self._scans) > MAX_SCANS):
                pages -= self._scans.pop(next(iter(self._scans))).size
            most = scan.resume(budget)
            if len(self._most) >= MAX_ANSWERS:
                self._most.clear()
            self._most[key] = most
            return most

        return _amounts(spec, most_of)

    def at_hand(self, spec: ResourceClaimSpec, stock: Stock) -> Amounts:
        """Return the most that a claim may hold. Requests without a completed scan count by their own text."""
        self._drop_outdated(stock)
        return _amounts(spec, lambda ask: self._most.get(_key(ask), NOTHING))

    def _drop_outdated(self, stock: Stock) -> None:
        """Drop results that a change of classes or slices has invalidated."""
        if stock.classes is not self._classes:
            self._classes = stock.classes
            self._scans.clear()
            self._pages = None
        if stock.pages_of is not self._pages:
            self._pages = stock.pages_of
            self._published += 1
            self._most.clear()


class _FleetScan:
    """A scan of all devices for those that match a request. It stops when a budget ends, and can be resumed."""

    def __init__(self, ask: Ask, stock: Stock, published: int, earlier_results: Seen) -> None:
        """Begin a scan. `published` numbers the set of published slices; `earlier_results` are those of an earlier scan."""
        self.published = published
        self.scanned: Seen = {}
        self._wanted = _capacity(ask)
        class_ = stock.classes.get(ask.device_class_name)
        self._uncompiled: list[str] = []  # expressions of selectors, in reverse order
        self._selectors: list[Selector] = []
        self._known = earlier_results
        self._pages: list[Page] = []
        self._characters = 0  # the total length of all selectors
        if class_ is not None:
            selectors = (*class_.spec.selectors, *ask.selectors)
            self._uncompiled = [selector.cel.expression for selector in selectors if selector.cel is not None][::-1]
            self._characters = sum(map(len, self._uncompiled))
            self._pages = list(stock.pages.values())
        self._result: Most | None = None
        self._shapes: dict[object, Most] = {}  # equal results of slices are one object, to save memory
        self._charged: dict[bytes, Held | None] = {}  # what the request takes of a device with these encoded capacities
        # For each node ("" for devices of several nodes): the largest amounts of any device, and the sums of all.
        self._largest_by_node: dict[str, Held] = {"": {}}
        self._sum_by_node: dict[str, Held] = {"": {}}
        self._device = 0  # the index of the next device of the current slice
        self._of_page = Most({}, {})

    @property
    def size(self) -> int:
        """The memory that the scan takes, in results of slices."""
        return len(self.scanned) + self._characters // _CHARACTERS_PER_PAGE

    def valid_results(self, stock: Stock) -> Seen:
        """Return the results for slices that are still published."""
        results = self._known | self.scanned
        return {page: results[page] for page in stock.pages.values() if page in results}

    def resume(self, budget: Budget) -> Most:
        """Scan the remaining devices, and return the result."""
        if self._result is not None:
            return self._result
        progress_before, has_full_budget = self._progress, budget.spent == 0
        try:
            self._scan(budget)
        except SelectorError:
            self._result = NOTHING  # a selector that does not compile selects nothing
        except OutOfBudget:
            if self._progress != progress_before or not has_full_budget:
                raise
            # A whole budget made no progress, so no later call will: the claim counts by its own text.
            self._result = NOTHING
        else:
            largest, everything = self._largest_by_node.pop(""), self._sum_by_node.pop("")
            _raise(largest, _second_largest(self._largest_by_node.values()))
            _add(everything, _second_largest(self._sum_by_node.values()))
            self._largest_by_node, self._sum_by_node = {}, {}
            self._result = Most(largest, everything)
        self._known, self._charged = {}, {}
        self._selectors, self._characters = [], 0
        return self._result

    @property
    def _progress(self) -> tuple[int, int, int]:
        return len(self._uncompiled), len(self._pages), self._device

    def _scan(self, budget: Budget) -> None:
        # A selector is compiled as a whole and charged afterwards, so that each call makes progress. The API server
        # allows selectors of 10 KiB, which take some hundredths of a second to compile.
        while self._uncompiled:
            compile_budget = Budget(step_limits.COUNTED_CLAIM, max_call_steps=budget.max_call_steps)
            selector = compile_selector(self._uncompiled[-1], budget=compile_budget)
            self._uncompiled.pop()
            self._selectors.append(selector)
            budget.charge(compile_budget.spent)
        while self._pages:
            page = self._pages[-1]
            budget.charge(_STEPS_PER_KNOWN_PAGE)
            most = self._known.get(page)
            if most is None:
                for device in page.devices[self._device :]:
                    amounts = self._held(page.pool[0], device, budget)
                    if amounts is not None:
                        _raise(self._of_page.largest, amounts)
                        _add(self._of_page.sum, amounts)
                    self._device += 1
                shape = tuple(self._of_page.largest.items()), tuple(self._of_page.sum.items())
                most = self._shapes.setdefault(shape, self._of_page)
            self.scanned[page] = most
            node = page.slice.spec.node_name or ""
            _raise(self._largest_by_node.setdefault(node, {}), most.largest)
            _add(self._sum_by_node.setdefault(node, {}), most.sum)
            self._pages.pop()
            self._device, self._of_page = 0, Most({}, {})

    def _held(self, driver: str, device: Device, budget: Budget) -> Mapping[str, int] | None:
        """Return what a claim would hold of a device; None if the device does not match."""
        budget.charge(_STEPS_PER_DEVICE)
        view = view_of(driver, device)
        try:
            if not all(selector.matches(view, budget) for selector in self._selectors):
                return None
        except SelectorError:
            return None
        text, capacity = encode(device.capacity), device.capacity
        if text not in self._charged:
            self._charged[text] = None
            try:
                amounts = charges(self._wanted, capacity)
            except CapacityError:
                amounts = None
            if amounts is not None and all(amount <= capacity[name].value for name, amount in amounts.items()):
                self._charged[text] = {name: amount.nano for name, amount in amounts.items()}
        amounts_of_device = self._charged[text]
        if amounts_of_device is None:
            return None
        return held_of(driver, device, amounts_of_device if device.allow_multiple_allocations else None)


def _amounts(spec: ResourceClaimSpec, most_of: Callable[[Ask], Most]) -> Amounts:
    """Add up the most that each request of a claim may hold.

    For each amount, the largest of a request's alternatives counts.
    """
    parts: list[Amounts] = []
    for request in spec.devices.requests:
        exactly = request.exactly
        if exactly is not None and exactly.admin_access:
            continue
        amounts_of_request: dict[tuple[str, str], int] = {}
        for ask in request.alternatives.values():
            most, count = most_of(ask), max(ask.count, 1)
            wants_all = ask.allocation_mode == "All"
            if not most.largest:  # by the claim's own text
                amounts_of_one = {name: amount.nano for name, amount in _capacity(ask).items()} | {DEVICES: ONE}
                amounts = _times(amounts_of_one, ALL if wants_all else count)
            else:
                amounts = most.sum if wants_all else _times(most.largest, count)
            for class_name in (ask.device_class_name, ALL_CLASSES):
                _raise(amounts_of_request, {(class_name, resource): amount for resource, amount in amounts.items()})
        parts.append(amounts_of_request)
    return total(parts)


def _key(ask: Ask) -> bytes:
    """Return a cache key of a request.

    The key is short: thousands are kept, and a request may have 32 selectors of 10 KiB.
    """
    selectors = [selector.cel.expression for selector in ask.selectors if selector.cel is not None]
    amounts = [(name, str(amount.nano)) for name, amount in _capacity(ask).items()]
    text = encode((ask.device_class_name, selectors, amounts))
    return text if len(text) <= _MAX_PLAIN_KEY else sha256(text).digest()


def _capacity(ask: Ask) -> dict[str, Quantity]:
    return ask.capacity.requests if ask.capacity is not None else {}


def _raise(largest: dict[T, int], amounts: Mapping[T, int]) -> None:
    for resource, amount in amounts.items():
        largest[resource] = max(largest.get(resource, 0), amount)


def _second_largest(nodes: Collection[Held]) -> Held:
    """Return, for each amount, the second largest over the nodes with devices, or the amount of the only such node."""
    nodes_with_devices = [held for held in nodes if held]
    largest: Held = {}
    for resource in {resource for held in nodes_with_devices for resource in held}:
        amounts = sorted((held.get(resource, 0) for held in nodes_with_devices), reverse=True)
        largest[resource] = amounts[min(1, len(amounts) - 1)]
    return {resource: amount for resource, amount in largest.items() if amount}


def _add(into: dict[str, int], amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        into[resource] = into.get(resource, 0) + amount


def _times(amounts: Held, count: int) -> Held:
    return {resource: amount * count for resource, amount in amounts.items()}
