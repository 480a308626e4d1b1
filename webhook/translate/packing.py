"""Finds the strategy of the bridge (drawbridge's allocator) that is nearest to how a pod's annotations ask HAMi or Volcano to pack or spread.

A claim cannot express packing. By default HAMi's scheduler packs nodes and spreads pods over the GPUs of a node; annotations change both
(`hami.io/node-scheduler-policy`, `hami.io/gpu-scheduler-policy`). Of the policies in the second annotation, the first known one is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.wire import Json

NODES: Final = "hami.io/node-scheduler-policy"
DEVICES: Final = "hami.io/gpu-scheduler-policy"
GROUP: Final = "volcano.sh/vgpu-podgroup-policy"
_PACK, _SPREAD = "binpack", "spread"
_NEAR = ("topology-aware", "numa")
# By the policies for nodes and for devices. The first strategy of a value chooses the devices; the score of a node is the weighted mean of all
# strategies of the value.
_STRATEGIES: Final = {
    (_PACK, _PACK): "CompactFirst",
    (_PACK, _SPREAD): "NodeCompactGPULowLoad",
    (_SPREAD, _SPREAD): "LowLoadFirst",
    (_SPREAD, _PACK): "CompactFirst=1,LowLoadFirst=100",
    (_PACK, "near"): "topology=1,CompactFirst=1",
    (_SPREAD, "near"): "topology=1,LowLoadFirst=1",
}


class Packing(NamedTuple):
    """The nearest strategy, and the annotations that it replaces, with their dialect."""

    strategy: str
    dialect: str
    keys: tuple[str, ...]


def packing_of(annotations: Mapping[str, Json]) -> Packing | None:
    """Return the strategy nearest to a pod's annotations; None if the pod has no such annotation."""
    nodes = str(annotations.get(NODES, "")).strip()
    policies = [policy.strip() for policy in str(annotations.get(DEVICES, "")).split(",")]
    devices = next((policy for policy in policies if policy in (_PACK, _SPREAD, *_NEAR)), "")
    valid = {NODES: nodes in (_PACK, _SPREAD), DEVICES: bool(devices)}
    keys = tuple([key for key, is_valid in valid.items() if is_valid])
    if keys:
        over_devices = "near" if devices in _NEAR else devices or _SPREAD
        return Packing(_STRATEGIES[nodes if valid[NODES] else _PACK, over_devices], "hami", keys)
    if annotations.get(GROUP) == _SPREAD:
        return Packing(_STRATEGIES[_SPREAD, _SPREAD], "volcano", (GROUP,))
    return None
