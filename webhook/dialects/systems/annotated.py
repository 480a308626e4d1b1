"""Systems whose pods ask by annotation alone: KAI (and Run:ai) and Tensor Fusion.

Their schedulers place such pods with what stands in annotations, and their webhooks rewrite them; nothing on a container asks. A claim
beside those annotations would be a second request, so the pod stays, with the reason, unless an administrator has it translated: then
the annotations are taken off. Labels stay, because selectors of controllers may name them. The annotations of KAI are words that any
program may use: they count on a pod that names its scheduler or one of its queues. Keys and refusals follow
kai-scheduler/KAI-Scheduler: pkg/common/constants, pkg/binder/plugins/gpusharing/gpu-request, pkg/binder/common/gpu_access.go, and
NexusGPU/tensor-fusion: pkg/constants, internal/webhook/v1/tf_parser.go, internal/gpuallocator.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Literal

import msgspec

from dra.errors import QuantityError
from dra.pointer import escape
from dra.quantity import NANO, parse
from webhook.dialects.plain import vocabulary_of
from webhook.dialects.table import Action, Dialect, Position, Role, Row, Scope, Unit, left
from webhook.dialects.vocabulary import (
    MIB,
    MOST_MIB,
    Answer,
    Demand,
    Hint,
    Keyed,
    Left,
    Mistake,
    Note,
    Options,
    Refusal,
    several,
)
from webhook.names import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.dialects.vocabulary import AskingPod

_STAYS = "stays with the request that it is about"
_OUTPUT = "written by the system itself"
_NEW = "enforced from now on, which it was not before"
_UNLIMITED = "compute is neither reserved nor limited"
_NUMBER = re.compile(r"[0-9]{1,19}").fullmatch
_SHOWN = 40  # letters of a text that a message repeats


def _asks(name: str, meaning: str, because: str) -> Row:
    return left(name, meaning, because, Position.ANNOTATION, role=Role.ASKS)


def _beside(name: str, meaning: str, place: Position = Position.ANNOTATION, because: str = _STAYS) -> Row:
    return left(name, meaning, because, place)


class ShareOptions(Options, frozen=True, kw_only=True):
    """What becomes of pods that ask by annotation."""

    # `translate` makes claims of them and takes the annotations off; the system's own scheduler and webhook lose such pods.
    fractions: Literal["leave", "translate"] = "leave"

    def table(self, table: Dialect) -> Dialect:
        """Give the table: what is left by default is approximated where pods are translated."""
        if self.fractions == "leave":
            return table
        keys = []
        for row in table.keys:
            moves = row.role is Role.ASKS
            keys.append(msgspec.structs.replace(row, action=Action.APPROXIMATED, because=_NEW) if moves else row)
        return msgspec.structs.replace(table, keys=tuple(keys))


def _first(texts: Mapping[str, Hint], names: Iterable[str]) -> Hint | None:
    return next((texts[name] for name in names if name in texts), None)


def _opt_in(name: str) -> str:
    return f"an administrator can declare `{name}: {{fractions: translate}}` ({TABLES})"


_FRACTION = f"KAI goes on placing it, on no node with a GPU driver's devices; {_opt_in('kai')}"
_SHARING = "stays with the fraction: pods with claims of their own take turns on a GPU; for MPS write one claim with `GpuConfig` for its consumers"
_QUEUE = "another scheduler places the pod, and the queue no longer counts it"
_KAI_OUTPUTS = ("runai/shared-gpu-configmap", "received-resource-type", "runai-gpu-group")

KAI = Dialect(
    name="kai",
    title="KAI Scheduler and Run:ai",
    schedulers=("kai-scheduler", "runai-scheduler"),
    keys=(
        _asks("gpu-fraction", "a share of one GPU's memory, above 0 and below 1", _FRACTION),
        _asks("gpu-memory", "MiB of one GPU", _FRACTION),
        _beside("gpu-fraction-num-devices", "that many different GPUs, each with the fraction or memory"),
        _beside("gpu-fraction-container-name", "which container gets the GPU"),
        _beside("gpu-fraction-limit", "how far a fraction may burst"),
        _beside("mps", "run with MPS"),
        _beside(
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
        _beside("kai.scheduler/node-pool", "the scheduler's share of the cluster", Position.LABEL),
        _beside("pod-group-name", "membership of a gang"),
        _beside("kai.scheduler/subgroup-name", "membership of a part of a gang", Position.LABEL),
        _beside("kai.scheduler/skip-podgrouper", "no gang is derived from the owner"),
        _beside("RUNAI_GPU_MEMORY_LIMIT", "how far memory may burst", Position.ENV),
        _beside("received-resource-type", "an output", because=_OUTPUT),
        _beside("runai-gpu-group", "an output", Position.LABEL, _OUTPUT),
        _beside("runai/shared-gpu-configmap", "an output", because=_OUTPUT),
    ),
)
# What another scheduler does not keep: said of each pod that is translated.
_LOST_TO_KAI = {
    "kai.scheduler/queue": _QUEUE,
    "runai/queue": _QUEUE,
    "kai.scheduler/node-pool": "another scheduler places the pod, and nothing keeps it to the pool's nodes",
    "pod-group-name": "another scheduler places the pod, alone and not with its gang",
    "kai.scheduler/subgroup-name": "another scheduler places the pod, alone and not with its gang",
}
_PART = re.compile(r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch
_LETTERS = 64  # of a fraction


def read_kai(words: AskingPod[ShareOptions]) -> Answer:
    """Read a pod as KAI's webhook and binder would: one container gets a share of so many different GPUs."""
    texts = words.texts
    fraction, memory = texts.get("gpu-fraction"), texts.get("gpu-memory")
    first = memory or fraction
    assert first
    if placed := _first(texts, _KAI_OUTPUTS):
        return Answer(left=Left(placed.key, "KAI has prepared or placed the pod already, and it stays as it is"))
    if burst := _first(texts, ("RUNAI_GPU_MEMORY_LIMIT", "gpu-fraction-limit")):
        return Answer(
            left=Left(burst.key, "a claim has one amount and no limit above it, up to which memory may burst")
        )
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
    count, counted = 1, texts.get("gpu-fraction-num-devices")
    if counted:
        count = int(counted.text) if _NUMBER(counted.text) else 0
        if not count:
            reason = f"{counted.text[:_SHOWN]!r} is not a number of GPUs"
            return Answer(refusals=(Refusal(counted.key, reason, "write a whole number from 1 up"),))
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
    notes = [Note(first.key, Action.APPROXIMATED, f"{text}, enforced from now on; {_UNLIMITED}")]
    if counted:
        notes.append(Note(counted.key, Action.TRANSLATED, several(count, "distinct GPU")))
    if named := texts.get("gpu-fraction-container-name"):
        notes.append(Note(named.key, Action.TRANSLATED, f"the claim is container {container}'s"))
    notes += _sharing(texts)
    notes += [Note(texts[name].key, Action.APPROXIMATED, why) for name, why in _LOST_TO_KAI.items() if name in texts]
    return Answer(demands=(Keyed(first.key, demand),), notes=tuple(notes), containers=(container,))


