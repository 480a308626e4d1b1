"""Judges a device for one leaf (an exact request, or one alternative of a firstAvailable request), independently of all other leaves.

A judgement is a refusal at a stage, a fault, or an offer. The checks have the order of the in-tree allocator, because the order decides
which faults occur: class selectors, request selectors, node selection of the device, capacity, then taints and attributes. Judgements are
cached by kind of device (its body and the attributes that the question reads), so that a thousand equal GPUs are judged once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.answer import AllocateError, Cause, Stage
from dra import cel
from dra import server as gates
from dra.errors import CapacityError, NodeSelectorError, NoSuchKey, SelectorError
from dra.objects import Device, DeviceAttribute, blocks
from dra.semver import Version
from dra.stock import Body, Page, Pool, SliceReading, reaches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allocator.problem.question import Leaf, Question
    from dra.budget import Budget
    from dra.objects import Node

Values = frozenset[tuple[str, object]]
_JUDGED = 10  # steps for judging a device, not counting the selectors
NODE_FEATURE = "DRAOptionalNodeOperations"  # a node must declare this feature to use devices with skipNodeOperations


class DeviceCandidate(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One device of a node; the candidates of a node are a list in in-tree order."""

    pool: Pool
    page: Page
    at: int  # position in `page.devices` and `page.bodies`
    device: Device
    body: Body
    multi: bool

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def id(self) -> tuple[str, str, str]:
        return (*self.pool.id, self.device.name)

    def __str__(self) -> str:
        return "/".join(self.id)


def candidates_of(pools: Iterable[Pool]) -> list[DeviceCandidate]:
    """List the devices that a node can use, in in-tree order."""
    return [
        DeviceCandidate(pool, page, at, device, page.bodies[at], page.bodies[at].multi)
        for pool in pools
        for page in pool.accessible
        for at, device in enumerate(page.devices)
    ]


class RejectedDevice(msgspec.Struct, frozen=True):
    stage: Stage
    text: str = ""


class Fault(msgspec.Struct, frozen=True):
    """The in-tree allocator returns an error for this device and leaf."""

    where: str
    problem: str
    cause: Cause | None = None

    def as_fatal(self) -> AllocateError:
        """Return the error that ends the search."""
        return AllocateError(self.where, self.problem, self.cause)


class Offer(msgspec.Struct, frozen=True):
    """The device passes the checks of selectors, node selection and capacity. `barred`, `missing` or `failing` may still exclude it."""

    amounts: tuple[
        tuple[str, int, int], ...
    ]  # for each capacity: its name, the amount taken, the declared amount (nano-units)
    # A refusal that the in-tree allocator finds only after it has checked whether the device is in use. The order matters only for
    # allocationMode All.
    barred: RejectedDevice | None = None
    values: tuple[Values, ...] = ()  # by covering constraint, up to `missing` or `failing`
    # The number of the covering constraint whose attribute is missing (`missing`) or cannot be derived (`failing`); -1 if there is none.
    missing: int = -1
    failing: int = -1
    failure: Fault | None = None


DeviceJudgement = RejectedDevice | Fault | Offer


