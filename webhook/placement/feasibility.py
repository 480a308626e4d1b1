"""Judges whether a fleet can serve the claims of a pod: now, only when devices in use become free ("busy"), or never.

"Never" means that the fleet could not serve the claims even if it were idle, that is, without any allocation. So waiting cannot help. This
result must be certain. A device counts as free also if it has a taint. If a pool is not published completely, or an object is faulty, the result
is "busy" instead, because a slice that is missing may have devices. If the budget is exhausted, the result is "unknown".

The texts do not depend on the machine's load. The search for a remedy has steps of its own; if the time ends before these steps, the text says
so. A text about "never" describes the idle fleet, a text about "busy" the fleet as it is.
"""

from __future__ import annotations

import re
from contextlib import suppress
from enum import Enum
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from allocator import FleetMemo, SearchOptions, SearchVerdict, Stage, allocate, best_verdict, fleet
from allocator.answer import MAX_RESULTS
from allocator.reasons import (
    Kind,
    NearestFit,
    attribute_text,
    distance,
    listed,
    nearest_fits,
    request_positions,
    sentence,
    with_fields,
)
from dra import cel, step_limits
from dra.budget import Budget
from dra.errors import OutOfBudget, SelectorError
from dra.objects import DeviceToleration, ExactDeviceRequest
from dra.quantity import parse
from dra.reason import Reason
from dra.texts import count_of, list_first
from dra.validation import shape
from webhook.dialects import TARGETS
from webhook.placement.problems import MayServe
from webhook.refusals import Code, none_could

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from allocator import FleetAnswer, NodeAnswer, Rejection
    from dra.objects import DeviceRequest, DeviceSubRequest, ResourceClaim
    from dra.stock import Stock
    from webhook.translate import PodClaim

    _Body = ExactDeviceRequest | DeviceSubRequest

# The most changes to the claims that are tried to find a remedy.
TRIES = 40
# The remedy if the time ends during the search: partial results are not deterministic.
NO_TIME = "the search for an alternative timed out"
# Estimated bytes of a cached judgement without its texts, and of each node's name in its cache key.
_ENTRY_BYTES = 1_000
_NAME_BYTES = 100
# The most kinds of node (groups of equal nodes) whose results are compared. A fleet has few, and a refusal need not consider all.
MAX_KINDS = 16
# The most containers or claims that a message names.
MAX_NAMED = 4
# The most words of a selector that are compared with published values.
MAX_WORDS = 16
_LITERAL = re.compile(r'["\']([^"\'\\]{0,64})["\']')
_WORD = re.compile(r"[A-Za-z0-9.]{2,}")
# The most characters of a user's selector that are read, or shown in a message.
MAX_SELECTOR_CHARACTERS = 300
# What rejects a device at these stages of the search can disappear.
CURABLE = frozenset((Stage.TAINT, Stage.POOL))
# Remedies for the author of a pod, the best one first. No remedy depends on the claims of other pods.
OFFERS = {
    Kind.AMOUNT: "request at most {amount} of {name} per device in {requester}",
    Kind.COUNT: "request at most {devices} in {requester}",
    Kind.CLASS: "use DeviceClass {value} in {requester}",
    Kind.SELECTOR: "remove the selector {value} from {requester}",
    Kind.CONSTRAINT: "remove the constraint on {value}",
}
# The remedies for claims of a translation: the pod's author wrote no class, selector or constraint.
WRITTEN = (Kind.AMOUNT, Kind.COUNT)
_TEMPLATES = 4  # templates of new nodes on which a remedy is searched
_EVERY_TAINT = (DeviceToleration(operator="Exists"),)
# If a request fails at no later stage than these, the node has no device of the request's class.
_CLASSLESS = frozenset((Stage.NODE, Stage.CLASS))
_ELSEWHERE = "correct the pod's node selector or affinity, or request what these nodes have"
_ABSENT = "request a device that a node has, or ask an administrator for nodes with such devices"
# How a message describes a node with the devices of a target (a kind of device), by the target's title.
_KNOWN_AS = {"share of a GPU": "shares GPUs", "MIG device": "has MIG devices"}
# Attributes with a different value on each device; a message does not list them.
_UNIQUE = frozenset(target.unique for target in TARGETS.values())


