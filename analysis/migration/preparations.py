"""Makes the parts of the commit `prepare` apart from drivers: rules for node labels, namespace labels, and settings in node files.

Node Feature Discovery rules set node labels that selectors need and that a removed device plugin no longer sets. A namespace label permits claims
with admin access. Node files contain the folders in which containerd reads CDI files, and the feature gate for shares.

Follows intel/intel-resource-drivers-for-kubernetes 1da939f: charts/intel-gpu-resource-driver/templates/node-feature-rules.yaml; NVIDIA/k8s-device-plugin
v0.20: docs/gpu-feature-discovery (a node with a PCI device of vendor 10de is one with a GPU); kubernetes/kubernetes v1.37:
pkg/registry/resource/resourceclaimtemplate/strategy.go; containerd 2.1: internal/cri/config (`cdi_spec_dirs` replaces /etc/cdi and /var/run/cdi);
kubernetes-sigs/dra-driver-nvidia-gpu 95932046: cmd/gpu-kubelet-plugin/cdi.go (it writes to /var/run/cdi, and its chart has no value for another folder);
kubernetes/kubernetes v1.34.4: API server, scheduler and controller manager read features.DRAConsumableCapacity, and the kubelet does not.
"""

from __future__ import annotations

import re
from posixpath import dirname
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from analysis.gitops import releases
from analysis.migration.layout import Changes, TreeLayout
from analysis.migration.platform import SHARING_GATE, platform_of
from analysis.migration.pull_request import Edit, Step
from dra.pointer import split
from dra.raw import Object, inside, items, text
from webhook.translate import group_kind, name_of, resolve_pointer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.gitops import Tree
    from analysis.migration.followers import Follower
    from analysis.migration.plan import Family, MigrationPlan
    from cluster.manifests import Document

_ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"
_FOLDERS: Final = re.compile(r"(?P<begin>cdi_spec_dirs[ \t]*=[ \t]*\[)(?P<folders>[^\]\n]*)(?=\])")
_DEFAULT: Final = "/var/run/cdi"
_SAME: Final = re.compile(r"[\"'](?:/var)?/run/cdi/?[\"']")
_RULE: Final = "NodeFeatureRule"


class _Devices(NamedTuple):
    """The PCI devices of nodes with a label."""

    driver: str
    vendor: str
    classes: tuple[str, ...]
    values: Object = {}  # with which the chart of the driver makes the label


_LABELS: Final = {
    "intel.feature.node.kubernetes.io/gpu": _Devices(
        "gpu.intel.com", "8086", ("0300", "0380"), {"nodeFeatureRules": {"enabled": True}}
    ),
    "nvidia.com/gpu.present": _Devices("gpu.nvidia.com", "10de", ("0300", "0302")),
}


def add_rules(documents: Sequence[Document], tree: Tree, plan: MigrationPlan) -> tuple[Step, MigrationPlan]:
    """Return the step that adds the rules, and the plan without the followers that the rules satisfy."""
    replaced = {family.driver for family in plan.families if family.replacement is not None}
    needed: dict[str, list[Follower]] = {}
    for label, follower in _selecting(documents, plan):
        if label in _LABELS and _LABELS[label].driver in replaced:
            needed.setdefault(label, []).append(follower)
    of_plugins = {dirname(plugin.file) for family in plan.families for plugin in family.plugins}
    rules = [number for number, document in enumerate(documents) if group_kind(document.object)[1] == _RULE]
    beside = next((number for number in rules if dirname(documents[number].file) not in of_plugins), None)
    changes = Changes(TreeLayout(documents, tree))
    done: list[Follower] = []
    families = {family.driver: family for family in plan.families}
    for label, followers in needed.items():
        # A rule in a plugin's folder moves to the driver's folder.
        if any(
            label in inside(rule, "labels")
            for number in rules
            for rule in items(inside(documents[number].object, "spec"), "rules")
        ):
            continue
        devices = _LABELS[label]
        new = families[devices.driver].replacement
        if beside is None and devices.values and new is not None and new.installed is None:
            with_label = replace(new, values={**new.values, **devices.values})
            families[devices.driver] = replace(families[devices.driver], replacement=with_label)
            changes.notes.append(
                f"chart {new.chart} keeps the label {label} of nodes, which selectors need (`nodeFeatureRules.enabled`)"
            )
            done += followers
            continue
        if beside is None:
            changes.notes.append(
                f"by hand, before the switch: label the nodes with PCI devices of vendor {devices.vendor} and class {' or '.join(devices.classes)} {label}=true, "
                f"which selectors need ({followers[0].file}:{followers[0].line})"
            )
            continue
        changes.add_beside(beside, _rule(label, devices))
        done += followers
    left = tuple([other for other in plan.follow if other not in done])
    return changes.step("prepare", documents), replace(plan, families=tuple(families.values()), follow=left)


