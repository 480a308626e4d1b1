"""The order of devices that a plugin prefers."""

from hypothesis import given
from hypothesis import strategies as st

from node.messages import DeviceIds, PluginDevice, PreferenceResponse
from node.plugins import PluginPreference


def devices(*ids, unhealthy=()):
    return tuple(PluginDevice(id=id_, health="Unhealthy" if id_ in unhealthy else "Healthy") for id_ in ids)


def answer_calls(preference, choose):
    """Answer all calls to a plugin with the ids that `choose` returns; return the calls."""
    calls = []
    while choice := preference.next_choice():
        calls.append(choice)
        preference.learn(PreferenceResponse(containers=(DeviceIds(ids=tuple(choose(choice))),)))
    return calls


def choose_pairs(choice):
    """Choose like a plugin that prefers 0 with 2, and 1 with 3."""
    preferred = ["0", "2", "1", "3"]
    return sorted(
        choice.included
        + tuple([id_ for id_ in preferred if id_ not in choice.included][: choice.size - len(choice.included)])
    )


def test_devices_are_ordered_as_the_plugin_prefers():
    preference = PluginPreference(devices("0", "1", "2", "3"))
    calls = answer_calls(preference, choose_pairs)
    assert [offered.id for offered in preference.ordered()] == ["0", "2", "1", "3"]
    assert [choice.size for choice in calls] == [1, 2, 3]
    assert [choice.included for choice in calls] == [(), ("0",), ("0", "2")]


def test_an_unhealthy_device_comes_after_the_preferred_devices():
    """The plugin is not asked about unhealthy devices."""
    preference = PluginPreference(devices("0", "1", "2", unhealthy=("0",)))
    [first] = answer_calls(preference, lambda _: ["2"])
    assert first.available == ("1", "2")
    assert [offered.id for offered in preference.ordered()] == ["2", "0", "1"]


def test_an_invalid_preference_ends_the_calls():
    for invalid_ids in ([], ["9"], ["0", "1"]):
        preference = PluginPreference(devices("0", "1", "2"))
        assert len(answer_calls(preference, lambda _, answer=invalid_ids: answer)) == 1
        assert [offered.id for offered in preference.ordered()] == ["0", "1", "2"]


class CountingId(str):
    """An id that counts its comparisons."""

    __slots__ = ()
    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        CountingId.comparisons += 1
        return str.__eq__(self, other)


def test_a_preference_with_very_many_ids_is_compared_quickly():
    """In an earlier version the comparison of 40,000 ids with 1,024 devices blocked the event loop for a second."""
    preference = PluginPreference(devices(*map(str, range(1024))))
    answer_calls(preference, lambda _: [CountingId(f"x{number}") for number in range(10_000)])
    assert CountingId.comparisons < 100_000


@given(data=st.data(), count=st.integers(0, 40))
def test_any_preference_keeps_each_device_once_in_few_calls(data, count):
    ids = [str(number) for number in range(count)]
    preference = PluginPreference(devices(*ids))
    calls = answer_calls(preference, lambda choice: data.draw(st.lists(st.sampled_from([*ids, "x"]), max_size=4)) if data.draw(st.booleans()) else list(choice.available[: choice.size]))  # fmt: skip
    assert len(calls) <= 16
    assert sorted(offered.id for offered in preference.ordered()) == sorted(ids)
