"""Decisions that the translation of a pod does not make. Nothing on the pod changes.

These decisions are about keys that look like requests for devices, about node selectors that no node meets, and about keys that stay although
no node that the pod can run on has them. A key looks like a request if a table has it or nearly the same name, if its domain is a vendor's, if its
name contains a word such as gpu, or if a node or a DeviceClass offers it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from allocator.decisions import STRATEGY
from dra import server
from dra.budget import Budget
from dra.objects import IMPLICIT, is_extended
from dra.raw import containers_of, inside, items, mapping, members
from dra.reason import Reason
from dra.validation import shape
from webhook.dialects import REPLACED, Outcome, Position, Role
from webhook.names import ANNOTATIONS, DOMAIN, EXTENDED_RESOURCES, MODE_LABEL, SKIP_LABEL, TRANSLATED_LABEL, WAITS_LABEL
from webhook.state import node_constraints, node_index, reach_ignoring_taints, reach_templates
from webhook.translate import (
    PLACEHOLDER,
    READ_BY_OTHERS,
    Decision,
    decides_outcome,
    find_placeholder,
    near_key,
    requests,
    rows_at,
    served_by,
    view_pod,
)
from webhook.unknown import words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from dra.wire import Json
    from webhook.dialects import Dialect, Row
    from webhook.state import Configuration, State
    from webhook.translate import PodView, Slot

# The maximum of keys that are reported for one pod; real pods have fewer.
MAX_KEYS = 64
BEYOND = f"not checked: drawbridge checks {MAX_KEYS} such keys of an object"
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_REMOVED_KEY = "alpha.kubernetes.io/nvidia-gpu"
NO_NODE_HAS_KEY = "D222"
NO_NODE = "no node has this key, so the pod waits; the key is not translated: "  # the reason follows
UNREQUESTED = "it takes devices without a request, so no scheduler or quota counts them"
_PRICE = 300  # steps of the budget for a key that no table has
_FIELDS = (*words.PARTS, "claims")
# drawbridge's own keys that a pod may have.
_OURS = {
    Position.LABEL: (SKIP_LABEL, WAITS_LABEL, TRANSLATED_LABEL),
    Position.ANNOTATION: (*ANNOTATIONS, EXTENDED_RESOURCES, STRATEGY),
}
_SKIPPED = Decision("", "", "", SKIP_LABEL, Outcome.LEFT, "the pod's label tells drawbridge to skip the pod")
_BOUND = "nodeName is set: no scheduler would allocate a claim for the pod"


def unanswered_requests(
    pod: Json, state: State, decided: tuple[Decision, ...], *, is_template: bool = False
) -> list[Decision]:
    """Return decisions about a pod beyond those in `decided`."""
    view = view_pod(pod, state.configuration)
    if view.is_skipped:
        return [_SKIPPED] if view.asks_for_devices else []
    reported = {(decision.container, decision.key) for decision in decided}
    reported |= {("", key) for _, key in reported}
    decisions: list[Decision] = []
    configuration = state.configuration
    # Report names of unknown programs only if a program may read them as requests: on a pod that drawbridge translates, or whose
    # scheduler it does not know.
    is_rewritten = any(decision.outcome in REPLACED for decision in decided)
    foreign_names = is_rewritten or (bool(view.scheduler) and view.scheduler not in configuration.schedulers)
    # The claims of a pod without keys are its requests, so what only stays beside them needs no word.
    is_moved = bool(view.spec.get("resourceClaims")) and not decided
    for decision in _find_unanswered(view, state, decided, is_rewritten=is_rewritten, foreign_names=foreign_names):
        if (decision.container, decision.key) in reported or (is_moved and not decides_outcome(decision)):
            continue
        if len(decisions) == MAX_KEYS:
            beyond = _decision(Outcome.UNKNOWN, decision.key, BEYOND, decision.container, code="D215")
            decisions.append(beyond)
            break
        reported.add((decision.container, decision.key))
        decisions.append(decision)
    if not view.bound:
        if decided or view.spec.get("resourceClaims"):
            unmatched = find_unmatched_selectors(view.spec, state)
            decisions += [
                _decision(Outcome.LEFT, reason.causes[0], reason.text, code=reason.code) for reason in unmatched
            ]
        decisions += _find_missing_plugins(view, state, (*decided, *decisions), is_template=is_template)
    return decisions


def unknown_resources(view: PodView, state: State, budget: Budget) -> list[Decision]:
    """Return the decisions of `unanswered_requests` about resources of containers. The webhook records them on the pod and in its log."""
    decisions: list[Decision] = []
    for slot in view.slots:
        for key in {**slot.limits, **slot.requests}:
            if key in _STANDARD or state.configuration.resource(key) or words.is_own(key) or len(decisions) == MAX_KEYS:
                continue
            budget.charge(_PRICE)
            if decision := _judge_amount(key, slot, view, state):
                decisions.append(decision)
    return decisions


def _unrequested_access(container: dict[str, Json], spec: dict[str, Json], state: State) -> str:
    """Return the variable, or else `runtimeClassName`, by which a container gets devices that it does not request; else "".

    A runtime class adds devices only to a container whose image or variable names
    them. So it is not reported for init containers, nor beside a container that requests or names its devices.
    """
    if container_requests(container):
        return ""
    if named := _named_devices(container):
        return named
    containers = items(spec, "containers")
    if container not in containers or any(container_requests(other) or _named_devices(other) for other in containers):
        return ""
    values = {str(variable.get("name")) for variable in items(container, "env")}
    runtime = spec.get(words.RUNTIME)
    declared = state.fleet.installed.runtimes.get(runtime) if isinstance(runtime, str) else None
    is_disabled = any(name in values for name in words.VARIABLES)  # by a value that adds no device
    runtime_adds_devices = (declared.handler if declared else runtime) in words.RUNTIMES
    return words.RUNTIME if runtime_adds_devices and not is_disabled else ""


def _unrequested_files(spec: dict[str, Json]) -> Iterator[str]:
    """Yield the device files that the volumes of a pod take from the node without a request."""
    if any(container_requests(container) for container in containers_of(spec)):
        return
    for volume in members(spec.get("volumes")):
        path = inside(volume, "hostPath").get("path")
        if isinstance(path, str) and words.DEVICE_FILE(path):
            yield path


def container_requests(container: dict[str, Json]) -> bool:
    """Return whether a container requests devices, by any key or by claims."""
    resources = mapping(container.get("resources"))
    requested = {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}
    return bool(resources.get("claims")) or any("/" in key and not words.is_own(key) for key in requested)


def _named_devices(container: dict[str, Json]) -> str:
    """Return the variable with which a container names devices; "" if there is none."""
    values = {str(variable.get("name")): variable.get("value") for variable in items(container, "env")}
    return next((name for name in words.VARIABLES if words.adds_devices(name, values.get(name))), "")


def _find_unanswered(
    view: PodView, state: State, decided: tuple[Decision, ...], *, is_rewritten: bool, foreign_names: bool
) -> Iterator[Decision]:
    configuration = state.configuration
    for slot in view.slots:
        for key, detail in _find_misplaced_keys(slot.raw):
            if configuration.resource(key):
                yield _decision(Outcome.UNKNOWN, key, detail, slot.name, code="D211")
        for key in {**slot.limits, **slot.requests}:
            if decision := _judge_amount(key, slot, view, state):
                yield decision
        if access := _unrequested_access(slot.raw, view.spec, state):
            remedy = "request devices instead, or configure the nodes' container runtime to ignore variables that name devices"
            yield _decision(Outcome.LEFT, access, UNREQUESTED, slot.name, remedy=remedy)
        for variable in items(slot.raw, "env"):
            key = str(variable.get("name"))
            if variable.get("value") not in words.NO_DEVICE:
                for known in configuration.word(Position.ENV, key):
                    yield _decision(known.row.outcome, key, known.row.because, slot.name)
    for path in _unrequested_files(view.spec):
        yield _decision(Outcome.LEFT, path, UNREQUESTED, remedy="request devices instead")
    for key in inside(view.spec, "resources", "limits"):
        # For a known key, the API server's own message is enough.
        if not configuration.resource(key) and (decision := judge_resource(key, state)):
            yield decision
    places = {
        Position.ANNOTATION: view.annotations,
        Position.LABEL: view.labels,
        Position.NODE_SELECTOR: mapping(view.spec.get("nodeSelector")),
    }
    for position, keys in places.items():
        for key, value in keys.items():
            if key in READ_BY_OTHERS and view.asks_for_devices:
                continue  # the decisions about the pod's device keys already give the reason
            rows = () if words.is_own(key) else configuration.word(position, key)
            if decision := _judge_own_key(key, position):
                yield decision
            elif rows and rows[0].row.role is Role.REQUESTS_DEVICES and rows[0].row.when not in ("", value):
                yield _decision(Outcome.LEFT, key, f"only the value {rows[0].row.when} has an effect")
            elif rows and rows[0].row.role is Role.REQUESTS_DEVICES and rows[0].row.outcome is not Outcome.LEFT:
                why = _why_not_replaced(rows[0].dialect, view, decided, configuration)
                yield _decision(Outcome.LEFT, key, why)
            elif rows:
                if decision := _judge_known_key(key, rows[0].row, is_rewritten=is_rewritten):
                    yield decision
            elif decision := _judge_unknown_key(
                key, position, configuration, foreign_names=foreign_names and bool(words.MAY_REQUEST(str(value)))
            ):
                yield decision


def _judge_amount(key: str, slot: Slot, view: PodView, state: State) -> Decision | None:
    """Judge a resource of a container beyond what a translation decides about it."""
    known = state.configuration.resource(key)
    if view.bound and (known or key in state.fleet.extended):
        return _decision(Outcome.LEFT, key, _BOUND, slot.name)
    if known or words.is_zero(slot.requests.get(key, slot.limits.get(key))):
        return None
    if decision := judge_resource(key, state, slot.name):
        return decision
    if not is_extended(key) or key.startswith(f"{DOMAIN}/"):
        return None
    remedy = _remedy_of(key, state)
    return _decision(Outcome.UNKNOWN, key, "left as it is: no dialect knows it", slot.name, remedy=remedy)


def _find_misplaced_keys(container: dict[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield the keys that the API server drops, because they are under a misspelt field of a container or of its resources, with the mistake."""
    for field, amounts in mapping(container.get("resources")).items():
        meant = "" if field in _FIELDS else shape.nearest_name(field, list(_FIELDS))
        for key in mapping(amounts) if meant else ():
            yield key, f"it is under {field}, which is not a field of resources: did you mean {meant}?"
    for field, value in container.items():
        parts = mapping(value)
        meant, amounts = "", {}
        if field in words.PARTS:
            meant, amounts = f"resources.{field}", parts
        elif field != "resources" and not parts.keys().isdisjoint(words.PARTS):
            meant = shape.nearest_name(field, ["resources"])
            amounts = {key: amount for part in words.PARTS for key, amount in mapping(parts.get(part)).items()}
        for key in amounts if meant else ():
            yield key, f"it is under {field}, which is not a field of a container: did you mean {meant}?"


