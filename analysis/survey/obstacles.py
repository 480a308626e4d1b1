"""Obstacles to a migration, except in workloads: the server, classes, quotas, queues, other webhooks, device plugins."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from analysis.autoscalers import autoscaler_findings, reference
from analysis.check import finding_of
from analysis.loading import identity_of, inside, items, text
from analysis.rules import Rule, run
from analysis.survey import operators
from analysis.unserved_nodes import LACKING_PODS, UNSERVED
from cluster.objects import LimitRange
from dra import server
from dra.finding import Finding, make_finding
from dra.objects import is_extended
from dra.policy import BY_CLASS, BY_NAME, COUNT_KEY
from dra.texts import count_of, list_first
from webhook import names
from webhook.admission import decide_object
from webhook.state import NOTHING_INSTALLED, mistake_of
from webhook.translate import pods_in
from webhook.unknown import counts_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from analysis.loading import Reading
    from analysis.survey.families import Family
    from analysis.survey.fleet import PluginStock
    from analysis.survey.gates import GateNeeds
    from webhook.state import State

_QUEUE = "kueue.x-k8s.io/queue-name"
_NAMED = 5
_INSTASLICE = "instaslice"
_OF_NAMESPACE = ("ResourceQuota", "LimitRange")
_SETTINGS = ("ConfigMap", "DaemonSet", "Deployment")  # kinds that the webhook reads in declared namespaces


class Surveyed(NamedTuple):
    """What the rules of a survey read. `namespaces` are those of the survey; empty selects all."""

    reading: Reading
    state: State
    families: Sequence[Family]
    plugins: Sequence[PluginStock]
    gates: GateNeeds
    classes: Collection[str]  # that workloads would request
    unread_pools: Sequence[str]  # pools of network devices that pods request and no ConfigMap that was read describes
    namespaces: Collection[str]


def obstacles(surveyed: Surveyed, missing: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return the obstacles, each once even if several files have it. `missing` has the kinds that could not be read, and why."""
    return tuple(dict.fromkeys(run(RULES, surveyed, missing)))


def _unread_pools(surveyed: Surveyed) -> Iterator[Finding]:
    if surveyed.unread_pools:
        yield make_finding(
            "S001",
            list_first(surveyed.unread_pools, _NAMED),
            "no ConfigMap that describes them was read; in a cluster, only ConfigMaps that a DaemonSet of the plugin mounts are read",
        )


def _classes_without_devices(surveyed: Surveyed) -> Iterator[Finding]:
    fleet = surveyed.state.fleet
    for class_ in sorted(surveyed.classes) if fleet.known else ():
        device_class = fleet.classes.get(class_)
        if device_class is None or not device_class.devices:
            class_name = f"DeviceClass/{class_}"
            if device_class is None:
                yield make_finding("S003", class_name, "workloads would request it, but it does not exist")
            else:
                yield make_finding("S004", class_name, "it exists, but selects no device of a complete pool")


def _mixed_nodes(surveyed: Surveyed) -> Iterator[Finding]:
    for stock in surveyed.plugins:
        if stock.mixed_nodes:
            yield make_finding(
                "S005",
                stock.key,
                f"a device plugin and a driver both offer the devices of node {list_first(stock.mixed_nodes, _NAMED)}",
            )


def _plugin_settings(surveyed: Surveyed) -> Iterator[Finding]:
    installed = surveyed.state.fleet.installed
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


def _unread_evidence(surveyed: Surveyed) -> Iterator[Finding]:
    state = surveyed.state
    evidence = surveyed.reading.evidence if state.fleet.installed != NOTHING_INSTALLED else ()
    if evidence and not state.configuration.file.evidence.namespaces:
        homes = sorted({identity_of(obj).namespace for obj in evidence if obj.get("kind") in _SETTINGS})
        yield make_finding(
            "S010",
            "DrawbridgeConfiguration",
            "the webhook does not read how device plugins and autoscalers are set up",
            f"declare `evidence: {{namespaces: [{', '.join(homes or ['kube-system'])}]}}`",
        )


def _injectors(surveyed: Surveyed) -> Iterator[Finding]:
    for registration in surveyed.reading.of_kinds("MutatingWebhookConfiguration"):
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


def _renaming_operators(surveyed: Surveyed) -> Iterator[Finding]:
    for deployment in surveyed.reading.of_kinds("Deployment"):
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


