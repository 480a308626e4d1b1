"""The state of the webhook, built from objects that were read by the same builder in the same order. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from analysis.loading.objects import KINDS, Gathered, Unread, group_of, identity_of
from cluster import resources
from cluster.manifests import unfold
from cluster.objects import LimitRange
from dra.objects import Pod, channel_template, versions
from dra.raw import text
from dra.wire import WireError, convert
from webhook.state import IN_CONFIG_MAPS, Features, State, StateBuilder, container_defaults, custom_kinds, installed

if TYPE_CHECKING:
    from webhook.state import Configuration

_TYPES: dict[tuple[str, str], type[Any]] = {
    (one.group, one.kind): one.type for one in KINDS if one is not resources.DEVICE_QUOTAS
}
# Kinds that pods refer to by name; a dump may lack them.
_REFERRED = ("ResourceClaim", "ResourceClaimTemplate")


def state_of(gathered: Gathered, configuration: Configuration, features: Features) -> tuple[State, list[Unread]]:
    """Make the state, and list unreadable objects. In files without nodes and slices the fleet is unknown."""
    builder = StateBuilder(configuration)
    unread: list[Unread] = []
    ranges: dict[str, list[LimitRange]] = {}
    # A template that was read replaces the one that is expected of its ComputeDomain.
    for template in filter(None, map(channel_template, gathered.objects)):
        builder.put(template)
    for one in gathered.objects:
        type_ = _TYPES.get((group_of(one.get("apiVersion")), text(one.get("kind"))))
        if type_ is None or (type_ is Pod and not configuration.file.mixed):
            continue
        try:
            read = convert(versions.upgrade(one).value, type_)
        except WireError as error:
            name = identity_of(one)
            unread.append(Unread(f"{name.kind} {name.name}", str(error)))
            continue
        builder.put(read)
        if isinstance(read, LimitRange):
            ranges.setdefault(read.metadata.namespace or "default", []).append(read)
    builder.follow_pods(followed=gathered.knows_pods)
    missing = [kind for kind in _REFERRED if not gathered.of(kind)]
    unsure = gathered.server is None or gathered.unread
    around = installed(unfold(one, IN_CONFIG_MAPS) for one in gathered.installed)
    builder.learn(features=features, installed=around, incomplete=frozenset(missing if unsure else ()))
    builder.settle()
    state = replace(
        builder.state(fresh=True),
        custom_kinds=custom_kinds(gathered.objects),
        container_defaults={name: container_defaults(some) for name, some in ranges.items()},
    )
    if gathered.server is None and not gathered.of("Node", "ResourceSlice"):
        state = replace(state, fleet=state.fleet.of_classes_alone(), stock=None, prospects=None)
    return state, unread
