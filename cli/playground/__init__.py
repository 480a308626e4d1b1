"""Everything of drawbridge in one process, and the progress of each pod in it."""

from cli.playground.playground import Playground, add_all, playground
from cli.playground.pod_progress import end_of, pods_of
from cli.playground.pods_port import PodsListener

__all__ = ["Playground", "PodsListener", "add_all", "end_of", "playground", "pods_of"]
