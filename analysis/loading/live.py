"""Reads a live cluster in pages. Kinds that the user is not allowed to read are recorded and skipped; nothing is written."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from http import HTTPStatus
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from analysis.configuration import ConfigurationInForce, configuration_in_force
from analysis.loading.objects import OUTLOOK_KINDS, Trimmer, Unread, owner_of
from analysis.loading.portion import Portion
from analysis.loading.reading import NO_CONFIGURATION, Reading, reading_of
from analysis.loading.typed import is_pod, read_object
from cluster import resources
from cluster.errors import ApiError, Gone, NotFound, Throttled, Unauthorized, Unavailable
from cluster.manifests import parse
from cluster.protocol import pages
from cluster.resources import Resource, is_plain
from dra.raw import inside, items, text
from dra.wire import WireError
from webhook import names
from webhook.state import Features

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from cluster.manifests import Document
    from cluster.protocol import Cluster
    from dra.objects import Pod
    from dra.raw import Object
    from webhook.state import Configuration

    ReportProgress = Callable[[str], None]

T = TypeVar("T")
U = TypeVar("U")

_OPTIONAL = frozenset({"drawbridge.dev", "resource.k8s.io"})  # groups that a server need not have
# Kinds without which a survey is incomplete.
NECESSARY_KINDS = frozenset((resources.PODS.id, *(resource.id for resource in resources.WORKLOADS)))
_CONCURRENT_LISTS = 4
_TRIES = 3  # for a list whose continue token expires, and for a page that is throttled
_MAX_CUSTOM_KINDS = 200
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
    """Return the configuration in force in a live cluster: `given`, else that in the installation's ConfigMap, else the defaults."""
    if given is not None:
        return given
    documents, problem = await read_installed(cluster)
    return configuration_in_force(None, documents)._replace(problem=problem)


async def read_installed(cluster: Cluster) -> tuple[list[Document], str]:
    """Return the webhook configuration and the ConfigMap of the installation, or why they are not known."""
    registrations, config_maps = resources.MUTATING_WEBHOOKS.raw, resources.CONFIG_MAPS.raw
    objects: list[Object] = []
    source = registrations.plural
    try:
        async for page in pages(cluster, registrations, fields=f"metadata.name={names.NAME}"):
            objects += map(registrations.plain, page.items)
        hooks = [hook for obj in objects for hook in items(obj, "webhooks")]
        services = [inside(hook, "clientConfig", "service") for hook in hooks]
        for namespace in dict.fromkeys(filter(None, (text(service.get("namespace")) for service in services))):
            source = f"ConfigMap {namespace}/{names.NAME}"
            objects.append(config_maps.plain(await cluster.get(config_maps, names.NAME, namespace)))
    except (Unauthorized, Unavailable):
        raise
    except NotFound:
        return [], f"{source} does not exist"
    except ApiError as error:
        return [], f"the installed configuration is not known: {source} cannot be read: {error.message}"
    return as_documents(objects), ""


def as_documents(objects: Iterable[Object]) -> list[Document]:
    """Make documents of objects that an API server returned."""
    return [document for obj in objects for document in parse(msgspec.json.encode(obj), "the cluster")]


async def look_around(cluster: Cluster, namespaces: Sequence[str]) -> tuple[tuple[Object, ...], list[Unread]]:
    """Read the objects with settings of device plugins and autoscalers in these namespaces, as the webhook does, and return what is unread, too."""
    from webhook.service import read_evidence

    if not namespaces:
        return (), []
    try:
        evidence = await read_evidence(cluster, namespaces, for_command=True)
    except (Unauthorized, Unavailable):
        raise
    except ApiError as error:
        return (), [Unread("device plugins and autoscalers", error.message)]
    return evidence.objects, [Unread(kind, "forbidden") for kind in evidence.refused]


