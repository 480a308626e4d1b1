"""What people and monitoring ask of a stock: which pod has which share of which device, what a node has left, and what should not be.

Pure: a stock comes in, values go out. Nothing is decided here, and nothing is searched for.
"""

from __future__ import annotations

from allocator.reports.drift import Drift, drift
from allocator.reports.nodes import DeviceReport, DeviceState, NodeReport, node_report
from allocator.reports.shares import Share, shares

__all__ = ["DeviceReport", "DeviceState", "Drift", "NodeReport", "Share", "drift", "node_report", "shares"]
