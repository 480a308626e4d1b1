"""Everything of drawbridge in one process, over the embedded store: webhook, controllers, claim controller, a small scheduler.

The embedded store calls no webhooks. So `push` acts as the API server for one pod: it sends a review to the webhook over HTTPS,
applies the patch, and stores the pod. (An API server would call the webhook again if another webhook restored a key.)
"""

from __future__ import annotations

import asyncio
import json
import uuid
from base64 import b64decode
from contextlib import asynccontextmanager, suppress
from ssl import create_default_context
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from msgspec.structs import replace

from allocator.service import WITHOUT_CLAIMS, StandaloneScheduler
from analysis.loading import with_text_labels
from cluster import resources
from cluster.controllers import ClaimController
from cluster.embedded import Embedded
from cluster.errors import ApiError, BadRequest, NotFound
from cluster.patch import apply_json_patch
from dra.objects import Pod, claim_names
from dra.raw import mapping
from dra.validation import shape
from serving.http import Address
from webhook.admission import answer_of_api_server, decide_object
from webhook.names import NAMESPACE
from webhook.service import WebhookServer, WebhookSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from dra.finding import Finding
    from dra.objects import ResourceClaim
    from webhook.service import Decisions, Source
    from webhook.state import State
    from webhook.translate import Decision

LOOPBACK = "127.0.0.1"
START_SECONDS = 30.0
PLACED = "PodScheduled"


class Pushed(msgspec.Struct, frozen=True):
    """The webhook's answer to a pod, and the pod as it was stored; None if it was refused."""

    stored: dict[str, Any] | None
    warnings: tuple[str, ...] = ()
    refusal: str = ""


class Playground:
    """All of drawbridge over one store, started with `async with playground(fleet, source) as demo:`."""

    def __init__(
        self,
        cluster: Embedded,
        ignored: list[dict[str, Any]],
        address: Address,
        metrics: Address | None,
        *,
        session: aiohttp.ClientSession,
        state: Callable[[], State],
    ) -> None:
        self.cluster = cluster
        self.ignored = ignored
        self.url = f"https://{address}"
        self.metrics_url = f"http://{metrics}/metrics" if metrics else ""
        self._session = session
        self._state = state

    async def push(self, pod: dict[str, Any]) -> Pushed:
        """Create a pod as the API server would: validate it, call the webhook, validate the result, and store it."""
        if wrong := [problem for problem in shape.check(pod, Pod) if problem.code == "D001"]:
            return Pushed(None, (), f"the API server says: {_listed(wrong)}")
        metadata = dict(pod.get("metadata") or {})
        namespace = metadata.get("namespace") or "default"
        metadata["namespace"] = namespace
        pod = pod | {"metadata": metadata}
        request = {
            "uid": str(uuid.uuid4()),
            "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": metadata.get("name") or "",
            "namespace": namespace,
            "userInfo": {"username": "you"},
            "object": pod,
        }
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        async with self._session.post(f"{self.url}/mutate?timeout=3s", json=review) as response:
            text = await response.text()
            if response.status != 200:
                raise RuntimeError(f"the webhook answered {response.status}: {text}")
        mutated = json.loads(text)["response"]
        warnings = tuple(mutated.get("warnings", ()))
        if not mutated["allowed"]:
            return Pushed(None, warnings, mutated["status"]["message"])
        if "patch" in mutated:
            operations = json.loads(b64decode(mutated["patch"]))
            pod = apply_json_patch(pod, tuple(operations))
        errors = answer_of_api_server(pod)
        if errors:
            return Pushed(None, warnings, f"the API server says: {_listed(errors)}")
        try:
            await self.ensure_namespace(namespace)
            stored = await self.cluster.create(resources.PODS.raw, pod, namespace)
        except ApiError as error:
            return Pushed(None, warnings, f"the API server says: {error}")
        return Pushed(stored, warnings)

    async def ensure_namespace(self, name: str) -> None:
        """Create a namespace unless it exists."""
        try:
            await self.cluster.get(resources.NAMESPACES, name)
        except NotFound:
            self.cluster.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])

    async def wait_for_pods(self, names: Iterable[tuple[str, str]], seconds: float) -> bool:
        """Wait until each of these pods has a node or a reason for having none; return False after `seconds`."""
        waiting = set(names)
        try:
            async with asyncio.timeout(seconds):
                while waiting:
                    await asyncio.sleep(0.02)
                    for key in tuple(waiting):
                        pod = await self.pod(*key)
                        reasons = (
                            condition.reason
                            for condition in pod.status.conditions
                            if condition.type == PLACED and condition.status == "False"
                        )
                        if pod.spec.node_name or next(reasons, WITHOUT_CLAIMS) != WITHOUT_CLAIMS:
                            waiting.remove(key)
        except TimeoutError:
            return False
        return True

    async def pod(self, namespace: str, name: str) -> Pod:
        """Read a pod."""
        return await self.cluster.get(resources.PODS, name, namespace)

    async def decisions(self, pod: Pod) -> Sequence[Decision]:
        """Return the decisions about the keys of a stored pod, as if no scheduler had placed it, by the webhook's state."""
        raw = await self.cluster.get(resources.PODS.raw, pod.metadata.name, pod.metadata.namespace)
        if pod.status.conditions:
            raw = raw | {"spec": {key: value for key, value in raw["spec"].items() if key != "nodeName"}}
        return decide_object(raw, self._state(), stored=True).decisions

    async def claims(self, pod: Pod) -> list[ResourceClaim]:
        """Read the claims of a pod, as far as they exist."""
        claims = []
        for name in claim_names(pod):
            with suppress(NotFound):
                claims.append(await self.cluster.get(resources.RESOURCE_CLAIMS, name, pod.metadata.namespace))
        return claims