class Needs(NamedTuple):
    """What a command needs of a cluster: kinds, and the docs page with the rights to read them.

    Pods are decoded when their page is read; `stored` chooses the pods whose JSON is kept too. With `workloads`, the JSON of all pods is
    kept, and custom kinds that create pods are read; if a namespace is given too, only objects of this namespace are read. With `typed`,
    objects are decoded as the types of their kinds, and objects of kinds without a type are kept whole or left out. `events` are field
    selectors of the events to read.
    """

    kinds: tuple[Resource[Any], ...] = OUTLOOK_KINDS
    page: str = "docs/commands.md#drawbridge-explain"
    stored: Callable[[Pod], bool] = lambda _: False
    workloads: bool = False
    typed: bool = False
    events: tuple[str, ...] = ()


OUTLOOK: Final = Needs()
SURVEY: Final = Needs(
    (
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
    ),
    "docs/commands.md#drawbridge-survey",
    workloads=True,
)


async def read_cluster(
    cluster: Cluster,
    needs: Needs = OUTLOOK,
    report_progress: ReportProgress = lambda _: None,
    *,
    given: ConfigurationInForce | None = NO_CONFIGURATION,
    namespace: str = "",
    probe: bool = False,
) -> Reading:
    """Read a cluster. A kind that may not be listed in all namespaces is listed in `namespace`. With `probe`, detect the feature gates."""
    server = await cluster.server(probe=probe)
    in_force = await configuration_of_cluster(cluster, given)
    narrow = needs.workloads and bool(namespace)
    keep = Trimmer().trim if needs.workloads else partial(_typed_pod, needs.stored)
    looking = Visit(cluster, namespace if narrow else None, report_progress, keep, typed=needs.typed)
    objects = await looking.read(needs.kinds)
    objects += await looking.read((resources.EVENTS,), fields=needs.events)
    if needs.workloads:
        objects += await looking.read_custom_kinds()
    unread = sorted(looking.unread, key=lambda missed: missed.kind)
    if namespace and not narrow:
        missed = {missed.kind for missed in unread}
        inside_one = Visit(cluster, namespace, report_progress, keep)
        objects += await inside_one.read(kind for kind in needs.kinds if kind.namespaced and kind.id in missed)
        if resources.EVENTS.id in missed:
            objects += await inside_one.read((resources.EVENTS,), fields=needs.events)
        unread += [Unread(f"{inner.kind} in {namespace}", inner.reason) for inner in inside_one.unread]
    configuration = in_force.configuration
    evidence_namespaces = evidence_in(configuration, narrow=narrow or not needs.workloads)
    evidence, forbidden = await look_around(cluster, evidence_namespaces)
    features = Features.combine(server.minor, server.gates, configuration.file.kubernetes.declared())
    reading = reading_of(
        objects, features, unread=[*unread, *forbidden], server=server, in_force=in_force, pods=not needs.workloads
    )
    return replace(reading, evidence=evidence, narrow=narrow, absent=frozenset(looking.absent))


def _typed_pod(stored: Callable[[Pod], bool], obj: Any) -> Any:
    """Decode a pod. A pod that is invalid, or whose JSON is kept, stays JSON."""
    if not (isinstance(obj, dict) and is_pod(obj)):
        return obj
    try:
        pod = read_object(obj)
    except WireError:
        return obj
    return obj if pod is None or stored(pod) or _is_unready(pod) else pod


def _is_unready(pod: Pod) -> bool:
    """Return whether a pod on a node is not ready. Its JSON has the states of its containers."""
    unready = any(condition.type == "Ready" and condition.status == "False" for condition in pod.status.conditions)
    return bool(pod.spec.node_name) and not pod.has_ended and unready