class Feasibility(Enum):
    NEVER = "never"
    BUSY = "busy"
    FITS = "fits"
    UNKNOWN = "unknown"  # the budget is exhausted


class FeasibilityAnswer(Reason, frozen=True, kw_only=True):
    """A verdict, and the reason of NEVER and BUSY; its code and its remedy belong to NEVER."""

    verdict: Feasibility
    text: str = ""
    # The text without its opening, if no device matches a request.
    detail: str = ""
    # The name of the claim that cannot be served, if the reason is a single claim.
    claim: str = ""
    # Whether the scheduler would stop at an error, such as that of a selector. Then the verdict is BUSY, because other devices may not cause it.
    is_fault: bool = False
    # The number of devices on the node that has the most, if too many are requested.
    most_devices: int = 0
    may_serve: MayServe = MayServe.PLUGIN | MayServe.NEW_NODE


FITS = FeasibilityAnswer(verdict=Feasibility.FITS)
UNKNOWN = FeasibilityAnswer(verdict=Feasibility.UNKNOWN)


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
                requester = _name_requester(claim.metadata.name, request.name, claims_by_name)
                return _missing_class(stock, bodies, requester, claim.metadata.name)
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
        diagnosis = _Diagnosis(
            stock, claims, budget, hint_budget, claims_by_name, options, memo_in_use, prospects, subject, nodes
        )
        judgement = diagnosis.recall()
        # After an exhausted budget the text rests on partial results, which are not deterministic.
        if judgement.verdict is Feasibility.BUSY and (budget.is_out or budget.is_late):
            return UNKNOWN
        if judgement.verdict not in (Feasibility.FITS, Feasibility.BUSY):
            if within is not None and nodes is None and judgement.code in (Code.TOO_MANY, Code.NEVER):
                return _within_reach(judgement, diagnosis._replace(within=within).recall())
            return judgement
    return judgement


def _within_reach(judgement: FeasibilityAnswer, reached: FeasibilityAnswer) -> FeasibilityAnswer:
    """Return a judgement about all nodes with a remedy for the nodes that the pod can run on, which may have fewer devices."""
    if reached.verdict is not Feasibility.NEVER or not judgement.remedy:
        return judgement
    remedy = reached.remedy
    if remedy == _ELSEWHERE:
        remedy = f"{judgement.remedy}, and correct the pod's node selector or affinity"
    return replace(judgement, remedies=(remedy,))


def _missing_class(stock: Stock, bodies: Iterable[_Body], requester: str, claim: str) -> FeasibilityAnswer:
    existing = ", ".join(sorted(stock.classes)) or "none"
    class_names = " or ".join([body.device_class_name for body in bodies])
    text = f"{requester}: DeviceClass {class_names} does not exist; existing classes: {existing}"
    remedy = f"use an existing class, or ask an administrator to install the driver that provides {class_names}"
    return replace(_never(Code.NO_CLASS, text, remedy, claim), may_serve=MayServe.PLUGIN)


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


