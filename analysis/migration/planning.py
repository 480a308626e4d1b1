"""Makes the migration plan from the documents of a Git tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from analysis.gitops import releases, variables_of
from analysis.migration.charts import DRIVER_CHARTS
from analysis.migration.families import families, lost, release_of, stops
from analysis.migration.followers import exporters, follower_at, followers
from analysis.migration.indirect import drivers_of
from analysis.migration.plan import MigrationPlan
from analysis.migration.platform import fleet_of, platform_of
from analysis.migration.plugins import installed_plugins
from analysis.migration.requests import RequestReader
from analysis.migration.sharing import ReadTree
from analysis.migration.unread import unread
from analysis.migration.values_files import ReleasesOfFiles
from dra.raw import inside, items, mapping, strings, text
from webhook.admission import decide_object
from webhook.reading import PlaceRole, place_of
from webhook.translate import resolve_pointer
from webhook.unknown import accesses, counts_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from analysis.gitops import Release, Tree
    from analysis.migration.followers import Follower
    from analysis.migration.plan import Family
    from analysis.migration.platform import SnapshotNodes
    from analysis.migration.requests import Request
    from analysis.skipped import SkippedFile
    from cluster.manifests import Document
    from dra.raw import Object
    from webhook.state import State

_NAMED: Final = 4
_MANY_NODES: Final = 3  # with devices, so that a move node by node keeps most of them in use
# For kinds from which OpenShift AI copies a key into the workloads of users.
_OFFERED: Final = "workloads of users who choose it request the key, and wait as soon as no plugin serves it"


def make_plan(
    documents: Sequence[Document],
    tree: Tree,
    state: State,
    skipped: Sequence[SkippedFile] = (),
    nodes: Sequence[Object] = (),
) -> MigrationPlan:
    """Plan the move of all objects that the tree's builds include. `documents` are the tree's documents, `nodes` the nodes of a snapshot."""
    reached = tree.reached
    included = sorted(reached)
    all_releases = [release for release in releases(documents, tree) if release.number in reached]
    by_number = {release.number: release for release in all_releases}
    reader = RequestReader(state)
    plugins = tuple(installed_plugins(documents, included, all_releases))
    found_exporters = tuple(exporters(documents, included, all_releases, plugins))
    values = variables_of(documents, tree)
    requests: list[Request] = []
    requesting: list[Document] = []
    for number in included:
        if of_number := [*reader.requests_in(documents[number], by_number.get(number), values.get(number))]:
            requests += of_number
            requesting.append(documents[number])
    parts = [part for part in tree.patched if reached.issuperset(part.by)]
    for part in parts:
        requests += reader.requests_in(part.document, by_number.get(part.number), values.get(part.number))
    in_files = ReleasesOfFiles(documents, all_releases)
    requests += in_files.requests(reader.requests_in)
    moving = {plugin.runner.driver for plugin in plugins}.union(
        *[request.consumer.drivers for request in requests if request.classes]
    )
    # Plugins, drivers and exporters reach all devices of their node on purpose.
    known = {plugin.number for plugin in plugins} | {exporter.number for exporter in found_exporters}
    known |= {release.number for release in all_releases if release.chart in DRIVER_CHARTS}
    uses: list[Request] = []
    for number in included:
        if number not in known:
            uses += reader.indirect_uses(documents[number], by_number.get(number))
    for part in [part for part in parts if part.number not in known]:
        uses += reader.indirect_uses(part.document, by_number.get(part.number))
    uses += in_files.requests(reader.indirect_uses, without=known)
    requests += [use for use in uses if moving.intersection(use.consumer.drivers) or use.consumer.verdict == "cannot"]
    fleet = fleet_of(nodes, reader, state)
    files = {request.consumer.file for request in requests} | {documents[plugin.number].file for plugin in plugins}
    platform = platform_of(documents, reached, files)
    platform = platform.of_snapshot(fleet.version) if fleet.version else platform
    classes = [obj for number in included if (obj := documents[number].object).get("kind") == "DeviceClass"]
    named_classes = {text(inside(obj, "spec").get("extendedResourceName")) for obj in classes}
    read = ReadTree(documents, requests, all_releases, plugins, platform, fleet, state, named_classes)
    of_drivers = tuple(families(read, reader.drivers_of))
    follow = (
        *followers(documents, included, tree, all_releases, plugins, labels=platform.labels),
        *[exporter.follower for exporter in found_exporters if exporter.driver in moving],
        *[follower for document in requesting for follower in _all_visible(document, moving, state)],
        *_counts([documents[number] for number in included], moving, reader, state),
    )
    return MigrationPlan(
        api_version="drawbridge.dev/v1alpha1",
        kind="MigrationPlan",
        families=of_drivers,
        consumers=tuple([request.consumer for request in requests]),
        follow=follow,
        lost=tuple(lost(of_drivers, follow)),
        blockers=(*(platform.blockers() if of_drivers else ()), *_uninstalled(of_drivers, all_releases)),
        by_hand=(
            *(platform.by_hand() if of_drivers else ()),
            *_node_by_node(fleet, of_drivers),
            *stops(of_drivers),
        ),
        skipped=tuple(unread(documents, tree, reached, skipped, state=state, reader=reader)),
    )


def _uninstalled(families_: Iterable[Family], releases: Sequence[Release]) -> Iterator[str]:
    """Yield a condition for each driver that moves although the tree installs neither the driver nor the plugin that it replaces."""
    for family in families_:
        if family.decision == "move" and not family.plugins and release_of(family.driver, releases) is None:
            yield f"no file of the tree installs {family.driver} or its device plugin: install the driver before the merge"


def _all_visible(document: Document, moving: AbstractSet[str], state: State) -> Iterator[Follower]:
    """Yield variables and device files that give containers all devices of the node in addition to their requests."""
    for pointer, name in accesses(document.placed, state):
        around = mapping(resolve_pointer(document.placed, pointer.rpartition("/")[0]))
        if (of_name := moving & set(drivers_of(name))) and around.get("enabled") is not False:
            what = (
                f"with {name}, its containers may reach all devices of their node beside that of their claim: remove it"
            )
            yield follower_at(document, pointer, what, of_name)


def _counts(
    documents: Sequence[Document], moving: AbstractSet[str], reader: RequestReader, state: State
) -> Iterator[Follower]:
    """Yield the objects that limit or count the drivers' keys."""
    for document in documents:
        obj = document.placed
        if not counts_keys(obj, state):
            continue
        for decision in decide_object(obj, state).decisions:
            if decision.key and (of_key := reader.drivers_of(reader.classes_of(decision.key)) & moving):
                detail = _OFFERED if place_of(obj).role is PlaceRole.OFFERS else decision.detail
                yield follower_at(document, decision.pointer, f"{decision.key}: {detail}", of_key)
        for group_number, group in enumerate(items(inside(obj, "spec"), "resourceGroups")):
            for number, key in enumerate(strings(group, "coveredResources")):
                classes = reader.classes_of(key)
                if of_key := reader.drivers_of(classes) & moving:
                    pointer = f"/spec/resourceGroups/{group_number}/coveredResources/{number}"
                    what = f"{key}: name the resource to which Kueue's configuration maps DeviceClass {' or '.join(sorted(classes))}"
                    yield follower_at(document, pointer, what, of_key)


def _node_by_node(fleet: SnapshotNodes, of_drivers: Sequence[Family]) -> Iterator[str]:
    for family in of_drivers:
        nodes = fleet.devices.get(family.driver, {})
        if len(nodes) >= _MANY_NODES:
            yield f"{len(nodes)} nodes have devices of {family.driver}: instead of one commit, they can move node by node (docs/node-by-node.md)"
