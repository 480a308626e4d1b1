"""What the cluster shows about devices, as far as translation must know: a value made from classes, slices and nodes.

Which DeviceClass stands for which target, what sizes and attributes its devices publish, whether the pools are complete,
and whether nodes still hand out a legacy name. No search and no allocation state: whether a claim fits is
`webhook.admission.validate`'s question, not this one's.

A node can be stolen, and its kubelet and drivers write what they like: its labels, what it hands out, its slices. So nothing
that holds for everybody's pods rests on one node. Each node has one voice: a fact is what most of the nodes show that have
a say in it, sizes are ranked by voices, and a node that shows many of them divides its voice among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from dra import cel
from dra.budget import Budget
from dra.errors import OutOfBudget, SelectorError
from webhook.dialects import TARGETS, VOCABULARIES, Target
from webhook.state.device_groups import Census, Group, Reading
from webhook.state.schema import Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dra.objects import Device, DeviceClass, Node, ResourceSlice

Said = TypeVar("Said", str, int)
EVERYBODY = Evidence()
_VOICE = 720_720  # one node's voice: it divides without a rest by every number up to 16
# What all selectors of a class may cost on one kind of device (most cost less than ten steps), and what they may cost beyond that.
FREE_STEPS = 200
DEAR_STEPS = 200_000
_SIZES = 128  # products or profiles of a class that are looked at, the best supported first


class Product(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A device model (or a MIG profile) in the fleet, and its memory as most nodes publish it."""

    name: str
    count: int
    memory: int
    sizes: int = 1  # how many different amounts of memory are published for it
    voices: int = _VOICE


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
    # Whether claims for whole devices keep off what can be shared: a claim that names no amounts is given a part of it.
    parted: bool = False
    rootless: int = 0  # devices whose pcieRoot is the empty text, which would equal another empty one
    # Why not all of its devices were looked at, "" if they were: then what it lacks is no reason to refuse anybody.
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

    @property
    def driver(self) -> str:
        return self.served.driver or self.target.driver


