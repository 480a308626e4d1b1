"""The variables that Flux replaces in what a Kustomization builds, as fluxcd/kustomize-controller 1.9 does it (postBuild)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from analysis.gitops.sources import FLUX
from dra.raw import inside, items, text
from webhook.translate import group_kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.gitops.tree import Tree
    from cluster.manifests import Document

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)(?::?[-=]([^}]*))?\}")


def variables_of(documents: Sequence[Document], tree: Tree) -> dict[int, Mapping[str, str]]:
    """Return the values of `postBuild`, by the numbers of the documents that they apply to; those of Secrets are not in a tree."""
    data = {
        text(inside(document.object, "metadata").get("name")): inside(document.object, "data")
        for document in documents
        if group_kind(document.object) == ("", "ConfigMap")
    }
    by_number: dict[int, Mapping[str, str]] = {}
    for number, document in enumerate(documents):
        build = inside(document.object, "spec", "postBuild") if group_kind(document.object) == FLUX else {}
        values: dict[str, str] = {}
        for reference in items(build, "substituteFrom"):
            values |= {name: str(value) for name, value in data.get(text(reference.get("name")), {}).items()}
        values |= {name: str(value) for name, value in inside(build, "substitute").items()}
        for built in tree.built_by(number) if build else ():
            by_number[built] = {**by_number.get(built, {}), **values}
    return by_number


def filled(value: Any, values: Mapping[str, str]) -> Any:
    """Return a value with the variables replaced in all texts and names of fields. A variable without a value stays, unless it has a default."""
    if isinstance(value, dict):
        return {filled(name, values): filled(below, values) for name, below in value.items()}
    if isinstance(value, list):
        return [filled(item, values) for item in value]
    if not isinstance(value, str):
        return value
    return _VARIABLE.sub(lambda match: values.get(match[1], match[0] if match[2] is None else match[2]), value)
