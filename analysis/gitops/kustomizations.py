"""Kustomizations among documents, and the files and folders that they name."""

from __future__ import annotations

from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Final

from dra.raw import mapping, members

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cluster.manifests import Document

NAMES: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
PATCHES: Final = ("patches", "patchesStrategicMerge", "patchesJson6902")
# Fields with files of objects, and folders with kustomizations.
FOLDERS: Final = ("resources", "bases", "components")


def is_kustomization(document: Document) -> bool:
    """Return whether kustomize reads a document as a kustomization, and not as an object."""
    named_so = document.file.rpartition("/")[2] in NAMES
    return named_so or str(document.object.get("apiVersion")).startswith("kustomize.config.k8s.io/")


def files_of(kustomization: Document, fields: Iterable[str]) -> Iterator[str]:
    """Yield the files and folders that a kustomization lists in these fields."""
    folder = dirname(kustomization.file)
    for field in fields:
        for entry in members(kustomization.object.get(field)):
            path = mapping(entry).get("path") if isinstance(entry, dict) else entry
            if isinstance(path, str) and "\n" not in path:
                yield normpath(join(folder, path))
