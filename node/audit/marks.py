"""Which devices are marked because a device plugin holds them, and how the marks that are there change.

A mark is a DeviceTaintRule for one device, with the effect NoSchedule: every allocator that knows taints leaves the device alone, and
its holder keeps it. A mark names the plugin's devices that it was made for, and goes when no container has them any more, not when slices
are away for a moment: a kubelet deletes slices whenever it starts. The node owns its marks, so they go with the node. An agent that stops
leaves its marks, for the plugin's pods are still there; each mark says when an agent last renewed it, and `drawbridge doctor` names old ones.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from dra.objects import DeviceTaintRule
from node.audit.findings import MOST, AuditFinding, FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.objects import Node
    from node.audit.hardware_identity import Hardware
    from node.audit.snapshot import DeviceId, HandedOut

HELD_BY_PLUGIN = "drawbridge.dev/device-plugin"  # the taint's key
MARKED_ON = "drawbridge.dev/marked-on"  # a label: the sign of the node
HOLDS = "drawbridge.dev/held-as"  # an annotation: RESOURCE ID, one a line
SEEN = "drawbridge.dev/seen"  # an annotation: when an agent last stood by it
RENEWED = timedelta(minutes=10)
MOST_HOLDS = 16  # of one device: replicas of one card are many
MOST_MARKS = 1024  # on one node: each is an object that every scheduler reads
_SIGNS = 20
Holds = frozenset[str]
Renewal = tuple[str, dict[str, Any]]  # of which rule, and what changes


class MarkPlan(msgspec.Struct, frozen=True):
    new: tuple[dict[str, Any], ...] = ()
    renewed: tuple[Renewal, ...] = ()
    gone: tuple[DeviceTaintRule, ...] = ()
    # Some that go stand where another is to be made, in the next round.
    frees_names: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.new or self.renewed or self.gone)


def marks_of(given: Iterable[HandedOut], hardware: Hardware) -> dict[DeviceId, Holds]:
    """Say which devices claims must not have, and for what each."""
    found: defaultdict[DeviceId, set[str]] = defaultdict(set)
    for one in given:
        for where in hardware.of_plugin(one.resource, one.id):
            found[where].add(str(one))
    return {where: frozenset(sorted(holds)[:MOST_HOLDS]) for where, holds in found.items()}


def sign_of(node: str) -> str:
    """Name a node in a label, which is shorter than names of nodes may be."""
    return sha256(node.encode()).hexdigest()[:_SIGNS]


def plan(
    owner: Node,
    wanted: Mapping[DeviceId, Holds],
    given: Iterable[HandedOut],
    there: Iterable[DeviceTaintRule],
    now: datetime,
) -> MarkPlan:
    """Say how the marks of a node become what they should be. `given` is all that plugins' devices are held as now."""
    metadata = owner.metadata
    marks: dict[str, tuple[DeviceId, Holds]] = {}
    for where, holds in wanted.items():
        if where.pool == metadata.name:
            name = f"drawbridge-held-{where.device}-{sha256(str(where).encode()).hexdigest()[:_SIGNS]}"
            marks[name] = where, holds
    held = frozenset(str(one) for one in given)
    renewed: list[Renewal] = []
    gone: list[DeviceTaintRule] = []
    known: set[str] = set()
    for rule in there:
        name = rule.metadata.name
        known.add(name)
        before = frozenset(rule.metadata.annotations.get(HOLDS, "").splitlines())
        at, holds = marks.get(name, (None, before & held))
        selector, taint, seen = rule.spec.device_selector, rule.spec.taint, seen_at(rule)
        # While the slices are away a rule may be for any device.
        is_for_it = (
            selector is not None
            and (taint.key, taint.effect) == (HELD_BY_PLUGIN, "NoSchedule")
            and (at is None or (selector.driver, selector.pool, selector.device) == at)
        )
        if not holds or not is_for_it:
            gone.append(rule)
        elif holds != before or seen is None or now - seen >= RENEWED or seen > now:
            renewed.append((name, {"metadata": {"annotations": _annotations(holds, now)}}))
    new: list[dict[str, Any]] = []
    for name in sorted(marks.keys() - known):
        where, holds = marks[name]
        rule_metadata = {
            "name": name,
            "labels": {MARKED_ON: sign_of(metadata.name), "app.kubernetes.io/name": "drawbridge"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": metadata.name, "uid": metadata.uid}],
            "annotations": _annotations(holds, now),
        }
        spec = {
            "deviceSelector": where._asdict(),
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
    frees_names = any(rule.metadata.name in marks for rule in gone)
    return MarkPlan(tuple(new), tuple(renewed), tuple(gone), frees_names=frees_names)


def markable(node: str, wanted: Mapping[DeviceId, Holds]) -> dict[DeviceId, Holds]:
    """Choose what is marked: of this node's pools, and of very many the first."""
    chosen = [where for where in sorted(wanted) if where.pool == node]
    return {where: wanted[where] for where in chosen[:MOST_MARKS]}


def unmarkable(node: str, wanted: Mapping[DeviceId, Holds], *, served: bool) -> tuple[AuditFinding, ...]:
    chosen = markable(node, wanted) if served else {}
    left = sorted(wanted.keys() - chosen.keys())
    found: list[AuditFinding] = []
    for where in left[:MOST]:
        if not served:
            why, remedy = "this API server has no DeviceTaintRules", "turn the feature gate DRADeviceTaintRules on"
        elif where.pool != node:
            why, remedy = f"its pool is not called as the node is, {node}", "name the pool after the node"
        else:
            why = f"{MOST_MARKS} others of the node are marked already"
            remedy = "have the plugin offer fewer devices"
        found.append(
            AuditFinding(
                FindingKind.UNMARKED,
                f"device {where}",
                f"a device plugin has it as {', '.join(sorted(wanted[where]))}, and nothing keeps claims from it: {why}",
                f"{remedy}, or keep claims off this node until the plugin is gone",
            )
        )
    return tuple(found)


def _annotations(holds: Holds, now: datetime) -> dict[str, str]:
    return {HOLDS: "\n".join(sorted(holds)), SEEN: now.isoformat(timespec="seconds")}


def seen_at(rule: DeviceTaintRule) -> datetime | None:
    """Say when an agent last stood by a mark; None if that cannot be read."""
    try:
        seen = datetime.fromisoformat(rule.metadata.annotations.get(SEEN, ""))
    except ValueError:
        return None
    return seen if seen.tzinfo is not None else None
