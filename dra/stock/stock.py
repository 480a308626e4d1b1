"""The stock: an immutable snapshot of all objects that determine which devices exist and which claims hold them.

`Stock.of` builds a stock from lists of objects. `with_object`, `with_all` and `without` return a new stock that shares
every unchanged part with the old one. They update the indexes (pages by node and by pool, allocations by pool, sums and
holders by namespace), so a change copies a few flat dicts and does not visit all devices.

A stock also has a history: the changes that led to the stock, each with the nodes that it may affect. Code that
computed a result for each node of an earlier stock calls `changed_since`, and recomputes the result only for these
nodes. Histories are immutable, too: two stocks that are derived from the same stock share its history, and do not
affect each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from dra import server as gates
from dra.objects import (
    IMPLICIT,
    DeviceClass,
    DeviceCompatibility,
    DeviceTaintRule,
    Node,
    ResourceClaim,
    ResourceSlice,
    serve_resources,
)
from dra.stock.amounts import Amounts, Difference, amounts_of, corrected, sums_of
from dra.stock.pool import Page, PoolDevices, gather, newest, page_of, targets
from dra.stock.slice_reading import ALL, SliceReading, reading_of
from dra.stock.usage import FREE, PoolId, PoolUse, pool_use, results_by_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dra.objects import DeviceRequestAllocationResult
    from dra.server import Server
    from dra.stock.pool import Pool

Stocked = Node | ResourceSlice | DeviceClass | DeviceTaintRule | DeviceCompatibility | ResourceClaim
AnyStocked = TypeVar(
    "AnyStocked", Node, ResourceSlice, DeviceClass, DeviceTaintRule, DeviceCompatibility, ResourceClaim
)
Where = TypeVar("Where", bound="str | PoolId")
Pages = tuple[Page, ...]
Held = dict[str, "tuple[DeviceRequestAllocationResult, ...]"]  # key of a claim → the claim's results in one pool
Holders = dict[str, None]  # keys of claims

_FIELD: dict[type, str] = {
    Node: "nodes",
    ResourceSlice: "slices",
    DeviceClass: "classes",
    DeviceTaintRule: "rules",
    DeviceCompatibility: "compatibilities",
    ResourceClaim: "claims",
}
_TYPE = {type_.__name__: type_ for type_ in _FIELD}


_MIN_HISTORY = 4096  # a long history keeps at least this many changes, and at most twice as many


class ChangedNodes(msgspec.Struct, frozen=True, eq=False):
    """One change: the nodes that the change may affect (None: all), and the previous change, if the history has it."""

    nodes: frozenset[str] | None
    before: ChangedNodes | None


class History(msgspec.Struct, frozen=True, eq=False):
    """The changes that led to a stock, in two chains. When the newer chain is full, the older chain is dropped."""

    newer: ChangedNodes
    length: int = 1
    older: ChangedNodes | None = None

    @classmethod
    def begin(cls) -> History:
        return cls(ChangedNodes(None, None))

    def after(self, nodes: frozenset[str] | None) -> History:
        """Return the history after one more change."""
        if self.length == _MIN_HISTORY:
            return History(ChangedNodes(nodes, None), 1, self.newer)
        return History(ChangedNodes(nodes, self.newer), self.length + 1, self.older)

    def since(self, earlier: History) -> frozenset[str] | None:
        """Return the nodes that changes since an earlier history may affect; None for all nodes, or if unknown."""
        names: set[str] = set()
        for chain in (self.newer, self.older):
            change = chain
            while change is not None:
                if change is earlier.newer:
                    return frozenset(names)
                if change.nodes is None:
                    return None
                names |= change.nodes
                change = change.before
        return None


class Stock(msgspec.Struct, frozen=True, eq=False):
    """A snapshot. The keys of objects are names, or namespace/name for claims. No mapping is ever modified."""

    nodes: dict[str, Node]
    slices: dict[str, ResourceSlice]
    classes: dict[str, DeviceClass]
    rules: dict[str, DeviceTaintRule]
    compatibilities: dict[str, DeviceCompatibility]
    claims: dict[str, ResourceClaim]
    pages: dict[str, Page]  # by slice
    pages_on: dict[str, Pages]  # by node name; "" for pages without a node name
    pages_of: dict[PoolId, Pages]
    results: dict[PoolId, Held]
    uses: dict[PoolId, PoolUse]
    sums: dict[str, Amounts]  # how much claims hold, by namespace
    holders: dict[str, Holders]  # the claims that hold devices, by namespace
    history: History
    reading: SliceReading = ALL

    @classmethod
    def of(
        cls,
        *,
        slices: Iterable[ResourceSlice] = (),
        classes: Iterable[DeviceClass] = (),
        nodes: Iterable[Node] = (),
        rules: Iterable[DeviceTaintRule] = (),
        compatibilities: Iterable[DeviceCompatibility] = (),
        claims: Iterable[ResourceClaim] = (),
        server: Server = gates.EVERYTHING,
    ) -> Stock:
        """Build a stock.

        If several objects have one name, the later objects' keys get a number, so that all are kept.
        """
        reading = reading_of(server)
        kept_rules = _key_all(rules)
        kept_slices = _key_all(slices)
        kept_claims = _key_all(claims)
        pages = {key: page_of(slice_, kept_rules.values(), reading) for key, slice_ in kept_slices.items()}
        pages_of = _group((page.pool, page) for page in pages.values())
        results_by_claim: dict[PoolId, Held] = {}
        for key, claim in kept_claims.items():
            for pool, results in results_by_pool(claim).items():
                results_by_claim.setdefault(pool, {})[key] = results
        return cls(
            _key_all(nodes),
            kept_slices,
            _key_all(classes),
            kept_rules,
            _key_all(compatibilities),
            kept_claims,
            pages,
            _group((page.node_name, page) for page in pages.values()),
            pages_of,
            results_by_claim,
            {
                pool: pool_use(by_claim.values(), shares=reading.enabled(gates.CAPACITY))
                for pool, by_claim in results_by_claim.items()
            },
            sums_of(kept_claims.values(), pages_of),
            _holders({}, {key: True for by_claim in results_by_claim.values() for key in by_claim}),
            History.begin(),
            reading,
        )

    def with_object(self, obj: Stocked) -> Stock:
        """Return a stock with this object, which replaces an object of the same kind and name."""
        return self._change(type(obj), {_key(obj): obj})

    def with_all(self, objects: Iterable[Stocked], removed: Iterable[Stocked] = ()) -> Stock:
        """Return a stock with objects added (or replaced by name) and removed.

        The history gets one change for each kind.
        """
        changed_objects: dict[type, dict[str, Stocked | None]] = {}
        for obj in removed:
            changed_objects.setdefault(type(obj), {})[_key(obj)] = None
        for obj in objects:
            changed_objects.setdefault(type(obj), {})[_key(obj)] = obj
        stock = self
        for type_, of_kind in changed_objects.items():
            stock = stock._change(type_, of_kind)
        return stock

    def without(self, kind: str, key: str) -> Stock:
        """Return a stock without one object, which need not exist."""
        type_ = _TYPE[kind]
        return self._change(type_, {key: None}) if key in getattr(self, _FIELD[type_]) else self

    def pools(self, node: str, shared: Iterable[Page] | None = None) -> list[Pool]:
        """Return the pools that a node can use, in Kubernetes' order.

        A caller that knows the pages without a node name that select the node passes them as `shared`.
        """
        node_object = self.nodes[node]
        if shared is None:
            shared = [page for page in self.pages_on.get("", ()) if targets(page, node_object)]
        own = [page for page in self.pages_on.get(node, ()) if targets(page, node_object)]
        return gather(node_object, (*own, *shared), self.pages_of, self.reading)

    def newest_pages(self, pool: PoolId) -> Pages:
        """List the pages of a pool that no newer page supersedes. The pool need not be complete."""
        pages = self.pages_of.get(pool, ())
        if len({page.generation for page in pages}) < 2:
            return pages
        current = {id(slice_) for slice_ in newest(page.slice for page in pages)}
        return tuple([page for page in pages if id(page.slice) in current])

    def every_newest_page(self) -> Iterator[Page]:
        """Yield, for all pools, the pages that no newer page supersedes."""
        for pool in self.pages_of:
            yield from self.newest_pages(pool)

    def devices(self, pool: PoolId) -> PoolDevices:
        """Index the newest devices of a pool, for many lookups."""
        return PoolDevices.index(self.newest_pages(pool))

    def use(self, pool: PoolId) -> PoolUse:
        """Return which devices of a pool are in use."""
        return self.uses.get(pool, FREE)

    def serving(self) -> dict[str, str]:
        """Map resource names to the classes that serve them.

        Empty if the feature gate is off; 1.34 has no implicit names.
        """
        if not self.reading.enabled(gates.EXTENDED):
            return {}
        serving = serve_resources(self.classes.values())
        if self.reading.oldest:
            return {name: class_ for name, class_ in serving.items() if not name.startswith(IMPLICIT)}
        return serving

    def idle(self) -> Stock:
        """Return this stock without claims."""
        return msgspec.structs.replace(
            self, claims={}, results={}, uses={}, sums={}, holders={}, history=History.begin()
        )

    def as_read_by(self, server: Server) -> Stock:
        """Return a stock of the same objects as the allocator of another server reads them."""
        return Stock.of(
            slices=self.slices.values(),
            classes=self.classes.values(),
            nodes=self.nodes.values(),
            rules=self.rules.values(),
            compatibilities=self.compatibilities.values(),
            claims=self.claims.values(),
            server=server,
        )

    def caught_up(self, earlier: Stock, current: Stock) -> Stock:
        """Apply the changes between `earlier` and `current` to this stock, which was built from the objects of `earlier`.

        So a stock that takes long to build can be built in another thread or process while changes arrive.
        """
        changed: list[Stocked] = []
        removed: list[Stocked] = []
        for field in _FIELD.values():
            before, after = getattr(earlier, field), getattr(current, field)
            changed += [obj for key, obj in after.items() if before.get(key) is not obj]
            removed += [obj for key, obj in before.items() if key not in after]
        return self.with_all(changed, removed)

    def changed_since(self, earlier: Stock) -> frozenset[str] | None:
        """Return the nodes that changes since an earlier stock may affect; None for all nodes, or if unknown."""
        return self.history.since(earlier.history)

    def _change(self, type_: type, changed_objects: Mapping[str, Stocked | None]) -> Stock:
        """Apply a change of objects of one kind. `changed_objects` maps keys to new objects, or to None for removed objects."""
        field = _FIELD[type_]
        current = getattr(self, field)
        objects = {**current}
        for key, obj in changed_objects.items():
            if obj is not None:
                objects[key] = obj
            else:
                objects.pop(key, None)
        changes: dict[str, object] = {field: objects}
        affected: frozenset[str] | None = frozenset()
        if type_ is ResourceSlice:
            slices = {key: obj if isinstance(obj, ResourceSlice) else None for key, obj in changed_objects.items()}
            affected = self._update_pages(changes, slices, self.rules)
        elif type_ is ResourceClaim:
            claims = {key: obj if isinstance(obj, ResourceClaim) else None for key, obj in changed_objects.items()}
            affected = self._update_claims(changes, claims)
        elif type_ is DeviceTaintRule:
            rules = [
                self.reading.rule(rule)
                for key in changed_objects
                for rule in (current.get(key), objects.get(key))
                if rule is not None
            ]
            tainted = {
                key: page.slice for key, page in self.pages.items() if any(_may_taint(rule, page) for rule in rules)
            }
            affected = self._update_pages(changes, tainted, objects)
        elif type_ is Node:
            affected = frozenset(changed_objects)
        elif type_ is DeviceCompatibility:
            affected = None
        return msgspec.structs.replace(self, **changes, history=self.history.after(affected))

    def _update_pages(
        self,
        changes: dict[str, object],
        slices: Mapping[str, ResourceSlice | None],
        rules: Mapping[str, DeviceTaintRule],
    ) -> frozenset[str] | None:
        """Add the pages of changed slices, and the new sums of namespaces, to `changes`; return the affected nodes."""
        pages, pages_on, pages_of = {**self.pages}, {**self.pages_on}, {**self.pages_of}
        changed: list[tuple[Page | None, Page | None]] = []
        pools: set[PoolId] = set()
        for key, slice_ in slices.items():
            old = pages.pop(key, None) if slice_ is None else pages.get(key)
            new = page_of(slice_, rules.values(), self.reading) if slice_ is not None else None
            if new is not None:
                pages[key] = new
            changed.append((old, new))
            if self.slices.get(key) is not slice_:  # otherwise only the taints of its devices have changed
                pools.update(page.pool for page in (old, new) if page is not None)
        _replace_pages(pages_on, changed, lambda page: page.node_name)
        _replace_pages(pages_of, changed, lambda page: page.pool)
        touched = {page.pool for pair in changed for page in pair if page is not None}
        affected = {
            page.node_name for pool in touched for index in (self.pages_of, pages_of) for page in index.get(pool, ())
        }
        differences: list[Difference] = []
        holding = {key for pool in pools for key in self.results.get(pool, ())}
        for key in holding:
            claim = self.claims[key]
            namespace, _, _ = key.partition("/")
            before = amounts_of(claim, self.pages_of)
            after = amounts_of(claim, pages_of)
            differences.append(Difference(namespace, before, after))
        changes.update(pages=pages, pages_on=pages_on, pages_of=pages_of, sums=corrected(self.sums, differences))
        return None if "" in affected else frozenset(affected)

    def _update_claims(
        self, changes: dict[str, object], changed_claims: Mapping[str, ResourceClaim | None]
    ) -> frozenset[str] | None:
        """Add what changed claims hold to `changes`; return the affected nodes."""
        results, uses = {**self.results}, {**self.uses}
        touched: set[PoolId] = set()
        differences: list[Difference] = []
        holding: dict[str, bool] = {}
        for key, new in changed_claims.items():
            old = self.claims.get(key)
            before = results_by_pool(old) if old is not None else {}
            after = results_by_pool(new) if new is not None else {}
            # A new claim may have the name and the devices of an old claim, so skip only a claim with an unchanged
            # spec.
            if before == after and (old is None or new is None or old.spec is new.spec or old.spec == new.spec):
                continue
            amounts_before = amounts_of(old, self.pages_of) if old is not None else {}
            amounts_after = amounts_of(new, self.pages_of) if new is not None else {}
            namespace, _, _ = key.partition("/")
            differences.append(Difference(namespace, amounts_before, amounts_after))
            holding[key] = bool(after)
            for pool in before.keys() | after.keys():
                if pool not in touched:
                    results[pool] = {**results.get(pool, {})}
                    touched.add(pool)
                results[pool].pop(key, None)
                if pool in after:
                    results[pool][key] = after[pool]
        if not touched:
            return frozenset()
        nodes: set[str] = set()
        for pool in touched:
            if results[pool]:
                uses[pool] = pool_use(results[pool].values(), shares=self.reading.enabled(gates.CAPACITY))
            else:
                results.pop(pool)
                uses.pop(pool, None)
            nodes.update(page.node_name for page in self.pages_of.get(pool, ()))
        changes.update(results=results, uses=uses, sums=corrected(self.sums, differences))
        changes["holders"] = _holders(self.holders, holding)
        return None if "" in nodes else frozenset(nodes)


def _key(obj: Stocked) -> str:
    return obj.metadata.key if isinstance(obj, ResourceClaim) else obj.metadata.name


def _holders(current: Mapping[str, Holders], changed_claims: Mapping[str, bool]) -> dict[str, Holders]:
    """Return the claims that hold devices, by namespace. `changed_claims` has for each changed claim whether the claim holds devices.

    The claims are in dicts, because a set of 30,000 keys takes twenty times as long to copy.
    """
    holders = {**current}
    copied: set[str] = set()
    for key, holds in changed_claims.items():
        namespace, _, _ = key.partition("/")
        if holds is (key in holders.get(namespace, ())):
            continue
        if namespace not in copied:
            copied.add(namespace)
            holders[namespace] = {**holders.get(namespace, {})}
        if holds:
            holders[namespace][key] = None
        else:
            del holders[namespace][key]
    for namespace in copied:
        if not holders[namespace]:
            del holders[namespace]
    return holders


def _key_all(objects: Iterable[AnyStocked]) -> dict[str, AnyStocked]:
    keyed: dict[str, AnyStocked] = {}
    for obj in objects:
        key, copies = _key(obj), 1
        while key in keyed:
            copies += 1
            key = f"{_key(obj)}#{copies}"
        keyed[key] = obj
    return keyed


def _group(pairs: Iterable[tuple[Where, Page]]) -> dict[Where, Pages]:
    groups: dict[Where, list[Page]] = {}
    for where, page in pairs:
        groups.setdefault(where, []).append(page)
    return {where: tuple(group) for where, group in groups.items()}


def _replace_pages(
    index: dict[Where, Pages],
    changed: Iterable[tuple[Page | None, Page | None]],
    where: Callable[[Page], Where],
) -> None:
    """Replace changed pages where they are, which keeps the order of the input.

    Append added pages; drop removed pages.
    """
    replaced: dict[Where, dict[int, Page | None]] = {}
    added: dict[Where, list[Page]] = {}
    for old, new in changed:
        stays = old is not None and new is not None and where(old) == where(new)
        if old is not None:
            replaced.setdefault(where(old), {})[id(old)] = new if stays else None
        if new is not None and not stays:
            added.setdefault(where(new), []).append(new)
    for key in replaced.keys() | added.keys():
        by_id = replaced.get(key, {})
        kept_pages = [new for page in index.get(key, ()) if (new := by_id.get(id(page), page)) is not None]
        if pages := (*kept_pages, *added.get(key, ())):
            index[key] = pages
        else:
            index.pop(key, None)


def _may_taint(rule: DeviceTaintRule, page: Page) -> bool:
    selector = rule.spec.device_selector
    return (
        selector is not None
        and selector.driver in (None, page.pool[0])
        and selector.pool in (None, page.pool[1])
        and (selector.device is None or any(device.name == selector.device for device in page.devices))
    )
