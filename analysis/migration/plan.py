"""Makes the plan of a move from device plugins to DRA drivers, from the files of a Git tree.

    consumers  the places that request devices by a legacy key, and what happens to each
    families   by driver: the keys, the plugin that serves them now, how it shares devices, and the chart that replaces it
    follow     what depends on the plugin and has to change in the same commit
    lost       what works with the plugin and not with the driver
    blockers   what has to be true before, as far as the tree shows it
    byHand     what a person does before and after

A person decides about `sharing.decision` and `verdict`; everything else is made again by `plan --check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from analysis.check import finding_of
from analysis.gitops import releases
from analysis.migration.charts import CONSUMERS, DRIVERS
from analysis.migration.followers import Follower, follower_at, followers
from analysis.migration.platform import Platform, platform_of
from analysis.migration.plugins import InstalledPlugin, installed_plugins
from analysis.requesting import amounts_in, classes_in, requests_devices
from analysis.survey import with_all_drivers
from dra.raw import Object, inside, mapping
from dra.texts import list_first
from webhook.admission import decide_object
from webhook.dialects import Outcome
from webhook.translate import decides_outcome, name_of, namespace_of, paths, resolve_pointer
from webhook.unknown import asks_in_unknown_kind, counts_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from analysis.gitops import Release, Tree
    from analysis.skipped import SkippedFile
    from cluster.manifests import Document
    from webhook.state import State
    from webhook.translate import PodVerdict

Verdict = Literal["edit", "by hand", "cannot"]
Decision = Literal["exclusive", "named claim", "shares", "admin access", "stay"]
_MOVES: Final = (Outcome.TRANSLATED, Outcome.APPROXIMATED)
_NAMED: Final = 4


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of a plan."""


class Consumer(_Part, frozen=True, kw_only=True):
    """A place that requests devices by a legacy key."""

    object: str
    file: str
    line: int
    place: str  # a JSON pointer into the object
    key: str
    amount: str = ""
    device_class: str = ""
    verdict: Verdict
    why: str = ""  # why the program cannot edit it, or the lines to write by hand


class Plugin(_Part, frozen=True, kw_only=True):
    """A release that runs the device plugin of a family, or its operator."""

    object: str
    file: str
    line: int
    chart: str = ""
    version: str = ""
    how: str  # what becomes of it


class Replacement(_Part, frozen=True, kw_only=True):
    """The chart of the driver."""

    chart: str
    url: str
    version: str
    values: Object
    notes: tuple[str, ...] = ()
    installed: str = ""  # where the tree installs it already


class Sharing(_Part, frozen=True, kw_only=True):
    """How pods share devices now, and the decision about it."""

    now: str
    decision: Decision
    because: str
    choices: dict[str, str]


class Family(_Part, frozen=True, kw_only=True):
    """The keys that one driver serves."""

    driver: str
    keys: tuple[str, ...]
    device_classes: tuple[str, ...]
    plugins: tuple[Plugin, ...]
    replacement: Replacement | None = None
    sharing: Sharing | None = None


class MigrationPlan(_Part, frozen=True, kw_only=True):
    """The plan of a move."""

    api_version: Literal["drawbridge.dev/v1alpha1"]
    kind: Literal["MigrationPlan"]
    families: tuple[Family, ...]
    consumers: tuple[Consumer, ...]
    follow: tuple[Follower, ...]
    lost: tuple[str, ...]
    blockers: tuple[str, ...]
    by_hand: tuple[str, ...]
    skipped: tuple[str, ...]


class _Request(NamedTuple):
    """A consumer, with what the families need to know about it."""

    consumer: Consumer
    classes: frozenset[str]  # of the claims that replace the request
    namespace: str  # of the pods


class _ReadTree(NamedTuple):
    """What the builds of a tree include."""

    documents: Sequence[Document]
    requests: Sequence[_Request]
    releases: Sequence[Release]
    plugins: Sequence[InstalledPlugin]
    platform: Platform
    state: State


def make_plan(
    documents: Sequence[Document], tree: Tree, state: State, skipped: Sequence[SkippedFile] = ()
) -> MigrationPlan:
    """Plan the move of everything that the tree's builds include; `documents` are those of the tree."""
    all_numbers = range(len(documents))
    has_builds = any(map(tree.includes, all_numbers))
    # Nothing in the tree builds the entry of a cluster.
    included = [number for number in all_numbers if not has_builds or tree.includes(number) or tree.built_by(number)]
    reached = frozenset(included)
    of_builds = [documents[number] for number in included]
    all_releases = [release for release in releases(documents, tree) if release.number in reached]
    by_number = {release.number: release for release in all_releases}
    moved = with_all_drivers(state, shares=False)
    requests: list[_Request] = []
    for number, document in zip(included, of_builds, strict=True):
        requests += _requests_in(document, by_number.get(number), state, moved)
    plugins = tuple(installed_plugins(documents, included, all_releases))
    read = _ReadTree(documents, requests, all_releases, plugins, platform_of(documents), state)
    families = tuple(_families(read))
    keys = {key for family in families for key in family.keys}
    return MigrationPlan(
        api_version="drawbridge.dev/v1alpha1",
        kind="MigrationPlan",
        families=families,
        consumers=tuple([request.consumer for request in requests]),
        follow=(*followers(documents, included, tree, all_releases, plugins), *_counts(of_builds, keys, state)),
        lost=tuple(_lost(families)),
        blockers=tuple(read.platform.blockers()) if families else (),
        by_hand=tuple(_by_hand(families, read.platform)),
        skipped=tuple(_skipped(documents, reached, skipped, state)),
    )


