"""`compatibleOnlyWith` inside a device, as a proposal for Kubernetes has it. Kubernetes has no such field and drops it.

The finding contains an equivalent DeviceCompatibility with the same expression, and with a selector that selects exactly the devices
that have the field. CEL cannot read the names of devices, so the selector has to read an attribute.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from dra.finding import Finding, Findings, finding_at
from dra.pointer import member
from dra.raw import Object, inside, mapping

if TYPE_CHECKING:
    from collections.abc import Sequence


FIELD: Final = "compatibleOnlyWith"
_MAX_DEVICES: Final = 1024
_MAX_RULES: Final = 16
_MAX_VALUES: Final = 8
_KINDS: Final = {
    "string": '""',
    "int": "0",
    "bool": "false",
}  # kinds of attributes, and the default if a device has no value
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_NO_LABEL: Final = re.compile(r"[^a-z0-9]+")


def is_inline_rule(problem: Finding) -> bool:
    """Return whether a finding is about the unknown field compatibleOnlyWith of a device."""
    parts = problem.path.split("/")
    return problem.code == "D002" and len(parts) == 5 and parts[1:3] == ["spec", "devices"] and parts[4] == FIELD


def inline_rules(slice_: Object) -> Findings:
    """Report each rule of a slice, with the equivalent DeviceCompatibility. Equal rules of several devices are reported once."""
    spec = slice_.get("spec") or {}
    driver = str(spec.get("driver") or "")
    listed = spec.get("devices") or ()
    devices = list(map(mapping, listed[:_MAX_DEVICES]))
    carriers: dict[str, list[int]] = {}
    for index, device in enumerate(devices):
        if FIELD in device:
            rule = device[FIELD]
            expression = rule.get("expression") if isinstance(rule, dict) else rule  # the form in the proposal
            carriers.setdefault(expression if isinstance(expression, str) else "", []).append(index)
    for number, (expression, group) in enumerate(carriers.items()):
        if number == _MAX_RULES:
            return
        first_index = group[0]
        name = devices[first_index].get("name")
        other_count = len(group) - 1
        others_text = f" (and {other_count} more of the slice)" if other_count else ""
        message = f"{name!r}{others_text} has a rule that the API server drops: a slice has no such field"
        remedy = _remedy(driver, expression, devices, group, number)
        path = member(f"/spec/devices/{first_index}", FIELD)
        yield finding_at("D506", path, message, remedy)


def _remedy(driver: str, expression: str, devices: Sequence[Object], group: Sequence[int], number: int) -> str:
    if not expression:
        return f"write the expression into {FIELD} of a DeviceCompatibility"
    selector = _selector(driver, devices, set(group))
    if selector is None:
        return (
            f"write a DeviceCompatibility; no attribute tells {'these devices' if len(group) > 1 else 'this device'} from the "
            "others of the slice, so have the driver publish one that its selector can read"
        )
    selector_field = {"selector": selector} if selector else {}
    spec = {"driver": driver, **selector_field, "compatibleOnlyWith": expression}
    label = _NO_LABEL.sub("-", driver.lower()).strip("-") or "driver"
    compatibility = {
        "apiVersion": "drawbridge.dev/v1alpha1",
        "kind": "DeviceCompatibility",
        "metadata": {"name": f"{label}-{number}"},
        "spec": spec,
    }
    return f"apply this instead: {msgspec.json.encode(compatibility).decode()}"


def _selector(driver: str, devices: Sequence[Object], group: set[int]) -> str | None:
    """Return a selector for a group of a slice's devices; "" if the group has all devices, None if no attribute tells them apart."""
    if len(group) == len(devices):
        return ""
    first = mapping(devices[min(group)].get("attributes"))
    readable = [name for name in map(str, first) if _NAME.fullmatch(name.rpartition("/")[2])]
    for name, kind in ((name, kind) for name in readable for kind in _KINDS if kind in mapping(first.get(name))):
        group_values: dict[str, None] = {}
        other_values: set[str] = set()
        none = _KINDS[kind]
        for index, device in enumerate(devices):
            attribute = inside(device, "attributes", name)
            # The value in the syntax of CEL, or the default if the device has no attribute of this kind.
            value = msgspec.json.encode(attribute[kind]).decode() if kind in attribute else none
            if index in group:
                group_values[value] = None
            else:
                other_values.add(value)
        if none not in group_values and other_values.isdisjoint(group_values) and len(group_values) <= _MAX_VALUES:
            domain, _, bare = name.rpartition("/")
            read = f'device.attributes["{domain or driver}"].?{bare}.orValue({none})'
            literals = ", ".join(group_values)
            return f"{read} == {literals}" if len(group_values) == 1 else f"{read} in [{literals}]"
    return None
