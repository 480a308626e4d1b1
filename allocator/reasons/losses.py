"""Finds the first request that cannot be served, and why each device does not fit it, stage by stage.

Claims get their devices in order, and so do the requests of a claim. The first request that gets no devices is explained; in another order
another request might fail. This module does not decide whether the claims fit: the search has already refused them.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.answer import NodeAnswer, Rejection, SearchVerdict, Stage, with_allocation
from allocator.problem import (
    CompileCache,
    DeviceCandidate,
    DeviceJudge,
    DeviceJudgement,
    Fault,
    Leaf,
    Offer,
    PoolState,
    Question,
    RejectedDevice,
    Values,
    Vicinity,
    candidates_of,
    pool_state,
    question_of,
)
from allocator.reasons.explain import attribute_text, listed
from dra import cel
from dra.errors import OutOfBudget, SelectorError
from dra.objects import holder_name
from dra.policy import Rules, admits, conflicting, own_state
from dra.quantity import Quantity
from dra.stock import PoolStatus, targets
from dra.texts import list_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dra.budget import Budget
    from dra.objects import DeviceClass, DeviceRequestAllocationResult, ResourceClaim
    from dra.policy import DeviceId
    from dra.stock import Page, Pool, PoolId, Stock

    Serve = Callable[[Stock, Sequence[ResourceClaim]], NodeAnswer]

EXAMPLES = 3
FEW = 4  # below this number of devices, attribute values are listed even if each device has another value
# A CEL expression that begins with the name of a driver. Without `||` and `?`, it selects only devices of this driver.
_OF_DRIVER = re.compile(r"""\s*device\.driver\s*==\s*(["'])([^"'\\]+)\1\s*(?:&&|$)""")
_LOOKED_AT = 10  # steps of a microsecond for explaining one device


class _Loss(msgspec.Struct, frozen=True):
    """The reason why one device does not fit."""

    stage: Stage
    cause: str


def losses(
    stock: Stock,
    node: str,
    claims: Sequence[ResourceClaim],
    *,
    serve: Serve,
    budget: Budget,
) -> tuple[Rejection, ...]:
    """Return why claims do not fit on a node. `serve` calls the allocator with strategy first-fit for that node.

    Raises OutOfBudget if the budget is used up first.
    """
    stock_so_far = stock
    claim_names = {
        claim.metadata.key: claim.metadata.key if claim.metadata.namespace else claim.metadata.name for claim in claims
    }
    for claim in claims:
        answer = serve(stock_so_far, [claim])
        _require_decision(answer)
        if answer.verdict is SearchVerdict.ERROR:
            return (Rejection(Stage.SEARCH, claim.metadata.key, text=answer.error or ""),)
        if not answer.feasible:
            return tuple(_of_claim(stock_so_far, node, claim, claim_names, serve=serve, budget=budget))
        stock_so_far = stock_so_far.with_object(with_allocation(claim, answer.allocations[0].allocation))
    return (Rejection(Stage.SEARCH, text="each claim fits after the others, but not all of them at once"),)


def _require_decision(answer: NodeAnswer) -> None:
    """Raise OutOfBudget for an undecided answer, because it does not explain the refusal."""
    if answer.verdict is SearchVerdict.UNDECIDED:
        raise OutOfBudget(answer.error or str(answer.verdict))


def _of_claim(
    stock: Stock,
    node: str,
    claim: ResourceClaim,
    claim_names: Mapping[str, str],
    *,
    serve: Serve,
    budget: Budget,
) -> Iterator[Rejection]:
    """Find the first request that gets no devices after the requests before it (by bisection), and yield the reasons."""
    earlier_results: tuple[DeviceRequestAllocationResult, ...] = ()
    stock_so_far = stock
    fitting_count = 0
    failing_count = len(claim.spec.devices.requests)
    refusal = NodeAnswer(SearchVerdict.INFEASIBLE)
    while failing_count - fitting_count > 1:
        number = (fitting_count + failing_count) // 2
        partial_claim = _first_requests(claim, number)
        answer = serve(stock, [partial_claim])
        _require_decision(answer)
        if answer.feasible:
            fitting_count = number
            allocation = answer.allocations[0].allocation
            earlier_results = allocation.devices.results
            stock_so_far = stock.with_object(with_allocation(partial_claim, allocation))
        else:
            failing_count = number
            refusal = answer
    if refusal.verdict is SearchVerdict.INFEASIBLE:
        partial_claim = _first_requests(claim, failing_count)
        yield from _RefusedRequest(
            stock_so_far, node, partial_claim, earlier_results, claim_names, budget=budget
        ).reasons()
    else:
        yield Rejection(Stage.SEARCH, claim.metadata.key, text=refusal.error or str(refusal.verdict))


def _first_requests(claim: ResourceClaim, number: int) -> ResourceClaim:
    devices = claim.spec.devices
    return replace(claim, spec=replace(claim.spec, devices=replace(devices, requests=devices.requests[:number])))


def _count_devices(pages: Iterable[Page]) -> int:
    return sum(len(page.devices) for page in pages)


class _RefusedRequest:
    """The last request of a claim whose other requests hold their devices in the stock."""

    def __init__(
        self,
        stock: Stock,
        node: str,
        claim: ResourceClaim,
        earlier_results: Sequence[DeviceRequestAllocationResult],
        claim_names: Mapping[str, str],
        *,
        budget: Budget,
    ) -> None:
        self.budget = budget
        self.stock, self.node, self.claim = stock, stock.nodes[node], claim
        self.question: Question = question_of([claim], stock)
        self.judge = DeviceJudge(self.question, self.node, budget)
        self.pools = stock.pools(node)
        self.candidates = candidates_of(self.pools)
        self.rules = rules = Rules(stock.compatibilities.values())
        self.cache = CompileCache(self.question, rules)
        vicinity = Vicinity(stock.use, rules.conflicts_across(self.pools, node, budget))
        self.states = {
            pool.id: pool_state(pool, vicinity, rules, [p for p in self.candidates if p.pool is pool], budget)
            for pool in self.pools
        }
        # Sorted by name, so that the text does not depend on the order of events. The question's own claims hold devices only in this
        # hypothetical stock.
        self.holders: dict[DeviceId, list[str]] = {}
        for pool in self.pools:
            for key, results in sorted(stock.results.get(pool.id, {}).items()):
                name = (
                    f"given to {claim_names[key]}"
                    if key in claim_names
                    else f"held by {holder_name(stock.claims[key])}"
                )
                for result in results:
                    if key == claim.metadata.key:
                        name = f"given to request {result.request} of the same claim"
                    self.holders.setdefault((*pool.id, result.device), []).append(name)
        # Per constraint: the values that all devices chosen so far have (matchAttribute), or that any of them has (distinctAttribute).
        self.agreed: dict[int, Values] = {}
        by_id = {candidate.id: candidate for candidate in self.candidates}
        leaves = {leaf.name: leaf for leaf in self.question.leaves}
        for result in earlier_results:
            leaf = leaves[result.request]
            offer = self._judge(leaf, by_id[result.driver, result.pool, result.device])
            if not isinstance(offer, Offer):
                continue
            for at, values in zip(leaf.constraints, offer.values, strict=False):
                earlier_values = self.agreed.get(at, values)
                self.agreed[at] = (
                    earlier_values & values if self.question.constraints[at].match else earlier_values | values
                )

    def reasons(self) -> Iterator[Rejection]:
        """Return the losses of every alternative of the request."""
        for leaf in self.question.requests[-1].leaves:
            yield from self._of_leaf(leaf)

    def _unusable_devices(self, pool: Pool) -> tuple[int, str]:
        """Return the number of devices in an unusable pool, and why the pool is unusable; "" if it can be used."""
        pages = self.stock.pages_of[pool.id]
        if pool.status is not PoolStatus.OK:
            return _count_devices(pages), f"is {pool.status.value}: {pool.reason}"
        if _count_devices(pool.pages()):
            return 0, ""
        # A driver creates the new slices of a pool before it deletes the old ones, so the update may be under way.
        local_pages = [page for page in pages if targets(page, self.node)]
        lost_devices = _count_devices(local_pages)
        if not lost_devices:
            return 0, ""
        newest = max(page.generation for page in local_pages)
        return lost_devices, f"has no devices in generation {newest}, which replaces older ones"

    def _of_leaf(self, leaf: Leaf) -> Iterator[Rejection]:
        key = self.claim.metadata.key
        can_be_used = True
        for pool in self.pools:
            lost, why = self._unusable_devices(pool)
            if why and (leaf.all or _may_select(leaf.class_, pool.id[0])):
                can_be_used = False
                yield Rejection(Stage.POOL, key, leaf.name, lost, lost, text=f"pool {'/'.join(pool.id)} {why}")
        if can_be_used and not self.candidates:
            devices_elsewhere = _count_devices(self.stock.pages.values())
            text = "no ResourceSlice offers this node a device" if devices_elsewhere else "there are no devices at all"
            yield Rejection(Stage.NODE, key, leaf.name, devices_elsewhere, devices_elsewhere, text=text)
        by_stage: dict[Stage, dict[str, list[str]]] = {}
        remaining_devices = 0
        self.budget.charge(_LOOKED_AT * len(self.candidates))
        for candidate in self.candidates:
            loss = self._loss(leaf, candidate)
            if loss is None:
                remaining_devices += 1
            else:
                by_stage.setdefault(loss.stage, {}).setdefault(loss.cause, []).append(candidate.name)
        checked_devices = len(self.candidates)
        for stage in Stage:
            causes = by_stage.get(stage, {})
            lost = sum(map(len, causes.values()))
            if not lost:
                continue
            examples = [f"{names[0]}: {cause}" for cause, names in islice(causes.items(), EXAMPLES)]
            text = short = ""
            if len(causes) == 1:  # a common cause is named once
                ((text, names),) = causes.items()
                examples = names[:EXAMPLES]
                if stage is Stage.SELECTOR:
                    short = self._published(leaf, names)
                    text = f"{short} ({text})" if short else text
            if stage is Stage.CLASS:
                short = f"DeviceClass/{leaf.class_.metadata.name}"
            yield Rejection(stage, key, leaf.name, lost, checked_devices, tuple(examples), text, short)
            checked_devices -= lost
        if not remaining_devices:
            return
        remainder = f"{remaining_devices} {'is' if remaining_devices == 1 else 'are'} left"
        if leaf.all:
            text = f"{remainder}, but the request needs all matching devices"
        elif remaining_devices < leaf.count:
            text = f"{remaining_devices} of the {leaf.count} devices requested {'is' if remaining_devices == 1 else 'are'} left"
        elif leaf.count > 1:
            text = f"{remainder}, but no {leaf.count} of them can be allocated together"
        else:
            text = f"{remainder}, but none is compatible with the claim's other requests"
        yield Rejection(Stage.SEARCH, key, leaf.name, remaining_devices, remaining_devices, text=text)

    def _published(self, leaf: Leaf, names: Sequence[str]) -> str:
        """Return published values of the attributes that a selector reads, for the author of the selector."""
        devices = [(candidate.pool.id[0], candidate.device) for candidate in self.candidates if candidate.name in names]
        published: list[str] = []
        for check in leaf.ask.checks:
            if check.of_class:
                continue
            try:
                reads = cel.compile(check.expression, budget=self.budget).reads
            except SelectorError:
                continue
            for kind, domain, name in sorted(reads.names):
                self.budget.charge(_LOOKED_AT * len(devices))
                values: set[str] = set()
                for driver, device in devices:
                    keys = (f"{domain}/{name}", name) if driver == domain else (f"{domain}/{name}",)
                    for key in keys:
                        if kind == "attributes" and key in device.attributes:
                            values.add(attribute_text(device.attributes[key]))
                        elif kind == "capacity" and key in device.capacity:
                            values.add(str(device.capacity[key].value))
                if len(values) < max(len(devices), FEW):  # else the attribute identifies single devices, as a UUID does
                    published.append(listed(f"{domain}/{name}", sorted(values)))
        return ", ".join(dict.fromkeys(published))

    # ---- one device

    def _judge(self, leaf: Leaf, candidate: DeviceCandidate) -> DeviceJudgement:
        """Evaluate a device without regard to devices in use. Equal devices are evaluated once."""
        [kind] = self.cache.kinds(self.judge, [candidate])
        return self.cache.judged[kind][leaf.index]

    def _loss(self, leaf: Leaf, candidate: DeviceCandidate) -> _Loss | None:
        """Return why a leaf (a request or alternative) cannot have a device; None if it could have this device by itself."""
        judged = self._judge(leaf, candidate)
        if isinstance(judged, Fault):
            return _Loss(Stage.SELECTOR, f"{judged.where}: {judged.problem}")
        if isinstance(judged, RejectedDevice):
            if judged.stage is Stage.CAPACITY:
                return _Loss(Stage.CAPACITY, _too_small(leaf, candidate))
            return _Loss(judged.stage, judged.text or f"not for node {self.node.metadata.name}")
        if judged.barred:
            return _Loss(judged.barred.stage, judged.barred.text)
        use = self.states[candidate.pool.id].use
        if not leaf.admin and candidate.name in use.dedicated:
            return _Loss(Stage.IN_USE, self._holder(candidate.pool.id, candidate.name))
        if lost := self._hardware(candidate):
            return lost
        used = use.used.get(candidate.name, {})
        for name, amount, declared in judged.amounts:
            free_amount = declared - used.get(name, 0)
            if amount > free_amount:
                whole = candidate.device.capacity[name].value
                requested = Quantity.from_nano(amount, whole.format)
                available = Quantity.from_nano(max(0, free_amount), whole.format)
                holder = self._holder(candidate.pool.id, candidate.name)
                return _Loss(Stage.CAPACITY, f"{name}: {requested} requested, {available} of {whole} left ({holder})")
        for number, at in enumerate(leaf.constraints):
            constraint = self.question.constraints[at]
            constraint_kind = "matchAttribute" if constraint.match else "distinctAttribute"
            if number == judged.missing:
                return _Loss(Stage.CONSTRAINT, f"lacks attribute {constraint.attribute} ({constraint_kind})")
            earlier_values = self.agreed.get(at)
            if number >= len(judged.values) or earlier_values is None:
                continue
            own_values = judged.values[number]
            if constraint.match and not earlier_values & own_values:
                text = f"{constraint.attribute} is {_values(own_values)}, not {_values(earlier_values)} ({constraint_kind})"
                return _Loss(Stage.CONSTRAINT, text)
            if not constraint.match and earlier_values & own_values:
                return _Loss(
                    Stage.CONSTRAINT,
                    f"{constraint.attribute} {_values(earlier_values & own_values)} is taken ({constraint_kind})",
                )
        return None

    def _hardware(self, candidate: DeviceCandidate) -> _Loss | None:
        """Check compatibility groups, compatibility rules and counters."""
        state = self.states[candidate.pool.id]
        if state.is_shared(candidate):
            return None
        goes_with_all = state.goes_with_all(candidate)
        for name, _, groups in candidate.body.consumption:
            if not admits(state.groups.get(name), own_state(groups, wild=goes_with_all)):
                own_groups = f"is in {', '.join(groups)}" if groups else "names no group"
                return _Loss(Stage.GROUPS, f"{own_groups}; on counter set {name} is {self._users_of_set(state, name)}")
        conflicts = conflicting(candidate.name, state.conflicts, state.use)
        incompatible = [*((*candidate.pool.id, name) for name in conflicts), *state.away.get(candidate.name, ())]
        if incompatible:
            driver, pool, name = incompatible[0]
            rule = self.rules.between(candidate.id, incompatible[0], self.pools)
            where = "" if (driver, pool) == candidate.pool.id else f" of pool {pool}"
            text = f"{rule} keeps it apart from {name}{where} ({self._holder((driver, pool), name)})"
            return _Loss(Stage.COMPATIBILITY, text)
        for name, counters, _ in candidate.body.consumption:
            for counter, amount in counters:
                available = state.left[name][counter]
                if amount > available:
                    text = f"needs {_amount(amount)} {counter} of {name}, {_amount(max(0, available))} left"
                    return _Loss(Stage.COUNTERS, f"{text} beside {self._users_of_set(state, name)}")
        if state.overdrawn and candidate.body.consumption:
            return _Loss(Stage.COUNTERS, "a counter of the pool is below zero, which blocks all its partitions")
        return None

    # ---- the claims that hold devices

    def _holder(self, pool: PoolId, device: str) -> str:
        return list_first(self.holders.get((*pool, device), []), 3) or "in use"

    def _users_of_set(self, state: PoolState, counter_set: str) -> str:
        """List the devices in use on a counter set."""
        holders: list[str] = []
        for page in state.pool.pages():
            for device in page.devices:
                consumption = next(
                    (
                        consumes_counter
                        for consumes_counter in device.consumes_counters
                        if consumes_counter.counter_set == counter_set
                    ),
                    None,
                )
                if consumption is not None and state.use.holds(device.name):
                    groups = (
                        f", in {', '.join(consumption.compatibility_groups)}"
                        if consumption.compatibility_groups
                        else ""
                    )
                    holders.append(f"{device.name} ({self._holder(state.pool.id, device.name)}{groups})")
        return list_first(holders, 2)


def _too_small(leaf: Leaf, candidate: DeviceCandidate) -> str:
    for name, requested in leaf.ask.capacity.items():
        capacity = candidate.device.capacity.get(name)
        if capacity is None:
            return f"has no capacity {name}"
        if requested > capacity.value:
            return f"{name}: {requested} requested, the device has {capacity.value}"
    return "its request policy does not allow the requested amount"


def _values(values: Values) -> str:
    return list_first(sorted(str(value) for _, value in values), 3)


def _amount(nano: int) -> str:
    return str(Quantity.from_nano(nano))


def _may_select(device_class: DeviceClass, driver: str) -> bool:
    """Return whether the class may select a device of this driver, whatever its attributes are."""
    for selector in device_class.spec.selectors:
        expression = selector.cel.expression if selector.cel else ""
        named = _OF_DRIVER.match(expression)
        if named and named[2] != driver and "||" not in expression and "?" not in expression:
            return False
    return True