def _selecting(documents: Sequence[Document], plan: MigrationPlan) -> Iterator[tuple[str, Follower]]:
    """Yield the labels in selectors that depend on a plugin."""
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
    return {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": _RULE, "metadata": metadata, "spec": {"rules": [rule]}}


def label_namespaces(documents: Sequence[Document], tree: Tree, plan: MigrationPlan) -> Step:
    """Return the step that labels the namespaces of consumers whose claims get admin access."""
    edits, notes = [], []
    for namespace in sorted(set(_with_admin_access(documents, tree, plan))):
        numbers = [
            number
            for number, document in enumerate(documents)
            if document.object.get("kind") == "Namespace" and namespace in _names(document, number, tree)
        ]
        labels = [inside(documents[number].object, "metadata", "labels") for number in numbers]
        if any(of_object.get(_ADMIN_ACCESS) == "true" for of_object in labels):
            continue
        by_hand = f'by hand, before the merge: label namespace {namespace} with {_ADMIN_ACCESS}: "true"'
        if len(numbers) != 1:
            where = ", ".join(documents[number].file for number in numbers)
            notes.append(
                f"{by_hand}; " + (f"several files have it: {where}" if where else "the tree has no file of it")
            )
        elif len(_names(documents[numbers[0]], numbers[0], tree)) > 1:
            notes.append(f"{by_hand}; {documents[numbers[0]].file} is that of several namespaces")
        else:
            obj = documents[numbers[0]].object
            metadata = {**inside(obj, "metadata"), "labels": {**labels[0], _ADMIN_ACCESS: "true"}}
            edits.append(Edit(numbers[0], {**obj, "metadata": metadata}))
    return Step("prepare", tuple(edits), (), tuple(notes))


def _with_admin_access(documents: Sequence[Document], tree: Tree, plan: MigrationPlan) -> Iterator[str]:
    """Yield the namespaces of the pods whose claims get admin access."""
    classes = {
        device_class
        for family in plan.families
        if family.sharing is not None and family.sharing.decision == "admin access"
        for device_class in (family.driver, *family.device_classes)
    }
    # Flux may install a release in another namespace than that of its object.
    of_releases = {
        name_of(documents[release.number].placed): release.namespace for release in releases(documents, tree)
    }
    for consumer in plan.consumers:
        if consumer.verdict != "cannot" and classes.intersection(consumer.device_class.split(" or ")):
            yield of_releases.get(consumer.object) or consumer.object.split("/")[1]


def _names(document: Document, number: int, tree: Tree) -> frozenset[str]:
    """Return the names of a Namespace. A build that sets a namespace also renames the Namespace."""
    return tree.namespaces_set(number) or frozenset((text(inside(document.object, "metadata").get("name")),))


def edit_node_files(documents: Sequence[Document], tree: Tree, plan: MigrationPlan) -> Step:
    """Return the step that adds the folder of a driver to those that containerd reads, and names the gate that shares need before Kubernetes 1.36."""
    why = platform_of(documents, tree.reached, {consumer.file for consumer in plan.consumers}).why_no_sharing()
    lines = f"add `{SHARING_GATE}=true` to `feature-gates` of API server, controller manager and scheduler"
    shares = any(family.sharing is not None and family.sharing.decision == "shares" for family in plan.families)
    edits, notes = [], [f"by hand, before the switch: {why}: {lines}"] if why and shares else []
    drivers = [family.driver for family in plan.families if _writes_to_default(family)]
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
    """Add the folder to containerd's CDI folders in the strings of a value."""
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
