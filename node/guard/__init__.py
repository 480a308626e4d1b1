"""The last look before a device reaches a container: is it what the claim's status says, and does nobody else have it?"""

from __future__ import annotations

from node.guard.guard import Guard, GuardRefusal

__all__ = ["Guard", "GuardRefusal"]
