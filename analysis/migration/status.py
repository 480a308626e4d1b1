"""The progress of a move: of each driver in the tree, and of each node in a cluster or a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from analysis.migration.charts import DRIVERS
from analysis.migration.families import release_of
from analysis.migration.requests import RequestReader
from analysis.report import Report, Rows
from dra.texts import count_of, list_first

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from analysis.gitops import Release
    from analysis.migration.accept import Acceptance, Check
    from analysis.migration.plan import Family, MigrationPlan
    from dra.stock import Stock
    from webhook.state import State

MoveState = Literal["plan", "branch", "merged in part", "merged", "allocatable 0", "accepted", "done"]
_NAMED = 4
_FINAL: tuple[MoveState, ...] = ("accepted", "done")


class MoveProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The progress of a driver in the tree or on a node."""

    driver: str
    node: str = ""  # empty: the tree
    state: MoveState
    next: str = ""  # what is left to do


class MigrationStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`drawbridge migrate status -o json`."""

    done: bool
    progress: tuple[MoveProgress, ...]


def status_of(
    plan: MigrationPlan, releases: Collection[Release], branch: str, nodes: Sequence[MoveProgress]
) -> MigrationStatus:
    """Return how far a move is, with the progress of its nodes.

    `branch` is a branch that is not merged, or "".
    """
    installed = {driver for driver in DRIVERS if release_of(driver, releases) is not None}
    of_plan = {family.driver for family in plan.families}
    drivers = sorted(of_plan | installed | {entry.driver for entry in nodes})
    progress = []
    for driver in drivers:
        of_driver = [entry for entry in nodes if entry.driver == driver]
        family = next((family for family in plan.families if family.driver == driver), None)
        left = [*plan.left_of(family)] if family else []
        state, what = _in_tree(left, family, branch, of_driver, is_installed=driver in installed)
        progress += [MoveProgress(driver=driver, state=state, next=what), *of_driver]
    return MigrationStatus(done=all(entry.state in _FINAL for entry in progress), progress=tuple(progress))


def _in_tree(
    left: Sequence[str], family: Family | None, branch: str, nodes: Sequence[MoveProgress], *, is_installed: bool
) -> tuple[MoveState, str]:
    waiting = [entry.node for entry in nodes if entry.state not in _FINAL]
    if is_installed and left:
        return "merged in part", f"left: {list_first(left, _NAMED)}"
    if is_installed:
        return ("merged", f"{count_of(len(waiting), 'node')} not accepted") if waiting else ("done", "")
    if branch:
        return "branch", f"merge {branch}"
    reasons = family.reasons if family else ("the tree does not install the driver",)
    return "plan", next(iter(reasons), "drawbridge migrate pr")


def node_progress(stock: Stock, state: State, acceptances: Sequence[Acceptance]) -> Iterator[MoveProgress]:
    """Yield the progress of the nodes that have a device plugin or a driver; later acceptances of a node take precedence."""
    reader = RequestReader(state)
    checks: dict[str, list[Check]] = {}
    for acceptance in acceptances:
        for checked in {check.node for check in acceptance.checks}:
            checks[checked] = [check for check in acceptance.checks if check.node == checked]
    for name, node in sorted(stock.nodes.items()):
        published = {pool.id[0] for pool in stock.pools(name)} & DRIVERS.keys()
        keys: dict[str, list[str]] = {driver: [] for driver in published}
        for key, amount in node.status.allocatable.items():
            for driver in reader.drivers_of(reader.classes_of(key)) if "/" in key else ():
                keys.setdefault(driver, []).extend([key] if amount.nano > 0 else [])
        for driver, offered in sorted(keys.items()):
            move_state, what = _on_node(name, offered, checks.get(name, ()), driver if driver in published else "")
            yield MoveProgress(driver=driver, node=name, state=move_state, next=what)


def _on_node(name: str, offered: Sequence[str], checks: Sequence[Check], published: str) -> tuple[MoveState, str]:
    if offered and published:
        return "merged in part", f"a device plugin still offers {', '.join(offered)}: remove it from this node"
    if offered:
        return "plan", f"the device plugin offers {', '.join(offered)}"
    if not published:
        return "allocatable 0", "the driver publishes no device: read the log of its pod on this node"
    of_driver = [check for check in checks if check.driver in (published, "")]
    failed = [check for check in of_driver if not check.passed]
    if failed:
        return "allocatable 0", f"`drawbridge migrate accept` failed: {failed[0].check}: {failed[0].message}"
    if not of_driver:
        return "allocatable 0", f"drawbridge migrate accept {name}"
    return "accepted", ""


def report(status: MigrationStatus) -> Report:
    """Make the text table."""
    rows = [(entry.driver, entry.node or "(tree)", entry.state, entry.next) for entry in status.progress]
    left = sorted({entry.driver for entry in status.progress if entry.state not in _FINAL})
    nodes = {entry.node for entry in status.progress if entry.node and entry.state not in _FINAL}
    on_nodes = f", on {count_of(len(nodes), 'node')}" if nodes else ""
    summary = f"not done: {list_first(left, 3)}{on_nodes}" if left else "done"
    return Report("drawbridge migrate status", [Rows(("Driver", "Node", "State", "Next"), rows)], summary)
