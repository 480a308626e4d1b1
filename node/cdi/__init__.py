"""What a container sees of its devices: specifications of the Container Device Interface."""

from __future__ import annotations

from node.cdi.metadata import is_metadata_of, metadata_of
from node.cdi.spec import answer_of, file_name, is_ours, kind_of, spec_of, uid_of

__all__ = [
    "answer_of",
    "file_name",
    "is_metadata_of",
    "is_ours",
    "kind_of",
    "metadata_of",
    "spec_of",
    "uid_of",
]
