"""A typed view of a raw pod: a field with an unexpected type is empty here, and is not changed on the pod.

The pod stays JSON, because it may have newer fields, and a pod in a file may have malformed fields. The API server reports malformed fields.
Containers come in starting order, each with the keys that a dialect knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from dra.errors import QuantityError
from dra.objects import amount_problem, is_extended
from dra.quantity import MAX, NANO, from_json
from dra.raw import inside, mapping, members
from dra.wire import Json
from webhook import names
from webhook.dialects import KnownRow, NodeRequirement, Position, Role, Selected, refuse
from webhook.refusals import UNFILLED, UNREADABLE, Code

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from dra.reason import Reason
    from webhook.state import Configuration

_LISTS = ("initContainers", "containers")
MIRROR = "kubernetes.io/config.mirror"
_OURS = frozenset(names.ANNOTATIONS)
_ANYWHERE = Selected()
# ${NAME}, $(NAME), $NAME, {{ name }}, <name> and n{} anywhere; as the whole text ..., __NAME__, @NAME@, %NAME%, #{name}#, [[ name ]], (expression)
# of Chainsaw, PLACEHOLDER, YOUR_NAME, `Filled by NAME` and the like, and an open {{.
_PLACEHOLDER = re.compile(
    r"\$(?:\{[^{}\n]+\}|\([^()\n]+\)|[A-Za-z_]\w*)|\{\{(?>[^{}\n]|\{(?!\{)|\}(?!\}))*+\}\}|<[A-Za-z][\w .:/-]*>|(?<=[\w-])\{\}|^(?:\.\.\.|\$.*|\(.*\)|\[\[.*\]\]|@.*@|%.*%|#\{.*\}#|<.*>|__.*__|PLACEHOLDER.*|(?i:filled by ).*|(?:FILLED|CHANGE|REPLACE|INSERT|YOUR|TODO)[ _-]?[A-Z].*|(?=.*\{\{).*)$"
)
PLACEHOLDER = "this looks like a placeholder: fill it in first (envsubst, helm template, kustomize build)"
_WHOLE = "ask for a whole number"
_PARTS = (Role.MEMORY, Role.CORES)
# The maximum of requirements on node labels. One more is read, so that `limits` can report the excess.
SELECTIONS = 1_024


class LegacyKey(msgspec.Struct, frozen=True, gc=False):
    """A resource key of a container that a dialect knows, with its amounts."""

    key: str
    known: tuple[KnownRow, ...]
    limit: Json = None
    request: Json = None
    raw: Json = None  # the limit, or the request where there is no limit


class Slot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A container of a pod, and its position."""

    list: str
    index: int
    order: int  # among all containers, in starting order
    name: str
    raw: dict[str, Json]
    limits: dict[str, Json]
    requests: dict[str, Json]
    claims: tuple[str, ...]  # names of the entries in the pod's resourceClaims that the container uses
    init: bool  # an init container that ends before the next container starts
    sidecar: bool
    privileged: bool
    legacy_keys: tuple[LegacyKey, ...]


class PodView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod, or the pod template of a workload."""

    raw: dict[str, Json]
    spec: dict[str, Json]
    annotations: dict[str, Json]
    labels: dict[str, Json]
    name: str  # or generateName with an asterisk
    generate_name: str
    scheduler: str  # as written, "" if the pod names none
    claims: tuple[str, ...]  # names of the pod's entries in resourceClaims
    slots: tuple[Slot, ...]
    asks_for_devices: bool  # whether a container, an annotation or a label may request devices
    marked: bool  # whether the pod has an annotation with a name of ours
    selected: Selected  # the pod's requirements on node labels
    # The CPUs for which claims are made, by the container's order (`webhook.translate.cpus`).
    cpus: Mapping[int, int] = {}

    @property
    def is_skipped(self) -> bool:
        return self.labels.get(names.SKIP_LABEL) == "true"

    @property
    def bound(self) -> bool:
        """Return whether the pod has a node already, as a mirror pod has."""
        return bool(self.spec.get("nodeName")) or MIRROR in self.annotations


def is_skipped(pod: dict[str, Json]) -> bool:
    return inside(pod, "metadata", "labels").get(names.SKIP_LABEL) == "true"


def has_own_annotation(pod: Json) -> bool:
    """Report whether a pod has an annotation with a name of ours."""
    return not _OURS.isdisjoint(inside(pod, "metadata", "annotations"))


def view_pod(pod: Json, configuration: Configuration) -> PodView:
    """Make the view of a pod; no other code has to check the types of its fields."""
    # Every review of a pod runs this, so types are checked in place.
    raw = pod if isinstance(pod, dict) else {}
    metadata, spec = raw.get("metadata"), raw.get("spec")
    metadata = metadata if isinstance(metadata, dict) else {}
    spec = spec if isinstance(spec, dict) else {}
    annotations, labels = metadata.get("annotations"), metadata.get("labels")
    annotations = annotations if isinstance(annotations, dict) else {}
    labels = labels if isinstance(labels, dict) else {}
    generated = metadata.get("generateName") or ""
    scheduler = spec.get("schedulerName")
    slots: list[Slot] = []
    asks_for_devices = False
    for list_ in _LISTS:
        containers = spec.get(list_)
        for index, container in enumerate(containers) if isinstance(containers, list) else ():
            if isinstance(container, dict):
                slot = _slot(list_, index, len(slots) + 1, container, configuration)
                slots.append(slot)
                asks_for_devices = asks_for_devices or bool(slot.legacy_keys)
    asks_for_devices = asks_for_devices or configuration.asks(annotations) or configuration.asks(labels)
    return PodView(
        raw=raw,
        spec=spec,
        annotations=annotations,
        labels=labels,
        name=str(metadata.get("name") or f"{generated}*"),
        generate_name=str(generated),
        scheduler=scheduler if isinstance(scheduler, str) else "",
        claims=_entry_names(spec.get("resourceClaims")),
        slots=tuple(slots),
        asks_for_devices=asks_for_devices,
        marked=not _OURS.isdisjoint(annotations),
        selected=_selected(spec) if "nodeSelector" in spec or "affinity" in spec else _ANYWHERE,
    )


def _selected(spec: dict[str, Json]) -> Selected:
    """Read nodeSelector, and required node affinity term by term."""
    selector_items = islice(mapping(spec.get("nodeSelector")).items(), SELECTIONS + 1)
    always = [NodeRequirement(key, "In", (str(value),)) for key, value in selector_items]
    required = inside(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    alternatives = members(required.get("nodeSelectorTerms"))
    room = SELECTIONS + 1 - len(always)
    terms: list[tuple[NodeRequirement, ...]] = []
    for alternative in alternatives[:room]:
        term = mapping(alternative)
        expressions = members(term.get("matchExpressions"))
        if not expressions and not term.get("matchFields"):
            continue  # an empty term matches no node
        selections: list[NodeRequirement] = []
        for item in expressions[:room]:
            expression = mapping(item)
            values = [value for value in members(expression.get("values")) if isinstance(value, str)]
            selections.append(
                NodeRequirement(str(expression.get("key")), str(expression.get("operator")), tuple(values))
            )
        terms.append(tuple(selections))
        room -= len(selections)
    return Selected(tuple(always), tuple(terms))


def _slot(list_: str, index: int, order: int, raw: dict[str, Json], configuration: Configuration) -> Slot:
    resources = raw.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    limits, requests = resources.get("limits"), resources.get("requests")
    limits = limits if isinstance(limits, dict) else {}
    requests = requests if isinstance(requests, dict) else {}
    legacy_keys: list[LegacyKey] = []
    amounts = limits if limits.keys() >= requests.keys() else {**limits, **requests}
    for key in sorted(amounts):  # as the API server writes maps
        known = configuration.resource(key)
        if known:
            # The API server reads null as 0; here None means that there is no entry.
            limit, request = limits.get(key), requests.get(key)
            if limit is None and key in limits:
                limit = 0
            if request is None and key in requests:
                request = 0
            legacy_keys.append(LegacyKey(key, known, limit, request, request if limit is None else limit))
    context = raw.get("securityContext")
    is_init = list_ == "initContainers"
    lasting = is_init and raw.get("restartPolicy") == "Always"
    claims = resources.get("claims")
    return Slot(
        list=list_,
        index=index,
        order=order,
        name=str(raw.get("name", "")),
        raw=raw,
        limits=limits,
        requests=requests,
        claims=_entry_names(claims) if claims else (),
        init=is_init and not lasting,
        sidecar=lasting,
        privileged=isinstance(context, dict) and context.get("privileged") is True,
        legacy_keys=tuple(legacy_keys),
    )


def _entry_names(entries: Json) -> tuple[str, ...]:
    if not isinstance(entries, list):
        return ()
    return tuple(str(entry.get("name", "")) for entry in entries if isinstance(entry, dict))


def number(entry: LegacyKey, configuration: Configuration | None = None) -> int | Reason:
    """Return the whole number of an entry of limits and requests, or why the API server would refuse the amount of an extended resource."""
    limit = request = None
    try:
        if entry.limit is not None:
            limit = from_json(entry.limit)
    except QuantityError as error:
        return _unreadable(entry, f"its limit: {error}", entry.limit)
    try:
        # In most pods limit and request are equal, because the API server copies the limit if there is no request.
        if type(entry.request) is type(entry.limit) and entry.request == entry.limit:
            request = limit
        elif entry.request is not None:
            request = from_json(entry.request)
    except QuantityError as error:
        return _unreadable(entry, f"its request: {error}", entry.request)
    if limit is not None and (request is limit or request is None or request == limit):
        whole = limit.whole()
        if whole is not None and whole >= 0:
            return whole
    # If the name is no extended resource, the API server accepts fractions, and a request that differs from the limit.
    if not is_extended(entry.key):
        amount = limit or request
        if amount is not None and amount.nano < 0:
            return _invalid(entry, f"{amount} is negative", "write a number from 0 up")
        return min(amount.nano // NANO, MAX) if amount is not None else 0
    if limit is None:
        return _invalid(entry, "is requested without a limit", "set the same number as a limit")
    if request is not None and request != limit:
        return _invalid(entry, f"request {entry.request} and limit {entry.limit} differ", "use one amount")
    if problem := amount_problem(limit):
        remedy = "write a whole number from 0 up and below 2^63"
        if limit.nano % NANO:
            remedy = _remedy_for_a_part(entry, configuration) if configuration else _WHOLE
        return _invalid(entry, f"{entry.limit} {problem}", remedy)
    return min(-(-limit.nano // NANO), MAX)  # no whole number of 64 bits, but the API server accepts it


def find_names(pod: dict[str, Json], served: Container[str], taken: Container[tuple[str, str]]) -> set[str]:
    """Return the `served` names that containers request, without the pairs of container and name in `taken`."""
    # Every review of a pod runs this, so types are checked in place.
    names: set[str] = set()
    spec = inside(pod, "spec")
    for list_ in _LISTS:
        containers = spec.get(list_)
        for container in containers if isinstance(containers, list) else ():
            resources = container.get("resources") if isinstance(container, dict) else None
            if not isinstance(resources, dict):
                continue
            for part in ("limits", "requests"):
                amounts = resources.get(part)
                for name in amounts if isinstance(amounts, dict) else ():
                    if name in served and (str(container.get("name")), name) not in taken:
                        names.add(name)
    return names


def requests(pod: PodView, names_: Iterable[str]) -> dict[str, int]:
    """Sum a pod's requests of some resources in billionths, as schedulers do; a value that is not a quantity counts as 0.

    The result is the larger of two sums: containers and sidecars, or an init container and the sidecars before it. A request of the pod
    as a whole (`spec.resources`) replaces this result.
    """
    pod_requests = inside(pod.spec, "resources", "requests")
    requested: dict[str, int] = {}
    for name in names_:
        lasting = init_peak = 0
        for slot in pod.slots:
            amount = nano_of(slot.requests.get(name, slot.limits.get(name, 0)))
            if slot.init:
                init_peak = max(init_peak, lasting + amount)
            else:
                lasting += amount
        requested[name] = nano_of(pod_requests[name]) if name in pod_requests else max(lasting, init_peak)
    return requested


def nano_of(value: Json) -> int:
    """Return an amount in billionths; 0 if it is negative or not a quantity."""
    try:
        return max(0, from_json(value).nano)
    except QuantityError:
        return 0


def find_placeholder(value: Json) -> str:
    """Find a placeholder that a template engine or a person has not filled in yet; "" if there is none."""
    match = _PLACEHOLDER.search(value) if isinstance(value, str) else None
    return match.group() if match else ""


def _unreadable(entry: LegacyKey, reason: str, value: Json) -> Reason:
    if find_placeholder(value):
        return refuse(entry.key, reason, PLACEHOLDER, UNFILLED)
    return refuse(entry.key, f"the API server refuses it: {reason}", "write a whole number", UNREADABLE)


def _remedy_for_a_part(entry: LegacyKey, configuration: Configuration) -> str:
    if entry.known[0].row.role is not Role.COUNT:
        return _WHOLE
    # Keys of the same domain that request a part of such a device, with their units.
    domain = entry.key.partition("/")[0]
    parts: dict[str, None] = {}
    for known in configuration.resource(entry.key):
        for row in known.dialect.keys:
            is_part = row.place is Position.RESOURCE and row.role in _PARTS
            if is_part and row.name.startswith(f"{domain}/"):
                parts[f"{row.name} ({row.unit})"] = None
    part_keys = " or ".join(list(parts)[:2]) or "its own key, see `drawbridge dialects`"
    return f"{_WHOLE}; request a part of a device with {part_keys}"


def _invalid(entry: LegacyKey, reason: str, remedy: str) -> Reason:
    return refuse(entry.key, reason, remedy, Code.AMOUNT)


def equal(left: Json, right: Json) -> bool:
    try:
        return from_json(left) == from_json(right)
    except QuantityError:
        return bool(left == right)
