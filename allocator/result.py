"""Converts a solution of the search into allocations: results, configuration and node selector, as the in-tree allocator composes them
(end of `Allocate` and `createNodeSelector` in allocator_experimental.go).
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from allocator.answer import AllocateError, Granted
from dra.objects import (
    AllocationResult,
    Device,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.problem import DeviceCandidate, Leaf, Question
    from dra.objects import DeviceClaimConfiguration, DeviceClass, DeviceClassConfiguration, ResourceClaim
    from dra.stock import SliceReading


_UNCONDITIONAL = Device(name="")


def grant(
    question: Question,
    chosen: Sequence[tuple[Leaf, DeviceCandidate]],
    selected: Sequence[Leaf],
    node: str,
) -> tuple[Granted, ...]:
    """Return one allocation for each claim.

    A leaf is an exact request, or one alternative of a firstAvailable request. `selected` has the leaf that is used for each request.
    """
    by_claim: list[list[tuple[Leaf, DeviceCandidate]]] = [[] for _ in question.claims]
    for leaf, candidate in chosen:
        by_claim[leaf.claim].append((leaf, candidate))
    return tuple(
        Granted(
            claim.metadata.key,
            AllocationResult(
                devices=DeviceAllocationResult(
                    results=tuple(_result(claim, choice, question.reading) for choice in by_claim[index]),
                    config=_config(claim, [leaf for leaf in selected if leaf.claim == index], question.reading),
                ),
                node_selector=_node_selector(
                    claim, [candidate for _, candidate in by_claim[index]], node, question.reading
                ),
            ),
        )
        for index, claim in enumerate(question.claims)
    )


def _result(
    claim: ResourceClaim, choice: tuple[Leaf, DeviceCandidate], reading: SliceReading
) -> DeviceRequestAllocationResult:
    leaf, candidate = choice
    device = candidate.device
    consumed = reading.charges(leaf.ask.capacity, device, candidate.pool.id[0]) if candidate.multi else None
    conditions = device if reading.binding else _UNCONDITIONAL
    share_id = None
    if candidate.multi:
        # The seed is unique to this result and not random, so that equal questions get equal share IDs.
        seed = "\0".join((claim.metadata.uid, claim.metadata.key, leaf.name, *candidate.id))
        digest = sha256(seed.encode()).hexdigest()
        variant = "89ab"[int(digest[16], 16) % 4]
        share_id = f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"
    return DeviceRequestAllocationResult(
        request=leaf.name,
        driver=candidate.pool.id[0],
        pool=candidate.pool.id[1],
        device=device.name,
        admin_access=True if leaf.admin else None,
        tolerations=() if reading.early else leaf.tolerations,
        binding_conditions=conditions.binding_conditions or (),
        binding_failure_conditions=conditions.binding_failure_conditions or (),
        share_id=share_id,
        consumed_capacity=consumed or {},
        skip_node_operations=candidate.page.slice.spec.skip_node_operations if reading.operations else (),
    )


# ---- configuration


def _config(
    claim: ResourceClaim, selected: list[Leaf], reading: SliceReading
) -> tuple[DeviceAllocationConfiguration, ...]:
    entries: list[DeviceAllocationConfiguration] = []
    classes: dict[str, DeviceClass] = {}
    names_of: dict[str, list[str]] = {}
    request_names: set[str] = set()
    for leaf in selected:
        class_name = leaf.class_.metadata.name
        classes[class_name] = leaf.class_
        names_of.setdefault(class_name, []).append(leaf.name)
        request_names.update(_names(leaf))
    for class_name, class_ in classes.items():
        requests = tuple(names_of[class_name])
        entries += [_entry("FromClass", requests, of_class) for of_class in class_.spec.config]
    for config in claim.spec.devices.config:
        times = 1
        if config.requests and not reading.since(37):  # older allocators write an entry once for each of its requests
            times = sum(1 for leaf in selected if set(_names(leaf)).intersection(config.requests))
        if not config.requests or request_names.intersection(config.requests):
            entries += [_entry("FromClaim", config.requests, config)] * times
    if reading.since(37):
        # A list of all requests is written as an empty list, which has the same meaning.
        for index, entry in enumerate(entries):
            if entry.requests and all(set(_names(leaf)).intersection(entry.requests) for leaf in selected):
                entries[index] = DeviceAllocationConfiguration(source=entry.source, opaque=entry.opaque)
    return tuple(entries)


def _names(leaf: Leaf) -> tuple[str, str]:
    """Return the names by which a configuration may refer to the request of a leaf."""
    return leaf.name.partition("/")[0], leaf.name


def _entry(
    source: str, requests: tuple[str, ...], config: DeviceClassConfiguration | DeviceClaimConfiguration
) -> DeviceAllocationConfiguration:
    return DeviceAllocationConfiguration(source=source, requests=requests, opaque=config.opaque)


# ---- node selector


def _node_selector(
    claim: ResourceClaim, candidates: list[DeviceCandidate], node: str, reading: SliceReading
) -> NodeSelector | None:
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for candidate in candidates:
        spec, device = candidate.page.slice.spec, candidate.device
        holder = device if spec.per_device_node_selection else spec
        if holder.node_name is not None or (device.binds_to_node and not reading.stable):
            only = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(only,)),))
        terms = holder.node_selector.node_selector_terms if holder.node_selector is not None else ()
        if len(terms) > 1:
            raise AllocateError(
                f"ResourceClaim/{claim.metadata.key}",
                f"the node selector of {candidate} has {len(terms)} terms, but an allocation can have only one",
            )
        for term in terms:
            _add(fields, term.match_fields)
            _add(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(term,))


def _add(requirements: list[NodeSelectorRequirement], added: tuple[NodeSelectorRequirement, ...]) -> None:
    for requirement in added:
        if not any(
            requirement.key == existing.key
            and requirement.operator == existing.operator
            and set(requirement.values) == set(existing.values)
            for existing in requirements
        ):
            requirements.append(requirement)
