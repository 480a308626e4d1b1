"""The pods of `drawbridge migrate accept`, and the parsers of their logs.

A reader pod prints the node's files that describe prepared claims, and the host paths that do not exist. A device pod has two containers,
one with the claim and one without it, which print their device nodes and variables. The logs have a heading for each part, and a blank before every other line.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from webhook.names import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from analysis.migration.accept import Kind
    from dra.raw import Object

LABEL = f"{DOMAIN}/accept"  # on all objects that the command creates
# busybox 1.36.1 for all platforms, as Docker Hub serves the tag.
IMAGE = "docker.io/library/busybox@sha256:73aaf090f3d85aa34ee199857f03fa3a95c8ede2ffd4cc2cdb5b94e566b11662"
RUNTIME_CLASS = "nvidia"
CLAIMED, BARE = "claimed", "bare"  # the containers of a device pod
READER = "reader"
END = "end"  # the last heading of a log
# The defaults of container runtimes, and the folders that are usual on Talos Linux, whose /etc is read-only.
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi", "/run/cdi", "/var/cdi/static", "/var/cdi/dynamic")
# The kubelet's list of prepared claims (pkg/kubelet/cm/dra/state of kubernetes/kubernetes v1.37.2), also below the folders of k0s and MicroK8s.
CHECKPOINTS = tuple(
    f"{folder}/dra_manager_state"
    for folder in ("/var/lib/kubelet", "/var/lib/k0s/kubelet", "/var/snap/microk8s/common/var/lib/kubelet")
)
_PRINT_DEVICES = r"""
echo '# devices'
for name in /dev/* /dev/*/* /dev/*/*/*; do
  if [ ! -L "$name" ] && { [ -c "$name" ] || [ -b "$name" ]; }; then echo " $name"; fi
done
"""
# `place` follows symbolic links as the host does: inside the container, an absolute link would lead out of /host.
_READ_NODE = r"""
place() {
  rest=${1#/} here= links=0
  while [ -n "$rest" ]; do
    part=${rest%%/*}
    case $rest in */*) rest=${rest#*/} ;; *) rest= ;; esac
    case $part in
      ''|.) ;;
      ..) here=${here%/*} ;;
      *)
        if [ -L "/host$here/$part" ] && [ $links -lt 40 ]; then
          links=$((links + 1)) target=$(readlink "/host$here/$part")
          case $target in /*) here= ;; esac
          rest=${target#/}${rest:+/$rest}
        else
          here=$here/$part
        fi ;;
    esac
  done
  echo "/host$here"
}
show() {
  file=$(place "$1")
  if [ -f "$file" ]; then echo "# file $1"; sed 's/^/ /' "$file"; echo; fi
}
for folder in $FOLDERS; do
  found=$(place "$folder")
  for name in "$found"/*.json "$found"/*.yaml; do show "${name#/host}"; done
done
for name in $CHECKPOINTS; do show "$name"; done
echo '# missing'
for name; do [ -e "$(place "$name")" ] || echo " $name"; done
echo '# end'
"""
_SEE_DEVICES = r"""
echo '# environment'
env | sed 's/^/ /'
echo '# mounts'
sed 's/^/ /' /proc/self/mounts
echo '# end'
exec sleep 3600
"""


class HostFiles(NamedTuple):
    """The output of a reader pod: files by path, the device nodes that every container has, and the host paths that do not exist."""

    files: Mapping[str, str]
    devices: frozenset[str]
    missing: frozenset[str]


class ContainerView(NamedTuple):
    """The device nodes and environment variables of a container."""

    devices: frozenset[str]
    environment: frozenset[str]  # NAME=VALUE
    mounts: frozenset[str]


def namespace(name: str) -> Object:
    """Return the namespace of a run. Its pods may mount folders of the host."""
    labels = {LABEL: "", "pod-security.kubernetes.io/enforce": "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def claim(name: str, kind: Kind) -> Object:
    """Return a claim for one device of a kind."""
    selectors = [f"device.driver == {json.dumps(kind.driver)}"]
    if kind.product:
        domain, attribute = json.dumps(kind.driver), kind.attribute
        selectors.append(
            f'device.attributes[{domain}].?{attribute}.orValue("") == {json.dumps(kind.product, ensure_ascii=False)}'
        )
    request = {"deviceClassName": kind.device_class, "selectors": [{"cel": {"expression": text}} for text in selectors]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": _metadata(name),
        "spec": {"devices": {"requests": [{"name": "device", "exactly": request}]}},
    }


def device_pod(name: str, claim_name: str, node: str, image: str, runtime_class: str = "") -> Object:
    """Return a pod with a container that uses the claim and a container that does not. Both request all GPUs by a variable, as CUDA images do."""
    container = _container(image, _PRINT_DEVICES + _SEE_DEVICES, {"NVIDIA_VISIBLE_DEVICES": "all"})
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    spec: dict[str, Any] = {
        "containers": [
            container | {"name": CLAIMED, "resources": {"claims": [{"name": "device"}]}},
            container | {"name": BARE},
        ],
        "resourceClaims": [{"name": "device", "resourceClaimName": claim_name}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
    }
    if runtime_class:
        spec["runtimeClassName"] = runtime_class
    return _pod(name, spec)


def reader_pod(name: str, node: str, image: str, paths: Iterable[str] = ()) -> Object:
    """Return a pod that prints the node's CDI files, the kubelet's list of claims, and which of these paths do not exist on the node."""
    variables = {"FOLDERS": " ".join(CDI_FOLDERS), "CHECKPOINTS": " ".join(CHECKPOINTS)}
    container = _container(image, _PRINT_DEVICES + _READ_NODE, variables) | {
        "name": READER,
        "args": [READER, *paths],  # the first one is $0
        "volumeMounts": [{"name": "host", "mountPath": "/host", "readOnly": True, "recursiveReadOnly": "IfPossible"}],
        # With SELinux, the usual type may not read the host's files.
        "securityContext": {"runAsUser": 0, "seLinuxOptions": {"type": "spc_t"}},
    }
    volume = {"name": "host", "hostPath": {"path": "/"}}
    return _pod(name, {"containers": [container], "volumes": [volume], "nodeName": node, "restartPolicy": "Never"})


def _container(image: str, script: str, variables: Mapping[str, str]) -> Object:
    return {
        "image": image,
        "command": ["sh", "-c", script],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }


def _pod(name: str, spec: Object) -> Object:
    common = {
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "automountServiceAccountToken": False,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(name), "spec": common | spec}


def _metadata(name: str) -> Object:
    return {"name": name, "labels": {LABEL: ""}}


def is_complete(log: str) -> bool:
    return log.rstrip("\n").endswith(f"# {END}")


def node_files(log: str) -> HostFiles:
    """Parse the log of a reader pod."""
    parts = dict(_parts(log))
    files = {name.removeprefix("file "): text for name, text in parts.items() if name.startswith("file ")}
    return HostFiles(files, _lines(parts, "devices"), _lines(parts, "missing"))


def container_view(log: str) -> ContainerView:
    """Parse the log of a container of a device pod."""
    parts = dict(_parts(log))
    mounts = frozenset(line.split(" ")[1] for line in _lines(parts, "mounts"))
    return ContainerView(_lines(parts, "devices"), _lines(parts, "environment"), mounts)


def _lines(parts: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(parts.get(name, "").splitlines())


def _parts(log: str) -> Iterator[tuple[str, str]]:
    heading, lines = "", list[str]()
    for line in log.splitlines():
        if line.startswith("# "):
            yield heading, "\n".join(lines)
            heading, lines = line[2:], []
        elif line.startswith(" "):
            lines.append(line[1:])
