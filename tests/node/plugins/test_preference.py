"""In which order a plugin would hand out its devices."""

from hypothesis import given, settings
from hypothesis import strategies as st

from node.messages import DeviceIds, PluginDevice, PreferenceResponse
from node.plugins import PluginPreference
from tests.draws import draws


def devices(*ids, sick=()):
    return tuple(PluginDevice(id=id_, health="Unhealthy" if id_ in sick else "Healthy") for id_ in ids)


def ask(preference, chooses):
    """Ask a plugin until it has no more to say; the questions."""
    asked = []
    while choice := preference.next_choice():
        asked.append(choice)
        preference.learn(PreferenceResponse(containers=(DeviceIds(ids=tuple(chooses(choice))),)))
    return asked


def pairs(choice):
    """A plugin that knows 0 and 2 to be near each other, and 1 and 3."""
    want = ["0", "2", "1", "3"]
    return sorted(
        choice.included
        + tuple([id_ for id_ in want if id_ not in choice.included][: choice.size - len(choice.included)])
    )


def test_the_devices_stand_as_the_plugin_would_choose():
    preference = PluginPreference(devices("0", "1", "2", "3"))
    asked = ask(preference, pairs)
    assert [offered.id for offered in preference.ordered()] == ["0", "2", "1", "3"]
    assert [choice.size for choice in asked] == [1, 2, 3]
    assert [choice.included for choice in asked] == [(), ("0",), ("0", "2")]


def test_an_unhealthy_device_is_not_offered_and_follows_the_preferred_ones():
    preference = PluginPreference(devices("0", "1", "2", sick=("0",)))
    [first] = ask(preference, lambda _: ["2"])
    assert first.available == ("1", "2")
    assert [offered.id for offered in preference.ordered()] == ["2", "0", "1"]


def test_a_plugin_that_answers_nonsense_is_asked_no_more():
    for nonsense in ([], ["9"], ["0", "1"]):
        preference = PluginPreference(devices("0", "1", "2"))
        assert len(ask(preference, lambda _, said=nonsense: said)) == 1
        assert [offered.id for offered in preference.ordered()] == ["0", "1", "2"]


class Compared(str):
    """An id that counts how often it is compared."""

    __slots__ = ()
    times = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Compared.times += 1
        return str.__eq__(self, other)


def test_an_answer_of_as_many_ids_as_a_message_may_have_holds_the_adapter_for_no_time():
    """Each of 40,000 ids was compared with each of 1,024 devices: a second in the event loop, for each of sixteen questions."""
    preference = PluginPreference(devices(*map(str, range(1024))))
    ask(preference, lambda _: [Compared(f"x{number}") for number in range(10_000)])
    assert Compared.times < 100_000


@settings(max_examples=draws(200), deadline=None)
@given(data=st.data(), count=st.integers(0, 40))
def test_any_answers_of_a_plugin_keep_each_device_once_and_the_questions_end(data, count):
    every = [str(number) for number in range(count)]
    preference = PluginPreference(devices(*every))
    asked = ask(preference, lambda choice: data.draw(st.lists(st.sampled_from([*every, "x"]), max_size=4)) if data.draw(st.booleans()) else list(choice.available[: choice.size]))  # fmt: skip
    assert len(asked) <= 16
    assert sorted(offered.id for offered in preference.ordered()) == sorted(every)
