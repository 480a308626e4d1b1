"""Reads the setup of device plugins and autoscalers: cluster-scoped kinds, and objects in the namespaces that an administrator names.

The objects are read at intervals, not watched. A ConfigMap is read only if another object names it. Objects of tenants have no effect, because
other namespaces are not read. Kinds that do not exist, or that drawbridge may not read, are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cluster.errors import Forbidden, NotFound
from cluster.resources import CONFIG_MAPS, DAEMON_SETS, DEPLOYMENTS, Resource
from webhook.state import CLUSTER_AUTOSCALER, NOTHING_INSTALLED, STATUS, config_maps_of, installed, outline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from cluster.protocol import Cluster
    from dra.raw import Object

OF_CLUSTER: tuple[Resource[Any], ...] = (
    Resource("karpenter.sh", "v1", "nodepools", "NodePool", dict, namespaced=False),
    Resource("karpenter.sh", "v1alpha1", "nodeoverlays", "NodeOverlay", dict, namespaced=False),
    Resource("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy", dict, namespaced=False),
    Resource("nvidia.com", "v1alpha1", "gpuclusters", "GPUCluster", dict, namespaced=False),
    Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", dict, namespaced=False),
    Resource("deviceplugin.intel.com", "v1", "gpudeviceplugins", "GpuDevicePlugin", dict, namespaced=False),
)
# Kinds that configure operators. Only commands read them, to find which device plugins the operators run.
OF_OPERATORS: tuple[Resource[Any], ...] = (
    Resource("amd.com", "v1alpha1", "deviceconfigs", "DeviceConfig", dict),
    Resource("deviceplugin.intel.com", "v1", "qatdeviceplugins", "QatDevicePlugin", dict, namespaced=False),
    Resource("mellanox.com", "v1alpha1", "nicclusterpolicies", "NicClusterPolicy", dict, namespaced=False),
    Resource("sriovnetwork.openshift.io", "v1", "sriovoperatorconfigs", "SriovOperatorConfig", dict),
)
OF_NAMESPACES = (DAEMON_SETS, DEPLOYMENTS)
_PAGES = 8  # the most pages of a list that are read
_MAPS = 32  # the most ConfigMaps that are read


class ReadEvidence(NamedTuple):
    """The objects that were read, and the kinds that drawbridge may not read."""

    objects: tuple[Object, ...] = ()
    refused: tuple[str, ...] = ()


async def read_evidence(cluster: Cluster, namespaces: Sequence[str], *, for_command: bool = False) -> ReadEvidence:
    """Read the setup. For a command, also read OF_OPERATORS and the status of cluster-autoscaler."""
    objects: list[Object] = []
    refused: list[str] = []
    for kind in (*OF_CLUSTER, *(OF_OPERATORS if for_command else ())):
        objects += [item async for item in _read_all(cluster, kind, None, refused)]
    for where in namespaces:
        for kind in OF_NAMESPACES:
            objects += [item async for item in _read_all(cluster, kind, where, refused)]
    named: list[tuple[str, str]] = []
    for obj in objects:
        scalers = installed((obj,)).autoscalers if for_command else ()
        named += [(obj["metadata"]["namespace"], STATUS) for scaler in scalers if scaler.name == CLUSTER_AUTOSCALER]
        for where, name in config_maps_of(obj):
            named += [(namespace, name) for namespace in namespaces if where in ("", namespace)]
    for where, name in list(dict.fromkeys(named))[:_MAPS]:
        try:
            read = await cluster.get(CONFIG_MAPS.raw, name, where)
        except NotFound:
            continue
        except Forbidden:
            refused.append(f"configmaps in {where}")
            continue
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"namespace": where, "name": name},
                "data": read.get("data"),
            }
        )
    return ReadEvidence(tuple(objects), tuple(dict.fromkeys(refused)))


async def _read_all(
    cluster: Cluster, kind: Resource[Any], where: str | None, refused: list[str]
) -> AsyncIterator[Object]:
    """Yield the outlines of those objects of a kind that contain a setup."""
    more = ""
    for _ in range(_PAGES):
        try:
            page = await cluster.list(kind.raw, where, limit=kind.page, more=more)
        except NotFound:
            return
        except Forbidden:
            refused.append(f"{kind.id} in {where}" if where else kind.id)
            return
        for item in page.items:
            outlined = outline(kind.plain(item))
            if kind in OF_OPERATORS or config_maps_of(outlined) or installed((outlined,)) != NOTHING_INSTALLED:
                yield outlined
        more = page.more
        if not more:
            return
