"""The value of `device` in a selector, prepared once for any number of evaluations.

An attribute or capacity without a domain in its name is in the driver's domain. If a device has the same name both with
and without the driver's domain, Go picks one of the two at random (map order). Here the name with the domain wins, as
it does for constraints.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

from dra.cel.device_fields import SLOTS
from dra.cel.values import Domains, Value
from dra.errors import SelectorRunError, SemverError
from dra.semver import Version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.objects import Device, DeviceAttribute
    from dra.quantity import Quantity


_FIELDS_OF: Final = itemgetter(*SLOTS)


class DeviceView:
    """The value of `device`. If no selector can be evaluated on the device, `broken` is the reason."""

    __slots__ = ("broken", "slots")

    def __init__(
        self,
        driver: str,
        attributes: Mapping[str, Mapping[str, Value]],
        capacity: Mapping[str, Mapping[str, Quantity]],
        allow_multiple: bool = False,
        *,
        broken: str | None = None,
    ) -> None:
        """Take attributes and capacities by domain and name."""
        domains, amounts = Domains(attributes), Domains(capacity)  # type: ignore[arg-type]  # inner maps are only read
        whole = {
            "driver": driver,
            "allowMultipleAllocations": allow_multiple,
            "attributes": domains,
            "capacity": amounts,
        }
        # These are the first slots of an evaluation's frame: the fields, then the device itself.
        self.slots = (*_FIELDS_OF(whole), whole)
        self.broken = broken

    @property
    def driver(self) -> str:
        return str(self.slots[SLOTS["driver"]])


class TextView:
    """The value of `value` in a TEXT expression, of at most `MAX_TEXT` characters."""

    __slots__ = ("broken", "slots")

    def __init__(self, text: str) -> None:
        # `value` takes the slot of the device.
        self.slots: tuple[Value, ...] = (*[None] * len(SLOTS), text)
        self.broken: str | None = None


def view_of(driver: str, device: Device, *, lenient: bool = False) -> DeviceView:
    """Prepare the view of one published device.

    Kubernetes 1.38 is `lenient`: an attribute without a supported value is missing; in older versions, every selector fails.
    """
    broken = None
    attributes: dict[str, dict[str, Value]] = {}
    for name, attribute in device.attributes.items():
        domain, slash, id_ = name.partition("/")
        try:
            value = _value(attribute)
        except SelectorRunError as error:
            if not lenient:
                broken = broken or f"attribute {name}: {error}"
            continue
        if slash:
            attributes.setdefault(domain, {})[id_] = value
        else:
            attributes.setdefault(driver, {}).setdefault(name, value)
    capacity: dict[str, dict[str, Quantity]] = {}
    for name, amount in device.capacity.items():
        domain, slash, id_ = name.partition("/")
        if slash:
            capacity.setdefault(domain, {})[id_] = amount.value
        else:
            capacity.setdefault(driver, {}).setdefault(name, amount.value)
    return DeviceView(driver, attributes, capacity, bool(device.allow_multiple_allocations), broken=broken)


def _value(attribute: DeviceAttribute) -> Value:
    # Go takes the first field that is set: lists come first, then scalars.
    for values in (attribute.ints, attribute.bools, attribute.strings):
        if values is not None:
            return list(values)
    if attribute.versions is not None:
        return [_version(text) for text in attribute.versions]
    for value in (attribute.int_, attribute.bool_, attribute.string):
        if value is not None:
            return value
    if attribute.version is not None:
        return _version(attribute.version)
    raise SelectorRunError("unsupported attribute value")


def _version(text: str) -> Version:
    try:
        return Version.parse(text)
    except SemverError as error:
        raise SelectorRunError(f"parse semantic version: {error}") from None
