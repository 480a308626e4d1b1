"""Shares of GPUs in the clouds of Tencent, Volcengine and Baidu, and of nos. These keys always stay on the pod.

Their numbers are totals, which each vendor's scheduler divides over cards by its own rules, on nodes of the vendor. Keys follow
tkestack/gpu-manager: pkg/types; the documentation of qGPU and mGPU; nebuly-ai/nos: pkg/gpu.
"""

from webhook.dialects.plain import vocabulary_of
from webhook.dialects.table import Dialect, Position, node_label, untranslated

_SCHEDULER = "left to the vendor's scheduler, which divides it over cards by its own rules"
_NOS = "a slice under MPS has no counterpart: no driver enforces a part of a GPU by that name"
_BAIDU = "the model is part of the name, and the published product is unknown"
_NUMBERS = {
    "tencent.com/vcuda-core": ("compute, 100 is one GPU (gpu-manager)", _SCHEDULER),
    "tencent.com/vcuda-memory": ("memory in 256 MiB (gpu-manager)", _SCHEDULER),
    "tke.cloud.tencent.com/qgpu-core": ("compute in percent, a total (qGPU)", _SCHEDULER),
    "tke.cloud.tencent.com/qgpu-memory": ("memory in GiB, a total (qGPU)", _SCHEDULER),
    "tke.cloud.tencent.com/qgpu-core-greedy": ("compute that can be preempted (qGPU)", _SCHEDULER),
    "elasticgpu.com/gpu-core": ("compute (qGPU's open sibling)", _SCHEDULER),
    "elasticgpu.com/gpu-memory": ("memory (qGPU's open sibling)", _SCHEDULER),
    "vke.volcengine.com/mgpu-core": ("compute in percent, a total (mGPU)", _SCHEDULER),
    "vke.volcengine.com/mgpu-memory": ("memory in MiB, a total (mGPU)", _SCHEDULER),
    "baidu.com/<model>_cgpu": ("shares of GPUs of a model", _BAIDU),
    "baidu.com/<model>_cgpu_core": ("compute in percent, a total", _BAIDU),
    "baidu.com/<model>_cgpu_memory": ("memory in GiB, a total", _BAIDU),
    "baidu.com/<model>_cgpu_memory_percent": ("memory in percent", _BAIDU),
    "nvidia.com/gpu-<size>gb": ("slices of a GPU by memory (nos)", _NOS),
}
_ANNOTATIONS = {
    "tencent.com/vcuda-core-limit": "how far compute may burst",
    "tke.cloud.tencent.com/app-class": "whether compute can be preempted",
    "vke.volcengine.com/container-multiple-gpu": "cards of each container",
    "vke.volcengine.com/assumed": "an output",
}

DIALECT = Dialect(
    name="cloud",
    title="GPU shares of clouds, and nos",
    keys=(
        *(untranslated(name, text, reason) for name, (text, reason) in _NUMBERS.items()),
        *(
            untranslated(name, text, "stays with the keys that it refers to", Position.ANNOTATION)
            for name, text in _ANNOTATIONS.items()
        ),
        untranslated(
            "devices.gke.io/container.<container>",
            "device files that GKE's injector gives a container",
            "it takes devices without a request, so no scheduler or quota counts them",
            Position.ANNOTATION,
        ),
        node_label("nos.nebuly.com/gpu-partitioning", "how nos divides the node's GPUs"),
    ),
)
VOCABULARY = vocabulary_of(DIALECT)
