"""What a pod asks of a scheduler of HAMi's or Volcano's about packing and spreading, as the bridge's nearest strategy.

A claim cannot express it. HAMi's scheduler packs nodes and spreads over the GPUs of a node unless a pod says otherwise
(`hami.io/node-scheduler-policy`, `hami.io/gpu-scheduler-policy`), and of the latter's list the first known policy counts here.
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
# For nodes and for devices. The first strategy chooses devices; the score of a node is a weighted mean of all.
_STRATEGIES: Final = {
    (_PACK, _PACK): "CompactFirst",
    (_PACK, _SPREAD): "NodeCompactGPULowLoad",
    (_SPREAD, _SPREAD): "LowLoadFirst",
    (_SPREAD, _PACK): "CompactFirst=1,LowLoadFirst=100",
    (_PACK, "near"): "topology=1,CompactFirst=1",
    (_SPREAD, "near"): "topology=1,LowLoadFirst=1",
}


class Packing(NamedTuple):
    """The nearest strategy, the dialect whose annotations it stands for, and these annotations."""

    strategy: str
    dialect: str
    keys: tuple[str, ...]


def packing_of(annotations: Mapping[str, Json]) -> Packing | None:
    """Find the strategy that comes nearest to a pod's annotations; None if they ask for none."""
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
