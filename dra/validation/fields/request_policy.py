"""Request policies, which limit the amounts of a shared capacity that can be requested (validateRequestPolicy).

The valid amounts of a range are `min` and the steps above it. If the feature gate DRAFractionalCapacityRange is on and a bound has a
fraction, the API server computes in thousandths.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from dra.finding import Findings, finding_at
from dra.quantity import MAX, NANO, Quantity
from dra.validation.fields.limits import too_many

if TYPE_CHECKING:
    from dra.objects import CapacityRequestPolicyRange, DeviceCapacity

_MILLI = NANO // 1000


def request_policy(capacity: DeviceCapacity, path: str, *, fractional: bool) -> Findings:
    """Judge the policy of a capacity that several requests may share."""
    policy = capacity.request_policy
    if policy is None:
        return
    if policy.valid_values and policy.valid_range is not None:
        yield finding_at("D107", path, "only one of validValues and validRange may be set")
        return
    if not policy.valid_values and policy.valid_range is None:
        return
    default, value = policy.default, capacity.value
    if default is None:
        kind = "validValues" if policy.valid_values else "validRange"
        yield finding_at("D101", f"{path}/default", f"default is required with {kind}")
    elif policy.valid_range is not None:
        yield from _range(policy.valid_range, default, value, f"{path}/validRange", fractional=fractional)
    else:
        path, options = f"{path}/validValues", policy.valid_values
        for index, (option, later) in enumerate(pairwise(options)):
            if option > later:
                yield finding_at("D113", f"{path}/{index + 1}", f"{later} after {option}: the values must ascend")
        if len(options) > 10:
            yield from too_many(options, 10, path)
            return
        for index, option in enumerate(options):
            if option > value:
                yield finding_at("D113", f"{path}/{index}", f"{option} is more than the capacity {value}")
        for index, (option, later) in enumerate(pairwise(options)):
            if _digits(option) == _digits(later) if fractional else option.value() == later.value():
                yield finding_at("D105", f"{path}/{index + 1}", f"value {later} is given twice")
        if default not in options:
            yield finding_at("D113", path, f"the default {default} is not among the values")


def _digits(option: Quantity) -> object:
    """Return the decimal digits of an amount. The API server compares the digits, so 1 and 1000m are two values."""
    mantissa, power, _ = option._parts  # noqa: SLF001  the digits as they were written show nowhere else
    return (mantissa * 10**power, 0) if power >= 0 else (mantissa, power)


def _range(
    bounds: CapacityRequestPolicyRange, default: Quantity, value: Quantity, path: str, *, fractional: bool
) -> Findings:
    low, high, step = bounds.min, bounds.max, bounds.step
    if low is None:
        yield finding_at("D101", f"{path}/min", "min is required in a validRange")
        return
    if low > value:
        yield finding_at("D113", f"{path}/min", f"min {low} is more than the capacity {value}")
    if default < low:
        yield finding_at("D113", f"{path}/default", f"the default {default} is less than min {low}")
    if high is not None:
        if low > high:
            yield finding_at("D113", f"{path}/max", f"min {low} is more than max {high}")
        if high > value:
            yield finding_at("D113", f"{path}/max", f"max {high} is more than the capacity {value}")
        if default > high:
            yield finding_at("D113", f"{path}/default", f"the default {default} is more than max {high}")
    named_amounts = [(q, name) for q, name in ((default, "default"), (low, "min"), (high, "max")) if q is not None]
    with_step = named_amounts if step is None else [*named_amounts, (step, "step")]
    in_milli = fractional and any(q.nano % NANO for q, _ in with_step)
    if in_milli:
        unsafe = [name for q, name in with_step if q.nano % _MILLI or not -MAX - 1 <= q.nano // _MILLI <= MAX]
        for name in unsafe:
            yield finding_at("D113", f"{path}/{name}", f"{name} cannot be expressed in thousandths of a unit")
        if unsafe:
            return
    if step is None:
        return
    # The default and `max` must be whole steps above `min`.
    if step.nano <= 0:
        yield finding_at("D113", f"{path}/step", "step must be greater than zero")
        return
    if low + step > value:
        yield finding_at("D113", f"{path}/step", f"min {low} and one step {step} are more than the capacity {value}")
    if not in_milli:
        unsafe = [name for q, name in with_step if not 0 <= q.nano <= MAX * NANO]
        for name in unsafe:
            yield finding_at("D113", f"{path}/{name}", f"{name} must lie between 0 and {MAX}")
        if unsafe:
            return
    count = Quantity.milli if in_milli else Quantity.value
    for amount, name in named_amounts:
        if name != "min" and (count(amount) - count(low)) % count(step):
            yield finding_at("D113", f"{path}/step", f"{amount} is not a multiple of step {step} from min {low}")
