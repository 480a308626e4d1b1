"""Where a kind of device is served on a cluster: the DeviceClass, and what its devices publish. Found by `webhook.state`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dra.wire import Opaque
from webhook.dialects.targets import Target

NUMBER = b"<i>"  # in parameters: of a device among those that are asked for together
VOICE = 720_720  # one node's voice: it divides without a rest by every number up to 16


class Product(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A device model (or a MIG profile) in the fleet, and its memory as most nodes publish it."""

    name: str
    count: int
    memory: int
    others: tuple[int, ...] = ()  # other amounts of memory, which as many nodes publish
    sizes: int = 1  # how many different amounts are published for it
    voices: int = VOICE


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What stands behind one DeviceClass: the devices that its selectors pick from pools that can be used."""

    name: str
    extended_resource: str = ""
    created: str = ""
    driver: str = ""
    devices: int = 0
    # The nodes that publish them.
    nodes: frozenset[str] = frozenset()
    # Where a class has devices of several kinds: target, and the nodes that publish such.
    kinds: Mapping[str, frozenset[str]] = {}
    # Those that publish devices which a claim that names no amounts takes whole.
    whole: frozenset[str] = frozenset()
    # Models and MIG profiles, those with most voices first.
    products: tuple[Product, ...] = ()
    profiles: tuple[Product, ...] = ()
    # How many of the nodes publish an attribute at all, and how many on every device.
    attributes: Mapping[str, int] = {}
    everywhere: Mapping[str, int] = {}
    # How many of the nodes publish a capacity, as it is spelled.
    capacities: Mapping[str, int] = {}
    shared: int = 0  # devices that can be given out in shares
    # Bandwidths of those, where most nodes publish such; the one of the most nodes first.
    bandwidths: tuple[int, ...] = ()
    # How many CPUs the largest shared device of a node holds, as most nodes publish it; 0 if they publish none.
    cpus: int = 0
    # Whether most nodes say that what a claim takes of their devices is counted as the node's own CPUs, too.
    counts_cpus: bool = False
    # Whether claims for whole devices keep off what can be shared: a claim that names no amounts is given a part of it.
    parted: bool = False
    rootless: int = 0  # devices whose pcieRoot is the empty text, which would equal another empty one
    # Why not all of its devices were looked at, "" if they were: then what it lacks does not justify a refusal.
    doubt: str = ""

    def publishes(self, attribute: str) -> bool:
        """Say whether most nodes have an attribute on every device; a constraint on it loses the devices of the others."""
        return self.everywhere.get(attribute, 0) * 2 > len(self.nodes)

    def known_by(self, names: tuple[str, ...]) -> list[str]:
        """Choose those of several names for one truth that nodes publish: what far fewer of them know is not asked for."""
        voices = {name: self.attributes.get(f"{self.driver}/{name}", 0) for name in names}
        most = max(voices.values(), default=0)
        return [name for name, count in voices.items() if count and count * 2 > most]

    def spelling(self, capacity: str) -> str:
        """Spell a capacity as most slices do: bare, or with the driver's domain."""
        qualified = f"{self.driver}/{capacity}"
        return qualified if self.capacities.get(qualified, 0) > self.capacities.get(capacity, 0) else capacity


class Supply(msgspec.Struct, frozen=True, gc=False):
    """Where a demand can be served: the target, the class, and what its devices publish."""

    target: Target
    served: Served
    # What the driver is told about each device: opaque parameters, as the administrator declares them.
    parameters: Opaque | None = None

    @property
    def driver(self) -> str:
        return self.served.driver or self.target.driver

    @property
    def numbered(self) -> bool:
        """Whether each device is told something else: its number."""
        return self.parameters is not None and NUMBER in self.parameters.json


def assumed(target: Target, served: Served) -> Served:
    """Describe a class behind which there is nothing to look at, from what the driver's source says."""
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
