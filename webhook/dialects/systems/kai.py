"""KAI Scheduler and Run:ai: a share of a GPU by annotation.

KAI's annotations are words that any program may use: they count on a pod that names its scheduler or one of its queues. Keys and
refusals follow kai-scheduler/KAI-Scheduler: pkg/common/constants, pkg/binder/plugins/gpusharing/gpu-request,
pkg/binder/common/gpu_access.go, pkg/scheduler/api/node_info.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

from webhook.dialects.plain import vocabulary_of
from webhook.dialects.systems.annotated import (
    OUTPUT,
    SHOWN,
    UNLIMITED,
    ShareOptions,
    asks,
    beside,
    is_number,
    kept,
    number_of_gpus,
    opt_in,
)
from webhook.dialects.table import Action, Dialect, Position, Role, left
from webhook.dialects.vocabulary import MIB, MOST_MIB, Answer, Demand, Hint, Keyed, Left, Note, Refusal, several

if TYPE_CHECKING:
    from webhook.dialects.vocabulary import AskingPod

_FRACTION = f"KAI places the pod, and never on a node whose DRA driver publishes GPUs; {opt_in('kai')}"
_SHARING = "stays with the fraction: pods with claims of their own take turns on a GPU; for MPS write one claim with `GpuConfig` for its consumers"
_QUEUE = "another scheduler places the pod, and the queue no longer counts it"
_KAI_OUTPUTS = ("runai/shared-gpu-configmap", "received-resource-type", "runai-gpu-group")

KAI = Dialect(
    name="kai",
    title="KAI Scheduler and Run:ai",
    schedulers=("kai-scheduler", "runai-scheduler"),
    keys=(
        asks("gpu-fraction", "a share of one GPU's memory, above 0 and below 1", _FRACTION),
        asks("gpu-memory", "MiB of one GPU", _FRACTION),
        beside("gpu-fraction-num-devices", "that many different GPUs, each with the fraction or memory"),
        beside("gpu-fraction-container-name", "which container gets the GPU"),
        beside("gpu-fraction-limit", "how far a fraction may burst"),
        beside("mps", "run with MPS"),
        beside(
            "kai.scheduler/gpu-compute-sharing-mode",
            "time-slicing (without it) or sm-sharing, which is MPS: how the pods on one GPU share its compute",
            because=_SHARING,
        ),
        left(
            "kai.scheduler/queue",
            "the queue that the pod is counted in",
            "only KAI counts it: the pod keeps its scheduler",
            Position.LABEL,
            role=Role.SCHEDULED,
        ),
        left(
            "runai/queue",
            "the queue of Run:ai that the pod is counted in",
            "only Run:ai counts it: the pod keeps its scheduler",
            Position.LABEL,
            role=Role.SCHEDULED,
        ),
        beside("kai.scheduler/preemption-delay", "how long the pod waits before others are evicted for it"),
        beside("kai.scheduler/node-pool", "the scheduler's share of the cluster", Position.LABEL),
        beside("pod-group-name", "membership of a gang"),
        beside("kai.scheduler/subgroup-name", "membership of a part of a gang", Position.LABEL),
        beside("kai.scheduler/skip-podgrouper", "no gang is derived from the owner"),
        beside("RUNAI_GPU_MEMORY_LIMIT", "how far memory may burst", Position.ENV),
        beside("received-resource-type", "an output", because=OUTPUT),
        beside("runai-gpu-group", "an output", Position.LABEL, OUTPUT),
        beside("runai/shared-gpu-configmap", "an output", because=OUTPUT),
    ),
)
# What no claim says.
_UNSAID = (
    *((name, "", "KAI has prepared or placed the pod already, and it stays as it is") for name in _KAI_OUTPUTS),
    *(
        (name, "", "a claim has one amount and no limit above it, up to which memory may burst")
        for name in ("RUNAI_GPU_MEMORY_LIMIT", "gpu-fraction-limit")
    ),
)
# What another scheduler does not keep: said of each pod that is translated.
_LOST_TO_KAI = {
    "kai.scheduler/queue": _QUEUE,
    "runai/queue": _QUEUE,
    "kai.scheduler/node-pool": "another scheduler places the pod, and nothing keeps it to the pool's nodes",
    "kai.scheduler/preemption-delay": "another scheduler places the pod, and evicts others for it without a delay",
    "pod-group-name": "another scheduler places the pod, alone and not with its gang",
    "kai.scheduler/subgroup-name": "another scheduler places the pod, alone and not with its gang",
}
_NO_MPS = (Action.APPROXIMATED, "without MPS: pods with claims of their own take turns on a GPU")
# How pods on one GPU share its compute, by what is written, "" for any other text: a claim of a share says nothing of MPS.
_TURNS = {
    "kai.scheduler/gpu-compute-sharing-mode": {
        "sm-sharing": _NO_MPS,
        "": (Action.TRANSLATED, "pods with claims of their own take turns on a GPU"),
    },
    "mps": {"true": _NO_MPS},
}
_PART = re.compile(r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch
_LETTERS = 64  # of a fraction


def read_kai(words: AskingPod[ShareOptions]) -> Answer:
    """Read a pod as KAI's webhook and binder would: one container gets a share of so many different GPUs."""
    texts = words.texts
    fraction, memory = texts.get("gpu-fraction"), texts.get("gpu-memory")
    first = memory or fraction
    assert first
    if stays := kept(texts, _UNSAID):
        return stays
    if memory and fraction:
        return Answer(refusals=(Refusal(memory.key, f"asked for beside {fraction.key}", "keep one of them"),))
    if "nvidia.com/gpu" in words.beside:
        return Answer(refusals=(Refusal(first.key, "asked for beside nvidia.com/gpu", "keep one of them"),))
    if words.beside:
        return Answer(
            left=Left(first.key, f"{words.beside[0]} asks for devices beside it, which it is not clear who serves")
        )
    container = _container(words)
    if isinstance(container, Answer):
        return container
    counted = texts.get("gpu-fraction-num-devices")
    count = number_of_gpus(counted)
    if isinstance(count, Answer):
        return count
    amount = _memory(memory) if memory else _portion(first)
    if isinstance(amount, Answer):
        return amount
    demand = Demand(target="vgpu", count=count, cores=0)
    if isinstance(amount, Fraction):
        demand = msgspec.structs.replace(demand, memory_percent=amount)
        text = f"{float(amount):g} % of each GPU's memory"
    else:
        demand = msgspec.structs.replace(demand, memory=amount)
        text = f"{amount // MIB} MiB of each GPU"
    notes = [Note(first.key, Action.APPROXIMATED, f"{text}, enforced from now on; {UNLIMITED}")]
    if counted:
        notes.append(Note(counted.key, Action.TRANSLATED, several(count, "distinct GPU")))
    if named := texts.get("gpu-fraction-container-name"):
        notes.append(Note(named.key, Action.TRANSLATED, f"the claim is container {container}'s"))
    for name, by_value in _TURNS.items():
        if (hint := texts.get(name)) and (said := by_value.get(hint.text, by_value.get(""))):
            notes.append(Note(hint.key, *said))
    notes += [Note(texts[name].key, Action.APPROXIMATED, why) for name, why in _LOST_TO_KAI.items() if name in texts]
    return Answer(demands=(Keyed(first.key, demand),), notes=tuple(notes), containers=(container,))


