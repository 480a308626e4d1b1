"""Koordinator: percentages and bytes for the pod as a whole, spread over a number of GPUs that all its containers see.

The steps are those of Koordinator. Its webhook changes each app container: `gpu` becomes core and memory ratio, and a missing `gpu.shared` is
filled in. Then the amounts are summed up over the pod, the combination of keys must be accepted, and the sums are divided by `gpu.shared`. A pod that
has passed Koordinator's webhook gets the same demands as one that has not. Rows and arithmetic follow koordinator-sh/koordinator:
apis/extension/device_share.go, pkg/webhook/pod/mutating/device_resource_spec.go, pkg/scheduler/plugins/deviceshare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from dra.quantity import MAX, NANO
from dra.reason import Reason
from webhook.dialects.koordinator.pod_request import (
    CORE,
    COUNT,
    GPU,
    MEMORY,
    RATIO,
    RDMA,
    SHARED,
    KoordinatorOptions,
    PodRequest,
    parse,
    select,
    shorten,
)
from webhook.dialects.koordinator.table import DIALECT
from webhook.dialects.table import Outcome, Role, SchedulerSupport
from webhook.dialects.targets import DRANET_NUMA_NODE, NUMA_NODE, PCIE_ROOT, Target
from webhook.dialects.vocabulary import (
    AUTO,
    MIB,
    Demand,
    DialectAnswer,
    KeyedDemand,
    Note,
    Pairs,
    TiedDemands,
    Vocabulary,
    count_of,
    kinds,
    leave,
    refuse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.dialects.vocabulary import DialectRequest

# The combinations of amounts above 0 that the scheduler accepts. It never schedules a pod with another combination.
ACCEPTED: Final = frozenset(
    frozenset(parts)
    for parts in (
        (COUNT,),
        (GPU,),
        (MEMORY,),
        (RATIO,),
        (CORE, MEMORY),
        (CORE, RATIO),
        (SHARED, MEMORY),
        (SHARED, RATIO),
        (SHARED, CORE, MEMORY),
        (SHARED, CORE, RATIO),
    )
)
# By topology scope: the attribute that GPUs of one scope share.
SCOPES: Final = {"NUMANode": NUMA_NODE, "PCIe": PCIE_ROOT}
ANYWHERE: Final = ("", "Node")
PARTITIONS: Final = (1, 2, 4, 8)  # GPUs of the partitions that drivers publish
BEST_SCORE: Final = "Restricted"  # the partition policy that allows only the best score; other policies only prefer it

# Policies for the NUMA nodes of a pod's devices: one node, or as few nodes as possible.
ONE_NODE: Final = "SingleNUMANode"
FEWEST_NODES: Final = "Restricted"
REQUIRED: Final = "Required"  # pods on one NUMA node and pods across several must not share a NUMA node
CPU: Final = "cpu"

_REMEDY = "if a driver allocates CPUs, an administrator can declare `koordinator.hostResources`"
_SHOWN_TYPES = 4  # the most device types that a note names, of those that have a hint but no request


class Draft(msgspec.Struct):
    """An incomplete answer: the pod's request, with the demands and notes of the steps so far."""

    request: PodRequest
    gpus: Demand | None = None
    networks: Demand | None = None
    demands: list[KeyedDemand] = []
    notes: list[Note] = []

    def note(self, key: str, outcome: Outcome, text: str, about: Role = Role.NONE) -> None:
        self.notes.append(Note(key, outcome, text, about))


def read(request: DialectRequest[KoordinatorOptions]) -> DialectAnswer | Reason:
    parsed = parse(request)
    if not isinstance(parsed, PodRequest):
        return parsed
    draft = Draft(parsed)
    for step in STEPS:
        stop = step(draft)
        if stop is not None:
            return stop
    return DialectAnswer(demands=tuple(draft.demands), notes=tuple(draft.notes))


# GPUs


