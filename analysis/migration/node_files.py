"""Edits the files of nodes, so that containerd reads the CDI files of the drivers.

Follows containerd 2.1: internal/cri/config (`cdi_spec_dirs` replaces /etc/cdi and /var/run/cdi); kubernetes-sigs/dra-driver-nvidia-gpu 95932046:
cmd/gpu-kubelet-plugin/cdi.go (it writes to /var/run/cdi, and its chart has no value for another folder).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from analysis.migration.pull_request import Edit, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.migration.plan import Family, MigrationPlan
    from cluster.manifests import Document

_FOLDERS: Final = re.compile(r"(?P<begin>cdi_spec_dirs[ \t]*=[ \t]*\[)(?P<folders>[^\]\n]*)(?=\])")
_DEFAULT: Final = "/var/run/cdi"
_SAME: Final = re.compile(r"[\"'](?:/var)?/run/cdi/?[\"']")


def edit_node_files(documents: Sequence[Document], plan: MigrationPlan) -> Step:
    """Return the step that adds the folder of a driver to the folders that containerd reads."""
    drivers = [family.driver for family in plan.families if _writes_to_default(family)]
    edits, notes = [], []
    for number, document in enumerate(documents) if drivers else ():
        if document.object.get("kind") == "MigrationPlan" or "cdi_spec_dirs" not in document.text:
            continue
        wanted = _with_default(document.object)
        if wanted != document.object:
            edits.append(Edit(number, wanted))
            notes.append(
                f"by hand, before the switch: apply {document.file} to its nodes and restart containerd, which does not read "
                f"{_DEFAULT} until then, where {' and '.join(drivers)} writes its CDI files"
            )
    return Step("prepare", tuple(edits), (), tuple(notes))


def _writes_to_default(family: Family) -> bool:
    decision = "" if family.sharing is None else family.sharing.decision
    return family.replacement is not None and decision != "stay" and "cdi" not in family.replacement.values


def _with_default(value: Any) -> Any:
    """Return a value in whose texts containerd reads the folder, too."""
    if isinstance(value, dict):
        return {name: _with_default(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_with_default(item) for item in value]
    return _FOLDERS.sub(_added, value) if isinstance(value, str) else value


def _added(match: re.Match[str]) -> str:
    folders = match["folders"].rstrip(", \t")
    if _SAME.search(folders):
        return match[0]
    return f'{match["begin"]}{folders}{", " if folders else ""}"{_DEFAULT}"'