def _counters(surveyed: Surveyed) -> Iterator[Finding]:
    """Yield objects that count or limit keys, except objects of a namespace that have a finding of their own."""
    for obj in surveyed.reading.non_pods:
        if counts_keys(obj, surveyed.state) and obj.get("kind") not in _OF_NAMESPACE:
            for decision in decide_object(obj, surveyed.state).decisions:
                yield finding_of(obj, decision, "S020")


def _counts_claims(key: str, namespace: str, state: State) -> bool:
    """Return whether a ResourceQuota counts the claims that replace a key: by this key, or by the key that `quotas` maps it to."""
    if key.endswith(BY_CLASS) or key == COUNT_KEY:
        return True
    name = key.removeprefix(BY_NAME)
    if name in state.fleet.extended and state.features.enabled(server.EXTENDED):
        return True
    return state.configuration.file.quotas.get(name, "") in state.quotas.get(namespace, ())


def _quotas(surveyed: Surveyed) -> Iterator[Finding]:
    """Yield a finding for each quota that would not count claims, also in a namespace without workloads: in Git, they may come later."""
    state = surveyed.state
    for quota in surveyed.reading.of_kinds("ResourceQuota"):
        name = identity_of(quota)
        if surveyed.namespaces and name.namespace not in surveyed.namespaces:
            continue
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
            yield make_finding("S012", reference, text_of_limits)
        if forbidden:
            text_of_limits = (
                f"it forbids {list_first(forbidden, _NAMED)}, and claims for these devices would be unlimited"
            )
            yield make_finding("S021", reference, text_of_limits)


def _modes(surveyed: Surveyed) -> Iterator[Finding]:
    for obj in surveyed.reading.of_kinds("Namespace"):
        namespace = identity_of(obj).name
        wrong = mistake_of(inside(obj, "metadata", "labels").get(names.MODE_LABEL))
        if wrong and any(family.namespace == namespace for family in surveyed.families):
            yield make_finding("D214", f"Namespace/{namespace}", wrong)


def _limit_ranges(surveyed: Surveyed) -> Iterator[Finding]:
    for bounds in surveyed.reading.typed.of_type(LimitRange):
        namespace = bounds.metadata.namespace or "default"
        known = surveyed.state.configuration.resource
        keys = [key for key in sorted(bounds.keys) if is_extended(key) or known(key)]
        if keys and any(family.namespace == namespace for family in surveyed.families):
            yield make_finding(
                "S013",
                f"LimitRange/{namespace}/{bounds.metadata.name}",
                f"it limits or sets {list_first(keys, _NAMED)}, and would refuse a pod without this key",
            )


def _queues(surveyed: Surveyed) -> Iterator[Finding]:
    queues: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by namespace
    for family in surveyed.families:
        labels: dict[str, Any] = {}
        for shape in family.shapes:
            for obj in (shape, *pods_in(shape)):
                labels |= inside(obj, "metadata", "labels")
        if queue := text(labels.get(_QUEUE)):
            queues[family.namespace][queue] += 1
    for namespace, queued in sorted(queues.items()):
        yield make_finding(
            "S014",
            f"LocalQueue/{list_first([f'{namespace}/{queue}' for queue in sorted(queued)], _NAMED)}",
            f"{count_of(queued.total(), 'workload')} in {count_of(len(queued), 'Kueue queue')}: Kueue counts the keys that the webhook removes",
        )


def _gates(surveyed: Surveyed) -> Iterator[Finding]:
    return surveyed.gates.obstacles()


_FLEET = ("Node", "ResourceSlice", "DeviceClass")
# Those of the cluster come before those of namespaces.
RULES = (
    Rule(_gates, "S019"),
    Rule(_unread_pools, "S001"),
    Rule(_classes_without_devices, "S003 S004", ("DeviceClass", "ResourceSlice")),
    Rule(_mixed_nodes, "S005", _FLEET),
    Rule(operators.plugins, "S015", ("DaemonSet",)),
    UNSERVED,
    LACKING_PODS,
    Rule(_plugin_settings, "S002 S006 S007"),
    Rule(operators.gpu_operator, "S016 S017 S018"),
    Rule(operators.other_operators, "S016 S017"),
    Rule(autoscaler_findings, "S008 S009"),
    Rule(_unread_evidence, "S010"),
    Rule(_injectors, "S011", ("MutatingWebhookConfiguration",)),
    Rule(_renaming_operators, "S011", ("Deployment",)),
    Rule(_counters, "S020"),
    Rule(_quotas, "S012 S021", ("ResourceQuota",)),
    Rule(_modes, "D214", ("Namespace",)),
    Rule(_limit_ranges, "S013", ("LimitRange",)),
    Rule(_queues, "S014"),
)
