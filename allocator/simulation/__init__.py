"""Snapshots and workloads, scheduled without a cluster."""

from __future__ import annotations

from allocator.simulation.generate import KINDS, Workload
from allocator.simulation.placement import Ask
from allocator.simulation.plot import drawing
from allocator.simulation.replay import Arrival, Replay, replay
from allocator.simulation.snapshot import PodOutcome, Simulation, Snapshot, simulate

__all__ = [
    "KINDS",
    "Arrival",
    "Ask",
    "PodOutcome",
    "Replay",
    "Simulation",
    "Snapshot",
    "Workload",
    "drawing",
    "replay",
    "simulate",
]
