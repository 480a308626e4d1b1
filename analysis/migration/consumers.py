"""Edits what consumes devices: claims take the place of legacy keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.migration.pull_request import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.gitops import Tree
    from analysis.migration.plan import MigrationPlan
    from cluster.manifests import Document
    from webhook.state import State


def consumer_edits(documents: Sequence[Document], tree: Tree, plan: MigrationPlan, state: State) -> Step:
    """Return what the commit `switch` changes for the consumers of a plan; `documents` are those of the tree."""
    del documents, tree, plan, state
    return Step("switch")
