"""What becomes of the device plugins of a tree, and of what depends on them: the steps of a move without its consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.migration.pull_request import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.gitops import Tree
    from analysis.migration.plan import MigrationPlan
    from cluster.manifests import Document
    from webhook.state import State


def driver_steps(documents: Sequence[Document], tree: Tree, plan: MigrationPlan, state: State) -> tuple[Step, ...]:
    """Return the steps that remove the plugins and install the drivers of a plan."""
    del documents, tree, plan, state
    return (Step("prepare"), Step("switch"), Step("tidy"))
