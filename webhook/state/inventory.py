"""What the cluster shows about devices, as far as translation must know: a value made from classes, slices and nodes.

Which DeviceClass stands for which target, what sizes and attributes its devices really publish, whether the pools are
complete, and whether any node still hands out a legacy name. No search and no allocation state: whether a claim fits is
`webhook.admission.validate`'s question, not this one's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from dra import cel
from dra.errors import SelectorError
from webhook.dialects import Target
from webhook.state.device_groups import Census, Group, Reading

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.objects import Device, DeviceClass, Node, ResourceSlice

# Node labels with which a device plugin or a cloud says that a GPU is handed out in replicas.
_SHARING_LABELS = {
    "nvidia.com/gpu.sharing-strategy": ("time-slicing", "mps"),
    "cloud.google.com/gke-gpu-sharing-strategy": ("time-sharing", "mps"),
}


class Product(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A device model in the fleet: how many there are, and the memory of the smallest and the largest."""

    name: str
    count: int
    smallest: int
    largest: int


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What stands behind one DeviceClass: the devices that its selectors pick from complete pools."""

    name: str
    extended_resource: str = ""
    created: str = ""
    driver: str = ""
    devices: int = 0
    products: tuple[Product, ...] = ()
    # MIG profiles, and the memory of the smallest device of each.
    profiles: Mapping[str, int] = {}
    # How many of the devices publish an attribute.
    attributes: Mapping[str, int] = {}
    capacities: frozenset[str] = frozenset()
    shared: int = 0  # devices that can be given out in shares
    rootless: int = 0  # devices whose pcieRoot is the empty text, which would equal another empty one

    def publishes(self, attribute: str) -> bool:
        """Say whether every device has an attribute, so that a constraint on it loses none."""
        return bool(self.devices) and self.attributes.get(attribute, 0) == self.devices

    def spelling(self, capacity: str) -> str:
        """Spell a capacity as the slices do: bare, or with the driver's domain."""
        qualified = f"{self.driver}/{capacity}"
        return qualified if qualified in self.capacities and capacity not in self.capacities else capacity


class Supply(msgspec.Struct, frozen=True, gc=False):
    """Where a demand can be served: the target, the class, and what its devices publish."""

    target: Target
    served: Served

    @property
    def driver(self) -> str:
        return self.served.driver or self.target.driver


