"""What stands in the way of a move, apart from the workloads: the server, the classes, quotas, queues, injectors, plugins. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from cli.survey.fleet import is_plugin
from cli.survey.gathered import CLUSTER, Gathered, Object, is_extended, text, who
from cluster.objects import LimitRange
from dra.wire import WireError, convert
from webhook import names
from webhook.state import CLAIMS
from webhook.translate import at, mapping, paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cli.survey.families import Family
    from cli.survey.fleet import PluginStock
    from webhook.state import State

_QUEUE = "kueue.x-k8s.io/queue-name"
_NAMED = 5


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """Something in the way, and what to do about it. `namespace` is "" for what is the whole cluster's."""

    what: str
    namespace: str
    object: str
    message: str
    remedy: str


def obstacles(
    gathered: Gathered, state: State, asked: Iterable[Family], held: Iterable[PluginStock], classes: Iterable[str]
) -> list[Obstacle]:
    """Name everything in the way: the cluster's own first, then by namespace."""
    families = list(asked)
    concerned = {family.top.namespace for family in families}
    found = [
        *_server(state),
        *_classes(state, classes),
        *_mixed(held),
        *_plugins(gathered),
        *_injectors(gathered),
        *_quotas(gathered, concerned),
        *_limit_ranges(gathered, concerned, state),
        *_queues(families),
    ]
    return sorted(found, key=lambda one: one.namespace)


def _server(state: State) -> Iterator[Obstacle]:
    if state.features.on(CLAIMS.gate):
        return
    yield Obstacle(
        what="server",
        namespace=CLUSTER,
        object=f"Kubernetes 1.{state.features.minor}",
        message="it has no resource claims: nothing can move",
        remedy="upgrade to 1.34 or later",
    )


def _classes(state: State, classes: Iterable[str]) -> Iterator[Obstacle]:
    if not state.fleet.known:
        return
    there = state.fleet.classes
    for name in sorted(classes):
        served = there.get(name)
        if served is not None and served.devices:
            continue
        message = "workloads would ask for it, and it does not exist"
        if served is not None:
            message = "it exists, and no complete pool of devices stands behind it"
        yield Obstacle(
            what="class without devices" if served else "class missing",
            namespace=CLUSTER,
            object=f"DeviceClass {name}",
            message=message,
            remedy="install the driver's chart on the nodes that have such devices",
        )


def _mixed(held: Iterable[PluginStock]) -> Iterator[Obstacle]:
    for one in held:
        if not one.mixed:
            continue
        yield Obstacle(
            what="mixed nodes",
            namespace=CLUSTER,
            object=one.key,
            message=f"a device plugin and a driver both give the devices out on {_list(one.mixed)}",
            remedy="take the device plugin off nodes that the driver serves: two pods could be given one device",
        )


def _plugins(gathered: Gathered) -> Iterator[Obstacle]:
    for one in gathered.of("DaemonSet"):
        if not is_plugin(one):
            continue
        name = who(one)
        nodes = mapping(one.get("status")).get("numberReady") or 0
        yield Obstacle(
            what="device plugin",
            namespace=CLUSTER,
            object=f"DaemonSet {name.namespace}/{name.name}",
            message=f"it registers with kubelet as a device plugin, ready on {nodes} nodes",
            remedy="keep it off a node (node selector, affinity) once the pods there have moved",
        )


def _injectors(gathered: Gathered) -> Iterator[Obstacle]:
    for one in gathered.of("MutatingWebhookConfiguration"):
        hooks = one.get("webhooks")
        touching = [hook for hook in map(mapping, hooks if isinstance(hooks, list) else ()) if _changes_pods(hook)]
        name = who(one).name
        if not touching or name.startswith(names.NAME):
            continue
        yield Obstacle(
            what="injector",
            namespace=CLUSTER,
            object=f"MutatingWebhookConfiguration {name}",
            message="it changes pods as they are made, and may add or put back device requests",
            remedy="try one pod with `kubectl apply --dry-run=server` and look at what was added",
        )


def _changes_pods(hook: Object) -> bool:
    rules = hook.get("rules")
    for rule in map(mapping, rules if isinstance(rules, list) else ()):
        resources = rule.get("resources")
        operations = rule.get("operations")
        if not isinstance(resources, list) or not isinstance(operations, list):
            continue
        of_pods = {"pods", "*", "*/*"} & set(map(str, resources))
        if of_pods and {"CREATE", "*"} & set(map(str, operations)):
            return True
    return False


def _quotas(gathered: Gathered, concerned: set[str]) -> Iterator[Obstacle]:
    for one in gathered.of("ResourceQuota"):
        name = who(one)
        hard = mapping(mapping(one.get("spec")).get("hard"))
        keys = [key for key in hard if is_extended(key.removeprefix("requests."))]
        if not keys or name.namespace not in concerned:
            continue
        yield Obstacle(
            what="quota",
            namespace=name.namespace,
            object=f"ResourceQuota {name.namespace}/{name.name}",
            message=f"it limits {_list(keys)}, which claims would escape",
            remedy="write a DeviceQuota or a quota of the class, and map the key under `quotas`",
        )


def _limit_ranges(gathered: Gathered, concerned: set[str], state: State) -> Iterator[Obstacle]:
    for one in gathered.of("LimitRange"):
        name = who(one)
        keys = [key for key in _bounded(one) if is_extended(key) or state.configuration.resource(key)]
        if not keys or name.namespace not in concerned:
            continue
        yield Obstacle(
            what="limit range",
            namespace=name.namespace,
            object=f"LimitRange {name.namespace}/{name.name}",
            message=f"it bounds or fills in {_list(keys)}, and would turn back a pod without it",
            remedy="take the key out of the LimitRange before its pods move",
        )


def _bounded(obj: Object) -> list[str]:
    try:
        return sorted(convert(obj, LimitRange).keys)
    except WireError:
        return []


def _queues(families: Iterable[Family]) -> Iterator[Obstacle]:
    counts: Counter[tuple[str, str]] = Counter()
    for family in families:
        queue = _queue(family)
        if queue:
            counts[family.top.namespace, queue] += 1
    for (namespace, queue), number in sorted(counts.items()):
        workloads = "1 workload waits" if number == 1 else f"{number} workloads wait"
        yield Obstacle(
            what="queue",
            namespace=namespace,
            object=f"LocalQueue {namespace}/{queue}",
            message=f"{workloads} in this Kueue queue, which counts the old keys",
            remedy="map the DeviceClasses to resources in Kueue's configuration (deviceClassMappings) before they move",
        )


def _queue(family: Family) -> str:
    """The queue of a workload, by its own label or that of its pods."""
    labels: dict[str, Any] = {}
    for shape in family.shapes:
        for path in ("", *paths(shape, unknown=True)):
            metadata = mapping(mapping(at(shape, path)).get("metadata"))
            labels |= mapping(metadata.get("labels"))
    return text(labels.get(_QUEUE))


def _list(words: Iterable[str]) -> str:
    every = list(words)
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return f"{', '.join(every[:_NAMED])}{more}"