def _listed(problems: Iterable[Finding]) -> str:
    """Write each problem with its place, if it has one, and its code."""
    return "; ".join(
        f"{problem.message}{problem.path and f' at {problem.path}'} [{problem.code}]" for problem in problems
    )


def add_all(cluster: Embedded, objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add objects to a store; return those whose kind the store does not know or whose metadata it cannot read."""
    ignored = []
    for obj in objects:
        try:
            cluster.load([with_text_labels(obj) if obj.get("kind") == "Namespace" else obj])
        except BadRequest:
            ignored.append(obj)
    return ignored


def _is_own_secret(obj: dict[str, Any]) -> bool:
    """Return whether an object is a Secret of an installation in a dump. This process makes its own keys, and could not use foreign ones."""
    return obj.get("kind") == "Secret" and mapping(obj.get("metadata")).get("namespace") == NAMESPACE


@asynccontextmanager
async def playground(
    objects: Iterable[dict[str, Any]],
    source: Source,
    settings: WebhookSettings | None = None,
    decisions: Decisions | None = None,
) -> AsyncIterator[Playground]:
    """Run everything over these objects, and stop it at the end."""
    cluster = Embedded()
    ignored = add_all(cluster, (obj for obj in objects if not _is_own_secret(obj)))
    cluster.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
    free = Address(LOOPBACK, 0)
    chosen = replace(
        settings or WebhookSettings(identity="standalone", listen=free, metrics=free),
        namespace=NAMESPACE,
        names=(LOOPBACK, "localhost"),
        notice=0.0,
    )
    service = WebhookServer(cluster, source, chosen, decisions)
    controller = ClaimController(cluster)
    scheduler = StandaloneScheduler(cluster)
    stop = asyncio.Event()
    open_: asyncio.Future[tuple[Address, Address | None]] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(service.run(stop, lambda *where: open_.set_result(where)))
        helpers = [
            group.create_task(controller.run()),
            group.create_task(scheduler.run()),
        ]
        try:
            async with asyncio.timeout(START_SECONDS):
                address, metrics = await open_
            secret = await cluster.get(resources.SECRETS, chosen.secret, NAMESPACE)
            bundle = b64decode(secret.data["ca.crt"]).decode()
            trust = create_default_context(cadata=bundle)
            connector = aiohttp.TCPConnector(ssl=trust)
            async with aiohttp.ClientSession(connector=connector) as session:
                yield Playground(cluster, ignored, address, metrics, session=session, state=service.follower.state)
        finally:
            stop.set()
            await serving
            for helper in helpers:
                helper.cancel()
