"""Reads whether NVIDIA's GPU operator installs the device plugin (ClusterPolicy) or the DRA driver (GPUCluster).

While objects of both kinds exist, the operator reconciles neither. A GPUCluster runs no device plugin and no GPU feature
discovery, so their labels and ConfigMaps may be stale. Follows NVIDIA/gpu-operator v26.7: api/nvidia/v1,
api/nvidia/v1alpha1, controllers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.raw import inside, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.raw import Object


class GpuOperator(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's objects by name."""

    policies: tuple[str, ...] = ()
    # The policies with which the operator runs the device plugin. A policy enables the plugin by default.
    plugins: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    # Clusters that are not ready, with their `status.state`.
    unready: tuple[tuple[str, str], ...] = ()

    @property
    def runs_driver_alone(self) -> bool:
        """Return whether the operator runs the DRA driver and no device plugin."""
        return bool(self.clusters) and not self.policies


def gpu_operator(objects: Iterable[Object]) -> GpuOperator:
    policies: list[str] = []
    plugins: list[str] = []
    clusters: list[str] = []
    unready: list[tuple[str, str]] = []
    for obj in objects:
        name = text(inside(obj, "metadata").get("name"))
        if obj.get("kind") == "ClusterPolicy":
            policies.append(name)
            if inside(obj, "spec", "devicePlugin").get("enabled") is not False:
                plugins.append(name)
        elif obj.get("kind") == "GPUCluster":
            clusters.append(name)
            state = text(inside(obj, "status").get("state"))
            if state not in ("", "ready"):
                unready.append((name, state))
    return GpuOperator(
        policies=tuple(policies), plugins=tuple(plugins), clusters=tuple(clusters), unready=tuple(unready)
    )