class Inventory(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The facts. An unknown fleet (no inventory was given) is not an empty one: nothing can be concluded from it."""

    known: bool = False
    classes: Mapping[str, Served] = {}
    # Legacy names that device plugins hand out, and the nodes that do.
    handed_out: Mapping[str, frozenset[str]] = {}
    # Dialect: nodes whose labels say that a unit of a bare name is not a whole device, and how they say so.
    labelled: Mapping[str, Mapping[str, str]] = {}
    # Extended resource name: the class that serves it (the newest; of equal age the lexically first).
    extended: Mapping[str, str] = {}
    # Whether only some nodes and drivers were asked (`evidence`).
    chosen: bool = False
    census: Census = Census()

    @classmethod
    def of(
        cls,
        classes: Iterable[DeviceClass],
        slices: Iterable[ResourceSlice],
        nodes: Iterable[Node],
        earlier: Inventory | None = None,
        *,
        evidence: Evidence = EVERYBODY,
    ) -> Inventory:
        """Gather the facts; with an earlier inventory only slices that it had not are looked at.

        Where `evidence` chooses nodes or drivers, the others have no voice: it is as if they were not there.
        """
        classes = tuple(classes)
        nodes = tuple([node for node in nodes if evidence.node_selector.items() <= node.metadata.labels.items()])
        slices = _choose_slices(slices, nodes, evidence)
        selectors = [_Selectors(class_) for class_ in classes]
        reading = Reading.of(reads for one in selectors for reads in one.reads)
        census = Census.of(slices, reading, earlier.census if earlier else None)
        served = {c.metadata.name: _survey(c, s, census) for c, s in zip(classes, selectors, strict=True)}
        return cls(
            known=True,
            classes=served,
            handed_out=_find_handed_out(nodes),
            labelled=_units_by_node(nodes),
            extended=_extended_resources(classes),
            chosen=evidence != EVERYBODY,
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
        # Where others are shown by several nodes, what a single one shows is no reason to be in doubt.
        several = [c for c in found if len(c.nodes) > 1]
        if any(len(c.nodes) > 2 for c in several):
            found = several
        return found[0] if len(found) == 1 else None


def _choose_slices(
    slices: Iterable[ResourceSlice], nodes: Iterable[Node], evidence: Evidence
) -> Iterable[ResourceSlice]:
    """Choose the slices that count: of drivers that are named, and on nodes that are chosen.

    Devices of no node are their driver's word. Where nodes are chosen, it counts only if the driver is named as well:
    whoever may write a slice for no node would else be heard beside them.
    """
    if evidence == EVERYBODY:
        return slices
    chosen = {node.metadata.name for node in nodes}
    heard: list[ResourceSlice] = []
    for piece in slices:
        if evidence.drivers and piece.spec.driver not in evidence.drivers:
            continue
        where = piece.spec.node_name
        if not evidence.node_selector or (where in chosen if where else evidence.drivers):
            heard.append(piece)
    return heard


class _Selectors:
    """The selectors of one class, compiled; a class with a broken one picks nothing, as it is for the allocator.

    So does a class whose selectors are dear: kinds of device are made up as easily as selectors, and all of one are asked about all of
    the other. What every honest selector costs is free, or who makes up many kinds would spend what others are judged by.
    """

    def __init__(self, class_: DeviceClass) -> None:
        self._compiled: list[cel.Selector] | None = []
        self._left = DEAR_STEPS
        try:
            self._compiled = [cel.compile(s.cel.expression) for s in class_.spec.selectors if s.cel]
        except SelectorError:
            self._compiled = None

    @property
    def reads(self) -> list[cel.Reads]:
        return [selector.reads for selector in self._compiled or ()]

    def pick(self, groups: Iterable[Group]) -> list[Group] | None:
        """Find the groups of the class; one on which a selector fails is not. None if that costs too much."""
        try:
            return [group for group in groups if self._picks(group.driver, group.sample)]
        except OutOfBudget:
            return None

    def _picks(self, driver: str, device: Device) -> bool:
        if self._compiled is None:
            return False
        view = cel.view_of(driver, device)
        budget = Budget(FREE_STEPS + self._left)
        try:
            return all(selector.matches(view, budget) for selector in self._compiled)
        except SelectorError:
            return False
        finally:
            self._left -= max(0, budget.spent - FREE_STEPS)


def _survey(class_: DeviceClass, selectors: _Selectors, census: Census) -> Served:
    picked = selectors.pick(census.groups)
    mine = {group: census.groups[group] for group in picked or ()}
    # What of this class a node holds, and the nodes that hold just this.
    holdings: dict[frozenset[Group], list[str]] = {}
    nodes: set[str] = set()
    for held, holders in census.nodes.items():
        of_class = frozenset(held & mine.keys())
        if of_class:
            names = holdings.setdefault(of_class, [])
            names += holders
            nodes.update(holders)
    drivers = _voices(holdings, _drivers)
    bandwidths = _voices(holdings, _bandwidths)
    sharing = sum(len(names) for groups, names in holdings.items() if _bandwidths(groups))
    products = {group: group.product for group in mine if group.product}
    profiles = {group: group.profile for group in mine if group.profile}
    sharable = [count for group, count in mine.items() if group.sample.allow_multiple_allocations]
    rootless = [count for group, count in mine.items() if group.rootless]
    return Served(
        name=class_.metadata.name,
        extended_resource=class_.spec.extended_resource_name or "",
        created=class_.metadata.creation_timestamp,
        driver=max(sorted(drivers), key=drivers.__getitem__, default=""),
        devices=sum(mine.values()),
        nodes=frozenset(nodes),
        kinds=_kinds(holdings),
        whole=_whole(holdings),
        products=_rank(products, mine, holdings),
        profiles=_rank(profiles, mine, holdings),
        attributes=_voices(holdings, _attributes_of_one),
        everywhere=_voices(holdings, _attributes_of_all),
        capacities=_voices(holdings, _capacities),
        shared=sum(sharable),
        bandwidths=_most_published(bandwidths) if sharing * 2 > len(nodes) else (),
        parted=_parted(holdings),
        rootless=sum(rootless),
        doubt=_doubt(picked, products),
    )


def _voices(
    holdings: Mapping[frozenset[Group], list[str]], ask: Callable[[frozenset[Group]], Iterable[Said]]
) -> Counter[Said]:
    """Count the nodes by what the devices that they hold say."""
    counts: Counter[Said] = Counter()
    for groups, names in holdings.items():
        for one in ask(groups):
            counts[one] += len(names)
    return counts


def _drivers(groups: frozenset[Group]) -> set[str]:
    return {group.driver for group in groups}


def _attributes_of_one(groups: frozenset[Group]) -> set[str]:
    return set().union(*map(_attributes, groups))


def _attributes_of_all(groups: frozenset[Group]) -> set[str]:
    return set.intersection(*map(_attributes, groups))


def _capacities(groups: frozenset[Group]) -> set[str]:
    return {name for group in groups for name in group.sample.capacity}


def _bandwidths(groups: frozenset[Group]) -> set[int]:
    """Say which bandwidths devices that can be shared have."""
    return {group.bandwidth for group in groups if group.bandwidth}


def _most_published(amounts: Counter[int]) -> tuple[int, ...]:
    """Order amounts by the nodes that show them, and those of equally many by size."""
    ranked = sorted(amounts, key=lambda amount: (-amounts[amount], amount))
    return tuple(ranked[:_SIZES])


def _kinds(holdings: Mapping[frozenset[Group], list[str]]) -> dict[str, frozenset[str]]:
    """Find who publishes devices of each target that is told by attributes."""
    found: dict[str, frozenset[str]] = {}
    for target in TARGETS.values():
        if target.where:
            holders = [names for groups, names in holdings.items() if any(_is_of(group, target) for group in groups)]
            found[target.name] = frozenset().union(*holders)
    return found


def _whole(holdings: Mapping[frozenset[Group], list[str]]) -> frozenset[str]:
    holders = [names for groups, names in holdings.items() if not all(group.parted for group in groups)]
    return frozenset().union(*holders)


def _parted(holdings: Mapping[frozenset[Group], list[str]]) -> bool:
    """Whether more nodes give shared devices in parts than whole where no amount is said.

    A claim cannot tell the one from the other, and one node that gives parts shall not keep the pods of all others off theirs.
    """
    parts = whole = 0
    for groups, names in holdings.items():
        shared = [group for group in groups if group.sample.allow_multiple_allocations]
        parts += len(names) if any(group.parted for group in shared) else 0
        whole += len(names) if not all(group.parted for group in shared) else 0
    return parts > whole


def _is_of(group: Group, target: Target) -> bool:
    sample = group.sample
    said = target.where.items()
    return group.driver == target.driver and all(sample.own_text(target.driver, name) == text for name, text in said)


def _doubt(picked: list[Group] | None, products: Mapping[Group, str]) -> str:
    if picked is None:
        return "its selectors cost too much to ask them about every kind of device"
    if len(set(products.values())) > _SIZES:
        return f"it has more than the {_SIZES} products that are looked at"
    return ""


def _attributes(group: Group) -> set[str]:
    return {name if "/" in name else f"{group.driver}/{name}" for name in group.sample.attributes}


def _rank(
    names: Mapping[Group, str], counts: Mapping[Group, int], holdings: Mapping[frozenset[Group], list[str]]
) -> tuple[Product, ...]:
    """Rank products (or profiles) by the nodes that show them; the memory of each is the one that most nodes show.

    A node divides its voice among the products it shows, so that one with eight made-up products pushes nothing out that
    two honest nodes have. Where two sizes have as many voices, the smaller one counts: it fits on both.
    """
    voices: Counter[str] = Counter()
    sizes: dict[str, Counter[int]] = {}
    devices: Counter[str] = Counter()
    for groups, nodes in holdings.items():
        shown = {(names[group], group.memory) for group in groups if group in names}
        for name, memory in shown:
            voice = len(nodes) * _VOICE // len(shown)
            voices[name] += voice
            sizes.setdefault(name, Counter())[memory] += voice
    for group, name in names.items():
        devices[name] += counts[group]
    ranked = sorted(voices, key=lambda name: (-voices[name], name))[:_SIZES]
    return tuple(
        Product(
            name=name,
            count=devices[name],
            memory=min(sizes[name], key=lambda memory: (-sizes[name][memory], memory)),
            sizes=len(sizes[name]),
            voices=voices[name],
        )
        for name in ranked
    )


def _find_handed_out(nodes: Iterable[Node]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for node in nodes:
        giver = node.metadata.name
        allocatable = node.status.allocatable
        for name, amount in allocatable.items():
            if amount.nano > 0:
                givers = found.setdefault(name, set())
                givers.add(giver)
    return {name: frozenset(givers) for name, givers in found.items()}


def _units_by_node(nodes: tuple[Node, ...]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for vocabulary in VOCABULARIES:
        bare = vocabulary.bare
        if bare is None:
            continue
        told: dict[str, str] = {}
        for node in nodes:
            text = bare.node(node.metadata.labels)
            if text:
                told[node.metadata.name] = text
        found[vocabulary.table.name] = told
    return found


def _extended_resources(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """The newest class wins a name; of equal age the lexically first."""
    ordered = list(classes)
    ordered.sort(key=lambda one: one.metadata.name, reverse=True)
    ordered.sort(key=lambda one: one.metadata.creation_timestamp)
    winners: dict[str, str] = {}
    for one in ordered:
        resource = one.spec.extended_resource_name
        if resource:
            winners[resource] = one.metadata.name
    return winners


def unknown(target: Target, served: Served) -> Served:
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
