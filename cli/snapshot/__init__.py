"""`drawbridge snapshot`: one file of what a cluster has, for all commands that read a dump; without what is secret."""

from __future__ import annotations

from cli.snapshot.redaction import Redaction

__all__ = ["Redaction"]
