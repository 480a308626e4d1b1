"""What stands in the way of a move, apart from the workloads: the server, classes, quotas, queues, other webhooks, device plugins. Pure."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

from cli.loading import identity_of, inside, is_extended, items, text
from cli.survey.obstacle import Obstacle
from cli.survey.operators import of_gpu_operator, of_operators, of_plugins
from cluster.objects import LimitRange
from dra.texts import count_of, list_first
from dra.wire import WireError, convert
from webhook import names
from webhook.state import NOTHING_INSTALLED
from webhook.translate import pods_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cli.loading import Gathered, Object
    from cli.survey.families import Family
    from cli.survey.fleet import PluginStock
    from webhook.state import Installed, State

_QUEUE = "kueue.x-k8s.io/queue-name"
_NAMED = 5
_SETTINGS = ("ConfigMap", "DaemonSet", "Deployment")  # kinds that the webhook reads in declared namespaces


def obstacles(
    gathered: Gathered, state: State, families: Sequence[Family], plugins: Iterable[PluginStock], classes: Iterable[str]
) -> list[Obstacle]:
    """Name everything in the way, each once though several files have it: the cluster's own first, then by namespace."""
    installed = state.fleet.installed
    found = (
        _classes_without_devices(state, classes),
        _mixed_nodes(plugins),
        of_plugins(gathered.of("DaemonSet")),
        _of_plugin_settings(installed),
        of_gpu_operator(installed.gpu_operator),
        of_operators(gathered.installed),
        _of_autoscalers(installed),
        _unread_evidence(gathered, state),
        _injectors(gathered.of("MutatingWebhookConfiguration")),
        _of_namespaces(gathered, state, families),
    )
    return sorted(dict.fromkeys(chain.from_iterable(found)), key=lambda one: one.namespace)


def of_unread_pools(keys: Sequence[str]) -> Iterator[Obstacle]:
    """Say which pools of network devices pods of a live cluster ask for, and no ConfigMap that was read describes."""
    if keys:
        yield Obstacle(
            kind="network pools",
            object=list_first(keys, _NAMED),
            message="no ConfigMap with it was read: on a cluster only one that a DaemonSet of the plugin mounts is",
            remedy="name the plugin's namespace in `evidence: {namespaces: […]}`, or survey a file that has the ConfigMap",
        )


def _classes_without_devices(state: State, classes: Iterable[str]) -> Iterator[Obstacle]:
    for class_ in sorted(classes) if state.fleet.known else ():
        served = state.fleet.classes.get(class_)
        if served is None or not served.devices:
            missing = "workloads would request it, and it does not exist"
            empty = "it exists, and selects no device of a complete pool"
            yield Obstacle(
                kind="class without devices" if served else "class missing",
                object=f"DeviceClass {class_}",
                message=missing if served is None else empty,
                remedy="install the driver's chart on the nodes that have such devices"
                if served is None
                else "check that the driver runs on the nodes that have such devices, and that the class selects what it publishes",
            )


def _mixed_nodes(plugins: Iterable[PluginStock]) -> Iterator[Obstacle]:
    for stock in plugins:
        if stock.mixed:
            yield Obstacle(
                kind="mixed nodes",
                object=stock.key,
                message=f"a device plugin and a driver both give the devices out on {list_first(stock.mixed, _NAMED)}",
                remedy="remove the device plugin from nodes that the driver serves: two pods could be given one device",
            )


def _of_plugin_settings(installed: Installed) -> Iterator[Obstacle]:
    for plugin in installed.plugins:
        for configuration in plugin.configurations.values():
            if configuration.imex:
                yield Obstacle(
                    kind="IMEX channel",
                    object=configuration.where,
                    message="the device plugin gives each container with a GPU IMEX channel 0, and a claim for GPUs does not",
                    remedy="write a ComputeDomain, and give pods that use the channel a claim by its template",
                )
            for key, sharing in configuration.shared.items():
                yield Obstacle(
                    kind="sharing",
                    object=configuration.where,
                    message=f"{key}: it {sharing}",
                    remedy="claims take whole devices: turn the sharing off, or declare what replicas become (`meanings`)",
                )
    for wrong in installed.network.mistakes:
        yield Obstacle(
            kind="network pools",
            object=wrong.where,
            message=f"it {wrong.problem}",
            remedy="correct it: the device plugin does not start with it, and its pools are not known",
        )


