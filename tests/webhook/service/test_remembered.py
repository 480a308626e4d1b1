"""The webhook's caches (compiled selectors, claims of a request, facts about a fleet) never change an answer.

One webhook decides each random review twice, while it follows a changing cluster. A second webhook, which is started for each review with
empty caches and reads the cluster anew, decides the review once more. The answers and the logged records are equal.
"""

import random
import sys
from functools import _lru_cache_wrapper

import pytest

from allocator import FleetMemo
from allocator.problem.attributes import PageCache
from allocator.problem.cache import CompileCache
from dra.cache import Cache
from tests.limits import PATIENCE, draws
from tests.webhook.admission.reviews import review
from tests.webhook.pods import NVIDIA_BY_CLAIM, WHOLE_GPUS, configured
from tests.webhook.service.random_reviews import (
    CONFIGURATIONS,
    GPU_CONTAINER,
    ChangingCluster,
    RandomReviews,
    new_decider,
)

PACKAGES = ("allocator", "cluster", "dra", "runtime", "webhook")


def caches():
    """Return all caches of the product's modules, by name. Caches of objects end with the objects."""
    by_name = {}
    for name, module in sys.modules.items():
        if name.partition(".")[0] in PACKAGES:
            for attribute, value in vars(module).items():
                if isinstance(value, Cache | _lru_cache_wrapper):
                    by_name[f"{name}.{attribute}"] = value
    return by_name


def forget_everything():
    """Clear all caches of the process."""
    for cache in caches().values():
        cache.clear() if isinstance(cache, Cache) else cache.cache_clear()


def differences_to_fresh_webhook(seed, count, configuration):
    """Return the answers that differ from those of a freshly started webhook: each with its request and the fresh answer."""
    rng = random.Random(seed)
    cluster, reviews, decider = ChangingCluster(rng, configured(**configuration)), RandomReviews(rng), new_decider()
    differences = []
    for number in range(count):
        for _ in range(rng.randrange(3)):
            cluster.change(reviews.template)
        request = reviews.request()
        path = "validate" if rng.random() < 0.1 else "mutate"
        state = cluster.state(cluster.following_builder)
        bodies = [review(request["obj"], **_rest(request), uid=f"uid-{number}-{attempt}") for attempt in range(2)]
        answers = [_attempt(decider, path, body, state) for body in bodies]
        forget_everything()
        for body, answer in zip(bodies, answers, strict=True):
            fresh_answer = _attempt(new_decider(), path, body, cluster.state(cluster.read()))
            if answer != fresh_answer:
                differences.append((request, answer, fresh_answer))
        if not isinstance(fresh_answer, tuple | str):
            reviews.record(request, fresh_answer)
    return differences


def _rest(request):
    return {key: value for key, value in request.items() if key != "obj"}


def _attempt(decider, path, body, state):
    """Return the answer, or the text of the error."""
    try:
        return decider.decide(path, body, state, PATIENCE)
    except Exception as error:  # noqa: BLE001  it is compared: a review that cannot be read is refused, anything else is a 500
        return repr(error)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_caches_change_no_answer(name):
    differences = differences_to_fresh_webhook(name, draws(100), CONFIGURATIONS[name])
    assert not differences, (len(differences), differences[0])


def test_the_caches_are_found_and_all_of_them_are_cleared():
    by_name = caches()
    sorts = {(name.partition(".")[0], type(cache)) for name, cache in by_name.items()}
    assert sorts >= {(package, sort) for package in ("dra", "webhook") for sort in (Cache, _lru_cache_wrapper)}
    differences_to_fresh_webhook("some", 10, WHOLE_GPUS)
    forget_everything()
    assert not [
        name
        for name, value in by_name.items()
        if (len(value) if isinstance(value, Cache) else value.cache_info().currsize)
    ]


def fails_once(error, cache_class, method):
    """Return a method of a cache that fails at its first call, as after an interrupted write."""
    inner = getattr(cache_class, method)
    failed = []

    def failing(self, *args, **kwargs):
        if not failed:
            failed.append(self)
            raise error
        return inner(self, *args, **kwargs)

    return failing


@pytest.mark.parametrize("error", [KeyError("half"), TypeError("half"), MemoryError(), RecursionError()], ids=repr)
@pytest.mark.parametrize(
    ("cache_class", "method"), [(FleetMemo, "query"), (CompileCache, "__init__"), (PageCache, "keep")], ids=str
)
def test_a_failing_cache_prevents_no_answer(monkeypatch, caplog, error, cache_class, method):
    cluster = ChangingCluster(random.Random(1), configured(**WHOLE_GPUS, **NVIDIA_BY_CLAIM))
    body = review({"metadata": {"name": "p"}, "spec": {"containers": [GPU_CONTAINER]}})
    fresh = new_decider().decide("mutate", body, cluster.state(cluster.read()), PATIENCE)
    assert fresh.record.outcome == "translated"
    monkeypatch.setattr(cache_class, method, fails_once(error, cache_class, method))
    state = cluster.state(cluster.following_builder)
    assert new_decider().decide("mutate", body, state, PATIENCE) == fresh
    assert "decided again without cached results" in caplog.text
    monkeypatch.undo()
    assert new_decider().decide("mutate", body, state, PATIENCE) == fresh, (
        "a partly written entry was left in the cache"
    )


def test_an_error_that_persists_without_caches_is_raised(monkeypatch):
    def failing(*_, **__):
        raise KeyError("always")

    cluster = ChangingCluster(random.Random(1), configured(**WHOLE_GPUS, **NVIDIA_BY_CLAIM))
    monkeypatch.setattr(FleetMemo, "query", failing)
    body = review({"metadata": {"name": "p"}, "spec": {"containers": [GPU_CONTAINER]}})
    with pytest.raises(KeyError, match="always"):
        new_decider().decide("mutate", body, cluster.state(cluster.following_builder), PATIENCE)
