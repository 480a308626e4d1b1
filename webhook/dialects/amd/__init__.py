"""AMD's device plugin: whole GPUs, or partitions of them.

`amd.com/gpu: 1` is a GPU or a partition, depending on the setup of the node; with naming strategy `mixed`, partitions have names of their
own. The keys are those in the folder docs of ROCm/k8s-device-plugin; the targets follow ROCm/k8s-gpu-dra-driver. That driver has one class for
GPUs and partitions, and publishes the attributes `type` and `partitionProfile` to distinguish them. It allocates no other parts of a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects.table import Dialect, Outcome, Position, Role, Unit, node_label, row, untranslated
from webhook.dialects.targets import PCIE_ROOT, Target
from webhook.dialects.vocabulary import (
    BareKey,
    Demand,
    DialectOptions,
    Meaning,
    Vocabulary,
    count_of,
    leave,
    read_each,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.dialects.vocabulary import Amount, DialectRequest, KeyAnswer, Selected

_PARTITION = "amd.com/compute-memory-partition"
_WHOLE = "spx"  # compute mode in which a GPU is one device
_MODES = ("spx", "dpx", "tpx", "qpx", "cpx")
# The labels `amd.com/gpu.<part>` that AMD's node labeller sets.
_LABEL_PARTS = (
    "vram",
    "cu-count",
    "simd-count",
    "device-id",
    "family",
    "product-name",
    "driver-version",
    "driver-src-version",
    "firmware",
)

DIALECT = Dialect(
    name="amd",
    title="AMD device plugin",
    target="amdGpu",
    independent=True,
    keys=(
        row(
            "amd.com/gpu",
            "GPUs or partitions; the pod's node selectors, `meanings` or most nodes show which",
            Role.COUNT,
            common=True,
        ),
        *(
            row(f"amd.com/{mode}_<memory>", f"partitions of compute mode {mode} (naming strategy mixed)", Role.PROFILE)
            for mode in _MODES
        ),
        *(
            untranslated(
                f"amd.com/{name}",
                text,
                "AMD's driver allocates whole devices: a part of one has no counterpart",
                role=role,
            )
            for name, text, role in (
                ("gpumem", "MiB of each GPU (HAMi)", Role.MEMORY),
                ("gpucores", "percent of each GPU's compute (HAMi)", Role.CORES),
            )
        ),
        *(
            untranslated(
                f"amd.com/{name}",
                "which GPUs HAMi may choose for the pod",
                "HAMi chooses among AMD's GPUs, and nothing else reads these annotations",
                Position.ANNOTATION,
                role=Role.OPT_OUT,  # a pod with this annotation stays with HAMi
                unit=Unit.LIST,
            )
            for name in ("use-gputype", "nouse-gputype", "use-gpu-uuid", "nouse-gpu-uuid")
        ),
        *(
            node_label(name, "a property of the node's GPUs")
            for name in (
                _PARTITION,
                "amd.com/compute-partitioning-supported",
                "amd.com/memory-partitioning-supported",
                *(f"amd.com/gpu.{part}" for part in _LABEL_PARTS),
                "beta.amd.com/gpu.<part>",
            )
        ),
    ),
)


def ask(amount: Amount, request: DialectRequest[DialectOptions]) -> KeyAnswer:
    key, row = amount.key, amount.row
    profile = key.partition("/")[2] if row.role is Role.PROFILE else request.unit.profile
    target = "amdPartition" if profile else "amdGpu"
    demand = Demand(target=target, count=amount.value, profile=profile)
    text = f"{count_of(amount.value, 'partition')} {profile}" if profile else count_of(amount.value, "whole GPU")
    return demand, Outcome.TRANSLATED, text


def read_part(text: str) -> Meaning | None:
    """Return the meaning `partition:<profile>` that an administrator declared; None for other texts."""
    if not text.startswith("partition:"):
        return None
    profile = text.removeprefix("partition:")
    return Meaning(profile=profile) if profile.partition("_")[0] in _MODES else None


def read_selected(selected: Selected) -> Meaning | None:
    """Return what a unit is on nodes with the compute modes that the pod selects; None if it is no partition."""
    modes: set[str] = set()
    for term in (selected.always, *selected.terms):
        for key, operator, values in term:
            if key == _PARTITION and operator == "In":
                modes.update(values)
    if all(mode.startswith(_WHOLE) for mode in modes):
        return None
    shown = f"the pod selects {_PARTITION}={' or '.join(sorted(modes)[:4])}"
    if len(modes) == 1:
        return Meaning(profile=modes.pop(), basis=shown)
    return Meaning(left=leave("", f"a unit may be a partition, because {shown}"))


def partition_label(labels: Mapping[str, str]) -> str:
    """Return the label by which a node shows that its units are partitions; "" if none does."""
    mode = labels.get(_PARTITION, "")
    return f"{_PARTITION}={mode}" if mode and not mode.startswith(_WHOLE) else ""


VOCABULARY = Vocabulary(
    table=DIALECT,
    targets=(
        Target(
            name="amdGpu",
            title="whole AMD GPU",
            driver="gpu.amd.com",
            classes=("gpu.amd.com",),
            type="amdgpu",
            where={"type": "amdgpu"},
            unique="gpu.amd.com/deviceID",
            product="gpu.amd.com/productName",
            profile="partitionProfile",
            attributes=(PCIE_ROOT, "gpu.amd.com/productName"),
        ),
        Target(
            name="amdPartition",
            title="partition of an AMD GPU",
            driver="gpu.amd.com",
            classes=("gpu.amd.com",),
            type="amdgpu-partition",
            product="gpu.amd.com/productName",
            profile="partitionProfile",
            attributes=(PCIE_ROOT,),
            request="partition",
        ),
    ),
    read=lambda request: read_each(request, ask),
    options=DialectOptions,
    bare=BareKey(
        choices="whole, partition:<profile>",
        declared_part=read_part,
        selected_meaning=read_selected,
        sharing_label=partition_label,
        parts=True,
    ),
)
