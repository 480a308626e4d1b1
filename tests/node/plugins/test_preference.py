"""The order of devices that a plugin prefers."""

from hypothesis import given, settings
from hypothesis import strategies as st

from node.messages import DeviceIds, PluginDevice, PreferenceResponse
from node.plugins import PluginPreference
from tests.draws import draws


def devices(*ids, sick=()):
    return tuple(PluginDevice(id=id_, health="Unhealthy" if id_ in sick else "Healthy") for id_ in ids)


def ask(preference, chooses):
    """Answer the calls to a plugin with `chooses` until no call is left; return the calls."""
    calls = []
    while choice := preference.next_choice():
        calls.append(choice)
        preference.learn(PreferenceResponse(containers=(DeviceIds(ids=tuple(chooses(choice))),)))
    return calls


def pairs(choice):
    """A plugin that prefers 0 with 2, and 1 with 3."""
    want = ["0", "2", "1", "3"]
    return sorted(
        choice.included
        + tuple([id_ for id_ in want if id_ not in choice.included][: choice.size - len(choice.included)])
    )


def test_devices_are_ordered_as_the_plugin_prefers():
    preference = PluginPreference(devices("0", "1", "2", "3"))
    calls = ask(preference, pairs)
    assert [offered.id for offered in preference.ordered()] == ["0", "2", "1", "3"]
    assert [choice.size for choice in calls] == [1, 2, 3]
    assert [choice.included for choice in calls] == [(), ("0",), ("0", "2")]


def test_an_unhealthy_device_comes_after_the_preferred_devices():
    """The adapter does not offer it to the plugin either."""
    preference = PluginPreference(devices("0", "1", "2", sick=("0",)))
    [first] = ask(preference, lambda _: ["2"])
    assert first.available == ("1", "2")
    assert [offered.id for offered in preference.ordered()] == ["2", "0", "1"]


def test_an_invalid_preference_ends_the_calls():
    for nonsense in ([], ["9"], ["0", "1"]):
        preference = PluginPreference(devices("0", "1", "2"))
        assert len(ask(preference, lambda _, answer=nonsense: answer)) == 1
        assert [offered.id for offered in preference.ordered()] == ["0", "1", "2"]


class Compared(str):
    """An id that counts its comparisons."""

    __slots__ = ()
    times = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Compared.times += 1
        return str.__eq__(self, other)


def test_a_preference_with_very_many_ids_is_compared_quickly():
    """Comparing 40,000 ids with 1,024 devices each took a second of the event loop, for each of sixteen calls."""
    preference = PluginPreference(devices(*map(str, range(1024))))
    ask(preference, lambda _: [Compared(f"x{number}") for number in range(10_000)])
    assert Compared.times < 100_000


@settings(max_examples=draws(200), deadline=None)
@given(data=st.data(), count=st.integers(0, 40))
def test_any_preference_keeps_each_device_once_in_few_calls(data, count):
    every = [str(number) for number in range(count)]
    preference = PluginPreference(devices(*every))
    calls = ask(preference, lambda choice: data.draw(st.lists(st.sampled_from([*every, "x"]), max_size=4)) if data.draw(st.booleans()) else list(choice.available[: choice.size]))  # fmt: skip
    assert len(calls) <= 16
    assert sorted(offered.id for offered in preference.ordered()) == sorted(every)
