"""Reads a live cluster in pages. Kinds that may not be read are recorded and skipped; nothing is written."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from analysis.configuration import ConfigurationInForce, configuration_in_force
from analysis.loading.objects import Gathered, Trimmer, Unread, owner_of
from analysis.loading.portion import Portion
from cluster import resources
from cluster.errors import ApiError, Gone, NotFound, Throttled, Unauthorized, Unavailable
from cluster.manifests import parse
from cluster.protocol import pages
from cluster.resources import Resource
from dra.raw import inside, items, text
from webhook import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cluster.manifests import Document
    from cluster.protocol import Cluster
    from dra.raw import Object
    from webhook.state import Configuration

    ReportProgress = Callable[[str], None]

T = TypeVar("T")
U = TypeVar("U")

# Claims and pods last, so that the owners of objects created in between were read.
_KINDS: tuple[Resource[Any], ...] = (
    resources.NAMESPACES,
    resources.NODES,
    resources.RESOURCE_QUOTAS,
    resources.LIMIT_RANGES,
    resources.DEVICE_CLASSES,
    resources.RESOURCE_SLICES,
    resources.DEVICE_TAINT_RULES,
    resources.DEVICE_COMPATIBILITIES,
    resources.RESOURCE_CLAIMS,
    resources.RESOURCE_CLAIM_TEMPLATES,
    resources.MUTATING_WEBHOOKS,
    *resources.WORKLOADS,
    resources.PODS,
)
_OPTIONAL = frozenset({"drawbridge.dev", "resource.k8s.io"})  # groups that a server need not have
# Kinds without which a survey is incomplete.
NECESSARY_KINDS = frozenset((resources.PODS.id, *(resource.id for resource in resources.WORKLOADS)))
_CONCURRENT_LISTS = 4
_TRIES = 3  # of a list whose continue token expires, and of a page that is throttled
_MOST_CUSTOM_KINDS = 200
_DEFINITIONS = replace(resources.CUSTOM_RESOURCE_DEFINITIONS, page=50)
# Namespaces where vendors' instructions install device plugins and autoscalers.
_USUAL_NAMESPACES = (
    "kube-system",
    "gpu-operator",
    "nvidia-device-plugin",
    "karpenter",
    "inteldeviceplugins-system",
    "sriov-network-operator",
    "openshift-sriov-network-operator",
    "nvidia-network-operator",
)
# A name that may be part of a URL path.
_NAME = re.compile(r"[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?").fullmatch


def evidence_in(configuration: Configuration, *, narrow: bool) -> tuple[str, ...]:
    """Return the namespaces of device plugins and autoscalers: the declared ones, else the usual ones unless `narrow`."""
    return configuration.file.evidence.namespaces or (() if narrow else _USUAL_NAMESPACES)


async def configuration_of_cluster(cluster: Cluster, given: ConfigurationInForce | None) -> ConfigurationInForce:
    """Return the configuration in force in a live cluster: `given`, else the ConfigMap of the installation, else the defaults."""
    if given is not None:
        return given
    documents, problem = await read_installed(cluster)
    return configuration_in_force(None, documents)._replace(problem=problem)


async def read_installed(cluster: Cluster) -> tuple[list[Document], str]:
    """Read the webhook configuration and the ConfigMap of the installation; return them, and why they are not known."""
    registrations, config_maps = resources.MUTATING_WEBHOOKS.raw, resources.CONFIG_MAPS.raw
    objects: list[Object] = []
    wanted = registrations.plural
    try:
        async for page in pages(cluster, registrations, fields=f"metadata.name={names.NAME}"):
            objects += map(registrations.plain, page.items)
        hooks = [hook for one in objects for hook in items(one, "webhooks")]
        services = [inside(hook, "clientConfig", "service") for hook in hooks]
        for namespace in dict.fromkeys(filter(None, (text(one.get("namespace")) for one in services))):
            wanted = f"ConfigMap {namespace}/{names.NAME}"
            objects.append(config_maps.plain(await cluster.get(config_maps, names.NAME, namespace)))
    except (Unauthorized, Unavailable):
        raise
    except NotFound:
        return [], f"{wanted} does not exist"
    except ApiError as error:
        return [], f"the installed configuration is not known: {wanted} may not be read: {error.message}"
    return as_documents(objects), ""


def as_documents(objects: Iterable[Object]) -> list[Document]:
    """Make documents of objects that an API server returned."""
    return [document for one in objects for document in parse(msgspec.json.encode(one), "the cluster")]


async def look_around(cluster: Cluster, namespaces: Sequence[str]) -> tuple[tuple[Object, ...], list[Unread]]:
    """Read the settings of device plugins and autoscalers in these namespaces, as the webhook does, and what is unreadable."""
    from webhook.service import read_evidence

    if not namespaces:
        return (), []
    try:
        read = await read_evidence(cluster, namespaces, for_command=True)
    except (Unauthorized, Unavailable):
        raise
    except ApiError as error:
        return (), [Unread("device plugins and autoscalers", error.message)]
    return read.objects, [Unread(kind, "forbidden") for kind in read.refused]


async def gather(
    cluster: Cluster,
    namespace: str | None,
    report_progress: ReportProgress,
    *,
    probe: bool,
    namespaces: Sequence[str] = (),
) -> Gathered:
    """Read the input of a survey: with a namespace, only that and cluster-scoped kinds. `namespaces` are those of device plugins."""
    server = await cluster.server(probe=probe)
    visit = Visit(cluster, namespace, report_progress, Trimmer().trim)
    await visit.read_input()
    evidence, unread = await look_around(cluster, namespaces)
    visit.unread += unread
    return Gathered(
        evidence=evidence,
        objects=tuple(visit.objects),
        unread=tuple(visit.unread),
        server=server,
        narrow=namespace is not None,
    )


class Visit(Generic[T]):
    """Reads collections, a few concurrently, and records those that may not be read. `keep` transforms each object."""

    def __init__(
        self, cluster: Cluster, namespace: str | None, report_progress: ReportProgress, keep: Callable[[Object], T]
    ) -> None:
        self.objects: list[T] = []
        self.unread: list[Unread] = []
        self._cluster = cluster
        self._namespace = namespace
        self._report_progress = report_progress
        self._keep = keep
        self._owners: set[str] = set()
        self._slots = asyncio.Semaphore(_CONCURRENT_LISTS)

    async def read_input(self, also: Iterable[Resource[Any]] = ()) -> None:
        """Read the input of a survey, after the kinds in `also`; of custom kinds those with pod templates or owned objects."""
        await self.read((*also, *_KINDS))
        definitions = await self._all(_DEFINITIONS, None, Trimmer().trim)
        # Custom kinds whose schema has containers, or that own an object that was read.
        chosen: list[Resource[Any]] = []
        for definition in definitions:
            spec = inside(definition, "spec")
            kind_names = inside(spec, "names")
            versions = items(spec, "versions")
            served = [one for one in versions if one.get("served") is True]
            if not served:
                continue
            group, kind = text(spec.get("group")), text(kind_names.get("kind"))
            parts = (group, text(served[0].get("name")), text(kind_names.get("plural")), kind)
            if group in _OPTIONAL or not all(_NAME(part) for part in parts):
                continue
            waiting: list[Any] = list(versions)
            has_containers = False
            while waiting and not has_containers:
                one = waiting.pop()
                has_containers = isinstance(one, dict) and "containers" in one
                waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
            if kind in self._owners or has_containers:
                chosen.append(Resource(*parts, dict, namespaced=spec.get("scope") == "Namespaced"))
        await self.read(chosen[:_MOST_CUSTOM_KINDS])
        self.unread.sort(key=lambda one: one.kind)

    async def read(self, kinds: Iterable[Resource[Any]]) -> None:
        """Read collections concurrently, and keep their objects in the given order."""

        def keep(obj: Object) -> T:
            if owner := owner_of(obj):
                self._owners.add(owner.kind)
            return self._keep(obj)

        async with asyncio.TaskGroup() as tasks:
            reading = [
                tasks.create_task(self._all(kind, self._namespace if kind.namespaced else None, keep)) for kind in kinds
            ]
        for task in reading:
            self.objects += task.result()

    async def _all(self, resource: Resource[Any], where: str | None, keep: Callable[[Object], U]) -> list[U]:
        portion = Portion(resource)
        found: list[U] = []
        tries = 1
        more = ""
        async with self._slots:
            while True:
                try:
                    raw = replace(resource.raw, reduce=portion.keep)
                    page = await self._cluster.list(raw, where, limit=resource.page, more=more)
                except (Unauthorized, Unavailable):
                    raise
                except ApiError as error:
                    if isinstance(error, Gone | Throttled) and tries < _TRIES:
                        tries += 1
                        if isinstance(error, Gone):
                            portion = Portion(resource)
                            found.clear()
                            more = ""
                        else:
                            await asyncio.sleep(error.retry_after)
                        continue
                    if isinstance(error, Throttled):
                        raise
                    if error.status != 404 or resource.group not in _OPTIONAL:
                        self.unread.append(Unread(resource.id, error.message))
                    return []
                found += map(keep, page.items)
                self.unread += [Unread(f"{resource.kind} {one.name}", one.problem) for one in page.unreadable]
                self._report_progress(f"{len(found)} {resource.plural}")
                more = page.more
                if not more:
                    self.unread += portion.cut()
                    return found
