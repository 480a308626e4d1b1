"""A plain HTTP port on loopback that acts as an API server for pods: POST a manifest to /pods, and read the state of its pods.

For people and `curl`; text in, text out. Callers are not authenticated, so the port must be on loopback only.
A web page in the user's browser must not use the port. So the port refuses a request from a page of another origin. It also
refuses a request whose Host is a name other than localhost: a page can make its own name resolve to loopback (DNS rebinding).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from analysis.arrivals import brings_pods
from cli import story
from cli.playground.pod_progress import end_of, pods_of, story_of
from cluster import Apply, manifests, resources
from cluster.errors import ApiError
from dra.objects import template_site
from serving.http import Limits, Route, Site, text
from webhook.translate import name_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from cli.playground.playground import Playground
    from cli.story import PodProgress
    from cluster.resources import Raw, Resource
    from serving.http import HttpRequest, Reply

SECONDS = 10.0
LIMITS = Limits(body=1 << 20)
WIDTH = 110
MANAGER = "you"
# The kinds beside pods and workloads that a manifest may apply, because decisions about pods depend on them.
COMPANIONS = frozenset(
    resource.id
    for resource in (
        resources.NAMESPACES,
        resources.NODES,
        resources.DEVICE_CLASSES,
        resources.RESOURCE_SLICES,
        resources.RESOURCE_CLAIMS,
        resources.RESOURCE_CLAIM_TEMPLATES,
        resources.DEVICE_TAINT_RULES,
        resources.DEVICE_COMPATIBILITIES,
        resources.RESOURCE_QUOTAS,
    )
)
HELP = """\
POST   /pods                   create what a manifest has (curl --data-binary @pod.yaml)
GET    /pods                   the state of every pod
DELETE /pods/[NAMESPACE/]NAME  delete a pod and its claims
"""


class PodsListener:
    """Serves a playground."""

    def __init__(self, playground: Playground, *, patience: float = SECONDS) -> None:
        """`patience` is how many seconds an answer waits for a pod to be decided on."""
        self._playground = playground
        self._patience = patience

    @asynccontextmanager
    async def open(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Listen; yield the URL."""
        routes = [
            Route("GET", "/", self._help),
            Route("GET", "/pods", self._list),
            Route("POST", "/pods", self._push),
            Route("DELETE", "/pods/{name}", self._delete),
            Route("DELETE", "/pods/{namespace}/{name}", self._delete),
        ]
        async with Site(routes, LIMITS).open(host, port) as url:
            yield url

    async def _help(self, request: HttpRequest) -> Reply:
        del request
        return text(200, HELP)

    async def _push(self, request: HttpRequest) -> Reply:
        try:
            documents = await asyncio.to_thread(manifests.parse, request.body, "your manifest")
        except manifests.ManifestError as error:
            return _refusal(400, str(error))
        pods: list[Raw] = []
        companions: list[tuple[Resource[Any], Raw]] = []
        passed_over: list[Raw] = []
        for document in documents:
            if not isinstance(document.object.get("metadata") or {}, dict):
                return _refusal(400, f"line {document.line}: metadata is not an object")
            if brings_pods(document.object):
                pods += [created.pod for created in pods_of(document.object)]
                continue
            resource = resources.resource_of(document.object)
            metadata = document.object.get("metadata")
            has_name = isinstance(metadata, dict) and isinstance(metadata.get("name"), str)
            if resource is not None and resource.id in COMPANIONS and has_name:
                companions.append((resource, document.object))
            elif wrong := _problem_of(document.object):
                return _refusal(400, f"line {document.line}: {wrong}")
            else:
                passed_over.append(document.object)
        if not pods and not companions:
            return _refusal(400, "the manifest holds no pod, and no workload that creates pods")
        try:
            for resource, obj in companions:
                namespace = None
                if resource.namespaced:
                    namespace = obj["metadata"].get("namespace") or "default"
                    await self._playground.ensure_namespace(namespace)
                patch, name = Apply(obj, MANAGER), obj["metadata"]["name"]
                await self._playground.cluster.patch(resource.raw, name, patch, namespace)
            outcomes = [await end_of(self._playground, pod, self._patience) for pod in pods]
        except ApiError as error:
            return _refusal(error.status or 500, str(error))
        applied = "".join(f"applied {obj['kind']} {obj['metadata']['name']}\n" for _, obj in companions)
        others = "".join(f"ignored {name_of(obj)}\n" for obj in passed_over)
        return text(200, applied + others + _stories(outcomes))

    async def _delete(self, request: HttpRequest) -> Reply:
        cluster = self._playground.cluster
        name = request.names["name"]
        namespace = request.names.get("namespace")
        page = await cluster.list(resources.PODS, limit=0)
        homes = [pod.metadata.namespace for pod in page.items if pod.metadata.name == name]
        if namespace is None:
            if len(homes) > 1:
                everywhere = ", ".join(homes)
                return _refusal(409, f"there is a pod {name} in each of {everywhere}: say which, as NAMESPACE/NAME")
            namespace = homes[0] if homes else "default"
        try:
            await cluster.delete(resources.PODS, name, namespace)
        except ApiError as error:
            return _refusal(error.status or 500, str(error))
        return text(200, f"deleted Pod {namespace}/{name}\n")

    async def _list(self, request: HttpRequest) -> Reply:
        del request
        page = await self._playground.cluster.list(resources.PODS, limit=0)
        return text(200, _stories([await story_of(self._playground, pod) for pod in page.items]))


def _refusal(status: int, problem: str) -> Reply:
    return text(status, f"{problem}\n")


def _problem_of(obj: Raw) -> str:
    """Return why an object cannot be used; "" if it can."""
    kind = obj.get("kind")
    if not kind or not obj.get("apiVersion"):
        return "an object needs apiVersion and kind"
    resource = resources.resource_of(obj)
    if resource is not None and resource.id in COMPANIONS:
        return f"a {kind} needs a name"
    if template_site(obj) is not None:
        return f"a {kind} without the spec of a pod cannot be created here"
    return ""


def _stories(outcomes: Iterable[PodProgress]) -> str:
    return "\n".join(story.lines(list(outcomes), width=WIDTH, colour=False))
