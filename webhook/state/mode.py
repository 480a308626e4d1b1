"""The mode of a pod: off, observe, warn or enforce. The label of its namespace sets it, or else the configuration.

The canary chooses, by a stable hash, the workloads that a percentage covers. A pod in a mutating review has no UID and no generated name yet. So
the hash is over the namespace and the kind and name of the controller without its pod-template-hash, and all pods and revisions of a Deployment
get the same result. A higher percentage only adds workloads.

An empty label counts as absent. `enforce` becomes `warn` for workloads that the canary does not cover. It also becomes `warn` if the Namespace,
a ResourceQuota or a LimitRange could not be read, or if the label is not a valid mode (such as `Off`): then it is uncertain what the namespace
allows, and a translated pod cannot be translated back.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from webhook.names import MODE_LABEL
from webhook.state.configuration import Configuration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.wire import Json
    from webhook.state.state import State


class Mode(StrEnum):
    """What the webhook does with a decision."""

    OFF = "off"  # no decision is made
    OBSERVE = "observe"  # the decision is logged and counted
    WARN = "warn"  # the user also gets a warning
    ENFORCE = "enforce"  # the decision is applied


_MODES: dict[str, Mode] = {mode.value: mode for mode in Mode}


BUCKETS = 10_000  # hundredths of a percent


class PodOwner(NamedTuple):
    """The controller of a pod, or the pod itself."""

    namespace: str
    kind: str
    name: str

    def within(self, percent: float) -> bool:
        """Return whether this percentage covers the workload."""
        digest = blake2b("\0".join(self).encode(errors="surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % BUCKETS < percent * (BUCKETS / 100)


def workload(namespace: str, metadata: Mapping[str, Json]) -> PodOwner:
    """Find the controller of a pod; without one, the pod is its own workload."""
    owners = metadata.get("ownerReferences")
    labels = metadata.get("labels")
    for owner in owners if isinstance(owners, list) else ():
        if not isinstance(owner, dict) or not owner.get("controller"):
            continue
        name = str(owner.get("name", ""))
        revision = labels.get("pod-template-hash") if isinstance(labels, dict) else None
        if revision:
            name = name.removesuffix(f"-{revision}")
        return PodOwner(namespace, str(owner.get("kind", "")), name)
    own = metadata.get("name") or metadata.get("generateName")
    return PodOwner(namespace, "Pod", str(own or ""))


def mode_of(state: State, workload: PodOwner) -> Mode:
    mode = mode_in(state, workload.namespace)
    canary = state.configuration.file.canary
    if mode is Mode.ENFORCE and canary < 100 and not workload.within(canary):
        return Mode.WARN
    return mode


def mode_in(state: State, namespace: str) -> Mode:
    """Return the mode for the workloads of a namespace that the canary covers."""
    labels = state.namespaces.get(namespace)
    label = labels.get(MODE_LABEL, "") if labels else ""
    mode = _MODES.get(label) or _MODES[state.configuration.file.mode]
    is_invalid = label and label not in _MODES
    return Mode.WARN if mode is Mode.ENFORCE and (is_invalid or namespace in state.unsure) else mode


def why_rules_unknown(state: State, namespace: str) -> tuple[str, ...]:
    """Return the reasons why it is uncertain what a namespace allows."""
    unread_kinds = tuple([f"{kind} could not be read" for kind in state.unsure.get(namespace, ())])
    label_mistake = mistake_of(state.namespaces.get(namespace, {}).get(MODE_LABEL, ""))
    return (*unread_kinds, label_mistake) if label_mistake else unread_kinds


def why_not(state: State, namespace: str) -> str:
    """Return why the mode in a namespace is not `enforce`; "" if only the canary excludes workloads there."""
    label = state.namespaces.get(namespace, {}).get(MODE_LABEL, "")
    if label in _MODES:
        return f"its namespace {namespace} has the label {MODE_LABEL}={label}"
    reasons = why_rules_unknown(state, namespace)
    if reasons:
        return f"in its namespace {namespace} {' and '.join(reasons)}"
    mode = state.configuration.file.mode
    return "" if Mode(mode) is Mode.ENFORCE else f"the configuration sets mode: {mode}"


def with_mode(state: State, mode: Mode) -> State:
    """Return the state with this mode in all namespaces, for all workloads."""
    namespaces = {name: {**labels, MODE_LABEL: mode} for name, labels in state.namespaces.items()}
    file = msgspec.structs.replace(state.configuration.file, mode=mode.value, canary=100)
    return msgspec.structs.replace(state, configuration=Configuration(file), namespaces=namespaces)


def mistake_of(label: object) -> str:
    """Return why a namespace's label is not a valid mode; "" if it is valid, empty or absent."""
    if label in (None, "") or (isinstance(label, str) and label in _MODES):
        return ""
    if not isinstance(label, str):
        return f"its label {MODE_LABEL} is not a string (YAML reads a bare off as false)"
    return f"its label {MODE_LABEL}={label!r} is not a valid mode (expected {', '.join(_MODES)})"
