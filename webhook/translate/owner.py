"""Decides which dialect reads each key on a pod, and what a unit of a common key such as `nvidia.com/gpu` means.

The first row that applies to a pod gives the system that it was written for. A round is one call of the webhook for a pod; the API server
calls it again if another webhook changes the pod:

| on the pod | its system |
|---|---|
| a resource key that only one system has, now or before an earlier round removed it | that system; with such keys of two systems, the pod stays |
| an annotation or label of a system | that system; if several systems have the key, the one whose scheduler the pod names, else the first |
| a scheduler that only this system has (`scheduler_is_evidence`) | that system |

If several dialects have a key, the first of these dialects that has it reads it:

| dialect | because |
|---|---|
| the administrator's own dialect, or that of a system in whose table the key is not `common` | the key belongs to this dialect |
| the dialect of a system that has a key of its own in the same container | the key is a part of that system's request |
| the dialect that `meanings` declares | the administrator decides |
| the dialect of the pod's system | the table above |
| the dialect of the device plugin | the pod has no system with this key; `unit_meaning` decides what a unit is |

A system places the pod itself, whatever its containers request, if the pod has a key of the system with `Role.REQUESTS_DEVICES` and one of these is
true: this key is a label; the pod names the system's scheduler; the pod has a key of the system with `Role.SCHEDULED`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from dra.reason import Reason
from webhook.dialects import WHOLE, Dialect, Hint, Meaning, Position, Role, Selected, leave
from webhook.names import CONFIGURATION_PAGE, class_remedy
from webhook.state import node_constraints, node_index, reach_templates
from webhook.translate.known_keys import near_key
from webhook.translate.pod_view import LegacyKey, PodView
from webhook.translate.record import removed_annotations

if TYPE_CHECKING:
    from dra.wire import Json
    from webhook.dialects import BareKey, KnownRow, Served, Target
    from webhook.state import Configuration, Inventory, Replicated
    from webhook.translate.pod_view import Slot
    from webhook.translate.record import WrittenRecord


class Owners(msgspec.Struct, frozen=True):
    """The dialects with keys on a pod, and their keys outside of containers (hints)."""

    hints: Mapping[str, Mapping[Role, Hint]]  # by dialect and role
    without_role: tuple[tuple[str, Hint], ...]  # known keys that set no part of a demand, each with its dialect
    system: Dialect | None = None
    # The system whose own keys are in a container, by the container's order.
    container_systems: Mapping[int, Dialect] = {}
    mixed: Reason | None = None  # why the pod stays as it is: it has keys of two systems
    privileged: str = ""  # the first privileged container
    selected: Selected = Selected()  # the pod's requirements on node labels
    scheduled: Hint | None = None  # a group, queue or quota that only the pod's scheduler knows
    # Systems that place the pod by a key outside of containers, each with that key.
    placing_systems: tuple[tuple[Dialect, Hint], ...] = ()
    # By dialect: why its keys stay. The pod's system allocates these devices too, and a key of the system in the same container may be the size
    # of such a device.
    shared_sizes: Mapping[str, Reason] = {}
    pod: PodView | None = None

    def row_for(self, legacy_key: LegacyKey, slot: Slot, configuration: Configuration) -> KnownRow:
        if len(legacy_key.known) == 1:
            return legacy_key.known[0]
        for known in reversed(legacy_key.known):  # an administrator's table comes after ours
            if not known.row.common:
                return known
        container_system = self.container_systems.get(slot.order)
        for known in legacy_key.known if container_system else ():
            if known.dialect is container_system:
                return known
        declared = configuration.file.meanings.get(legacy_key.key, "")
        for known in legacy_key.known if declared else ():
            if known.dialect.name == declared:
                return known
        for known in legacy_key.known if self.system and not declared else ():
            if known.dialect is self.system:
                return known
        for known in legacy_key.known:
            if not known.dialect.system:
                return known
        return legacy_key.known[0]


def find_owners(pod: PodView, configuration: Configuration, written: WrittenRecord) -> Owners:
    """Find the keys of every dialect on a pod, and the system that the pod was written for.

    Keys that an earlier round removed (`written`) count as well, so that the pod has the same system in every round.
    """
    selected = pod.selected
    hints, without_role, evidence = _hints(pod, selected, configuration)
    container_systems: dict[int, Dialect] = {}
    systems: dict[str, tuple[Dialect, str]] = {}
    privileged = ""
    for slot in pod.slots:
        if slot.privileged:
            privileged = privileged or slot.name
        legacy_keys = slot.legacy_keys
        if removed := written.record.containers.get(slot.name):
            legacy_keys = (*legacy_keys, *(LegacyKey(key, configuration.resource(key)) for key in removed))
        for legacy_key in legacy_keys:
            for known in legacy_key.known:
                dialect = known.dialect
                if dialect.system and not known.row.common:
                    container_systems[slot.order] = dialect
                    systems[dialect.name] = dialect, legacy_key.key
    if len(systems) > 1:
        (first, key), (other, other_key), *_ = systems.values()
        reason = (
            f"belongs to {first.title}, and {other_key} belongs to {other.title}: both would allocate the same devices"
        )
        return Owners(hints, without_role, mixed=leave(key, reason))
    system = None
    if container_systems:
        system = next(iter(container_systems.values()))
    elif evidence is not None:
        system = evidence
    else:
        for dialect in configuration.dialects:
            if dialect.scheduler_is_evidence and pod.scheduler in dialect.schedulers:
                system = dialect
                break
    scheduled = None
    placing_systems: list[tuple[Dialect, Hint]] = []
    for name, of_dialect in hints.items():
        table = configuration.vocabularies[name].table
        is_named = pod.scheduler in table.schedulers
        if is_named and scheduled is None:
            scheduled = of_dialect.get(Role.SCHEDULED)
        hint = of_dialect.get(Role.REQUESTS_DEVICES)
        if hint and (is_named or Role.SCHEDULED in of_dialect or hint.row.place is Position.LABEL):
            placing_systems.append((table, hint))
    if placing_systems:
        # A system does not place the pod again if an earlier round removed one of its annotations, whatever other keys remain.
        removed_before = set(removed_annotations(pod, written))
        placing_systems = [
            (table, hint)
            for table, hint in placing_systems
            if removed_before.isdisjoint([row.name for row in table.keys])
        ]
    return Owners(
        hints,
        without_role,
        system=system,
        container_systems=container_systems,
        privileged=privileged,
        selected=selected,
        scheduled=scheduled,
        placing_systems=tuple(placing_systems),
        shared_sizes=_find_shared_sizes(pod, system) if system is not None and system.seen_by_all else {},
        pod=pod,
    )


def _find_shared_sizes(pod: PodView, system: Dialect) -> dict[str, Reason]:
    """Return, by dialect, the key of another vendor's device that the pod's system allocates too, and the reason why the key stays.

    Only containers that also have a key of the system itself count, because that key may be the size of the device.
    """
    shared_sizes: dict[str, Reason] = {}
    for slot in pod.slots:
        own = [
            legacy_key.key
            for legacy_key in slot.legacy_keys
            for known in legacy_key.known
            if known.dialect is system and not known.row.common
        ]
        for legacy_key in slot.legacy_keys if own else ():
            for other in [known.dialect for known in legacy_key.known]:
                if other.independent and not set(system.schedulers).isdisjoint(other.schedulers):
                    reason = leave(legacy_key.key, f"{system.title} allocates it, and {own[0]} may be its size")
                    for dialect in (system, other):
                        shared_sizes.setdefault(dialect.name, reason)
    return shared_sizes


def _hints(
    pod: PodView, selected: Selected, configuration: Configuration
) -> tuple[dict[str, dict[Role, Hint]], tuple[tuple[str, Hint], ...], Dialect | None]:
    """Read each dialect's keys outside of containers (hints), and find the system that these keys are evidence for."""
    places = {Position.ANNOTATION: pod.annotations, Position.LABEL: pod.labels}
    if selected.always or selected.terms:
        places[Position.NODE_SELECTOR] = _labels(selected)
    hints: dict[str, dict[Role, Hint]] = {}
    without_role: list[tuple[str, Hint]] = []
    evidence: Dialect | None = None
    for position, texts in places.items():
        for key, value in texts.items() if texts else ():
            rows = configuration.word(position, key)
            for known in rows:
                if known.row.when and value != known.row.when:
                    continue
                hint = Hint.from_row(key, known.row, text_of(value))
                if known.row.role is Role.NONE:
                    without_role.append((known.dialect.name, hint))
                    continue
                of_dialect = hints.setdefault(known.dialect.name, {})
                of_dialect[known.row.role] = hint
                # A node selector is not evidence for a system.
                if evidence is None and known.dialect.system and position is not Position.NODE_SELECTOR:
                    rows_of_scheduler = [row for row in rows if pod.scheduler in row.dialect.schedulers]
                    evidence = known.dialect if known is (rows_of_scheduler or rows)[0] else None
    return hints, tuple(without_role), evidence


