"""Makes the inventory that translation needs from the DeviceClasses, ResourceSlices and nodes of a cluster.

The inventory has the DeviceClass for each target (a kind of device), the sizes and attributes that the devices of a class publish, and the
resources that nodes still offer by device plugins. `webhook.placement.judge` decides whether a claim fits.

A compromised node can publish any labels, allocatable resources and slices, so nothing about the pods of all tenants may depend on a single
node. A fact is what most nodes publish. Each node has one vote. Sizes are ranked by votes, and a node that publishes several sizes divides its
vote among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from dra import cel, step_limits
from dra.budget import Budget
from dra.errors import OutOfBudget, SelectorError
from dra.objects import Node, serve_resources
from webhook.dialects import TARGETS, VOCABULARIES, Product, Served, Target
from webhook.state.autoscalers import POOLS
from webhook.state.device_groups import CPU, Census, Group, ReadAttributes
from webhook.state.device_plugins import Replicated
from webhook.state.installed import NONE, Installed
from webhook.state.schema import Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dra.objects import DeviceClass, ResourceSlice

_MAX_SIZES = 128  # maximum number of products or profiles of a class; `_find_groups` reads nodes with more groups of devices last
T = TypeVar("T")
_VOTE = 720_720  # the vote of one node, divisible by every number up to 16
_TOO_COSTLY = "its selectors cost too much to evaluate them on every kind of device"
_TOO_MANY = f"it has more than {_MAX_SIZES} products"


class Inventory(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The facts about a fleet. Nothing may be concluded from a fleet that is not `known`."""

    known: bool = False
    # Whether a driver may be installed that the input does not show: no missing class is reported, and if the fleet is not `known`, a unit of
    # a key is assumed to have its usual meaning. Set for files, never for a cluster.
    assumes: bool = False
    classes: Mapping[str, Served] = {}
    nodes: Mapping[str, Node] = {}
    # By resource: the nodes that have it in status.allocatable. `handed_out` has only nodes that `evidence` chooses.
    handed_out: Mapping[str, frozenset[str]] = {}
    handed_out_anywhere: Mapping[str, frozenset[str]] = {}
    # By dialect: the nodes with a label which shows that a unit is not a whole device, and this label.
    labelled: Mapping[str, Mapping[str, str]] = {}
    # By resource: the nodes whose device plugin offers replicas of it, and their configuration.
    shared: Mapping[str, Mapping[str, Replicated]] = {}
    installed: Installed = NONE
    # The evidence that an autoscaler may create nodes: its name, or the label of a managed node pool; "" without evidence.
    grows: str = ""
    # By extended resource, also an implicit one: the class that serves it.
    extended: Mapping[str, str] = {}
    # Whether `evidence` restricts the nodes or drivers.
    chosen: bool = False
    census: Census = Census()

    def of_classes_alone(self) -> Inventory:
        """Return the inventory for files without nodes and slices: only the classes are known."""
        return msgspec.structs.replace(self, known=False, assumes=True)

    @classmethod
    def gather(
        cls,
        classes: Iterable[DeviceClass],
        slices: Iterable[ResourceSlice],
        nodes: Iterable[Node],
        earlier: Inventory | None = None,
        *,
        evidence: Evidence = Evidence(),  # noqa: B008  a value
        installed: Installed = NONE,
    ) -> Inventory:
        """Collect the facts. Slices that an earlier inventory has counted are not counted again.

        If `evidence` chooses nodes or drivers, the labels and slices of all others are ignored.
        """
        classes = tuple(classes)
        all_nodes = {node.metadata.name: node for node in nodes}
        handed_out_anywhere = _handed_out(all_nodes.values())
        nodes = [node for node in all_nodes.values() if evidence.node_selector.items() <= node.metadata.labels.items()]
        if evidence.drivers:
            slices = [piece for piece in slices if piece.spec.driver in evidence.drivers]
        if evidence.node_selector:
            # Devices that belong to no node count only if `evidence` names their driver; otherwise each author of such a slice would have a vote.
            chosen = {node.metadata.name for node in nodes} | ({""} if evidence.drivers else set())
            slices = [piece for piece in slices if (piece.spec.node_name or "") in chosen]
        selectors = [_Selectors(class_) for class_ in classes]
        reading = ReadAttributes.combine(reads for selector in selectors for reads in selector.reads)
        census = Census.count(slices, reading, earlier.census if earlier else None)
        classes_by_name = {c.metadata.name: _survey(c, s, census) for c, s in zip(classes, selectors, strict=True)}
        shared: dict[str, dict[str, Replicated]] = {}
        for node in nodes if installed.plugins else ():
            for name, replicated in installed.shared_on(node.metadata.labels).items():
                amount = node.status.allocatable.get(name)
                if amount is not None and amount.nano > 0:
                    shared.setdefault(name, {})[node.metadata.name] = replicated
        labelled: dict[str, dict[str, str]] = {}
        with_plugin = frozenset().union(
            *[names for key, names in handed_out_anywhere.items() if key.startswith("nvidia.com/")]
        )
        for vocabulary in VOCABULARIES:
            bare = vocabulary.bare
            if bare is None:
                continue
            # With a GPUCluster no feature discovery updates NVIDIA's labels, so they count only on nodes with a device plugin.
            stale = vocabulary.table.name == "nvidia" and installed.gpu_operator.runs_driver_alone
            label_by_node = {node.metadata.name: bare.sharing_label(node.metadata.labels) for node in nodes}
            labelled[vocabulary.table.name] = {
                name: label for name, label in label_by_node.items() if label and (not stale or name in with_plugin)
            }
        pool_labels = (label for node in nodes for label in POOLS if label in node.metadata.labels)
        return cls(
            known=True,
            classes=classes_by_name,
            nodes=all_nodes,
            handed_out=_handed_out(nodes) if evidence.is_restricted else handed_out_anywhere,
            handed_out_anywhere=handed_out_anywhere,
            labelled=labelled,
            shared=shared,
            installed=installed,
            grows=installed.autoscalers[0].name if installed.autoscalers else next(pool_labels, ""),
            extended=serve_resources(classes),
            chosen=evidence.is_restricted,
            census=census,
        )

    def find_class(self, target: Target, declared: str = "") -> Served | None:
        """Return the class for a target: the declared one, else one with the vendor's name, else the only one of its driver."""
        if declared:
            return self.classes.get(declared)
        for name in target.classes:
            if name in self.classes:
                return self.classes[name]
        if target.type:  # the driver has several kinds of device, so the class must be declared or have a known name
            return None
        candidates = [c for c in self.classes.values() if c.devices and c.driver == target.driver]
        # Classes with devices of a single node are ignored if a class has devices of three or more nodes.
        several = [c for c in candidates if len(c.nodes) > 1]
        if any(len(c.nodes) > 2 for c in several):
            candidates = several
        return candidates[0] if len(candidates) == 1 else None


