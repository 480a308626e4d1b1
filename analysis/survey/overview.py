"""Surveys a cluster: the workloads that request devices, the decision about each, and the obstacles."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from analysis.configuration import in_mode
from analysis.gitops import claims_in_values
from analysis.loading import CLUSTER, Reading, Unread, identity_of, inside
from analysis.rules import NotChecked, not_checked
from analysis.survey.families import Family, families, has_ended
from analysis.survey.fleet import DriverStock, PluginStock, Use, plugin_stocks, published, uses
from analysis.survey.gates import GateNeeds
from analysis.survey.obstacles import RULES, Surveyed, obstacles
from analysis.survey.pools import PoolDeclarations, declare_pools
from analysis.survey.verdicts import JudgedWorkload, Key, MoveJudge, MoveReason, is_on_claims
from cluster import resources
from dra.finding import Finding
from dra.texts import count_of
from webhook import names
from webhook.dialects import Outcome
from webhook.placement import NodesOfName, group_nodes
from webhook.state import Mode, mode_in
from webhook.translate import pods_in
from webhook.unknown import requests_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from analysis.loading import Object

    Test = Callable[[Mapping[str, str]], bool]

_KEPT: Final = (Outcome.LEFT, Outcome.UNKNOWN)  # outcomes of keys that new pods have


class Asking(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A workload that requests devices. It counts once, together with the objects that it created."""

    namespace: str
    kind: str
    name: str
    outcome: Outcome | None  # None if it has only claims of its own
    potential_outcome: Outcome | None  # in mode `enforce`, if different
    dialects: tuple[str, ...]
    keys: tuple[Key, ...]
    # Its living pods.
    pods: int
    # Its living pods with a node.
    running_pods: int
    # Its living pods that use claims already.
    pods_with_claims: int
    warnings: tuple[str, ...] = ()
    file: str = ""
    line: int = 0


