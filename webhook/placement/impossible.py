"""Why no node can serve the claims of a pod, in one text, and the least change with which the claims would fit.

The texts do not depend on the machine's load. The search for a remedy has steps of its own; if the time ends before these steps, the text says
so. A text about "never" describes the idle fleet, a text about "busy" the fleet as it is.
"""

from __future__ import annotations

import re
from enum import Enum
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from allocator import Stage, allocate, fleet
from allocator.reasons import (
    Kind,
    NearestFit,
    attribute_text,
    distance,
    listed,
    nearest_fits,
    request_positions,
    sentence,
)
from dra import cel
from dra.errors import OutOfBudget, SelectorError
from dra.quantity import parse
from dra.reason import Reason
from dra.texts import count_of
from dra.validation import shape
from webhook.dialects import TARGETS
from webhook.placement.problems import MayServe
from webhook.refusals import Code, none_could

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from allocator import FleetAnswer, FleetMemo, NodeAnswer, Rejection, SearchOptions
    from dra.budget import Budget
    from dra.objects import ResourceClaim
    from dra.stock import Stock
    from webhook.translate import PodClaim

    Samples = Mapping[str, NodeAnswer]  # the answer of one node of each kind

# The most changes to the claims that are tried to find a remedy.
TRIES = 40
# The remedy if the time ends during the search: partial results are not deterministic.
NO_TIME = "the search for an alternative timed out"
# The most kinds of node (groups of equal nodes) whose results are compared. A fleet has few, and a refusal need not consider all.
MAX_KINDS = 16
# The most words of a selector that are compared with published values.
MAX_WORDS = 16
_LITERAL = re.compile(r'["\']([^"\'\\]{0,64})["\']')
_WORD = re.compile(r"[A-Za-z0-9.]{2,}")
# The most characters of a user's selector that are read, or shown in a message.
MAX_SELECTOR_CHARACTERS = 300
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
# If a request fails at no later stage than these, the node has no device of the request's class.
_CLASSLESS = frozenset((Stage.NODE, Stage.CLASS))
ELSEWHERE = "correct the pod's node selector or affinity, or request what these nodes have"
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
    # The name of the claim that cannot be served, if the reason is a single claim.
    claim: str = ""
    # Whether the scheduler would stop at an error, such as that of a selector. Then the verdict is BUSY, because other devices may not cause it.
    is_fault: bool = False
    # Whether a pool that cannot be used keeps the claims waiting, as if its driver had not published all slices.
    lacks_pool: bool = False
    # The number of devices on the node that has the most, if too many are requested.
    most_devices: int = 0
    may_serve: MayServe = MayServe.PLUGIN | MayServe.NEW_NODE


FITS = FeasibilityAnswer(verdict=Feasibility.FITS)
UNKNOWN = FeasibilityAnswer(verdict=Feasibility.UNKNOWN)


class Demand(NamedTuple):
    """The claims of a pod, and the nodes that may serve them."""

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

    @property
    def opening(self) -> str:
        reached = self.within is not None
        return none_could(
            len(self.answers(idle=True)) if reached else len(self.stock.nodes), self.subject, reached=reached
        )

    @property
    def only_claim(self) -> str:
        return self.claims[0].metadata.name if len(self.claims) == 1 else ""


def what_blocks(demand: Demand) -> str:
    """Return what blocks the claims on one of the nodes that could serve them if all devices were free."""
    able_nodes, answers = demand.answers(idle=True).feasible, demand.answers(idle=False)
    node = min(able_nodes[:MAX_KINDS], key=lambda name: distance(answers[name]))
    more = f"; {count_of(len(able_nodes) - 1, 'more node')} could serve this {demand.subject} later, too"
    others = more if len(able_nodes) > 1 else ""
    return f"on node {node}, {sentence(answers[node])}{others}"


def why_never(demand: Demand, samples: Samples, kinds: Samples) -> FeasibilityAnswer:
    """Return why even an idle fleet cannot serve the claims, and, if there is time to search, what would fit."""
    judgement = _plainest(demand, samples, kinds) if demand.within is None else _out_of_reach(demand, samples, kinds)
    if demand.budget.is_late:
        return replace(judgement, remedies=(NO_TIME,))
    return judgement


def _out_of_reach(demand: Demand, samples: Samples, kinds: Samples) -> FeasibilityAnswer:
    """Refuse a pod that no node where it can run could serve; name another node that could serve it."""
    absent = _absent(demand, kinds, samples)
    text = f"{demand.opening}; {nearest(demand, samples)[1]}"
    judgement = absent or never(Code.NEVER, text, offer(demand, samples), demand.only_claim)
    able_nodes = fleet(demand.stock, demand.claims, options=demand.options, idle=True, memo=demand.memo).feasible
    text = (
        f"{judgement.text}; node {min(able_nodes)} can serve it, but the pod cannot run there"
        if able_nodes
        else judgement.text
    )
    may_serve = judgement.may_serve | MayServe.UNREACHED
    if absent:
        may_serve |= MayServe.DRIVER
    remedies = judgement.remedies or (ELSEWHERE,)
    return replace(judgement, code=Code.NEVER, text=text, remedies=remedies, may_serve=may_serve)


