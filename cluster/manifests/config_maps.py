"""Reads the texts of a ConfigMap that are YAML: the configuration of device plugins and schedulers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cluster.manifests.documents import ManifestError, parse

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST = 256 << 10  # letters of a text that is read


def unfold(obj: dict[str, Any], is_wanted: Callable[[str], object]) -> dict[str, Any]:
    """Return a ConfigMap with the wanted texts of its data parsed; any other object, and texts that are not YAML, are unchanged."""
    data = obj.get("data")
    if obj.get("kind") != "ConfigMap" or not isinstance(data, dict):
        return obj
    unfolded = dict(data)
    for name, text in data.items():
        if not isinstance(text, str) or len(text) > _LONGEST or not is_wanted(text):
            continue
        with suppress(ManifestError):
            documents = parse(text)
            if len(documents) == 1:
                unfolded[name] = documents[0].object
    return {**obj, "data": unfolded}
