"""Names left out of events: readers of a pod's events may read its namespace, so claims and pods of others are not named there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.objects import Pod
    from dra.stock import Stock

_KEY = re.compile(r"(pod )?([a-z0-9][-a-z0-9.]*/[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)")
STRANGER = "a claim of another namespace"


def redact(sentence: str, stock: Stock, namespace: str) -> str:
    """Replace the names of claims and pods of other namespaces in a sentence."""

    def hide(found: re.Match[str]) -> str:
        pod, key = found.groups()
        if key.startswith(f"{namespace}/"):
            return found[0]
        if pod:
            return "a pod of another namespace"
        return STRANGER if key in stock.claims else key

    return _KEY.sub(hide, sentence)


def name_pods(reader: Pod, pods: Iterable[Pod]) -> str:
    """List pods for readers of one pod's events: by name those of its namespace, by number the others."""
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
