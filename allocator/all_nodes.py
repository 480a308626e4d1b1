"""Allocation on every node of a fleet: nodes with equal fingerprints are searched once; after a change, only changed nodes are searched.

A fingerprint covers each page of the node's pools. A page is a ResourceSlice as the allocator reads it. The fingerprint contains the
attributes that the claims read (columns), everything else about the devices (bodies), and the positions of the devices in use. Nodes
with equal fingerprints share one result, which refers to devices by position. Device names are filled in when the answer for one node
is read. A pool that several nodes can use is compared by identity.

Callers with repeated questions pass a `FleetMemo`, which keeps results from one stock to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from allocator.answer import AllocateError, NodeAnswer, SearchVerdict
from allocator.one_node import DEFAULTS, NodeResult, SearchOptions, budget_of, compose, decide, explain, search_node
from allocator.problem import (
    NODE_FEATURE,
    CompileCache,
    PageCache,
    Signature,
    candidates_of,
    numbered,
    question_of,
    selector_results,
    signature_of,
)
from allocator.reasons import cannot_serve
from dra.cache import Cache
from dra.errors import NodeSelectorError, OutOfBudget
from dra.policy import Rules
from dra.stock import FREE, reaches, targets
from dra.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from dra.budget import Budget
    from dra.objects import Device, Node, ResourceClaim, ResourceClaimSpec, ResourceSliceSpec
    from dra.stock import Page, Pool, PoolId, PoolUse, Stock

    Columns = Callable[[Page], list[tuple[object, ...]]]

_PIECE = 32  # nodes, at 5 to 10 microseconds each, between two calls of the caller's `is_abandoned`
_UNSEEN = NodeResult(SearchVerdict.UNDECIDED, error="the caller stopped waiting before this node was checked")
_FINGERPRINTS = 4096  # fingerprints kept for a question, or twice the number of nodes if that is more
_TEXTS = 4 << 20  # bytes of encoded claims
_IN_USE = 32 << 20  # bytes of the positions of devices in use
_ENTRY = 200  # bytes of one of them
_CONCLUSIONS = 4 << 20  # bytes of what callers derive from the answers
_SLICES_PER_STEP = 4  # slices without a node name that a search checks in one step, for one node
_SELECTION_BYTES = 32 << 20  # bytes of cached node selections
_QUESTIONS = 64  # the maximum that a memo keeps
_SIZE = 1 << 18  # entries in the tables of all questions; if there are more, the memo drops its oldest questions


class FleetAnswer(Mapping[str, NodeAnswer]):
    """The answers for all nodes, each composed when it is read."""

    def __init__(
        self,
        query: _Query,
        stock: Stock,
        claims: Sequence[ResourceClaim],
        options: SearchOptions,
        within: Collection[str] | None,
    ) -> None:
        self._query = query
        self._stock = stock
        self._claims = tuple(claims)
        self._options = options
        self._results = dict(query.results)
        if within is not None:
            self._results = {name: result for name, result in query.results.items() if name in within}
        self._answers: dict[str, NodeAnswer] = {}

    def __getitem__(self, node: str) -> NodeAnswer:
        if node not in self._answers:
            result = self._results[node]
            self._answers[node] = self._query.answer(self._stock, node, result, self._claims, self._options)
        return self._answers[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def verdict(self, node: str) -> SearchVerdict:
        """Return the verdict for a node without composing its answer."""
        return self._results[node].verdict

    def refusal(self, node: str) -> str:
        """Return why a node cannot serve the claims, in kube-scheduler's form.

        A text that names none of the claims is kept for pods with equal claims, until the node changes.
        """
        is_current = self._stock is self._query.answered_stock
        if is_current and node in self._query.refusals:
            return self._query.refusals[node]
        answer = self[node]
        text = cannot_serve(answer)
        is_complete = answer.explained and answer.verdict is not SearchVerdict.UNDECIDED
        if is_current and is_complete and not any(claim.metadata.name in text for claim in self._claims):
            self._query.refusals[node] = text
        return text

    def kept_scores(self, placement: object) -> dict[str, float]:
        """Return the nodes' scores for these claims. The caller computes and adds them; a score is kept until its node changes."""
        return self._query.scores.setdefault(placement, {}) if self._stock is self._query.answered_stock else {}

    @property
    def feasible(self) -> list[str]:
        """The nodes that can serve the claims."""
        return [node for node, result in self._results.items() if result.verdict is SearchVerdict.FEASIBLE]

    def samples(self) -> dict[str, NodeAnswer]:
        """Compose one answer for each group of nodes that share a result. The key is the name of the group's first node."""
        first = {id(result): node for node, result in reversed(self._results.items())}
        return {node: self[node] for node in first.values()}

    def equal_nodes(self) -> list[list[str]]:
        """Group the nodes that share one result: if one node of a group refuses, all do, for the same reasons."""
        groups: dict[int, list[str]] = {}
        for node, result in self._results.items():
            groups.setdefault(id(result), []).append(node)
        return list(groups.values())


