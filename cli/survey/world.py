"""The state that the gate would decide on, from what a survey has read: the same builder, the same order. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cli.survey.gathered import Gathered, Object, Unread, group_of, text, who
from cluster.objects import LimitRange, Namespace, ResourceQuota
from dra.objects import (
    DeviceClass,
    DeviceCompatibility,
    DeviceTaintRule,
    Node,
    Pod,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    versions,
)
from dra.wire import WireError, convert
from webhook.state import Features, Inventory, State, StateBuilder

if TYPE_CHECKING:
    from webhook.state import Configuration

_TYPES: dict[tuple[str, str], type[Any]] = {
    ("", "Node"): Node,
    ("", "Pod"): Pod,
    ("", "Namespace"): Namespace,
    ("", "ResourceQuota"): ResourceQuota,
    ("", "LimitRange"): LimitRange,
    ("resource.k8s.io", "DeviceClass"): DeviceClass,
    ("resource.k8s.io", "ResourceSlice"): ResourceSlice,
    ("resource.k8s.io", "ResourceClaim"): ResourceClaim,
    ("resource.k8s.io", "ResourceClaimTemplate"): ResourceClaimTemplate,
    ("resource.k8s.io", "DeviceTaintRule"): DeviceTaintRule,
    ("drawbridge.dev", "DeviceCompatibility"): DeviceCompatibility,
}
# What pods refer to by name. A dump need not have them.
_REFERRED = ("ResourceClaim", "ResourceClaimTemplate")
_FLEET = ("Node", "DeviceClass", "ResourceSlice")


def state_of(gathered: Gathered, configuration: Configuration, features: Features) -> tuple[State, list[Unread]]:
    """Make the state, and name what could not be understood. Without nodes, classes and slices the fleet is unknown."""
    builder = StateBuilder(configuration)
    unread: list[Unread] = []
    for one in gathered.objects:
        type_ = _type_of(one)
        if type_ is Pod and not configuration.file.mixed:
            continue
        if type_ is None:
            continue
        try:
            read = convert(versions.upgrade(one).value, type_)
        except WireError as error:
            name = who(one)
            unread.append(Unread(f"{name.kind} {name.name}", str(error)))
            continue
        builder.put(read)
    builder.follow_pods(followed=gathered.knows_pods)
    missing = [kind for kind in _REFERRED if not gathered.of(kind)]
    unsure = gathered.server is None or gathered.unread
    builder.learn(features=features, incomplete=frozenset(missing if unsure else ()))
    builder.settle()
    state = builder.state(fresh=True)
    if gathered.server is None and not gathered.of(*_FLEET):
        return _without_fleet(state), unread
    return state, unread


def _type_of(obj: Object) -> type[Any] | None:
    return _TYPES.get((group_of(obj.get("apiVersion")), text(obj.get("kind"))))


def _without_fleet(state: State) -> State:
    return msgspec.structs.replace(state, fleet=Inventory(), stock=None, prospects=None)
