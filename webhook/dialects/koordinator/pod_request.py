"""Sums up the amounts of a pod as Koordinator's scheduler does, and parses its annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dra.names import fully_qualified_name
from dra.objects import LabelSelector
from dra.pointer import escape
from dra.wire import Json
from webhook.dialects.table import Outcome, Role
from webhook.dialects.vocabulary import (
    ContainerAmounts,
    DialectOptions,
    NodeRequirement,
    leave,
    mistake,
    refuse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.finding import Finding
    from dra.reason import Reason
    from webhook.dialects.vocabulary import DialectRequest, Hint

GPU, CORE, RATIO = Role.COMBINED, Role.CORES, Role.MEMORY_PERCENT
MEMORY, SHARED, COUNT, RDMA = Role.MEMORY, Role.SHARES, Role.COUNT, Role.NIC
# The amounts that are summed up over a pod; and those that Koordinator's webhook rewrites.
_PARTS: Final = (GPU, CORE, MEMORY, RATIO, SHARED, COUNT, RDMA)
_OF_GPUS: Final = frozenset((GPU, CORE, MEMORY, RATIO, SHARED))


class KoordinatorOptions(DialectOptions, frozen=True, kw_only=True):
    """How Koordinator is set up."""

    # Whether Koordinator's mutating webhook rewrites every app container (feature DisableDeviceResourceSpec off, the default).
    webhook: bool = True
    # Whether a share of a network device becomes a whole device, for drivers without shares.
    whole_nic_for_share: bool = msgspec.field(name="wholeNICForShare", default=False)
    # `cpu` or `hugepages-SIZE`: the target of the claims that request this resource, for pods that require one NUMA node or a CPU bind policy
    # (docs/configuration.md#cpus-and-huge-pages-by-claim).
    host_resources: dict[str, str] = {}
    # Device label in a hint's selector: the string attribute that a driver publishes for it, such as example.com/model.
    device_labels: dict[str, str] = {}

    def mistakes(self) -> Iterable[Finding]:
        for label, attribute in self.device_labels.items():
            if wrong := fully_qualified_name(attribute):
                path = f"/deviceLabels/{escape(label)}"
                yield mistake(path, f"attribute {attribute!r} {wrong}", "write the attribute as example.com/model")

    def host_targets(self) -> Mapping[str, str]:
        return self.host_resources

    def named_targets(self) -> Mapping[str, str]:
        return {f"/hostResources/{escape(name)}": target for name, target in self.host_resources.items()}


class JointAllocate(msgspec.Struct, frozen=True, rename="camel"):
    """The device-joint-allocate annotation."""

    device_types: tuple[str, ...] = ()
    required_scope: str = ""


class DeviceHint(msgspec.Struct, frozen=True, rename="camel"):
    """One device type's entry of the device-allocate-hint annotation."""

    selector: LabelSelector | None = None
    vf_selector: LabelSelector | None = msgspec.field(name="vfSelector", default=None)
    allocate_strategy: str = ""
    required_topology_scope: str = ""
    exclusive_policy: str = ""


class PartitionSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The gpu-partition-spec annotation."""

    allocate_policy: str = ""
    ring_bus_bandwidth: Json = None


class TopologySpec(msgspec.Struct, frozen=True):
    """The numa-topology-spec annotation."""

    policy: str = msgspec.field(name="numaTopologyPolicy", default="")
    exclusive: str = msgspec.field(name="singleNUMANodeExclusive", default="")


class ResourceSpec(msgspec.Struct, frozen=True):
    """The resource-spec annotation."""

    required: str = msgspec.field(name="requiredCPUBindPolicy", default="")


_ANNOTATIONS: Final[Mapping[Role, Any]] = {
    Role.JOINT: JointAllocate,
    Role.HINT: dict[str, DeviceHint],
    Role.PARTITION: PartitionSpec,
    Role.NUMA_BIND: TopologySpec,
    Role.CPUS: ResourceSpec,
}
_NO_HINT = DeviceHint()
_OPERATORS = {
    "In": True,
    "NotIn": True,
    "Exists": False,
    "DoesNotExist": False,
}  # by operator of a label selector: whether it needs values
_SHOWN = 40  # letters of a user's text in a message


class PodRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's amounts and annotations, summed and parsed."""

    containers: tuple[ContainerAmounts, ...]
    sums: Mapping[Role, int]  # only sums above 0
    keys: Mapping[Role, str]
    joint: JointAllocate | None
    hints: Mapping[str, DeviceHint]
    partition: PartitionSpec | None
    topology: TopologySpec | None
    binding: ResourceSpec | None
    names: Mapping[Role, str]  # the names of the annotations
    host: Mapping[str, int]
    options: KoordinatorOptions

    def key(self, *parts: Role) -> str:
        """Return the pod's key for the first of these parts that the pod requests."""
        return next(self.keys[part] for part in parts if part in self.keys)

    def hint(self, device_type: str) -> DeviceHint:
        """Return the pod's hint for devices of a type; an empty hint if it has none."""
        return self.hints.get(device_type, _NO_HINT)


