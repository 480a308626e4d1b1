"""What a snapshot of a cluster adds to a plan: the devices of its nodes, and the version of Kubernetes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.migration.platform import hardware_in
from dra.raw import Object, inside, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.migration.requests import Reader
    from webhook.state import State

_VERSION: Final = re.compile(r"v?(1\.(\d{1,3})(?:\.\d+)?)")


class SnapshotNodes(NamedTuple):
    """The nodes of a snapshot."""

    devices: Mapping[str, Mapping[str, int]] = {}  # by driver and node
    version: str = ""  # the lowest version of a kubelet; "" without a snapshot
    hardware: Mapping[str, str] = {}  # by name: a node whose labels have it

    def devices_of(self, driver: str) -> int:
        """Return the number of devices of a driver; 0 if there is no snapshot."""
        return sum(self.devices.get(driver, {}).values())


def fleet_of(nodes: Sequence[Object], reader: Reader, state: State) -> SnapshotNodes:
    """Read the nodes of a snapshot. A replica that a device plugin makes is no device of its own."""
    devices: dict[str, dict[str, int]] = {}
    hardware: dict[str, str] = {}
    for node in nodes:
        name = text(inside(node, "metadata").get("name"))
        products = " ".join(map(str, inside(node, "metadata", "labels").values()))
        hardware |= {of_label: f"node {name}" for of_label, _ in hardware_in(products)}
        for key, amount in inside(node, "status", "allocatable").items():
            if "/" not in key or not str(amount).isdecimal():
                continue
            shared = state.fleet.shared.get(key, {}).get(name) or state.fleet.installed.usually(key)
            count = int(amount) // (shared.sharing.replicas if shared else 1)
            for driver in reader.drivers_of(reader.classes_of(key)) if count else ():
                of_driver = devices.setdefault(driver, {})
                of_driver[name] = of_driver.get(name, 0) + count
    return SnapshotNodes(devices, lowest_version(nodes), hardware)


def lowest_version(nodes: Sequence[Object]) -> str:
    """Return the lowest version of a kubelet; "" if there is none."""
    versions = [text(inside(node, "status", "nodeInfo").get("kubeletVersion")) for node in nodes]
    matches = [match for version in versions if (match := _VERSION.match(version))]
    return min(matches, key=lambda match: int(match[2]))[1] if matches else ""
