"""What of a cluster is drawbridge's, and goes with it."""

from __future__ import annotations

from cli.uninstall.finding import find, take

__all__ = ["find", "take"]
