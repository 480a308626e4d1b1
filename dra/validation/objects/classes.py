"""Rules about DeviceClasses and driver parameters (ValidateDeviceClass, validateOpaqueConfiguration, validateRawExtension)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra import names
from dra.finding import Findings, finding_at
from dra.validation.fields.limits import entries, required, wrong_format
from dra.validation.fields.selectors import selectors
from dra.validation.parameters.entries import MAX_BYTES, parameter_problems

if TYPE_CHECKING:
    from dra.objects import DeviceClass, DeviceClassConfiguration, OpaqueDeviceConfiguration
    from dra.server import Server
    from dra.wire import Opaque

MAX_CONFIG = 32


def device_class(value: DeviceClass, server: Server) -> Findings:
    """Judge the spec of a DeviceClass."""

    def judge_config(config: DeviceClassConfiguration, pointer: str) -> Findings:
        yield from opaque(config.opaque, pointer)
        yield from parameter_problems(config.opaque, f"{pointer}/opaque")

    spec = value.spec
    yield from selectors(spec.selectors, "/spec/selectors", server)
    yield from entries(spec.config, MAX_CONFIG, "/spec/config", judge_config)
    if spec.extended_resource_name is not None:
        rule = names.extended_resource_name
        yield from wrong_format(spec.extended_resource_name, rule, "/spec/extendedResourceName")


def opaque(config: OpaqueDeviceConfiguration | None, path: str) -> Findings:
    """Judge the driver parameters of a class, a claim or an allocation."""
    if config is None:
        yield finding_at("D101", f"{path}/opaque", "opaque is required")
        return
    yield from required(config.driver, f"{path}/opaque/driver", names.driver_name)
    if config.parameters is None:
        yield finding_at("D101", f"{path}/opaque/parameters", "parameters are required")
    else:
        yield from free_form(config.parameters, f"{path}/opaque/parameters")


def free_form(value: Opaque, path: str) -> Findings:
    """Judge a value that must be a JSON object of limited size.

    The size is the size of the value as compact JSON, because clients convert YAML to compact JSON.
    """
    if (length := len(value.json)) > MAX_BYTES:
        yield finding_at("D103", path, f"{length} bytes, at most {MAX_BYTES} are allowed")
    elif not value.json.startswith(b"{"):
        yield finding_at("D112", path, "must be a JSON object")
