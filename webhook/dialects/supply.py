"""What serves a kind of device on a cluster: the DeviceClass, and what its devices publish. `webhook.state` finds it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dra.wire import Opaque
from webhook.dialects.targets import Target

NUMBER = b"<i>"  # in opaque parameters: stands for the number of a device in its request


class Product(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A device model (or a MIG profile) in the fleet, and its memory as most nodes publish it."""

    name: str
    memory: int
    others: tuple[int, ...] = ()  # other amounts of memory that equally many nodes publish
    sizes: int = 1  # how many different amounts are published


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """The devices in usable pools that the selectors of one DeviceClass match."""

    name: str
    extended_resource: str = ""
    driver: str = ""
    devices: int = 0
    # The nodes that publish them.
    nodes: frozenset[str] = frozenset()
    # For a class with several kinds of device: the nodes that publish each target.
    kinds: Mapping[str, frozenset[str]] = {}
    # The nodes with devices that a claim without amounts takes whole.
    whole: frozenset[str] = frozenset()
    # Models and MIG profiles, those that the most nodes publish first.
    products: tuple[Product, ...] = ()
    profiles: tuple[Product, ...] = ()
    # How many nodes publish an attribute on some device, and on every device.
    attributes: Mapping[str, int] = {}
    everywhere: Mapping[str, int] = {}
    # How many nodes publish a capacity, by its name as published.
    capacities: Mapping[str, int] = {}
    shared: int = 0  # devices with allowMultipleAllocations
    # Bandwidths of these, the most frequent first; empty unless most nodes publish one.
    bandwidths: tuple[int, ...] = ()
    # CPUs of the largest shared device of a node, as most nodes publish it; 0 if they publish none.
    cpus: int = 0
    # Whether, on most nodes, what a claim takes counts as CPUs of the node, too (nodeAllocatableResources).
    counts_cpus: bool = False
    # Whether claims for whole devices must avoid shared devices, of which a claim without amounts gets a part.
    parted: bool = False
    rootless: int = 0  # devices whose pcieRoot is the empty text, which would equal another empty one
    # Why some of its devices may be missing here, "" if none are: what is missing then justifies no refusal.
    doubt: str = ""

    def publishes(self, attribute: str) -> bool:
        """Return whether most nodes publish an attribute on every device; a constraint on it excludes all other devices."""
        return self.everywhere.get(attribute, 0) * 2 > len(self.nodes)

    def known_by(self, names: tuple[str, ...]) -> list[str]:
        """Choose, of several names for one property, those that nodes publish, unless another is far more frequent."""
        nodes = {name: self.attributes.get(f"{self.driver}/{name}", 0) for name in names}
        most = max(nodes.values(), default=0)
        return [name for name, count in nodes.items() if count and count * 2 > most]

    def spelling(self, capacity: str) -> str:
        """The name of a capacity as most slices have it: bare, or with the driver's domain."""
        qualified = f"{self.driver}/{capacity}"
        return qualified if self.capacities.get(qualified, 0) > self.capacities.get(capacity, 0) else capacity


class Supply(msgspec.Struct, frozen=True, gc=False):
    """What serves a demand: the target, and the class with what its devices publish."""

    target: Target
    served: Served
    # Opaque parameters for the driver, as the administrator declares them.
    parameters: Opaque | None = None

    @property
    def driver(self) -> str:
        return self.served.driver or self.target.driver

    @property
    def numbered(self) -> bool:
        """Return whether the parameters of each device contain its number."""
        return self.parameters is not None and NUMBER in self.parameters.json


def assumed(target: Target, served: Served) -> Served:
    """Describe a class without devices by what the source of its driver publishes."""
    return msgspec.structs.replace(
        served,
        name=served.name or (target.classes[0] if target.classes else ""),
        driver=target.driver,
        devices=1,
        nodes=frozenset({""}),
        whole=frozenset({""}),
        shared=1,
        attributes=dict.fromkeys(target.attributes, 1),
        everywhere=dict.fromkeys(target.attributes, 1),
    )
