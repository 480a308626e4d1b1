"""Another amount for a claim that has devices already. An allocation is written once, so the answer is a plan to replace the claim.

Nothing is held by asking. The new claim is tried twice: where the old one is, as if that had ended; and on all nodes while it still holds
what it holds, so that a new pod can run before the old one ends. A replacement that does not fit is answered with the most that would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator import allocate
from allocator.all_nodes import fleet
from allocator.one_node import Options
from allocator.pods import claim_obstacle
from allocator.reasons import largest_amount, spots, with_amount
from dra import step_limits
from dra.budget import Budget
from dra.objects import ResourceClaim, ResourceClaimStatus
from dra.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from allocator.reasons import RequestPosition
    from dra.stock import Stock

Claims = tuple[ResourceClaim, ...]
NODES = 16  # that are named


class Replacement(msgspec.Struct, frozen=True):
    """What would become of a claim that asks for other amounts."""

    claim: ResourceClaim
    node: str  # where the old one is
    fits: bool  # there, once the old one has ended
    nodes_beside_old: tuple[str, ...]  # nodes on which it fits while the old one still holds what it holds
    largest: dict[str, Quantity] = {}  # the most of each capacity that would fit there, where the amounts do not


class Unreplaceable(Exception):  # noqa: N818  an answer to the caller
    """Why there is nothing to plan."""


def plan_replacement(stock: Stock, key: str, request: str, amounts: Mapping[str, Quantity]) -> Replacement:
    """Plan for a claim, by namespace/name, whose request is to have other amounts."""
    old = stock.claims.get(key)
    if old is None:
        raise Unreplaceable(f"claim {key} does not exist")
    if old.status.allocation is None:
        raise Unreplaceable(f"claim {key} has no devices yet: change its requests")
    nodes = [name for name, node in stock.nodes.items() if not claim_obstacle([old], node)]
    if not nodes:
        raise Unreplaceable(f"the node that claim {key} is allocated on does not exist any more")
    node = nodes[0]
    without = stock.without("ResourceClaim", key)
    options = Options(budget=Budget(step_limits.REPLACEMENT))

    def fits(claims: Claims) -> bool:
        return allocate(without, node, claims, options=options).feasible

    replacements: Claims = (replace(old, status=ResourceClaimStatus()),)
    for name, amount in amounts.items():
        replacements = with_amount(replacements, _spot_of(replacements, request), name, amount)
    if fits(replacements):
        feasible = fleet(stock, replacements, options=options).feasible
        return Replacement(replacements[0], node, True, tuple(feasible[:NODES]))
    largest: dict[str, Quantity] = {}
    for name, amount in amounts.items():
        most = largest_amount(replacements, _spot_of(replacements, request), name, amount, fits)
        if most is not None:
            largest[name] = most
    return Replacement(replacements[0], node, False, (), largest)


def _spot_of(claims: Claims, request: str) -> RequestPosition:
    for spot in spots(claims):
        if spot.name == request:
            return spot
    raise Unreplaceable(f"the claim has no request {request}")
