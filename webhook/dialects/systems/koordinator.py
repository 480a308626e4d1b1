"""Koordinator: percentages and bytes for the pod as a whole, spread over a number of GPUs that all its containers see.

First what Koordinator's webhook does to each app container (`gpu` becomes core and memory ratio, a missing `gpu.shared`
is filled in), then the sum over the pod, then the table of accepted combinations, then the division by the summed
`gpu.shared`. A pod that has been through that webhook and one that has not come out the same. Rows and arithmetic follow
koordinator-sh/koordinator: apis/extension/device_share.go, pkg/webhook/pod/mutating/device_resource_spec.go,
pkg/scheduler/plugins/deviceshare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from dra.quantity import MAX
from dra.wire import Json
from webhook.dialects.demand import AUTO, MIB, Answer, Demand, Keyed, Left, Note, Pairs, Refusal, Together, kinds
from webhook.dialects.table import Action, Dialect, Position, Role, Row, Scheduler, Scope, Unit
from webhook.dialects.targets import NUMA_NODE, PCIE_ROOT
from webhook.dialects.vocabulary import Vocabulary
from webhook.dialects.words import Options

if TYPE_CHECKING:
    from webhook.dialects.words import Amount, Hint, Said, Words

T = TypeVar("T")

_SHARED = "koordinator.sh/gpu.shared"
_PLACED = "written by Koordinator's scheduler: the pod has been placed already and stays as it is"

DIALECT = Dialect(
    name="koordinator",
    title="Koordinator",
    scope=Scope.POD,
    target="vgpu",
    seen_by_all=True,
    system=True,
    schedulers=("koord-scheduler",),
    keys=(
        Row(
            name="koordinator.sh/gpu",
            unit=Unit.PERCENT,
            meaning="compute and memory of GPUs alike; 100 is one GPU",
            role=Role.COMBINED,
        ),
        Row(
            name="koordinator.sh/gpu-core",
            unit=Unit.PERCENT,
            meaning="compute, for the pod as a whole; never without a memory key",
            role=Role.CORES,
        ),
        Row(
            name="koordinator.sh/gpu-memory",
            unit=Unit.BYTES,
            meaning="device memory, for the pod as a whole",
            role=Role.MEMORY,
        ),
        Row(
            name="koordinator.sh/gpu-memory-ratio",
            unit=Unit.PERCENT,
            meaning="device memory relative to one GPU, for the pod as a whole",
            role=Role.MEMORY_PERCENT,
            because="resolved by the sizes of the GPUs in the fleet, or by the declared `models`",
        ),
        Row(name=_SHARED, meaning="how many GPUs the sums are spread over", role=Role.SHARES),
        Row(
            name="koordinator.sh/rdma",
            unit=Unit.PERCENT,
            meaning="RDMA network devices; 100 is one",
            role=Role.NIC,
            because="shares of one (below 100) are shares of its bandwidth where the driver gives such, a virtual function where `vfSelector` asks for one; else they are left (`koordinator.wholeNICForShare`)",
        ),
        Row(
            name="koordinator.sh/fpga",
            unit=Unit.PERCENT,
            meaning="FPGAs; 100 is one",
            role=Role.POLICY,
            action=Action.LEFT,
            because="no DRA driver for FPGAs is known",
        ),
        *(
            Row(
                name=name,
                meaning=text,
                role=Role.POLICY,
                action=Action.LEFT,
                because="no DRA driver serves parts of an NPU by that name",
            )
            for name, text in (
                ("huawei.com/npu-core", "cores of an Ascend NPU"),
                ("huawei.com/npu-cpu", "CPUs of an Ascend NPU"),
                ("huawei.com/npu-dvpp", "DVPP units of an Ascend NPU"),
            )
        ),
        Row(name="nvidia.com/gpu", meaning="whole GPUs through Koordinator", role=Role.COUNT, common=True),
        *(
            Row(
                name=name,
                meaning=f"{what} through Koordinator",
                role=Role.POLICY,
                action=Action.LEFT,
                because="Koordinator gives out the devices of another vendor, which no target here stands for",
                common=True,
            )
            for name, what in (
                ("amd.com/gpu", "AMD GPUs"),
                ("dcu.com/gpu", "Hygon DCUs"),
                ("metax-tech.com/sgpu", "shares of MetaX GPUs"),
            )
        ),
        *(
            Row(
                name=name,
                place=place,
                unit=Unit.TEXT,
                meaning=text,
                role=Role.SCHEDULED,
                action=Action.LEFT,
                because="only Koordinator keeps it: the pod keeps its scheduler",
            )
            for name, place, text in (
                ("gang.scheduling.koordinator.sh/name", Position.ANNOTATION, "membership of a gang"),
                ("pod-group.scheduling.sigs.k8s.io", Position.LABEL, "membership of a gang"),
                ("quota.scheduling.koordinator.sh/name", Position.LABEL, "the quota tree that counts the pod"),
            )
        ),
        Row(
            name="scheduling.koordinator.sh/device-joint-allocate",
            place=Position.ANNOTATION,
            unit=Unit.JSON,
            meaning="GPU and RDMA devices under one PCIe switch (requiredScope SamePCIe), or as near as can be",
            role=Role.JOINT,
            action=Action.APPROXIMATED,
            because="pairs are stricter than Koordinator's comparison of sets; without a scope only the bridge places them near each other",
        ),
        Row(
            name="scheduling.koordinator.sh/device-allocate-hint",
            place=Position.ANNOTATION,
            unit=Unit.JSON,
            meaning="by device type: ApplyForAll, RequestsAsCount, vfSelector, requiredTopologyScope",
            role=Role.HINT,
            action=Action.APPROXIMATED,
            because="ApplyForAll fails if one matching device is taken; label selectors are left; of scopes PCIe and NUMANode hold, of several whole GPUs",
        ),
        Row(
            name="scheduling.koordinator.sh/gpu-partition-spec",
            place=Position.ANNOTATION,
            unit=Unit.JSON,
            meaning="whole GPUs only as a partition of the node's NVLink table",
            role=Role.PARTITION,
            action=Action.APPROXIMATED,
            because="where the driver publishes partitions; ringBusBandwidth is left",
        ),
        Row(
            name="scheduling.koordinator.sh/numa-topology-spec",
            place=Position.ANNOTATION,
            unit=Unit.JSON,
            meaning="all that the pod asks for on one NUMA node (numaTopologyPolicy SingleNUMANode), or as near as can be",
            role=Role.NUMA_BIND,
            action=Action.APPROXIMATED,
            because="SingleNUMANode holds for devices, and for CPUs and huge pages, where `koordinator.hostResources` has claims made for them; else it is lost",
        ),
        Row(
            name="scheduling.koordinator.sh/resource-spec",
            place=Position.ANNOTATION,
            unit=Unit.JSON,
            meaning="how the CPUs of the pod are to be bound (requiredCPUBindPolicy)",
            role=Role.CPUS,
            action=Action.APPROXIMATED,
            because="a required policy has a claim made for the pod's CPUs with `koordinator.hostResources`; how they are bound is the driver's",
        ),
        Row(
            name="koordinator.sh/gpu-isolation-provider",
            place=Position.LABEL,
            unit=Unit.TEXT,
            meaning="HAMi-core: shares are enforced",
            action=Action.TRANSLATED,
            because="the target enforces shares",
        ),
        *(
            Row(
                name=name,
                place=Position.ANNOTATION,
                unit=Unit.TEXT,
                meaning="an output",
                role=Role.PLACED,
                action=Action.LEFT,
                because=_PLACED,
            )
            for name in ("scheduling.koordinator.sh/gpu-minors", "scheduling.koordinator.sh/bind-timestamp")
        ),
        Row(
            name="scheduling.koordinator.sh/device-allocated",
            place=Position.ANNOTATION,
            unit=Unit.JSON,
            meaning="an output; written by a user, a designated allocation",
            role=Role.MODE,
            action=Action.LEFT,
            because="it names devices past every scheduler",
        ),
        Row(
            name="node.koordinator.sh/gpu-vendor",
            place=Position.NODE_SELECTOR,
            unit=Unit.TEXT,
            meaning="vendor of the node's GPUs",
            role=Role.MODELS,
            action=Action.LEFT,
            because="stays where it is; for another vendor than nvidia the whole pod stays",
        ),
        *(
            Row(
                name=name,
                place=Position.NODE_SELECTOR,
                unit=Unit.TEXT,
                meaning=text,
                action=Action.LEFT,
                because="stays where it is: node selectors keep their meaning beside claims",
            )
            for name, text in (
                ("node.koordinator.sh/gpu-model", "model of the node's GPUs"),
                ("node.koordinator.sh/gpu-driver-version", "driver version of the node's GPUs"),
            )
        ),
    ),
)


# What the scheduler accepts for GPUs, zeros dropped; anything else is unschedulable for good.
_ACCEPTED = frozenset(
    frozenset(keys.split())
    for keys in (
        "",
        "count",
        "gpu",
        "memory",
        "ratio",
        "core memory",
        "core ratio",
        "shared memory",
        "shared ratio",
        "shared core memory",
        "shared core ratio",
    )
)
_ROLES = {
    "gpu": Role.COMBINED,
    "core": Role.CORES,
    "memory": Role.MEMORY,
    "ratio": Role.MEMORY_PERCENT,
    "shared": Role.SHARES,
    "count": Role.COUNT,
    "rdma": Role.NIC,
}
_GPU_KEYS = frozenset(_ROLES) - {"rdma", "count"}


class KoordinatorOptions(Options, frozen=True, kw_only=True):
    """How Koordinator is set up."""

    # Its mutating webhook rewrites every app container (feature DisableDeviceResourceSpec off, the default).
    webhook: bool = True
    # A share of a NIC becomes one whole NIC, since NIC drivers know no shares.
    whole_nic_for_share: bool = msgspec.field(name="wholeNICForShare", default=False)
    # Claims are made for these resources of pods that ask for them of one NUMA node: cpu or hugepages-SIZE, each with its kind of device.
    host_resources: dict[str, str] = {}

    def of_host(self) -> Mapping[str, str]:
        """Name the resources that claims are made for."""
        return self.host_resources


class JointAllocate(msgspec.Struct, frozen=True, rename="camel"):
    """The device-joint-allocate annotation."""

    device_types: tuple[str, ...] = ()
    required_scope: str = ""


class DeviceHint(msgspec.Struct, frozen=True, rename="camel"):
    """One device type's entry of the device-allocate-hint annotation."""

    selector: dict[str, Json] | None = None
    vf_selector: dict[str, Json] | None = msgspec.field(name="vfSelector", default=None)
    allocate_strategy: str = ""
    required_topology_scope: str = ""
    exclusive_policy: str = ""