class DeviceJudge:
    """Judges devices for the leaves of one question on one node."""

    def __init__(self, question: Question, node: Node, budget: Budget) -> None:
        self.question = question
        self.node = node
        self.budget = budget
        self.reading = reading = question.reading
        declared = NODE_FEATURE in node.status.declared_features
        self.allows_skipping = not reading.operations or (declared and reading.enabled(gates.OPTIONAL_OPERATIONS))
        self._candidate: DeviceCandidate | None = None
        self._view: cel.DeviceView | None = None
        self._selected: dict[str, bool] = {}
        self._selectors: dict[str, cel.Selector] = {}

    def ask(self, leaf: Leaf, candidate: DeviceCandidate) -> DeviceJudgement:
        self.budget.charge(_JUDGED)
        device = candidate.device
        if candidate.body.missing_gate == gates.BINDING:
            return RejectedDevice(Stage.GATE, f"has binding conditions, but the feature gate {gates.BINDING} is off")
        for check in leaf.ask.checks:
            try:
                view = self._view_of(candidate)
                selected = self._selected.get(check.expression)
                if selected is None:
                    selector = self._selectors.get(check.expression)
                    if selector is None:
                        selector = cel.compile(check.expression, minor=self.reading.server.minor, budget=self.budget)
                        self._selectors[check.expression] = selector
                    selected = self._selected[check.expression] = selector.matches(view, self.budget)
            except SelectorError as error:
                return _fault(leaf.selector_label(check), candidate, error)
            if not selected:
                stage = Stage.CLASS if check.of_class else Stage.SELECTOR
                return RejectedDevice(stage, f"{leaf.selector_label(check)}: {check.expression}")
        try:
            if candidate.page.slice.spec.per_device_node_selection and not reaches(device, self.node):
                return RejectedDevice(Stage.NODE)
            amounts = self.reading.charges(leaf.ask.capacity, device, candidate.pool.id[0])
        except (CapacityError, NodeSelectorError) as error:
            return Fault(leaf.where, f"on device {candidate}: {error}")
        if amounts is None:
            return RejectedDevice(Stage.CAPACITY, "does not offer what is requested")
        taken = tuple((name, amount.nano, device.capacity[name].value.nano) for name, amount in amounts.items())
        if any(amount > declared for _, amount, declared in taken):
            return RejectedDevice(Stage.CAPACITY, "is too small")
        barred = self._obstacle(leaf, candidate)
        values: list[Values] = []
        for number, at in enumerate(leaf.constraints):
            name = self.question.constraints[at].attribute
            expression = leaf.derived.get(name)
            if expression is None:
                attribute = attribute_of(device, candidate.pool.id[0], name)
                constrained = values_of(attribute)
                if self.reading.since(38):
                    constrained = frozenset(map(_without_build, constrained))
                    if attribute is not None and (not constrained or never_matches(attribute, self.reading)):
                        fault = Fault(leaf.where, f"on device {candidate}: attribute {name} has an unsupported value")
                        return Offer(taken, barred, tuple(values), failing=number, failure=fault)
                elif attribute is not None and never_matches(attribute, self.reading):
                    constrained = frozenset({("list", str(candidate))})
            else:
                try:
                    derived = cel.compile(
                        expression, minor=self.reading.server.minor, derived=True, budget=self.budget
                    ).derive(self._view_of(candidate), self.budget)
                except SelectorError as error:
                    fault = _fault(f"{leaf.where}, derived attribute {name}", candidate, error)
                    return Offer(taken, barred, tuple(values), failing=number, failure=fault)
                constrained = frozenset(map(_with_type, derived if isinstance(derived, list) else [derived]))
                if self.reading.since(38):
                    constrained = frozenset(map(_without_build, constrained))
            if not constrained:
                return Offer(taken, barred, tuple(values), missing=number)
            values.append(constrained)
        return Offer(taken, barred, tuple(values))

    def _view_of(self, candidate: DeviceCandidate) -> cel.DeviceView:
        """Return the view of a device for expressions. The results of selectors are kept until another device is judged."""
        if self._candidate is not candidate or self._view is None:
            self._candidate, self._selected = candidate, {}
            self._view = cel.view_of(candidate.pool.id[0], candidate.device, lenient=self.reading.since(38))
        return self._view

    def _obstacle(self, leaf: Leaf, candidate: DeviceCandidate) -> RejectedDevice | None:
        if candidate.page.slice.spec.skip_node_operations and not self.allows_skipping:
            if not self.reading.enabled(gates.OPTIONAL_OPERATIONS):
                return RejectedDevice(Stage.GATE, f"needs the feature gate {gates.OPTIONAL_OPERATIONS}, which is off")
            return RejectedDevice(Stage.NODE, f"needs the node feature {NODE_FEATURE}")
        if candidate.body.missing_gate:
            return RejectedDevice(
                Stage.GATE, f"consumes counters, but the feature gate {candidate.body.missing_gate} is off"
            )
        for taint in candidate.device.taints:
            if blocks(taint, leaf.tolerations):
                return RejectedDevice(Stage.TAINT, f"{taint.key}={taint.value}:{taint.effect}")
        return None


def _fault(where: str, candidate: DeviceCandidate, error: SelectorError) -> Fault:
    cause = Cause.MISSING_KEY if isinstance(error, NoSuchKey) else None
    return Fault(where, f"on device {candidate}: {error}", cause)


def _with_type(value: bool | int | str | Version) -> tuple[str, object]:
    if isinstance(value, Version):
        return "version", str(value)
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int):
        return "int", value
    return "string", value


def _without_build(value: tuple[str, object]) -> tuple[str, object]:
    """Return a value without the build metadata of a version, which Kubernetes 1.38 does not compare."""
    kind, content = value
    return (kind, str(content).partition("+")[0]) if kind == "version" else value


def never_matches(attribute: DeviceAttribute, reading: SliceReading) -> bool:
    """Whether an attribute is never equal to another. This is true of a list if the allocator does not support lists."""
    if reading.enabled(gates.LISTS):
        return False
    scalars = attribute.int_, attribute.bool_, attribute.string, attribute.version
    return all(scalar is None for scalar in scalars)


def attribute_of(device: Device, driver: str, name: str) -> DeviceAttribute | None:
    """Find an attribute as constraints do: by its full name or, if the domain is the driver's, by the name without the domain."""
    attribute = device.attributes.get(name)
    if attribute is None:
        domain, slash, bare = name.partition("/")
        attribute = device.attributes.get(bare) if slash and domain == driver else None
    return attribute


def values_of(attribute: DeviceAttribute | None) -> Values:
    """Return the values of an attribute; values of different types are never equal."""
    if attribute is None:
        return frozenset()
    kinds = (
        ("int", attribute.ints, attribute.int_),
        ("bool", attribute.bools, attribute.bool_),
        ("string", attribute.strings, attribute.string),
        ("version", attribute.versions, attribute.version),
    )
    for kind, values, _ in kinds:
        if values:
            return frozenset((kind, value) for value in values)
    for kind, _, value in kinds:
        if value is not None:
            return frozenset({(kind, value)})
    return frozenset()