def judge_resource(key: str, state: State, container: str = "") -> Decision | None:
    """Judge a resource that no table has; None if it has nothing to do with devices."""
    if key in _STANDARD:
        return None  # almost every container requests them
    unserved = ""
    if not state.features.enabled(server.EXTENDED):
        unserved = f"Kubernetes 1.{state.features.minor} does not serve resource names through DeviceClasses ({server.EXTENDED} is off)"
    if key.startswith(IMPLICIT) and unserved:
        return _decision(Outcome.LEFT, key, f"{unserved}: use a ResourceClaim", container, code="D220")
    if key.startswith(IMPLICIT) and state.fleet.known and key not in state.fleet.extended:
        no_class = f"there is no DeviceClass {key.removeprefix(IMPLICIT)}: the pod waits until there is one"
        return _decision(Outcome.LEFT, key, no_class, container, code="D220")
    if key.startswith(IMPLICIT):
        served = f"DeviceClass {key.removeprefix(IMPLICIT)} serves it through its implicit resource name"
        return _decision(Outcome.SERVED, key, served, container)
    if key == _REMOVED_KEY:
        removed = "Kubernetes 1.11 removed this key: no scheduler counts it, so the pod gets no GPU"
        return _decision(Outcome.UNKNOWN, key, removed, container, code="D211", remedy="request nvidia.com/gpu")
    if words.is_own(key):
        return None
    name = state.fleet.extended.get(key)
    if name and not unserved:
        return _decision(Outcome.SERVED, key, served_by(name), container)
    plugin_nodes = state.fleet.handed_out.get(key)
    if plugin_nodes and "/" in key:
        first = min(plugin_nodes)
        where = first if len(plugin_nodes) == 1 else f"{len(plugin_nodes)} nodes, such as {first}"
        detail = f"not understood; left to the device plugin that serves it on {where}"
        return _decision(Outcome.LEFT, key, detail, container)
    if name:
        return _decision(
            Outcome.LEFT, key, f"{unserved}, and no device plugin hands it out: use a ResourceClaim", container
        )
    if maker := state.fleet.installed.network.maker_of(key):
        detail = f"network devices of the pool in {maker}: their device plugin keeps serving them"
        return _decision(Outcome.LEFT, key, detail, container)
    suggestion = suggest_resource(key, state)
    if suggestion or words.is_vendors(key) or words.is_about_devices(key):
        return not_understood(key, suggestion, container, remedy="" if suggestion else _remedy_of(key, state))
    return None