_NO_HINT = DeviceHint()
_TYPES = 4  # of hints without a request that are named


class PartitionSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The gpu-partition-spec annotation."""

    allocate_policy: str = ""
    ring_bus_bandwidth: Json = None


class TopologySpec(msgspec.Struct, frozen=True):
    """The numa-topology-spec annotation."""

    policy: str = msgspec.field(name="numaTopologyPolicy", default="")


class ResourceSpec(msgspec.Struct, frozen=True):
    """The resource-spec annotation."""

    required: str = msgspec.field(name="requiredCPUBindPolicy", default="")


class _Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's words, summed and parsed."""

    sums: Mapping[str, int]
    keys: Mapping[Role, str]
    joint: JointAllocate | None = None
    hints: Mapping[str, DeviceHint] = {}
    partition: PartitionSpec | None = None
    topology: TopologySpec | None = None
    binding: ResourceSpec | None = None
    host: Mapping[str, int] = {}
    names: Mapping[Role, str] = {}  # of the annotations
    options: KoordinatorOptions

    def key(self, *names: str) -> str:
        """The key on the pod that stands for the first of these parts that it asks for."""
        return next(self.keys[_ROLES[name]] for name in names if _ROLES[name] in self.keys)

    def hint(self, device_type: str) -> DeviceHint:
        """What the pod says about devices of a type; nothing is an empty hint."""
        return self.hints.get(device_type, _NO_HINT)


def read(words: Words[KoordinatorOptions]) -> Answer:
    """Read a pod as Koordinator would."""
    try:
        pod = _parse(words)
        return _answer(pod, words.said)
    except _StopError as stop:
        return stop.answer


class _StopError(Exception):
    """Inside this module only: the pod is refused or left, and the rest of it does not matter."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


def _refuse(key: str, reason: str, remedy: str = "") -> _StopError:
    return _StopError(Answer(refusals=(Refusal(key, reason, remedy),)))


def _leave(key: str, reason: str) -> _StopError:
    return _StopError(Answer(left=Left(key, reason)))


def _parse(words: Words[KoordinatorOptions]) -> _Pod:
    said = words.said
    hints = words.hints
    keys: dict[Role, str] = {}
    for one in said:
        for amount in one.amounts:
            row = amount.row
            if row.action is Action.LEFT and amount.value:
                raise _leave(amount.key, row.because)
            keys[row.role] = amount.key
    vendor = hints.get(Role.MODELS)
    other = vendor is not None and vendor.text.lower() not in ("", "nvidia") and not _shuts_out_others(vendor.text)
    if vendor and other:
        raise _leave(vendor.key, f"the pod is for GPUs of {_show(vendor.text)}, which no target here stands for")
    if designated := hints.get(Role.MODE):
        raise _leave(designated.key, designated.row.because)
    return _Pod(
        sums=total(said, webhook=words.options.webhook),
        keys=keys,
        joint=_json(hints.get(Role.JOINT), JointAllocate),
        hints=_json(hints.get(Role.HINT), dict[str, DeviceHint]) or {},
        partition=_json(hints.get(Role.PARTITION), PartitionSpec),
        topology=_json(hints.get(Role.NUMA_BIND), TopologySpec),
        binding=_json(hints.get(Role.CPUS), ResourceSpec),
        host=words.host,
        names={role: hint.key for role, hint in hints.items()},
        options=words.options,
    )


def _shuts_out_others(vendor: str) -> bool:
    return vendor.startswith("not ") and "nvidia" not in vendor.lower()


def _json(hint: Hint | None, type_: type[T]) -> T | None:
    """Read an annotation; Koordinator finds pods with malformed ones unschedulable."""
    if hint is None:
        return None
    try:
        return msgspec.json.decode(hint.text, type=type_)
    except RecursionError as error:
        raise _refuse(hint.key, "is malformed: it is nested too deeply", "mend the JSON") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise _refuse(hint.key, f"is malformed: {error}", "mend the JSON") from error


def total(said: tuple[Said, ...], *, webhook: bool) -> dict[str, int]:
    """Add up the pod: the larger of what lasts together and what each init container takes beside the sidecars."""
    lasting: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for one in said:
        rewritten = webhook and not one.init
        values = _amounts_after_webhook(one) if rewritten else _amounts(one)
        if not one.ordinary_init:
            lasting.update(values)
            continue
        for name, value in values.items():
            beside = lasting[name] + value
            most[name] = max(most[name], beside)
    sums: dict[str, int] = {}
    for name in (*lasting, *most):
        value = max(lasting[name], most[name])
        if value:
            sums[name] = value
    return sums


def _amounts(one: Said) -> dict[str, int]:
    """What a container asks for, by part."""
    values = {}
    for name, role in _ROLES.items():
        amount = one.of(role)
        if amount is not None:
            values[name] = amount.value
    return values


def _amounts_after_webhook(one: Said) -> dict[str, int]:
    """What an app container asks for after Koordinator's mutating webhook."""
    values = _amounts(one)
    if not values.keys() & _GPU_KEYS:
        return values
    combined = values.get("gpu")
    # Beside other numbers `gpu` stays, and that combination is not accepted.
    if combined is not None and values.get("core", combined) == combined == values.get("ratio", combined):
        del values["gpu"]
        values["core"] = values["ratio"] = combined
    if "shared" not in values:
        basis = values.get("ratio", values.get("core", 0))
        several = basis > 100 and basis % 100 == 0
        values["shared"] = basis // 100 if several else 1
    return values


def _answer(pod: _Pod, said: tuple[Said, ...]) -> Answer:
    gpu, notes = _gpu(pod)
    nic, nic_notes = _nic(pod)
    demands, joint_notes = _together(pod, gpu, nic)
    demands, host_notes = _with_host(pod, demands)
    notes += nic_notes
    notes += joint_notes
    notes += host_notes
    notes += _notes_of_annotations(pod, gpu)
    notes += _notes_of_hints(pod, gpu, nic)
    told = {note.key for note in notes}
    for one in said:
        for amount in one.amounts:
            if amount.key not in told:
                told.add(amount.key)
                part = _part_of_sum(pod, amount)
                notes.append(Note(amount.key, Action.TRANSLATED, part))
    return Answer(demands=tuple(demands), notes=tuple(notes))


def _part_of_sum(pod: _Pod, amount: Amount) -> str:
    name = next((name for name, role in _ROLES.items() if role is amount.row.role), "")
    return f"{pod.sums[name]} in the whole pod" if name in pod.sums else "part of the pod's sum"


def _notes_of_annotations(pod: _Pod, gpu: Demand | None) -> list[Note]:
    """What becomes of the annotations about GPUs alone."""
    notes = []
    if pod.partition is not None:
        key = pod.names[Role.PARTITION]
        if gpu is None or gpu.partial:
            notes.append(Note(key, Action.IGNORED, "it concerns whole GPUs only"))
        else:
            text = "the GPUs are one partition as the driver publishes it, of any score"
            notes.append(Note(key, Action.APPROXIMATED, text))
    return notes


_SAME = frozenset(("", "PCIeLevel"))  # policies that change nothing in Koordinator


def _notes_of_hints(pod: _Pod, gpu: Demand | None, nic: Demand | None) -> list[Note]:
    """What becomes of each word of the hints, so that none is lost without being named."""
    held: list[str] = []
    lost: list[str] = []
    others: list[str] = []
    for name, hint in pod.hints.items():
        if name == "gpu" and gpu is not None:
            _weigh_gpu_hint(pod, hint, gpu, held, lost)
        elif name == "rdma" and nic is not None:
            _weigh_nic_hint(pod, hint, held)
        else:
            others.append(_show(name))
    if others:
        held.append(f"nothing is asked for of type {', '.join(others[:_TYPES])}")
    if not held and not lost:
        return []
    action = Action.APPROXIMATED if lost else Action.TRANSLATED
    return [Note(pod.names[Role.HINT], action, "; ".join((*lost, *held)))]


def _weigh_gpu_hint(pod: _Pod, hint: DeviceHint, gpu: Demand, held: list[str], lost: list[str]) -> None:
    scope = hint.required_topology_scope
    if scope:
        tied = gpu.same and pod.partition is None
        if tied or gpu.count == 1 or scope == "Node":
            held.append(f"gpu.requiredTopologyScope {_show(scope)} holds")
        else:
            lost.append(f"gpu.requiredTopologyScope {_show(scope)} is lost")
    if gpu.partial and hint.exclusive_policy == "DeviceLevel":
        lost.append("gpu.exclusivePolicy is lost: others may share the GPU")
    else:
        held += _for_whole("gpu", hint)
    if hint.allocate_strategy:
        held.append("gpu.allocateStrategy has no effect, as in Koordinator")


def _weigh_nic_hint(pod: _Pod, hint: DeviceHint, held: list[str]) -> None:
    if hint.vf_selector is not None:
        held.append("rdma.vfSelector: virtual functions only")
    held += _for_whole("rdma", hint)
    value = pod.sums["rdma"]
    if hint.allocate_strategy and value > 100 and value % 100 == 0:
        held.append("rdma.allocateStrategy has no effect on whole devices, as in Koordinator")
    if hint.required_topology_scope:
        held.append("rdma.requiredTopologyScope has no effect, as in Koordinator")


def _for_whole(kind: str, hint: DeviceHint) -> list[str]:
    """Say what an exclusive policy comes to for devices that nobody shares."""
    policy = hint.exclusive_policy
    if not policy:
        return []
    if policy == "DeviceLevel":
        return [f"{kind}.exclusivePolicy holds: the devices are whole"]
    return [f"{kind}.exclusivePolicy {_show(policy)} has no effect, as in Koordinator"]


# GPUs


