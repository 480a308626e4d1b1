"""Koordinator's keys, and what becomes of each."""

from webhook.dialects.table import Dialect, Outcome, Position, Role, Scope, Unit, node_label, placed, row, untranslated

APPROXIMATED = Outcome.APPROXIMATED
PERCENT, JSON = Unit.PERCENT, Unit.JSON
ANNOTATION, LABEL = Position.ANNOTATION, Position.LABEL


_NPU = "no DRA driver serves parts of an NPU by that name"
_OTHER_VENDOR = "Koordinator allocates devices of another vendor, which no target describes"
_AMOUNTS = (
    row("koordinator.sh/gpu", "compute and memory of GPUs; 100 is one GPU", Role.COMBINED),
    row("koordinator.sh/gpu-core", "compute, for the pod as a whole; refused without a memory key", Role.CORES),
    row("koordinator.sh/gpu-memory", "device memory, for the pod as a whole", Role.MEMORY, unit=Unit.BYTES),
    row(
        "koordinator.sh/gpu-memory-ratio",
        "device memory relative to one GPU, for the pod as a whole",
        Role.MEMORY_PERCENT,
        because="computed from the sizes of the GPUs in the fleet, or from the declared `models`",
    ),
    row(
        "koordinator.sh/gpu.shared",
        "the number of GPUs over which the pod's compute and memory are spread",
        Role.SHARES,
    ),
    row(
        "koordinator.sh/rdma",
        "RDMA network devices; 100 is one",
        Role.NIC,
        unit=PERCENT,
        because="a value below 100 becomes a virtual function if `vfSelector` selects one, or a whole device if `koordinator.wholeNICForShare` is set. Otherwise it becomes a share of the bandwidth; if the driver publishes no shares, the pod stays as it is",
    ),
    untranslated(
        "koordinator.sh/fpga", "FPGAs; 100 is one", "no DRA driver for FPGAs is known", role=Role.POLICY, unit=PERCENT
    ),
    untranslated("huawei.com/npu-core", "cores of an Ascend NPU", _NPU, role=Role.POLICY),
    untranslated("huawei.com/npu-cpu", "CPUs of an Ascend NPU", _NPU, role=Role.POLICY),
    untranslated("huawei.com/npu-dvpp", "DVPP units of an Ascend NPU", _NPU, role=Role.POLICY),
    row("nvidia.com/gpu", "whole GPUs through Koordinator", Role.COUNT, common=True),
    *(
        untranslated(name, f"{devices} through Koordinator", _OTHER_VENDOR, role=Role.POLICY, common=True)
        for name, devices in (
            ("amd.com/gpu", "AMD GPUs"),
            ("dcu.com/gpu", "Hygon DCUs"),
            ("metax-tech.com/sgpu", "shares of MetaX GPUs"),
        )
    ),
)

# Names from before Koordinator 1.0 (apis/extension/deprecated.go), which its scheduler still reads.
_OLD = tuple(
    untranslated(
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
    untranslated(name, meaning, f"only {keeper} implements it: the pod keeps its scheduler", place, role=Role.SCHEDULED)
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
        "GPU and RDMA devices under one PCIe switch (requiredScope SamePCIe), or as near as possible",
        Role.JOINT,
        ANNOTATION,
        outcome=APPROXIMATED,
        because="each pair gets one PCIe root, while Koordinator compares the sets of roots, which is less strict; without a scope, only the bridge places the devices near each other",
    ),
    row(
        "scheduling.koordinator.sh/device-allocate-hint",
        "by device type: selector, vfSelector, ApplyForAll, RequestsAsCount, requiredTopologyScope",
        Role.HINT,
        ANNOTATION,
        outcome=APPROXIMATED,
        because="a claim for ApplyForAll gets no device while a matching device is in use; label selectors need `koordinator.deviceLabels`, otherwise the pod stays as it is; scopes PCIe and NUMANode apply to several whole GPUs",
    ),
    row(
        "scheduling.koordinator.sh/gpu-partition-spec",
        "whole GPUs only as a partition of the node's NVLink table",
        Role.PARTITION,
        ANNOTATION,
        outcome=APPROXIMATED,
        because="the pod stays as it is unless the driver publishes partitions; it also stays if the annotation has ringBusBandwidth",
    ),
    row(
        "scheduling.koordinator.sh/numa-topology-spec",
        "all that the pod requests on one NUMA node (numaTopologyPolicy SingleNUMANode), or as near as possible",
        Role.NUMA_BIND,
        ANNOTATION,
        unit=JSON,
        outcome=APPROXIMATED,
        because="SingleNUMANode applies to the devices, and with `koordinator.hostResources` to CPUs and huge pages, too; Restricted is lost: a claim cannot require the fewest NUMA nodes",
    ),
    row(
        "scheduling.koordinator.sh/resource-spec",
        "how the pod's CPUs are bound (requiredCPUBindPolicy)",
        Role.CPUS,
        ANNOTATION,
        outcome=APPROXIMATED,
        because="with `koordinator.hostResources`, a required policy becomes a claim for the pod's CPUs, and the driver decides how they are bound",
    ),
    row(
        "koordinator.sh/gpu-isolation-provider",
        "HAMi-core: shares are enforced",
        place=LABEL,
        because="the driver of the claim enforces shares, too",
    ),
)

_SCHEDULER = "Koordinator's scheduler"
_OUTPUTS = (
    placed("scheduling.koordinator.sh/gpu-minors", _SCHEDULER),
    placed("scheduling.koordinator.sh/bind-timestamp", _SCHEDULER),
    untranslated(
        "scheduling.koordinator.sh/device-allocated",
        "an output; if a user writes it, a designated allocation",
        "it names devices and bypasses every scheduler",
        ANNOTATION,
        role=Role.MODE,
        unit=JSON,
    ),
)

_NODES = (
    untranslated(
        "node.koordinator.sh/gpu-vendor",
        "vendor of the node's GPUs",
        "stays on the pod; for another vendor than nvidia the whole pod stays as it is",
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
