"""Writes YAML: block style, keys in their order, as few quotes as are safe for every reader.

Written by hand because it must be fast (thousands of pods a second), and because a string is left unquoted only if YAML 1.1, YAML 1.2
and kubectl all read it back as that string; anything that looks like a number, a date or a YAML keyword is quoted.
"""

from __future__ import annotations

import re
from typing import Any, Final

from cluster.manifests.yaml_reader import resolve

_BARE: Final = re.compile(
    r"(?:[A-Za-z_/]|\.{1,2}/|\d+\.\d+\.\d)(?:[A-Za-z0-9_./=@+()$,*%-]| (?![ #]|$)|:(?! |$))*", re.ASCII
)
_QUANTITY: Final = re.compile(r"[0-9]+(?:m|[kMGTP]|[KMGTPE]i)")
# Control characters, and characters that a reader cannot see or that reorder the text around them (U+202E). Joiners of emoji stay.
_UNPRINTABLE: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff"
    r"\U000e0000-\U000e007f]"
)
_ESCAPED: Final = re.compile(rf"[\\\"]|{_UNPRINTABLE.pattern}")
_NAMED: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def dump(value: Any, list_indent: str = "") -> str:
    """Write a value; `list_indent` is the indentation of a list below the line of its key."""
    lines: list[str] = []
    if isinstance(value, dict) and value:
        _mapping(value, "", lines, list_indent)
    elif isinstance(value, list) and value:
        _sequence(value, "", lines, list_indent)
    else:
        lines.append(_scalar(value, ""))
    lines.append("")
    return "\n".join(lines)


def _mapping(
    members: dict[str, Any], indent: str, lines: list[str], list_indent: str, first: str | None = None
) -> None:
    """Write the members; `first` replaces the indentation of the first one, as for the dash of a list."""
    lead = indent if first is None else first
    for name, value in members.items():
        key = f"{lead}{_text(name, None)}:"
        lead = indent
        if isinstance(value, dict) and value:
            lines.append(key)
            _mapping(value, indent + "  ", lines, list_indent)
        elif isinstance(value, list | tuple) and value:
            lines.append(key)
            _sequence(value, indent + list_indent, lines, list_indent)
        else:
            lines.append(f"{key} {_scalar(value, indent)}")


def _sequence(items: list[Any] | tuple[Any, ...], indent: str, lines: list[str], list_indent: str) -> None:
    for item in items:
        if isinstance(item, dict) and item:
            _mapping(item, indent + "  ", lines, list_indent, first=f"{indent}- ")
        elif isinstance(item, list | tuple) and item:
            lines.append(f"{indent}-")
            _sequence(item, indent + "  ", lines, list_indent)
        else:
            lines.append(f"{indent}- {_scalar(item, indent)}")


def _scalar(value: Any, indent: str) -> str:
    if isinstance(value, str):
        return _text(value, indent)
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    return "{}" if isinstance(value, dict) else "[]"


def _text(text: str, indent: str | None) -> str:
    """Write a text; with an indentation given it may become a literal block."""
    if _BARE.fullmatch(text) and isinstance(resolve(text), str):
        return text
    if _QUANTITY.fullmatch(text):
        return text
    if indent is not None and "\n" in text and not _UNPRINTABLE.search(text.replace("\n", "")):
        # A block is possible if no line ends in a blank and the first line is neither empty nor indented.
        lines = text.split("\n")
        if lines[0][:1] not in ("", " ") and not any(line.endswith(" ") for line in lines):
            body = text.rstrip("\n")
            trailing_breaks = len(text) - len(body)
            chomp = {0: "-", 1: ""}.get(trailing_breaks, "+")
            indented = [f"{indent}  {line}" if line else "" for line in body.split("\n")]
            return "\n".join([f"|{chomp}", *indented, *[""] * (trailing_breaks - 1)])
    if "'" not in text and not _UNPRINTABLE.search(text):
        return f"'{text}'"
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return _NAMED.get(match[0]) or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
