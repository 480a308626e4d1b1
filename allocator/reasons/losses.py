"""Where a refusal's devices went: for the first request that cannot be served, stage by stage, with who is in the way.

Claims, and within a claim requests, are given their devices in order; the first that gets none is the one to talk about.
That tells a story an admin can follow ("beside what default/a gets, ..."), at a price: another order might blame
another request. Whether everything fits together is never decided here but by the search, which has said no already.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.answer import Answer, Reason, Stage, Verdict, with_allocation
from allocator.problem import (
    Candidate,
    CompileCache,
    Fault,
    Judge,
    Judgement,
    Leaf,
    Offer,
    PoolState,
    Question,
    Refused,
    Values,
    Vicinity,
    candidates_of,
    pool_state,
    question_of,
)
from dra.errors import OutOfBudget
from dra.policy import Rules, admits, in_the_way, own_state
from dra.quantity import Quantity
from dra.stock import PoolStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dra.budget import Budget
    from dra.objects import DeviceRequestAllocationResult, ResourceClaim
    from dra.stock import Page, Pool, PoolId, Stock

    Serve = Callable[[Stock, Sequence[ResourceClaim]], Answer]

EXAMPLES = 3
_LOOKED_AT = 10  # steps of a microsecond for saying what is wrong with one device


class _Loss(msgspec.Struct, frozen=True):
    """Why one device will not do."""

    stage: Stage
    cause: str


def losses(
    stock: Stock,
    node: str,
    claims: Sequence[ResourceClaim],
    *,
    serve: Serve,
    budget: Budget,
) -> tuple[Reason, ...]:
    """Explain why claims do not fit on a node; `serve` asks the allocator about that node, first fit.

    Raises OutOfBudget where that is not known in the end.
    """
    now = stock
    asked: dict[str, str] = {}
    for claim in claims:
        metadata = claim.metadata
        asked[metadata.key] = metadata.key if metadata.namespace else metadata.name
    for claim in claims:
        answer = serve(now, [claim])
        _demand_decision(answer)
        if answer.verdict is Verdict.ERROR:
            reason = Reason(Stage.SEARCH, claim.metadata.key, text=answer.error or "")
            return (reason,)
        if not answer.feasible:
            found = _of_claim(now, node, claim, asked, serve=serve, budget=budget)
            return tuple(found)
        allocation = answer.allocations[0].allocation
        held = with_allocation(claim, allocation)
        now = now.with_(held)
    text = "each claim fits after the others, but not all of them at once"
    return (Reason(Stage.SEARCH, text=text),)


def _demand_decision(answer: Answer) -> None:
    """Give up where the allocator did: half of a look would be a reason that nobody knows to be one."""
    if answer.verdict is Verdict.UNDECIDED:
        raise OutOfBudget(answer.error or str(answer.verdict))


def _of_claim(
    stock: Stock,
    node: str,
    claim: ResourceClaim,
    asked: Mapping[str, str],
    *,
    serve: Serve,
    budget: Budget,
) -> Iterator[Reason]:
    """Find the first request that its predecessors leave nothing for, halving what is in question."""
    held: tuple[DeviceRequestAllocationResult, ...] = ()
    now = stock
    fitting = 0
    failing = len(claim.spec.devices.requests)
    refusal = Answer(Verdict.INFEASIBLE)
    while failing - fitting > 1:
        number = (fitting + failing) // 2
        some = _first_requests(claim, number)
        answer = serve(stock, [some])
        _demand_decision(answer)
        if answer.feasible:
            fitting = number
            allocation = answer.allocations[0].allocation
            held = allocation.devices.results
            now = stock.with_(with_allocation(some, allocation))
        else:
            failing = number
            refusal = answer
    if refusal.verdict is Verdict.INFEASIBLE:
        some = _first_requests(claim, failing)
        refused = _RefusedRequest(now, node, some, held, asked, budget=budget)
        yield from refused.reasons()
    else:
        text = refusal.error or str(refusal.verdict)
        yield Reason(Stage.SEARCH, claim.metadata.key, text=text)


def _first_requests(claim: ResourceClaim, number: int) -> ResourceClaim:
    devices = claim.spec.devices
    return replace(claim, spec=replace(claim.spec, devices=replace(devices, requests=devices.requests[:number])))


def _count_devices(pages: Iterable[Page]) -> int:
    return sum(len(page.devices) for page in pages)


class _RefusedRequest:
    """The last request of a claim, whose others hold their devices in the stock already."""

    def __init__(
        self,
        stock: Stock,
        node: str,
        claim: ResourceClaim,
        held: Sequence[DeviceRequestAllocationResult],
        asked: Mapping[str, str],
        *,
        budget: Budget,
    ) -> None:
        self.budget = budget
        self.stock, self.node, self.claim = stock, stock.nodes[node], claim
        self.question: Question = question_of([claim], stock.classes, stock.reading)
        self.judge = Judge(self.question, self.node, budget)
        self.pools = stock.pools(node)
        self.places = candidates_of(self.pools)
        self.rules = rules = Rules(stock.compatibilities.values())
        self.cache = CompileCache(self.question, rules)
        vicinity = Vicinity(stock.use, rules.conflicts_across(self.pools, node, budget))
        self.states = {
            pool.id: pool_state(pool, vicinity, rules, [p for p in self.places if p.pool is pool], budget)
            for pool in self.pools
        }
        self.holders = _holders(stock, self.pools, claim.metadata.key, asked)
        self.agreed = self._agreement(held)

    def reasons(self) -> Iterator[Reason]:
        """Give the losses of every alternative of the request."""
        for leaf in self.question.requests[-1].leaves:
            yield from self._of_leaf(leaf)

    def _of_leaf(self, leaf: Leaf) -> Iterator[Reason]:
        key = self.claim.metadata.key
        yield from self._unusable(leaf, key)
        found: dict[Stage, dict[str, list[str]]] = {}
        left = 0
        self.budget.charge(_LOOKED_AT * len(self.places))
        for place in self.places:
            loss = self._loss(leaf, place)
            if loss is None:
                left += 1
            else:
                found.setdefault(loss.stage, {}).setdefault(loss.cause, []).append(place.name)
        of = len(self.places)
        for stage in Stage:
            causes = found.get(stage, {})
            lost = sum(map(len, causes.values()))
            if lost:
                yield Reason(stage, key, leaf.name, lost, of, *_choose_examples(causes))
                of -= lost
        if left:
            yield Reason(Stage.SEARCH, key, leaf.name, left, left, text=_together(leaf, left))

    def _unusable(self, leaf: Leaf, key: str) -> Iterator[Reason]:
        """Tell of pools that count for nothing, and of a node without any devices."""
        for pool in self.pools:
            if pool.status is PoolStatus.OK:
                continue
            lost = _count_devices(self.stock.pages_of[pool.id])
            name = "/".join(pool.id)
            text = f"pool {name} is {pool.status.value}: {pool.reason}"
            yield Reason(Stage.POOL, key, leaf.name, lost, lost, text=text)
        if self.pools:
            return
        elsewhere = _count_devices(self.stock.pages.values())
        text = "there are no devices at all"
        if elsewhere:
            text = "no ResourceSlice offers this node anything"
        yield Reason(Stage.NODE, key, leaf.name, elsewhere, elsewhere, text=text)

    # ---- one device

    def _judge(self, leaf: Leaf, place: Candidate) -> Judgement:
        """Judge a device for itself alone; equal devices are judged once."""
        return self.cache.judged[self.cache.kind(self.judge, place)][leaf.index]

    def _loss(self, leaf: Leaf, place: Candidate) -> _Loss | None:
        judged = self._judge(leaf, place)
        if isinstance(judged, Fault):
            return _Loss(Stage.SELECTOR, f"{judged.where}: {judged.what}")
        if isinstance(judged, Refused):
            if judged.stage is Stage.CAPACITY:
                return _Loss(Stage.CAPACITY, _too_small(leaf, place))
            return _Loss(judged.stage, judged.text or f"not for node {self.node.metadata.name}")
        return (
            (judged.barred and _Loss(judged.barred.stage, judged.barred.text))
            or self._in_use(leaf, place)
            or self._hardware(leaf, place)
            or self._capacity(place, judged)
            or self._constraint(leaf, judged)
        )

    def _in_use(self, leaf: Leaf, place: Candidate) -> _Loss | None:
        if leaf.admin or place.name not in self.states[place.pool.id].use.dedicated:
            return None
        return _Loss(Stage.IN_USE, self._holder(place.pool.id, place.name))

    def _hardware(self, leaf: Leaf, place: Candidate) -> _Loss | None:
        """Look at what devices share with others: groups, rules about each other, counters."""
        state = self.states[place.pool.id]
        if state.is_shared(place):
            return None
        wild = state.goes_with_all(place)
        for name, _, groups in place.body.consumption:
            if not admits(state.groups.get(name), own_state(groups, wild=wild)):
                own = f"is in {', '.join(groups)}" if groups else "names no group"
                return _Loss(Stage.GROUPS, f"{own}; on counter set {name} is {self._on(state, name)}")
        apart = self._apart(place, state)
        if apart:
            return _Loss(Stage.COMPATIBILITY, apart)
        for name, counters, _ in place.body.consumption:
            for counter, amount in counters:
                have = state.left[name][counter]
                if amount > have:
                    text = f"needs {_amount(amount)} {counter} of {name}, {_amount(max(0, have))} left"
                    return _Loss(Stage.COUNTERS, f"{text} beside {self._on(state, name)}")
        if state.overdrawn and place.body.consumption:
            return _Loss(Stage.COUNTERS, "a counter of the pool is below zero, which blocks all its partitions")
        del leaf
        return None

    def _apart(self, place: Candidate, state: PoolState) -> str:
        """Name a device in use that a rule keeps this one apart from, the rule, and who has it; "" if there is none."""
        own = place.pool.id
        here = in_the_way(place.name, state.conflicts, state.use)
        beside = [(*own, name) for name in here]
        beside += state.away.get(place.name, ())
        if not beside:
            return ""
        first = beside[0]
        driver, pool, name = first
        there = driver, pool
        rule = self.rules.between(place.id, first, self.pools)
        holder = self._holder(there, name)
        where = "" if there == own else f" of pool {pool}"
        return f"{rule} keeps it apart from {name}{where} ({holder})"

    def _capacity(self, place: Candidate, offer: Offer) -> _Loss | None:
        state = self.states[place.pool.id]
        used = state.use.used.get(place.name, {})
        for name, amount, declared in offer.amounts:
            left = declared - used.get(name, 0)
            if amount <= left:
                continue
            whole = place.device.capacity[name].value
            want = Quantity.from_nano(amount, whole.format)
            have = Quantity.from_nano(max(0, left), whole.format)
            who = self._holder(place.pool.id, place.name)
            cause = f"{name}: {want} asked for, {have} of {whole} left ({who})"
            return _Loss(Stage.CAPACITY, cause)
        return None

    def _constraint(self, leaf: Leaf, offer: Offer) -> _Loss | None:
        for number, at in enumerate(leaf.constraints):
            constraint = self.question.constraints[at]
            kind = "matchAttribute" if constraint.match else "distinctAttribute"
            if number == offer.missing:
                return _Loss(Stage.CONSTRAINT, f"lacks attribute {constraint.attribute} ({kind})")
            if number >= len(offer.values) or self.agreed.get(at) is None:
                continue
            agreed, mine = self.agreed[at], offer.values[number]
            if constraint.match and not agreed & mine:
                return _Loss(
                    Stage.CONSTRAINT, f"{constraint.attribute} is {_values(mine)}, not {_values(agreed)} ({kind})"
                )
            if not constraint.match and agreed & mine:
                return _Loss(Stage.CONSTRAINT, f"{constraint.attribute} {_values(agreed & mine)} is taken ({kind})")
        return None

    # ---- who is in the way

    def _agreement(self, held: Sequence[DeviceRequestAllocationResult]) -> dict[int, Values]:
        """Say per constraint what the devices chosen so far have in common, or have used up."""
        by_id = {place.id: place for place in self.places}
        leaves = {leaf.name: leaf for leaf in self.question.leaves}
        agreed: dict[int, Values] = {}
        for result in held:
            leaf = leaves[result.request]
            place = by_id[result.driver, result.pool, result.device]
            offer = self._judge(leaf, place)
            if not isinstance(offer, Offer):
                continue
            for at, values in zip(leaf.constraints, offer.values, strict=False):
                before = agreed.get(at)
                if before is None:
                    agreed[at] = values
                elif self.question.constraints[at].match:
                    agreed[at] = before & values
                else:
                    agreed[at] = before | values
        return agreed

    def _holder(self, pool: PoolId, device: str) -> str:
        return _few(self.holders.get((*pool, device), [])) or "in use"

    def _on(self, state: PoolState, counter_set: str) -> str:
        """Name what is in use on a counter set."""
        found = [
            f"{device.name} ({self._holder(state.pool.id, device.name)}{_groups(device.consumes_counters, counter_set)})"
            for page in state.pool.pages()
            for device in page.devices
            if state.use.holds(device.name)
            and any(consumption.counter_set == counter_set for consumption in device.consumes_counters)
        ]
        return _few(found, 2)


def _together(leaf: Leaf, left: int) -> str:
    """Say why devices that are free for themselves are not enough."""
    are = f"{left} {'is' if left == 1 else 'are'} left"
    if leaf.all:
        return f"{are}, but all that match are asked for"
    if left < leaf.count:
        return f"{left} of the {leaf.count} devices asked for {'is' if left == 1 else 'are'} left"
    if leaf.count > 1:
        return f"{are}, but no {leaf.count} of them can be had together"
    return f"{are}, but none that goes with what the claim's other requests get"


def _groups(consumes: Sequence[msgspec.Struct], counter_set: str) -> str:
    for consumption in consumes:
        if getattr(consumption, "counter_set", "") == counter_set:
            groups = getattr(consumption, "compatibility_groups", ())
            return f", in {', '.join(groups)}" if groups else ""
    return ""


def _holders(
    stock: Stock,
    pools: Sequence[Pool],
    own: str,
    asked: Mapping[str, str],
) -> dict[tuple[str, str, str], list[str]]:
    """Say who has which device: claims of the stock hold it, claims of the same question were given it just now."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for pool in pools:
        held = stock.held.get(pool.id, {})
        for key, results in held.items():
            name = f"held by {key}"
            if key in asked:
                name = f"given to {asked[key]}"
            for result in results:
                if key == own:
                    name = f"given to request {result.request} of the same claim"
                device = (*pool.id, result.device)
                names = found.setdefault(device, [])
                names.append(name)
    return found


def _too_small(leaf: Leaf, place: Candidate) -> str:
    for name, wanted in leaf.ask.capacity.items():
        capacity = place.device.capacity.get(name)
        if capacity is None:
            return f"has no capacity {name}"
        if wanted > capacity.value:
            return f"{name}: {wanted} asked for, the device has {capacity.value}"
    return "its request policy does not allow the amount asked for"


def _choose_examples(causes: Mapping[str, list[str]]) -> tuple[tuple[str, ...], str]:
    """Choose examples, and say the cause once if it is the same for all."""
    if len(causes) == 1:
        ((cause, names),) = causes.items()
        shown = names[:EXAMPLES]
        return tuple(shown), cause
    examples: list[str] = []
    for cause, names in islice(causes.items(), EXAMPLES):
        example = f"{names[0]}: {cause}"
        examples.append(example)
    return tuple(examples), ""


def _few(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _values(values: Values) -> str:
    return _few(sorted(str(value) for _, value in values))


def _amount(nano: int) -> str:
    return str(Quantity.from_nano(nano))
