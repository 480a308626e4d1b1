"""Schedules the pending pods of a snapshot without a cluster."""

from allocator.simulation.nodes import with_more_nodes, without_nodes
from allocator.simulation.placement import Ask
from allocator.simulation.snapshot import PodOutcome, Simulation, Snapshot, SnapshotRun, gang_of, simulate

__all__ = [
    "Ask",
    "PodOutcome",
    "Simulation",
    "Snapshot",
    "SnapshotRun",
    "gang_of",
    "simulate",
    "with_more_nodes",
    "without_nodes",
]
