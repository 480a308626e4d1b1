"""What the files of a tree say about the nodes: the version of Kubernetes, and how the container runtime finds CDI files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.manifests import Document

# kubernetesVersion of Talos' talconfig and of kubeadm, the kubelet's image of a machine configuration, and what tuppr and k3s upgrade to.
_VERSION: Final = re.compile(
    r"(?:(?:kubernetesVersion|KUBERNETES_VERSION):[ \t]*[\"']?v?|siderolabs/kubelet:v|kubelet_version:[ \t]*[\"']?v?)(1\.(\d+)(?:\.\d+)?)"
    r"|kind:[ \t]*KubernetesUpgrade\b[\s\S]{0,600}?\bversion:[ \t]*[\"']?v?(1\.(\d+)(?:\.\d+)?)"
    r"|rancher/(?:k3s|rke2)-upgrade\b[\s\S]{0,600}?\bversion:[ \t]*[\"']?v?(1\.(\d+)(?:\.\d+)?)"
)
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
    found: list[tuple[int, str, str]] = []
    is_talos = has_cdi = False
    for document in documents:
        text = document.text
        is_talos = is_talos or bool(_TALOS.search(text))
        has_cdi = has_cdi or bool(_CDI.search(text))
        for match in _VERSION.finditer(text):
            version, minor = next((match[n], match[n + 1]) for n in (1, 3, 5) if match[n])
            found.append((int(minor), version, document.file))
    if not found:
        return Platform(is_talos=is_talos, has_cdi=has_cdi)
    minor, version, where = min(found)
    return Platform(version, minor, where, is_talos, has_cdi)
