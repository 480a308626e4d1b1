"""The embedded store can undo a change, and its history of changes is bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.embedded.store import Store
from cluster.errors import Gone


def objects_by_name(store, resource="pods"):
    return {record.meta.name: record.data for record in store.records(resource)}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["owner", "x"]), st.booleans()), min_size=1, max_size=12)
)
def test_an_undone_change_leaves_the_store_as_before(steps):
    store = Store()
    for name, owner, is_removal in steps:
        state_before = (
            store.version,
            objects_by_name(store),
            store.dependents("owner"),
            store.dependents("x"),
            store.since("pods", 0),
        )
        body = f'{{"metadata":{{"name":"{name}","ownerReferences":[{{"uid":"{owner}"}}]}}}}'.encode()

        def write(name=name, body=body, is_removal=is_removal):
            if is_removal and store.get("pods", ("", name)):
                return store.remove("pods", ("", name), body, store.version + 1)
            return store.put("pods", ("", name), body, store.version + 1)

        store.undo("pods", write())
        assert state_before == (
            store.version,
            objects_by_name(store),
            store.dependents("owner"),
            store.dependents("x"),
            store.since("pods", 0),
        )
        write()


def test_the_history_is_bounded_by_number_and_by_bytes():
    for options, body in (
        ({"window": 10}, b'{"metadata":{}}'),
        ({"window_bytes": 1000}, b'{"metadata":{},"x":"' + b"y" * 100 + b'"}'),
    ):
        store = Store(**options)
        for _ in range(500):
            store.put("pods", ("", "a"), body, store.version + 1)
        changes = store.since("pods", store.version - 5)
        assert [change.version for change in changes] == [*range(store.version - 4, store.version + 1)]
        with pytest.raises(Gone):
            store.since("pods", 2)
        assert len(store._tables["pods"].history) <= 20
