"""Aliyun's gpushare: a pod requests gigabytes of memory on one card."""

import pytest

from tests.webhook.dialects.rows import Row, rows_not_translated
from tests.webhook.pods import exactly, pod, refused, share, untouched, verdict_of
from webhook.dialects.aliyun import DIALECT

MEMORY, CORES, WHOLE_GPUS = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage", "aliyun.com/gpu"
ROWS = {
    MEMORY: Row(pod({MEMORY: 3}), "approximated"),
    CORES: Row(pod({MEMORY: 8, CORES: 30}), "translated"),
    WHOLE_GPUS: Row(pod({WHOLE_GPUS: 2}), "translated"),
    **rows_not_translated(DIALECT, {MEMORY: 3}),
}


def test_the_memory_unit_is_configurable():
    assert exactly(verdict_of(pod({MEMORY: 512}), aliyun={"memoryUnit": "MiB"})) == [share(memory="512Mi", cores="0")]


@pytest.mark.parametrize("cores", [3, 105])
def test_a_compute_percentage_outside_aliyuns_steps_is_refused(cores):
    assert refused(verdict_of(pod({MEMORY: 8, CORES: cores})))


def test_compute_without_memory_requests_nothing():
    assert untouched(verdict_of(pod({CORES: 30})))


def test_whole_gpus_are_requested_by_count():
    assert exactly(verdict_of(pod({WHOLE_GPUS: 2}))) == [{"class": "gpu.nvidia.com", "count": 2}]
