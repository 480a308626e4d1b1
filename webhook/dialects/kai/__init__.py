"""KAI Scheduler and Run:ai: a share of a GPU by annotation.

KAI's annotations have names that other programs may use too, so they only count on a pod that names KAI's scheduler or one of its queues.
Keys and refusals follow kai-scheduler/KAI-Scheduler: pkg/common/constants, pkg/binder/plugins/gpusharing/gpu-request,
pkg/binder/common/gpu_access.go, pkg/scheduler/api/node_info; NvFractions (KAI 0.18) docs/gpu-sharing.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

from dra.errors import QuantityError
from dra.quantity import NANO, parse
from dra.reason import Reason
from webhook.dialects.annotated import (
    OUTPUT,
    SHOWN,
    UNLIMITED,
    ShareOptions,
    asks,
    is_number,
    leave_unserved,
    modifier,
    number_of_gpus,
    opt_in,
)
from webhook.dialects.plain import vocabulary_of
from webhook.dialects.table import Dialect, Outcome, Position, Role, untranslated
from webhook.dialects.vocabulary import (
    MAX_MIB,
    MIB,
    Demand,
    DialectAnswer,
    Hint,
    KeyedDemand,
    Note,
    count_of,
    leave,
    refuse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.dialects.vocabulary import AnnotatedPod

_FRACTION = f"KAI places the pod, and never on a node whose DRA driver publishes GPUs; {opt_in('kai')}"
_MIG = "KAI gives the pod the MIG devices: a claim needs the key among the container's limits"
_SHARING = "stays with the fraction: pods with claims of their own take turns on a GPU; for MPS, write one claim with `GpuConfig` that all these pods use"
_QUEUE = "another scheduler places the pod, and the queue no longer counts it"
_KAI_OUTPUTS = ("runai/shared-gpu-configmap", "received-resource-type", "runai-gpu-group")

KAI = Dialect(
    name="kai",
    title="KAI Scheduler and Run:ai",
    schedulers=("kai-scheduler", "runai-scheduler"),
    keys=(
        asks("gpu-fraction", "a share of one GPU's memory, above 0 and below 1", _FRACTION),
        asks("gpu-memory", "MiB of one GPU", _FRACTION),
        asks(
            "nvidia.com/container.<container>.gpu-memory.request",
            "a container's share of one GPU's memory (NvFractions)",
            _FRACTION,
        ),
        asks(
            "nvidia.com/container.<container>.gpu-memory.limit",
            "limit of a GPU's memory for the container; without a request, also its share (NvFractions)",
            _FRACTION,
        ),
        asks("nvidia.com/mig-<profile>", "MIG devices, in an older form", _MIG),
        modifier("nvidia.com/container.<container>.gpus.devices", "an output", because=OUTPUT),
        modifier("gpu-fraction-num-devices", "that many different GPUs, each with the fraction or memory"),
        modifier("gpu-fraction-container-name", "which container gets the GPU"),
        modifier("gpu-fraction-limit", "how far a fraction may burst"),
        modifier("mps", "run with MPS"),
        modifier(
            "kai.scheduler/gpu-compute-sharing-mode",
            "how the pods on one GPU share its compute: time-slicing (the default), or sm-sharing, which is MPS",
            because=_SHARING,
        ),
        untranslated(
            "kai.scheduler/queue",
            "the queue that the pod is counted in",
            "only KAI counts it: the pod keeps its scheduler",
            Position.LABEL,
            role=Role.SCHEDULED,
        ),
        untranslated(
            "runai/queue",
            "the queue of KAI or Run:ai that the pod is counted in",
            "only KAI or Run:ai counts it: the pod keeps its scheduler",
            Position.LABEL,
            role=Role.SCHEDULED,
        ),
        modifier("kai.scheduler/preemption-delay", "how long the pod waits before others are evicted for it"),
        modifier("kai.scheduler/node-pool", "the scheduler's share of the cluster", Position.LABEL),
        modifier("pod-group-name", "membership of a gang"),
        modifier("kai.scheduler/subgroup-name", "membership of a part of a gang", Position.LABEL),
        modifier("kai.scheduler/skip-podgrouper", "no gang is derived from the owner"),
        modifier("RUNAI_GPU_MEMORY_LIMIT", "how far memory may burst", Position.ENV),
        modifier("received-resource-type", "an output", because=OUTPUT),
        modifier("runai-gpu-group", "an output", Position.LABEL, OUTPUT),
        modifier("runai/shared-gpu-configmap", "an output", because=OUTPUT),
        modifier("runai-mig-device", "an output", because=OUTPUT),
        modifier("run.ai/reserve_for_gpu_index", "an output", because=OUTPUT),
    ),
)
_PLACED = "KAI has prepared or placed the pod already, and it stays as it is"
_BURST = "a claim has one amount and no limit above it, up to which memory may burst"
# Keys that no claim can express, with the reason why the pod stays as it is.
_UNSERVED = (
    *((name, "", _PLACED) for name in _KAI_OUTPUTS),
    *((name, "", _BURST) for name in ("RUNAI_GPU_MEMORY_LIMIT", "gpu-fraction-limit")),
)
_OF_CONTAINER = re.compile(r"nvidia\.com/container\.(.+)\.gpu-memory\.(?:request|limit)").fullmatch
_ASSIGNED_GPUS = ".gpus.devices"
# Keys without effect once another scheduler places the pod, with the note about the loss.
_LOST_TO_KAI = {
    "kai.scheduler/queue": _QUEUE,
    "runai/queue": _QUEUE,
    "kai.scheduler/node-pool": "another scheduler places the pod, and does not restrict it to the pool's nodes",
    "kai.scheduler/preemption-delay": "another scheduler places the pod, and evicts others for it without a delay",
    "pod-group-name": "another scheduler places the pod, alone and not with its gang",
    "kai.scheduler/subgroup-name": "another scheduler places the pod, alone and not with its gang",
}
_NO_MPS = (Outcome.APPROXIMATED, "without MPS: pods with claims of their own take turns on a GPU")
# Keys that say how pods on one GPU share its compute: by value ("" for any other), the outcome and the note. Claims cannot request MPS.
_COMPUTE_SHARING = {
    "kai.scheduler/gpu-compute-sharing-mode": {
        "sm-sharing": _NO_MPS,
        "": (Outcome.TRANSLATED, "pods with claims of their own take turns on a GPU"),
    },
    "mps": {"true": _NO_MPS},
}
_PART = re.compile(r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch
_LETTERS = 64  # the longest text of a fraction


def read_kai(pod: AnnotatedPod[ShareOptions]) -> DialectAnswer | Reason:
    """Return the demand of a pod as KAI's webhook and binder read it: one container gets a share of one or more GPUs."""
    texts = pod.texts
    fraction, memory = texts.get("gpu-fraction"), texts.get("gpu-memory")
    of_containers = [hint for key, hint in texts.items() if _OF_CONTAINER(key)]
    first = memory or fraction or of_containers[0]
    if stays := leave_unserved(texts, _UNSERVED):
        return stays
    for key in texts:
        if key.endswith(_ASSIGNED_GPUS):  # KAI has given GPUs to a container
            return leave(texts[key].key, _PLACED)
    if memory and fraction:
        return refuse(memory.key, f"requested together with {fraction.key}", "keep one of them")
    if "nvidia.com/gpu" in pod.container_keys:
        return refuse(first.key, "requested together with nvidia.com/gpu", "keep one of them")
    if pod.container_keys:
        return leave(first.key, f"{pod.container_keys[0]} also requests devices, and it is unclear what serves them")
    if of_containers and first not in of_containers:
        return leave(first.key, f"requested together with {of_containers[0].key}, and one of the two is ignored")
    container = _container(pod, of_containers)
    if isinstance(container, Reason):
        return container
    count_hint = texts.get("gpu-fraction-num-devices")
    count = number_of_gpus(count_hint)
    if isinstance(count, Reason):
        return count
    amount = _of_container(of_containers) if of_containers else _memory(memory) if memory else _portion(first)
    if isinstance(amount, Reason):
        return amount
    demand = Demand(target="vgpu", count=count, cores=0)
    if isinstance(amount, Fraction):
        demand = msgspec.structs.replace(demand, memory_percent=amount)
        text = f"{float(amount):g} % of each GPU's memory"
    else:
        demand = msgspec.structs.replace(demand, memory=amount)
        text = f"{-(-amount // MIB)} MiB of each GPU"
    enforced = text if of_containers else f"{text}, enforced from now on"
    notes = [Note(first.key, Outcome.APPROXIMATED, f"{enforced}; {UNLIMITED}")]
    notes += [Note(hint.key, Outcome.TRANSLATED, text) for hint in of_containers[1:]]
    if count_hint:
        notes.append(Note(count_hint.key, Outcome.TRANSLATED, count_of(count, "distinct GPU")))
    if container_hint := texts.get("gpu-fraction-container-name"):
        notes.append(Note(container_hint.key, Outcome.TRANSLATED, f"the claim is container {container}'s"))
    for name, by_value in _COMPUTE_SHARING.items():
        if (hint := texts.get(name)) and (note := by_value.get(hint.text, by_value.get(""))):
            notes.append(Note(hint.key, *note))
    notes += [Note(texts[name].key, Outcome.APPROXIMATED, why) for name, why in _LOST_TO_KAI.items() if name in texts]
    return DialectAnswer(demands=(KeyedDemand(first.key, demand),), notes=tuple(notes), containers=(container,))


