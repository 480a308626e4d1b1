"""Schedules the pending pods of a snapshot without a cluster."""

from allocator.simulation.nodes import with_more_nodes, without_nodes
from allocator.simulation.snapshot import PodOutcome, Simulation, Snapshot, SnapshotRun, by_gang, gang_of, simulate

__all__ = [
    "PodOutcome",
    "Simulation",
    "Snapshot",
    "SnapshotRun",
    "by_gang",
    "gang_of",
    "simulate",
    "with_more_nodes",
    "without_nodes",
]