class Inventory(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The facts. An unknown fleet (no inventory was given) is not an empty one: nothing can be concluded from it."""

    known: bool = False
    classes: Mapping[str, Served] = {}
    # Legacy names that a node still has to give, and a node that does.
    allocatable: Mapping[str, str] = {}
    # A node that says its GPUs are shared, and how it says so.
    sharing: tuple[str, str] | None = None
    # Extended resource name: the class that serves it (the newest; of equal age the lexically first).
    extended: Mapping[str, str] = {}
    census: Census = Census()

    @classmethod
    def of(
        cls,
        classes: Iterable[DeviceClass],
        slices: Iterable[ResourceSlice],
        nodes: Iterable[Node],
        earlier: Inventory | None = None,
    ) -> Inventory:
        """Gather the facts; with an earlier fleet only slices that it had not are looked at."""
        classes, nodes = tuple(classes), tuple(nodes)
        selectors = [_Selectors(class_) for class_ in classes]
        reading = Reading.of(reads for one in selectors for reads in one.reads)
        census = Census.of(slices, reading, earlier.census if earlier else None)
        served = {c.metadata.name: _served(c, s, census) for c, s in zip(classes, selectors, strict=True)}
        return cls(
            known=True,
            classes=served,
            allocatable={
                name: n.metadata.name for n in nodes for name, q in n.status.allocatable.items() if q.nano > 0
            },
            sharing=next(filter(None, map(_sharing, nodes)), None),
            extended=_extended(classes),
            census=census,
        )

    def find(self, target: Target, declared: str = "") -> Served | None:
        """Find the class for a target: the declared one, else one of its vendor's names, else any of its driver."""
        if declared:
            return self.classes.get(declared)
        for name in target.classes:
            if name in self.classes:
                return self.classes[name]
        if target.type:  # a driver with several kinds of device: only a name or a declaration says which
            return None
        found = [c for c in self.classes.values() if c.devices and c.driver == target.driver]
        return found[0] if len(found) == 1 else None


class _Selectors:
    """The selectors of one class, compiled; a class with a broken one picks nothing, as it is for the allocator."""

    def __init__(self, class_: DeviceClass) -> None:
        self._compiled: list[cel.Selector] | None = []
        try:
            self._compiled = [cel.compile(s.cel.expression) for s in class_.spec.selectors if s.cel]
        except SelectorError:
            self._compiled = None

    @property
    def reads(self) -> list[cel.Reads]:
        return [selector.reads for selector in self._compiled or ()]

    def pick(self, driver: str, device: Device) -> bool:
        """Say whether a device is of the class; one on which a selector fails is not."""
        if self._compiled is None:
            return False
        view = cel.view_of(driver, device)
        try:
            return all(selector.matches(view) for selector in self._compiled)
        except SelectorError:
            return False


def _served(class_: DeviceClass, selectors: _Selectors, census: Census) -> Served:
    attributes: Counter[str] = Counter()
    products: dict[str, list[tuple[int, int]]] = {}
    mine = [(group, count) for group, count in census.groups.items() if selectors.pick(group.driver, group.sample)]
    for group, count in mine:
        for name in group.sample.attributes:
            attributes[name if "/" in name else f"{group.driver}/{name}"] += count
        if group.product:
            products.setdefault(group.product, []).append((group.memory, count))
    return Served(
        name=class_.metadata.name,
        extended_resource=class_.spec.extended_resource_name or "",
        created=class_.metadata.creation_timestamp,
        driver=next((group.driver for group, _ in mine), ""),
        devices=sum(count for _, count in mine),
        profiles=_profiles(group for group, _ in mine),
        products=tuple(_product(name, sizes) for name, sizes in sorted(products.items())),
        attributes=attributes,
        capacities=frozenset(name for group, _ in mine for name in group.sample.capacity),
        shared=sum(count for group, count in mine if group.sample.allow_multiple_allocations),
        rootless=sum(count for group, count in mine if group.rootless),
    )


def _profiles(groups: Iterable[Group]) -> dict[str, int]:
    profiles: dict[str, int] = {}
    for group in groups:
        if group.profile:
            profiles[group.profile] = min(group.memory, profiles.get(group.profile, group.memory))
    return profiles


def _product(name: str, sizes: list[tuple[int, int]]) -> Product:
    memories = [memory for memory, _ in sizes]
    return Product(name=name, count=sum(count for _, count in sizes), smallest=min(memories), largest=max(memories))


def _sharing(node: Node) -> tuple[str, str] | None:
    labels = node.metadata.labels
    for name, values in _SHARING_LABELS.items():
        if labels.get(name) in values:
            return node.metadata.name, f"{name}={labels[name]}"
    replicas = labels.get("nvidia.com/gpu.replicas", "")
    if replicas.isdecimal() and int(replicas) > 1:
        return node.metadata.name, f"nvidia.com/gpu.replicas={replicas}"
    product = labels.get("nvidia.com/gpu.product", "")
    if product.endswith("-SHARED") or "-MIG-" in product:
        return node.metadata.name, f"nvidia.com/gpu.product={product}"
    return None


def _extended(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """The newest class wins a name; of equal age the lexically first."""
    named = sorted((c for c in classes if c.spec.extended_resource_name), key=lambda c: c.metadata.name, reverse=True)
    ordered = sorted(named, key=lambda c: c.metadata.creation_timestamp)
    return {c.spec.extended_resource_name or "": c.metadata.name for c in ordered}


def unknown(target: Target, served: Served) -> Served:
    """Describe a class behind which there is nothing to look at, from what the driver's source says."""
    return msgspec.structs.replace(
        served,
        name=served.name or (target.classes[0] if target.classes else ""),
        driver=target.driver,
        devices=1,
        shared=1,
        attributes=dict.fromkeys(target.attributes, 1),
    )
