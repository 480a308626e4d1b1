"""Adds rules of Node Feature Discovery for node labels that go with a device plugin and that selectors need.

Follows intel/intel-resource-drivers-for-kubernetes 1da939f: charts/intel-gpu-resource-driver/templates/node-feature-rules.yaml; NVIDIA/k8s-device-plugin
v0.20: docs/gpu-feature-discovery (a node with a PCI device of vendor 10de is one with a GPU).
"""

from __future__ import annotations

from posixpath import dirname
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from analysis.migration.claim_files import ClaimFiles
from analysis.migration.pull_request import Step
from dra.pointer import split
from dra.raw import Object, inside, items
from webhook.translate import group_kind, name_of, resolve_pointer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.gitops import Tree
    from analysis.migration.followers import Follower
    from analysis.migration.plan import MigrationPlan
    from cluster.manifests import Document

_KIND: Final = "NodeFeatureRule"


class _Devices(NamedTuple):
    """The PCI devices of nodes with a label."""

    driver: str
    vendor: str
    classes: tuple[str, ...]


_LABELS: Final = {
    "intel.feature.node.kubernetes.io/gpu": _Devices("gpu.intel.com", "8086", ("0300", "0380")),
    "nvidia.com/gpu.present": _Devices("gpu.nvidia.com", "10de", ("0300", "0302")),
}


def add_rules(documents: Sequence[Document], tree: Tree, plan: MigrationPlan) -> tuple[Step, MigrationPlan]:
    """Return the step that adds the rules, and the plan without the followers that need nothing more."""
    replaced = {family.driver for family in plan.families if family.replacement is not None}
    needed: dict[str, list[Follower]] = {}
    for label, follower in _selecting(documents, plan):
        if label in _LABELS and _LABELS[label].driver in replaced:
            needed.setdefault(label, []).append(follower)
    of_plugins = {dirname(plugin.file) for family in plan.families for plugin in family.plugins}
    rules = [number for number, document in enumerate(documents) if group_kind(document.object)[1] == _KIND]
    beside = next((number for number in rules if dirname(documents[number].file) not in of_plugins), None)
    files = ClaimFiles(documents, tree)
    notes: list[str] = []
    done: list[Follower] = []
    for label, followers in needed.items():
        # A rule in the folder of a plugin moves to that of the driver.
        if any(
            label in inside(rule, "labels")
            for number in rules
            for rule in items(inside(documents[number].object, "spec"), "rules")
        ):
            continue
        devices = _LABELS[label]
        if beside is None:
            notes.append(
                f"by hand, before the switch: label the nodes with PCI devices of vendor {devices.vendor} and class {' or '.join(devices.classes)} {label}=true, "
                f"which selectors need ({followers[0].file}:{followers[0].line})"
            )
            continue
        files.add(beside, _rule(label, devices))
        done += followers
    step = Step("prepare", tuple(files.edits()), tuple(files.new()), tuple(notes))
    return step, msgspec.structs.replace(plan, follow=tuple([other for other in plan.follow if other not in done]))


def _selecting(documents: Sequence[Document], plan: MigrationPlan) -> Iterator[tuple[str, Follower]]:
    """Yield the labels in selectors that follow a plugin."""
    placed = {(document.file, name_of(document.placed)): document.placed for document in documents}
    for follower in plan.follow:
        name = split(follower.place)[-1]
        if name == "key":  # of an expression
            name = str(resolve_pointer(placed[follower.file, follower.object], follower.place))
        yield name, follower


def _rule(label: str, devices: _Devices) -> Object:
    matches = {
        "vendor": {"op": "In", "value": [devices.vendor]},
        "class": {"op": "In", "value": list(devices.classes)},
    }
    rule = {
        "name": label,
        "labels": {label: "true"},
        "matchFeatures": [{"feature": "pci.device", "matchExpressions": matches}],
    }
    metadata = {"name": f"{devices.driver.split('.')[1]}-gpu"}
    return {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": _KIND, "metadata": metadata, "spec": {"rules": [rule]}}
