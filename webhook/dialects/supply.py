"""The DeviceClass that serves a target (a kind of device) on a cluster, and what its devices publish. `webhook.state` makes these values."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dra.wire import Opaque
from webhook.dialects.targets import Target

NUMBER = b"<i>"  # placeholder in opaque parameters for the number of the device


class Product(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A model (or a MIG profile) of the fleet, and its memory as most nodes publish it."""

    name: str
    memory: int
    others: tuple[int, ...] = ()  # other amounts of memory that equally many nodes publish
    sizes: int = 1  # how many different amounts are published


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """One DeviceClass, and the devices in usable pools that its selectors match."""

    name: str
    extended_resource: str = ""
    driver: str = ""
    devices: int = 0
    # The nodes that publish these devices.
    nodes: frozenset[str] = frozenset()
    # For a class with several kinds of device, by target: the nodes that publish devices of the target.
    kinds: Mapping[str, frozenset[str]] = {}
    # The nodes with at least one device that a claim without amounts gets as a whole.
    whole: frozenset[str] = frozenset()
    # Models, and MIG profiles. Those that the most nodes publish come first.
    products: tuple[Product, ...] = ()
    profiles: tuple[Product, ...] = ()
    # By attribute: how many nodes publish it on some device, and how many publish it on every device.
    attributes: Mapping[str, int] = {}
    everywhere: Mapping[str, int] = {}
    # By capacity, as nodes name it: how many nodes publish it.
    capacities: Mapping[str, int] = {}
    shared: int = 0  # devices with allowMultipleAllocations
    # Bandwidths of shared devices, the most frequent first; empty unless most nodes publish one.
    bandwidths: tuple[int, ...] = ()
    # CPUs of the largest shared device of a node, as most nodes publish it; 0 if they publish none.
    cpus: int = 0
    # Whether most nodes publish CPUs whose claims also count as requests for CPUs of the node (nodeAllocatableResources).
    counts_cpus: bool = False
    # Whether claims for whole devices must avoid shared devices, because a claim without amounts gets only a part of a shared device.
    divisible: bool = False
    # The number of devices whose pcieRoot is the empty text; a constraint treats all empty roots as equal.
    rootless: int = 0
    # Why some devices of the class may be missing here, so that no pod is refused for a lack of them; "" if none are missing.
    doubt: str = ""

    def publishes(self, attribute: str) -> bool:
        """Return whether most nodes publish an attribute on every device; a constraint on the attribute excludes devices without it."""
        return self.everywhere.get(attribute, 0) * 2 > len(self.nodes)

    def known_by(self, names: tuple[str, ...]) -> list[str]:
        """Return those of several names for one property that nodes publish.

        A name that at most half as many nodes publish as the most frequent name does not count.
        """
        nodes = {name: self.attributes.get(f"{self.driver}/{name}", 0) for name in names}
        most = max(nodes.values(), default=0)
        return [name for name, count in nodes.items() if count and count * 2 > most]

    def spelling(self, capacity: str) -> str:
        """Return the name of a capacity as most nodes publish it: bare, or with the driver's domain."""
        qualified = f"{self.driver}/{capacity}"
        return qualified if self.capacities.get(qualified, 0) > self.capacities.get(capacity, 0) else capacity


class Supply(msgspec.Struct, frozen=True, gc=False):
    """The target and the DeviceClass that serve a demand."""

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
    """Return a class without known devices as if one node had one device, with the attributes that the driver publishes by its source code."""
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
