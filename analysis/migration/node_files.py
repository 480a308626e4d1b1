"""Edits the files of nodes: the folders in which containerd reads CDI files, and the feature gate of shares.

Follows containerd 2.1: internal/cri/config (`cdi_spec_dirs` replaces /etc/cdi and /var/run/cdi); kubernetes-sigs/dra-driver-nvidia-gpu 95932046:
cmd/gpu-kubelet-plugin/cdi.go (it writes to /var/run/cdi, and its chart has no value for another folder); kubernetes/kubernetes v1.34.4: API server,
scheduler and controller manager read features.DRAConsumableCapacity, and the kubelet does not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from analysis.migration.platform import SHARING_GATE, platform_of
from analysis.migration.pull_request import Edit, Step
from dra.raw import inside, members

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.gitops import Tree
    from analysis.migration.plan import Family, MigrationPlan
    from cluster.manifests import Document

_FOLDERS: Final = re.compile(r"(?P<begin>cdi_spec_dirs[ \t]*=[ \t]*\[)(?P<folders>[^\]\n]*)(?=\])")
_TALHELPER: Final = {"clusterName", "nodes", "endpoint"}
_DEFAULT: Final = "/var/run/cdi"
_GATES: Final = re.compile(r"feature-?gates", re.IGNORECASE)
_OF_CONTROL_PLANE: Final = "cluster:\n" + "".join(
    f"  {component}:\n    extraArgs:\n      feature-gates: {SHARING_GATE}=true\n"
    for component in ("apiServer", "controllerManager", "scheduler")
)
_SAME: Final = re.compile(r"[\"'](?:/var)?/run/cdi/?[\"']")


def edit_node_files(documents: Sequence[Document], tree: Tree, plan: MigrationPlan) -> Step:
    """Return the step that changes what the drivers of a plan need on nodes."""
    folders = _folders(documents, plan)
    gate = _gate(folders.applied(documents), tree, plan)
    return Step("prepare", (*folders.edits, *gate.edits), (), (*folders.notes, *gate.notes))


def _gate(documents: Sequence[Document], tree: Tree, plan: MigrationPlan) -> Step:
    """Enable the gate without which Kubernetes before 1.36 does not share devices: in the configuration of talhelper, if no file sets gates."""
    sharing = [family for family in plan.families if family.sharing is not None and family.sharing.decision == "shares"]
    near = {consumer.file for consumer in plan.consumers}
    why = platform_of(documents, tree.reached, near).why_no_sharing()
    if not (sharing and why):
        return Step("prepare")
    configurations = [number for number, document in enumerate(documents) if document.object.keys() >= _TALHELPER]
    has_gates = any(
        _GATES.search(document.text) for document in documents if not document.object.keys() >= {"apiVersion", "kind"}
    )
    if len(configurations) == 1 and not has_gates:
        document = documents[configurations[0]]
        control_plane = inside(document.object, "controlPlane")
        wanted = {
            **document.object,
            "controlPlane": {**control_plane, "patches": [*members(control_plane.get("patches")), _OF_CONTROL_PLANE]},
        }
        note = f"by hand, before the switch: apply {document.file} to its nodes: {why}"
        return Step("prepare", (Edit(configurations[0], wanted),), (), (note,))
    lines = f"add `{SHARING_GATE}=true` to `feature-gates` of API server, controller manager and scheduler"
    return Step("prepare", notes=(f"by hand, before the switch: {why}: {lines}",))


def _folders(documents: Sequence[Document], plan: MigrationPlan) -> Step:
    """Add the folder of a driver to the folders that containerd reads."""
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
    return family.replacement is not None and "cdi" not in family.replacement.values


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