def _gpu(pod: _Pod) -> tuple[Demand | None, list[Note]]:
    """Check the combination, find how many GPUs, and what each of them has of the sums."""
    sums = {name: value for name, value in pod.sums.items() if name != "rdma"}
    if not sums:
        return None, []
    key = pod.key("gpu", "count", "ratio", "memory", "core", "shared")
    if pod.hint("gpu").selector:
        raise _leave(
            pod.names[Role.HINT], "label selectors on GPUs have no counterpart: slices have attributes, and no labels"
        )
    if frozenset(sums) not in _ACCEPTED:
        have = sorted(pod.keys[_ROLES[name]] for name in sums if _ROLES[name] in pod.keys)
        listed = ", ".join(have) or key
        missing = ""
        if sums.keys() <= {"core", "shared"}:
            missing = "; gpu-core needs gpu-memory or gpu-memory-ratio"
        raise _refuse(key, f"Koordinator does not accept this combination in one pod: {listed}{missing}")
    if "count" in sums:
        return _whole_gpus(pod, sums["count"], pod.key("count"))
    if "gpu" in sums:  # not rewritten: init containers, or the webhook is off
        both = sums.pop("gpu")
        sums["core"] = sums["ratio"] = both

    count = _count(sums, key)
    core = _percent_of_each(sums.get("core", 0), count, key)
    ratio = _percent_of_each(sums.get("ratio", 0), count, key)
    memory = sums.get("memory", 0) // count
    if ratio == 100:
        return _whole_gpus(pod, count, key)
    notes: list[Note] = []
    if not core:
        notes.append(Note(key, Action.APPROXIMATED, "no compute share is asked for: cores 0, unreserved"))
    notes.append(_told(key, count, ratio, memory))
    demand = Demand(
        target="vgpu",
        count=count,
        memory=memory or None,
        memory_percent=ratio or None,
        cores=core,
    )
    return _tie(pod, demand), notes


def _told(key: str, count: int, ratio: int, memory: int) -> Note:
    """Say how much of each GPU's memory is asked for, and what is lost."""
    if ratio:
        text = f"{count} x {ratio} % of a GPU's memory, by the sizes in the fleet"
        return Note(key, Action.APPROXIMATED, text)
    whole, rest = divmod(memory, MIB)
    if rest:
        return Note(key, Action.APPROXIMATED, f"{count} x {memory} bytes, which the driver rounds up to MiB")
    return Note(key, Action.TRANSLATED, f"{count} x {whole} MiB of a GPU's memory")


def _count(sums: Mapping[str, int], key: str) -> int:
    """How many GPUs the sums are spread over."""
    shared = sums.get("shared", 0)
    if shared:
        return shared
    for name in ("core", "ratio"):
        value = sums.get(name, 0)
        if value > 100 and value % 100:
            raise _refuse(key, f"{value} is above 100 and not a multiple of it", "ask for whole GPUs")
    ratio = sums.get("ratio", 0)
    return ratio // 100 if ratio > 100 else 1


def _percent_of_each(value: int, count: int, key: str) -> int:
    """What each GPU has of a sum."""
    each, rest = divmod(value, count)
    if rest:
        raise _refuse(key, f"{value} % in the whole pod can't be divided by {count} GPUs", "make the sum divisible")
    if each > 100:
        raise _refuse(key, f"{each} % of one GPU is more than there is", "write multiples of 100")
    return each


def _tie(pod: _Pod, gpu: Demand) -> Demand:
    """Add what must hold between the GPUs themselves: a partition, or a topology scope."""
    scope = pod.hint("gpu").required_topology_scope
    if gpu.partial:
        if scope not in ("", "Node") and gpu.count > 1:
            problem = f"several shared GPUs can't be held to scope {_show(scope)}"
            raise _refuse(pod.names[Role.HINT], problem)
        return gpu
    if pod.partition is not None:
        key = pod.names[Role.PARTITION]
        if pod.partition.ring_bus_bandwidth is not None:
            raise _leave(key, "ringBusBandwidth is a hard filter that no driver publishes")
        if gpu.count not in (1, 2, 4, 8):
            raise _leave(key, f"no driver publishes partitions of {gpu.count} GPUs: ask for 1, 2, 4 or 8")
        return msgspec.structs.replace(gpu, same=f"gpu.nvidia.com/partition{gpu.count}")
    tie = _SCOPES.get(scope, "") if gpu.count > 1 else ""
    return msgspec.structs.replace(gpu, same=tie)


_SCOPES = {"NUMANode": NUMA_NODE, "PCIe": PCIE_ROOT}


