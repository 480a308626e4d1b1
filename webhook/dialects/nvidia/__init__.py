"""The NVIDIA device plugin: whole GPUs, time-sliced and MPS replicas, MIG devices; and GFD's node labels.

`nvidia.com/gpu: 1` is a GPU, a replica or a MIG device, depending on the setup of the node, and the pod does not show which.
`webhook.translate.owner` decides which it is before this reader runs, by the pod's node selectors and the labels of nodes (`BareKey`). Rows follow
NVIDIA/k8s-device-plugin: api/config/v1, internal/rm, cmd/mps-control-daemon, docs/gpu-feature-discovery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects.nvidia.gfd import profile_of, read_selected, sharing_label
from webhook.dialects.table import Dialect, Outcome, Position, Role, Unit, node_label, row, untranslated
from webhook.dialects.targets import NUMA_NODE, PCIE_ROOT, Target
from webhook.dialects.vocabulary import BareKey, Demand, DialectOptions, Meaning, Vocabulary, count_of, leave, read_each
from webhook.names import CONFIGURATION_PAGE

if TYPE_CHECKING:
    from dra.reason import Reason
    from webhook.dialects.vocabulary import Amount, DialectRequest, KeyAnswer


DIALECT = Dialect(
    name="nvidia",
    title="NVIDIA device plugin",
    keys=(
        row(
            "nvidia.com/gpu",
            "GPUs, replicas or MIG devices; the pod's node selectors, `meanings` or most nodes show which",
            Role.COUNT,
            common=True,
        ),
        row(
            "nvidia.com/gpu.shared",
            "replicas of a time-sliced or MPS-shared GPU",
            Role.SHARES,
            outcome=Outcome.APPROXIMATED,
            because="each replica becomes one unit of the driver's `shares` capacity, without limits, as under time-slicing. The key stays unless `nvidia.consumableShares` is declared. It also stays if the pod selects nodes with MPS, which limits a replica",
        ),
        row("nvidia.com/mig-<profile>", "MIG devices of a profile (strategy mixed)", Role.PROFILE),
        untranslated(
            "nvidia.com/mig-<profile>.shared",
            "time-sliced replicas of a MIG device",
            "replicas of MIG devices have no counterpart unless the driver publishes shares for them",
            role=Role.PROFILE,
        ),
        untranslated(
            "nvidia.com/pgpu",
            "GPUs that the sandbox device plugin passes to virtual machines (vfio-pci)",
            "a GPU for a virtual machine: DRA drivers serve containers only, and its device plugin keeps serving it",
        ),
        untranslated(
            "NVIDIA_VISIBLE_DEVICES",
            "without a request: every GPU of the node, bypassing all accounting",
            "a user's value is kept; claims use CDI and do not read it",
            Position.ENV,
            unit=Unit.LIST,
        ),
        untranslated(
            "NVIDIA_IMEX_CHANNELS",
            "IMEX channels of the node, which the container runtime adds",
            "not a request: with claims, a ComputeDomain's template gives a pod its channel",
            Position.ENV,
            unit=Unit.LIST,
        ),
        untranslated(
            "NVIDIA_MIG_CONFIG_DEVICES", "a setting of the container toolkit", "it requests nothing", Position.ENV
        ),
        untranslated(
            "NVIDIA_DRIVER_CAPABILITIES", "a setting of the container toolkit", "it requests nothing", Position.ENV
        ),
        untranslated(
            "cloud.google.com/gke-gpu-sharing-strategy",
            "the node's GPUs are shared: nvidia.com/gpu is a replica",
            "a claim cannot request a replica of a shared device; the container stays as it is",
            Position.NODE_SELECTOR,
            role=Role.MODE,
        ),
        row(
            "cloud.google.com/gke-gpu-partition-size",
            "nvidia.com/gpu is a MIG device of this profile",
            Role.PROFILE,
            Position.NODE_SELECTOR,
            because="the selector stays on the pod too",
        ),
        *(
            untranslated(
                f"nvidia.com/{driver}-driver-upgrade-drain.skip",
                f"the {operator} operator does not evict the pod when it upgrades the node's driver",
                "stays where it is: it requests nothing",
                Position.LABEL,
            )
            for driver, operator in (("gpu", "GPU"), ("ofed", "network"))
        ),
        node_label(
            "nvidia.com/gpu.product",
            "product name with hyphens for blanks; -SHARED and -MIG-<profile> say what nvidia.com/gpu is",
            Role.MODELS,
        ),
        node_label("nvidia.com/gpu.sharing-strategy", "none, mps or time-slicing", Role.POLICY),
        *(
            node_label(name, text)
            for name, text in (
                ("nvidia.com/gpu.present", "the node has a GPU"),
                ("nvidia.com/gpu.deploy.<part>", "whether the GPU operator runs a component on the node"),
                ("nvidia.com/gpu.memory", "MiB of each GPU"),
                ("nvidia.com/gpu.count", "GPUs of the node"),
                ("nvidia.com/gpu.replicas", "sharing factor"),
                ("nvidia.com/gpu.family", "architecture"),
                ("nvidia.com/gpu.compute.<part>", "compute capability"),
                ("nvidia.com/gpu.machine", "machine type"),
                ("nvidia.com/gpu.clique", "NVLink clique: the scope of a ComputeDomain"),
                ("nvidia.com/gpu.mode", "graphics, compute or unknown"),
                ("nvidia.com/gpu.multiprocessors", "of a MIG device (strategy single)"),
                ("nvidia.com/gpu.slices.<part>", "of a MIG device (strategy single)"),
                ("nvidia.com/gpu.engines.<part>", "of a MIG device (strategy single)"),
                ("nvidia.com/cuda.<part>", "driver and runtime versions"),
                ("nvidia.com/mig.capable", "the node can do MIG"),
                ("nvidia.com/mig.strategy", "none, single or mixed"),
                ("nvidia.com/mig.config", "name of the node's mig-parted configuration"),
                ("nvidia.com/mig-<profile>", "properties of the node's MIG devices"),
                ("nvidia.com/mps.capable", "the node can do MPS"),
                ("nvidia.com/vgpu.<part>", "the node is a vGPU guest"),
                ("nvidia.com/device-plugin.config", "which configuration the node's plugin runs"),
                ("cloud.google.com/gke-accelerator", "accelerator of the node pool"),
                ("cloud.google.com/gke-accelerator-count", "accelerators of a node of the pool"),
                ("cloud.google.com/gke-gpu-driver-version", "which NVIDIA driver the node pool installs"),
                ("cloud.google.com/gke-max-shared-clients-per-gpu", "sharing factor of the node pool"),
            )
        ),
    ),
)


class NvidiaOptions(DialectOptions, frozen=True, kw_only=True):
    """How the NVIDIA DRA driver is set up."""

    # Whether the driver publishes the capacity `shares` (ConsumableShares in integer mode) with as many units as the plugin had replicas.
    consumable_shares: bool = False


def ask(amount: Amount, request: DialectRequest[NvidiaOptions]) -> KeyAnswer | Reason:
    role, unit, count = amount.row.role, request.unit, amount.value
    profile = profile_of(amount.part) if role is Role.PROFILE else unit.profile
    if role is Role.PROFILE and not profile:
        return leave(amount.key, f"{amount.part!r} is not a MIG profile that a device plugin offers")
    if role is not Role.PROFILE and (role is Role.SHARES or unit.replica):
        if reason := _no_replica(count, request):
            return leave(amount.key, f"{unit.basis}: {reason}" if unit.basis else reason)
        text = "one unit of `shares` of one GPU; no limits, as under time-slicing"
        return Demand(target="gpu", shares=1), Outcome.APPROXIMATED, text
    if profile:
        text = f"{count_of(count, 'MIG device')} of profile {profile}"
        return Demand(target="mig", count=count, profile=profile), Outcome.TRANSLATED, text
    return Demand(target="gpu", count=count), Outcome.TRANSLATED, count_of(count, "whole GPU")


def _no_replica(count: int, request: DialectRequest[NvidiaOptions]) -> str:
    """Return why a request for replicas stays; "" if a unit of the driver's `shares` can replace it."""
    if not request.options.consumable_shares:
        return f"a claim cannot request a replica of a shared device; if the driver publishes shares, an administrator can declare `nvidia: {{consumableShares: true}}` ({CONFIGURATION_PAGE})"
    for role in (Role.MODE, Role.POLICY):
        hint = request.hints.get(role)
        if hint is not None and "mps" in hint.text.split(", "):
            return f"selector {hint.key}={hint.text} asks for MPS, whose limits a unit of `shares` does not have, and the driver refuses MPS together with shares"
    if count > 1:
        return f"{count} replicas give no more compute than one, and need not be on one GPU: ask for 1"
    return ""


