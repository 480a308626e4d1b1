"""Reports about a stock (a snapshot of devices and claims) for people and monitoring: the devices of pods, the free devices of nodes, the
coverage of compatibility rules, the reservations on a node, and inconsistencies.

None of these functions searches for an allocation.
"""

from allocator.reports.coverage import PageCoverage, coverage_of, rule_of, status_of
from allocator.reports.drift import Drift, drift, unpublished, unserved_resources
from allocator.reports.nodes import DeviceReport, DeviceState, device_reports
from allocator.reports.shares import devices_by_resource, reserved_on, shares

__all__ = [
    "DeviceReport",
    "DeviceState",
    "Drift",
    "PageCoverage",
    "coverage_of",
    "device_reports",
    "devices_by_resource",
    "drift",
    "reserved_on",
    "rule_of",
    "shares",
    "status_of",
    "unpublished",
    "unserved_resources",
]