def _plainest(demand: Demand, samples: Samples, kinds: Samples) -> FeasibilityAnswer:
    """Return the plainest reason why an idle fleet cannot serve the claims. `kinds` has one node of each kind, `samples` the first MAX_KINDS."""
    node, nearest_node = nearest(demand, samples)
    if absent := _absent(demand, kinds, samples):
        return absent
    reasons = samples[node].reasons
    for selected in reasons:
        if selected.stage is Stage.SELECTOR and selected.rejected == selected.total:
            return _mismatch(demand, selected)
    return never(Code.NEVER, f"{demand.opening}; {nearest_node}", offer(demand, samples), demand.only_claim)


def _mismatch(demand: Demand, selected: Rejection) -> FeasibilityAnswer:
    """Refuse a request whose selectors no device matches; list the published values of the attributes that the selectors read."""
    detail = f"no device matches what {requests(_requester(demand, selected))}"
    published = _published(demand, selected)
    claim = selected.claim.rpartition("/")[2]
    if published and not demand.budget.is_late:
        published_values = "; ".join([listed(name, values) for name, values in published.items()])
        suggestion = _nearest_word(_expressions(demand, selected), published)
        remedy_without_suggestion = "request one of these values" if all(published.values()) else _ABSENT
        remedy = f"did you mean {suggestion}?" if suggestion else remedy_without_suggestion
        return never(Code.NO_DEVICE, f"{demand.opening}: {detail}; {published_values}", remedy, claim)
    details = (
        [selected.short[:MAX_SELECTOR_CHARACTERS]] if selected.short else starmap(listed, _products(demand).items())
    )
    return never(Code.NO_DEVICE, f"{demand.opening}: {'; '.join([detail, *details])}", _ABSENT, claim)


def _absent(demand: Demand, kinds: Samples, samples: Collection[str]) -> FeasibilityAnswer | None:
    """Refuse a request if no node has a device of its class, and list existing devices; None if a node has one."""
    without_class: list[set[tuple[str, str]]] = []
    for answer in kinds.values():
        rejected = {(reason.claim, reason.request) for reason in answer.reasons}
        rejected_later = {(reason.claim, reason.request) for reason in answer.reasons if reason.stage not in _CLASSLESS}
        without_class.append(rejected - rejected_later)
    classless_everywhere = set.intersection(*without_class) if without_class else set()
    for claim in demand.claims:
        for request in claim.spec.devices.requests:
            alternatives = request.alternatives
            if not all((claim.metadata.key, name) in classless_everywhere for name in alternatives):
                continue
            names = list(dict.fromkeys([alternative.device_class_name for alternative in alternatives.values()]))
            descriptions: dict[str, None] = {}  # descriptions of nodes with devices of these classes
            for name in names:
                title = next((target.title for target in TARGETS.values() if name in target.classes), "")
                devices = f"has a {title}" if title else f"has devices of {'this class' if len(names) == 1 else name}"
                descriptions[_KNOWN_AS.get(title, devices)] = None
            requester = name_requester(claim.metadata.name, request.name, demand.generated)
            no_node = "no node" if demand.within is None else "no such node"
            detail = f"{requests(requester)} class {' or '.join(names)}, but {no_node} {' or '.join(descriptions)}"
            if demand.within is not None:
                return never(Code.NEVER, f"{demand.opening}: {detail}", offer(demand, samples), claim.metadata.name)
            if published := _products(demand):
                detail = f"{detail}; {'; '.join(listed(*attribute) for attribute in published.items())}"
            return never(
                Code.NO_DEVICE, f"{demand.opening}: {detail}", offer(demand, samples) or _ABSENT, claim.metadata.name
            )
    return None


def _products(demand: Demand) -> dict[str, list[str]]:
    products: dict[str, list[str]] = {}
    for target in TARGETS.values():
        domain, _, product = target.product.rpartition("/")
        for name in (product, target.profile):
            if name and (values := _values(demand, domain or target.driver, name)):
                products[name] = sorted({*products.get(name, ()), *values})
    return products


def _requester(demand: Demand, reason: Rejection) -> str:
    return name_requester(reason.claim.rpartition("/")[2], reason.request, demand.generated)


def _expressions(demand: Demand, reason: Rejection) -> list[str]:
    """Return the selectors of the request, or of the alternative, that a reason is about."""
    name = reason.claim.rpartition("/")[2]
    for claim in demand.claims:
        for request in claim.spec.devices.requests if claim.metadata.name == name else ():
            if body := request.alternatives.get(reason.request):
                return [selector.cel.expression for selector in body.selectors if selector.cel]
    return []


