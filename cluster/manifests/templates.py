"""Detects templates that were not rendered. Every command skips a template, because its objects are not known.

Braces alone do not make a template: programs in a cluster replace braces in commands, annotations and data, and controllers of other
projects (Argo Workflows, ApplicationSets) replace braces in their own fields.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

# API groups: in nearly every field of their objects the API server refuses braces.
_OF_KUBERNETES: Final = frozenset(("v1", "apps", "batch", "resource.k8s.io"))
# Fields that may hold any text.
_ANY_TEXT: Final = frozenset(
    ("annotations", "args", "binaryData", "command", "data", "env", "message", "parameters", "status", "stringData")
)


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


def is_unrendered(value: dict[str, Any]) -> bool:
    """Return whether an object holds braces where the API server refuses them. An object with a uid was read from a cluster: False."""
    if isinstance(metadata := value.get("metadata"), dict) and metadata.get("uid"):
        return False
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
