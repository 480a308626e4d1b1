"""The NVIDIA device plugin: whole GPUs, time-sliced and MPS replicas, MIG devices; and GFD's node labels.

The same `nvidia.com/gpu: 1` is a GPU, a replica or a MIG device, as the node was set up, and nothing on the pod tells.
The engine settles that before the words are read (`webhook.translate.owner`), with what is said here about node selectors on
the pod and labels on nodes. Rows follow NVIDIA/k8s-device-plugin: api/config/v1, internal/rm, cmd/mps-control-daemon,
docs/gpu-feature-discovery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects.demand import Answer, Demand, Keyed, Left, Note, Refusal
from webhook.dialects.plugins.gfd import profile_of, read_selected, sharing_label
from webhook.dialects.table import Action, Dialect, Position, Role, Row, Unit
from webhook.dialects.vocabulary import Bare, Vocabulary
from webhook.dialects.words import Meaning, Options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.dialects.words import Amount, Hint, Words

_KEPT = "stays where it is: node selectors keep their meaning beside claims"

DIALECT = Dialect(
    name="nvidia",
    title="NVIDIA device plugin",
    keys=(
        Row(
            name="nvidia.com/gpu",
            meaning="devices of the plugin's pool: whole GPUs if declared, or if the cluster shows nothing else",
            role=Role.COUNT,
            common=True,
        ),
        Row(
            name="nvidia.com/gpu.shared",
            meaning="replicas of a time-sliced or MPS-shared GPU",
            role=Role.SHARES,
            action=Action.APPROXIMATED,
            because="one unit of the driver's `shares` capacity each, without limits, as under time-slicing. Left unless `nvidia.consumableShares` is declared, and where the pod selects nodes with MPS, which limits memory and compute of a replica",
        ),
        Row(
            name="nvidia.com/mig-<profile>",
            meaning="MIG devices of a profile (strategy mixed)",
            role=Role.PROFILE,
        ),
        Row(
            name="nvidia.com/mig-<profile>.shared",
            meaning="time-sliced replicas of a MIG device",
            role=Role.PROFILE,
            action=Action.LEFT,
            because="replicas of MIG devices have no counterpart unless the driver publishes shares for them",
        ),
        Row(
            name="NVIDIA_VISIBLE_DEVICES",
            place=Position.ENV,
            unit=Unit.LIST,
            meaning="without a request: every GPU of the node, past all accounting",
            action=Action.LEFT,
            because="a user's value is never dropped; claims reach containers through CDI and do not read it",
        ),
        Row(
            name="NVIDIA_MIG_CONFIG_DEVICES",
            place=Position.ENV,
            unit=Unit.TEXT,
            meaning="container toolkit knob",
            action=Action.LEFT,
            because="no request",
        ),
        Row(
            name="NVIDIA_DRIVER_CAPABILITIES",
            place=Position.ENV,
            unit=Unit.TEXT,
            meaning="container toolkit knob",
            action=Action.LEFT,
            because="no request",
        ),
        Row(
            name="cloud.google.com/gke-gpu-sharing-strategy",
            place=Position.NODE_SELECTOR,
            unit=Unit.TEXT,
            meaning="the node's GPUs are shared: nvidia.com/gpu is a replica",
            role=Role.MODE,
            action=Action.LEFT,
            because="a replica has no counterpart; the whole container stays as it is",
        ),
        Row(
            name="cloud.google.com/gke-gpu-partition-size",
            place=Position.NODE_SELECTOR,
            unit=Unit.TEXT,
            meaning="nvidia.com/gpu is a MIG device of this profile",
            role=Role.PROFILE,
            because="the selector stays on the pod too",
        ),
        Row(
            name="nvidia.com/gpu.product",
            place=Position.NODE_SELECTOR,
            unit=Unit.TEXT,
            meaning="product name with hyphens for blanks; -SHARED and -MIG-<profile> say what nvidia.com/gpu is",
            role=Role.MODELS,
            action=Action.LEFT,
            because=_KEPT,
        ),
        Row(
            name="nvidia.com/gpu.sharing-strategy",
            place=Position.NODE_SELECTOR,
            unit=Unit.TEXT,
            meaning="none, mps or time-slicing",
            role=Role.POLICY,
            action=Action.LEFT,
            because=_KEPT,
        ),
        *(
            Row(
                name=name, place=Position.NODE_SELECTOR, unit=Unit.TEXT, meaning=text, action=Action.LEFT, because=_KEPT
            )
            for name, text in (
                ("nvidia.com/gpu.present", "a GPU is there"),
                ("nvidia.com/gpu.deploy.<part>", "whether the GPU operator runs a part of its own there"),
                ("nvidia.com/gpu.memory", "MiB of each GPU"),
                ("nvidia.com/gpu.count", "GPUs of the node"),
                ("nvidia.com/gpu.replicas", "sharing factor"),
                ("nvidia.com/gpu.family", "architecture"),
                ("nvidia.com/gpu.compute.<part>", "compute capability"),
                ("nvidia.com/gpu.machine", "machine type"),
                ("nvidia.com/gpu.clique", "NVLink clique: the world of compute domains"),
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


class NvidiaOptions(Options, frozen=True, kw_only=True):
    """How the NVIDIA DRA driver is set up."""

    # `shares` is published (ConsumableShares integer mode) with as many units as the plugin had replicas.
    consumable_shares: bool = False


def read(words: Words[NvidiaOptions]) -> Answer:
    """Read one container: each key stands for itself."""
    demands: list[Keyed] = []
    notes: list[Note] = []
    refusals: list[Refusal] = []
    left: Left | None = None
    for amount in words.said[0].amounts:
        if not amount.value:
            continue
        answer = _one(amount, words)
        demands += answer.demands
        notes += answer.notes
        refusals += answer.refusals
        left = left or answer.left
    return Answer(
        demands=tuple(demands),
        notes=tuple(notes),
        refusals=tuple(refusals),
        left=left,
    )


def _one(amount: Amount, words: Words[NvidiaOptions]) -> Answer:
    row, unit = amount.row, words.unit
    if row.action is Action.LEFT:
        return Answer(left=Left(amount.key, row.because))
    if row.role is Role.PROFILE:
        profile = profile_of(amount.part)
        return _mig(amount, profile)
    if row.role is Role.SHARES or unit.replica:
        return _replicas(amount, words)
    if unit.profile:
        return _mig(amount, unit.profile)
    plural = "s" if amount.value > 1 else ""
    text = f"{amount.value} whole GPU{plural}"
    note = Note(amount.key, Action.TRANSLATED, text)
    demand = Demand(target="gpu", count=amount.value)
    asked = Keyed(amount.key, demand)
    return Answer(demands=(asked,), notes=(note,))


def _mig(amount: Amount, profile: str) -> Answer:
    if not profile:
        reason = f"{amount.part!r} is not a MIG profile that a device plugin offers"
        return Answer(left=Left(amount.key, reason))
    plural = "s" if amount.value > 1 else ""
    text = f"{amount.value} MIG device{plural} of profile {profile}"
    note = Note(amount.key, Action.TRANSLATED, text)
    demand = Demand(target="mig", count=amount.value, profile=profile)
    asked = Keyed(amount.key, demand)
    return Answer(demands=(asked,), notes=(note,))


def _replicas(amount: Amount, words: Words[NvidiaOptions]) -> Answer:
    key = amount.key
    if not words.options.consumable_shares:
        reason = "a replica has no counterpart unless `nvidia.consumableShares` is declared"
        return Answer(left=Left(key, reason))
    if under_mps := _selects_mps(words.hints):
        reason = f"selector {under_mps} asks for MPS, which limits memory and compute of a replica: a unit of `shares` has no limits, and its driver refuses MPS beside them"
        return Answer(left=Left(key, reason))
    if amount.value > 1:
        reason = f"{amount.value} replicas give no more compute than one, and need not be on one GPU: ask for 1"
        return Answer(left=Left(key, reason))
    text = "one unit of `shares` of one GPU; no limits, as under time-slicing"
    note = Note(key, Action.APPROXIMATED, text)
    asked = Keyed(key, Demand(target="gpu", shares=1))
    return Answer(demands=(asked,), notes=(note,))


def _selects_mps(hints: Mapping[Role, Hint]) -> str:
    """Say by which label a pod asks for nodes, or for some, that run MPS; "" if by none."""
    for role in (Role.MODE, Role.POLICY):
        hint = hints.get(role)
        if hint is not None and "mps" in hint.text.split(", "):
            return f"{hint.key}={hint.text}"
    return ""


def read_declared(text: str) -> Meaning | None:
    """Read what an administrator declares a unit to be."""
    if text == "whole":
        return Meaning()
    if text == "shared":
        return Meaning(replica=True)
    profile = profile_of(text.removeprefix("mig:")) if text.startswith("mig:") else ""
    return Meaning(profile=profile) if profile else None


VOCABULARY = Vocabulary(
    table=DIALECT,
    read=read,
    options=NvidiaOptions,
    bare=Bare(
        target="gpu",
        declared=read_declared,
        words="whole, shared, mig:<profile>",
        pod=read_selected,
        node=sharing_label,
    ),
)