def _remedy_of(key: str, state: State) -> str:
    if "/" not in key:
        return "write the domain of the resource, too"
    if where := state.fleet.installed.ignores(key):
        return f"the plugin ignores this name in {where}: request what its nodes offer"
    return "an administrator can declare it under `dialects`; without that, its device plugin serves it"


def suggest_resource(key: str, state: State) -> str:
    """Return the resource of the fleet, or else of a table, that a misspelt resource most likely means; "" if none is near."""
    declared = [key for template in state.configuration.file.node_templates for key in template.allocatable]
    offered = dict.fromkeys((*state.fleet.extended, *state.fleet.handed_out_anywhere, *declared))
    if nearest := _nearest_resource(key, [name for name in offered if is_extended(name)]) or near_key(
        key, state.configuration
    ):
        return nearest
    # The part after the slash may match a pattern with other capital letters.
    domain, _, end = key.partition("/")
    spellings = (f"{domain}/{spelt}" for spelt in (end.lower(), end.capitalize(), end.upper()))
    if other := next((spelt for spelt in spellings if spelt != key and state.configuration.resource(spelt)), ""):
        return other
    if not words.is_about_devices(key):
        return ""
    names = _names(state.configuration, Position.RESOURCE)
    if nearest := _nearest_resource(key, names):
        return nearest
    # The part after the slash may match a pattern.
    meant = shape.nearest_name(domain, sorted({name.partition("/")[0] for name in names if "/" in name}))
    return f"{meant}/{end}" if meant and state.configuration.resource(f"{meant}/{end}") else ""