def parse(request: DialectRequest[KoordinatorOptions]) -> PodRequest | Reason:
    """Return the pod's amounts and annotations, or why the pod stays as it is or is refused. A malformed annotation is refused."""
    hints = request.hints
    for container in request.containers:
        for amount in container.amounts:
            if amount.row.outcome is Outcome.LEFT and amount.value:
                return leave(amount.key, amount.row.because)
    vendor_hint = hints.get(Role.MODELS)
    if vendor_hint is not None:
        vendor = vendor_hint.text.lower()
        # The text of a selector with NotIn begins with "not".
        excludes_others = vendor_hint.text.startswith("not ") and "nvidia" not in vendor
        if vendor not in ("", "nvidia") and not excludes_others:
            text = f"the pod is for GPUs of {shorten(vendor_hint.text)}, which no target describes"
            return leave(vendor_hint.key, text)
    allocation_hint = hints.get(Role.MODE)
    if allocation_hint is not None:
        return leave(allocation_hint.key, allocation_hint.row.because)
    parsed: dict[Role, Any] = {}
    for role, type_ in _ANNOTATIONS.items():
        hint = hints.get(role)
        if hint is None:
            continue
        try:
            parsed[role] = msgspec.json.decode(hint.text, type=type_)
        except RecursionError:
            return _malformed(hint, "it is nested too deeply")
        except (msgspec.MsgspecError, ValueError) as error:
            return _malformed(hint, str(error))
    return PodRequest(
        containers=request.containers,
        sums=total(request.containers, webhook=request.options.webhook),
        keys={amount.row.role: amount.key for container in request.containers for amount in container.amounts},
        joint=parsed.get(Role.JOINT),
        hints=parsed.get(Role.HINT, {}),
        partition=parsed.get(Role.PARTITION),
        topology=parsed.get(Role.NUMA_BIND),
        binding=parsed.get(Role.CPUS),
        names={role: hint.key for role, hint in hints.items()},
        host=request.host,
        options=request.options,
    )


def _malformed(hint: Hint, why: str) -> Reason:
    """Return the refusal of a malformed annotation: Koordinator never schedules such a pod."""
    return refuse(hint.key, f"is malformed: {why}", "correct the JSON")


def select(request: PodRequest, device_type: str) -> tuple[NodeRequirement, ...] | Reason:
    """Return the label selectors of a device type as requirements on attributes (`deviceLabels`)."""
    hint, key = request.hint(device_type), request.names.get(Role.HINT, "")
    selections: list[NodeRequirement] = []
    for selector in (hint.selector, hint.vf_selector):
        if selector is None:
            continue
        selections += [NodeRequirement(label, "In", (value,)) for label, value in selector.match_labels.items()]
        for expression in selector.match_expressions:
            if expression.operator not in _OPERATORS or bool(expression.values) != _OPERATORS[expression.operator]:
                problem = (
                    f"is malformed: operator {shorten(expression.operator)!r} with {len(expression.values)} values"
                )
                return refuse(key, problem, "write In or NotIn with values, or Exists or DoesNotExist without")
            selections.append(NodeRequirement(expression.key, expression.operator, expression.values))
    attributes = request.options.device_labels
    for label, _, _ in selections:
        if label not in attributes:
            reason = f"slices have attributes and no labels, and none is declared for label {shorten(label)}"
            return leave(key, f"{reason}: an administrator can declare it under `koordinator.deviceLabels`")
    return tuple([selection._replace(key=attributes[selection.key]) for selection in selections])


def total(containers: tuple[ContainerAmounts, ...], *, webhook: bool) -> dict[Role, int]:
    """Sum up the pod: containers and sidecars together, or an init container with the sidecars before it if that is more."""
    lasting: Counter[Role] = Counter()
    init_peak: Counter[Role] = Counter()
    for container in containers:
        amounts = {part: amount.value for part in _PARTS if (amount := container.amount_of(part)) is not None}
        if webhook and not container.init:
            amounts = _after_webhook(amounts)
        if not container.ordinary_init:
            lasting.update(amounts)
            continue
        for part, value in amounts.items():
            init_peak[part] = max(init_peak[part], lasting[part] + value)
    return {part: value for part, value in (lasting | init_peak).items() if value}


def _after_webhook(amounts: dict[Role, int]) -> dict[Role, int]:
    """Return the amounts of an app container after Koordinator's mutating webhook."""
    if not amounts.keys() & _OF_GPUS:
        return amounts
    rewritten = {**amounts}
    combined = rewritten.get(GPU)
    # If core or ratio differ from `gpu`, `gpu` stays, and the scheduler does not accept the combination.
    if combined is not None and rewritten.get(CORE, combined) == combined == rewritten.get(RATIO, combined):
        del rewritten[GPU]
        rewritten[CORE] = rewritten[RATIO] = combined
    if SHARED not in rewritten:
        basis = rewritten.get(RATIO, rewritten.get(CORE, 0))
        several = basis > 100 and basis % 100 == 0
        rewritten[SHARED] = basis // 100 if several else 1
    return rewritten


def shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
