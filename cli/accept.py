"""Runs the checks of `drawbridge migrate accept` on a cluster: creates claims and pods, reads what the pods see, and deletes them."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import msgspec

from analysis.errors import Broken
from analysis.loading import Needs, read_cluster
from analysis.migration import accept, accept_pods
from cli import loop
from cli.output import progress
from cluster import resources
from cluster.errors import BadRequest, NotFound
from cluster.protocol import pages
from cluster.resources import Raw, Resource
from dra.texts import count_of, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analysis.configuration import ConfigurationInForce
    from cluster.kubernetes import Kubernetes

PAGE = "docs/commands.md#drawbridge-migrate"
KINDS = (resources.NODES, resources.RESOURCE_SLICES, resources.DEVICE_CLASSES)
_RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", Raw, namespaced=False)
# The kinds of the created objects, in the order of their deletion.
_CREATED = (resources.PODS.raw, resources.RESOURCE_CLAIMS.raw, resources.NAMESPACES.raw)
_NAME = re.compile(r"drawbridge-accept-[0-9a-f]{6}(?:-\d+)?")  # of objects that the command creates
_POLL_SECONDS = 1.0
_GONE_SECONDS = 60
_LOG_SECONDS = 30.0


class _NotRun(Exception):  # noqa: N818  a result
    """A pod does not start, or is not deleted."""

    def __init__(self, fault: accept.DriverFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def accept_nodes(
    nodes: Sequence[str],
    *,
    kubeconfig: str,
    context: str,
    namespace: str,
    image: str,
    given: ConfigurationInForce | None,
) -> accept.Acceptance:
    """Check nodes of a cluster, one after the other. Without a namespace, the pods are in a new one, which is deleted at the end.

    Objects of an earlier run are deleted first.
    """
    if not nodes:
        raise Broken("no node is named", "name the nodes to check: drawbridge migrate accept NODE...")

    async def check(cluster: Kubernetes) -> accept.Acceptance:
        with progress() as report_progress:
            reading = await read_cluster(cluster, Needs(KINDS, PAGE), report_progress, given=given)
            await _clean_up(cluster)
            name = f"drawbridge-accept-{token_hex(3)}"
            run = _Run(cluster, name, namespace or name, image or accept_pods.IMAGE)
            checks: list[accept.Check] = []
            try:
                if not namespace:
                    await cluster.create(resources.NAMESPACES.raw, accept_pods.namespace(name))
                for node in nodes:
                    kinds = accept.kinds_of(node, reading.stock) if node in reading.stock.nodes else []
                    checks += accept.check_offers(node, kinds, reading)
                    for kind in kinds:
                        report_progress(joined(node, kind.device_class, kind.product))
                        checks += await run.check_kind(node, kind)
            finally:
                await _clean_up(cluster)
        return accept.Acceptance(passed=all(check.passed for check in checks), checks=tuple(checks))

    return loop.visit(kubeconfig, context, check, PAGE)


def read_acceptance(file: str) -> accept.Acceptance:
    """Return the results that an earlier run wrote as JSON."""
    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=accept.Acceptance)
    except (OSError, msgspec.MsgspecError) as error:
        remedy = "write one: drawbridge migrate accept NODE -o json > FILE"
        raise Broken(f"{file}: this is no result of `migrate accept`: {error}", remedy) from error


async def _clean_up(cluster: Kubernetes) -> None:
    """Delete the objects of this command, by label and name. A namespace stays until the kubelet has ended its pods."""
    for kind in _CREATED:
        objects = [obj async for page in pages(cluster, kind, labels=accept_pods.LABEL) for obj in page.items]
        for obj in [obj for obj in objects if _NAME.fullmatch(obj["metadata"]["name"])]:
            with suppress(NotFound):
                await cluster.delete(kind, obj["metadata"]["name"], obj["metadata"].get("namespace"))


class _Run:
    """The pods and claims of one run, in one namespace."""

    def __init__(self, cluster: Kubernetes, name: str, namespace: str, image: str) -> None:
        self._cluster = cluster
        self._name = name
        self._namespace = namespace
        self._image = image
        self._objects = 0

    async def check_kind(self, node: str, kind: accept.Kind) -> list[accept.Check]:
        """Check one kind of device on a node. Checks that need a running pod are left out if the pod does not start."""
        checks: list[accept.Check] = []

        def add(
            check: accept.CheckName, fault: accept.DriverFault | None, message: str = "", runtime_class: str = ""
        ) -> None:
            checks.append(accept.result(node, kind, check, fault, message, runtime_class=runtime_class))

        try:
            before = await self._read_node(node)
            claim_name = self._new_name()
            claim = accept_pods.claim(claim_name, kind)
            claim = await self._cluster.create(resources.RESOURCE_CLAIMS.raw, claim, self._namespace)
            uid = claim["metadata"]["uid"]
            logs: dict[str, list[str]] = {}
            created: list[str] = []
            for runtime_class in await self._runtime_classes():
                created.append(self._new_name())
                pod = accept_pods.device_pod(created[-1], claim_name, node, self._image, runtime_class)
                try:
                    logs[runtime_class] = await self._logs(pod)
                except _NotRun as error:
                    add("start", error.fault, runtime_class=runtime_class)
                else:
                    add("start", None, "the pod runs", runtime_class)
            during = await self._read_node(node)
            names = accept.cdi_devices(uid, during)
            edits = accept.edits_of(names or (), during)
            if names is not None or logs:
                missing = (await self._read_node(node, edits.host_paths)).missing
                message = f"the node has {count_of(len(edits.host_paths), 'host path')} that they name"
                add("CDI files", accept.files_fault(names, edits, missing), message)
            for runtime_class, (claimed, bare) in logs.items():
                views = accept_pods.container_view(claimed), accept_pods.container_view(bare)
                fault = accept.isolation_fault(edits, *views, before.devices)
                add("isolation", fault, "each container sees exactly the devices of its claim", runtime_class)
            for name in created:
                await self._delete(resources.PODS.raw, name)
            await self._delete(resources.RESOURCE_CLAIMS.raw, claim_name)
            if logs:
                fault = accept.release_fault(uid, edits, before, await self._read_node(node))
                add("release", fault, "the driver has removed what it prepared")
        except _NotRun as error:
            add("release" if checks else "start", error.fault)
        return checks

    async def _read_node(self, node: str, paths: Iterable[str] = ()) -> accept_pods.HostFiles:
        name = self._new_name()
        [log] = await self._logs(accept_pods.reader_pod(name, node, self._image, paths))
        await self._delete(resources.PODS.raw, name)
        return accept_pods.node_files(log)

    async def _runtime_classes(self) -> tuple[str, ...]:
        """Return the runtime classes to check with: the default, and NVIDIA's if the cluster has it."""
        try:
            await self._cluster.get(_RUNTIME_CLASSES, accept_pods.RUNTIME_CLASS)
        except NotFound:
            return ("",)
        return ("", accept_pods.RUNTIME_CLASS)

    async def _logs(self, pod: Raw) -> list[str]:
        """Create a pod, and return the logs of its containers once all are complete. Raises _NotRun if the pod does not start."""
        created = await self._cluster.create(resources.PODS.raw, pod, self._namespace)
        name = created["metadata"]["name"]
        containers = [container["name"] for container in pod["spec"]["containers"]]
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            with suppress(BadRequest, NotFound):  # a container that has not started has no log
                logs = [await self._log(name, container) for container in containers]
                if all(map(accept_pods.is_complete, logs)):
                    return logs
            current = await self._cluster.get(resources.PODS.raw, name, self._namespace)
            events = await self._cluster.list(
                resources.EVENTS, self._namespace, fields=f"involvedObject.uid={created['metadata']['uid']}"
            )
            if fault := accept.start_fault(current, events.items, loop.time() - begun):
                raise _NotRun(fault)
            await asyncio.sleep(_POLL_SECONDS)

    async def _log(self, name: str, container: str) -> str:
        path = resources.PODS.path(self._namespace, name, "log")
        content = await self._cluster.read(f"{path}?container={container}", seconds=_LOG_SECONDS)
        return content.decode(errors="replace")

    async def _delete(self, kind: Resource[Raw], name: str) -> None:
        """Delete an object and wait until it is gone. Raises _NotRun if it stays."""
        with suppress(NotFound):
            await self._cluster.delete(kind, name, self._namespace)
            for _ in range(_GONE_SECONDS):
                await self._cluster.get(kind, name, self._namespace)
                await asyncio.sleep(_POLL_SECONDS)
            raise _NotRun(accept.stuck_fault(kind.kind, name))

    def _new_name(self) -> str:
        self._objects += 1
        return f"{self._name}-{self._objects}"
