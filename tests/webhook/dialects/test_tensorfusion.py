"""Tensor Fusion: the pod is theirs by its label."""

from tests.webhook.dialects.rows import rows_left
from tests.webhook.pods import WHOLE, actions, became, pod, untouched
from webhook.dialects.systems.annotated import TENSOR_FUSION

ROWS = rows_left(TENSOR_FUSION, {}, scheduler="tensor-fusion-scheduler")
ENABLED = "tensor-fusion.ai/enabled"


def labelled(value: str, *limits: dict) -> dict:
    made = pod(*limits, annotations={"tensor-fusion.ai/vram-limit": "8Gi"})
    made["metadata"]["labels"] = {ENABLED: value}
    return made


def test_a_pod_enabled_for_tensor_fusion_is_left_even_with_gpu_limits():
    done = became(labelled("true", {"nvidia.com/gpu": 1}), **WHOLE)
    assert untouched(done)
    assert actions(done)[ENABLED] == actions(done)["nvidia.com/gpu"] == "left"


def test_a_pod_that_is_not_enabled_is_not_theirs():
    done = became(labelled("false", {"nvidia.com/gpu": 1}), **WHOLE)
    assert actions(done) == {"nvidia.com/gpu": "translated"}
