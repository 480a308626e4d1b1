"""Obstacles to a migration, apart from the workloads: the server, classes, quotas, queues, other webhooks, device plugins."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from analysis.autoscalers import autoscaler_findings, reference
from analysis.check import finding_of
from analysis.loading import identity_of, inside, items, text
from analysis.survey.operators import of_gpu_operator, of_operators, of_plugins
from analysis.unserved_nodes import lacking_pods, unserved_nodes
from cluster.objects import LimitRange
from dra import server
from dra.finding import Finding, make_finding
from dra.objects import is_extended
from dra.policy import BY_CLASS, BY_NAME, COUNT_KEY
from dra.texts import count_of, list_first
from dra.wire import WireError, convert
from webhook import names
from webhook.admission import decide_object
from webhook.state import NOTHING_INSTALLED, mistake_of
from webhook.translate import pods_in
from webhook.unknown import counts_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from analysis.loading import Object, Reading
    from analysis.survey.families import Family
    from analysis.survey.fleet import PluginStock
    from webhook.state import Installed, State

_QUEUE = "kueue.x-k8s.io/queue-name"
_NAMED = 5
_INSTASLICE = "instaslice"
_OF_NAMESPACE = ("ResourceQuota", "LimitRange")
_SETTINGS = ("ConfigMap", "DaemonSet", "Deployment")  # kinds that the webhook reads in declared namespaces


def obstacles(
    reading: Reading,
    state: State,
    families: Sequence[Family],
    plugins: Iterable[PluginStock],
    classes: Iterable[str],
    *,
    namespaces: Collection[str] = (),
) -> list[Finding]:
    """Return the obstacles, each once even if several files have it: those of the cluster first, then by namespace.

    `namespaces` are those of the survey; empty selects all.
    """
    installed = state.fleet.installed
    findings = (
        _classes_without_devices(state, classes),
        _mixed_node_findings(plugins),
        of_plugins(obj for obj in (*reading.objects, *reading.made) if obj.get("kind") == "DaemonSet"),
        unserved_nodes(reading),
        lacking_pods(reading.of_kinds("DaemonSet")),
        _of_plugin_settings(installed),
        of_gpu_operator(installed.gpu_operator),
        of_operators(reading.installed),
        autoscaler_findings(installed),
        _unread_evidence(reading, state),
        _injectors(reading.of_kinds("MutatingWebhookConfiguration")),
        _renaming_operators(reading.of_kinds("Deployment")),
        _counter_findings(reading, state),
    )
    quotas = [
        quota
        for quota in reading.of_kinds("ResourceQuota")
        if not namespaces or identity_of(quota).namespace in namespaces
    ]
    of_namespaces = sorted(
        chain(_quota_findings(quotas, state), _namespace_findings(reading, state, families)), key=itemgetter(0)
    )
    return list(dict.fromkeys((*chain.from_iterable(findings), *(finding for _, finding in of_namespaces))))


def of_unread_pools(keys: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding for pools of network devices that pods request and no ConfigMap that was read describes."""
    if keys:
        yield make_finding(
            "S001",
            list_first(keys, _NAMED),
            "no ConfigMap that describes them was read; in a cluster, only ConfigMaps that a DaemonSet of the plugin mounts are read",
        )


def _classes_without_devices(state: State, classes: Iterable[str]) -> Iterator[Finding]:
    for class_ in sorted(classes) if state.fleet.known else ():
        device_class = state.fleet.classes.get(class_)
        if device_class is None or not device_class.devices:
            class_name = f"DeviceClass/{class_}"
            if device_class is None:
                yield make_finding("S003", class_name, "workloads would request it, but it does not exist")
            else:
                yield make_finding("S004", class_name, "it exists, but selects no device of a complete pool")


def _mixed_node_findings(plugins: Iterable[PluginStock]) -> Iterator[Finding]:
    for stock in plugins:
        if stock.mixed_nodes:
            yield make_finding(
                "S005",
                stock.key,
                f"a device plugin and a driver both offer the devices of node {list_first(stock.mixed_nodes, _NAMED)}",
            )


def _of_plugin_settings(installed: Installed) -> Iterator[Finding]:
    for plugin in installed.plugins:
        for configuration in plugin.configurations.values():
            if configuration.imex:
                yield make_finding(
                    "S006",
                    reference(configuration.where),
                    "the device plugin gives IMEX channel 0 to each container that gets a GPU; a claim for GPUs does not",
                )
            for key, sharing in configuration.shared.items():
                yield make_finding(
                    "S007",
                    reference(configuration.where),
                    f"{key}: it {sharing}",
                )
    for wrong in installed.network.mistakes:
        yield make_finding(
            "S002",
            reference(wrong.where),
            f"it {wrong.problem}",
        )


def _unread_evidence(reading: Reading, state: State) -> Iterator[Finding]:
    evidence = reading.evidence if state.fleet.installed != NOTHING_INSTALLED else ()
    if evidence and not state.configuration.file.evidence.namespaces:
        homes = sorted({identity_of(obj).namespace for obj in evidence if obj.get("kind") in _SETTINGS})
        yield make_finding(
            "S010",
            "DrawbridgeConfiguration",
            "the webhook does not read how device plugins and autoscalers are set up",
            f"declare `evidence: {{namespaces: [{', '.join(homes or ['kube-system'])}]}}`",
        )


