"""How much would fit: the largest number, or amount of a capacity, for which a question is still answered with yes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.reasons import relax
from dra.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocator.reasons.relax import Claims, Spot


def largest(top: int, fits: Callable[[int], bool]) -> int:
    """Find the largest number from 1 to top that fits, if the smallest does; 0 if not even that one."""
    if top < 1 or not fits(1):
        return 0
    low, high = 1, top + 1
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def largest_amount(
    claims: Claims, spot: Spot, name: str, below: Quantity, fits: Callable[[Claims], bool]
) -> Quantity | None:
    """Find the most of a capacity, less than an amount, that a request could ask for; None if not even the least."""
    step = relax.grain(below)

    def of(steps: int) -> Quantity:
        return Quantity.from_nano(steps * step, below.format)

    def fits_with(steps: int) -> bool:
        smaller = relax.with_amount(claims, spot, name, of(steps))
        return fits(smaller)

    most = (below.nano - 1) // step
    steps = largest(most, fits_with)
    return of(steps) if steps else None