def _container(pod: AnnotatedPod[ShareOptions], of_containers: Sequence[Hint]) -> str | Reason:
    """Return the container that gets the GPUs: the named container or init container, or else the first container."""
    container_hint = pod.texts.get("gpu-fraction-container-name")
    prefix = "nvidia.com/container."
    container_names = {hint.key: hint.key.removeprefix(prefix).rpartition(".gpu-memory.")[0] for hint in of_containers}
    if container_hint:
        container_names[container_hint.key] = container_hint.text
    if not container_names:
        return pod.containers[0] if pod.containers else leave("containers", "the pod has none")
    key, name = next(iter(container_names.items()))
    for other_key, other_name in container_names.items():
        if other_name != name:
            reason = f"names container {other_name[:SHOWN]!r}, and {key} another one"
            return refuse(other_key, reason, "ask for one container of the pod")
    if name in (*pod.init_containers, *pod.containers):
        return name
    reason = f"the pod has no container {name[:SHOWN]!r}"
    return refuse(key, reason, "name one of its containers")


def _of_container(of_containers: Sequence[Hint]) -> int | Reason:
    """Return a container's GPU memory in bytes. Request and limit must be equal; one of them is enough."""
    amounts: dict[str, int] = {}
    for hint in of_containers:
        try:
            nano = parse(hint.text).nano
        except QuantityError:
            nano = 0
        if nano <= 0:
            reason = f"{hint.text[:SHOWN]!r} is not an amount of memory"
            return refuse(hint.key, reason, "write a quantity above 0, such as 4Gi")
        amounts[hint.key] = -(-nano // NANO)
        if amounts[hint.key] >= MAX_MIB * MIB:
            return leave(hint.key, f"{hint.text[:SHOWN]} is more than any GPU has")
    request = next((hint for hint in of_containers if hint.key.endswith(".request")), of_containers[0])
    limit = next((hint for hint in of_containers if hint.key.endswith(".limit")), request)
    if amounts[request.key] > amounts[limit.key]:
        reason = f"{request.text[:SHOWN]} is more than the limit, {limit.text[:SHOWN]}"
        return refuse(request.key, reason, "raise the limit or lower the request")
    if amounts[request.key] < amounts[limit.key]:
        return leave(limit.key, _BURST)
    return amounts[request.key]


def _memory(memory: Hint) -> int | Reason:
    if not is_number(memory.text) or not int(memory.text):
        reason = f"{memory.text[:SHOWN]!r} is not a number of MiB"
        return refuse(memory.key, reason, "write a whole number from 1 up, without a unit")
    if int(memory.text) >= MAX_MIB:
        return leave(memory.key, f"{memory.text} MiB are more than any GPU has")
    return int(memory.text) * MIB


def _portion(fraction: Hint) -> Fraction | Reason:
    text = fraction.text
    number = float(text) if len(text) <= _LETTERS and _PART(text) else 0.0
    if not 0 < number < 1:
        reason = f"{text[:SHOWN]!r} is not a part of a GPU"
        return refuse(fraction.key, reason, "write a number above 0 and below 1, such as 0.5")
    if number < 0.01:
        return leave(fraction.key, f"{text} is less than a hundredth, the least that KAI counts")
    return Fraction(text) * 100


VOCABULARY = msgspec.structs.replace(vocabulary_of(KAI), options=ShareOptions, read_pod=read_kai)