class _Diagnosis(NamedTuple):
    """Finds the reason why claims do not fit now, and what would fit."""

    stock: Stock
    claims: Sequence[ResourceClaim]
    budget: Budget
    hint_budget: Budget  # for the search for a remedy
    generated: Mapping[str, PodClaim]
    options: SearchOptions
    memo: FleetMemo
    prospects: Stock | None
    subject: str
    within: frozenset[str] | None  # the nodes that the pod can run on; None for all

    def answers(self, *, idle: bool) -> FleetAnswer:
        return fleet(self.stock, self.claims, options=self.options, idle=idle, memo=self.memo, within=self.within)

    def recall(self) -> FeasibilityAnswer:
        """Return the cached judgement on equal claims with equal names on this stock; if there is none, judge."""
        texts = self.memo.texts(self.claims)
        names = tuple([claim.metadata.key for claim in self.claims])
        requesters = tuple(
            [(name, pod_claim.requester, *pod_claim.requesters.items()) for name, pod_claim in self.generated.items()]
        )
        key = texts, names, requesters, self.options.steps, self.prospects, self.subject, self.within
        cached = self.memo.conclusions(self.stock)
        judgement: FeasibilityAnswer | None = cached.get(key)
        if judgement is None:
            judgement = self.judge_idle()
            if not (self.budget.is_late or self.budget.is_out):  # with more time or steps the judgement may differ
                key_texts = repr((names, requesters, judgement.text, judgement.detail, judgement.remedy))
                weight = _ENTRY_BYTES + len(key_texts) + sum(map(len, texts)) + _NAME_BYTES * len(self.within or ())
                cached.put(key, judgement, weight)
        return judgement

    def judge_idle(self) -> FeasibilityAnswer:
        """Judge claims that do not fit now: whether they fit on the idle fleet."""
        verdict = best_verdict(
            self.stock, self.claims, options=self.options, idle=True, memo=self.memo, within=self.within
        )
        if verdict is SearchVerdict.UNDECIDED:
            return UNKNOWN
        if verdict is SearchVerdict.FEASIBLE:
            return _busy(f"this {self.subject} waits until devices are free: {self.busy()}")
        too_many = self.too_many_together() if self.within is None else None
        if too_many is not None:
            return self.by_new_node() or too_many
        kinds = self.answers(idle=True).samples()
        samples = dict(list(kinds.items())[:MAX_KINDS])
        faults = [answer.error for answer in kinds.values() if answer.error]
        if faults:
            return replace(_busy(f"the scheduler would stop at an error: {faults[0]}"), is_fault=True)
        if not samples:
            return _busy(f"no node can serve this {self.subject}")
        if not all(answer.explained for answer in kinds.values()):
            return UNKNOWN
        if _may_be_cured(kinds):
            # A tainted device counts as present, because its taint can go.
            tolerant = _tolerating_all(self.claims)
            if tolerant != self.claims and any(_is_tainted(answer) for answer in kinds.values()):
                judgement = self._replace(claims=tolerant).judge_idle()
                if judgement.verdict is Feasibility.NEVER:
                    return judgement
            return _busy(f"no node can serve this {self.subject} now; {self.nearest(samples)[1]}")
        return self.by_new_node() or self.never(samples, kinds)

    def by_new_node(self) -> FeasibilityAnswer | None:
        """Return BUSY if a node that an autoscaler can create could serve the claims, UNKNOWN if that is uncertain, None if no such node could."""
        if self.prospects is None:
            return None
        undecided = False
        for template in self.prospects.nodes:
            if self.within is not None and template not in self.within:
                continue
            verdict = allocate(self.prospects, template, self.claims, options=self.options).verdict
            if verdict is SearchVerdict.FEASIBLE:
                text = f"{self.opening}, but a node of template {template} could (`nodeTemplates`): the {self.subject} waits until such a node exists"
                return _busy(text)
            # An error means that a scheduler would stop there, not that such a node could not serve the claims.
            undecided = undecided or verdict is not SearchVerdict.INFEASIBLE
        return UNKNOWN if undecided else None

    def busy(self) -> str:
        """Return what blocks the claims on one of the nodes that could serve them if all devices were free."""
        able_nodes, answers = self.answers(idle=True).feasible, self.answers(idle=False)
        node = min(able_nodes[:MAX_KINDS], key=lambda name: distance(answers[name]))
        more = f"; {count_of(len(able_nodes) - 1, 'more node')} could serve this {self.subject} later, too"
        others = more if len(able_nodes) > 1 else ""
        return f"on node {node}, {sentence(answers[node])}{others}"

    def never(self, samples: Mapping[str, NodeAnswer], kinds: Mapping[str, NodeAnswer]) -> FeasibilityAnswer:
        """Return why even an idle fleet cannot serve the claims, and, if there is time to search, what would fit."""
        judgement = self.reason(samples, kinds) if self.within is None else self.out_of_reach(samples, kinds)
        if self.budget.is_late:
            return replace(judgement, remedies=(NO_TIME,))
        return judgement

    def out_of_reach(self, samples: Mapping[str, NodeAnswer], kinds: Mapping[str, NodeAnswer]) -> FeasibilityAnswer:
        """Refuse a pod that no node where it can run could serve; name another node that could serve it."""
        node, nearest_node = self.nearest(samples)
        absent = self.absent(kinds, node)
        text = f"{self.opening}; {nearest_node}"
        judgement = absent or _never(Code.NEVER, text, self.offer(node), self.only_claim)
        able_nodes = fleet(self.stock, self.claims, options=self.options, idle=True, memo=self.memo).feasible
        text = (
            f"{judgement.text}; node {min(able_nodes)} can serve it, but the pod cannot run there"
            if able_nodes
            else judgement.text
        )
        may_serve = judgement.may_serve | MayServe.UNREACHED
        if absent:
            may_serve |= MayServe.DRIVER
        remedies = judgement.remedies or (_ELSEWHERE,)
        return replace(judgement, code=Code.NEVER, text=text, remedies=remedies, may_serve=may_serve)

    def reason(self, samples: Mapping[str, NodeAnswer], kinds: Mapping[str, NodeAnswer]) -> FeasibilityAnswer:
        """Return the plainest reason why an idle fleet cannot serve the claims. `kinds` has one node of each kind, `samples` the first MAX_KINDS."""
        node, nearest_node = self.nearest(samples)
        if absent := self.absent(kinds, node):
            return absent
        reasons = samples[node].reasons
        for selected in reasons:
            if selected.stage is Stage.SELECTOR and selected.rejected == selected.total:
                return self.mismatch(selected)
        too_few = next((reason for reason in reasons if reason.stage is Stage.SEARCH), None)
        if too_few is not None and (too_many := self.too_many(too_few, kinds)):
            return too_many
        return _never(Code.NEVER, f"{self.opening}; {nearest_node}", self.offer(node), self.only_claim)

    def mismatch(self, selected: Rejection) -> FeasibilityAnswer:
        """Refuse a request whose selectors no device matches; list the published values of the attributes that the selectors read."""
        detail = f"no device matches what {_requests(self.requester(selected))}"
        published = self.published(selected)
        claim = selected.claim.rpartition("/")[2]
        if published and not self.budget.is_late:
            published_values = "; ".join([listed(name, values) for name, values in published.items()])
            suggestion = _nearest_word(self.expressions(selected), published)
            remedy_without_suggestion = "request one of these values" if all(published.values()) else _ABSENT
            remedy = f"did you mean {suggestion}?" if suggestion else remedy_without_suggestion
            return self.no_device(f"{detail}; {published_values}", remedy, claim)
        details = (
            [selected.short[:MAX_SELECTOR_CHARACTERS]] if selected.short else starmap(listed, self.products().items())
        )
        return self.no_device("; ".join([detail, *details]), _ABSENT, claim)

    def too_many(self, too_few: Rejection, kinds: Mapping[str, NodeAnswer]) -> FeasibilityAnswer | None:
        """Refuse a single request for more devices than any node has; None if another cause applies."""
        request = self.request(too_few)
        exactly = request.exactly if request is not None else None
        if exactly is None or not _is_plain(self.claims):
            return None
        largest, most = _largest(kinds)
        if most >= exactly.count:
            return None
        text = self.write_excess(most, _requests(self.requester(too_few)), exactly.count, exactly.device_class_name)
        never = _never(Code.TOO_MANY, text, self.offer(largest), too_few.claim.rpartition("/")[2])
        return replace(never, most_devices=most)

    def absent(self, kinds: Mapping[str, NodeAnswer], node: str) -> FeasibilityAnswer | None:
        """Refuse a request if no node has a device of its class, and list existing devices; None if a node has one."""
        without_class: list[set[tuple[str, str]]] = []
        for answer in kinds.values():
            rejected = {(reason.claim, reason.request) for reason in answer.reasons}
            rejected_later = {
                (reason.claim, reason.request) for reason in answer.reasons if reason.stage not in _CLASSLESS
            }
            without_class.append(rejected - rejected_later)
        classless_everywhere = set.intersection(*without_class) if without_class else set()
        for claim in self.claims:
            for request in claim.spec.devices.requests:
                alternatives = request.alternatives
                if not all((claim.metadata.key, name) in classless_everywhere for name in alternatives):
                    continue
                names = list(dict.fromkeys([alternative.device_class_name for alternative in alternatives.values()]))
                descriptions: dict[str, None] = {}  # descriptions of nodes with devices of these classes
                for name in names:
                    title = next((target.title for target in TARGETS.values() if name in target.classes), "")
                    devices = (
                        f"has a {title}" if title else f"has devices of {'this class' if len(names) == 1 else name}"
                    )
                    descriptions[_KNOWN_AS.get(title, devices)] = None
                requester = _name_requester(claim.metadata.name, request.name, self.generated)
                no_node = "no node" if self.within is None else "no such node"
                detail = f"{_requests(requester)} class {' or '.join(names)}, but {no_node} {' or '.join(descriptions)}"
                if self.within is not None:
                    return _never(Code.NEVER, f"{self.opening}: {detail}", self.offer(node), claim.metadata.name)
                if published := self.products():
                    detail = f"{detail}; {'; '.join(listed(*attribute) for attribute in published.items())}"
                return self.no_device(detail, self.offer(node) or _ABSENT, claim.metadata.name)
        return None

    def no_device(self, detail: str, remedy: str, claim: str) -> FeasibilityAnswer:
        return replace(_never(Code.NO_DEVICE, f"{self.opening}: {detail}", remedy, claim), detail=detail)

    def products(self) -> dict[str, list[str]]:
        products: dict[str, list[str]] = {}
        for target in TARGETS.values():
            domain, _, product = target.product.rpartition("/")
            for name in (product, target.profile):
                if name and (values := self.values(domain or target.driver, name)):
                    products[name] = sorted({*products.get(name, ()), *values})
        return products

    def too_many_together(self) -> FeasibilityAnswer | None:
        """Refuse equal claims that together request more devices than any node has; None if another cause applies.

        One search for all devices takes fewer steps than finding the reason for each claim, so a small budget is enough.
        """
        bodies = [body for claim in self.claims for body in self.plain_bodies(claim)]
        total = sum(body.count for body in bodies)
        single_bodies = [replace(body, count=1) for body in bodies]
        if len(bodies) < 2 or not total or any(body != single_bodies[0] for body in single_bodies):
            return None
        node, most = self.largest_node(min(total, MAX_RESULTS))
        if not most or self.is_shared(node, most):
            return None  # for shared devices the number alone is not the reason
        names = _name_requesters(self.claims, self.generated)
        # A single name is a container that requests more devices than a claim holds.
        where = f"in {names[0].partition(' (')[0]}" if len(names) == 1 else "in total"
        claim = self.claims[0].metadata.name if len(names) == 1 or len(self.claims) == 1 else ""
        text = self.write_excess(most, _request_together(names), total, single_bodies[0].device_class_name)
        never = _never(Code.TOO_MANY, text, f"request at most {count_of(most, 'device')} {where}", claim)
        return replace(never, most_devices=most)

    def write_excess(self, most: int, asks: str, count: int, name: str) -> str:
        return f"{self.opening}: {asks} {count} devices of class {name} on one node, but the largest node has {most}"

    def plain_bodies(self, claim: ResourceClaim) -> list[ExactDeviceRequest]:
        """Return `_plain_body` of the claim. If the claim is `generated` and has no constraints, return that of each request alone."""
        devices = claim.spec.devices
        if claim.metadata.name not in self.generated or devices.constraints:
            return [_plain_body(claim)]
        return [_plain_body(_with_request(claim, at)) for at in range(len(devices.requests))]

    def largest_node(self, count: int) -> tuple[str, int]:
        """Return the node with the most devices for the first claim, and their number; "" and 0 if some node may have `count` devices."""
        idle = fleet(self.stock, self.first_request_for(count), options=self.options, idle=True, memo=self.memo)
        if any(idle.verdict(node) is not SearchVerdict.INFEASIBLE for node in idle):
            return "", 0
        kinds = idle.samples()
        return ("", 0) if _may_be_cured(kinds) else _largest(kinds)

    def is_shared(self, node: str, count: int) -> bool:
        """Return whether the idle node can give the first claim `count` devices only by sharing devices, or not at all."""
        idle = self.stock.idle()
        answer = allocate(idle, node, self.first_request_for(count), options=self.options)
        results = answer.results
        return not answer.feasible or any(result.share_id for result in results)

    def first_request_for(self, count: int) -> tuple[ResourceClaim, ...]:
        single = (_with_request(self.claims[0], 0),)
        spot = next(request_positions(single))
        return with_fields(single, spot, count=count)

    def requester(self, reason: Rejection) -> str:
        return _name_requester(reason.claim.rpartition("/")[2], reason.request, self.generated)

    def request(self, reason: Rejection) -> DeviceRequest | None:
        """Return the request that a reason is about; the reason may name one of the request's alternatives."""
        name = reason.claim.rpartition("/")[2]
        for claim in self.claims:
            for request in claim.spec.devices.requests if claim.metadata.name == name else ():
                if reason.request in (request.name, *request.alternatives):
                    return request
        return None

    def expressions(self, reason: Rejection) -> list[str]:
        request = self.request(reason)
        alternative = request.alternatives.get(reason.request) if request is not None else None
        return (
            [selector.cel.expression for selector in alternative.selectors if selector.cel]
            if alternative is not None
            else []
        )

    def published(self, reason: Rejection) -> dict[str, list[str]]:
        """Return the published values of the attributes that a request's selectors read, without those that are unique for each device."""
        names: dict[tuple[str, str], None] = {}
        for expression in self.expressions(reason):
            try:
                reads = cel.compile(expression, cel.STORED).reads
            except SelectorError:
                continue
            for kind, domain, name in sorted(reads.names):
                if kind == "attributes" and f"{domain}/{name}" not in _UNIQUE:
                    names[domain, name] = None
        published: dict[str, list[str]] = {}
        for domain, name in names:
            published[name] = self.values(domain, name) or published.get(name, [])
            if self.hint_budget.is_out:
                return {}
        # The likely cause comes first: an attribute that no device has.
        return dict(sorted(published.items(), key=lambda attribute: bool(attribute[1])))

    @property
    def opening(self) -> str:
        reached = self.within is not None
        return none_could(
            len(self.answers(idle=True)) if reached else len(self.stock.nodes), self.subject, reached=reached
        )

    @property
    def only_claim(self) -> str:
        return self.claims[0].metadata.name if len(self.claims) == 1 else ""

    def values(self, domain: str, name: str) -> list[str]:
        """Return the distinct values that the devices of a driver publish for an attribute."""
        texts: dict[str, None] = {}
        for piece in self.stock.slices.values():
            try:
                self.hint_budget.charge(len(piece.spec.devices))
            except OutOfBudget:  # the refusal is complete without the list
                return []
            for device in piece.spec.devices:
                value = device.attributes.get(f"{domain}/{name}")
                if value is None and piece.spec.driver == domain:
                    value = device.attributes.get(name)
                if value is not None:
                    texts[attribute_text(value)] = None
        return sorted(texts)

    def nearest(self, samples: Mapping[str, NodeAnswer]) -> tuple[str, str]:
        """Return the node that is nearest to serving the claims, and what it lacks. Of equal nodes, it is the one with the largest devices."""
        node = min(samples, key=lambda name: (distance(samples[name]), [-size for size in self.sizes(name)]))
        return node, f"nearest is {node}: {sentence(samples[node])}"

    def sizes(self, node: str) -> list[int]:
        """Return the largest amount on a device of the node, for each capacity that a request names."""
        names = {
            name
            for spot in request_positions(self.claims)
            if spot.body.capacity
            for name in spot.body.capacity.requests
        }
        if not names:
            return []
        devices = [device for pool in self.stock.pools(node) for page in pool.accessible for device in page.devices]
        return [
            max((device.capacity[name].value.nano for device in devices if name in device.capacity), default=0)
            for name in sorted(names)
        ]

    def offer(self, node: str) -> str:
        """Return the remedy: the least change of OFFERS with which the claims fit on the idle node, or on a new one; "" if there is none."""
        best = self.best_hint(self.stock.idle(), node) if node else None
        if best is None:
            return ""
        if self.prospects is not None:
            templates = [name for name in self.prospects.nodes if self.within is None or name in self.within]
            others = [self.best_hint(self.prospects, template) for template in templates[:_TEMPLATES]]
            best = max([best, *filter(None, others)], key=lambda offered: _measure(offered[0]))
        hint, split = best
        requester = _name_requester(hint.claim.rpartition("/")[2], hint.request, self.generated)
        # Drop the keys in parentheses behind the requester, because the refusal names them already.
        return _describe_offer(hint, requester.partition(" (")[0], split)

    def best_hint(self, stock: Stock, node: str) -> tuple[NearestFit, str] | None:
        """Return the best change of OFFERS with which the claims fit on a node, and how to split its amount; None if there is none."""
        options = replace(self.options, budget=self.hint_budget)

        def fits(tried: Stock, claims: Sequence[ResourceClaim]) -> bool | None:
            return allocate(tried, node, claims, options=options).decided

        hints = nearest_fits(stock, node, self.claims, fits=fits, tries=TRIES)
        for kind in OFFERS:
            for hint in hints:
                if hint.kind is kind and (kind in WRITTEN or hint.claim.rpartition("/")[2] not in self.generated):
                    return hint, _split_of(hint, hints)
        return None