def _requests_in(document: Document, release: Release | None, state: State, moved: State) -> Iterator[_Request]:
    """Yield the places of one object that request devices."""
    obj = document.placed
    if counts_keys(obj):
        return
    decisions = decide_object(obj, state).decisions
    amounts = amounts_in(obj, state)
    if not decisions or not requests_devices(obj, decisions, amounts, state.configuration):
        return
    has_templates = bool(paths(obj))
    of_templates = decide_object(obj, moved) if has_templates else None
    for decision in decisions:
        if not decision.dialect or not decides_outcome(decision):
            continue
        pointer = finding_of(obj, decision, "D211").path
        limits = mapping(resolve_pointer(obj, pointer.rpartition("/")[0]))
        later = of_templates or decide_object(_pod_with(limits, namespace_of(obj)), moved)
        verdict, why = _why_not_moved(later, decision.key)
        if verdict == "edit" and not has_templates:
            verdict, why = _in_values(obj, release)
        classes = frozenset[str]().union(
            *[classes_in(inside(mapping(spec), "spec")) for spec in later.templates.values()]
        )
        consumer = Consumer(
            object=name_of(obj),
            file=document.file,
            line=document.line_of(pointer),
            place=pointer,
            key=decision.key,
            amount=amounts.get((decision.container, decision.key)) or str(limits.get(decision.key, "")),
            device_class=" or ".join(sorted(classes)),
            verdict=verdict,
            why=why,
        )
        yield _Request(consumer, classes, namespace_of(obj))


