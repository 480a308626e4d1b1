from serving.fair_cache import FairCache


def cached(*entries, limit):
    """The keys that stay, of entries `owner` + `number`, put in this order."""
    cache = FairCache()
    for key in entries:
        cache.put(key, key.upper(), owner=key[0], limit=limit)
    return [key for key in dict.fromkeys(entries) if cache.get(key) == key.upper()]


def test_the_owner_with_the_most_entries_loses_its_oldest_one():
    assert cached("a1", "b1", "b2", "b3", limit=3) == ["a1", "b2", "b3"]
    assert cached("a1", "b1", "b2", "b3", "b4", "b5", limit=3) == ["a1", "b4", "b5"]


def test_an_entry_that_is_put_again_is_the_newest_of_its_owner():
    assert cached("a1", "b1", "b2", "b1", "b3", limit=3) == ["a1", "b1", "b3"]


def test_a_discarded_entry_makes_room():
    cache = FairCache()
    for key in ("a1", "a2"):
        cache.put(key, key, owner="a", limit=2)
    cache.discard("a1")
    cache.discard("a1")
    cache.put("a3", "a3", owner="a", limit=2)
    assert (cache.get("a1"), cache.get("a2"), len(cache)) == (None, "a2", 2)
