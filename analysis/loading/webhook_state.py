"""The state of the webhook, built from objects that were read by the same builder in the same order. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from analysis.loading.typed import TypedObjects
from cluster.manifests import unfold
from cluster.objects import LimitRange
from dra.objects import Node, Pod, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from webhook.state import (
    IN_CONFIG_MAPS,
    Features,
    Seen,
    State,
    StateBuilder,
    container_defaults,
    custom_kinds,
    installed,
)

if TYPE_CHECKING:
    from analysis.loading.objects import Gathered
    from analysis.loading.typed import UnreadableObject
    from webhook.state import Configuration

# Kinds that pods refer to by name; a dump may lack them.
_REFERRED: tuple[type[Any], ...] = (ResourceClaim, ResourceClaimTemplate)


def state_of(
    gathered: Gathered, configuration: Configuration, features: Features, typed: TypedObjects | None = None
) -> tuple[State, list[UnreadableObject]]:
    """Make the state, and list the objects that cannot be read. In files without nodes and slices the fleet is unknown.

    `typed` are the objects, if they have been read already.
    """
    builder = StateBuilder(configuration)
    if typed is None:
        typed = TypedObjects.read(gathered.objects, pods=builder.asks_for_pods)
    builder.take_in([one for one in typed if isinstance(one, Seen)])
    if builder.asks_for_pods:
        placed = any(pod.spec.node_name for pod in typed.of(Pod))
        builder.follow_pods(followed=gathered.knows_pods and (gathered.server is not None or placed))
    unsure = gathered.unread if gathered.server is not None else gathered.is_dump
    missing = [type_.__name__ for type_ in _REFERRED if not typed.by_key(type_)] if unsure else ()
    around = installed(unfold(one, IN_CONFIG_MAPS) for one in gathered.installed)
    builder.learn(features=features, installed=around, incomplete=frozenset(missing))
    builder.settle()
    ranges: dict[str, list[LimitRange]] = {}
    for one in typed.of(LimitRange):
        ranges.setdefault(one.metadata.namespace or "default", []).append(one)
    state = replace(
        builder.state(fresh=True),
        custom_kinds=custom_kinds(gathered.objects),
        container_defaults={name: container_defaults(some) for name, some in ranges.items()},
    )
    if gathered.server is None and not typed.of(Node) and not typed.of(ResourceSlice):
        state = replace(state, fleet=state.fleet.of_classes_alone(), stock=None, prospects=None)
    return state, typed.unreadable