_SHOWN_LABELS = 4  # labels of a selector that a message names
# Operators of a selector that exclude values of the label, and how a message names them.
_EXCLUSIONS = {"NotIn": "not", "Gt": "above", "Lt": "below"}


def _labels(selected: Selected) -> dict[str, Json]:
    """Return a pod's requirements on each label as one text, over all node selector terms."""
    by_label: dict[str, dict[str, None]] = {}
    for term in (selected.always, *selected.terms):
        for key, operator, values in term:
            shown = by_label.setdefault(key, {})
            exclusion = _EXCLUSIONS.get(operator)
            if exclusion:
                listed = ", ".join(values)
                values = (f"{exclusion} {listed}",)  # noqa: PLW2901  excluded values are shown as one text
            shown |= dict.fromkeys(values)
    # Terms are alternatives: a label that one of them does not require may have any value.
    required = Counter([key for term in selected.terms for key in {selection.key for selection in term}])
    required.update({selection.key: len(selected.terms) for selection in selected.always})
    for key, shown in by_label.items():
        if required[key] < len(selected.terms):
            shown["anything else"] = None
    return {key: ", ".join(shown) for key, shown in by_label.items()}


def text_of(value: Json) -> str:
    """Return the text of a value. A file may have a bare `true`; other types, which the API server refuses, give ""."""
    if isinstance(value, str):
        # Half of a surrogate pair is not a character; Go's decoder reads it as U+FFFD.
        return value if value.isascii() else value.encode(errors="surrogatepass").decode(errors="replace")
    return str(value) if isinstance(value, bool) else ""


