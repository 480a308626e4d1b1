"""How much of a device's capacity a request consumes (KEP-5075), with the rounding of its requestPolicy.

This module mirrors k8s.io/dynamic-resource-allocation/structured/internal/experimental/consumable_capacity.go.
`fractional` says whether the feature gate DRAFractionalCapacityRange is on. A CapacityError fails the scheduling
attempt; the result None only rules out the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.errors import CapacityError
from dra.quantity import MAX, NANO, Quantity, wrap64

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.objects import CapacityRequestPolicyRange, DeviceCapacity

_MILLI = NANO // 1000


def charges(
    requests: Mapping[str, Quantity], capacities: Mapping[str, DeviceCapacity], *, fractional: bool = True
) -> dict[str, Quantity] | None:
    """Return what a request consumes of each capacity of a device; None if the device or a policy does not allow it."""
    if not requests.keys() <= capacities.keys():
        return None
    amounts = {
        name: charge(requests.get(name), capacity, fractional=fractional) for name, capacity in capacities.items()
    }
    for name, amount in amounts.items():
        if amount.nano < 0:
            raise CapacityError(f"capacity {name!r}: {amount} is negative")
    for name, capacity in capacities.items():
        policy, amount = capacity.request_policy, amounts[name]
        if policy is None or (policy.default is not None and amount.identical(policy.default)):
            continue
        valid = policy.valid_range
        if valid is None:
            if policy.valid_values and amount not in policy.valid_values:
                return None
            continue
        if valid.max is not None and amount > valid.max:
            return None
        if valid.step is None:
            continue
        if valid.min is None:
            raise CapacityError("the device's range has a step but no minimum")
        if fractional and _uses_milli(valid):
            fits = _is_milli(amount) and (amount.milli() - valid.min.milli()) % valid.step.milli() == 0
        else:
            step = valid.step.value()
            if step == 0:
                raise CapacityError("the device's range has a step of zero")
            fits = (amount.value() - valid.min.value()) % step == 0
        if not fits:
            return None
    return amounts


def charge(request: Quantity | None, capacity: DeviceCapacity, *, fractional: bool = True) -> Quantity:
    """Return what is consumed of one capacity: the request rounded by the policy, or the default without a request."""
    policy = capacity.request_policy
    if request is None:
        if policy is None or policy.default is None:
            return capacity.value
        return policy.default
    if policy is None:
        return request
    valid = policy.valid_range
    if valid is None or valid.min is None:
        for value in policy.valid_values:
            if request <= value:
                return value
        return request
    # Round up to the next step above the minimum.
    low = valid.min
    if request < low:
        return low
    if valid.step is None:
        return request
    step_format = valid.step.format
    if fractional and _uses_milli(valid):
        if not _is_milli(request):
            raise CapacityError(f"request {request} cannot be counted in thousandths, which the device's range needs")
        rounded = _next_step(request, request.milli(), low.milli(), valid.step.milli(), negative_low_is_checked=True)
        return Quantity.from_nano(rounded * _MILLI, step_format)
    if request.nano > MAX * NANO:
        raise CapacityError(f"request {request} is larger than the range arithmetic can count")
    rounded = _next_step(request, request.value(), low.value(), valid.step.value(), negative_low_is_checked=False)
    return Quantity.from_int(wrap64(rounded), step_format)


def _next_step(request: Quantity, amount: int, low: int, step: int, *, negative_low_is_checked: bool) -> int:
    if step == 0:
        raise CapacityError("the device's range has a step of zero")
    added = wrap64(amount - low)
    steps = _divide(added, step)
    if added - steps * step:
        steps += 1
    if (low >= 0 or negative_low_is_checked) and steps > _divide(wrap64(MAX - low), step):
        raise CapacityError(f"request {request} rounded up to the next step is larger than can be counted")
    return wrap64(low + step * steps)


def _uses_milli(valid: CapacityRequestPolicyRange) -> bool:
    """Whether steps are computed in thousandths: all bounds are whole thousandths, and the step is at least one."""
    bounds = [bound for bound in (valid.min, valid.max, valid.step) if bound is not None]
    return all(_is_milli(bound) for bound in bounds) and (valid.step is None or valid.step.milli() >= 1)


def _is_milli(quantity: Quantity) -> bool:
    return quantity.milli() * _MILLI == quantity.nano


def _divide(left: int, right: int) -> int:
    """Divide towards zero, as Go does."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient
