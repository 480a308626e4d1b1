"""Koordinator's vocabulary: every key that it knows on a pod, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from webhook.dialects.table import Action, Dialect, Position, Role, Row, Scope, Unit

if TYPE_CHECKING:
    from collections.abc import Mapping

APPROXIMATED, LEFT = Action.APPROXIMATED, Action.LEFT
PERCENT, JSON, TEXT = Unit.PERCENT, Unit.JSON, Unit.TEXT
ANNOTATION, LABEL, NODE_SELECTOR = Position.ANNOTATION, Position.LABEL, Position.NODE_SELECTOR


def _rows(meanings: Mapping[str, str], **alike: Any) -> tuple[Row, ...]:
    """Rows that differ in name and meaning alone."""
    return tuple(Row(name=name, meaning=meaning, **alike) for name, meaning in meanings.items())


_AMOUNTS = (
    Row(
        name="koordinator.sh/gpu",
        unit=PERCENT,
        role=Role.COMBINED,
        meaning="compute and memory of GPUs alike; 100 is one GPU",
    ),
    Row(
        name="koordinator.sh/gpu-core",
        unit=PERCENT,
        role=Role.CORES,
        meaning="compute, for the pod as a whole; never without a memory key",
    ),
    Row(
        name="koordinator.sh/gpu-memory",
        unit=Unit.BYTES,
        role=Role.MEMORY,
        meaning="device memory, for the pod as a whole",
    ),
    Row(
        name="koordinator.sh/gpu-memory-ratio",
        unit=PERCENT,
        role=Role.MEMORY_PERCENT,
        meaning="device memory relative to one GPU, for the pod as a whole",
        because="resolved by the sizes of the GPUs in the fleet, or by the declared `models`",
    ),
    Row(name="koordinator.sh/gpu.shared", role=Role.SHARES, meaning="how many GPUs the sums are spread over"),
    Row(
        name="koordinator.sh/rdma",
        unit=PERCENT,
        role=Role.NIC,
        meaning="RDMA network devices; 100 is one",
        because="shares of one (below 100) are shares of its bandwidth where the driver gives such, a virtual function where `vfSelector` asks for one; else they are left (`koordinator.wholeNICForShare`)",
    ),
    Row(
        name="koordinator.sh/fpga",
        unit=PERCENT,
        role=Role.POLICY,
        action=LEFT,
        meaning="FPGAs; 100 is one",
        because="no DRA driver for FPGAs is known",
    ),
    *_rows(
        {
            "huawei.com/npu-core": "cores of an Ascend NPU",
            "huawei.com/npu-cpu": "CPUs of an Ascend NPU",
            "huawei.com/npu-dvpp": "DVPP units of an Ascend NPU",
        },
        role=Role.POLICY,
        action=LEFT,
        because="no DRA driver serves parts of an NPU by that name",
    ),
    Row(name="nvidia.com/gpu", role=Role.COUNT, common=True, meaning="whole GPUs through Koordinator"),
    *_rows(
        {
            "amd.com/gpu": "AMD GPUs through Koordinator",
            "dcu.com/gpu": "Hygon DCUs through Koordinator",
            "metax-tech.com/sgpu": "shares of MetaX GPUs through Koordinator",
        },
        role=Role.POLICY,
        action=LEFT,
        common=True,
        because="Koordinator gives out the devices of another vendor, which no target here stands for",
    ),
)

# Names from before 1.0 (apis/extension/deprecated.go): the scheduler still reads them as those above.
_OLD = tuple(
    Row(
        name=f"kubernetes.io/{name}",
        unit=unit,
        role=role,
        action=LEFT,
        meaning=f"koordinator.sh/{name}, as it was called before Koordinator 1.0",
        because=f"it is a name from before Koordinator 1.0: ask by koordinator.sh/{name}",
    )
    for name, unit, role in (
        ("gpu", PERCENT, Role.COMBINED),
        ("gpu-core", PERCENT, Role.CORES),
        ("gpu-memory", Unit.BYTES, Role.MEMORY),
        ("gpu-memory-ratio", PERCENT, Role.MEMORY_PERCENT),
        ("rdma", PERCENT, Role.NIC),
        ("fpga", PERCENT, Role.POLICY),
    )
)

_GROUPS = tuple(
    Row(
        name=name,
        place=place,
        unit=TEXT,
        role=Role.SCHEDULED,
        action=LEFT,
        meaning=meaning,
        because="only Koordinator keeps it: the pod keeps its scheduler",
    )
    for name, place, meaning in (
        ("gang.scheduling.koordinator.sh/name", ANNOTATION, "membership of a gang"),
        ("scheduling.koordinator.sh/reservation-affinity", ANNOTATION, "reserved resources that the pod has to use"),
        ("pod-group.scheduling.sigs.k8s.io", LABEL, "membership of a gang"),
        ("quota.scheduling.koordinator.sh/name", LABEL, "the quota tree that counts the pod"),
    )
)

_WISHES = (
    Row(
        name="scheduling.koordinator.sh/device-joint-allocate",
        place=ANNOTATION,
        unit=JSON,
        role=Role.JOINT,
        action=APPROXIMATED,
        meaning="GPU and RDMA devices under one PCIe switch (requiredScope SamePCIe), or as near as can be",
        because="pairs are stricter than Koordinator's comparison of sets; without a scope only the bridge places them near each other",
    ),
    Row(
        name="scheduling.koordinator.sh/device-allocate-hint",
        place=ANNOTATION,
        unit=JSON,
        role=Role.HINT,
        action=APPROXIMATED,
        meaning="by device type: ApplyForAll, RequestsAsCount, vfSelector, requiredTopologyScope",
        because="ApplyForAll fails if one matching device is taken; label selectors are left; of scopes PCIe and NUMANode hold, of several whole GPUs",
    ),
    Row(
        name="scheduling.koordinator.sh/gpu-partition-spec",
        place=ANNOTATION,
        unit=JSON,
        role=Role.PARTITION,
        action=APPROXIMATED,
        meaning="whole GPUs only as a partition of the node's NVLink table",
        because="where the driver publishes partitions; ringBusBandwidth is left",
    ),
    Row(
        name="scheduling.koordinator.sh/numa-topology-spec",
        place=ANNOTATION,
        unit=JSON,
        role=Role.NUMA_BIND,
        action=APPROXIMATED,
        meaning="all that the pod asks for on one NUMA node (numaTopologyPolicy SingleNUMANode), or as near as can be",
        because="SingleNUMANode holds for devices, and for CPUs and huge pages, where `koordinator.hostResources` has claims made for them; else it is lost",
    ),
    Row(
        name="scheduling.koordinator.sh/resource-spec",
        place=ANNOTATION,
        unit=JSON,
        role=Role.CPUS,
        action=APPROXIMATED,
        meaning="how the CPUs of the pod are to be bound (requiredCPUBindPolicy)",
        because="a required policy has a claim made for the pod's CPUs with `koordinator.hostResources`; how they are bound is the driver's",
    ),
    Row(
        name="koordinator.sh/gpu-isolation-provider",
        place=LABEL,
        unit=TEXT,
        meaning="HAMi-core: shares are enforced",
        because="the target enforces shares",
    ),
)

_OUTPUTS = (
    *_rows(
        {
            "scheduling.koordinator.sh/gpu-minors": "an output",
            "scheduling.koordinator.sh/bind-timestamp": "an output",
        },
        place=ANNOTATION,
        unit=TEXT,
        role=Role.PLACED,
        action=LEFT,
        because="written by Koordinator's scheduler: the pod has been placed already and stays as it is",
    ),
    Row(
        name="scheduling.koordinator.sh/device-allocated",
        place=ANNOTATION,
        unit=JSON,
        role=Role.MODE,
        action=LEFT,
        meaning="an output; written by a user, a designated allocation",
        because="it names devices past every scheduler",
    ),
)

_NODES = (
    Row(
        name="node.koordinator.sh/gpu-vendor",
        place=NODE_SELECTOR,
        unit=TEXT,
        role=Role.MODELS,
        action=LEFT,
        meaning="vendor of the node's GPUs",
        because="stays where it is; for another vendor than nvidia the whole pod stays",
    ),
    *_rows(
        {
            "node.koordinator.sh/gpu-model": "model of the node's GPUs",
            "node.koordinator.sh/gpu-driver-version": "driver version of the node's GPUs",
        },
        place=NODE_SELECTOR,
        unit=TEXT,
        action=LEFT,
        because="stays where it is: node selectors keep their meaning beside claims",
    ),
)

DIALECT = Dialect(
    name="koordinator",
    title="Koordinator",
    scope=Scope.POD,
    target="vgpu",
    seen_by_all=True,
    system=True,
    schedulers=("koord-scheduler",),
    keys=(*_AMOUNTS, *_OLD, *_GROUPS, *_WISHES, *_OUTPUTS, *_NODES),
)