def unit_meaning(key: str, dialect: Dialect, configuration: Configuration, fleet: Inventory, owners: Owners) -> Meaning:
    """Decide what a unit of a common key means, and what shows that.

    A declaration `leave` (`meanings`) decides first. Otherwise the pod's node selectors decide if they leave no doubt. After them come other
    declarations, and then the nodes of the cluster.
    """
    bare = configuration.vocabularies[dialect.name].bare
    if bare is None:
        return Meaning()
    declared = configuration.file.meanings.get(key, "")
    if declared == "leave":
        return Meaning(left=leave(key, "`meanings` declares that it stays"))
    selected = owners.selected
    selected_meaning = bare.selected_meaning(selected) if selected.always or selected.terms else None
    if selected_meaning and not selected_meaning.doubt:
        return _with_key(selected_meaning, key)
    if declared_meaning := bare.declared(declared):
        shared = fleet.labelled.get(dialect.name) if declared_meaning == WHOLE else None
        parts = (
            _leave_part_pools(key, shared, configuration.targets[dialect.target_of(key)], fleet, owners)
            if shared
            else None
        )
        return parts or replace(declared_meaning, basis=f"declared to be {declared} (`meanings`)")
    if selected_meaning:
        plugin_configuration = fleet.installed.chosen_by(selected)
        if plugin_configuration is None:
            return _with_key(selected_meaning, key)
        if replica := plugin_configuration.replicated(key):
            return _replica(key, replica, bare)
    return _judge_by_nodes(key, dialect, bare, configuration, fleet, owners=owners)


def _replica(key: str, shared: Replicated, bare: BareKey) -> Meaning:
    """Return the meaning of a replica of a shared device. The key stays with MPS, and if its dialect has no meaning `shared`."""
    if not shared.sharing.strategy:
        return Meaning(left=leave(key, f"{shared}: declare under `meanings` what a unit is"))
    if shared.sharing.strategy == "MPS" or not bare.declared("shared"):
        return Meaning(
            left=leave(
                key,
                f"{shared}: a claim cannot request a replica of a shared device; translate the key once sharing is switched off",
            )
        )
    return Meaning(replica=True, basis=str(shared))


def shared_by_plugin(key: str, fleet: Inventory, owners: Owners) -> Replicated | None:
    """Return how the device plugin makes replicas on most nodes that the pod can use; None if it makes none.

    Without nodes, the configuration that the pod's node selectors choose counts, or else the default one.
    """
    if not fleet.nodes:
        plugin_configuration = fleet.installed.chosen_by(owners.selected)
        return plugin_configuration.replicated(key) if plugin_configuration else fleet.installed.usually(key)
    nodes = fleet.shared.get(key, {})
    if not nodes:
        return None
    rest = fleet.handed_out.get(key, frozenset()) - nodes.keys()
    sharing, others = _reachable_nodes(frozenset(nodes), rest, owners, fleet) or (frozenset(nodes), rest)
    return nodes[min(sharing)] if len(sharing) > len(others) else None