def _injectors(registrations: Iterable[Object]) -> Iterator[Finding]:
    for registration in registrations:
        changes_pods = False
        for hook in items(registration, "webhooks"):
            for rule in items(hook, "rules"):
                resources, operations = rule.get("resources"), rule.get("operations")
                if isinstance(resources, list) and isinstance(operations, list):
                    of_pods = {"pods", "*", "*/*"} & set(map(str, resources))
                    changes_pods |= bool(of_pods and {"CREATE", "*"} & set(map(str, operations)))
        if changes_pods and not identity_of(registration).name.startswith(names.NAME):
            yield make_finding(
                "S011",
                f"MutatingWebhookConfiguration/{identity_of(registration).name}",
                "it changes pods at creation, and may add or restore device requests",
            )


def _renaming_operators(deployments: Iterable[Object]) -> Iterator[Finding]:
    for deployment in deployments:
        name = identity_of(deployment)
        images = [
            text(item.get("image")) for item in items(inside(deployment, "spec", "template", "spec"), "containers")
        ]
        if any(_INSTASLICE in part for part in (name.name, *images)):
            yield make_finding(
                "S011",
                f"Deployment/{name.namespace}/{name.name}",
                "the webhook of Instaslice renames the MIG keys of pods, and which of the two webhooks sees the original key depends on their order",
            )


def _counter_findings(reading: Reading, state: State) -> Iterator[Finding]:
    """Yield objects that count or limit keys, except objects of a namespace that have a finding of their own."""
    for obj in reading.non_pods:
        if counts_keys(obj) and obj.get("kind") not in _OF_NAMESPACE:
            for decision in decide_object(obj, state).decisions:
                yield finding_of(obj, decision, "S020")


def _counts_claims(key: str, namespace: str, state: State) -> bool:
    """Return whether a ResourceQuota counts the claims that replace a key: by this key, or by the key that `quotas` maps it to."""
    if key.endswith(BY_CLASS) or key == COUNT_KEY:
        return True
    name = key.removeprefix(BY_NAME)
    if name in state.fleet.extended and state.features.enabled(server.EXTENDED):
        return True
    return state.configuration.file.quotas.get(name, "") in state.quotas.get(namespace, ())


def _quota_findings(quotas: Iterable[Object], state: State) -> Iterator[tuple[str, Finding]]:
    """Yield a finding for each quota that would not count claims, also in a namespace without workloads: in Git, they may come later."""
    for quota in quotas:
        name = identity_of(quota)
        hard = {
            key: str(amount)
            for key, amount in inside(quota, "spec", "hard").items()
            if is_extended(key.removeprefix(BY_NAME)) and not _counts_claims(key, name.namespace, state)
        }
        limited = [key for key, amount in hard.items() if amount != "0"]
        forbidden = [key for key, amount in hard.items() if amount == "0"]
        reference = f"ResourceQuota/{name.namespace}/{name.name}"
        if limited:
            text_of_limits = f"it limits {list_first(limited, _NAMED)}, which claims would bypass"
            yield name.namespace, make_finding("S012", reference, text_of_limits)
        if forbidden:
            text_of_limits = (
                f"it forbids {list_first(forbidden, _NAMED)}, and claims for these devices would be unlimited"
            )
            yield name.namespace, make_finding("S021", reference, text_of_limits)


def _namespace_findings(reading: Reading, state: State, families: Sequence[Family]) -> Iterator[tuple[str, Finding]]:
    """Yield the obstacles in namespaces, each with its namespace."""
    concerned = {family.namespace for family in families}
    for obj in reading.of_kinds("Namespace"):
        namespace = identity_of(obj).name
        wrong = mistake_of(inside(obj, "metadata", "labels").get(names.MODE_LABEL))
        if wrong and namespace in concerned:
            yield namespace, make_finding("D214", f"Namespace/{namespace}", wrong)
    for obj in reading.of_kinds("LimitRange"):
        name = identity_of(obj)
        try:
            bounded = sorted(convert(obj, LimitRange).keys)
        except WireError:
            continue
        keys = [key for key in bounded if is_extended(key) or state.configuration.resource(key)]
        if keys and name.namespace in concerned:
            finding = make_finding(
                "S013",
                f"LimitRange/{name.namespace}/{name.name}",
                f"it limits or sets {list_first(keys, _NAMED)}, and would refuse a pod without this key",
            )
            yield name.namespace, finding
    queues: Counter[tuple[str, str]] = Counter()
    for family in families:
        labels: dict[str, Any] = {}
        for shape in family.shapes:
            for obj in (shape, *pods_in(shape)):
                labels |= inside(obj, "metadata", "labels")
        if queue := text(labels.get(_QUEUE)):
            queues[family.namespace, queue] += 1
    for namespace in sorted({namespace for namespace, _ in queues}):
        queued = {queue: number for (place, queue), number in sorted(queues.items()) if place == namespace}
        finding = make_finding(
            "S014",
            f"LocalQueue/{list_first([f'{namespace}/{queue}' for queue in queued], _NAMED)}",
            f"{count_of(sum(queued.values()), 'workload')} in {count_of(len(queued), 'Kueue queue')}: Kueue counts the keys that the webhook removes",
        )
        yield namespace, finding
