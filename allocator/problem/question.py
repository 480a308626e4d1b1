"""The question: the requests, alternatives and constraints of claims, independent of devices.

Devices are chosen for a *leaf*: an exact request, or one alternative of a firstAvailable request. Leaves with the same requirements
on a device share an *ask*, so that selectors are evaluated once for all of them. Faults that do not depend on devices are raised
here, in the order of the in-tree allocator's `validateDeviceRequest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.answer import AllocateError, Cause
from dra import server as gates
from dra.objects import DeviceClass, DeviceToleration, ResourceClaim
from dra.quantity import Quantity
from dra.stock import SliceReading, Stock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dra.objects import DeviceConstraint, DeviceRequest, DeviceSubRequest, ExactDeviceRequest


class Check(msgspec.Struct, frozen=True):
    """One CEL expression that a device must satisfy: the class's, or the request's own."""

    expression: str
    number: int
    of_class: bool


class Ask(msgspec.Struct, frozen=True, eq=False):
    """What leaves require of a single device, whether or not it is in use."""

    index: int
    checks: tuple[Check, ...]
    tolerations: tuple[DeviceToleration, ...]
    capacity: dict[str, Quantity]


class Constraint(msgspec.Struct, frozen=True, eq=False):
    claim: int
    match: bool  # else distinct
    attribute: str


class Leaf(msgspec.Struct, frozen=True, eq=False):
    """An exact request, or one alternative of a firstAvailable request."""

    index: int
    claim: int
    request: int  # position among all requests of the question
    alternative: int
    name: str  # "request" or "request/alternative", as results and constraints name it
    where: str  # as messages name it
    ask: Ask
    all: bool
    admin: bool
    count: int  # ignored for All
    class_: DeviceClass
    tolerations: tuple[DeviceToleration, ...]
    constraints: tuple[int, ...]  # the constraints that cover this leaf, in list order
    derived: dict[str, str]  # attribute → expression

    def selector_label(self, check: Check) -> str:
        """Return the selector's name for messages."""
        owner = f"DeviceClass/{self.class_.metadata.name}" if check.of_class else self.where
        return f"{owner}, selector #{check.number}"


class CompiledRequest(msgspec.Struct, frozen=True, eq=False):
    claim: int
    name: str
    leaves: tuple[Leaf, ...]
    alternatives: bool  # whether it is a firstAvailable request


class Question(msgspec.Struct, frozen=True, eq=False):
    """The requests of claims, independent of a stock."""

    claims: tuple[ResourceClaim, ...]
    requests: tuple[CompiledRequest, ...]
    leaves: tuple[Leaf, ...]
    asks: tuple[Ask, ...]
    constraints: tuple[Constraint, ...]
    reading: SliceReading  # how the allocator of the server's version reads requests and slices


def question_of(claims: Sequence[ResourceClaim], stock: Stock) -> Question:
    """Make the question of claims, with the DeviceClasses and the allocator version of a stock."""
    return _QuestionReader(stock.classes, stock.reading).read(claims)