def read_part(text: str) -> Meaning | None:
    if text == "shared":
        return Meaning(replica=True)
    profile = profile_of(text.removeprefix("mig:")) if text.startswith("mig:") else ""
    return Meaning(profile=profile) if profile else None


VOCABULARY = Vocabulary(
    table=DIALECT,
    targets=(
        Target(
            name="gpu",
            title="whole GPU",
            driver="gpu.nvidia.com",
            classes=("gpu.nvidia.com",),
            type="gpu",
            unique="gpu.nvidia.com/uuid",
            product="gpu.nvidia.com/productName",
            attributes=(PCIE_ROOT, NUMA_NODE, "gpu.nvidia.com/uuid", "gpu.nvidia.com/productName"),
            instead="vgpu",
            vendor="NVIDIA",
        ),
        Target(
            name="mig",
            title="MIG device",
            driver="gpu.nvidia.com",
            classes=("mig.nvidia.com",),
            type="mig",
            product="gpu.nvidia.com/productName",
            attributes=(PCIE_ROOT, NUMA_NODE, "gpu.nvidia.com/productName", "gpu.nvidia.com/profile"),
            request="mig",
            vendor="NVIDIA",
        ),
    ),
    read=lambda request: read_each(request, ask),
    options=NvidiaOptions,
    bare=BareKey(
        choices="whole, shared, mig:<profile>",
        declared_part=read_part,
        selected_meaning=read_selected,
        sharing_label=sharing_label,
    ),
)
