"""Removes names from events: whoever reads a pod's events may read only its namespace, so objects of other namespaces are not named."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.objects import Pod
    from dra.stock import Stock

_KEY = re.compile(r"(pod |claim )?([a-z0-9][-a-z0-9.]*/[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)")
STRANGER = "a claim of another namespace"


def redact(sentence: str, stock: Stock, namespace: str) -> str:
    """Replace the names of claims and pods of other namespaces in a sentence."""

    def hide(match: re.Match[str]) -> str:
        kind, key = match.groups()
        if key.startswith(f"{namespace}/"):
            return match[0]
        if kind == "pod ":
            return "a pod of another namespace"
        return STRANGER if kind or key in stock.claims else key

    return _KEY.sub(hide, sentence)


def name_pods(reader: Pod, pods: Iterable[Pod]) -> str:
    """Describe pods in an event of the pod `reader`: name the pods of its namespace, and count the others."""
    own: list[str] = []
    strangers = 0
    for pod in pods:
        if pod.metadata.namespace == reader.metadata.namespace:
            own.append(f"pod {pod.metadata.key}")
        else:
            strangers += 1
    if strangers:
        own.append("a pod of another namespace" if strangers == 1 else f"{strangers} pods of other namespaces")
    return ", ".join(own)
