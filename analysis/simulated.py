"""`drawbridge simulate`: its input, its changes to the fleet, and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from allocator.simulation import PodOutcome, Snapshot, with_more_nodes, without_nodes
from analysis.arrivals import Arrivals, brings_pods
from analysis.configuration import KIND as CONFIGURATION_KIND
from analysis.configuration import in_mode
from analysis.errors import Broken, MissingObject
from analysis.loading import ignored, is_pod_group
from analysis.naming import refuse_unknown_node
from analysis.outlook import arriving, beside
from analysis.report import LEFT, PLACED, REFUSED, WAITS, Report, Rows
from dra.texts import count_of
from webhook.names import API_VERSION
from webhook.state import is_component

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.simulation import Simulation
    from analysis.loading import Reading, Unread
    from dra.reason import Reason
    from webhook.state import State

MAX_ADDED = 1000  # nodes
_DIGITS = 6  # of N in NODE=N


class Admitted(NamedTuple):
    """The snapshot with the pods as the webhook admits them, the refused pods with reasons, and the objects left out."""

    reading: Reading
    mode: str | None
    snapshot: Snapshot
    refused: dict[str, Reason]
    unread: list[Unread]
    warning: str  # of objects whose kind is not read; "" if there are none

    @property
    def state(self) -> State:
        """The webhook's state. Computing it takes a third of the time of a question about claims, which does not need it."""
        return in_mode(self.reading.state, self.mode)


def snapshot_of(reading: Reading, mode: str | None) -> Admitted:
    """Admit the pods that were read, and those that the read objects create."""
    others = (obj for obj in reading.objects if not (brings_pods(obj) or is_component(obj) or is_pod_group(obj)))
    warning = ignored(others, also=((API_VERSION, CONFIGURATION_KIND),))
    has_pods = any(map(brings_pods, reading.objects))
    arrived = arriving(reading, in_mode(reading.state, mode)) if has_pods else Arrivals({}, [], {})
    unread = [missed for missed in reading.unread if missed.kind.removeprefix("Pod ") not in arrived.refused]
    return Admitted(reading, mode, beside(reading, arrived), arrived.refused, unread, warning)


def change_nodes(snapshot: Snapshot, removed: Sequence[str], added: Sequence[str]) -> Snapshot:
    """Add N copies of a node for each NODE=N, then remove nodes. Raises Broken."""
    copies: list[tuple[str, int]] = []
    for addition in added:
        like, _, word = addition.rpartition("=")
        number = int(word) if word.isascii() and word.isdigit() and len(word) <= _DIGITS else 0
        if not (like and number):
            raise Broken(f"{addition!r} is not NODE=N", "give a node and a number of copies, such as n1=10")
        copies.append((like, number))
    if sum(number for _, number in copies) > MAX_ADDED:
        raise Broken(f"more than {MAX_ADDED:,} nodes to add", "add fewer nodes")
    refuse_unknown_nodes((*(like for like, _ in copies), *removed), snapshot)
    for like, number in copies:
        snapshot = with_more_nodes(snapshot, like, number)
    return without_nodes(snapshot, set(removed)) if removed else snapshot


def refuse_unknown_nodes(names: Sequence[str], snapshot: Snapshot) -> None:
    """Raise Broken for a node that the snapshot does not have."""
    try:
        for name in names:
            refuse_unknown_node(name, snapshot.stock)
    except MissingObject as error:
        raise Broken(error.message, error.remedy) from None


def report(simulation: Simulation, strategy: str) -> Report:
    """Report on the simulation of a snapshot."""
    totals = simulation.totals
    rows = sorted(map(_row, simulation.pods), key=lambda row: (REFUSED, WAITS, PLACED, LEFT).index(row[0]))
    summary = (
        f"{totals.placed} of {count_of(totals.pods, 'pod')} placed ({strategy}), "
        f"{count_of(totals.devices, 'device')} allocated; "
        f"hardware in use {totals.utilisation:.0%}, {totals.fragmentation:.0%} of the free hardware is fragmented"
    )
    return Report(
        "Simulation: where pods would go",
        (Rows(("", "", ""), rows),),
        summary if simulation.pods else "no pending pods",
    )


def _row(pod: PodOutcome) -> tuple[str, str, str | tuple[str, ...]]:
    """Write a pod with the sign of its outcome, and its node or why it has none."""
    if pod.node is None:
        return (
            REFUSED if pod.reason.code.startswith("R") else WAITS,
            pod.pod,
            f"because {str(pod.reason).removeprefix('refused: ')}",
        )
    first, *notes = devices_of(pod)
    return PLACED if pod.devices else LEFT, pod.pod, (f"on {pod.node}: {first}", *notes)


def devices_of(outcome: PodOutcome) -> tuple[str, ...]:
    """List what a placed pod gets: its devices, and replicas of a device plugin."""
    return (", ".join(outcome.devices) or "no device of a driver", *filter(None, (outcome.note,)))