class Visit(Generic[T]):
    """Reads collections, a few concurrently, and records those that the user may not read. `keep` transforms each object.

    With `typed`, objects other than pods are decoded as the type of their kind, and objects of kinds without a type are kept whole or left
    out. `keep` decodes pods.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str | None,
        report_progress: ReportProgress,
        keep: Callable[[Any], T],
        *,
        typed: bool = False,
    ) -> None:
        self.unread: list[Unread] = []
        self.absent: set[str] = set()  # kinds that the server does not have
        self._cluster = cluster
        self._namespace = namespace
        self._report_progress = report_progress
        self._keep = keep
        self._typed = typed
        self._owners: set[str] = set()
        self._slots = asyncio.Semaphore(_CONCURRENT_LISTS)

    async def read_custom_kinds(self) -> list[T]:
        """Read the custom kinds whose schema has containers, or that own an object that was read."""
        definitions = await self._list_all(_DEFINITIONS, None, Trimmer().trim)
        chosen: list[Resource[Any]] = []
        for definition in definitions:
            spec = inside(definition, "spec")
            kind_names = inside(spec, "names")
            versions = items(spec, "versions")
            served_versions = [version for version in versions if version.get("served") is True]
            if not served_versions:
                continue
            group, kind = text(spec.get("group")), text(kind_names.get("kind"))
            parts = (group, text(served_versions[0].get("name")), text(kind_names.get("plural")), kind)
            if group in _OPTIONAL or not all(_NAME(part) for part in parts):
                continue
            waiting: list[Any] = list(versions)
            has_containers = False
            while waiting and not has_containers:
                value = waiting.pop()
                has_containers = isinstance(value, dict) and "containers" in value
                waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            if kind in self._owners or has_containers:
                chosen.append(Resource(*parts, dict, namespaced=spec.get("scope") == "Namespaced"))
        return await self.read(chosen[:_MAX_CUSTOM_KINDS])

    async def read(self, kinds: Iterable[Resource[Any]], *, fields: Sequence[str] = ("",), labels: str = "") -> list[T]:
        """Read collections concurrently, each with each field selector, and return their objects in the given order.

        Claims are read first, so that the owner of a claim that was read is among the pods, unless it was deleted.
        """

        def keep(obj: Any) -> T:
            if isinstance(obj, dict) and (owner := owner_of(obj)):
                self._owners.add(owner.kind)
            return self._keep(obj)

        def list_kind(kind: Resource[Any], selector: str) -> Coroutine[Any, Any, list[T]]:
            return self._list_all(kind, self._namespace if kind.namespaced else None, keep, selector, labels)

        requests = list(product(kinds, fields))
        claims = {
            request: await list_kind(*request) for request in requests if request[0].id == resources.RESOURCE_CLAIMS.id
        }
        async with asyncio.TaskGroup() as tasks:
            reading = {request: tasks.create_task(list_kind(*request)) for request in requests if request not in claims}
        return [
            obj for request in requests for obj in (claims[request] if request in claims else reading[request].result())
        ]

    async def _list_all(
        self,
        resource: Resource[Any],
        where: str | None,
        keep: Callable[[Any], U],
        fields: str = "",
        labels: str = "",
    ) -> list[U]:
        listed = resource if self._typed and resource.kind != "Pod" else resource.raw
        portion = Portion(resource, whole=self._typed and is_plain(resource.type))
        objects: list[U] = []
        unreadable: list[Unread] = []
        tries = 1
        more = ""
        async with self._slots:
            while True:
                try:
                    page = await self._cluster.list(
                        replace(listed, reduce=portion.keep),
                        where,
                        fields=fields,
                        labels=labels,
                        limit=resource.page,
                        more=more,
                    )
                except (Unauthorized, Unavailable):
                    raise
                except ApiError as error:
                    if isinstance(error, Gone | Throttled) and tries < _TRIES:
                        tries += 1
                        if isinstance(error, Gone):
                            portion = Portion(resource, whole=self._typed and is_plain(resource.type))
                            objects.clear()
                            unreadable.clear()
                            more = ""
                        else:
                            await asyncio.sleep(error.retry_after)
                        continue
                    if isinstance(error, Throttled):
                        raise
                    if error.status == HTTPStatus.NOT_FOUND:
                        self.absent.add(resource.kind)
                    if error.status != HTTPStatus.NOT_FOUND or resource.group not in _OPTIONAL:
                        self.unread.append(Unread(resource.id, error.message))
                    return []
                objects += map(keep, page.items)
                unreadable += [Unread(f"{resource.kind} {entry.name}", entry.problem) for entry in page.unreadable]
                self._report_progress(f"{len(objects)} {resource.plural}")
                more = page.more
                if not more:
                    self.unread += [*unreadable, *portion.cut()]
                    return objects
