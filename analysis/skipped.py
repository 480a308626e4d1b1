"""A document among the input that is not read as an object."""

from __future__ import annotations

from typing import NamedTuple


class SkippedFile(NamedTuple):
    """A document that is not judged as a manifest, and the reason: `other`, `template`, `patch` or `assertion`.

    `key` is the first key in the document that requests devices, and `line` is its line (without a key: that of the document or its error).
    `makes` is the kind of Flux or Argo CD that a template makes, if it installs something.
    """

    file: str
    line: int
    reason: str
    key: str = ""
    makes: str = ""

    @property
    def kind(self) -> str:
        """What the file is, in place of an object's name."""
        return {"other": "not a manifest", "patch": "part of a kustomization"}.get(self.reason, self.reason)
