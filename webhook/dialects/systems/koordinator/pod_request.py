"""What a pod requests of Koordinator: its amounts, summed as the scheduler sums them, and its annotations, parsed."""

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
from webhook.dialects.vocabulary import ContainerAmounts, Options, Refusal, Selection, Untranslated, mistake

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.finding import Finding
    from webhook.dialects.vocabulary import DialectRequest, Hint

GPU, CORE, RATIO = Role.COMBINED, Role.CORES, Role.MEMORY_PERCENT
MEMORY, SHARED, COUNT, RDMA = Role.MEMORY, Role.SHARES, Role.COUNT, Role.NIC
# What is summed over a pod; and what Koordinator's webhook looks at.
_PARTS: Final = (GPU, CORE, MEMORY, RATIO, SHARED, COUNT, RDMA)
_OF_GPUS: Final = frozenset((GPU, CORE, MEMORY, RATIO, SHARED))


class KoordinatorOptions(Options, frozen=True, kw_only=True):
    """How Koordinator is set up."""

    # Its mutating webhook rewrites every app container (feature DisableDeviceResourceSpec off, the default).
    webhook: bool = True
    # A share of a NIC becomes one whole NIC, since NIC drivers know no shares.
    whole_nic_for_share: bool = msgspec.field(name="wholeNICForShare", default=False)
    # `cpu` or `hugepages-SIZE`: the kind of device as which claims ask for it, where a pod wants it of one NUMA node
    # (docs/configuration.md#cpus-and-huge-pages-by-claim).
    host_resources: dict[str, str] = {}
    # Label of a device, as hints select it: the text attribute as which it is published, such as example.com/model.
    device_labels: dict[str, str] = {}

    def mistakes(self) -> Iterable[Finding]:
        for label, attribute in self.device_labels.items():
            if wrong := fully_qualified_name(attribute):
                path = f"/deviceLabels/{escape(label)}"
                yield mistake(path, f"attribute {attribute!r} {wrong}", "write it as example.com/model")

    def of_host(self) -> Mapping[str, str]:
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
_OPERATORS = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}  # of label selectors: with values?
_SHOWN = 40  # letters of what a user wrote


class PodRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's amounts and annotations, summed and parsed."""

    containers: tuple[ContainerAmounts, ...]
    sums: Mapping[Role, int]  # without what is nothing
    keys: Mapping[Role, str]
    joint: JointAllocate | None
    hints: Mapping[str, DeviceHint]
    partition: PartitionSpec | None
    topology: TopologySpec | None
    binding: ResourceSpec | None
    names: Mapping[Role, str]  # of the annotations
    host: Mapping[str, int]
    options: KoordinatorOptions

    def key(self, *parts: Role) -> str:
        """The key on the pod that stands for the first of these parts that it names."""
        return next(self.keys[part] for part in parts if part in self.keys)

    def hint(self, device_type: str) -> DeviceHint:
        """What the pod requests of devices of a type; nothing is an empty hint."""
        return self.hints.get(device_type, _NO_HINT)