def _with_key(meaning: Meaning, key: str) -> Meaning:
    return replace(meaning, left=replace(meaning.left, causes=(key,))) if meaning.left else meaning


def _leave_part_pools(
    key: str, labelled: Mapping[str, str], target: Target, fleet: Inventory, owners: Owners
) -> Meaning | None:
    """Leave the key if every node that serves it to the pod is labelled as handing out parts of devices."""
    plugin_nodes = fleet.handed_out.get(key, frozenset())
    served = fleet.find_class(target)
    of_parts = plugin_nodes & labelled.keys()
    others = (plugin_nodes | (served.nodes if served else frozenset())) - of_parts
    if not of_parts or not others:
        return None
    reachable = _reachable_nodes(of_parts, others, owners, fleet)
    if reachable is None or reachable[1]:
        return None
    reached = reachable[0]
    node = min(reached)
    reason = f"all {len(reached)} nodes that the pod can run on hand out parts of devices; {node} is labelled {labelled[node]}"
    return Meaning(left=leave(key, reason))


def _judge_by_nodes(
    key: str, dialect: Dialect, bare: BareKey, configuration: Configuration, fleet: Inventory, *, owners: Owners
) -> Meaning:
    """Decide by the nodes what a unit means.

    It is a whole device if more nodes publish whole devices than publish parts, share devices or serve the key by a device plugin.
    """
    target = configuration.targets[dialect.target_of(key)]
    shared = shared_by_plugin(key, fleet, owners) if fleet.installed.plugins else None
    if shared and not fleet.nodes:
        return _replica(key, shared, bare)
    if not fleet.known:
        return _assume(key, fleet, owners)
    served = fleet.find_class(target, configuration.file.classes.get(target.name, ""))
    if shared and (served is None or not served.devices):
        return _replica(key, shared, bare)
    if served is None:
        reason = f"no DeviceClass of a {target.title} exists, such as {' or '.join(target.classes)}"
        return Meaning(left=leave(key, f"{reason}; {class_remedy(target.name)}"))
    if not served.devices:
        where = " among the nodes and drivers that count (`evidence`)" if fleet.chosen else ""
        why = f": {served.doubt}" if served.doubt else ""
        return _leave_unclear(key, f"class {served.name} selects no device of a complete pool{where}{why}")
    votes = _count_votes(key, dialect, bare, served, target, configuration=configuration, fleet=fleet, owners=owners)
    return _explain(key, votes, target, served, fleet)


def _assume(key: str, fleet: Inventory, owners: Owners) -> Meaning:
    """Decide what a unit means where no inventory is known."""
    if not fleet.assumes:
        return _leave_unclear(key, "it may be a whole device or a part of one, and no inventory shows which")
    where = ""
    if owners.selected != Selected():
        demanded = [f"{name}={value}" for name, value in islice(_labels(owners.selected).items(), _SHOWN_LABELS)]
        where = f", and nodes with {', '.join(demanded)} serve claims"
    return Meaning(basis=f"assumed: {key} is a whole device{where}", assumed=True)


class _Votes(NamedTuple):
    """The nodes that show what a unit of a key is."""

    whole: frozenset[str]  # nodes that publish whole devices, and for which none of the reasons below applies
    others: frozenset[str]
    pinned: bool  # whether only nodes that the pod can run on are counted
    # The reasons why a node is among the others.
    parts: frozenset[str]  # publishes only parts of devices
    labelled: Mapping[str, str]  # has this label, by which its device plugin shares devices
    shared: Mapping[str, Replicated]  # runs this configuration, by which its device plugin shares devices
    plugin_nodes: frozenset[str]  # hands out devices for the key by a device plugin


def _count_votes(
    key: str,
    dialect: Dialect,
    bare: BareKey,
    served: Served,
    target: Target,
    *,
    configuration: Configuration,
    fleet: Inventory,
    owners: Owners,
) -> _Votes:
    """Find the nodes that publish whole devices, and all other nodes. If the pod can run on some of these nodes, only those count."""
    labelled, shared = fleet.labelled.get(dialect.name, {}), fleet.shared.get(key, {})
    # In a mixed fleet of this key, nodes with a device plugin are no evidence for the meaning of a unit.
    plugin_nodes = frozenset() if key in configuration.file.mixed else fleet.handed_out.get(key, frozenset())
    publishing_whole = served.kinds.get(target.name, served.nodes) & served.whole
    parts = served.nodes - (publishing_whole if bare.parts else served.whole)
    others = plugin_nodes | labelled.keys() | shared.keys() | parts
    whole = publishing_whole - others
    pinned = False
    if whole and others:
        reached = _reachable_nodes(whole, others, owners, fleet) or _reachable_templates(
            key, served.driver, configuration, owners
        )
        pinned = reached is not None and reached != (whole, others)
        whole, others = reached or (whole, others)
    return _Votes(whole, others, pinned, parts, labelled, shared, plugin_nodes)