def _measure(hint: NearestFit) -> tuple[int, int]:
    """Return a sort key: the best kind of OFFERS last, and of one kind the largest amount."""
    amount = parse(hint.value.rpartition("=")[2]).nano if hint.kind in WRITTEN else 0
    return -list(OFFERS).index(hint.kind), amount


def _nearest_word(expressions: Sequence[str], published: Mapping[str, Sequence[str]]) -> str:
    """Return the published value, or the word in one, that a misspelt word of a selector most likely means; "" if none is similar."""
    candidates: dict[str, None] = {}
    for values in published.values():
        for value in values:
            candidates |= dict.fromkeys((value, *_WORD.findall(value)))
    known_words = {word.casefold() for word in candidates}
    for text in expressions:
        words = _LITERAL.findall(text[:MAX_SELECTOR_CHARACTERS])
        for word in words[:MAX_WORDS]:
            if not word or word.casefold() in known_words:
                continue
            suggestion = shape.nearest_name(word, list(candidates))
            if suggestion:
                return suggestion
    return ""


def _split_of(hint: NearestFit, hints: Iterable[NearestFit]) -> str:
    """Return the text that offers several devices with a smaller amount each instead of one device; "" if that does not fit either."""
    for split in hints:
        if split.kind is Kind.SPLIT and (split.claim, split.request) == (hint.claim, hint.request):
            pieces, _, piece = split.value.partition(" x ")
            name, _, amount = piece.partition("=")
            if hint.value.startswith(f"{name}="):
                return f", or {count_of(int(pieces), 'device')} with {amount} each"
    return ""


