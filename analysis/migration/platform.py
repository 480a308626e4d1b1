"""Reads facts about nodes from the files of a tree, or from a snapshot: the Kubernetes version, the devices, and the folders of CDI files."""

from __future__ import annotations

import re
from itertools import takewhile
from posixpath import dirname
from typing import TYPE_CHECKING, Final, NamedTuple

from dra.pointer import mappings_in
from dra.raw import Object, inside, items, text
from dra.server import EXTENDED
from webhook.translate import group_kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from analysis.migration.requests import RequestReader
    from cluster.manifests import Document
    from webhook.state import State

# kubernetesVersion of Talos' talconfig and of kubeadm, variables of Flux and Ansible, the kubelet's image of a machine configuration, and the
# version in templates of Omni and in the configuration of k0sctl.
_VERSION: Final = re.compile(
    r"(?:(?:kubernetesVersion|KUBERNETES_VERSION|kubelet_version|\b(?:kubernetes|kube|k3s|rke2|k0s)_version|(?:^kubernetes|\bk0s):(?:[ \t]*\n[ \t]+|[ \t]*\{)version):[ \t]*[\"']?v?|siderolabs/kubelet:v)(1\.\d{1,3}(?:\.\d+)?)",
    re.MULTILINE,
)
# What tuppr and the upgrade controller of k3s and rke2 upgrade to.
_UPGRADE: Final = re.compile(r"v?(1\.\d{1,3}(?:\.\d+)?)")
_KUBELET: Final = re.compile(r"v?(1\.(\d{1,3})(?:\.\d+)?)")
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
_HARDWARE: Final = re.compile(r"\b(?:jetson|tegra|l4t-|gb10\b)", re.IGNORECASE)
_K0SCTL: Final = ("k0sctl.k0sproject.io", "Cluster")  # describes machines, and no API server has it
_ANSIBLE: Final = frozenset(("children", "hosts", "vars"))  # the fields of a group of an inventory
FIRST_MINOR: Final = 34  # the first minor version with claims
_NAMES: Final = 36  # the first minor version in which `extendedResourceName` works by default
_SHARES: Final = 36  # the first minor version in which claims share devices by default
SHARING_GATE: Final = "DRAConsumableCapacity"
_NAMES_GATE: Final = re.compile(rf"{EXTENDED}[\"']?[ \t]*[=:][ \t]*[\"']?true\b")


class _Told(NamedTuple):
    """A place in a file that states the Kubernetes version."""

    version: str
    file: str
    line: int

    @property
    def minor(self) -> int:
        return int(self.version.split(".")[1])

    def __str__(self) -> str:
        folder = dirname(self.file)
        return f"{self.file}:{self.line} has {self.version} (for {f'{folder}/' if folder else 'the whole tree'})"


