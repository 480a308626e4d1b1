"""Marks: plans the DeviceTaintRules for devices that a device plugin's pods hold.

A mark is a DeviceTaintRule for one device with the effect NoSchedule: allocators that support taints skip the device, and its holder keeps
it. An annotation lists the plugin devices because of which the mark exists. The mark stays until no container has these plugin devices, even
while slices are missing, because a kubelet deletes the slices when it starts. The node owns its marks, so they are deleted with the node. An
agent that stops does not delete its marks, because the plugin's pods still run. Each mark has the time of its last renewal, and
`drawbridge doctor` reports marks that are no longer renewed.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from dra.objects import DeviceTaintRule
from node.audit.findings import MAX_FINDINGS, FindingKind, NodeFinding, contradiction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.objects import Node
    from node.audit.snapshot import NodePluginDevice
    from node.hardware import DeviceId, Hardware

HELD_BY_PLUGIN = "drawbridge.dev/device-plugin"  # the taint's key
MARKED_ON = "drawbridge.dev/marked-on"  # a label: the hash of the node's name
HOLDS = "drawbridge.dev/held-as"  # an annotation: the plugin devices, as RESOURCE ID, one per line
SEEN = "drawbridge.dev/seen"  # an annotation: when an agent last renewed the mark
RENEWAL_INTERVAL = timedelta(minutes=10)
MAX_HOLDS = 16  # plugin devices that a mark names; a card can have many replicas
MAX_MARKS = 1024  # marks on one node: every scheduler reads all marks of the cluster
_HASH_DIGITS = 20
Holds = frozenset[str]
Renewal = tuple[str, dict[str, Any]]  # the rule's name, and the merge patch


class MarkPlan(msgspec.Struct, frozen=True):
    new: tuple[dict[str, Any], ...] = ()
    renewed: tuple[Renewal, ...] = ()
    deleted: tuple[DeviceTaintRule, ...] = ()
    frees_names: bool = False  # whether the next round must create a mark with the name of a deleted mark

    @property
    def is_empty(self) -> bool:
        return not (self.new or self.renewed or self.deleted)


def marks_of(plugin_devices: Iterable[NodePluginDevice], hardware: Hardware) -> dict[DeviceId, Holds]:
    """Map each published device that claims must not use to the plugin devices that exclude it."""
    holds_by_device: defaultdict[DeviceId, set[str]] = defaultdict(set)
    for plugin_device in plugin_devices:
        for device_id in hardware.excluded_by_plugin(plugin_device.resource, plugin_device.id):
            holds_by_device[device_id].add(str(plugin_device))
    return {device_id: frozenset(sorted(holds)[:MAX_HOLDS]) for device_id, holds in holds_by_device.items()}


def hash_of(node: str) -> str:
    """Return a hash of a node's name, because a label value cannot be as long as the name."""
    return sha256(node.encode()).hexdigest()[:_HASH_DIGITS]


def plan(
    owner: Node,
    holds_by_device: Mapping[DeviceId, Holds],
    plugin_devices: Iterable[NodePluginDevice],
    existing: Iterable[DeviceTaintRule],
    now: datetime,
) -> MarkPlan:
    """Plan the writes that bring a node's marks up to date. A mark of `plugin_devices` stays even while slices are missing."""
    metadata = owner.metadata
    marks: dict[str, tuple[DeviceId, Holds]] = {}
    for device_id, holds in holds_by_device.items():
        if device_id.pool == metadata.name:
            name = f"drawbridge-held-{device_id.device}-{hash_of(str(device_id))}"
            marks[name] = device_id, holds
    current = frozenset(str(plugin_device) for plugin_device in plugin_devices)
    renewed: list[Renewal] = []
    deleted: list[DeviceTaintRule] = []
    existing_names: set[str] = set()
    for rule in existing:
        name = rule.metadata.name
        existing_names.add(name)
        annotated_holds = frozenset(rule.metadata.annotations.get(HOLDS, "").splitlines())
        marked_device, holds = marks.get(name, (None, annotated_holds & current))
        selector, taint, renewed_at = rule.spec.device_selector, rule.spec.taint, seen_at(rule)
        # While slices are missing, it is not known whether a rule selects the right device.
        is_valid = (
            selector is not None
            and (taint.key, taint.effect) == (HELD_BY_PLUGIN, "NoSchedule")
            and (marked_device is None or (selector.driver, selector.pool, selector.device) == marked_device)
        )
        if not holds or not is_valid:
            deleted.append(rule)
        elif holds != annotated_holds or renewed_at is None or now - renewed_at >= RENEWAL_INTERVAL or renewed_at > now:
            renewed.append((name, {"metadata": {"annotations": _annotations(holds, now)}}))
    new: list[dict[str, Any]] = []
    for name in sorted(marks.keys() - existing_names):
        device_id, holds = marks[name]
        rule_metadata = {
            "name": name,
            "labels": {MARKED_ON: hash_of(metadata.name), "app.kubernetes.io/name": "drawbridge"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": metadata.name, "uid": metadata.uid}],
            "annotations": _annotations(holds, now),
        }
        spec = {
            "deviceSelector": device_id._asdict(),
            "taint": {"key": HELD_BY_PLUGIN, "value": "held", "effect": "NoSchedule"},
        }
        new.append(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceTaintRule",
                "metadata": rule_metadata,
                "spec": spec,
            }
        )
    frees_names = any(rule.metadata.name in marks for rule in deleted)
    return MarkPlan(tuple(new), tuple(renewed), tuple(deleted), frees_names=frees_names)


def markable(node: str, marks: Mapping[DeviceId, Holds]) -> dict[DeviceId, Holds]:
    """Return the devices to mark: those of this node's pool, at most MAX_MARKS."""
    own_pool = [device_id for device_id in sorted(marks) if device_id.pool == node]
    return {device_id: marks[device_id] for device_id in own_pool[:MAX_MARKS]}


def unmarkable(node: str, marks: Mapping[DeviceId, Holds], *, served: bool) -> tuple[NodeFinding, ...]:
    """Return a finding for each device that should be marked and cannot be marked."""
    devices_to_mark = markable(node, marks) if served else {}
    unmarked = sorted(marks.keys() - devices_to_mark.keys())
    findings: list[NodeFinding] = []
    for device_id in unmarked[:MAX_FINDINGS]:
        if not served:
            reason, remedy = "this API server has no DeviceTaintRules", "turn the feature gate DRADeviceTaintRules on"
        elif device_id.pool != node:
            reason, remedy = f"its pool is not named after the node, {node}", "name the pool after the node"
        else:
            reason = f"{MAX_MARKS} other devices of the node are marked already"
            remedy = "let the plugin offer fewer devices"
        findings.append(
            contradiction(
                FindingKind.UNMARKED,
                f"Device/{device_id}",
                f"a device plugin has it as {', '.join(sorted(marks[device_id]))}, and no mark keeps claims off the device: {reason}",
                f"{remedy}, or keep claims off this node until the plugin is removed",
            )
        )
    return tuple(findings)


def _annotations(holds: Holds, now: datetime) -> dict[str, str]:
    return {HOLDS: "\n".join(sorted(holds)), SEEN: now.isoformat(timespec="seconds")}


def seen_at(rule: DeviceTaintRule) -> datetime | None:
    """Return when an agent last renewed a mark; None if its time is invalid."""
    try:
        renewed_at = datetime.fromisoformat(rule.metadata.annotations.get(SEEN, ""))
    except ValueError:
        return None
    return renewed_at if renewed_at.tzinfo is not None else None
