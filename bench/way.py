"""Traces the calls that produce an answer: counts calls, functions and files, and how often consecutive calls are in different files."""

from __future__ import annotations

import itertools
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

ROOT = Path(__file__).parents[1]
PACKAGES = tuple([f"{ROOT / package}{os.sep}" for package in ("allocator", "cluster", "dra", "runtime", "webhook")])
STORE = f"{ROOT / 'cluster' / 'embedded'}{os.sep}"  # replaces the API server, so its calls do not count


class CallTrace:
    """Records the calls of drawbridge's own functions, except comprehensions."""

    def __init__(self) -> None:
        self.calls: list[CodeType] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record each call within drawbridge."""
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        file = code.co_filename
        if event == "call" and file.startswith(PACKAGES) and code.co_name[0] != "<" and not _is_called_by_store(frame):
            self.calls.append(code)

    def listing(self) -> str:
        """List the calls in their order."""
        return "\n".join(f"  {Path(call.co_filename).relative_to(ROOT)} {call.co_name}" for call in self.calls)

    def __str__(self) -> str:
        files = [code.co_filename for code in self.calls]
        changes = sum(file != next_file for file, next_file in itertools.pairwise(files))
        return (
            f"{len(files)} calls, {len(set(self.calls))} functions, {len(set(files))} files, {changes} changes of file"
        )


def _is_called_by_store(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith(STORE):
        frame = frame.f_back
    return frame is not None
