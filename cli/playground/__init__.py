"""Everything of drawbridge in one process, and the way of each pod through it, told."""

from __future__ import annotations

from cli.playground import story
from cli.playground.playground import Playground, playground
from cli.playground.pods_port import Door
from cli.playground.way import end_of, pods_of

__all__ = ["Door", "Playground", "end_of", "playground", "pods_of", "story"]
