"""The texts of a ConfigMap that are YAML themselves, read: configuration of others, which decides about devices."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cluster.manifests.documents import ManifestError, parse

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST = 256 << 10  # letters of a text that is read


def unfold(obj: dict[str, Any], is_wanted: Callable[[str], object]) -> dict[str, Any]:
    """Give a ConfigMap with the wanted texts of its data as objects; any other object, and a text that is not YAML, as it is."""
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