class _NodeSelection:
    """The nodes that a slice without a node name selects, once for the slice or once for each device.

    The selection depends only on a node's labels and name.
    """

    def __init__(self, page: Page) -> None:
        spec = page.slice.spec
        selecting_objects: tuple[ResourceSliceSpec | Device, ...] = (
            (spec, *page.devices) if spec.per_device_node_selection else (spec,)
        )
        selectors = [selecting.node_selector for selecting in selecting_objects if selecting.node_selector is not None]
        terms = [term for selector in selectors for term in selector.node_selector_terms]
        expressions = [requirement for term in terms for requirement in (*term.match_expressions, *term.match_fields)]
        labels = {match_expression.key for term in terms for match_expression in term.match_expressions}
        if any(selecting.node_name for selecting in selecting_objects) or any(term.match_fields for term in terms):
            labels.add("")  # the name of the node
        self.labels = tuple(sorted(labels))
        self.reach_by_labels: dict[tuple[str | None, ...], object] = {}
        # Steps for reading all selectors once, and for matching one node. A lookup among many values costs more, because the values are not
        # in the processor's caches.
        sizes = [len(expression.values) for expression in expressions]
        self.read_steps = sum(sizes) // 2
        self.match_steps = (
            len(selecting_objects) + len(expressions) + sum(size.bit_length() // 4 for size in sizes)
        ) // 2


class FleetMemo:
    """Results kept from one question and one stock (snapshot) to the next; owned by the caller.

    A memo keeps the results of the latest questions, the columns that these questions read, and what the caller derives from the answers.
    """

    def __init__(self) -> None:
        self._queries: dict[object, _Query] = {}
        self.pages = PageCache()
        self._selections: dict[Page, _NodeSelection] = {}
        self._selection_bytes = 0  # the approximate bytes of the selections
        # Encoded claims by the identity of their spec, which the entry keeps alive.
        self._texts: Cache[tuple[ResourceClaimSpec, bytes]] = Cache(_TEXTS)
        self._in_use: Cache[tuple[PoolUse, object]] = Cache(_IN_USE)
        self._stock: Stock | None = None
        self._conclusions: Cache[Any] = Cache(_CONCLUSIONS)
        self._concluded_from: Stock | None = None

    def __len__(self) -> int:
        return len(self._queries)

    def clear(self) -> None:
        self._queries.clear()
        self.pages = PageCache()
        self._selections.clear()
        self._texts.clear()
        self._in_use.clear()
        self._stock = None
        self._conclusions.clear()
        self._concluded_from = None

    def conclusions(self, stock: Stock) -> Cache[Any]:
        """Return a cache for what the caller derives from the answers about this stock. It is emptied when the stock changes."""
        if stock is not self._concluded_from:
            self._conclusions.clear()
            self._concluded_from = stock
        return self._conclusions

    def texts(self, claims: Sequence[ResourceClaim]) -> tuple[bytes, ...]:
        texts: list[bytes] = []
        for claim in claims:
            entry = self._texts.get(id(claim.spec))
            if entry is None:
                entry = claim.spec, encode(claim.spec)
                self._texts.put(id(claim.spec), entry, 4 * len(entry[1]))
            texts.append(entry[1])
        return tuple(texts)

    def query(self, stock: Stock, claims: Sequence[ResourceClaim], options: SearchOptions, *, idle: bool) -> _Query:
        """Return the kept query of a question, or a new one."""
        key = (
            self.texts(claims),
            tuple(map(id, stock.classes.values())),
            tuple(map(id, stock.compatibilities.values())),
            stock.reading,
            idle,
            options.steps,
            options.cuts,
        )
        kept_query = self._queries.pop(key, None)
        is_new = kept_query is None or kept_query.size > _SIZE
        if kept_query is None or is_new:
            kept_query = _Query(self, stock, claims, idle=idle)
        self._queries[key] = kept_query
        if is_new or stock is not self._stock:  # a kept query adds few entries while the stock is the same
            self._stock = stock
            size = sum(query.size for query in self._queries.values())
            while len(self._queries) > 1 and (size > _SIZE or len(self._queries) > _QUESTIONS):
                size -= self._queries.pop(next(iter(self._queries))).size
            self.pages.keep(stock.pages.values())
            shared = stock.pages_on.get("", ())
            if len(self._selections) > 2 * len(shared) + 64 or self._selection_bytes > _SELECTION_BYTES:
                self._selections.clear()
                self._selection_bytes = 0
        return kept_query

    def selection(self, page: Page, budget: Budget) -> _NodeSelection:
        """Return the node selection of a slice. Only the first call charges the steps for reading the slice's selectors."""
        selection_of_page = self._selections.get(page)
        if selection_of_page is None:
            selection_of_page = _NodeSelection(page)
            budget.charge(selection_of_page.read_steps)
            self._selections[page] = selection_of_page
        return selection_of_page

    def reach(self, page: Page, node: Node, budget: Budget) -> object:
        """Return False if a node can use no device of a slice, else a value that is equal for nodes that can use the same devices."""
        spec = page.slice.spec
        if spec.all_nodes and not spec.per_device_node_selection:
            return page.usable
        selection = self.selection(page, budget)
        labels, name = node.metadata.labels, node.metadata.name
        key = tuple([labels.get(label) if label else name for label in selection.labels])
        reachable = selection.reach_by_labels.get(key)
        if reachable is None:
            budget.charge(selection.match_steps)
            reachable = selection.reach_by_labels[key] = targets(page, node) and _reach(page, node)
            self._selection_bytes += 200 + len(page.devices)
        return reachable

    def in_use(self, pages: Sequence[Page], use: PoolUse) -> object:
        """Return the positions of the devices of a pool that are in use, and how."""
        key = id(use), *pages
        known = self._in_use.get(key)
        if known is None:
            positions = tuple(
                [
                    (
                        number,
                        index,
                        device.name in use.dedicated,
                        device.name in use.shared,
                        tuple(sorted(use.used.get(device.name, {}).items())),
                    )
                    for number, page in enumerate(pages)
                    for index, device in enumerate(page.devices)
                    if use.holds(device.name)
                ]
            )
            known = use, positions  # kept alive, because the key contains its identity
            self._in_use.put(key, known, _ENTRY * (1 + len(positions)))
        return known[1]

    def pools(self, stock: Stock, node: str, budget: Budget) -> list[Pool]:
        shared = stock.pages_on.get("", ())
        budget.charge(len(shared) // _SLICES_PER_STEP)
        node_object = stock.nodes[node]
        return stock.pools(node, [page for page in shared if self.reach(page, node_object, budget) is not False])


def fleet(
    stock: Stock,
    claims: Sequence[ResourceClaim],
    *,
    options: SearchOptions = DEFAULTS,
    idle: bool = False,
    memo: FleetMemo | None = None,
    within: Collection[str] | None = None,
) -> FleetAnswer:
    """Return the answer for each node, or for each node in `within`. With `idle`, answer as if no device were in use."""
    used_memo = memo if memo is not None else FleetMemo()
    query = used_memo.query(stock, claims, options, idle=idle)
    query.update(stock, options)
    return FleetAnswer(query, stock, claims, options, within)


def best_verdict(
    stock: Stock,
    claims: Sequence[ResourceClaim],
    *,
    options: SearchOptions = DEFAULTS,
    idle: bool = False,
    memo: FleetMemo,
    within: Collection[str] | None = None,
) -> SearchVerdict:
    """Return the best verdict of all nodes, or of those in `within`: feasible, else undecided, else infeasible (or an error).

    Reviews ask this about fleets of thousands of nodes, so it stops at the first feasible node and copies no results.
    """
    query = memo.query(stock, claims, options, idle=idle)
    query.update(stock, options)
    best = SearchVerdict.INFEASIBLE
    for name in query.results if within is None else within:
        result = query.results.get(name)
        if result is None:
            continue
        if result.verdict is SearchVerdict.FEASIBLE:
            return result.verdict
        if result.verdict is SearchVerdict.UNDECIDED:
            best = result.verdict
    return best


class _Query:
    """One question about successive stocks, with its results by fingerprint and by node."""

    def __init__(
        self,
        memo: FleetMemo,
        stock: Stock,
        claims: Sequence[ResourceClaim],
        *,
        idle: bool,
    ) -> None:
        self.memo = memo
        self.idle = idle
        # Kept alive, because the memo's keys contain the identities of these objects.
        self.compatibilities = tuple(stock.compatibilities.values())
        self.classes = tuple(stock.classes.values())
        self.fault: NodeResult | None = None
        self.results: dict[str, NodeResult] = {}
        self.refusals: dict[str, str] = {}  # by node: why it cannot serve the claims
        self.scores: dict[object, dict[str, float]] = {}  # by placement and node
        self.by_fingerprint: dict[object, NodeResult] = {}
        self.pinned: dict[int, object] = {}  # objects that fingerprints compare by identity
        self.answered_stock: Stock | None = None
        # Nodes without a result because the caller stopped waiting.
        self.unanswered: frozenset[str] = frozenset()
        self.signature = Signature()
        try:
            question = question_of(claims, stock)
        except AllocateError as error:
            self.fault = NodeResult(SearchVerdict.ERROR, error=str(error), cause=error.cause)
            question = question_of((), stock)
        self.cache = CompileCache(question, Rules(self.compatibilities), memo.pages)

    @property
    def size(self) -> int:
        by_node = len(self.results) + len(self.refusals) + sum(map(len, self.scores.values()))
        return self.cache.size + len(self.by_fingerprint) + by_node

    def update(self, stock: Stock, options: SearchOptions) -> None:
        """Update the results for this stock."""
        if stock is self.answered_stock and not self.unanswered:
            return
        try:
            reads = self.cache.reads(budget_of(options))
        except OutOfBudget as reason:
            self.results = dict.fromkeys(stock.nodes, NodeResult(SearchVerdict.UNDECIDED, error=str(reason)))
            self.answered_stock = None
            return
        changed = stock.changed_since(self.answered_stock) if self.answered_stock is not None else None
        is_outdated = len(self.by_fingerprint) > max(_FINGERPRINTS, 2 * len(stock.nodes))
        if changed is None:
            signature = signature_of(reads, stock.pages.values(), self.cache.pages)
            is_outdated = is_outdated or signature != self.signature
            self.signature = signature
        if is_outdated:
            self.by_fingerprint.clear()
            self.pinned.clear()
        unanswered: set[str] = set()
        is_abandoned = False
        for number, name in enumerate(self._due_nodes(stock, changed)):
            if options.budget is not None and number % _PIECE == 0:
                is_abandoned = is_abandoned or options.budget.is_abandoned()
            self.refusals.pop(name, None)
            for scores in self.scores.values():
                scores.pop(name, None)
            node = stock.nodes.get(name)
            if node is None:
                self.results.pop(name, None)
                continue
            self.results[name], is_final = (_UNSEEN, False) if is_abandoned else self._result_of(stock, node, options)
            if not is_final:
                unanswered.add(name)
        if changed is None:
            self.results = {name: self.results[name] for name in stock.nodes}
        self.answered_stock = stock
        self.unanswered = frozenset(unanswered)

    def _due_nodes(self, stock: Stock, changed: frozenset[str] | None) -> list[str]:
        """Return the nodes to search: all, or those that changed or have no result.

        Nodes with the most devices come last. All nodes share one budget, and a node that publishes false devices must not use it up
        before other nodes are searched.
        """
        return sorted(
            stock.nodes if changed is None else changed | self.unanswered,
            key=lambda name: sum(len(page.devices) for page in stock.pages_on.get(name, ())),
        )

    def _result_of(self, stock: Stock, node: Node, options: SearchOptions) -> tuple[NodeResult, bool]:
        """Return the result for a node, and whether it is final. With more time, a result that is not final may differ."""
        if self.fault is not None:
            return self.fault, True
        try:
            fingerprint: object = self._fingerprint_node(stock, node.metadata.name, node, options)
        except OutOfBudget:
            fingerprint = None  # a node whose fingerprint is too expensive is searched alone
        result = self.by_fingerprint.get(fingerprint)
        if result is not None:
            return result, True
        result = self._search(stock, node, options)
        budget_is_out = options.budget is not None and options.budget.is_out
        if result.verdict is SearchVerdict.UNDECIDED and budget_is_out:
            return result, False
        if fingerprint is not None:
            self.by_fingerprint[fingerprint] = result
        return result, True

    def _search(self, stock: Stock, node: Node, options: SearchOptions) -> NodeResult:
        try:
            pools = self.memo.pools(stock, node.metadata.name, budget_of(options))
        except NodeSelectorError as error:
            return NodeResult(SearchVerdict.ERROR, error=str(error))
        except OutOfBudget as reason:
            return NodeResult(SearchVerdict.UNDECIDED, error=str(reason))
        return search_node(self.cache, node, pools, (lambda _: FREE) if self.idle else stock.use, options)

    def answer(
        self,
        stock: Stock,
        name: str,
        result: NodeResult,
        claims: tuple[ResourceClaim, ...],
        options: SearchOptions,
    ) -> NodeAnswer:
        """Compose the answer for one node, with the names of its devices and of these claims."""
        answered = stock.idle() if self.idle else stock
        if result.verdict is SearchVerdict.ERROR:
            return decide(answered, name, claims, options)
        if result.verdict is SearchVerdict.INFEASIBLE:
            refused = NodeAnswer(result.verdict, steps=result.steps)
            return explain(refused, answered, name, claims, options)
        if result.verdict is SearchVerdict.UNDECIDED:
            return NodeAnswer(result.verdict, error=result.error, steps=result.steps)
        question = question_of(claims, stock)
        leaves = question.leaves
        candidates = candidates_of(stock.pools(name))
        with_device_names = msgspec.structs.replace(
            result,
            chosen=tuple(
                (leaves[leaf.index], candidates[index])
                for (leaf, _), index in zip(result.chosen, result.at, strict=True)
            ),
            selected=tuple(leaves[leaf.index] for leaf in result.selected),
        )
        return compose(question, stock.nodes[name], with_device_names)

    # ---- fingerprints

    def _fingerprint_node(self, stock: Stock, name: str, node: Node, options: SearchOptions) -> object:
        """Fingerprint a node for this question. Nodes with equal fingerprints get devices at the same positions."""
        own = stock.pages_on.get(name, ())
        shared = stock.pages_on.get("", ())
        if not shared and len(own) == 1 and _is_complete(own, stock.pages_of[own[0].pool]):
            return self._fingerprint_local_pool(stock, own, node, self._columns(options))
        budget = budget_of(options)
        budget.charge(len(shared) // _SLICES_PER_STEP)
        try:
            reach = {page: self.memo.reach(page, node, budget) for page in shared}
        except NodeSelectorError:
            return name
        pools: dict[PoolId, list[Page]] = {}
        for page in (*own, *[page for page in shared if reach[page] is not False]):
            pools.setdefault(page.pool, []).append(page)
        multi_node_pools: set[PoolId] = set()
        for pool, pages in pools.items():
            if not all(page.node_name for page in pages) or not _is_complete(pages, stock.pages_of[pool]):
                multi_node_pools.add(pool)
        columns = self._columns(options, exclusive=not multi_node_pools)
        fingerprints: list[object] = []
        for pool in sorted(pools, key=lambda id_: (id_[0].encode(), id_[1].encode())):
            pages = pools[pool]
            if pool not in multi_node_pools:
                fingerprints.append(self._fingerprint_local_pool(stock, pages, node, columns))
                continue
            # A pool that other nodes can use, too, is equal only to itself.
            identities = (*pages, stock.pages_of[pool], FREE if self.idle else stock.use(pool))
            self.pinned.update((id(pinned_object), pinned_object) for pinned_object in identities)
            skips = any(page.slice.spec.skip_node_operations for page in pages)
            has_feature = skips and NODE_FEATURE in node.status.declared_features
            fingerprints.append((tuple(map(id, identities)), tuple(map(reach.get, pages)), has_feature))
        return tuple(fingerprints)

    def _columns(self, options: SearchOptions, *, exclusive: bool = True) -> Columns:
        """Return the function that reads the columns of a page.

        With `exclusive`, values that constraints compare only within the node become numbers, so that nodes with different UUIDs can be
        equal. This requires that the node shares no pool with another node.
        """
        signature, page_cache = self.signature, self.cache.pages
        if not signature.selectors and not signature.within:
            return lambda page: page_cache.columns(page, signature.names)
        budget, numbers = budget_of(options), dict[object, int]()

        def columns(page: Page) -> list[tuple[object, ...]]:
            within = page_cache.columns(page, signature.within)
            return [
                *page_cache.columns(page, signature.names),
                *selector_results(page, signature.selectors, budget),
                *(numbered(within, numbers) if exclusive else within),
            ]

        return columns

    def _fingerprint_local_pool(self, stock: Stock, pages: Sequence[Page], node: Node, columns: Columns) -> object:
        """Fingerprint the content of a pool that only this node can use."""
        first = pages[0]
        use = FREE if self.idle else stock.use(first.pool)
        in_use = None if use is FREE else self.memo.in_use(pages, use)
        if len(pages) == 1:
            return (*self._fingerprint_page(first, node, columns), in_use)
        order = sorted(range(len(pages)), key=[page.name.encode() for page in pages].__getitem__)
        names = [device.name for page in pages for device in page.devices]
        fingerprints = [self._fingerprint_page(page, node, columns) for page in pages]
        return tuple(order), len(set(names)) == len(names), *fingerprints, in_use

    def _fingerprint_page(self, page: Page, node: Node, columns: Columns) -> tuple[object, ...]:
        spec = page.slice.spec
        fingerprint: object = page.content
        if spec.skip_node_operations or spec.per_device_node_selection:
            fingerprint = fingerprint, NODE_FEATURE in node.status.declared_features, _reach(page, node)
        return fingerprint, *columns(page)


def _is_complete(pages: Sequence[Page], whole: Sequence[Page]) -> bool:
    """Whether these pages decide the pool's status for the node, whatever the pool's other pages are (`dra.stock.pool.gather`)."""
    if len(pages) == len(whole):
        return True
    one_generation = len({page.generation for page in pages}) == 1
    return one_generation and len(pages) == pages[0].slice.spec.pool.resource_slice_count


def _reach(page: Page, node: Node) -> object:
    if not page.slice.spec.per_device_node_selection:
        return True
    try:
        return bytes([reaches(device, node) for device in page.devices])
    except NodeSelectorError:
        return node.metadata.name
