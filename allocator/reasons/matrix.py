"""The compatibility matrix: whether two devices of a pool can be in use together, and why not.

The rules are the same as in the search, in the same order: groups, compatibleOnlyWith, counters. A cell considers only its two devices.
Devices with equal counters and equal cells, such as MIG slices of one size, share a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.answer import Stage
from dra.policy import admits, own_state, peer_of
from dra.stock import body

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.objects import Device, DeviceCounterConsumption
    from dra.policy import CompatibilityRule, Peer, Rules
    from dra.stock import Pool


class Cell(msgspec.Struct, frozen=True):
    """Whether two devices can be in use together. They can if `stage` is None; otherwise `rule` is the rule that forbids it."""

    stage: Stage | None = None
    rule: str = ""
    text: str = ""

    @property
    def together(self) -> bool:
        return self.stage is None


class MatrixRow(msgspec.Struct, frozen=True):
    """Devices with equal cells. There is one cell for each row of the matrix, including this row."""

    devices: tuple[str, ...]
    cells: tuple[Cell, ...]


class Matrix(msgspec.Struct, frozen=True):
    """All pairs of devices of one pool. `notes` is for callers that know more about the pool."""

    driver: str
    pool: str
    rows: tuple[MatrixRow, ...]
    notes: tuple[str, ...] = ()


def matrix(pool: Pool, rules: Rules, *, only: Sequence[str] = ()) -> Matrix:
    """Return the matrix of a pool's devices, or only of the devices that consume a counter set in `only`."""
    peers = [
        peer_of(page, device)
        for page in pool.pages()
        for device in page.devices
        if not only or any(consumption.counter_set in only for consumption in device.consumes_counters)
    ]
    judge = _DevicePairs(pool, rules, peers)
    groups = judge.groups()
    # One pair of devices represents all pairs of two groups. Within a group it is a pair of different devices, if the group has two.
    rows = tuple(
        MatrixRow(
            tuple(peers[at].name for at in group),
            tuple(judge.cells[group[0]][other[-1 if other is group else 0]] for other in groups),
        )
        for group in groups
    )
    return Matrix(*pool.id, rows)


class _DevicePairs:
    def __init__(self, pool: Pool, rules: Rules, peers: Sequence[Peer]) -> None:
        self.pool = pool
        self.peers = peers
        self.devices: list[Device] = [peer.device for peer in peers]
        driver = pool.id[0]
        restricting = [rule for rule in rules.by_driver.get(driver, ()) if rule.restricts]
        self.carried = [[rule for rule in restricting if rule.carried_by(driver, device)] for device in self.devices]
        self.wild = [rules.wild(driver, device) for device in self.devices]
        # Whether a device (second index) can be allocated while another device (first index) is in use.
        numbers = range(len(peers))
        self.cells = [[self._cell(used, at) for at in numbers] for used in numbers]

    def groups(self) -> list[list[int]]:
        """Group devices with equal counters and equal cells, in the order in which they are tried."""
        groups: list[list[int]] = []
        for index in range(len(self.devices)):
            matching_group = next((group for group in groups if self._interchangeable(group[0], index)), None)
            if matching_group is None:
                groups.append([index])
            else:
                matching_group.append(index)
        return groups

    def _cell(self, used: int, candidate: int) -> Cell:
        in_use_device, other = self.devices[used], self.devices[candidate]
        if used == candidate:
            if in_use_device.allow_multiple_allocations:
                return Cell()
            return Cell(Stage.IN_USE, "dedicated", f"{in_use_device.name} is in use and cannot be shared")
        for requested in other.consumes_counters:
            for in_use in in_use_device.consumes_counters:
                if requested.counter_set == in_use.counter_set and (
                    refusal := self._groups(used, in_use, candidate, requested)
                ):
                    return refusal
        for bearer, partner in ((used, candidate), (candidate, used)):
            rule = self._objection(bearer, partner)
            if rule is not None:
                where = f"DeviceCompatibility/{rule.name}"
                names = f"{self.devices[bearer].name} forbids {self.devices[partner].name}"
                return Cell(Stage.COMPATIBILITY, where, f"{where}: {names}")
        for requested in other.consumes_counters:
            declared = self.pool.counters[requested.counter_set]
            consumed = {
                name: counter.value.nano
                for in_use in in_use_device.consumes_counters
                if in_use.counter_set == requested.counter_set
                for name, counter in in_use.counters.items()
            }
            for name, counter in requested.counters.items():
                if consumed.get(name, 0) + counter.value.nano > declared[name]:
                    left = (declared[name] - consumed.get(name, 0)) / 10**9
                    text = f"{other.name} needs {counter.value} {name} of {requested.counter_set}, but {left:g} are left next to {in_use_device.name}"
                    return Cell(Stage.COUNTERS, f"{name} of {requested.counter_set}", text)
        return Cell()

    def _groups(
        self, used: int, in_use: DeviceCounterConsumption, candidate: int, requested: DeviceCounterConsumption
    ) -> Cell | None:
        state = own_state(in_use.compatibility_groups, wild=self.wild[used])
        if admits(state, own_state(requested.compatibility_groups, wild=self.wild[candidate])):
            return None
        text = (
            f"{self.devices[used].name} {_groups(in_use)}, {self.devices[candidate].name} {_groups(requested)}: "
            f"they have no group in common on counter set {requested.counter_set}"
        )
        return Cell(Stage.GROUPS, f"groups on {requested.counter_set}", text)

    def _objection(self, bearer: int, partner: int) -> CompatibilityRule | None:
        """Find the rule of one device that forbids another."""
        peer, other = self.peers[bearer], self.peers[partner]
        return next(
            (rule for rule in self.carried[bearer] if rule.reaches(peer, other) and not rule.allows(other.device)), None
        )

    def _interchangeable(self, first: int, second: int) -> bool:
        cells = self.cells
        if body(self.devices[first]).consumption != body(self.devices[second]).consumption:
            return False
        return (
            _same(cells[first][first], cells[second][second])
            and _same(cells[first][second], cells[second][first])
            and all(
                _same(cells[first][at], cells[second][at]) and _same(row[first], row[second])
                for at, row in enumerate(cells)
                if at not in (first, second)
            )
        )


def _same(first: Cell, second: Cell) -> bool:
    return (first.stage, first.rule) == (second.stage, second.rule)


def _groups(consumption: DeviceCounterConsumption) -> str:
    names = consumption.compatibility_groups
    return f"is in {', '.join(names)}" if names else "names no group"
