"""What the files of a tree say about the nodes: the version of Kubernetes, and how the container runtime finds CDI files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from dra.raw import Object, inside, text
from webhook.translate import group_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.manifests import Document

# kubernetesVersion of Talos' talconfig and of kubeadm, variables of Flux, and the kubelet's image of a machine configuration.
_VERSION: Final = re.compile(
    r"(?:(?:kubernetesVersion|KUBERNETES_VERSION|kubelet_version):[ \t]*[\"']?v?|siderolabs/kubelet:v)(1\.\d{1,3}(?:\.\d+)?)"
)
# What tuppr and the upgrade controller of k3s and rke2 upgrade to.
_UPGRADE: Final = re.compile(r"v?(1\.\d{1,3}(?:\.\d+)?)")
_UPGRADER: Final = re.compile(r"rancher/(?:k3s|rke2)-upgrade\b")
_TALOS: Final = re.compile(
    r"talosVersion:|siderolabs/(?:kubelet|installer)|factory\.talos\.dev|kind:[ \t]*TalosUpgrade\b"
)
_CDI: Final = re.compile(r"enable_cdi[ \t]*=[ \t]*true|cdi_spec_dirs")
_FIRST: Final = 34  # the first minor version with claims
_NAMES: Final = 36  # the first minor version in which `extendedResourceName` works by default


class Platform(NamedTuple):
    """What is known of the nodes; `minor` is 0 if no file tells the version of Kubernetes."""

    version: str = ""
    minor: int = 0
    where: str = ""
    is_talos: bool = False
    has_cdi: bool = False

    def blockers(self) -> Iterator[str]:
        """Yield what has to be true before the move, and is not or is not known."""
        if not self.minor:
            yield "Kubernetes 1.34 or newer is necessary; no file of the tree tells the version: see `kubectl version`"
        elif self.minor < _FIRST:
            yield f"Kubernetes 1.34 or newer is necessary, and {self.where} has {self.version}"
        if not self.has_cdi:
            yield "the container runtime has to read CDI files: containerd 2.0 does by default, 1.7 with `enable_cdi = true`, CRI-O from 1.28"

    def by_hand(self) -> Iterator[str]:
        """Yield what a person changes on the nodes."""
        if self.is_talos and not self.has_cdi:
            yield (
                "before the switch: Talos' containerd reads CDI files in /var/run/cdi and /run/cdi only, because /etc is read-only; "
                "the driver's `cdi` values have to name one of them"
            )
        if self.minor and self.minor < _NAMES:
            yield f"Kubernetes {self.version} serves no `extendedResourceName` without the gate DRAExtendedResource, so each consumer has to be edited"


def platform_of(documents: Sequence[Document]) -> Platform:
    """Read the versions from the texts of a tree. The lowest version counts."""
    versions: list[tuple[int, str, str]] = []
    is_talos = has_cdi = False
    for document in documents:
        content = document.text
        is_talos = is_talos or bool(_TALOS.search(content))
        has_cdi = has_cdi or bool(_CDI.search(content))
        in_document = (*_VERSION.findall(content), *_UPGRADE.findall(_upgraded_to(document.object)))
        versions += [(int(version.split(".")[1]), version, document.file) for version in in_document]
    if not versions:
        return Platform(is_talos=is_talos, has_cdi=has_cdi)
    minor, version, where = min(versions)
    return Platform(version, minor, where, is_talos, has_cdi)


def _upgraded_to(obj: Object) -> str:
    """Return the version of an object of an upgrade controller."""
    spec = inside(obj, "spec")
    match group_kind(obj):
        case _, "KubernetesUpgrade":
            return text(inside(spec, "kubernetes").get("version"))
        case "upgrade.cattle.io", "Plan" if _UPGRADER.search(text(inside(spec, "upgrade").get("image"))):
            return text(spec.get("version"))
    return ""
