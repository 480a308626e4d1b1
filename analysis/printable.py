"""Writes characters that a terminal, the log of a CI job or Markdown would interpret, as visible escapes or as code.

Names from a cluster or a file may contain terminal escape sequences, and marks that change the direction of writing.
"""

from __future__ import annotations

import re

# Control characters, lone surrogates, line separators, and characters that are invisible or change the writing direction.
UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
# Commands in the logs of GitHub and Azure runners: `::` at the start of a line, `##[` and `##vso[` anywhere.
_COMMAND = re.compile(r"^(\s*)(:)(?=:)|#(?=#(?:vso)?\[)")

_BACKTICKS = re.compile("`+")


def printable(text: str) -> str:
    """Escape characters that a terminal or the log of a CI job would interpret."""
    if "::" in text or "##" in text:
        text = _COMMAND.sub(lambda match: f"{match[1]}\\x3a" if match[2] else "\\x23", text)
    if text.isascii() and text.isprintable():
        return text
    return UNSEEN.sub(_escaped, text)


def fence_around(text: str, shortest: int) -> str:
    """Return the backticks that open and close code in Markdown: more than the text has in a row."""
    return "`" * max(shortest, *(len(run) + 1 for run in _BACKTICKS.findall(text)), 0)


def code_span(text: str) -> str:
    """Return a text as a code span of Markdown. In a table, `|` needs an escape as well."""
    shown = printable(text)
    fence = fence_around(shown, 1)
    # Renderers strip one space from both ends, and backticks at an end would belong to the fence.
    is_padded = shown[:1] == "`" or shown[-1:] == "`" or (shown[:1] == shown[-1:] == " " and shown.strip())
    return f"{fence} {shown} {fence}" if is_padded else f"{fence}{shown}{fence}"


def _escaped(match: re.Match[str]) -> str:
    number = ord(match.group())
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