def _container(words: AskingPod[ShareOptions]) -> str | Answer:
    """Find the container that gets the GPUs: the one that is named, looked for among init containers first, or the first."""
    named = words.texts.get("gpu-fraction-container-name")
    if named is None:
        return words.containers[0] if words.containers else Answer(left=Left("containers", "the pod has none"))
    if named.text in (*words.init_containers, *words.containers):
        return named.text
    reason = f"the pod has no container {named.text[:_SHOWN]!r}"
    return Answer(refusals=(Refusal(named.key, reason, "name one of its containers"),))


def _memory(memory: Hint) -> int | Answer:
    """Read gpu-memory in bytes."""
    if not _NUMBER(memory.text) or not int(memory.text):
        reason = f"{memory.text[:_SHOWN]!r} is not a number of MiB"
        return Answer(refusals=(Refusal(memory.key, reason, "write a whole number from 1 up, without a unit"),))
    if int(memory.text) >= MOST_MIB:
        return Answer(left=Left(memory.key, f"{memory.text} MiB are more than any GPU has"))
    return int(memory.text) * MIB


def _portion(fraction: Hint) -> Fraction | Answer:
    """Read gpu-fraction in percent."""
    text = fraction.text
    number = float(text) if len(text) <= _LETTERS and _PART(text) else 0.0
    if not 0 < number < 1:
        reason = f"{text[:_SHOWN]!r} is not a part of a GPU"
        return Answer(refusals=(Refusal(fraction.key, reason, "write a number above 0 and below 1, such as 0.5"),))
    if number < 0.01:
        return Answer(left=Left(fraction.key, f"{text} is less than a hundredth, the least that KAI counts"))
    return Fraction(text) * 100


