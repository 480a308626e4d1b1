"""Detects templates that were not rendered. Every command skips a template, because its objects are not known.

Braces alone do not make a template: programs in a cluster replace braces in commands, annotations and data, and controllers of other
projects (Argo Workflows, ApplicationSets) replace braces in their own fields.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import Any, Final

# API groups: in nearly every field of their objects the API server refuses braces.
_OF_KUBERNETES: Final = frozenset(("v1", "apps", "batch", "resource.k8s.io"))
# Fields that may hold any text.
_ANY_TEXT: Final = frozenset(
    ("annotations", "args", "binaryData", "command", "data", "env", "message", "parameters", "status", "stringData")
)


# A placeholder as a whole, where the API server needs a name: `@@NAME@@`, `%NAME%`, `__NAME__`, `POD_NAME`.
_UNFILLED: Final = re.compile(r"[^@]*@@\w+@@[^@]*|%\w+%|__\w+__|[A-Z][A-Z0-9]+_[A-Z0-9_]+")
# `{name}` of Python's str.format, which is a map for YAML where it is a value. Beginning with the brace, the search of a large file is fast.
FORMAT: Final = re.compile(rb"\{[A-Za-z_]\w*\}")
_TEMPLATE_ENDINGS: Final = frozenset(
    (".tmpl", ".tpl", ".j2", ".jinja", ".jinja2", ".gotmpl", ".erb", ".hbs", ".in", ".template")
)
_OF_TESTS: Final = re.compile(
    r"(?:^|/)(?:testdata|golden|__snapshots?__)/|(?:^|[-_./])(?:assert|errors?|expected|golden)\b[^/]*$"
)


def is_named_template(file: str) -> bool:
    """Return whether the name of a file is that of a template, such as pod.tmpl.yaml."""
    return not _TEMPLATE_ENDINGS.isdisjoint(PurePath(file).suffixes)


def is_named_test(file: str) -> bool:
    """Return whether a path, relative to its tree, is that of data of a test, or of what a test expects."""
    return _OF_TESTS.search(file) is not None


def chart_of(file: str) -> str:
    """Return the folder of the Helm chart that a file is part of, if any."""
    return next(
        (str(folder) for folder in reversed(Path(file).resolve().parents) if (folder / "Chart.yaml").is_file()),
        "",
    )


def is_of_chart(file: str) -> bool:
    """Return whether a file lies in the folder `templates` of a chart."""
    folders = (folder for folder in Path(file).absolute().parents if folder.name == "templates")
    return any((folder.parent / "Chart.yaml").is_file() for folder in folders)


def is_unrendered(value: dict[str, Any], *, has_braces: bool = True, has_format: bool = False) -> bool:
    """Return whether an object has a placeholder where the API server refuses it. An object with a uid was read from a cluster: False.

    Braces of a text count if it `has_braces`, values `{name}` if it `has_format`.
    """
    metadata = value["metadata"] if isinstance(value.get("metadata"), dict) else {}
    if metadata.get("uid"):
        return False
    names = (metadata.get("name"), metadata.get("namespace"))
    if any(isinstance(name, str) and _UNFILLED.fullmatch(name) for name in names):
        return True
    if has_format and _has_format(value):
        return True
    return has_braces and _has_braces(value)


def _has_format(value: Any) -> bool:
    """Return whether a name, an image or an amount is a map of one null, such as `{name}`."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        parent, part = waiting.pop()
        if isinstance(part, list):
            waiting += [(parent, inner) for inner in part]
        for key, inner in part.items() if isinstance(part, dict) else ():
            is_text = key in ("name", "namespace", "image") or parent in ("labels", "limits", "requests")
            if is_text and isinstance(inner, dict) and list(inner.values()) == [None]:
                return True
            waiting.append((key, inner))
    return False


def _has_braces(value: dict[str, Any]) -> bool:
    group = str(value.get("apiVersion")).partition("/")[0]
    whole = group in _OF_KUBERNETES
    waiting: list[Any] = [value if whole else {key: value.get(key) for key in ("apiVersion", "kind", "metadata")}]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += [inner for key, inner in part.items() if key not in _ANY_TEXT]
            waiting += part.keys()
        elif isinstance(part, list):
            waiting += part
        elif isinstance(part, str) and "}}" in part.partition("{{")[2]:
            return True
    return False