def _nearest_resource(key: str, names: list[str]) -> str:
    """Return the nearest of these names. Domain and rest are compared separately, because a long domain would dominate the distance."""
    domain, slash, end = key.partition("/")
    if not slash:
        return shape.nearest_name(key, names)
    ends: dict[str, list[str]] = {}
    for known in names:
        vendor, _, rest = known.partition("/")
        ends.setdefault(vendor, []).append(rest)
    meant = shape.nearest_name(domain, list(ends))
    likely_end = shape.nearest_name(end, ends[meant]) if meant else ""
    return f"{meant}/{likely_end}" if likely_end else ""


def _judge_known_key(key: str, row: Row, *, is_rewritten: bool) -> Decision | None:
    """Judge an annotation, a label or a node selector that a table has, and that no translation has read."""
    stays = row.role is Role.NONE or row.outcome is Outcome.LEFT
    # A translation drops or replaces such a key only together with a request.
    if row.is_dropped or (stays and row.outcome in REPLACED and not is_rewritten):
        return _decision(Outcome.LEFT, key, "it requests nothing by itself")
    return _decision(row.outcome, key, row.because) if stays else None


def _why_not_replaced(
    system: Dialect, view: PodView, decided: tuple[Decision, ...], configuration: Configuration
) -> str:
    """Return why no claim replaces a key of a system that other pods have replaced."""
    if any(decision.outcome is Outcome.REFUSED for decision in decided):
        return "another key of the pod is refused"
    for decision in decided:
        rows = chain.from_iterable(configuration.word(position, decision.key) for position in _OURS)
        if decision.outcome is Outcome.LEFT and any(row.dialect.name == system.name for row in rows):
            return f"same reason as {decision.key}"
    if view.scheduler in system.schedulers:
        return "no claim replaces it"
    labels = [
        f", and has no label {row.name}"
        for row in system.keys
        if row.role is Role.REQUESTS_DEVICES and row.place is Position.LABEL
    ]
    return f"the pod does not name the scheduler of {system.title}{''.join(labels)}"


