"""The claim that kube-scheduler will make for what a DeviceClass serves by name: what a pod that is left for core asks for. Pure.

Such a claim is judged as one that the pod names. A node that hands a name out through a device plugin makes none, so where one could
serve all that the pod asks for by names, there is no warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator import pods
from cluster.patch import apply_json_patch
from dra import server, wire
from dra.objects import Pod, extended_claim, requests_of
from dra.policy import tolerate_fence
from dra.wire import WireError
from webhook.translate import PodClaim, find_names, is_passed_by

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from dra.wire import Json
    from webhook.state import State

NAME = "extended-resources"
_SCHEDULER = "/spec/schedulerName"


def extended_given(
    pod: dict[str, Json],
    state: State,
    operations: Iterable[dict[str, Json]] = (),
    replaced_keys: Container[tuple[str, str]] = (),
) -> tuple[PodClaim, ...]:
    """Say which claim the scheduler will make for a pod, after operations on its resources and its scheduler; nothing if it makes none.

    `replaced_keys` are the containers and names that the operations take away.
    """
    served = state.fleet.extended
    names = find_names(pod, served, replaced_keys) if served else set()
    if not names or state.stock is None or not state.features.on(server.EXTENDED) or is_passed_by(pod):
        return ()
    serving = {name: kind for name in names if (kind := state.fleet.extended[name]) in state.stock.classes}
    changes = tuple([one for one in operations if "/resources" in str(one["path"]) or one["path"] == _SCHEDULER])
    try:
        typed = wire.convert(apply_json_patch(pod, changes) if changes else pod, Pod)
    except WireError:
        return ()
    name = typed.spec.scheduler_name or "default-scheduler"
    scheduler = state.configuration.schedulers.get(name)
    if typed.spec.node_name or scheduler is None or not scheduler.like_cluster:
        return ()
    extended = extended_claim(typed, serving)
    if extended is None:
        return ()
    bridge = state.configuration.file.bridge
    is_bridge = bridge is not None and name == bridge.scheduler_name
    claim = tolerate_fence(extended.claim) if is_bridge else extended.claim
    by_name = pods.requests_by_name(typed, serving)
    containers = typed.spec.all_containers
    asks = tuple([(one.name, name) for one in containers for name in by_name if requests_of(one).get(name)])
    users = list(dict.fromkeys(container for container, _ in asks))
    amounts: dict[str, Json] = {name: str(amount // 10**9) for name, amount in by_name.items()}
    spec: Json = {"spec": wire.builtins(claim.spec)}
    counts = {one.name: one.exactly.count for one in claim.spec.devices.requests if one.exactly is not None}
    askers: dict[str, str] = {}
    for mapped in extended.mappings:
        requester = f"container {mapped.container_name} ({mapped.resource_name}: {counts[mapped.request_name]})"
        askers.setdefault(mapped.request_name, requester)
    return (
        PodClaim(
            NAME, spec, tuple(users), amounts, by_name=by_name, requesters=askers, asks=asks, scheduler=name, pod=typed
        ),
    )
