"""The node processes: a driver's sockets and files, and its access to the API server.

Names are imported on first use, because the help of a command only needs the settings.
"""

from typing import TYPE_CHECKING

from serving.lazy import lazily

if TYPE_CHECKING:
    from node.service.adapting import Adapter
    from node.service.auditing.agent import Agent, AuditResult
    from node.service.driver import Driver
    from node.service.settings import TOKEN, AgentSettings, AllocatorAddress, NodePaths
    from node.service.sysfs import discover_devices, pci_devices

__all__ = [
    "TOKEN",
    "Adapter",
    "Agent",
    "AgentSettings",
    "AllocatorAddress",
    "AuditResult",
    "Driver",
    "NodePaths",
    "discover_devices",
    "pci_devices",
]

__getattr__ = lazily(
    __name__,
    {
        "adapting": ("Adapter",),
        "auditing.agent": ("Agent", "AuditResult"),
        "driver": ("Driver",),
        "settings": ("TOKEN", "AgentSettings", "AllocatorAddress", "NodePaths"),
        "sysfs": ("discover_devices", "pci_devices"),
    },
)
