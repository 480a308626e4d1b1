"""`drawbridge node-agent`: audits the devices of a node, and marks those that device plugins hold (docs/node.md).

It runs beside the kubelet, and compares the kubelet's records with those of drivers and the cluster.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from analysis.errors import Broken
from analysis.report import Report, Screen
from cli import loop, options
from cli.answers import write
from cli.command import declare
from cli.exits import Exit
from cli.node import check_node
from cli.options import is_loopback
from cli.server_options import options_of
from dra.finding import Finding
from dra.texts import count_of
from node.service import TOKEN, AgentSettings

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

    from cluster import Cluster
    from node.audit import Hardware
    from node.service import AllocatorAddress, AuditResult

Answer = dict[str, Any]


@declare(
    "node-agent",
    examples=("drawbridge node-agent --once --node-name node-a", "drawbridge node-agent --mark held --condition"),
)
@options.option("--once", "Audit once, print the findings, and write nothing.")
@options_of(AgentSettings)
@options.cluster_access()
@options.log_level()
@options.output("text", "json", default="text")
def command(
    *,
    once: bool,
    settings: AgentSettings,
    kubeconfig: str,
    context: str,
    log_level: str,
    output: str,
) -> Exit:
    """Compare the records of the kubelet, drivers and the cluster about this node's devices.

    Contradictions become events, metrics and findings of `drawbridge doctor`. The agent marks devices that pods hold from a device plugin,
    so that claims do not get them.
    """
    check_node(settings.paths)
    if output == "json" and not once:
        raise Broken("-o json needs --once", "add --once")
    from cluster.kubernetes import Kubernetes
    from node.service import Agent
    from webhook.service import log

    settings = replace(settings, allocator=_checked_address(settings.allocator))

    @asynccontextmanager
    async def agent_on(cluster: Cluster) -> AsyncIterator[Agent]:
        user = f"system:node:{settings.paths.node}"
        as_node = Kubernetes.connect(kubeconfig=kubeconfig, context=context, user=user)
        try:
            yield Agent(cluster, settings, as_node)
        finally:
            await as_node.close()

    if once:

        async def look(cluster: Cluster) -> Answer:
            async with agent_on(cluster) as agent:
                snapshot = await agent.audit_once()
            return answer_of(snapshot, agent.watcher.hardware)

        answer = loop.visit(kubeconfig, context, look, "docs/node.md")
        write(output, lambda: _report(answer), lambda: answer)
        return Exit.REFUSED if answer["findings"] else Exit.FINE
    log.configure(log_level)

    async def serve(cluster: Cluster, stop: asyncio.Event) -> None:
        async with agent_on(cluster) as agent:
            await agent.run(stop)

    loop.serve(kubeconfig, context, serve)
    return Exit.FINE


def _checked_address(address: AllocatorAddress) -> AllocatorAddress:
    """Return the allocator's address with its default token file; raise Broken if it is not valid.

    Without TLS the address must be on loopback, because the token is sent in clear text.
    """
    url, token_file, ca_file = address.url, address.token_file, address.ca_file
    if not url:
        if token_file or ca_file:
            raise Broken("--allocator-token and --allocator-ca need --allocator", "add --allocator https://HOST:PORT")
        return address
    host = ""
    with suppress(ValueError):  # not a URL
        parsed = urlsplit(url)
        is_bare = (
            url.rstrip("/") == f"{parsed.scheme}://{parsed.netloc}" and parsed.username is None and parsed.port != 0
        )
        if is_bare and parsed.scheme in ("http", "https"):
            host = parsed.hostname or ""
    if not host:
        raise Broken(f"--allocator {url!r} is not a valid address", "expected https://HOST:PORT")
    if url.startswith("http:") and not is_loopback(host):
        problem = f"--allocator {url} is not on loopback: without TLS, the bearer token would be sent in clear text"
        raise Broken(problem, "use https://")
    for option, file in (("--allocator-token", token_file), ("--allocator-ca", ca_file)):
        if file and not os.access(file, os.R_OK):
            raise Broken(f"{option} {file} cannot be read", "correct the path, or mount the file")
    return replace(address, token_file=token_file or TOKEN)


def answer_of(audit: AuditResult, hardware: Hardware) -> Answer:
    """Make the JSON answer of one audit."""
    marked: set[str] = set()
    for rule in audit.marks or ():
        if selector := rule.spec.device_selector:
            marked.add(f"{selector.driver}/{selector.pool}/{selector.device}")
    snapshot = audit.snapshot
    findings = [{name: getattr(finding, name) for name in Finding.__struct_fields__} for finding in audit.findings]
    held_devices: list[Answer] = []
    for plugin_device in snapshot.allocated_to_pods:
        devices = sorted(
            str(device_id) for device_id in hardware.excluded_by_plugin(plugin_device.resource, plugin_device.id)
        )
        held_devices.append(
            {
                "resource": plugin_device.resource,
                "id": plugin_device.id,
                "pod": f"{plugin_device.namespace}/{plugin_device.pod}",
                "devices": devices,
                "taintedDevices": [name for name in devices if name in marked],
            }
        )
    unread = [{"source": name, "reason": why} for name, why in sorted((snapshot.unread | snapshot.unknown).items())]
    return {"node": snapshot.node, "findings": findings, "pluginDevices": held_devices, "unread": unread}


def _report(answer: Answer) -> Report:
    lines: list[str] = []
    for finding in answer["findings"]:
        lines += [
            f"{finding['object']}: {finding['severity']} {finding['code']}: {finding['message']}",
            f"  {finding['remedy']}",
        ]
    for held in answer["pluginDevices"]:
        devices = ", ".join(held["devices"]) or "no published device"
        unmarked = len(held["devices"]) - len(held["taintedDevices"])
        note = f" ({unmarked} not marked)" if unmarked else ""
        lines.append(f"{held['pod']} holds {held['resource']} {held['id']} of a device plugin: {devices}{note}")
    lines += [f"not read: {unread['source']}: {unread['reason']}" for unread in answer["unread"]]
    summary = f"{count_of(len(answer['findings']), 'finding')} on {answer['node']}"
    return Report("Audit of a node", (Screen(lines),), summary)
