"""Tensor Fusion: shares of GPUs by annotations, on pods with its label.

Keys and refusals follow NexusGPU/tensor-fusion at 3e0a4901: pkg/constants, internal/webhook/v1/tf_parser.go, internal/gpuallocator.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Annotated

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
    leave_unserved,
    modifier,
    number_of_gpus,
    opt_in,
)
from webhook.dialects.plain import vocabulary_of
from webhook.dialects.table import Dialect, Outcome, Position, Role, Scope, Unit, untranslated
from webhook.dialects.vocabulary import (
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
from webhook.names import CONFIGURATION_PAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.dialects.vocabulary import AnnotatedPod

_REMOTE = f"its webhook creates workers that use its own protocol; {opt_in('tensorfusion')}"
_AMOUNTS = {
    "tflops-request": "FP16 TFLOPS of each GPU that are guaranteed",
    "tflops-limit": "FP16 TFLOPS of each GPU at most",
    "vram-request": "bytes of each GPU that are guaranteed",
    "vram-limit": "bytes of each GPU at most",
    "compute-percent-request": "percent of each GPU's compute that are guaranteed",
    "compute-percent-limit": "percent of each GPU's compute at most",
    "gpu-count": "GPUs of a worker",
    "dedicated-gpu": "the whole of a GPU of a model",
    "workload-profile": "an object that holds the amounts",
}
_SHAPES = (
    *("gpu-indices", "gpu-model", "vendor", "gpupool", "qos", "isolation", "partition-id", "partition"),
    *("is-local-gpu", "sidecar-worker", "embedded-worker", "dedicated-worker", "inject-container"),
    *("container-gpu-count", "workload", "workload-mode", "selected-workload", "autoscale", "autoscale-target"),
    *("gang-enabled", "gang-min-members", "gang-timeout", "enabled-replicas", "disable-features"),
    *("eviction-protection", "worker-pod-template", "replicas", "client-profile", "generate-workload"),
)
_OUTPUTS = (
    *("gpu-ids", "container-gpus", "partition-uuids", "index", "effective-hard-sm-percent"),
    *("gang-desired-members", "gang-required-members", "gang-group-key"),
)
_TF = "tensor-fusion.ai/"

TENSOR_FUSION = Dialect(
    name="tensorfusion",
    title="Tensor Fusion",
    scope=Scope.POD,
    schedulers=("tensor-fusion-scheduler",),
    keys=(
        untranslated(
            f"{_TF}enabled",
            "the pod is Tensor Fusion's, whatever its containers request",
            _REMOTE,
            Position.LABEL,
            role=Role.REQUESTS_DEVICES,
            unit=Unit.BOOL,
            when="true",
        ),
        *(asks(f"{_TF}{name}", text, _REMOTE) for name, text in _AMOUNTS.items()),
        *(modifier(f"{_TF}{name}", "shapes the request") for name in _SHAPES),
        *(modifier(f"{_TF}{name}", "an output", because=OUTPUT) for name in _OUTPUTS),
        untranslated(
            f"{_TF}index_<index>",
            "a handshake between its scheduler and its device plugin",
            "it requests nothing by itself",
        ),
    ),
)


class TensorFusionOptions(ShareOptions, frozen=True, kw_only=True):
    """What becomes of Tensor Fusion's pods, and how TFLOPS are converted."""

    # Model, as in `gpu-model` and as a part of the driver's `productName`: FP16 TFLOPS of the whole GPU.
    tflops: dict[Annotated[str, msgspec.Meta(min_length=1)], Annotated[float, msgspec.Meta(gt=0)]] = {}


# Annotations that no claim can express, with the value ("" for any) and the reason why the pod stays as it is.
_UNSERVED = (
    *((name, "", "Tensor Fusion has prepared or placed the pod already, and it stays as it is") for name in _OUTPUTS),
    ("is-local-gpu", "false", "a remote GPU is on another node, which a claim of the pod cannot use"),
    ("workload-profile", "", "the amounts are in an object that drawbridge does not read"),
    ("container-gpu-count", "", "containers get different GPUs of one worker, and the claim gives all of them to each"),
    ("gpu-indices", "", "drivers publish no index of a host's GPUs"),
    ("isolation", "partitioned", "the partition depends on Tensor Fusion's own templates: request nvidia.com/mig-<profile>"),
    ("partition-id", "", "the partition depends on Tensor Fusion's own templates: request nvidia.com/mig-<profile>"),
    ("embedded-worker", "true", "its worker uses Tensor Fusion's own protocol"),
    ("dedicated-worker", "true", "its worker uses Tensor Fusion's own protocol"),
    ("worker-pod-template", "", "it configures one of Tensor Fusion's workers"),
    ("workload", "", "it names one of Tensor Fusion's workers"),
    ("selected-workload", "", "it names one of Tensor Fusion's workers"),
    ("enabled-replicas", "", "it applies to some pods of the workload, and only Tensor Fusion knows which"),
    ("gang-enabled", "true", "only Tensor Fusion's scheduler keeps a gang together"),
)  # fmt: skip
_DROPPED = {
    "qos": "no PriorityClass is set by it: name one in priorityClassName",
    "gpupool": "a claim has no pools: name the nodes in nodeSelector",
    "autoscale": "amounts of a claim do not change while the pod runs",
}
_ISOLATIONS = ("soft", "hard", "shared")
_MAX = 128  # GPUs of a worker