def _container(words: AskingPod[ShareOptions]) -> str | Answer:
    """Find the container that gets the GPUs: the one that is named, looked for among init containers first, or the first."""
    named = words.texts.get("gpu-fraction-container-name")
    if named is None:
        return words.containers[0] if words.containers else Answer(left=Left("containers", "the pod has none"))
    if named.text in (*words.init_containers, *words.containers):
        return named.text
    reason = f"the pod has no container {named.text[:SHOWN]!r}"
    return Answer(refusals=(Refusal(named.key, reason, "name one of its containers"),))


def _memory(memory: Hint) -> int | Answer:
    """Read gpu-memory in bytes."""
    if not is_number(memory.text) or not int(memory.text):
        reason = f"{memory.text[:SHOWN]!r} is not a number of MiB"
        return Answer(refusals=(Refusal(memory.key, reason, "write a whole number from 1 up, without a unit"),))
    if int(memory.text) >= MOST_MIB:
        return Answer(left=Left(memory.key, f"{memory.text} MiB are more than any GPU has"))
    return int(memory.text) * MIB


def _portion(fraction: Hint) -> Fraction | Answer:
    """Read gpu-fraction in percent."""
    text = fraction.text
    number = float(text) if len(text) <= _LETTERS and _PART(text) else 0.0
    if not 0 < number < 1:
        reason = f"{text[:SHOWN]!r} is not a part of a GPU"
        return Answer(refusals=(Refusal(fraction.key, reason, "write a number above 0 and below 1, such as 0.5"),))
    if number < 0.01:
        return Answer(left=Left(fraction.key, f"{text} is less than a hundredth, the least that KAI counts"))
    return Fraction(text) * 100


VOCABULARY = msgspec.structs.replace(vocabulary_of(KAI), options=ShareOptions, read_pod=read_kai)