def ask_gpus(draft: Draft) -> Reason | None:
    """Add the demand for GPUs: check the combination, and divide the sums by the number of GPUs."""
    request = draft.request
    sums = {part: amount for part, amount in request.sums.items() if part is not RDMA}
    if not sums:
        return None
    key = request.key(GPU, COUNT, RATIO, MEMORY, CORE, SHARED)
    selected = select(request, "gpu")
    if not isinstance(selected, tuple):
        return selected
    if frozenset(sums) not in ACCEPTED:
        listed = ", ".join(sorted(request.keys[part] for part in sums if part in request.keys)) or key
        missing = "; gpu-core needs gpu-memory or gpu-memory-ratio" if sums.keys() <= {CORE, SHARED} else ""
        return refuse(key, f"Koordinator does not accept this combination in one pod: {listed}{missing}")
    # Koordinator's webhook replaces `gpu` in app containers, so only init containers still have it. If that webhook is off, any container may.
    combined = sums.get(GPU, 0)
    core, ratio, memory = sums.get(CORE, combined), sums.get(RATIO, combined), sums.get(MEMORY, 0)
    count = sums.get(SHARED, 0)
    if COUNT in sums:
        key, count = request.key(COUNT), sums[COUNT]
        core = ratio = 100 * count
    elif not count:
        for percent in (core, ratio):
            if percent > 100 and percent % 100:
                return refuse(key, f"{percent} is above 100 and not a multiple of 100", "ask for whole GPUs")
        count = max(1, ratio // 100)
    for percent in (core, ratio):
        each, rest = divmod(percent, count)
        if rest:
            problem = f"{percent} % in the whole pod can't be divided by {count} GPUs"
            return refuse(key, problem, "make the sum divisible")
        if each > 100:
            return refuse(key, f"{each} % of one GPU is more than there is", "write multiples of 100")
    core, ratio, memory = core // count, ratio // count, memory // count
    if ratio == 100:
        gpus = Demand(target="gpu", count=count)
        draft.note(key, Outcome.TRANSLATED, f"{count_of(count, 'whole GPU')} that all containers see")
    else:
        gpus = Demand(target="vgpu", count=count, memory=memory or None, memory_percent=ratio or None, cores=core)
        if not core:
            draft.note(key, Outcome.APPROXIMATED, "no compute is requested: cores are 0, and no compute is reserved")
        if ratio:
            draft.note(
                key,
                Outcome.APPROXIMATED,
                f"{count} x {ratio} % of a GPU's memory; the sizes of the cluster's GPUs give the bytes",
            )
        elif memory % MIB:
            draft.note(key, Outcome.APPROXIMATED, f"{count} x {memory} bytes, which the driver rounds up to MiB")
        else:
            draft.note(key, Outcome.TRANSLATED, f"{count} x {memory // MIB} MiB of a GPU's memory")
    tied = _tie_gpus(request, replace(gpus, attributes=selected))
    if not isinstance(tied, Demand):
        return tied
    draft.gpus = tied
    draft.demands = [KeyedDemand(request.key(RATIO, GPU, COUNT, MEMORY, CORE, SHARED), tied)]
    return None


def _tie_gpus(request: PodRequest, gpus: Demand) -> Demand | Reason:
    """Add the constraint between the GPUs: a partition, or a topology scope."""
    scope = request.hint("gpu").required_topology_scope
    if gpus.partial:
        if scope in ANYWHERE or gpus.count == 1:
            return gpus
        return refuse(request.names[Role.HINT], f"several shared GPUs can't be restricted to scope {shorten(scope)}")
    if request.partition is None:
        tie = SCOPES.get(scope, "") if gpus.count > 1 else ""
        return replace(gpus, same_attribute=tie)
    key = request.names[Role.PARTITION]
    if request.partition.ring_bus_bandwidth is not None:
        return leave(key, "ringBusBandwidth is a hard filter, and no driver publishes this bandwidth")
    if gpus.count not in PARTITIONS:
        return leave(key, f"no driver publishes partitions of {gpus.count} GPUs: ask for 1, 2, 4 or 8")
    return replace(gpus, same_attribute=f"gpu.nvidia.com/partition{gpus.count}")


# Network devices


def ask_networks(draft: Draft) -> Reason | None:
    """Add the demand for network devices: whole devices (100 is one), else by `allocateStrategy`, else a part of one device."""
    request = draft.request
    if RDMA not in request.sums:
        return None
    value, key, hint = request.sums[RDMA], request.key(RDMA), request.hint("rdma")
    selected = select(request, "rdma")
    if not isinstance(selected, tuple):
        return selected
    strategy = hint.allocate_strategy
    virtual = hint.vf_selector is not None
    single = Demand(target="nic", virtual_function=virtual, rdma=True, attributes=selected)
    whole, rest = divmod(value, 100)
    of_one = f"{value} % of a network device"
    outcome = Outcome.APPROXIMATED
    if not rest and (whole > 1 or not strategy):
        networks, outcome, text = single.times(whole), Outcome.TRANSLATED, f"{count_of(whole, 'network device')}, whole"
    elif strategy == "ApplyForAll":
        key = request.names[Role.HINT]
        networks, text = (
            replace(single, everything=True),
            "all matching devices of the node, whole: fails if one of them is in use",
        )
    elif strategy == "RequestsAsCount":
        networks, text = single.times(value), f"{count_of(value, 'network device')}, whole"
        outcome = Outcome.TRANSLATED if hint.exclusive_policy == "DeviceLevel" else Outcome.APPROXIMATED
    elif value > 100:
        return refuse(key, f"{value} is above 100 and not a multiple of 100", "ask for whole devices")
    elif virtual:
        networks, text = single, f"{of_one} becomes one virtual function, whose bandwidth the driver decides"
    elif request.options.whole_nic_for_share:
        networks, text = single, f"{of_one} becomes a whole device"
    else:
        networks, outcome, text = (
            replace(single, bandwidth_percent=value),
            Outcome.TRANSLATED,
            f"{of_one}'s bandwidth",
        )
    draft.networks = networks
    draft.demands.append(KeyedDemand(request.key(RDMA), networks))
    draft.note(key, outcome, text)
    return None


def pair(draft: Draft) -> Reason | None:
    """Put GPUs and network devices under one PCIe switch if the pod requests that."""
    joint = draft.request.joint
    if joint is None:
        return None
    key = draft.request.names[Role.JOINT]
    gpus, networks = draft.gpus, draft.networks
    if gpus is None or networks is None or not {"gpu", "rdma"}.issubset(joint.device_types):
        draft.note(key, Outcome.TRANSLATED, "without effect: it needs requests of both types")
        return None
    if networks.everything:
        if joint.required_scope:
            return leave(key, "ApplyForAll and a required scope can't both be applied")
        draft.note(key, Outcome.TRANSLATED, "without effect: ApplyForAll takes all network devices")
        return None
    if joint.required_scope != "SamePCIe":
        text = "no scope is required, so the preference for devices near each other is lost"
        draft.note(key, Outcome.APPROXIMATED, text, Role.JOINT)
        return None
    if gpus.same_attribute:
        return leave(key, f"can't be combined with GPUs that must share {gpus.same_attribute}")
    if gpus.count in (1, networks.count):
        each = networks.count // gpus.count
        text = f"{gpus.count} x (1 GPU + {each} network) under one PCIe switch, stricter than Koordinator's comparison of sets"
        pairs = Pairs(primary=gpus, secondary=networks.times(each), attribute=AUTO, each=each)
    elif networks.count == 1:
        text = f"{gpus.count} GPUs and the network device under one PCIe switch"
        pairs = Pairs(primary=gpus, secondary=networks, attribute=AUTO, each=0)
    else:
        reason = (
            f"{gpus.count} GPUs and {networks.count} network devices can't be restricted to equal sets of PCIe roots"
        )
        return leave(key, f"{reason}: request equal numbers of both")
    primary, secondary = draft.demands
    draft.demands = [KeyedDemand(primary.key, pairs, (secondary.key,))]
    draft.note(key, Outcome.APPROXIMATED, text)
    return None


# One NUMA node


def ask_host(draft: Draft) -> Reason | None:
    """Add the demands for CPUs and huge pages of `hostResources`, if the pod requires one NUMA node or a CPU bind policy."""
    request = draft.request
    if request.topology is None and request.binding is None:
        return None
    on_one_node = request.topology is not None and request.topology.policy == ONE_NODE
    bound = request.binding is not None and request.binding.required
    claimed_resources: list[str] = []
    for resource, target in request.options.host_resources.items():
        requested = request.host.get(resource, 0)
        # A required bind policy concerns CPUs only.
        if not requested or not (on_one_node or (bound and resource == CPU)):
            continue
        amount, part = divmod(requested, NANO)
        if part or amount > MAX:
            return leave(resource, "the pod's request is not a whole number below 2^63, and claims count whole devices")
        demand = Demand(target=target, memory=amount, profile=resource.removeprefix("hugepages-"))
        if resource == CPU:
            demand = Demand(target=target, cores=amount)
        draft.demands.append(KeyedDemand(resource, demand))
        claimed_resources.append(resource)
    if draft.demands and on_one_node:
        tied = _tie_to_node(draft, request.names[Role.NUMA_BIND])
        if isinstance(tied, Reason):
            return tied
        draft.demands = tied
    claims_text = f"{', '.join(claimed_resources)} by claim as well; the pod's own request stays, and node and quotas count only this request"
    if request.topology is not None:
        key, policy = request.names[Role.NUMA_BIND], request.topology.policy
        outcome = Outcome.APPROXIMATED
        if policy == FEWEST_NODES:
            text = f"{policy} is lost: a claim can require one NUMA node, but not the fewest (if one is enough, write {ONE_NODE})"
        elif policy != ONE_NODE:
            outcome, text = (
                Outcome.TRANSLATED,
                f"policy {shorten(policy) or 'of the node'} asks for no single NUMA node",
            )
        elif not draft.demands:
            outcome, text = Outcome.TRANSLATED, "it applies to nothing that the pod requests"
        elif not request.options.host_resources and draft.networks is not None and draft.networks.everything:
            text = f"{policy} is lost: ApplyForAll takes the network devices of all NUMA nodes"
        elif not request.options.host_resources:
            text = f"all devices on one NUMA node; CPUs and memory may be on another ({_REMEDY})"
        else:
            text = f"all devices on one NUMA node{f'; {claims_text}' if claimed_resources else ''}"
        draft.note(key, outcome, text)
        if request.topology.exclusive == REQUIRED:
            draft.note(key, Outcome.APPROXIMATED, f"singleNUMANodeExclusive {REQUIRED} is lost")
    if request.binding is not None:
        key, policy = request.names[Role.CPUS], request.binding.required
        if not policy:
            draft.note(key, Outcome.TRANSLATED, "it requires nothing")
        elif CPU in claimed_resources:
            draft.note(
                key, Outcome.APPROXIMATED, f"{claims_text}; the driver decides whether the CPUs are {shorten(policy)}"
            )
        else:
            draft.note(
                key,
                Outcome.APPROXIMATED,
                f"{shorten(policy)} is lost: the kubelet keeps assigning the CPUs ({_REMEDY})",
            )
    return None


def _tie_to_node(draft: Draft, key: str) -> list[KeyedDemand] | Reason:
    """Return one demand with all devices on one NUMA node; a single device needs no constraint.

    Without `hostResources`, devices that cannot be tied remain as they are.
    """
    members: list[Demand | Pairs] = []
    keys: list[str] = []
    number = 0
    required = bool(draft.request.options.host_resources)
    for keyed_demand in draft.demands:
        assert not isinstance(keyed_demand.demand, TiedDemands)
        members.append(keyed_demand.demand)
        keys += (keyed_demand.key, *keyed_demand.other_keys)
        for kind in kinds(keyed_demand.demand):
            number += kind.count
            if kind.everything:
                reason = f"ApplyForAll and {ONE_NODE} can't both be applied"
                return leave(key, reason) if required else draft.demands
    if number == 1:
        return draft.demands
    tied = TiedDemands(members=tuple(members), attribute=NUMA_NODE, required=required)
    return [KeyedDemand(keys[0], tied, tuple(keys[1:]))]


# Keys that request no device


def note_partition(draft: Draft) -> None:
    partition = draft.request.partition
    if partition is None:
        return
    key = draft.request.names[Role.PARTITION]
    if draft.gpus is None or draft.gpus.partial:
        draft.note(key, Outcome.TRANSLATED, "it concerns whole GPUs only")
        return
    text = "the GPUs are one partition as published by the driver, of any score"
    if partition.allocate_policy == BEST_SCORE:
        text = f"{text}: {BEST_SCORE}, which takes only the best, is lost"
    draft.note(key, Outcome.APPROXIMATED, text)


def note_hints(draft: Draft) -> None:
    lost: list[str] = []
    effects: list[str] = []
    others: list[str] = []
    for name, hint in draft.request.hints.items():
        gpus = draft.gpus if name == "gpu" else None
        if gpus is None and (name != "rdma" or draft.networks is None):
            others.append(shorten(name))
            continue
        scope, exclusive = hint.required_topology_scope, hint.exclusive_policy
        demand = draft.networks if gpus is None else gpus
        if demand is not None and demand.attributes:
            effects.append(
                f"{name}: labels by attributes {', '.join(sorted({attribute.key for attribute in demand.attributes}))}"
            )
        if gpus is not None and scope:
            tied = bool(gpus.same_attribute) and draft.request.partition is None
            if tied or gpus.count == 1 or scope in ANYWHERE:
                effects.append(f"gpu.requiredTopologyScope {shorten(scope)} holds")
            else:
                lost.append(f"gpu.requiredTopologyScope {shorten(scope)} is lost")
        if gpus is None and hint.vf_selector is not None:
            effects.append("rdma.vfSelector: virtual functions only")
        if gpus is not None and gpus.partial and exclusive == "DeviceLevel":
            lost.append("gpu.exclusivePolicy is lost: others may share the GPU")
        elif exclusive == "DeviceLevel":
            effects.append(f"{name}.exclusivePolicy holds: the devices are whole")
        elif exclusive:
            effects.append(f"{name}.exclusivePolicy {shorten(exclusive)} has no effect, as in Koordinator")
        if gpus is not None and hint.allocate_strategy:
            effects.append("gpu.allocateStrategy has no effect, as in Koordinator")
        if gpus is None:
            value = draft.request.sums[RDMA]
            if hint.allocate_strategy and value > 100 and value % 100 == 0:
                effects.append("rdma.allocateStrategy has no effect on whole devices, as in Koordinator")
            if scope:
                effects.append("rdma.requiredTopologyScope has no effect, as in Koordinator")
    if others:
        effects.append(f"the pod requests nothing of type {', '.join(others[:_SHOWN_TYPES])}")
    if lost or effects:
        outcome = Outcome.APPROXIMATED if lost else Outcome.TRANSLATED
        draft.note(draft.request.names[Role.HINT], outcome, "; ".join((*lost, *effects)))


def note_amounts(draft: Draft) -> None:
    """Add a note with the pod's sum for each amount that has no note."""
    sums = draft.request.sums
    noted = {note.key for note in draft.notes}
    for container in draft.request.containers:
        for amount in container.amounts:
            if amount.key not in noted:
                noted.add(amount.key)
                part = amount.row.role
                text = f"{sums[part]} in the whole pod" if part in sums else "part of the pod's sum"
                draft.note(amount.key, Outcome.TRANSLATED, text)


# Each step adds demands and notes to the draft, or returns why the pod stays as it is or is refused.
STEPS: Final[tuple[Callable[[Draft], Reason | None], ...]] = (
    ask_gpus,
    ask_networks,
    pair,
    ask_host,
    note_partition,
    note_hints,
    note_amounts,
)


VOCABULARY = Vocabulary(
    table=DIALECT,
    targets=(
        Target(
            name="cpu",
            title="CPU",
            driver="dra.cpu",
            classes=("dra.cpu",),
            unique="dra.cpu/cpuID",
            cores="dra.cpu/cpu",
            # The driver allows a claim in only one container.
            separable=False,
            attributes=(DRANET_NUMA_NODE, "dra.cpu/numaNodeID", "dra.cpu/socketID"),
            request="cpus",
        ),
    ),
    read=read,
    options=KoordinatorOptions,
    schedulers={"koord-scheduler": SchedulerSupport(claims=True, prioritized_list=True)},
)