class Platform(NamedTuple):
    """The known facts about nodes. `minor` is 0 if no file states the Kubernetes version."""

    version: str = ""
    minor: int = 0
    where: str = ""
    is_talos: bool = False
    has_cdi: bool = False
    has_names_gate: bool = False  # a file enables `extendedResourceName`
    cdi_folders: tuple[str, ...] = ()  # that containerd reads in place of /etc/cdi and /var/run/cdi
    # Of nodes, by configurations of machines and by rules of Node Feature Discovery, with the numbers of the documents.
    labels: frozenset[tuple[str, int]] = frozenset()
    nodes: tuple[int, str] = (0, "")  # their number, and the file that lists them
    differing: str = ""  # files that state different versions
    hardware: Mapping[str, str] = {}  # the first place of each name in `_HARDWARE`

    def of_snapshot(self, version: str) -> Platform:
        """Use the version of a snapshot, which is more reliable than the tree's."""
        return self._replace(version=version, minor=int(version.split(".")[1]), where="the snapshot", differing="")

    @property
    def serves_names(self) -> bool:
        """Whether DeviceClasses with `extendedResourceName` serve pods."""
        return self.minor >= (FIRST_MINOR if self.has_names_gate else _NAMES)

    def blockers(self) -> Iterator[str]:
        """Yield the requirements of the move that are not met or not known."""
        if not self.minor:
            yield "Kubernetes 1.34 or newer is necessary; no file of the tree tells the version: see `kubectl version`"
        elif self.minor < FIRST_MINOR:
            yield f"Kubernetes 1.34 or newer is necessary, and {self.where} has {self.version}"
        if self.differing:
            yield f"files tell different versions of Kubernetes; the lowest next to the consumers and plugins counts: {self.differing}"
        if not self.has_cdi:
            yield "the container runtime has to read CDI files: containerd 2.0 does by default, 1.7 with `enable_cdi = true`, CRI-O from 1.28"

    def why_no_sharing(self) -> str:
        """Return why claims cannot share devices unless a gate is enabled; "" if they can, or if the version is not known."""
        why = f"Kubernetes {self.version} ({self.where}) shares no device without the gate {SHARING_GATE}"
        return why if 0 < self.minor < _SHARES else ""

    def by_hand(self) -> Iterator[str]:
        """Yield manual changes on the nodes."""
        if self.is_talos and not self.has_cdi:
            yield (
                "before the switch: no file that is read sets containerd's `cdi_spec_dirs`, so Talos' containerd reads CDI files in /var/run/cdi "
                "(/run/cdi), and /etc is read-only: the driver's values have to name this folder"
            )
        if self.minor and not self.serves_names:
            yield f"Kubernetes {self.version} serves no `extendedResourceName` without the gate DRAExtendedResource, so each consumer has to be edited"


def platform_of(documents: Sequence[Document], reached: Collection[int], near: Collection[str] = ()) -> Platform:
    """Read the versions from the files of a tree, without objects that no build includes; `reached` has the numbers of the included documents.

    A tree may have several clusters, so the lowest version near the files `near` is used.
    """
    told: list[_Told] = []
    hardware: dict[str, str] = {}
    folders: dict[tuple[str, ...], str] = {}
    lists: list[tuple[int, str]] = []  # numbers of nodes, with their files
    is_talos = has_cdi = has_names_gate = False
    for number, document in enumerate(documents):
        if document.object.get("kind") == "MigrationPlan":
            continue  # its sentences name what is missing
        is_object = inside(document.object, "metadata") and group_kind(document.object) != _K0SCTL
        if number not in reached and is_object:
            continue  # configurations of machines have no metadata, and no build
        content = _COMMENTS.sub("", document.text)
        is_talos = is_talos or bool(_TALOS.search(content))
        has_cdi = has_cdi or bool(_CDI.search(content))
        has_names_gate = has_names_gate or bool(_NAMES_GATE.search(content))
        for listed in _CDI_FOLDERS.findall(content):
            folders.setdefault(tuple(_FOLDER.findall(listed)), document.file)
        lists += [(len(names), document.file)] if (names := set(_nodes_in(document.object))) else []
        for name, position in hardware_in(content):
            hardware.setdefault(name, f"{document.file}:{_line_at(document, content, position)}")
        positions = [(match[1], match.start(1)) for match in _VERSION.finditer(content)]
        positions += [(match, content.find(match)) for match in _UPGRADE.findall(_upgraded_to(document.object))]
        told += [_Told(version, document.file, _line_at(document, content, at)) for version, at in positions]
    labels = frozenset((label, number) for number, document in enumerate(documents) for label in _labels_in(document))

    def depth(file: str) -> int:
        return max((_shared_folders(file, other) for other in near), default=0)

    nearest = max((depth(entry.file) for entry in told), default=0)
    lowest = min((entry for entry in told if depth(entry.file) == nearest), key=lambda entry: entry.minor, default=None)
    read = max(folders, key=lambda of_file: depth(folders[of_file]), default=())
    nodes = max(lists, key=lambda of_file: (depth(of_file[1]), of_file[0]), default=(0, ""))
    differing = ", ".join(map(str, told)) if len({entry.version for entry in told}) > 1 else ""
    return Platform(
        lowest.version if lowest else "",
        lowest.minor if lowest else 0,
        f"{lowest.file}:{lowest.line}" if lowest else "",
        is_talos=is_talos,
        has_cdi=has_cdi,
        has_names_gate=has_names_gate,
        cdi_folders=read,
        labels=labels,
        nodes=nodes,
        differing=differing,
        hardware=hardware,
    )