def _of_autoscalers(installed: Installed) -> Iterator[Obstacle]:
    for scaler in installed.autoscalers:
        if not scaler.considers:
            pools = f" for NodePool {list_first([pool.name for pool in scaler.pools], _NAMED)}" if scaler.pools else ""
            yield Obstacle(
                kind="autoscaler",
                object=scaler.where or scaler.name,
                message=f"{scaler.release}{pools} does not consider claims: a pod with claims gets no node by them",
                remedy=f"{scaler.remedy}, or leave such pods by `extendedResources: {{autoscaled: leave}}`",
            )
        if scaler.empty:
            yield Obstacle(
                kind="empty node groups",
                object=scaler.where or scaler.name,
                message=f"no node of {list_first(scaler.empty, _NAMED)} exists: for a claim one is created only if the cloud provider reports its devices",
                remedy="keep one node in each; `nodeTemplates` tells what they publish to drawbridge alone",
            )


def _unread_evidence(gathered: Gathered, state: State) -> Iterator[Obstacle]:
    known = gathered.evidence if state.fleet.installed != NOTHING_INSTALLED else ()
    if known and not state.configuration.file.evidence.namespaces:
        homes = sorted({identity_of(one).namespace for one in known if one.get("kind") in _SETTINGS})
        yield Obstacle(
            kind="evidence",
            object="DrawbridgeConfiguration",
            message="the webhook does not read how device plugins and autoscalers are set up",
            remedy=f"declare `evidence: {{namespaces: [{', '.join(homes or ['kube-system'])}]}}`",
        )


def _injectors(registrations: Iterable[Object]) -> Iterator[Obstacle]:
    for one in registrations:
        changes_pods = False
        for hook in items(one, "webhooks"):
            for rule in items(hook, "rules"):
                resources, operations = rule.get("resources"), rule.get("operations")
                if isinstance(resources, list) and isinstance(operations, list):
                    of_pods = {"pods", "*", "*/*"} & set(map(str, resources))
                    changes_pods |= bool(of_pods and {"CREATE", "*"} & set(map(str, operations)))
        if changes_pods and not identity_of(one).name.startswith(names.NAME):
            yield Obstacle(
                kind="injector",
                object=f"MutatingWebhookConfiguration {identity_of(one).name}",
                message="it changes pods at creation, and may add or restore device requests",
                remedy="try one pod with `kubectl apply --dry-run=server` and see what was added",
            )


def _of_namespaces(gathered: Gathered, state: State, families: Sequence[Family]) -> Iterator[Obstacle]:
    concerned = {family.top.namespace for family in families}
    for one in gathered.of("ResourceQuota"):
        name = identity_of(one)
        keys = [key for key in inside(one, "spec", "hard") if is_extended(key.removeprefix("requests."))]
        if keys and name.namespace in concerned:
            yield Obstacle(
                kind="quota",
                namespace=name.namespace,
                object=f"ResourceQuota {name.namespace}/{name.name}",
                message=f"it limits {list_first(keys, _NAMED)}, which claims would bypass",
                remedy="limit the class in a ResourceQuota, and map the key to that line under `quotas`; a DeviceQuota counts apart",
            )
    for one in gathered.of("LimitRange"):
        name = identity_of(one)
        try:
            bounded = sorted(convert(one, LimitRange).keys)
        except WireError:
            continue
        keys = [key for key in bounded if is_extended(key) or state.configuration.resource(key)]
        if keys and name.namespace in concerned:
            yield Obstacle(
                kind="limit range",
                namespace=name.namespace,
                object=f"LimitRange {name.namespace}/{name.name}",
                message=f"it bounds or fills in {list_first(keys, _NAMED)}, and would refuse a pod without it",
                remedy="remove the key from the LimitRange before its pods move",
            )
    queues: Counter[tuple[str, str]] = Counter()
    for family in families:
        labels: dict[str, Any] = {}
        for shape in family.shapes:
            for one in (shape, *pods_in(shape)):
                labels |= inside(one, "metadata", "labels")
        if queue := text(labels.get(_QUEUE)):
            queues[family.top.namespace, queue] += 1
    for namespace in sorted({namespace for namespace, _ in queues}):
        queued = {queue: number for (place, queue), number in sorted(queues.items()) if place == namespace}
        yield Obstacle(
            kind="queue",
            namespace=namespace,
            object=f"LocalQueue {list_first([f'{namespace}/{queue}' for queue in queued], _NAMED)}",
            message=f"{count_of(sum(queued.values()), 'workload')} in {count_of(len(queued), 'Kueue queue')}, and Kueue counts the old keys",
            remedy="map the DeviceClasses to resources in Kueue's configuration (deviceClassMappings) before they move",
        )