def _sharing(texts: Mapping[str, Hint]) -> Iterable[Note]:
    """Say how pods on one GPU share its compute: a claim of a share says nothing of MPS."""
    mode, mps = texts.get("kai.scheduler/gpu-compute-sharing-mode"), texts.get("mps")
    turns = "without MPS: pods with claims of their own take turns on a GPU"
    if mode and mode.text == "sm-sharing":
        yield Note(mode.key, Action.APPROXIMATED, turns)
    elif mode:
        yield Note(mode.key, Action.TRANSLATED, "pods with claims of their own take turns on a GPU")
    if mps and mps.text == "true":
        yield Note(mps.key, Action.APPROXIMATED, turns)


_REMOTE = f"its webhook makes workers of it that talk over its own protocol; {_opt_in('tensorfusion')}"
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
        left(
            f"{_TF}enabled",
            "the pod is Tensor Fusion's, whatever stands on its containers",
            _REMOTE,
            Position.LABEL,
            role=Role.ASKS,
            unit=Unit.BOOL,
            when="true",
        ),
        *(_asks(f"{_TF}{name}", text, _REMOTE) for name, text in _AMOUNTS.items()),
        *(_beside(f"{_TF}{name}", "shapes the request") for name in _SHAPES),
        *(_beside(f"{_TF}{name}", "an output", because=_OUTPUT) for name in _OUTPUTS),
        left(
            f"{_TF}index_<index>",
            "a handshake between its scheduler and its device plugin",
            "it asks for nothing by itself",
        ),
    ),
)


class TensorFusionOptions(ShareOptions, frozen=True, kw_only=True):
    """What becomes of Tensor Fusion's pods, and what a TFLOPS is."""

    # Model, as annotations have it (`gpu-model`) and as a part of the driver's productName: FP16 TFLOPS of the whole GPU.
    tflops: dict[str, int] = {}

    def mistakes(self) -> Iterable[Mistake]:
        """A model has a name and computes something."""
        for model, most in self.tflops.items():
            if not model or most < 1:
                path = f"/tflops/{escape(model)}"
                yield Mistake(path, f"{most} TFLOPS of {model!r} make no GPU", "write 1 or more, such as H100: 989")


# What no claim says: the pod stays with the first of these that it has, with this value ("" for any).
_UNSAID = (
    ("is-local-gpu", "false", "a remote GPU is on another node than the pod, where no claim of the pod reaches"),
    ("workload-profile", "", "an object holds the amounts, which drawbridge does not read"),
    ("container-gpu-count", "", "containers get different GPUs of one worker, and the claim gives all of them to each"),
    ("gpu-indices", "", "drivers publish no index of a host's GPUs"),
    ("isolation", "partitioned", "which partition it gets is told by templates of Tensor Fusion's own: ask by nvidia.com/mig-<profile>"),
    ("partition-id", "", "which partition it means is told by templates of Tensor Fusion's own: ask by nvidia.com/mig-<profile>"),
    ("embedded-worker", "true", "its worker talks a protocol of Tensor Fusion's own"),
    ("dedicated-worker", "true", "its worker talks a protocol of Tensor Fusion's own"),
    ("worker-pod-template", "", "it shapes a worker of Tensor Fusion's own"),
    ("workload", "", "it names a worker of Tensor Fusion's own"),
    ("selected-workload", "", "it names a worker of Tensor Fusion's own"),
    ("enabled-replicas", "", "only some pods of the workload are meant, and Tensor Fusion counts which"),
    ("gang-enabled", "true", "only Tensor Fusion's scheduler keeps a gang together"),
)  # fmt: skip
_IGNORED = {
    "qos": "no PriorityClass is set by it: name one in priorityClassName",
    "gpupool": "a claim knows no pools: name the nodes in nodeSelector",
    "autoscale": "amounts of a claim do not change while the pod runs",
}
_ISOLATIONS = ("soft", "hard", "shared")
_MOST = 128  # GPUs of a worker