def hardware_in(content: str) -> Iterator[tuple[str, int]]:
    """Yield the names in a string of hardware that only some drivers serve, with their positions."""
    for match in _HARDWARE.finditer(content):
        yield match[0], match.start()


def _line_at(document: Document, content: str, position: int) -> int:
    return document.first_line + content.count("\n", 0, position)


def _shared_folders(file: str, other: str) -> int:
    pairs = zip(file.split("/")[:-1], other.split("/")[:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _nodes_in(obj: Object) -> Iterator[str]:
    """Yield the names of the nodes that Talos' talconfig, k0sctl or an inventory of Ansible lists."""
    for node in items(obj, "nodes"):
        yield text(node.get("hostname"))
    for host in items(inside(obj, "spec"), "hosts") if group_kind(obj) == _K0SCTL else ():
        if host.get("role") != "controller":
            yield text(host.get("hostname")) or text(inside(host, "ssh").get("address"))
    if obj and all(isinstance(group, dict) and group.keys() <= _ANSIBLE for group in obj.values()):
        for _, group in mappings_in(obj, ""):
            yield from inside(group, "hosts")


def _labels_in(document: Document) -> Iterator[str]:
    """Yield the node labels that a Node Feature Discovery rule or a machine configuration sets."""
    if group_kind(document.object)[1] == "NodeFeatureRule":
        for rule in items(inside(document.object, "spec"), "rules"):
            yield from inside(rule, "labels")
    if not group_kind(document.object)[0]:  # a machine configuration is no object
        for _, lines in _NODE_LABELS.findall(document.text):
            yield from _LABEL.findall(lines)


def _upgraded_to(obj: Object) -> str:
    """Return the target version in an upgrade controller's object."""
    spec = inside(obj, "spec")
    match group_kind(obj):
        case _, "KubernetesUpgrade":
            return text(inside(spec, "kubernetes").get("version"))
        case "upgrade.cattle.io", "Plan" if _UPGRADER.search(text(inside(spec, "upgrade").get("image"))):
            return text(spec.get("version"))
    return ""


class SnapshotNodes(NamedTuple):
    """The nodes of a snapshot."""

    devices: Mapping[str, Mapping[str, int]] = {}  # by driver and node
    version: str = ""  # the lowest version of a kubelet; "" without a snapshot
    hardware: Mapping[str, str] = {}  # by name: a node whose labels have it

    def devices_of(self, driver: str) -> int:
        """Return the number of devices of a driver; 0 if there is no snapshot."""
        return sum(self.devices.get(driver, {}).values())


def fleet_of(nodes: Sequence[Object], reader: RequestReader, state: State) -> SnapshotNodes:
    """Read the nodes of a snapshot. Replicas of a device plugin are not counted as devices."""
    devices: dict[str, dict[str, int]] = {}
    hardware: dict[str, str] = {}
    for node in nodes:
        name = text(inside(node, "metadata").get("name"))
        products = " ".join(map(str, inside(node, "metadata", "labels").values()))
        hardware |= {of_label: f"node {name}" for of_label, _ in hardware_in(products)}
        for key, amount in inside(node, "status", "allocatable").items():
            if "/" not in key or not str(amount).isdecimal():
                continue
            shared = state.fleet.shared.get(key, {}).get(name) or state.fleet.installed.usually(key)
            count = int(amount) // (shared.sharing.replicas if shared else 1)
            for driver in reader.drivers_of(reader.classes_of(key)) if count else ():
                of_driver = devices.setdefault(driver, {})
                of_driver[name] = of_driver.get(name, 0) + count
    return SnapshotNodes(devices, lowest_version(nodes), hardware)


def lowest_version(nodes: Sequence[Object]) -> str:
    """Return the lowest version of a kubelet; "" if there is none."""
    versions = [text(inside(node, "status", "nodeInfo").get("kubeletVersion")) for node in nodes]
    matches = [match for version in versions if (match := _KUBELET.match(version))]
    return min(matches, key=lambda match: int(match[2]))[1] if matches else ""
