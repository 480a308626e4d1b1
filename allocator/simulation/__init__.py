"""Snapshots and workloads, scheduled without a cluster."""

from allocator.simulation.generate import KINDS
from allocator.simulation.nodes import with_more_nodes, without_nodes
from allocator.simulation.placement import Ask
from allocator.simulation.replay import Replay, Sample, replay
from allocator.simulation.snapshot import PodOutcome, Simulation, Snapshot, SnapshotRun, simulate
from allocator.simulation.workload import KIND, Workload, is_workload, name_of, read_arrivals

__all__ = [
    "KIND",
    "KINDS",
    "Ask",
    "PodOutcome",
    "Replay",
    "Sample",
    "Simulation",
    "Snapshot",
    "SnapshotRun",
    "Workload",
    "is_workload",
    "name_of",
    "read_arrivals",
    "replay",
    "simulate",
    "with_more_nodes",
    "without_nodes",
]