def _describe_offer(hint: NearestFit, requester: str, split: str) -> str:
    name, _, amount = hint.value.partition("=")
    devices = count_of(int(hint.value), "device") if hint.kind is Kind.COUNT else ""
    words = {"requester": requester, "value": hint.value, "name": name, "amount": amount, "devices": devices}
    return f"{OFFERS[hint.kind].format_map(words)}{split}"


def _name_requester(claim: str, request: str, generated: Mapping[str, PodClaim]) -> str:
    if claim not in generated:
        return f"claim {claim}, request {request}"
    return generated[claim].requesters.get(request) or generated[claim].requester


def _name_requesters(claims: Iterable[ResourceClaim], generated: Mapping[str, PodClaim]) -> list[str]:
    requests = [(claim.metadata.name, request.name) for claim in claims for request in claim.spec.devices.requests]
    return list(dict.fromkeys([_name_requester(claim, request, generated) for claim, request in requests]))


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
    return replace(_never(Code.TOO_MANY, text, remedy, name), may_serve=MayServe.PLUGIN)


def _requests(requester: str) -> str:
    verb = "request" if requester.startswith("containers ") else "requests"
    return f"{requester} {verb}"


def _request_together(names: Sequence[str]) -> str:
    return _requests(names[0]) if len(names) == 1 else f"{list_first(names, MAX_NAMED, '; ')} together request"


def _is_plain(claims: Sequence[ResourceClaim]) -> bool:
    """Return whether there is one claim, with one request and no constraint that ties devices together."""
    devices = [claim.spec.devices for claim in claims]
    return len(devices) == 1 and len(devices[0].requests) == 1 and not devices[0].constraints


def _may_be_cured(kinds: Mapping[str, NodeAnswer]) -> bool:
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


def _largest(kinds: Mapping[str, NodeAnswer]) -> tuple[str, int]:
    """Return the node with the most devices that pass all selectors, and their number."""
    largest = ("", 0)
    for node, answer in kinds.items():
        for reason in answer.reasons:
            if reason.stage is Stage.SEARCH and reason.total > largest[1]:
                largest = node, reason.total
    return largest


def _never(code: Code, text: str, remedy: str = "", claim: str = "") -> FeasibilityAnswer:
    remedies = (remedy,) if remedy else ()
    verdict = Feasibility.NEVER
    return FeasibilityAnswer(verdict=verdict, text=text, code=code, never=True, remedies=remedies, claim=claim)


def _busy(text: str) -> FeasibilityAnswer:
    return FeasibilityAnswer(verdict=Feasibility.BUSY, text=text)