def _explain(key: str, votes: _Votes, target: Target, served: Served, fleet: Inventory) -> Meaning:
    """Turn the votes into the meaning of a unit of a key."""
    whole, others = votes.whole, votes.others
    count = len(whole | others)
    if not count:
        return _leave_unclear(key, f"no node publishes a {target.title} (class {served.name})")
    where = "nodes that count (`evidence`)" if fleet.chosen else "nodes"
    where = f"{where} that the pod can run on" if votes.pinned else where
    if len(whole) > len(others):
        return Meaning(basis=f"{len(whole)} of {count} {where} publish it as a {target.title} (class {served.name})")
    node = min(others & votes.shared.keys() or others & votes.labelled.keys() or others)
    if votes.pinned and not whole and others.isdisjoint(votes.labelled.keys() | votes.shared.keys() | votes.parts):
        reason = f"0 of {count} {where} serve claims, and node {node} serves it by a device plugin"
        return Meaning(left=leave(key, reason))
    # Such as: "6 of 9 nodes show no whole GPU, such as n0, which publishes only parts of devices".
    evidence = "still serves it through a device plugin"
    if node in votes.shared:
        evidence = f"runs what {votes.shared[node]}"
    elif node in votes.labelled:
        evidence = f"is labelled {votes.labelled[node]}"
    elif node in votes.parts:
        evidence = "publishes only parts of devices"
    reason = f"{len(others)} of {count} {where} show no {target.title}, such as {node}, which {evidence}"
    if whole and node in votes.plugin_nodes:
        reason = f"{reason}; set which nodes are preferred under `mixed`"
    return _leave_unclear(key, reason)


_NodeSets = tuple[frozenset[str], frozenset[str]]


def _reachable_nodes(
    first: frozenset[str], second: frozenset[str], owners: Owners, fleet: Inventory
) -> _NodeSets | None:
    """Find which of these nodes the pod can reach, now or once they are ready; None if the pod reaches none."""
    reach = node_index(fleet).reach(node_constraints(owners.pod.spec if owners.pod else {}))
    # Devices without a node and unknown nodes may serve the pod as well.
    unknown = (first | second) - fleet.nodes.keys()
    for names in (reach.nodes | unknown, reach.nodes | reach.closed | unknown):
        if not names.isdisjoint(first | second):
            return first & names, second & names
    return None


def _reachable_templates(key: str, driver: str, configuration: Configuration, owners: Owners) -> _NodeSets | None:
    """Find the node templates of an autoscaler that fit the pod: those with devices of the driver, and those with the key."""
    reached = reach_templates(node_constraints(owners.pod.spec if owners.pod else {}), configuration)
    with_driver = frozenset(
        [template.name for template in reached if any(entry.driver == driver for entry in template.devices)]
    )
    with_plugin = frozenset([template.name for template in reached if key in template.allocatable])
    return (with_driver, with_plugin) if with_driver or with_plugin else None


def _leave_unclear(key: str, reason: str) -> Meaning:
    return Meaning(
        left=leave(
            key,
            f"{reason}; if {key} is a whole device, an administrator can declare `meanings: {{{key}: whole}}` ({CONFIGURATION_PAGE})",
        )
    )


# The maximum of unknown keys of a pod that are compared with known keys.
MAX_COMPARED = 64


def find_misspelt(pod: PodView, configuration: Configuration, fleet: Inventory) -> Mapping[int, Reason]:
    """Find containers with a misspelt key, by container order: a key that is nearly a known key and that no node offers."""
    misspelt: dict[int, Reason] = {}
    budget = MAX_COMPARED
    for slot in pod.slots:
        if not slot.legacy_keys or len(slot.limits) <= len(slot.legacy_keys):
            continue
        known = {legacy_key.key for legacy_key in slot.legacy_keys}
        for key in slot.limits:
            if key in known or "/" not in key or budget <= 0:
                continue
            budget -= 1
            nearest = near_key(key, configuration)
            if nearest and key not in fleet.handed_out and key not in fleet.extended:
                misspelt[slot.order] = leave(key, f"did you mean {nearest}?", "D211")
                break
    return misspelt
