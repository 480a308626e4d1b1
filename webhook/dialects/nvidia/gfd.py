"""Reads the meaning of one unit of `nvidia.com/gpu` from the node labels that a pod requires, and from the labels of a node.

GPU feature discovery and GKE label nodes with how their GPUs are shared or partitioned. A pod whose requirements admit nodes with replicas
or MIG devices does not request whole GPUs, whatever the administrator declares. The terms of a required affinity are
alternatives, so all of them must show the same meaning. Preferences are ignored, because the pod may run elsewhere. Labels follow
NVIDIA/k8s-device-plugin: internal/lm, docs/gpu-feature-discovery; NVIDIA/gpu-operator: assets/state-mig-manager.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from webhook.dialects.vocabulary import Meaning, NodeRequirement, leave

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.dialects.vocabulary import Selected

_PRODUCT = "nvidia.com/gpu.product"
_STRATEGY = "nvidia.com/gpu.sharing-strategy"
_REPLICAS = "nvidia.com/gpu.replicas"
_MPS = "nvidia.com/mps.capable"
_MIG_STRATEGY = "nvidia.com/mig.strategy"
_MIG_CONFIG = "nvidia.com/mig.config"
_PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
_GKE_STRATEGY = "cloud.google.com/gke-gpu-sharing-strategy"
_GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
_GKE_PARTITION = "cloud.google.com/gke-gpu-partition-size"
# Labels that only nodes with replicas, or with MIG devices, have.
_ONLY_SHARED = frozenset((_GKE_STRATEGY, _GKE_CLIENTS))
_ONLY_MIG = frozenset((_GKE_PARTITION, "nvidia.com/gpu.slices.gi", "nvidia.com/gpu.slices.ci"))
_FACTORS = frozenset((_REPLICAS, _GKE_CLIENTS))
_STRATEGIES = {_STRATEGY: ("time-slicing", "mps"), _GKE_STRATEGY: ("time-sharing", "mps")}
_SHARED = "-SHARED"
_MIG = "-MIG-"
_WHOLE_CONFIGURATIONS = ("all-disabled", "")
_PROFILE = re.compile(r"[1-8]g\.[0-9]+gb(?:\+(?:me\.all|me|gfx)|-[a-z]+)?").fullmatch


def profile_of(suffix: str) -> str:
    """Return the MIG profile that the end of a resource name means; "" if the plugin advertises no such resource.

    `1g.5gb.me` is the profile `1g.5gb+me`, because resource names cannot have a plus sign. Compute instances (`1c.3g.20gb`) are not advertised.
    """
    for attribute in ("me.all", "me", "gfx"):
        if suffix.endswith(f".{attribute}"):
            suffix = f"{suffix[: -len(attribute) - 1]}+{attribute}"
            break
    return suffix if _PROFILE(suffix) else ""


def read_selected(selected: Selected) -> Meaning | None:
    """Return the meaning of a unit that the pod's requirements on node labels show; None if they show none."""
    always = _strongest(map(_read, selected.always))
    if not selected.terms or (always and always.unit in (_Unit.UNCLEAR, _Unit.REPLICA, _Unit.SOME_MIG)):
        return always and always.meaning()
    first, *others = (_strongest([always, *map(_read, term)]) for term in selected.terms)
    if any(not _are_equal(first, other) for other in others):
        basis = next(reading.basis for reading in (first, *others) if reading)
        return _Reading(_Unit.UNCLEAR, f"the pod's affinity terms disagree ({basis})").meaning()
    return first and first.meaning()


class _Unit(IntEnum):
    """What labels show about a unit. Of two members that hold at once, the later one counts."""

    DOUBTFUL = 0
    SOME_MIG = 1
    PROFILE = 2
    UNCLEAR = 3
    REPLICA = 4


_TEXTS = {
    _Unit.DOUBTFUL: "a unit may be a replica or a MIG device",
    _Unit.SOME_MIG: "a unit is a MIG device of a profile that the pod does not name",
    _Unit.UNCLEAR: "a unit may be a replica or a MIG device",
    _Unit.REPLICA: "a unit is a replica of a shared GPU",
}


class _Reading(NamedTuple):
    """What a label shows about a unit."""

    unit: _Unit
    basis: str
    profile: str = ""

    def meaning(self) -> Meaning:
        if self.unit is _Unit.PROFILE:
            return Meaning(profile=self.profile, basis=self.basis)
        # The caller adds the key (`owner._with_key`).
        left = leave("", f"{_TEXTS[self.unit]}, because {self.basis}")
        return Meaning(left=left, basis=self.basis, doubt=self.unit is _Unit.DOUBTFUL)


