"""What the files of a tree say about the nodes: the version of Kubernetes, and how the container runtime finds CDI files."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from dra.raw import Object, inside, items, text
from webhook.translate import group_kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from cluster.manifests import Document

# kubernetesVersion of Talos' talconfig and of kubeadm, variables of Flux, the kubelet's image of a machine configuration, and Omni's templates.
_VERSION: Final = re.compile(
    r"(?:(?:kubernetesVersion|KUBERNETES_VERSION|kubelet_version|^kubernetes:[ \t]*\n[ \t]+version):[ \t]*[\"']?v?|siderolabs/kubelet:v)(1\.\d{1,3}(?:\.\d+)?)",
    re.MULTILINE,
)
# What tuppr and the upgrade controller of k3s and rke2 upgrade to.
_UPGRADE: Final = re.compile(r"v?(1\.\d{1,3}(?:\.\d+)?)")
_UPGRADER: Final = re.compile(r"rancher/(?:k3s|rke2)-upgrade\b")
_TALOS: Final = re.compile(
    r"^talos:|talosVersion:|siderolabs/(?:kubelet|installer)|factory\.talos\.dev|kind:[ \t]*TalosUpgrade\b",
    re.MULTILINE,
)
_COMMENTS: Final = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_CDI: Final = re.compile(r"enable_cdi[ \t]*=[ \t]*true|cdi_spec_dirs")
_CDI_FOLDERS: Final = re.compile(r"cdi_spec_dirs[ \t]*=[ \t]*\[([^\]\n]*)\]")
_FOLDER: Final = re.compile(r"/[\w./-]+")
# The labels of Talos' machine configurations and of the configuration of k3s and rke2.
_NODE_LABELS: Final = re.compile(
    r"^([ \t]*)(?:-[ \t]*)?(?:nodeLabels|node-label):[ \t]*\n((?:\1[ \t-]+.*\n?|[ \t]*\n)+)", re.MULTILINE
)
_LABEL: Final = re.compile(r"^[ \t]*(?:-[ \t]*)?[\"']?([\w.-]+/[\w./-]+)[\"']?[ \t]*[:=]", re.MULTILINE)
FIRST_MINOR: Final = 34  # the first minor version with claims
_NAMES: Final = 36  # the first minor version in which `extendedResourceName` works by default
_SHARES: Final = 36  # the first minor version in which claims share devices by default
SHARING_GATE: Final = "DRAConsumableCapacity"


class Platform(NamedTuple):
    """What is known of the nodes; `minor` is 0 if no file tells the version of Kubernetes."""

    version: str = ""
    minor: int = 0
    where: str = ""
    is_talos: bool = False
    has_cdi: bool = False
    cdi_folders: tuple[str, ...] = ()  # that containerd reads in place of /etc/cdi and /var/run/cdi
    # Of nodes, by configurations of machines and by rules of Node Feature Discovery, with the numbers of the documents.
    labels: frozenset[tuple[str, int]] = frozenset()

    def of_snapshot(self, version: str) -> Platform:
        """Return the same with the version of a snapshot, which is more certain than the tree's."""
        return self._replace(version=version, minor=int(version.split(".")[1]), where="the snapshot")

    def blockers(self) -> Iterator[str]:
        """Yield what has to be true before the move, and is not or is not known."""
        if not self.minor:
            yield "Kubernetes 1.34 or newer is necessary; no file of the tree tells the version: see `kubectl version`"
        elif self.minor < FIRST_MINOR:
            yield f"Kubernetes 1.34 or newer is necessary, and {self.where} has {self.version}"
        if not self.has_cdi:
            yield "the container runtime has to read CDI files: containerd 2.0 does by default, 1.7 with `enable_cdi = true`, CRI-O from 1.28"

    def why_no_sharing(self) -> str:
        """Return why claims cannot share devices unless a gate is enabled; "" if they can, or if the version is not known."""
        why = f"Kubernetes {self.version} ({self.where}) shares no device without the gate {SHARING_GATE}"
        return why if 0 < self.minor < _SHARES else ""

    def by_hand(self) -> Iterator[str]:
        """Yield what a person changes on the nodes."""
        if self.is_talos and not self.has_cdi:
            yield (
                "before the switch: no file that is read sets containerd's `cdi_spec_dirs`, so Talos' containerd reads CDI files in /var/run/cdi "
                "(/run/cdi), and /etc is read-only: the driver's values have to name this folder"
            )
        if self.minor and self.minor < _NAMES:
            yield f"Kubernetes {self.version} serves no `extendedResourceName` without the gate DRAExtendedResource, so each consumer has to be edited"


def platform_of(documents: Sequence[Document], reached: Collection[int], near: Collection[str] = ()) -> Platform:
    """Read the versions from the texts of a tree, except of objects that no build includes: `reached` are the numbers of the others.

    A tree may have several clusters: the lowest version next to the files `near` counts.
    """
    versions: list[tuple[int, str, str]] = []
    folders: dict[tuple[str, ...], str] = {}
    is_talos = has_cdi = False
    for number, document in enumerate(documents):
        if document.object.get("kind") == "MigrationPlan":
            continue  # its sentences name what is missing
        if number not in reached and inside(document.object, "metadata"):
            continue  # configurations of machines have no metadata, and no build
        content = _COMMENTS.sub("", document.text)
        is_talos = is_talos or bool(_TALOS.search(content))
        has_cdi = has_cdi or bool(_CDI.search(content))
        for listed in _CDI_FOLDERS.findall(content):
            folders.setdefault(tuple(_FOLDER.findall(listed)), document.file)
        in_document = (*_VERSION.findall(content), *_UPGRADE.findall(_upgraded_to(document.object)))
        versions += [(int(version.split(".")[1]), version, document.file) for version in in_document]
    labels = frozenset((label, number) for number, document in enumerate(documents) for label in _labels_in(document))
    depths = {where: max((_shared_folders(where, file) for file in near), default=0) for _, _, where in versions}
    nearest = max(depths.values(), default=0)
    versions = [version for version in versions if depths[version[2]] == nearest]
    minor, version, where = min(versions) if versions else (0, "", "")
    read = max(
        folders,
        key=lambda of_file: max((_shared_folders(folders[of_file], file) for file in near), default=0),
        default=(),
    )
    return Platform(version, minor, where, is_talos, has_cdi, read, labels)


def _shared_folders(file: str, other: str) -> int:
    pairs = zip(file.split("/")[:-1], other.split("/")[:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _labels_in(document: Document) -> Iterator[str]:
    """Yield the labels that a rule of Node Feature Discovery or the configuration of a machine gives to nodes."""
    if group_kind(document.object)[1] == "NodeFeatureRule":
        for rule in items(inside(document.object, "spec"), "rules"):
            yield from inside(rule, "labels")
    if not group_kind(document.object)[0]:  # a machine configuration is no object
        for _, lines in _NODE_LABELS.findall(document.text):
            yield from _LABEL.findall(lines)


def _upgraded_to(obj: Object) -> str:
    """Return the version of an object of an upgrade controller."""
    spec = inside(obj, "spec")
    match group_kind(obj):
        case _, "KubernetesUpgrade":
            return text(inside(spec, "kubernetes").get("version"))
        case "upgrade.cattle.io", "Plan" if _UPGRADER.search(text(inside(spec, "upgrade").get("image"))):
            return text(spec.get("version"))
    return ""