def _published(demand: Demand, reason: Rejection) -> dict[str, list[str]]:
    """Return the published values of the attributes that a request's selectors read, without those that are unique for each device."""
    names: dict[tuple[str, str], None] = {}
    for expression in _expressions(demand, reason):
        try:
            reads = cel.compile(expression, cel.STORED).reads
        except SelectorError:
            continue
        for kind, domain, name in sorted(reads.names):
            if kind == "attributes" and f"{domain}/{name}" not in _UNIQUE:
                names[domain, name] = None
    published: dict[str, list[str]] = {}
    for domain, name in names:
        published[name] = _values(demand, domain, name) or published.get(name, [])
        if demand.hint_budget.is_out:
            return {}
    # The likely cause comes first: an attribute that no device has.
    return dict(sorted(published.items(), key=lambda attribute: bool(attribute[1])))


def _values(demand: Demand, domain: str, name: str) -> list[str]:
    """Return the distinct values that the devices of a driver publish for an attribute."""
    texts: dict[str, None] = {}
    for piece in demand.stock.slices.values():
        try:
            demand.hint_budget.charge(len(piece.spec.devices))
        except OutOfBudget:  # the refusal is complete without the list
            return []
        for device in piece.spec.devices:
            value = device.attributes.get(f"{domain}/{name}")
            if value is None and piece.spec.driver == domain:
                value = device.attributes.get(name)
            if value is not None:
                texts[attribute_text(value)] = None
    return sorted(texts)


def nearest(demand: Demand, samples: Samples) -> tuple[str, str]:
    """Return the node that is nearest to serving the claims, and what it lacks: before the node with most devices, the one with the largest."""
    far = {name: distance(answer) for name, answer in samples.items()}
    node = min(far, key=lambda name: (far[name][:-1], [-size for size in _sizes(demand, name)], far[name]))
    return node, f"nearest is {node}: {sentence(samples[node])}"


def _sizes(demand: Demand, node: str) -> list[int]:
    """Return the largest amount on a device of the node, for each capacity that a request names."""
    names = {
        name for spot in request_positions(demand.claims) if spot.body.capacity for name in spot.body.capacity.requests
    }
    if not names:
        return []
    devices = [device for pool in demand.stock.pools(node) for page in pool.accessible for device in page.devices]
    return [
        max((device.capacity[name].value.nano for device in devices if name in device.capacity), default=0)
        for name in sorted(names)
    ]


def offer(demand: Demand, nodes: Iterable[str]) -> str:
    """Return the remedy: the best change of OFFERS with which the claims fit on one of these nodes if it is idle, or on a new one; "" if none."""
    idle = demand.stock.idle()
    here = [best for node in nodes if (best := _best_hint(demand, idle, node))]
    if not here:
        return ""
    hints = list(here)
    if demand.prospects is not None:
        templates = [name for name in demand.prospects.nodes if demand.within is None or name in demand.within]
        hints += filter(None, [_best_hint(demand, demand.prospects, template) for template in templates[:_TEMPLATES]])
    hint, split = best = max(hints, key=lambda offered: _measure(offered[0]))
    requester = name_requester(hint.claim.rpartition("/")[2], hint.request, demand.generated)
    # Drop the keys in parentheses behind the requester, because the refusal names them already.
    text = _describe_offer(hint, requester.partition(" (")[0], split)
    return text if best in here else f"{text}, which a node of `nodeTemplates` has"


def _best_hint(demand: Demand, stock: Stock, node: str) -> tuple[NearestFit, str] | None:
    """Return the best change of OFFERS with which the claims fit on a node, and how to split its amount; None if there is none."""
    options = replace(demand.options, budget=demand.hint_budget)

    def fits(claims: Sequence[ResourceClaim]) -> bool | None:
        return allocate(stock, node, claims, options=options).decided

    hints = nearest_fits(demand.claims, stock.classes, fits=fits, tries=TRIES)
    for kind in OFFERS:
        for hint in hints:
            if hint.kind is kind and (kind in WRITTEN or hint.claim.rpartition("/")[2] not in demand.generated):
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
            suggestion = shape.nearest_kind(word, list(candidates))
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


def name_requester(claim: str, request: str, generated: Mapping[str, PodClaim]) -> str:
    if claim not in generated:
        return f"claim {claim}, request {request}"
    return generated[claim].requesters.get(request) or generated[claim].requester


def requests(requester: str) -> str:
    verb = "request" if requester.startswith("containers ") else "requests"
    return f"{requester} {verb}"


def never(
    code: Code,
    text: str,
    remedy: str = "",
    claim: str = "",
    may_serve: MayServe = MayServe.PLUGIN | MayServe.NEW_NODE,
) -> FeasibilityAnswer:
    return FeasibilityAnswer(
        verdict=Feasibility.NEVER,
        text=text,
        code=code,
        never=True,
        remedies=(remedy,) if remedy else (),
        claim=claim,
        may_serve=may_serve,
    )


def busy(text: str, *, is_fault: bool = False, lacks_pool: bool = False) -> FeasibilityAnswer:
    return FeasibilityAnswer(verdict=Feasibility.BUSY, text=text, is_fault=is_fault, lacks_pool=lacks_pool)