def _are_equal(reading: _Reading | None, other: _Reading | None) -> bool:
    """Report whether two readings allow the same decision. An unknown MIG profile counts as unclear."""
    if reading is None or other is None:
        return reading is other
    replica_or_profile = {_Unit.REPLICA, _Unit.PROFILE}
    if replica_or_profile & {reading.unit, other.unit}:
        return (reading.unit, reading.profile) == (other.unit, other.profile)
    return True


def _strongest(readings: Iterable[_Reading | None]) -> _Reading | None:
    """Combine readings that hold at once."""
    best: _Reading | None = None
    for reading in readings:
        if reading is None:
            continue
        if best and reading.profile and best.profile and reading.profile != best.profile:
            return _Reading(_Unit.UNCLEAR, f"{best.basis} and {reading.basis}")
        if best is None or reading.unit > best.unit:
            best = reading
    return best


def _read(selection: NodeRequirement) -> _Reading | None:
    key, operator, values = selection
    basis = f"the pod selects {key} {operator} {', '.join(values[:4])}".rstrip()
    match operator:
        case "In":
            return _read_in(key, values)
        case "Exists" if key in _ONLY_SHARED:
            return _Reading(_Unit.REPLICA, basis)
        case "Exists" if key in _ONLY_MIG:
            return _Reading(_Unit.SOME_MIG, basis)
        case "NotIn":
            return _read_not_in(key, values, basis)
        case "Gt" if key in _FACTORS and values and _number(values[0]) >= 1:
            return _Reading(_Unit.REPLICA, basis)
    return None


def _read_in(key: str, values: tuple[str, ...]) -> _Reading | None:
    readings = [_of_value(key, value) for value in values]
    if not readings:
        return None
    first = readings[0]
    for other in readings[1:]:
        if not _are_equal(first, other):
            return _Reading(_Unit.UNCLEAR, f"the pod selects {key}={' or '.join(values[:4])}")
    return first


def _read_not_in(key: str, values: tuple[str, ...], basis: str) -> _Reading | None:
    """Return the meaning of the values that a NotIn requirement still allows."""
    if key in _STRATEGIES and "none" in values:
        return _Reading(_Unit.REPLICA, basis)
    if key in _FACTORS and "1" in values:
        return _Reading(_Unit.REPLICA, basis)
    if key == _MIG_STRATEGY and "none" in values:
        return _Reading(_Unit.SOME_MIG if "mixed" in values else _Unit.UNCLEAR, basis)
    if key == _MIG_CONFIG and "all-disabled" in values:
        return _Reading(_Unit.UNCLEAR, basis)
    return None


def _of_value(key: str, value: str) -> _Reading | None:
    basis = f"the pod selects {key}={value}"
    if value in _STRATEGIES.get(key, ()) or (key == _MPS and value == "true"):
        return _Reading(_Unit.REPLICA, basis)
    if key in _FACTORS and _number(value) > 1:
        return _Reading(_Unit.REPLICA, basis)
    if key == _PRODUCT:
        if value.endswith(_SHARED):
            return _Reading(_Unit.REPLICA, basis)
        _, mig, suffix = value.rpartition(_MIG)
        return _mig(suffix, basis) if mig else None
    if key == _GKE_PARTITION:
        return _mig(value, basis)
    if key == _MIG_CONFIG and value not in _WHOLE_CONFIGURATIONS:
        before, _, profile = value.partition("all-")
        return _mig(profile, basis) if not before and profile_of(profile) else _Reading(_Unit.UNCLEAR, basis)
    if (key == _MIG_STRATEGY and value == "single") or key in _ONLY_MIG:
        return _Reading(_Unit.SOME_MIG, basis)
    if key == _PLUGIN_CONFIG and value not in ("", "default"):
        return _Reading(_Unit.DOUBTFUL, basis)
    return None


def _mig(suffix: str, basis: str) -> _Reading:
    profile = profile_of(suffix)
    return _Reading(_Unit.PROFILE, basis, profile) if profile else _Reading(_Unit.SOME_MIG, basis)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def sharing_label(labels: Mapping[str, str]) -> str:
    """Return the label by which a node shows that its GPUs are shared or partitioned; "" if none does."""
    for name, values in _STRATEGIES.items():
        if labels.get(name) in values:
            return f"{name}={labels[name]}"
    for name in _FACTORS:
        if _number(labels.get(name, "")) > 1:
            return f"{name}={labels[name]}"
    product = labels.get(_PRODUCT, "")
    if product.endswith(_SHARED) or _MIG in product:
        return f"{_PRODUCT}={product}"
    partition = labels.get(_GKE_PARTITION, "")
    return f"{_GKE_PARTITION}={partition}" if partition else ""