def _judge_unknown_key(
    key: str, position: Position, configuration: Configuration, *, foreign_names: bool
) -> Decision | None:
    """Judge an annotation, a label or a node selector that no table has; a name of an unknown program only if `foreign_names`."""
    if words.is_own(key):
        return None
    domain, slash, end = key.partition("/")
    if slash and (words.is_vendors(key) or domain in _domains(configuration)):
        # Only the part after the slash can be misspelt, so only those parts are compared.
        start = f"{domain}/"
        ends = [name.removeprefix(start) for name in _names(configuration, position) if name.startswith(start)]
        if meant := shape.nearest_name(end, ends):
            return not_understood(key, f"{start}{meant}")
    # Node labels work with claims too. Labels and annotations of other programs mention devices without a request for them.
    if position is Position.NODE_SELECTOR or not (foreign_names or key in READ_BY_OTHERS or words.is_vendors(key)):
        return None
    return not_understood(key) if words.is_about_devices(end or key) else None


def _judge_own_key(key: str, position: Position) -> Decision | None:
    """Judge a key of drawbridge that is not read in this place."""
    own_keys = _OURS.get(position, ())
    if key in own_keys or not own_keys or not key.startswith(f"{DOMAIN}/"):
        return None
    meant = shape.nearest_name(key, list(own_keys))
    others = [where for where, keys in _OURS.items() if key in keys]
    if key == MODE_LABEL:
        detail = "it is read on Namespaces, not on pods"
    elif others:
        detail = f"it has no effect as {position}, drawbridge reads it only as {others[0]}"
    elif meant:
        detail = f"did you mean {meant}?"
    else:
        return None
    return _decision(Outcome.UNKNOWN, key, detail, code="D211")


def find_unmatched_selectors(spec: Mapping[str, Json], state: State) -> Iterator[Reason]:
    """Yield a reason for each label of a pod's node selector that no node has. If there is none, yield one if no node meets all requirements."""
    if state.stock is None or not state.stock.nodes:
        return
    is_reported = False
    nodes = [node.metadata.labels for node in state.stock.nodes.values()]
    if state.prospects is not None:
        nodes += [node.metadata.labels for node in state.prospects.nodes.values()]
    for key, value in mapping(spec.get("nodeSelector")).items():
        values = {labels[key] for labels in nodes if key in labels}
        if not isinstance(value, str) or value in values:
            continue  # the API server refuses values that are not strings
        nodes_text = f"nodes have {', '.join(sorted(values)[:8])}" if values else "no node has this label"
        consequence = PLACEHOLDER if find_placeholder(value) else "the pod waits until one does"
        is_reported = True
        similar = shape.nearest_kind(value, values)
        yield Reason(
            text=f"no node has {key}={value}: {consequence}; {nodes_text}",
            code="D212",
            causes=(key,),
            never=True,
            remedies=(f"select {key}={similar} instead of {value}",) if similar else (),
        )
    constraints = node_constraints(spec)
    if not is_reported and constraints and not reach_ignoring_taints(constraints, state, Budget()):
        key = "nodeAffinity" if "required" in constraints else "nodeSelector"
        text = f"no node matches the pod's {key}: the pod waits until one does"
        yield Reason(text=text, code="D212", causes=(key,), never=True)


