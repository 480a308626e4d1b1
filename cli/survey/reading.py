"""Reading a live cluster for a survey: page by page, never writing, and going on without what may not be read. The rim."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from cli.survey.gathered import Gathered, Object, Trimmer, Unread, inside, items, owner_of, text
from cluster import resources
from cluster.errors import ApiError, Gone, Unauthorized, Unavailable
from cluster.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cluster.protocol import Cluster

    Tell = Callable[[str], None]

T = TypeVar("T")
U = TypeVar("U")

# Claims and pods last: what comes in between has an owner that was read.
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
# What workloads are told by: without one of these a survey is not whole.
TELLING = frozenset((resources.PODS.id, *(resource.id for resource in resources.WORKLOADS)))
_AT_ONCE = 4
_TRIES = 3  # a list that takes so long that its token gets too old is begun anew
_MOST_KINDS = 200
_PAGE_OF_DEFINITIONS = 50
# What may be a part of an address.
_NAME = re.compile(r"[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?").fullmatch


async def gather(cluster: Cluster, namespace: str | None, tell: Tell, *, probe: bool) -> Gathered:
    """Read everything a survey looks at. With a namespace, only that and what the whole cluster has."""
    server = await cluster.server(probe=probe)
    visit = Visit(cluster, namespace, tell, Trimmer().trim)
    await visit.look()
    return Gathered(
        objects=tuple(visit.objects),
        unread=tuple(visit.unread),
        server=server,
        narrow=namespace is not None,
    )


class Visit(Generic[T]):
    """Reads collections, a few at once, and notes what it may not. `keep` says what is kept of an object."""

    def __init__(self, cluster: Cluster, namespace: str | None, tell: Tell, keep: Callable[[Object], T]) -> None:
        self.objects: list[T] = []
        self.unread: list[Unread] = []
        self._cluster = cluster
        self._namespace = namespace
        self._tell = tell
        self._keep = keep
        self._owners: set[str] = set()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def look(self, also: Iterable[Resource[Any]] = ()) -> None:
        """Read what a survey looks at, and other kinds before it."""
        await self.read((*also, *_KINDS))
        definitions = await self.definitions()
        await self.read(_customs(definitions, self._owners))
        self.unread.sort(key=lambda one: one.kind)

    async def read(self, kinds: Iterable[Resource[Any]]) -> None:
        """Read collections, and keep them in the order in which they are named."""
        reading: list[asyncio.Task[list[T]]] = []
        async with asyncio.TaskGroup() as tasks:
            for kind in kinds:
                where = self._namespace if kind.namespaced else None
                whole = self._all(kind, where, self._note)
                task = tasks.create_task(whole)
                reading.append(task)
        for task in reading:
            self.objects += task.result()

    async def definitions(self) -> list[Object]:
        """Read which kinds were added to the cluster; they tell, and are not looked at themselves."""
        pages = msgspec.structs.replace(resources.CUSTOM_RESOURCE_DEFINITIONS, page=_PAGE_OF_DEFINITIONS)
        return await self._all(pages, None, Trimmer().trim)

    def _note(self, obj: Object) -> T:
        if owner := owner_of(obj):
            self._owners.add(owner.kind)
        return self._keep(obj)

    async def _all(self, resource: Resource[Any], where: str | None, keep: Callable[[Object], U]) -> list[U]:
        async with self._turns:
            try:
                return await self._patiently(resource, where, keep)
            except (Unauthorized, Unavailable):
                raise
            except ApiError as error:
                if error.status != 404 or resource.group not in _OPTIONAL:
                    self.unread.append(Unread(resource.id, error.message))
                return []

    async def _patiently(self, resource: Resource[Any], where: str | None, keep: Callable[[Object], U]) -> list[U]:
        for _ in range(_TRIES - 1):
            try:
                return await self._pages(resource, where, keep)
            except Gone:
                continue
        return await self._pages(resource, where, keep)

    async def _pages(self, resource: Resource[Any], where: str | None, keep: Callable[[Object], U]) -> list[U]:
        raw = resource.raw
        found: list[U] = []
        more = ""
        while True:
            page = await self._cluster.list(raw, where, limit=resource.page, more=more)
            plain = map(raw.plain, page.items)
            found += map(keep, plain)
            self.unread += [Unread(f"{resource.kind} {one.name}", one.problem) for one in page.unreadable]
            self._tell(f"{len(found)} {resource.plural}")
            more = page.more
            if not more:
                return found


def _customs(definitions: Iterable[Object], owners: set[str]) -> list[Resource[Any]]:
    """Choose the added kinds that can hold a pod template by their schema, or that own something that was read."""
    chosen: list[Resource[Any]] = []
    for definition in definitions:
        resource = _custom(definition)
        if resource is None or resource.group in _OPTIONAL:
            continue
        if resource.kind in owners or _has_containers(definition):
            chosen.append(resource)
    return chosen[:_MOST_KINDS]


def _custom(definition: Object) -> Resource[Any] | None:
    spec = inside(definition, "spec")
    called = inside(spec, "names")
    served = [one for one in items(spec, "versions") if one.get("served") is True]
    if not served:
        return None
    parts = (
        text(spec.get("group")),
        text(served[0].get("name")),
        text(called.get("plural")),
        text(called.get("kind")),
    )
    if not all(_NAME(part) for part in parts):
        return None
    return Resource(*parts, dict, namespaced=spec.get("scope") == "Namespaced")


def _has_containers(definition: Object) -> bool:
    spec = inside(definition, "spec")
    return any(name == "containers" for version in items(spec, "versions") for name in _names(version))


def _names(value: Any) -> Iterator[str]:
    """Every member name in a schema, however deep."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield from one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