class _QuestionReader:
    def __init__(self, classes: Mapping[str, DeviceClass], reading: SliceReading) -> None:
        self.classes = classes
        self.reading = reading
        self.requests: list[CompiledRequest] = []
        self.leaves: list[Leaf] = []
        self.asks: dict[object, Ask] = {}
        self.constraints: list[Constraint] = []

    def read(self, claims: Sequence[ResourceClaim]) -> Question:
        for index, claim in enumerate(claims):
            where = f"ResourceClaim/{claim.metadata.key}"
            first_constraint = len(self.constraints)
            devices = claim.spec.devices
            for constraint in devices.constraints:
                match = constraint.match_attribute is not None
                attribute = constraint.match_attribute if match else constraint.distinct_attribute
                self.constraints.append(Constraint(index, match, attribute or ""))
            for request in devices.requests:
                self._request(index, where, request, devices.constraints, first_constraint)
            for number, constraint in enumerate(devices.constraints):
                if constraint.match_attribute is None and constraint.distinct_attribute is None:
                    raise AllocateError(
                        f"{where}, constraint #{number}", "has neither matchAttribute nor distinctAttribute"
                    )
                if constraint.match_attribute is None and self.reading.stable:
                    raise _gate_error(f"{where}, constraint #{number}", "has distinctAttribute", gates.CAPACITY)
        return Question(
            tuple(claims),
            tuple(self.requests),
            tuple(self.leaves),
            tuple(self.asks.values()),
            tuple(self.constraints),
            self.reading,
        )

    def _request(
        self, claim: int, where: str, request: DeviceRequest, constraints: tuple[DeviceConstraint, ...], first: int
    ) -> None:
        """Add a request and its leaves; raise AllocateError for faults, in the order of the in-tree allocator."""
        reading = self.reading
        bodies: tuple[ExactDeviceRequest | DeviceSubRequest, ...] = request.first_available
        if not bodies:
            if request.exactly is None:
                raise AllocateError(f"{where}, request {request.name}", "has neither exactly nor firstAvailable")
            bodies = (request.exactly,)
        if request.first_available and not reading.enabled(gates.ALTERNATIVES):
            raise _gate_error(f"{where}, request {request.name}", "has firstAvailable", gates.ALTERNATIVES)
        leaves: list[Leaf] = []
        for number, body in enumerate(bodies):
            name = f"{request.name}/{body.name}" if request.first_available else request.name  # type: ignore[union-attr]  # firstAvailable holds subrequests only
            label = f"{where}, request {name}"
            admin_access = getattr(body, "admin_access", None)
            # The stable allocator ignores capacity.
            if body.capacity is not None and not reading.stable and not reading.enabled(gates.CAPACITY):
                raise _gate_error(label, "requests capacity", gates.CAPACITY)
            if body.derived_attributes and reading.since(37) and not reading.enabled(gates.DERIVED):
                raise _gate_error(label, "has derivedAttributes", gates.DERIVED)
            if admin_access is not None and not reading.enabled(gates.ADMIN_ACCESS):
                raise _gate_error(label, "has adminAccess", gates.ADMIN_ACCESS)
            for index, selector in enumerate(body.selectors):
                if selector.cel is None:
                    raise AllocateError(label, f"selector #{index} has no CEL expression")
            if not body.device_class_name:
                raise AllocateError(label, "deviceClassName is missing")
            class_ = self.classes.get(body.device_class_name)
            if class_ is None:
                raise AllocateError(label, f"DeviceClass/{body.device_class_name} does not exist", Cause.MISSING_OBJECT)
            if body.allocation_mode not in ("ExactCount", "All"):
                raise AllocateError(label, f"allocationMode {body.allocation_mode!r} is neither ExactCount nor All")
            covering_constraints = tuple(
                first + at
                for at, constraint in enumerate(constraints)
                if not constraint.requests or name in constraint.requests or request.name in constraint.requests
            )
            derived = {
                derived_attribute.name: derived_attribute.expression for derived_attribute in body.derived_attributes
            }
            leaf = Leaf(
                len(self.leaves),
                claim,
                len(self.requests),
                number,
                name,
                label,
                self._ask(body, class_),
                body.allocation_mode == "All",
                bool(admin_access),
                body.count,
                class_,
                body.tolerations,
                covering_constraints,
                derived if reading.enabled(gates.DERIVED) else {},
            )
            self.leaves.append(leaf)
            leaves.append(leaf)
        self.requests.append(CompiledRequest(claim, request.name, tuple(leaves), bool(request.first_available)))

    def _ask(self, body: ExactDeviceRequest | DeviceSubRequest, class_: DeviceClass) -> Ask:
        """Return the existing equal ask, or add a new one."""
        checks: list[Check] = []
        for selectors, of_class in ((class_.spec.selectors, True), (body.selectors, False)):
            for number, selector in enumerate(selectors):
                expression = selector.cel.expression if selector.cel else ""
                checks.append(Check(expression, number, of_class))
        capacity = body.capacity
        requested = capacity.requests if capacity and self.reading.enabled(gates.CAPACITY) else {}
        amounts = sorted((name, str(amount), amount.format) for name, amount in requested.items())
        expressions = tuple((check.expression, check.of_class) for check in checks)
        key = expressions, body.tolerations, tuple(amounts)
        ask = self.asks.get(key)
        if ask is None:
            ask = self.asks[key] = Ask(len(self.asks), tuple(checks), body.tolerations, requested)
        return ask


def _gate_error(where: str, problem: str, gate: str) -> AllocateError:
    return AllocateError(where, f"{problem}, but the feature gate {gate} is off", Cause.GATE_OFF)