def _pod_with(limits: Object, namespace: str) -> Object:
    """Return a pod with one container that has the limits of a chart's values."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "app", "namespace": namespace},
        "spec": {"containers": [{"name": "app", "image": "app", "resources": {"limits": limits}}]},
    }


def _why_not_moved(later: PodVerdict, key: str) -> tuple[Verdict, str]:
    """Return whether claims can replace a key, and why not; `later` is decided as if all drivers were installed."""
    decided = next((decision for decision in later.decisions if decision.key == key), None)
    if decided is None:
        return "cannot", "drawbridge does not know what its chart makes of it"
    return ("edit", "") if decided.outcome in _MOVES else ("cannot", decided.detail)


def _in_values(obj: Object, release: Release | None) -> tuple[Verdict, str]:
    """Return whether the values of a chart have a known place for claims, and what a person does otherwise."""
    if release is None or (places := CONSUMERS.get(release.chart)) is None:
        chart = f"the chart {release.chart}" if release is not None else f"a {obj.get('kind')}"
        return "by hand", (
            f"drawbridge does not know where {chart} takes claims: use `extendedResourceName` (Kubernetes 1.36), a patch of its output, or ask its authors"
        )
    if release.version and _version(release.version) < places.since:
        since = ".".join(map(str, places.since))
        return "by hand", f"update chart {release.chart} {release.version} to {since} or newer: {places.place}"
    return "edit", ""


def _version(version: str) -> tuple[int, int]:
    parts = [part for part in version.lstrip("v").split(".")[:2] if part.isdecimal()]
    return (int(parts[0]), int(parts[1])) if len(parts) == 2 else (1 << 30, 0)


def _families(read: _ReadTree) -> Iterator[Family]:
    by_class = {name: target.driver for target in read.state.configuration.targets.values() for name in target.classes}
    keys: dict[str, dict[str, set[str]]] = {}  # classes by driver and key
    for request in read.requests:
        for device_class in request.classes:
            of_driver = keys.setdefault(by_class.get(device_class, device_class), {})
            of_driver.setdefault(request.consumer.key, set()).add(device_class)
    for plugin in read.plugins:  # a plugin without consumers is replaced, too
        keys.setdefault(plugin.runner.driver, {})
    for driver, of_driver in sorted(keys.items()):
        yield Family(
            driver=driver,
            keys=tuple(sorted(of_driver)),
            device_classes=tuple(sorted(set().union(*of_driver.values()))),
            plugins=tuple(
                _plugin(plugin, read.documents[plugin.number])
                for plugin in read.plugins
                if plugin.runner.driver == driver
            ),
            replacement=_replacement(driver, read),
            sharing=_sharing(driver, of_driver, read),
        )


def _plugin(plugin: InstalledPlugin, document: Document) -> Plugin:
    return Plugin(
        object=name_of(document.placed),
        file=document.file,
        line=document.line,
        chart=plugin.chart,
        version=plugin.version,
        how=f"it stays, and stops running the plugin (`{'.'.join(plugin.runner.switch)}: false`)"
        if plugin.stays
        else "it goes",
    )


def _replacement(driver: str, read: _ReadTree) -> Replacement | None:
    chart = DRIVERS.get(driver)
    if chart is None:
        return None
    names = (chart.name, chart.url.rpartition("/")[2])
    installed = [read.documents[release.number] for release in read.releases if release.chart in names]
    return Replacement(
        chart=chart.name,
        url=chart.url,
        version=chart.version,
        values={**chart.values, **(chart.values_on_talos if read.platform.is_talos else {})},
        notes=chart.notes,
        installed=f"{installed[0].file}:{installed[0].line}" if installed else "",
    )


def _sharing(driver: str, keys: Collection[str], read: _ReadTree) -> Sharing | None:
    """Return how the plugin shares devices, and a proposal; None if each pod gets devices of its own."""
    usually = read.state.fleet.installed.usually
    shared = {key: replicas for key in sorted(keys) if (replicas := usually(key)) is not None}
    if not shared:
        return None
    users = [request for request in read.requests if request.consumer.key in shared]
    namespaces = sorted({request.namespace for request in users})
    homes = " and ".join(namespaces)
    chart = DRIVERS.get(driver)
    names = list_first([request.consumer.object for request in users], _NAMED)
    choices = {
        "exclusive": f"each pod gets a device of its own: {len(users)} need {len(users)} devices ({names})",
        "named claim": "one ResourceClaim that all pods of one namespace name: they share its device, and run on one node",
        "admin access": (
            "claims with adminAccess and allocationMode All: each pod sees all devices of its node, no claim counts them, and the namespace "
            "needs the label resource.kubernetes.io/admin-access=true"
        ),
        "stay": "the device plugin stays, and nothing moves",
    }
    if chart is not None and chart.shares:
        choices["shares"] = chart.shares
    if len(users) == 1:
        decision: Decision = "exclusive"
        because = "only one workload of the tree uses the devices"
    elif len(namespaces) == 1:
        decision, because = "named claim", f"all workloads are in namespace {namespaces[0]}"
    elif "shares" in choices:
        decision, because = (
            "shares",
            f"workloads in {homes} share devices, and a claim belongs to one namespace",
        )
    else:
        decision = "stay"
        because = (
            f"workloads in {homes} share devices, a claim belongs to one namespace, and the driver has no shares: "
            f"choose exclusive if there are {len(users)} devices or more"
        )
    return Sharing(now="; ".join(map(str, shared.values())), decision=decision, because=because, choices=choices)


def _lost(families: Sequence[Family]) -> Iterator[str]:
    for family in families:
        if family.sharing is not None and family.sharing.decision != "shares":
            yield f"{family.driver}: sharing ({family.sharing.now}); see the decision about sharing"
        chart = DRIVERS.get(family.driver)
        if chart is not None and chart.exporter:
            yield f"{family.driver}: the pod of a device in metrics, until the exporter is changed: {chart.exporter}"
        if family.keys:
            yield f"{family.driver}: `kubectl describe node` counts no {list_first(family.keys, _NAMED)}; `drawbridge free` counts the devices"


def _counts(documents: Sequence[Document], keys: Collection[str], state: State) -> Iterator[Follower]:
    """Yield the objects that limit or count the keys that go."""
    for document in documents:
        obj = document.placed
        for decision in decide_object(obj, state).decisions if counts_keys(obj) else ():
            if decision.key in keys:
                pointer = finding_of(obj, decision, "S020").path
                yield follower_at(document, pointer, f"{decision.key}: {decision.detail}")


def _by_hand(families: Sequence[Family], platform: Platform) -> Iterator[str]:
    if families:
        yield from platform.by_hand()
    for family in families:
        keys = list_first(family.keys, _NAMED)
        if family.plugins and keys:
            yield f"before the switch: scale the consumers of {keys} to 0, and wait until no pod holds a device"
            yield (
                f"between plugin and driver: wait until `kubectl get node -o yaml` shows 0 allocatable {keys}; "
                "the kubelet keeps the key with 0 until it restarts, so do not wait for its absence"
            )


def _skipped(
    documents: Sequence[Document], reached: Collection[int], skipped: Sequence[SkippedFile], state: State
) -> Iterator[str]:
    """Yield the files with requests that nothing builds, or that are not read as objects."""
    for number, document in enumerate(documents):
        obj = document.placed
        if number in reached or counts_keys(obj) or not (paths(obj) or asks_in_unknown_kind(obj, state)):
            continue
        decisions = [decision for decision in decide_object(obj, state).decisions if decision.dialect]
        if decisions:
            keys = list_first(sorted({decision.key for decision in decisions}), _NAMED)
            yield f"{document.file}: no build includes {name_of(obj)}, which requests {keys}"
    for skip in skipped:
        if skip.key:
            yield f"{skip.file}:{skip.line}: {skip.key} in a file that is {skip.kind}"
