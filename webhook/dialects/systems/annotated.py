"""Systems whose pods ask by annotation alone: KAI (and Run:ai) and Tensor Fusion.

Their schedulers place such pods with what stands in annotations, and their webhooks rewrite them; nothing on a container asks. A claim
beside those annotations would be a second request, so the pod stays, with the reason. The annotations of KAI are words that any program may use: they
count on a pod that names its scheduler or one of its queues. Keys follow kai-scheduler/KAI-Scheduler: pkg/common/constants, and
NexusGPU/tensor-fusion: pkg/constants.
"""

from __future__ import annotations

from webhook.dialects.plain import vocabulary_of
from webhook.dialects.table import Dialect, Position, Role, Row, Unit, left

_STAYS = "stays with the request that it is about"
_OUTPUT = "written by the system itself"


def _asks(name: str, meaning: str, because: str) -> Row:
    return left(name, meaning, because, Position.ANNOTATION, role=Role.ASKS)


def _beside(name: str, meaning: str, place: Position = Position.ANNOTATION, because: str = _STAYS) -> Row:
    return left(name, meaning, because, place)


_FRACTION = "a fraction of a GPU that is not chosen yet has no size, and KAI would go on placing it by its annotation"
_MEMORY = "KAI's webhook and scheduler would go on serving the annotation beside a claim: ask by claim, or by HAMi's nvidia.com/gpumem"
_SHARING = "stays with the fraction: pods with claims of their own take turns on a GPU; for MPS write one claim with `GpuConfig` for its consumers"

KAI = Dialect(
    name="kai",
    title="KAI Scheduler and Run:ai",
    schedulers=("kai-scheduler", "runai-scheduler"),
    keys=(
        _asks("gpu-fraction", "a share of one GPU's memory, above 0 and below 1", _FRACTION),
        _asks("gpu-memory", "MiB of one GPU", _MEMORY),
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

_REMOTE = "Tensor Fusion's webhook makes workers of it that talk over its own protocol: a claim alone would not make the pod run"
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

TENSOR_FUSION = Dialect(
    name="tensorfusion",
    title="Tensor Fusion",
    schedulers=("tensor-fusion-scheduler",),
    keys=(
        left(
            "tensor-fusion.ai/enabled",
            "the pod is Tensor Fusion's, whatever stands on its containers",
            _REMOTE,
            Position.LABEL,
            role=Role.ASKS,
            unit=Unit.BOOL,
            when="true",
        ),
        *(_asks(f"tensor-fusion.ai/{name}", text, _REMOTE) for name, text in _AMOUNTS.items()),
        *(_beside(f"tensor-fusion.ai/{name}", "shapes the request") for name in _SHAPES),
        *(_beside(f"tensor-fusion.ai/{name}", "an output", because=_OUTPUT) for name in _OUTPUTS),
        left(
            "tensor-fusion.ai/index_<index>",
            "a handshake between its scheduler and its device plugin",
            "it asks for nothing by itself",
        ),
    ),
)
VOCABULARIES = (vocabulary_of(KAI), vocabulary_of(TENSOR_FUSION))
