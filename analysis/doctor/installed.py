"""Reads an installation: its objects, the objects that this version would install, and the state of each replica."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from analysis import installation
from analysis.configuration import CONFIG_KEY, configuration_in_force, defaults
from analysis.doctor.components import SCHEDULER, WEBHOOKS, WORKLOADS, Parts, ReplicaAnswer, answer_of, name_of
from analysis.loading import as_documents
from cluster import resources
from cluster.errors import ApiError, ClusterError, Forbidden, NotFound
from dra.raw import inside, items, text
from webhook import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analysis.configuration import ConfigurationInForce
    from cluster.kubernetes import Kubernetes
    from cluster.protocol import Cluster
    from dra.raw import Object

_SECONDS = 3.0  # timeout for the answer of a replica


async def read_parts(
    cluster: Cluster, objects: Sequence[Object], unread: frozenset[str], server: Kubernetes | None
) -> Parts | None:
    """Find the installation among listed objects, and read its other objects and its replicas; None if nothing is installed."""
    parts = parts_of(objects, unread)
    if parts is None:
        return None
    more: list[Object] = []
    denied: set[str] = set()
    unlisted = [(resources.CONFIG_MAPS.raw, name) for name in (names.NAME, SCHEDULER)]
    unlisted += [(resources.SECRETS.raw, name) for name in (names.NAME, f"{names.NAME}-signature")]
    unlisted += [(resources.LEASES.raw, name) for name in installation.LEASES if not parts.of_kinds("Lease")]
    placed = [(kind, name, parts.home) for kind, name in unlisted]
    mounted = [obj["metadata"] for obj in parts.expected if obj["kind"] == "ConfigMap" and "data" not in obj]
    placed += [(resources.CONFIG_MAPS.raw, meta["name"], meta["namespace"]) for meta in mounted]
    for kind, name, namespace in placed if parts.homes else ():
        if kind.kind in unread:
            continue
        try:
            obj = await cluster.get(kind, name, namespace)
        except NotFound:
            continue
        except Forbidden:
            denied.add(kind.kind)
            continue
        more.append(kind.plain(obj))
    present = {name_of(obj) for obj in more}
    parts = replace(
        parts,
        objects=(*(obj for obj in parts.objects if name_of(obj) not in present), *more),
        unread=parts.unread | denied,
    )
    parts = with_configuration(parts, installed_configuration(parts))
    if server is not None:
        parts = replace(parts, answers=await _query_replicas(server, parts.of_kinds("Pod")))
    return parts


def parts_of(objects: Sequence[Object], unread: frozenset[str]) -> Parts | None:
    """Find the installation among our objects; None if there is none."""
    placed = [(obj["metadata"].get("namespace") or "default", obj["metadata"]["name"]) for obj in objects if obj["kind"] == "Deployment"]  # fmt: skip
    homes = sorted({namespace for namespace, name in placed if name == "drawbridge-webhook"})
    others = sorted({namespace for namespace, _ in placed})
    registered = [obj for obj in objects if obj["kind"] in WEBHOOKS]
    hooks = [hook for configuration in registered for hook in items(configuration, "webhooks")]
    clients = [inside(hook, "clientConfig") for hook in hooks]
    called = sorted({text(inside(client, "service").get("namespace")) for client in clients} - {""})
    namespaces = [namespace for namespace in called if namespace in homes] or homes or others or called
    policies = [obj for obj in objects if obj["kind"] == "ValidatingAdmissionPolicy"]
    if not (namespaces or registered or policies):
        return None
    home = namespaces[0] if namespaces else names.NAMESPACE
    if "ClusterRoleBinding" not in unread:
        # A tenant's pod can have our label and report anything.
        places = installation.namespaces_of(objects) | {home}
        objects = [obj for obj in objects if obj["kind"] != "Pod" or obj["metadata"].get("namespace") in places]
    # A webhook that is called by URL runs outside this cluster, which may contain no other object of the installation.
    elsewhere = not homes and not others and (not called or any(client.get("url") for client in clients))
    return Parts(
        home=home,
        homes=tuple(homes),
        installed=defaults(),
        objects=tuple(objects),
        expected=() if elsewhere else _expected(objects, home),
        unread=unread,
    )


def with_configuration(parts: Parts, installed: ConfigurationInForce) -> Parts:
    """Add the installed configuration, and the digest that replicas report for its ConfigMap."""
    config_map = parts.find("ConfigMap", names.NAME, parts.home) or {}
    content = inside(config_map, "data").get(CONFIG_KEY)
    digest = ""
    if isinstance(content, str) and not installed.mistakes:
        digest = hashlib.sha256(content.encode()).hexdigest()
    return replace(parts, installed=installed, digest=digest)


def installed_configuration(parts: Parts) -> ConfigurationInForce:
    """Read the configuration in the ConfigMap of an installation."""
    # Tenants may store many objects with our label, so only those with the names of an installation's objects are read.
    deciding = [obj for obj in parts.objects if obj["metadata"]["name"] in (names.NAME, f"{names.NAME}-webhook")]
    return configuration_in_force(None, as_documents(deciding), judged=True)


def _expected(objects: Iterable[Object], home: str) -> tuple[Object, ...]:
    """Render the objects that this version installs, for each component that has an object in the cluster."""
    present = {name_of(obj) for obj in objects}
    expected: list[Object] = [{"kind": kind, "metadata": {"name": names.NAME}} for kind in WEBHOOKS]
    base = installation.render(installation.BASE, home)
    expected += sorted(base, key=lambda obj: obj["kind"] not in WORKLOADS)
    # Scheduler and allocator may run in separate pods (docs/bridge.md), so the bridge's workloads are not expected.
    rendered = installation.render(installation.BRIDGE, home)
    bridge = [obj for obj in rendered if obj["kind"] not in (*WORKLOADS, "ConfigMap")]
    folders = [*(installation.BASE.parent / name for name in installation.PARTS), installation.RESERVATIONS]
    optional = [bridge, *(installation.render(folder, home) for folder in folders)]
    for part in optional:
        own = {name_of(obj) for obj in part if obj["kind"] != "Namespace"}
        if own & present:
            expected += part
    # ConfigMaps that a workload mounts and an administrator writes.
    known = {name_of(obj) for obj in expected}
    for workload in [obj for obj in expected if obj["kind"] in WORKLOADS]:
        for volume in items(inside(workload, "spec", "template", "spec"), "volumes"):
            metadata = {"name": inside(volume, "configMap").get("name"), "namespace": workload["metadata"]["namespace"]}
            mounted: Object = {"kind": "ConfigMap", "metadata": metadata}
            if metadata["name"] and name_of(mounted) not in known:
                expected.append(mounted)
    kinds = {*WEBHOOKS, *(kind.kind for kind in installation.KINDS)}
    return tuple(obj for obj in expected if obj["kind"] in kinds)


async def _query_replicas(server: Kubernetes, pods: Iterable[Object]) -> tuple[ReplicaAnswer, ...]:
    """Query the readiness and metrics of each replica, through the API server."""

    async def ask(path: str, leaf: str) -> str:
        try:
            return (await server.read(f"{path}/{leaf}", seconds=_SECONDS)).decode("utf-8", "replace")
        except ApiError as error:  # the answer of a replica that is not ready
            return str(error.message).replace("HTTP 503: ", "") if error.status == 503 else ""
        except ClusterError:
            return ""

    async def both(name: str, path: str) -> ReplicaAnswer:
        return answer_of(name, *await asyncio.gather(ask(path, "readyz?verbose"), ask(path, "metrics")))

    proxied_pods: list[tuple[str, str]] = []
    for pod in pods:
        if (pod.get("status") or {}).get("phase") != "Running" or pod["metadata"].get("deletionTimestamp"):
            continue
        ports = [port for container in pod["spec"]["containers"] for port in container.get("ports") or []]
        for port in [port["containerPort"] for port in ports if port.get("name") == "metrics"][:1]:
            meta = pod["metadata"]
            proxied_pods.append(
                (meta["name"], f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}:{port}/proxy")
            )
    return tuple(await asyncio.gather(*(both(*proxied_pod) for proxied_pod in proxied_pods)))