def _show(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


# Network devices


def _whole_gpus(pod: _Pod, count: int, key: str) -> tuple[Demand, list[Note]]:
    plural = "s" if count > 1 else ""
    text = f"{count} whole GPU{plural} that all containers see"
    demand = Demand(target="gpu", count=count)
    return _tie(pod, demand), [Note(key, Action.TRANSLATED, text)]


def _nic(pod: _Pod) -> tuple[Demand | None, list[Note]]:
    """RDMA devices: 100 is one, unless the hint says otherwise."""
    value = pod.sums.get("rdma", 0)
    if not value:
        return None, []
    key, hint = pod.key("rdma"), pod.hint("rdma")
    strategy = hint.allocate_strategy
    if hint.selector or hint.vf_selector:
        raise _leave(
            pod.names[Role.HINT],
            "label selectors on network devices have no counterpart: slices have attributes, and no labels",
        )
    virtual = hint.vf_selector is not None
    nic = Demand(target="nic", virtual_function=virtual, rdma=True)
    whole, rest = divmod(value, 100)
    several = whole > 1 and not rest
    if several or (value == 100 and not strategy):
        plural = "s" if whole > 1 else ""
        text = f"{whole} network device{plural}, whole"
        return nic.times(whole), [Note(key, Action.TRANSLATED, text)]
    if strategy == "ApplyForAll":
        text = "all matching devices of the node, whole: fails if one of them is taken"
        every = msgspec.structs.replace(nic, everything=True)
        return every, [Note(pod.names[Role.HINT], Action.APPROXIMATED, text)]
    if strategy == "RequestsAsCount":
        action = Action.APPROXIMATED
        if hint.exclusive_policy == "DeviceLevel":
            action = Action.TRANSLATED
        plural = "s" if value > 1 else ""
        text = f"{value} network device{plural}, whole"
        return nic.times(value), [Note(key, action, text)]
    if value > 100:
        raise _refuse(key, f"{value} is above 100 and not a multiple of it", "ask for whole devices")
    if virtual:
        text = f"{value} % of a network device becomes one virtual function, with as much of it as the driver gives one"
        return nic, [Note(key, Action.APPROXIMATED, text)]
    if pod.options.whole_nic_for_share:
        text = f"{value} % of a network device becomes a whole one"
        return nic, [Note(key, Action.APPROXIMATED, text)]
    share = msgspec.structs.replace(nic, bandwidth_percent=value)
    return share, [Note(key, Action.TRANSLATED, f"{value} % of a network device, of its bandwidth")]


# Both


def _together(pod: _Pod, gpu: Demand | None, nic: Demand | None) -> tuple[list[Keyed], list[Note]]:
    """Put GPUs and network devices together where the pod asks for it."""
    apart: list[Keyed] = []
    if gpu:
        key = pod.key("ratio", "gpu", "count", "memory", "core", "shared")
        apart.append(Keyed(key, gpu))
    if nic:
        key = pod.key("rdma")
        apart.append(Keyed(key, nic))
    joint = pod.joint
    if joint is None:
        return apart, []
    annotation = pod.names[Role.JOINT]
    both = {"gpu", "rdma"}.issubset(joint.device_types)
    if gpu is None or nic is None or not both:
        text = "without effect: it takes requests of both types"
        return apart, [Note(annotation, Action.IGNORED, text)]
    if nic.everything:
        if joint.required_scope:
            reason = "ApplyForAll and a required scope can't both be held"
            raise _leave(annotation, reason)
        text = "ApplyForAll takes the network devices out of it"
        return apart, [Note(annotation, Action.IGNORED, text)]
    if joint.required_scope != "SamePCIe":
        text = "no scope is required: placing them near each other is lost"
        return apart, [Note(annotation, Action.APPROXIMATED, text, about=Role.JOINT)]
    if gpu.same:
        reason = f"can't be held together with a tie on {gpu.same}"
        raise _leave(annotation, reason)
    pairs, text = _pairs(gpu, nic, annotation)
    asked = Keyed(apart[0].key, pairs, (apart[1].key,))
    return [asked], [Note(annotation, Action.APPROXIMATED, text)]


_ONE_NODE = "SingleNUMANode"
_BILLION = 10**9


def _with_host(pod: _Pod, demands: list[Keyed]) -> tuple[list[Keyed], list[Note]]:
    """Ask for the pod's own CPUs and huge pages, too, where claims are made for them and they are to be on one NUMA node, or bound."""
    one_node = pod.topology is not None and pod.topology.policy == _ONE_NODE
    host = _of_host(pod, all_of_it=one_node)
    notes = _notes_of_host(pod, host)
    demands = [*demands, *host]
    if one_node and pod.options.host_resources:
        key = pod.names[Role.NUMA_BIND]
        tied = _on_one_node(demands, key)
        demands = [tied]
    return demands, notes


def _on_one_node(every: list[Keyed], key: str) -> Keyed:
    """Tie everything to one NUMA node; a single device is on one anyway."""
    members: list[Demand | Pairs] = []
    keys: list[str] = []
    number = 0
    for one in every:
        assert not isinstance(one.demand, Together)
        members.append(one.demand)
        keys += (one.key, *one.beside)
        for kind in kinds(one.demand):
            number += kind.count
            if kind.everything:
                raise _leave(key, f"ApplyForAll and {_ONE_NODE} can't both be held")
    if number == 1:
        return every[0]
    tied = Together(members=tuple(members), attribute=NUMA_NODE)
    return Keyed(keys[0], tied, tuple(keys[1:]))


def _of_host(pod: _Pod, *, all_of_it: bool) -> list[Keyed]:
    """Find what the pod requests of the resources that claims are made for; a required policy for CPUs is about CPUs alone."""
    found: list[Keyed] = []
    bound = pod.binding is not None and bool(pod.binding.required)
    for resource, target in pod.options.host_resources.items():
        wanted = all_of_it or (bound and resource == _CPU)
        amount, part = divmod(pod.host.get(resource, 0), _BILLION)
        if not wanted or not (amount or part):
            continue
        if part or amount > MAX:
            reason = "the pod's request is not a whole number below 2^63, and claims give such"
            raise _leave(resource, reason)
        demand = Demand(target=target, memory=amount, profile=resource.removeprefix(_PAGES))
        if resource == _CPU:
            demand = Demand(target=target, cores=amount)
        found.append(Keyed(resource, demand))
    return found


_CPU = "cpu"
_PAGES = "hugepages-"


def _notes_of_host(pod: _Pod, host: list[Keyed]) -> list[Note]:
    """Say what becomes of the words about NUMA nodes and CPUs."""
    notes: list[Note] = []
    given = ", ".join([one.key for one in host])
    counted = f"{given} by claim as well; the pod's own request stays, and is what its node and its quotas count"
    remedy = "declare `koordinator.hostResources` where a driver gives CPUs out"
    if pod.topology is not None:
        key, policy = pod.names[Role.NUMA_BIND], _show(pod.topology.policy)
        if policy == _ONE_NODE and pod.options.host_resources:
            text = f"all devices on one NUMA node; {counted}" if host else "all devices on one NUMA node"
            notes.append(Note(key, Action.APPROXIMATED, text))
        elif policy == _ONE_NODE:
            notes.append(Note(key, Action.APPROXIMATED, f"{policy} is lost ({remedy})"))
        else:
            notes.append(Note(key, Action.IGNORED, f"policy {policy or 'of the node'} asks for no single NUMA node"))
    if pod.binding is not None:
        key, policy = pod.names[Role.CPUS], _show(pod.binding.required)
        if not policy:
            notes.append(Note(key, Action.IGNORED, "it requires nothing"))
        elif any(one.key == _CPU for one in host):
            notes.append(Note(key, Action.APPROXIMATED, f"{counted}; that it is {policy} is the driver's to keep"))
        else:
            notes.append(Note(key, Action.APPROXIMATED, f"{policy} is lost: CPUs stay the kubelet's ({remedy})"))
    return notes


def _pairs(gpu: Demand, nic: Demand, key: str) -> tuple[Pairs, str]:
    """Each GPU with its share of the network devices under one switch, or everything under the same one."""
    if gpu.count in (1, nic.count):
        each = nic.count // gpu.count
        text = f"{gpu.count} x (1 GPU + {each} network) under one switch each, stricter than comparing sets"
        pairs = Pairs(primary=gpu, secondary=nic.times(each), attribute=AUTO, each=each)
        return pairs, text
    if nic.count == 1:
        text = f"{gpu.count} GPUs and the network device under one switch"
        pairs = Pairs(primary=gpu, secondary=nic, attribute=AUTO, each=0)
        return pairs, text
    reason = f"{gpu.count} GPUs and {nic.count} network devices can't be held to equal sets of PCIe roots"
    raise _leave(key, f"{reason}: ask for as many of one as of the other")


VOCABULARY = Vocabulary(
    table=DIALECT,
    read=read,
    options=KoordinatorOptions,
    schedulers={"koord-scheduler": Scheduler(claims=True, prioritized_list=True)},
)