def read_tensor_fusion(pod: AnnotatedPod[TensorFusionOptions]) -> DialectAnswer | Reason:
    """Return the demand of a pod as Tensor Fusion's webhook reads it for local GPUs; the named containers share the GPUs."""
    texts = {name.removeprefix(_TF): hint for name, hint in pod.texts.items()}
    enabled = texts.get("enabled")
    if enabled is None:
        hint = next(texts[name] for name in _AMOUNTS if name in texts)
        return leave(hint.key, f"without label {_TF}enabled it is a worker that Tensor Fusion created")
    if stays := leave_unserved(texts, _UNSERVED):
        return stays
    vendor, isolation = texts.get("vendor"), texts.get("isolation")
    if vendor and vendor.text.lower() != "nvidia":
        return leave(vendor.key, "claims for shares exist for NVIDIA's GPUs only")
    if isolation and isolation.text not in _ISOLATIONS:
        return leave(isolation.key, f"isolation {isolation.text[:SHOWN]!r} is unknown")
    if pod.container_keys:
        return leave(
            pod.container_keys[0],
            f"requested together with label {enabled.key}: Tensor Fusion counts it as its own GPUs",
        )
    containers = _injected(pod, texts.get("inject-container"))
    if isinstance(containers, Reason):
        return containers
    count_hint = texts.get("gpu-count")
    count = number_of_gpus(count_hint, _MAX)
    if isinstance(count, Reason):
        return count
    answer = _whole(texts, count) or _share(texts, count, pod.options)
    if isinstance(answer, Reason):
        return answer
    key, demand, notes = answer
    loss = "Tensor Fusion's webhook must skip the pod (docs/node-by-node.md), and its quota no longer counts it"
    notes = [Note(enabled.key, Outcome.APPROXIMATED, loss), *notes]
    if count_hint:
        notes.append(Note(count_hint.key, Outcome.TRANSLATED, count_of(count, "distinct GPU")))
    if container_hint := texts.get("inject-container"):
        notes.append(Note(container_hint.key, Outcome.TRANSLATED, f"the claim is visible to {', '.join(containers)}"))
    noted = {note.key for note in notes}
    for name in ("gpu-model", "isolation", "is-local-gpu", "sidecar-worker", "vendor", "dedicated-gpu"):
        if name in texts and texts[name].key not in noted:
            notes.append(Note(texts[name].key, Outcome.TRANSLATED))
    notes += [Note.of_dropped(texts[name].key, why) for name, why in _DROPPED.items() if name in texts]
    return DialectAnswer(demands=(KeyedDemand(key, demand),), notes=tuple(notes), containers=containers)


_KeyedRequest = tuple[str, Demand, list[Note]]


def _injected(pod: AnnotatedPod[TensorFusionOptions], named: Hint | None) -> tuple[str, ...] | Reason:
    container_names = [name.strip() for name in named.text.split(",")] if named and named.text else []
    if not container_names and len(pod.containers) == 1:
        return pod.containers
    if not container_names:
        reason = "it does not name the container that gets the GPU"
        return refuse(f"{_TF}inject-container", reason, "name it in this annotation")
    containers = tuple([name for name in pod.containers if name in container_names])
    if not containers and named:
        return leave(named.key, "names no container of the pod, so Tensor Fusion skips it")
    return containers