def _handed_out(nodes: Iterable[Node]) -> dict[str, frozenset[str]]:
    by_name: dict[str, set[str]] = {}
    for node in nodes:
        for name, amount in node.status.allocatable.items():
            if amount.nano > 0:
                by_name.setdefault(name, set()).add(node.metadata.name)
    return {name: frozenset(nodes_) for name, nodes_ in by_name.items()}


class _Selectors:
    """The compiled selectors of one class. As in the allocator, a class with an invalid selector matches nothing.

    Each selector is evaluated on each group of devices. A compromised node can publish any number of groups, so the evaluation has a budget.
    Only the cost above that of an ordinary selector is charged, so that such a node does not use up the budget of other nodes.
    """

    def __init__(self, class_: DeviceClass) -> None:
        self._compiled: list[cel.Selector] | None = []
        self._left: int = step_limits.CLASS_ON_FLEET
        try:
            self._compiled = [cel.compile(s.cel.expression) for s in class_.spec.selectors if s.cel]
        except SelectorError:
            self._compiled = None

    @property
    def reads(self) -> list[cel.Reads]:
        return [selector.reads for selector in self._compiled or ()]

    def matching(self, groups: Iterable[Group]) -> list[Group]:
        """Return the groups of the class. A group on which a selector fails is left out. Raises OutOfBudget if the evaluation costs too much."""
        matched: list[Group] = []
        for group in groups if self._compiled is not None else ():
            view = cel.view_of(group.driver, group.sample)
            budget = Budget(step_limits.CLASS_ON_GROUP + self._left)
            try:
                if all(selector.matches(view, budget) for selector in self._compiled or ()):
                    matched.append(group)
            except SelectorError:
                continue
            finally:
                self._left -= max(0, budget.spent - step_limits.CLASS_ON_GROUP)
        return matched


def _find_groups(selectors: _Selectors, census: Census) -> tuple[list[Group], str]:
    """Return the groups of a class, and why some of them may be missing; "" if none is.

    Groups on nodes with few groups come first, so that a node with very many groups cannot use up the budget for them.
    """
    on_small_nodes = {group for published in census.nodes if len(published) <= _MAX_SIZES for group in published}
    try:
        groups = selectors.matching(group for group in census.groups if group in on_small_nodes)
    except OutOfBudget:
        return [], _TOO_COSTLY
    doubt = _TOO_MANY if len({group.product for group in groups if group.product}) > _MAX_SIZES else ""
    try:
        more = selectors.matching(group for group in census.groups if group not in on_small_nodes)
    except OutOfBudget:
        return (groups, doubt) if groups else ([], _TOO_COSTLY)
    if not groups and len({group.product for group in more if group.product}) > _MAX_SIZES:
        doubt = _TOO_MANY
    return [*groups, *more], doubt


