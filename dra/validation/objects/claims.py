"""Rules about the spec of ResourceClaims and their templates (validateDeviceClaim)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra import names
from dra.finding import Findings, finding_at
from dra.validation.fields.limits import entries, list_or_none, required, wrong_format
from dra.validation.fields.selectors import judge_derived, selectors
from dra.validation.objects.classes import opaque
from dra.validation.objects.taints import tolerations
from dra.validation.parameters.entries import parameter_problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.objects import (
        DeviceClaim,
        DeviceClaimConfiguration,
        DeviceConstraint,
        DeviceDerivedAttribute,
        DeviceRequest,
        DeviceSubRequest,
        ExactDeviceRequest,
    )
    from dra.server import Server

MAX_REQUESTS: Final = 32
MAX_CONSTRAINTS: Final = 32
MAX_CONFIG: Final = 32
MAX_ALTERNATIVES: Final = 8
MAX_DERIVED: Final = 32
_REFERENCE: Final = "must be the name of a request, or of a request and a subrequest separated by '/'"


class RequestNames:
    """The names by which constraints, configuration and results may refer to the requests of a claim."""

    def __init__(self, devices: DeviceClaim) -> None:
        self._subrequests = {r.name: {s.name for s in r.first_available} for r in devices.requests}
        self._known = list_or_none(self._subrequests)

    def __contains__(self, reference: str) -> bool:
        request, slash, subrequest = reference.partition("/")
        subrequests = self._subrequests.get(request)
        return subrequests is not None and (not slash or subrequest in subrequests)

    def validate(self, reference: str, path: str) -> Findings:
        """Report a reference to a request that does not exist."""
        if reference.count("/") > 1 or reference not in self:
            yield finding_at("D109", path, f"{reference!r} {_REFERENCE}; the claim has {self._known}")
        elif any(names.dns_label(part) for part in reference.split("/")):
            yield finding_at("D102", path, f"{reference!r} is not made of DNS labels")

    def validate_all(self, references: Sequence[str], path: str) -> Findings:
        """Report the invalid references of a list."""
        yield from entries(references, MAX_REQUESTS, path, self.validate, noun="request")


def device_claim(devices: DeviceClaim, path: str, server: Server) -> Findings:
    """Judge everything below `spec.devices`."""
    request_names = RequestNames(devices)

    def judge_request(request: DeviceRequest, pointer: str) -> Findings:
        yield from required(request.name, f"{pointer}/name", names.dns_label, names.suggestion)
        if request.exactly is not None and request.first_available:
            yield finding_at("D107", pointer, "exactly one of exactly and firstAvailable is required, not both")
        elif request.exactly is not None:
            yield from _common_fields(request.exactly, f"{pointer}/exactly", server)
        elif request.first_available:
            alternatives, below = request.first_available, f"{pointer}/firstAvailable"
            yield from entries(
                alternatives, MAX_ALTERNATIVES, below, judge_alternative, noun="subrequest", field="/name"
            )
        else:
            yield finding_at("D107", pointer, "exactly one of exactly and firstAvailable is required")

    def judge_alternative(alternative: DeviceSubRequest, pointer: str) -> Findings:
        yield from required(alternative.name, f"{pointer}/name", names.dns_label, names.suggestion)
        yield from _common_fields(alternative, pointer, server)

    def judge_constraint(constraint: DeviceConstraint, pointer: str) -> Findings:
        yield from request_names.validate_all(constraint.requests, f"{pointer}/requests")
        attributes = {"matchAttribute": constraint.match_attribute, "distinctAttribute": constraint.distinct_attribute}
        for field, attribute in attributes.items():
            if attribute is not None:
                hint = "" if "/" in attribute else f"write <domain>/{attribute}, with the domain of the driver"
                yield from wrong_format(attribute, names.fully_qualified_name, f"{pointer}/{field}", hint)
        if set(attributes.values()) == {None}:
            yield finding_at("D107", pointer, "one of matchAttribute and distinctAttribute is required")

    def judge_config(config: DeviceClaimConfiguration, pointer: str) -> Findings:
        yield from request_names.validate_all(config.requests, f"{pointer}/requests")
        yield from opaque(config.opaque, pointer)
        yield from parameter_problems(config.opaque, f"{pointer}/opaque")

    pointer = f"{path}/requests"
    yield from entries(devices.requests, MAX_REQUESTS, pointer, judge_request, noun="request", field="/name")
    yield from entries(devices.constraints, MAX_CONSTRAINTS, f"{path}/constraints", judge_constraint)
    yield from entries(devices.config, MAX_CONFIG, f"{path}/config", judge_config)
    yield from _derived_attributes(devices, path, server)


def _common_fields(request: ExactDeviceRequest | DeviceSubRequest, path: str, server: Server) -> Findings:
    """Judge the fields that requests and alternatives have in common."""
    yield from required(request.device_class_name, f"{path}/deviceClassName", names.dns_subdomain)
    yield from selectors(request.selectors, f"{path}/selectors", server)
    match request.allocation_mode:
        case "All":
            if request.count:
                yield finding_at("D107", f"{path}/count", "count must be left out when allocationMode is All")
        case "" | "ExactCount":
            if request.count < 0:
                yield finding_at("D108", f"{path}/count", f"{request.count} must be greater than zero")
        case mode:
            yield finding_at("D106", f"{path}/allocationMode", f"{mode!r} must be All or ExactCount")
    yield from tolerations(request.tolerations, f"{path}/tolerations")


def _derived_attributes(devices: DeviceClaim, path: str, server: Server) -> Findings:
    """Judge derived attributes. A constraint must use each of them, and the total cost of a claim's expressions is limited."""
    used: dict[str, set[str]] = {}  # the attributes in constraints, by request; "" for constraints on all requests
    for constraint in devices.constraints:
        # The API server reads distinctAttribute only if matchAttribute is not set.
        attribute = constraint.match_attribute
        if attribute is None:
            attribute = constraint.distinct_attribute
        for reference in constraint.requests or ("",):
            if attribute is not None:
                used.setdefault(reference, set()).add(attribute)
    lists = []  # the attributes of a request, their path, and the keys of `used` that cover the request
    for index, request in enumerate(devices.requests):
        pointer, name = f"{path}/requests/{index}", request.name
        if request.exactly is not None and not request.first_available:
            lists.append((request.exactly.derived_attributes, f"{pointer}/exactly", {"", name}))
        elif request.exactly is None:
            lists += [
                (sub.derived_attributes, f"{pointer}/firstAvailable/{number}", {"", name, f"{name}/{sub.name}"})
                for number, sub in enumerate(request.first_available)
            ]
    cost = 0
    for attributes, pointer, scopes in lists:
        needed = set().union(*(used.get(scope, set()) for scope in scopes))

        def judge_name(attribute: DeviceDerivedAttribute, pointer: str, needed: set[str] = needed) -> Findings:
            yield from required(attribute.name, f"{pointer}/name", names.fully_qualified_name)
            if attribute.name and attribute.name not in needed:
                message = f"no matchAttribute or distinctAttribute that covers the request names {attribute.name!r}"
                yield finding_at("D109", f"{pointer}/name", message)
            yield from required(attribute.expression, f"{pointer}/expression")

        below = f"{pointer}/derivedAttributes"
        yield from entries(attributes, MAX_DERIVED, below, judge_name, noun="derived attribute", field="/name")
        for number, derived in enumerate(attributes if len(attributes) <= MAX_DERIVED else ()):
            problems, bound = judge_derived(derived.expression, f"{below}/{number}/expression", server)
            yield from problems
            cost += bound
    if cost > 1_000_000:
        yield finding_at("D111", path, "the derived attributes of the claim together may cost too much")
