"""Whose words are these? Decides which dialect each key on a pod belongs to, and what a bare `nvidia.com/gpu` means.

In this order (vocabularies.md 1.15): what the configuration declares; keys that only one system has; annotations that
only one system has; a scheduler that serves nobody else; and for a name nobody claims, the plain device plugin, whose
unit is only believed to be a whole GPU if the cluster shows nothing to the contrary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from webhook.dialects import TARGETS, Dialect, Hint, Left, Position, Refusal, Role, profile_of

if TYPE_CHECKING:
    from webhook.state import Configuration, Inventory, Known
    from webhook.translate.pod_view import PodView, Slot, Word


class Owners(msgspec.Struct, frozen=True):
    """Which dialects speak on a pod, and what they say outside of containers."""

    hints: Mapping[str, Mapping[Role, Hint]]  # by dialect
    ignored: tuple[tuple[str, Hint], ...]  # known keys without a role, by dialect
    system: Dialect | None = None
    # The system whose own keys stand in a container, by the container's order.
    speaking: Mapping[int, Dialect] = {}
    refusal: Refusal | None = None
    privileged: str = ""  # a container that is

    def of(self, word: Word, slot: Slot, configuration: Configuration) -> Known:
        """Choose the row that a key is read by."""
        own = [known for known in word.known if not known.row.common]
        if own:
            return own[-1]  # an administrator's table comes after ours
        # What is declared holds for the bare key; beside a system's own keys it is part of that system's request.
        beside = [known for known in word.known if known.dialect is self.speaking.get(slot.order)]
        if beside:
            return beside[0]
        meaning = configuration.file.meanings.get(word.key, "")
        declared = [known for known in word.known if known.dialect.name == meaning]
        if declared:
            return declared[0]
        if self.system and not meaning:
            mine = [known for known in word.known if known.dialect is self.system]
            if mine:
                return mine[0]
        return next((known for known in word.known if not known.dialect.system), word.known[0])


def owners(pod: PodView, configuration: Configuration) -> Owners:
    """Gather what every dialect says on a pod, and find the system that it was written for."""
    hints, ignored, evidence = _hints(pod, configuration)
    own = [
        (slot.order, known.dialect, word.key)
        for slot in pod.slots
        for word in slot.words
        for known in word.known
        if known.dialect.system and not known.row.common
    ]
    systems = {dialect.name: (dialect, key) for _, dialect, key in own}
    if len(systems) > 1:
        (one, key), (other, its) = list(systems.values())[:2]
        reason = f"belongs to {one.title}, {its} to {other.title}: both would hand out the same devices"
        return Owners(hints, ignored, refusal=Refusal(key, reason, "keep the keys of one of them"))
    speaking = {order: dialect for order, dialect, _ in own}
    by_scheduler = [d for d in configuration.dialects if d.scheduler_is_evidence and pod.scheduler in d.schedulers]
    found = [*speaking.values()] or evidence or by_scheduler
    system = found[0] if found else None
    privileged = next((slot.name for slot in pod.slots if slot.privileged), "")
    return Owners(hints, ignored, system=system, speaking=speaking, privileged=privileged)


def _hints(
    pod: PodView, configuration: Configuration
) -> tuple[dict[str, dict[Role, Hint]], tuple[tuple[str, Hint], ...], list[Dialect]]:
    places = {
        Position.ANNOTATION: pod.annotations,
        Position.LABEL: pod.labels,
        Position.NODE_SELECTOR: pod.node_labels,
    }
    hints: dict[str, dict[Role, Hint]] = {}
    ignored: list[tuple[str, Hint]] = []
    evidence: list[Dialect] = []
    for place, words in places.items():
        rows = configuration.rows(place)
        for key, value in words.items():
            for known in rows.get(key, ()):
                hint = Hint(key, known.row, value if isinstance(value, str) else str(value))
                if known.row.role is Role.NONE:
                    ignored.append((known.dialect.name, hint))
                    continue
                hints.setdefault(known.dialect.name, {})[known.row.role] = hint
                if known.dialect.system and len(rows[key]) == 1:
                    evidence.append(known.dialect)
    return hints, tuple(ignored), evidence


class Meaning(msgspec.Struct, frozen=True, gc=False):
    """What a unit of a common key is: a whole GPU, a MIG device of a profile, or not to be told."""

    profile: str = ""
    shared: bool = False
    left: Left | None = None


def meaning(key: str, configuration: Configuration, fleet: Inventory, hints: Mapping[Role, Hint]) -> Meaning:
    """Decide what one `nvidia.com/gpu` is, without another system that claims it."""
    declared = configuration.file.meanings.get(key, "")
    if declared == "leave":
        return Meaning(left=Left(key, "declared to be left (`meanings`)"))
    if said := _selected(key, hints):
        return said
    if declared == "shared":
        return Meaning(shared=True)
    if declared.startswith("mig:"):
        return Meaning(profile=declared.removeprefix("mig:"))
    if declared == "whole":
        return Meaning()
    reason = _doubt(key, configuration, fleet)
    return Meaning(left=Left(key, f"{reason}; declare what it means under `meanings`") if reason else None)


def _selected(key: str, hints: Mapping[Role, Hint]) -> Meaning | None:
    """What the pod's own node selectors give away."""
    strategy = hints.get(Role.MODE) or hints.get(Role.POLICY)
    if strategy and strategy.text not in ("", "none"):
        return Meaning(
            left=Left(key, f"selector {strategy.key}={strategy.text} shows that it is a replica of a shared GPU")
        )
    partition, product = hints.get(Role.PROFILE), hints.get(Role.MODELS)
    if partition and (profile := profile_of(partition.text)):
        return Meaning(profile=profile)
    if product and product.text.endswith("-SHARED"):
        return Meaning(
            left=Left(key, f"selector {product.key}={product.text} shows that it is a replica of a shared GPU")
        )
    if product and "-MIG-" in product.text and (profile := profile_of(product.text.rpartition("-MIG-")[2])):
        return Meaning(profile=profile)
    return None


def _doubt(key: str, configuration: Configuration, fleet: Inventory) -> str:
    """Say what keeps us from taking it for whole GPUs; "" if the cluster shows nothing else."""
    if not fleet.known:
        return "it may be a GPU, a replica or a MIG device, and there is no inventory to tell by"
    if key in fleet.allocatable:
        return f"node {fleet.allocatable[key]} still hands it out through a device plugin"
    if fleet.sharing:
        return f"node {fleet.sharing[0]} is labelled {fleet.sharing[1]}"
    served = fleet.find(TARGETS["gpu"], configuration.serves("gpu"))
    if served is None:
        return "no DeviceClass of whole GPUs exists"
    if not served.devices:
        return f"no complete pool of devices stands behind class {served.name}"
    return ""
