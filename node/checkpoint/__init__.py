"""The prepared claims of a node, as a file with a checksum, and the steps by which files change."""

from __future__ import annotations

from node.checkpoint.file import Broken, Checkpoint, decode, encode
from node.checkpoint.record import HeldDevice, Prepared
from node.checkpoint.steps import FOR_ALL, PRIVATE, Remove, Rename, Step, SyncFile, SyncFolder, Write, shown, written

__all__ = [
    "FOR_ALL",
    "PRIVATE",
    "Broken",
    "Checkpoint",
    "HeldDevice",
    "Prepared",
    "Remove",
    "Rename",
    "Step",
    "SyncFile",
    "SyncFolder",
    "Write",
    "decode",
    "encode",
    "shown",
    "written",
]