def _survey(class_: DeviceClass, selectors: _Selectors, census: Census) -> Served:
    groups, doubt = _find_groups(selectors, census)
    device_counts = {group: census.groups[group] for group in groups}
    # The nodes by their groups of this class.
    holdings: dict[frozenset[Group], list[str]] = {}
    for published, node_names in census.nodes.items():
        of_class = frozenset(published & device_counts.keys())
        if of_class:
            holdings.setdefault(of_class, []).extend(node_names)

    def count_nodes(values: Callable[[frozenset[Group]], Iterable[T]]) -> Counter[T]:
        """Count the nodes that publish each of some values."""
        counts: Counter[T] = Counter()
        for groups, names in holdings.items():
            counts.update(dict.fromkeys(values(groups), len(names)))
        return counts

    def nodes_where(holds: Callable[[frozenset[Group]], object]) -> frozenset[str]:
        return frozenset().union(*[names for groups, names in holdings.items() if holds(groups)])

    nodes = nodes_where(bool)
    drivers = count_nodes(lambda groups: {group.driver for group in groups})
    attributes = {
        group: {name if "/" in name else f"{group.driver}/{name}" for name in group.sample.attributes}
        for group in device_counts
    }
    bandwidths = count_nodes(lambda groups: {group.bandwidth for group in groups if group.bandwidth})
    ranked_bandwidths = sorted(bandwidths, key=lambda amount: (-bandwidths[amount], amount))[:_MAX_SIZES]
    sharing_nodes = nodes_where(lambda groups: any(group.bandwidth for group in groups))
    cpus = count_nodes(lambda groups: {max([group.cpus for group in groups])} - {0})
    cpu_counting_nodes = nodes_where(
        lambda groups: any(CPU in group.sample.node_allocatable_resources for group in groups)
    )
    shared = {group for group in device_counts if group.sample.allow_multiple_allocations}
    partial_nodes = nodes_where(lambda groups: any(group.parted for group in groups & shared))
    whole_nodes = nodes_where(lambda groups: not all(group.parted for group in groups & shared))
    # By target with `where`: the nodes that publish its devices.
    kinds: dict[str, frozenset[str]] = {}
    for target in TARGETS.values():
        if target.where:
            of_target = {
                group
                for group in device_counts
                if group.driver == target.driver
                and all(group.sample.own_text(target.driver, name) == text for name, text in target.where.items())
            }
            kinds[target.name] = nodes_where(of_target.intersection)
    return Served(
        name=class_.metadata.name,
        extended_resource=class_.spec.extended_resource_name or "",
        driver=max(sorted(drivers), key=drivers.__getitem__, default=""),
        devices=sum(device_counts.values()),
        nodes=nodes,
        kinds=kinds,
        whole=nodes_where(lambda groups: not all(group.parted for group in groups)),
        products=_rank({group: group.product for group in device_counts if group.product}, holdings),
        profiles=_rank({group: group.profile for group in device_counts if group.profile}, holdings),
        attributes=count_nodes(lambda groups: set().union(*[attributes[group] for group in groups])),
        everywhere=count_nodes(lambda groups: set.intersection(*[attributes[group] for group in groups])),
        capacities=count_nodes(lambda groups: {name for group in groups for name in group.sample.capacity}),
        shared=sum(device_counts[group] for group in shared),
        bandwidths=tuple(ranked_bandwidths) if len(sharing_nodes) * 2 > len(nodes) else (),
        # Of two amounts that equally many nodes publish, the smaller one counts: it fits on the nodes of both amounts.
        cpus=max(sorted(cpus), key=cpus.__getitem__, default=0),
        counts_cpus=len(cpu_counting_nodes) * 2 > len(nodes),
        # A claim cannot choose between devices that are allocated in parts and whole ones, so the majority of nodes decides.
        divisible=len(partial_nodes) > len(whole_nodes),
        rootless=sum(number for group, number in device_counts.items() if group.rootless),
        doubt=doubt,
    )


def _rank(names: Mapping[Group, str], holdings: Mapping[frozenset[Group], list[str]]) -> tuple[Product, ...]:
    """Return the products (or profiles), ordered by votes. The memory of each is the one with the most votes of the nodes that publish the product.

    A node divides its vote among its products, so that a node with eight invented products does not outvote a product of two other nodes. For
    each product it also divides a vote among the sizes. Of two sizes with equal votes the smaller comes first: it fits on devices of both sizes.
    """
    votes: Counter[str] = Counter()
    sizes: dict[str, Counter[int]] = {}
    for groups, nodes in holdings.items():
        published = {(names[group], group.memory) for group in groups if group in names}
        sizes_of_name = Counter(name for name, _ in published)
        for name, memory in published:
            votes[name] += len(nodes) * _VOTE // len(published)
            sizes.setdefault(name, Counter())[memory] += len(nodes) * _VOTE // sizes_of_name[name]
    products: list[Product] = []
    for name in sorted(votes, key=lambda name: (-votes[name], name))[:_MAX_SIZES]:
        size_votes = sizes[name]
        most_votes = max(size_votes.values())
        memory, *others = sorted(size for size, count in size_votes.items() if count == most_votes)
        products.append(Product(name=name, memory=memory, others=tuple(others[:_MAX_SIZES]), sizes=len(size_votes)))
    return tuple(products)
