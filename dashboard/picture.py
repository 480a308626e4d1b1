"""What the pages show (the "picture"), computed from one reading of the cluster by the code of `drawbridge free`, `explain` and `quota`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from analysis.capacity import IN_USE, STATES, NodeDevices, cards_of, devices_of, devices_of_nodes
from analysis.loading import Unread
from analysis.object_events import Events
from analysis.quota_use import QuotaReport, report
from dashboard.waiting import Waiting, waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from analysis.capacity import Card
    from analysis.loading import Reading
    from dra.finding import Finding

# Labels by which fleets are usually grouped. The default is the first of these labels that a node has.
USUAL_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/rack",
    "node.kubernetes.io/instance-type",
    "nvidia.com/gpu.product",
)
NONE = "(none)"
_MAX_VALUES = 50  # nodes cannot be grouped by a label with more values, unless it is a usual label
_COUNTED: Final = re.compile(r"([^0-9]*)([0-9]{0,18})")


class Shelf(NamedTuple):
    """Nodes with one value of a label."""

    value: str
    nodes: list[NodeDevices]


class Picture(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the pages show of one reading."""

    read_at: str
    source: str
    nodes: tuple[NodeDevices, ...]
    waiting: tuple[Waiting, ...]
    quotas: tuple[QuotaReport, ...]
    unread: tuple[Unread, ...]


class DashboardView(NamedTuple):
    """A reading and its picture. `problem` says why the reading is old; "" if it is not."""

    reading: Reading
    picture: Picture
    # The namespaces of which the pages show an object.
    namespaces: frozenset[str]
    problem: str = ""
    # The account that is logged in; "" without --login.
    viewer: str = ""
    # What the pages do not show this account.
    notice: str = ""
    # Whether the waiting pods have the reasons that `with_reasons` finds.
    has_reasons: bool = False
    # Whether the names of namespaces that the viewer may not list were removed.
    narrowed: bool = False
    # The findings of doctor about the whole cluster.
    faults: tuple[Finding, ...] = ()
    # The events of the object that the page is about.
    events: Events = Events()


def reading_of(view: DashboardView) -> str:
    """Return a name for the reading of a view. An open page compares names to detect a newer reading."""
    return f"{view.picture.read_at}{' old' if view.problem else ''}"


def draw_picture(reading: Reading, *, read_at: str, source: str) -> Picture:
    """Return the picture of a reading. As the reason of a waiting pod it has the scheduler's message; `with_reasons` finds the reasons."""
    return Picture(
        read_at=read_at,
        source=source,
        nodes=tuple(devices_of_nodes((), reading)),
        waiting=tuple(waiting(reading, search=False)),
        quotas=tuple(report(reading)),
        unread=reading.unread,
    )


def with_reasons(view: DashboardView) -> DashboardView:
    """Return the view with the reasons why pods wait."""
    rows = tuple(waiting(view.reading))
    return view._replace(picture=msgspec.structs.replace(view.picture, waiting=rows), has_reasons=True)


def count_devices(
    nodes: Iterable[NodeDevices], state_of: Callable[[Card], str] = lambda card: card.state
) -> dict[str, int]:
    """Count devices by state, or by the result of `state_of`, as `totals` counts them: the parts of a card count once."""
    counted: Counter[str] = Counter()
    for card in cards_of(nodes):
        counted[state_of(card)] += card.number
    ordered = sorted(counted, key=lambda state: STATES.index(state) if state in STATES else len(STATES))
    return {state: counted[state] for state in ordered if counted[state]}


def in_use(counts: Mapping[str, int]) -> int:
    """Return how many devices have a holder, or are blocked by a device that has one."""
    return sum(counts.get(state, 0) for state in IN_USE)


def labels_of(reading: Reading, nodes: Iterable[NodeDevices]) -> list[str]:
    """List the labels by which nodes with devices can be grouped, the usual labels first."""
    values: defaultdict[str, set[str]] = defaultdict(set)
    for node in nodes:
        stored = reading.stock.nodes.get(node.node)
        for key, value in (stored.metadata.labels if stored else {}).items():
            values[key].add(value)
    usual = [key for key in USUAL_LABELS if key in values]
    return usual + sorted(key for key, texts in values.items() if key not in usual and len(texts) <= _MAX_VALUES)


def value_of(reading: Reading, node: str, label: str) -> str:
    """Return the value of a node's label, or NONE."""
    stored = reading.stock.nodes.get(node)
    return stored.metadata.labels.get(label, NONE) if stored else NONE


def _as_counted(name: str) -> list[tuple[str, int]]:
    """Return a sort key that puts zone-2 before zone-10."""
    return [(word, int(number or "0")) for word, number in _COUNTED.findall(name)]


def shelves(reading: Reading, nodes: Iterable[NodeDevices], label: str) -> list[Shelf]:
    """Group nodes by the value of a label; without a label, return one group."""
    groups: defaultdict[str, list[NodeDevices]] = defaultdict(list)
    for node in sorted(nodes, key=lambda node: _as_counted(node.node)):
        groups[value_of(reading, node.node, label) if label else "all nodes"].append(node)
    return [Shelf(value, group) for value, group in sorted(groups.items(), key=lambda item: _as_counted(item[0]))]


def devices_by_namespace(picture: Picture) -> Mapping[str, int]:
    """Return the number of devices that the pods of each namespace hold, the largest number first."""
    counts: Counter[str] = Counter()
    counted: set[tuple[str, str]] = set()
    for node in picture.nodes:
        for device in node.devices:
            for device_holder in device.holders:
                holder = device_holder.claim or ",".join(device_holder.pods)
                if (device.device, holder) not in counted:
                    counted.add((device.device, holder))
                    counts[holder.partition("/")[0]] += devices_of(device_holder)
    return {namespace: number for namespace, number in counts.most_common() if number}
