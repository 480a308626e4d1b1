"""DeviceClasses, selectors lists and driver parameters (ValidateDeviceClass, validateOpaqueConfiguration)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.validation.fields import names
from dra.validation.fields.limits import empty_or_wrong_format, too_many, wrong_format
from dra.validation.fields.parameters import driver_parameters
from dra.validation.fields.selectors import selectors
from dra.validation.parameters.judge import parameter_problems
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from dra.objects import DeviceClass, OpaqueDeviceConfiguration
    from dra.validation.fields.gates import Gates

MAX_CONFIG = 32


def device_class(value: DeviceClass, gates: Gates) -> Problems:
    """Judge the spec of a DeviceClass."""
    spec = value.spec
    yield from selectors(spec.selectors, "/spec/selectors", gates)
    yield from too_many(spec.config, MAX_CONFIG, "/spec/config")
    if len(spec.config) <= MAX_CONFIG:
        for index, config in enumerate(spec.config):
            yield from opaque(config.opaque, f"/spec/config/{index}")
            yield from parameter_problems(config.opaque, f"/spec/config/{index}/opaque")
    if spec.extended_resource_name is not None:
        wrong = names.extended_resource_name(spec.extended_resource_name)
        yield from wrong_format(spec.extended_resource_name, wrong, "/spec/extendedResourceName")


def opaque(config: OpaqueDeviceConfiguration | None, path: str) -> Problems:
    """Judge the driver parameters of a class, a claim or an allocation."""
    if config is None:
        yield Problem("D101", f"{path}/opaque", "opaque is required")
        return
    yield from empty_or_wrong_format(config.driver, names.driver_name(config.driver), f"{path}/opaque/driver", "driver")
    yield from driver_parameters(config.parameters, f"{path}/opaque/parameters", needed=True)
