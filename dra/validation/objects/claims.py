"""What a ResourceClaim, or a template of one, asks for (validateDeviceClaim)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra.validation.fields import names
from dra.validation.fields.limits import duplicates, empty_or_wrong_format, some, too_many, wrong_format
from dra.validation.fields.selectors import judge_derived, selectors
from dra.validation.objects.classes import opaque
from dra.validation.objects.taints import tolerations
from dra.validation.parameters.judge import parameter_problems
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dra.objects import (
        DeviceClaim,
        DeviceConstraint,
        DeviceDerivedAttribute,
        DeviceRequest,
        DeviceSubRequest,
        ExactDeviceRequest,
    )
    from dra.validation.fields.gates import Gates

MAX_REQUESTS: Final = 32
MAX_CONSTRAINTS: Final = 32
MAX_CONFIG: Final = 32
MAX_ALTERNATIVES: Final = 8
MAX_DERIVED: Final = 32
_REFERENCE: Final = "must be the name of a request, or of a request and a subrequest separated by '/'"


class RequestNames:
    """The requests of a claim, as constraints, configuration and results may name them."""

    def __init__(self, devices: DeviceClaim) -> None:
        self._subrequests = {r.name: {s.name for s in r.first_available} for r in devices.requests}
        self._known = some(self._subrequests)

    def __contains__(self, reference: str) -> bool:
        request, slash, subrequest = reference.partition("/")
        subrequests = self._subrequests.get(request)
        return subrequests is not None and (not slash or subrequest in subrequests)

    def judge(self, reference: str, path: str) -> Problems:
        """Complain about a reference to a request that the claim does not have."""
        if reference.count("/") > 1 or reference not in self:
            yield Problem("D109", path, f"{reference!r} {_REFERENCE}; the claim has {self._known}")
        elif any(names.dns_label(part) for part in reference.split("/")):
            yield Problem("D102", path, f"{reference!r} is not made of DNS labels")

    def judge_all(self, references: Sequence[str], path: str) -> Problems:
        """Complain about a list of references."""
        yield from too_many(references, MAX_REQUESTS, path)
        if len(references) > MAX_REQUESTS:
            return
        yield from duplicates(references, path, "request")
        for index, reference in enumerate(references):
            yield from self.judge(reference, f"{path}/{index}")


def device_claim(devices: DeviceClaim, path: str, gates: Gates) -> Problems:
    """Judge everything below `spec.devices`."""
    known = RequestNames(devices)
    requests = devices.requests
    yield from too_many(requests, MAX_REQUESTS, f"{path}/requests")
    if len(requests) <= MAX_REQUESTS:
        keys = [request.name for request in requests]
        yield from duplicates(keys, f"{path}/requests", "request", field="/name")
        for index, request in enumerate(requests):
            yield from _request(request, f"{path}/requests/{index}", gates)
    constraints = devices.constraints
    yield from too_many(constraints, MAX_CONSTRAINTS, f"{path}/constraints")
    if len(constraints) <= MAX_CONSTRAINTS:
        for index, constraint in enumerate(constraints):
            yield from _constraint(constraint, f"{path}/constraints/{index}", known)
    yield from too_many(devices.config, MAX_CONFIG, f"{path}/config")
    if len(devices.config) <= MAX_CONFIG:
        for index, config in enumerate(devices.config):
            at = f"{path}/config/{index}"
            yield from known.judge_all(config.requests, f"{at}/requests")
            yield from opaque(config.opaque, at)
            yield from parameter_problems(config.opaque, f"{at}/opaque")
    yield from _derived_attributes(devices, path, gates)


def _request(request: DeviceRequest, path: str, gates: Gates) -> Problems:
    name = request.name
    wrong = names.dns_label(name)
    yield from empty_or_wrong_format(name, wrong, f"{path}/name", "name", names.suggestion)
    exactly = request.exactly
    alternatives = request.first_available
    if exactly is not None and alternatives:
        yield Problem("D107", path, "exactly one of exactly and firstAvailable is required, not both")
    elif exactly is not None:
        yield from _demand(exactly, f"{path}/exactly", gates)
    elif alternatives:
        yield from _alternatives(alternatives, f"{path}/firstAvailable", gates)
    else:
        yield Problem("D107", path, "exactly one of exactly and firstAvailable is required")


def _alternatives(alternatives: Sequence[DeviceSubRequest], path: str, gates: Gates) -> Problems:
    yield from too_many(alternatives, MAX_ALTERNATIVES, path)
    if len(alternatives) > MAX_ALTERNATIVES:
        return
    keys = [alternative.name for alternative in alternatives]
    yield from duplicates(keys, path, "subrequest", field="/name")
    for index, alternative in enumerate(alternatives):
        at = f"{path}/{index}"
        name = alternative.name
        wrong = names.dns_label(name)
        yield from empty_or_wrong_format(name, wrong, f"{at}/name", "name", names.suggestion)
        yield from _demand(alternative, at, gates)


def _demand(demand: ExactDeviceRequest | DeviceSubRequest, path: str, gates: Gates) -> Problems:
    """Judge what a request and an alternative have in common."""
    name = demand.device_class_name
    yield from empty_or_wrong_format(name, names.dns_subdomain(name), f"{path}/deviceClassName", "deviceClassName")
    yield from selectors(demand.selectors, f"{path}/selectors", gates)
    match demand.allocation_mode:
        case "All":
            if demand.count:
                yield Problem("D107", f"{path}/count", "count must be left out when allocationMode is All")
        case "" | "ExactCount":
            if demand.count < 0:
                yield Problem("D108", f"{path}/count", f"{demand.count} must be greater than zero")
        case mode:
            yield Problem("D106", f"{path}/allocationMode", f"{mode!r} must be All or ExactCount")
    yield from tolerations(demand.tolerations, f"{path}/tolerations")


def _constraint(constraint: DeviceConstraint, path: str, known: RequestNames) -> Problems:
    yield from known.judge_all(constraint.requests, f"{path}/requests")
    attributes = {
        "matchAttribute": constraint.match_attribute,
        "distinctAttribute": constraint.distinct_attribute,
    }
    for field, attribute in attributes.items():
        if attribute is None:
            continue
        hint = ""
        if "/" not in attribute:
            hint = f"write <domain>/{attribute}, with the domain of the driver"
        wrong = names.fully_qualified_name(attribute)
        yield from wrong_format(attribute, wrong, f"{path}/{field}", hint)
    if set(attributes.values()) == {None}:
        yield Problem("D107", path, "one of matchAttribute and distinctAttribute is required")


def _derived_attributes(devices: DeviceClaim, path: str, gates: Gates) -> Problems:
    """Judge derived attributes, whose cost is summed over the claim and which some constraint must use."""
    used = _constraints_by_request(devices.constraints)
    found = []
    for index, request in enumerate(devices.requests):
        if request.exactly is not None and not request.first_available:
            found.append((request.exactly.derived_attributes, f"{path}/requests/{index}/exactly", {"", request.name}))
        elif request.exactly is None:
            found.extend(
                (sub.derived_attributes, f"{path}/requests/{index}/firstAvailable/{i}", {"", request.name, f"{request.name}/{sub.name}"})
                for i, sub in enumerate(request.first_available)
            )  # fmt: skip
    cost = 0
    for attributes, at, scopes in found:
        needed = set().union(*(used.get(scope, set()) for scope in scopes))
        yield from _check_derived(attributes, f"{at}/derivedAttributes", needed)
        if len(attributes) <= MAX_DERIVED:
            for index, attribute in enumerate(attributes):
                problems, bound = judge_derived(
                    attribute.expression, f"{at}/derivedAttributes/{index}/expression", gates
                )
                yield from problems
                cost += bound
    if cost > 1_000_000:
        yield Problem("D111", path, "the derived attributes of the claim together may cost too much")


def _check_derived(attributes: Sequence[DeviceDerivedAttribute], path: str, needed: set[str]) -> Problems:
    yield from too_many(attributes, MAX_DERIVED, path)
    if len(attributes) > MAX_DERIVED:
        return
    keys = [attribute.name for attribute in attributes]
    yield from duplicates(keys, path, "derived attribute", field="/name")
    for index, attribute in enumerate(attributes):
        wrong = names.fully_qualified_name(attribute.name)
        yield from empty_or_wrong_format(attribute.name, wrong, f"{path}/{index}/name", "name")
        if attribute.name and attribute.name not in needed:
            message = f"no matchAttribute or distinctAttribute that covers the request names {attribute.name!r}"
            yield Problem("D109", f"{path}/{index}/name", message)
        if not attribute.expression:
            yield Problem("D101", f"{path}/{index}/expression", "expression is required")


def _constraints_by_request(constraints: Sequence[DeviceConstraint]) -> Mapping[str, set[str]]:
    """Gather which attributes are constrained on which request; "" stands for all requests."""
    used: dict[str, set[str]] = {}
    for constraint in constraints:
        # The API server reads distinctAttribute only where matchAttribute is not set.
        name = constraint.match_attribute
        if name is None:
            name = constraint.distinct_attribute
        if name is None:
            continue
        for request in constraint.requests or ("",):
            attributes = used.setdefault(request, set())
            attributes.add(name)
    return used
