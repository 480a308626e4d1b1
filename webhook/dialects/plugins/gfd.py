"""Reads the meaning of one unit of `nvidia.com/gpu` from the node labels that a pod requires, and from the labels of a node.

GPU feature discovery and GKE label nodes with the way in which GPUs are shared or partitioned. A pod that requires, or allows, nodes whose
units are replicas or MIG devices does not request whole GPUs, whatever the administrator declares. The terms of a required affinity are
alternatives, so all of them must show the same meaning. Preferences are ignored, because the pod may run elsewhere. Labels follow
NVIDIA/k8s-device-plugin: internal/lm, docs/gpu-feature-discovery; NVIDIA/gpu-operator: assets/state-mig-manager.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from webhook.dialects.vocabulary import Meaning, Selection, Untranslated

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
_UNCLEAR = "may be a replica or a MIG device"
_SOME_MIG = "is a MIG device of a profile that the pod does not name"
_REPLICA = "is a replica of a shared GPU"

_PROFILE = re.compile(r"[1-8]g\.[0-9]+gb(?:\+(?:me\.all|me|gfx)|-[a-z]+)?").fullmatch


def profile_of(suffix: str) -> str:
    """Return the MIG profile of the end of a resource name; "" if the plugin advertises no such resource.

    `1g.5gb.me` is the profile `1g.5gb+me`, because resource names cannot have a plus sign. Compute instances (`1c.3g.20gb`) are not advertised.
    """
    for attribute in ("me.all", "me", "gfx"):
        if suffix.endswith(f".{attribute}"):
            suffix = f"{suffix[: -len(attribute) - 1]}+{attribute}"
            break
    return suffix if _PROFILE(suffix) else ""


def read_selected(selected: Selected) -> Meaning | None:
    """Return the meaning of a unit by the pod's requirements on node labels; None if they show none."""
    of_all = _strongest(map(_read, selected.always))
    if of_all and of_all.left and not of_all.doubt:
        return of_all
    if not selected.terms:
        return of_all
    meanings = [_strongest([of_all, *map(_read, term)]) for term in selected.terms]
    first = meanings[0]
    for other in meanings[1:]:
        if _kind(other) != _kind(first):
            clearer = first or other
            reason = ""
            if clearer is not None:
                reason = clearer.left.reason if clearer.left else clearer.basis
            return _left(f"the pod's affinity terms disagree: {reason}", _UNCLEAR)
    return first


def _kind(meaning: Meaning | None) -> tuple[str, str]:
    """Return the part of a meaning by which two meanings are compared."""
    if meaning is None:
        return "", ""
    if meaning.left is None:
        return "profile", meaning.profile
    return "left", _REPLICA if meaning.left.reason.endswith(_REPLICA) else _UNCLEAR


def _strongest(readings: Iterable[Meaning | None]) -> Meaning | None:
    """Combine meanings that hold at once: a replica wins over a profile, a profile over an unknown profile, that over doubt."""
    best: Meaning | None = None
    for reading in readings:
        if reading is None:
            continue
        if best and reading.profile and best.profile and reading.profile != best.profile:
            return _left(f"{best.basis} and {reading.basis}", _UNCLEAR)
        if best is None or _rank(reading) > _rank(best):
            best = reading
    return best


def _rank(meaning: Meaning) -> int:
    if meaning.doubt:
        return 0
    if meaning.left is None:
        return 2
    return 1 if meaning.left.reason.endswith(_SOME_MIG) else 3


def _read(selection: Selection) -> Meaning | None:
    key, operator, values = selection
    shown = f"{key} {operator} {', '.join(values[:4])}".rstrip()
    match operator:
        case "In":
            return _read_in(key, values)
        case "Exists" if key in _ONLY_SHARED:
            return _left(shown, _REPLICA)
        case "Exists" if key in _ONLY_MIG:
            return _left(shown, _SOME_MIG)
        case "NotIn":
            return _read_not_in(key, values, shown)
        case "Gt" if key in _FACTORS and values and _number(values[0]) >= 1:
            return _left(shown, _REPLICA)
    return None


def _read_in(key: str, values: tuple[str, ...]) -> Meaning | None:
    meanings = [_of_value(key, value) for value in values]
    if not meanings:
        return None
    first = meanings[0]
    for other in meanings[1:]:
        if _kind(other) != _kind(first):
            shown = f"{key}={' or '.join(values[:4])}"
            return _left(shown, _UNCLEAR)
    return first


def _read_not_in(key: str, values: tuple[str, ...], shown: str) -> Meaning | None:
    """Return the meaning of the values that a requirement with NotIn leaves."""
    if key in _STRATEGIES and "none" in values:
        return _left(shown, _REPLICA)
    if key in _FACTORS and "1" in values:
        return _left(shown, _REPLICA)
    if key == _MIG_STRATEGY and "none" in values:
        return _left(shown, _SOME_MIG if "mixed" in values else _UNCLEAR)
    if key == _MIG_CONFIG and "all-disabled" in values:
        return _left(shown, _UNCLEAR)
    return None


def _of_value(key: str, value: str) -> Meaning | None:
    shown = f"{key}={value}"
    if value in _STRATEGIES.get(key, ()) or (key == _MPS and value == "true"):
        return _left(shown, _REPLICA)
    if key in _FACTORS and _number(value) > 1:
        return _left(shown, _REPLICA)
    if key == _PRODUCT:
        if value.endswith(_SHARED):
            return _left(shown, _REPLICA)
        _, mig, suffix = value.rpartition(_MIG)
        return _mig(suffix, shown) if mig else None
    if key == _GKE_PARTITION:
        return _mig(value, shown)
    if key == _MIG_CONFIG and value not in _WHOLE_CONFIGURATIONS:
        every, _, profile = value.partition("all-")
        return _mig(profile, shown) if not every and profile_of(profile) else _left(shown, _UNCLEAR)
    if (key == _MIG_STRATEGY and value == "single") or key in _ONLY_MIG:
        return _left(shown, _SOME_MIG)
    if key == _PLUGIN_CONFIG and value not in ("", "default"):
        doubtful = Untranslated("", f"selector {shown} chooses a configuration of the device plugin: it {_UNCLEAR}")
        return Meaning(left=doubtful, doubt=True)
    return None


def _mig(suffix: str, shown: str) -> Meaning:
    profile = profile_of(suffix)
    return Meaning(profile=profile, basis=f"the pod selects {shown}") if profile else _left(shown, _SOME_MIG)


def _left(shown: str, text: str) -> Meaning:
    # The caller adds the key (`owner._with_key`).
    return Meaning(left=Untranslated("", f"selector {shown} shows that it {text}"))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def sharing_label(labels: Mapping[str, str]) -> str:
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
