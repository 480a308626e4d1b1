"""Judges whether a fleet can serve the claims of a pod: now, only when devices in use become free ("busy"), or never.

"Never" means that the fleet could not serve the claims even if it were idle, that is, without any allocation. So waiting cannot help. This
result must be certain. A device counts as free also if it has a taint. If a pool is not published completely, or an object is faulty, the result
is "busy" instead, because a slice that is missing may have devices. If the budget is exhausted, the result is "unknown".
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from allocator import FleetMemo, SearchOptions, SearchVerdict, Stage, allocate, best_verdict, fleet
from allocator.answer import MAX_RESULTS
from allocator.pods import lacks_class
from allocator.reasons import request_positions, with_fields
from dra import cel, step_limits
from dra.budget import Budget
from dra.errors import SelectorError
from dra.objects import DeviceToleration, ExactDeviceRequest
from dra.texts import count_of, list_first
from webhook.placement.impossible import (
    ELSEWHERE,
    FITS,
    MAX_KINDS,
    NO_TIME,
    UNKNOWN,
    Demand,
    Feasibility,
    busy,
    name_requester,
    nearest,
    never,
    offer,
    requests,
    what_blocks,
    why_never,
)
from webhook.placement.problems import MayServe
from webhook.refusals import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from allocator import NodeAnswer
    from dra.objects import DeviceSubRequest, ResourceClaim
    from dra.stock import Stock
    from webhook.placement.impossible import FeasibilityAnswer, Samples
    from webhook.translate import PodClaim

    _Body = ExactDeviceRequest | DeviceSubRequest

# Estimated bytes of a cached judgement without its texts, and of each node's name in its cache key.
_ENTRY_BYTES = 1_000
_NAME_BYTES = 100
# The most containers or claims that a message names.
MAX_NAMED = 4
# What rejects a device at these stages of the search can disappear.
CURABLE = frozenset((Stage.TAINT, Stage.POOL))
_EVERY_TAINT = (DeviceToleration(operator="Exists"),)


def can_any_node_serve(
    stock: Stock,
    claims: Sequence[ResourceClaim],
    *,
    budget: Budget | None = None,
    steps: int = step_limits.VERDICT,
    generated: Mapping[str, PodClaim] | None = None,
    memo: FleetMemo | None = None,
    prospects: Stock | None = None,
    subject: str = "pod",
    within: frozenset[str] | None = None,
) -> FeasibilityAnswer:
    """Return whether one node of this fleet can serve all claims of a pod.

    `prospects` has nodes that an autoscaler can create; the result is not NEVER if one of them could serve the claims. `within` are the names of
    the nodes that the pod can run on, also of `prospects`; None for all. `generated` are the claims of the pod's translation, by name. If the budget
    is exhausted, or the `steps` for one kind of node, the result is UNKNOWN. A `memo` caches results for further calls.
    """
    claims_by_name, budget = generated or {}, budget or Budget()
    budget.charge(len(claims))
    for claim in claims:
        for request in claim.spec.devices.requests:
            bodies = tuple(request.alternatives.values())
            if bodies and not [body for body in bodies if body.device_class_name in stock.classes]:
                requester = name_requester(claim.metadata.name, request.name, claims_by_name)
                names = " or ".join([body.device_class_name for body in bodies])
                text = lacks_class(requester, names, stock).text
                remedy = f"use an existing class, or ask an administrator to install the driver that provides {names}"
                return never(Code.NO_CLASS, text, remedy, claim.metadata.name, MayServe.PLUGIN)
            _compile_selectors(bodies, budget)
    if not stock.slices:
        return UNKNOWN  # no driver has published a slice yet
    for claim in claims:
        if claim.metadata.name in claims_by_name and (too_large := _too_large(claim, claims_by_name)):
            return too_large
    memo_in_use = memo if memo is not None else FleetMemo()
    options = SearchOptions(steps=steps, budget=budget)
    judgement = FITS
    # Judge all nodes first. If one of them can serve the claims, now or later, judge the nodes that the pod can run on: that result counts.
    for nodes in (None,) if within is None else (None, within):
        verdict = best_verdict(stock, claims, options=options, memo=memo_in_use, within=nodes)
        if verdict is SearchVerdict.UNDECIDED:
            return UNKNOWN
        if verdict is SearchVerdict.FEASIBLE:
            judgement = FITS
            continue
        hint_budget = budget.separate(step_limits.HINTS)
        demand = Demand(
            stock, claims, budget, hint_budget, claims_by_name, options, memo_in_use, prospects, subject, nodes
        )
        judgement = _recall(demand)
        # After an exhausted budget the text rests on partial results, which are not deterministic.
        if judgement.verdict is Feasibility.BUSY and (budget.is_out or budget.is_late):
            return UNKNOWN
        if judgement.verdict not in (Feasibility.FITS, Feasibility.BUSY):
            if within is not None and nodes is None and judgement.code in (Code.TOO_MANY, Code.NEVER):
                return _within_reach(judgement, _recall(demand._replace(within=within)))
            return judgement
    return judgement


def _within_reach(judgement: FeasibilityAnswer, reached: FeasibilityAnswer) -> FeasibilityAnswer:
    """Return a judgement about all nodes with a remedy for the nodes that the pod can run on, which may have fewer devices."""
    if reached.verdict is not Feasibility.NEVER or not judgement.remedy:
        return judgement
    remedy = reached.remedy
    if remedy == ELSEWHERE:
        remedy = f"{judgement.remedy}, and correct the pod's node selector or affinity"
    return replace(judgement, remedies=(remedy,))


def _compile_selectors(bodies: Iterable[_Body], budget: Budget) -> None:
    """Compile the CEL expressions of a request within the budget. Later code uses the cached results, without a budget."""
    for body in bodies:
        for selector in body.selectors:
            if selector.cel:
                with suppress(SelectorError):
                    cel.compile(selector.cel.expression, derived=False, budget=budget)
        for derived in body.derived_attributes:
            with suppress(SelectorError):
                cel.compile(derived.expression, derived=True, budget=budget)


def _recall(demand: Demand) -> FeasibilityAnswer:
    """Return the cached judgement on equal claims with equal names on this stock; if there is none, judge."""
    texts = demand.memo.texts(demand.claims)
    names = tuple([claim.metadata.key for claim in demand.claims])
    requesters = tuple(
        [(name, pod_claim.requester, *pod_claim.requesters.items()) for name, pod_claim in demand.generated.items()]
    )
    key = texts, names, requesters, demand.options.steps, demand.prospects, demand.subject, demand.within
    cached = demand.memo.conclusions(demand.stock)
    judgement: FeasibilityAnswer | None = cached.get(key)
    if judgement is None:
        judgement = judge_idle(demand)
        if not (demand.budget.is_late or demand.budget.is_out):  # with more time or steps the judgement may differ
            key_texts = repr((names, requesters, judgement.text, judgement.remedy))
            weight = _ENTRY_BYTES + len(key_texts) + sum(map(len, texts)) + _NAME_BYTES * len(demand.within or ())
            cached.put(key, judgement, weight)
    return judgement


def judge_idle(demand: Demand) -> FeasibilityAnswer:
    """Judge claims that do not fit now: whether they fit on the idle fleet."""
    verdict = best_verdict(
        demand.stock, demand.claims, options=demand.options, idle=True, memo=demand.memo, within=demand.within
    )
    if verdict is SearchVerdict.UNDECIDED:
        return UNKNOWN
    if verdict is SearchVerdict.FEASIBLE:
        return busy(f"this {demand.subject} waits until devices are free: {what_blocks(demand)}")
    if demand.within is None and (too_many := _too_many(demand)):
        return _by_new_node(demand) or too_many
    kinds = demand.answers(idle=True).samples()
    samples = dict(list(kinds.items())[:MAX_KINDS])
    faults = [answer.error for answer in kinds.values() if answer.error]
    if faults:
        return busy(f"the scheduler would stop at an error: {faults[0]}", is_fault=True)
    if not samples:
        return busy(f"no node can serve this {demand.subject}")
    if not all(answer.explained for answer in kinds.values()):
        return UNKNOWN
    if _may_be_cured(kinds):
        # A tainted device counts as present, because its taint can go.
        tolerant = _tolerating_all(demand.claims)
        if tolerant != demand.claims and any(_is_tainted(answer) for answer in kinds.values()):
            judgement = judge_idle(demand._replace(claims=tolerant))
            if judgement.verdict is Feasibility.NEVER:
                return judgement
        lacks_pool = any(reason.stage is Stage.POOL for answer in kinds.values() for reason in answer.reasons)
        return busy(
            f"no node can serve this {demand.subject} now; {nearest(demand, samples)[1]}", lacks_pool=lacks_pool
        )
    return _by_new_node(demand) or why_never(demand, samples, kinds)


def _by_new_node(demand: Demand) -> FeasibilityAnswer | None:
    """Return BUSY if a node that an autoscaler can create could serve the claims, UNKNOWN if that is uncertain, None if no such node could."""
    if demand.prospects is None:
        return None
    undecided = False
    for template in demand.prospects.nodes:
        if demand.within is not None and template not in demand.within:
            continue
        verdict = allocate(demand.prospects, template, demand.claims, options=demand.options).verdict
        if verdict is SearchVerdict.FEASIBLE:
            text = f"{demand.opening}, but a node of template {template} could (`nodeTemplates`): the {demand.subject} waits until such a node exists"
            return busy(text)
        # An error means that a scheduler would stop there, not that such a node could not serve the claims.
        undecided = undecided or verdict is not SearchVerdict.INFEASIBLE
    return UNKNOWN if undecided else None


def _too_many(demand: Demand) -> FeasibilityAnswer | None:
    """Refuse a claim, or equal claims together, for more devices than any node has; None if another cause applies.

    One search for all devices takes fewer steps than finding the reason for each claim, so a small budget is enough.
    """
    bodies = [body for claim in demand.claims for body in _plain_bodies(demand, claim)]
    total = sum(body.count for body in bodies)
    single_bodies = [replace(body, count=1) for body in bodies]
    if not total or any(body != single_bodies[0] for body in single_bodies):
        return None
    if len(bodies) == 1 and total > MAX_RESULTS:
        return None  # the scheduler stops at an error
    node, most = _largest_node(demand, min(total, MAX_RESULTS))
    if not most or _is_shared(demand, node, most):
        return None  # for shared devices the number alone is not the reason
    names = _name_requesters(demand.claims, demand.generated)
    # A single name is a container that requests more devices than a claim holds.
    where = f"in {names[0].partition(' (')[0]}" if len(names) == 1 else "in total"
    claim = demand.claims[0].metadata.name if len(names) == 1 or len(demand.claims) == 1 else ""
    remedy = f"request at most {count_of(most, 'device')} {where}"
    if len(bodies) == 1 and demand.prospects is not None:  # a new node may have more devices
        remedy = offer(demand, (node,)) or remedy
    asked = f"{_request_together(names)} {total} devices of class {single_bodies[0].device_class_name}"
    text = f"{demand.opening}: {asked} on one node, but the largest node has {most}"
    remedy = NO_TIME if demand.budget.is_late else remedy
    return replace(never(Code.TOO_MANY, text, remedy, claim), most_devices=most)


def _plain_bodies(demand: Demand, claim: ResourceClaim) -> list[ExactDeviceRequest]:
    """Return `_plain_body` of the claim. If the claim is `generated` and has no constraints, return that of each request alone."""
    devices = claim.spec.devices
    if claim.metadata.name not in demand.generated or devices.constraints:
        return [_plain_body(claim)]
    return [_plain_body(_with_request(claim, at)) for at in range(len(devices.requests))]


def _largest_node(demand: Demand, count: int) -> tuple[str, int]:
    """Return the node with the most devices for the first claim, and their number; "" and 0 if some node may have `count` devices."""
    idle = fleet(demand.stock, _first_request_for(demand, count), options=demand.options, idle=True, memo=demand.memo)
    if any(idle.verdict(node) is not SearchVerdict.INFEASIBLE for node in idle):
        return "", 0
    kinds = idle.samples()
    return ("", 0) if _may_be_cured(kinds) else _largest(kinds)


def _is_shared(demand: Demand, node: str, count: int) -> bool:
    """Return whether the idle node can give the first claim `count` devices only by sharing devices, or not at all."""
    idle = demand.stock.idle()
    answer = allocate(idle, node, _first_request_for(demand, count), options=demand.options)
    results = answer.results
    return not answer.feasible or any(result.share_id for result in results)


def _first_request_for(demand: Demand, count: int) -> tuple[ResourceClaim, ...]:
    single = (_with_request(demand.claims[0], 0),)
    spot = next(request_positions(single))
    return with_fields(single, spot, count=count)


def _name_requesters(claims: Iterable[ResourceClaim], generated: Mapping[str, PodClaim]) -> list[str]:
    requests = [(claim.metadata.name, request.name) for claim in claims for request in claim.spec.devices.requests]
    return list(dict.fromkeys([name_requester(claim, request, generated) for claim, request in requests]))


def _plain_body(claim: ResourceClaim) -> ExactDeviceRequest:
    """Return the request of a claim that has one request, for a number of devices only; else a request for 0 devices."""
    devices = claim.spec.devices
    body = devices.requests[0].exactly if _is_plain([claim]) else None
    if body is None or body.allocation_mode != "ExactCount" or body.admin_access or body.capacity:
        return ExactDeviceRequest()
    return body


def _with_request(claim: ResourceClaim, at: int) -> ResourceClaim:
    devices = replace(claim.spec.devices, requests=claim.spec.devices.requests[at : at + 1])
    return replace(claim, spec=replace(claim.spec, devices=devices))


def _too_large(claim: ResourceClaim, generated: Mapping[str, PodClaim]) -> FeasibilityAnswer | None:
    """Refuse a generated claim with more devices than one claim can hold; None if it has not too many."""
    bodies = [request.exactly for request in claim.spec.devices.requests]
    total = sum(body.count or 0 for body in bodies if body is not None)
    if total <= MAX_RESULTS:
        return None
    name = claim.metadata.name
    text = f"{_request_together(_name_requesters([claim], generated))} {total} devices, but one claim can hold at most {MAX_RESULTS}"
    remedy = f"request at most {MAX_RESULTS} devices, or use several ResourceClaims"
    return never(Code.TOO_MANY, text, remedy, name, MayServe.PLUGIN)


def _request_together(names: Sequence[str]) -> str:
    return requests(names[0]) if len(names) == 1 else f"{list_first(names, MAX_NAMED, '; ')} together request"


def _may_be_cured(kinds: Samples) -> bool:
    """Return whether what is in the way on some node can disappear, or is unknown."""
    for answer in kinds.values():
        if not answer.explained or any(reason.stage in CURABLE for reason in answer.reasons):
            return True
    return False


def _is_tainted(answer: NodeAnswer) -> bool:
    return any(reason.stage is Stage.TAINT for reason in answer.reasons)


def _tolerating_all(claims: Sequence[ResourceClaim]) -> tuple[ResourceClaim, ...]:
    """Return the claims with requests that tolerate every taint of devices."""
    tolerant = tuple(claims)
    for spot in request_positions(claims):
        tolerant = with_fields(tolerant, spot, tolerations=_EVERY_TAINT)
    return tolerant


def _is_plain(claims: Sequence[ResourceClaim]) -> bool:
    """Return whether there is one claim, with one request and no constraint that ties devices together."""
    devices = [claim.spec.devices for claim in claims]
    return len(devices) == 1 and len(devices[0].requests) == 1 and not devices[0].constraints


def _largest(kinds: Mapping[str, NodeAnswer]) -> tuple[str, int]:
    """Return the node with the most devices that pass all selectors, and their number."""
    largest = ("", 0)
    for node, answer in kinds.items():
        for reason in answer.reasons:
            if reason.stage is Stage.SEARCH and reason.total > largest[1]:
                largest = node, reason.total
    return largest
