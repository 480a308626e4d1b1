"""The history of changes of the embedded store is bounded."""

import pytest

from cluster.embedded.store import Store
from cluster.errors import Gone
from cluster.resources import PODS


def test_the_history_is_bounded():
    woken = []
    store = Store(lambda: woken.append(store.version), window=10)
    for _ in range(500):
        store.put(PODS, ("", "a"), {"metadata": {}})
    assert woken == [*range(2, 502)], "a change did not wake the watchers"
    changes = store.since("pods", store.version - 5)
    assert [change.version for change in changes] == [*range(store.version - 4, store.version + 1)]
    with pytest.raises(Gone):
        store.since("pods", 2)
    assert len(store.since("pods", store.version - 10)) == 10
    assert len(store._tables["pods"].history) <= 20
