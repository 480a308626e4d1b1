"""The rim: a driver's sockets and files, and the API server."""

from __future__ import annotations

from node.service.adapting import Adapter
from node.service.auditing.agent import Agent, AgentSettings, AuditResult
from node.service.auditing.allocator_client import AllocatorAddress
from node.service.disk import Disk
from node.service.driver import Driver, NodePaths
from node.service.prepared_store import PreparedStore
from node.service.preparing import Preparing
from node.service.publisher import Publisher
from node.service.sysfs import numa_nodes, pci_devices

__all__ = [
    "Adapter",
    "Agent",
    "AgentSettings",
    "AllocatorAddress",
    "AuditResult",
    "Disk",
    "Driver",
    "NodePaths",
    "PreparedStore",
    "Preparing",
    "Publisher",
    "numa_nodes",
    "pci_devices",
]
