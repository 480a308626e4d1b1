"""What people and monitoring ask of a stock: which pod has which share of which device, what a node has left, what a
rule about devices comes to, what is reserved on a node, and what should not be.

Pure: a stock comes in, values go out. Nothing is decided here, and nothing is searched for.
"""

from allocator.reports.coverage import PageCoverage, coverage_of, rule_of, status_of
from allocator.reports.drift import Drift, drift, unpublished
from allocator.reports.nodes import DeviceReport, DeviceState, NodeReport, node_report
from allocator.reports.shares import devices_by_resource, reserved_on, shares

__all__ = [
    "DeviceReport",
    "DeviceState",
    "Drift",
    "NodeReport",
    "PageCoverage",
    "coverage_of",
    "devices_by_resource",
    "drift",
    "node_report",
    "reserved_on",
    "rule_of",
    "shares",
    "status_of",
    "unpublished",
]
