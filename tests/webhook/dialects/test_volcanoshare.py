"""Volcano's gpushare: the sum of a pod's requests is on one card."""

from tests.webhook.dialects.rows import Row, rows_left
from tests.webhook.pods import container, exactly, outcomes, patched, pod, refused, share, untouched, verdict_of
from webhook.dialects.systems.one_card import SHARE

MEMORY, NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
ROWS = {
    MEMORY: Row(pod({MEMORY: 1024}), "approximated"),
    NUMBER: Row(pod({NUMBER: 1}), "translated"),
    **rows_left(SHARE, {MEMORY: 1}),
}


def test_requesting_containers_share_a_card_that_holds_their_sum():
    value = pod({MEMORY: 1000}, {MEMORY: 500}, {})
    done = verdict_of(value)
    assert exactly(done) == [share(memory="1500Mi", cores="0")]
    seen = [container["resources"].get("claims", []) for container in patched(value, done)["spec"]["containers"]]
    assert [len(claims) for claims in seen] == [1, 1, 0]
    assert seen[0] == seen[1]


def test_an_init_container_adds_only_its_excess():
    done = verdict_of(pod({MEMORY: 1000}, init=(container("i", {MEMORY: 1800}),)))
    assert exactly(done) == [share(memory="1800Mi", cores="0")]


def test_gpu_numbers_request_whole_gpus():
    assert exactly(verdict_of(pod({NUMBER: 1}, {NUMBER: 2}))) == [{"class": "gpu.nvidia.com", "count": 3}]
    assert refused(verdict_of(pod({NUMBER: 1}, {MEMORY: 2})))


def test_zero_memory_requests_nothing():
    assert untouched(verdict_of(pod({MEMORY: 0})))
    assert outcomes(verdict_of(pod({MEMORY: 0})))[MEMORY] in {"left", "translated"}


def test_memory_is_counted_in_factors():
    assert exactly(verdict_of(pod({MEMORY: 10}), volcanoshare={"memoryFactor": 100})) == [
        share(memory="1000Mi", cores="0")
    ]
