"""Volcano's gpushare: one card serves the sum of a pod's requests."""

from tests.webhook.dialects.rows import Row, rows_not_translated
from tests.webhook.pods import container, exactly, outcomes, patched, pod, refused, share, untouched, verdict_of
from webhook.dialects.volcanoshare import DIALECT

MEMORY, NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
ROWS = {
    MEMORY: Row(pod({MEMORY: 1024}), "approximated"),
    NUMBER: Row(pod({NUMBER: 1}), "translated"),
    **rows_not_translated(DIALECT, {MEMORY: 1}),
}


def test_requesting_containers_share_a_card_that_holds_their_sum():
    manifest = pod({MEMORY: 1000}, {MEMORY: 500}, {})
    verdict = verdict_of(manifest)
    assert exactly(verdict) == [share(memory="1500Mi", cores="0")]
    claims_by_container = [
        container["resources"].get("claims", []) for container in patched(manifest, verdict)["spec"]["containers"]
    ]
    assert [len(claims) for claims in claims_by_container] == [1, 1, 0]
    assert claims_by_container[0] == claims_by_container[1]


def test_an_init_container_adds_only_its_excess():
    verdict = verdict_of(pod({MEMORY: 1000}, init=(container("i", {MEMORY: 1800}),)))
    assert exactly(verdict) == [share(memory="1800Mi", cores="0")]


def test_gpu_numbers_request_whole_gpus():
    assert exactly(verdict_of(pod({NUMBER: 1}, {NUMBER: 2}))) == [{"class": "gpu.nvidia.com", "count": 3}]
    assert refused(verdict_of(pod({NUMBER: 1}, {MEMORY: 2})))


def test_zero_memory_requests_nothing():
    assert untouched(verdict_of(pod({MEMORY: 0})))
    assert outcomes(verdict_of(pod({MEMORY: 0})))[MEMORY] in {"left", "translated"}


def test_memory_is_multiplied_by_the_factor():
    assert exactly(verdict_of(pod({MEMORY: 10}), volcanoshare={"memoryFactor": 100})) == [
        share(memory="1000Mi", cores="0")
    ]
