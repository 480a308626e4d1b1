"""`drawbridge matrix`: which devices can be in use together, in a fleet, a dump or a few slices, and which are held."""

from __future__ import annotations

from cli.matrix.fleet import PoolMatrix

__all__ = ["PoolMatrix"]
