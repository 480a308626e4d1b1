"""Decides which files below a folder are skipped: by `.drawbridgeignore`, in the format of .gitignore, and by `--exclude`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FILE: Final = ".drawbridgeignore"
_PARTS: Final = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[[^\]]+\]|\\.|.", re.DOTALL)
_MEANING: Final = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class IgnorePattern(NamedTuple):
    form: Any
    negated: bool
    folders_only: bool


def patterns(lines: Iterable[str]) -> list[IgnorePattern]:
    """Parse lines as git parses a .gitignore."""
    parsed: list[IgnorePattern] = []
    for line in lines:
        text = line.rstrip("\r\n").rstrip(" ")
        if not text or text.startswith("#"):
            continue
        negated = text.startswith("!")
        text = text.removeprefix("!")
        folders_only = text.endswith("/")
        if form := _form(text.rstrip("/")):
            parsed.append(IgnorePattern(form, negated, folders_only))
    return parsed


def _form(text: str) -> Any:
    """Compile a pattern; None if it is broken (git ignores it, too). A name matches at any depth, a path only from the folder on."""
    import re2

    anywhere = "" if "/" in text else "(?:.*/)?"
    parts = []
    for match in _PARTS.finditer(text.removeprefix("/")):
        part = match.group()
        if part in _MEANING:
            parts.append(_MEANING[part])
        elif part.startswith("[") and len(part) > 2:
            inside = part[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            parts.append(f"[{inside.replace('!', '^', 1) if inside.startswith('!') else inside}]")
        else:
            parts.append(re.escape(part.removeprefix("\\") or part))
    # RE2 takes linear time, and the pattern may be untrusted.
    options = re2.Options()
    options.dot_nl, options.log_errors = True, False
    try:
        return re2.compile(anywhere + "".join(parts), options)
    except re2.error:
        return None


def is_excluded(path: str, among: Sequence[IgnorePattern], *, folder: bool = False) -> bool:
    """Whether a path, relative to the named folder, is skipped: the last matching pattern decides."""
    for pattern in reversed(among):
        if pattern.folders_only and not folder:
            continue
        if pattern.form.fullmatch(path):
            return not pattern.negated
    return False
