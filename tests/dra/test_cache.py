"""The cache that is bounded by bytes."""

import tracemalloc

import pytest

from dra.cache import Cache


def test_a_cached_value_is_found_again():
    cache: Cache[str] = Cache(100)
    cache.put("a", "A", 10)
    assert cache.get("a") == "A"
    assert cache.get("b") is None


def test_a_value_too_heavy_for_the_cache_is_not_stored():
    cache: Cache[str] = Cache(100)
    cache.put("a", "A", 51)  # more than half of the limit
    assert cache.get("a") is None


def test_the_cache_evicts_values_that_are_not_used():
    cache: Cache[int] = Cache(100)
    cache.put("asked", 1, 10)
    cache.put("forgotten", 2, 10)
    for number in range(50):
        cache.put(number, number, 10)
        assert cache.get("asked") == 1
    assert cache.get("forgotten") is None
    assert len(cache) <= 10


@pytest.mark.long
def test_the_cache_never_exceeds_its_limit():
    cache: Cache[bytes] = Cache(1 << 20)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(10_000):
        cache.put(number, bytes(10_000), 10_000)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 1.2 * (1 << 20)


def test_the_cache_can_be_cleared():
    cache: Cache[int] = Cache(100)
    cache.put("a", 1, 10)
    cache.clear()
    assert cache.get("a") is None
    assert len(cache) == 0