class Overview(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a survey."""

    server: str
    features: dict[str, bool]
    objects: int
    pods: int
    workloads: tuple[Asking, ...]
    reasons: tuple[MoveReason, ...]
    obstacles: tuple[Finding, ...]
    plugins: tuple[PluginStock, ...]
    drivers: tuple[DriverStock, ...]
    # For each key that migrates, the nodes by state: plugin, driver, both, pluginWithoutDevices, neither.
    nodes_by_key: tuple[NodesOfName, ...]
    # Pools of network devices that stay, and the declarations that would translate them, as YAML.
    network: PoolDeclarations
    classes: dict[str, int]  # devices by class
    modes: dict[str, str]  # by namespace
    unread: tuple[Unread, ...]
    not_checked: tuple[NotChecked, ...]  # the rules whose input could not be read

    @property
    def outcomes(self) -> Counter[Outcome]:
        """The number of workloads by outcome."""
        return Counter(workload.outcome for workload in self.workloads if workload.outcome is not None)


class SurveyScope(msgspec.Struct, frozen=True, kw_only=True):
    """The selection of workloads: namespaces, and labels of a workload or its pods. Empty selects everything."""

    namespaces: frozenset[str] = frozenset()
    labels: Test | None = None

    def holds(self, family: Family) -> bool:
        """Return whether a workload is in the selection."""
        if self.namespaces and family.namespace not in self.namespaces:
            return False
        if self.labels is None:
            return True
        for shape in (*family.shapes, *family.pods[:1]):
            labelled = (shape, *pods_in(shape))
            if any(self.labels(inside(obj, "metadata", "labels")) for obj in labelled):
                return True
        return False


def overview(reading: Reading, scope: SurveyScope, mode: str | None = None) -> Overview:
    """Survey everything that was read; `mode` is that of `--mode`."""
    configuration, features = reading.configuration, reading.features
    state = in_mode(reading.state, mode)
    stock = state.stock
    move_judge = MoveJudge(state)
    needs = GateNeeds(reading, features, stock)
    workloads: list[Asking] = []
    concerned: list[Family] = []
    classes: set[str] = set()
    staying_keys: set[str] = set()
    moving: Counter[Use] = Counter()
    staying: Counter[Use] = Counter()
    keeping: Counter[str] = Counter()  # workloads whose new pods would have a key
    of_reason: Counter[MoveReason] = Counter()
    pods_of_reason: Counter[MoveReason] = Counter()

    is_installed = any(
        identity_of(obj).name.startswith(names.NAME) for obj in reading.of_kinds("MutatingWebhookConfiguration")
    )

    def asks(obj: Object) -> bool:
        return requests_outside(obj, state) or any(claims_in_values(obj))

    for family in families(reading.objects, asks, reading.places):
        judged = move_judge.judge_workload(family)
        own = needs.of_own_claims(family)
        if scope.holds(family):
            needs.count(family, judged, own)
        if judged is None:
            continue
        judged = needs.settled(judged, own)
        # The use of nodes counts all workloads, not only the selected ones.
        (staying if judged.stays else moving).update(uses(family.pods))
        keeping.update({key.key for key in judged.keys if not is_installed or key.outcome in _KEPT})
        if scope.holds(family):
            workloads.append(_asking(family, judged, *(reading.places[family.number] if reading.places else ("", 0))))
            concerned.append(family)
            classes |= judged.classes
            staying_keys |= judged.stays
            of_reason.update(judged.reasons)
            pods_of_reason.update(dict.fromkeys(judged.reasons, len(family.pods)))
    workloads.sort(
        key=lambda workload: (workload.namespace, workload.kind, workload.name, workload.file, workload.line)
    )
    plugins = plugin_stocks(stock, moving, staying, configuration) if stock is not None else []
    modes = {name: mode_in(state, name) for name in sorted({workload.namespace for workload in workloads} - {CLUSTER})}
    pools_by_name = state.fleet.installed.network.pools
    pools = [pool for name, pool in pools_by_name.items() if name in staying_keys and configuration.resource(name)]
    # In a cluster and in a dump of one, the plugin's ConfigMap exists; manifests need not have it.
    is_cluster = reading.is_live or reading.is_dump
    undescribed = sorted(staying_keys - pools_by_name.keys()) if is_cluster else ()
    unread_pools = [
        key for key in undescribed if any("<pool>" in target.row.name for target in configuration.resource(key))
    ]
    surveyed = Surveyed(reading, state, concerned, plugins, needs, classes, unread_pools, scope.namespaces)
    kinds = {kind.id: kind.kind for kind in resources.ALL}
    missing = {kinds[missed.kind]: missed.reason for missed in reading.unread if missed.kind in kinds}
    findings = obstacles(surveyed, missing)
    return Overview(
        server=reading.server.version if reading.server else "",
        features={gate: features.enabled(gate) for gate in features.known()},
        objects=len(reading.objects),
        pods=sum(not has_ended(pod) for pod in reading.of_kinds("Pod")),
        workloads=tuple(workloads),
        reasons=tuple(
            _sorted([replace(reason, workloads=of_reason[reason], pods=pods_of_reason[reason]) for reason in of_reason])
        ),
        obstacles=findings,
        plugins=tuple([replace(plugin, needed_by=tuple(_needed_by(plugin, keeping, findings))) for plugin in plugins]),
        drivers=tuple(published(stock)) if stock is not None else (),
        nodes_by_key=group_nodes(stock.nodes.values(), state.fleet, configuration) if stock is not None else (),
        network=declare_pools(pools, configuration),
        classes={name: served.devices for name, served in sorted(state.fleet.classes.items())},
        modes={name: of_name.value for name, of_name in modes.items() if is_installed or of_name is not Mode.ENFORCE},
        unread=reading.unread,
        not_checked=not_checked(RULES, reading, missing),
    )


def _needed_by(plugin: PluginStock, keeping: Counter[str], findings: Iterable[Finding]) -> Iterator[str]:
    """Yield why a device plugin must not be deleted yet."""
    if in_use := plugin.migrating_devices + plugin.staying_devices:
        yield f"pods use {count_of(in_use, 'device')} of it"
    if workloads := keeping[plugin.key]:
        yield f"new pods of {count_of(workloads, 'workload')} would request the key"
    for finding in findings:  # about objects that limit or count the key, and not the claims that replace it
        if finding.code in ("S012", "S020", "S021") and plugin.key in finding.message:
            yield f"{finding.object} [{finding.code}]"


def _asking(family: Family, judged: JudgedWorkload, file: str, line: int) -> Asking:
    top = family.top
    return Asking(
        namespace=family.namespace,
        kind=top.kind,
        name=top.name,
        outcome=judged.outcome,
        potential_outcome=judged.potential_outcome,
        dialects=tuple(dict.fromkeys(key.dialect for key in judged.keys if key.dialect)),
        keys=judged.keys,
        pods=len(family.pods),
        running_pods=sum(bool(inside(pod, "spec").get("nodeName")) for pod in family.pods),
        pods_with_claims=sum(map(is_on_claims, family.pods)),
        warnings=judged.warnings,
        file=file,
        line=line,
    )


def _sorted(reasons: Iterable[MoveReason]) -> list[MoveReason]:
    """Sort reasons by outcome, the worst first, then by number of pods, the largest first."""
    order = list(Outcome)
    return sorted(
        reasons,
        key=lambda reason: (
            -order.index(reason.outcome),
            bool(reason.until or reason.keep_reason),
            -reason.pods,
            -reason.workloads,
            reason.key,
            reason.detail,
        ),
    )