def parse(request: DialectRequest[KoordinatorOptions]) -> PodRequest | Refusal | Untranslated:
    """Sum up and parse, unless the pod cannot be served, or Koordinator could not read its annotations."""
    hints = request.hints
    for container in request.containers:
        for amount in container.amounts:
            if amount.row.outcome is Outcome.LEFT and amount.value:
                return Untranslated(amount.key, amount.row.because)
    selected = hints.get(Role.MODELS)
    if selected is not None:
        vendor = selected.text.lower()
        # "not …" is how a selector that shuts some out is written.
        shuts_out_others = selected.text.startswith("not ") and "nvidia" not in vendor
        if vendor not in ("", "nvidia") and not shuts_out_others:
            text = f"the pod is for GPUs of {show(selected.text)}, which no target describes"
            return Untranslated(selected.key, text)
    designated = hints.get(Role.MODE)
    if designated is not None:
        return Untranslated(designated.key, designated.row.because)
    found: dict[Role, Any] = {}
    for role, type_ in _ANNOTATIONS.items():
        hint = hints.get(role)
        if hint is None:
            continue
        try:
            found[role] = msgspec.json.decode(hint.text, type=type_)
        except RecursionError:
            return _malformed(hint, "it is nested too deeply")
        except (msgspec.MsgspecError, ValueError) as error:
            return _malformed(hint, str(error))
    return PodRequest(
        containers=request.containers,
        sums=total(request.containers, webhook=request.options.webhook),
        keys={amount.row.role: amount.key for container in request.containers for amount in container.amounts},
        joint=found.get(Role.JOINT),
        hints=found.get(Role.HINT, {}),
        partition=found.get(Role.PARTITION),
        topology=found.get(Role.NUMA_BIND),
        binding=found.get(Role.CPUS),
        names={role: hint.key for role, hint in hints.items()},
        host=request.host,
        options=request.options,
    )


def _malformed(hint: Hint, why: str) -> Refusal:
    """Koordinator finds pods with malformed annotations unschedulable."""
    return Refusal(hint.key, f"is malformed: {why}", "correct the JSON")


def select(request: PodRequest, device_type: str) -> tuple[Selection, ...] | Refusal | Untranslated:
    """Read the label selectors on devices of a type as requirements on the attributes that their labels are declared to be."""
    hint, key = request.hint(device_type), request.names.get(Role.HINT, "")
    found: list[Selection] = []
    for selector in (hint.selector, hint.vf_selector):
        if selector is None:
            continue
        found += [Selection(label, "In", (value,)) for label, value in selector.match_labels.items()]
        for expression in selector.match_expressions:
            if expression.operator not in _OPERATORS or bool(expression.values) != _OPERATORS[expression.operator]:
                problem = f"is malformed: operator {show(expression.operator)!r} with {len(expression.values)} values"
                return Refusal(key, problem, "write In or NotIn with values, or Exists or DoesNotExist without")
            found.append(Selection(expression.key, expression.operator, expression.values))
    attributes = request.options.device_labels
    for label, _, _ in found:
        if label not in attributes:
            reason = f"slices have attributes and no labels, and none is declared for label {show(label)}"
            return Untranslated(key, f"{reason}: an administrator can declare it under `koordinator.deviceLabels`")
    return tuple([selection._replace(key=attributes[selection.key]) for selection in found])


def total(containers: tuple[ContainerAmounts, ...], *, webhook: bool) -> dict[Role, int]:
    """Add up the pod: the larger of what lasts together and what each init container takes beside the sidecars."""
    lasting: Counter[Role] = Counter()
    most: Counter[Role] = Counter()
    for container in containers:
        amounts = {part: amount.value for part in _PARTS if (amount := container.amount_of(part)) is not None}
        if webhook and not container.init:
            amounts = _after_webhook(amounts)
        if not container.ordinary_init:
            lasting.update(amounts)
            continue
        for part, value in amounts.items():
            most[part] = max(most[part], lasting[part] + value)
    return {part: value for part, value in (lasting | most).items() if value}


def _after_webhook(amounts: dict[Role, int]) -> dict[Role, int]:
    """What an app container asks for after Koordinator's mutating webhook."""
    if not amounts.keys() & _OF_GPUS:
        return amounts
    found = {**amounts}
    both = found.get(GPU)
    # Beside other numbers `gpu` stays, and that combination is not accepted.
    if both is not None and found.get(CORE, both) == both == found.get(RATIO, both):
        del found[GPU]
        found[CORE] = found[RATIO] = both
    if SHARED not in found:
        basis = found.get(RATIO, found.get(CORE, 0))
        several = basis > 100 and basis % 100 == 0
        found[SHARED] = basis // 100 if several else 1
    return found


def show(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