def _whole(texts: Mapping[str, Hint], count: int) -> _KeyedRequest | Reason | None:
    """Return the key, the demand and the notes of a request for whole GPUs; None if parts are requested."""
    dedicated, isolation, model = texts.get("dedicated-gpu"), texts.get("isolation"), texts.get("gpu-model")
    is_dedicated = dedicated is not None and dedicated.text == "true"
    whole_hint = dedicated if is_dedicated else isolation
    if whole_hint is None or not (is_dedicated or whole_hint.text == "shared"):
        return None
    if is_dedicated and (model is None or not model.text):
        return refuse(whole_hint.key, "a whole GPU without a model", f"name the model in {_TF}gpu-model")
    demand = Demand(target="gpu", count=count, models=(model.text,) if model and model.text else ())
    notes = [Note(whole_hint.key, Outcome.TRANSLATED, count_of(count, "whole GPU"))]
    notes += [Note(model.key, Outcome.APPROXIMATED, f"the product name contains {model.text[:SHOWN]}")] if model else []
    for name in _SHARES:
        if name in texts:
            notes.append(Note(texts[name].key, Outcome.TRANSLATED, "the whole GPU is claimed"))
    return whole_hint.key, demand, notes


_MEMORY = ("vram-limit", "vram-request")
_COMPUTE = ("tflops-limit", "compute-percent-limit", "tflops-request", "compute-percent-request")
_SHARES = (*_MEMORY, *_COMPUTE)


def _share(texts: Mapping[str, Hint], count: int, options: TensorFusionOptions) -> _KeyedRequest | Reason:
    """Return the key, the demand and the notes of a request for parts of GPUs.

    The claim requests the limits, because the driver enforces claimed amounts.
    """
    amounts: dict[str, Fraction] = {}
    for name in _SHARES:
        hint = texts.get(name)
        if hint is None or not hint.text:
            continue
        try:
            amount = Fraction(parse(hint.text).nano, NANO)
        except QuantityError:
            return leave(hint.key, f"{hint.text[:SHOWN]!r} is not a quantity")
        if amount < 0:
            return leave(hint.key, f"{hint.text[:SHOWN]} is below 0")
        if amount:
            amounts[name] = amount
    memory_key = next((name for name in _MEMORY if name in amounts), "")
    compute = next((name for name in _COMPUTE if name in amounts), "")
    if not memory_key:
        reason = f"no memory is requested: add {_TF}vram-limit, or a claim would take all of it"
        return leave(texts["enabled"].key, reason)
    model = texts.get("gpu-model")
    model_name = model.text if model else ""
    percent = amounts.get(compute, Fraction(0))
    if compute.startswith("tflops"):
        if not model_name and len(options.tflops) == 1:
            (model_name,) = options.tflops
        if not model_name and options.tflops:
            reason = f"how much of a GPU this is depends on the model: add {_TF}gpu-model"
            return leave(texts[compute].key, reason)
        if model_name not in options.tflops:
            entry = f"{{{model_name[:SHOWN] or 'MODEL'}: TFLOPS}}"
            reason = f"how much of a GPU this is depends on the model: an administrator can declare `tensorfusion: {{tflops: {entry}}}` ({CONFIGURATION_PAGE})"
            return leave(texts[compute].key, reason)
        percent = percent * 100 / Fraction(str(options.tflops[model_name]))
    if percent > 100:
        return leave(texts[compute].key, f"{float(percent):g} % is more than a GPU has")
    memory, cores = ceil(amounts[memory_key]), ceil(percent)
    size = f"{float(Fraction(memory, MIB)):g} MiB of each GPU"
    notes = [
        Note(texts[memory_key].key, Outcome.APPROXIMATED if memory_key == "vram-request" else Outcome.TRANSLATED, size)
    ]
    if compute:
        exact = percent == cores and compute.startswith("compute")
        of_model = f" by the TFLOPS of {model_name[:SHOWN]}" if compute.startswith("tflops") else ""
        text = f"{cores} % of each GPU{of_model}"
        notes.append(Note(texts[compute].key, Outcome.TRANSLATED if exact else Outcome.APPROXIMATED, text))
    else:
        notes.append(Note(texts[memory_key].key, Outcome.APPROXIMATED, UNLIMITED))
    for name in _SHARES:
        if name in texts and name not in (memory_key, compute):
            limit_is_larger = amounts.get(name, Fraction(0)) < amounts.get(
                name.replace("request", "limit"), Fraction(0)
            )
            text = "the claim is for the limit, so more is reserved" if limit_is_larger else "another amount applies"
            notes.append(Note(texts[name].key, Outcome.APPROXIMATED if limit_is_larger else Outcome.TRANSLATED, text))
    if model_name:
        text = f"the product name contains {model_name[:SHOWN]}"
        notes.append(Note(model.key if model else texts[compute].key, Outcome.APPROXIMATED, text))
    demand = Demand(target="vgpu", count=count, memory=memory, cores=cores, models=(model_name,) if model_name else ())
    return texts[memory_key].key, demand, notes


VOCABULARY = msgspec.structs.replace(
    vocabulary_of(TENSOR_FUSION), options=TensorFusionOptions, read_pod=read_tensor_fusion
)
