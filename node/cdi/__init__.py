"""What a container sees of its devices: specifications of the Container Device Interface."""

from __future__ import annotations

from node.cdi.spec import answer_of, file_name, is_ours, kind_of, spec_of, uid_of

__all__ = ["answer_of", "file_name", "is_ours", "kind_of", "spec_of", "uid_of"]
