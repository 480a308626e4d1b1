"""The cache of a collection: lists replace it, events change it."""

from hypothesis import given
from hypothesis import strategies as st

from cluster.informers.cache import Delta, ObjectCache
from cluster.protocol import Change, Unreadable
from cluster.resources import metadata
from tests.cluster.objects import versioned_claim


def event(type_, name, version):
    return Change(type_, versioned_claim(name, version), str(version))


def test_events_older_than_a_list_change_nothing():
    cache = ObjectCache()
    cache.replace([versioned_claim("a", 5)])
    assert cache.change(event("MODIFIED", "a", 4)) is None
    assert cache.change(event("DELETED", "a", 5)) is None
    assert cache.change(event("DELETED", "b", 6)) is None
    assert metadata(cache.objects["ns", "a"]).resource_version == "5"
    assert cache.change(event("DELETED", "a", 6)) == Delta(("ns", "a"), versioned_claim("a", 5), None)


def test_a_list_older_than_the_cache_is_accepted():
    """The cluster was restored to an earlier time, so its list is the truth."""
    cache = ObjectCache()
    cache.replace([versioned_claim("a", 50)])
    assert [delta.new.metadata.resource_version for delta in cache.replace([versioned_claim("a", 7)])] == ["7"]
    assert cache.change(event("MODIFIED", "a", 8)) is not None


def test_an_object_that_became_unreadable_keeps_its_last_readable_form():
    cache = ObjectCache()
    cache.replace([versioned_claim("a", 1)])
    unreadable = Unreadable("ns", "a", "2", "odd")
    assert cache.skip(unreadable) is None
    assert ("ns", "a") in cache.objects
    assert cache.unreadable["ns", "a"] == unreadable
    cache.replace([], [unreadable])
    assert ("ns", "a") in cache.objects
    cache.change(event("MODIFIED", "a", 3))
    assert not cache.unreadable
    cache.skip(Unreadable("ns", "a", "4", "odd", deleted=True))
    assert not cache.objects


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["set", "delete", "read"])), max_size=40))
def test_a_cache_that_gets_every_event_equals_the_collection(steps):
    cache, collection, objects_of_listener = ObjectCache(), {}, {}
    for version, (name, step) in enumerate(steps, 1):
        deltas = []
        if step == "set":
            collection["ns", name] = versioned_claim(name, version)
            deltas = [cache.change(Change("MODIFIED", collection["ns", name], str(version)))]
        elif step == "delete" and collection.pop(("ns", name), None) is not None:
            deltas = [cache.change(event("DELETED", name, version))]
        elif step == "read":
            deltas = cache.replace(collection.values())
        for delta in deltas:
            assert objects_of_listener.get(delta.key) == delta.old
            objects_of_listener[delta.key] = delta.new
        assert dict(cache.objects) == collection
    assert {key: obj for key, obj in objects_of_listener.items() if obj is not None} == collection
