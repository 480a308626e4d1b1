"""Every driver whose parameters we know. A driver that is not here is never judged."""

from __future__ import annotations

from typing import Final

from dra.validation.parameters.driver import Driver, ParameterKind
from dra.validation.parameters.networks import DRANET, SRIOV
from dra.validation.parameters.nvidia import COMPUTE_DOMAIN, GPU, HAMI
from dra.validation.parameters.schema import ObjectForm

_AMD: Final = Driver(
    "gpu.amd.com",
    "ROCm/k8s-gpu-dra-driver, October 2025 (api/amd.com/resource/gpu/v1alpha1)",
    "gpu.resource.amd.com/v1alpha1",
    {"GpuConfig": ParameterKind(ObjectForm({}))},
)
_INTEL_SOURCE: Final = "intel/intel-resource-drivers-for-kubernetes, August 2026 (no code reads any)"
_INTEL: Final = tuple(
    Driver(name, _INTEL_SOURCE, "", {}) for name in ("gpu.intel.com", "gaudi.intel.com", "qat.intel.com")
)
DRIVERS: Final = {driver.name: driver for driver in (GPU, COMPUTE_DOMAIN, HAMI, DRANET, SRIOV, _AMD, *_INTEL)}
