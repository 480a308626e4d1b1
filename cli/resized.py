"""A workload with other amounts: the object as it would be written, where its pods would go then, and what quotas say of them. Pure.

A pod keeps what it has: the spec of a claim and of a template and what is allocated are written once
(k8s.io/kubernetes/pkg/apis/resource/validation). So another amount means other pods, and this asks about those.
"""

from __future__ import annotations

from copy import deepcopy
from difflib import unified_diff
from typing import TYPE_CHECKING, Any

import msgspec

from allocator.preemption import without_pods
from allocator.simulation import PodOutcome, Snapshot, simulate
from allocator.strategies import DEFAULT
from cli.arrivals import arrivals
from cli.contract import Broken
from cli.explain import as_written
from cli.loading import inside, is_extended, items, who
from cli.quota import Foretold, foretell_in
from cli.simulated import asking, why
from cluster import manifests
from dra.objects import Pod, ResourceClaimTemplate, defaults
from dra.wire import WireError, convert
from webhook.claims import template
from webhook.translate import at, mapping, paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cli.loading import Object, Scene
    from dra.objects import ResourceClaim
    from webhook.state import Configuration


class Change(msgspec.Struct, frozen=True):
    """One object as it is and as it would be; without `before` it is new."""

    after: dict[str, Any]
    before: dict[str, Any] | None = None

    def diff(self) -> Iterator[str]:
        """Write what changes in it, line by line."""
        whose = who(self.after)
        name = f"{whose.kind}/{whose.namespace}/{whose.name}"
        before, after = (manifests.dump([one]).splitlines() if one else [] for one in (self.before, self.after))
        yield from unified_diff(before, after, name if before else "/dev/null", name, lineterm="")


class Resized(msgspec.Struct, frozen=True):
    """What would become of a workload; `beside` is of one more pod while those that run still have what they have."""

    changes: tuple[Change, ...]
    pods: tuple[PodOutcome, ...]
    beside: PodOutcome | None
    quotas: tuple[Foretold, ...]

    @property
    def fits(self) -> bool:
        """Whether all pods find a place, and no quota turns one back."""
        return all(one.node is not None for one in self.pods) and not any(one.crossed for one in self.quotas)


def resize(
    obj: Object, amounts: Mapping[str, str], leaving: Sequence[Pod], scene: Scene, configuration: Configuration
) -> Resized:
    """Ask about a workload with other amounts, by name of a resource or of a capacity. Raise Broken."""
    changes = tuple(_edited(obj, amounts, scene))
    after = [one.after for one in changes]
    keys = {pod.metadata.key for pod in leaving}
    stock = without_pods(scene.stock, leaving)
    gone: list[ResourceClaim] = []
    for claim in stock.claims.values():
        namespace = claim.metadata.namespace or "default"
        owners = {f"{namespace}/{one.name}" for one in claim.metadata.owner_references if one.kind == "Pod"}
        if owners & keys:
            gone.append(claim)
    stock = stock.with_all((), gone=gone)
    staying = {key: pod for key, pod in scene.pods.items() if key not in keys}
    state = scene.state(configuration)
    came = arrivals(manifests.parse(manifests.dump(after), "edited"), state)
    templates = dict(scene.templates)
    try:
        pods = [convert(one, Pod) for one in came.pods]
        for one in (*after, *came.templates):
            if one.get("kind") == "ResourceClaimTemplate":
                made = defaults.template(convert(one, ResourceClaimTemplate))
                templates[made.metadata.key] = made
    except WireError as error:
        raise Broken(str(error), "name a workload that the API server would take") from None
    alone = msgspec.structs.replace(scene, stock=stock, pods=staying, templates=templates)

    def place(one: Scene, coming: Sequence[Pod]) -> tuple[PodOutcome, ...]:
        running = [pod for pod in one.pods.values() if pod.spec.node_name and not pod.has_ended]
        claims = tuple(one.stock.claims.values())
        snapshot = Snapshot(one.stock, (*running, *coming), claims, tuple(templates.values()), quotas=one.quotas)
        return simulate(snapshot, ask=asking(DEFAULT, None, one.stock), why=why).pods

    beside = None
    if leaving and pods and obj.get("kind") == "Deployment":  # others end a pod before they make its successor
        metadata = msgspec.structs.replace(pods[0].metadata, name=f"{pods[0].metadata.name}-new")
        [beside] = place(scene, [msgspec.structs.replace(pods[0], metadata=metadata)])
    refused = [PodOutcome(pod=name, node=None, summary=reason) for name, reason in came.refused.items()]
    found = (*place(alone, pods), *refused)
    return Resized(changes, found, beside, tuple(foretell_in(alone, after, {}, state)))


def _edited(obj: Object, amounts: Mapping[str, str], scene: Scene) -> Iterator[Change]:
    """Write the amounts into the object, or into copies of the templates that it names: a template is written once, so it gets another name."""
    whose = who(obj)
    after = _as_applied(obj)
    before = deepcopy(after)
    found: set[str] = set()
    known: set[str] = set()
    raw = {
        who(one).name: one
        for one in scene.gathered.of("ResourceClaimTemplate")
        if who(one).namespace == whose.namespace
    }
    made: dict[str, Change] = {}
    for path in paths(after):
        spec = inside(mapping(at(after, path)), "spec")
        for one in (*items(spec, "initContainers"), *items(spec, "containers")):
            for part in ("limits", "requests"):  # their memory is not that of a device
                there = inside(one, "resources", part)
                found |= _write(there, filter(is_extended, there), amounts, known)
        for entry in items(spec, "resourceClaims"):
            name = entry.get("resourceClaimTemplateName")
            if name not in raw:
                continue
            old = _as_applied(raw[name])
            new = deepcopy(old)
            written: set[str] = set()
            for request in items(inside(new, "spec", "spec", "devices"), "requests"):
                for body in (inside(request, "exactly"), *items(request, "firstAvailable")):
                    there = inside(body, "capacity", "requests")
                    written |= _write(there, there, amounts, known)
            if written:
                found |= written
                entry["resourceClaimTemplateName"] = new["metadata"]["name"] = template.name_of(new["spec"])
                made[name] = Change(new)
    if missing := sorted(amounts.keys() - found):
        remedy = f"it asks for {', '.join(sorted(known))}" if known else "name the workload that asks for devices"
        raise Broken(f"{whose.kind} {whose.namespace}/{whose.name} asks for no {missing[0]}", remedy)
    yield from made.values()
    yield Change(after, before)


def _write(there: Object, keys: Iterable[str], amounts: Mapping[str, str], known: set[str]) -> set[str]:
    can = set(keys)
    known |= can
    found = can & amounts.keys()
    for key in found:
        text = amounts[key]
        there[key] = int(text) if isinstance(there[key], int) and text.isdecimal() else text
    return found


def _as_applied(obj: Object) -> Object:
    """Leave out what the server and the controllers have written into an object."""
    written = as_written(obj) if obj.get("kind") == "Pod" else obj
    kept = {name: value for name, value in deepcopy(written).items() if name != "status"}
    metadata = inside(kept, "metadata")
    for name in ("uid", "resourceVersion", "generation", "creationTimestamp"):
        metadata.pop(name, None)
    if kept.get("kind") == "Pod":
        inside(kept, "spec").pop("nodeName", None)
    return kept