def read_tensor_fusion(words: AskingPod[TensorFusionOptions]) -> Answer:
    """Read a pod as Tensor Fusion's webhook would for a local GPU: the containers that are named see the same GPUs."""
    texts = {name.removeprefix(_TF): hint for name, hint in words.texts.items()}
    enabled = texts.get("enabled")
    if enabled is None:
        hint = _first(texts, _AMOUNTS)
        assert hint
        return Answer(left=Left(hint.key, f"without label {_TF}enabled it is a worker that Tensor Fusion made"))
    if placed := _first(texts, _OUTPUTS):
        return Answer(
            left=Left(placed.key, "Tensor Fusion has prepared or placed the pod already, and it stays as it is")
        )
    for name, value, why in _UNSAID:
        if (hint := texts.get(name)) and value in ("", hint.text):
            return Answer(left=Left(hint.key, why))
    vendor, isolation = texts.get("vendor"), texts.get("isolation")
    if vendor and vendor.text.lower() != "nvidia":
        return Answer(left=Left(vendor.key, "shares are claimed of NVIDIA's GPUs alone"))
    if isolation and isolation.text not in _ISOLATIONS:
        return Answer(left=Left(isolation.key, f"isolation {isolation.text[:_SHOWN]!r} is unknown"))
    if words.beside:
        return Answer(
            left=Left(
                words.beside[0], f"asked for beside label {enabled.key}: Tensor Fusion counts it as GPUs of its own"
            )
        )
    containers = _injected(words, texts.get("inject-container"))
    if isinstance(containers, Answer):
        return containers
    counted = texts.get("gpu-count")
    count = int(counted.text) if counted and _NUMBER(counted.text) else 1
    if counted and (not _NUMBER(counted.text) or not 1 <= count <= _MOST):
        reason = f"{counted.text[:_SHOWN]!r} is not a number of GPUs"
        return Answer(refusals=(Refusal(counted.key, reason, f"write a whole number from 1 to {_MOST}"),))
    asked = _whole(texts, count) or _share(texts, count, words.options)
    if isinstance(asked, Answer):
        return asked
    key, demand, notes = asked
    gone = "Tensor Fusion's webhook must pass the pod by (docs/tensor-fusion.md), and its quota no longer counts it"
    notes = [Note(enabled.key, Action.APPROXIMATED, gone), *notes]
    if counted:
        notes.append(Note(counted.key, Action.TRANSLATED, several(count, "distinct GPU")))
    if named := texts.get("inject-container"):
        notes.append(Note(named.key, Action.TRANSLATED, f"the claim is seen by {', '.join(containers)}"))
    noted = {note.key for note in notes}
    for name in ("gpu-model", "isolation", "is-local-gpu", "sidecar-worker", "vendor", "dedicated-gpu"):
        if name in texts and texts[name].key not in noted:
            notes.append(Note(texts[name].key, Action.TRANSLATED))
    notes += [Note(texts[name].key, Action.IGNORED, why) for name, why in _IGNORED.items() if name in texts]
    return Answer(demands=(Keyed(key, demand),), notes=tuple(notes), containers=containers)


_Asked = tuple[str, Demand, list[Note]]


def _injected(words: AskingPod[TensorFusionOptions], named: Hint | None) -> tuple[str, ...] | Answer:
    """Find the containers that get the GPUs."""
    wanted = [name.strip() for name in named.text.split(",")] if named and named.text else []
    if not wanted and len(words.containers) == 1:
        return words.containers
    if not wanted:
        reason = "which of the containers gets the GPU is not said"
        return Answer(refusals=(Refusal(f"{_TF}inject-container", reason, "name it in this annotation"),))
    found = tuple([name for name in words.containers if name in wanted])
    if not found and named:
        return Answer(left=Left(named.key, "names no container of the pod, which Tensor Fusion passes by"))
    return found


def _whole(texts: Mapping[str, Hint], count: int) -> _Asked | Answer | None:
    """Read a demand for whole GPUs; None where parts are asked for."""
    dedicated, isolation, model = texts.get("dedicated-gpu"), texts.get("isolation"), texts.get("gpu-model")
    is_dedicated = dedicated is not None and dedicated.text == "true"
    asking = dedicated if is_dedicated else isolation
    if asking is None or not (is_dedicated or asking.text == "shared"):
        return None
    if is_dedicated and (model is None or not model.text):
        return Answer(refusals=(Refusal(asking.key, "a whole GPU of no model", f"name the model in {_TF}gpu-model"),))
    demand = Demand(target="gpu", count=count, models=(model.text,) if model and model.text else ())
    notes = [Note(asking.key, Action.TRANSLATED, several(count, "whole GPU"))]
    notes += [Note(model.key, Action.APPROXIMATED, f"the product name contains {model.text[:_SHOWN]}")] if model else []
    for name in _SHARES:
        if name in texts:
            notes.append(Note(texts[name].key, Action.TRANSLATED, "the whole GPU is claimed"))
    return asking.key, demand, notes


