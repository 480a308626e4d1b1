"""Schemas of the parameters of NVIDIA's drivers: sharing of GPUs and MIG devices, passthrough, channels of ComputeDomains.

This module mirrors api/nvidia.com/resource/v1beta1 and the preparation of devices in kubernetes-sigs/dra-driver-nvidia-gpu. Since 25.8 the
driver refuses unknown fields. Mistakes that only the preparation finds are reported, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dra.finding import Findings, finding_at
from dra.validation.fields.shape import FLAG, AmountShape, Fields, Integer, MapOf, OneOf, bad_value, matching, text
from dra.validation.parameters.driver import KnownDriver, ParameterKind

if TYPE_CHECKING:
    from collections.abc import Mapping


_SOURCE: Final = "kubernetes-sigs/dra-driver-nvidia-gpu, August 2026 (api/nvidia.com/resource/v1beta1)"
_VERSION: Final = "resource.nvidia.com/v1beta1"
_TIME_SLICING: Final = "TimeSlicing"
_MPS: Final = "MPS"
_GATES: Final = {_TIME_SLICING: "TimeSlicingSettings", _MPS: "MPSSupport"}
_device: Final = matching(
    re.compile(r"\d{1,6}|(?:GPU|MIG)-[0-9A-Za-z./-]+", re.ASCII),
    "is neither the index of a device of the claim nor the uuid of one",
)
_uid: Final = matching(
    re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII),
    "is not a uid: the driver finds a ComputeDomain by its metadata.uid, not by its name",
)


def _gated(strategy: object, path: str) -> Findings:
    gate = _GATES.get(strategy) if isinstance(strategy, str) else None
    if gate:
        message = (
            f"the driver refuses the strategy {strategy} unless its feature gate {gate} is on, and it is off by default"
        )
        yield finding_at("D709", f"{path}/strategy", message)


def _share_gpu(value: Mapping[str, Any], path: str) -> Findings:
    """Judge the sharing of whole GPUs, whose settings must belong to the strategy."""
    strategy = value.get("strategy")
    for field_strategy, field in ((_TIME_SLICING, "timeSlicingConfig"), (_MPS, "mpsConfig")):
        if strategy in _GATES and strategy != field_strategy and value.get(field) is not None:
            message = f"{field} belongs to the strategy {field_strategy}; the driver refuses it with {strategy}"
            yield finding_at("D704", f"{path}/{field}", message)
    yield from _gated(strategy, path)


def _share_mig(value: Mapping[str, Any], path: str) -> Findings:
    """Judge the sharing of MIG devices, which have no settings for time slices."""
    strategy = value.get("strategy")
    if strategy == _TIME_SLICING:
        if value.get("mpsConfig") is not None:
            message = f"mpsConfig belongs to the strategy {_MPS}; the driver ignores it with {strategy}"
            yield finding_at("D704", f"{path}/mpsConfig", message)
        else:
            message = "time-slicing has no settings on a MIG device: nothing changes"
            yield finding_at("D708", f"{path}/strategy", message)
    yield from _gated(strategy, path)


def _slice(value: Mapping[str, Any], path: str) -> Findings:
    """Report a timeSlicingConfig without an interval, for which the driver fails."""
    if value.get("interval") is None:
        yield bad_value(path, "interval is missing", "add interval: Default, or leave timeSlicingConfig out")


_INTERVAL: Final = OneOf("Default", "Short", "Medium", "Long")
_STRATEGY: Final = OneOf(_TIME_SLICING, _MPS)
# The driver passes limits in whole MiB and refuses other amounts.
_PINNED: Final = AmountShape("1Mi")
_MPS_CONFIG: Final = Fields(
    {
        "defaultActiveThreadPercentage": Integer(0, 100),
        "defaultPinnedDeviceMemoryLimit": _PINNED,
        "defaultPerDevicePinnedMemoryLimit": MapOf(_PINNED, _device),
        "multiUser": FLAG,
    }
)
_GPU_SHARING: Final = Fields(
    {"strategy": _STRATEGY, "timeSlicingConfig": Fields({"interval": _INTERVAL}, rule=_slice), "mpsConfig": _MPS_CONFIG},
    demanded=("strategy",),
    rule=_share_gpu,
    moved={"interval": "put it below timeSlicingConfig:"},
)  # fmt: skip
_MIG_SHARING: Final = Fields(
    {"strategy": _STRATEGY, "mpsConfig": _MPS_CONFIG},
    demanded=("strategy",),
    rule=_share_mig,
    moved={"timeSlicingConfig": "remove it: time slices cannot be set on MIG devices"},
)
_IOMMU: Final = Fields(
    {"backendPolicy": OneOf("", "LegacyOnly", "PreferIommuFD"), "enableAPIDevice": FLAG},
)
_LIFTED: Final = dict.fromkeys(("strategy", "timeSlicingConfig", "mpsConfig"), "put it below sharing:")


def _sharing(devices: str, sharing: Fields) -> ParameterKind:
    return ParameterKind(Fields({"sharing": sharing}, moved=_LIFTED), frozenset(devices.split()))


def _gpus(devices: str) -> dict[str, ParameterKind]:
    return {
        "GpuConfig": _sharing(devices, _GPU_SHARING),
        "MigDeviceConfig": _sharing("mig", _MIG_SHARING),
        "VfioDeviceConfig": ParameterKind(Fields({"iommu": _IOMMU}), frozenset({"vfio"}), "PassthroughSupport"),
    }


_DAEMON: Final = {"domainID": text(_uid)}
_CHANNEL: Final = _DAEMON | {"allocationMode": OneOf("", "Single", "All")}
GPU: Final = KnownDriver("gpu.nvidia.com", _SOURCE, _VERSION, _gpus("gpu"), types=("gpu", "mig", "vfio"))
COMPUTE_DOMAIN: Final = KnownDriver(
    "compute-domain.nvidia.com",
    _SOURCE,
    _VERSION,
    {
        "ComputeDomainChannelConfig": ParameterKind(Fields(_CHANNEL, demanded=("domainID",)), frozenset({"channel"})),
        "ComputeDomainDaemonConfig": ParameterKind(Fields(_DAEMON, demanded=("domainID",)), frozenset({"daemon"})),
    },
    types=("channel", "daemon"),
)
# The classes in the driver's chart, and the kind of parameters without which the driver does not prepare devices of the class.
CLASSES: Final = {
    "compute-domain-default-channel.nvidia.com": "ComputeDomainChannelConfig",
    "compute-domain-daemon.nvidia.com": "ComputeDomainDaemonConfig",
}
# HAMi's driver decodes parameters with NVIDIA's package. It also accepts a GpuConfig for its shares of GPUs.
HAMI: Final = KnownDriver(
    "hami-core-gpu.project-hami.io",
    "Project-HAMi/k8s-dra-driver, May 2026 (cmd/hami-kubelet-plugin/device_state.go)",
    _VERSION,
    _gpus("gpu hami-gpu"),
    types=("gpu", "hami-gpu", "mig", "vfio"),
)
