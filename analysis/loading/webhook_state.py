"""Builds the state of the webhook from a reading, with the webhook's own builder, and in the webhook's order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cluster.manifests import unfold
from cluster.objects import LimitRange
from dra.objects import DeviceClass, Node, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from webhook.state import (
    IN_CONFIG_MAPS,
    OF_DEVICES,
    Seen,
    State,
    StateBuilder,
    custom_kinds,
    installed,
)

if TYPE_CHECKING:
    from analysis.loading.reading import Reading

# Kinds that pods refer to by name; a dump may lack them.
_REFERRED: tuple[type[Any], ...] = (ResourceClaim, ResourceClaimTemplate)


def state_of(reading: Reading) -> State:
    """Make the state of a webhook with the configuration in force. If files have no nodes and no slices, the fleet is unknown.

    Slices of manifests without nodes count as samples: a device that the slices lack may exist.
    """
    builder = StateBuilder(reading.configuration)
    typed = reading.typed
    builder.update_objects([value for value in typed if isinstance(value, Seen)])
    if builder.needs_pods:
        placed = any(pod.spec.node_name for pod in reading.pods.values())
        builder.follow_pods(followed=reading.knows_pods and (reading.is_live or placed))
    unsure = reading.unread if reading.is_live else reading.is_dump
    missing = [type_.__name__ for type_ in _REFERRED if not typed.by_key(type_)] if unsure else ()
    around = installed(unfold(document, IN_CONFIG_MAPS) for document in reading.installed)
    builder.learn(features=reading.features, installed=around, incomplete=frozenset(missing))
    builder.settle()
    ranges: dict[str, list[LimitRange]] = {}
    for limit_range in typed.of_type(LimitRange):
        ranges.setdefault(limit_range.metadata.namespace or "default", []).append(limit_range)
    state = replace(
        builder.state(fresh=True),
        custom_kinds=custom_kinds(reading.objects),
        file_limit_ranges=ranges,
    )
    has_slices = bool(typed.of_type(ResourceSlice))
    if not (reading.is_live or has_slices or typed.of_type(DeviceClass)):
        state = replace(state, fleet=replace(state.fleet, assumes=True))
    if reading.is_live or typed.of_type(Node):
        return state
    if not has_slices:
        return replace(state, fleet=state.fleet.of_classes_alone(), stock=None, prospects=None)
    if reading.is_dump:
        return state
    return replace(state, prospects=None, incomplete=state.incomplete | OF_DEVICES)