def _find_missing_plugins(
    view: PodView, state: State, decided: tuple[Decision, ...], *, is_template: bool
) -> Iterator[Decision]:
    """Yield a decision for each key that stays although no node has it, or only nodes that the pod cannot run on have it.

    The API server may add a toleration of the key to the pods of a template (ExtendedResourceToleration) before it calls webhooks.
    """
    fleet = state.fleet
    left_keys: dict[str, Decision] = {}
    for decision in decided:
        if decision.outcome is Outcome.LEFT and not decision.code:
            left_keys.setdefault(decision.key, decision)
    # A pod waits for no device of a key whose amounts are 0.
    requested = requests(view, left_keys)
    left_keys = {key: decision for key, decision in left_keys.items() if requested[key]}
    if not left_keys:
        return
    constraints = node_constraints(view.spec)
    coming = {key for template in reach_templates(constraints, state.configuration) for key in template.allocatable}
    for key, decision in left_keys.items():
        if not (key in fleet.extended or key in fleet.handed_out_anywhere or key in coming):
            # Of a system's keys, only the number of devices must be on nodes. A plugin without devices may be starting.
            rows = state.configuration.resource(key)
            known = any(not known.dialect.system or known.row.role is Role.COUNT for known in rows)
            statuses = [node.status for node in fleet.nodes.values()] if known and not state.unseen else []
            if statuses and not any(key in status.allocatable or key in status.capacity for status in statuses):
                yield replace(decision, detail=NO_NODE + decision.detail, code=NO_NODE_HAS_KEY)
            continue
        plugin_nodes = fleet.handed_out_anywhere.get(key)
        # A class may serve the key on other nodes, and an autoscaler may create a node with it.
        if not plugin_nodes or key in fleet.extended or key in coming:
            continue
        if _reaches_any(constraints, plugin_nodes, state):
            continue
        detail = f"only nodes that the pod cannot run on have it, such as {min(plugin_nodes)}: the pod waits until another node has it"
        toleration = {"key": key, "operator": "Exists", "effect": "NoSchedule"}
        if _reaches_any(
            constraints | {"tolerations": [*members(constraints.get("tolerations")), toleration]}, plugin_nodes, state
        ):
            if is_template:
                continue
            detail = f"the nodes that have it, such as {min(plugin_nodes)}, have taint {key}, which the pod does not tolerate: it waits unless the API server adds the toleration (ExtendedResourceToleration)"
        yield _decision(Outcome.LEFT, key, detail, decision.container, code="D221")


def _reaches_any(constraints: dict[str, Any], nodes: Collection[str], state: State) -> bool:
    reached = node_index(state.fleet).reach(constraints)
    return not (reached.nodes | reached.closed).isdisjoint(nodes)


def not_understood(key: str, suggestion: str = "", container: str = "", *, remedy: str = "") -> Decision:
    meant = (
        f"did you mean {suggestion}?" if suggestion else "left as it is: no dialect knows it, see `drawbridge dialects`"
    )
    return _decision(Outcome.UNKNOWN, key, meant, container, code="D211", remedy=remedy)


def _decision(
    outcome: Outcome, key: str, detail: str, container: str = "", *, code: str = "", remedy: str = ""
) -> Decision:
    return Decision("", container, "", key, outcome, detail, code=code, remedy=remedy)


def _names(configuration: Configuration, position: Position) -> list[str]:
    return [row.name for row in rows_at(configuration, position) if "<" not in row.name]


@lru_cache(maxsize=4)
def _domains(configuration: Configuration) -> frozenset[str]:
    rows = [row for position in Position for row in rows_at(configuration, position)]
    return frozenset(row.name.partition("/")[0] for row in rows if "/" in row.name)