_MEMORY = ("vram-limit", "vram-request")
_COMPUTE = ("tflops-limit", "compute-percent-limit", "tflops-request", "compute-percent-request")
_SHARES = (*_MEMORY, *_COMPUTE)


def _share(texts: Mapping[str, Hint], count: int, options: TensorFusionOptions) -> _Asked | Answer:
    """Read a demand for parts of GPUs. The limit of an amount is claimed, because the target enforces what is claimed."""
    amounts: dict[str, Fraction] = {}
    for name in _SHARES:
        hint = texts.get(name)
        if hint is None or not hint.text:
            continue
        try:
            amount = Fraction(parse(hint.text).nano, NANO)
        except QuantityError:
            return Answer(left=Left(hint.key, f"{hint.text[:_SHOWN]!r} is not a quantity"))
        if amount < 0:
            return Answer(left=Left(hint.key, f"{hint.text[:_SHOWN]} is below 0"))
        if amount:
            amounts[name] = amount
    held = next((name for name in _MEMORY if name in amounts), "")
    compute = next((name for name in _COMPUTE if name in amounts), "")
    if not held:
        reason = f"no memory is asked for: add {_TF}vram-limit, or a claim would take all of it"
        return Answer(left=Left(texts["enabled"].key, reason))
    model = texts.get("gpu-model")
    named = model.text if model else ""
    percent = amounts.get(compute, Fraction(0))
    if compute.startswith("tflops"):
        if not named and len(options.tflops) == 1:
            (named,) = options.tflops
        if not named and options.tflops:
            reason = f"how much of a GPU it is depends on the model: add {_TF}gpu-model"
            return Answer(left=Left(texts[compute].key, reason))
        if named not in options.tflops:
            entry = f"{{{named[:_SHOWN] or 'MODEL'}: TFLOPS}}"
            reason = f"how much of a GPU it is depends on the model: an administrator can declare `tensorfusion: {{tflops: {entry}}}` ({TABLES})"
            return Answer(left=Left(texts[compute].key, reason))
        percent = percent * 100 / options.tflops[named]
    if percent > 100:
        return Answer(left=Left(texts[compute].key, f"{float(percent):g} % is more than a GPU has"))
    memory, cores = ceil(amounts[held]), ceil(percent)
    size = f"{float(Fraction(memory, MIB)):g} MiB of each GPU"
    notes = [Note(texts[held].key, Action.APPROXIMATED if held == "vram-request" else Action.TRANSLATED, size)]
    if compute:
        exact = percent == cores and compute.startswith("compute")
        of_model = f" by the TFLOPS of {named[:_SHOWN]}" if compute.startswith("tflops") else ""
        text = f"{cores} % of each GPU{of_model}"
        notes.append(Note(texts[compute].key, Action.TRANSLATED if exact else Action.APPROXIMATED, text))
    else:
        notes.append(Note(texts[held].key, Action.APPROXIMATED, _UNLIMITED))
    for name in _SHARES:
        if name in texts and name not in (held, compute):
            more = amounts.get(name, Fraction(0)) < amounts.get(name.replace("request", "limit"), Fraction(0))
            text = "the limit is claimed, so that more is reserved" if more else "another amount decides"
            notes.append(Note(texts[name].key, Action.APPROXIMATED if more else Action.TRANSLATED, text))
    if named:
        text = f"the product name contains {named[:_SHOWN]}"
        notes.append(Note(model.key if model else texts[compute].key, Action.APPROXIMATED, text))
    demand = Demand(target="vgpu", count=count, memory=memory, cores=cores, models=(named,) if named else ())
    return texts[held].key, demand, notes


VOCABULARIES = (
    msgspec.structs.replace(vocabulary_of(KAI), options=ShareOptions, read_pod=read_kai),
    msgspec.structs.replace(vocabulary_of(TENSOR_FUSION), options=TensorFusionOptions, read_pod=read_tensor_fusion),
)
