"""Reflection, which keeps a copy of a collection up to date: phases of lists and watches, and the waits between failures."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import (
    BadRequest,
    ConfigError,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    StatusCause,
    Throttled,
    Unavailable,
    map_exceptions,
)
from cluster.informers.backoff import Backoff
from cluster.informers.reflection import TABLE, ReflectionPhase, ReflectionState, StepOutcome, outcome


def test_every_outcome_of_a_phase_is_in_the_table():
    impossible = {
        (ReflectionPhase.STREAM, StepOutcome.ENDED),
        (ReflectionPhase.LIST, StepOutcome.ENDED),
        (ReflectionPhase.LIST, StepOutcome.SILENT),
        (ReflectionPhase.WATCH, StepOutcome.COMPLETE),
    }
    assert set(TABLE) == set(product(ReflectionPhase, StepOutcome)) - impossible


def test_a_failure_is_counted_in_each_phase_of_reflection():
    for phase in ReflectionPhase:
        state = ReflectionState(phase=phase, version="7", failures=3)
        assert state.after(StepOutcome.FAILED).failures == 4


def test_after_an_expired_version_the_collection_is_listed_again():
    assert ReflectionState(phase=ReflectionPhase.WATCH, version="7").after(StepOutcome.GONE) == ReflectionState(
        phase=ReflectionPhase.STREAM, failures=1
    )
    assert ReflectionState(phase=ReflectionPhase.WATCH, streams=False, version="7").after(
        StepOutcome.GONE
    ) == ReflectionState(ReflectionPhase.LIST, streams=False, failures=1)


def test_a_refused_streamed_list_is_not_requested_again():
    state = ReflectionState().after(StepOutcome.REFUSED)
    assert (state.phase, state.streams, state.failures) == (ReflectionPhase.LIST, False, 0)
    assert state.advance("5").after(StepOutcome.COMPLETE).after(StepOutcome.GONE).phase is ReflectionPhase.LIST


def test_only_a_stable_watch_resets_the_failure_count():
    state = ReflectionState(phase=ReflectionPhase.LIST, failures=5).turn_page("token").advance("8")
    state = state.after(StepOutcome.COMPLETE).after(StepOutcome.ENDED)
    assert state.failures == 5
    assert state.after(StepOutcome.ENDED, was_stable=True).failures == 0
    assert state.after(StepOutcome.FAILED, was_stable=True).failures == 1


@given(st.lists(st.sampled_from(StepOutcome), max_size=30))
def test_reflection_has_a_resource_version_only_while_it_watches(outcomes):
    state = ReflectionState()
    for result in outcomes:
        if (state.phase, result) not in TABLE:
            continue
        if result is StepOutcome.COMPLETE:
            state = state.advance("9")
        state = state.after(result)
        assert bool(state.version) == (state.phase is ReflectionPhase.WATCH)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Gone("x"), StepOutcome.GONE),
        (Unavailable("x", causes=(StatusCause(reason="ResourceVersionTooLarge"),), status=504), StepOutcome.GONE),
        (Invalid("x"), StepOutcome.REFUSED),
        (BadRequest("x"), StepOutcome.REFUSED),
        (Forbidden("x"), StepOutcome.FAILED),
        (Throttled("x"), StepOutcome.FAILED),
        (Unavailable("x"), StepOutcome.FAILED),
    ],
)
def test_an_api_error_maps_to_its_reflection_outcome(error, expected):
    assert outcome(error) is expected


def test_waits_double_up_to_a_maximum():
    """The second argument of `seconds` is a random fraction: 0 halves the wait."""
    backoff = Backoff(least=1, most=30)
    assert [backoff.seconds(failures, 0.999999) for failures in (1, 2, 3, 4, 5, 6, 1000)] == pytest.approx(
        [1, 2, 4, 8, 16, 30, 30], rel=1e-5
    )
    assert backoff.seconds(3, 0.0) == 2


def test_a_servers_retry_delay_is_the_minimum_wait():
    assert Backoff(least=1).seconds(1, 0.5, Throttled("x", retry_after=9)) == 9
    assert Backoff(least=1).seconds(1, 0.5, Unavailable("x", retry_after=0.1)) == 0.75


def test_only_foreign_exceptions_in_the_table_are_converted():
    table = {KeyError: lambda error: ConfigError(f"no {error}")}
    with pytest.raises(ConfigError, match="no 'x'") as caught, map_exceptions(table):
        raise KeyError("x")
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(NotFound), map_exceptions({Exception: lambda _: ConfigError("never")}):
        raise NotFound("x")
    with pytest.raises(ZeroDivisionError), map_exceptions(table):
        _ = 1 / 0
