"""What the cluster shows about devices, as far as translation must know: a value made from classes, slices and nodes.

Which DeviceClass stands for which target, what sizes and attributes its devices publish, whether the pools are complete,
and whether nodes still hand out a legacy name. No search and no allocation state: whether a claim fits is
`webhook.admission.validate`'s question, not this one's.

A node can be stolen, and its kubelet and drivers write what they like: its labels, what it hands out, its slices. So nothing
that holds for all tenants' pods rests on one node. Each node has one voice: a fact is what most of the nodes show that have
a say in it, sizes are ranked by voices, and a node that shows many of them divides its voice among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from dra import cel
from dra.budget import Budget
from dra.errors import OutOfBudget, SelectorError
from dra.objects import Node, serve_resources
from webhook.dialects import TARGETS, VOCABULARIES, VOICE, Product, Served, Target
from webhook.state.device_groups import CPU, Census, Group, Reading
from webhook.state.device_plugins import Replicated
from webhook.state.installed import NONE, Installed
from webhook.state.schema import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.objects import Device, DeviceClass, ResourceSlice

UNLIMITED = Evidence()
# What all selectors of a class may cost on one kind of device (most cost less than ten steps), and what they may cost beyond that.
FREE_STEPS = 200
DEAR_STEPS = 200_000
_SIZES = 128  # products or profiles of a class that are looked at, the best supported first; kinds of device that are few on a node
_TOO_DEAR = "its selectors cost too much to ask them about every kind of device"
_TOO_MANY = f"it has more than the {_SIZES} products that are looked at"


class Inventory(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The facts. An unknown fleet (no inventory was given) is not an empty one: nothing can be concluded from it."""

    known: bool = False
    # Whether a unit of a key is taken for what it most often is where nothing is known: in files, never on a cluster.
    assumes: bool = False
    classes: Mapping[str, Served] = {}
    nodes: Mapping[str, Node] = {}
    # Legacy names that device plugins hand out, and the nodes that do: of those that count (`evidence`), and of all.
    handed_out: Mapping[str, frozenset[str]] = {}
    handed_out_anywhere: Mapping[str, frozenset[str]] = {}
    # Dialect: nodes whose labels say that a unit of a bare name is not a whole device, and how they say so.
    labelled: Mapping[str, Mapping[str, str]] = {}
    # Name: nodes that hand it out by a plugin which makes replicas, as the plugin's configuration says.
    shared: Mapping[str, Mapping[str, Replicated]] = {}
    installed: Installed = NONE
    # Extended resource name, implicit ones too: the class that serves it.
    extended: Mapping[str, str] = {}
    # Whether only some nodes and drivers were asked (`evidence`).
    chosen: bool = False
    census: Census = Census()

    def of_classes_alone(self) -> Inventory:
        """What files say that have no nodes and slices: their classes tell what serves a name, and nothing about devices."""
        return msgspec.structs.replace(self, known=False, assumes=True)

    @classmethod
    def of(
        cls,
        classes: Iterable[DeviceClass],
        slices: Iterable[ResourceSlice],
        nodes: Iterable[Node],
        earlier: Inventory | None = None,
        *,
        evidence: Evidence = UNLIMITED,
        installed: Installed = NONE,
    ) -> Inventory:
        """Gather the facts; with an earlier inventory only slices that it had not are looked at.

        Where `evidence` chooses nodes or drivers, the others have no voice: it is as if they were not there.
        """
        classes = tuple(classes)
        every = {node.metadata.name: node for node in nodes}
        anywhere = _handed_out(every.values())
        nodes = tuple(
            [node for node in every.values() if evidence.node_selector.items() <= node.metadata.labels.items()]
        )
        if evidence.chooses:
            slices = _choose_slices(slices, nodes, evidence)
        selectors = [_Selectors(class_) for class_ in classes]
        reading = Reading.of(reads for one in selectors for reads in one.reads)
        census = Census.of(slices, reading, earlier.census if earlier else None)
        served = {c.metadata.name: _survey(c, s, census) for c, s in zip(classes, selectors, strict=True)}
        shared: dict[str, dict[str, Replicated]] = {}
        for node in nodes if installed.plugins else ():
            for name, one in installed.shared_on(node.metadata.labels).items():
                amount = node.status.allocatable.get(name)
                if amount is not None and amount.nano > 0:
                    shared.setdefault(name, {})[node.metadata.name] = one
        labelled: dict[str, dict[str, str]] = {}
        for vocabulary in VOCABULARIES:
            bare = vocabulary.bare
            if bare is not None:
                told = {node.metadata.name: bare.node(node.metadata.labels) for node in nodes}
                labelled[vocabulary.table.name] = {name: text for name, text in told.items() if text}
        return cls(
            known=True,
            classes=served,
            nodes=every,
            handed_out=_handed_out(nodes) if evidence.chooses else anywhere,
            handed_out_anywhere=anywhere,
            labelled=labelled,
            shared=shared,
            installed=installed,
            extended=serve_resources(classes),
            chosen=evidence.chooses,
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
        # Where others are shown by several nodes, what a single one shows raises no doubt.
        several = [c for c in found if len(c.nodes) > 1]
        if any(len(c.nodes) > 2 for c in several):
            found = several
        return found[0] if len(found) == 1 else None


def _handed_out(nodes: Iterable[Node]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for node in nodes:
        for name, amount in node.status.allocatable.items():
            if amount.nano > 0:
                found.setdefault(name, set()).add(node.metadata.name)
    return {name: frozenset(givers) for name, givers in found.items()}


def _choose_slices(
    slices: Iterable[ResourceSlice], nodes: Iterable[Node], evidence: Evidence
) -> Iterable[ResourceSlice]:
    """Choose the slices that count: of drivers that are named, and on nodes that are chosen.

    Devices of no node are their driver's word. Where nodes are chosen, it counts only if the driver is named as well:
    the writer of a slice for no node would else be heard beside them.
    """
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

    def pick(self, groups: Iterable[Group]) -> list[Group]:
        """Find the groups of the class, without those on which a selector fails; raise OutOfBudget if that costs too much."""
        return [group for group in groups if self._picks(group.driver, group.sample)]

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


class _Picked(msgspec.Struct, frozen=True):
    """The groups of a class, and why not all were looked at."""

    groups: tuple[Group, ...]
    doubt: str = ""


def _pick(selectors: _Selectors, census: Census) -> _Picked:
    """Find the groups of a class, those first that are on nodes with few kinds of device.

    A node can make up as many kinds as it likes. What they cost, and that they are too many, changes nothing for the others' devices.
    """
    few = {group for held in census.nodes if len(held) <= _SIZES for group in held}
    try:
        picked = selectors.pick(group for group in census.groups if group in few)
    except OutOfBudget:
        return _Picked((), _TOO_DEAR)
    products = {group.product for group in picked if group.product}
    doubt = _TOO_MANY if len(products) > _SIZES else ""
    try:
        more = selectors.pick(group for group in census.groups if group not in few)
    except OutOfBudget:
        return _Picked(tuple(picked), doubt) if picked else _Picked((), _TOO_DEAR)
    if not picked and len({group.product for group in more if group.product}) > _SIZES:
        doubt = _TOO_MANY
    return _Picked((*picked, *more), doubt)


def _survey(class_: DeviceClass, selectors: _Selectors, census: Census) -> Served:
    picked = _pick(selectors, census)
    mine = {group: census.groups[group] for group in picked.groups}
    # What of this class a node holds, and the nodes that hold just this.
    holdings: dict[frozenset[Group], list[str]] = {}
    nodes: set[str] = set()
    for held, holders in census.nodes.items():
        of_class = frozenset(held & mine.keys())
        if of_class:
            names = holdings.setdefault(of_class, [])
            names += holders
            nodes.update(holders)
    # The nodes by what the devices that they hold publish.
    drivers: Counter[str] = Counter()
    attributes: Counter[str] = Counter()
    everywhere: Counter[str] = Counter()
    capacities: Counter[str] = Counter()
    bandwidths: Counter[int] = Counter()
    cpus: Counter[int] = Counter()
    counting = sharing = parts = undivided = 0
    whole: set[str] = set()
    for groups, names in holdings.items():
        count = len(names)
        of_each = [_attributes(group) for group in groups]
        widths = {group.bandwidth for group in groups if group.bandwidth}
        drivers.update(dict.fromkeys({group.driver for group in groups}, count))
        attributes.update(dict.fromkeys(set().union(*of_each), count))
        everywhere.update(dict.fromkeys(set.intersection(*of_each), count))
        capacities.update(dict.fromkeys({name for group in groups for name in group.sample.capacity}, count))
        bandwidths.update(dict.fromkeys(widths, count))
        if largest := max([group.cpus for group in groups]):
            cpus[largest] += count
        counting += count if any(CPU in group.sample.node_allocatable_resources for group in groups) else 0
        sharing += count if widths else 0
        if not all(group.parted for group in groups):
            whole.update(names)
        shared = [group for group in groups if group.sample.allow_multiple_allocations]
        parts += count if any(group.parted for group in shared) else 0
        undivided += count if not all(group.parted for group in shared) else 0
    # The nodes that publish devices of each target that attributes tell apart.
    kinds: dict[str, frozenset[str]] = {}
    for target in TARGETS.values():
        if target.where:
            publishers = [names for groups, names in holdings.items() if any(_is_of(group, target) for group in groups)]
            kinds[target.name] = frozenset().union(*publishers)
    widest = sorted(bandwidths, key=lambda amount: (-bandwidths[amount], amount))[:_SIZES]
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
        kinds=kinds,
        whole=frozenset(whole),
        products=_rank(products, mine, holdings),
        profiles=_rank(profiles, mine, holdings),
        attributes=attributes,
        everywhere=everywhere,
        capacities=capacities,
        shared=sum(sharable),
        bandwidths=tuple(widest) if sharing * 2 > len(nodes) else (),
        # Of two that as many nodes publish, the smaller one fits on both.
        cpus=max(sorted(cpus), key=cpus.__getitem__, default=0),
        counts_cpus=counting * 2 > len(nodes),
        # A claim cannot choose between devices given in parts and whole ones, so the majority of nodes decides.
        parted=parts > undivided,
        rootless=sum(rootless),
        doubt=picked.doubt,
    )


def _is_of(group: Group, target: Target) -> bool:
    sample = group.sample
    said = target.where.items()
    return group.driver == target.driver and all(sample.own_text(target.driver, name) == text for name, text in said)


def _attributes(group: Group) -> set[str]:
    return {name if "/" in name else f"{group.driver}/{name}" for name in group.sample.attributes}


def _rank(
    names: Mapping[Group, str], counts: Mapping[Group, int], holdings: Mapping[frozenset[Group], list[str]]
) -> tuple[Product, ...]:
    """Rank products (or profiles) by the nodes that show them; the memory of each is the one that most nodes show.

    A node divides its voice among the products it shows, so that one with eight made-up products pushes nothing out that
    two honest nodes have; what it says of one product, it divides among the sizes that it shows of that. Where two sizes have
    as many voices, the smaller one comes first: it fits on both.
    """
    voices: Counter[str] = Counter()
    sizes: dict[str, Counter[int]] = {}
    devices: Counter[str] = Counter()
    for groups, nodes in holdings.items():
        shown = {(names[group], group.memory) for group in groups if group in names}
        of_each = Counter(name for name, _ in shown)
        for name, memory in shown:
            voices[name] += len(nodes) * VOICE // len(shown)
            sizes.setdefault(name, Counter())[memory] += len(nodes) * VOICE // of_each[name]
    for group, name in names.items():
        devices[name] += counts[group]
    ranked = sorted(voices, key=lambda name: (-voices[name], name))[:_SIZES]
    found: list[Product] = []
    for name in ranked:
        said = sizes[name]
        most = max(said.values())
        memory, *others = sorted(size for size, support in said.items() if support == most)
        product = Product(
            name=name,
            count=devices[name],
            memory=memory,
            others=tuple(others[:_SIZES]),
            sizes=len(said),
            voices=voices[name],
        )
        found.append(product)
    return tuple(found)
