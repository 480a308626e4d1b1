"""Koordinator's vocabulary: every key that it knows on a pod, and what becomes of it."""

from webhook.dialects.table import Dialect, Outcome, Position, Role, Scope, Unit, left, node_label, placed, row

APPROXIMATED = Outcome.APPROXIMATED
PERCENT, JSON = Unit.PERCENT, Unit.JSON
ANNOTATION, LABEL = Position.ANNOTATION, Position.LABEL


_NPU = "no DRA driver serves parts of an NPU by that name"
_OTHER_VENDOR = "Koordinator allocates devices of another vendor, which no target describes"
_AMOUNTS = (
    row("koordinator.sh/gpu", "compute and memory of GPUs; 100 is one GPU", Role.COMBINED),
    row("koordinator.sh/gpu-core", "compute, for the pod as a whole; never without a memory key", Role.CORES),
    row("koordinator.sh/gpu-memory", "device memory, for the pod as a whole", Role.MEMORY, unit=Unit.BYTES),
    row(
        "koordinator.sh/gpu-memory-ratio",
        "device memory relative to one GPU, for the pod as a whole",
        Role.MEMORY_PERCENT,
        because="resolved by the sizes of the GPUs in the fleet, or by the declared `models`",
    ),
    row("koordinator.sh/gpu.shared", "how many GPUs the sums are spread over", Role.SHARES),
    row(
        "koordinator.sh/rdma",
        "RDMA network devices; 100 is one",
        Role.NIC,
        unit=PERCENT,
        because="shares of one (below 100) are shares of its bandwidth where the driver gives such, a virtual function where `vfSelector` asks for one; else they are left (`koordinator.wholeNICForShare`)",
    ),
    left(
        "koordinator.sh/fpga", "FPGAs; 100 is one", "no DRA driver for FPGAs is known", role=Role.POLICY, unit=PERCENT
    ),
    left("huawei.com/npu-core", "cores of an Ascend NPU", _NPU, role=Role.POLICY),
    left("huawei.com/npu-cpu", "CPUs of an Ascend NPU", _NPU, role=Role.POLICY),
    left("huawei.com/npu-dvpp", "DVPP units of an Ascend NPU", _NPU, role=Role.POLICY),
    row("nvidia.com/gpu", "whole GPUs through Koordinator", Role.COUNT, common=True),
    *(
        left(name, f"{devices} through Koordinator", _OTHER_VENDOR, role=Role.POLICY, common=True)
        for name, devices in (
            ("amd.com/gpu", "AMD GPUs"),
            ("dcu.com/gpu", "Hygon DCUs"),
            ("metax-tech.com/sgpu", "shares of MetaX GPUs"),
        )
    ),
)

# Names from before 1.0 (apis/extension/deprecated.go): the scheduler still reads them as those above.
_OLD = tuple(
    left(
        f"kubernetes.io/{name}",
        f"koordinator.sh/{name}, as it was called before Koordinator 1.0",
        f"it is a name from before Koordinator 1.0: use koordinator.sh/{name}",
        role=role,
        unit=unit,
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

_NAME = "Koordinator"
_GROUPS = tuple(
    left(name, meaning, f"only {keeper} keeps it: the pod keeps its scheduler", place, role=Role.SCHEDULED)
    for name, place, meaning, keeper in (
        ("gang.scheduling.koordinator.sh/name", ANNOTATION, "membership of a gang", _NAME),
        (
            "scheduling.koordinator.sh/reservation-affinity",
            ANNOTATION,
            "reserved resources that the pod has to use",
            _NAME,
        ),
        ("pod-group.scheduling.sigs.k8s.io", LABEL, "membership of a gang", "a coscheduling scheduler"),
        ("quota.scheduling.koordinator.sh/name", LABEL, "the quota tree that counts the pod", _NAME),
    )
)

_WISHES = (
    row(
        "scheduling.koordinator.sh/device-joint-allocate",
        "GPU and RDMA devices under one PCIe switch (requiredScope SamePCIe), or as near as can be",
        Role.JOINT,
        ANNOTATION,
        outcome=APPROXIMATED,
        because="pairs are stricter than Koordinator's comparison of sets; without a scope only the bridge places them near each other",
    ),
    row(
        "scheduling.koordinator.sh/device-allocate-hint",
        "by device type: selector, vfSelector, ApplyForAll, RequestsAsCount, requiredTopologyScope",
        Role.HINT,
        ANNOTATION,
        outcome=APPROXIMATED,
        because="ApplyForAll fails if one matching device is taken; label selectors by the attributes of `koordinator.deviceLabels`, else left; of scopes PCIe and NUMANode hold, of several whole GPUs",
    ),
    row(
        "scheduling.koordinator.sh/gpu-partition-spec",
        "whole GPUs only as a partition of the node's NVLink table",
        Role.PARTITION,
        ANNOTATION,
        outcome=APPROXIMATED,
        because="where the driver publishes partitions; ringBusBandwidth is left",
    ),
    row(
        "scheduling.koordinator.sh/numa-topology-spec",
        "all that the pod asks for on one NUMA node (numaTopologyPolicy SingleNUMANode), or as near as can be",
        Role.NUMA_BIND,
        ANNOTATION,
        unit=JSON,
        outcome=APPROXIMATED,
        because="SingleNUMANode holds for devices, and for CPUs and huge pages, where `koordinator.hostResources` has claims made for them; else it is lost",
    ),
    row(
        "scheduling.koordinator.sh/resource-spec",
        "how the CPUs of the pod are to be bound (requiredCPUBindPolicy)",
        Role.CPUS,
        ANNOTATION,
        outcome=APPROXIMATED,
        because="a required policy has a claim made for the pod's CPUs with `koordinator.hostResources`; how they are bound is the driver's",
    ),
    row(
        "koordinator.sh/gpu-isolation-provider",
        "HAMi-core: shares are enforced",
        place=LABEL,
        because="the target enforces shares",
    ),
)

_SCHEDULER = "Koordinator's scheduler"
_OUTPUTS = (
    placed("scheduling.koordinator.sh/gpu-minors", _SCHEDULER),
    placed("scheduling.koordinator.sh/bind-timestamp", _SCHEDULER),
    left(
        "scheduling.koordinator.sh/device-allocated",
        "an output; written by a user, a designated allocation",
        "it names devices and bypasses every scheduler",
        ANNOTATION,
        role=Role.MODE,
        unit=JSON,
    ),
)

_NODES = (
    left(
        "node.koordinator.sh/gpu-vendor",
        "vendor of the node's GPUs",
        "stays where it is; for another vendor than nvidia the whole pod stays",
        Position.NODE_SELECTOR,
        role=Role.MODELS,
    ),
    node_label("node.koordinator.sh/gpu-model", "model of the node's GPUs"),
    node_label("node.koordinator.sh/gpu-driver-version", "driver version of the node's GPUs"),
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
